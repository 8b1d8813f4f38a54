"""What a program in Lightning's Trainer does with a module that shards would change or end.

In steps, and in what they call, weights are whole (or those of blocks are, while a block computes);
everywhere else they are this rank's shards. What is looked for has the names that torch and
Lightning give it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.facts.values import Kind, Thing
from ddpify.rules.frameworks.lightning_shards import HOOK, STEPS, ShardedModule, calls_of
from ddpify.source import Site

_NUMBERS: Final = "BatchNorm keeps the numbers of a rank's samples, which nothing joins here"
_AVERAGES: Final = "averages of weights would be made of shards"
_TRIED: Final = "it trains, saves and loads the module once more before training: leave it out"
_STEPPED: Final = "this optimizer does not step entry by entry: shards would train otherwise"
_SHOWN: Final = "it looks at weights, of which each rank has a part"
_THAWED: Final = "which weights are trained has to be settled before they are sharded"
NAMES: Final = {
    **dict.fromkeys("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm".split(), _NUMBERS),
    **dict.fromkeys(
        "StochasticWeightAveraging WeightAveraging EMAWeightAveraging AveragedModel".split(),
        _AVERAGES,
    ),
    **dict.fromkeys("Tuner LearningRateFinder BatchSizeFinder".split(), _TRIED),
    **dict.fromkeys("Muon Adafactor Rprop LBFGS".split(), _STEPPED),
    **dict.fromkeys("BaseFinetuning BackboneFinetuning".split(), _THAWED),
    **dict.fromkeys("add_graph grad_norm watch".split(), _SHOWN),
}
_CALLS: Final = {
    "predict": "predict deals unequal numbers of batches: ranks would wait for each other",
    "compile": "torch.compile was not tried on modules that Lightning shards",
    "deepcopy": "a module that is sharded cannot be copied",
    "freeze": _THAWED,
    "unfreeze": _THAWED,
}
_WEIGHTS: Final = frozenset({"weight", "bias", "grad", "parameters", "named_parameters"})
_COUNTED: Final = frozenset({"numel", "requires_grad"})
_STATE: Final = "state_dict() is this rank's shards: write trainer.save_checkpoint(path) instead"
_OUTSIDE: Final = "outside of a step each rank has a part of each weight, not the weight"
_MANUAL: Final = "automatic_optimization"
_DRAWN: Final = "example_input_array"


def uses(module: ShardedModule) -> Iterator[tuple[Site, str]]:
    """The places, and what is wrong there."""
    own = module.methods.get(HOOK)
    sharding = set(ast.walk(own)) if own is not None else set[ast.AST]()
    for tree in module.facts.trees.values():
        for node in tree.nodes():
            if node not in sharding and (why := _named(node)):
                yield tree.site(node), why
    yield from _outside(module)
    yield from _unread(module.facts, module.thing, ())


def _named(node: ast.AST) -> str:
    """Why something with this name is refused; empty if it is not."""
    if isinstance(node, ast.ClassDef):
        return next((NAMES[name] for name in map(_last, node.bases) if name in NAMES), "")
    if isinstance(node, ast.Call):
        return _of_call(node)
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    if stored and _last(node) in (_MANUAL, _DRAWN):
        return f"{_last(node)} was not tried on shards"
    return ""


def _of_call(node: ast.Call) -> str:
    name = _last(node.func)
    if name == "SGD" and not any(one.arg == "momentum" for one in node.keywords):
        return "Lightning 2.6.6 cannot load a checkpoint of SGD without momentum into shards"
    if name == "state_dict":
        return "" if _last(getattr(node.func, "value", node)) == "super" else _STATE
    return NAMES.get(name) or _CALLS.get(name, "")


def _outside(module: ShardedModule) -> Iterator[tuple[Site, str]]:
    """Weights, and layers, that are asked for where they are shards."""
    inside = module.reached(*STEPS, "forward")
    spared = inside | module.reached("__init__", "configure_optimizers", HOOK)
    whole = {method for name, method in module.methods.items() if name in spared}
    for tree in module.facts.trees.values():
        for method in (n for n in tree.nodes() if isinstance(n, ast.FunctionDef)):
            own = method in module.methods.values()
            if method in whole or not (own or _is_hook(tree, method) or _fits(method)):
                continue
            for node in ast.walk(method):
                if (own and _computes(module, node)) or _looks(tree, node):
                    yield tree.site(node), _OUTSIDE


def _is_hook(tree: Tree, method: ast.FunctionDef) -> bool:
    """A method of a Callback."""
    around = tree.parent(method)
    return isinstance(around, ast.ClassDef) and any(
        _last(base).endswith("Callback") for base in around.bases
    )


def _fits(function: ast.FunctionDef) -> bool:
    return any(name == "fit" for _, name in calls_of(function))


def _computes(module: ShardedModule, node: ast.AST) -> bool:
    """``self(x)``, ``self.net(x)``, ``self.net.encode(x)``."""
    if not isinstance(node, ast.Call):
        return False
    text = ast.unparse(node.func)
    layers = (f"self.{name}" for name in module.models)
    return text == "self" or any(f"{text}.".startswith(f"{one}.") for one in layers)


def _looks(tree: Tree, node: ast.AST) -> bool:
    """Whether weights are read here, for more than to count them."""
    if not isinstance(node, ast.Attribute) or node.attr not in _WEIGHTS:
        return False
    if not isinstance(node.ctx, ast.Load):
        return False
    statement = next((n for n in tree.ancestors(node) if isinstance(n, ast.stmt)), node)
    return _COUNTED.isdisjoint(map(_last, ast.walk(statement)))


def _unread(facts: Facts, thing: Thing, around: tuple[Thing, ...]) -> Iterator[tuple[Site, str]]:
    """Models of libraries, in which there may be anything of the above."""
    for value in thing.attrs.values():
        for part in value.of(Kind.MODEL):
            library = part.ref is None and not part.name.startswith("torch.nn.")
            if library and part.born.path in facts.trees:
                yield part.born, "what is in this model of a library is not read: BatchNorm, too?"
            elif part not in around:
                yield from _unread(facts, part, (*around, thing))


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last(node.func)
    return getattr(node, "attr", getattr(node, "id", ""))
