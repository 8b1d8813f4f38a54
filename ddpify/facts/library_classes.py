"""What objects of a library's classes are: models, loaders, optimizers, trackers."""

from __future__ import annotations

import ast

from ddpify.facts.scopes import ClassInfo, functions_in
from ddpify.facts.values import Kind, Thing
from ddpify.python import writers
from ddpify.source import Site

_OF_MODELS = ("transformers.", "pytorch_transformers.", "pytorch_pretrained_bert.")


def instance_kind(info: ClassInfo) -> Kind:
    """What an instance of a project class is, by what it inherits."""
    for base in info.external_bases():
        kind = class_kind(base)
        if kind is None and base.startswith(_OF_MODELS) and info.lookup("forward") is not None:
            return Kind.MODEL  # `class Tagger(BertPreTrainedModel)`
        if kind is not None:
            return Kind.CRITERION if kind is Kind.MODEL and base.endswith("Loss") else kind
    return Kind.INSTANCE


def handed_on(info: ClassInfo) -> Site | None:
    """Where a class of the project, or its base, calls the constructor of the library's class."""
    for base in reversed(info.mro()):
        for node in ast.walk(base.node):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
                return base.module.source.site(node)
    return None


def makes_its_own(loader: Thing) -> bool:
    """Whether its class derives from DataLoader, and does not hand on what that one takes."""
    init = loader.ref.lookup("__init__") if isinstance(loader.ref, ClassInfo) else None
    for function in functions_in(init):
        given = function.node.args
        names = {arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
        first = given.vararg is not None or "dataset" in names
        if not first or (given.kwarg is None and "sampler" not in names):
            return True
    return False


def class_kind(name: str) -> Kind | None:
    """What a class of a library makes, None when it is not known."""
    tail = name.rsplit(".", 1)[-1]
    if name.startswith(("torch.nn.", "torch.jit.ScriptModule")) and tail[:1].isupper():
        return _nn_kind(tail)
    if name.startswith("torch.optim.lr_scheduler."):
        return Kind.SCHEDULER
    if name.startswith("torch.optim.") and tail[:1].isupper():
        return Kind.OPTIMIZER
    if tail == "DataLoader" and name.split(".")[0] in ("torch", "monai"):
        return Kind.LOADER
    if name.startswith("torch.utils.data"):
        return _data_kind(tail)
    if name.startswith("torchvision.datasets."):
        return Kind.DATASET
    if tail == "GradScaler" and name.startswith("torch."):
        return Kind.SCALER
    if tail == "SummaryWriter" or name in writers.TRACKERS:
        return Kind.TRACKER
    return None


def _nn_kind(tail: str) -> Kind | None:
    if tail in ("Parameter", "DataParallel", "DistributedDataParallel"):
        return None
    return Kind.CRITERION if tail.endswith(("Loss", "Loss2d")) else Kind.MODEL


def _data_kind(tail: str) -> Kind | None:
    if tail.endswith("Sampler"):
        return Kind.SAMPLER
    return Kind.DATASET if tail.endswith("Dataset") or tail == "Subset" else None
