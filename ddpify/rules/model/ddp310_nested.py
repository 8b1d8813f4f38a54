"""DDP310: a wrapper around a wrapper."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.ranks.values import Made
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.syntax import scope
from ddpify.rules.shared.wrapped import exclusive

_NAMES = {
    words.DDP: "DistributedDataParallel",
    words.FSDP: "FullyShardedDataParallel",
    words.FULLY_SHARD: "fully_shard",
    words.DATA_PARALLEL: "DataParallel",
}


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per wrapper that is given a wrapped model."""
    for call in run.named(*_NAMES):
        module = call.arg(0, "module")
        things = module.things if module is not None else ()
        inside = {_wrapper(thing, call) for thing in things}
        if len(inside) != 1 or None in inside or not _is_certain(module):
            continue
        inner = inside.pop()
        assert inner is not None
        what, severity = _does(call, inner)
        yield Finding(
            "DDP310",
            call.place,
            f"{_NAMES[call.name]} around {_NAMES[inner.name]}: {what}",
            severity,
            advice="use one wrapper",
            because=((inner.place, f"{_NAMES[inner.name]} here"),),
        )

    yield from _in_loops(run)


def _does(call: RankCall, inner: RankCall) -> tuple[str, Severity]:
    """What becomes of it, as measured in tests/facts_of_torch."""
    if call.name == words.FULLY_SHARD:
        return "the model is sharded, and the wrapper inside reduces nothing", Severity.WARNING
    if inner.name == words.FULLY_SHARD:
        return "DistributedDataParallel takes no shards: an error", Severity.ERROR
    return "gradients are reduced twice, or spread over other ranks' devices", Severity.WARNING


def _in_loops(run: Run) -> Iterator[Finding]:
    """``for …: model = DDP(model)``: each round wraps what the round before has wrapped."""
    for call in run.named(words.DDP):
        asked, module = call.asked, call.arg(0, "module")
        loop = asked.loops[-1] if asked.loops else None
        if loop is None or module is None or not module.things:
            continue
        made = [_made(thing) for thing in module.things]
        outside = (one is not None and loop not in one.loops for one in made)
        if all(outside) and _kept(run, asked, loop):
            yield Finding(
                "DDP310",
                asked.site,
                "the model is wrapped again in each round of the loop, around the wrapper of the"
                " round before: slower and slower, then a RecursionError",
                Severity.ERROR,
                advice="wrap the model once, before the loop",
                because=((loop.site, "this loop"),),
            )


def _made(thing: RankThing) -> RankCall | None:
    """The call that made a model, or the object that it is a part of."""
    while thing.call is None and thing.kind == "attribute" and thing.receiver is not None:
        thing = thing.receiver
    return thing.call


def _kept(run: Run, asked: RankCall, loop: RankLoop) -> bool:
    """Whether what is wrapped is put where it was taken from, in every round."""
    given = asked.node_of(0, "module") or asked.node_of(0, "model")
    given = _base(given) if given is not None else None
    function = scope(asked)
    here = asked.site.within(loop.site)
    within = loop.node if here else function
    if given is None or any(g.site.within(asked.module.site(within)) for g in asked.guards):
        return False
    name = ast.unparse(given)
    if not here and not isinstance(given, ast.Attribute):
        return False  # a variable of a function that is called again
    bound = [
        node
        for node in ast.walk(within)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.For))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if any(ast.unparse(part) == name for part in ast.walk(target) if _is_place(part))
        if isinstance(node, ast.For) or not _is_itself(node.value, name)
    ]
    others = [s for s in run.stores if isinstance(given, ast.Attribute) and s.key == given.attr]
    return (
        len(bound) == 1
        and not isinstance(bound[0], ast.For)  # else each round takes another one
        and asked.node in ast.walk(bound[0])
        and all(s.node in ast.walk(bound[0]) or loop not in s.loops for s in others)
    )


def _base(node: ast.expr) -> ast.expr:
    """``model`` of ``model.train()``."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node


def _is_itself(node: ast.expr | None, name: str) -> bool:
    """``model = model.train()``."""
    return isinstance(node, ast.Call) and ast.unparse(_base(node)) == name


def _is_place(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))


def _is_certain(module: RankValue | None) -> bool:
    """Whether it is one object, not one of several: `model.module if wrapped else model`."""
    return module is not None and isinstance(module.atoms[0], Made)


def _wrapper(thing: RankThing, call: RankCall) -> RankCall | None:
    if thing.kind == "result" and thing.name in _NAMES and thing.call is not None:
        return None if exclusive(thing.call, call) else thing.call
    sharded = thing.sharded
    if call.name == words.DDP and sharded is not None and sharded.order < call.order:
        return None if exclusive(sharded, call) else sharded  # `if fsdp: … else: DDP(…)`
    return None


RULE = Rule(
    "DDP310",
    "nested-wrap",
    "DataParallel around DistributedDataParallel, or DDP around itself, is accepted silently and"
    " pays for two reductions; DDP around a fully_shard-ed model stops with an error, and"
    " fully_shard of a DDP object is accepted and shards it: DDP reduces nothing then, and only its"
    " `module.` before all names is left of it (measured).",
    "pytorch docs (DataParallel and DistributedDataParallel); BUGS G21, L19",
    lint=lint,
    bad=(
        trained("""
            model = DDP(nn.DataParallel(nn.Linear(16, 4)))  # DDP310
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
    good=(
        trained("""
            model = DDP(nn.Linear(16, 4))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
        trained("""
            model = nn.Linear(16, 4)
            if dist.get_world_size() > 1:
                model = DDP(model)
            else:
                model = nn.DataParallel(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """),
    ),
    fixes=False,
)
