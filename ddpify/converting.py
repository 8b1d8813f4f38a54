"""A whole checkpoint becomes a directory of shards, or the other way round; tensor by tensor."""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from ddpify.runtime.fsdp_checkpoints import _REST, _Files, _newest, _Stored, _with_tensors


class ConversionError(Exception):
    """What is asked for cannot be done; the message is one sentence for the user."""


def convert(source: Path, target: Path, force: bool = False) -> None:
    """Write at ``target`` what is at ``source`` in its other form. Raises ConversionError."""
    if not source.exists():
        raise ConversionError(f"{source}: there is no such file or directory")
    if os.path.lexists(target) and not force:
        raise ConversionError(f"{target}: is there already; --force replaces it")
    if not target.absolute().parent.is_dir():
        raise ConversionError(f"{target.absolute().parent}: there is no such directory")
    try:
        with tempfile.TemporaryDirectory(dir=target.absolute().parent) as scratch:
            new = Path(scratch, target.name)
            (_joined if source.is_dir() else _split)(source, new)
            _put(new, target, Path(scratch, "before"))
    except (OSError, RuntimeError, CheckpointException) as error:
        raise ConversionError(f"{source}: {_line(error)}") from error


def _split(source: Path, new: Path) -> None:
    """A file into a directory; data of the file are mapped, and read as they are written."""
    state = _loaded(source, source, mmap=zipfile.is_zipfile(source))
    shards: dict[str, torch.Tensor] = {}

    def kept(tensor: torch.Tensor, key: str) -> torch.Tensor:
        if not tensor.dim() or not tensor.is_floating_point():  # counts, random streams
            return tensor
        shards[key] = tensor.detach()
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    rest = _with_tensors(state, kept)
    if not shards:
        raise ConversionError(f"{source}: is no checkpoint, it holds no weights")
    with warnings.catch_warnings():  # that this is one process
        warnings.simplefilter("ignore")
        dcp_save(shards, checkpoint_id=new / "1", no_dist=True)
    torch.save(rest, new / "1" / _REST)


def _joined(source: Path, new: Path) -> None:
    """A directory into a file, by way of tensors that are files."""
    try:
        newest = _newest(source)
    except FileNotFoundError as error:
        raise ConversionError(str(error)) from error
    files, names = _Files(newest), itertools.count()
    parts = new.with_name("parts")
    parts.mkdir()

    def whole(tensor: torch.Tensor, key: str) -> torch.Tensor:
        if not tensor.is_meta:
            return tensor
        count, dtype = tensor.numel(), tensor.dtype
        flat = torch.empty(0, dtype=dtype)
        if count:  # else there is nothing that could be mapped
            flat = torch.from_file(str(parts / str(next(names))), True, count, dtype=dtype)
        made: torch.Tensor = _Stored(tensor, key, files).read_into(flat.view(tensor.shape))
        return made

    torch.save(_with_tensors(_loaded(newest / _REST, source), whole), new)


def _loaded(file: Path, source: Path, mmap: bool = False) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # whatever reading any bytes as a pickle comes to
        what = "is no checkpoint, or holds objects that are neither tensors nor plain values"
        raise ConversionError(f"{source}: {what}") from error


def _put(new: Path, target: Path, before: Path) -> None:
    """Move what is new to its place; what was there stays until then, or comes back."""
    replaced = os.path.lexists(target)
    if replaced:
        os.rename(target, before)
    try:
        os.rename(new, target)
    except OSError:
        if replaced:
            os.rename(before, target)
        raise


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
