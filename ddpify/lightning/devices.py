"""DDP960, 961, 964: a Trainer of one device, changed where its number is written.

At the Trainer it is Lightning's own word for all devices, ``"auto"``: one without a second GPU.
Elsewhere it stays a number, since a program may compare, convert, print or save it. torchrun says
how many processes a node has, which a CPU does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.lightning.configured import configured
from ddpify.lightning.manual import several_optimizers
from ddpify.lightning.numbers import Number, definitions, is_followed, ones
from ddpify.rules.base import Edit, Finding, How, Import, Severity
from ddpify.settings import Settings

RULE: Final = "DDP960"
NORMS: Final = "DDP961"
UNUSED: Final = "DDP964"
TRAINER: Final = "Lightning"  # as it is called in the facts' evidence
ENVIRON: Final = Import("os", "environ")
ALL: Final = 'environ.get("LOCAL_WORLD_SIZE", "auto")'
NUMBER: Final = 'int(environ.get("LOCAL_WORLD_SIZE") or cuda.device_count() or 1)'
ONE: Final = "the Trainer is given one device"
ADVICE: Final = 'give it devices="auto", and let the command line or the config say a number'
_NORMAL: Final = ("BatchNorm", "torchvision.models", "timm", "segmentation_models_pytorch")
LOOKS: Final = "ddp_find_unused_parameters_true"
LEFT_OUT: Final = "a backward for one of several optimizers leaves out the weights of the others"
PLAIN: Final = "on several GPUs BatchNorm takes its statistics of each rank's part of a batch"
UNFOLLOWED: Final = "how many devices the Trainer is given here is not followed"
_UNPACKED: Final = "let what the Trainer is given by ** have sync_batchnorm: true"


def trainers(facts: Facts) -> Iterator[tuple[Tree, ast.Call]]:
    """The calls that make Trainers."""
    for site in dict.fromkeys(site for site, name in facts.evidence if name == TRAINER):
        tree = facts.tree(site)
        node = tree.expression(site)
        if isinstance(node, ast.Call):
            yield tree, node


def findings(facts: Facts, settings: Settings) -> Iterator[Finding]:
    """One finding per place that says "one device", and per Trainer of models with BatchNorm."""
    elsewhere = {one.call for one in configured(facts)}  # what a configuration says, it may change
    for tree, call in trainers(facts):
        given = {one.arg: one.value for one in call.keywords if one.arg}
        yield from _devices(facts, tree, call, given)
        if call in elsewhere:
            continue
        if settings.sync_bn != "off":
            yield from _statistics(facts, tree, call, given)
        if settings.find_unused != "off":
            yield from _unused(facts, tree, call, given)


def _devices(
    facts: Facts, tree: Tree, call: ast.Call, given: dict[str, ast.expr]
) -> Iterator[Finding]:
    gpus, devices = given.get("gpus"), given.get("devices")
    if gpus is not None and devices is None:
        advice = f"Lightning 2 has no `gpus`: {ADVICE}"
        yield Finding(RULE, tree.site(gpus), ONE, Severity.WARNING, advice=advice)
    if devices is None:
        yield from _unpacked(tree, call)
        return
    written = list(ones(devices))
    for node in written:
        edit = Edit(How.REPLACE, tree.site(node), ALL, imports=(ENVIRON,))
        yield Finding(RULE, tree.site(node), ONE, Severity.WARNING, (edit,))
    if not written and not _is_cpu(given):
        yield from map(_changed, definitions(facts, tree, devices, call))
        if not is_followed(facts, tree, devices):
            yield Finding(RULE, tree.site(devices), UNFOLLOWED, Severity.NOTE, advice=ADVICE)


def _unpacked(tree: Tree, call: ast.Call) -> Iterator[Finding]:
    """``Trainer(**options)``, of which it is not known whether they name devices."""
    plain = [
        k for k in call.keywords if k.arg is None and isinstance(k.value, (ast.Name, ast.Call))
    ]
    for one in plain:
        yield Finding(RULE, tree.site(one.value), UNFOLLOWED, Severity.NOTE, advice=ADVICE)


def _changed(number: Number) -> Finding:
    """The number where it is written, or what to do about one that may be another's."""
    site = number.tree.site(number.node)
    if not number.certain:
        message = "this may be the number of devices that the Trainer is given"
        return Finding(RULE, site, message, Severity.NOTE, advice=ADVICE)
    edit = Edit(How.REPLACE, site, NUMBER, imports=(ENVIRON, Import("torch", "cuda")))
    return Finding(RULE, site, ONE, Severity.WARNING, (edit,))


def _statistics(
    facts: Facts, tree: Tree, call: ast.Call, given: dict[str, ast.expr]
) -> Iterator[Finding]:
    """One process had those of the whole batch; torch has layers for that on GPUs only."""
    if "sync_batchnorm" in given or _is_cpu(given) or not normalises(facts):
        return
    if any(one.arg is None for one in call.keywords):  # what is unpacked may have it
        yield Finding(NORMS, tree.site(call), PLAIN, Severity.WARNING, advice=_UNPACKED)
        return
    named = given.get("accelerator")
    sure = isinstance(named, ast.Constant) and named.value in ("gpu", "cuda")
    code = "True" if sure else "cuda.is_available()"
    imports = () if sure else (Import("torch", "cuda"),)
    edit = Edit(How.ARGUMENT, tree.site(call), code, "sync_batchnorm", imports)
    yield Finding(NORMS, tree.site(call), PLAIN, Severity.WARNING, (edit,))


def _unused(
    facts: Facts, tree: Tree, call: ast.Call, given: dict[str, ast.expr]
) -> Iterator[Finding]:
    """DDP stops where a backward leaves weights out, unless it is told to look for them."""
    strategy = given.get("strategy")
    named = "auto" if strategy is None else getattr(strategy, "value", "")
    if named not in ("auto", "ddp") or not several_optimizers(facts):
        return
    whole = named == "auto"  # on one device nothing is wrapped
    code = f'"{LOOKS}"' + f' if {NUMBER} > 1 else "auto"' * whole
    imports = (ENVIRON, Import("torch", "cuda")) if whole else ()
    edit = Edit(How.ARGUMENT, tree.site(call), code, "strategy", imports)
    yield Finding(UNUSED, tree.site(call), LEFT_OUT, Severity.WARNING, (edit,))


def normalises(facts: Facts) -> bool:
    """Whether a file of the program names such layers, or models that have them."""
    return any(name in t.source.text for t in facts.trees.values() for name in _NORMAL)


def _is_cpu(given: dict[str, ast.expr]) -> bool:
    named = given.get("accelerator")
    return isinstance(named, ast.Constant) and named.value == "cpu"
