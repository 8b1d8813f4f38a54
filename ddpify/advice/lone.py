"""Launch lines for which one process is enough, or all that can be.

Modes of a program in which it does not train: `segment.py test`.

Options with which a program runs on the CPU, as its own conditions say: `--no-cuda`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ddpify.advice.arguments import DECLARES, options
from ddpify.advice.model import BatchSizeOrigin, Start
from ddpify.advice.origins import origins
from ddpify.advice.starts import starts
from ddpify.facts.details import loader_arguments
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.scopes import Guard
from ddpify.facts.tree import Tree
from ddpify.facts.values import NOTHING, Kind, Value
from ddpify.outcome import Note
from ddpify.source import Site


def lone_starts(facts: Facts, split: bool) -> Iterator[tuple[str, str]]:
    """Where a launcher starts the entry like that, and why; ``split``: so is the batch."""
    sizes = [origin for origin in origins(facts) if origin.options] if split else []
    modes, switched = training_modes(facts), switches(facts)
    flags, devices = cpu_flags(facts), device_options(facts)
    if not (sizes or modes or switched or flags or devices):
        return
    names = {s: option.name for option in options(facts) for s in option.spellings}
    for start in starts(Path(facts.root), facts.entry.path, tuple(names)):
        word = start.first
        if modes and word and not word.startswith("-") and word not in modes:
            yield start.place, f"`{word}` does not train: it needs one process"
        for spelled, value in dict(start.values).items():
            if names[spelled] in flags or (names[spelled] in devices and value == CPU):
                yield start.place, f"`{spelled}` is for the CPU: there may be no GPUs to count"
            if names[spelled] in switched and value == "0":
                yield start.place, f"`{spelled} 0` does not train: it needs one process"
        for origin in sizes:
            if _size(origin, start) == "1":
                option = max(origin.options, key=len)
                why = "a batch of one sample stays on one rank"
                yield start.place, f"{why}: for more, give {option} a multiple of them"


def single_batches(facts: Facts) -> Iterator[Note]:
    """Where a batch is one sample unless a launcher says something else: nothing is divided."""
    things = (thing for loader in facts.loaders for thing in loader.things)
    dealt = {thing.born for thing in things if loader_arguments(thing).of_one}
    for origin in origins(facts):
        if origin.size == 1 and origin.site and origin.loader not in dealt:
            told = "the batch size is 1 unless another one is given: a job of several ends at start"
            way = "where gradients are accumulated, `batch_size=1` at the DataLoader gives each one"
            yield Note(origin.site, f"{told}; {way}")


def _size(origin: BatchSizeOrigin, start: Start) -> str | None:
    given = [value for name, value in start.values if name in origin.options]
    return given[-1] if given else str(origin.size)


def training_modes(facts: Facts) -> frozenset[str]:
    """The first words after the program with which it trains; empty where that is not sure."""
    first = _first_positional(facts)
    found = [
        {word for name, word in _asked(facts, loop) if name == first} for loop in facts.training
    ]
    return frozenset().union(*found) if first and all(found) else frozenset()


def switches(facts: Facts) -> frozenset[str]:
    """The numbers among the options that are not 0 where it trains: ``if args.is_training:``."""
    numbers = {option.name for option in options(facts) if option.whole is not None}
    asked = [set(_switched(facts, loop)) & numbers for loop in facts.training]
    return frozenset.intersection(*map(frozenset, asked)) if asked else frozenset()


def _switched(facts: Facts, loop: TrainingLoop) -> Iterator[str]:
    for guard in loop.backward.where.guards:
        option = facts.values.get(guard.site)
        if guard.holds and option is not None and len(option.things) == 1:
            yield from (thing.name for thing in option.of(Kind.ARGUMENT))


def _first_positional(facts: Facts) -> str:
    """The name of what comes first on the command line: ``add_argument("cmd")``, subparsers."""
    for call in facts.calls:
        if call.name == ".add_subparsers":
            return _text(call.kwargs.get("dest"))
        spelled = _text(call.args[0]) if call.name in DECLARES and call.args else ""
        if spelled and not spelled.startswith("-"):
            return spelled
    return ""


def _text(value: Value | None) -> str:
    return value.const if value is not None and value.known and isinstance(value.const, str) else ""


def _asked(facts: Facts, loop: TrainingLoop) -> Iterator[tuple[str, str]]:
    """``cmd`` and ``train`` of ``if args.cmd == "train":`` around a training loop."""
    for guard in loop.backward.where.guards:
        test = facts.tree(guard.site).expression(guard.site)
        if not guard.holds or not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        option, word = test.left, test.comparators[0]
        if not isinstance(test.ops[0], ast.Eq) or not isinstance(option, ast.Attribute):
            continue
        if isinstance(word, ast.Constant) and isinstance(word.value, str):
            yield option.attr, word.value


CPU: Final = "cpu"
GPU: Final = "cuda"
_FLAGS: Final = {"store_true": True, "store_false": False}
_PLACES: Final = ("torch.device", ".to")
_DEPTH: Final = 4  # of names for conditions


def cpu_flags(facts: Facts) -> frozenset[str]:
    """The names of the flags without which a GPU is used, and with which none is."""
    flags = dict(_flags(facts))
    return frozenset(
        name for name, value in flags.items() if _OnCommandLine(facts, name, value).on_cpu
    )


def device_options(facts: Facts) -> frozenset[str]:
    """The names of the options whose value is the device: ``torch.device(args.device)``."""
    placed = [call.args[0] for call in facts.named(*_PLACES) if call.args]
    return frozenset(
        thing.name
        for value in placed
        if len(value.things) == 1
        for thing in value.of(Kind.ARGUMENT)
    )


def _flags(facts: Facts) -> Iterator[tuple[str, bool]]:
    """Each flag, and what its name is where it is given."""
    known = {option.site: option.name for option in options(facts)}
    for call in facts.calls:
        action = call.kwargs.get("action", NOTHING)
        if call.name in DECLARES and call.site in known and action.const in _FLAGS:
            yield known[call.site], _FLAGS[action.const]


@dataclass(frozen=True)
class _OnCommandLine:
    """The program with one flag on its command line: the option ``name`` is ``value``."""

    facts: Facts
    name: str
    value: bool

    @property
    def on_cpu(self) -> bool:
        """Whether each choice between the CPU and something else is for the CPU then."""
        moved = [self._is_reached(call.where.guards) for call in self.facts.named(".cuda")]
        sides = {CPU: list[bool | None](), GPU: list[bool | None]()}
        for tree in self.facts.trees.values():
            for node in tree.nodes():
                text = node.value if isinstance(node, ast.Constant) else None
                device = text.partition(":")[0] if isinstance(text, str) else ""
                if device in sides:
                    sides[device] += list(self._sides(tree, node)) or [None] * (device == GPU)
        other = any(moved) or any(one is not False for one in sides[GPU])
        return bool(moved or sides[CPU]) and not other and all(sides[CPU])

    def _is_reached(self, guards: tuple[Guard, ...]) -> bool:
        tests = ((self._truth_at(guard.site), guard.holds) for guard in guards)
        return not any(truth is not None and truth is not holds for truth, holds in tests)

    def _sides(self, tree: Tree, node: ast.AST) -> Iterator[bool | None]:
        """Whether the side of a condition on which a text stands is taken, if it is on one."""
        below = node
        for above in tree.ancestors(node):
            if isinstance(above, (ast.FunctionDef, ast.Lambda)):
                return
            if isinstance(above, (ast.If, ast.IfExp)) and below is not above.test:
                truth = self._truth(tree, above.test)
                body = above.body if isinstance(above, ast.If) else [above.body]
                yield None if truth is None else truth is (below in body)
                return
            below = above

    def _truth_at(self, site: Site) -> bool | None:
        tree = self.facts.tree(site)
        node = tree.expression(site)
        return self._truth(tree, node) if node is not None else None

    def _truth(self, tree: Tree, node: ast.expr, depth: int = _DEPTH) -> bool | None:
        """What a condition is for sure; None where more than the flag decides."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._truth(tree, node.operand, depth)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            parts = {self._truth(tree, one, depth) for one in node.values}
            decides = isinstance(node.op, ast.Or)
            return (
                decides if decides in parts else (not decides if parts == {not decides} else None)
            )
        if not isinstance(node, (ast.Name, ast.Attribute)) or not depth:
            return None
        names = self.facts.values.get(tree.site(node), NOTHING).of(Kind.ARGUMENT)
        if names and {thing.name for thing in names} == {self.name}:
            return self.value
        found = {self._truth(tree, value, depth - 1) for value in _assigned(tree, node)}
        return found.pop() if len(found) == 1 else None


def _assigned(tree: Tree, node: ast.expr) -> Iterator[ast.expr]:
    """What the file assigns to a name or attribute."""
    wanted = ast.unparse(node)
    for one in tree.nodes():
        if isinstance(one, ast.Assign) and any(ast.unparse(t) == wanted for t in one.targets):
            yield one.value
