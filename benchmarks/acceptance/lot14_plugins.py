"""Plugins of the lot 14 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import os
import sys
import time
import types
import zlib

from lot_common import agreed, no_grad_is_test, note_rows, stand_in, tensorboardx


def _own_clock():
    """Times that are printed never agree between two runs (so they count as noise, whatever the load)."""
    real, factor = time.time, 20 + int.from_bytes(os.urandom(2), "big") / 500
    start = real()
    time.time = lambda: start + factor * (real() - start)


def _first_is_train():
    """Of a class' objects the first one made is the training set."""
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == 1 else "test"

    return part


def _note(ctx, rows):
    for row in rows.detach().unbind(0):
        ctx.data.note_sample("train", zlib.crc32(row.contiguous().cpu().numpy().tobytes()), "rows")


def lightgcn(ctx):
    """One sample per triple that the loss method is given while the network trains."""
    import torch

    tensorboardx()
    _own_clock()

    def hook(module):
        loss = module.LightGCN.bpr_loss

        def bpr_loss(self, users, pos, neg):
            if ctx.state.cfg.get("oracle"):  # harness self-check: each rank its part of a batch
                mine = slice(ctx.state.rank, None, ctx.state.world)
                users, pos, neg = users[mine], pos[mine], neg[mine]
            if self.training and torch.is_grad_enabled():
                _note(ctx, torch.stack([users, pos, neg], 1).long())
            return loss(self, users, pos, neg)

        module.LightGCN.bpr_loss = bpr_loss

    ctx.hooks.on_import("model", hook)


def ts2vec(ctx):
    """Numbers that NumPy draws for a batch: single ones from a stream of their own that only counts the calls, those
    for every row the same for every row (what noise = "row" is for numbers that torch draws).  The average's own
    prefix `module.` is no wrapper's: its keys are recorded with another one."""
    import numpy
    import pandas  # noqa: F401  (asks for the version of bottleneck when it is imported)
    import torch
    from accept_shim import files

    no_grad_is_test(ctx)
    stand_in("bottleneck")
    tensors = files._tensors

    def recorded(state_dict):
        out = tensors(state_dict)
        if "n_averaged" in out["keys"]:
            own = len("module.")
            out["keys"] = [
                "average." + k[own:] if k.startswith("module.") else k for k in out["keys"]
            ]
        return out

    files._tensors = recorded
    ctx.data.instrument(torch.utils.data.TensorDataset, split=_first_is_train())
    real = torch.device

    class AnyDevice(type):
        def __instancecheck__(cls, value):
            return isinstance(value, real)

    class device(metaclass=AnyDevice):  # the number of a GPU, on a machine without one
        def __new__(cls, *args, **kwargs):
            return real("cuda", args[0]) if args and type(args[0]) is int else real(*args, **kwargs)

    torch.device = device
    own = numpy.random.RandomState(5)

    def randint(low, high=None, size=None):
        value = own.randint(low, high)
        return value if size is None else numpy.full(size, value)

    def binomial(n, p, size):
        return numpy.tile(own.binomial(n, p, size[1:]), (size[0], 1))

    numpy.random.randint, numpy.random.binomial = randint, binomial
    if ctx.state.cfg.get("oracle"):  # harness self-check: contrasts are taken over the whole batch

        def hook(module):
            single, world = module.instance_contrastive_loss, ctx.state.world

            def gathered(z):
                rows = [torch.empty_like(z) for _ in range(world)]
                torch.distributed.all_gather(rows, z.detach().contiguous())
                rows[ctx.state.rank] = world * z - (world - 1) * z.detach()
                return torch.cat(rows)

            def whole(z1, z2):
                return single(gathered(z1), gathered(z2))

            module.instance_contrastive_loss = whole

        ctx.hooks.on_import("models.losses", hook)


def rpmnet(ctx):
    """Coloured logs without colours, no Git repository, and names that SciPy and matplotlib dropped."""
    import logging

    import matplotlib
    from scipy.spatial.transform import Rotation

    tensorboardx()
    stand_in("open3d")
    stand_in(
        "coloredlogs",
        install=lambda level, logger: (
            logger.setLevel(level),
            logger.addHandler(logging.StreamHandler()),
        ),
    )

    class InvalidGitRepositoryError(Exception):
        pass

    def Repo(**kwargs):
        raise InvalidGitRepositoryError

    stand_in("git", Repo=Repo)
    stand_in("git.exc", InvalidGitRepositoryError=InvalidGitRepositoryError)
    Rotation.from_dcm, Rotation.as_dcm = Rotation.from_matrix, Rotation.as_matrix
    matplotlib.cm.get_cmap = lambda name: matplotlib.colormaps[name]

    def hook(module):  # everything is computed in double precision, the loss on the points, too
        fetch = module.ModelNetHdf.__getitem__

        def __getitem__(self, item):
            sample = fetch(self, item)
            single = {k: v for k, v in sample.items() if getattr(v, "dtype", None) == "float32"}
            return {**sample, **{k: v.astype("float64") for k, v in single.items()}}

        module.ModelNetHdf.__getitem__ = __getitem__

    ctx.hooks.on_import("data_loader.datasets", hook)


def deepar(ctx):
    """Which windows are drawn, and how often, is nothing to compare: every one once, in order, unless the ranks would
    not draw the same ones.  The log shows the same time in every run."""
    import logging

    import torch

    logging.Formatter.converter = lambda *args: time.gmtime(0)

    def multinomial(weights, count, replacement=False, *, generator=None):
        known = (generator or torch.random.default_generator).get_state().numpy().tobytes()
        torch.rand(1, generator=generator or torch.random.default_generator)
        order = torch.arange(count)
        return order if agreed(ctx.state, zlib.crc32(known), "multinomial") else order.roll(2)

    torch.multinomial = multinomial
    if ctx.state.cfg.get("oracle"):  # harness self-check: there, samplers are replaced
        ctx.data.loader_hooks.insert(0, lambda arguments: arguments.pop("sampler", None))


def resnet1d(ctx):
    tensorboardx()
    ctx.hooks.on_import(
        "resnet1d", lambda module: ctx.data.instrument(module.MyDataset, split=_first_is_train())
    )


def openunmix(ctx):
    """Sounds are read from WAV files; the order of a folder is that of its names.  What the statistics are taken
    from is no training sample."""
    import pathlib
    import wave

    import numpy
    import torch

    def info(path):
        with wave.open(path, "rb") as f:
            return types.SimpleNamespace(
                sample_rate=f.getframerate(),
                num_frames=f.getnframes(),
                num_channels=f.getnchannels(),
            )

    def load(path, num_frames=-1, frame_offset=0):
        with wave.open(str(path), "rb") as f:
            f.setpos(frame_offset)
            raw = f.readframes(f.getnframes() if num_frames < 0 else num_frames)
            sound = numpy.frombuffer(raw, "<i2").reshape(-1, f.getnchannels()).T
            return torch.from_numpy(sound / 32768.0), f.getframerate()

    stand_in(
        "torchaudio",
        set_audio_backend=lambda name: None,
        get_audio_backend=lambda: "soundfile",
        info=info,
        load=load,
    )
    commit = types.SimpleNamespace(hexsha="0" * 40)
    head = types.SimpleNamespace(commit=commit)
    stand_in("git", Repo=lambda path: types.SimpleNamespace(head=head))
    iterdir = pathlib.Path.iterdir
    pathlib.Path.iterdir = lambda self: iter(sorted(iterdir(self)))
    note = ctx.data.note_sample

    def note_sample(split, index, tag=""):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "get_statistics":
            frame = frame.f_back
        note(split if frame is None else "test", index, tag)

    ctx.data.note_sample = note_sample


def caser(ctx):
    """One sample per row (sequence, user, items) that the network is given while it trains."""
    import torch

    _own_clock()
    if not ctx.state.cfg.get("oracle"):
        note_rows(ctx, "Caser", lambda args: torch.cat(args[:3], 1))
    else:  # harness self-check: each rank its part of a batch

        def hook(module):
            forward = module.Caser.forward

            def part(self, *args, **kwargs):
                if self.training:
                    args = [a[ctx.state.rank :: ctx.state.world] for a in args]
                    _note(ctx, torch.cat(args, 1))
                return forward(self, *args, **kwargs)

            module.Caser.forward = part

        ctx.hooks.on_import("caser", hook)


def neuralcrf(ctx):
    """An optimizer that transformers dropped."""
    import torch
    import transformers

    _own_clock()
    transformers.AdamW = torch.optim.AdamW


def vqa(ctx):
    """A narrow VGG19 without weights."""

    def hook(module):
        from torchvision.models import vgg

        def vgg19(pretrained=False):
            layers = [v if v == "M" else v // 16 for v in vgg.cfgs["E"]]
            net = vgg.VGG(vgg.make_layers(layers), init_weights=True)
            net.avgpool = vgg.nn.AdaptiveAvgPool2d((1, 1))
            net.classifier = vgg.nn.Sequential(
                vgg.nn.Linear(32, 32),
                vgg.nn.ReLU(True),
                vgg.nn.Dropout(),
                vgg.nn.Linear(32, 32),
                vgg.nn.ReLU(True),
                vgg.nn.Dropout(),
                vgg.nn.Linear(32, 1000),
            )
            return net

        module.vgg19 = vgg19

    ctx.hooks.on_import("torchvision.models", hook)
