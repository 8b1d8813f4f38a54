"""One project as an editor has it: files, buffers that are not written, what was found last."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddpify.checking.files import Group, is_python, root_of
from ddpify.checking.model import Checked, CheckError, CheckRequest
from ddpify.checking.run import check_groups, groups, is_excluded
from ddpify.judging import LintMemory
from ddpify.roots import ARCHIVE_MARKS, ROOT_MARKS
from ddpify.rules.base import Finding
from ddpify.settings import SettingsError
from ddpify.source import Source, UnreadableSource


@dataclass(frozen=True)
class ProjectAnswer:
    """What is wrong in the open files, by file; ``why``: in a sentence, why nothing can be said."""

    checked: Checked
    findings: Mapping[Path, tuple[Finding, ...]]
    why: str = ""


@dataclass
class ProjectReader:
    """The reader of one project. What it read last makes the next reading short.

    ``deep``: its folder is a project's; of another one (a home folder) only the files in it count.
    """

    root: Path
    deep: bool = True
    memory: LintMemory = field(default_factory=LintMemory)
    warm: bool = False
    _groups: tuple[Group, ...] | None = None
    _outdated: bool = False

    def forget(self) -> None:
        """Files came or went, or others than Python files changed: perhaps in the midst of a
        reading, which another thread does, so that the next one begins anew."""
        self._outdated = True

    def read(
        self, files: Sequence[Path], buffers: Mapping[Path, str], cache: bool = True
    ) -> ProjectAnswer:
        """Everything that is to be said of these files, ``buffers`` in the place of what is on
        disk."""
        if self._outdated:
            self._outdated = False  # first: what comes from now on counts for the next
            self.memory, self.warm, self._groups = LintMemory(), False, None
        texts = {f: encoded(text) for f, text in buffers.items() if text != text_of(f)}
        paths = (self.root,) if self.deep else tuple(self.root.glob("*.py"))
        asked = CheckRequest(paths, cache=cache, buffers=texts, memory=self.memory)
        try:
            checked = check_groups(self._project(asked), asked)
            for file in files:
                checked = _with(checked, self._alone(file, asked))
        except (CheckError, SettingsError) as error:
            return ProjectAnswer(Checked(), {}, str(error))
        self.warm = self.warm or bool(texts) or not cache
        shown = [file for file in files if file not in texts or is_python(file)]
        none = {file: () for file in files}  # launch scripts are read from disk, as they are saved
        return ProjectAnswer(checked, {**none, **_by_file(checked, shown)})

    def _project(self, asked: CheckRequest) -> tuple[Group, ...]:
        if self._groups is None:
            found = groups(asked, [])
            self._groups = tuple(one for one in found if one.root == self.root)
        return self._groups

    def _alone(self, file: Path, asked: CheckRequest) -> Checked:
        """A file that is no part of the project: it is new, or git ignores it."""
        known = {f for one in self._project(asked) for f in (*one.python, *one.launchers)}
        if file in known or is_excluded(file, asked) or not is_python(file):
            return Checked()
        alone = replace(asked, memory=None, paths=(file,), cache=False)
        return check_groups((Group(self.root, (file,)),), alone)


def top_of(file: Path, folders: Sequence[Path]) -> Path:
    """The top folder of a file's project; without a mark of one, the folder that is open."""
    root = root_of(file)
    opened = (folder for folder in folders if file.is_relative_to(folder))
    return root if is_marked(root) else next(opened, root)


def is_marked(root: Path) -> bool:
    """Whether something says that a project begins here."""
    return any((root / mark).exists() for mark in (*ROOT_MARKS, *ARCHIVE_MARKS))


def encoded(text: str) -> bytes:
    """A buffer as it would be written: in the encoding that it declares."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return text.encode(encoding, "replace")
    except (SyntaxError, LookupError):
        return raw


def text_of(file: Path) -> str:
    """What is on disk, decoded; nothing, where it cannot be read."""
    try:
        return _text(file.read_bytes(), file)
    except OSError:
        return ""


def _text(raw: bytes, file: Path) -> str:
    try:
        return Source.from_bytes(raw, file, "").text
    except UnreadableSource:
        return Source.plain(raw, file, "").text


def _with(one: Checked, other: Checked) -> Checked:
    rules = {**(one.rules or {}), **(other.rules or {})}
    return replace(one, findings=(*one.findings, *other.findings), rules=rules)


def _by_file(checked: Checked, files: Iterable[Path]) -> dict[Path, tuple[Finding, ...]]:
    found: dict[Path, list[Finding]] = {file: [] for file in files}
    for one in checked.findings:
        file = Path(os.path.abspath(one.site.path))
        if file in found:
            found[file].append(one)
    return {file: tuple(group) for file, group in found.items()}
