"""DDP411: gradients are clipped while they are scaled."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall, RankThing
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.clips import CLIPS
from ddpify.rules.shared.scalers import SCALERS, is_on
from ddpify.rules.shared.wrapped import backwards, exclusive


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per clip between a scaled backward and its unscale."""
    for backward in backwards(run):
        scaler = _scaler(backward)
        if scaler is None:
            continue
        for clip in run.calls:
            if clip.method in CLIPS and _clips_scaled(run, backward, clip, scaler):
                yield Finding(
                    "DDP411",
                    clip.site,
                    "the gradients are still multiplied by the loss scale here: clipping cuts"
                    " nearly all of them to a thousandth or less",
                    Severity.ERROR,
                    advice="call scaler.unscale_(optimizer) before clipping",
                    because=((backward.site, "scaled here"),),
                )


def _scaler(backward: RankCall) -> RankThing | None:
    """The scaler of ``scaler.scale(loss).backward()``, if it is not switched off."""
    assert backward.receiver is not None
    for thing in backward.receiver.things:
        if thing.name.endswith(".GradScaler.scale") and thing.call is not None:
            receiver = thing.call.receiver
            made = receiver.things if receiver is not None else ()
            kept = len(made) == 1 and made[0].name in SCALERS and is_on(receiver) is not False
            return made[0] if kept else None
    return None


def _clips_scaled(run: Run, backward: RankCall, clip: RankCall, scaler: RankThing) -> bool:
    if not clip.name.startswith("torch.nn.utils.") or clip.order < backward.order:
        return False
    if backward.loops[: len(clip.loops)] != clip.loops or exclusive(clip, backward):
        return False  # of another loop, or of another branch
    between = [c for c in _of(run, scaler, "unscale_") if backward.order < c.order < clip.order]
    steps = [c for c in _of(run, scaler, "step") if c.order > clip.order]
    others = [b for b in backwards(run) if backward.order < b.order < clip.order]
    return bool(steps) and not between and not any(_scaler(b) is not scaler for b in others)


def _of(run: Run, scaler: RankThing, method: str) -> list[RankCall]:
    return [c for c in run.methods(method) if c.receiver and scaler in c.receiver.things]


_LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # DDP411
    scaler.step(optimizer)
    scaler.update()
"""
_SETUP = """
model = DDP(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
"""

RULE = Rule(
    "DDP411",
    "clip-before-unscale",
    "After scaler.scale(loss).backward() the gradients are thousands of times too large. Clipped"
    " to norm 1 then, and divided by the scale in scaler.step(), the update is 1 / scale of what"
    " was meant (measured instead of 1: 1e-3 with a scale of 1,024, 1.5e-5 with torch's first"
    " one).",
    "torch.amp.GradScaler.unscale_ docs; BUGS G11",
    lint=lint,
    words=("clip_grad",),
    bad=(trained(_SETUP, _LOOP),),
    good=(
        trained(
            _SETUP,
            _LOOP.replace("  # DDP411", "").replace(
                "    nn.utils.clip", "    scaler.unscale_(optimizer)\n    nn.utils.clip"
            ),
        ),
        trained(_SETUP.replace('"cpu"', '"cpu", enabled=False'), _LOOP.replace("  # DDP411", "")),
    ),
    fixes=False,
)
