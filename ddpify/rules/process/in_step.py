"""Streams that begin alike on all ranks: whether they stay in step, and whose workers part them.

A draw of which each takes one, ``torch.rand(2)``, ``RandomHorizontalFlip``, leaves all ranks at one
position. One that looks for a crop that fits, or below a number of the sample's own, takes as many
as it takes: after some samples no two ranks are at one position any more.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import IDENTITY
from ddpify.ranks.values import spread
from ddpify.ranks.words import GENERATORS, SEEDERS
from ddpify.rules.shared.syntax import dotted, parents

_TRANSFORMS: Final = ("torchvision.transforms.", "torchvision.transforms.v2.")
_FITS: Final = ("RandomResizedCrop", "RandomSizedCrop", "RandomIoUCrop")  # draw until one fits
# Their images are of one size.
_OF_ONE_SIZE: Final = tuple(
    f"torchvision.datasets.{name}"
    for name in "CIFAR MNIST FashionMNIST KMNIST EMNIST QMNIST SVHN STL10 FakeData USPS".split()
)
_OF_LIBRARIES: Final = re.compile(r"(?:(?:(?:np|numpy)\.)?random\.|torch\.rand)[\w.]*")
# They draw below a number, until one is low enough.
_BELOW: Final = frozenset("randint randrange choice choices sample shuffle permutation".split())
_RANKS: Final = re.compile(r"\b(?:rank|get_rank|local_rank|global_rank|RANK|LOCAL_RANK)\b")


def stays_in_step(drawn: RankThing, held: Iterable[RankThing]) -> bool:
    """Whether what draws, in a data set that holds these things, takes as much for each sample."""
    method = drawn.cls.method("__getitem__") if drawn.cls is not None else None
    if method is not None:
        return all(_is_fixed(method, node) for node in draws_in(method))
    held = list(held)
    if any(thing.name.startswith(_OF_ONE_SIZE) for thing in held):
        return True
    named = (one.name for one in held if one.name.startswith(_TRANSFORMS))
    return not any(name.rpartition(".")[2] in _FITS for name in named)


def draws_in(method: FunctionDefinition) -> Iterator[ast.Call]:
    """``np.random.normal(…)``, ``random.random()``.

    Not from a generator of its own, which a seed of the library does not reach, and not where it
    sets the seed for each sample itself.
    """
    calls = [node for node in ast.walk(method.node) if isinstance(node, ast.Call)]
    names = [dotted(method.module, one.func) or ast.unparse(one.func) for one in calls]
    if not SEEDERS.keys().isdisjoint(names):
        return
    for call, name in zip(calls, names, strict=True):
        own = name in GENERATORS or any(one.arg == "generator" for one in call.keywords)
        if not own and _OF_LIBRARIES.fullmatch(ast.unparse(call.func)):
            yield call


def _is_fixed(method: FunctionDefinition, draw: ast.Call) -> bool:
    """Whether each sample has one of this draw, which takes as much as another one."""
    path = ast.unparse(draw.func)
    below = path.rpartition(".")[2] in _BELOW and not path.startswith("torch.")
    if below and not all(map(_is_setting, draw.args)):
        return False
    above = parents(method.node)
    node: ast.AST | None = draw
    while node is not None and node is not method.node:
        asked = getattr(node, "test", None) or getattr(node, "iter", None)
        if asked is not None and not _is_setting(asked):
            return False
        node = above.get(node)
    return True


def _is_setting(node: ast.expr) -> bool:
    """Whether it is the same for all samples: made of constants, of attributes of the data set, and
    of what is drawn."""
    if isinstance(node, ast.Call) and _OF_LIBRARIES.match(ast.unparse(node.func)):
        return True
    if isinstance(node, ast.Attribute):
        return ast.unparse(node).startswith("self.")
    if isinstance(node, ast.Name):
        return node.id in ("range", "len") or node.id.isupper()
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("range", "len") and all(map(_is_setting, node.args))
    parts = (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
    return all(map(_is_setting, parts))


def parted_by_workers(loader: RankThing) -> bool:
    """Whether ``worker_init_fn`` may seed each rank's workers otherwise."""
    given = loader.call.kwargs.get("worker_init_fn") if loader.call is not None else None
    if given is None:
        return False
    if any(origin.kind in IDENTITY for value in _said(given) for origin in spread(value)):
        return True
    functions = [t.info for one in _said(given) for t in one.things if t.kind == "function"]
    return any(map(_parts, functions))


def _said(given: RankValue) -> Iterator[RankValue]:
    """A function, and what `functools.partial` was given for one."""
    yield given
    for thing in given.things:
        if thing.call is not None and thing.name == "functools.partial":
            yield from thing.call.given


def _parts(info: FunctionDefinition) -> bool:
    """Whether a function asks for the rank, or has a library seed itself by what no two share."""
    if _RANKS.search(info.text):
        return True
    calls = (node for node in ast.walk(info.node) if isinstance(node, ast.Call))
    return any(dotted(info.module, one.func) in SEEDERS and not one.args for one in calls)
