"""What two runs of one project computed, printed and wrote, compared.

Numbers may differ in the last digit shown, because ranks add up in another order; nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from ddpify.verify.checks import run_checks
from ddpify.verify.evidence import Evidence
from ddpify.verify.options import Options
from ddpify.verify.recording import Job, RunRecord
from ddpify.verify.verdict import Verdict
from tests.training.projects import Project

_NUMBER = re.compile(r"(?<![\w.])(\d+\.\d+(?:e[+-]\d+)?)(?![\w.])")
_CHECKPOINTS = (".pt", ".pth")
_TRAINING = (
    *("completed", "samples", "contents", "steps", "learning-rates"),
    *("gradients", "trajectory", "loss", "ranks-identical", "evaluation"),
)
TOLERANCE = 1e-5  # relative: what rounding makes in float32


def same_training(reference: Job, found: Job) -> None:
    """Step by step what `ddpify verify` compares."""
    evidence = Evidence(Options(Path(), tolerance=TOLERANCE), reference, found)
    checks = {check.name: check for check in run_checks(evidence)}
    wrong = [checks[name] for name in _TRAINING if checks[name].verdict is not Verdict.PASS]
    assert not wrong, wrong


def same_bits(expected: RunRecord, found: RunRecord) -> None:
    """Every parameter, after every optimizer step."""
    assert expected.steps, f"no optimizer step was taken ({expected.status})"
    assert len(found.steps) == len(expected.steps), found.status
    pairs = zip(expected.steps, found.steps, strict=True)
    wrong = [number for number, (one, other) in enumerate(pairs) if one.digests != other.digests]
    assert not wrong, f"rank {found.rank} differs after step {wrong[0]}"


def same_collectives(runs: Sequence[RunRecord]) -> None:
    """All ranks enter the same collectives, in the same order and from the same places."""
    entered = [[(call.name, call.site, call.size) for call in run.collectives] for run in runs]
    for number, calls in enumerate(zip_longest(*entered)):
        assert len(set(calls)) == 1, f"collective {number} differs: {calls}"


def written(tree: Path, source: Path) -> dict[str, Path]:
    """The files a run left in its copy of ``source``."""
    found = {path.relative_to(tree).as_posix(): path for path in tree.rglob("*") if path.is_file()}
    return {name: path for name, path in sorted(found.items()) if not (source / name).exists()}


def same_lines(expected: str, text: str, tolerance: float) -> None:
    """Line by line the same words and, in the last digit shown or ``tolerance``, numbers."""
    for number, (line, twin) in enumerate(zip_longest(expected.splitlines(), text.splitlines())):
        assert line is not None, f"line {number + 1} is extra: {twin!r}"
        assert twin is not None, f"line {number + 1} is missing: {line!r}"
        assert _close(line, twin, tolerance), f"line {number + 1}: {twin!r} instead of {line!r}"


def same_files(
    project: Project,
    expected: Mapping[str, Path],
    found: Mapping[str, Path],
    tolerance: float = 0.0,
) -> None:
    """The same names; texts alike but for the clock, checkpoints in every tensor."""
    assert list(found) == list(expected), f"files {sorted(found)} instead of {sorted(expected)}"
    for name, path in expected.items():
        if path.suffix in _CHECKPOINTS:
            same_content(torch.load(path), torch.load(found[name]), name, tolerance)
        else:
            text, twin = (project.masked(each.read_text()) for each in (path, found[name]))
            assert tolerance or text == twin, f"{name}: {twin!r} instead of {text!r}"
            same_lines(text, twin, tolerance)


def same_content(expected: Any, found: Any, where: str, tolerance: float = 0.0) -> None:
    """The same keys in the same order, the same values, and tensors of the same type."""
    assert type(found) is type(expected), f"{where}: {type(found)} instead of {type(expected)}"
    if isinstance(expected, dict):
        assert list(found) == list(expected), f"{where}: {list(found)}, not {list(expected)}"
        for key, value in expected.items():
            same_content(value, found[key], f"{where}[{key!r}]", tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), f"{where}: {len(found)} instead of {len(expected)}"
        for place, pair in enumerate(zip(expected, found, strict=True)):
            same_content(*pair, f"{where}[{place}]", tolerance)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype, f"{where}: {found.dtype}, not {expected.dtype}"
        assert found.shape == expected.shape, f"{where}: {found.shape}, not {expected.shape}"
        scale, apart = expected.abs().max().item(), (expected - found).abs().max().item()
        assert apart <= tolerance * scale, f"{where} differs by {apart / scale:.3g} of its size"
    else:
        close = isinstance(expected, float) and abs(expected - found) <= tolerance * abs(expected)
        assert found == expected or close, f"{where}: {found!r} instead of {expected!r}"


def _close(line: str, twin: str, tolerance: float) -> bool:
    parts, others = _NUMBER.split(line), _NUMBER.split(twin)
    numbers = zip(parts[1::2], others[1::2], strict=False)
    return parts[0::2] == others[0::2] and all(_near(*pair, tolerance) for pair in numbers)


def _near(number: str, other: str, tolerance: float) -> bool:
    if number == other or not tolerance:
        return number == other
    last_digit = 10.0 ** -len(number.partition(".")[2].partition("e")[0])
    apart = abs(float(number) - float(other))
    return apart <= 1.5 * last_digit + tolerance * abs(float(number))
