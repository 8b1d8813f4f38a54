"""Puts the parts together: what observe.py starts before the script, and ends after it."""

from __future__ import annotations

import argparse
import os
from typing import Final

import torch.distributed as dist

from ddpify.verify.observer import collectives, dtype, neutral, streams
from ddpify.verify.observer.by_hand import HandWatch
from ddpify.verify.observer.draws import Draws
from ddpify.verify.observer.files import FileWatch
from ddpify.verify.observer.gradients import GradientWatch
from ddpify.verify.observer.loaders import LoaderWatch
from ddpify.verify.observer.memory import MemoryWatch
from ddpify.verify.observer.noise import Noise
from ddpify.verify.observer.order import BatchFactor, EvaluationOrder, GlobalOrder, read_shuffles
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.places import Places
from ddpify.verify.observer.probe import Probe
from ddpify.verify.observer.record import Recorder, StopRun
from ddpify.verify.observer.signature import Signer
from ddpify.verify.observer.steps import StepWatch
from ddpify.verify.observer.trainers import TrainerWatch


class Session:
    """One observed run; ``options`` are those of observe.py."""

    NOISES: Final = ("dropout", "batchnorm", "augmentation", "draws")
    STOP: Final = StopRun

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._recorder = Recorder(options.out, int(os.environ.get("RANK", "0")))
        self._patcher = Patcher()
        self._noise = Noise(self._recorder)
        self._signer = Signer(options.full)
        self._probe: Probe | None = None
        self._memory: MemoryWatch | None = None
        self._by_hand: HandWatch | None = None
        self._ending: dict[str, object] = {}

    def start(self) -> None:
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        about = {"rank": self._recorder.rank, "world_size": world_size}
        self._recorder.note("begin", clock=self._recorder.began, **about)
        self._recorder.answer_stack_requests()
        streams.begin(self._recorder.rank)
        if self._options.probe:
            self._probe = Probe(self._recorder, self._signer, self._options.probe)
        self._noise.start(self._patcher)
        self._change()
        self._watch()

    def _change(self) -> None:
        """What makes runs comparable; only what was asked for, and where Trainers run."""
        options = self._options
        trainers = TrainerWatch(self._recorder)
        trainers.start(self._patcher)
        if options.dtype == "float64":
            dtype.compute_in_float64(self._patcher)
        if "dropout" in options.neutralise:
            neutral.neutralise_dropout(self._patcher)
        if "batchnorm" in options.neutralise:
            neutral.neutralise_batch_norm(self._patcher)
        if options.evaluation_order:
            EvaluationOrder(trainers.any).start(self._patcher)
        if options.global_order:  # takes the order above where ranks share what a sampler draws
            GlobalOrder(options.global_order, read_shuffles(options.order)).start(self._patcher)
        if options.batch_factor > 1:
            BatchFactor(options.batch_factor).start(self._patcher)
        if options.group_timeout:
            collectives.limit_waiting(self._patcher, options.group_timeout)

    def _watch(self) -> None:
        options, recorder, patcher = self._options, self._recorder, self._patcher
        if options.memory:
            watched = LoaderWatch(recorder, 0)
            watched.start(patcher)
            self._memory = MemoryWatch(recorder, watched)
            self._memory.start(patcher)
            return
        places = Places(options.watch)
        gradients = GradientWatch(recorder, places)
        loaders = LoaderWatch(recorder, options.overfit)
        steps = StepWatch(recorder, self._signer, gradients, self._noise, options.steps)
        steps.start()
        self._by_hand = HandWatch(recorder, steps)
        if "augmentation" in options.neutralise:
            neutral.neutralise_augmentation(patcher, loaders)
        draws = Draws(recorder, loaders, self._noise, "draws" in options.neutralise)
        for part in (loaders, draws, gradients, FileWatch(recorder, options.watch), self._probe):
            if part is not None:
                part.start(patcher)
        self._by_hand.start(patcher)
        collectives.watch_collectives(recorder, patcher, places)
        collectives.watch_wrapper_communication(recorder, patcher, places)

    def end(self, status: str, exit_code: int, traceback: str = "") -> None:
        """The script came to its end; its functions registered with atexit are still to come."""
        self._ending = {"status": status, "exit_code": exit_code, "traceback": traceback}
        if self._by_hand is not None and exit_code == 0:
            self._by_hand.look()
        if self._probe and exit_code == 0:
            self._probe.answer()
        if self._memory and exit_code == 0:
            self._memory.answer()
        self._recorder.mark_end()

    def finish(self) -> None:
        """The last record; a worker that was forked writes none."""
        group_left_open = dist.is_available() and dist.is_initialized()
        self._recorder.note(
            "finish", **self._ending, group_left_open=group_left_open, noise=self._noise.counts()
        )
