"""What is kept of a tensor: its values or, of a large one, a sketch; and a digest of its bytes."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import torch
from torch import Tensor

_DOUBLE = torch.float64  # before --dtype float64 renames other types to it
_BUCKETS = 512
_BLOCK = 1 << 20  # elements sketched at a time; a multiple of _BUCKETS
_SEED = 6_270_991


class Signer:
    """Makes signatures, the same of the same tensor in every process.

    The sketch gives each element a fixed random sign and adds up those that share a bucket, so
    that the norm of a difference of two sketches is on average that of the tensors' difference.
    """

    def __init__(self, full: bool = False) -> None:
        self._full = full
        self._signs: dict[torch.device, Tensor] = {}

    @torch.no_grad()
    def sign(self, tensor: Tensor) -> Tensor:
        """One row of float64 on the CPU; ``tensor`` as ``whole`` returns it."""
        flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
        if flat.device.type == "mps":  # has no float64
            flat = flat.cpu()
        if self._full or flat.numel() <= _BUCKETS:
            return flat.to("cpu", _DOUBLE)
        total = torch.zeros(_BUCKETS, dtype=_DOUBLE, device=flat.device)
        for number, start in enumerate(range(0, flat.numel(), _BLOCK)):
            block = flat[start : start + _BLOCK]
            total += self._sketch(block) * self._signs_of_block(number, flat.device)
        return total.cpu()

    def _sketch(self, block: Tensor) -> Tensor:
        signed = block.to(_DOUBLE) * self._signs_on(block.device)[: block.numel()]
        even = block.numel() // _BUCKETS * _BUCKETS
        total = signed[:even].view(-1, _BUCKETS).sum(0)
        total[: block.numel() - even] += signed[even:]
        return total

    def _signs_on(self, device: torch.device) -> Tensor:
        if device not in self._signs:
            self._signs[device] = _random_signs(_SEED, _BLOCK, device)
        return self._signs[device]

    def _signs_of_block(self, number: int, device: torch.device) -> Tensor:
        """Signs of the buckets: without them equal changes in two blocks would add up."""
        return _random_signs(_SEED + 1 + number, _BUCKETS, device)


def _random_signs(seed: int, count: int, device: torch.device) -> Tensor:
    source = torch.Generator("cpu").manual_seed(seed)  # the script's streams stay as they are
    bits = torch.randint(0, 2, (count,), generator=source, dtype=torch.int64, device="cpu")
    return (2 * bits - 1).to(_DOUBLE).to(device)


def whole(tensor: Any) -> Tensor:
    """The dense, unsharded, detached tensor; of a sharded one it is a collective."""
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    dense: Tensor = (full if full.layout == torch.strided else full.to_dense()).detach()
    return dense.resolve_conj().resolve_neg()


def digest(tensor: Tensor) -> str:
    """Of the bytes of ``tensor``, as ``whole`` returns it."""
    return hashlib.blake2b(raw_bytes(tensor.cpu()), digest_size=16).hexdigest()


def raw_bytes(tensor: Tensor) -> Any:
    """The bytes of a tensor on the CPU, without numpy, which the script may not have."""
    solid = tensor.contiguous()
    size = solid.numel() * solid.element_size()
    if not size:
        return b""
    view = (ctypes.c_char * size).from_address(solid.data_ptr())
    view.tensor = solid  # type: ignore[attr-defined]  # alive as long as the view is
    return view
