"""Which modules have parameters of their own, and where they are, as far as their making says."""

from __future__ import annotations

from typing import Final

from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.shared.wrapped import CONTAINERS

_LAYERS: Final = frozenset(
    """Linear Bilinear LazyLinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
    ConvTranspose3d Embedding EmbeddingBag BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm
    GroupNorm LayerNorm RMSNorm LSTM GRU RNN LSTMCell GRUCell RNNCell MultiheadAttention Transformer
    TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer PReLU
    Parameter""".split()
)
LAYERS: Final = frozenset(f"torch.nn.{name}" for name in _LAYERS) | {"torch.nn.parameter.Parameter"}

CONVERT: Final = "torch.nn.SyncBatchNorm.convert_sync_batchnorm"


def has_parameters(thing: RankThing) -> bool:
    """Whether a value is surely a layer, a parameter, or a container of such."""
    if thing.kind == "instance" and thing.cls is not None:
        return thing.cls.inherits("torch.nn.Module") and _has_layers(thing)
    if thing.kind != "result" or thing.call is None:
        return False
    if thing.name in LAYERS:
        return True
    if thing.name in CONTAINERS:
        return any(has_parameters(t) for arg in thing.call.args for t in arg.things)
    return False


def _has_layers(thing: RankThing) -> bool:
    """Whether the class makes layers: its text names one."""
    assert thing.cls is not None
    return any(
        f".{name}(" in info.module.text(info.node) for info in thing.cls.mro() for name in _LAYERS
    )


def on_cpu(run: Run) -> bool:
    """Whether the program is for the CPU: Gloo, and nothing is ever put on a GPU."""
    backend = run.session.arg(0, "backend") if run.session is not None else None
    if backend is None or backend.constant != "gloo":
        return False
    for call in run.calls:
        if call.name.startswith("torch.cuda.") or call.method == "cuda":
            return False
        if call.method in ("to", "device") and not all(_on_cpu(arg) for arg in call.args):
            return False
    return True


def _on_cpu(value: RankValue) -> bool:
    """A device that is the CPU, or no device."""
    if value.made_by("torch.device") is not None:
        return True  # judged where it is made
    return value.constant == "cpu" or any(name.startswith("torch.") for name in value.names())
