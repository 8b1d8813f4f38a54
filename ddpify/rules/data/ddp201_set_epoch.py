"""DDP201: an epoch loop does not tell its sampler the epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.details import call_that_made, loader_arguments
from ddpify.facts.events import Call
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.values import Thing
from ddpify.ranks.model import ALL
from ddpify.ranks.opened import unproven
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.data.derived import is_undivided
from ddpify.rules.data.epochs import fix as fix_of
from ddpify.rules.data.epochs import repeated
from ddpify.rules.data.restarts import restarts
from ddpify.rules.edits import edit, once, proof
from ddpify.rules.examples import (
    BY_HAND,
    CORRECT,
    LEARNER,
    PROJECT,
    SCRIPT,
    SINGLE,
    TRAINER,
    changed,
    marked,
)
from ddpify.rules.shared.telling import before_iter, in_generator, is_told, tell
from ddpify.settings import Settings
from ddpify.source import Site

SAMPLER = "ddpify.runtime.distributed_sampler"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per epoch loop whose sampler nobody tells the epoch."""
    for told in repeated(run) if run.complete else ():
        if not any(call.ranks == ALL for call in told.calls):
            fix = () if told.calls else fix_of(told, run.helpers)
            made = told.sampler.call
            proven = made is None or not unproven(run, made)
            yield Finding(
                "DDP201",
                told.calls[0].site if told.calls else told.epochs.site,
                _OF_SOME if told.calls else _OF_NONE,
                Severity.ERROR if proven else Severity.NOTE,
                fix,
                "" if fix else "call sampler.set_epoch(epoch) before each pass over the loader",
                (
                    (told.sampler.site or told.epochs.site, "the sampler is made"),
                    (told.one.loop.site, "the pass over its loader"),
                ),
            )


_OF_NONE = "the sampler is not told the epoch: every epoch shuffles in the same order"
_OF_SOME = "only some ranks tell their sampler the epoch: from then on ranks share samples"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per epoch loop over a sampled training loader."""
    done: set[object] = set()
    for loop in facts.training:
        if loop.epoch is None or loop.epoch.site in done:
            continue
        missing = tuple(t for t in loop.loaders if not is_told(facts, t))
        if not missing:
            continue
        done.add(loop.epoch.site)
        fix = tell(facts, loop, missing)
        if not fix and not any(_shuffles(loader) for loader in missing):
            continue  # each epoch has the one order that it had
        if not fix and all(_is_drawn(facts, loader, settings) for loader in missing):
            continue  # rank 0 draws each epoch's
        yield Finding(
            "DDP201",
            loop.epoch.site,
            "the sampler is not told the epoch: every epoch shuffles in the same order",
            Severity.ERROR,
            fix,
            (
                ""
                if fix
                else "give the loader a name where `for epoch in range(n):` is, then run again"
            ),
            proof(missing),
        )
    yield from _begun_again(facts)
    yield from _without_end(facts)
    yield from _within_an_epoch(facts, settings)


def _within_an_epoch(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """``except StopIteration: batches = iter(loader)`` in an epoch of another loader."""
    for site, loaders in _by_place(restarts(facts)).items():
        if any(map(_shuffles, loaders)) and not all(_is_drawn(facts, t, settings) for t in loaders):
            yield Finding(
                "DDP201",
                site,
                "the sampler is told the epoch alone: begun again in it, it shuffles as before",
                Severity.ERROR,
                (edit(facts, How.REPLACE, site, "new_pass({})"),),
                because=proof(tuple(loaders)),
            )


def _by_place(pairs: Iterable[tuple[Site, Thing]]) -> dict[Site, list[Thing]]:
    """The loaders by place."""
    found: dict[Site, list[Thing]] = {}
    for site, loader in pairs:
        found.setdefault(site, []).append(loader)
    return found


def _is_drawn(facts: Facts, loader: Thing, settings: Settings) -> bool:
    """Whether its batches are shared out once they are made."""
    own = [one for one in facts.loaders if loader in one.things]
    return bool(own) and all(is_undivided(facts, one, settings) for one in own)


def _shuffles(loader: Thing) -> bool:
    """Whether a loader's order may hang on the epoch, as it is or once it has a sampler."""
    given = loader_arguments(loader)
    samplers = [thing for value in given.samplers for thing in value.things]
    if any(thing.name != SAMPLER for thing in samplers):
        return True
    calls = [call_that_made(thing) for thing in samplers]
    asked = [call.arg(1, "shuffle") if call is not None else None for call in calls]
    values = [value for value in (given.shuffle, *asked) if value is not None]
    return not all(value.known and not value.const for value in values)


def _without_end(facts: Facts) -> Iterable[Finding]:
    """``while True: for batch in loader: yield batch``: passes that no loop of steps counts."""
    trained = {t for loop in facts.training for t in loop.loaders if not is_told(facts, t)}
    epochs = {loop.epoch.site for loop in facts.training if loop.epoch is not None}
    for tree in facts.trees.values():
        for node in tree.nodes():
            if not isinstance(node, ast.While) or tree.site(node) in epochs:
                continue
            if any(call.site.within(tree.site(node)) for call in facts.named("builtins.iter")):
                continue  # told where the pass begins
            passes = [n for n in node.body if isinstance(n, ast.For)]
            over = [facts.values.get(tree.site(n.iter)) for n in passes]
            if any(t in trained for v in over if v for t in loaders_in(v)):
                yield Finding(
                    "DDP201",
                    tree.site(passes[0]),
                    "the sampler is not told which pass this is: every pass shuffles alike",
                    Severity.ERROR,
                    in_generator(facts, tree, node, passes),
                    "give the loader a name of its own here, then run again",
                )


def _begun_again(facts: Facts) -> Iterable[Finding]:
    """``batches = iter(loader)`` in a loop over steps: each begins a pass."""
    for site, calls in once(facts.named("builtins.iter")).items():
        made = [pair for call in calls for pair in _begins(facts, call)]
        if not made:
            continue
        call, loader = made[0]
        fix = before_iter(facts, call)
        yield Finding(
            "DDP201",
            site,
            "the sampler is not told which pass this is: every pass shuffles in the same order",
            Severity.ERROR,
            fix,
            "" if fix else "give the loader a name, and the loop a counter, then run again",
            proof((loader,)),
        )


def _begins(facts: Facts, call: Call) -> Iterable[tuple[Call, Thing]]:
    around = {loop.site for loop in call.where.loops()}
    rounds = any(one.frame is call.where.frame for one in call.where.loops())
    own = rounds and call.where.frame.yields  # a generator's: its passes are no round of the steps
    for loop in facts.training:
        steps = loop.epoch is None and loop.batch.site in around
        if steps or (own and loop.batch.frame is not call.where.frame):
            begun = [t for t in loop.loaders for v in call.args[:1] if t in v.things]
            yield from ((call, t) for t in begun if not is_told(facts, t))


STEPS = (
    "        for signal, label in fitting:\n",
    "        if round_ % 25 == 0:\n            pairs = iter(fitting)\n"
    "        signal, label = next(pairs)\n        with torch.enable_grad():\n",
)
AGAIN = """

def again(pairs):
    lap = iter(pairs)
    while True:
        try:
            yield next(lap)
        except StopIteration:
            lap = iter(pairs)  # DDP201


def main"""

RULE = Rule(
    "DDP201",
    "missing-set-epoch",
    "DistributedSampler derives its permutation from seed + epoch. Without set_epoch(epoch) before"
    " each pass every epoch uses the same order, and each rank sees the same samples for ever.",
    "torch.utils.data.distributed.DistributedSampler; pytorch#31771, #11324; BUGS D01",
    check,
    bad=(
        changed(
            SCRIPT,
            ("range(20):\n    begin_epoch(feed, n)", "range(20):  # DDP201"),
        ),
        changed(
            PROJECT,
            ("range(10):\n        begin_epoch(learn, lap)", "range(10):  # DDP201"),
        ),
        changed(
            TRAINER,
            (
                'lessons):\n            begin_epoch(self.streams["past"], number)',
                "lessons):  # DDP201",
            ),
        ),
        changed(BY_HAND, ("range(10):\n        sampler.set_epoch(epoch)", "range(10):  # DDP201")),
        marked(SINGLE, "DDP201", "for round_ in range(5):"),
        marked(LEARNER, "DDP201", "for turn in range(times):"),
        changed(  # steps are counted, and each `iter` begins a pass
            SINGLE,
            STEPS,
            ("= iter(fitting)\n", "= iter(fitting)  # DDP201\n"),
        ),
        changed(  # a generator that begins again, whatever loop takes from it
            SINGLE,
            ("\n\ndef main", AGAIN),
            ("    for round_ in", "    pairs = again(fitting)\n    for round_ in"),
            (STEPS[0], "        signal, label = next(pairs)\n        with torch.enable_grad():\n"),
        ),
        changed(  # one that has no name cannot be told
            SINGLE,
            STEPS,
            (
                "= iter(fitting)\n",
                "= iter(DataLoader(held, opt.bs, shuffle=True))  # DDP201\n",
            ),
            ("    fitting = DataLoader(TensorDataset(", "    held = (TensorDataset("),
            ("labels[:800]), opt.bs, shuffle=True)", "labels[:800]))"),
        ),
        changed(  # a branch chooses the loader
            SINGLE,
            (
                "    holdout",
                "    if opt.bs > 8:\n        fitting = DataLoader(signals)\n    holdout",
            ),
            ("range(5):\n", "range(5):  # DDP201\n"),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            BY_HAND,
            ("DistributedSampler(data)", "DistributedSampler(data, shuffle=False)"),
            ("        sampler.set_epoch(epoch)\n", ""),
        ),
        changed(BY_HAND, ("sampler.set_epoch(epoch)", "loader.sampler.set_epoch(epoch)")),
    ),
    lint=lint,
    words=("set_epoch",),
    severity=Severity.ERROR,
)
