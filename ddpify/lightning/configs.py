"""DDP960, DDP961, DDP964 in YAML: the sections from which a Trainer takes its arguments. DDP965 and
DDP966, too, where they count batches.

``Trainer(**cfg.trainer)`` and ``Trainer(devices=cfg["trainer"]["devices"])`` name the section, and
so do hydra's ``instantiate(cfg.trainer)`` and LightningCLI; its line ``devices: 1`` is changed in
every file that has it, whichever the program is started with. What the command line says
(``trainer.devices=2``) wins as before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ddpify.configs.nodes import ConfigNode, parsed
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.lightning.configured import ConfiguredTrainer, configured
from ddpify.lightning.devices import (
    ADVICE,
    LEFT_OUT,
    LOOKS,
    NORMS,
    ONE,
    PLAIN,
    RULE,
    UNFOLLOWED,
    UNUSED,
    normalises,
    trainers,
)
from ddpify.lightning.limits import of_section
from ddpify.lightning.manual import several_optimizers
from ddpify.lightning.numbers import DEVICES, is_option
from ddpify.roots import files_below
from ddpify.rules.base import Edit, Finding, How, Import, Severity
from ddpify.settings import Settings
from ddpify.source import Site, Span

_ALONE: Final = ("cpu", "mps")
_GPUS: Final = ("gpu", "cuda")
_SYNC: Final = "sync_batchnorm"
_GPUS_OF_ONE: Final = "the Trainer's devices are given as Lightning 1 was told them"
_ELSEWHERE: Final = "how many devices the Trainer is given here is said elsewhere"
_PERHAPS: Final = "this section has the name of one that a Trainer is made of, elsewhere in a file"


def findings(root: Path, facts: Facts, settings: Settings) -> Iterator[Finding]:
    """One finding per line of a config that gives a Trainer of the program one device, or a number
    of batches."""
    yield from _of_names(root, facts, settings)
    for one in configured(facts):
        for section in one.sections:
            if not _is_for_one(section, one):
                yield from _devices(section)
        if one.commandline:  # which has defaults in the code
            continue
        if settings.sync_bn != "off":
            yield from _statistics(root, facts, one)
        if settings.find_unused != "off":
            yield from _unused(facts, one)


def _of_names(root: Path, facts: Facts, settings: Settings) -> Iterator[Finding]:
    """The same of sections whose names the code says: ``Trainer(**cfg.trainer)``."""
    for key, places in _asked(facts).items():
        sections, deeper = _named(root, key)
        for section in sections:
            yield from _devices(section)
            yield from of_section(section, settings)
        for section in deeper:
            for one in _devices(section):
                yield replace(one, message=_PERHAPS, severity=Severity.NOTE, fix=(), advice=ADVICE)
        for tree, node in places if not sections else ():
            yield Finding(RULE, tree.site(node), UNFOLLOWED, Severity.NOTE, advice=ADVICE)


def _devices(section: ConfigNode) -> Iterator[Finding]:
    devices, gpus = section.entries.get("devices"), section.entries.get("gpus")
    if devices is not None and devices.aliased:
        assert devices.key is not None
        message = f"{_ELSEWHERE} (line {devices.site.span.line})"
        yield Finding(RULE, devices.key, message, Severity.NOTE, advice=ADVICE)
    elif devices is not None and _is_one(devices):
        edit = Edit(How.TEXT, devices.site, "auto")
        yield Finding(RULE, edit.site, ONE, Severity.WARNING, (edit,))
    elif devices is not None and [one.text for one in devices.items] == ["0"]:
        yield Finding(RULE, devices.site, ONE, Severity.WARNING, advice=ADVICE)  # in lines
    elif devices is not None and "${" in (devices.text or ""):
        message = f"{_ELSEWHERE} (`{devices.text}`)"
        yield Finding(RULE, devices.site, message, Severity.NOTE, advice=ADVICE)
    if gpus is not None:
        advice = f"Lightning 2 has no `gpus`: {ADVICE}"
        yield Finding(RULE, gpus.site, _GPUS_OF_ONE, Severity.NOTE, advice=advice)


def _statistics(root: Path, facts: Facts, trainer: ConfiguredTrainer) -> Iterator[Finding]:
    """DDP961 where a file says that there are GPUs; the call has it where none says what there is.

    On several CPU processes SyncBatchNorm ends with an error.
    """
    if not normalises(facts) or _SYNC in {one.arg for one in trainer.call.keywords}:
        return
    said = {_accelerator(one) for one in trainer.sections if _is_base(one)}
    if said <= {*_ALONE, *_GPUS}:
        for section in trainer.sections:
            if _accelerator(section) in _GPUS and _SYNC not in section.entries:
                site = section.entries["accelerator"].site
                edit = added(root, section, "accelerator", f"{_SYNC}: true")
                yield Finding(NORMS, site, PLAIN, Severity.WARNING, (edit,))
    elif trainer.texts(_SYNC):
        advice = f"say {_SYNC}: true in each file that is for several GPUs"
        site = trainer.tree.site(trainer.call)
        yield Finding(NORMS, site, PLAIN, Severity.WARNING, advice=advice)
    else:
        site = trainer.tree.site(trainer.call)
        cuda = (Import("torch", "cuda"),)
        edit = Edit(How.ARGUMENT, site, "cuda.is_available()", _SYNC, cuda)
        yield Finding(NORMS, site, PLAIN, Severity.WARNING, (edit,))


def _unused(facts: Facts, trainer: ConfiguredTrainer) -> Iterator[Finding]:
    """DDP964: a file that says ``strategy: ddp``; of one that says none, it is only told."""
    if not several_optimizers(facts):
        return
    for section in trainer.sections:
        said = section.at("strategy")
        if said is not None and said.text in ("ddp", "ddp_spawn"):
            edit = Edit(How.TEXT, said.site, LOOKS)
            yield Finding(UNUSED, said.site, LEFT_OUT, Severity.WARNING, (edit,))
        elif _is_base(section) and (said is None or said.text == "auto"):
            advice = (
                f"say strategy: {LOOKS} where a file, or the command line, says several devices"
            )
            yield Finding(UNUSED, section.site, LEFT_OUT, Severity.WARNING, advice=advice)


def added(root: Path, section: ConfigNode, after: str, line: str) -> Edit:
    """The edit that writes a line into a section, below the one of this name."""
    node = section.entries[after]
    assert node.key is not None
    path, span = node.site.path, node.key.span
    if section.flow:
        start = Span(span.line, span.column, span.line, span.column)
        return Edit(How.TEXT, Site(path, start), f"{line}, ")
    text = (root / path).read_bytes().decode().splitlines()[span.line - 1]
    end = Span(span.line, len(text), span.line, len(text))
    return Edit(How.TEXT, Site(path, end), f"\n{' ' * span.column}{line}")


def _accelerator(section: ConfigNode) -> str:
    said = section.at("accelerator")
    return (said.text or "") if said is not None else ""


def _is_base(section: ConfigNode) -> bool:
    """Whether a section makes the Trainer, and is not laid over another."""
    return "_target_" in section.entries


def _is_one(node: ConfigNode) -> bool:
    """``1``, ``"1"``, ``[0]``: one device, and none in particular."""
    listed = node.flow and [one.text for one in node.items] == ["0"]
    return node.text == "1" or listed


def _is_for_one(section: ConfigNode, trainer: ConfiguredTrainer) -> bool:
    """Whether a section takes another one to the CPU, where one process is meant: for debugging."""
    return _accelerator(section) in _ALONE and not trainer.commandline and not _is_base(section)


def _asked(facts: Facts) -> dict[str, list[tuple[Tree, ast.expr]]]:
    """The names of the sections that the arguments of Trainers come from, and where they do."""
    found: dict[str, list[tuple[Tree, ast.expr]]] = {}
    for tree, call in trainers(facts):
        for one in call.keywords:
            value: ast.expr = one.value
            if one.arg == DEVICES and _key(value) == DEVICES and not is_option(facts, DEVICES):
                found.setdefault(_key(getattr(value, "value", value)), []).append((tree, value))
            elif one.arg is None and _key(value):
                found.setdefault(_key(value), []).append((tree, value))
    return found


def _key(node: ast.expr) -> str:
    """``b`` of ``a.b`` and of ``a["b"]``."""
    if isinstance(node, ast.Subscript):
        return str(getattr(node.slice, "value", ""))
    return node.attr if isinstance(node, ast.Attribute) else ""


def _named(root: Path, name: str) -> tuple[list[ConfigNode], list[ConfigNode]]:
    """The sections of a name in all files, those that are least deep, and others."""
    found: dict[int, list[ConfigNode]] = {}
    for file in files_below(root, ".yaml", ".yml"):
        try:
            top = parsed(file.relative_to(root).as_posix(), file.read_bytes().decode())
        except ValueError:  # no YAML, or no text
            continue
        for depth, node in _below(top) if top is not None else ():
            found.setdefault(depth, []).extend(v for k, v in node.entries.items() if k == name)
    held = [nodes for _, nodes in sorted(found.items()) if nodes] or [[]]
    return held[0], [node for nodes in held[1:] for node in nodes]


def _below(node: ConfigNode, depth: int = 0) -> Iterator[tuple[int, ConfigNode]]:
    """The nodes of a file, with how deep they are."""
    yield depth, node
    for one in (*node.entries.values(), *node.items):
        yield from _below(one, depth + 1)
