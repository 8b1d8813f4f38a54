"""Which values have one row per sample of a batch, in the order of the samples.

Ranks' lists of such values can be put together again as one process had them. What is not listed
here loses the property: a wrong "has rows" would mix up samples without a word.
"""

from __future__ import annotations

import ast

from ddpify.facts.details import FirstEntry, NumbersRows, UnreadOutput, call_that_made
from ddpify.facts.events import Call
from ddpify.facts.values import Kind, Measure, Thing, Value

# They leave the first axis alone; those that go along an axis are asked which one.
ENTRYWISE = frozenset(
    """to cuda cpu float double half long int bool type detach detach_ clone contiguous data
    sigmoid tanh relu exp log sqrt abs clamp clamp_ neg round floor numpy tolist bfloat16 byte
    short copy astype square pin_memory logical_not from_numpy as_tensor asarray array Variable
    type_as one_hot zeros_like ones_like full_like rand_like randn_like empty_like
    dropout""".split()
)
ALONG = frozenset(
    "argmax argmin max min topk sort softmax log_softmax sum mean flatten squeeze unsqueeze"
    " normalize".split()
)
WITH_OTHER = frozenset("eq ne lt gt le ge add sub mul div pow logical_and logical_or".split())
RESHAPES = frozenset({"view", "reshape"})
CUTS = frozenset({"split", "chunk"})
# Where draws and new tensors are given their lengths; the others begin with them.
LENGTHS = {"normal": 2, "uniform": 2, "randint": 2}
MADE = frozenset("randn rand random zeros ones full empty".split()) | LENGTHS.keys()
FROM_LISTS = frozenset("Tensor FloatTensor DoubleTensor LongTensor tensor as_tensor array".split())
LIST_LIKE = frozenset({"builtins.list", "builtins.tuple", "builtins.reversed"})
OUTPUTS = "outputs"  # a list of what a model returns, as long in each call
SEVERAL = "outputs?"  # one tensor, or such a list


def has_rows(value: Value) -> bool:
    """Whether a value is a batch, or has one row for each of its samples."""
    whole = bool(value.things) and all(t.kind is Kind.BATCH for t in value.things)
    return value.rows or whole


def operands(result: Value, *given: Value) -> Value:
    """The result of an operation entry by entry; twice as many are not as many."""
    if result.measure is Measure.COUNT:
        return result.but(rows=False)
    fit = all(has_rows(v) or v.measure is Measure.UNIFORM for v in given)
    return result.but(rows=fit and any(has_rows(v) for v in given))


def method(receiver: Value, name: str, call: Call, result: Value) -> Value:
    """The result of ``receiver.name(...)``."""
    if name in RESHAPES and receiver.measure is Measure.SAMPLES and call.args:
        return result.but(rows=first_length(call.args[0]).rows)
    if receiver.blocks or name in CUTS:
        return _of_blocks(receiver, name, call, 0, result)
    if not has_rows(receiver):
        return result
    if name == "permute" and call.args and call.args[0].const == 0:
        return _with_rows(result)
    if name in WITH_OTHER:
        return operands(result, receiver, *call.args)
    return _with_rows(result) if _keeps(name, call, 0) else result


def function(name: str, tail: str, call: Call, result: Value) -> Value:
    """The result of a function of torch or numpy."""
    given = call.args[:1]
    if stacks(tail, call) or made(tail, call):
        return _with_rows(result)
    if tail in ("stack", "cat", "concatenate"):
        if result.rows:
            return result
        entries = [v for t in call.args[0].things for v in t.items or ()]
        fit = bool(entries) and all(has_rows(v) for v in entries)
        end_to_end = fit and tail != "stack" and along_batch(call)
        blocks = len(entries) if end_to_end else 0
        return result.but(rows=fit and _along_another(call, 1), blocks=blocks)
    listed = bool(given) and bool(given[0].of(Kind.TUPLE, Kind.ITERATOR))
    if given and not listed and (given[0].blocks or tail in CUTS):
        return _of_blocks(given[0], tail, call, 1, result)
    if not given or not has_rows(given[0]):
        return result
    of_array = tail in FROM_LISTS and given[0].measure is Measure.SAMPLES
    return _with_rows(result) if of_array or _keeps(tail, call, 1) else result


def made(tail: str, call: Call) -> bool:
    """``np.random.normal(0, 1, (len(x), 100))``, ``torch.zeros(x.size(0), 1)``."""
    lengths = call.arg(LENGTHS.get(tail, 0), "size") if tail in MADE | FROM_LISTS else None
    first = first_length(lengths) if lengths is not None else None
    return first is not None and first.measure is Measure.COUNT and first.rows


def first_length(lengths: Value) -> Value:
    """The first of the lengths that a tensor is given."""
    if not lengths.things:
        return lengths
    items, first = lengths.things[0].items, lengths.things[0].detail(FirstEntry)
    return items[0] if items else first.value if first is not None else lengths


def stacks(tail: str, call: Call) -> bool:
    """``torch.stack(parts)``, ``torch.LongTensor(parts)`` of a list with one entry per sample."""
    listed = (
        bool(call.args) and call.args[0].rows and bool(call.args[0].of(Kind.ITERATOR, Kind.TUPLE))
    )
    return listed and (tail in FROM_LISTS or (tail == "stack" and along_batch(call)))


def along_batch(call: Call) -> bool:
    """Whether tensors are put together along the first axis."""
    axis = call.arg(1, "axis" if "axis" in call.kwargs else "dim")
    return axis is None or (axis.known and axis.const == 0)


def collated(call: Call) -> bool:
    """``torch.cat(images, 1)`` of a list that torch has collated: each entry has all samples."""
    given = call.args[0]
    of_batch = not given.things and {dep.kind for dep in given.deps} == {Kind.BATCH}
    return of_batch and by_torch(given) and _along_another(call, 1)


def by_torch(value: Value) -> bool:
    """Whether torch has collated the samples: all are of one shape, none was padded for others."""
    loaders = [t for batch in value.deps for t in batch.stands_for]
    made = [call_that_made(loader) for loader in loaders]
    return bool(loaders) and all(c and not c.star and _is_collated(c) for c in made)


def _is_collated(loader: Call) -> bool:
    """``batch_size=None`` hands on what the data set gives, whatever it is."""
    size = loader.arg(1, "batch_size")
    return loader.arg(6, "collate_fn") is None and (size is None or size.const is not None)


def _of_blocks(given: Value, name: str, call: Call, first: int, result: Value) -> Value:
    """What is done with batches that lie end to end: `chunk(2)` takes two of them apart."""
    if name in CUTS and given.measure is Measure.ENTRY:
        return result
    if name in CUTS and not _along_another(call, first + 1):
        size = call.arg(first, "chunks" if name == "chunk" else "split_size_or_sections")
        parts = _parts(size, given.blocks, name) if size is not None else 0
        part = Value((), result.deps, Measure.SAMPLES, rows=True)
        tuples = Thing(Kind.TUPLE, call.site, items=(part,) * parts)
        return result.but(things=(tuples,)) if parts else result
    along = name == "normalize" and _along_another(call, first + 1)
    return result.but(blocks=given.blocks) if name in ENTRYWISE or along else result


def _parts(size: Value, blocks: int, name: str) -> int:
    """Into how many batches a value is cut, each with as many rows as there are samples."""
    if name == "chunk":
        return blocks if size.known and size.const == blocks else 0
    items = size.things[0].items if size.things else None
    if items:
        return len(items) if all(item.rows for item in items) else 0
    return blocks if size.rows else 0


def _keeps(name: str, call: Call, first: int) -> bool:
    place = first + 1 if name == "normalize" else first
    return name in ENTRYWISE or (name in ALONG and _along_another(call, place))


def _along_another(call: Call, position: int) -> bool:
    """Whether the axis is given, and is not the first one."""
    names = [n for n in ("dim", "axis", "start_dim") if n in call.kwargs]
    axis = call.arg(position, names[0] if names else "dim")
    return axis is not None and isinstance(axis.const, int) and axis.const not in (0, False)


def _with_rows(result: Value) -> Value:
    """Values and indices of ``max(1)`` both have rows."""
    if result.measure is not Measure.SAMPLES:
        return result
    pairs = result.of(Kind.TUPLE)
    if not pairs:
        return result.but(rows=True)
    parts = tuple(v.but(rows=True) for v in pairs[0].items or ())
    return result.but(things=(Thing(Kind.TUPLE, pairs[0].born, items=parts),))


def subscript(base: Value, index: ast.expr, given: Value, result: Value) -> Value:
    """``x[:, 0]`` keeps the rows, ``x[i]`` is one of them where ``i`` counts them."""
    if not has_rows(base):
        return result
    if any(t.detail(NumbersRows) for t in given.of(Kind.INDEX)):
        return Value((), result.deps, Measure.ENTRY)
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    whole = isinstance(first, ast.Slice) and first.lower is None and first.upper is None
    return result.but(rows=whole and first.step is None) if isinstance(first, ast.Slice) else result


def may_be_list(value: Value) -> bool:
    """Whether a loop over this goes through samples, or outputs of a model that nobody reads."""
    outputs = value.dep(Kind.FORWARD) if value.dep(Kind.GRAPH) else ()
    return any(output.detail(UnreadOutput) is not None for output in outputs)


def per_sample(value: Value) -> bool:
    """Whether a loop over ``value`` has one pass for each sample of a batch."""
    if may_be_list(value) or any(thing.name in (OUTPUTS, SEVERAL) for thing in value.things):
        return False
    if value.rows:
        return True
    things = value.of(Kind.ITERATOR)
    return len(things) == len(value.things) == 1 and _iterates_rows(things[0])


def _iterates_rows(thing: Thing) -> bool:
    over = thing.over
    if thing.name == "builtins.enumerate":
        over = over[:1]
    elif thing.name != "builtins.zip" and thing.name not in LIST_LIKE - {"builtins.reversed"}:
        return False
    return bool(over) and all(per_sample(each) for each in over)
