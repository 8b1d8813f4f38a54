"""What ``check`` does about findings: fix them, or silence them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddpify.checking.causes import causes
from ddpify.checking.codes import UNREADABLE, UNUSED
from ddpify.checking.files import is_python
from ddpify.checking.fixing import Fixed, fix
from ddpify.checking.model import Checked, CheckError, CheckRequest
from ddpify.checking.noqa import Shell, in_shell, with_noqa
from ddpify.checking.run import check
from ddpify.notebooks import is_notebook
from ddpify.plan import Change
from ddpify.roots import is_marked, project_root
from ddpify.rules.base import Finding
from ddpify.source import Source, UnreadableSource
from ddpify.steps import StepListener
from ddpify.write import WriteError, apply


@dataclass(frozen=True)
class ActionFiles:
    """The files as they were checked: on disk, or from standard input."""

    asked: CheckRequest

    def read(self, path: str) -> bytes:
        """The bytes of a file by its path in a finding."""
        if self.asked.stdin is not None and Path(path).resolve() == self.asked.stdin.resolve():
            return self.asked.text
        return Path(path).read_bytes()


def fixes(asked: CheckRequest, findings: Iterable[Finding]) -> Fixed:
    """What fixing these findings comes to; nothing is written."""
    start = asked.stdin or asked.paths[0]
    return fix(findings, ActionFiles(asked).read, asked.settings(start).line_length)


def fixed(asked: CheckRequest, checked: Checked, unsafe: bool) -> Fixed:
    """What fixing everything comes to that may be fixed; nothing is written."""
    return fixes(asked, [one for one in checked.findings if unsafe or checked.safe(one)])


def written(asked: CheckRequest, done: Fixed, step: StepListener) -> Checked:
    """Write all changes or none, and say what is left to find.

    Standard input is not written to: ``asked`` has its new text already.
    """
    if not asked.stdin:
        _apply(done.changes, "ddpify check --fix")
    return replace(check(asked, step), fixed=len(causes(done.done)))


def silence(asked: CheckRequest, findings: Iterable[Finding]) -> tuple[int, tuple[str, ...]]:
    """Write a ``# noqa`` at each finding: how many, and the places where none can stand."""
    by_path: dict[str, list[Finding]] = {}
    left = []
    for one in findings:
        if one.rule in (UNUSED, UNREADABLE):
            left.append(f"{one.site}: {one.rule} has no line in which a comment could stand")
        elif is_notebook(one.site.path):
            left.append(f"{one.site}: write `# noqa: {one.rule}` yourself: it is a notebook's cell")
        else:
            by_path.setdefault(one.site.path, []).append(one)
    files = ActionFiles(asked)
    changes, count = [], 0
    for path, group in by_path.items():
        change, written, why = _silenced(path, files.read(path), group)
        changes.append(change)
        count += written
        left += why
    _apply(changes, "ddpify check --add-noqa")
    return count, tuple(left)


def _silenced(
    path: str, raw: bytes, findings: Sequence[Finding]
) -> tuple[Change, int, Sequence[str]]:
    """What becomes of one file, how many comments it gets, and which it cannot get."""
    codes: dict[int, list[str]] = {}
    for one in findings:
        codes.setdefault(one.site.span.line, []).append(one.rule)
    if not is_python(Path(path)):
        return _silenced_launcher(path, raw, codes)
    try:
        source = Source.from_bytes(raw, Path(path), path)
    except UnreadableSource as error:
        raise CheckError(str(error)) from error
    text, count = with_noqa(source.text, codes)
    return Change(path, raw, source.encode(text), ()), count, ()


def _silenced_launcher(
    path: str, raw: bytes, codes: Mapping[int, list[str]]
) -> tuple[Change, int, Sequence[str]]:
    """A shell script; what people read and what make reads is left to them."""
    from ddpify.launchers.discover import LauncherKind, kind_of

    source = Source.plain(raw, Path(path), path)
    if kind_of(path) in (LauncherKind.MAKE, LauncherKind.MARKDOWN):
        done = Shell(source.text, 0, tuple(codes))
    else:
        done = in_shell(path, source.text, codes)
    why = [
        f"{path}:{line}: no comment was written for {', '.join(codes[line])}; write `# noqa: "
        f"{', '.join(codes[line])}` in a line of the command, or ignore it in the settings"
        for line in done.left
    ]
    return Change(path, raw, source.encode(done.text), ()), done.count, why


def _apply(changes: Iterable[Change], command: str) -> None:
    try:
        apply(changes, Path.cwd(), command, _home)
    except WriteError as error:
        raise CheckError(str(error)) from error


def _home(file: Path) -> Path:
    """The project of a file, in which `ddpify undo` looks; loose ones are the current folder's."""
    root, here = project_root(file), Path.cwd()
    return here if not is_marked(root) and file.is_relative_to(here) else root


def new_text(asked: CheckRequest, changes: Iterable[Change]) -> bytes:
    """What standard input becomes."""
    assert asked.stdin is not None
    same = (one for one in changes if Path(one.path).resolve() == asked.stdin.resolve())
    return next((one.after for one in same), asked.text)
