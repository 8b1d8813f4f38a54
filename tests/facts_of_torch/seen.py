"""What two ranks saw of each fact in a module of ``ranks``; one process imports torch for all."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.torchrun import finish, start

ROOT = Path(__file__).parents[2]
LIMIT = 550
MARKS = [pytest.mark.training, pytest.mark.thorough, pytest.mark.timeout(LIMIT + 50)]


@dataclass(frozen=True)
class Rank:
    """How one process came through a fact."""

    value: Any = None
    error: str = ""
    ended: str = ""  # "hangs", "signal 6"
    log: str = ""

    @property
    def waited(self) -> bool:
        """It was still waiting for its peer when the group's time was up."""
        return "imed out" in self.error or "timeout" in self.error

    @property
    def failed(self) -> bool:
        return bool(self.error or self.ended)


@dataclass(frozen=True)
class Seen:
    """``seen[fact]``: what it returned on each rank. ``seen.ranks(fact)``: how it ended there."""

    facts: dict[str, list[dict[str, Any]]]

    def ranks(self, fact: str) -> list[Rank]:
        return [Rank(**seen) for seen in self.facts[fact]]

    def __getitem__(self, fact: str) -> list[Any]:
        ranks = self.ranks(fact)
        assert not any(rank.failed for rank in ranks), ranks
        return [rank.value for rank in ranks]

    def hung(self, fact: str) -> bool:
        """All waited, until the time of the first was up; the others may have noticed that."""
        ranks = self.ranks(fact)
        return all(rank.failed for rank in ranks) and any(rank.waited for rank in ranks)

    def errors(self, fact: str) -> list[str]:
        """What was raised on each rank, "" where nothing was."""
        return [rank.error for rank in self.ranks(fact)]


@cache
def seen_of(module: str) -> Seen:
    """The facts of ``tests/facts_of_torch/ranks/<module>.py``, measured once."""
    command = [sys.executable, "-m", "tests.facts_of_torch.pairs"]
    job = start([*command, f"tests.facts_of_torch.ranks.{module}"], ROOT)
    out, err = finish(job, timeout=LIMIT)
    assert job.returncode == 0, err
    return Seen(json.loads(out.splitlines()[-1]))
