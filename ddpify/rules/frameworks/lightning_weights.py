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
from ddpify.facts.tree import Tree, last_name
from ddpify.facts.values import Kind, Thing
from ddpify.rules.frameworks.lightning_shards import HOOK, STEPS, ShardedModule
from ddpify.rules.shared.shards import BY_ENTRY
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
_GROUPED: Final = (
    "Lightning 2.6.6 goes on with a checkpoint of one device in shards by the module's order of"
    " weights, not by these groups: a weight may have another one's moments. One that shards have"
    " written is right: accept it if there are no others"
)
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
    yield from _regrouped(module)
    yield from _unread(module.facts, module.thing, ())


def _named(node: ast.AST) -> str:
    """Why something with this name is refused; empty if it is not."""
    if isinstance(node, ast.ClassDef):
        return next((NAMES[name] for name in map(last_name, node.bases) if name in NAMES), "")
    if isinstance(node, ast.Call):
        return _of_call(node)
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    if stored and last_name(node) in (_MANUAL, _DRAWN):
        return f"{last_name(node)} was not tried on shards"
    return ""


def _of_call(node: ast.Call) -> str:
    name = last_name(node.func)
    if name == "SGD" and not any(one.arg == "momentum" for one in node.keywords):
        return "Lightning 2.6.6 cannot load a checkpoint of SGD without momentum into shards"
    if name == "state_dict":
        return "" if ast.unparse(node.func) == "super().state_dict" else _STATE
    return NAMES.get(name) or _CALLS.get(name, "")


def _regrouped(module: ShardedModule) -> Iterator[tuple[Site, str]]:
    """Optimizers of several groups, in a program that goes on from checkpoints."""
    trees = module.facts.trees.values()
    if not any(_resumes(node) for tree in trees for node in tree.nodes()):
        return
    makes = [module.methods[name] for name in module.reached("configure_optimizers")]
    for tree in trees:
        for method in (one for one in makes if one in tree.nodes()):
            yield from ((tree.site(n), _GROUPED) for n in ast.walk(method) if _groups(n, method))


def _resumes(node: ast.AST) -> bool:
    """``trainer.fit(…, ckpt_path=…)``."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "fit":
        return False
    paths = [*node.args[4:], *(one.value for one in node.keywords if one.arg == "ckpt_path")]
    return any(not isinstance(one, ast.Constant) or one.value is not None for one in paths)


def _groups(node: ast.AST, method: ast.FunctionDef) -> bool:
    """``AdamW([{…}, {…}])``, or of a name that is bound to such a list alone."""
    if not isinstance(node, ast.Call) or f"torch.optim.{last_name(node.func)}" not in BY_ENTRY:
        return False
    named = (one.value for one in node.keywords if one.arg == "params")
    given = next(named, node.args[0] if node.args else None)
    if isinstance(given, ast.Name):
        stores = [n for n in ast.walk(method) if isinstance(n, ast.Assign)]
        bound = [n.value for n in stores if given.id in map(last_name, n.targets)]
        given = bound[0] if len(bound) == 1 else None
    listed = given.elts if isinstance(given, ast.List) else []
    return len(listed) > 1 and all(isinstance(one, ast.Dict) for one in listed)


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
        last_name(base).endswith("Callback") for base in around.bases
    )


def _fits(function: ast.FunctionDef) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(last_name(call.func) == "fit" for call in calls)


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
    return _COUNTED.isdisjoint(map(last_name, ast.walk(statement)))


def _unread(facts: Facts, thing: Thing, around: tuple[Thing, ...]) -> Iterator[tuple[Site, str]]:
    """Models of libraries, in which there may be anything of the above."""
    for value in thing.attrs.values():
        for part in value.of(Kind.MODEL):
            library = part.ref is None and not part.name.startswith("torch.nn.")
            if library and part.born.path in facts.trees:
                yield part.born, "what is in this model of a library is not read: BatchNorm, too?"
            elif part not in around:
                yield from _unread(facts, part, (*around, thing))
