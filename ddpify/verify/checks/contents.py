"""Whether the same sample is the same on both sides, from digests of what the script was given."""

from __future__ import annotations

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
    wanted: dict[Key, list[_Seen]] = {}
    for key, seen in _seen(one):
        wanted.setdefault(key, []).append(seen)
    found = [(run.rank, *each) for run in runs for each in _seen(run) if each[0] in wanted]
    wrong = [each for each in found if not any(map(each[2].is_like, wanted[each[1]]))]
    training = [each for each in wrong if each[1][0]]
    evaluation = len(wrong) - len(training)
    if not training:
        return Content(len(found), len(wrong), None, "", evaluation)
    rank, key, first = min(training, key=lambda each: each[2].steps)
    text = f"sample {key[3]} has another content on rank {rank}"
    return Content(len(found), len(wrong), first.steps, text, evaluation)


@dataclass(frozen=True)
class _Seen:
    """A sample in a batch, and before it was put there; ``steps`` had been taken before."""

    digest: str
    alone: str
    width: int
    steps: int

    def is_like(self, other: _Seen) -> bool:
        """In a batch that was filled up to another length it is what it was alone."""
        filled = bool(self.alone) and self.width != other.width
        return self.digest == other.digest or (filled and self.alone == other.alone)


def _seen(run: RunRecord) -> Iterator[tuple[Key, _Seen]]:
    every = passes(run)
    for training in (True, False):
        chosen = [each for each in every if each.training is training]
        order = sorted({each.loader for each in chosen})
        for each in chosen:
            loader = order.index(each.loader)
            for fetch in each.fetches:
                alone = fetch.alone or ("",) * len(fetch.contents)
                for sample, digest, own in zip(fetch.samples, fetch.contents, alone, strict=False):
                    if digest:
                        seen = _Seen(digest, own, fetch.width, fetch.steps)
                        yield (training, loader, each.passed, sample), seen
