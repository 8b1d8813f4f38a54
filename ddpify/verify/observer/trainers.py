"""Lightning's Trainer and Fabric: one device in one process, ``ddp`` on as many as were started.

They are found as soon as the script imports them; only where they run is set, in place of what
the script says of it. What Lightning itself logs, on each rank or on the first, is not logged.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

import torch

from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.record import Recorder, StopRun

_HOLDERS: Final = {
    "lightning.pytorch.trainer.trainer": "Trainer",
    "pytorch_lightning.trainer.trainer": "Trainer",
    "lightning.fabric.fabric": "Fabric",
    "lightning_fabric.fabric": "Fabric",
}
_WAYS: Final = ("_spawn", "_fork", "_notebook")  # to other processes than torchrun's
_ONE: Final = ("auto", "dp", "single_device", "SingleDeviceStrategy", "DataParallelStrategy")
_SHARDING: Final = "DeepSpeedStrategy"  # is a DDPStrategy for Python


class TrainerWatch(importlib.abc.MetaPathFinder):
    """Sets the arguments of each Trainer and Fabric that the script makes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._processes = int(os.environ.get("WORLD_SIZE", "1"))
        self._folders: tuple[str, ...] = ()  # of the packages that were imported
        self._patcher: Patcher | None = None
        self._made_one = False

    def any(self) -> bool:
        """Whether one has been made."""
        return self._made_one

    def start(self, patcher: Patcher) -> None:
        self._patcher = patcher
        patcher.replace(logging.Logger, "handle", self._without_lightnings)
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _HOLDERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            assert self._patcher is not None
            self._patcher.replace(getattr(module, _HOLDERS[name]), "__init__", self._made)
            package = sys.modules[name.partition(".")[0]].__file__ or ""
            self._folders += (os.path.dirname(package) + os.sep,)

        setattr(spec.loader, "exec_module", executed)  # noqa: B010
        return spec

    def _made(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(holder: Any, *args: Any, **kwargs: Any) -> None:
            placed = self._placed(kwargs, type(holder).__name__)
            self._recorder.note("trainer", arguments=_shown(placed))
            self._made_one = True
            original(holder, *args, **{**kwargs, **placed})
            if self._processes == 1:
                _seed_anew(holder)

        return init

    def _placed(self, given: dict[str, Any], kind: str) -> dict[str, Any]:
        """The arguments that say where it runs; the accelerator is the script's if it is there."""
        strategy: Any = "auto"
        if self._processes > 1:
            strategy = _ddp(given.get("strategy", "auto"))
        if strategy is None:
            asked = _shown({"strategy": given["strategy"]})
            self._recorder.note("unsupported", why=f"its {kind} has {asked}")
            raise StopRun
        placed = {"devices": self._processes, "num_nodes": 1, "strategy": strategy}
        if torch.cuda.is_available():
            return placed
        if given.get("sync_batchnorm"):  # torch has it for GPUs only
            placed["sync_batchnorm"] = False
        return {**placed, "accelerator": "cpu"}

    def _without_lightnings(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
            own = self._folders and record.pathname.startswith(self._folders)
            if not own or record.levelno > logging.INFO:
                original(logger, record)

        return handle


def _seed_anew(holder: Any) -> None:
    """Let one device begin with the random state that DDP begins with: that of the seed."""
    strategy = getattr(holder, "strategy", None)
    prepare = getattr(strategy, "setup_environment", None)
    if strategy is None or prepare is None:
        return
    old = type(holder).__module__.startswith(("pytorch_lightning.", "lightning_fabric."))
    fabric = "lightning_fabric" if old else "lightning.fabric"
    reset = importlib.import_module(f"{fabric}.utilities.seed").reset_seed

    def setup_environment() -> None:
        reset()
        prepare()

    strategy.setup_environment = setup_environment


def _ddp(given: Any) -> Any:
    """The script's own kind of DDP, if it has one; None where it asks for something else."""
    if isinstance(given, str):
        name = functools.reduce(lambda text, way: text.replace(way, ""), _WAYS, given)
        own = name.partition("_find_unused")[0] == "ddp"
        return name if own else "ddp" if name in _ONE else None
    kinds = {kind.__name__ for kind in type(given).__mro__}
    if not kinds.isdisjoint(_ONE):
        return "ddp"
    return given if "DDPStrategy" in kinds and _SHARDING not in kinds else None


def _shown(arguments: dict[str, Any]) -> str:
    words = (
        f"{name}={value!r}" if isinstance(value, (int, str)) else f"{name}={type(value).__name__}"
        for name, value in arguments.items()
    )
    return ", ".join(words)
