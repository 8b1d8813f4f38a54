"""The recipe lines of a makefile, each as the shell gets it.

What stands in a recipe is left to the shell's grammar: references to make's variables become
shell variables of the same name, whose values stand in front, and `$$` becomes `$`.

Source: the GNU make manual, "Writing Recipes in Rules".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

from ddpify.launchers.edits import COUNT, DEFAULT
from ddpify.launchers.embedded import Chars, EmbeddedPiece
from ddpify.launchers.gpus import VARIABLE
from ddpify.launchers.makelines import (
    Makefile,
    MakeLine,
    MakeRule,
    end_of_reference,
    read,
    references,
)

_MADE = "make_"
_NAME = re.compile(r"\$(?:\(([\w.-]+)\)|\{([\w.-]+)\}|(\w))")
_PREFIXES = "@-+ \t"
_SHELL_CODE = re.compile(rf"\$\{{({_MADE}\w+)\}}|\$")
_DEPTH = 5  # how far a variable is followed into those it is made of


def pieces(path: str, text: str) -> tuple[EmbeddedPiece, ...]:
    """The commands of a makefile's recipes, in the order of the text."""
    made = read(text)
    found: list[EmbeddedPiece] = []
    for rule in made.rules:
        groups = [rule.lines] if made.one_shell else [(line,) for line in rule.lines]
        found += [_piece(path, text, made, rule, lines) for lines in groups if lines]
    return tuple(found)


def held(path: str, text: str) -> Iterator[EmbeddedPiece]:
    """What a makefile keeps as text: values of variables, `define`s, arguments of functions."""
    made = read(text)
    inside = (one for rule in made.rules for line in rule.lines for one in references(line))
    for line in (*made.texts, *inside):
        yield EmbeddedPiece.of(
            path, text, [(c, at, at + 1) for at, c in enumerate(line.text, line.start)]
        )


def _piece(
    path: str, text: str, made: Makefile, rule: MakeRule, lines: tuple[MakeLine, ...]
) -> EmbeddedPiece:
    names: dict[str, str] = {}
    body: Chars = [char for line in lines for char in _shell(line, made.prefix, names)]
    known: Chars = [(char, -1, -1) for char in _prologue(made, rule, names)]
    # make gives each recipe line a shell of its own: no line can be put above one for it
    return replace(EmbeddedPiece.of(path, text, known + body), code=_writer(names), lines=False)


def _writer(names: dict[str, str]) -> Callable[[str], str]:
    """What turns shell text into recipe text: ``names`` are what make fills in."""

    def written(shell: str) -> str:
        # make's own variable, whether it is set in the file, on its command line, or nowhere
        parts = (
            _SHELL_CODE.sub(lambda found: names.get(found.group(1) or "", "$$"), part)
            for part in shell.split(DEFAULT)
        )
        return f"$(or $({COUNT}),gpu)".join(parts)

    return written


def _shell(line: MakeLine, prefix: str, names: dict[str, str]) -> Chars:
    """The line as the shell gets it; ``names`` takes in what make fills in."""
    text, start = line.text, line.start
    at = len(text) - len(text.removeprefix(prefix).lstrip(_PREFIXES))
    chars: Chars = []
    while at < len(text):
        char, end = text[at], at + 1
        if char == "$" and end < len(text):
            end = end_of_reference(text, at)
            char = "$" if text[at + 1] == "$" else _placeholder(text[at:end], names)
        chars += [(one, start + at, start + end) for one in char]
        at = end
        if char == "\n" and prefix != "\t" and text.startswith(prefix, at):
            at += len(prefix)
    if not text.endswith("\n"):
        chars.append(("\n", start + len(text), start + len(text)))
    return chars


def _placeholder(reference: str, names: dict[str, str]) -> str:
    """The shell variable that stands for a reference of make's."""
    name = _MADE + re.sub(r"\W", "_", _named(reference) or "_")
    while names.get(name, reference) != reference:
        name += "_"
    names[name] = reference
    return f"${{{name}}}"


def _named(reference: str) -> str:
    """The variable that a reference names; "" where it does more."""
    found = _NAME.fullmatch(reference)
    return next(filter(None, found.groups()), "") if found else ""


def _prologue(made: Makefile, rule: MakeRule, names: dict[str, str]) -> str:
    """Shell assignments that say what make's variables hold."""
    lines = [
        f"{name}={value}\n"
        for name, reference in names.items()
        for value in _values(made, rule, _named(reference))
    ]
    if any(v.exported and v.name == VARIABLE for v in made.holding(rule)):
        # not its value: whoever calls make may give another one
        lines.append(f'export {VARIABLE}="${_MADE}exported"\n')
    return "".join(lines)


def _values(made: Makefile, rule: MakeRule, name: str) -> Iterator[str]:
    """Shell text for each value that the makefile gives ``name``."""
    for variable in made.holding(rule):
        if variable.name == name and (variable.known or variable.value):
            value = _expanded(made, rule, variable.value, _DEPTH) if variable.known else None
            yield '"$unknown"' if value is None else shlex.quote(value)


def _expanded(made: Makefile, rule: MakeRule, value: str, depth: int) -> str | None:
    """``value`` with its references filled in; None where one is not known."""
    for one in references(MakeLine(0, value)):
        given = [v for v in made.holding(rule) if v.name == _named(one.text)]
        if len(given) != 1 or not given[0].known or not depth:
            return None
        inner = _expanded(made, rule, given[0].value, depth - 1)
        if inner is None:
            return None
        value = value.replace(one.text, inner)
    return value
