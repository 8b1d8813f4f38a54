"""DDP213: a schedule that is stepped per batch is as long as the whole data set."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddpify.ranks import words
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.passes import Pass, is_loader
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import BY_HAND, CORRECT, changed
from ddpify.rules.shared.feeds import argument, dataset_of, dealt_by, taken_over

_LENGTHS = frozenset(
    "total_steps steps_per_epoch T_max total_iters T_0 num_training_steps num_warmup_steps"
    " num_steps".split()
)
_POSITIONS = {
    "torch.optim.lr_scheduler.CosineAnnealingLR": 1,
    "torch.optim.lr_scheduler.OneCycleLR": 2,
}
_LAMBDA = "torch.optim.lr_scheduler.LambdaLR"
_SCHEDULES = ("torch.optim.lr_scheduler.", "transformers.get_", "transformers.optimization.get_")


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per schedule whose length counts the batches of all ranks."""
    shared = [one for one in run.passes if dealt_by(one.loader)]
    for call in run.calls:
        if call.name.startswith(_SCHEDULES) and call.result is not None:
            for one in shared:
                length = _length(call, one)
                stepped = _stepped(run, call, one) if length is not None else None
                if stepped is not None and not taken_over(run, one.loader):
                    yield _finding(call, one, stepped)
                    break


def _finding(call: RankCall, one: Pass, stepped: RankCall) -> Finding:
    return Finding(
        "DDP213",
        call.site,
        "the schedule counts the batches of all ranks, but a rank has its share of them: it ends"
        " before the rate has come down",
        Severity.ERROR,
        (),
        "take len(loader) for the steps of an epoch: it knows the sampler",
        ((stepped.site, "stepped once per batch of this rank"), (one.loop.site, "the pass")),
    )


def _length(call: RankCall, one: Pass) -> RankValue | None:
    """The argument that is made from ``len(dataset) / batch_size``, the batch being a rank's."""
    position = _POSITIONS.get(call.name, -1)
    given = [call.args[position]] if 0 <= position < len(call.args) else []
    given += [value for name, value in call.kwargs.items() if name in _LENGTHS]
    given += _of_function(call) if call.name == _LAMBDA else []
    return next((value for value in given if _counts_all(value, one.loader)), None)


def _of_function(call: RankCall) -> list[RankValue]:
    """What the function that makes a LambdaLR was given, as far as the factor's text names it."""
    factor = call.arg(1, "lr_lambda")
    texts = [t.info.text for t in factor.things if t.kind == "function"] if factor else []
    entered = call.stack[-1] if call.stack else None
    if entered is None or entered.target is None or entered.star:
        return []
    given = {**dict(zip(entered.target.parameters, entered.args, strict=False)), **entered.kwargs}
    return [v for name, v in given.items() if any(re.search(rf"\b{name}\b", t) for t in texts)]


def _counts_all(value: RankValue, loader: RankThing) -> bool:
    dataset, batch = dataset_of(loader), argument(loader, 1, "batch_size")
    sources = set(value.sources())
    if dataset is None or batch is None or sources.isdisjoint(dataset.things):
        return False
    if any(is_loader(t) or t.name == words.SAMPLER for t in sources):
        return False
    keys = [text(value.atoms[0])]
    keys += [text(a.atoms[0]) for t in sources if t.call is not None for a in t.call.args]
    # `/ 2`: the world size is a constant of this reading
    return any(f"Div{text(batch.atoms[0])})" in key for key in keys) and not any(
        "Div2)" in key or "Div2.0)" in key for key in keys
    )


def _stepped(run: Run, schedule: RankCall, one: Pass) -> RankCall | None:
    made = set(schedule.result.things) if schedule.result is not None else set()
    for call in run.methods("step"):
        receiver = call.receiver.sources() if call.receiver is not None else ()
        if one.loop in call.loops and not made.isdisjoint(receiver):
            return call
    return None


_PLAN = (
    "batch_size=16, sampler=sampler)",
    "batch_size=16, sampler=sampler)\n    steps = 10 * (len(data) // 16)",
)
_SCHEDULE = (
    "    for epoch in range(10):",
    "    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)  # DDP213\n"
    "    for epoch in range(10):",
)
_COSINE = "CosineAnnealingLR(optimizer, T_max=steps)"
_CYCLE = "OneCycleLR(optimizer, 0.1, total_steps=steps)"
_STEP = (
    ("optimizer, gpu):", "optimizer, gpu, plan):"),
    ("        optimizer.step()", "        optimizer.step()\n        plan.step()"),
    (
        "train(model, loader, optimizer, gpu)\n        if",
        "train(model, loader, optimizer, gpu, plan)\n        if",
    ),
)

RULE = Rule(
    "DDP213",
    "schedule-from-global-length",
    "With a DistributedSampler an epoch has len(dataset) / (batch_size * world_size) steps on each"
    " rank. A schedule of len(dataset) / batch_size steps is left in its first part: with eight"
    " ranks the learning rate has done one eighth of its way when training ends.",
    "accelerate#3797; torch.optim.lr_scheduler; BUGS D15",
    bad=(
        changed(BY_HAND, _PLAN, _SCHEDULE, *_STEP),
        changed(
            BY_HAND,
            _PLAN,
            (_SCHEDULE[0], _SCHEDULE[1].replace(_COSINE, _CYCLE)),
            *_STEP,
        ),
    ),
    good=(
        *CORRECT,
        changed(
            BY_HAND,
            (_PLAN[0], _PLAN[1].replace("len(data) // 16", "len(loader)")),
            (_SCHEDULE[0], _SCHEDULE[1].replace("  # DDP213", "")),
            *_STEP,
        ),
    ),
    lint=lint,
    words=("LR(", "_schedule"),
    severity=Severity.ERROR,
    fixes=False,
)
