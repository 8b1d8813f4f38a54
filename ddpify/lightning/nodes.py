"""DDP963: the number of nodes that a Slurm script states, told to the Trainer.

In code it is asked of the job, so that the script has one node elsewhere; where a configuration
makes the Trainer, the command that runs on these nodes says it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ddpify import discover, launchers
from ddpify.facts.model import Facts
from ddpify.facts.tree import Tree
from ddpify.launchers.model import Launch
from ddpify.launchers.script import line_starts
from ddpify.lightning.configured import ConfiguredTrainer, configured
from ddpify.lightning.devices import ENVIRON, trainers
from ddpify.lightning.starting import RULE, offsets
from ddpify.rules.base import Edit, Finding, How, Severity
from ddpify.source import Site, Span

_NAME: Final = "num_nodes"
_ASKED: Final = 'int(environ.get("SLURM_JOB_NUM_NODES", 1))'
_TOLD: Final = "on {} nodes of a Slurm job the Trainer has to know of all of them"


def findings(root: Path, entries: Sequence[str], facts: Sequence[Facts]) -> Iterator[Finding]:
    """One finding per Trainer, or per command, that leaves out nodes that a job has."""
    files = tuple(p.relative_to(root).as_posix() for p in discover.python_files(root))
    made = [one for each in facts for one in configured(each)]
    stated: set[int] = set()
    for path in launchers.discover(root, entries):
        text = (root / path).read_bytes().decode("utf-8", "surrogateescape")
        nodes = launchers.nodes_of(text)
        for piece, launch in launchers.launches(path, text, entries, files) if nodes > 1 else ():
            if launch.slurm and not launch.already_torchrun:
                stated.add(nodes)
                found = (
                    one for trainer in made for one in _by_option(launch, text, nodes, trainer)
                )
                yield from dict.fromkeys(map(piece.placed, found))
    elsewhere = {one.call for one in made}
    for each in facts if stated else ():
        for tree, call in trainers(each):
            if call not in elsewhere:
                yield from _by_argument(tree, call, stated)


def _by_option(
    launch: Launch, text: str, nodes: int, trainer: ConfiguredTrainer
) -> Iterator[Finding]:
    """``--trainer.num_nodes=2`` at the end of the command, unless that, or a file, says so."""
    name = f"{'.'.join(trainer.path)}.{_NAME}"
    begin, end = offsets(line_starts(text), launch.site.span)
    command = text[begin:end]
    if name in command or any(said not in ("", "1") for said in trainer.texts(_NAME)):
        return
    message = _TOLD.format(nodes)
    option = f"{'--' if trainer.commandline else '++'}{name}={nodes}"
    if "$@" in command or "$*" in command or text[end : end + 1] in ("'", '"'):
        yield Finding(RULE, launch.site, message, Severity.WARNING, advice=f"add {option}")
        return
    span = launch.site.span
    at = Span(span.end_line, span.end_column, span.end_line, span.end_column)
    edit = Edit(How.TEXT, Site(launch.site.path, at), f" {option}")
    yield Finding(RULE, launch.site, message, Severity.WARNING, (edit,))


def _by_argument(tree: Tree, call: ast.Call, stated: set[int]) -> Iterator[Finding]:
    """``num_nodes`` of a Trainer, where it has none, or one."""
    given = next((one.value for one in call.keywords if one.arg == _NAME), None)
    said = getattr(given, "value", None)
    if stated == {said} or (given is not None and "SLURM_" in ast.unparse(given)):
        return
    unpacked = any(one.arg is None for one in call.keywords)
    message = _TOLD.format(" or ".join(map(str, sorted(stated))))
    if said == 1 or (given is None and not unpacked):
        edit = Edit(How.ARGUMENT, tree.site(call), _ASKED, _NAME, (ENVIRON,))
        yield Finding(RULE, tree.site(call), message, Severity.WARNING, (edit,))
    else:
        yield Finding(RULE, tree.site(call), message, Severity.NOTE, advice=f"{_NAME}={_ASKED}")
