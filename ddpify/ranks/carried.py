"""What a round of a loop leaves to the next."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.modules import Module
from ddpify.ranks.origins import Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.trace import events

LoopNode = ast.For | ast.AsyncFor | ast.While


def changed(module: Module, node: LoopNode) -> set[str]:
    """The names that a loop's body sets."""
    return _known(module, node)[0]


def fields_set(module: Module, node: LoopNode) -> set[tuple[str, str]]:
    """``("args", "best")`` of each ``args.best = …`` in a loop's body."""
    return _known(module, node)[2]


def _known(module: Module, node: LoopNode) -> tuple[set[str], set[str], set[tuple[str, str]]]:
    """The names that a loop's body sets, those of them that decide whether it goes on, and the
    attributes."""
    found = module.carried.get(node)
    if found is None:
        names, fields = _set_in(node)
        found = module.carried[node] = (names, names & _asked(node) if names else names, fields)
    return found


def _set_in(node: LoopNode) -> tuple[set[str], set[tuple[str, str]]]:
    below = (one for statement in node.body for one in ast.walk(statement))
    stored = [one for one in below if isinstance(getattr(one, "ctx", None), ast.Store)]
    names = {one.id for one in stored if isinstance(one, ast.Name)}
    fields = (one for one in stored if isinstance(one, ast.Attribute))
    return names, {(b.id, one.attr) for one in fields if isinstance(b := one.value, ast.Name)}


def read_rounds(m: RankMachine, f: RankFrame, node: LoopNode, read: Callable[[], None]) -> None:
    """Read a loop; once more if a round makes something each rank's own that the next asks for."""
    asked = _known(f.module, node)[1]
    before = {name: f.names[name] for name in asked if name in f.names}
    mark, items = m.mark(), len(m.items)
    read()
    known = m.live == ALL and node in m.reread  # what there is to find was found
    if not before or known or not any(True for _ in events(m.items[items:])):
        return
    after = {name: _own(m, name, old, f.names.get(name)) for name, old in before.items()}
    found = {name: value for name, value in after.items() if value is not None}
    if found:
        m.back_to(mark)
        m.reread.append(node)
        for name, value in found.items():
            m.write(f.names, name, value)
        read()


def _asked(node: LoopNode) -> set[str]:
    """The names that decide whether a loop goes on."""
    tests = [one.test for one in ast.walk(node) if isinstance(one, ast.If) and _leaves(one)]
    if isinstance(node, ast.While):
        tests.append(node.test)
    return {one.id for test in tests for one in ast.walk(test) if isinstance(one, ast.Name)}


def _leaves(node: ast.If) -> bool:
    return any(isinstance(one, (ast.Break, ast.Continue, ast.Return)) for one in node.body)


def _own(m: RankMachine, name: str, old: RankValue, new: RankValue | None) -> RankValue | None:
    """What a name is at the head of a round, if the round before made it each rank's own."""
    if new is None or old.things or new.things or old.local:
        return None
    apart = new.by_rank and new.atoms[0] != new.atoms[1]
    if not apart and not m.own(new.origins):
        return None
    keys = [f"{name}#{rank if apart else ''}" for rank in (0, 1)]
    return replace(old, atoms=(Symbol(keys[0]), Symbol(keys[1])), origins=new.origins)
