"""What one run leaves behind: the record that rules read."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

from ddpify.names import HEADER_PREFIX, INSTALLED
from ddpify.ranks import words
from ddpify.ranks.events import Exit, Lacking, Read, Store, Touch
from ddpify.ranks.imports import Modules
from ddpify.ranks.model import RankCall, RankLoop, RankValue
from ddpify.ranks.modules import FunctionDefinition, Module, Place
from ddpify.ranks.origins import Origin
from ddpify.ranks.passes import Pass, backwards, passes, step_loops, training_loops
from ddpify.ranks.trace import Mismatch
from ddpify.site import Site

T = TypeVar("T")
_TEST: Final = re.compile(r"(^|/)(test_[^/]*|[^/]*_test|conftest)\.py\b")


def is_test(path: str) -> bool:
    """Whether pytest takes a file, or a place in one, for a test's."""
    return _TEST.search(path) is not None


@dataclass(frozen=True)
class Fed:
    """What a Trainer takes batches from: a hook, or an argument of this name, gave it."""

    call: RankCall  # ``trainer.fit``, ``validate``, ``test``
    name: str
    value: RankValue
    hook: FunctionDefinition | None = None

    @property
    def trains(self) -> bool:
        """Whether steps are made of the batches; else an evaluation is."""
        return self.name.startswith("train_")


@dataclass
class Run:
    """What happened from one start: a script (``script``), or a function no script reaches."""

    start: str
    script: bool
    calls: list[RankCall] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)
    absent: list[Lacking] = field(default_factory=list)
    texts: dict[Site, Origin] = field(default_factory=dict)  # ranks that are compared as texts
    shared: set[Site] = field(default_factory=set)  # calls before the processes were started
    keyed: list[tuple[RankValue, Site]] = field(
        default_factory=list
    )  # dicts with an entry under what this rank's samples say
    cut: list[RankValue] = field(default_factory=list)  # of which `[:end]` was taken
    parted: list[tuple[int, RankValue]] = field(default_factory=list)  # by the rank, and when
    asked: list[tuple[RankValue, int, Site]] = field(
        default_factory=list
    )  # conditions, by which ranks and where; so is which element of a list is taken
    dealt: list[tuple[RankValue, Site]] = field(default_factory=list)  # `[0] % processes` at `[1]`
    loops: list[RankLoop] = field(default_factory=list)
    comprehended: list[RankLoop] = field(default_factory=list)  # `[f(x) for x in over]`, read once
    modules: dict[str, Module] = field(default_factory=dict)
    project: Modules | None = None  # all files of the project, those of other programs too
    mismatches: list[Mismatch] = field(default_factory=list)
    distributed: bool = False  # it opens a session, wraps a model, or enters a collective
    assumed: bool = False  # it is read as distributed whatever it says of itself
    hook: bool = False  # it begins with what a framework calls, on all ranks
    session: RankCall | None = None  # what opens the process group
    joined: bool = True  # something opens one, or all of the project leaves that to others
    opened: bool = False  # something may have opened one, be it in code that is not read
    frameworks: frozenset[str] = frozenset()  # "accelerate", "lightning", "fabric", "deepspeed" …
    quiet: bool = False  # print was replaced: only one rank prints
    complete: bool = True  # nothing was left out for its size
    stopped: Site | None = None  # where the rest was left out
    missed: tuple[str, ...] = ()  # functions of the same file that were not come to
    kept: dict[Any, Any] = field(default_factory=dict)  # what `once` has read
    entered: frozenset[Place] = frozenset()  # the functions of the project that it came to
    fed: list[Fed] = field(default_factory=list)  # what Lightning's Trainer takes batches from
    blind: list[RankCall] = field(default_factory=list)  # fits of modules that are not followed
    stepped: list[tuple[FunctionDefinition, RankValue]] = field(
        default_factory=list
    )  # their losses

    def is_ours(self, path: str) -> bool:
        """Whether a file is a copy of the helpers."""
        module = self.modules.get(path)
        return module is not None and module.ours

    @property
    def helpers(self) -> str:
        """The module of the helpers that open the process group; "" if ddpify did not migrate it.

        Its contract holds where it did: rank 0 alone prints, and numbers are those of all ranks.
        """
        module = self.session.module if self.session is not None else None
        if module is None or not module.ours:
            return ""
        return module.name if module.source.text.startswith(HEADER_PREFIX) else INSTALLED

    @property
    def tested(self) -> bool:
        """Whether it begins with a function of a test: pytest runs it in one process."""
        return not self.script and is_test(self.start)

    @cached_property
    def openings(self) -> tuple[RankCall, ...]:
        """The calls that open the process group, each in a start or an arm of its own."""
        session = () if self.session is None else (self.session,)
        return tuple(dict.fromkeys((*session, *self.named(f"{words.DIST}init_process_group"))))

    @cached_property
    def opener(self) -> RankCall | None:
        """The call that begins the session: a process group's, or a framework's."""
        return self.session or next(filter(_begins, self.calls), None)

    @property
    def unopened(self) -> RankCall | None:
        """What a migrated script, which calls the helpers itself, does too early: it wraps a model
        without a process group, or enters a collective before there is one.

        Under torchrun it fails there. Where only what a script imports was migrated, it is meant
        for one process.
        """
        ours = (call.target is not None and call.target.module.ours for call in self._own_calls)
        if not self.script or not any(ours):
            return None
        if self.session is None:
            return next((call for call in self.named(words.DDP) if call.module.ours), None)
        before = (c for c in self.calls if c.module.ours and c.order < self.session.order)
        return next((c for c in before if c.method in words.COLLECTIVE_OPS), None)

    @property
    def _own_calls(self) -> Iterator[RankCall]:
        return (call for call in self.calls if call.module.path == self.start)

    def once(self, read: Callable[[Run], T]) -> T:
        """What ``read`` gives for this run, kept for the next rule that asks."""
        if read not in self.kept:
            self.kept[read] = read(self)
        found: T = self.kept[read]
        return found

    @cached_property
    def backwards(self) -> tuple[RankCall, ...]:
        """The calls that compute gradients, in order."""
        return tuple(backwards(self.calls))

    @cached_property
    def training_loops(self) -> frozenset[ast.AST]:
        """The loops around a ``backward()``, those of its callers included."""
        return training_loops(self.calls)

    @cached_property
    def step_loops(self) -> frozenset[ast.AST]:
        """Those of them whose rounds are steps, no epochs."""
        return step_loops(self.calls)

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """The loops over batches that train: every loader that is trained on, with its loop."""
        return passes(self.backwards)

    def in_every_round(self, call: RankCall, loop: RankLoop) -> bool:
        """Whether each round of a loop comes to a call of it: neither a condition in the loop nor
        a way out of the round stands before it.

        ``for i, batch in enumerate(loader): if i % 100: continue; free()`` does not.
        """
        if loop not in call.loops or call.conditions_in(loop):
            return False
        way = call.way_from(loop)
        return not any(
            (one.kind == "continue" and one.loops[-1:] == (loop,))
            or (one.kind == "return" and loop in one.loops and one.function in way)
            for one in self.exits
            if one.order < call.order
        )

    @cached_property
    def exits_of(self) -> dict[FunctionDefinition | None, list[Exit]]:
        """The exits by the function that they stand in."""
        found: dict[FunctionDefinition | None, list[Exit]] = {}
        for one in self.exits:
            found.setdefault(one.function, []).append(one)
        return found

    def named(self, *names: str) -> Iterator[RankCall]:
        """Calls of these qualified names, in order."""
        return _in_order(self._by_name, names)

    def methods(self, *names: str) -> Iterator[RankCall]:
        """Calls of methods with these (last) names, of whatever receiver, in order."""
        return _in_order(self._by_method, names)

    @cached_property
    def _by_name(self) -> dict[str, list[RankCall]]:
        found: dict[str, list[RankCall]] = {}
        for call in self.calls:
            found.setdefault(call.name, []).append(call)
        return found

    @cached_property
    def _by_method(self) -> dict[str, list[RankCall]]:
        found: dict[str, list[RankCall]] = {}
        for call in self.calls:
            if call.receiver is not None:
                found.setdefault(call.method, []).append(call)
        return found


_BEGINNING: Final = (*words.STARTERS, words.HF_TRAINER)


def _begins(call: RankCall) -> bool:
    """Whether it calls a framework, or makes what is a Trainer of the project's own."""
    made = (one for one in call.result.things if one.call is call) if call.result else ()
    own = (thing.cls for thing in made if thing.cls is not None)
    return call.name in _BEGINNING or any(cls.inherits(*_BEGINNING) for cls in own)


def _in_order(index: dict[str, list[RankCall]], names: tuple[str, ...]) -> Iterator[RankCall]:
    held = [index[name] for name in dict.fromkeys(names) if name in index]
    if len(held) == 1:
        return iter(held[0])
    return iter(sorted((call for calls in held for call in calls), key=lambda call: call.order))
