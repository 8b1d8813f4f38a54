"""The vocabulary of the two-rank reading: values, things, calls, and what one run leaves behind.

A *run* starts at a script, or at a function that no script reaches. World: two ranks, one node,
started by torchrun. ``RankCall.ranks`` and every other mask are bit sets: 1 is rank 0, 2 is rank 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from zlib import crc32

from ddpify.ranks.attempts import Attempt
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module
from ddpify.ranks.origins import IDENTITY, SYNCED, Origin, Symbol
from ddpify.ranks.traits import PLAIN, Traits
from ddpify.source import Site

RANK0, RANK1, ALL = 1, 2, 3
UNSET = "unset"  # the kind of a variable of the environment that torchrun does not set


@dataclass(eq=False)
class RankThing:
    """An object with an identity: what a call made, a function, a class, a module, a parameter.

    ``kind``: "result" (of the external call ``name``, which is ``call``), "instance" (of the
    project class ``cls``), "function", "class", "module", "external" (a name of a library),
    "parameter" (of a function that nobody calls), "attribute" (of something unknown) or UNSET.
    """

    kind: str
    name: str
    site: Site | None = None
    call: RankCall | None = None
    cls: ClassDefinition | None = None
    info: Any = None
    attrs: dict[str, RankValue] = field(default_factory=dict)
    receiver: RankThing | None = None
    owner: RankValue | None = None
    synced: bool = False  # made the same on all ranks, in place
    wrapper: RankThing | None = None  # the DDP or FSDP object around this module
    deals: bool = False  # a loader of whose batches each rank gets its part
    sharded: RankCall | None = None  # the fully_shard call on this module
    defaults: dict[str, RankValue] = field(default_factory=dict)  # of a function, evaluated once
    held: RankValue | None = None  # what an object that is a list or a dict holds
    traits: Traits = PLAIN
    state: dict[str, RankValue] = field(default_factory=dict)  # a generator's, by `streams`

    def __post_init__(self) -> None:
        """Keep the hash, which is alike in every process: sets of things have one order."""
        line = self.site.span.line if self.site is not None else 0
        self._hash = hash((line, crc32(self.name.encode("utf-8", "surrogatepass"))))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"

    @property
    def key(self) -> str:
        """What it is called where an atom says what a value was computed from."""
        return f"{self.name}@{id(self)}"


@dataclass(frozen=True)
class RankValue:
    """What an expression is: per rank a constant (or Symbol), things it may be, what it came from.

    ``atoms``: one entry per rank, a Python constant or a Symbol. ``deps``: things it was computed
    from, itself excluded. ``items``: elements of a tuple or list, ``keys`` of a dict, if known.
    ``apart``: things that it may be on some ranks only, and on which. ``lacks``, of a dict's entry:
    the rank whose dict has none, and why.
    """

    atoms: tuple[Any, Any]
    things: tuple[RankThing, ...] = ()
    deps: frozenset[RankThing] = frozenset()
    origins: frozenset[Origin] = frozenset()
    items: tuple[RankValue, ...] | None = None
    keys: tuple[tuple[str, RankValue], ...] | None = None
    apart: tuple[tuple[RankThing, int], ...] = ()
    lacks: tuple[int, Origin] | None = None

    def __hash__(self) -> int:
        return hash((self.atoms, self.things))  # elements may nest deeply

    @property
    def known(self) -> bool:
        """Whether the constant is known on both ranks."""
        return not isinstance(self.atoms[0], Symbol) and not isinstance(self.atoms[1], Symbol)

    @property
    def constant(self) -> Any:
        """The constant if it is known and the same on both ranks, else None."""
        return self.atoms[0] if self.known and self.atoms[0] == self.atoms[1] else None

    @property
    def by_rank(self) -> bool:
        """Whether a value depends on the rank's number."""
        return any(origin.kind in IDENTITY for origin in self.origins)

    @property
    def local(self) -> bool:
        """Whether each rank has its own for any reason: number, data, clock, draws, files."""
        return bool(self.origins)

    def has(self, kind: str) -> bool:
        """Whether an origin is of this kind."""
        return any(origin.kind == kind for origin in self.origins)

    def ranks_of(self, thing: RankThing) -> int:
        """The ranks on which it may be this thing."""
        return next((ranks for one, ranks in self.apart if one is thing), ALL)

    def things_on(self, rank: int) -> tuple[RankThing, ...]:
        """The things that it may be on a rank."""
        return tuple(thing for thing in self.things if self.ranks_of(thing) & (1 << rank))

    def names(self) -> set[str]:
        """Qualified names of the things it may be."""
        return {thing.name for thing in self.things}

    def made_by(self, *names: str) -> RankThing | None:
        """The thing made by a call of one of these names."""
        return next((t for t in self.things if t.kind == "result" and t.name in names), None)

    @property
    def made_from(self) -> frozenset[RankThing]:
        """The things it was computed from, those of its elements included."""
        return self.deps if self.items is None and self.keys is None else self._all_deps

    @property
    def all_origins(self) -> frozenset[Origin]:
        """The origins of a value and of its elements."""
        return self.origins if self.items is None and self.keys is None else self._all_origins

    @property
    def _elements(self) -> list[RankValue]:
        return [*(self.items or ()), *(value for _, value in self.keys or ())]

    @cached_property
    def _all_deps(self) -> frozenset[RankThing]:
        parts = (part for one in self._elements for part in (one.things, one.made_from))
        return self.deps.union(*parts)

    @cached_property
    def _all_origins(self) -> frozenset[Origin]:
        return self.origins.union(*(one.all_origins for one in self._elements))

    def sources(self) -> Iterator[RankThing]:
        """The things it is or was computed from, elements included."""
        yield from self.things
        yield from self.made_from

    def clean(self) -> RankValue:
        """The same, made equal on all ranks."""
        same = (Symbol(SYNCED), Symbol(SYNCED)) if self.atoms[0] != self.atoms[1] else self.atoms
        return replace(self, atoms=same, origins=frozenset(), apart=(), lacks=None)


@dataclass(frozen=True, eq=False)
class RankGuard:
    """A condition that decides whether a call happens; ``ranks`` are those for which it may."""

    test: RankValue
    node: ast.expr
    module: Module
    holds: bool
    ranks: int

    @property
    def site(self) -> Site:
        """Where the condition stands."""
        return self.module.site(self.node)

    def is_open(self, rank: int) -> bool:
        """Whether it is not known if it holds on a rank."""
        return isinstance(self.test.atoms[rank], Symbol)

    @property
    def text(self) -> str:
        """The condition as it is written, but for spaces and quotes."""
        return ast.unparse(self.node)

    @property
    def starts_script(self) -> bool:
        """Whether a guard only asks if the file is the script: ``__name__ == "__main__"``."""
        return self.text.startswith("__name__")


@dataclass(frozen=True, eq=False)
class RankLoop:
    """A ``for``, ``while`` or comprehension that runs; ``over`` is what a ``for`` iterates."""

    node: ast.AST
    module: Module
    over: RankValue | None
    trains: bool  # its body (not that of functions it calls) holds a backward()

    @property
    def site(self) -> Site:
        """Where the loop stands."""
        return self.module.site(self.node)


@dataclass(eq=False)
class RankCall:
    """A call of a library's name, of a method, or of a function of the project (``target``).

    ``name``: ``torch.save``; ``torch.utils.data.DataLoader.set_epoch`` for a method of what an
    external call made; ``Net.__call__`` / ``Net.fit`` for an instance of a project class;
    ``.method`` when the receiver is unknown. A model's forward is ``….__call__``.
    """

    order: int
    name: str
    node: ast.Call
    module: Module
    ranks: int
    args: tuple[RankValue, ...]
    kwargs: dict[str, RankValue]
    receiver: RankValue | None
    guards: tuple[RankGuard, ...]
    loops: tuple[RankLoop, ...]  # outermost first, those of the callers included
    stack: tuple[RankCall, ...]  # calls of project functions that led here, outermost first
    function: FunctionDefinition | None
    contexts: tuple[RankValue, ...]  # open `with` blocks, outermost first
    swallows: tuple[Attempt, ...]  # `try` statements around it whose handlers go on
    grad: bool  # not under no_grad or inference_mode
    target: FunctionDefinition | None = None
    result: RankValue | None = None
    alone: bool = False  # a statement of its own: the result is not used
    star: bool = False  # *args or **kwargs were given

    @property
    def site(self) -> Site:
        """Where the call stands."""
        return self.module.site(self.node)

    @cached_property
    def way(self) -> tuple[RankCall, ...]:
        """The calls that led here, outermost first, and the call itself."""
        return (*self.stack, self)

    @property
    def spelled(self) -> RankCall:
        """The call that spells the arguments out, which a wrapper's ``f(*args, **kwargs)`` hands
        on: the call itself, unless it is such a wrapper's."""
        return next((one for one in reversed(self.way) if not one.hands_on), self)

    @property
    def hands_on(self) -> bool:
        """Whether a function calls another with all that it was given, and nothing else."""
        spec = self.function.node.args if self.function is not None else None
        name = spec.kwarg.arg if spec is not None and spec.kwarg is not None else ""
        starred = all(isinstance(one, ast.Starred) for one in self.node.args)
        given = [getattr(one.value, "id", "") for one in self.node.keywords if one.arg is None]
        return starred and given == [name] and len(self.node.keywords) == 1

    def place_in(self, block: Site) -> Site | None:
        """Where a block of the program, such as that of a ``try``, makes it or leads to it."""
        return next((one.site for one in reversed(self.way) if one.site.within(block)), None)

    @property
    def asked(self) -> RankCall:
        """The program's own call that led here: the call itself, unless our helpers make it."""
        calls = (call for call in reversed(self.way) if not call.module.ours)
        return next(calls, self)

    @property
    def place(self) -> Site:
        """Where the program asked for it."""
        return self.asked.site

    @cached_property
    def method(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    def arg(self, position: int, keyword: str) -> RankValue | None:
        """An argument by position or keyword; None if it is not given."""
        if keyword and keyword in self.kwargs:
            return self.kwargs[keyword]
        return self.args[position] if 0 <= position < len(self.args) else None

    def node_of(self, position: int, keyword: str) -> ast.expr | None:
        """The expression of that argument."""
        for one in self.node.keywords:
            if one.arg == keyword:
                return one.value
        return self.node.args[position] if 0 <= position < len(self.node.args) else None

    @property
    def given(self) -> tuple[RankValue, ...]:
        """All arguments, by position or keyword."""
        return (*self.args, *self.kwargs.values())

    @property
    def inputs(self) -> tuple[RankValue, ...]:
        """What it computes with: the arguments, and the object whose method it is."""
        return self.given if self.receiver is None else (self.receiver, *self.given)

    @property
    def conditions(self) -> tuple[RankGuard, ...]:
        """The guards, those of the callers included, without ``if __name__ == "__main__"``."""
        return tuple(guard for guard in self.guards if not guard.starts_script)

    def conditions_in(self, loop: RankLoop) -> tuple[RankGuard, ...]:
        """The guards that stand in a loop around this call, or in a function called from there.

        Not those around the loop: of ``if args.train: for x in loader: if big: free()``, ``big``.
        """
        first = next((one for one in self.way if loop in one.loops), self)
        outer, inner = self.guards[: len(first.guards)], self.guards[len(first.guards) :]
        return (*(one for one in outer if one.site.within(loop.site)), *inner)

    def way_from(self, loop: RankLoop) -> tuple[FunctionDefinition | None, ...]:
        """The functions entered between a loop around it and this call, outermost first."""
        return tuple(one.function for one in self.way if loop in one.loops)[1:]

    @property
    def everywhere(self) -> bool:
        """Whether all ranks come here."""
        return self.ranks == ALL

    @property
    def parted(self) -> RankCall:
        """The outermost call that led here and that some ranks alone make."""
        return next((one for one in self.way if not one.everywhere), self)

    def within(self, *names: str) -> bool:
        """Whether a ``with`` block of one of these (qualified) names is open."""
        return any(t.name in names for value in self.contexts for t in value.things)
