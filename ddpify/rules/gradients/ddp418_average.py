"""DDP418: an average of the weights is updated on some ranks and used on others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.ranks.model import ALL, RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.wrapped import parameters_of, wraps

_AVERAGED = "torch.optim.swa_utils.AveragedModel"
_IN_PLACE = frozenset("mul_ add_ copy_ lerp_ sub_ addcmul_ ema_".split())


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per update that a rank misses which runs the averaged model."""
    if not wraps(run):
        return
    done: set[RankThing] = set()
    for call, model in _updates(run):
        missing = ALL & ~call.ranks
        if model in done or not missing or _everywhere(run, model, missing):
            continue
        call = next((one for one in call.stack if one.ranks != ALL), call)
        use = next((c for c in run.calls if _runs(c, model) and c.ranks & missing), None)
        if use is not None:
            done.add(model)
            yield Finding(
                "DDP418",
                call.site,
                "the average of the weights is updated on some ranks only, and the others use it"
                " too: they go on with the old weights",
                Severity.ERROR,
                advice="update it on all ranks: it costs no communication",
                because=((use.site, "used here, on all ranks"),),
            )


def _updates(run: Run) -> Iterator[tuple[RankCall, RankThing]]:
    for call in run.calls:
        if call.receiver is None:
            continue
        if call.method == "update_parameters":
            for thing in call.receiver.things:
                if thing.name == _AVERAGED:
                    yield call, thing
        elif call.method in _IN_PLACE:
            for owner in parameters_of(call.receiver):
                if _is_copy(owner):
                    yield call, owner


def _is_copy(thing: RankThing) -> bool:
    return thing.kind == "result" and thing.name in ("copy.deepcopy", "copy.copy", _AVERAGED)


def _everywhere(run: Run, model: RankThing, missing: int) -> bool:
    """Whether the others are given it, or update it elsewhere."""
    return any(one is model and call.ranks & missing for call, one in _updates(run))


def _runs(call: RankCall, model: RankThing) -> bool:
    things = call.receiver.things if call.receiver is not None else ()
    return call.method in ("__call__", "forward") and model in things


_LOOP = """
for x, y in loader:
    with torch.no_grad():
        aim = average(x).softmax(1)
    optimizer.zero_grad()
    F.cross_entropy(model(x), aim).backward()
    optimizer.step()
    if dist.get_rank() == 0:
        average.update_parameters(model.module)  # DDP418
"""
_SETUP = """
net = nn.Linear(16, 4)
average = torch.optim.swa_utils.AveragedModel(net)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

RULE = Rule(
    "DDP418",
    "average-on-one-rank",
    "An exponential average of the weights that only rank 0 updates stays at its start on the"
    " others (measured -.326 on one rank and -.0075 on the other). What they compute with it"
    " (targets, metrics) differs. Kept and used on rank 0 alone it is fine.",
    "BUGS G22",
    lint=lint,
    words=("deepcopy", "AveragedModel"),
    bad=(trained(_SETUP, _LOOP),),
    good=(
        trained(
            _SETUP,
            _LOOP.replace("  # DDP418", "")
            .replace("    if dist.get_rank() == 0:\n", "")
            .replace("        average.update", "    average.update"),
        ),
    ),
    fixes=False,
)
