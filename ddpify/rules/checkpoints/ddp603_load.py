"""DDP603: a checkpoint is loaded into the wrapper, or onto another rank's GPU."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.values import Kind, Thing, Value
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.checkpoints.respelled import misfits
from ddpify.rules.checkpoints.states import (
    all_wrappers,
    is_strict,
    plain_into_wrapper,
    wrapped_states,
)
from ddpify.rules.edits import edit, once
from ddpify.rules.examples import CORRECT, LEGACY, SCRIPT, TRAINER, changed, marked
from ddpify.rules.shared.saving import is_distributed
from ddpify.rules.shared.stored import Stored
from ddpify.settings import Settings
from ddpify.source import Site
from ddpify.strategies import of
from ddpify.strategies.base import Strategy

_SHARDS = "a checkpoint has whole tensors, of which each rank takes its shards"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per load into a wrapped model and per ``torch.load`` without a device."""
    for calls in once(tuple(c for c in facts.calls if c.name == ".load_state_dict")).values():
        edits = _into_inner(facts, calls, of(settings))
        if edits:
            yield Finding(
                "DDP603",
                calls[0].site,
                _SHARDS if of(settings).shards else "a checkpoint's keys must fit the inner module",
                Severity.ERROR,
                edits,
            )
    states = _loaded_states(facts)
    yield from _of_shards(facts, of(settings), states)
    for site, calls in once(facts.named("torch.load")).items():
        placed = calls[0].arg(1, "map_location") is not None or calls[0].star
        if site in states and not placed:
            yield Finding(
                "DDP603",
                site,
                "every rank would load onto the GPU the checkpoint was saved from",
                Severity.WARNING,
                (edit(facts, How.ARGUMENT, site, "local_device()", "map_location"),),
            )


def _of_shards(facts: Facts, strategy: Strategy, states: set[Site]) -> Iterable[Finding]:
    """``torch.load`` of what may be a directory, where each rank writes its shards."""
    stored = Stored.of(facts, strategy)
    loads = facts.named("torch.load") if strategy.saves_shards else ()
    for site, calls in once(loads).items():
        path = calls[0].arg_site(0, "f")
        if site in states or (path is not None and stored.named_as(facts, calls[0], path)):
            yield Finding(
                "DDP603",
                calls[0].callee,
                "the checkpoint may be a directory, from which each rank reads its shards",
                Severity.ERROR,
                (edit(facts, How.REPLACE, calls[0].callee, strategy.load),),
            )


def _loaded_states(facts: Facts) -> set[Site]:
    """Loads that end in a ``load_state_dict``: data of other kinds stays where it is."""
    return {
        kept.born
        for call in facts.calls
        if call.name == ".load_state_dict"
        for value in call.args
        for kept in value.dep(Kind.CHECKPOINT)
    }


def _into_inner(facts: Facts, calls: list[Call], strategy: Strategy) -> tuple[Edit, ...]:
    call = calls[0]
    edits: list[Edit] = []
    receiver = call.receiver
    if receiver is None or call.receiver_site is None:
        return ()
    if any(is_distributed(facts, one, strategy) for one in calls):
        edits.append(edit(facts, How.REPLACE, call.receiver_site, strategy.state))
    site = call.arg_site(0, "state_dict")
    prefixed = [one for one in calls if _may_have_prefix(facts, one)]
    if site is not None and prefixed:
        parts = "".join(f', "{part}"' for part in _wrapped_parts(facts, prefixed[0]))
        edits.append(edit(facts, How.REPLACE, site, f"without_module_prefix({{}}{parts})"))
    return tuple(edits)


def _may_have_prefix(facts: Facts, call: Call) -> bool:
    """Where nn.DataParallel wrapped this model, checkpoints of then have `module.` keys."""
    parallel = _data_parallel(facts)
    if not parallel or call.receiver is None or any(map(_is_public, call.args)):
        return False
    had = {t.born for model in facts.models for t in model.things}
    had |= {whole(t).born for value in parallel for t in value.things}
    models = (t for t in call.receiver.things if t.kind is not Kind.OPTIMIZER)
    if not any(whole(thing).born in had for thing in models):
        return False
    return "without_module_prefix" not in facts.text(call.arg_sites[0])


def _wrapped_parts(facts: Facts, call: Call) -> list[str]:
    """Parts of this model that nn.DataParallel wrapped alone: `features.module.0.weight`."""
    wholes = [whole(thing) for thing in call.receiver.things] if call.receiver else []
    given = [_identities(value.things) for value in _data_parallel(facts)]
    wrapped: set[tuple[Site, str]] = set().union(
        *(some for some in given if not some & _identities(wholes))
    )
    held = (pair for thing in wholes for pair in thing.attrs.items())
    return sorted({name for name, value in held if _identities(value.things) & wrapped})


def _identities(things: Iterable[Thing]) -> set[tuple[Site, str]]:
    """What tells things apart in any reading of the program."""
    return {(thing.born, thing.name) for thing in things}


def _data_parallel(facts: Facts) -> list[Value]:
    """What nn.DataParallel was given."""
    calls = {c.site: c for model in facts.models for c in model.data_parallel}
    return [value for call in calls.values() for value in call.args[:1]]


def _is_public(state: Value) -> bool:
    """Weights from the web, which are a bare model's."""
    return any(kept.name.endswith(".load_url") for kept in state.dep(Kind.CHECKPOINT))


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per load of keys that were spelled for another receiver, and per load into
    the wrapper of a migrated program, whose files have no prefix.

    Not where it saves the wrapper's own state (DDP602).
    """
    for call, taken_off in misfits(run):
        what = "the wrapper's keys begin" if taken_off else "no key of this model begins"
        yield Finding(
            "DDP603",
            call.site,
            f"every key is missing: {what} with `module.`",
            Severity.ERROR,
            advice="load it into `model.module`" if taken_off else "load it as it was saved",
        )
    if not run.helpers or any(wrapped_states(run)):
        return
    known = {call for call, _ in (*plain_into_wrapper(run), *misfits(run))}
    for call in run.methods("load_state_dict"):
        if call not in known and all_wrappers(call) and is_strict(call):
            yield Finding(
                "DDP603",
                call.site,
                "every key is missing: a checkpoint's names are those of the model inside",
                Severity.ERROR,
                advice="load it into `unwrap(model)`",
            )


RULE = Rule(
    "DDP603",
    "load-into-wrapper",
    "Every rank loads, each onto its own device, into the inner module, whose keys have no"
    " `module.` prefix; checkpoints of the DataParallel era have one and are accepted.",
    "examples#1078; BUGS K05, K06, C14",
    check,
    bad=(
        changed(
            TRAINER,
            (
                'unwrap(self.pupil).load_state_dict(without_module_prefix(kept["pupil"]))',
                'self.pupil.load_state_dict(without_module_prefix(kept["pupil"]))  # DDP603',
            ),
        ),
        changed(
            SCRIPT,
            ("unwrap,\n", "unwrap, without_module_prefix,\n"),
            (
                "fork_random_streams()\nfor",
                'kept = torch.load("net.pt")  # DDP603\n'
                "unwrap(net).load_state_dict(without_module_prefix(kept))\n"
                "fork_random_streams()\nfor",
            ),
        ),
        changed(  # a function that a wrapped and a bare model are given
            SCRIPT,
            (
                "fork_random_streams()\nfor",
                "def restored(model, path):\n"
                "    kept = torch.load(path, map_location=device)\n"
                "    model.load_state_dict(kept)  # DDP603\n\n\n"
                'restored(nn.Linear(4, 2).to(device), "teacher.pt")\n'
                'restored(net, "net.pt")\nfork_random_streams()\nfor',
            ),
        ),
        marked(LEGACY, "DDP603", 'torch.load("judge.pt"))'),
        changed(
            LEGACY,
            ('torch.load("judge.pt"))', 'torch.load("judge.pt", map_location="cuda"))  # DDP603'),
        ),
    ),
    lint=lint,
    words=("load_state_dict",),
    good=(
        *CORRECT,
        changed(  # nothing wraps the models whose checkpoints these are
            TRAINER,
            (
                'load_state_dict(without_module_prefix(kept["pupil"]))',
                'load_state_dict(kept["pupil"])',
            ),
        ),
        changed(
            SCRIPT,
            ("unwrap,\n", "unwrap, without_module_prefix,\n"),
            (
                "fork_random_streams()\nfor",
                'kept = torch.load("net.pt", map_location=device)\n'
                "unwrap(net).load_state_dict(without_module_prefix(kept))\n"
                "fork_random_streams()\nfor",
            ),
        ),
    ),
)
