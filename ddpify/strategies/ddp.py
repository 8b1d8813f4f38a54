"""A replica on each rank: ``DistributedDataParallel`` around the model averages gradients."""

from __future__ import annotations

from ddpify.strategies.base import Strategy

DDP = Strategy("ddp", inner="unwrap({})", state="unwrap({})", kept="unwrap({})")
