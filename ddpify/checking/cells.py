"""Notebooks among the files that are checked: read as Python, reported by cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ddpify.checking.cache import CacheEntry
from ddpify.checking.codes import UNREADABLE
from ddpify.checking.files import Group
from ddpify.checking.model import Named
from ddpify.checking.places import order
from ddpify.notebooks import Notebook, NotebookError, in_cell, is_notebook
from ddpify.programs import Program
from ddpify.rules.base import Finding, Severity
from ddpify.site import Site, Span

_START = Span(1, 0, 1, 0)


@dataclass(frozen=True)
class Cells:
    """The notebooks of a group, by their paths below its root, and what is wrong with them."""

    group: Group
    books: Mapping[str, Notebook]
    unread: tuple[Finding, ...]

    @classmethod
    def of(cls, group: Group, contents: Mapping[Path, bytes]) -> Cells:
        """Read the notebooks; those that are none are left out of the group."""
        books: dict[str, Notebook] = {}
        unread: list[Finding] = []
        broken = set()
        for file in (one for one in group.python if is_notebook(one.name)):
            path = file.relative_to(group.root).as_posix()
            try:
                books[path] = Notebook.of(contents[file])
            except NotebookError as error:
                broken.add(file)
                unread.append(Finding(UNREADABLE, Site(path, _START), str(error), Severity.ERROR))
                continue
            for cell, why in books[path].left:
                message = f"{why}, so this cell is not read"
                site = Site(in_cell(path, cell), _START)
                unread.append(Finding(UNREADABLE, site, message, Severity.NOTE))
        read = tuple(one for one in group.python if one not in broken)
        return cls(replace(group, python=read), books, tuple(unread))

    @property
    def texts(self) -> dict[Path, bytes]:
        """The notebooks as Python files."""
        return {self.group.root / path: one.text.encode() for path, one in self.books.items()}

    def told(self, entry: CacheEntry, unread: bool) -> CacheEntry:
        """The answer with places in cells; ``unread``: with what is wrong with notebooks."""
        if not (self.books or self.unread):
            return entry
        found = [self._finding(one) for one in entry.findings]
        found += self.unread if unread else ()
        rules = {**entry.rules, **(_unreadable() if self.unread and unread else {})}
        programs = tuple(map(self._program, entry.programs))
        ordered = tuple(sorted(found, key=order))
        return replace(entry, findings=ordered, rules=rules, programs=programs)

    def _finding(self, one: Finding) -> Finding:
        """Without a fix in a notebook: what is written there is JSON, outputs and all."""
        within = {one.site.path, *(edit.site.path for edit in one.fix)} & self.books.keys()
        return replace(
            one,
            site=self._site(one.site),
            fix=() if within else one.fix,
            because=tuple((self._site(site), why) for site, why in one.because),
            way=tuple((self._site(site), why) for site, why in one.way),
        )

    def _site(self, site: Site) -> Site:
        book = self.books.get(site.path)
        if book is None:
            return site
        cell, line = book.place(site.span.line)
        last, end = book.place(site.span.end_line)
        end, column = (end, site.span.end_column) if last == cell else (line, site.span.column)
        return Site(in_cell(site.path, cell), Span(line, site.span.column, end, column))

    def _program(self, one: Program) -> Program:
        def named(place: str) -> str:
            path = place.rpartition(":")[0]
            return self.books[path].named(place) if path in self.books else place

        return one.named(named)


def _unreadable() -> Mapping[str, Named]:
    from ddpify.checking.catalogue import named  # all rules, which a cached run does without

    return named({UNREADABLE})
