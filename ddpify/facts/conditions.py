"""What a condition on samples says of the numbers that are set under it."""

from __future__ import annotations

from ddpify.facts.scopes import Frame
from ddpify.facts.values import Measure, Value, flat_deps


def conditioned(f: Frame, value: Value) -> Value:
    """A number set under a condition on samples says something about those samples."""
    tests = [guard.test for guard in f.guards if guard.test.measure is not Measure.UNIFORM]
    if not tests or value.things:
        return value
    deps = value.deps.union(*(flat_deps(test) for test in tests))
    found = {test.measure for test in tests} | {value.measure} - {Measure.UNIFORM}
    single = found == {Measure.ENTRY}
    return value.but(deps=deps, measure=Measure.ENTRY if single else Measure.MIXED, rows=False)
