"""Plugins of the lot 1 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, narrower networks, and the report of samples where there is no DataLoader.
Nothing a tool is judged by is touched."""

import zlib

from lot_common import (
    Anything,
    EasyDict,
    agreed,
    no_grad_is_test,
    note_rows,
    stand_in,
    tensorboardx,
)

# -------------------------------------------------------------------------------------------


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
        if not agreed(ctx.state, draws, "split"):
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
