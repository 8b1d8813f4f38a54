"""DDP803: each rank decides for itself whether it enters a collective, or how often."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule
from ddpify.rules.collectives.divergence import DECIDED, findings
from ddpify.rules.examples.gradients import trained
from ddpify.rules.examples.ranks import on_ranks


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per condition on a local value that leads to different collectives."""
    return findings(run, DECIDED)


RULE = Rule(
    DECIDED,
    "local-decision",
    "A loss, a metric, the clock and random draws are different on every rank. When such a value"
    " ends a loop, skips a step or opens a block with a collective (the backward of a wrapped model"
    " is one), one rank goes and the other stays: early stopping on a local loss hangs, a limit of"
    " time gave a metric of 3.0 instead of 2.0 before the error, a batch that is skipped for a"
    " non-finite loss shifts every later gradient by one step. A barrier carries no value. What"
    " was all_reduced or broadcast is fine, and so are counters of steps.",
    "lightning#379; yolov5#8345; speechbrain#1939; sleap-nn#471; pytorch#77562; BUGS C04",
    lint=lint,
    words=("signal.signal(",),
    bad=(
        on_ranks("""
            started = time.time()
            while True:
                dist.all_reduce(value)
                if time.time() - started > 60:
                    break  # DDP803
            """),
        trained(loop="""
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            if total < 0.1:
                break  # DDP803
            """),
    ),
    good=(
        on_ranks("""
            started = time.time()
            while True:
                dist.all_reduce(value)
                over = torch.tensor([float(time.time() - started > 60)])
                dist.broadcast(over, src=0)
                if over.item():
                    break
            """),
        trained(loop="""
            total = torch.zeros(1)
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            dist.all_reduce(total)
            if total.item() < 0.1:
                break
            """),
        trained(loop="""
            for number, (x, y) in enumerate(loader):
                with model.no_sync():
                    loss = F.cross_entropy(model(x), y)
                    if loss.item() > 0.1:
                        (loss / 4).backward()
                if number % 4 == 3:
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
                    optimizer.step()
                    optimizer.zero_grad()
            """),
    ),
)
