"""What can be divided of a batch: tensors, which a pass makes anew, with an axis of samples."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpify.facts import roles
from ddpify.facts.bodies import (
    CutBody,
    assigned,
    is_taken_apart,
    merges_axes,
    stored,
    takes_or_shapes,
)
from ddpify.facts.model import TrainingLoop
from ddpify.facts.protocol import Machine
from ddpify.facts.tree import Tree
from ddpify.facts.unread import is_bound_nowhere
from ddpify.facts.values import NOTHING, Kind
from ddpify.python import words

# What is no tensor, however it is used.
NUMBERS = frozenset(
    """builtins.len builtins.int builtins.float builtins.str builtins.bool builtins.range
    random.random random.randint random.uniform random.gauss .size .item""".split()
)


@dataclass(frozen=True)
class BatchNames:
    """The names that a pass of a training loop binds before its model is called."""

    m: Machine
    training: TrainingLoop
    flat: bool = False  # whether they may be flattened, as what they are taken from is not

    @property
    def tree(self) -> Tree:
        return self.m.tree(self.training.batch.site.path)

    def why_not(self, name: str, node: ast.For | ast.While, split: CutBody) -> str | None:
        """Why a name cannot be divided, "" where it need not be, None where it can."""
        if self._numbers_passes(name, node, split) or self._is_number(name, split):
            indexing = takes_or_shapes(split.rest, name)
            return f"`{name}` is used after the model is called to take samples" if indexing else ""
        held = self.training.batch.frame.lookup(name) or NOTHING
        several = held.of(Kind.TUPLE, Kind.DICT)
        if several or is_taken_apart(split.rest, name) or self._is_display(name, split):
            return f"`{name}` is no tensor but holds several: unpack it before the model is called"
        makers = tuple(self._makers(name, node, split))
        if any(self._is_sample(part, node, split) for part in makers):
            return f"`{name}` is of one sample of a data set, no batch: let a DataLoader make them"
        if any(self._draws(part) for part in makers):
            return f"`{name}` is drawn by each rank"
        if self.tree.read_after(node, name):
            return f"`{name}` is read after the loop, whole"
        if not self.flat and any(merges_axes(part) for part in makers):
            return f"`{name}` has no axis of samples: it is flattened before the model is called"
        return None

    def _makers(self, name: str, node: ast.For | ast.While, split: CutBody) -> Iterator[ast.AST]:
        """The expressions that make a tensor, and the functions that they call."""
        made = [value for names, value in assigned(split.made_by) if name in names]
        made += [node.iter] if isinstance(node, ast.For) and name in split.targets else []
        yield from made
        sites = {self.tree.site(n) for v in made for n in ast.walk(v) if isinstance(n, ast.Call)}
        for call in roles.calls_of(self.m):
            if call.site in sites and call.target is not None:
                yield call.target.node

    def _is_sample(self, made: ast.AST, node: ast.For | ast.While, split: CutBody) -> bool:
        """``dataset[order[i]]``: an entry of a data set, taken by the number of the pass."""
        if not isinstance(made, ast.Subscript):
            return False
        owner = self.m.values.get(self.tree.site(made.value), NOTHING)
        index = made.slice.slice if isinstance(made.slice, ast.Subscript) else made.slice
        if not owner.of(Kind.DATASET) or not isinstance(index, ast.Name):
            return False
        return index.id in split.targets and self._numbers_passes(index.id, node, split)

    def _numbers_passes(self, name: str, node: ast.For | ast.While, split: CutBody) -> bool:
        """``for i in range(…)``, ``for i, batch in enumerate(…)``."""
        if not isinstance(node, ast.For) or name in stored(split.made_by):
            return False
        if isinstance(node.target, ast.Name):
            return node.target.id == name and roles.counts(self.training.batch)
        first = node.target.elts[0] if isinstance(node.target, ast.Tuple) else None
        value = self.training.batch.frame.lookup(name) or NOTHING
        numbered = any(t.name == "enumerate" for t in value.of(Kind.INDEX))
        return isinstance(first, ast.Name) and first.id == name and numbered

    def _is_number(self, name: str, split: CutBody) -> bool:
        values = [value for names, value in assigned(split.made_by) if name in names]
        return bool(values) and all(self._gives_number(value) for value in values)

    def _is_display(self, name: str, split: CutBody) -> bool:
        displays = (ast.Tuple, ast.List, ast.Dict, ast.ListComp, ast.DictComp)
        alone = [value for names, value in assigned(split.made_by) if names == {name}]
        return any(isinstance(value, displays) for value in alone)

    def _gives_number(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.Constant) or ast.unparse(node) in ("[]", "{}")
        return self.called(node) in NUMBERS | words.CLOCKS

    def called(self, node: ast.Call) -> str:
        """The qualified name of what is called, ``""`` where nothing is known under the name."""
        site = self.tree.site(node)
        return next((c.name for c in roles.calls_of(self.m) if c.site == site), "")

    def raises(self, node: ast.Call) -> bool:
        """Whether what is called is bound nowhere: nothing comes of it."""
        site = self.tree.site(node)
        return any(is_bound_nowhere(c) for c in roles.calls_of(self.m) if c.site == site)

    def _draws(self, node: ast.AST) -> bool:
        site = self.tree.site(node) if isinstance(node, ast.Call) else None
        calls = roles.calls_of(self.m)
        drawn = tuple(start for start, library in words.DRAWS if library == words.NUMPY)
        return site is not None and any(c.site == site and c.name.startswith(drawn) for c in calls)
