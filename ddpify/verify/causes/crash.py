"""A rank failed by an exception of its own: what its text says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ddpify.verify.causes.base import Case
from ddpify.verify.checks.base import user_frames
from ddpify.verify.checks.check_files import shared, without_ids
from ddpify.verify.checks.endings import only_others_failed
from ddpify.verify.recording import RunRecord
from ddpify.verify.verdict import Cause

_TEXTS: Final = (
    (r"'DistributedDataParallel' object has no attribute", "DDP303"),
    (r"'DataParallel' object has no attribute", "DDP302"),
    (r"AttributeError: 'NoneType' object has no attribute", "DDP504"),
    (r"Expected to have finished reduction|parameters that were not used in", "DDP301"),
    (r"doesn't require a gradient|module that doesn't", "DDP301"),
    (r"sampler option is mutually exclusive|expected unspecified (?:batch_)?sampler", "DDP202"),
    (r"Expected more than 1 value per channel", "DDP206"),
    (r"batch_size should be a positive|modulo by zero|^StopIteration", "DDP203"),
    (r"division by zero", "DDP701"),
    (r"shape '.*' is invalid for input|must match the size of tensor", "DDP206"),
    (r"Target size .* must be the same as input size", "DDP206"),
    (r"batch_size \(\d+\)|size mismatch|Sizes of tensors must match", "DDP206"),
    (r"expects? same model across all ranks|appears not to match sizes", "DDP111"),
    (r'Unexpected key\(s\) in state_dict: "module\.', "DDP602"),
    (r'Missing key\(s\) in state_dict: "module\.', "DDP603"),
    (r"process group has not been initialized", "DDP101"),
    (r"Duplicate GPU|out of memory|invalid device ordinal", "DDP103"),
    (r"^FileExistsError|Directory not empty", "DDP503"),
)
_MISSING_FILE: Final = re.compile(r"^FileNotFoundError.*?['\"](?P<path>[^'\"]+)['\"]", re.DOTALL)
_DAMAGED: Final = re.compile(
    r"UnpicklingError|EOFError|PytorchStreamReader|BadZipFile|ReadError|truncated|corrupt"
    r"|JSONDecodeError|unexpected end|mmap|invalid header|file size",
    re.IGNORECASE,
)


def crash(case: Case) -> Iterator[Cause]:
    if not case.c.evidence.reference.finished:
        return
    for run in case.c.ranks:
        if run.crashed and not only_others_failed(run):
            rule = _rule(case, run)
            if rule:
                yield case.cause(rule, _evidence(case, run))
                return


def _rule(case: Case, run: RunRecord) -> str:
    if run.status.startswith("StopIteration") and case.found("DDP202"):
        return "DDP202"
    for pattern, rule in _TEXTS:
        if re.search(pattern, run.status):
            return rule
    if missing := _MISSING_FILE.search(run.status):
        return _missing(case, run, missing["path"])
    if _DAMAGED.search(run.status):
        return "DDP204" if _others_data(case, run) else _saved(case)
    return "DDP204" if not run.steps and _others_data(case, run) else ""


def _missing(case: Case, run: RunRecord, path: str) -> str:
    """Who makes the file: another rank, later, or each rank one of another name."""
    relative = path.removeprefix(case.c.evidence.distributed.folder).lstrip("/")
    others = [change for other in case.c.ranks if other is not run for change in other.files]
    made = [change for change in (*others, *case.c.one.files) if change.path.endswith(relative)]
    if any(change.operation == "torch.save" for change in made):
        return _saved(case, relative)
    alike = without_ids(relative)
    elsewhere = [c for c in others if without_ids(c.path).endswith(alike) and c.path != relative]
    if not made and elsewhere and alike != relative:
        return "DDP506"
    if made:
        return "DDP204" if not run.steps else "DDP502"
    folder = relative.rpartition("/")[0]
    makes = (c.operation == "os.mkdir" and c.path == folder for c in (*others, *case.c.one.files))
    return "DDP503" if folder and any(makes) else ""


def _saved(case: Case, path: str = "") -> str:
    """A checkpoint that is not there, or damaged: several ranks write it, or one does, later."""
    saved = [each for each in shared(case.c.ranks) if each.change.operation == "torch.save"]
    return "DDP601" if any(each.path.endswith(path) for each in saved) else "DDP604"


def _others_data(case: Case, run: RunRecord) -> bool:
    """Before training another rank writes a file that this one only reads."""
    own = {change.path for change in run.files}
    return any(
        change.operation == "open" and change.steps == 0 and change.path not in own
        for other in case.c.ranks
        if other is not run
        for change in other.files
    )


def _evidence(case: Case, run: RunRecord) -> str:
    frames = user_frames(run.traceback, case.c.evidence.distributed.folder)
    where = f" at {frames[-1]}" if frames else ""
    text = run.status.splitlines()[0]
    return f"rank {run.rank} fails{where}: {text}"
