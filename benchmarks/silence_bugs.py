"""Ten classic bugs of distributed training, planted into any script by its syntax tree.

The places are found by form: the innermost loop that comes to a backward (in itself or in what it
calls), the name that is wrapped, the script's own test of who is rank 0 where that function has
one. A bug that has no place in a script is not planted (None).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Texts = Mapping[str, str]

_WRAPPERS = frozenset(
    "DistributedDataParallel DDP NativeDDP FullyShardedDataParallel FSDP smart_DDP".split()
)
_RANK_ZERO = frozenset(
    "is_main_process is_primary is_master is_first_rank is_rank_zero is_main master_process".split()
)
_REDUCTIONS = frozenset(
    "all_reduce reduce_tensor reduce_mean all_reduce_mean synchronize_between_processes"
    " reduce_loss_dict all_gather_object".split()
)
_BLOCKS = ("body", "orelse", "finalbody")


@dataclass
class Scene:
    """The trees of a script, to be changed, and where in them the training is."""

    trees: dict[str, ast.Module]

    @classmethod
    def of(cls, texts: Texts) -> Scene:
        return cls({name: _with_imports(ast.parse(text)) for name, text in texts.items()})

    def texts(self) -> dict[str, str]:
        """The files as they are now."""
        return {
            name: ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            for name, tree in self.trees.items()
        }

    def functions(self) -> Iterator[ast.AST]:
        """Innermost ones first, then the files' own statements."""
        for tree in self.trees.values():
            yield from reversed([n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)])
        yield from self.trees.values()

    def step(self) -> Step | None:
        """The loop of the training, and the statement with the backward."""
        steps: dict[str, ast.AST] = {}
        for _ in range(3):
            for function in self.functions():
                if loop := _loop(function, frozenset(steps)):
                    return Step(self, function, *loop, steps)
                if _is_step(function, frozenset(steps)):
                    steps.setdefault(function.name, function)
        return None

    def wrapped(self) -> tuple[list[ast.stmt], int, str] | None:
        """The block and the place of the statement that wraps, and the name of the wrapper."""
        for tree in self.trees.values():
            for block in _blocks(tree):
                for number, statement in enumerate(block):
                    if isinstance(statement, ast.Assign) and _wraps(statement.value):
                        return block, number, ast.unparse(statement.targets[0])
        return None


@dataclass
class Step:
    """One step of a training."""

    scene: Scene
    function: ast.AST
    loop: ast.For | ast.While
    statement: ast.stmt  # in the loop: the backward, or the call that comes to it
    steps: dict[str, ast.AST]

    def backward(self) -> tuple[list[ast.stmt], int, ast.Call, bool] | None:
        """The block and the place of the backward itself, its call, and if it is in the loop."""
        for home in (self.loop, *self.steps.values()):
            for block in _blocks(home):
                for number, statement in enumerate(block):
                    calls = [c for c in _own_calls(statement) if _is_backward(c)]
                    if calls:
                        return block, number, calls[0], _goes_on(home, statement)
        return None

    def after_loop(self) -> tuple[list[ast.stmt], int]:
        """The place behind the loop."""
        for block in _blocks(self.function):
            if self.loop in block:
                return block, block.index(self.loop) + 1
        raise AssertionError("the loop is in its function")

    def gate(self) -> str:
        """How this function asks for rank 0."""
        for node in ast.walk(self.function):
            if isinstance(node, ast.If) and _asks_for_zero(node.test):
                return ast.unparse(node.test)
        return "torch.distributed.get_rank() == 0"

    def loss(self) -> str | None:
        """The loss whose backward it is, if it has a name."""
        found = self.backward()
        if found is None:
            return None
        call = found[2]
        parts = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        for part in (*call.args, *parts):
            for node in ast.walk(part):
                if isinstance(node, ast.Name) and "loss" in node.id and "scal" not in node.id:
                    return node.id
        return None


def _save(scene: Scene) -> bool:
    step, wrapped = scene.step(), scene.wrapped()
    name = step and (_model_in(step, wrapped and wrapped[2]) or (wrapped and wrapped[2]))
    if step is None or name not in map(ast.unparse, _expressions(step.function)):
        return False
    block, place = step.after_loop()
    block[place:place] = _code(f"torch.save({name}.state_dict(), 'planted.pt')")
    return True


def _set_epoch(scene: Scene) -> bool:
    return _each_call(scene, "set_epoch", lambda call: ast.Constant(None))


def _collective(scene: Scene) -> bool:
    if (step := scene.step()) is None:
        return False
    _behind(step, f"if {step.gate()}:\n    torch.distributed.barrier()")
    return True


def _leave(scene: Scene) -> bool:
    if (step := scene.step()) is None:
        return False
    _behind(step, f"if {step.gate()}:\n    break")
    return True


def _skip(scene: Scene) -> bool:
    step = scene.step()
    found, loss = step and step.backward(), step and step.loss()
    if not found or not loss:
        return False
    block, place, _, in_loop = found
    block[place:place] = _code(
        f"if {loss}.item() > 100.0:\n    {'continue' if in_loop else 'return'}"
    )
    return True


def _seed(scene: Scene) -> bool:
    def seeded(call: ast.Call) -> ast.Call:
        call.keywords = [k for k in call.keywords if k.arg != "seed"]
        call.keywords.append(ast.keyword("seed", _expression("torch.distributed.get_rank()")))
        return call

    return _each_call(scene, "DistributedSampler", seeded)


def _metric(scene: Scene) -> bool:
    step = scene.step()
    homes = [step.function, *step.steps.values()] if step else []
    of_training = {id(node) for home in homes for node in ast.walk(home)}

    def own(call: ast.Call) -> ast.expr | None:
        if id(call) in of_training:
            return None
        return call.args[0] if call.args else ast.Constant(None)

    return any([_each_call(scene, name, own) for name in sorted(_REDUCTIONS)])


def _bypass(scene: Scene) -> bool:
    step, wrapped = scene.step(), scene.wrapped()
    name = step and _model_in(step, wrapped and wrapped[2])
    if step is None or wrapped is None or not name:
        return False
    for home in (step.loop, *step.steps.values()):
        for node in ast.walk(home):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                node.func = ast.Attribute(node.func, "module", ast.Load())
                return True
    return False


def _replace(scene: Scene) -> bool:
    if (wrapped := scene.wrapped()) is None:
        return False
    block, place, name = wrapped
    block[place + 1 : place + 1] = _code(f"{name}.module.head = torch.nn.Linear(16, 16).cuda()")
    return True


def _no_sampler(scene: Scene) -> bool:
    for tree in scene.trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and "DataLoader" in _called(node):
                kept = [k for k in node.keywords if k.arg not in ("sampler", "batch_sampler")]
                if len(kept) < len(node.keywords):
                    node.keywords = kept
                    return True
    return False


# What is planted, and the rules that would name it.
BUGS: dict[str, tuple[Callable[[Scene], bool], frozenset[str]]] = {
    "save": (_save, frozenset({"DDP601", "DDP904"})),
    "epoch": (_set_epoch, frozenset({"DDP201"})),
    "collective": (_collective, frozenset({"DDP801"})),
    "leave": (_leave, frozenset({"DDP802"})),
    "skip": (_skip, frozenset({"DDP404", "DDP802", "DDP803"})),
    "seed": (_seed, frozenset({"DDP215"})),
    "metric": (_metric, frozenset({"DDP701", "DDP702", "DDP703", "DDP704", "DDP707", "DDP803"})),
    "bypass": (_bypass, frozenset({"DDP403", "DDP901"})),
    "replace": (_replace, frozenset({"DDP306", "DDP309", "DDP312", "DDP316"})),
    "sampler": (_no_sampler, frozenset({"DDP202"})),
}


def planted(texts: Texts, bug: str) -> dict[str, str] | None:
    """The files with a bug, or None where it has no place."""
    scene = Scene.of(texts)
    return scene.texts() if BUGS[bug][0](scene) else None


def _loop(function: ast.AST, steps: frozenset[str]) -> tuple[ast.For | ast.While, ast.stmt] | None:
    loops = [n for n in _own(function) if isinstance(n, ast.For | ast.While)]
    for loop in reversed(loops):  # an inner one comes behind the one around it
        for statement in loop.body:
            if any(_is_backward(c) or _called(c) in steps for c in _calls(statement)):
                return loop, statement
    return None


def _is_step(function: ast.AST, steps: frozenset[str]) -> bool:
    return isinstance(function, ast.FunctionDef) and any(
        _is_backward(call) or _called(call) in steps for call in _calls(function)
    )


def _is_backward(call: ast.Call) -> bool:
    """loss.backward(), or what scales a loss and steps: scaler(loss, optimizer, …)."""
    if _called(call) == "backward":
        return True
    given = [ast.unparse(argument) for argument in call.args[:2]]
    return len(given) == 2 and given[0].endswith("loss") and "optim" in given[1]


def _asks_for_zero(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        return any(map(_asks_for_zero, test.values))
    if isinstance(test, ast.Compare):
        asked = ast.unparse(test.left).lower()
        zero = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 0
        return "rank" in asked and isinstance(test.ops[0], ast.Eq) and zero
    name = _called(test) if isinstance(test, ast.Call) else getattr(test, "attr", "")
    return (name or getattr(test, "id", "")) in _RANK_ZERO


def _model_in(step: Step, wrapper: str | None) -> str | None:
    """How the step spells the model that it calls."""
    last = (wrapper or "model").rpartition(".")[2]
    homes = (step.loop, *step.steps.values())
    calls = [c for home in homes for c in _calls(home)]
    names = [ast.unparse(call.func) for call in calls]
    for name in names:
        if name.rpartition(".")[2] in {last, "model"}:
            return name
    return None


def _wraps(value: ast.expr) -> bool:
    return any(_called(call) in _WRAPPERS for call in _calls(value))


def _behind(step: Step, text: str) -> None:
    place = step.loop.body.index(step.statement) + 1
    step.loop.body[place:place] = _code(text)


def _each_call(scene: Scene, name: str, change: Callable[[ast.Call], ast.expr | None]) -> bool:
    """Put other expressions for all calls of a name."""
    changer = _Changer(name, change)
    for tree in scene.trees.values():
        changer.visit(tree)
    return changer.done


class _Changer(ast.NodeTransformer):
    def __init__(self, name: str, change: Callable[[ast.Call], ast.expr | None]) -> None:
        self.name, self.change, self.done = name, change, False

    def visit_Call(self, call: ast.Call) -> Any:
        self.generic_visit(call)
        if _called(call) != self.name:
            return call
        changed = self.change(call)
        self.done |= changed is not None
        return changed or call


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _calls(node: ast.AST) -> list[ast.Call]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Call)]


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function (or file) and in no function of it, in the order of the text."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own(child)


def _goes_on(home: ast.AST, statement: ast.stmt) -> bool:
    """Whether a `continue` is possible in front of a statement: no function is in between."""
    return isinstance(home, ast.For | ast.While) and any(n is statement for n in _own(home))


def _expressions(node: ast.AST) -> list[ast.AST]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)]


def _own_calls(statement: ast.stmt) -> list[ast.Call]:
    """The calls of a statement, without those of statements in it."""
    inner = {id(n) for block in _blocks(statement) for s in block for n in ast.walk(s)}
    return [call for call in _calls(statement) if id(call) not in inner]


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for one in ast.walk(node):
        for name in _BLOCKS:
            block = getattr(one, name, None)
            if isinstance(block, list):
                yield block


def _code(text: str) -> list[ast.stmt]:
    return copy.deepcopy(ast.parse(text).body)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _with_imports(tree: ast.Module) -> ast.Module:
    """What is planted says torch.distributed; so does the script it is compared with."""
    places = [
        number
        for number, statement in enumerate(tree.body)
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    ]
    place = places[-1] + 1 if places else 0
    tree.body[place:place] = _code("import torch\nimport torch.distributed")
    return tree
