"""A name is no evidence: what is called like a helper or a sampler may be something else."""

from __future__ import annotations

from pathlib import Path

from ddpify.rules.examples.single import SINGLE
from tests.projects import judged, put, read

FILES = dict(SINGLE.files)
MAIN = FILES["main.py"]


def rules(text: str, folder: Path) -> set[str]:
    return {f.rule for f in judged(read(put({"main.py": text}, folder) / "main.py"))}


def test_a_sampler_that_is_only_called_distributed_shares_nothing(tmp_path: Path) -> None:
    own = (
        "from torch.utils.data import Sampler\n\n\nclass DistributedLookalike(Sampler):\n"
        "    def __iter__(self):\n        return iter(range(800))\n\n\ndef accuracy("
    )
    text = MAIN.replace("def accuracy(", own, 1)
    text = text.replace("opt.bs, shuffle=True)", "opt.bs, sampler=DistributedLookalike())")
    assert text.count("DistributedLookalike") == 2
    assert "DDP202" in rules(text, tmp_path)


def test_a_function_that_is_only_called_reduce_sum_reduces_nothing(tmp_path: Path) -> None:
    own = "def reduce_sum(a, b):\n    return a, b\n\n\ndef accuracy("
    text = MAIN.replace("def accuracy(", own, 1)
    last = "            seen += len(label)\n"
    text = text.replace(last, f"{last}        right, seen = reduce_sum(right, seen)\n")
    assert text.count("reduce_sum") == 2
    assert "DDP701" in rules(text, tmp_path)
