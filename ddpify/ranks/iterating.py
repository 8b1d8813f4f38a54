"""What a loop binds: elements of lists, batches of loaders, numbers."""

from __future__ import annotations

import ast
import operator
from dataclasses import replace
from typing import Any

from ddpify.python.words import ITERATES
from ddpify.ranks import containers, picked, sizes, words
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import ALL, RANK0, RANK1, RankCall, RankLoop, RankThing, RankValue
from ddpify.ranks.origins import BATCHES, DATA, IDENTITY, RANDOM, Origin, Symbol
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import (
    NONE,
    Length,
    Many,
    constant,
    differs,
    holders,
    merge,
    spread,
    symbol,
    turn,
)

MAX_UNROLLED, MAX_WORDS = 6, 4
STREAMS = ("torch.utils.data.IterableDataset", "torch.utils.data.dataset.IterableDataset")


def unrolled(over: RankValue) -> tuple[RankValue, ...] | None:
    """The elements of a short list of objects or words: the loop's body is run for each."""
    if over.items is None or not 0 < len(over.items) <= MAX_UNROLLED:
        return words_in(over) or _numbered(over)
    return over.items if any(item.things for item in over.items) or words_in(over) else None


def stands_for_many(over: RankValue) -> bool:
    """Whether the one element of a list is each of those that a comprehension has made."""
    one = over.atoms[0]
    return (
        over.items is not None and len(over.items) == 1 and isinstance(one, Many) and bool(one.over)
    )


def _numbered(over: RankValue) -> tuple[RankValue, ...] | None:
    """The rounds of ``range(len(models))`` and ``enumerate(models)``."""
    made = over.made_by("builtins.range", "builtins.enumerate")
    call = made.call if made is not None else None
    if made is None or call is None or not call.args:
        return None
    pairs = made.name == "builtins.enumerate"
    length, start = call.args[0].atoms[0], 0
    listed = length.of if isinstance(length, Length) and len(call.args) == 1 else NONE
    if pairs:
        listed, start = call.args[0], (call.arg(1, "start") or constant(0)).constant
    if picked.rows_of(listed) is None or unrolled(listed) is None or not isinstance(start, int):
        return None
    rounds = [(constant(number), one) for number, one in enumerate(listed.items or (), start)]
    return tuple(containers.pair(*both) if pairs else both[0] for both in rounds)


def words_in(over: RankValue) -> tuple[RankValue, ...]:
    """The few elements of ``["train", "val"]``, each another; or a dict's names, or its entries."""
    found = containers.elements(over) or ()
    words = [(item.items or (item,))[0].constant for item in found]
    said = {word for word in words if isinstance(word, str)}
    return found if 1 < len(found) == len(said) <= MAX_WORDS else ()


def by_holders(item: RankValue) -> tuple[int, RankValue, RankValue | None]:
    """The round of a loop for an element: the ranks whose list has it, and what tells them."""
    ranks = holders(item)
    if ranks == ALL:
        return ALL, item, None
    test = RankValue((bool(ranks & RANK0), bool(ranks & RANK1)), origins=item.origins)
    there = item.atoms[0 if ranks & RANK0 else 1]
    return ranks, replace(item, atoms=(there, there)), test


def rounds_by_rank(over: RankValue) -> tuple[range, range] | None:
    """The few numbers that each rank runs through, of a ``range`` that both know and differ in."""
    made = over.made_by("builtins.range")
    if made is None or made.call is None or len(made.call.args) > 2:
        return None
    args = made.call.args
    if not all(arg.known for arg in args) or not any(differs(arg) for arg in args):
        return None
    numbers = []
    for rank in (0, 1):
        bounds = [arg.atoms[rank] for arg in args]
        if not all(isinstance(bound, int) for bound in bounds):
            return None
        numbers.append(range(*bounds))
    few = all(len(one) <= MAX_UNROLLED for one in numbers)
    return (numbers[0], numbers[1]) if few else None


def many(key: str, over: RankValue, chosen: bool) -> tuple[Many, Many]:
    """A list with an element for each of ``over``, whose number is known of ``range(n)``; not if
    only some of them are ``chosen``."""
    made = over.made_by("builtins.range") if not chosen else None
    given = made.call.args if made is not None and made.call is not None else ()
    one, other = (_difference([arg.atoms[rank] for arg in given]) for rank in (0, 1))
    return Many(key, (), one, over.atoms[0]), Many(key, (), other, over.atoms[1])


def _difference(bounds: list[Any]) -> Any:
    """How many numbers there are in ``range(*bounds)``."""
    start, end = [0, *bounds][-2:] if 0 < len(bounds) < 3 else (None, None)
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    try:
        return sizes.apply(operator.sub, end, start)
    except ValueError:  # none with some numbers of processes
        return None


_ENTRIES = frozenset({"items", "keys", "values"})  # of a dict: what they hold says not how many
_LISTS = frozenset(f"builtins.{one}" for one in "sorted list tuple reversed".split())
_TABLES = frozenset({"builtins.dict", "collections.OrderedDict", "builtins.vars"})


def own_length(m: RankMachine, over: RankValue) -> bool:
    """Whether the number of rounds is each rank's own: ``range`` of something local."""
    made = over.made_by("builtins.range", "builtins.list", "builtins.tuple")
    if made is None or made.call is None:
        return False
    return any(
        m.own(arg.origins) or (arg.known and differs(arg)) or _found_by_one(arg)
        for arg in _asked(made.name, made.call.args)
        if not any(t.call is not None and t.call.method in _ENTRIES for t in arg.things)
    )


def _asked(name: str, args: tuple[RankValue, ...]) -> tuple[RankValue, ...]:
    """What the number of rounds hangs on: ``range(rank, end, world_size)`` has as many on each rank
    if the end has, and divides as far as it is known."""
    if name != "builtins.range" or len(args) != 3 or args[0].atoms != (0, 1):
        return args
    end, step = args[1:]
    divides = not isinstance(end.constant, int) or end.constant % 2 == 0
    return (end,) if divides and sizes.is_world_size(step.constant) else args


def _found_by_one(value: RankValue) -> bool:
    """Whether a value is a constant on one rank, and on another what that one read or computed."""
    unknown = [isinstance(atom, Symbol) for atom in value.atoms]
    return value.by_rank and unknown[0] != unknown[1]


def element(m: RankMachine, f: RankFrame, over: RankValue, loop: RankLoop) -> RankValue:
    """What the loop's variable is bound to."""
    if over.items:
        return merge("element", (list(over.items), list(over.items)), frozenset())
    if over.keys:
        names = list(containers.names(over))
        return merge("name", (names, names), frozenset())
    made = next((t for t in over.things if t.kind == "result" and t.call is not None), None)
    if made is not None and made.call is not None:
        found = _of_builtin(m, f, made, loop) or _of_dict(made.call, over, loop)
        if found is not None:
            return found
    if made is None and over.things and over.things[0].kind == "instance":
        found = _of_instance(m, f, over, loop)
        if found is not None:
            return found
    _enter_stream(m, f, over, loop)
    item = symbol(f"element@{loop.site}", over)
    why = dealt(over, loop)
    if why is not None:
        item = _with_origin(item, Origin(DATA, why, loop.site))
    return item


def _of_builtin(m: RankMachine, f: RankFrame, made: RankThing, loop: RankLoop) -> RankValue | None:
    call = made.call
    assert call is not None
    if made.name == "builtins.enumerate" and call.args:
        number = turn(f"index@{loop.site}")
        item = element(m, f, call.args[0], loop)
        return RankValue(number.atoms, items=(number, item))
    if made.name == "builtins.zip" and call.args:
        return RankValue(
            symbol(f"zip@{loop.site}").atoms,
            items=tuple(element(m, f, arg, loop) for arg in call.args),
        )
    if made.name in ("builtins.range", "itertools.count"):
        origins = frozenset(o for arg in call.args for o in arg.origins)
        return replace(turn(f"element@{loop.site}"), origins=origins)
    passes = made.name == "builtins.iter" or made.name in ITERATES
    if (passes or _is_bar(made.name)) and call.args:
        return element(m, f, call.args[0], loop)
    return None


def _of_dict(call: RankCall, over: RankValue, loop: RankLoop) -> RankValue | None:
    """A name and what stands under it of a dict that a function makes of batches, and is not read:
    what is in it may be each rank's own, how it is made up is the same on all."""
    receiver = call.receiver
    if call.method != "items" or receiver is None or receiver.keys is not None:
        return None
    made = all(thing.kind == "result" and thing.call is not None for thing in receiver.things)
    if not made or not {origin.kind for origin in spread(over)} <= {DATA, RANDOM}:
        return None
    pair = symbol(f"element@{loop.site}", over)
    name = RankValue(symbol(f"name@{loop.site}").atoms)
    return replace(pair, items=(name, symbol(f"under@{loop.site}", over)))


def is_numbered(over: RankValue) -> bool:
    """Whether it gives pairs, the first of which ranks agree on: ``iter(enumerate(loader))``."""
    for thing in over.things:
        call = thing.call if thing.kind == "result" else None
        passes = thing.name == "builtins.iter" or thing.name in ITERATES or _is_bar(thing.name)
        if thing.name == "builtins.enumerate":
            return True
        if call is not None and passes and call.args:
            return is_numbered(call.args[0])
    return False


def _is_bar(name: str) -> bool:
    return name.startswith(("tqdm", "rich.progress", "fastprogress"))


def _of_instance(m: RankMachine, f: RankFrame, over: RankValue, loop: RankLoop) -> RankValue | None:
    """An object of the project with ``__iter__``: what that yields."""
    thing = over.things[0]
    if thing.cls is None or thing.cls.method("__iter__") is None:
        return None
    value = m.call_method(f, over, "__iter__", loop.node)
    if value is not None and thing in value.things:
        return m.call_method(f, over, "__next__", loop.node)
    if value is None:
        return None
    if value.items:
        return merge("element", (list(value.items), list(value.items)), frozenset())
    return symbol(f"element@{loop.site}", value)


def _enter_stream(m: RankMachine, f: RankFrame, over: RankValue, loop: RankLoop) -> None:
    """Read what a loader's stream of the project does before and while it yields; what it makes
    into batches is not followed."""
    loader = over.things[0].call if over.names() == {words.LOADER} else None
    stream = loader.arg(0, "dataset") if loader is not None else None
    if stream is not None and any(t.cls and t.cls.inherits(*STREAMS) for t in stream.things[:1]):
        m.call_method(f, stream, "__iter__", loop.node)


def _with_origin(value: RankValue, origin: Origin) -> RankValue:
    return RankValue(
        value.atoms,
        value.things,
        value.deps,
        value.origins | {origin},
        value.items,
        value.keys,
    )


def dealt(over: RankValue, loop: RankLoop) -> str | None:
    """Why the batches of a loop are this rank's own; None if they are not known to be.

    They are where the loader has a sampler that deals, or where the loop trains on something whose
    making is not seen: a distributed program that trains on the same batches everywhere is another
    rule's finding.
    """
    why = dealt_by_loader(over) if not _is_table(over) else None
    if why is not None or _loaders(over):
        return why
    if spread(over) or over.made_by("builtins.sorted") is not None or _is_table(over):
        return None  # what is sorted are numbers or names; a table is asked for loaders
    if loop.trains and any(t.kind in ("parameter", "attribute", "result") for t in over.sources()):
        return BATCHES if isinstance(loop.node, ast.For) else None
    return None


def _is_table(over: RankValue) -> bool:
    """Whether it gives names of a dict, or what stands under them: of loaders no batches."""
    for call in (t.call for t in over.things if t.kind == "result" and t.call is not None):
        if call.method in _ENTRIES or call.name in _TABLES:
            return True
        if call.name in _LISTS and call.args and _is_table(call.args[0]):
            return True
    return False


def dealt_by_loader(over: RankValue) -> str | None:
    """Why what a loader gives is this rank's own: it has a sampler that deals, or a share."""
    if any(thing.deals for thing in over.sources()):
        return BATCHES
    for loader in _loaders(over):
        assert loader.call is not None
        for position, keyword in ((3, "sampler"), (4, "batch_sampler")):
            value = loader.call.arg(position, keyword)
            if value is not None and deals(value):
                return BATCHES
        if any(_is_share(thing) for thing in (loader.call.arg(0, "dataset") or NONE).things):
            return "samples of this rank"
    return None


def _loaders(over: RankValue) -> list[RankThing]:
    """The loaders behind a value; one over the data set of another deals its own way."""
    found = [t for t in over.sources() if t.name == words.LOADER and t.call is not None]
    return [t for t in found if t in over.things] or found


def _is_share(dataset: RankThing) -> bool:
    """Whether a data set is ``Subset(data, range(rank, len(data), world_size))``."""
    if dataset.name != "torch.utils.data.Subset" or dataset.call is None:
        return False
    indices = dataset.call.arg(1, "indices")
    return indices is not None and any(o.kind in IDENTITY for o in spread(indices))


def deals(sampler: RankValue) -> bool:
    """Whether a sampler gives each rank its own: DistributedSampler, or one that knows the rank."""
    if any(_for_one(thing) for thing in sampler.things):
        return False
    for thing in sampler.sources():
        if thing.name == words.SAMPLER or thing.name.endswith("DistributedSampler"):
            return True
        if thing.cls is not None and (thing.cls.inherits(words.SAMPLER) or _is_our_share(thing)):
            return True
    return any(origin.kind in IDENTITY for origin in spread(sampler))


def _is_our_share(sampler: RankThing) -> bool:
    """Whether a sampler is one of ``evaluation_sampler()``: this rank's samples or batches."""
    return sampler.cls is not None and sampler.cls.module.ours


def _for_one(sampler: RankThing) -> bool:
    """Whether a sampler is ``DistributedSampler(data, num_replicas=1, rank=0)``: all for one."""
    if sampler.name != words.SAMPLER or sampler.call is None:
        return False
    replicas = sampler.call.arg(1, "num_replicas")
    return replicas is not None and replicas.constant == 1
