"""DDP319: gradients are averaged by hand, of models that are not the same on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final

from ddpify.python.libraries import is_known
from ddpify.ranks import words
from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RANK0, RankCall, RankThing, RankValue
from ddpify.ranks.other_libraries import HOROVOD
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.model.drawn import DRAWS, is_drawn, only_keeps
from ddpify.rules.model.own_rates import own_rates
from ddpify.rules.shared.averaged_by_hand import averagings, is_gradient
from ddpify.rules.shared.clips import CLIPS
from ddpify.rules.shared.seeds import Stream, stream
from ddpify.rules.shared.wrapped import modules_of, parts_of, wraps
from ddpify.site import Site

_OPTIMIZER: Final = f"{HOROVOD}DistributedOptimizer"
_OF_OPTIMIZERS: Final = (_OPTIMIZER, f"{HOROVOD}broadcast_optimizer_state")
# What gives something else than the weights of a model: outputs, another model, one number.
_ANOTHER: Final = frozenset("__call__ forward deepcopy copy norm vector_norm sum numel".split())
_SENDING: Final = frozenset({"broadcast_parameters", "broadcast"})
# What does nothing to weights; a constructor is read.
_LEAVES: Final = CLIPS | frozenset("zero_grad requires_grad_ __call__ __init__ forward".split())


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per model that ranks draw for themselves, and whose gradients they share."""
    seen: set[RankThing] = set()
    for call, model in _averaged(run) if run.script and run.complete else ():
        made = model.call
        if model in seen or made is None or any(wrap.covers(model) for wrap in wraps(run)):
            continue
        seen.add(model)
        how, seeding = stream(run, made, words.TORCH)
        load, draws = next(_loads(run, model), None), how is not Stream.SAME and is_drawn(model)
        if (draws or load is not None) and not _is_made_equal(run, model, load):
            yield _finding(made, call, how, seeding) if load is None else _loaded(load, call)
    for site, origin in own_rates(run) if run.script else ():
        yield Finding(
            "DDP319",
            site,
            f"each rank steps by a number of its own ({origin.told}), with the same gradients:"
            " the ranks train different models",
            Severity.ERROR,
            advice="draw or choose it on rank 0, and broadcast it",
            because=((origin.site, "comes from here"),),
        )


def _averaged(run: Run) -> Iterator[tuple[RankCall, RankThing]]:
    """What averages gradients, and the models that they are of."""
    for one in averagings(run):
        yield from ((one.call, model) for model in one.models)
    for call in run.named(_OPTIMIZER):
        yield from ((call, model) for value in call.given for model in modules_of(value))


def _is_made_equal(run: Run, model: RankThing, load: RankCall | None) -> bool:
    """Whether weights may be sent to the other ranks, or set: by collectives, or unread code;
    what is sent before one rank loads others is not what it has then."""
    parts = frozenset(parts_of(model))
    if any(_is_set(store, parts) for store in run.stores):
        return True
    on = 0  # the ranks that are given other weights: a load on rank 0 alone makes nothing equal
    for call in run.calls:
        stale = load is not None and not load.loops and call.order < load.order
        if stale and call.method in _SENDING:
            continue
        if _may_set(run, call, parts):  # the others may load what rank 0 has saved, or get it
            on |= call.ranks if call.method == "load_state_dict" and call.ranks & RANK0 else ALL
    return on == ALL


def _is_set(store: Store, parts: frozenset[RankThing]) -> bool:
    """``p.data = …``, ``state[name] = …``"""
    kept = store.key in ("grad", "requires_grad") or store.value.known
    return not kept and _are_weights(store.base, parts)


def _are_weights(value: RankValue, parts: frozenset[RankThing]) -> bool:
    """Whether a value is a model, its parameters or made of them; not gradients, nor outputs."""
    sources = set(value.sources())
    made = {thing.call.method for thing in sources if thing.call is not None}
    return not parts.isdisjoint(sources) and made.isdisjoint(_ANOTHER) and not is_gradient(value)


def _may_set(run: Run, call: RankCall, parts: frozenset[RankThing]) -> bool:
    """Whether a call may set weights, or send them."""
    if call.method in _LEAVES or call.name in _OF_OPTIMIZERS:
        return False
    if not any(_are_weights(value, parts) for value in call.inputs):
        return False
    if call.name in words.COLLECTIVE_CALLS or call.name.startswith(words.DIST):
        return True
    if call.target is not None:
        return call.target.place not in run.entered
    if call.receiver is None and not is_known(call.name):
        made = call.result.things if call.result is not None else ()
        return not any(one.cls is not None and only_keeps(one.cls) for one in made)
    loads = "load" in call.method or "vector_to" in call.method
    return loads or any(_are_weights(one, parts) for one in _filled(call))


def _filled(call: RankCall) -> Iterator[RankValue]:
    """The tensors that a call sets in place, but for random numbers and biases."""
    if call.method.endswith("_") and call.method not in DRAWS:
        for value in call.inputs[:1]:
            if not any(thing.name.endswith(".bias") for thing in value.sources()):
                yield value


def _loads(run: Run, model: RankThing) -> Iterator[RankCall]:
    """Where some ranks alone are given other weights."""
    parts = frozenset(parts_of(model))
    loads = run.methods("load_state_dict")
    yield from (call for call in loads if _may_set(run, call, parts))


def _loaded(load: RankCall, call: RankCall) -> Finding:
    """Reported where the ranks part: a function that loads is right on all of them."""
    parting = load.parted
    inside = ((load.site, "loaded here"),) if parting is not load else ()
    return Finding(
        "DDP319",
        parting.site,
        "only some ranks load these weights, the others draw their own, and gradients alone are"
        " averaged: the ranks train different models from beginning to end",
        Severity.ERROR,
        advice="broadcast the parameters and buffers of that rank before the first step",
        because=(*inside, (call.site, "gradients are averaged here")),
    )


def _asked_for(made: RankCall, call: RankCall) -> Site:
    """Where the function that leads to both asks for the model: ``model = build()``."""
    pairs = zip(made.way, call.way, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
    return made.way[min(shared, len(made.way) - 1)].site


def _finding(made: RankCall, call: RankCall, how: Stream, seeding: RankCall | None) -> Finding:
    why = "unseeded" if how is Stream.UNSEEDED else "with a seed of its own"
    seeded = ((seeding.site, "the seed differs between ranks"),) if seeding is not None else ()
    return Finding(
        "DDP319",
        _asked_for(made, call),
        f"each rank draws its own weights ({why}), and gradients alone are averaged: the ranks"
        " train different models from beginning to end",
        Severity.ERROR,
        advice="broadcast the parameters and buffers of rank 0 before the first step",
        because=((call.site, "gradients are averaged here"), *seeded),
    )


_SETUP: Final = """
torch.manual_seed({})
model = nn.Linear(16, 4){}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_LOOP: Final = """
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
"""
_AVERAGE: Final = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(x)


def average(params):
    for p in params:
        if p.grad is not None:
            dist.all_reduce(p.grad.data, op=dist.ReduceOp.AVG)


def send(module):
    for tensor in module.state_dict().values():
        dist.broadcast(tensor, src=0)


"""
_BY_NAME: Final = """
model = Net(){}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_CALLED: Final = """
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    average(list(model.parameters()))
    optimizer.step()
"""

RULE = Rule(
    "DDP319",
    "unequal-start",
    "DistributedDataParallel sends rank 0's weights to all ranks when it is made. Where a program"
    " averages gradients itself, or Horovod's optimizer does, somebody has to do that, too: equal"
    " steps from different weights stay different (measured: outputs 5.9 and 4.5 at the end)."
    " One seed for all ranks does as well as a broadcast. A learning rate that each rank draws for"
    " itself parts them, too.",
    "horovod.torch.broadcast_parameters; PyTorch tutorial 'Writing distributed applications'",
    lint=lint,
    words=(".grad",),
    severity=Severity.ERROR,
    bad=(
        trained(_SETUP.format("dist.get_rank()", "  # DDP319"), _LOOP),
        trained(
            "torch.manual_seed(2024 + dist.get_rank())" + _BY_NAME.format("  # DDP319"),
            _CALLED,
            _AVERAGE,
        ),
    ),
    good=(
        trained(_SETUP.format("0", ""), _LOOP),
        trained(
            "torch.manual_seed(2024 + dist.get_rank())" + _BY_NAME.format("\nsend(model)"),
            _CALLED,
            _AVERAGE,
        ),
    ),
    fixes=False,
)
