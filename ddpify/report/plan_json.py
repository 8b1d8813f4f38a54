"""A plan for programs: the same as the text, sizes in bytes."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import Any

from ddpify.advice.memory import total
from ddpify.advice.model import Advice
from ddpify.outcome import Outcome
from ddpify.report.by_hand import Instruction, instructions
from ddpify.report.hunks import file_diffs
from ddpify.source import Site


def render(outcome: Outcome, advice: tuple[Advice, ...]) -> str:
    """The whole document; ``schema`` grows when a key changes its meaning or goes."""
    document = {
        "schema": 1,
        "root": str(outcome.root),
        "entries": [_entry(one) for one in advice],
        "changes": [
            {
                "path": diff.path,
                "new": diff.is_new,
                "hunks": len(diff.hunks),
                "reasons": [
                    {"rule": rule, "reason": reason}
                    for rule, reason in dict.fromkeys(r for h in diff.hunks for r in h.reasons)
                ],
            }
            for diff in file_diffs(outcome)
        ],
        "by_hand": [_by_hand(one) for one in instructions(outcome)],
        "notes": [{"place": str(n.site), "message": n.message} for n in outcome.notes],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _by_hand(one: Instruction) -> dict[str, Any]:
    message = f"{one.rule} {one.what}. {one.write}".rstrip(". ")
    return {"place": f"{one.path}:{one.line}", "message": message, **asdict(one)}


def _entry(advice: Advice) -> dict[str, Any]:
    sums = total(advice.memory) if advice.measured is not None else None
    names = ("first", "others", "after")
    found: dict[str, Any] = _plain(advice)
    return {**found, "memory_sums": dict(zip(names, sums, strict=True)) if sums else None}


def _plain(value: object) -> Any:
    if isinstance(value, Site):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in asdict(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return value
