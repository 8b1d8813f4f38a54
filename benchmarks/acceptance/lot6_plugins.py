"""Plugins of the lot 6 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import os

from lot_common import Anything, stand_in, tensorboardx


def deeplab(ctx):
    stand_in("visdom", Visdom=Anything)


def fastspeech2(ctx):
    """Only phones in braces are spoken: nothing is asked of the two packages for English text."""
    stand_in("unidecode", unidecode=lambda s: s)
    stand_in("inflect", engine=Anything)
    ctx.hooks.on_import(
        "dataset",
        lambda module: ctx.data.instrument(
            module.Dataset, split_arg="filename", train_values=["train.txt"]
        ),
    )


def stgcn(ctx):
    """The first TensorDataset is the training one; arrays become tensors in double precision, as all else here."""
    import torch

    made, from_numpy = [], torch.from_numpy
    torch.from_numpy = lambda array: (
        from_numpy(array).double() if array.dtype == "float32" else from_numpy(array)
    )

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == 1 else "test"

    ctx.data.instrument(torch.utils.data.TensorDataset, split=part)


def ddim(ctx):
    """The time steps are the middle one for every sample (the script draws half of them and mirrors those:
    which sample gets which depends on the size of the batch)."""
    import torch

    stand_in("lmdb", open=None)
    stand_in("requests", get=None, Session=None)
    randint = torch.randint

    def middle(*args, **kwargs):
        if (
            ctx.torchpatch.started
            and not getattr(ctx.data._busy, "on", False)
            and kwargs.get("high") == 11
        ):
            return torch.full(tuple(kwargs["size"]), (11 - 1) // 2, dtype=torch.int64)
        return randint(*args, **kwargs)

    torch.randint = middle


def liif(ctx):
    """What is read to print its shape before training is no training sample."""
    tensorboardx()
    stand_in("imageio", imread=None)
    note = ctx.data.note_sample

    def note_sample(split, index, tag=""):
        note(split if ctx.torchpatch.started else "test", index, tag)

    ctx.data.note_sample = note_sample


def kdzoo(ctx):
    """A function that torch dropped; used by a mode that is not run."""
    import importlib

    importlib.import_module("torch.autograd.gradcheck").zero_gradients = None


def charcnn(ctx):
    """The first MyDataset is the training one; an accuracy is a number of NumPy, as it was."""
    import numpy

    tensorboardx()
    if ctx.state.cfg.get("oracle"):  # harness self-check: one order of the table for all ranks
        numpy.random.seed(20240)

    def accuracy(module):
        score = module.accuracy_score
        module.accuracy_score = lambda *args, **kwargs: numpy.float64(score(*args, **kwargs))

    ctx.hooks.on_import("sklearn.metrics", accuracy)
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == 1 else "test"

    ctx.hooks.on_import(
        "src.data_loader", lambda module: ctx.data.instrument(module.MyDataset, split=part)
    )


def crnn(ctx):
    """A database of Python 2 (keys and labels are str), Baidu's CTC loss by the one of torch, and six."""
    import collections
    import contextlib
    import io
    import pickle

    import torch

    class Environment:
        def __init__(self, root, **options):
            with open(os.path.join(root, "data.pkl"), "rb") as f:
                self.content = pickle.load(f)

        @contextlib.contextmanager
        def begin(self, write=False):
            yield self.content

    class CTCLoss(torch.nn.Module):
        """The sum over the batch, as a tensor of one element on the CPU."""

        def forward(self, acts, labels, act_lens, label_lens):
            return torch.nn.functional.ctc_loss(
                acts.log_softmax(2), labels, act_lens, label_lens, blank=0, reduction="sum"
            ).reshape(1)

    stand_in("lmdb", open=Environment)
    stand_in("six", BytesIO=io.BytesIO)
    stand_in("warpctc_pytorch", CTCLoss=CTCLoss)
    collections.Iterable = collections.abc.Iterable


def deepfm(ctx):
    """Harness self-check only: the two parts as data sets of their own, because its sharding replaces samplers."""
    if not ctx.state.cfg.get("oracle"):
        return

    def hook(arguments):
        from torch.utils.data import Subset
        from torch.utils.data.sampler import SubsetRandomSampler

        if type(arguments.get("sampler")) is SubsetRandomSampler:
            indices = list(arguments.pop("sampler").indices)
            part = Subset(arguments["dataset"], indices)
            part.train, part._acceptance_split = True, "train" if indices[0] == 0 else "test"
            arguments["dataset"] = part

    ctx.data.loader_hooks.insert(0, hook)
