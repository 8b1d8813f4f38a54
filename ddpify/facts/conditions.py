"""What a condition says of the numbers that are set under it, and of what comes after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ddpify.facts.joining import flat_deps
from ddpify.facts.scopes import Frame, Guard
from ddpify.facts.values import OF_ONE_RANK, Measure, Value


def conditioned(value: Value, guards: Iterable[Guard]) -> Value:
    """A number set under a condition on samples says something about those samples."""
    tests = [guard.test for guard in guards if guard.test.measure is not Measure.UNIFORM]
    if not tests or value.things:
        return value
    deps = value.deps.union(*(flat_deps(test) for test in tests))
    found = {test.measure for test in tests} | {value.measure} - {Measure.UNIFORM}
    single = found == {Measure.ENTRY}
    return value.but(deps=deps, measure=Measure.ENTRY if single else Measure.MIXED, rows=False)


def passed(f: Frame, skips: Iterable[Guard]) -> Iterator[Guard]:
    """The conditions of a rank's own under which a deeper block did not leave: what follows asks
    them too.
    """
    known = {guard.site for guard in f.guards}
    for guard in dict.fromkeys(skips):
        own = guard.test.measure is not Measure.UNIFORM or guard.test.dep(*OF_ONE_RANK)
        if own and guard.site not in known:
            yield replace(guard, holds=not guard.holds)
