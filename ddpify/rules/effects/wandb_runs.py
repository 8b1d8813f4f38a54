"""What all ranks ask wandb for: `wandb.config.lr`, `run.config`, `wandb.run.dir`.

They are there after `wandb.init` only, which rank 0 alone would call. Where they are asked for,
each rank opens a run, which is switched off on all but rank 0 and holds rank 0's configuration.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Access, Call
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind
from ddpify.rules.base import Edit, How
from ddpify.rules.edits import MAIN, edit, statement_of
from ddpify.site import Site

OPENS = "wandb.init"
UPDATES = "wandb.config.update"


def is_asked(facts: Facts) -> bool:
    """Whether ranks that open no run would ask for what it holds."""
    return any(_holds_run(one) for one in _asked(facts))


def answers(facts: Facts, names: Iterable[str]) -> Iterable[Site]:
    """Where all ranks read what is another one on each: the name, the folder of its run."""
    wanted = frozenset(names)
    for one in _asked(facts):
        if one.attribute in wanted and _is_module(one, "wandb.run"):
            site = facts.tree(one.base_site).read_of(one.base_site)
            if site is not None:
                yield site


def silent_run(facts: Facts, call: Call) -> tuple[Edit, ...]:
    """Open the run on all ranks, switched off on the others, with rank 0's configuration."""
    statement = statement_of(facts, call.site)
    node = facts.tree(statement).statement(statement)
    module, _, name = facts.text(call.callee).rpartition(".")
    if call.star or name != "init" or not isinstance(node, ast.Expr | ast.Assign):
        return ()
    mode = "{}" if "mode" in call.kwarg_sites else "None"
    config = f"{module}.config"
    told = f"{config}.update(broadcast(dict({config})), allow_val_change=True)"
    return (
        edit(facts, How.ARGUMENT, call.site, f'{mode} if {MAIN} else "disabled"', "mode"),
        edit(facts, How.AFTER, statement, told),
    )


def is_silent(facts: Facts, call: Call) -> bool:
    """Whether its mode is chosen by the rank already."""
    mode = call.kwarg_sites.get("mode")
    by_rank = (one.site for one in facts.calls if one.result.dep(Kind.RANK))
    return mode is not None and any(site.within(mode) for site in by_rank)


def _asked(facts: Facts) -> list[Access]:
    """What is read in statements that no rank is spared: `wandb.log(…)` will be rank 0's."""
    spared = {e.call.where.statement for e in facts.effects if _is_spared(e.kind, e.call)}
    return [
        one
        for one in facts.accesses
        if not one.where.one_rank() and one.where.statement not in spared
    ]


def _is_spared(kind: EffectKind, call: Call) -> bool:
    shown = kind in (EffectKind.TRACKER, EffectKind.CONSOLE, EffectKind.FILE)
    return shown and call.alone and call.name not in (OPENS, UPDATES)


def _holds_run(one: Access) -> bool:
    if _is_module(one, "wandb"):
        return one.attribute in ("config", "run")
    runs = one.base.of(Kind.TRACKER)
    return one.attribute == "config" and any(run.name == OPENS for run in runs)


def _is_module(one: Access, name: str) -> bool:
    return any(t.kind is Kind.EXTERNAL and t.name == name for t in one.base.things)
