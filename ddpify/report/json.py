"""The outcome as JSON, for programs: the same facts as the text, none left out.

``schema`` grows when a key changes its meaning or goes; new keys do not change it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddpify.outcome import Account, Outcome
from ddpify.report.by_hand import instructions
from ddpify.report.hunks import FileDiff, file_diffs
from ddpify.report.place import place
from ddpify.report.text import commands
from ddpify.rules.base import Finding


def render(outcome: Outcome, written: Sequence[Path] = ()) -> str:
    """The whole document."""
    document = {
        "schema": 1,
        "root": str(outcome.root),
        "entries": list(outcome.entries),
        "commands": list(commands(outcome)),
        "on_nodes": list(outcome.on_nodes),
        "written": [str(path) for path in written],
        "changes": [_change(diff) for diff in file_diffs(outcome)],
        "findings": [_finding(found) for found in outcome.findings],
        "clashes": [
            {**place(clash.site), "rules": list(clash.rules), "message": clash.message}
            for clash in outcome.clashes
        ],
        "notes": [{**place(note.site), "message": note.message} for note in outcome.notes],
        "refusals": [
            {**(place(refusal.site) if refusal.site else {}), "message": refusal.message}
            for refusal in outcome.refusals
        ],
        "by_hand": [asdict(one) for one in instructions(outcome, written)],
        "followed": _followed(outcome.account),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _followed(account: Account | None) -> dict[str, Any] | None:
    if account is None:
        return None
    left = [{**place(note.site), "message": note.message} for note in account.left]
    return {"uses": account.uses, "values": account.values, "not": left}


def _change(diff: FileDiff) -> dict[str, Any]:
    return {
        "path": diff.path,
        "new": diff.is_new,
        "hunks": [
            {
                "ranges": hunk.ranges,
                "lines": list(hunk.lines),
                "reasons": [{"rule": rule, "reason": reason} for rule, reason in hunk.reasons],
            }
            for hunk in diff.hunks
        ],
    }


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "severity": found.severity.value,
        **place(found.site),
        "message": found.message,
        "fixable": bool(found.fix),
        "advice": found.advice,
        "because": [{**place(site), "message": why} for site, why in found.because],
    }
