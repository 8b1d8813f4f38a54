"""Merge the findings' edits into one plan; name the clashes instead of dropping edits.

Rules do not know each other, so two of them may ask for things that exclude one another.
Taking either side, or half of a fix, would be a guess; both findings stay unfixed and named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ddpify.rules.base import Edit, Finding, How
from ddpify.source import Site, Source, Span

_AROUND = frozenset({How.GATE, How.INDENT})
_NAMED = frozenset({How.ARGUMENT, How.ENTRY})
_CHANGING = frozenset({How.REPLACE, How.FIRST, *_NAMED})


@dataclass(frozen=True)
class PlannedEdit:
    """An edit with the rule that asked for it and the reason it gave."""

    edit: Edit
    rule: str
    reason: str


@dataclass(frozen=True)
class Clash:
    """Two edits that cannot both be made; neither finding's fix is applied."""

    site: Site
    rules: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class Change:
    """A file before and after; ``before`` is None for a new file."""

    path: str
    before: bytes | None
    after: bytes
    edits: tuple[PlannedEdit, ...]


@dataclass(frozen=True)
class Plan:
    """Edits in one total order, identical ones once."""

    edits: tuple[PlannedEdit, ...]
    clashes: tuple[Clash, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding], sources: Mapping[str, Source] | None = None) -> Plan:
        """The plan that carries out every finding's fix, save those that clash.

        Only with the ``sources`` can it tell which edits lie in an argument that another
        edit replaces.
        """
        requests = [
            _Request(edit, number, finding)
            for number, finding in enumerate(findings)
            for edit in finding.fix
        ]
        requests.sort(key=lambda request: request.order)
        values = _Arguments(sources or {})
        clashing = [
            (one, other)
            for one, other in _pairs(requests)
            if _excludes(one, other) or values.loses(one.edit, other.edit)
        ]
        dropped = {request.number for pair in clashing for request in pair}
        kept = [request for request in requests if request.number not in dropped]
        clashes = {_clash(one, other): None for one, other in clashing}
        return cls(tuple(_merge(kept)), tuple(sorted(clashes, key=lambda c: (c.site, c.rules))))


@dataclass(frozen=True)
class _Request:
    """One edit as one finding asks for it."""

    edit: Edit
    number: int
    finding: Finding

    @property
    def key(self) -> tuple[str, Span, str, str, str]:
        """What makes two edits the same; a whole file has no place in itself."""
        edit, span = self.edit, self.edit.site.span
        where = Span(0, 0, 0, 0) if edit.how is How.NEW_FILE else span
        return edit.site.path, where, edit.how.value, edit.code, edit.name

    @property
    def order(self) -> tuple[str, Span, str, str, str, int]:
        return *self.key, self.number


class _Arguments:
    """Where the keywords of the calls in some files have their values."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._values: dict[str, dict[tuple[Span, str], Span]] = {}

    def loses(self, outer: Edit, inner: Edit) -> bool:
        """Whether ``outer`` replaces the argument that ``inner`` is about, or keeps another."""
        if outer.site == inner.site or outer.how not in (How.FIRST, How.ARGUMENT):
            return False  # of launchers, no call is looked for
        value = self._of(outer.site.path).get((outer.site.span, outer.name))
        if outer.how is How.FIRST:
            return value is None or not _within(inner.site.span, value)
        gone = "{}" not in outer.code
        return gone and value is not None and _within(inner.site.span, value)

    def _of(self, path: str) -> dict[tuple[Span, str], Span]:
        source = self._sources.get(path)
        if source is not None and path not in self._values:
            calls = [node for node in ast.walk(source.parse()) if isinstance(node, ast.Call)]
            self._values[path] = {
                (source.span(call), name): source.span(value)
                for call in calls
                for name, value in [
                    *((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg),
                    *(("", value) for value in call.args[:1]),
                ]
            }
        return self._values.get(path, {})


def _within(span: Span, around: Span) -> bool:
    begins = (around.line, around.column) <= (span.line, span.column)
    return begins and (span.end_line, span.end_column) <= (around.end_line, around.end_column)


def _merge(requests: Sequence[_Request]) -> Iterator[PlannedEdit]:
    """Identical edits once, with the imports of all of them."""
    for _, group in groupby(requests, key=lambda request: request.key):
        same = list(group)
        first = same[0]
        imports = tuple(sorted({name for request in same for name in request.edit.imports}))
        rules = sorted({request.finding.rule for request in same} - {first.finding.rule})
        also = f" (also {', '.join(rules)})" if rules else ""
        edit = replace(first.edit, imports=imports)
        yield PlannedEdit(edit, first.finding.rule, first.finding.message + also)


def _pairs(requests: Sequence[_Request]) -> Iterator[tuple[_Request, _Request]]:
    """Pairs that may touch the same text, the enclosing one first."""
    for _, group in groupby(requests, key=lambda request: request.edit.site.path):
        same_file = list(group)
        whole = any(request.edit.how in (How.NEW_FILE, How.TEXT) for request in same_file)
        for index, one in enumerate(same_file):
            for other in same_file[index + 1 :]:
                if not whole and _start(other) >= _end(one) and one.key[1] != other.key[1]:
                    break
                yield (one, other) if _end(one) >= _end(other) else (other, one)


def _start(request: _Request) -> tuple[int, int]:
    span = request.key[1]
    return span.line, span.column


def _end(request: _Request) -> tuple[int, int]:
    span = request.key[1]
    return span.end_line, span.end_column


def _excludes(one: _Request, other: _Request) -> bool:
    """Whether not both can be made; ``one`` is the enclosing edit."""
    if one.key == other.key:
        return False
    hows = {one.edit.how, other.edit.how}
    if How.NEW_FILE in hows:
        return True
    if How.TEXT in hows:
        return hows != {How.TEXT} or _overlap(one, other)
    if one.key[1] == other.key[1]:
        return _exclude_in_place(one.edit, other.edit) or _exclude_in_place(other.edit, one.edit)
    return one.edit.how is How.DELETE or (one.edit.how is How.REPLACE and "{}" not in one.edit.code)


def _overlap(one: _Request, other: _Request) -> bool:
    """Also for two insertions at one point, whose order nobody gave."""
    if _start(one) == _start(other):
        return True
    return _start(one) < _end(other) and _start(other) < _end(one)


def _exclude_in_place(one: Edit, other: Edit) -> bool:
    """Two edits of the very same expression or statement."""
    match one.how:
        case How.DELETE | How.BODY:
            return other.how in _AROUND | _CHANGING
        case How.FIRST:
            return other.how in _CHANGING - {How.FIRST}
        case How.REPLACE if other.how in _NAMED:
            return "{}" not in one.code
        case How.REPLACE if other.how is How.REPLACE:  # what is around goes around what is new
            return other.code != one.code and ("{}" in one.code) is ("{}" in other.code)
        case How.GATE | How.INDENT:
            return other.how is one.how and other.code != one.code
        case How.ARGUMENT | How.ENTRY:
            return other.how is one.how and other.name == one.name
    return False


def _clash(one: _Request, other: _Request) -> Clash:
    rules = tuple(sorted({one.finding.rule, other.finding.rule}))
    first, second = sorted((_describe(one), _describe(other)))
    message = f"{first} and {second} cannot both be made; neither fix is applied"
    return Clash(other.edit.site, rules, message)


def _describe(request: _Request) -> str:
    code = " ".join(request.edit.code.split())
    shown = code if len(code) <= 40 else f"{code[:37]}..."
    change = f"{request.edit.how.value} {shown}".strip()
    return f"{request.finding.rule} ({change})"
