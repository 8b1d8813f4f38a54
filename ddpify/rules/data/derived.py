"""Loaders to whose call no sampler can be given, or none that is told the epoch.

A class of the project makes its loader itself, a `batch_sampler` says which samples go together, an
option brings a sampler or none, each access of a property makes a loader anew. Their batches are
shared out once they are made, ``feed = share_batches(make("feed", options))``, as rank 0 drew them,
so that their length, batch size and sampler mean what they meant to everyone who asks.
"""

from __future__ import annotations

import ast
import json

from ddpify.facts.details import SharesBatches, call_that_made, loader_arguments
from ddpify.facts.library_classes import handed_on, makes_its_own
from ddpify.facts.model import Facts, Loader, TrainingLoop
from ddpify.facts.scopes import ClassInfo
from ddpify.facts.values import Kind, Thing, Value
from ddpify.rules.base import Edit, How
from ddpify.rules.data import orders, streams
from ddpify.rules.edits import edit
from ddpify.rules.shared.apart import is_evaluated
from ddpify.rules.shared.telling import draws_itself, is_told, tell
from ddpify.rules.shared.undivided import has_batch_sampler, takes_no_sampler
from ddpify.settings import Settings
from ddpify.source import Site

# Where a class says these, it may go by other batches than those of its `batch_sampler`.
_OTHER_BATCHES = frozenset({"__iter__", "_get_iterator", "_index_sampler", "batch_sampler"})


def is_derived(loader: Loader) -> bool:
    """Whether a sampler and a batch size given to the call may not be what its class goes by."""
    return any(makes_its_own(thing) for thing in loader.things)


def is_undivided(facts: Facts, loader: Loader, settings: Settings) -> bool:
    """Whether its batches stay whole where they are made, and are shared out then."""
    return is_derived(loader) or bool(_needed(facts, loader) and share(facts, loader, settings)[0])


def shares_batches(loader: Thing) -> bool:
    """Whether it gives each rank its part of every batch."""
    return loader.detail(SharesBatches) is not None


def _needed(facts: Facts, loader: Loader) -> bool:
    """Whether no sampler can be given to the call, or nobody can tell it the epoch."""
    if any(takes_no_sampler(facts, thing) for thing in loader.things):
        return True
    if any(draws_itself(thing) for thing in loader.things):
        return bool(orders.why_not(facts, loader))
    if any(streams.stream_of(thing) for thing in loader.things):
        return False  # it becomes a list, which no epoch shuffles
    untold = [loop for loop in facts.training if not set(loop.loaders).isdisjoint(loader.things)]
    return any(loop.epoch is not None and _is_untold(facts, loop) for loop in untold)


def _is_untold(facts: Facts, loop: TrainingLoop) -> bool:
    missing = tuple(t for t in loop.loaders if not is_told(facts, t))
    return bool(missing) and not tell(facts, loop, missing)


def share(facts: Facts, loader: Loader, settings: Settings) -> tuple[tuple[Edit, ...], str]:
    """``share_batches(...)`` around the calls that give such a loader, or why there is none."""
    why = next(filter(None, map(_other_batches, loader.things)), "") or streams.why_not(loader)
    if settings.batch_size != "global":
        why = "a batch that is made whole is divided: leave out --batch-size per-rank"
    again = {site for made in facts.again.values() for site in made}
    if not why and (is_evaluated(loader) or not again.isdisjoint(t.born for t in loader.things)):
        why = "the same loader is evaluated, too"
    if not why and any(orders.taken_apart(facts, c, loader) for c in facts.named("builtins.iter")):
        why = "a pass over it is begun by `iter`, perhaps on one rank alone"
    asked = ("batch_sampler",) if is_derived(loader) else ("batch_sampler", "batch_size")
    if not why and (asks := _asked(facts, loader, asked)):
        why = f"its `{asks}` is asked for"
    why = why or orders.unfollowed(facts, loader)
    trained = {thing for loop in facts.training for thing in loop.loaders}
    mine = [thing for thing in loader.things if thing in trained]
    given = [shared(facts, thing, trained) for thing in mine] if not why else []
    if why or None in given:
        why = why or "no call gives loaders that train, and nothing else"
        return (), _by_hand(loader, why)
    return tuple(dict.fromkeys(one for one in given if one is not None)), ""


def shared(
    facts: Facts, loader: Thing, trained: set[Thing], helper: str = "share_batches"
) -> Edit | None:
    """The edit after which a loader gives each rank its part of every batch."""
    place = _place(facts, loader, trained)
    if place is not None:
        return edit(facts, How.REPLACE, place, f"{helper}({{}})")
    tree = facts.tree(loader.born)
    node = tree.statement(loader.born)
    if not isinstance(node, ast.Assign):
        return None
    name = _kept(node.targets[0], facts.values.get(tree.site(node.value)), loader)
    code = f"{name} = {helper}({name})"
    return edit(facts, How.AFTER, tree.site(node), code) if name else None


def _kept(target: ast.expr, value: Value | None, loader: Thing) -> str:
    """What a loader is called that is one of several: ``loaders["train"]`` of a dict, a name."""
    holder = value.things[0] if value is not None and len(value.things) == 1 else None
    entries: dict[object, Value] = {}
    if holder is not None and isinstance(target, (ast.Name, ast.Attribute)):
        words = ((k, held) for k, held in (holder.keys or {}).items() if isinstance(k, str))
        entries = {f"{ast.unparse(target)}[{json.dumps(k)}]": held for k, held in words}
    elif holder is not None and isinstance(target, (ast.Tuple, ast.List)):
        names = (ast.unparse(e) for e in target.elts if isinstance(e, ast.Name))
        entries = dict(zip(names, holder.items or (), strict=False))
    return next((str(name) for name, held in entries.items() if held.things == (loader,)), "")


def _by_hand(loader: Loader, why: str) -> str:
    thing = next((thing for thing in loader.things if makes_its_own(thing)), None)
    if thing is None:
        what = "its own `batch_sampler`" if any(map(has_batch_sampler, loader.things)) else ""
        return f"it has {what}, and {why}" if what else why
    site = handed_on(thing.ref) if isinstance(thing.ref, ClassInfo) else None
    place = f" ({site.path}:{site.span.line})" if site is not None else ""
    return (
        f"`{thing.name}` makes its loader itself{place}, and {why}: give what it hands to"
        " DataLoader a distributed sampler, and this rank's part of the batch size, by hand"
    )


def _other_batches(loader: Thing) -> str:
    size = loader_arguments(loader).batch_size
    if size is not None and size.known and size.const is None and not has_batch_sampler(loader):
        return "goes without batches"
    for info in loader.ref.mro() if isinstance(loader.ref, ClassInfo) else ():
        for node in ast.walk(info.node):
            said = getattr(node, "name", getattr(node, "attr", ""))
            if said in _OTHER_BATCHES:
                return f"has a `{said}` of its own"
    return ""


def _asked(facts: Facts, loader: Loader, names: tuple[str, ...]) -> str:
    """Which of these attributes the program asks it for; of the size it was read as a share."""
    asked = [a for a in facts.accesses if a.attribute in names]
    return next((a.attribute for a in asked if set(loader.things) & set(a.base.things)), "")


def _place(facts: Facts, loader: Thing, trained: set[Thing]) -> Site | None:
    """The innermost call on a loader's way that gives loaders that train, and nothing else."""
    made = call_that_made(loader)
    for site in reversed((*made.where.stack, made.site) if made is not None else ()):
        given = {t for call in facts.calls if call.site == site for t in call.result.things}
        if loader in given and all(t.kind is Kind.LOADER and t in trained for t in given):
            return site
    return None
