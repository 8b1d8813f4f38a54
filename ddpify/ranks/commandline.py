"""LightningCLI: a module, its data and a Trainer, made of a command line and files, and run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ddpify.configs.trees import ConfigTree, of_commandline
from ddpify.ranks import configured
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.given import Given
from ddpify.ranks.hooks import trained, with_trainer
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.recording import record
from ddpify.ranks.results import result
from ddpify.ranks.values import symbol
from ddpify.ranks.words import COMMANDLINES, TRAINER

CALLS: Final = COMMANDLINES
_INITS: Final = tuple(f"{name}.__init__" for name in CALLS)
_CLASS: Final = "add_lightning_class_args"
# What a class has: the section of the files, and the argument that says that they name the class.
_MADE: Final = {
    "model": (0, "model_class", "model", "subclass_mode_model"),
    "datamodule": (1, "datamodule_class", "data", "subclass_mode_data"),
}
_BEFORE: Final = ("before_instantiate_classes", "after_instantiate_classes")


def started(m: RankMachine, f: RankFrame, one: RankCall) -> RankValue:
    """``LightningCLI(Net, Rows)``; with ``run=False`` the program fits ``cli.model`` itself.

    A class of the project may give its base the arguments, and has methods that are called then.
    """
    cli = one.result or result(one)
    inits = (c for c in m.run.calls if c.order > one.order and c.name in _INITS)
    asked = next(inits, one)
    tree = _tree(m)
    _called(m, f, cli, one, ("add_arguments_to_parser",), symbol("parser"))
    made = {name: _made(m, f, asked, tree, *how) for name, how in _MADE.items()}
    found = {name: value for name, value in made.items() if value is not None}
    given = tuple(found.values())
    options = _options(m, f, one, asked, tree)
    found["trainer"] = with_trainer(m, f, one.node, (), options, ())
    for thing in cli.things:
        thing.attrs |= found
    _called(m, f, cli, one, _BEFORE)
    run = asked.arg(12, "run")
    for way in () if run is not None and run.constant is False else ("fit", "test"):
        _called(m, f, cli, one, (f"before_{way}",))
        trained(m, f, record(m, f, f"{TRAINER}.{way}", Given(one.node, found["trainer"], given)))
        _called(m, f, cli, one, (f"after_{way}",))
    return cli


def _tree(m: RankMachine) -> ConfigTree:
    known = m.modules.configs
    if m.modules.root not in known:
        known[m.modules.root] = of_commandline(m.modules.root)
    return known[m.modules.root]


def _called(
    m: RankMachine,
    f: RankFrame,
    cli: RankValue,
    one: RankCall,
    names: tuple[str, ...],
    *args: RankValue,
) -> None:
    """The methods that a class of the project has for LightningCLI to call."""
    for name in names:
        m.call_method(f, cli, name, one.node, args)


def _made(
    m: RankMachine,
    f: RankFrame,
    one: RankCall,
    tree: ConfigTree,
    position: int,
    argument: str,
    section: str,
    mode: str,
) -> RankValue | None:
    """An instance of the class that is given, or of those that the files name; None where the
    command line alone chooses it."""
    cls, given = one.arg(position, argument), Given(one.node)
    chosen = one.kwargs.get(mode)
    if cls is None or (cls.constant is None and not cls.things) or _is_true(chosen):
        wanted = tree.made((section,))
        return configured.value_of(m, f, given, wanted) if wanted else None
    if not any(thing.kind in ("class", "function") for thing in cls.things):
        return None
    entries = {name for node in tree.at((section,)) for name in node.entries}
    parts = {name: tree.made((section, name)) for name in sorted(entries)}
    return m.call_value(f, cls, Given(one.node, kwargs=configured.arguments(m, f, given, parts)))


def _is_true(value: RankValue | None) -> bool:
    return value is not None and value.constant is True


def _options(
    m: RankMachine, f: RankFrame, one: RankCall, asked: RankCall, tree: ConfigTree
) -> dict[str, RankValue]:
    """What the Trainer is made with: how many devices, the command line may say."""
    given = asked.arg(5, "trainer_defaults")
    named = dict(given.keys or ()) if given is not None else {}
    callbacks = [*_callbacks(m, f, one, asked, tree)]
    if "callbacks" in named:
        callbacks += [named["callbacks"], *(named["callbacks"].items or ())]
    every = RankValue(symbol("callbacks").atoms, items=tuple(callbacks))
    return {"devices": symbol("--trainer.devices"), **named, "callbacks": every}


def _callbacks(
    m: RankMachine, f: RankFrame, one: RankCall, asked: RankCall, tree: ConfigTree
) -> Iterator[RankValue]:
    """Callbacks of files, those of ``add_lightning_class_args``, and what keeps the config."""
    for recipe in tree.made(("trainer", "callbacks")):
        yield configured.value_of(m, f, Given(one.node), [recipe])
    added = [c for c in m.run.calls if c.order > one.order and c.method == _CLASS and c.args]
    saves = asked.arg(2, "save_config_callback")
    for cls in (*(call.args[0] for call in added), *([saves] if saves is not None else [])):
        if any(thing.kind == "class" for thing in cls.things):
            yield m.call_value(f, cls, Given(one.node))
