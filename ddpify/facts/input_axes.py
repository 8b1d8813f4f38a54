"""Along which axis a model's input holds samples, by what is done with it.

Along which axis the tensors of a batch hold samples, by all that says so.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from ddpify.facts import roles
from ddpify.facts.bodies import SHAPES, CutBody, stored
from ddpify.facts.drawn_order import is_any_drawn
from ddpify.facts.events import Call, Forward
from ddpify.facts.fresh import method_of
from ddpify.facts.joining import flat_deps
from ddpify.facts.layer_axes import axes_of, by_rows
from ddpify.facts.loss_flow import loss_values
from ddpify.facts.model import TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.values import NOTHING, Kind
from ddpify.source import Site

# With another axis than the first, what looks along axes is not followed.
ALONG = frozenset(
    """sum mean prod std var norm max min argmax argmin topk sort softmax log_softmax cumsum
    logsumexp split chunk unbind""".split()
)
WITH_CLASSES = frozenset(
    """torch.nn.CrossEntropyLoss torch.nn.NLLLoss torch.nn.functional.cross_entropy
    torch.nn.functional.nll_loss""".split()
)


def parallel_axes(first: Machine, forwards: Sequence[Forward]) -> set[int | None]:
    """The axes along which DataParallel divides what these calls are given."""
    sites = {f.call.site for f in forwards}
    found = [f for f in roles.forwards_of(first) if f.call.site in sites]
    wrapped = {f.call.site for f in found if f.model.kind is Kind.WRAPPED}
    calls = [c for c in roles.calls_of(first) if c.name.endswith(".DataParallel")]
    return {_dim(call) for call in calls} if wrapped == sites else set()


def _dim(call: Call) -> int | None:
    given = call.arg(3, "dim")
    if given is None:
        return 0
    return given.const if given.known and isinstance(given.const, int) else None


def unfollowed(m: Machine, loop: Site, axis: int, forwards: Sequence[Forward]) -> bool:
    """Whether what a pass computes along an axis may be along that of the samples.

    Not where a model gives ``x.view(-1, classes)``: nothing made of that has such an axis.
    """
    flat = all(_gives_rows(forward) for forward in forwards)
    classes = _with_classes(m, loop)
    outputs = {forward.output for forward in forwards}
    inside = {forward.call.site for forward in forwards}
    for call in roles.calls_of(m) if axis else ():
        within = any(each.site == loop for each in call.where.loops())
        if not within or call.where.no_grad or inside & set(call.where.stack):
            continue
        own = call.receiver if call.name.startswith(".") else call.arg(0, "input")
        tensor = own or NOTHING
        rows = flat and outputs & flat_deps(tensor)
        if _looks_along(call) and not rows and not _is_along_classes(m, loop, call, classes):
            return True
    return False


def asks_lengths(m: Machine, loop: Site, forwards: Sequence[Forward]) -> bool:
    """Whether a pass asks how long tensors are, outside its model: of samples along another axis
    than the first, `x.size(0)` is no count. Rows of all samples (`x.view(-1, classes)`) are one.
    """
    flat = all(_gives_rows(forward) for forward in forwards)
    outputs = {forward.output for forward in forwards}
    inside = {forward.call.site for forward in forwards}
    accesses = (a for name in ("size", "shape") for a in m.events.accesses(name))
    asked = [(a.base, a.where, a.base_site) for a in accesses]
    lengths = (c for c in roles.calls_of(m) if c.name == "builtins.len" and c.args)
    asked += [(c.args[0], c.where, c.site) for c in lengths if not c.args[0].things]
    return any(
        any(each.site == loop for each in where.loops())
        and not (where.no_grad or inside & set(where.stack))
        and not (flat and outputs & flat_deps(value))
        and not _shapes(m, site)
        for value, where, site in asked
    )


def _shapes(m: Machine, site: Site) -> bool:
    """Whether an expression stands in what a tensor's shape is made of: `x.view(y.size(0), -1)`."""
    tree = m.tree(site.path)
    node: ast.AST | None = tree.expression(site)
    while isinstance(node, ast.expr):
        above = tree.parent(node)
        given = above.args if isinstance(above, ast.Call) else []
        if node in given and isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute):
            return above.func.attr in SHAPES
        node = above
    return False


def _with_classes(m: Machine, loop: Site) -> list[tuple[str, int]]:
    """What cross entropy is given: its classes lie along axis 1, whatever its other axes are.

    Names, with the statement of a pass at which each holds such a tensor.
    """
    tree = m.tree(loop.path)
    found = []
    for call in roles.calls_of(m):
        node = tree.expression(call.site) if call.site.within(loop) else None
        given = node.args[0] if isinstance(node, ast.Call) and node.args else None
        if isinstance(given, ast.Name) and _made_by(m, call) & WITH_CLASSES:
            found.append((given.id, _place(m, loop, call.site)))
    return found


def _place(m: Machine, loop: Site, site: Site) -> int:
    """The number of the statement in a loop's body in which something is."""
    tree = m.tree(loop.path)
    return next((n for n, one in enumerate(_body(m, loop)) if site.within(tree.site(one))), -1)


def _body(m: Machine, loop: Site) -> Sequence[ast.stmt]:
    node = m.tree(loop.path).statement(loop)
    return node.body if isinstance(node, (ast.For, ast.While)) else ()


def _made_by(m: Machine, call: Call) -> set[str]:
    callee = m.values.get(call.callee) or NOTHING
    return {call.name} | {thing.name for thing in callee.of(Kind.CRITERION)}


def _is_along_classes(
    m: Machine, loop: Site, call: Call, classes: Sequence[tuple[str, int]]
) -> bool:
    """``out.argmax(1)``, ``torch.max(out, 1)`` of a tensor that has its classes there."""
    method = call.name.startswith(".")
    own = call.receiver_site if method else call.arg_site(0, "input")
    axis = call.arg(0 if method else 1, "dim")
    node = m.tree(own.path).expression(own) if own is not None else None
    if not isinstance(node, ast.Name) or axis is None or not axis.known or axis.const != 1:
        return False
    here, body = _place(m, loop, call.site), _body(m, loop)
    between = (body[min(here, at) : max(here, at) + 1] for name, at in classes if name == node.id)
    return here >= 0 and any(block and node.id not in stored(block) for block in between)


def _looks_along(call: Call) -> bool:
    library, _, name = call.name.rpartition(".")
    told = len(call.args) > (library != "") or bool(call.kwargs)
    return name in ALONG and library.partition(".")[0] in ("", "torch", "numpy") and told


def _gives_rows(forward: Forward) -> bool:
    """Whether a model puts the steps of all samples one below the other."""
    info = method_of(forward.model, "forward")
    nodes = ast.walk(info.node) if info is not None else ()
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    return bool(returned) and all(
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("view", "reshape")
        and len(value.args) == 2
        and ast.unparse(value.args[0]) == "-1"
        for value in returned
    )


# What only gives another type, place or shape to what is there already.
CONVERTS: Final = frozenset(
    """from_numpy tensor as_tensor Tensor FloatTensor LongTensor DoubleTensor Variable array asarray
    cuda to cpu float double long int view reshape unsqueeze squeeze astype type detach clone
    requires_grad_ zero_grad train""".split()
)


def said_axes(
    m: Machine,
    training: TrainingLoop,
    split: CutBody,
    names: Sequence[str],
    forwards: Sequence[Forward],
    known: set[int | None],
) -> set[int | None]:
    """The axes that are ``known``, those of layers, and those along which order is drawn.

    Where none of them says it, a model that works row by row may be given some rows.
    """
    tree = m.tree(training.batch.site.path)
    said = known | axes_of(tree, forwards, names)
    if is_any_drawn(m, tree, split, names):
        said.add(0)
    if said - {None}:
        return said
    if not _is_made_anew(split):
        return said  # all data in each pass: nobody has divided it into batches
    loss = loss_values(m, training, split.rest)
    return {0} if loss is not None and by_rows(tree, forwards, loss) else said


def _is_made_anew(split: CutBody) -> bool:
    """Whether a pass makes a batch of its own: by its number, or by what a function gives.

    ``inputs = torch.from_numpy(rows)`` is the same in each.
    """
    nodes = [node for statement in split.made_by for node in ast.walk(statement)]
    calls = (ast.unparse(n.func).rpartition(".")[2] for n in nodes if isinstance(n, ast.Call))
    numbered = any(isinstance(n, ast.Name) and n.id in split.targets for n in nodes)
    return numbered or any(name not in CONVERTS for name in calls)


def the_axis(names: tuple[str, ...], said: set[int | None], objects: bool) -> int | str:
    """The one axis that is said, or why none is."""
    known = sorted(one for one in said if one is not None)
    if len(known) > 1:
        return "along which axis samples lie is said in different ways"
    if not known:
        every = " and ".join(f"`{name}`" for name in names)
        usual = "--batch-dim 1, where torchtext's fields are not `batch_first`"
        hint = usual if objects else "--batch-dim 0 says the first"
        return f"nothing says along which axis {every} hold samples ({hint})"
    return known[0]
