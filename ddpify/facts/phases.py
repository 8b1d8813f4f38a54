"""Loops that train in one pass and evaluate in another, and the test that tells which. ::

for phase in ("train", "val"):
    for batch in loaders[phase]:            # def run_epoch(loader, train): for batch in loader: …
        …
        if phase == "train":
            loss.backward()
"""

from __future__ import annotations

import ast
from typing import Final

from ddpify.facts.locality import loaders_in
from ddpify.facts.model import TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.roles import counts, made_by_calls
from ddpify.facts.scopes import Loop
from ddpify.facts.tree import FUNCTIONS, names_in
from ddpify.facts.values import Thing, Value
from ddpify.source import Site

_MADE: Final = object()  # what is there and no constant: an optimizer, for one


def phases(m: Machine, training: tuple[TrainingLoop, ...]) -> dict[Site, str]:
    """The test of each such loop that holds where it trains."""
    found: dict[Site, str] = {}
    for site in sorted({loop.batch.site for loop in training}):
        passes = [loop for loop in m.loops if loop.site == site and _loaders(loop)]
        phase = _phase(m, passes, [loop for loop in training if loop.batch.site == site])
        if phase is not None:
            found[site] = phase
    for loop in training:
        if loop.loaders and _in_turns(m, loop):
            found.setdefault(loop.batch.site, "")
    return found


def _phase(m: Machine, passes: list[Loop], mine: list[TrainingLoop]) -> str | None:
    """The test, "" where none is known; None where all passes train."""
    trained = {t for loop in mine for t in loop.loaders}
    train = [loop for loop in passes if trained.issuperset(_loaders(loop))]
    evaluate = [loop for loop in passes if trained.isdisjoint(_loaders(loop))]
    asked = sorted(_asked(m, mine))
    if len(train) == len(passes):  # `{x: DataLoader(sets[x]) for x in ("train", "val")}`
        mixed = [name for name in asked if len(_constants(name, passes) - {_MADE}) > 1]
        return "" if mixed else None
    if len(train) + len(evaluate) != len(passes):
        return ""
    return next(filter(None, (_test(name, train, evaluate) for name in asked)), "")


def _constants(name: str, loops: list[Loop]) -> set[object]:
    return {_constant(loop.names.get(name)) for loop in loops}


def _in_turns(m: Machine, loop: TrainingLoop) -> bool:
    """``for split in splits:`` around the batches, and ``if split == "train":`` at the backward."""
    outer = loop.batch.parent
    if outer is None or outer.frame is not loop.batch.frame or counts(outer):
        return False
    around = m.tree(outer.site.path).statement(outer.site)
    names = names_in(ast.parse(outer.target))
    for node in ast.walk(around) if around is not None else ():
        if isinstance(node, ast.Assign) and names & names_in(node.value):
            names |= {n for target in node.targets for n in names_in(target)}
    asked = (g.site for g in loop.backward.where.guards if g.site.within(loop.batch.site))
    tests = (m.tree(site.path).expression(site) for site in asked)
    return any(names & names_in(test) for test in tests if test is not None)


def _loaders(loop: Loop) -> tuple[Thing, ...]:
    return made_by_calls(loaders_in(loop.over))


def _asked(m: Machine, training: list[TrainingLoop]) -> set[str]:
    """The names that every ``if`` around these backward passes asks, in the loop's own function."""
    found: list[set[str]] = []
    for call in (loop.backward for loop in training):
        tree = m.tree(call.site.path)
        node = tree.expression(call.site)
        names: set[str] = set()
        for above in tree.ancestors(node) if node is not None else ():
            if isinstance(above, FUNCTIONS):
                break
            if isinstance(above, ast.If):
                names |= names_in(above.test)
        found.append(names)
    return set.intersection(*found) if found else set()


def _test(name: str, train: list[Loop], evaluate: list[Loop]) -> str:
    """``phase == "train"`` where the name is that in all passes that train, and no other."""
    yes, no = _constants(name, train), _constants(name, evaluate)
    value = next(iter(yes)) if len(yes) == 1 else None
    if value is _MADE:
        return f"{name} is not None" if no == {None} else ""
    if not isinstance(value, (str, bool)) or yes & no or _MADE in no:
        return ""
    if isinstance(value, str):
        return f"{name} == {value!r}".replace("'", '"')
    return name if value else f"not {name}"


def _constant(value: Value | None) -> object:
    if value is None or not value.known:
        return _MADE
    return value.const
