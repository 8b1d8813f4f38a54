"""DDP905: set_state_dict cannot broadcast what only rank 0 has."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.ranks.values import spread
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.sharded import SHARDED

_SETTER = "torch.distributed.checkpoint.state_dict.set_state_dict"
_OPTIONS = "torch.distributed.checkpoint.state_dict.StateDictOptions"
_SPREAD, _FULL = "broadcast_from_rank0", "full_state_dict"
_READ = """    weights, moments = {}, {}
    if dist.get_rank() == 0:
        saved = torch.load("last.pt", map_location="cpu")
        weights, moments = saved["model"], saved["optimizer"]
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
"""
_READ_BY_ALL = """    saved = torch.load("last.pt", map_location="cpu")
    weights, moments = saved["model"], saved["optimizer"]
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
"""
_BOTH = """    set_state_dict(  # DDP905
        model,
        optimizer,
        model_state_dict=weights,
        optim_state_dict=moments,
        options=options,
    )
"""
_EACH = """    set_model_state_dict(model, weights, options=options)
    set_optimizer_state_dict(model, optimizer, moments, options=options)
"""
_FROM = "from torch.distributed.checkpoint.state_dict import "


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per load that cannot give the other ranks what rank 0 has read."""
    for options in run.named(_OPTIONS):
        if _on(options, _SPREAD) and not options.star and options.arg(0, _FULL) is None:
            yield Finding(
                "DDP905",
                options.site,
                "broadcast_from_rank0=True is refused without full_state_dict=True: ValueError",
                Severity.ERROR,
                (Edit(How.ARGUMENT, options.site, "True", _FULL),),
            )
    yield from _combined(run)


def _on(call: RankCall, flag: str) -> bool:
    value = call.kwargs.get(flag)
    return value is not None and value.constant is True


def _combined(run: Run) -> Iterable[Finding]:
    """One finding per combined load whose dicts other ranks do not have."""
    for call in run.named(_SETTER):
        given = [call.kwargs.get(name) for name in ("model_state_dict", "optim_state_dict")]
        own = any(o.kind == "rank" for value in given if value for o in spread(value))
        if own and _broadcasts(call):
            yield Finding(
                "DDP905",
                call.site,
                "ranks with an empty model_state_dict take another way than rank 0: a hang",
                Severity.ERROR,
                advice="call set_model_state_dict, then set_optimizer_state_dict",
                because=tuple(
                    (origin.site, "only some ranks have read it")
                    for value in given
                    if value
                    for origin in sorted(spread(value), key=lambda o: o.site)[:1]
                ),
            )


def _broadcasts(call: RankCall) -> bool:
    options = call.kwargs.get("options")
    made = [t.call for t in options.things if t.call is not None] if options is not None else []
    return any(_on(one, _SPREAD) for one in made)


RULE = Rule(
    "DDP905",
    "combined-broadcast-load",
    "set_state_dict loads model and optimizer at once, and with an empty model dict it takes it"
    " that only the optimizer is loaded. With broadcast_from_rank0=True and {} on the other ranks"
    " these enter other collectives than rank 0 and the job hangs. The two single setters work,"
    " given full_state_dict=True.",
    "pytorch#125177, PR#158836; BUGS K08",
    lint=lint,
    bad=(
        changed(
            SHARDED,
            (
                "from torch.distributed.fsdp",
                _FROM + "StateDictOptions, set_state_dict\nfrom torch.distributed.fsdp",
            ),
            ("    for epoch", _READ + _BOTH + "    for epoch"),
        ),
    ),
    good=(
        changed(  # every rank reads
            SHARDED,
            (
                "from torch.distributed.fsdp",
                _FROM + "StateDictOptions, set_state_dict\nfrom torch.distributed.fsdp",
            ),
            ("    for epoch", _READ_BY_ALL + _BOTH.replace("  # DDP905", "") + "    for epoch"),
        ),
        changed(
            SHARDED,
            (
                "from torch.distributed.fsdp",
                _FROM + "(\n    StateDictOptions,\n    set_model_state_dict,\n"
                "    set_optimizer_state_dict,\n)\nfrom torch.distributed.fsdp",
            ),
            ("    for epoch", _READ + _EACH + "    for epoch"),
        ),
    ),
)
