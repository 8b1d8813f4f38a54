"""Whether what a model returns is one tensor, or a list that is as long in each call.

Who loops over a tensor loops over its samples: a sum of what is made of each is one over the batch.
Who loops over a list of outputs does not, and what may be either is known to be neither. ::

    def forward(self, x):
        outs = list()
        for scale in self.scales:  # as many on each rank
            outs.append(scale(x))
        return outs
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from ddpify.facts.callees import Callee, Callees
from ddpify.facts.details import call_that_made
from ddpify.facts.fresh import method_of, qualified
from ddpify.facts.grown import Filling, MethodText, lengths
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.tree import names_in
from ddpify.facts.values import Thing

LISTS = frozenset({"list", "tuple", "reversed"})
UNSURE_LISTS = frozenset({"map", "zip", "filter", "sorted"})
CUTS = frozenset({"chunk", "split", "unbind", "tensor_split"})
_CLASSIFIERS = re.compile(r"torchvision\.models\.\w+$")
COUNTS = frozenset({"range", "len", "enumerate", "zip", "reversed"})
DEPTH = 6
T = TypeVar("T")


@dataclass(frozen=True)
class OutputShape:
    """A tensor, or a list of such ``entries``; not ``sure``: one or the other, or of samples."""

    entries: tuple[OutputShape, ...] | None = None
    written: bool = False  # each entry stands in the text
    sure: bool = True

    @property
    def entry(self) -> OutputShape:
        """What any entry of a list may be."""
        return joined(self.entries or ())


TENSOR = OutputShape()
UNSURE = OutputShape(sure=False)


def joined(shapes: Iterable[OutputShape]) -> OutputShape:
    """What may be any of these."""
    found = set(shapes)
    if len(found) < 2:
        return found.pop() if found else TENSOR
    lists = [one.entries for one in found if one.entries is not None]
    if len(lists) < len(found):
        return UNSURE
    return OutputShape(tuple({entry for entries in lists for entry in entries}))


def returned(model: Thing, trains: bool, tuples: bool) -> OutputShape:
    """What the ``forward`` of a model gives here; a list in ``tuples``, too, if all of it are."""
    found = _of_model(model)
    if found is None:
        return TENSOR
    text = found.text
    others = [value for value in text.returned if value not in text.training]
    chosen = text.training if trains and text.training else others or text.returned
    shapes = [found.shape(value) for value in chosen if value is not None]
    several = any(isinstance(found.bound(value), ast.Tuple) for value in chosen)
    if several and not (tuples and all(one.entries is not None for one in shapes)):
        return TENSOR
    return joined(shapes)


def of_parts(model: Thing, returned: Iterable[Sequence[ast.expr]]) -> list[OutputShape]:
    """The shapes of the parts of what is returned, which has as many in each place."""
    found = _of_model(model)
    if found is None:
        return []
    return [joined(map(found.shape, parts)) for parts in zip(*returned, strict=True)]


def is_unread(model: Thing) -> bool:
    """Whether a library's model may give one tensor or a list: ``features_only=True``."""
    last = _last(model)
    known = last.name.startswith("torch.nn.") or _CLASSIFIERS.match(last.name) is not None
    return not (known or isinstance(last.ref, ClassInfo))


def _last(model: Thing) -> Thing:
    """The model in a wrapper, of a ``Sequential`` its last part, which gives what it does."""
    inner = model.unwrapped
    made = call_that_made(inner) if inner.name == "torch.nn.Sequential" else None
    parts = made.args[-1].things if made is not None and made.args and not made.star else ()
    return _last(parts[0]) if len(parts) == 1 and parts[0] is not inner else inner


def _of_model(model: Thing) -> _Shapes | None:
    inner = _last(model)
    info = method_of(inner, "forward")
    owner = inner.ref if isinstance(inner.ref, ClassInfo) else None
    target = Callee(info, owner, inner) if info is not None and owner is not None else None
    return _Shapes(target, {}, DEPTH, top=True) if target is not None else None


@dataclass(frozen=True)
class _SaidOfName:
    """What was said of a name, ``inside_of`` questions for others, and all that it ``came_to``."""

    said: object
    inside_of: frozenset[str]
    came_to: frozenset[str]

    def holds(self, asked: set[str]) -> bool:
        """Whether the same is said inside of these questions."""
        return self.inside_of <= asked and self.came_to.isdisjoint(asked)


@dataclass
class _Shapes:
    """One function of a model's class, and the shapes that it is given."""

    target: Callee
    given: Mapping[str, OutputShape]
    depth: int
    top: bool = False  # the forward that the program calls
    asked: set[str] = field(default_factory=set)  # names that the question at hand is inside of
    known: dict[object, OutputShape] = field(default_factory=dict)  # what calls give, of all
    answers: dict[tuple[str, str], list[_SaidOfName]] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)  # names that the question at hand came to
    text: MethodText = field(init=False)
    callees: Callees = field(init=False)
    parameters: set[str] = field(init=False)

    def __post_init__(self) -> None:
        info = self.target.info
        self.text = info.module.source.once(MethodText, info.node)
        self.callees = Callees(self.target, self.text)
        arguments = info.node.args
        self.parameters = {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)} - {"self"}

    def shape(self, node: ast.expr) -> OutputShape:
        """What an expression is, where the text says so; else it counts as a tensor."""
        match node:
            case ast.Name(id=name):
                return self._name(name)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return self._display(parts)
            case ast.ListComp() | ast.GeneratorExp():
                return self._listed((Filling(node.elt, False, tuple(node.generators)),))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                sides = [self.shape(left), self.shape(right)]
                return joined(sides) if any(one != TENSOR for one in sides) else TENSOR
            case ast.IfExp(body=body, orelse=orelse):
                return joined((self.shape(body), self.shape(orelse)))
            case ast.Subscript(value=value, slice=index):
                return self._entry(self.shape(value), index)
            case ast.Call() if self.depth:
                return self._call(node)
        return TENSOR

    def bound(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for that is bound once."""
        values = self.text.bound.get(node.id, []) if isinstance(node, ast.Name) else []
        return values[0] if len(values) == 1 else node

    def _name(self, name: str) -> OutputShape:
        if name in self.given:
            return self.given[name]
        return self._ask(self._made, name, of_itself=TENSOR)

    def _ask(self, question: Callable[[str], T], name: str, of_itself: T) -> T:
        """What is said of a name; inside of the same question that is ``of_itself``.

        One is asked again only where that may say something else: each name of a network is made
        of several before it, so there are as many ways back as would not end.
        """
        if name in self.asked:
            self.met.add(name)
            return of_itself
        known = self.answers.setdefault((question.__name__, name), [])
        found = next((one for one in known if one.holds(self.asked)), None)
        if found is None:
            outside, self.met = self.met, {name}
            self.asked.add(name)
            said = question(name)
            self.asked.discard(name)
            found = _SaidOfName(
                said, frozenset(self.met & self.asked), frozenset(self.met - self.asked)
            )
            known.append(found)
            self.met = outside
        self.met |= found.inside_of | found.came_to
        return cast(T, found.said)

    def _made(self, name: str) -> OutputShape:
        """What a name is bound to, in all places, and what is put into it."""
        shapes = [self.shape(value) for value in self.text.bound.get(name, ())]
        shapes += [self.shape(over).entry for over in self.text.turns.get(name, ())]
        grown = self._listed(self.text.grown.get(name, ())) if shapes else TENSOR
        if TENSOR in shapes or not shapes:  # `outs = torch.cat(outs)`
            return TENSOR
        made = joined(shapes)
        if name not in self.text.grown or not made.sure:
            return made
        return grown if grown.entries is None else joined((made, grown))

    def _display(self, parts: list[ast.expr]) -> OutputShape:
        if any(isinstance(part, ast.Starred) for part in parts):
            each = (
                Filling(p.value, True, ()) if isinstance(p, ast.Starred) else Filling(p, False, ())
                for p in parts
            )
            return self._listed(tuple(each))
        return OutputShape(tuple(map(self._part, parts)), written=True)

    def _listed(self, growths: Iterable[Filling]) -> OutputShape:
        """A list that is given all these; with an entry for each sample it is as a tensor."""
        entries: list[OutputShape] = []
        for one in growths:
            often = [self._often(block) for block in one.around]
            if None in often:
                return TENSOR
            shape = self.shape(one.entry) if one.extends else self._part(one.entry)
            if not all(often) or (one.extends and shape.entries is None):
                return UNSURE
            entries += (shape.entries or ()) if one.extends else (shape,)
        return OutputShape(tuple(dict.fromkeys(entries)))

    def _part(self, node: ast.expr) -> OutputShape:
        """What is put into a list: what is made by what is not read may be another one."""
        found = self.shape(node)
        return UNSURE if found == TENSOR and self.callees.unread(node) else found

    def _entry(self, of: OutputShape, index: ast.expr) -> OutputShape:
        if of.entries is None or isinstance(index, ast.Slice):
            return OutputShape(of.entries, sure=of.sure)
        place = index.operand if isinstance(index, ast.UnaryOp) else index
        number = place.value if isinstance(place, ast.Constant) else None
        if of.written and isinstance(number, int):
            number = -number if place is not index else number
            return of.entries[number] if -len(of.entries) <= number < len(of.entries) else UNSURE
        return of.entry

    # -- how often ---------------------------------------------------------------------------

    def _often(self, block: ast.AST) -> bool | None:
        """Whether a block is entered as often in each call; None: once for each sample."""
        if isinstance(block, (ast.If, ast.While)):
            return self._is_own(block.test)
        assert isinstance(block, ast.For | ast.comprehension)
        if any(not self._is_own(test) for test in getattr(block, "ifs", ())):
            return False
        if any(map(self._as_long, lengths(block.iter))):
            return True
        return None if self.top and self._of_samples(block.iter) else False

    def _as_long(self, over: ast.expr) -> bool:
        """Whether a loop over this has as many passes in each call."""
        if isinstance(over, ast.Call) and ast.unparse(over.func) == "range":
            return all(map(self._is_number, over.args))
        return self._is_own(over) or self.shape(over).entries is not None

    def _is_number(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BinOp):
            return self._is_number(node.left) and self._is_number(node.right)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "len":
            return all(map(self._as_long, node.args))
        return self._is_own(node)

    def _is_own(self, node: ast.expr) -> bool:
        """Whether what the model is made of says what this is, and not what it is given."""
        names = names_in(node)
        return all(map(self._is_own_name, names))

    def _is_own_name(self, name: str) -> bool:
        return name == "self" or self._ask(self._owned, name, of_itself=True)

    def _owned(self, name: str) -> bool:
        text = self.text
        local = name in self.parameters or name in text.bound or name in text.turns
        if not local and name not in text.counted:
            return name in self.target.info.module.globals or hasattr(builtins, name)
        values = (*text.bound.get(name, ()), *text.turns.get(name, ()))
        own = name not in self.parameters and all(map(self._is_own, values))
        return own and all(map(self._as_long, text.counted.get(name, ())))

    def _of_samples(self, over: ast.expr, depth: int = 3) -> bool:
        """Whether a loop goes through what the model is given, or counts its samples."""
        match over:
            case ast.Name(id=name):
                bound = self.text.bound.get(name, ()) if depth else ()
                given = name in self.parameters
                return given or any(self._of_samples(value, depth - 1) for value in bound)
            case ast.Call(func=ast.Name(id=name), args=args) if name in COUNTS:
                return any(self._of_samples(arg, depth) for arg in args)
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Attribute(attr=name):
                return name in ("size", "shape")
            case ast.Subscript(value=value):
                return self._of_samples(value, depth)
        return False

    # -- what is called ----------------------------------------------------------------------

    def _call(self, node: ast.Call) -> OutputShape:
        name = ast.unparse(node.func).rpartition(".")[2]
        if isinstance(node.func, ast.Name) and name in LISTS:
            return self.shape(node.args[0]) if node.args else OutputShape((), written=True)
        if isinstance(node.func, ast.Name) and name in UNSURE_LISTS:
            return UNSURE
        if name in CUTS:
            return OutputShape((TENSOR,)) if self._along_another(node) else UNSURE
        targets = self.callees.of(node.func)
        return joined(self._of(target, node) for target in targets) if targets else TENSOR

    def _along_another(self, node: ast.Call) -> bool:
        """Whether a tensor is cut along another axis than that of the samples."""
        function = qualified(self.target.info, node.func).startswith("torch.")
        last = (0 if ast.unparse(node.func).endswith("unbind") else 1) + function
        given = [*node.args[last:], *(k.value for k in node.keywords if k.arg == "dim")]
        axis = given[0] if given else None
        return axis is not None and not (isinstance(axis, ast.Constant) and axis.value == 0)

    def _of(self, target: Callee, at: ast.Call) -> OutputShape:
        arguments = target.info.node.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        names = names[1:] if target.owner is not None else names
        given = {name: self.shape(arg) for name, arg in zip(names, at.args, strict=False)}
        key = (target, tuple(given.items()), self.depth)
        if key not in self.known:
            inner = _Shapes(target, given, self.depth - 1, known=self.known)
            shapes = [inner.shape(value) for value in inner.text.returned if value is not None]
            self.known[key] = joined(shapes)
        return self.known[key]
