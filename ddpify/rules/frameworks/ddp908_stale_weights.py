"""DDP908: a sharded model goes on with the weights that it had before a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpify.facts.model import Facts
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import SHARDED
from ddpify.rules.frameworks.kept import kept_too_long
from ddpify.rules.frameworks.sharded import shard_of
from ddpify.rules.shared.wrapped import backwards, innermost
from ddpify.settings import Settings
from ddpify.strategies import of

_FLAG = "reshard_after_forward"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per place where blocks that keep weights would go on with old ones."""
    if of(settings).shards and not settings.fsdp_reshard:
        for site, what in kept_too_long(facts):
            yield Finding(
                "DDP908",
                site,
                f"{what}: blocks that keep theirs until then would not have those of a step",
                Severity.ERROR,
                advice="compute without a backward under torch.no_grad(), clear gradients with"
                " optimizer.zero_grad(), or leave out --no-fsdp-reshard",
            )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per model of which a forward comes between a backward and the step."""
    done: set[RankCall] = set()
    for call, shard in _looks(run):
        if shard not in done and _steps_after(run, call):
            done.add(shard)
            yield Finding(
                "DDP908",
                call.site,
                "this forward leaves the model's own weights whole, as they are before the step:"
                " the next batch trains with these",
                Severity.ERROR,
                (Edit(How.ARGUMENT, shard.site, "True", _FLAG),),
                because=((shard.site, f"sharded without {_FLAG}=True"),),
            )


def _looks(run: Run) -> Iterator[tuple[RankCall, RankCall]]:
    """Forwards without gradient of a model that keeps its weights after one, in a loop."""
    for call in run.methods("__call__"):
        for thing in call.receiver.things if call.receiver is not None else ():
            shard = thing.sharded and shard_of(thing)
            if shard is not None and not call.grad and call.loops and not _reshards(shard):
                yield call, shard


def _reshards(shard: RankCall) -> bool:
    flag = shard.kwargs.get(_FLAG)
    return shard.star or (flag is not None and flag.constant not in (None, False))


def _steps_after(run: Run, call: RankCall) -> bool:
    """Whether a backward is behind it in the round, and a step comes before the next one."""
    place = innermost(call)
    before = [b.order for b in backwards(run) if innermost(b) is place and b.order < call.order]
    after = [s.order for s in run.methods("step") if innermost(s) is place and _optimizes(s)]
    later = [b.order for b in backwards(run) if innermost(b) is place and b.order > call.order]
    step = min((order for order in after if order > call.order), default=None)
    return bool(before) and step is not None and not any(order < step for order in later)


def _optimizes(call: RankCall) -> bool:
    return call.name.startswith("torch.optim.") and "lr_scheduler" not in call.name


_STEP = "            optimizer.step()\n"
_LOOK = "            with torch.no_grad():\n                hits = (model(x).argmax(1) == y).sum()"
_HELPED = "            hits = right(model, x, y)\n"
_RIGHT = """
@torch.no_grad()
def right(net, x, y):
    return (net(x).argmax(1) == y).sum(){}


def main():
"""

RULE = Rule(
    "DDP908",
    "stale-sharded-weights",
    "What fully_shard is called on last keeps its own weights whole after a forward, unless it is"
    " told reshard_after_forward=True; a backward shares them out again. A forward between the"
    " backward and the optimizer's step leaves them as they were before that step, and the next"
    " forward uses them (measured: losses 0.024 too high, no error).",
    "torch.distributed.fsdp.fully_shard (reshard_after_forward); docs/fsdp.md",
    check,
    lint=lint,
    bad=(
        changed(SHARDED, (_STEP, f"{_LOOK}  # DDP908\n{_STEP}")),
        changed(
            SHARDED,
            (_STEP, f"{_LOOK}  # DDP908\n{_STEP}"),
            ("fully_shard(model)", "fully_shard(model, reshard_after_forward=False)"),
        ),
        changed(
            SHARDED, (_STEP, _HELPED + _STEP), ("\ndef main():\n", _RIGHT.format("  # DDP908"))
        ),
    ),
    good=(
        changed(SHARDED, (_STEP, f"{_STEP}{_LOOK}\n")),
        changed(
            SHARDED,
            (_STEP, f"{_LOOK}\n{_STEP}"),
            ("fully_shard(model)", "fully_shard(model, reshard_after_forward=True)"),
        ),
    ),
)
