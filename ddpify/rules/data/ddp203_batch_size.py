"""DDP203: every rank would take the whole batch size, so the global batch grows."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpify.facts.model import Facts, Loader, Role
from ddpify.facts.values import Value
from ddpify.names import INSTALLED
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.data.derived import is_undivided
from ddpify.rules.data.loaders import option_site, spread
from ddpify.rules.data.scaled_rates import scaled_rates
from ddpify.rules.edits import edit
from ddpify.rules.examples import (
    CORRECT,
    LEARNER,
    PROJECT,
    SCRIPT,
    SINGLE,
    TRAINER,
    changed,
    marked,
)
from ddpify.rules.shared.apart import told_apart
from ddpify.rules.shared.single_samples import (
    PER_STEP,
    Shortened,
    deals_single,
    kept_of,
    shortened_of,
)
from ddpify.rules.shared.undivided import has_batch_sampler
from ddpify.settings import Settings

SPLIT = f"{INSTALLED}.per_rank_batch_size"
SINGLE_BATCH = (
    "a batch of one sample cannot be divided: make it as many samples as there are ranks, or a"
    " multiple, or keep one on each rank by --batch-size per-rank"
)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per training loader whose batch size is not split, or cannot be.

    And, where it is kept as asked, what becomes of the learning rates.
    """
    yield from scaled_rates(facts, settings)
    for loader in facts.loaders:
        if Role.TRAINING not in loader.roles or _is_split(facts, loader):
            continue
        single = deals_single(loader.things)
        whole = any(map(has_batch_sampler, loader.things)) or not single
        if whole and facts.whole_batches:
            continue  # each rank computes its rows of the batch, if it has several
        if whole and is_undivided(facts, loader, settings):
            continue  # of what is shared out once made, DDP202 says both
        if settings.batch_size == "per-rank":
            yield _kept(loader, settings)
            if single:
                yield from _means(facts, loader)
            continue
        if single:
            yield _single(facts, loader, is_undivided(facts, loader, settings))
            continue
        yield Finding(
            "DDP203",
            loader.call.site,
            "the batch size is not divided by the number of ranks: the global batch would grow",
            Severity.ERROR,
            _fix(facts, loader),
            "divide the batch size by the number of ranks",
        )


def _single(facts: Facts, loader: Loader, undivided: bool) -> Finding:
    """Each rank takes a sample, where the batches of a step add up to as many as before."""
    found = Shortened((), "") if facts.whole_batches else shortened_of(facts, loader)
    if undivided and not found.why_not:
        found = Shortened((), "no sampler can be made before the loader is")
    reasons = [found.why_not, *([] if found.edits else [SINGLE_BATCH])]
    why_not = "; ".join(reason for reason in reasons if reason)
    return Finding(
        "DDP203",
        loader.call.site,
        "each rank takes a batch of one: a step would be of N times as many samples",
        Severity.ERROR,
        found.edits,
        why_not,
    )


def _means(facts: Facts, loader: Loader) -> Iterable[Finding]:
    """What a loop adds up of batches of one is a sum over samples."""
    found = kept_of(facts, loader)
    if found.edits or found.why_not:
        message = "a sum over the samples of all ranks is divided by one rank's number of batches"
        yield Finding(
            "DDP203", loader.call.site, message, Severity.ERROR, found.edits, found.why_not
        )


def _kept(loader: Loader, settings: Settings) -> Finding:
    advice = "the learning rate may have to grow with it: --lr-scale linear (Goyal et al. 2017)"
    return Finding(
        "DDP203",
        loader.call.site,
        "the batch size stays per rank, as asked: the global batch is N times as large",
        Severity.NOTE,
        (),
        advice if settings.lr_scale == "none" else "",
    )


def _is_split(facts: Facts, loader: Loader) -> bool:
    """Whether it was divided before: the batch, or how many there are in a step."""
    sizes = (call.arg(1, "batch_size") or Value() for call in loader.calls)
    loops = [one.batch for one in facts.training if set(one.loaders) & set(loader.things)]
    shares = facts.named(f"{INSTALLED}.{PER_STEP}")
    shortened = any(loop in call.where.loops() for call in shares for loop in loops)
    return shortened or any(t.name == SPLIT for size in sizes for t in size.things)


def _fix(facts: Facts, loader: Loader) -> tuple[Edit, ...]:
    call = loader.call
    if call.bound:
        return ()
    code = "per_rank_batch_size({})"
    condition = told_apart(loader).condition
    if condition:
        code += f" if {condition} else {{}}"
    site = call.arg_site(1, "batch_size")
    if site is not None:
        return (edit(facts, How.REPLACE, site, code),)
    given = spread(facts, call, "batch_size")
    if given is not None:
        own = option_site(facts, loader, given, "batch_size")
        if own is not None:
            return (edit(facts, How.REPLACE, own, code),)
        size = code.replace("{}", f'{facts.text(given)}["batch_size"]')
        return (edit(facts, How.ENTRY, given, size, "batch_size"),)
    node = facts.tree(call.site).expression(call.site)
    if isinstance(node, ast.Call) and any(k.arg is None for k in node.keywords):
        return ()
    return (edit(facts, How.ARGUMENT, call.site, "per_rank_batch_size(1)", "batch_size"),)


RULE = Rule(
    "DDP203",
    "global-batch-grows",
    "The batch size a script is given is the global one. Left as it is, N ranks take N times as"
    " many samples per optimizer step: another training, with another best learning rate.",
    "Goyal et al. 2017, Accurate, Large Minibatch SGD; nnue-pytorch#390; CONTRACT: Data",
    check,
    bad=(
        changed(
            SCRIPT,
            ("feed = DataLoader(\n", "feed = DataLoader(  # DDP203\n"),
            ("per_rank_batch_size(256)", "256"),
        ),
        changed(
            TRAINER,
            ("per_rank_batch_size(flags.size)", "flags.size"),
            ("is None, sampler=order),\n", "is None, sampler=order),  # DDP203\n"),
        ),
        changed(
            PROJECT,
            ("        DataLoader(\n", "        DataLoader(  # DDP203\n"),
            ("per_rank_batch_size(batch)", "batch"),
        ),
        marked(SINGLE, "DDP203", "opt.bs, shuffle=True)"),
        changed(SINGLE, ("opt.bs, shuffle=True)", "1, shuffle=True)  # DDP203")),  # not divisible
        marked(LEARNER, "DDP203", "batch_size=64, shuffle=True),"),
        changed(  # among settings that have no name of their own
            LEARNER,
            (
                "    feeds = {\n",
                '    sizes = {"fit": {"batch_size": 64, "shuffle": True}}\n    feeds = {\n',
            ),
            ("rows, batch_size=64, shuffle=True),", 'rows, **sizes["fit"]),  # DDP203'),
        ),
    ),
    good=CORRECT,
)
