"""What each reader says reaches `probe(...)`: the lines on which those loaders are made."""

from __future__ import annotations

from pathlib import Path

from ddpify.facts.events import Call
from ddpify.facts.machine import ProgramReader
from ddpify.facts.values import Kind
from ddpify.project import Project
from ddpify.ranks.interest import Interest
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.read import Reading, room
from ddpify.site import Site
from tests.python.rows import Line

PROBE = "builtins.probe"


class Everything(Interest):
    """An interest in every function, so that only Python is compared."""

    def enters(self, info: FunctionDefinition) -> bool:
        """Every call is read."""
        return True

    def narrow(self, info: FunctionDefinition) -> bool:
        """Every forward is read."""
        return True


def by_facts(entry: Path) -> frozenset[Line]:
    """What the reader of one-process programs says."""
    machine = ProgramReader(Project.of(entry))
    machine.run()
    calls = (event for event in machine.events if isinstance(event, Call))
    values = [value for call in calls if call.name == PROBE for value in call.args]
    return frozenset(_line(thing.born) for value in values for thing in value.of(Kind.LOADER))


def by_ranks(entry: Path) -> frozenset[Line]:
    """What the two-rank reader says, its interest filter off."""
    with room():
        reading = Reading.of(entry.parent, [entry], assume_distributed=True)
        reading.interest = Everything()
        runs = [run for run in reading.scripts() if run.start == entry.name]
    calls = [call for run in runs for call in run.calls if call.name == PROBE]
    things = {thing for call in calls for value in call.args for thing in value.things}
    made = (t for t in things if t.kind == "result" and t.name == "torch.utils.data.DataLoader")
    return frozenset(_line(thing.site) for thing in made if thing.site is not None)


def _line(site: Site) -> Line:
    return (site.path, site.span.line)
