"""DDP106: the global rank is used as the number of a GPU."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import LOCAL_RANK, RANK
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS, TRAINING
from ddpify.rules.shared.parents import SPAWN
from ddpify.rules.shared.placing import choices, sources

# What a rank passes through and is still the rank.
_PLAIN = ("torch.distributed.", "builtins.", "os.", "torch.device")


def lint(run: Run) -> Iterable[Finding]:
    """Yield the first device whose number is the global rank."""
    if run.session is None or run.frameworks or any(run.named(SPAWN)) or _is_of_one_node(run):
        return
    for choice in choices(run):
        if choice.index is not None and _is_rank(choice.index):
            yield Finding(
                "DDP106",
                choice.call.site,
                "the global rank as a GPU's number: `invalid device ordinal` on the second node",
                Severity.WARNING,
                advice="use the local rank, LOCAL_RANK, which counts from 0 on every node",
            )
            return


def _is_of_one_node(run: Run) -> bool:
    """Whether the ranks are told the number on their node as theirs: two nodes never meet."""
    told = run.session.arg(4, "rank") if run.session is not None else None
    return told is not None and any(one.kind == LOCAL_RANK for one in told.origins)


def _is_rank(index: RankValue) -> bool:
    """Whether a number was made of the rank that the program asked for, without arithmetic."""
    asked = all(o.kind == RANK and o.what in ("RANK", "get_rank()") for o in index.origins)
    whole = all(name.startswith(_PLAIN) for name in sources(index))
    return bool(index.origins) and asked and whole and index.atoms not in ((0, 0), (1, 1))


_SET_UP = """local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
"""

RULE = Rule(
    "DDP106",
    "rank-for-device",
    "The global rank counts over all nodes, GPUs count from 0 on each: on two nodes of eight, rank"
    " 8 asks for GPU 8 and stops with `invalid device ordinal`. It works only on one node.",
    "llama-cookbook#90, gpt-oss#266, LMCache#814; BUGS L02",
    bad=(
        changed(
            PROCESS,
            (
                _SET_UP,
                'dist.init_process_group("nccl")\n'
                "    torch.cuda.set_device(dist.get_rank())  # DDP106\n"
                "    local_rank = torch.cuda.current_device()\n",
            ),
        ),
        changed(
            TRAINING,
            ('int(os.environ["LOCAL_RANK"])', 'int(os.environ["RANK"])'),
            ("set_device(gpu)", "set_device(gpu)  # DDP106"),
        ),
    ),
    good=(
        PROCESS,
        TRAINING,
        changed(TRAINING, ('int(os.environ["LOCAL_RANK"])', 'int(os.environ["RANK"]) % 8')),
        changed(
            PROCESS,
            (
                _SET_UP,
                'dist.init_process_group("nccl")\n'
                "    local_rank = dist.get_rank() % torch.cuda.device_count()\n"
                "    torch.cuda.set_device(local_rank)\n",
            ),
        ),
        changed(
            PROCESS,
            (
                _SET_UP,
                'local_rank = int(os.environ["LOCAL_RANK"])\n'
                '    dist.init_process_group("nccl", rank=local_rank)\n'
                "    torch.cuda.set_device(dist.get_rank())\n",
            ),
        ),
    ),
    lint=lint,
    severity=Severity.WARNING,
    fixes=False,
)
