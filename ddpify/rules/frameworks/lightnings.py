"""Lightning in a run: its trainers, its modules' hooks, what they log."""

from __future__ import annotations

from collections.abc import Iterator

from ddpify.ranks.hooks import TRAINER
from ddpify.ranks.model import RankCall
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.ranks.single import may_be_several

MODULE = "lightning.pytorch.LightningModule"
DATA_MODULE = "lightning.pytorch.LightningDataModule"


def several(run: Run) -> bool:
    """Whether a Trainer of this run may use more than one process, or is taken to."""
    return any(run.assumed or may_be_several(call) for call in run.named(TRAINER))


def logs(run: Run) -> Iterator[RankCall]:
    """``self.log(…)`` and ``self.log_dict(…)`` of Lightning modules."""
    return (call for call in run.named(f"{MODULE}.log", f"{MODULE}.log_dict"))


def fitted(run: Run) -> Iterator[tuple[RankCall, ClassDefinition]]:
    """The classes of the project whose instances a Trainer is given."""
    for call in run.calls:
        if call.name.startswith(f"{TRAINER}."):
            for value in (*call.args, *call.kwargs.values()):
                yield from ((call, thing.cls) for thing in value.things if thing.cls is not None)


def hooked(run: Run) -> list[ClassDefinition]:
    """The classes of the project whose hooks a Trainer calls, its callbacks among them."""
    found = [cls for _, cls in fitted(run)]
    for call in run.named(TRAINER):
        given = call.kwargs.get("callbacks")
        for value in (given, *(given.items or ())) if given is not None else ():
            found += [thing.cls for thing in value.things if thing.cls is not None]
    return list(dict.fromkeys(found))


def hooks(run: Run) -> Iterator[FunctionDefinition]:
    """The methods of these classes."""
    return (m for cls in hooked(run) for info in cls.mro() for m in info.methods.values())
