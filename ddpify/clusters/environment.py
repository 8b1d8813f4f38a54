"""The variables that a launch line hands to its program, from its script and in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.launchers.gpus import VARIABLE, always_before
from ddpify.launchers.script import Assignment, Command, Script, Word, nodes

# Decided by the start file or by torchrun.
_DECIDED = frozenset(
    f"{VARIABLE} MASTER_ADDR MASTER_PORT RANK LOCAL_RANK NODE_RANK WORLD_SIZE "
    "OMP_NUM_THREADS".split()
)


@dataclass(frozen=True)
class Variables:
    """``known`` by name and value; ``left``: only the shell knows; ``decided`` anew."""

    known: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()


def variables(script: Script, command: Command, program: int) -> Variables:
    """What ``command``, whose program is word ``program``, has in its environment by the script."""
    known: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, text, value in _given(script, command, program):
        known.pop(name, None)
        left.pop(name, None)
        if value is None or name in _DECIDED:
            left[name] = text
        else:
            known[name] = value
    decided = tuple(text for name, text in left.items() if name in _DECIDED)
    others = tuple(text for name, text in left.items() if name not in _DECIDED)
    return Variables(tuple(known.items()), others, decided)


def known_value(script: Script, word: Word) -> str | None:
    """A word's value, also where it is a variable with one value in the script."""
    if word.literal is not None:
        return word.literal
    values = {one.literal for one in script.values(word)}
    return values.pop() if len(values) == 1 else None


def _given(script: Script, command: Command, program: int) -> Iterator[tuple[str, str, str | None]]:
    """Name, text and value if it is known of each, in the order in which they are set."""
    for one in _exported(script, command):
        sure = always_before(script, one, command)
        yield one.name, _text(one), known_value(script, one.value) if sure else None
    for word in command.words[:program]:  # env NAME=value python
        name, equals, value = (word.literal or word.text).partition("=")
        if equals and name.isidentifier():
            yield name, word.text, value if word.literal is not None else None
    for one in command.prefixes:
        yield one.name, _text(one), known_value(script, one.value)


def _text(one: Assignment) -> str:
    return f"{one.name}={one.value.text}"


def _exported(script: Script, command: Command) -> Iterator[Assignment]:
    """The assignments before ``command`` of the names that are exported before it."""
    names: set[str] = set()
    for node in nodes(script.root):
        if node.type != "declaration_command" or node.start_byte > command.node.start_byte:
            continue
        words = [script.slice(child.start_byte, child.end_byte) for child in node.children]
        if words[0] == "export" or "-x" in words:
            names.update(word.partition("=")[0] for word in words[1:])
    for one in script.assignments:
        if one.name in names and one.start < command.node.start_byte:
            yield one
