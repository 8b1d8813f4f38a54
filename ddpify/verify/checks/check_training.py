"""The same training, step by step: counts, learning rates, gradients, parameters, loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ddpify.verify.checks.base import excused, numbered, result, skipped, some
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.pairs import Worst
from ddpify.verify.verdict import Check, Verdict

_NO_STEP = "no optimizer step was taken by every run"


def steps(c: Comparison) -> Check:
    title = "optimizer steps"
    if not c.one.steps:
        return skipped("steps", title, "the original took no optimizer step")
    ended = [r for r in c.ranks if r.status in ("finished", "stopped") or r.exit_code == 0]
    if not ended:
        return skipped("steps", title, "no rank came to its end")
    wanted = Counter(step.optimizer for step in c.one.steps)
    details = []
    for run in ended:
        found = Counter(step.optimizer for step in run.steps)
        details += [
            f"{c.one.optimizers[number].kind}: {count} in one process, "
            f"{found[number]} on rank {run.rank}"
            for number, count in sorted(wanted.items())
            if found[number] != count
        ]
        if extra := found.total() - sum(found[number] for number in wanted):
            details.append(f"rank {run.rank}: {extra} of an optimizer the original has not")
    counts = " / ".join(str(len(run.steps)) for run in c.ranks)
    measured = f"{len(c.one.steps)} in one process, {counts} on the ranks"
    return result("steps", title, bool(details), measured, details)


def learning_rates(c: Comparison) -> Check:
    name, title = "learning-rates", "learning rates"
    if not c.common_steps:
        return skipped(name, title, _NO_STEP)
    if not any(step.learning_rates for step in c.one.steps):
        return skipped(name, title, "steps that are taken by hand tell none")
    if c.rates_part is None:
        return result(name, title, False, f"equal in {numbered(c.common_steps, 'step')}")
    step, _ = c.rates_part
    rows = [f"rank {r.rank}: {_rates(r.steps[step].learning_rates)}" for r in c.ranks]
    wanted = f"one process: {_rates(c.one.steps[step].learning_rates)}"
    return result(name, title, True, f"differ from step {step} on", (wanted, *rows))


def gradients(c: Comparison) -> Check:
    check = _compared(c, "gradients", "gradients", c.gradients, "gradient")
    every = [g for step in c.one.steps[: c.common_steps] for g in step.gradients if g is not None]
    if check.verdict is Verdict.PASS and not any(g.any() for g in every):
        return skipped(check.name, check.title, "all are zero: nothing is learned")
    return check


def trajectory(c: Comparison) -> Check:
    """The initial parameters belong to it: at step -1, so to speak."""
    found = (*c.initial, *c.parameters)
    check = _compared(c, "trajectory", "parameters, every step", found, "parameter")
    if check.verdict in (Verdict.FAIL, Verdict.UNDECIDED) and c.divergence:
        details = (str(c.divergence), *check.details)
        return Check(check.name, check.title, check.verdict, check.measured, details)
    return check


def loss(c: Comparison) -> Check:
    title = "loss, mean over ranks"
    if c.common_steps and not c.losses:
        return skipped("loss", title, "backward() was not called on single numbers")
    return _compared(c, "loss", title, c.losses, "loss")


def ranks_identical(c: Comparison) -> Check:
    name, title = "ranks-identical", "ranks identical"
    count = min(len(run.steps) for run in c.ranks)
    if not count:
        return skipped(name, title, _NO_STEP)
    if c.ranks_start_apart:
        details = (f"before the first step: {_which(c, 0, c.ranks_start_apart)}",)
        return result(name, title, True, "differ from the start", details)
    if c.ranks_part is None:
        return result(name, title, False, f"bit for bit after {numbered(count, 'step')}")
    step, names = c.ranks_part
    details = (f"after step {step}: {_which(c, c.ranks[0].steps[step].optimizer, names)}",)
    return result(name, title, True, f"differ from step {step} on", details)


def _compared(c: Comparison, name: str, title: str, found: Sequence[Worst], noun: str) -> Check:
    if c.unmatched and noun != "loss":
        return result(name, title, True, c.unmatched)
    if not c.common_steps:
        return skipped(name, title, _NO_STEP)
    worst = max(found, key=lambda each: each.difference, default=None)
    if worst is None:
        return skipped(name, title, "there is none to compare")
    limit = f"tolerance {c.tolerance:.3g}"
    measured = f"largest relative difference {worst.difference:.3g}, {limit}"
    above = [each for each in found if not each.difference <= c.tolerance]
    if not above:
        return result(name, title, False, f"{measured}, {numbered(c.common_steps, 'step')}")
    first = min(above, key=lambda each: each.step)
    lines = [
        f"largest: step {worst.step}, {_where(worst)}",
        f"first: step {first.step}, {_where(first)}",
    ]
    if noun == "gradient" and c.gradient_factor is not None:
        lines.append(f"the ranks' gradient is {c.gradient_factor:.6g} times that of one process")
    return excused(result(name, title, True, measured, lines), c)


def _where(worst: Worst) -> str:
    rank = f" on rank {worst.rank}" if worst.rank >= 0 else ""
    return f"{worst.name}{rank} ({worst.difference:.3g})"


def _which(c: Comparison, optimizer: int, names: Sequence[str]) -> str:
    count = len(c.ranks[0].optimizers[optimizer].parameters)
    many = "all parameters" if len(names) == count else f"{len(names)} of {count} parameters"
    return f"{many} differ ({some(names)})"


def _rates(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:.9g}" for rate in rates)
