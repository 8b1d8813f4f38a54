"""DDP960, DDP965, DDP966 in YAML: the section of a config from which a Trainer takes its arguments.

``Trainer(**cfg.trainer)`` and ``Trainer(devices=cfg["trainer"]["devices"])`` name the section; its
line ``devices: 1`` is changed in every file that has it, whichever the program is started with.
What the command line says (``trainer.devices=2``) wins as before.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ddpify.facts.model import Facts
from ddpify.lightning.devices import ADVICE, ONE, RULE, trainers
from ddpify.lightning.limits import of_argument
from ddpify.roots import files_below
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.settings import Settings
from ddpify.source import Site, Span

_KEY: Final = re.compile(r"(\s*)([\w-]+)\s*:\s*(?:(\S.*?)\s*)?(?:\s#.*)?$")
_ONES: Final = ("1", "[0]", "'1'", '"1"')


def findings(root: Path, facts: Facts, settings: Settings) -> Iterator[Finding]:
    """One finding per line of a config that gives a Trainer one device, or a number of batches."""
    sections = {key for _, call in trainers(facts) for key in _sections(call)}
    for file in files_below(root, ".yaml", ".yml") if sections else ():
        text = file.read_bytes().decode("utf-8", "surrogateescape")
        path = file.relative_to(root).as_posix()
        for key, value, span in _within(text, sections):
            if key == "devices" and value in _ONES:
                edit = Edit(How.TEXT, Site(path, span), "auto")
                yield Finding(RULE, edit.site, ONE, Severity.WARNING, (edit,))
            elif key == "gpus":
                advice = f"Lightning 2 has no `gpus`: {ADVICE}"
                yield Finding(RULE, Site(path, span), ONE, Severity.NOTE, advice=advice)
            yield from of_argument(key, value, Site(path, span), settings)


def _sections(call: ast.Call) -> Iterator[str]:
    """The names of the sections that a Trainer's arguments come from."""
    for one in call.keywords:
        if one.arg is None:
            yield _key(one.value)
        elif one.arg == "devices" and _key(one.value) == "devices":
            yield _key(getattr(one.value, "value", one.value))


def _key(node: ast.expr) -> str:
    """``b`` of ``a.b`` and of ``a["b"]``."""
    if isinstance(node, ast.Subscript):
        return str(getattr(node.slice, "value", ""))
    return node.attr if isinstance(node, ast.Attribute) else ""


def _within(text: str, sections: set[str]) -> Iterator[tuple[str, str, Span]]:
    """The keys right below such a section, with the text and the place of their values."""
    deep, first = -1, -1  # how far the section is indented, and what is in it
    for number, line in enumerate(text.splitlines(), 1):
        found = _KEY.match(line)
        if found is None:
            continue
        indent, key, value = len(found[1]), found[2], found[3] or ""
        if indent <= deep:
            deep = -1
        if deep < 0:
            deep, first = (indent, -1) if key in sections and not value else (-1, -1)
            continue
        first = indent if first < 0 else first
        if indent == first and value:
            yield key, value, Span(number, found.start(3), number, found.end(3))
