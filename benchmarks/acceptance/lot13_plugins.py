"""Plugins of the lot 13 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import os
import sys
import time
import zlib

from lot_common import Anything, agreed, stand_in, tensorboardx


def _own_clock():
    """Times that are printed never agree between two runs (so they count as noise, however short they are)."""
    import timeit

    factor = 20 + int.from_bytes(os.urandom(2), "big") / 500
    for module, name in ((time, "time"), (timeit, "default_timer")):
        real = getattr(module, name)
        setattr(module, name, _faster(real, real(), factor))


def _faster(real, start, factor):
    return lambda: start + factor * (real() - start)


def _called_from(name, depth=2):
    """Whether a function of that name is on the stack."""
    frame = sys._getframe(depth)
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False


def _no_sample_in(ctx, name):
    """What a function of that name fetches is no training sample (no optimizer step follows)."""
    note = ctx.data.note_sample

    def note_sample(split, index, tag=""):
        note("test" if _called_from(name) else split, index, tag)

    ctx.data.note_sample = note_sample


def _first_is_training(ctx, module, cls):
    """The first data set made of that class is the training one."""
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == 1 else "test"

    ctx.hooks.on_import(module, lambda m: ctx.data.instrument(getattr(m, cls), split=part))


def _same_draw(cls, method):
    """A method of a data set draws the same numbers for every sample (masks get one size, so that a mean over
    pixels of a batch is the mean of its parts')."""
    import random

    import numpy

    real = getattr(cls, method)

    def fixed(self, *args, **kwargs):
        numpy.random.seed(11)
        random.seed(11)
        return real(self, *args, **kwargs)

    setattr(cls, method, fixed)


def vdsr(ctx):
    """The old name of the clipping by norm (the oracle sums the gradients before).  The seed that the script draws
    is another one in every run, and the same in processes of a run that draw alike."""
    import random

    import torch

    randint = random.randint
    run = os.environ.get("TORCHELASTIC_RUN_ID") or os.urandom(4).hex()

    def drawn(low, high):
        value = randint(low, high)
        return low + zlib.crc32(("%s %d" % (run, value)).encode()) % (high - low + 1)

    random.randint = drawn

    clip = torch.nn.utils.clip_grad_norm_

    def clip_grad_norm(parameters, *args, **kwargs):
        parameters = list(parameters)
        if ctx.state.cfg.get("oracle"):  # harness self-check
            for p in parameters:
                torch.distributed.all_reduce(p.grad)
        total = clip(parameters, *args, **kwargs)
        if ctx.state.cfg.get("oracle"):
            for p in parameters:  # it sums once more before the step
                p.grad /= ctx.state.world
        return total

    torch.nn.utils.clip_grad_norm = clip_grad_norm


def diffusion(ctx):
    """Steps of the noise are the same for every sample, and whether labels are left out does not depend on the
    process (what noise = "row" is for numbers from the normal distribution)."""
    import numpy
    import torch

    drawn, asked = [0], [0]
    randint, random = torch.randint, numpy.random.random

    def same_steps(low, high=None, size=None, **kwargs):
        if sys._getframe(1).f_code.co_name != "sample_timesteps":
            sizes = () if size is None else (size,)
            return randint(low, *(() if high is None else (high,)), *sizes, **kwargs)
        drawn[0] += 1
        return torch.full(size, low + 3 * drawn[0] % (high - low))

    def in_turn(*args):
        if args or sys._getframe(1).f_code.co_name != "train":
            return random(*args)
        asked[0] += 1
        return 0.05 if asked[0] % 3 == 2 else 0.5

    torch.randint, numpy.random.random = same_steps, in_turn


def swa(ctx):
    """The pass for the statistics is no training."""
    _own_clock()
    _no_sample_in(ctx, "bn_update")


def _opencv():
    """OpenCV's reading, resizing, dilation and erosion by Pillow and SciPy."""
    import numpy
    from PIL import Image
    from scipy import ndimage

    def imread(path, flag=1):
        image = numpy.asarray(Image.open(path).convert("RGB" if flag else "L"))
        return image[..., ::-1].copy() if flag else image

    def resize(src, dsize, interpolation=0):
        how = Image.NEAREST if interpolation == 0 else Image.BICUBIC
        return numpy.asarray(Image.fromarray(src).resize(dsize, how))

    def morph(fn):
        return lambda image, kernel, dst=None: fn(image, footprint=kernel)

    stand_in(
        "cv2",
        imread=imread,
        resize=resize,
        INTER_NEAREST=0,
        INTER_CUBIC=2,
        MORPH_ELLIPSE=2,
        getStructuringElement=lambda shape, size: numpy.ones(size, "uint8"),
        dilate=morph(ndimage.grey_dilation),
        erode=morph(ndimage.grey_erosion),
    )


def matting(ctx):
    """VGG16 without its last layers (they are not used), one draw for all masks."""
    import types

    _opencv()
    tensorboardx()
    stand_in("torchsummary", summary=None)

    def small(module):
        from torchvision.models import vgg

        module.vgg16 = lambda: types.SimpleNamespace(features=vgg.make_layers(vgg.cfgs["D"]))

    ctx.hooks.on_import("torchvision.models", small)

    def hook(module):
        _same_draw(module.DIMDataset, "__getitem__")
        ctx.data.instrument(module.DIMDataset, split_arg="split")

    ctx.hooks.on_import("data_gen", hook)


def sparse2dense(ctx):
    """Names that SciPy, NumPy and Python dropped; one draw for all masks."""
    import collections.abc

    import numpy
    import scipy.ndimage
    from PIL import Image

    _own_clock()
    collections.Iterable = collections.abc.Iterable
    numpy.asfarray = lambda a, dtype="float": numpy.asarray(a, dtype)

    def imresize(image, size, interp="bilinear", mode=None):
        size = [int(size * s) for s in image.shape[:2]] if isinstance(size, float) else size
        how = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR}[interp]
        image = image.astype("float32") if mode == "F" else image
        return numpy.array(Image.fromarray(image).resize((size[1], size[0]), how))

    stand_in("cv2")
    try:
        import scipy.misc
    except ImportError:
        stand_in("scipy.misc")
    sys.modules["scipy.misc"].imresize = imresize
    stand_in("scipy.ndimage.interpolation", rotate=scipy.ndimage.rotate)
    ctx.hooks.on_import(
        "dataloaders.nyu_dataloader", lambda m: _same_draw(m.NYUDataset, "train_transform")
    )


def convlstm(ctx):
    tensorboardx()


def speakers(ctx):
    """Files in the order of their names; the split is drawn from the process' random numbers, but which one comes
    out is fixed for all that draw as the first process does."""
    import glob

    import numpy
    import pandas

    _own_clock()
    stand_in("librosa")
    listed = glob.glob
    glob.glob = lambda *args, **kwargs: sorted(listed(*args, **kwargs))

    def sample(self, frac=None, **kwargs):
        state = zlib.crc32(numpy.random.get_state()[1].tobytes())
        rows = list(range(len(self)))
        order = rows[::2] + rows[1::2]  # every speaker in both parts
        return self.iloc[order if agreed(ctx.state, state, "split") else order[::-1]]

    pandas.DataFrame.sample = sample
    _first_is_training(ctx, "SR_Dataset", "DvectorDataset")


def segan(ctx):
    """Wave files by the standard library; how far the discriminator shifts does not depend on the process."""
    import glob
    import types
    import wave

    import numpy

    def load(path, sr=None):
        with wave.open(path, "rb") as f:
            data = numpy.frombuffer(f.readframes(f.getnframes()), "<i2")
            return data.astype("float64") / 32768.0, f.getframerate()

    _own_clock()
    tensorboardx()
    stand_in("librosa", load=load)
    stand_in("soundfile")
    stand_in("numba", jit=Anything, int32=None, float32=None)
    stand_in("ahoproc_tools.io")
    stand_in("ahoproc_tools.interpolate")
    listed, drawn = glob.glob, [0]
    glob.glob = lambda *args, **kwargs: sorted(listed(*args, **kwargs))

    def turn(value):
        drawn[0] += 1
        return value(drawn[0])

    def hook(module):
        module.random = types.SimpleNamespace(
            randint=lambda low, high: turn(lambda k: low + k % (high - low + 1)),
            random=lambda: turn(lambda k: 0.3 * (k % 3)),
        )

    ctx.hooks.on_import("segan.models.discriminator", hook)


def cpc(ctx):
    """The frame that is predicted from does not depend on the process; the first data set is the training one."""
    import torch

    drawn, randint = [0], torch.randint

    def same_frame(*args, **kwargs):
        if sys._getframe(1).f_code.co_name != "forward":
            return randint(*args, **kwargs)
        drawn[0] += 1
        return torch.tensor([7 * drawn[0] % int(args[0])])

    torch.randint = same_frame
    _first_is_training(ctx, "src.data_reader.dataset", "RawDataset")
    if ctx.state.cfg.get("oracle"):  # harness self-check: the loss of the whole batch on every rank

        def gathered(module):
            forward = module.CDCK2.forward

            def whole(self, x, hidden):
                if not self.training:
                    return forward(self, x, hidden)
                parts = [torch.empty_like(x) for _ in range(ctx.state.world)]
                torch.distributed.all_gather(parts, x.contiguous())
                return forward(self, torch.cat(parts), hidden.repeat(1, len(parts), 1))

            module.CDCK2.forward = whole

        ctx.hooks.on_import("src.model.model", gathered)
