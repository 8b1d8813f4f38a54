"""Plugins of the lot 5 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and the report of samples where there is no DataLoader.  Nothing a tool is
judged by is touched."""

import sys
import types
import zlib

from lot_common import Anything, agreed, stand_in, tensorboardx


def tensorflow():
    """A writer of TensorFlow 1 that keeps the tags and numbers as lines of text."""
    import os

    class HistogramProto:
        def __init__(self):
            self.bucket_limit, self.bucket = [], []

    class Summary:
        class Value:
            def __init__(self, tag, simple_value=None, histo=None, image=None, tensor=None):
                self.text = "%s %s" % (
                    tag,
                    simple_value if histo is None else "%s %s" % (histo.min, histo.max),
                )

        class Image:
            def __init__(self, *args, **kwargs):
                pass

        def __init__(self, value):
            self.value = value

    class FileWriter:
        def __init__(self, folder):
            os.makedirs(folder, exist_ok=True)
            self.file = open(os.path.join(folder, "events.out.tfevents.1"), "a")  # noqa: SIM115

        def add_summary(self, summary, step):
            for value in summary.value:
                self.file.write("%s %s\n" % (step, value.text))

        def flush(self):
            self.file.flush()

    stand_in("tensorflow", Summary=Summary, HistogramProto=HistogramProto)
    stand_in("tensorflow.summary", FileWriter=FileWriter)


def opencv():
    """What the two repositories use of OpenCV, by Pillow and NumPy."""
    import numpy
    from PIL import Image

    def imread(path, flags=1):
        return numpy.array(Image.open(path).convert("RGB"))[:, :, ::-1].copy()

    def planes(image, change):
        out = [
            numpy.asarray(change(Image.fromarray(image[..., c].astype("float32"))))
            for c in range(image.shape[2])
        ]
        return numpy.stack(out, 2).astype(image.dtype)

    def resize(image, size, interpolation=1):
        return planes(image, lambda plane: plane.resize(size, Image.BILINEAR))

    def getAffineTransform(src, dst):
        return numpy.linalg.solve(numpy.hstack([src, numpy.ones((3, 1))]), dst).T

    def warpAffine(image, matrix, size, flags=1):
        inverse = numpy.linalg.inv(numpy.vstack([matrix, [0, 0, 1]]))[:2].ravel().tolist()
        return planes(
            image, lambda plane: plane.transform(size, Image.AFFINE, inverse, Image.BILINEAR)
        )

    def imwrite(path, image):
        Image.fromarray(numpy.asarray(image).clip(0, 255).astype("uint8")).save(path)

    stand_in(
        "cv2",
        imread=imread,
        imwrite=imwrite,
        resize=resize,
        warpAffine=warpAffine,
        getAffineTransform=getAffineTransform,
        setNumThreads=lambda n: None,
        INTER_LINEAR=1,
        INTER_NEAREST=0,
        IMREAD_COLOR=1,
        IMREAD_IGNORE_ORIENTATION=128,
        BORDER_CONSTANT=0,
    )


# -------------------------------------------------------------------------------------------


def sam(ctx):
    """What is read for the mean of the training set before training is no training sample."""

    def statistics(module):
        measure = module.Cifar._get_statistics

        def _get_statistics(self):
            note, ctx.data.note_sample = ctx.data.note_sample, lambda *args: None
            try:
                return measure(self)
            finally:
                ctx.data.note_sample = note

        module.Cifar._get_statistics = _get_statistics

    def averaged(module):  # harness self-check: the first of the two passes too
        first = module.SAM.first_step

        def first_step(self, zero_grad=False):
            import torch

            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        torch.distributed.all_reduce(p.grad)
                        p.grad /= ctx.state.world
            return first(self, zero_grad)

        module.SAM.first_step = first_step

    ctx.hooks.on_import("data.cifar", statistics)
    if ctx.state.cfg.get("oracle"):
        ctx.hooks.on_import("sam", averaged)


def yass_segment(ctx):
    """Streams of a GPU that is not there; which part a data set is (it takes **kwargs only)."""
    import contextlib

    import torch

    opencv()
    torch.cuda.Stream = Anything
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    torch.cuda.current_stream = Anything
    ctx.hooks.on_import(
        "dataloaders.voc",
        lambda module: ctx.data.instrument(
            module.VOCDataset,
            split=lambda self, given: "train" if "train" in str(given) else "test",
        ),
    )


def pose_resnet(ctx):
    import json

    import yaml

    opencv()
    tensorboardx()

    class EasyDict(dict):
        def __init__(self, *args, **kwargs):
            for key, value in dict(*args, **kwargs).items():
                setattr(self, key, value)

        def __setattr__(self, name, value):
            self[name] = (
                EasyDict(value) if isinstance(value, dict) and type(value) is dict else value
            )

        def __setitem__(self, name, value):
            dict.__setitem__(self, name, EasyDict(value) if type(value) is dict else value)

        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

    stand_in("easydict", EasyDict=EasyDict)
    stand_in("json_tricks", **{k: getattr(json, k) for k in json.__all__})
    stand_in("pycocotools.coco", COCO=Anything)
    stand_in("pycocotools.cocoeval", COCOeval=Anything)
    stand_in("nms.nms", oks_nms=Anything)
    load = yaml.load
    yaml.load = lambda stream, Loader=yaml.SafeLoader: load(stream, Loader)


def stargan(ctx):
    tensorflow()


def wavenet(ctx):
    """Padding by an autograd function of the present; an item of the test part is one however it is asked for."""
    tensorflow()
    import scipy

    old = types.ModuleType("scipy.misc")
    sys.modules["scipy.misc"] = scipy.misc = old
    stand_in("librosa", load=None)

    def padding(module):
        def constant_pad_1d(input, target_size, dimension=0, value=0, pad_start=False):
            missing = target_size - input.size(dimension)
            pad = [0, 0] * (input.dim() - 1 - dimension) + (
                [missing, 0] if pad_start else [0, missing]
            )
            return module.F.pad(input, pad, value=value)

        module.constant_pad_1d = constant_pad_1d

    def parts(module):
        ctx.data.instrument(module.WavenetDataset, split="train")
        fetch = module.WavenetDataset.__getitem__

        def __getitem__(self, idx):
            self._acceptance_split = "train" if self.train else "test"
            try:
                return fetch(self, idx)
            finally:
                self._acceptance_split = "train"

        module.WavenetDataset.__getitem__ = __getitem__

    ctx.hooks.on_import("wavenet_modules", padding)
    ctx.hooks.on_import("audio_data", parts)


def makemore(ctx):
    """Sampling with replacement: one after the other, as everywhere else in the harness."""
    import torch

    sampler = torch.utils.data.RandomSampler
    iterate = sampler.__iter__

    def __iter__(self):
        if not self.replacement:
            return iterate(self)
        n = len(self.data_source)
        return (i % n for i in range(self.num_samples))

    sampler.__iter__ = __iter__


def gwnet(ctx):
    """A sample is a window, reported when the network gets it; the drawn order is none where all ranks
    would draw the same one."""
    import group2_patches
    import numpy

    group2_patches.note_forward(ctx, "gwnet")
    permutation = numpy.random.permutation

    def drawn(x):
        if not isinstance(x, (int, numpy.integer)):
            return permutation(x)
        state = zlib.crc32(
            numpy.random.get_state()[1].tobytes() + repr(numpy.random.get_state()[2]).encode()
        )
        permutation(x)
        same = agreed(ctx.state, state, "order")
        return numpy.arange(x) if same else numpy.roll(numpy.arange(x), 1)

    numpy.random.permutation = drawn
    if ctx.state.cfg.get("oracle"):  # harness self-check: shard the windows that are shuffled

        def shard(module):
            shuffle, batches = module.DataLoader.shuffle, module.DataLoader.get_iterator

            def marked(self):
                shuffle(self)
                self.of_training = True

            def get_iterator(self):
                part = slice(ctx.state.rank, None, ctx.state.world)
                whole = not getattr(self, "of_training", False)
                return ((x, y) if whole else (x[part], y[part]) for x, y in batches(self))

            module.DataLoader.shuffle, module.DataLoader.get_iterator = marked, get_iterator

        ctx.hooks.on_import("util", shard)


def bert4rec(ctx):
    """Answers on the terminal (which rank asked what goes to its record); masks drawn from the sample's number."""
    import builtins
    import random

    stand_in("wget", download=None)

    def answer(prompt=""):
        ctx.state.event("asked", prompt=prompt)
        return "1" if prompt.startswith("Input 1") else "y"

    builtins.input = answer

    def masks(module):
        fetch = module.BertTrainDataset.__getitem__

        def __getitem__(self, index):
            self.rng = random.Random(int(index))
            return fetch(self, index)

        module.BertTrainDataset.__getitem__ = __getitem__

    ctx.hooks.on_import("dataloaders.bert", masks)
