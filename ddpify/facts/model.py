"""The facts rules are written against: what trains what, with which data, and what is seen outside.

Everything here is read-only; it is made by `facts.link` from one reading of the program.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from ddpify.facts.effects import Effect
from ddpify.facts.events import Access, Bind, Call, Forward, LoopEnd, Unknown, Where
from ddpify.facts.frameworks import OF_TRAINERS
from ddpify.facts.scopes import FunctionInfo, Loop
from ddpify.facts.sinks import Part
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing, Value
from ddpify.source import Site


class Status(Enum):
    """How far a project already is from one process."""

    SINGLE = "one process"
    DATA_PARALLEL = "nn.DataParallel"
    MIGRATED = "migrated with ddpify"
    DISTRIBUTED = "distributed by hand"


class Role(Enum):
    """What a loader feeds."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    OTHER = "other"


@dataclass(frozen=True)
class Entry:
    """The script that is run; ``guard`` are the statements under ``if __name__ == "__main__"``."""

    path: str
    site: Site
    guard: tuple[Site, ...]
    first: Site
    last: Site


@dataclass(frozen=True)
class Home:
    """Where a model is complete: wrap ``target`` right after ``statement``.

    ``each``: it is a "list" or "dict" of models. ``optional``: there may be None.
    """

    statement: Site
    target: str
    each: str = ""
    optional: bool = False


@dataclass(frozen=True, eq=False)
class Model:
    """A module whose parameters an optimizer steps (several things when branches choose one)."""

    things: tuple[Thing, ...]
    optimizers: tuple[Thing, ...]
    home: Home | None
    wrapped: bool
    batch_norm: bool
    buffers: bool
    repeated: bool
    unused: str
    data_parallel: tuple[Call, ...]
    listed: tuple[Site, ...] = ()  # nn.DataParallel, where it is asked for its `children()`
    late: tuple[Site, ...] = ()  # where it makes parameters after it is built
    sharded: bool = False  # by the program itself, in place
    apart: bool = False  # several forwards of one step may leave out other layers each


@dataclass(frozen=True, eq=False)
class TrainingLoop:
    """A loop whose passes call ``backward``; ``epoch`` is the loop around it, if any."""

    batch: Loop
    epoch: Loop | None
    loaders: tuple[Thing, ...]
    backward: Call


@dataclass(frozen=True, eq=False)
class Loader:
    """A call that makes loaders: one thing per call of a factory.

    ``training`` are the calls (of ``calls``) whose loader trains, ``idle`` those from whose loader
    nothing takes a batch, ``by_hand`` those from whose loader something else takes one than a loop.
    ``evaluations`` are the loops that do not train.
    """

    call: Call
    calls: tuple[Call, ...]
    training: tuple[Call, ...]
    roles: frozenset[Role]
    things: tuple[Thing, ...]
    idle: tuple[Call, ...] = ()
    by_hand: tuple[Call, ...] = ()
    evaluations: tuple[Loop, ...] = ()


@dataclass(frozen=True)
class Division:
    """Where the batches of a ``loop`` that every rank makes are divided: before ``statement``.

    ``names`` hold the tensors of a batch, whose samples lie along ``axis``; ``sizes`` are numbers
    of samples for which states begin that go from one batch to the next. ``columns``: instead, the
    data of all batches are divided, once, where they are made; ``done``: they are. ``ragged``: the
    last batch of a pass may have fewer samples.
    """

    loop: Site
    statement: Site
    names: tuple[str, ...]
    axis: int
    sizes: tuple[Site, ...] = ()
    columns: Site | None = None
    done: bool = False
    ragged: bool = False


@dataclass(frozen=True)
class Share:
    """A count or a mean of a training loss, at ``site``, that is to be of all ranks.

    The count is what stands there or, where ``at_least`` bounds it from below, ``counted``. Of a
    mean ``mean_over`` is an expression for how many terms it has on this rank. ``wheres`` are the
    circumstances, one per call of its function.
    """

    site: Site
    wheres: tuple[Where, ...]
    counted: str = ""
    at_least: str = ""
    mean_over: str = ""


class Danger(Enum):
    """What unread code may do with a value."""

    TRAINING = "may step, save, wrap or change what is trained"
    LOSS = "the loss goes through it"
    FILE = "may write the state"
    OUTPUT = "is given what one rank's samples made"
    BATCH_SIZE = "is given the batch size"
    CALLBACK = "calls a function that changes what is trained"
    OPTIMIZER = "steps the parameters"
    MODEL = "makes the model"
    EACH_RANK = "does what it does on each rank"


_WORDS = {
    Kind.ARGUMENT: "the batch size",
    Kind.BATCH: "what is made of a batch",
    Kind.FUNCTION: "a function that changes what is trained",
    Kind.MODEL: "the model",
    Kind.WRAPPED: "the model",
}


def shown(name: str) -> str:
    """The name of unread code, as the program has it, or the words for one that it lacks."""
    name = name.removeprefix("builtins.")
    return f"`{name}`" if name.replace(".", "").isidentifier() else name


@dataclass(frozen=True)
class Escape:
    """A use of a tracked value that was not followed: where, of what, into whose code."""

    site: Site
    kind: Kind
    to: str
    danger: Danger

    @property
    def told(self) -> str:
        """What goes where, in a few words."""
        way = "from" if self.danger is Danger.MODEL else "into"
        return f"{self.what} {way} {shown(self.to)}"

    @property
    def what(self) -> str:
        """What is not followed."""
        return _WORDS.get(self.kind, f"the {self.kind.value}")


@dataclass(frozen=True)
class Followed:
    """The uses of tracked values, these values, and the uses that were not followed."""

    uses: frozenset[Site] = frozenset()
    values: frozenset[tuple[Kind, Site]] = frozenset()
    escapes: tuple[Escape, ...] = ()


@dataclass(frozen=True)
class Gather:
    """An expression, and what makes it that of all ranks; ``{}`` is the expression."""

    site: Site
    code: str


@dataclass(frozen=True)
class Agreement:
    """A condition at ``site`` that is that of all ranks once the ``means`` in it are.

    It ``decides`` whether something runs that all of them must come to, or of which terms the loss
    is that is given there.
    """

    site: Site
    means: tuple[Site, ...]
    decides: Site
    terms: bool = False


@dataclass(frozen=True, eq=False)
class Facts:
    """One entry's program, read whole.

    ``whole_batches``: as it is where every rank makes them and models compute each its rows;
    ``unsplit`` says why not."""

    root: str
    entry: Entry
    status: Status
    models: tuple[Model, ...]
    training: tuple[TrainingLoop, ...]
    loaders: tuple[Loader, ...]
    steps: tuple[Call, ...]
    calls: tuple[Call, ...]
    training_forwards: tuple[Forward, ...]
    evaluation_forwards: tuple[Forward, ...]
    forwards: tuple[Forward, ...]  # those of models that are not trained, too
    binds: tuple[Bind, ...]
    accesses: tuple[Access, ...]
    ends: tuple[LoopEnd, ...]
    unknowns: tuple[Unknown, ...]
    values: dict[Site, Value]
    sharded: frozenset[Site]
    spared: frozenset[tuple[Site, ...]]
    trees: dict[str, Tree]
    evidence: tuple[tuple[Site, str], ...] = ()
    effects: tuple[Effect, ...] = ()
    runtime: tuple[str, str] = ("", "")
    unwraps: tuple[tuple[Site, Forward], ...] = ()
    again: dict[Site, frozenset[Site]] = field(default_factory=dict)
    bypasses: tuple[Call, ...] = ()
    counted: frozenset[Site] = frozenset()
    replicated: tuple[LoopEnd, ...] = ()
    phases: dict[Site, str] = field(default_factory=dict)
    preparations: frozenset[Site] = frozenset()
    helpers: frozenset[FunctionInfo] = frozenset()
    sinks: tuple[tuple[Call, tuple[Part, ...]], ...] = ()
    shares: tuple[Share, ...] = ()
    whole: tuple[tuple[Gather, Site], ...] = ()
    pooled: tuple[tuple[Gather, Site], ...] = ()
    summed: frozenset[Site] = frozenset()
    sized: frozenset[Site] = frozenset()
    whole_shapes: frozenset[Site] = frozenset()
    dealt: frozenset[Site] = frozenset()
    firsts: tuple[Call, ...] = ()
    compared: tuple[Site, ...] = ()  # where forwards compare the samples of a batch
    collated: tuple[Site, ...] = ()  # where what makes a batch does
    divisions: tuple[Division, ...] = ()
    undivided: tuple[tuple[Site, str], ...] = ()
    followed: Followed = Followed()
    agreements: tuple[Agreement, ...] = ()
    kept: tuple[tuple[Site, str], ...] = ()
    whole_batches: bool = False
    unsplit: tuple[Site, str] | None = None
    within: tuple[Call, ...] = ()
    first_batches: frozenset[Site] = frozenset()
    model_shapes: frozenset[Site] = frozenset()
    routes: frozenset[Site] = frozenset()
    keeps_means: bool = False  # whether instance norms keep statistics
    beyond: dict[str, str] = field(default_factory=dict)  # imports not found: where above the root
    # Of a program with DDP that is read as it will be when sharded: expressions that are a wrapper,
    # and whether they always are.
    replicas: dict[Site, bool] = field(default_factory=dict)

    @cached_property
    def everywhere(self) -> tuple[Call, ...]:
        """All calls, those in methods that torch calls by itself included."""
        return (*self.calls, *self.within)

    @property
    def trainers(self) -> tuple[Site, ...]:
        """Where Lightning's Trainers are made, if nothing else makes the program distributed."""
        names = {name for _, name in self.evidence}
        own = self.status is Status.DISTRIBUTED and bool(names) and names <= OF_TRAINERS
        return tuple(dict.fromkeys(site for site, _ in self.evidence)) if own else ()

    def tree(self, site: Site) -> Tree:
        """The syntax around a site."""
        return self.trees[site.path]

    def text(self, site: Site) -> str:
        """The source text at a site."""
        return self.trees[site.path].source.segment(site.span)

    def unbound(self, site: Site) -> str:
        """A name in an expression that no statement, import or builtin binds; "" for none."""
        tree = self.tree(site)
        inner = ast.walk(tree.expression(site) or ast.Tuple([]))
        names = (n for n in inner if isinstance(n, ast.Name))
        return next((n.id for n in names if self._is_unbound(n, tree.site(n))), "")

    def _is_unbound(self, node: ast.Name, site: Site) -> bool:
        held = self.values[site].things if site in self.values else ()
        return [t.name for t in held] == [f"builtins.{node.id}"] and not hasattr(builtins, node.id)

    def named(self, *names: str) -> tuple[Call, ...]:
        """Calls of external names."""
        return tuple(call for call in self.calls if call.name in names)
