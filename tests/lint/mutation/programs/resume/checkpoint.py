"""Writing checkpoints on rank 0, reading them on all ranks."""

from pathlib import Path

import torch
from session import is_main, wait


def save(folder, epoch, wrapped, optimizer):
    if is_main():
        Path(folder).mkdir(exist_ok=True)
        state = {
            "epoch": epoch,
            "model": wrapped.module.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        torch.save(state, Path(folder) / "latest.pt")
    wait()


def load_latest(folder, model, optimizer):
    """The first epoch to train."""
    path = Path(folder) / "latest.pt"
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1
