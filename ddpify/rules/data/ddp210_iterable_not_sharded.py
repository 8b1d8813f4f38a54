"""DDP210: every rank reads a whole stream."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.data.undealt import dealt_by_worker, whole_streams
from ddpify.rules.examples import BY_HAND, CORRECT, changed


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loader over an IterableDataset that knows nothing of ranks."""
    for loader, stream in whole_streams(run):
        if loader.call is not None and stream.cls is not None:
            method = stream.cls.method("__iter__")
            by_worker = dealt_by_worker(method) if method is not None else None
            yield Finding(
                "DDP210",
                by_worker or loader.call.site,
                f"every rank reads all of {stream.cls.name}: an IterableDataset takes no sampler",
                Severity.ERROR,
                (),
                "in its __iter__, yield every n-th sample: n = ranks * workers, from rank * workers"
                " + worker on",
                ((method.site, "it yields the same on all ranks"),) if method is not None else (),
            )


_STREAM = (
    "class Numbers(IterableDataset):\n    def __iter__(self):\n"
    "        for start in range(512):\n"
    "            yield torch.arange(start, start + 32.0) / 544, start % 10\n\n\ndef train"
)
_DEALT = _STREAM.replace("range(512)", "range(dist.get_rank(), 512, dist.get_world_size())")
_BY_WORKER = _STREAM.replace("range(512)", "range(get_worker_info().id, 512, 4)").replace(
    "class Numbers", "from torch.utils.data import get_worker_info\n\n\nclass Numbers"
)
_LOADER = (
    ("def train", _STREAM),
    ("import DataLoader, TensorDataset", "import DataLoader, IterableDataset"),
    ("from torch.utils.data.distributed import DistributedSampler\n", ""),
    ("    data = TensorDataset(torch.randn(512, 32), torch.randint(0, 10, (512,)))\n", ""),
    ("    sampler = DistributedSampler(data)\n", ""),
    ("        sampler.set_epoch(epoch)\n", ""),
    ("DataLoader(data, batch_size=16, sampler=sampler)", "DataLoader(Numbers(), 16)  # DDP210"),
)

RULE = Rule(
    "DDP210",
    "iterable-not-sharded",
    "An IterableDataset takes no sampler (DataLoader raises ValueError), so it has to deal by"
    " itself. Without it both of two ranks read everything, and every worker of a loader once more:"
    " two workers double each sample. The step count and the learning are those of one process.",
    "datasets#5360; lightning#15734; torch.utils.data.IterableDataset; BUGS D06",
    bad=(
        changed(BY_HAND, *_LOADER),
        changed(BY_HAND, (_LOADER[0][0], _BY_WORKER), *_LOADER[1:]),
    ),
    good=(
        *CORRECT,
        changed(
            BY_HAND,
            ("def train", _DEALT),
            *_LOADER[1:-1],
            ("DataLoader(data, batch_size=16, sampler=sampler)", "DataLoader(Numbers(), 16)"),
        ),
    ),
    lint=lint,
    severity=Severity.ERROR,
    fixes=False,
)
