"""Random numbers that the training loop or the model draws: counted, and on request neutral.

One process draws for B samples what N ranks draw for B/N each, from streams that differ by right.
A neutral draw leaves the script's streams alone. Where it has a row for each sample of the batch
that was fetched last, each row comes from a stream of its own, decided by the sample, the pass
and the draw: the same on whatever process the sample is. Any other comes from one stream for the
batch, the same in every process: numbers for the whole batch (mixup's share) agree then. One that
depends on how many samples a process has (a permutation of the batch, two rows for each sample)
cannot be shared out; which draws were not is recorded, and where one process and the ranks
disagree in it, nothing is decided.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from ddpify.verify.observer import drawing_arrays, drawing_tensors, streams
from ddpify.verify.observer.loaders import Batch, LoaderWatch
from ddpify.verify.observer.noise import Noise
from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.record import Recorder


class Draws:
    """To be started after ``loaders``. Draws count once an optimizer steps after them."""

    def __init__(
        self, recorder: Recorder, loaders: LoaderWatch, noise: Noise, neutral: bool
    ) -> None:
        self.neutral = neutral
        self._recorder = recorder
        self._loaders = loaders
        self._noise = noise
        self._batch: Batch | None = None  # the one that is numbered
        self._numbers: Counter[tuple[Any, ...]] = Counter()
        self._states: dict[str, str] = {}  # when the batch was handed out, or last looked at
        self._dropped = 0
        self._drawn = False  # since the last step, and not neutral
        self._found: set[tuple[str, str]] = set()  # kind and detail, the same
        self._known: set[tuple[str, str]] = set()  # recorded already

    def start(self, patcher: Patcher) -> None:
        patcher.replace(dataloader._BaseDataLoaderIter, "__next__", self._handing_out)
        register_optimizer_step_pre_hook(self._count)
        drawing_tensors.replace(patcher, self)
        drawing_arrays.replace(patcher, self)

    @property
    def wanted(self) -> bool:
        """Whether what is drawn now is drawn by the script, for a batch."""
        recorder = self._recorder
        return self._loaders.batch is not None and not (recorder.quiet or recorder.forked)

    def met(self, stream: str, shape: Sequence[int]) -> None:
        """Something was drawn as it always is."""
        batch = self._loaders.batch
        if batch is not None and batch.grad:
            self._drawn = True
            if _has_rows(shape, batch):
                self._found.add(("rows", stream))

    def seeds(self, name: str, shape: Sequence[int], divisible: bool = True) -> int | list[int]:
        """Of a neutral draw: one for each row, or one where the rows are not the samples'."""
        batch = self._loaders.batch
        assert batch is not None
        if batch is not self._batch:
            self._batch = batch
            self._numbers.clear()
        if divisible and _has_rows(shape, batch):
            place = (name, *shape[1:])
            key = ("row", batch.passed, *place, self._number("row", *place))
            return [_seed(*key, sample) for sample in batch.samples]
        place = (name, *shape)
        number = self._number("whole", *place)
        if batch.grad:
            self._found.add(("shared", f"{name}({', '.join(map(str, shape))}) #{number}"))
        return _seed("whole", batch.grad, batch.passed, batch.place, *place, number)

    def _number(self, *place: Any) -> int:
        """How many draws of the same kind there were for the batch."""
        self._numbers[place] += 1
        return self._numbers[place] - 1

    def _handing_out(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def next_batch(iterator: Any) -> Any:
            self._look()
            batch = original(iterator)
            self._states = self._present()
            return batch

        return next_batch

    def _present(self) -> dict[str, str]:
        batch = self._loaders.batch
        if batch is None or not batch.grad or self._recorder.forked:
            return {}
        self._dropped = self._noise.counts()[0]
        with self._recorder.own():
            return streams.digests()

    def _look(self) -> None:
        """Draws by other ways than were replaced move a stream, if dropout did not."""
        before, dropped = self._states, self._dropped
        if not before or self._drawn or self._loaders.batch is None:
            return
        self._states = self._present()
        # A stream that is new (a device that was not in use) may not have moved.
        moved = any(self._states.get(name, state) != state for name, state in before.items())
        self._drawn = moved and self._dropped == dropped

    def _count(self, *_: Any) -> None:
        self._look()
        if self._drawn:
            self._recorder.note("draws")
        for kind, detail in sorted(self._found - self._known):
            self._recorder.note(kind, detail=detail)
        self._known |= self._found
        self._drawn = False
        self._found = set()


def _has_rows(shape: Sequence[int], batch: Batch) -> bool:
    """A single number is not taken for the row of a batch of one sample."""
    return tuple(shape) != (1,) and bool(shape) and shape[0] == len(batch.samples)


def _seed(*key: Any) -> int:
    return int(hashlib.blake2b(repr(key).encode(), digest_size=4).hexdigest(), 16)
