"""Where ranks write shards a checkpoint is a directory: what a script does with it as a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.rules.base import Finding, How, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.shared.named_files import Named, named_alike, read_files, written_files
from ddpify.rules.shared.stored import Stored
from ddpify.source import Site

_WHOLE = "leave it out, or use --checkpoint whole"
# Of a path, and of these with it: what is not the same of a directory.
_OF_FILES = frozenset(
    "os.remove os.unlink os.rename os.replace os.link os.symlink os.path.getsize os.stat open"
    " io.open builtins.open shutil.copy shutil.copy2 shutil.copyfile shutil.move wandb.save"
    " .unlink .rename .stat .open .read_bytes .symlink_to .hardlink_to".split()
)
# What may be of such a path however it is spelled: that one is left over, or looked into, is not
# found out before a run goes on. Searches by pattern find what is in the directory, too.
_WHATEVER = frozenset(
    "os.remove os.unlink os.rename os.replace os.system os.walk shutil.move shutil.copy"
    " shutil.copy2 shutil.copyfile subprocess.run subprocess.call subprocess.check_call"
    " subprocess.Popen mlflow.log_artifact .add_file .log_artifact .unlink .rglob .stat".split()
)
_ASKS = {"os.path.isfile": ("isfile", "exists"), ".is_file": ("is_file", "exists")}


def directories(facts: Facts, stored: Stored) -> Iterable[Finding]:
    """Yield what has to change, or is refused, where these checkpoints become directories."""
    for site, use in stored.otherwise.items():
        yield _refusal(
            site,
            "each rank would write its shards of a state that is used otherwise, too",
            "save what `state_dict()` gives, and use nothing else of it, or use --checkpoint whole",
            ((use, "used here"),),
        )
    for site, save in stored.saves.items():
        path = save.arg(1, "f")
        if path is not None and path.of(Kind.FILE):
            yield _refusal(
                site,
                "ranks write to a path, not to a file that is open",
                "save to a path, or use --checkpoint whole",
            )
    for site, calls in once(tuple(_of_paths(facts, stored))).items():
        yield _of_path(facts, site, calls[0])


def _of_paths(facts: Facts, stored: Stored) -> Iterator[Call]:
    """Calls that are given the path of such a checkpoint, or may be, and want a file."""
    used = (*written_files(facts), *read_files(facts)) if stored.saves else ()
    others = [one for one in used if one[0].name not in ("torch.save", "torch.load")]
    for call in facts.calls if stored.saves else ():
        if call.name in _WHATEVER or _is_deep(call):
            yield call
        elif call.name in _ASKS or call.name in _OF_FILES:
            given = (call.receiver_site, *call.arg_sites, *call.kwarg_sites.values())
            paths = [path for path in given if path is not None]
            alike = any(stored.named_as(facts, call, path) for path in paths)
            if alike or (call.name in _ASKS and not _is_told(facts, call, paths, others)):
                yield call


def _is_deep(call: Call) -> bool:
    """``glob.glob("**/*.pt", recursive=True)``."""
    texts = [value.const for value in call.args if isinstance(value.const, str)]
    return call.name.endswith("glob") and (
        "recursive" in call.kwargs or any("**" in t for t in texts)
    )


def _is_told(facts: Facts, call: Call, paths: list[Site], others: list[Named]) -> bool:
    """Whether a path is a text, or is used as a file; else a run might begin anew."""
    if any(isinstance(value.const, str) for value in call.args):
        return True
    return any(named_alike(facts, one, (call, path)) for one in others for path in paths)


def _of_path(facts: Facts, site: Site, call: Call) -> Finding:
    asks, there = _ASKS.get(call.name, ("", ""))
    text = facts.text(call.callee)
    if asks and text.endswith(f".{asks}"):
        code = f"{text.removesuffix(asks)}{there}"
        message = "the checkpoint is a directory: `isfile` would not find it"
        fix = (edit(facts, How.REPLACE, call.callee, code),)
        return Finding("DDP601", site, message, Severity.ERROR, fix)
    return _refusal(site, f"`{text}` may want a file, and the checkpoint is a directory", _WHOLE)


def _refusal(
    site: Site, message: str, advice: str, because: tuple[tuple[Site, str], ...] = ()
) -> Finding:
    return Finding("DDP601", site, message, Severity.ERROR, (), advice, because)
