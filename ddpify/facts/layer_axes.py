"""Along which axis a model's layers take its samples.

A convolution, a batch norm and a flattening take them along the first axis, a recurrent layer and
a transformer along the one that ``batch_first`` says. Where everything a model does is done row by
row, it does not matter what lies along the first axis: what is made of some rows is the same
without the others.

Where the samples of a layer's input, which lie along another axis than the first, are behind it.

out, state = self.lstm(self.embed(steps))    # (time, samples, features): the second of each
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from ddpify.facts.bodies import Block, stored
from ddpify.facts.details import call_that_made
from ddpify.facts.events import Forward
from ddpify.facts.fresh import VARIABLE, method_of, qualified
from ddpify.facts.output_rows import PLAIN, all_rows
from ddpify.facts.places import KEEPS, TURNS
from ddpify.facts.recurrent import ATTENDS, POINTWISE, RECURRENT, attention_axis, axis_of
from ddpify.facts.scopes import FunctionInfo
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, UNKNOWN_AXIS, Kind, Thing, Value, one
from ddpify.source import Site

# They take tensors of samples alone, and raise where they are given parts of one.
_FIRST = frozenset(
    f"torch.nn.{name}"
    for name in """Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d BatchNorm1d
    BatchNorm2d BatchNorm3d GroupNorm""".split()
)
_FLATTEN, _SEQUENTIAL = "torch.nn.Flatten", "torch.nn.Sequential"
_PLAIN = (*POINTWISE, *(f"torch.nn.{n}" for n in "ReLU LeakyReLU Tanh Sigmoid GELU ELU".split()))
_PACKS = "torch.nn.utils.rnn.pack_padded_sequence"
_SHAPES = frozenset("size repeat expand to type_as".split())
DEPTH = 4
Axes = tuple[int, ...]
WHOLE: Axes = tuple(range(8))


def axes_of(tree: Tree, forwards: Sequence[Forward], names: Collection[str]) -> set[int]:
    """The axes of samples in these tensors, by the layers that they go into."""
    found: set[int] = set()
    for forward in forwards:
        call = tree.expression(forward.call.site)
        given = call.args if isinstance(call, ast.Call) else []
        whole = {i for i, one in enumerate(given) if _is_whole(_unsliced(one), names)}
        axes = taken(forward.model, whole, DEPTH)
        found |= {a for a in axes if not any(_cuts(given[i], a) for i in whole)}
    return found


def _unsliced(node: ast.expr) -> ast.expr:
    """``x`` of ``x[:, :-1]``, which has the same axes."""
    slices = node.slice if isinstance(node, ast.Subscript) else None
    parts = slices.elts if isinstance(slices, ast.Tuple) else [slices]
    several = isinstance(node, ast.Subscript) and all(isinstance(p, ast.Slice) for p in parts)
    return node.value if several and isinstance(node, ast.Subscript) else node


def _cuts(node: ast.expr, axis: int) -> bool:
    """Whether a slice leaves out something along an axis."""
    if _unsliced(node) is node or not isinstance(node, ast.Subscript):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    own = parts[axis] if axis < len(parts) else ast.Slice()
    return isinstance(own, ast.Slice) and bool(own.lower or own.upper or own.step)


def by_rows(tree: Tree, forwards: Sequence[Forward], loss: Iterable[ast.expr]) -> bool:
    """Whether models, and what makes the ``loss`` of it, leave rows along the first axis apart."""
    for forward in forwards:
        call = tree.expression(forward.call.site)
        given = call.args if isinstance(call, ast.Call) and not call.keywords else []
        starred = any(isinstance(one, ast.Starred) for one in given)
        if starred or not given or not all_rows(forward.model, len(given)):
            return False
    return not any(_looks_along(node) for each in loss for node in ast.walk(each))


def _looks_along(node: ast.AST) -> bool:
    """``x[1:]``, ``x[-1]``, ``x.t()``: rows along the first axis are told apart, or turned."""
    if isinstance(node, ast.Attribute):
        return node.attr in TURNS
    if not isinstance(node, ast.Subscript):
        return False
    index = node.slice
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    if isinstance(first, ast.Slice):
        return bool(first.lower or first.upper or first.step)
    return not (isinstance(first, ast.Constant) and isinstance(first.value, str))


def _is_whole(node: ast.expr, names: Collection[str]) -> bool:
    """A tensor of the batch, moved or cast."""
    while isinstance(node, ast.Call):
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if ast.unparse(node.func).endswith(VARIABLE.rpartition(".")[2]) and node.args:
            node = node.args[0]
        elif method in KEEPS and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return False
    return ast.unparse(node) in names


def taken(model: Thing, given: Collection[int], depth: int) -> set[int]:
    """The axes along which a model takes the samples of the arguments at these places."""
    if len(model.stands_for) == 1:
        model = model.unwrapped
    info = method_of(model, "forward")
    if not given or not depth:
        return set()
    if info is None:
        return _of_layer(model, depth)
    if isinstance(info.node, ast.Lambda):
        return set()
    names = [each.arg for each in (*info.node.args.posonlyargs, *info.node.args.args)]
    alike = {names[i + 1]: WHOLE for i in given if i + 1 < len(names)}
    reader = _Forward(model, info, names[0] if names else "", alike, depth)
    reader.read(info.node.body)
    return reader.found


def left_by(model: Thing, depth: int = DEPTH) -> Axes | None:
    """Which axes of its one input the first ones of what a project's module gives are."""
    info = method_of(model, "forward")
    if info is None or isinstance(info.node, ast.Lambda) or not depth:
        return None
    names = [each.arg for each in (*info.node.args.posonlyargs, *info.node.args.args)]
    returned = [n for n in ast.walk(info.node) if isinstance(n, ast.Return)]
    last = info.node.body[-1]
    if len(names) < 2 or returned != [last] or not isinstance(last, ast.Return):
        return None
    reader = _Forward(model, info, names[0], {names[1]: WHOLE}, depth)
    reader.read(info.node.body[:-1])
    return reader.state(last.value) if last.value is not None else None


def _of_layer(layer: Thing, depth: int) -> set[int]:
    if layer.name in _FIRST:
        return {0}
    made = call_that_made(layer)
    if layer.name == _FLATTEN:
        return {0} if made is not None and not made.args and not made.kwargs else set()
    if layer.name in RECURRENT:
        axis = axis_of(layer)
        return set() if axis is None else {axis}
    if layer.name in ATTENDS:
        axis = attention_axis(layer)
        return set() if axis is None else {axis}
    if layer.name != _SEQUENTIAL or made is None or made.star:
        return set()
    for part in made.args:
        if not part.things or any(one.name not in _PLAIN for one in part.things):
            axes = [taken(one, {0}, depth - 1) for one in part.things]
            return axes[0] if len(axes) == 1 else set()
    return set()


@dataclass
class _Forward:
    """A ``forward``, statement by statement, as far as it is known where its input's axes are.

    ``alike`` are names of tensors made of the input, each with the axes of it that its own are.
    """

    model: Thing
    info: FunctionInfo
    owner: str
    alike: dict[str, Axes]
    depth: int
    found: set[int] = field(default_factory=set)

    def read(self, body: Block) -> None:
        """Look at what statements give such tensors to, until one may bind them anew."""
        for statement in body:
            bound = stored([statement])
            if not isinstance(statement, (ast.Assign, ast.Return, ast.Expr)):
                if bound & self.alike.keys():
                    return
                continue
            for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
                self._meet(call)
            value = statement.value
            kept = self.state(value) if value is not None else None
            self.alike = {name: k for name, k in self.alike.items() if name not in bound}
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if isinstance(target, ast.Name) and kept is not None:
                self.alike[target.id] = kept
            if isinstance(statement, ast.Return):
                return

    def _meet(self, call: ast.Call) -> None:
        """Note along which axis a call takes its tensor's samples."""
        kept = self.state(call.args[0]) if call.args else None
        whole = [i for i, one in enumerate(call.args) if self.state(one) == WHOLE]
        axes: set[int] = set()
        if _flattens(call) and self.state(_subject(call)) is not None:
            axes = {0}
        elif kept is not None and qualified(self.info, call.func) == _PACKS:
            named = [k.value for k in call.keywords if k.arg == "batch_first"]
            said = [n.value for n in (*call.args[2:3], *named) if isinstance(n, ast.Constant)]
            axes = {0 if said[0] else 1} if said else (set() if call.args[2:] or named else {1})
        elif kept is not None:
            of_each = [taken(one, whole or {0}, self.depth - 1) for one in self._layers(call)]
            axes = of_each[0] if of_each and all(one == of_each[0] for one in of_each) else set()
        self.found |= self._of_state(call)
        kept = WHOLE if kept is None else kept
        self.found |= {kept[axis] for axis in axes if axis < len(kept)}

    def _of_state(self, call: ast.Call) -> set[int]:
        """``self.rnn(x, hidden)``, ``self.rnn(x, (hidden, cell))``: layers first, then samples."""
        recurrent = any(one.name in RECURRENT for one in self._layers(call))
        given = call.args[1] if recurrent and len(call.args) > 1 else None
        parts = given.elts if isinstance(given, ast.Tuple) else [given] if given else []
        axes = [self.state(one) for one in parts]
        return {one[1] for one in axes if one is not None and len(one) > 1}

    def state(self, node: ast.expr) -> Axes | None:
        """Which axes of the input the first ones of a tensor are; None where it is open."""
        match node:
            case ast.Name(id=name):
                return self.alike.get(name)
            case ast.Subscript(value=owner, slice=ast.Tuple(elts=[ast.Slice() as first, *_])):
                whole = not (first.lower or first.upper or first.step)
                kept = self.state(owner)
                return kept[:1] if whole and kept is not None else None
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=given):
                if layers := self._layers(node):
                    return self._behind(layers, given)
                library = qualified(self.info, node.func).startswith("torch.") and bool(given)
                inner = self.state(given[0] if library else owner)
                if inner is None or name in PLAIN | KEEPS:
                    return inner
                rest = given[1:] if library else given
                return _moved(inner, name, rest)
            case ast.BinOp(left=left, right=right) if not isinstance(node.op, ast.MatMult):
                rows, other = (left, right) if self.state(left) else (right, left)
                return self.state(rows) if self._is_table(other) else None
        return None

    def _behind(self, layers: Sequence[Thing], given: Sequence[ast.expr]) -> Axes | None:
        """Which axes are those of what layers give of a tensor."""
        kept = self.state(given[0]) if len(given) == 1 else None
        if kept is None or all(one.name in _PLAIN for one in layers):
            return kept
        left = {left_by(one, self.depth - 1) for one in layers}
        axes = left.pop() if len(left) == 1 else None
        return None if axes is None else tuple(kept[n] for n in axes if n < len(kept)) or None

    def _is_table(self, node: ast.expr) -> bool:
        """``self.pe[:x.size(0)]``, a number: nothing of the input but how long it is."""
        sized = {
            id(n.value)
            for n in ast.walk(node)
            if isinstance(n, ast.Attribute) and n.attr in ("size", "shape")
        }
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in sized]
        calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
        own = all(isinstance(one, ast.Attribute) and one.attr in _SHAPES for one in calls)
        return own and all(one.id == self.owner for one in names)

    def _layers(self, call: ast.Call) -> tuple[Thing, ...]:
        match call.func:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == self.owner:
                return self.model.attrs.get(attr, NOTHING).things
        return ()


def _moved(axes: Axes, name: str, given: Sequence[ast.expr]) -> Axes | None:
    """``x.permute(1, 0, 2)``, ``x.transpose(0, 1)``, ``x.unsqueeze(1)``."""
    values = [one.value for one in given if isinstance(one, ast.Constant)]
    numbers = [value for value in values if isinstance(value, int)]
    if not numbers or len(numbers) < len(given):
        return None
    if name == "permute":
        return _known([axes[n] if 0 <= n < len(axes) else None for n in numbers])
    if name == "transpose" and len(numbers) == 2 and min(numbers) >= 0:
        places: list[int | None] = [*axes, *[None] * (1 + max(numbers))]
        first, second = numbers
        places[first], places[second] = places[second], places[first]
        return _known(places)
    return axes[:1] if name in ("unsqueeze", "squeeze") and min(numbers) > 0 else None


def _known(axes: Iterable[int | None]) -> Axes | None:
    """The axes up to the first that is not known."""
    return (
        tuple(one for one in takewhile(lambda one: one is not None, axes) if one is not None)
        or None
    )


def _flattens(call: ast.Call) -> bool:
    """``x.view(x.size(0), -1)``, ``torch.flatten(x, 1)``: along the first axis all stays."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    subject = ast.unparse(_subject(call))
    given = [ast.unparse(one) for one in call.args if one is not _subject(call)]
    lengths = (f"{subject}.size(0)", f"{subject}.shape[0]", f"{subject}.size()[0]")
    if name in ("view", "reshape"):
        return len(given) == 2 and given[0] in lengths and given[1] == "-1"
    return name == "flatten" and given == ["1"]


def _subject(call: ast.Call) -> ast.expr:
    """What a function or method of a tensor is given first."""
    func = call.func
    if isinstance(func, ast.Attribute) and not (
        call.args and func.attr == "flatten" and call.args[1:]
    ):
        return func.value
    return call.args[0] if call.args else func


# What computes each row along the last axis for itself.
OF_ROWS = frozenset(POINTWISE) | frozenset(
    f"torch.nn.{name}"
    for name in "ReLU LeakyReLU Tanh Sigmoid GELU ELU SiLU Softplus Identity".split()
)
STATES = 1  # a state has its layers first


def axis_behind(layer: Thing, given: list[Value]) -> int:
    """The axis of samples of what a layer makes of these; UNKNOWN_AXIS where it is not known."""
    if layer.name in ATTENDS or layer.name in RECURRENT:
        own = attention_axis(layer) if layer.name in ATTENDS else axis_of(layer)
        return own if own is not None and given and given[0].axis == own else UNKNOWN_AXIS
    axes = {value.axis for value in given}
    if axes <= {0}:
        return 0
    if layer.name in OF_ROWS and len(given) == 1:
        return given[0].axis
    left = left_by(layer) if len(given) == 1 and layer.kind is Kind.MODEL else None
    return left.index(given[0].axis) if left and given[0].axis in left else UNKNOWN_AXIS


def with_states(layer: Thing, whole: Value, site: Site) -> Value:
    """What a recurrent layer gives, with its states; ``whole`` of any other."""
    if layer.name not in RECURRENT:
        return whole
    state = replace(whole, axis=STATES)
    if layer.name.endswith("LSTM"):
        state = replace(one(Thing(Kind.TUPLE, site, items=(state, state))), deps=whole.deps)
    return whole.but(things=(Thing(Kind.TUPLE, site, items=(whole, state)),), rows=False)
