"""A project and a linter that is easy to foresee, so that the tool around it can be tested.

The linter reports calls of ``bad`` (DDP701, an error), ``slow`` (DDP402, a warning whose fix is
safe), ``risky`` (DDP601, whose fix is not) and ``noisy`` (DDP501, a note), where they stand.
"""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import ddpify.lint
from ddpify import cli
from ddpify.checking import judge
from ddpify.checking.model import Named
from ddpify.judging import LintMemory
from ddpify.lint import Linted
from ddpify.programs import Program
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.source import Site, Source, Span, UnreadableSource
from ddpify.steps import StepListener, untold

CODES = {
    "bad": ("DDP701", Severity.ERROR),
    "slow": ("DDP402", Severity.WARNING),
    "risky": ("DDP601", Severity.ERROR),
    "noisy": ("DDP501", Severity.NOTE),
}
NAMES = {
    "DDP000": Named("cannot-be-read", True),
    "DDP005": Named("unused-suppression", True),
    "DDP701": Named("metric-not-reduced", True),
    "DDP402": Named("accumulation-without-no-sync", True),
    "DDP601": Named("save-on-every-rank", False),
    "DDP501": Named("console-on-every-rank", True),
}
# What any of these tests writes is wrong somewhere; this is right.
CLEAN = "import torch.distributed as dist\n"


@dataclass
class Linter:
    """Stands for ``ddpify.lint``, and remembers what it was asked."""

    calls: list[dict[str, object]]

    def __call__(
        self,
        root: Path,
        files: Sequence[Path],
        *,
        texts: Mapping[Path, bytes] | None = None,
        assume_distributed: bool = False,
        wants: Callable[[str], bool] = lambda code: True,
        launchers: Sequence[Path] = (),
        step: StepListener = untold,
        memory: LintMemory | None = None,
    ) -> Linted:
        """As ``lint``."""
        names = tuple(file.relative_to(root).as_posix() for file in files)
        self.calls.append({"files": names, "assume": assume_distributed})
        step(f"Reading {len(files)} files")
        found: list[Finding] = []
        for file, name in zip(files, names, strict=True):
            raw = (texts or {}).get(file) or file.read_bytes()
            found += _findings(raw, file, name)
        programs = tuple(Program(name, f"{name}:1", "init_process_group") for name in names)
        return Linted(tuple(one for one in found if wants(one.rule)), programs=programs)


def _findings(raw: bytes, file: Path, name: str) -> Iterator[Finding]:
    try:
        source = Source.from_bytes(raw, file, name)
        tree = source.parse()
    except UnreadableSource as error:
        yield Finding("DDP000", Site(name, Span(1, 0, 1, 0)), str(error), Severity.ERROR)
        return
    for node in ast.walk(tree):
        kind = (
            node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        )
        if kind in CODES:
            yield _finding(kind, source.site(node), name)


def _finding(kind: str, site: Site, name: str) -> Finding:
    code, severity = CODES[kind]
    fix: tuple[Edit, ...] = ()
    if kind in ("slow", "risky"):
        fix = (Edit(How.REPLACE, site, "fine()"),)
    because = ((Site(name, Span(1, 0, 1, 6)), "imported here"),) if kind == "bad" else ()
    return Finding(
        code, site, f"{kind} is called", severity, fix, f"call fine, not {kind}", because
    )


@pytest.fixture
def linter(monkeypatch: pytest.MonkeyPatch) -> Linter:
    """The foreseeable linter in the place of the real one."""
    fake = Linter([])
    monkeypatch.setattr(ddpify.lint, "lint", fake)
    monkeypatch.setattr(judge, "named", lambda codes: {c: NAMES[c] for c in codes if c in NAMES})
    return fake


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linter: Linter) -> Path:
    """An empty project, which is the current folder."""
    top = tmp_path / "project"
    top.mkdir()
    (top / "pyproject.toml").write_text("")
    monkeypatch.chdir(top)
    return top


@dataclass(frozen=True)
class Said:
    """How one run of the command ended."""

    code: int
    out: str
    err: str

    @property
    def places(self) -> list[str]:
        """``path:line CODE`` of each finding that was printed."""
        lines = (line.split(":", 3) for line in self.out.splitlines() if _HEAD.search(line))
        return [f"{path}:{line} {rest.split()[1]}" for path, line, _, rest in lines]


Check = Callable[..., Said]
_HEAD = re.compile(r":\d+:\d+: (?:error|warning|note) DDP")


@pytest.fixture
def check(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    """Runs ``ddpify check`` in this process; ``stdin`` is what it reads there."""

    def run(*arguments: str, stdin: str = "") -> Said:
        stream = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
        monkeypatch.setattr(sys, "stdin", stream)
        code = cli.main(["check", *arguments])
        shown = capsys.readouterr()
        return Said(code, shown.out, shown.err)

    return run


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, with their folders."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
