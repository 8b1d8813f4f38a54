"""Gradients of one output of a model by another output of the same call.

out = siren(coordinates)      # {"y": …, "x": the coordinates, which it has made leaves}
slope = torch.autograd.grad(out["y"].sum(), out["x"])
"""

from __future__ import annotations

import ast

from ddpify.facts import roles
from ddpify.facts.events import Call
from ddpify.facts.fresh import method_of
from ddpify.facts.joining import flat_deps
from ddpify.facts.protocol import Machine
from ddpify.facts.values import NOTHING, Kind, Thing


def goes_to_outputs(m: Machine, call: Call) -> bool:
    """``autograd.grad(out["y"], out["x"])``, both of one call of a model that gives several.

    Outputs that are put together anew from those of all ranks have no such way between them.
    """
    given = [call.arg(0, "outputs"), call.arg(1, "inputs")]
    made, by = ({d for d in flat_deps(v or NOTHING) if d.kind is Kind.FORWARD} for v in given)
    calls = [f for f in roles.forwards_of(m) if f.output in by]
    return bool(by) and made == by and any(_gives_several(f.model) for f in calls)


def _gives_several(model: Thing) -> bool:
    """Whether a model may return more than one tensor: what a name is, is not looked up."""
    info = method_of(model, "forward")
    returned = (n for n in ast.walk(info.node) if isinstance(n, ast.Return)) if info else ()
    return info is None or any(
        isinstance(n.value, ast.Tuple | ast.Dict | ast.Name) for n in returned
    )
