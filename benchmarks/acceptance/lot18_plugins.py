"""Plugins of the lot 18 recipes: stand-ins for small packages that are not installed, names that newer
releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import os
import time
import zlib

from lot_common import Anything, agreed, no_grad_is_test, old_variables, stand_in, tensorboardx


def own_clock(ctx):
    """Seconds that are printed never agree between two runs (so they count as noise, whatever the load)."""
    import timeit

    real, factor = time.time, 20 + int.from_bytes(os.urandom(2), "big") / 500
    start = real()
    time.time = lambda: start + factor * (real() - start)
    timeit.default_timer = time.time


def episodes(ctx):
    """Classes and pictures of an episode are permuted, unseeded: which order comes out is fixed for all that
    draw as the first process does (and another one at each draw)."""
    import torch

    drawn = [0]

    def randperm(n, **kwargs):
        known = zlib.crc32(torch.get_rng_state().numpy().tobytes())
        torch.randint(1 << 30, (1,))
        drawn[0] += 1
        order = torch.roll(torch.arange(n), drawn[0] % n)
        return order if agreed(ctx.state, known, "randperm") else torch.flip(order, (0,))

    class Torch:
        def __getattr__(self, name):
            return randperm if name == "randperm" else getattr(torch, name)

    ctx.hooks.on_import("samplers", lambda module: setattr(module, "torch", Torch()))


def steps_of_the_solver(ctx):
    """The adaptive solver takes its step by an error norm over the whole batch, so a sample's output depends
    (within the tolerance asked for) on the rest of the batch, as with batch norm; here the steps are fixed.
    The pass over the training set that measures accuracy is no training."""
    no_grad_is_test(ctx)

    def hook(module):
        odeint = module.odeint

        def fixed(func, y0, t, *, rtol=None, atol=None, **kwargs):
            return odeint(func, y0, t, method="rk4", options={"step_size": 0.5})

        module.odeint = fixed

    ctx.hooks.on_import("torchdiffeq", hook)


def pixels(ctx):
    old_variables()


def began(ctx):
    """Modules of Python 2 and SciPy that are imported (and used for TensorBoard only); torch's table of losses.
    What is read before a loader is iterated (the shape of the first picture) is no training."""
    import io

    import torch

    old_variables()
    stand_in("StringIO", StringIO=io.BytesIO)
    stand_in("scipy.misc", toimage=Anything)
    l1_loss = torch.nn.functional.l1_loss

    class Backend:
        @staticmethod
        def L1Loss(size_average):
            return lambda input, target: l1_loss(
                input, target, reduction="mean" if size_average else "sum"
            )

    torch.nn.Module._backend = Backend
    real = ctx.data.note_sample

    def note_sample(split, index, tag=""):
        if ctx.torchpatch.started:
            real(split, index, tag)

    ctx.data.note_sample = note_sample
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: the noise is made for a rank's part of a batch

        def hook(module):
            init = module.Trainer.__init__

            def part(self, *args, **kwargs):
                init(self, *args, **kwargs)
                self.batch_size //= ctx.state.world

            module.Trainer.__init__ = part

        ctx.hooks.on_import("trainer", hook)


def videos(ctx):
    """OpenCV is imported, not used."""
    stand_in("cv2")

    def part(self, arguments):
        return "train" if arguments["subset"] == "training" else "test"

    ctx.hooks.on_import("datasets.jester", lambda m: ctx.data.instrument(m.Jester, split=part))


class _Draws:
    """The random module as the data set sees it: two of five words are masked or changed, and every second pair
    of lines is a real one, so that any part of a batch has its share of what the losses average over.
    """

    def __init__(self, real):
        self.real, self.index, self.count = real, 0, 0

    def __getattr__(self, name):
        return getattr(self.real, name)

    def random(self):
        self.count += 1
        if self.count == 1:
            return 0.9 if self.index % 4 < 2 else 0.1
        word = (self.count - 2 + self.index) % 5
        return (0.05, 0.9, 0.9, 0.13, 0.9)[word]


def bert(ctx):
    """The script is a package's __main__, called by an entry point of the installed package."""
    import sys

    sys.modules["__main__"].__package__ = "bert_pytorch"

    def hook(module):
        draws = module.random = _Draws(module.random)
        fetch = module.BERTDataset.__getitem__

        def __getitem__(self, item):
            draws.index, draws.count = int(item), 0
            return fetch(self, item)

        module.BERTDataset.__getitem__ = __getitem__

        def part(self, arguments):
            return "test" if "test" in arguments["corpus_path"] else "train"

        ctx.data.instrument(module.BERTDataset, split=part)

    ctx.hooks.on_import("bert_pytorch.dataset.dataset", hook)


def diffusion(ctx):
    """The time drawn for a batch is the same for every sample, as the noise is."""
    import torch

    randint, count = torch.randint, [0]

    def same_for_all(*args, **kwargs):
        size = kwargs.get("size")
        if ctx.torchpatch.started and len(args) == 1 and size is not None and len(size) == 1:
            count[0] += 1
            return torch.full(tuple(size), (337 * count[0]) % args[0], dtype=torch.long)
        return randint(*args, **kwargs)

    torch.randint = same_for_all
    if ctx.state.cfg.get("oracle"):  # harness self-check: the gradient that is clipped is the sum's
        import torch.distributed as dist

        clip = torch.nn.utils.clip_grad_norm_

        def clip_sum(parameters, *args, **kwargs):
            parameters = list(parameters)
            for p in parameters:
                if p.grad is not None:
                    dist.all_reduce(p.grad)
            norm = clip(parameters, *args, **kwargs)
            for p in parameters:
                if p.grad is not None:
                    p.grad /= ctx.state.world
            return norm

        torch.nn.utils.clip_grad_norm_ = clip_sum


def digits(ctx):
    old_variables()


def capsules(ctx):
    old_variables()
    tensorboardx()


def segmentation(ctx):
    """A plotting server's client is imported (and used with --steps-plot only)."""
    stand_in("visdom", Visdom=Anything)
    old_variables()
