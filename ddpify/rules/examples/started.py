"""How programs are started, and Lightning's Trainer made: wrong and right, for rules of neither."""

from __future__ import annotations

from ddpify.rules.base import Example
from ddpify.rules.examples import changed, marked
from ddpify.rules.examples.correct import SCRIPT
from ddpify.rules.examples.lightning import FED

_PYTHON = "python main.py\n"
_TORCHRUN = "torchrun --standalone --nproc_per_node=gpu main.py\n"
_MADE = 'L.Trainer(accelerator="gpu", devices=1, max_epochs=3)'
_ALL = 'L.Trainer(accelerator="gpu", devices="auto", max_epochs=3)'
_LAYER = "self.net = nn.Linear(8, 8)"
_NORMED = "self.net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))"
_OTHER = "        self.other = nn.Linear(8, 8)\n        self.automatic_optimization = False"
_STEP = """        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)
"""
_TURNS = """        x, y = batch
        first, second = self.optimizers()
        first.zero_grad()
        self.manual_backward(nn.functional.mse_loss(self.net(x), y))
        first.step()
        second.zero_grad()
        self.manual_backward(nn.functional.mse_loss(self.other(x), y))
        second.step()
"""
_ONE = "return torch.optim.Adam(self.parameters())"
_TWO = """first = torch.optim.Adam(self.net.parameters())
        second = torch.optim.Adam(self.other.parameters())
        return first, second"""


def _with(base: Example, path: str, text: str) -> Example:
    return Example((*base.files, (path, text)))


# DDP002
PLAINLY_STARTED = marked(_with(SCRIPT, "run.sh", _PYTHON), "DDP002", "python main.py")
STARTED = _with(SCRIPT, "run.sh", _TORCHRUN)
# DDP960
ONE_DEVICE = marked(FED, "DDP960", f"trainer = {_MADE}")
ALL_DEVICES = changed(FED, (_MADE, _ALL))
# DDP961
_NORMS = changed(ALL_DEVICES, (_LAYER, _NORMED))
UNSYNCED = marked(_NORMS, "DDP961", f"trainer = {_ALL}")
SYNCED = changed(_NORMS, ("max_epochs=3", "sync_batchnorm=True, max_epochs=3"))
# DDP963
PINNED = marked(
    _with(ALL_DEVICES, "run.sh", f"CUDA_VISIBLE_DEVICES=0 {_PYTHON}"), "DDP963", "0 python main.py"
)
UNPINNED = _with(ALL_DEVICES, "run.sh", _PYTHON)
# DDP964
_BY_TURNS = changed(
    ALL_DEVICES,
    (_LAYER, f"{_LAYER}\n{_OTHER}"),
    (_STEP, _TURNS),
    (_ONE, _TWO),
)
NOT_LOOKING = marked(_BY_TURNS, "DDP964", f"trainer = {_ALL}")
LOOKING = changed(
    _BY_TURNS, ("max_epochs=3", 'strategy="ddp_find_unused_parameters_true", max_epochs=3')
)
