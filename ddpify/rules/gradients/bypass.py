"""Calls of the module inside a wrapper that are differentiated: DDP's hooks are not armed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.narrowing import says_bare
from ddpify.ranks.passes import differentiated, is_scaler
from ddpify.ranks.run import Run
from ddpify.rules.gradients.cleared import is_cleared
from ddpify.rules.shared.averaged_by_hand import averagings
from ddpify.rules.shared.syntax import scope_nodes
from ddpify.rules.shared.wrapped import (
    PLAIN,
    Wrap,
    comes_after,
    forwards,
    innermost,
    live,
    receives,
    wraps,
)

_NEW = frozenset(f"torch.{name}" for name in "empty full ones rand randn zeros".split())
_READ = ("torch.", "builtins.")  # what these do with a model that they are given is known


def bypasses(run: Run) -> Iterator[tuple[RankCall, RankCall, Wrap]]:
    """Such calls, with the backward that goes through them, where its gradients are used."""
    for wrap in wraps(run):
        calls = [call for call in run.calls if _computes(call, wrap)]
        if not calls:
            continue
        armed = [f for f in forwards(run, wrap)]
        forward = run.methods("__call__", "forward")
        through_wrapper = {c.node for c in forward if receives(c, wrap.wrapper)}
        for call in calls:
            if call.node in through_wrapper or _nested(call, calls, armed):
                continue
            backward = _backward(run, call, armed) or _backward_of_all(run, call, wrap)
            if backward is None or is_cleared(run, backward, wrap):
                continue
            if _is_used(run, backward) and not _is_averaged(run, backward, wrap):
                yield call, backward, wrap


def handed_on(call: RankCall, backward: RankCall, wrap: Wrap) -> tuple[RankCall, ast.expr] | None:
    """The call that gives the module inside to a function which calls what it is given, and leaves
    the backward to others, and how it says that: ``cost(unwrap(model), batch).backward()``."""
    owner, found = call.node.func, None
    for given in reversed(call.stack):
        own = given.target.parameters if given.target is not None else ()
        if not isinstance(owner, ast.Name) or owner.id not in own or not comes_after(given, wrap):
            break
        if given.target is backward.function:
            break
        bare = [node for node, value in _arguments(given) if _is_inside(value, wrap)]
        if len(bare) != 1:
            break
        found, owner = (given, bare[0]), bare[0]
    return found


def _arguments(call: RankCall) -> Iterator[tuple[ast.expr, RankValue]]:
    yield from zip(call.node.args, call.args, strict=False) if not call.star else ()
    for word in call.node.keywords:
        if word.arg in call.kwargs:
            yield word.value, call.kwargs[word.arg]


def _is_inside(value: RankValue, wrap: Wrap) -> bool:
    return value.things != () and all(map(wrap.holds, value.things))


def _is_averaged(run: Run, backward: RankCall, wrap: Wrap) -> bool:
    """Whether the program averages gradients of the model itself, after the backward."""
    later = (one for one in averagings(run) if one.call.order > backward.order)
    return any(wrap.covers(model) for one in later for model in one.models)


def _is_used(run: Run, backward: RankCall) -> bool:
    """Whether something steps, or looks at gradients: it is no benchmark of a backward."""
    if not run.script or any(map(_steps, run.calls)):
        return True
    nodes = (node for one in backward.way for node in scope_nodes(one))
    looks = (n for n in nodes if isinstance(n, ast.Attribute) and n.attr == "grad")
    return any(isinstance(node.ctx, ast.Load) for node in looks)


def _computes(call: RankCall, wrap: Wrap) -> bool:
    """Whether a call is one of the inner module or a part, with gradient, after the wrap."""
    if call.receiver is None or not call.grad:
        return False
    things = [thing for thing in call.receiver.things if not _of_other_wrapper(thing)]
    if not things or not all(wrap.holds(thing) for thing in things):
        return False
    if _makes_new(call):
        return False
    return call.method not in PLAIN and comes_after(call, wrap) and not _is_bare(call)


def _makes_new(call: RankCall) -> bool:
    """Whether a method asks its object for sizes only, of what it makes: a state of zeros."""
    if call.target is None or not call.target.parameters:
        return False
    own = call.target.parameters[0]
    made = (n for n in ast.walk(call.target.node) if _is_of_none(n))
    sizes = {id(part) for one in made for part in ast.walk(one)}
    uses = [n for n in ast.walk(call.target.node) if isinstance(n, ast.Name) and n.id == own]
    return bool(sizes) and all(id(use) in sizes for use in uses)


def _is_of_none(node: ast.AST) -> bool:
    """``torch.zeros(rows, self.width)`` or ``self.kind == "lstm"``, in which nothing is called."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    if isinstance(node, ast.Compare):
        return not calls
    return calls == [node] and ast.unparse(calls[0].func) in _NEW


def _is_bare(call: RankCall) -> bool:
    """Whether a condition says that there is no wrapper where it is made: ``model.loss(x) if not
    hasattr(model, "module") else …``."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else call.node.func
    return any(says_bare(guard, owner) for guard in call.guards)


def _of_other_wrapper(thing: RankThing) -> bool:
    """``model.module`` where ``model`` may be a wrapper of another kind, or none."""
    return thing.kind == "attribute" and thing.name.endswith(".module")


def _nested(call: RankCall, calls: list[RankCall], armed: list[RankCall]) -> bool:
    """Whether a call happens inside another bypass, or inside a forward of the wrapper."""
    return any(one in calls or one in armed for one in call.stack)


def _backward(run: Run, call: RankCall, armed: list[RankCall]) -> RankCall | None:
    for backward in _backwards_after(run, call):
        loss = differentiated(backward)
        if loss and _goes_through(call, live(loss)) and not _armed(backward, armed):
            return backward
    return None


def _backwards_after(run: Run, call: RankCall) -> list[RankCall]:
    """Those in the same round of a loop."""
    later = [one for one in run.backwards if one.order > call.order]
    return [one for one in later if innermost(one) is innermost(call)]


def _backward_of_all(run: Run, call: RankCall, wrap: Wrap) -> RankCall | None:
    """The backward of a loop in which this is the only model, and is called around its wrapper.

    Its loss may come about in what is not read (a criterion of the project): it is of this model
    where its optimizer steps in the loop and nothing else there is wrapped or has its parameters.
    """
    own = call.receiver is not None and not set(wrap.inner).isdisjoint(call.receiver.things)
    if not call.loops or not own or call.method not in ("__call__", "forward"):
        return None
    loop = innermost(call)
    inside = [c for c in run.calls if innermost(c) is loop]
    wrappers = {one.wrapper for one in wraps(run)}
    others = {t for one in wraps(run) if one.inner != wrap.inner for t in one.inner}
    called = {t for c in inside for value in _run_by(c) for t in value.things}
    if not called.isdisjoint(wrappers | others):
        return None
    used = [c.arg(1, "optimizer") if is_scaler(c) else c.receiver for c in inside if _steps(c)]
    used += [c.arg(0, "optimizer") for c in inside if c.method == "step"]  # of a GradScaler
    made_of = {thing for value in used if value is not None for thing in value.sources()}
    if not any(wrap.covers(thing) for thing in made_of):
        return None
    return next(iter(_backwards_after(run, call)), None)


def _steps(call: RankCall) -> bool:
    return call.method == "step" or is_scaler(call)


def _run_by(call: RankCall) -> tuple[RankValue, ...]:
    """What a call may go through: the model that is called, or is given to what is not read."""
    called = call.method in ("__call__", "forward")
    given = call.given if call.target is None and not call.name.startswith(_READ) else ()
    return (*given, call.receiver) if called and call.receiver is not None else tuple(given)


def _goes_through(call: RankCall, sources: set[RankThing]) -> bool:
    if any(t.call is call or (t.call is not None and call in t.call.stack) for t in sources):
        return True
    own = set(call.receiver.things) if call.receiver is not None else set()
    return call.target is not None and not call.alone and not own.isdisjoint(sources)


def _armed(backward: RankCall, armed: list[RankCall]) -> bool:
    """A forward of the wrapper in the same iteration arms its hooks."""
    return any(f.order < backward.order and innermost(f) is innermost(backward) for f in armed)
