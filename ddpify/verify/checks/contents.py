"""Whether the same sample is the same on both sides, from digests of what the script was given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ddpify.verify.checks.passes import passes
from ddpify.verify.recording import RunRecord, Sample

Key: TypeAlias = "tuple[bool, int, int, Sample]"  # training?, which such loader, its pass, sample


@dataclass(frozen=True)
class Content:
    """``compared`` samples of a pass, of which ``wrong`` have another content on a rank.

    ``step`` is when the first wrong one of training was handed out, ``text`` says which.
    """

    compared: int
    wrong: int
    step: int | None
    text: str
    wrong_in_evaluation: int


def contents(one: RunRecord, runs: Sequence[RunRecord]) -> Content:
    """Samples that only one side took are left to the checks of samples."""
    wanted: dict[Key, Counter[str]] = {}
    for key, digest, _ in _digests(one):
        wanted.setdefault(key, Counter())[digest] += 1
    found = [(run.rank, *each) for run in runs for each in _digests(run) if each[0] in wanted]
    wrong = [each for each in found if each[2] not in wanted[each[1]]]
    training = min((each for each in wrong if each[1][0]), key=lambda each: each[3], default=None)
    evaluation = sum(not each[1][0] for each in wrong)
    text = ""
    if training is not None:
        text = f"sample {training[1][3]} has another content on rank {training[0]}"
    return Content(len(found), len(wrong), training[3] if training else None, text, evaluation)


def _digests(run: RunRecord) -> Iterator[tuple[Key, str, int]]:
    """With the number of optimizer steps taken before."""
    every = passes(run)
    for training in (True, False):
        chosen = [each for each in every if each.training is training]
        order = sorted({each.loader for each in chosen})
        for each in chosen:
            loader = order.index(each.loader)
            for fetch in each.fetches:
                for sample, digest in zip(fetch.samples, fetch.contents, strict=False):
                    if digest:
                        yield (training, loader, each.passed, sample), digest, fetch.steps
