"""Watches the functions of torch.distributed, and DDP's own communication."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from ddpify.verify.observer.patching import Patcher
from ddpify.verify.observer.places import Places
from ddpify.verify.observer.record import Recorder

_COLLECTIVES = """
    all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_gather_single
    all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier broadcast
    broadcast_object_list destroy_process_group gather gather_object init_process_group
    monitored_barrier new_group reduce reduce_scatter reduce_scatter_single
    reduce_scatter_tensor scatter scatter_object_list
""".split()


def watch_collectives(recorder: Recorder, patcher: Patcher, places: Places) -> None:
    """Each call: when it is entered, from where, with how many bytes, and when it is left."""

    def watched(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if recorder.quiet:
                return original(*args, **kwargs)
            detail = {"size": _bytes((args, kwargs)), "ranks": _ranks((args, kwargs))}
            by_fsdp = _called_by("torch.distributed.fsdp")
            site = places.site()
            with recorder.waiting("collective", name=name, site=site, fsdp=by_fsdp, **detail):
                result = original(*args, **kwargs)
            if name == "init_process_group":
                recorder.note("group", backend=backend())
            return result

        return call

    for name in _COLLECTIVES:
        patcher.replace(dist, name, functools.partial(watched, name=name))


def watch_wrapper_communication(recorder: Recorder, patcher: Patcher, places: Places) -> None:
    """DDP compares parameters when it is made, and before a forward sends buffers and buckets."""

    def watched(original: Callable[..., Any], when: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            what = (
                " (buffer broadcast)" if when == "forward" and broadcasts_buffers(wrapper) else ""
            )
            name = f"DistributedDataParallel {when}{what}"
            with recorder.waiting("implicit", name=name, site=places.site()):
                return original(wrapper, *args, **kwargs)

        return call

    for method, when in (("__init__", "constructor"), ("_pre_forward", "forward")):
        patcher.replace(DistributedDataParallel, method, functools.partial(watched, when=when))


def broadcasts_buffers(wrapper: Any) -> bool:
    """Whether forwards of this DDP wrapper send rank 0's buffers to the others."""
    # broadcast_buffers is the name before torch 2.13, and still an alias
    wanted = getattr(wrapper, "forward_sync_buffers", getattr(wrapper, "broadcast_buffers", False))
    return bool(wanted and getattr(wrapper, "modules_buffers", ()))


def limit_waiting(patcher: Patcher, seconds: float) -> None:
    """A process group without a timeout of its own gets this one, so that a hang ends soon."""
    limit = timedelta(seconds=seconds)
    # Asked by init_process_group and new_group, whoever calls them.
    patcher.replace(distributed_c10d, "_get_default_timeout", lambda original: lambda _: limit)


def _bytes(given: Any) -> int:
    if isinstance(given, Tensor):
        return given.numel() * given.element_size()
    if isinstance(given, dict):
        given = tuple(given.values())
    return sum(map(_bytes, given)) if isinstance(given, (list, tuple)) else 0


def _ranks(given: tuple[tuple[Any, ...], dict[str, Any]]) -> int:
    """How many take part, 0 if that is all: groups of one kind differ from rank to rank."""
    args, kwargs = given
    found = (one for one in (*args, *kwargs.values()) if isinstance(one, dist.ProcessGroup))
    group = next(found, None)
    return 0 if group is None or group.size() == dist.get_world_size() else group.size()


def _called_by(package: str) -> bool:
    """Whether the caller of a replaced function, two frames up, is of ``package``."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith(package)


def backend() -> str:
    """Of the default process group, "" if there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        return ""
    name = dist.get_backend()
    if name != "undefined":
        return str(name)
    return str(distributed_c10d.get_backend_config())  # one for each kind of device
