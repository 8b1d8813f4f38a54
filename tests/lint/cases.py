"""The labelled suite: small distributed programs, right and wrong, and what is to be said of them.

The format is described in ``tests/lint/cases/README.md``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ddpify import vendor
from ddpify.lint import lint
from ddpify.names import EARLIER_NAMES, RUNTIME_NAMES
from ddpify.rules.base import Finding
from tests.projects import unmarked

FOLDER = Path(__file__).parent / "cases"
_FILE = re.compile(r"^--- (\S+)\n", re.MULTILINE)
_MARK = re.compile(r"(?:#|<!--).*?\b(DDP\d{3}(?: \| DDP\d{3})*)(?: \((error|warning|note)\))?")


@dataclass(frozen=True)
class Mark:
    """A line on which one of ``codes`` has to be reported, as a ``severity`` if that is given."""

    path: str
    line: int
    codes: frozenset[str]
    severity: str = ""

    def meets(self, finding: Finding) -> bool:
        """Whether a finding is the one that is wanted."""
        place = (finding.site.path, finding.site.span.line)
        as_said = self.severity in ("", finding.severity.value)
        return finding.rule in self.codes and place == (self.path, self.line) and as_said


@dataclass(frozen=True)
class Case:
    """One program. ``label``: bad, good (the bug's fix) or near-miss (looks wrong, is right)."""

    name: str
    title: str
    kind: str
    label: str
    bug: str
    files: tuple[tuple[str, str], ...]
    runtime: str = ""  # where the copy of the helpers goes, if there is one

    def put(self, folder: Path) -> Path:
        """Write the program into ``folder``, without its marks."""
        given = dict(self.files)
        bare = any("from ddp_utils " in text for text in given.values())
        helpers = self.runtime or ("ddp_utils.py" if bare else "")
        if helpers and helpers not in given:
            given[helpers] = vendor.core_text({*RUNTIME_NAMES, *dict(EARLIER_NAMES)})
        for path, text in {"requirements.txt": "torch\n", **given}.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(unmarked(text), "utf-8")
        return folder

    def marks(self) -> tuple[Mark, ...]:
        """What has to be found."""
        return tuple(
            Mark(path, number, frozenset(found.group(1).split(" | ")), found.group(2) or "")
            for path, text in self.files
            for number, line in enumerate(text.splitlines(), 1)
            if (found := _MARK.search(line)) and self.label == "bad"
        )


def parse(file: Path) -> Case:
    """Read a case."""
    head, *rest = _FILE.split(file.read_text("utf-8"))
    fields = dict(line.split(": ", 1) for line in head.splitlines() if line)
    files = tuple(zip(rest[::2], rest[1::2], strict=True))
    name = file.relative_to(FOLDER).with_suffix("").as_posix()
    return Case(name, fields["title"], fields["class"].split()[0], fields["label"].split()[0],
                fields["bug"].split()[0], files, fields.get("runtime", ""))  # fmt: skip


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case, by name."""
    return tuple(parse(file) for file in sorted(FOLDER.rglob("*.case")))


def findings(case: Case, folder: Path) -> list[Finding]:
    """What ``ddpify check`` says of a case."""
    from ddpify.launchers import legacy, no_group, per_task

    case.put(folder)
    files = [folder / path for path, _ in case.files]
    python = [file for file in files if file.suffix == ".py"]
    scripts = [file for file in files if file not in python]
    found = list(lint(folder, python, launchers=scripts).findings)
    found += no_group.findings(folder, scripts, python)
    return found + legacy.findings(folder, scripts) + per_task.findings(folder, scripts)
