"""A makefile's lines: rules with their recipes, variables, and what is kept as text.

Own reader of lines, because the grammar there is (`tree-sitter-make` 1.1) loses its way at
`target: export NAME = value` and `.RECIPEPREFIX`, and which lines are recipes is decided by
their first character.

Source: the GNU make manual, "Writing Rules", "How Makefiles Are Parsed".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.launchers.gpus import VARIABLE

_LINE = re.compile(r"(?:[^\\\r\n]|\\(?:\r\n|.|$))*(?:\r\n|\n|\r)?", re.DOTALL)
_STAYS_IN_RULE = re.compile(r"\s*(?:#|$|(?:else|endif|ifn?eq|ifn?def)\b)")
_DEFINE = re.compile(r"\s*(?:override\s+|export\s+)*define\b")
_ENDEF = re.compile(r"\s*endef\b")
_ASSIGNMENT = re.compile(
    r"\s*((?:(?:export|override|private)\s+)*)([\w.-]+)\s*(\+|\?|:{1,3}|!)?=\s*((?:\\\r?\n|.)*)"
)
_EXPORT = re.compile(r"\s*export\s*((?:\s[\w.\- \t]*)?)$")
_COMMENT = re.compile(r"(?<!\\)#.*", re.DOTALL)


@dataclass(frozen=True)
class MakeLine:
    """A logical line: ``text`` with its continuations, at offset ``start`` of the file."""

    start: int
    text: str


@dataclass(frozen=True)
class Variable:
    """``name = value``; ``targets`` are the rules where it holds, empty for all of them."""

    name: str
    value: str
    known: bool = True
    exported: bool = False
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class MakeRule:
    """A rule and its recipe, prefixes (`@`, `-`) still in front of its lines."""

    targets: tuple[str, ...]
    lines: tuple[MakeLine, ...]


@dataclass(frozen=True)
class Makefile:
    """The recipes of a makefile; ``texts`` are lines that may hold commands as text.

    ``prefix`` begins a recipe line; ``one_shell``: a recipe is one script (`.ONESHELL`).
    """

    variables: tuple[Variable, ...]
    rules: tuple[MakeRule, ...]
    texts: tuple[MakeLine, ...]
    prefix: str
    one_shell: bool

    def holding(self, rule: MakeRule) -> Iterator[Variable]:
        """The variables that hold in ``rule``."""
        for variable in self.variables:
            if not variable.targets or set(variable.targets) & set(rule.targets):
                yield variable


def read(text: str) -> Makefile:
    """The rules, variables and texts of a makefile."""
    reader = _Reader()
    lines = _logical_lines(text)
    for line in lines:
        if _DEFINE.match(line.text) and not reader.is_recipe(line):
            reader.texts.append(_to_endef(line, lines))
            reader.inside = False
        else:
            reader.take(line)
    rules = tuple(MakeRule(targets, tuple(found)) for targets, found in reader.rules)
    one_shell = any(".ONESHELL" in rule.targets for rule in rules)
    variables, texts = tuple(reader.variables), tuple(reader.texts)
    return Makefile(variables, rules, texts, reader.prefix, one_shell)


def references(line: MakeLine) -> Iterator[MakeLine]:
    """What make fills in: `$(NAME)`, `$(call …)`, `$@`, and `$$`."""
    at = line.text.find("$")
    while 0 <= at < len(line.text) - 1:
        end = end_of_reference(line.text, at)
        yield MakeLine(line.start + at, line.text[at:end])
        at = line.text.find("$", end)


def end_of_reference(text: str, at: int) -> int:
    """Where the reference that begins at ``at`` ends."""
    opening = text[at + 1]
    if opening not in "({":
        return at + 2
    closing = ")" if opening == "(" else "}"
    depth = 0
    for end in range(at + 1, len(text)):
        depth += (text[end] == opening) - (text[end] == closing)
        if not depth:
            return end + 1
    return len(text)


class _Reader:
    """The reader's state between two lines; ``inside``: recipe lines may follow."""

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.rules: list[tuple[tuple[str, ...], list[MakeLine]]] = []
        self.texts: list[MakeLine] = []
        self.prefix = "\t"
        self.inside = False

    def is_recipe(self, line: MakeLine) -> bool:
        return self.inside and line.text.startswith(self.prefix)

    def take(self, line: MakeLine) -> None:
        if self.is_recipe(line):
            self.rules[-1][1].append(line)
        elif not _STAYS_IN_RULE.match(line.text):
            self.inside = self._statement(line)

    def _statement(self, line: MakeLine) -> bool:
        """Take in one line that is no recipe; whether a rule begins."""
        bare = line.text.rstrip("\r\n")
        if self._variable(bare, ()):
            self.texts.append(line)
            return False
        exports = _EXPORT.match(bare)
        if exports is not None:
            names = exports.group(1).split() or [VARIABLE]  # `export` alone: all of them
            self.variables += [Variable(name, "", known=False, exported=True) for name in names]
            return False
        return self._rule(line, bare)

    def _rule(self, line: MakeLine, bare: str) -> bool:
        hidden = _without_references(bare)
        colon = hidden.find(":")
        if colon < 0:
            return False
        targets = tuple(bare[:colon].split())
        if self._variable(bare[colon + 1 :].lstrip(":"), targets):
            return False
        self.rules.append((targets, []))
        command = re.search(r"(?<!\\)[;#]", hidden[colon:])
        if command is not None and command.group() == ";":
            at = colon + command.end()
            self.rules[-1][1].append(MakeLine(line.start + at, line.text[at:]))
        return True

    def _variable(self, text: str, targets: tuple[str, ...]) -> bool:
        found = _ASSIGNMENT.fullmatch(text)
        if found is None:
            return False
        words, name, operator, value = found.groups()
        value = _COMMENT.sub("", value).strip()
        if name == ".RECIPEPREFIX":
            self.prefix = value[:1] or "\t"
        known, exported = operator not in ("+", "!"), "export" in words.split()
        self.variables.append(Variable(name, value, known, exported, targets))
        return True


def _without_references(text: str) -> str:
    """``text`` with its references blanked out, at equal length."""
    for one in references(MakeLine(0, text)):
        text = text[: one.start] + "x" * len(one.text) + text[one.start + len(one.text) :]
    return text


def _logical_lines(text: str) -> Iterator[MakeLine]:
    at = 0
    while at < len(text):
        found = _LINE.match(text, at)
        end = found.end() if found is not None and found.end() > at else at + 1
        yield MakeLine(at, text[at:end])
        at = end


def _to_endef(first: MakeLine, lines: Iterator[MakeLine]) -> MakeLine:
    """A `define` with its body, which is text until something uses it."""
    text, depth = first.text, 1
    for line in lines:
        text += line.text
        depth += (_DEFINE.match(line.text) is not None) - (_ENDEF.match(line.text) is not None)
        if not depth:
            break
    return MakeLine(first.start, text)
