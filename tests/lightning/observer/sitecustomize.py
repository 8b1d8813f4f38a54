"""Watch a Lightning project from outside, in every process that it starts or is started with.

Python imports a ``sitecustomize`` that stands on its path before the script, in each process: so
a project is watched without an edit, whoever launches its ranks. Nothing happens unless OBSERVED
names a folder. In it, each rank writes

- ``rank<r>.jsonl``: what happened, one event a line, as it happens;
- ``console<r>.txt``: what it printed;
- ``parameters<r>.pt``: the parameters before the first step and after each step of the optimizer.

What else can be asked for, in the environment:

- OBSERVED_TRAINER: arguments of ``Trainer`` (JSON) in place of those that the project gives;
- OBSERVED_TIMEOUT: seconds after which a collective without its partners is an error;
- OBSERVED_ORDER: shuffle as Lightning's distributed sampler does, which a run of one process that
  several are compared with needs (its batches are then the ranks' batches together);
- OBSERVED_SLOW: seconds that each ``np.savez`` takes longer (to have a race whenever there is one);
- OBSERVED_SAME_BEST: all ranks take the first one's best checkpoint after training.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from datetime import timedelta

TRAINERS = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
OUT = os.environ.get("OBSERVED", "")
RANK = int(os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or 0)


class Events:
    """The file of this rank's events; opened with the first one."""

    def __init__(self):
        self.pending = []
        self.file = None

    def add(self, kind, **what):
        line = json.dumps({"kind": kind, "time": time.time(), **what}, default=str) + "\n"
        self.pending.append(line.encode())
        if self.file is not None:
            self.flush()

    def flush(self):
        if self.file is None:
            path = os.path.join(OUT, f"rank{RANK}.jsonl")
            self.file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        pending, self.pending = self.pending, []
        os.write(self.file, b"".join(pending))


class Console:
    """Standard output, and a copy of it."""

    def __init__(self, stream):
        self.stream = stream
        self.copy = os.open(
            os.path.join(OUT, f"console{RANK}.txt"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644
        )

    def write(self, text):
        os.write(self.copy, text.encode())
        return self.stream.write(text)

    def __getattr__(self, name):
        return getattr(self.stream, name)


class Finder(importlib.abc.MetaPathFinder):
    """Calls `watch` with Lightning's trainer as soon as it is imported."""

    def find_spec(self, name, path=None, target=None):
        if name not in TRAINERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        executed = spec.loader.exec_module

        def exec_module(module):
            executed(module)
            watch(module, name.split(".trainer")[0])

        spec.loader.exec_module = exec_module
        return spec


EVENTS = Events()


def watch(module, package):
    """Have each Trainer report. ``package`` is lightning.pytorch or pytorch_lightning."""
    sys.stdout = Console(sys.stdout)
    EVENTS.flush()
    trainers = []
    _watch_trainers(module.Trainer, package, trainers)
    _watch_batches(trainers)
    _watch_saves()
    if "OBSERVED_ORDER" in os.environ:
        _shuffle_alike(trainers)
    if "OBSERVED_TIMEOUT" in os.environ:
        _give_up_after(float(os.environ["OBSERVED_TIMEOUT"]), package)
    if "OBSERVED_SLOW" in os.environ:
        _slow_down(float(os.environ["OBSERVED_SLOW"]))


def _watch_trainers(trainer, package, trainers):
    made = trainer.__init__

    @functools.wraps(made)  # a command line is made of its signature
    def __init__(self, *args, **kwargs):
        kwargs.update(json.loads(os.environ.get("OBSERVED_TRAINER", "{}")))
        given = kwargs.get("callbacks") or []
        given = list(given) if hasattr(given, "__iter__") else [given]
        kwargs["callbacks"] = [*given, _callback(importlib.import_module(package))]
        made(self, *args, **kwargs)
        trainers.append(self)
        EVENTS.add("trainer", world=self.world_size, strategy=type(self.strategy).__name__)

    trainer.__init__ = __init__


def _watch_batches(trainers):
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    fetched = _MapDatasetFetcher.fetch

    def fetch(self, indices):
        stage = trainers[-1].state.stage if trainers else None
        if stage is not None:
            EVENTS.add(
                "batch",
                stage=stage.value,
                epoch=trainers[-1].current_epoch,
                of=len(self.dataset),
                indices=[int(index) for index in indices],
            )
        return fetched(self, indices)

    _MapDatasetFetcher.fetch = fetch


def _watch_saves():
    import torch

    saved = torch.save

    def save(what, to, *args, **kwargs):
        if isinstance(to, (str, os.PathLike)):
            EVENTS.add("written", path=os.path.abspath(to), by="torch.save")
        return saved(what, to, *args, **kwargs)

    torch.save = save


def _shuffle_alike(trainers):
    import torch
    from torch.utils.data import RandomSampler

    def shuffled(self):
        generator = torch.Generator()
        epoch = trainers[-1].current_epoch if trainers else 0
        generator.manual_seed(int(os.environ.get("PL_GLOBAL_SEED", 0)) + epoch)
        yield from torch.randperm(len(self.data_source), generator=generator).tolist()

    RandomSampler.__iter__ = shuffled


def _give_up_after(seconds, package):
    """From when all ranks are there: how long it takes to start them is another matter."""
    import torch

    strategy = importlib.import_module(f"{package}.strategies.ddp").DDPStrategy
    set_up = strategy.setup_environment

    def setup_environment(self):
        set_up(self)
        torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), None)

    strategy.setup_environment = setup_environment


def _slow_down(seconds):
    import numpy

    savez = numpy.savez

    def slow(*args, **kwargs):
        time.sleep(seconds)
        return savez(*args, **kwargs)

    numpy.savez = slow


def _callback(package):
    """The callback that reports; it changes nothing but, if asked to, the best checkpoint."""
    import torch

    class Observer(package.Callback):
        def __init__(self):
            self.steps = []
            self.seen = None

        def on_fit_start(self, trainer, pl_module):
            state = _plain(trainer.datamodule)
            EVENTS.add("fit", checkpoint=trainer.ckpt_path, datamodule=state)

        def on_train_start(self, trainer, pl_module):
            EVENTS.add("start", epoch=trainer.current_epoch, step=trainer.global_step)
            self.seen = trainer.global_step
            self.steps.append(_vector(pl_module))

        def on_train_epoch_start(self, trainer, pl_module):
            EVENTS.add("epoch", epoch=trainer.current_epoch, batches=trainer.num_training_batches)

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if trainer.global_step != self.seen:
                self.seen = trainer.global_step
                rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
                EVENTS.add("step", step=trainer.global_step, rates=rates)
                self.steps.append(_vector(pl_module))

        def on_train_end(self, trainer, pl_module):
            torch.save(torch.stack(self.steps), os.path.join(OUT, f"parameters{RANK}.pt"))

        def on_fit_end(self, trainer, pl_module):
            EVENTS.add("metrics", metrics=_numbers(trainer))
            _report_best(trainer, trainer.checkpoint_callback)

        def on_test_end(self, trainer, pl_module):
            EVENTS.add("tested", metrics=_numbers(trainer))

    return Observer()


def _report_best(trainer, keeper):
    if keeper is None:
        return
    EVENTS.add("best", path=keeper.best_model_path, score=keeper.best_model_score)
    if "OBSERVED_SAME_BEST" in os.environ:
        keeper.best_model_path = trainer.strategy.broadcast(keeper.best_model_path)


def _vector(module):
    import torch

    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def _numbers(trainer):
    return {key: float(value) for key, value in trainer.callback_metrics.items()}


def _plain(datamodule):
    state = vars(datamodule) if datamodule is not None else {}
    kinds = (bool, int, float, str, list)
    return {key: value for key, value in state.items() if isinstance(value, kinds)}


def _opened(event, args):
    """An audit hook: files in the working folder that are opened to be written."""
    if event != "open" or not isinstance(args[0], (str, os.PathLike)):
        return
    mode, path = args[1] or "", os.path.abspath(args[0])
    if any(letter in mode for letter in "wax+") and path.startswith(os.getcwd() + os.sep):
        EVENTS.add("written", path=path, mode=mode)


if OUT:
    sys.meta_path.insert(0, Finder())
    sys.addaudithook(_opened)
