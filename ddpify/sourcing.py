"""Where a project gets the helpers that a sentence names: none names what nobody can find."""

from __future__ import annotations

import re
from dataclasses import replace

from ddpify.names import INSTALLED, RUNTIME_NAMES, module_of
from ddpify.outcome import Outcome

_NAMES = "|".join(sorted(RUNTIME_NAMES, key=len, reverse=True))
_CALLED = re.compile(rf"(?<![\w.])({_NAMES})\(")

_SAID = "; helpers: "


def sourced(outcome: Outcome, runtime: tuple[str, str]) -> Outcome:
    """The outcome with the import of each helper that a refusal, or what is left to do, names.

    ``runtime`` is the module of the first file of the copy, and its path.
    """
    copied = {change.path for change in outcome.changes}
    there = bool(runtime[1]) and (runtime[1] in copied or (outcome.root / runtime[1]).is_file())
    refusals = (replace(r, message=_told(r.message, runtime[0], there)) for r in outcome.refusals)
    findings = (
        f if f.fix else replace(f, advice=_told(f.advice, runtime[0], there))
        for f in outcome.findings
    )
    return replace(outcome, refusals=tuple(refusals), findings=tuple(findings))


def _told(text: str, core: str, there: bool) -> str:
    """The sentence, with one import for each module: ``helpers: `from ddp_utils import …```."""
    modules: dict[str, list[str]] = {}
    for name in dict.fromkeys(_CALLED.findall(text)):
        modules.setdefault(module_of(core, name) if there else INSTALLED, []).append(name)
    ways = [f"`from {module} import {', '.join(names)}`" for module, names in modules.items()]
    if not ways or _SAID in text:
        return text
    copied = " (`ddpify migrate` then copies what is not there yet)" if there else ""
    return f"{text}{_SAID}{', '.join(ways)}{copied}"
