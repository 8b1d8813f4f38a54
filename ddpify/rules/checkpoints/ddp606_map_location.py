"""DDP606: every rank loads a checkpoint onto the GPU that it was saved from."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.checkpoints.states import fills_optimizer, loaded
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS, TRAINING
from ddpify.rules.shared.outputs import by_all, own
from ddpify.rules.shared.placing import on_gpus, sees_own
from ddpify.rules.shared.savers import Lies, written_states


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per state that all ranks load without saying where to."""
    if not on_gpus(run) or sees_own(run):
        return
    for call in loaded(run):
        numbered = _is_numbered(call)
        if not numbered and (_says_where(call) or own(call.arg(0, "f"))):
            continue  # a file under the rank's name lies on the GPU of the rank that wrote it
        if not by_all(run, call):
            continue
        lies = Lies.GPU if numbered else written_states(run, not fills_optimizer(run, call))
        if lies is not Lies.CPU:
            where = "this one GPU" if numbered else "the GPU that the file was saved from"
            yield Finding(
                "DDP606",
                call.site,
                f"every rank loads onto {where}: N copies on one GPU"
                + (", if it was saved from one" if lies is Lies.NOWHERE else ""),
                Severity.WARNING if lies is Lies.GPU else Severity.NOTE,
                (Edit(How.ARGUMENT, call.site, '"cpu"', "map_location"),),
                'pass map_location="cpu"; load_state_dict copies to the right device',
            )


def _is_numbered(call: RankCall) -> bool:
    """Whether it says "cuda:0" for all ranks."""
    mapped = call.arg(1, "map_location")
    device = mapped.constant if mapped is not None else None
    return isinstance(device, str) and device.startswith("cuda:")


def _says_where(call: RankCall) -> bool:
    mapped = call.arg(1, "map_location")
    if mapped is not None and mapped.atoms != (None, None):
        return True
    return call.star or "mmap" in call.kwargs or any(_is_device(v.names()) for v in call.contexts)


def _is_device(names: set[str]) -> bool:
    return not names.isdisjoint({"torch.device", "torch.cuda.device"})


RULE = Rule(
    "DDP606",
    "load-without-map-location",
    "A file remembers the GPU of the process that wrote it, GPU 0 for rank 0. Without map_location"
    " each of N ranks puts its copy there first: out of memory on GPU 0, which then holds a CUDA"
    " context of every process too. Where the project is not seen to write a state it is a note,"
    " where all that it writes was brought to the CPU first it is nothing.",
    "DDP tutorial, save and load checkpoints; examples#1078, apex#222; BUGS K06",
    bad=(
        changed(
            PROCESS,
            (
                "    model = Dist",
                '    net.load_state_dict(torch.load("old.pt"))  # DDP606\n    model = Dist',
            ),
        ),
        changed(
            TRAINING,
            (
                "    def run(",
                "    def resume(self):\n"
                '        old = torch.load("plain.pt", weights_only=True)  # DDP606\n'
                "        self.plain.load_state_dict(old)\n\n    def run(",
            ),
            ("        for epoch", "        self.resume()\n        for epoch"),
        ),
    ),
    good=(
        PROCESS,
        TRAINING,
        changed(
            PROCESS,
            (
                "    model = Dist",
                '    net.load_state_dict(torch.load("old.pt", map_location="cpu"))\n'
                "    model = Dist",
            ),
        ),
        changed(  # data, kept as it was made
            PROCESS,
            (
                "    model = Dist",
                '    scale = torch.load("scale.pt", weights_only=True)\n    model = Dist',
            ),
            ("model(images.cuda())", "model((images / scale).cuda())"),
        ),
    ),
    lint=lint,
    words=("torch.load",),
    severity=Severity.WARNING,
)
