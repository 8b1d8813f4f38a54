"""All that two runs left, read where it can be, and named where nothing compares it."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ddpify.lint import Linted, lint_scripts
from ddpify.project import project_root
from ddpify.verify.checkpoints import checkpoint_paths, compare_checkpoints, texts
from ddpify.verify.evidence import Evidence
from ddpify.verify.identity import renamed, same_names
from ddpify.verify.interpreter import Interpreter
from ddpify.verify.options import Options
from ddpify.verify.pairing import Pair
from ddpify.verify.recording import Job
from ddpify.verify.scalars import compare_scalars, is_event_file
from ddpify.verify.shards import joined
from ddpify.verify.snapshot import Snapshot, left_behind


def gather(
    options: Options,
    pair: Pair,
    before: Mapping[Path, Snapshot],
    interpreter: Interpreter,
    reference: Job,
    distributed: Job,
    factor: int,
) -> Evidence:
    """What the checks look at, once both jobs have ended."""
    one, many = pair.original, pair.distributed
    distributed = joined(interpreter, many, distributed)
    left = left_behind(one, before[one]), left_behind(many, before[many])
    names = same_names(many, *left)
    if names:
        distributed, left = renamed(distributed, names), (left[0], left_behind(many, before[many]))
    both = [path for path in left[0] if path in left[1]]
    saved = compare_checkpoints(
        interpreter, one, many, checkpoint_paths(reference.runs[0], distributed, both)
    )
    read = texts(one, many, [path for path in both if not is_event_file(path)], names)
    scalars, rest = compare_scalars(interpreter, (one, many), left)
    known = {each.path for each in saved} | {each.path for each in read}
    script = many / options.script.resolve().relative_to(project_root(options.script))
    return Evidence(
        options=options,
        reference=reference,
        distributed=distributed,
        left_by_reference=left[0],
        left_by_distributed=left[1],
        texts=read,
        scalars=scalars,
        unread=(*rest, *_unread((one, many), left, known)),
        checkpoints=saved,
        findings=_linted(many, script, bool(distributed.runs[0].trainer)).findings,
        batch_factor=factor,
        of_whole_batches=pair.of_whole_batches,
    )


def _linted(root: Path, script: Path, trainer: bool) -> Linted:
    """What ``check`` says; a Trainer's devices were given from outside."""
    return lint_scripts(root.resolve(), [script.resolve()], {}, assume_distributed=trainer)


def _unread(
    roots: tuple[Path, Path], left: tuple[Sequence[str], Sequence[str]], known: set[str]
) -> Iterator[str]:
    """Files of another content that nothing reads, and files without one of that name."""
    for path in left[0]:
        if path not in left[1]:
            yield f"{path} (the ranks leave none of this name)"
        elif path not in known and not is_event_file(path) and _differ(roots, path):
            yield path


def _differ(roots: tuple[Path, Path], path: str) -> bool:
    try:
        return not filecmp.cmp(roots[0] / path, roots[1] / path, shallow=False)
    except OSError:  # a link to nothing
        return False
