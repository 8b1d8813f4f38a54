"""Batches of one sample: each rank takes one, and as many fewer make up an optimizer step. ::

    for i, (volume, label) in enumerate(loader):        # batch_size=1
        loss = criterion(model(volume), label)
        (loss / per_rank_accumulation(4)).backward()
        if (i + 1) % per_rank_accumulation(4) == 0:
            optimizer.step()

That is the same training where a step's window is a number of rounds that is asked in one way, and
the number of a round, or of all of them, decides nothing but what is shown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.facts import carried
from ddpify.facts.details import loader_arguments
from ddpify.facts.kinds import CONTAINERS
from ddpify.facts.model import Facts, Loader, TrainingLoop
from ddpify.facts.roles import whole
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import edit
from ddpify.rules.shared.batch_numbers import counted
from ddpify.rules.shared.gradient_reads import looked_at
from ddpify.rules.shared.round_reads import RoundReads, WrongRead, begins_at_zero
from ddpify.rules.shared.sample_counts import WORLD, Counter, every
from ddpify.rules.shared.states import kept_by
from ddpify.rules.shared.step_conditions import StepWindow, asked_before, stored, window_of

PER_STEP = "per_rank_accumulation"
_KEPT = (*CONTAINERS, Kind.INSTANCE, Kind.UNKNOWN)
_TEXTS = (ast.Name, ast.Attribute, ast.Constant)


@dataclass(frozen=True)
class Shortened:
    """The edits that make windows shorter; or why they cannot be made, and where."""

    edits: tuple[Edit, ...] = ()
    why_not: str = ""


def deals_single(things: tuple[Thing, ...]) -> bool:
    """Whether the program says, here and not by a setting, that a batch is one sample."""
    return bool(things) and all(loader_arguments(thing).of_one for thing in things)


def shortened_of(facts: Facts, loader: Loader) -> Shortened:
    """The windows of all loops that train on a loader, made shorter."""
    loops = [one for one in facts.training if set(one.loaders) & set(loader.things)]
    found = [shortened(facts, loop) for loop in loops]
    why_not = next((one.why_not for one in found if one.why_not), "" if found else "no loop")
    edits = dict.fromkeys(each for one in found for each in one.edits)
    return Shortened((), why_not) if why_not else Shortened(tuple(edits))


def shortened(facts: Facts, loop: TrainingLoop) -> Shortened:
    """A loop's window in rounds of all ranks."""
    try:
        return Shortened(tuple(_edits(facts, loop)))
    except WrongRead as wrong:
        return Shortened((), str(wrong))


def kept_of(facts: Facts, loader: Loader) -> Shortened:
    """What is left to do where each rank takes as many of them as one process does: the means of
    what the loops add up are over all ranks' samples."""
    edits: dict[Edit, None] = {}
    try:
        for loop in facts.training:
            if set(loop.loaders) & set(loader.things):
                reads = RoundReads(facts, loop, _index(facts, loop) or Counter("", True))
                for site in reads.quotients():
                    edits[edit(facts, How.REPLACE, site, f"{{}} * {WORLD}")] = None
    except WrongRead as wrong:
        return Shortened((), str(wrong))
    return Shortened(tuple(edits))


def counter_of(facts: Facts, loop: TrainingLoop) -> Counter | None:
    """What counts the rounds of a loop whose window is known."""
    try:
        return _window(facts, loop).counter
    except WrongRead:
        return None


def in_rounds(facts: Facts, loop: TrainingLoop, asked: str) -> str:
    """A window's condition as it is once the window is shorter."""
    if not deals_single(loop.loaders) or shortened(facts, loop).why_not:
        return asked
    found = _window(facts, loop)
    test = ast.parse(asked, mode="eval").body
    if not found.counter.index:
        return found.counter.converted(test)
    return ast.unparse(_InRounds(found.steps).visit(test))


class _InRounds(ast.NodeTransformer):
    def __init__(self, steps: str) -> None:
        self.steps = steps

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _TEXTS) and ast.unparse(node) == self.steps:
            return ast.Call(ast.Name(PER_STEP), [node], [])
        return self.generic_visit(node)


@dataclass(frozen=True)
class _Counted:
    """A window of ``steps`` rounds, by their counter."""

    window: StepWindow
    steps: str
    counter: Counter


def _edits(facts: Facts, loop: TrainingLoop) -> Iterator[Edit]:
    found = _window(facts, loop)
    _stays_alike(facts, loop, found.window)
    yield from RoundReads(facts, loop, found.counter).edits(found.window, found.steps)
    tree, receiver = found.window.tree, loop.backward.receiver_site
    if receiver is None:
        raise WrongRead("it is not known what goes backward")
    places = [n for n in ast.walk(_statement(tree, loop)) if _is_text(n, found.steps)]
    if found.counter.index:
        test = getattr(found.window.block[-1], "test", found.window.asked)
        own = [n for n in places if _is_inside(tree, n, test) or _is_period(tree, n)]
        yield from (edit(facts, How.REPLACE, tree.site(n), f"{PER_STEP}({{}})") for n in own)
    given = tree.expression(receiver)
    divisors = [n for n in places if given is not None and _divides(tree, n, given)]
    if divisors:
        yield from (edit(facts, How.REPLACE, tree.site(n), f"{PER_STEP}({{}})") for n in divisors)
    else:  # a sum over the window, or divided before, as it may be shown
        times = f"{found.steps} / {PER_STEP}({found.steps})"
        times = WORLD if found.counter.index else times  # the window's length is asked there
        yield edit(facts, How.REPLACE, receiver, f"{{}} * {times}")


def _statement(tree: Tree, loop: TrainingLoop) -> ast.stmt:
    return tree.statement(loop.batch.site) or ast.Pass()


def _is_text(node: ast.AST, text: str) -> bool:
    read = isinstance(node, _TEXTS) and not isinstance(getattr(node, "ctx", None), ast.Store)
    return read and ast.unparse(node) == text


def _is_inside(tree: Tree, node: ast.AST, test: ast.AST) -> bool:
    return test in tree.ancestors(node)


def _is_period(tree: Tree, node: ast.AST) -> bool:
    """``last = (i + 1) % 4 == 0``"""
    asked = (every(above) for above in tree.ancestors(node))
    return any(one is not None and (one.rest.right is node or one.last) for one in asked)


def _divides(tree: Tree, node: ast.AST, loss: ast.expr) -> bool:
    """``(loss / 4).backward()``"""
    match tree.parent(node):
        case ast.BinOp(op=ast.Div(), right=right) as above if right is node:
            return any(one is above for one in ast.walk(loss))
    return False


def _window(facts: Facts, loop: TrainingLoop) -> _Counted:
    window = window_of(facts, loop)
    text = asked_before(facts, window, window.block) if window is not None else None
    if window is None or text is None or window.leftover or window.rounds != loop.batch.site:
        if _steps_in_each(facts, loop):
            raise WrongRead("each sample is a step of its own")
        raise WrongRead("no single condition on the number of a round decides over the step")
    test = ast.parse(text, mode="eval").body
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and len(test.values) == 2:
        test = test.values[0] if "len(" in ast.unparse(test.values[1]) else test  # the last round
    asked = every(test)
    counted_by = _counter_of(asked.rest.left) if asked is not None else ""
    if asked is None or not asked.equal or not counted_by:
        raise WrongRead(f"it is not known in which rounds `{text}` holds")
    counter = _counter(facts, loop, counted_by)
    if counter.first + counter.offset(asked.rest.left) + (asked.last is not None) != 1:
        raise WrongRead("the first window is shorter than the others")
    return _Counted(window, ast.unparse(asked.rest.right), counter)


def _steps_in_each(facts: Facts, loop: TrainingLoop) -> bool:
    """Whether nothing is accumulated: where there is a backward there is a step."""
    held = {guard.site for guard in loop.backward.where.guards}
    steps = [step for step in facts.steps if loop.batch in step.where.loops()]
    return bool(steps) and all({g.site for g in s.where.guards} <= held for s in steps)


def _counter_of(number: ast.expr) -> str:
    names = [n for n in ast.walk(number) if isinstance(n, (ast.Name, ast.Attribute))]
    owners = {n.value for n in names if isinstance(n, ast.Attribute)}
    found = [ast.unparse(n) for n in names if n not in owners]
    return found[0] if len(found) == 1 else ""


def _counter(facts: Facts, loop: TrainingLoop, name: str) -> Counter:
    """What counts the rounds: the loop's own begins again in each pass of it."""
    index = _index(facts, loop)
    if index is not None and index.name == name:
        return index
    tree = facts.tree(loop.batch.site)
    if name in stored(getattr(tree.statement(loop.batch.site), "target", ast.Pass())):
        raise WrongRead(f"`{name}` is not known to count the batches of one loader")
    _counts_rounds(tree, loop, name)
    if not begins_at_zero(facts, loop, name):
        raise WrongRead(f"`{name}` is not known to begin at 0")
    return Counter(name, False)


def _index(facts: Facts, loop: TrainingLoop) -> Counter | None:
    """The number of a batch that ``for`` binds."""
    numbers = counted(facts, loop)
    if numbers is None or numbers[2]:
        return None
    name, _, first = numbers[1].partition(" - ")
    return Counter(name, True, int(first or 0))


def _counts_rounds(tree: Tree, loop: TrainingLoop, counter: str) -> None:
    """Raise where it is not increased by one, once, in each round."""
    body = getattr(tree.statement(loop.batch.site), "body", [])
    for one in body:
        match one:
            case ast.AugAssign(target, ast.Add(), ast.Constant(1)):
                counts = ast.unparse(target) == counter
            case ast.Assign([target], ast.BinOp(left, ast.Add(), ast.Constant(1))):
                counts = ast.unparse(target) == ast.unparse(left) == counter
            case _:
                counts = False
        if counts and sum(counter in stored(each) for each in body) == 1:
            return
    raise WrongRead(f"`{counter}` is not counted once in each round")


def _stays_alike(facts: Facts, loop: TrainingLoop, window: StepWindow) -> None:
    """Raise where something else counts the rounds, or is told of each of them."""
    called = {whole(forward.model).born for forward in facts.training_forwards}
    if any(m.batch_norm for m in facts.models if called & {t.born for t in m.things}):
        raise WrongRead("batch norm takes its statistics from each batch of one")
    synced = [window.tree.site(one) for one in window.synced]
    for call in facts.calls:
        inside = loop.batch in call.where.loops()
        stepping = any(site.within(one) for site in call.way for one in synced)
        scheduler = call.receiver is not None and call.receiver.of(Kind.SCHEDULER)
        if inside and scheduler and not stepping:
            raise WrongRead(f"a schedule goes on in each round ({call.site})")
    if looked_at(facts, loop, window):
        raise WrongRead("a round may look at the gradients, or change the model")
    tree, receiver = window.tree, loop.backward.receiver_site
    node, loss = tree.statement(loop.batch.site), receiver and tree.expression(receiver)
    if not isinstance(node, ast.For) or not loss or carried.depends([node], [loss]):
        raise WrongRead("the loss goes on from what the batch before has left")
    for owner in carried.feeds(node, loss):
        if facts.values.get(tree.site(owner), NOTHING).of(*_KEPT):
            text = ast.unparse(owner)
            raise WrongRead(f"the loss is of what `{text}` has of batches before")
    within = [tree.site(one) for one in carried.makers(node, loss)]
    for site in kept_by(facts, within):
        raise WrongRead(f"what makes the loss keeps something of this batch for others ({site})")
