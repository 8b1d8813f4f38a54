"""DDP810: an error of one rank is passed over in a loop with collectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ddpify.ranks.attempts import Attempt, Handler, ends
from ddpify.ranks.frames import node_of_function
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.run import Run
from ddpify.ranks.words import COLLECTIVE_CALLS
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.collectives.passed_over import (
    EMPTY,
    goes_on,
    is_repeated,
    is_retried,
    met_alone,
    skipped,
)
from ddpify.rules.collectives.unproven import in_training_alone
from ddpify.rules.examples.gradients import trained
from ddpify.rules.shared.exchanges import exchanges
from ddpify.rules.shared.parents import is_on_its_own

_GOES_ON: Final = (
    "a rank that fails here goes on alone: its later collectives pair with other ones of the"
    " others, which gives wrong numbers or a hang"
)
_LEAVES: Final = (
    "a rank that fails here leaves alone, as if all were well: the others wait for it, and what"
    " started them sees no error"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per handler that lets a loop go on after a failed exchange; a note where
    the ranks may not meet at all."""
    for call, found in _found(run, list(exchanges(run)) if run.joined else []):
        unproven = in_training_alone(run, call.guards)
        yield replace(found, severity=Severity.NOTE) if unproven else found


def _found(run: Run, met: list[RankCall]) -> Iterator[tuple[RankCall, Finding]]:
    for call in met:
        if call.ranks != ALL and call.name in COLLECTIVE_CALLS:
            continue  # the others do not come to it: DDP806 says so where that is wrong
        for tried in call.swallows:
            if (call.method in EMPTY and call.site == tried.body) or is_retried(call, tried):
                continue  # nothing here fails on one rank alone, or it tries again
            agreed = any(one.place_in(handler.body) for one in met for handler in tried.handlers)
            if is_repeated(call, tried) and not agreed:
                yield from ((call, one) for one in _passed_over(run, call, tried, met))
    for call, handler in skipped(run, met):
        yield call, _finding(call, handler, _GOES_ON)


def _passed_over(
    run: Run, call: RankCall, tried: Attempt, met: list[RankCall]
) -> Iterator[Finding]:
    """The handlers after which a rank goes on, or leaves without a word to those that wait."""
    for handler in tried.passes_over(met_alone(run, call, tried)):
        if _ends_in_helper(run, handler):
            continue
        if goes_on(call, tried, handler, met):
            yield _finding(call, handler, _GOES_ON)
        elif not is_on_its_own(run, call):
            yield _finding(call, handler, _LEAVES)


def _ends_in_helper(run: Run, handler: Handler) -> bool:
    """Whether it calls, whatever else holds, a function of the project that ends the process."""
    return any(
        call.target is not None
        and call.site.within(handler.body)
        and not any(guard.site.within(handler.body) for guard in call.guards)
        and ends(node_of_function(call.target.node))
        for call in run.calls
    )


def _finding(call: RankCall, handler: Handler, message: str) -> Finding:
    return Finding(
        "DDP810",
        handler.site,
        message,
        Severity.ERROR,
        advice="let the error end the job, or let the ranks agree to skip before anything is sent",
        because=((call.site, "the ranks meet here"),),
    )


RULE = Rule(
    "DDP810",
    "swallowed-failure",
    "An error in one batch is an error of one rank: out of memory, a bad row, a loss that is not"
    " finite. A handler that goes on with the next batch leaves the collectives of that batch out,"
    " and every later one pairs with a wrong one (measured: exit code 0, shifted gradients). An"
    " error that is raised again ends the job on all ranks, which is what torchrun expects. Errors"
    " that a function of the program raises count where what it asks is a rank's own, and those of"
    " files where a rank reads its own. Such a handler is wrong, too, where its `continue` skips"
    " what the others meet in.",
    "ace#850; Megatron-DeepSpeed PR#48; BUGS C18",
    lint=lint,
    bad=(
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                try:
                    F.cross_entropy(model(x), y).backward()
                except RuntimeError:  # DDP810
                    continue
                optimizer.step()
            """),
        trained(
            loop="""
            for x, y in loader:
                try:
                    learn(model, optimizer, x, y)
                except (RuntimeError, ValueError) as error:  # DDP810
                    print(dist.get_rank(), error)
            """,
            top="""

            def learn(model, optimizer, x, y):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            """,
        ),
    ),
    good=(
        trained(  # nothing is repeated, wherever the ranks meet
            setup="""
            model = DDP(nn.Linear(16, 4))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            try:
                for x, y in loader:
                    optimizer.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    optimizer.step()
                    average(model)
            except RuntimeError as error:
                print(dist.get_rank(), error)
            """,
            top="""

            def average(model):
                for p in model.parameters():
                    dist.all_reduce(p.data, op=dist.ReduceOp.AVG)
            """,
        ),
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                try:
                    F.cross_entropy(model(x), y).backward()
                except RuntimeError as error:
                    raise RuntimeError(f"epoch {epoch} failed") from error
                optimizer.step()
            """),
        trained(loop="""
            for x, y in loader:
                optimizer.zero_grad()
                try:
                    x = x.clamp(-1, 1)
                except RuntimeError:
                    continue
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            """),
    ),
    fixes=False,
)
