"""Runs the original for a step or two, in a scratch copy, and measures what it holds in memory."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from ddpify.advice.model import Measured, Weight
from ddpify.project import project_root
from ddpify.verify.interpreter import InterpreterError, examined
from ddpify.verify.launch import ProcessLaunch, run_single
from ddpify.verify.options import Options
from ddpify.verify.processes import interruptible
from ddpify.verify.read import last_note
from ddpify.verify.recording import Job
from ddpify.verify.run import (
    Report,
    VerifyError,
    devices,
    placed,
    scratch_folder,
    silent,
    why_it_failed,
)
from ddpify.verify.scratch import copy_project
from ddpify.verify.snapshot import ScratchError

TITLE = "original, for its first steps"


def measure(options: Options, report: Report = silent) -> Measured:
    """One training step of ``options.script``, with its arguments; your files stay as they are.

    In the script's own precision, on the first GPU or, without one, on the CPU.

    Raises:
        VerifyError: the script fails by itself, or takes no optimizer step.
        KeyboardInterrupt: no process and no file is left behind.
    """
    with interruptible(), scratch_folder(options) as workspace:
        try:
            return _measured(options, workspace, report)
        except (ScratchError, InterpreterError) as error:
            raise VerifyError(str(error)) from error


def _measured(options: Options, workspace: Path, report: Report) -> Measured:
    with examined(options.python) as interpreter:
        environment = devices(interpreter, 1, True)
    home = project_root(options.script)
    copy = copy_project(home, workspace / "original")
    cwd, script = placed(options.script, copy)
    launch = ProcessLaunch(
        python=options.python,
        folder=copy,
        cwd=cwd,
        script=script,
        arguments=options.arguments,
        out=workspace / "records",
        observe=("--memory",),
        timeout=options.timeout,
        environment=environment,
        on_progress=partial(report, TITLE),
        project=home,
    )
    return _read(run_single(launch), launch, options)


def _read(job: Job, launch: ProcessLaunch, options: Options) -> Measured:
    found = last_note(launch.out, "memory")
    if not job.finished:
        raise VerifyError(why_it_failed(job.runs[0], replace(options, dtype="float32")))
    if not found:
        raise VerifyError(f"{options.script}: took no optimizer step: nothing to measure")
    if not found["batch"]:
        raise VerifyError(f"{options.script}: no batch of a DataLoader was trained on")
    known = {field.name: found[field.name] for field in fields(Measured) if field.name in found}
    known["weights"] = tuple(
        Weight(**{**one, "kinds": tuple(one["kinds"])}) for one in found["weights"]
    )
    return Measured(**known, command=job.command)
