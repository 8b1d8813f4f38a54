"""A migrated project whose copy of the helpers is missing: it is written again, and nothing else.

Without it the program does not start, and what its calls do cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddpify import vendor
from ddpify.lost import LostImport, lost
from ddpify.outcome import Note
from ddpify.project import Project
from ddpify.roots import python_files
from ddpify.rules.base import Finding
from ddpify.settings import Settings
from ddpify.source import Site, Span

AGAIN = "the rest was not read without them: run `ddpify migrate` again once they are there"


def restored(project: Project, settings: Settings) -> tuple[Finding, Note] | None:
    """The finding that writes missing helpers, and what is left to do; None if none are missing."""
    below = tuple(python_files(project.root))
    imports = lost([project.root / path for path in project.sources], below)
    if not imports or settings.runtime == "import":
        return None
    names = {name for one in imports for name in one.names}
    finding = vendor.finding(_place(project, settings, imports), project.root, names)
    if finding is None or not finding.fix:
        return None
    first = imports[0]
    site = Site(project.relative(first.file), Span(first.line, 0, first.line, 0))
    missing = " and ".join(sorted({one.path for one in imports}))
    verb = "is" if len({one.path for one in imports}) == 1 else "are"
    message = f"{missing} {verb} missing: the program ends at its imports ({site})"
    return replace(finding, message=message), Note(site, AGAIN)


def _place(project: Project, settings: Settings, imports: Sequence[LostImport]) -> tuple[str, str]:
    """Where the copy was: where it would be put, unless imports name another module."""
    found = vendor.place(project, settings)
    cores = sorted({one.module for one in imports if vendor.is_first(one.module)})
    tails = {name.rpartition(".")[2] for name in cores}
    if not cores or found[0].rpartition(".")[2] in tails:
        return found
    return vendor.place(project, replace(settings, runtime_module=cores[0]))
