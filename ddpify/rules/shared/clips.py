"""What clips gradients, by the last part of its name."""

from __future__ import annotations

CLIPS = frozenset(
    {"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads_with_norm_"}
)
