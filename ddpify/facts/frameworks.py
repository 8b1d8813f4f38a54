"""Frameworks that distribute a program themselves, and what to do where one holds the loop.

What says that a program is distributed already, run or not: a dead branch counts, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.facts.tree import Tree
from ddpify.python import words
from ddpify.source import Site

LIGHTNING: Final = "Lightning"
OF_TRAINERS: Final = frozenset({LIGHTNING, "LightningCLI"})  # which make Lightning's Trainer
HUGGING_FACE: Final = "the Hugging Face Trainer"
_GIVEN: Final = 'give its Trainer `devices` and `strategy="ddp"`'
_TRAINERS: Final = (
    *("lightning.pytorch", "lightning.pytorch.trainer"),
    *("pytorch_lightning", "pytorch_lightning.trainer"),
)
# By the calls that set them up.
FRAMEWORKS: Final = {
    "accelerate.Accelerator": "Hugging Face Accelerate",
    "accelerate.PartialState": "Hugging Face Accelerate",  # joins a process group as well
    "accelerate.state.PartialState": "Hugging Face Accelerate",
    **dict.fromkeys(
        [
            f"{place}.Trainer{way}"
            for place in ("lightning", *_TRAINERS)
            for way in ("", ".from_argparse_args")  # the latter until Lightning 2
        ],
        LIGHTNING,
    ),
    "lightning.Fabric": "Lightning Fabric",
    "lightning.fabric.Fabric": "Lightning Fabric",
    "deepspeed.initialize": "DeepSpeed",
    "horovod.torch.init": "Horovod",
    "lightning.pytorch.cli.LightningCLI": "LightningCLI",
    "pytorch_lightning.cli.LightningCLI": "LightningCLI",
    "transformers.Trainer": HUGGING_FACE,
    "transformers.Seq2SeqTrainer": HUGGING_FACE,
    **dict.fromkeys(
        (f"trl.{kind}Trainer" for kind in "SFT DPO KTO ORPO CPO Reward GRPO".split()), HUGGING_FACE
    ),
    words.SPAWN: words.SPAWN,
    "torch.distributed.rpc.init_rpc": "torch.distributed.rpc",
}
# How a program that is a framework's comes to several processes.
_INSTEAD: Final = {
    "Hugging Face Accelerate": "start it with `accelerate launch`",
    LIGHTNING: _GIVEN,
    "LightningCLI": "start it with `fit --trainer.devices … --trainer.strategy ddp`",
    "Lightning Fabric": 'give Fabric `devices` and `strategy="ddp"`',
    "DeepSpeed": "start it with `deepspeed`",
    "Horovod": "start it with `horovodrun`",
    HUGGING_FACE: "start it with `torchrun`, as it is",
    "homura": "call its `init_distributed()` and start it with `torchrun`",
    "fastai": "open `learn.distrib_ctx()` around its training",
    "Ignite": "start it under `ignite.distributed.Parallel`",
    "Composer": "start it with `composer`",
    "MMEngine": "start it with its launcher",
    "Catalyst": "give its runner a distributed engine",
}
_PACKAGES: Final = {
    "lightning": LIGHTNING,
    "pytorch_lightning": LIGHTNING,
    "accelerate": "Hugging Face Accelerate",
    "transformers": HUGGING_FACE,
    "trl": HUGGING_FACE,
    "homura": "homura",
    "fastai": "fastai",
    "ignite": "Ignite",
    "composer": "Composer",
    "mmengine": "MMEngine",
    "mmcv": "MMEngine",
    "catalyst": "Catalyst",
}
# Of libraries that have more than their loop, what they import for it.
_ONLY_WITH: Final = {"transformers": "Trainer", "trl": "Trainer"}


def instead(name: str) -> str:
    """What to do with a program that a framework distributes; empty for one by hand."""
    return _INSTEAD.get(name, "")


def checked_by(name: str) -> str:
    """The command that finds the bugs of a program that is distributed already.

    One with the Hugging Face Trainer mostly says nothing of processes: it is read as one process.
    """
    return "ddpify check" + " --assume-distributed" * (name == HUGGING_FACE)


def loop_elsewhere(trees: Iterable[Tree]) -> str:
    """Why a program without a loop has none, as the user reads it; empty if nobody knows."""
    for tree in trees:
        for site, name in _imported(tree):
            return f"{site}: the training loop is in {name}, which distributes it: {instead(name)}"
    return ""


def never_called(entry: Tree, trees: Iterable[Tree]) -> str:
    """Why a file whose functions train does not: nothing in it calls them; empty if something does.

    What an installed command runs (``bert = bert_pytorch.__main__:train``), no script does.
    """
    body = entry.module.body
    own = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    rest = [node for node in body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    calls = [n for statement in rest for n in ast.walk(statement) if isinstance(n, ast.Call)]
    used = {n.id for call in calls for n in ast.walk(call) if isinstance(n, ast.Name)}
    if not own or used & set(own) or not any(".backward(" in t.source.text for t in trees):
        return ""
    what, start = (f"`{own[0]}`", own[0]) if len(own) == 1 else ("its functions", "…")
    return (
        f"{entry.source.path}: nothing in it calls {what}: end it with"
        f' `if __name__ == "__main__": {start}()`, or start the script that does'
    )


def hogwild(trees: Iterable[Tree]) -> str:
    """Processes that train one model in shared memory, each by itself; empty if there are none."""
    for tree in trees:
        text = tree.source.text
        if ".share_memory()" not in text or "multiprocessing" not in text:
            continue
        for node in tree.nodes():
            shares = isinstance(node, ast.Attribute) and node.attr == "share_memory"
            if shares and isinstance(tree.parent(node), ast.Call):
                return (
                    f"{tree.site(node)}: processes change the shared model without waiting for"
                    " each other (Hogwild), which is another algorithm than"
                    " DistributedDataParallel's: start from a script that trains in one process"
                )
    return ""


def _imported(tree: Tree) -> Iterator[tuple[Site, str]]:
    for node in tree.nodes():
        names = []
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [(node.module, alias.name) for alias in node.names]
        for module, name in names:
            package = module.partition(".")[0]
            asked = _ONLY_WITH.get(package)
            if package in _PACKAGES and (asked is None or name.endswith(asked)):
                yield tree.site(node), _PACKAGES[package]


NAMES = frozenset("""init_process_group DistributedDataParallel FullyShardedDataParallel fully_shard
    DistributedSampler init_device_mesh""".split())


def mentions(module: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """The calls in a file that only a distributed program makes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            func = node.func
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            if name in NAMES:
                yield node, name
