"""Pair, run, look, judge: the steps of ``ddpify verify``, in order."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeGuard

from ddpify.project import project_root
from ddpify.settings import Settings
from ddpify.verify.causes import diagnose
from ddpify.verify.checks import run_checks
from ddpify.verify.checks.comparison import Comparison
from ddpify.verify.checks.endings import endings
from ddpify.verify.checks.logged import logged
from ddpify.verify.checks.passes import passes
from ddpify.verify.gathering import gather
from ddpify.verify.interpreter import Interpreter, InterpreterError, examined
from ddpify.verify.launch import ProcessLaunch, run_ranks, run_single
from ddpify.verify.occasion import occasion
from ddpify.verify.options import NOISES, Options
from ddpify.verify.pairing import CannotCompare, Pair, pair
from ddpify.verify.processes import interruptible
from ddpify.verify.read import Progress
from ddpify.verify.recording import (
    EndRecord,
    EventRecord,
    Fetch,
    Job,
    RunRecord,
    ShuffleRecord,
)
from ddpify.verify.snapshot import ScratchError, Snapshot, snapshot
from ddpify.verify.verdict import Verification

Report = Callable[[str, Progress], None]  # what is running, and how far it is
_Told = tuple[int, int | None, list[int], bool]  # how ranks shuffle, for the reference


class VerifyError(Exception):
    """Nothing could be compared; the message is for the user."""


def silent(_what: str, _progress: Progress) -> None:
    return


def verify(
    options: Options, settings: Settings | None = None, report: Report = silent
) -> Verification:
    """Run both programs and compare them; the user's files are not touched.

    Raises:
        VerifyError: there is nothing to compare, or the original fails by itself.
        KeyboardInterrupt: no process and, without ``keep``, no file is left behind.
    """
    with interruptible(), scratch_folder(options) as workspace:
        try:
            with examined(options.python) as interpreter:
                bench = Bench.of(options, settings or Settings(), workspace, report, interpreter)
                return bench.compare()
        except (CannotCompare, ScratchError, InterpreterError) as error:
            raise VerifyError(str(error)) from error


@contextmanager
def scratch_folder(options: Options) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ddpify-verify-")).resolve()
    try:
        yield folder
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Bench:
    """Both copies, and how they are started."""

    options: Options
    settings: Settings
    workspace: Path
    report: Report
    pair: Pair
    interpreter: Interpreter
    before: dict[Path, Snapshot] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        options: Options,
        settings: Settings,
        workspace: Path,
        report: Report,
        interpreter: Interpreter,
    ) -> Bench:
        """Make the copies, and note what is in them."""
        both = pair(options, settings, workspace)
        before = {root: snapshot(root) for root in (both.original, both.distributed)}
        return cls(options, settings, workspace, report, both, interpreter, before)

    def compare(self) -> Verification:
        """Run the ranks, then the original in their order, then every check."""
        factor = self.options.nproc if self.settings.batch_size == "per-rank" else 1
        distributed = self._distributed()
        first = distributed.runs[0]
        why = first.unsupported
        if not why and first.trainer and self.settings.strategy == "fsdp":
            why = "on this machine its Trainer has ddp in the place of shards"
        if why:
            raise VerifyError(
                f"{self.options.script}: {why}, and verify compares one device with ddp"
            )
        self._order.write_text(json.dumps(self._shuffles(first)))
        reference = self._reference(factor)
        ratio = _batch_ratio(reference, distributed)
        if self.options.distributed_only and factor == 1 and ratio == self.options.nproc:
            factor, reference = ratio, self._again(ratio)
        return self._judged(reference, distributed, factor)

    def _shuffles(self, run: RunRecord) -> list[_Told]:
        known = _shuffles(run)
        if self.pair.of_whole_batches:  # drawn as by one process, on each rank
            own = {x.samples for x in run.loaders if x.sampler == "RandomSampler"}
            known += [(samples, None, [], True) for samples in sorted(own)]
        return known

    def _reference(self, factor: int) -> Job:
        order = ("--global-order", str(self.options.nproc), "--order", str(self._order))
        observe = (*order, "--batch-factor", str(factor))
        launch = self._launch(self.pair.original, "1", observe, "original, 1 process")
        if self.options.distributed_only:
            job = run_ranks(launch, 1, sharing=self.options.nproc)
        else:
            job = run_single(launch, self.options.nproc)
        if not job.finished:
            raise VerifyError(why_it_failed(job.runs[0], self.options))
        if not job.runs[0].steps:
            said = "\n".join(job.runs[0].stdout.splitlines()[-6:])
            raise VerifyError(f"the original took no optimizer step: nothing to compare\n{said}")
        return job

    def _again(self, factor: int) -> Job:
        """Each rank takes the script's whole batch: one process has to take N of them."""
        root = self.pair.original
        shutil.rmtree(root.parent)
        fresh = pair(self.options, self.settings, self.workspace / "again")
        fresh.original.parent.rename(root.parent)
        self.before[root] = snapshot(root)
        return self._reference(factor)

    def _distributed(self) -> Job:
        title = f"distributed program, {self.options.nproc} ranks"
        launch = self._launch(self.pair.distributed, "n", (), title)
        return run_ranks(launch, self.options.nproc)

    @property
    def _order(self) -> Path:
        """How the ranks shuffled: in this order the one process has to take the samples."""
        return self.workspace / "order.json"

    def _launch(self, root: Path, name: str, observe: tuple[str, ...], title: str) -> ProcessLaunch:
        cwd, script = placed(self.options.script, root)
        return ProcessLaunch(
            python=self.options.python,
            folder=root,
            cwd=cwd,
            script=script,
            arguments=self.options.arguments,
            out=self.workspace / "records" / name,
            observe=(*observe, *self._observed()),
            timeout=self.options.timeout,
            environment=devices(self.interpreter, self.options.nproc, name == "1"),
            on_progress=partial(self.report, title),
            project=project_root(self.options.script),
        )

    def _observed(self) -> tuple[str, ...]:
        options = self.options
        arguments = [
            "--evaluation-order",
            "--dtype",
            options.dtype,
            "--probe",
            str(self.workspace / "probe.pt"),
        ]
        # our own look at the clock comes first, so that a hang is seen with every rank's stack
        arguments += ["--group-timeout", str(2 * options.timeout + 60)]
        for noise in sorted(options.neutralise):
            arguments += ["--neutralise", noise]
        for flag, number in (("--steps", options.steps), ("--overfit", options.overfit)):
            arguments += [flag, str(number)] if number else []
        return (*arguments, *(["--full"] if options.full else []))

    def _judged(self, reference: Job, distributed: Job, factor: int) -> Verification:
        jobs = reference, distributed
        found = self.pair, self.before, self.interpreter
        evidence = gather(self.options, *found, *jobs, factor)
        checks = run_checks(evidence)
        return Verification(
            options=self.options,
            baseline=self.pair.baseline,
            reference=reference,
            distributed=distributed,
            setup=self._setup(factor, distributed.runs[0].trainer),
            checks=checks,
            causes=diagnose(evidence, checks),
            migration=self.pair.migration,
            kept=str(self.workspace) if self.options.keep else "",
            stopped=endings(distributed),
            logged=logged(Comparison(evidence)),
            occasion=occasion(self.options.script),
        )

    def _setup(self, factor: int, trainer: str) -> tuple[str, ...]:
        """The commands that were run, and everything that was changed for them."""
        options, nproc = self.options, self.options.nproc
        lines = [
            f"torch {self.interpreter.torch}, {self._device()}, {options.dtype}",
            f"Python: {options.python} ({options.why_python})",
            f"one process takes the samples in the order {nproc} ranks take them together",
            "where the script sets no seed, one process and rank 0 start from the same one",
        ]
        if trainer:
            lines.append(f"given to Lightning from outside: {trainer}; in one process one device")
        if factor > 1:
            lines.append(f"batch size of one process times {factor}: each rank takes the script's")
        if self.pair.migration:
            left = sum(not finding.fix for finding in self.pair.migration.findings)
            named = f"; to do by hand, see ddpify diff: {left}" if left else ""
            lines.append(f"the distributed program is made by ddpify migrate{named}")
        if options.neutralise:
            kinds = ", ".join(noise for noise in NOISES if noise in options.neutralise)
            lines.append(f"neutralised: {kinds}")
        if options.steps:
            lines.append(f"optimizer steps at most: {options.steps}")
        if options.overfit:
            lines.append(f"trained on {options.overfit} samples only")
        return tuple(lines)

    def _device(self) -> str:
        gpus, nproc = self.interpreter.gpus, self.options.nproc
        if 0 < gpus < nproc:
            return f"CPU (there are fewer GPUs, {gpus}, than ranks)"
        return f"{nproc} GPUs" if gpus else "CPU"


def placed(script: Path, copy: Path) -> tuple[Path, Path]:
    """In the copy of its project: the folder to start in, and the script from there."""
    home, here = project_root(script), Path.cwd().resolve()
    within = copy / script.resolve().relative_to(home)
    cwd = copy / here.relative_to(home) if here.is_relative_to(home) else within.parent
    return cwd, Path(os.path.relpath(within, cwd))


def devices(interpreter: Interpreter, nproc: int, alone: bool) -> Mapping[str, str]:
    """One process sees one GPU, and ranks never share one."""
    if interpreter.gpus < nproc:
        return {"CUDA_VISIBLE_DEVICES": ""} if interpreter.gpus else {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[0]} if alone else {}


def _shuffles(run: RunRecord) -> list[_Told]:
    """Samples, seed, the epochs of all passes and whether they are padded, for each loader that a
    rank shuffled.

    A pass over data that was gone through in the same epoch before was not told its own: the
    original's order is then what it should have been. One that each rank evaluates whole is
    shuffled as the script does.
    """
    trained = {each.loader for each in passes(run) if each.training}
    sizes = {loader.number: loader.samples for loader in run.loaders}
    dealt = {loader.number for loader in run.loaders if loader.sampler == "_Dealt"}
    found: dict[int, _Told] = {}
    running: dict[int, tuple[int, int | None, int]] = {}
    through: Counter[tuple[int, int | None, int]] = Counter()
    for event in _used(run):
        if isinstance(event, ShuffleRecord):
            key = running[event.loader] = (sizes[event.loader], event.seed, event.epoch)
            told: _Told = (*key[:2], [], event.loader not in dealt)
            found.setdefault(event.loader, told)[2].append(event.epoch + through[key])
        elif _ends(event, run) and event.loader in running:
            through[running[event.loader]] += 1
    drawn = [x for x in run.loaders if x.sampler == "RandomSampler" and x.number not in trained]
    return [*found.values(), *((loader.samples, None, [], True) for loader in drawn)]


def _ends(event: EventRecord, run: RunRecord) -> TypeGuard[EndRecord | Fetch]:
    """Whether a pass is over; a Trainer does not ask for more batches than there are."""
    last = isinstance(event, Fetch) and event.last
    return last if run.trainer else isinstance(event, EndRecord)


def _used(run: RunRecord) -> list[EventRecord]:
    """What a rank did, without the iterators from which it took nothing: `tqdm.auto` makes one."""
    found: list[EventRecord] = []
    begun: dict[int, ShuffleRecord] = {}
    for event in run.events:
        if isinstance(event, ShuffleRecord):
            begun[event.loader] = event
            continue
        if isinstance(event, (Fetch, EndRecord)) and event.loader in begun:
            found.append(begun.pop(event.loader))
        found.append(event)
    return found


def _batch_ratio(reference: Job, distributed: Job) -> int:
    """How many times the reference's first training batch the ranks take together; 0: unclear."""
    one = _first_batch(reference.runs[0])
    together = sum(_first_batch(run) for run in distributed.runs)
    return together // one if one and together % one == 0 else 0


def _first_batch(run: RunRecord) -> int:
    batches = (e for e in run.events if isinstance(e, Fetch) and e.grad and e.steps == 0)
    return next((len(batch.samples) for batch in batches), 0)


def why_it_failed(run: RunRecord, options: Options) -> str:
    """The original's own failure: there is nothing to compare with."""
    if run.stack:
        return f"the original makes no progress for {options.timeout:g} s:\n{run.stack}"
    advice = ""
    if options.dtype == "float64" and re.search("dtype|Double|Float|Half", run.traceback):
        advice = "; perhaps because it computes in float64 here: try --dtype float32"
    said = run.stderr if run.over else run.traceback or run.stderr
    tail = "\n".join(said.splitlines()[-12:])
    return f"the original fails by itself ({run.ending}){advice}\n{tail}".rstrip()
