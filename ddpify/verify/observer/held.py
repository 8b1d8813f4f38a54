"""What one rank keeps between steps, in bytes, and into how many groups FSDP2 divides it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from ddpify.verify.observer.naming import roots
from ddpify.verify.observer.probe import tensors


class HeldWatch:
    """Measures at the first step of each optimizer, with what those before it hold."""

    def __init__(self) -> None:
        self._stepped: WeakSet[Any] = WeakSet()
        self._gradients = 0

    def before(self, optimizer: Any) -> None:
        """Gradients are counted before the step: the script may clear them after it."""
        if optimizer not in self._stepped:
            self._gradients += _bytes(p.grad for p in stepped_by(optimizer) if p.grad is not None)

    def after(self, optimizer: Any) -> dict[str, int]:
        """The bytes, or nothing if it has stepped before."""
        if optimizer in self._stepped:
            return {}
        self._stepped.add(optimizer)
        wanted = {id(p): p for one in self._stepped for p in stepped_by(one)}
        models = [root for root in roots() if any(id(p) in wanted for p in root.parameters())]
        wanted.update((id(p), p) for model in models for p in model.parameters())
        return {
            "parameters": _bytes(wanted.values()),
            "gradients": self._gradients,
            "states": _bytes(t for one in self._stepped for t in tensors(_states(one))),
            "groups": len({id(g) for model in models for g in _trained_groups(model)}),
        }


def stepped_by(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _states(optimizer: Any) -> dict[Any, Any]:
    return dict(getattr(optimizer, "state", {}))  # steps taken by hand have none


def _bytes(held: Iterable[Any]) -> int:
    """Of distributed tensors this rank's shards."""
    own = (one.to_local() if hasattr(one, "to_local") else one for one in held)
    return sum(one.numel() * one.element_size() for one in own)


def _trained_groups(model: Any) -> list[Any]:
    """Of what fully_shard shards together, what has gradients: torch has no public name for it."""
    states = [
        part._get_fsdp_state() for part in model.modules() if hasattr(part, "_get_fsdp_state")
    ]
    groups = [
        group
        for state in states
        # one for each state before torch 2.13
        for group in getattr(state, "_fsdp_param_groups", [getattr(state, "_fsdp_param_group", 0)])
        if group
    ]
    return [g for g in groups if any(p.sharded_param.requires_grad for p in g.fsdp_params)]
