"""Plugins of the lot 16 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import itertools
import os
import sys
import time
import types
import zlib

from lot_common import Anything, agreed, note_rows, old_variables, stand_in, tensorboardx


def own_clock(ctx):
    """Seconds that are printed never agree between two runs (so they count as noise, whatever the load)."""
    real, factor = time.time, 20 + int.from_bytes(os.urandom(2), "big") / 500
    start = real()
    time.time = lambda: start + factor * (real() - start)


def _sorted_files():
    """The order of a folder's files is that of their names."""
    import glob

    listed = glob.glob
    glob.glob = lambda *args, **kwargs: sorted(listed(*args, **kwargs))


def _first_are_train(n):
    """Of a class' objects the first n made are training sets."""
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) <= n else "test"

    return part


def _numpy_state():
    import numpy

    return zlib.crc32(numpy.random.get_state()[1].tobytes())


def proxies(ctx):
    """No weights; a keyword that matplotlib dropped.  The script makes a list of a set of parameters, whose order is
    that of their addresses: here it is the order in which they were asked for first."""
    import matplotlib
    import torch
    from group2_patches import no_weights

    no_weights(ctx, "_pt04.pt")
    use = matplotlib.use
    matplotlib.use = lambda backend, warn=None, force=True: use(backend, force=force)
    count = itertools.count()

    def number(self):
        known = self.__dict__.get("_acceptance_number")
        if known is None or known[0] != id(self):
            known = self.__dict__["_acceptance_number"] = (id(self), next(count))
        return known[1]

    torch.nn.Parameter.__hash__ = number

    def hook(module):
        ctx.data.instrument(
            module.BaseDataset,
            split=lambda self, arguments: "train" if 0 in arguments["classes"] else "test",
        )

    ctx.hooks.on_import("dataset.base", hook)


def discrepancy(ctx):
    """Names of Python 2.  The images are permuted by NumPy, unseeded: which order comes out is fixed for all that draw
    as the first process does.  The first two data sets are those of training."""
    import builtins
    import pickle

    import numpy

    old_variables()
    builtins.xrange = range
    stand_in("cPickle", load=pickle.load)
    stand_in("torchnet")

    def permutation(count):
        known = _numpy_state()
        numpy.random.rand()
        order = numpy.arange(count)
        return order if agreed(ctx.state, known, "permutation") else order[::-1]

    numpy.random.permutation = permutation
    part = _first_are_train(2)
    ctx.hooks.on_import("datasets.datasets", lambda m: ctx.data.instrument(m.Dataset, split=part))
    if ctx.state.cfg.get("oracle"):  # harness self-check: smaller batches are no reason to stop

        def hook(module):
            train = module.Solver.train

            def part_of(self, *args, **kwargs):
                self.batch_size = 4 // ctx.state.world
                return train(self, *args, **kwargs)

            module.Solver.train = part_of

        ctx.hooks.on_import("solver", hook)


def flows(ctx):
    """The flow's own batch normalization uses, while it is trained, the statistics it keeps (what batch_norm =
    "running" is for torch's); the pass over the whole training set sets them."""
    import torch

    tensorboardx()
    ctx.data.instrument(torch.utils.data.TensorDataset, split=_first_are_train(1))

    def hook(module):
        forward = module.BatchNormFlow.forward

        def kept(self, *args, **kwargs):
            if not (self.training and torch.is_grad_enabled()):
                return forward(self, *args, **kwargs)
            self.training = False
            try:
                return forward(self, *args, **kwargs)
            finally:
                self.training = True

        module.BatchNormFlow.forward = kept

    ctx.hooks.on_import("flows", hook)


def cycle(ctx):
    """A plotting server that is not there; old names of initializers."""
    import torch

    _sorted_files()
    stand_in("visdom", Visdom=Anything)
    for name in ("normal", "constant"):
        setattr(torch.nn.init, name, getattr(torch.nn.init, name + "_"))
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: buffers are made for a rank's part of a batch
        import argparse

        parse = argparse.ArgumentParser.parse_args

        def parse_args(self, *args, **kwargs):
            out = parse(self, *args, **kwargs)
            out.batchSize //= ctx.state.world
            return out

        def whole(arguments):
            arguments["batch_size"] *= ctx.state.world

        argparse.ArgumentParser.parse_args = parse_args
        ctx.data.loader_hooks.insert(0, whole)


def clusters(ctx):
    """What is used of faiss, by NumPy.  The pass that reads the features is no training."""
    import numpy

    old_variables()

    class PCAMatrix:
        is_trained = False

        def __init__(self, ndim, pca, eigen_power=0):
            self.pca, self.power = pca, eigen_power

        def train(self, x):
            self.mean, x = x.mean(0), x.astype("float64")
            values, vectors = numpy.linalg.eigh(numpy.cov(x.T))
            keep = numpy.argsort(-values)[: self.pca]
            keep = [k for k in keep if values[k] > 0.1 * values.max()]
            vectors = vectors[:, keep] * numpy.sign(
                vectors[abs(vectors).argmax(0), range(len(values))][keep]
            )
            self.matrix = vectors * values[keep] ** self.power
            self.is_trained = True

        def apply_py(self, x):
            return ((x - self.mean) @ self.matrix).astype("float32")

    class Index:
        def __init__(self, resources, d, config):
            self.rows = numpy.zeros((0, d))

        def add(self, rows):
            self.rows = numpy.concatenate([self.rows, rows])

        def search(self, x, k):
            d = ((x[:, None] - self.rows[None]) ** 2).sum(-1)
            order = d.argsort(1, kind="stable")[:, :k]
            return numpy.take_along_axis(d, order, 1), order

    class Clustering:
        def __init__(self, d, k):
            self.d, self.k, self.obj = d, k, []

        def train(self, x, index):
            first = numpy.random.RandomState(self.seed).randint(len(x))
            centres = [x[first]]
            while len(centres) < self.k:
                d = ((x[:, None] - numpy.array(centres)[None]) ** 2).sum(-1).min(1)
                centres.append(x[d.argmax()])
            centres = numpy.array(centres)
            for _ in range(self.niter):
                d = ((x[:, None] - centres[None]) ** 2).sum(-1)
                self.obj.append(d.min(1).sum())
                mine = d.argmin(1)
                centres = numpy.array([x[mine == c].mean(0) for c in range(self.k)])
            index.add(centres)

    stand_in(
        "faiss",
        PCAMatrix=PCAMatrix,
        Clustering=Clustering,
        GpuIndexFlatL2=Index,
        StandardGpuResources=Anything,
        GpuIndexFlatConfig=type("GpuIndexFlatConfig", (), {}),
        vector_to_array=numpy.array,
    )
    if ctx.state.cfg.get("oracle"):  # harness self-check: there, samplers are replaced

        def indices(arguments):
            from torch.utils.data import Subset

            sampler = arguments.get("sampler")
            if type(sampler).__name__ == "UnifLabelSampler":
                arguments["dataset"] = Subset(arguments["dataset"], list(sampler))
                arguments.pop("sampler")

        ctx.data.loader_hooks.insert(0, indices)


def srresnet(ctx):
    """A narrow VGG19, whose weights are the same in every process, as those that are downloaded would be."""

    def hook(module):
        import numpy
        import torch
        from torchvision.models import vgg

        def vgg19(**kwargs):
            layers = [v if v == "M" else v // 16 for v in vgg.cfgs["E"]]
            features, rng = vgg.make_layers(layers), numpy.random.RandomState(1600)
            for p in features.parameters():
                scale = (2 / p[0].numel()) ** 0.5 if p.dim() > 1 else 0.1
                p.data.copy_(torch.from_numpy(scale * rng.randn(*p.shape)))
            return types.SimpleNamespace(features=features, load_state_dict=lambda state: None)

        module.vgg19 = vgg19

    ctx.hooks.on_import("torchvision.models", hook)


def erasing(ctx):
    old_variables()


def denoising(ctx):
    """OpenCV's reading and resizing by Pillow.  How a patch is turned does not depend on the process."""
    import numpy
    from PIL import Image

    _sorted_files()

    def imread(path, flag=1):
        image = numpy.asarray(Image.open(path).convert("RGB" if flag else "L"))
        return image[..., ::-1].copy() if flag else image

    def resize(src, dsize, interpolation=0):
        return numpy.asarray(Image.fromarray(src).resize(dsize, Image.BICUBIC))

    stand_in("cv2", imread=imread, resize=resize, INTER_CUBIC=2)
    randint, drawn = numpy.random.randint, [0]

    def turned(*args, **kwargs):
        if sys._getframe(1).f_code.co_name != "gen_patches":
            return randint(*args, **kwargs)
        drawn[0] += 1
        return drawn[0] % 8

    numpy.random.randint = turned


def pose(ctx):
    """One sample per window that the network is given while it trains."""
    if not ctx.state.cfg.get("oracle"):
        note_rows(ctx, "TemporalModelOptimized1f", lambda args: args[0])
        return

    def hook(module):  # harness self-check: each rank its part of a batch
        note_rows(ctx, "TemporalModelOptimized1f", lambda args: args[0])
        epoch = module.ChunkedGenerator.next_epoch

        def part(self):
            mine = slice(ctx.state.rank, None, ctx.state.world)
            for batch in epoch(self):
                yield tuple(None if b is None else b[mine] for b in batch)

        module.ChunkedGenerator.next_epoch = part

    ctx.hooks.on_import("common.generators", hook)


def disco(ctx):
    """A target of another shape than the prediction's, which was taken."""
    import torch

    _sorted_files()
    functional = torch.nn.functional
    real = functional.binary_cross_entropy

    def binary_cross_entropy(input, target, *args, **kwargs):
        if input.shape != target.shape and input.numel() == target.numel():
            target = target.reshape(input.shape)
        return real(input, target, *args, **kwargs)

    functional.binary_cross_entropy = binary_cross_entropy
