"""How many of ten planted bugs `ddpify check` finds in public distributed training scripts.

    python -m benchmarks.silence FOLDER [--only WORD] [--jobs N] [--details]

FOLDER has the repositories of silence_scripts.py, each under `owner+name`, at the commit written
there. Each bug (silence_bugs.py) is planted alone, and what is found is compared with what is
found in the script itself. It counts as found when a rule that names such bugs says something new;
`-` is a bug that has no place in the script. What it said last is in silence.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.silence_bugs import BUGS, Scene, planted
from benchmarks.silence_scripts import SCRIPTS, Script
from ddpify.lint import lint
from ddpify.rules.base import Finding

Said = Counter[tuple[str, str, str]]


@dataclass(frozen=True)
class Row:
    """What became of each bug in one script: yes, no (with what else was said) or -."""

    script: Script
    marks: dict[str, str]
    details: tuple[str, ...]

    @property
    def found(self) -> int:
        return sum(mark == "yes" for mark in self.marks.values())

    @property
    def planted(self) -> int:
        return sum(mark != "-" for mark in self.marks.values())


def judge(script: Script, folder: Path) -> Row:
    """Plant each bug into a script."""
    root = folder / script.repository.replace("/", "+") / script.folder
    texts = {name: (root / name).read_text() for name in script.files}
    plain = Scene.of(texts).texts()
    known, program = _said(root, plain)
    marks, details = {}, [] if program else ["is not read as a program of several processes"]
    for bug, (_, rules) in BUGS.items():
        files = planted(texts, bug)
        if files is None:
            marks[bug] = "-"
            continue
        new = _said(root, files)[0] - known
        marks[bug] = "yes" if any(code in rules for code, _, _ in new) else "no"
        if marks[bug] == "no":
            others = ", ".join(sorted({code for code, _, _ in new})) or "nothing"
            details.append(f"{bug} at {_place(plain, files)}: {others}")
    return Row(script, marks, tuple(details))


def _said(root: Path, files: dict[str, str]) -> tuple[Said, bool]:
    texts = {(root / name).resolve(): text.encode() for name, text in files.items()}
    linted = lint(root, [root / name for name in files], texts=texts)
    lines = {name: text.splitlines() for name, text in files.items()}
    return Counter(_key(one, lines) for one in linted.findings), bool(linted.programs)


def _key(finding: Finding, lines: dict[str, list[str]]) -> tuple[str, str, str]:
    """A finding, whatever the number of its line."""
    site = finding.site
    of_file = lines.get(site.path, [])
    line = of_file[site.span.line - 1] if site.span.line <= len(of_file) else ""
    return finding.rule, site.path, line.strip()


def _place(before: dict[str, str], after: dict[str, str]) -> str:
    """The first line that differs."""
    for name, text in after.items():
        pairs = zip(text.splitlines(), before[name].splitlines(), strict=False)
        for number, (new, old) in enumerate(pairs, 1):
            if new != old:
                return f"{name}:{number} `{new.strip()}`"
    return "?"


def table(rows: Iterable[Row]) -> str:
    """Scripts by bugs, in Markdown."""
    lines = [f"| | {' | '.join(BUGS)} | found |", "|---" * (len(BUGS) + 2) + "|"]
    kept = list(rows)
    for row in kept:
        marks = " | ".join(row.marks[bug] for bug in BUGS)
        lines.append(f"| {row.script.name} | {marks} | {row.found} of {row.planted} |")
    sums = [Counter(row.marks[bug] for row in kept) for bug in BUGS]
    of_bugs = [f"{one['yes']} of {one['yes'] + one['no']}" for one in sums]
    found, planted_ = sum(r.found for r in kept), sum(r.planted for r in kept)
    lines.append(f"| all | {' | '.join(of_bugs)} | {found} of {planted_} |")
    return "\n".join(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="scripts with this word in their name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--details", action="store_true", help="what was not found, and where")
    options = parser.parse_args()
    chosen = [script for script in SCRIPTS if options.only in script.name]
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(judge, chosen, [options.folder] * len(chosen)))
    print(table(rows))
    for row in rows if options.details else ():
        for detail in row.details:
            print(f"{row.script.name}: {detail}")


if __name__ == "__main__":
    main()
