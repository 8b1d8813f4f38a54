"""DDP004: an import of the helpers that not every start of the program resolves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from ddpify.names import HEADER_PREFIX
from ddpify.ranks.modules import Module
from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, Rule, Severity
from ddpify.rules.shared.written import imports
from ddpify.site import Site


@dataclass(frozen=True)
class _Root:
    """A folder from which the program imports ``top``: Python looks for modules there."""

    folder: PurePath
    top: str

    def holds(self, module: Module) -> bool:
        """Whether a file is imported from here, as ``top`` or a part of it."""
        return module.file.is_relative_to(self.folder / self.top)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per import of the helpers that an entry, or another one, does not find."""
    copies: set[PurePath] = {m.file for m in run.modules.values() if m.ours}
    if not run.script or not copies:
        return
    home = run.modules[run.start].file.parent
    roots = frozenset(_roots(run))
    for module in run.modules.values():
        for site, name in _imports(module, copies):
            own = [root for root in roots if root.holds(module)]
            if not _finds([home, *(root.folder for root in roots)], name, copies):
                who = f"`python {run.start}` ends here"
                yield _finding(site, name, who, Severity.ERROR)
            elif own and not _finds([root.folder for root in own], name, copies):
                who = f"whoever imports `{own[0].top}`, but a script in `{home.name}`, ends here"
                yield _finding(site, name, who, Severity.WARNING)


def _roots(run: Run) -> Iterator[_Root]:
    """``import nets.large`` finds ``…/nets/large.py``: Python looks in ``…``."""
    files = {module.file.with_suffix("") for module in run.modules.values()}
    for module in run.modules.values():
        named = {(name, attr) for name, attr, level in module.imports.values() if not level}
        for dotted in {text for name, attr in named for text in (name, f"{name}.{attr}")}:
            parts = tuple(part for part in dotted.split(".") if part)
            for file in files:
                whole = file.parts[:-1] if file.name == "__init__" else file.parts
                package = len(parts) > 1 or file.name == "__init__"
                if parts and package and whole[-len(parts) :] == parts:
                    yield _Root(PurePath(*whole[: -len(parts)]), parts[0])


def _imports(module: Module, copies: set[PurePath]) -> Iterator[tuple[Site, str]]:
    """``from nets.ddp_utils import …``, without dots before it, in no ``try`` that mends it."""
    stems = {file.stem for file in copies}
    if any(stem in module.source.text for stem in stems):
        for site, names in imports(module):
            name = names[0].rpartition(".")[0]
            if name.rpartition(".")[2] in stems:
                yield site, name


def _finds(folders: list[PurePath], dotted: str, copies: set[PurePath]) -> bool:
    """Whether the copy lies where the import says, below one of these folders."""
    return any(
        folder.joinpath(*dotted.split(".")).with_suffix(".py") in copies for folder in folders
    )


def _finding(site: Site, name: str, who: str, severity: Severity) -> Finding:
    return Finding(
        "DDP004",
        site,
        f"{who} with ModuleNotFoundError: `{name}` is not where Python looks for it then",
        severity,
        advice="keep the helpers in the package that imports them: `from package.ddp_utils import`",
    )


_COPY = f"""{HEADER_PREFIX}0.1 0
import torch.distributed as dist


def is_main_process():
    return dist.get_rank() == 0
"""
_MAIN = """import torch.distributed as dist

{}from nets.report import say

if __name__ == "__main__":
    dist.init_process_group("gloo")
    if is_main_process():
        say("start")
    dist.destroy_process_group()
"""
_REPORT = """from {} import is_main_process{}


def say(text):
    if is_main_process():
        print(text)
"""


def _project(main: str, copy: str, dotted: str, mark: str = "") -> Example:
    own = mark if main.startswith("nets") else ""
    here = f"from {dotted} import is_main_process{own}\n"
    files = {main: _MAIN.format(here), copy: _COPY, "nets/report.py": _REPORT.format(dotted, mark)}
    return Example((*files.items(), ("nets/__init__.py", "")), main)


RULE = Rule(
    "DDP004",
    "helpers-not-found",
    "Python looks for modules in the folder of the script that is started and in what is installed,"
    " not next to the file that imports. Where helpers lie beside one script, a package that"
    " imports them works for that script alone: other scripts, `python -m` and console scripts end"
    " with ModuleNotFoundError.",
    "The Python Tutorial, 6.1.2 The Module Search Path",
    lint=lint,
    bad=(
        _project("runs/main.py", "runs/helpers.py", "helpers", "  # DDP004"),
        _project("nets/main.py", "nets/helpers.py", "helpers", "  # DDP004"),
    ),
    good=(
        _project("main.py", "helpers.py", "helpers"),
        _project("runs/main.py", "nets/helpers.py", "nets.helpers"),
    ),
    fixes=False,
)
