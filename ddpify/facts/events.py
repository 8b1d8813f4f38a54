"""What happens while a program runs, in order: the record that roles and rules are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpify.facts.scopes import Frame, FunctionInfo, Guard, Loop
from ddpify.facts.values import NOTHING, Kind, Thing, Value
from ddpify.source import Site


@dataclass(frozen=True, eq=False)
class Where:
    """The circumstances of an event."""

    statement: Site
    function: FunctionInfo | None
    frame: Frame
    stack: tuple[Site, ...]
    loop: Loop | None
    guards: tuple[Guard, ...]
    no_grad: bool
    contexts: tuple[Value, ...] = ()

    def holds(self, f: Frame) -> bool:
        """Whether these are still the circumstances in its frame."""
        same = self.statement is f.statement and self.loop is f.loop and self.guards is f.guards
        return same and self.contexts is f.contexts and self.no_grad is f.no_grad

    def inside(self, name: str) -> bool:
        """Whether a ``with`` block of this qualified name is open."""
        return any(t.name == name for value in self.contexts for t in value.things)

    def loops(self) -> tuple[Loop, ...]:
        """The running loops, innermost first, callers' loops included."""
        found = []
        loop = self.loop
        while loop is not None:
            found.append(loop)
            loop = loop.parent
        return tuple(found)

    def runs_in(self, loop: Loop) -> bool:
        """Whether something happens in this loop (a loop is run again in every outer pass)."""
        return any(
            other.site == loop.site and other.frame.stack == loop.frame.stack
            for other in self.loops()
        )

    def conditions(self) -> tuple[Guard, ...]:
        """What decides whether this happens: the guards, and what may end a loop around it."""
        exits = [guard for loop in self.loops() for guard in loop.exits]
        return (*self.guards, *exits)

    def one_rank(self) -> bool:
        """Whether a condition on the rank decides that this happens."""
        return any(guard.test.dep(Kind.RANK) for guard in self.guards)


@dataclass(eq=False)
class Call:
    """A call: of an external name, a method of a thing, or a function of the project.

    ``name`` is the qualified name (``torch.save``), or ``.method`` for a method whose
    receiver is a value; ``args`` are positional, ``kwargs`` by name. ``bound``: some of them
    were given to a ``functools.partial`` and cannot be changed here. ``unread``: whose code runs,
    where that is not read. ``steps`` stands for the optimizer of a step that is taken by hand.
    """

    order: int
    name: str
    site: Site
    callee: Site
    where: Where
    args: tuple[Value, ...]
    kwargs: dict[str, Value]
    arg_sites: tuple[Site, ...]
    kwarg_sites: dict[str, Site]
    receiver: Value | None = None
    receiver_site: Site | None = None
    target: FunctionInfo | None = None
    result: Value = NOTHING
    alone: bool = False
    star: bool = False
    bound: bool = False
    unread: str = ""
    steps: Thing | None = None

    @property
    def way(self) -> tuple[Site, ...]:
        """The calls that lead here, and this one."""
        return (*self.where.stack, self.site)

    @property
    def owner_site(self) -> Site:
        """What is called: of ``net.forward(x)``, which the wrapper has too, ``net``."""
        owner = self.receiver_site if self.name == ".forward" else None
        return owner or self.callee

    def arg(self, position: int, keyword: str) -> Value | None:
        """An argument by position or keyword."""
        if keyword in self.kwargs:
            return self.kwargs[keyword]
        return self.args[position] if position < len(self.args) else None

    def arg_site(self, position: int, keyword: str) -> Site | None:
        """The place of an argument (of its value, not of its keyword)."""
        if keyword in self.kwarg_sites:
            return self.kwarg_sites[keyword]
        return self.arg_sites[position] if position < len(self.arg_sites) else None


@dataclass(eq=False)
class Bind:
    """A value gets a name: an assignment to a name or attribute."""

    order: int
    target: str
    value: Value
    where: Where
    site: Site
    value_site: Site | None = None


@dataclass(eq=False)
class Access:
    """An attribute of a value is read (not called)."""

    order: int
    base: Value
    base_site: Site
    attribute: str
    where: Where
    stored: bool = False


@dataclass(eq=False)
class Forward:
    """A model is called."""

    order: int
    model: Thing
    call: Call
    output: Thing


@dataclass(frozen=True)
class KeptSums:
    """The attributes of an object with sums over this rank's samples, and those with means."""

    sums: tuple[str, ...]
    means: tuple[str, ...]

    @property
    def words(self) -> str:
        """``sums=("hits", "seen"), means=("loss",)``"""
        both = (("sums", self.sums), ("means", self.means))
        return ", ".join(f"{word}={_written(names)}" for word, names in both if names)


def _written(names: tuple[str, ...]) -> str:
    """A tuple as black writes it."""
    inner = ", ".join(f'"{name}"' for name in names)
    return f"({inner},)" if len(names) == 1 else f"({inner})"


@dataclass(frozen=True, eq=False)
class LoopEnd:
    """What a loop over a sharded loader leaves behind on each rank.

    ``sums`` and ``means`` are names to add up and to average over the ranks, ``meters``
    names of objects with ``sum``, ``count`` and ``avg``; ``others`` are bound in the loop,
    read after it, and not understood. ``samples`` and ``batches`` are names of lists to put
    together, with one entry per sample or per batch, ``numbers`` of lists with a mean over each
    batch, ``totals`` with a sum over each, ``entries`` of dicts with sums, made at ``dicts``.
    ``reduced`` are those that the program sums over the ranks itself, ``owned`` the attributes of
    objects among all of these, ``held`` the meters with numbers of this rank, ``keep`` all objects
    that are such meters, ``tracked`` all that add up such numbers.
    """

    loop: Loop
    where: Where
    sums: tuple[str, ...]
    means: tuple[str, ...]
    meters: tuple[str, ...]
    others: tuple[str, ...]
    reduced: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    owned: frozenset[tuple[Thing, str]] = frozenset()
    held: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    dicts: frozenset[Site] = frozenset()
    keep: frozenset[Thing] = frozenset()
    tracked: Mapping[Thing, KeptSums] = field(default_factory=dict)

    @property
    def communicates(self) -> bool:
        """Whether the ranks have to combine anything after the loop."""
        numbers = self.numbers or self.totals or self.entries
        return bool(
            self.sums or self.means or self.meters or self.samples or self.batches or numbers
        )


@dataclass(frozen=True)
class Unknown:
    """Something that cannot be followed, and why."""

    site: Site
    why: str
