"""What ddpify leaves to somebody else, as instructions: where, what, why, what to write, the proof.

Places are those of the files as they lie there after the run: of what was written, else of the
original. Commands are given from the project's root.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpify.moved import line_after
from ddpify.outcome import Outcome, Refusal
from ddpify.report.hunks import lines_of
from ddpify.report.recipes import FOLLOWED, MIGRATED, PLAIN, WHOLE
from ddpify.rules.base import Finding, Rule
from ddpify.site import Site, Span

_PLACE = re.compile(r"(?P<path>[^:\n]+):(?P<line>\d+): ")
_DISTRIBUTED = "already distributed"
_AGAIN = "and run `ddpify migrate` again; or distribute the program by hand, as in `code`"


@dataclass(frozen=True)
class Instruction:
    """One thing to do. ``text`` is the line as it stands there; "" where there is none.

    ``accept`` is what `--accept` takes if the line is right as it is. ``proof`` are the commands
    that show that it is done, in this order.
    """

    path: str
    line: int
    text: str
    rule: str
    what: str
    why: str
    write: str
    code: str
    accept: str
    proof: tuple[str, ...]


def instructions(outcome: Outcome, written: Sequence[Path] = ()) -> tuple[Instruction, ...]:
    """Of all that was refused; where nothing was, of findings without a fix and of clashes.

    ``written`` are the files that the changes are in.
    """
    teller = _Teller(outcome, written)
    found = teller.refused() if outcome.refusals else teller.left()
    return tuple(dict.fromkeys(found))


class _Teller:
    def __init__(self, outcome: Outcome, written: Sequence[Path]) -> None:
        self._outcome, self._written = outcome, written
        changes = {one.path: one for one in outcome.changes if one.before is not None}
        self._changes = changes if written else {}
        self._known: dict[str, Rule] | None = None

    def left(self) -> Iterator[Instruction]:
        for one in self._outcome.findings:
            if not one.fix:
                yield self._of(one, one.site, MIGRATED.get(one.rule, ""))
        for clash in self._outcome.clashes:
            yield self._instruction(clash.site, what=clash.message, rule=clash.rules[0])

    def refused(self) -> Iterator[Instruction]:
        for refusal in self._outcome.refusals:
            site, what = _placed(refusal)
            found = refusal.finding
            if site is None:
                continue
            if found is not None:
                yield self._of(found, site, PLAIN.get(found.rule, ""), refusal.accept)
            elif what.startswith(_DISTRIBUTED):
                yield self._instruction(site, what=what)
            else:
                ways = (way for said, way in FOLLOWED.items() if said in what)
                way = next(ways, "write it so that it can be followed")
                yield self._instruction(site, what=what, write=f"{way}, {_AGAIN}", code=WHOLE)

    def _of(self, found: Finding, site: Site, code: str, accept: str = "") -> Instruction:
        return self._instruction(
            site,
            what=found.message,
            rule=found.rule,
            write=found.advice,
            code=code,
            accept=accept,
        )

    def _instruction(
        self,
        site: Site,
        *,
        what: str,
        rule: str = "",
        write: str = "",
        code: str = "",
        accept: str = "",
    ) -> Instruction:
        line, text = self._line(site)
        why = self._why(rule) if rule else ""
        proof = self._proof(rule)
        return Instruction(site.path, line, text, rule, what, why, write, code, accept, proof)

    def _line(self, site: Site) -> tuple[int, str]:
        """Where a line of the original is, and what it says."""
        change, line = self._changes.get(site.path), site.span.line
        if change is not None:
            line, raw = line_after(change, line), change.after
        else:
            file = Path(self._outcome.root, site.path)
            raw = file.read_bytes() if file.is_file() else b""
        lines = lines_of(raw)
        return line, lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def _why(self, code: str) -> str:
        """What the rule says; all rules are there already where one has found something."""
        if self._known is None:
            from ddpify.checking.catalogue import catalogue

            self._known = {rule.id: rule for rule in catalogue()}
        return self._known[code].why if code in self._known else ""

    def _proof(self, rule: str) -> tuple[str, ...]:
        """Read as several ranks would run it, then run, against the program as it was."""
        chosen = ["--select", rule] if rule and not self._outcome.refusals else []
        against = ["--baseline", self._original()]
        runs = (["ddpify", "verify", entry, *against] for entry in self._outcome.entries)
        return tuple(map(shlex.join, (["ddpify", "check", *chosen], *runs)))

    def _original(self) -> str:
        """Where the program is as it was: beside what was written elsewhere, or committed."""
        root = self._outcome.root.resolve()
        if any(not file.resolve().is_relative_to(root) for file in self._written):
            return str(root)
        in_git = any((folder / ".git").exists() for folder in (root, *root.parents))
        return "HEAD" if in_git else "COPY_OF_THE_ORIGINAL"


def _placed(refusal: Refusal) -> tuple[Site | None, str]:
    """The place that a refusal names, and what it says of it."""
    found = _PLACE.match(refusal.message)
    what = refusal.message[found.end() :] if found else refusal.message
    if refusal.site is not None or found is None:
        return refusal.site, what
    line = int(found["line"])
    return Site(found["path"], Span(line, 0, line, 0)), what
