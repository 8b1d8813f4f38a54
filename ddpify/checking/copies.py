"""What files say of a project that ddpify migrated: its copy of the helpers, its launch lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddpify import launching, vendor
from ddpify.lost import LostImport, lost
from ddpify.roots import python_files
from ddpify.rules.base import Finding, Severity
from ddpify.site import Site, Span


@dataclass(frozen=True)
class Copies:
    """The copies of the helpers below ``root``, by path, and whether a script that is checked
    opens a session with them."""

    root: Path
    paths: tuple[str, ...]
    opens: bool
    lost: tuple[LostImport, ...] = ()

    @classmethod
    def of(cls, root: Path, python: Sequence[Path], others: Iterable[Path]) -> Copies:
        """Those among the files that are checked, and the others that these import."""
        files = (file for file in (*python, *others) if file.is_relative_to(root))
        cores = sorted({file for file in files if vendor.is_core(file)})
        paths = tuple(file.relative_to(root).as_posix() for file in cores)
        opens = any(vendor.opens_session(file, cores) for file in python)
        return cls(root, paths, opens, lost(python, python_files(root)))

    def findings(self) -> Iterator[Finding]:
        """Copies that are not as ddpify wrote them, or not there; lines that start a script without
        torchrun."""
        for path in self.paths:
            yield from vendor.drifts(path, self.root)
        for one in {one.path: one for one in reversed(self.lost)}.values():
            site = Site(one.file.relative_to(self.root).as_posix(), Span(one.line, 0, one.line, 0))
            message = f"{one.path} is missing: the program ends here"
            way = "`ddpify migrate` writes it again"
            yield Finding("DDP004", site, message, Severity.ERROR, advice=way)
        if self.opens:
            yield from launching.findings(self.root)

    def renewing(self, finding: Finding) -> Finding:
        """A finding whose fix also renews a copy that lacks its helpers, or is none."""
        wanted = {one for edit in finding.fix for one in edit.imports}
        for path in self.paths:
            module = path.removesuffix(".py").replace("/", ".")
            used = {one.name for one in wanted if f".{module}".endswith(f".{one.module}")}
            copy = vendor.finding((module, path), self.root, used) if used else None
            if copy is not None and copy.fix:
                finding = replace(finding, fix=(*finding.fix, *copy.fix))
            elif copy is not None:
                finding = replace(finding, fix=(), advice=f"{copy.message}; {copy.advice}")
        return finding
