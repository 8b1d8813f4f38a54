"""Checkpoints of sharded models to which each rank writes, and from which it reads, its shards.

A checkpoint is a directory with one numbered directory in it, where ``checkpoint`` is what the
script gave and the files of ``torch.distributed.checkpoint`` beside it are the shards' data.
In a project these helpers are part of its one ``ddp_utils``.
"""

from __future__ import annotations

import copy
import functools
import io
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map_only

from .ddp_utils import (
    _before_cleanup,
    barrier,
    broadcast,
    get_world_size,
    is_distributed,
    is_main_process,
    save_on_main,
)

# ---- Sharded checkpoints
_REST = "checkpoint"
_in_flight = list[Any]()  # what is written in the background: one checkpoint, or none


def save_sharded(obj: object, path: Any, **kwargs: Any) -> None:
    """``torch.save`` to a directory, to which each rank writes its shards (*collective*).

    What is no shard is rank 0's. A job that is killed meanwhile leaves the checkpoint of before. In
    one process it is a file, unless there is a directory.
    """
    _save_sharded(obj, path, kwargs)


def async_save_sharded(obj: object, path: Any, **kwargs: Any) -> None:
    """``save_sharded`` that returns with a copy of its shards, and writes as the run goes on.

    Until all ranks have written, the checkpoint of before is what is loaded. The next save, a load
    and the clean-up wait for that, and raise what it raised (*collective*).
    """
    _save_sharded(obj, path, kwargs, _write_in_background)


def _save_sharded(
    obj: object, path: Any, options: dict[str, Any], later: Callable[..., None] | None = None
) -> None:
    _finish_writing()
    target = Path(path).resolve() if isinstance(path, (str, os.PathLike)) else None
    if not is_distributed() and (target is None or not target.is_dir()):
        save_on_main(obj, path, **options)
        return
    if target is None:
        raise TypeError(f"a sharded checkpoint is a directory: give its path, not {path!r}")
    folder, number = broadcast(_begin(target) if is_main_process() else None)
    shards: dict[str, torch.Tensor] = {}

    def kept(tensor: torch.Tensor, key: str) -> torch.Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        shards[key] = tensor.detach()
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    rest, new = _with_tensors(obj, kept), folder / number
    if later and shards and folder == target:
        later(shards, rest, new, options)
        return
    if shards:
        dcp_save(shards, checkpoint_id=new)
    save_on_main(rest, new / _REST, **options)  # from here on it is what is loaded
    _put(folder, target, number) if is_main_process() else None
    barrier()


def _write_in_background(shards: Any, rest: Any, new: Path, options: dict[str, Any]) -> None:
    packed = io.BytesIO()
    if is_main_process():
        torch.save(rest, packed, **options)
    writer = _Writer(new)
    writer.rest = packed.getbuffer()
    _in_flight.append(async_save(shards, storage_writer=writer, process_group=_group()))


@functools.cache
def _group() -> Any:
    """Another one than the script's, whose messages would meet those of the background."""
    _before_cleanup.callback(_group.cache_clear)
    _before_cleanup.callback(_finish_writing)  # the last one is the first to be called
    return dist.new_group(backend="gloo")


def _finish_writing() -> None:
    while _in_flight:
        _in_flight.pop().result()


class _Writer(FileSystemWriter):
    """Writes what is no shard behind the shards of all ranks: then the checkpoint is whole."""

    rest: memoryview

    def finish(self, metadata: Metadata, results: Any) -> None:  # on rank 0
        super().finish(metadata, results)
        new = Path(self.path)
        (partial := new / f"{_REST}.partial").write_bytes(self.rest)
        os.replace(partial, new / _REST)  # from here on it is what is loaded
        _put(new.parent, new.parent, new.name)


def load_sharded(path: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.load`` of what ``save_sharded`` wrote, or of a file.

    Of several ranks, data of shards are read where they are used: this rank's part by
    ``unsharded(model).load_state_dict``, all of a tensor by anything else.
    """
    _finish_writing()
    target = Path(path).resolve() if isinstance(path, (str, os.PathLike)) else None
    if target is None or not (folder := _place(target)).is_dir():
        return torch.load(path, *args, **kwargs)
    newest = _newest(folder)
    rest, files = torch.load(newest / _REST, *args, **kwargs), _Files(newest)

    def found(tensor: torch.Tensor, key: str) -> torch.Tensor:
        stored = _Stored(tensor, key, files) if tensor.is_meta else None
        return tensor if stored is None else stored if get_world_size() > 1 else stored.whole()

    return _with_tensors(rest, found)


def _place(target: Path) -> Path:
    """The directory of a checkpoint: ``target``, or where it is until it replaces a file."""
    beside = target.with_name(f"{target.name}.sharded")
    return beside if target.is_file() or (beside.is_dir() and not target.exists()) else target


def _numbers(folder: Path) -> list[int]:
    return [int(one.name) for one in folder.glob("*") if one.name.isdecimal()]


def _newest(folder: Path) -> Path:
    whole = [number for number in _numbers(folder) if (folder / str(number) / _REST).exists()]
    if not whole:
        raise FileNotFoundError(f"{folder}: the directory holds no whole checkpoint")
    return folder / str(max(whole))


def _begin(target: Path) -> tuple[Path, str]:
    folder = _place(target)
    number = str(1 + max(_numbers(folder), default=0))
    (folder / number).mkdir(parents=True)  # so that all ranks see that the path is there
    return folder, number


def _put(folder: Path, target: Path, number: str) -> None:
    """Make ``folder`` what is at ``target``, with this checkpoint only."""
    if folder != target:
        if target.exists():
            os.replace(target, folder / "0")
        os.rename(folder, target)
    for old in (target / str(one) for one in _numbers(target) if str(one) != number):
        shutil.rmtree(old) if old.is_dir() else old.unlink()


def _with_tensors(value: Any, made: Callable[[torch.Tensor, str], Any], key: str = "") -> Any:
    """``value`` with what is ``made`` of its tensors, each with its place: ``['net']['bias']``."""
    if isinstance(value, torch.Tensor):
        return made(value, key)
    if isinstance(value, dict):
        new = copy.copy(value)  # which keeps the versions of modules that a state dict carries
        new.update((k, _with_tensors(one, made, f"{key}[{k!r}]")) for k, one in value.items())
        return new
    if type(value) in (list, tuple):
        return type(value)(_with_tensors(v, made, f"{key}[{i}]") for i, v in enumerate(value))
    return value


class _Files(FileSystemReader):
    """The files of a checkpoint, whose table of contents is read once."""

    @functools.cached_property
    def contents(self) -> Metadata:
        return super().read_metadata()

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.contents


class _Stored(torch.Tensor):
    """A tensor of which the data are in files of a sharded checkpoint until they are used."""

    stored: tuple[str, _Files]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, like: torch.Tensor, key: str, files: _Files) -> _Stored:
        made = torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)
        made.stored = key, files
        return made

    def shard_like(self, own: Any) -> torch.Tensor:
        """This rank's part, cut as the distributed tensor ``own`` is; all of it for another one."""
        if isinstance(own, DTensor) and own.shape == self.shape:
            return self.read_into(torch.empty_like(own, dtype=self.dtype))
        return self.whole()

    def whole(self) -> torch.Tensor:
        return self.read_into(torch.empty(self.shape, dtype=self.dtype))

    def read_into(self, tensor: torch.Tensor) -> torch.Tensor:
        key, files = self.stored
        with warnings.catch_warnings():  # that no rank takes part but this one
            warnings.simplefilter("ignore")
            dcp_load({key: tensor}, storage_reader=files, no_dist=True)
        return tensor

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.whole()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.whole().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func._schema.is_mutable and isinstance(args[0], cls):
            raise RuntimeError("a tensor of a sharded checkpoint cannot be changed: clone() it")
        args, kwargs = tree_map_only(cls, cls.whole, (args, kwargs or {}))
        return func(*args, **kwargs)
