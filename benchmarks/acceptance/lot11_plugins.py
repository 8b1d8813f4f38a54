"""Plugins of the lot 11 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import sys
import zlib

from lot_common import old_variables, stand_in, tensorboardx


def u2net(ctx):
    """The reader and the two ways of resizing of scikit-image, by Pillow and NumPy."""
    import numpy
    from PIL import Image

    def imread(path):
        return numpy.array(Image.open(path))

    def resize(image, size, mode="constant", order=1, preserve_range=False):
        flat = numpy.asarray(image, "float64")
        if image.dtype == numpy.uint8 and not preserve_range:
            flat = flat / 255.0
        if order == 0:
            rows = (numpy.arange(size[0]) * flat.shape[0]) // size[0]
            columns = (numpy.arange(size[1]) * flat.shape[1]) // size[1]
            return flat[rows][:, columns]
        planes = [
            Image.fromarray(numpy.ascontiguousarray(flat[:, :, k], "float32")).resize(
                (size[1], size[0]), Image.BILINEAR
            )
            for k in range(flat.shape[2])
        ]
        return numpy.stack([numpy.asarray(p, "float64") for p in planes], axis=2)

    stand_in("skimage.io", imread=imread)
    stand_in("skimage.transform", resize=resize)
    stand_in("skimage.color")


def raft(ctx):
    """OpenCV's resize, by Pillow."""
    import types

    import numpy
    from PIL import Image

    def resize(image, size, fx=None, fy=None, interpolation=None):
        size = size or (round(image.shape[1] * fx), round(image.shape[0] * fy))
        planes = [
            Image.fromarray(numpy.ascontiguousarray(image[:, :, k], "float32")).resize(
                size, Image.BILINEAR
            )
            for k in range(image.shape[2])
        ]
        out = numpy.stack([numpy.asarray(p) for p in planes], axis=2)
        return out.round().astype("uint8") if image.dtype == numpy.uint8 else out

    stand_in(
        "cv2",
        resize=resize,
        setNumThreads=lambda n: None,
        ocl=types.SimpleNamespace(setUseOpenCL=lambda on: None),
        INTER_LINEAR=1,
        IMREAD_ANYDEPTH=2,
        IMREAD_COLOR=1,
    )


def gpt2chat(ctx):
    """The optimizer that transformers dropped; the first data set made is the training one."""
    import torch
    import transformers

    transformers.AdamW = torch.optim.AdamW
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == 1 else "test"

    ctx.hooks.on_import("dataset", lambda module: ctx.data.instrument(module.MyDataset, split=part))


def biggan(ctx):
    """CIFAR10 is not downloaded, no Inception network is loaded; labels that are drawn are the same for every row
    (what noise = "row" is for numbers that are drawn from the normal distribution)."""
    import torch

    def hook(module):
        module.CIFAR10.download = lambda self: None
        module.CIFAR10._check_integrity = lambda self: True

    ctx.hooks.on_import("datasets", hook)

    def plain(
        module,
    ):  # what is computed from a tensor of a subclass was an ordinary tensor before torch 1.7
        module.Distribution.__torch_function__ = torch._C._disabled_torch_function_impl

    ctx.hooks.on_import("utils", plain)
    # without a GPU the function does what DataParallel does
    torch.nn.parallel.data_parallel = lambda module, inputs, *args, **kwargs: module(*inputs)
    random_ = torch.Tensor.random_

    def same(self, *args, **kwargs):
        if type(self).__name__ == "Distribution" and len(args) == 2:
            with torch.no_grad():
                return self.fill_(zlib.crc32(repr(args).encode()) % args[1])
        return random_(self, *args, **kwargs)

    torch.Tensor.random_ = same
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: the batch size is cut in the settings, too
        world = ctx.state.world

        def smaller(module):
            prepare = module.prepare_parser

            def prepare_parser():
                parser = prepare()
                parse = parser.parse_args

                def parse_args(*args, **kwargs):
                    out = parse(*args, **kwargs)
                    out.batch_size //= world
                    return out

                parser.parse_args = parse_args
                return parser

            module.prepare_parser = prepare_parser

        ctx.hooks.on_import("utils", smaller)

        def whole(arguments):
            arguments["batch_size"] *= world

        ctx.data.loader_hooks.insert(0, whole)


def srgnn(ctx):
    """One sample per row of items that the network is given while it trains, without the zeros it is padded with."""
    import torch

    def note(module, args):
        if type(module).__name__ == "SessionGraph" and module.training and torch.is_grad_enabled():
            for row in args[0].tolist():
                name = repr([int(i) for i in row if int(i)])
                ctx.data.note_sample("train", zlib.crc32(name.encode()), "forward")

    torch.nn.modules.module.register_module_forward_pre_hook(note)
    if ctx.state.cfg.get("oracle"):  # harness self-check: each rank its part of a batch

        def hook(module):
            get_slice = module.Data.get_slice

            def mine(self, i):
                return get_slice(self, i[ctx.state.rank :: ctx.state.world] if self.shuffle else i)

            module.Data.get_slice = mine

        ctx.hooks.on_import("utils", hook)


def monodepth2(ctx):
    """Names that Pillow and torchvision dropped; a package for the terminal, one for laser maps that are not there."""
    import random
    import urllib.request

    import PIL.Image

    tensorboardx()
    stand_in("IPython", embed=None)
    stand_in("six.moves", urllib=urllib)
    stand_in("skimage.transform", resize=None)
    if not hasattr(PIL.Image, "ANTIALIAS"):
        PIL.Image.ANTIALIAS = PIL.Image.LANCZOS

    def hook(module):
        functional = sys.modules["torchvision.transforms.functional"]

        def get_params(brightness, contrast, saturation, hue):
            steps = [
                (functional.adjust_brightness, random.uniform(*brightness)),
                (functional.adjust_contrast, random.uniform(*contrast)),
                (functional.adjust_saturation, random.uniform(*saturation)),
                (functional.adjust_hue, random.uniform(*hue)),
            ]

            def change(image):
                for fn, value in steps:
                    image = fn(image, value)
                return image

            return change

        module.ColorJitter.get_params = staticmethod(get_params)

    ctx.hooks.on_import("torchvision.transforms", hook)

    def part(self, arguments):
        return "train" if arguments["kwargs"].get("is_train") else "test"

    ctx.hooks.on_import(
        "datasets.kitti_dataset",
        lambda module: ctx.data.instrument(module.KITTIRAWDataset, split=part),
    )
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: the batch size is cut in the settings, too
        world = ctx.state.world

        def smaller(module):
            parse = module.MonodepthOptions.parse

            def mine(self):
                out = parse(self)
                out.batch_size //= world
                return out

            module.MonodepthOptions.parse = mine

        ctx.hooks.on_import("options", smaller)

        def whole(arguments):
            if ctx.data.split_of(arguments["dataset"]) == "train":
                arguments["batch_size"] *= world

        ctx.data.loader_hooks.insert(0, whole)


def sincnet(ctx):
    """Wave files are read by the standard library; one sample per row that the first network is given."""
    import wave

    import numpy
    import torch
    from group2_patches import note_forward

    def read(path):
        with wave.open(path, "rb") as f:
            data = numpy.frombuffer(f.readframes(f.getnframes()), "<i2")
            return data.astype("float64") / 32768.0, f.getframerate()

    stand_in("soundfile", read=read)
    note_forward(ctx, "SincNet")
    if ctx.state.cfg.get("oracle"):  # harness self-check: each rank its part of a batch
        real = torch.from_numpy

        def from_numpy(a):
            out = real(a)
            if sys._getframe(1).f_code.co_name == "create_batches_rnd":
                out = out[ctx.state.rank :: ctx.state.world]
            return out

        torch.from_numpy = from_numpy


def adain(ctx):
    """Content and style have numbers of their own."""
    tensorboardx()
    note = ctx.data.note_sample

    def note_sample(split, index, tag=""):
        frame = sys._getframe(1)
        while frame is not None:
            self = frame.f_locals.get("self")
            if type(self).__name__ == "FlatFolderDataset":
                index = "%s %s" % (self.root, index)
                break
            frame = frame.f_back
        note(split, index, tag)

    ctx.data.note_sample = note_sample
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: each rank its part of every batch, without an end
        rank, world = ctx.state.rank, ctx.state.world

        class Batches:
            def __init__(self, sampler, size):
                self.sampler, self.size = sampler, size

            def __iter__(self):
                batch = []
                for i in self.sampler:
                    batch.append(i)
                    if len(batch) == self.size:
                        yield batch[rank::world]
                        batch = []

        def cut(arguments):
            arguments["batch_sampler"] = Batches(
                arguments.pop("sampler"), arguments.pop("batch_size")
            )

        ctx.data.loader_hooks.insert(0, cut)


def distill(ctx):
    """Packages that are imported and not used."""
    stand_in("tensorflow")


def attention(ctx):
    old_variables()
