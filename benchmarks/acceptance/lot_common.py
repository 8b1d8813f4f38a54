"""What the lots' plugins and fixtures share. Nothing a tool is judged by is touched."""

import importlib.machinery
import importlib.util
import os
import sys
import time
import types
import zlib
from pathlib import Path


def stand_in(name, **names):
    """A module of that name with those attributes (parents included), unless it is installed."""
    if name not in sys.modules:
        try:
            if importlib.util.find_spec(name) is not None:
                return
        except (ImportError, ValueError):
            pass
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        full = ".".join(parts[:i])
        if full not in sys.modules:
            module = types.ModuleType(full)
            module.__path__ = []
            module.__spec__ = importlib.machinery.ModuleSpec(full, None, is_package=True)
            sys.modules[full] = module
            if i > 1:
                setattr(sys.modules[".".join(parts[: i - 1])], parts[i - 1], module)
    for key, value in names.items():
        setattr(sys.modules[name], key, value)


class Anything:
    """Accepts every call and attribute."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def tensorboardx():
    def SummaryWriter(*args, **kwargs):
        from torch.utils.tensorboard import SummaryWriter as Real

        args = args or ((kwargs.pop("logdir"),) if "logdir" in kwargs else ())
        return Real(*args, **kwargs)

    stand_in("tensorboardX", SummaryWriter=SummaryWriter)


def no_grad_is_test(ctx):
    """Training and validation share one dataset object: what is fetched under no_grad is no training sample."""
    import torch

    real = ctx.data.note_sample

    def note_sample(split, index, tag=""):
        real(split if torch.is_grad_enabled() else "test", index, tag)

    ctx.data.note_sample = note_sample


def note_rows(ctx, cls_name, pick):
    """One training sample per row of what a module of that class is given while it trains, named by its content."""
    import torch

    def hook(module, args):
        if type(module).__name__ == cls_name and module.training and torch.is_grad_enabled():
            for row in pick(args).detach().unbind(0):
                ctx.data.note_sample(
                    "train", zlib.crc32(row.contiguous().cpu().numpy().tobytes()), "forward"
                )

    torch.nn.modules.module.register_module_forward_pre_hook(hook)


class EasyDict(dict):
    """Items as attributes, through nested dictionaries."""

    def __init__(self, content=None, **more):
        super().__init__()
        for key, value in {**(content or {}), **more}.items():
            self[key] = EasyDict(value) if isinstance(value, dict) else value

    __setattr__ = dict.__setitem__

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


_asked = {}


def agreed(state, value, name):
    """Whether rank 0 (of the migrated run) asked for the same thing with the same random state; rank 0
    itself always agrees."""
    if state.cfg.get("oracle"):  # harness self-check
        return True
    _asked[name] = _asked.get(name, 0) + 1
    path = os.path.join(state.rec, "draws_%s_%d.txt" % (name, _asked[name]))
    if state.phase != "ddp" or state.rank == 0:
        with open(path + ".part", "w") as f:
            f.write(str(value))
        os.replace(path + ".part", path)
        return True
    for _ in range(150):
        if os.path.exists(path):
            with open(path) as f:
                return f.read() == str(value)
        time.sleep(0.1)
    return False


def old_variables():
    """Variable(x, volatile=True) of torch 0.3."""
    import torch
    from torch import autograd

    def Variable(data, requires_grad=False, volatile=False):
        return data.requires_grad_() if requires_grad else data

    autograd.Variable = Variable
    torch.autograd.Variable = Variable


# -- data files ---------------------------------------------------------------------------------


def samples_of(recipe):
    return recipe["batch"] * recipe["batches"]


def text(path, content):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def import_h5py():
    sys.path += [
        p for p in os.environ.get("ACCEPT_SITE", "").split(os.pathsep) if p and p not in sys.path
    ]
    import h5py

    return h5py


def picture(path, rng, size=(64, 64), mode="RGB"):
    from PIL import Image

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (6, 6, 3) if mode == "RGB" else (6, 6)
    small = rng.randint(0, 256, shape).astype("uint8")
    Image.fromarray(small).resize(size, Image.BILINEAR).save(path)
