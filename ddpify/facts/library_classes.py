"""What objects of a library's classes are: models, loaders, optimizers, trackers."""

from __future__ import annotations

from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Kind
from ddpify.python import writers


def instance_kind(info: ClassInfo) -> Kind:
    """What an instance of a project class is, by what it inherits."""
    for base in info.external_bases():
        kind = class_kind(base)
        if kind is not None:
            return Kind.CRITERION if kind is Kind.MODEL and base.endswith("Loss") else kind
    return Kind.INSTANCE


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
