"""DDP201: an epoch loop does not tell its sampler the epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.details import call_that_made, loader_arguments
from ddpify.facts.events import Call
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.scopes import Frame, Loop
from ddpify.facts.values import Kind, Thing, Value
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.data.counting import before_iter, by_passes, counter, in_generator
from ddpify.rules.data.epochs import fix as fix_of
from ddpify.rules.data.epochs import repeated
from ddpify.rules.data.orders import draws_itself
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
from ddpify.settings import Settings


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per epoch loop whose sampler nobody tells the epoch."""
    for told in repeated(run) if run.complete else ():
        if not told.calls:
            fix = fix_of(told, run.helpers)
            yield Finding(
                "DDP201",
                told.epochs.site,
                "the sampler is not told the epoch: every epoch shuffles in the same order",
                Severity.ERROR,
                fix,
                "" if fix else "call sampler.set_epoch(epoch) before each pass over the loader",
                (
                    (told.sampler.site or told.epochs.site, "the sampler is made"),
                    (told.one.loop.site, "the pass over its loader"),
                ),
            )


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per epoch loop over a sampled training loader."""
    done: set[object] = set()
    for loop in facts.training:
        if loop.epoch is None or loop.epoch.site in done:
            continue
        missing = tuple(t for t in loop.loaders if not _told(facts, t))
        if not missing:
            continue
        done.add(loop.epoch.site)
        fix = _fix(facts, loop, missing)
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


def _without_end(facts: Facts) -> Iterable[Finding]:
    """``while True: for batch in loader: yield batch``: passes that no loop of steps counts."""
    trained = {t for loop in facts.training for t in loop.loaders if not _told(facts, t)}
    epochs = {loop.epoch.site for loop in facts.training if loop.epoch is not None}
    for tree in facts.trees.values():
        for node in tree.nodes():
            if not isinstance(node, ast.While) or tree.site(node) in epochs:
                continue
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
    for loop in facts.training:
        if loop.epoch is None and loop.batch.site in around:
            begun = [t for t in loop.loaders for v in call.args[:1] if t in v.things]
            yield from ((call, t) for t in begun if not _told(facts, t))


def _told(facts: Facts, loader: Thing) -> bool:
    if draws_itself(loader):
        return True
    for call in facts.calls:
        begins = call.name.endswith("runtime.begin_epoch") and call.args
        if begins and loader in call.args[0].things:
            return True
        told = call.receiver if call.name == ".set_epoch" else None
        if told is not None and _concerns(told, loader):
            return True
    return False


def _concerns(receiver: Value, loader: Thing) -> bool:
    if loader in receiver.things:
        return True
    samplers = {t for value in loader_arguments(loader).samplers for t in value.things}
    for thing in receiver.of(Kind.SAMPLER):
        if thing in samplers or (thing.inner is not None and loader in thing.inner.things):
            return True
    return False


def _fix(facts: Facts, loop: TrainingLoop, loaders: tuple[Thing, ...]) -> tuple[Edit, ...]:
    assert loop.epoch is not None
    if isinstance(facts.tree(loop.epoch.site).statement(loop.epoch.site), ast.While):
        names = [_name_of(loop.epoch.frame, loader, loop.loaders) for loader in loaders]
        if any(_made_inside(loop.epoch, one) and one.hops for one in loaders) or None in names:
            return ()
        told = dict.fromkeys(name for name in names if name is not None)
        return by_passes(facts, loop.epoch.site, loop.epoch.body, tuple(told))
    edits: list[Edit] = []
    for loader in loaders:
        placed = _at_epoch_head(facts, loop, loader) or _before_batches(facts, loop, loader)
        if placed is None:
            return ()
        edits.extend(placed)
    return tuple(dict.fromkeys(edits))


def _at_epoch_head(facts: Facts, loop: TrainingLoop, loader: Thing) -> tuple[Edit, ...] | None:
    assert loop.epoch is not None
    name = _name_of(loop.epoch.frame, loader, loop.loaders)
    if name is None or (loader.hops and _made_inside(loop.epoch, loader)):
        return None
    return _told_by(facts, loop.epoch, loop.epoch.frame, name, How.BEFORE, loop.epoch)


def _made_inside(epoch: Loop, loader: Thing) -> bool:
    """Whether a pass makes it anew: it has no name yet where the first pass begins."""
    made = call_that_made(loader)
    return made is not None and any(loop.site == epoch.site for loop in made.where.loops())


def _before_batches(facts: Facts, loop: TrainingLoop, loader: Thing) -> tuple[Edit, ...] | None:
    assert loop.epoch is not None
    frame = loop.batch.frame
    name = _name_of(frame, loader, loop.loaders)
    epoch = _epoch_name(frame, loop.epoch)
    if name is None or epoch is None or not loaders_in(loop.batch.over):
        return None
    return (edit(facts, How.BEFORE, loop.batch.site, f"begin_epoch({name}, {epoch})"),)


def _told_by(
    facts: Facts, epoch: Loop, frame: Frame, name: str, how: How, loop: Loop
) -> tuple[Edit, ...] | None:
    counted = counter(facts, epoch)
    if counted is None:
        return None
    variable, renamed = counted
    return (*renamed, edit(facts, how, loop.body, f"begin_epoch({name}, {variable})"))


def _epoch_name(frame: Frame, epoch: Loop) -> str | None:
    """What the epoch's counter is called in another function."""
    span = epoch.site.span
    for name, value in frame.env.items():
        for thing in value.of(Kind.INDEX):
            if thing.born.path == epoch.site.path and thing.born.span.line == span.line:
                return name
    return None


def _name_of(frame: Frame, loader: Thing, trained: tuple[Thing, ...]) -> str | None:
    """An expression for the loader in a frame: a name, ``self.x``, a dict entry.

    It may stand for any of those ``trained`` in the loop, where a branch chose one.
    """
    for name, value in (*frame.env.items(), *frame.module.globals.items()):
        if _is(value, loader, trained):
            return name
    for name, value in frame.env.items():
        for thing in value.of(Kind.INSTANCE, Kind.DICT):
            held = _held_as(thing, loader, trained, 2)
            if held is not None:
                return f"{name}{held}"
    return None


def _is(value: Value, loader: Thing, trained: tuple[Thing, ...]) -> bool:
    return loader in value.things and set(value.things) <= set(trained)


def _held_as(thing: Thing, loader: Thing, trained: tuple[Thing, ...], depth: int) -> str | None:
    """``.attribute``, ``["key"]`` or one within the other."""
    held = [(f".{name}", value) for name, value in thing.attrs.items()]
    held += [(f'["{k}"]', v) for k, v in (thing.keys or {}).items() if isinstance(k, str)]
    for text, value in held:
        if _is(value, loader, trained):
            return text
    for text, value in held if depth > 1 else ():
        for inner in value.of(Kind.INSTANCE, Kind.DICT):
            rest = _held_as(inner, loader, trained, depth - 1)
            if rest is not None and len(value.things) == 1:
                return text + rest
    return None


STEPS = (
    "        for signal, label in fitting:\n",
    "        if round_ % 25 == 0:\n            pairs = iter(fitting)\n"
    "        signal, label = next(pairs)\n        with torch.enable_grad():\n",
)

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
