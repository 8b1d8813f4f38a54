"""DDP113: NCCL in a program that also has a way without GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS, TRAINING
from ddpify.rules.shared.written import alternatives, texts

AVAILABLE = "torch.cuda.is_available"


def lint(run: Run) -> Iterable[Finding]:
    """Yield the opening of an NCCL group that a machine without GPUs comes to as well."""
    session = run.session
    if session is None or _guarded(session):
        return
    backend = session.arg(0, "backend")
    if backend is None or backend.constant != "nccl" or not session.everywhere:
        return
    for call in run.named(AVAILABLE):
        if _chooses_cpu(call) and not _guarded(call):
            yield Finding(
                "DDP113",
                session.site,
                "without a GPU this stops, though the program has a way for the CPU",
                Severity.NOTE,
                advice='choose: "nccl" if torch.cuda.is_available() else "gloo"',
                because=((call.site, "the CPU is chosen here, where there is no GPU"),),
            )
            return


def _guarded(call: RankCall) -> bool:
    """Whether a call is under a condition, other than that the file is the one that is run."""
    return bool(call.conditions)


def _chooses_cpu(call: RankCall) -> bool:
    """Whether the test decides between a GPU and "cpu"."""
    return "cpu" in texts(alternatives(call))


RULE = Rule(
    "DDP113",
    "backend-fixed-to-nccl",
    'NCCL needs GPUs: without them init_process_group("nccl") stops the program, and what it does'
    " for the CPU further on is never reached. gloo is the backend for the CPU.",
    "torch.distributed documentation, which backend to use; BUGS L18",
    bad=(
        changed(
            PROCESS,
            ('("nccl")', '("nccl")  # DDP113'),
            ("    torch.cuda.set_device(local_rank)\n", ""),
            (
                "    digits",
                '    cuda = torch.device("cuda", local_rank)\n'
                '    device = cuda if torch.cuda.is_available() else torch.device("cpu")\n'
                "    digits",
            ),
            ("nn.Linear(784, 10)).cuda()", "nn.Linear(784, 10)).to(device)"),
            ("(net, device_ids=[local_rank])", "(net)"),
            ("model(images.cuda()), labels.cuda()", "model(images.to(device)), labels.to(device)"),
        ),
        changed(
            TRAINING,
            ('"nccl")', '"nccl")  # DDP113'),
            ("    torch.cuda.set_device(gpu)\n", ""),
            (
                "return gpu",
                'return torch.device("cuda", gpu) if torch.cuda.is_available() else "cpu"',
            ),
            (", device_ids=[self.gpu]", ""),
        ),
    ),
    good=(
        PROCESS,
        TRAINING,
        changed(
            PROCESS,
            ('("nccl")', '("nccl" if torch.cuda.is_available() else "gloo")'),
            ("    torch.cuda.set_device(local_rank)\n", ""),
            (
                "    digits",
                '    cuda = torch.device("cuda", local_rank)\n'
                '    device = cuda if torch.cuda.is_available() else torch.device("cpu")\n'
                "    digits",
            ),
            ("nn.Linear(784, 10)).cuda()", "nn.Linear(784, 10)).to(device)"),
            ("(net, device_ids=[local_rank])", "(net)"),
            ("model(images.cuda()), labels.cuda()", "model(images.to(device)), labels.to(device)"),
        ),
    ),
    lint=lint,
    severity=Severity.NOTE,
    fixes=False,
)
