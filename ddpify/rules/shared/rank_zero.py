"""What every process of a Lightning program does: the same, on global rank 0 alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.marks_left import changes, leaves_marks
from ddpify.facts.tree import Tree
from ddpify.ranks.collective import collective
from ddpify.ranks.hooks import CALLBACKS, TRAINER
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.modules import FunctionDefinition, Module
from ddpify.ranks.origins import CLOCK, RANDOM
from ddpify.ranks.run import Run
from ddpify.ranks.words import COLLECTIVE_CALLS, COLLECTIVE_METHODS, DRAWS
from ddpify.rules.base import Edit, How, Import
from ddpify.site import Site

_MODULE: Final = "lightning.pytorch.LightningModule"
_DATA_MODULE: Final = "lightning.pytorch.LightningDataModule"
# Methods at which ranks meet whatever they are called on, or that train or draw.
_MEETS: Final = frozenset(
    """all_gather all_reduce backward barrier broadcast compute fit forward gather iter log
    log_dict manual_backward next predict reduce save_checkpoint step sync test training_step
    validate validation_step""".split()
)
# Methods of a module that only look; what else it has may be a layer.
LOOKS: Final = frozenset(
    """buffers children extra_repr lr_schedulers modules named_buffers named_children named_modules
    named_parameters optimizers parameters state_dict""".split()
)
_LEAVES: Final = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await)
_BINDS: Final = (ast.Global, ast.Nonlocal, ast.NamedExpr, ast.Raise, ast.Delete)


def of_trainer(run: Run) -> bool:
    """Whether Lightning's Trainer starts the processes of a run."""
    return next(run.named(TRAINER), None) is not None


def in_hook(call: RankCall) -> bool:
    """Whether a Trainer leads to a call: it calls the hooks of what it is given."""
    return any(one.name.startswith(f"{TRAINER}.") for one in call.stack)


def named_apart(run: Run, path: RankValue | None) -> bool:
    """Whether a path is each process's own by a clock or a draw, in a program that is migrated.

    Once rank 0 alone uses it, the name is the one of rank 0.
    """
    if path is None or not run.assumed or not of_trainer(run) or path.by_rank:
        return False
    return path.has(CLOCK) or path.has(RANDOM)


def on_rank_zero(run: Run, call: RankCall) -> tuple[Edit, ...]:
    """The edit that has the statement of a call run on global rank 0 only.

    None where others would miss what else the statement does, or where ranks meet in it.
    """
    if not of_trainer(run):
        return ()
    tree = _tree(run, call.module)
    node = tree.statement(call.site)
    if node is None or not _is_output(node, call, tree):
        return ()
    if any(_needs_all(run, one) for one in _calls_within(run, call.module, tree.site(node))):
        return ()
    code, imports = _test(run, call)
    return (Edit(How.GATE, tree.site(node), code, imports=imports),)


def waits(run: Run, call: RankCall) -> tuple[str, ...]:
    """What has all ranks wait where a call is made; nothing where no Trainer can be asked to."""
    if not of_trainer(run):
        return ("barrier()",)
    function, ways = call.function, [one for one in run.calls if one.node is call.node]
    owner = function.owner if function is not None else None
    if function is None or owner is None or not all(map(in_hook, ways)):
        return ()
    known = owner.inherits(_MODULE, _DATA_MODULE)
    return (f"{function.parameters[0]}.trainer.strategy.barrier()",) if known else ()


def _trees(run: Run) -> dict[str, Tree]:
    return {}


def _tree(run: Run, module: Module) -> Tree:
    """The syntax of a file with parents, made once for a run."""
    made = run.once(_trees)
    if module.path not in made:
        made[module.path] = Tree(module.source)
    return made[module.path]


def _is_output(node: ast.stmt, call: RankCall, tree: Tree) -> bool:
    """Whether a statement is a call, or a ``with open(…)`` block, that leaves nothing behind."""
    if not isinstance(node, (ast.Expr, ast.With)):
        return False
    inner = list(ast.walk(node))
    if any(isinstance(one, (*_LEAVES, *_BINDS)) for one in inner):
        return False
    bound = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if any(changes(one, bound) for one in inner):
        return False
    if isinstance(node, ast.With) and not _opens(node, call):
        return False
    return not any(_is_read_later(tree, node, name) for name in bound)


def _is_read_later(tree: Tree, node: ast.stmt, name: str) -> bool:
    """Whether a name is read behind a statement, but for blocks that open what they call so."""
    if not tree.read_after(node, name):
        return False
    end = tree.site(node).span
    limit = (end.end_line, end.end_column)
    reads = (r for r in tree.reads(tree.function(node), name) if isinstance(r, ast.Name))
    later = (r for r in reads if (r.lineno, r.col_offset) >= limit)
    return not all(any(_names(above, name) for above in tree.ancestors(r)) for r in later)


def _names(block: ast.AST, name: str) -> bool:
    """Whether a ``with`` block gives the name a value."""
    items = block.items if isinstance(block, ast.With) else ()
    return any(isinstance(i.optional_vars, ast.Name) and i.optional_vars.id == name for i in items)


def _opens(node: ast.With, call: RankCall) -> bool:
    """Whether the call is what the block opens, and all that it opens."""
    return len(node.items) == 1 and any(
        isinstance(one, ast.Call) and one.lineno == call.node.lineno
        for one in ast.walk(node.items[0].context_expr)
    )


def _calls_within(run: Run, module: Module, place: Site) -> Iterator[RankCall]:
    """The calls that a statement makes or leads to."""
    for call in run.calls:
        if any(one.module is module and one.site.within(place) for one in call.way):
            yield call


def _needs_all(run: Run, call: RankCall) -> bool:
    """Whether ranks meet in a call, or it changes what they go on with."""
    if collective(call) is not None or call.name in COLLECTIVE_CALLS:
        return True
    if call.method in _MEETS or call.method in COLLECTIVE_METHODS:
        return True
    if any(call.name.startswith(prefix) for prefix, _ in DRAWS):
        return True
    if call.target is None:
        layer = call.name.startswith(f"{_MODULE}.") and call.method not in LOOKS
        return layer or call.name.endswith(".__call__")
    return _leaves_marks(run, call.target)


def _leaves_marks(run: Run, function: FunctionDefinition) -> bool:
    """Whether a function, or one that it may call by its name, changes what is not its own.

    Functions that say nothing of training are not entered: their calls are told by their texts.
    """
    todo, seen = [function], {function.place}
    while todo:
        one = todo.pop()
        if leaves_marks(one.node, (_tree(run, one.module),)):
            return True
        found = [f for name in one.called() for f in run.once(_functions).get(name, ())]
        todo += [f for f in found if f.place not in seen]
        seen |= {f.place for f in found}
    return False


def _functions(run: Run) -> dict[str, list[FunctionDefinition]]:
    """The functions and methods of the program, by name."""
    found: dict[str, list[FunctionDefinition]] = {}
    for module in run.modules.values():
        methods = (m for cls in module.classes.values() for m in cls.methods.values())
        for one in (*module.functions.values(), *methods):
            found.setdefault(one.name, []).append(one)
    return found


def _test(run: Run, call: RankCall) -> tuple[str, tuple[Import, ...]]:
    """The question for global rank 0, as it may be asked wherever the call is reached from."""
    ways = [one for one in run.calls if one.node is call.node]
    function = call.function
    called = all(one.stack and one.stack[-1].name.startswith(f"{TRAINER}.") for one in ways)
    owner = function.owner if function is not None else None
    if called and function is not None and owner is not None:
        names = function.parameters
        if owner.inherits(_MODULE):
            return f"{names[0]}.trainer.is_global_zero", ()
        if owner.inherits(*CALLBACKS) and len(names) > 1:
            return f"{names[1]}.is_global_zero", ()
    return "rank_zero_only.rank == 0", (Import(f"{package(run)}.utilities", "rank_zero_only"),)


def package(run: Run) -> str:
    """The name under which the program knows Lightning."""
    texts = (module.source.text for module in run.modules.values())
    old = any("pytorch_lightning" in text for text in texts)
    return "pytorch_lightning" if old else "lightning.pytorch"
