"""What torchtext makes: iterators, batches that are objects with tensors in fields, streams."""

from __future__ import annotations

import re
from typing import Final

from ddpify.facts.details import call_that_made
from ddpify.facts.values import Kind, Thing, Value

DEEP = 8  # data sets made of data sets
BATCH = "torchtext.data.Batch"
_ITERATOR = re.compile(r"torchtext(\.legacy)?\.data\.\w*Iterator\Z")
_LIBRARY = "torchtext."
_SPLITS = ".splits"
# Streams of samples that end, and begin anew with the same ones; CC100 is too large for a list.
_STREAMS: Final = frozenset(
    f"torchtext.datasets.{name}"
    for name in """AG_NEWS AmazonReviewFull AmazonReviewPolarity CNNDM CoLA CoNLL2000Chunking
    DBpedia EnWik9 IMDB IWSLT2016 IWSLT2017 MNLI MRPC Multi30k PennTreebank QNLI QQP RTE SQuAD1
    SQuAD2 SST2 STSB SogouNews UDPOS WNLI WikiText103 WikiText2 YahooAnswers YelpReviewFull
    YelpReviewPolarity""".split()
)
_FIELD = re.compile(r"torchtext(\.legacy)?\.data\.(Reversible|Label)?Field\Z")
_NO_FIELDS = (Kind.ARGUMENT, Kind.FUNCTION, Kind.EXTERNAL, Kind.DEVICE)
# What decides the axes of a field's tensors, as it is where nothing is said.
_DECIDES: Final[dict[str, object]] = {
    "sequential": True,
    "use_vocab": True,
    "batch_first": False,
    "include_lengths": False,
    "postprocessing": None,
}
_ONE_AXIS = "one number per sample"
_AS_GIVEN = "samples first, each as its example has it"


def makes_batches(thing: Thing) -> bool:
    """Whether something is an iterator: each pass over it makes other batches, all new."""
    return thing.kind is Kind.UNKNOWN and _ITERATOR.match(thing.name) is not None


def is_stream(thing: Thing) -> bool:
    """Whether something is a stream that gives the same samples on each rank and in each pass."""
    return thing.kind is Kind.UNKNOWN and thing.name in _STREAMS


def one_of_several(thing: Thing) -> Thing | None:
    """One of what ``splits()``, or ``AG_NEWS()`` without one ``split``, makes, else None."""
    one = Thing(Kind.UNKNOWN, thing.born, thing.name.removesuffix(_SPLITS))
    one.details.update(thing.details)
    own = thing.kind is Kind.UNKNOWN and thing.name.startswith(_LIBRARY)
    several = thing.name.endswith(_SPLITS) or (is_stream(thing) and not _is_one(thing))
    return one if own and several else None


def _is_one(stream: Thing) -> bool:
    call = call_that_made(stream)
    split = call.arg(1, "split") if call is not None else None
    return split is not None and isinstance(split.const, str)


def keeps_size(iterators: Value) -> bool:
    """Whether all batches of some iterators have as many samples: columns of one text."""
    things = iterators.things
    return bool(things) and all(t.name.endswith(".BPTTIterator") for t in things)


def is_batch(value: Value | None) -> bool:
    """Whether a value is a batch, and nothing else."""
    things = value.things if value is not None else ()
    return bool(things) and all(t.kind is Kind.UNKNOWN and t.name == BATCH for t in things)


def axis_of(value: Value | None) -> int | None:
    """Along which axis the fields of a batch hold samples, by how all of them were defined."""
    things = value.things if value is not None else ()
    made = [_fields(thing.inner, DEEP) for thing in things if thing.inner is not None]
    if not made or len(made) < len(things):
        return None
    fields = [each for found in made for each in found]
    forms = {_form(each) if each is not None else None for each in fields}
    axes = {form for form in forms if form in (0, 1)}
    plain = forms <= axes | {_ONE_AXIS, _AS_GIVEN if axes == {0} else _ONE_AXIS}
    return axes.pop() if len(axes) == 1 and plain else None


def _fields(value: Value, depth: int) -> list[Thing | None]:
    """The fields that data sets were made with; None for what may hold others."""
    if not value.things:
        return [] if value.known or not value.deps else [None]
    return [found for thing in value.things for found in _fields_of(thing, depth)]


def _fields_of(thing: Thing, depth: int) -> list[Thing | None]:
    if _FIELD.match(thing.name) and thing.kind is Kind.UNKNOWN:
        return [thing]
    if thing.kind in _NO_FIELDS:
        return []
    if thing.keys is not None or thing.items is not None:
        held = [*(thing.items or ()), *(thing.keys or {}).values()]
        held += [thing.inner] if thing.inner is not None else []
    else:
        call = call_that_made(thing)
        if call is None or not call.name.startswith(_LIBRARY) or call.star or not depth:
            return [None]
        held = [*call.args, *call.kwargs.values()]
    return [found for each in held for found in _fields(each, depth - 1)]


def _form(field: Thing) -> int | str | None:
    """The axis of samples in what a field makes; None where that is not known."""
    call = call_that_made(field)
    if call is None or call.args or call.star or field.attrs.keys() & _DECIDES.keys():
        return None
    said = {name: call.kwargs[name] for name in _DECIDES if name in call.kwargs}
    if not all(value.known for value in said.values()):
        return None
    label = field.name.endswith(".LabelField")
    settings = _DECIDES | {"sequential": not label} | {name: v.const for name, v in said.items()}
    if settings["postprocessing"] is not None:  # lengths, one number per sample, are divided, too
        return None
    if not settings["sequential"]:
        return _ONE_AXIS if settings["use_vocab"] else _AS_GIVEN
    return 0 if settings["batch_first"] else 1
