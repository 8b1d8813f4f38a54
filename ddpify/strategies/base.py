"""What rules ask of a strategy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Strategy:
    """One way to train a model on many ranks; ``{}`` in a code stands for the model.

    ``inner``: the model inside a wrapper, "" where nothing is wrapped: then forwards, be it in an
    evaluation, are collectives, weights are shards outside of them, and what backwards add without
    averaging it outlives ``zero_grad()``. ``state``: whose ``state_dict()`` is that of one process,
    where it goes into a file; ``kept``: where the program does something else with it. ``save`` and
    ``load`` are what writes and reads a checkpoint that holds such a state.
    """

    name: str
    inner: str
    state: str
    kept: str
    save: str = "save_on_main"
    load: str = "torch.load"

    @property
    def shards(self) -> bool:
        """Whether each rank keeps a part of every weight, and of what optimizers make of it."""
        return not self.inner

    @property
    def saves_shards(self) -> bool:
        """Whether each rank writes its own: a state goes into a checkpoint as it is."""
        return self.load == "load_sharded"
