"""The Hugging Face Trainer calls what it is given, on every rank: so that is read where it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from ddpify.ranks import functions, words
from ddpify.ranks.frames import RankFrame
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.protocol import RankMachine
from ddpify.ranks.values import of, symbol

_EVALUATION: Final = ("compute_metrics", "preprocess_logits_for_metrics")
# Methods of a Trainer of the project's own that take the place of the library's.
_OWN: Final = (
    "create_optimizer create_scheduler get_train_dataloader training_step compute_loss log"
    " evaluation_loop prediction_step evaluate predict save_model _save_checkpoint".split()
)
_CALLBACK: Final = (
    "on_init_end on_train_begin on_epoch_begin on_step_begin on_pre_optimizer_step"
    " on_optimizer_step on_substep_end on_step_end on_log on_prediction_step on_evaluate on_save"
    " on_epoch_end on_train_end".split()
)
_EVALUATED: Final = ("on_prediction_step", "on_evaluate", "on_predict", "on_log")


def trained(m: RankMachine, f: RankFrame, one: RankCall) -> None:
    """``trainer.train()``, ``evaluate()`` and ``predict()``: what they call of the program's."""
    for trainer in one.receiver.things if one.receiver is not None else ():
        if trainer.call is None or (trainer.name != words.HF_TRAINER and trainer.cls is None):
            continue
        whole = one.method == "train"
        own = _OWN if whole else ("prediction_step", "log")
        _introduce(trainer)
        for name in own if _is_beside(trainer, one) else ():
            _method(m, f, trainer, name, ())
        for name in _EVALUATION:
            _function(m, f, one, trainer.call.kwargs.get(name))
        known = (trainer.attrs["args"], trainer.attrs["state"], symbol("control"))
        for callback in _callbacks(m, trainer):
            for name in _CALLBACK if whole else _EVALUATED:
                _method(m, f, callback, name, known)


def is_hook(info: FunctionDefinition) -> bool:
    """Whether a Trainer calls a function: a method of its own, or of a callback."""
    names = {words.HF_TRAINER: _OWN, words.HF_CALLBACK: _CALLBACK}
    return info.owner is not None and any(
        info.name in own and info.owner.inherits(base) for base, own in names.items()
    )


def _is_beside(trainer: RankThing, one: RankCall) -> bool:
    """Whether a Trainer's class stands in the folder of what trains it, or below.

    Those of libraries are long, and not the program's.
    """
    folder = PurePath(one.module.path).parent
    return trainer.cls is not None and PurePath(trainer.cls.module.path).is_relative_to(folder)


def _introduce(trainer: RankThing) -> None:
    """``self.args``, ``self.state`` and ``self.accelerator`` of a Trainer.

    What it is given for its arguments, by a parser say, are such, whether that was seen or not.
    """
    given = trainer.call.arg(1, "args") if trainer.call is not None else None
    made = RankThing("result", words.HF_ARGUMENTS, trainer.site)
    seen = given.things if given is not None else ()
    if not any(thing.cls is not None or thing.name == made.name for thing in seen):
        given = None
    state = RankThing("result", "transformers.TrainerState", trainer.site)
    distributes = RankThing("result", "accelerate.Accelerator", trainer.site)
    trainer.attrs.setdefault("args", given or of(made))
    trainer.attrs.setdefault("state", of(state))
    trainer.attrs.setdefault("accelerator", of(distributes))


def _callbacks(m: RankMachine, trainer: RankThing) -> Iterator[RankThing]:
    """The objects of the project that a Trainer was given to call."""
    given = [trainer.call.kwargs.get("callbacks")] if trainer.call is not None else []
    for call in list(m.run.calls):
        if call.method == "add_callback" and call.receiver is not None and call.args:
            given += [call.args[0]] if trainer in call.receiver.things else []
    found = (
        t for v in given if v is not None for part in (v, *(v.items or ())) for t in part.things
    )
    yield from dict.fromkeys(t for t in found if t.kind == "instance" and t.cls is not None)


def _method(
    m: RankMachine, f: RankFrame, thing: RankThing, name: str, given: tuple[RankValue, ...]
) -> None:
    info = thing.cls.method(name) if thing.cls is not None else None
    if info is None:
        return
    bound = RankThing("function", info.qualname, info=info, receiver=thing)
    names = info.parameters[1 + len(given) :]
    rest = tuple(functions.parameter_value(m, info, one) for one in names)
    functions.enter(m, f, bound, (*given[: len(info.parameters) - 1], *rest), {}, None)


def _function(m: RankMachine, f: RankFrame, one: RankCall, value: RankValue | None) -> None:
    """``compute_metrics=measure``: the arguments are of all samples, the same on every rank."""
    for thing in value.things if value is not None else ():
        if thing.kind == "function":
            names = thing.info.parameters[thing.receiver is not None :]
            given = tuple(symbol(f"{name}@{one.site}") for name in names)
            m.apply(f, of(thing), one.node, given)
