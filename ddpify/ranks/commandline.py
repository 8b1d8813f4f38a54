"""LightningCLI: a module, its data and a Trainer, made of a command line, and run."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.hooks import with_trainer
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.results import result
from ddpify.ranks.values import symbol

CALLS: Final = (
    "lightning.pytorch.cli.LightningCLI",
    "lightning.pytorch.utilities.cli.LightningCLI",  # until Lightning 2
)
_MADE: Final = (("model", "model_class"), ("datamodule", "datamodule_class"))


def started(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``LightningCLI(Net, Rows)``; with ``run=False`` the program fits ``cli.model`` itself."""
    cli = one.result or result(one)
    made = {name: _made(m, f, one, n, known) for n, (name, known) in enumerate(_MADE)}
    found = {name: value for name, value in made.items() if value is not None}
    run = one.arg(12, "run")
    ways = () if run is not None and run.constant is False else ("fit", "test")
    given = tuple(found.values())
    found["trainer"] = with_trainer(m, f, one.node, given, _options(one), ways)
    for thing in cli.things:
        thing.attrs |= found
    return cli


def _made(m: RankMachine, f: RankFrame, one: RankCall, n: int, name: str) -> RankValue | None:
    """An instance of the class that is given; None where the command line chooses it."""
    cls = one.arg(n, name)
    if cls is None or not any(thing.kind == "class" for thing in cls.things):
        return None
    return m.call_value(f, cls, Given(one.node))


def _options(one: RankCall) -> dict[str, RankValue]:
    """What the Trainer is made with: how many devices, the command line may say."""
    given = one.arg(5, "trainer_defaults")
    named = dict(given.keys or ()) if given is not None else {}
    return {"devices": symbol("--trainer.devices"), **named}
