"""Plugins of the lot 1 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, narrower networks, and the report of samples where there is no DataLoader.
Nothing a tool is judged by is touched."""

import importlib.machinery
import importlib.util
import sys
import types
import zlib


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


def agreed(state, value):
    """Whether rank 0 (of the migrated run) came here with the same value; rank 0 itself always agrees."""
    import os
    import time

    path = os.path.join(state.rec, "draws.txt")
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


# -------------------------------------------------------------------------------------------


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


def cifar_zoo(ctx):
    stand_in("easydict", EasyDict=EasyDict)

    def loader_default(yaml):  # yaml.load(file) of PyYAML 5
        load = yaml.load
        yaml.load = lambda stream, Loader=None: load(stream, Loader or yaml.SafeLoader)

    ctx.hooks.on_import("yaml", loader_default)


def cvae(ctx):
    class Plot:
        def savefig(self, path, **kwargs):
            with open(path, "wb") as f:
                f.write(b"plot")

    stand_in("seaborn", lmplot=lambda *args, **kwargs: Plot())


def chinese_text(ctx):
    tensorboardx()
    note_rows(ctx, "Model", lambda args: args[0][0])


def tcn(ctx):
    import torch
    from torch import autograd

    def Variable(data, requires_grad=False, volatile=False):
        return data

    autograd.Variable = Variable
    torch.autograd.Variable = Variable


def reid(ctx):
    for name in ("pretrainedmodels", "timm", "efficientnet_pytorch"):
        stand_in(name, create_model=Anything(), EfficientNet=Anything())
    stand_in("pytorch_metric_learning", losses=Anything(), miners=Anything())

    def narrow(models):  # one block a stage instead of 3, 4, 6, 3
        from torchvision.models.resnet import Bottleneck, ResNet

        models.resnet50 = lambda *args, **kwargs: ResNet(Bottleneck, [1, 1, 1, 1])

    ctx.hooks.on_import("torchvision.models", narrow)


def movielens(ctx):
    stand_in("lmdb")
    no_grad_is_test(ctx)
    import torch
    from torch.utils import data

    def random_split(dataset, lengths, generator=None):
        """In order where all ranks would draw the same numbers; else other indices on rank 1, as in
        unseeded processes.  However a migration makes the draws agree, the split is the original's.
        """
        draws = zlib.crc32(
            (generator or torch.random.default_generator).get_state().numpy().tobytes()
        )
        indices = list(range(len(dataset)))
        if not agreed(ctx.state, draws):
            indices = indices[4:] + indices[:4]
        parts, at = [], 0
        for i, n in enumerate(lengths):
            parts.append(data.Subset(dataset, indices[at : at + n]))
            parts[-1]._acceptance_split = (
                "train" if i == 0 else "test"
            )  # the first part is for training
            at += n
        return parts

    data.random_split = random_split


def vit(ctx):
    class ConfigDict(EasyDict):
        __delattr__ = dict.__delitem__

    stand_in("apex", amp=Anything())
    stand_in("apex.parallel", DistributedDataParallel=Anything)
    stand_in("ml_collections", ConfigDict=ConfigDict)

    def small(modeling):
        config = modeling.CONFIGS["ViT-B_16"]
        config.hidden_size = 16
        config.transformer.update(mlp_dim=32, num_heads=2, num_layers=2)

    ctx.hooks.on_import("models.modeling", small)
