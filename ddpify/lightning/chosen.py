"""DDP963: classes, and files of them, that a command chooses for a Trainer past the configurations.

``--model Other``, ``--data data.yaml``, ``model._target_=other.Net``, ``--config-dir elsewhere``:
what is trained then was not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ddpify import discover, launchers
from ddpify.configs import programs
from ddpify.facts.model import Facts
from ddpify.launchers.script import line_starts
from ddpify.lightning.configured import ConfiguredTrainer, configured
from ddpify.lightning.starting import RULE, offsets
from ddpify.rules.base import Finding, Severity
from ddpify.source import Site, Span

_OPTIONS: Final = {
    True: re.compile(
        r"\s--(?:model|data|trainer|trainer\.callbacks\+?)(?:\.class_path)?(?:=|\s+)(\S+)"
        r"|\s--config(?:=|\s+)(\S+\.(?:json|jsonnet|toml))(?=\s|$)"
    ),
    False: re.compile(r"\s(?:\S*\._target_=|(?:--config-dir|-cd|--config-path|-cp)(?:=|\s+))(\S+)"),
}
_FILES: Final = ("yaml", "yml", "json", "jsonnet", "toml")
_BESIDE: Final = "this script takes the same configurations, and is not migrated with it"
_CLASS: Final = re.compile(r"^\s*class\s+(\w+)", re.MULTILINE)
_MESSAGE: Final = "this command has a Trainer train what was not read (`{}`)"
_ADVICE: Final = "name the class in a configuration file that the program has"


def findings(root: Path, entries: Sequence[str], facts: Sequence[Facts]) -> Iterator[Finding]:
    """One finding per such option of a command; of one in documentation it is only noted."""
    made = [one for each in facts for one in configured(each)]
    files = [*discover.python_files(root)] if made else []
    paths = tuple(file.relative_to(root).as_posix() for file in files)
    classes = {
        name for file in files for name in _CLASS.findall(file.read_text("utf-8", "replace"))
    }
    read = {path for each in facts for path in each.trees}
    for file, path in zip(files, paths, strict=True):
        if path not in read and any(
            programs.trees_of(file, file.read_text("utf-8", "replace"), root)
        ):
            site = Site(path, Span(1, 0, 1, 0))
            yield Finding(RULE, site, _BESIDE, Severity.NOTE, advice="name it to migrate, too")
    for path in launchers.discover(root, entries) if made else ():
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        for piece, launch in launchers.launches(path, text, entries, paths):
            begin, end = offsets(line_starts(piece.text), launch.site.span)
            severity = Severity.NOTE if launch.brief else Severity.ERROR
            for said in dict.fromkeys(_unread(piece.text[begin:end], made, classes)):
                message = _MESSAGE.format(said)
                found = Finding(RULE, launch.site, message, severity, advice=_ADVICE)
                yield piece.placed(found)


def _unread(command: str, made: Sequence[ConfiguredTrainer], classes: set[str]) -> Iterator[str]:
    """The values of such options that no configuration has."""
    for trainer in made:
        known = {target.rpartition(".")[2] for target in trainer.config.targets()}
        for found in _OPTIONS[trainer.commandline].finditer(command):
            value = found[found.lastindex or 1].strip("\"'")
            name = value.rpartition(".")[2]
            folder = not trainer.commandline and "_target_" not in found[0]
            if folder or name in _FILES or (name in classes and name not in known):
                yield value
