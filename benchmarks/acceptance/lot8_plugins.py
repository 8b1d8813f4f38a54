"""Plugins of the lot 8 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import collections
import json

from lot_common import Anything, note_rows, old_variables, stand_in, tensorboardx


def _pictures():
    """The few functions of OpenCV that are used, by Pillow."""
    import numpy
    from PIL import Image

    def imread(path, flags=1):
        return numpy.asarray(Image.open(path).convert("RGB"))[:, :, ::-1].copy()

    def cvtColor(image, code):
        return image[:, :, ::-1].copy()

    def resize(image, size, interpolation=None):
        planes = [
            Image.fromarray(numpy.ascontiguousarray(image[:, :, k], "float32")).resize(
                size, Image.BILINEAR
            )
            for k in range(image.shape[2])
        ]
        return numpy.stack([numpy.asarray(p) for p in planes], axis=2)

    stand_in(
        "cv2",
        imread=imread,
        cvtColor=cvtColor,
        resize=resize,
        COLOR_BGR2RGB=4,
        COLOR_RGB2BGR=4,
        INTER_LINEAR=1,
        FONT_HERSHEY_SIMPLEX=0,
    )


def pixelcnn(ctx):
    """The harness' cast to double precision gives a module copies of its lists; this network empties its caller's."""
    from torch.nn.modules import module as modules

    for key, cast in list(modules._global_forward_pre_hooks.items()):
        if getattr(cast, "__qualname__", "").startswith("_double."):
            modules._global_forward_pre_hooks[key] = lambda module, args, cast=cast: (
                None if any(type(a) is list for a in args) else cast(module, args)
            )
    tensorboardx()
    old_variables()
    if ctx.state.cfg.get("oracle"):  # harness self-check: the test batch is not cut there

        def hook(module):
            forward = module.PixelCNN.forward

            def fresh(self, x, sample=False):
                self.init_padding = None
                return forward(self, x, sample)

            module.PixelCNN.forward = fresh

        ctx.hooks.on_import("model", hook)


def pose3d(ctx):
    """The progress bar of the submodule; nothing is shown where the output is no terminal."""
    import datetime

    class Bar:
        elapsed_td = eta_td = datetime.timedelta(0)
        suffix = ""

        def __init__(self, *args, **kwargs):
            pass

        def next(self, n=1):
            pass

        def finish(self):
            pass

    stand_in("progress.bar", Bar=Bar)
    if ctx.state.cfg.get("oracle"):  # harness self-check: the old name, too, clips averages
        import torch

        torch.nn.utils.clip_grad_norm = torch.nn.utils.clip_grad_norm_


def efficientdet(ctx):
    """COCO's notes, names of colours; pictures of 128 x 128 instead of 512 x 512."""
    from PIL import ImageColor

    tensorboardx()
    _pictures()
    Colour = collections.namedtuple("Colour", "red green blue")
    stand_in("webcolors", name_to_rgb=lambda name: Colour(*ImageColor.getrgb(name.lower())))

    class COCO:
        def __init__(self, path):
            with open(path) as f:
                content = json.load(f)
            self.imgs, self.anns, self.cats = (
                {e["id"]: e for e in content[k]} for k in ("images", "annotations", "categories")
            )

        def getImgIds(self):
            return list(self.imgs)

        def getCatIds(self):
            return list(self.cats)

        def getAnnIds(self, imgIds, iscrowd=None):
            return [i for i, a in self.anns.items() if a["image_id"] == imgIds]

        def loadImgs(self, i):
            return [self.imgs[i]]

        def loadCats(self, ids):
            return [self.cats[i] for i in ids]

        def loadAnns(self, ids):
            return [self.anns[i] for i in ids]

    stand_in("pycocotools.coco", COCO=COCO)

    def smaller(module):
        init = module.Resizer.__init__
        module.Resizer.__init__ = lambda self, img_size=512: init(self, img_size // 4)

    ctx.hooks.on_import("efficientdet.dataset", smaller)


def tsm(ctx):
    """Pictures of 32 x 32 instead of 224 x 224."""
    tensorboardx()

    def smaller(module):
        prepare = module.TSN._prepare_base_model

        def prepared(self, base_model):
            prepare(self, base_model)
            self.input_size = 32

        module.TSN._prepare_base_model = prepared

    ctx.hooks.on_import("ops.models", smaller)


def transtts(ctx):
    """Only phones in braces are spoken: nothing is asked of the packages for sound and English text."""
    tensorboardx()
    stand_in("librosa", load=None)
    stand_in("unidecode", unidecode=lambda s: s)
    stand_in("inflect", engine=Anything)
    collections.Mapping = collections.abc.Mapping


def textcnn(ctx):
    """The first MRDataset is the training one."""
    if ctx.state.cfg.get("oracle"):  # harness self-check: one order of the examples for all ranks
        import random

        random.seed(20240)
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == 1 else "test"

    ctx.hooks.on_import(
        "mydatasets", lambda module: ctx.data.instrument(module.MRDataset, split=part)
    )


def dcrnn(ctx):
    """One sample per column of what the network is given; a factory of tensors the harness does not know."""
    import numpy
    import torch
    import torch.utils.tensorboard

    stand_in("tensorflow")
    sparse = torch.sparse_coo_tensor

    def sparse_coo_tensor(*args, **kwargs):
        if kwargs.get("device") is not None:
            kwargs["device"] = ctx.cuda.clean(kwargs["device"])
        return sparse(*args, **kwargs)

    torch.sparse_coo_tensor = sparse_coo_tensor
    note_rows(ctx, "DCRNNModel", lambda args: args[0].permute(1, 0, 2))
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: one order, and each rank its part of a batch
        numpy.random.seed(20240)

        def hook(module):
            iterator = module.DataLoader.get_iterator

            def mine(self):
                training = self.size == ctx.state.cfg["sizes"]["train"]
                for x, y in iterator(self):
                    yield (
                        (x[ctx.state.rank :: ctx.state.world], y[ctx.state.rank :: ctx.state.world])
                        if training
                        else (x, y)
                    )

            module.DataLoader.get_iterator = mine

        ctx.hooks.on_import("lib.utils", hook)


def sasrec(ctx):
    """The three processes take turns (as published, the order of their batches is a race, so that two runs of the
    original differ); each keeps its own random state.  One sample per row of what the network is given.
    """
    import threading

    import numpy
    import torch

    class Queue:
        def __init__(self, maxsize=0):
            self.workers, self.turn, self.ready = [], 0, threading.Semaphore(0)

        def put(self, item):
            self.item = item
            worker = threading.current_thread()
            self.ready.release()
            worker.go.acquire()

        def get(self, *args, **kwargs):
            worker = self.workers[self.turn % len(self.workers)]
            self.turn += 1
            outer = numpy.random.get_state()
            if worker.random is None:
                threading.Thread.start(worker)
            else:
                numpy.random.set_state(worker.random)
                worker.go.release()
            self.ready.acquire()
            worker.random = numpy.random.get_state()
            numpy.random.set_state(outer)
            return self.item

    class Process(threading.Thread):
        def __init__(self, target, args=(), kwargs=None):
            super().__init__(target=target, args=args, kwargs=kwargs or {}, daemon=True)
            self.go, self.random = threading.Semaphore(0), None
            self.queue = next(a for a in args if isinstance(a, Queue))

        def start(self):
            self.queue.workers.append(self)

        def terminate(self):
            pass

        def join(self, timeout=None):
            pass

    def hook(module):
        module.Process, module.Queue = Process, Queue
        if ctx.state.cfg.get(
            "oracle"
        ):  # harness self-check: one seed, and each rank its part of a batch
            numpy.random.seed(20240)
            batch = module.WarpSampler.next_batch
            module.WarpSampler.next_batch = lambda self: [
                part[ctx.state.rank :: ctx.state.world] for part in batch(self)
            ]

    ctx.hooks.on_import("utils", hook)
    note_rows(
        ctx,
        "SASRec",
        lambda args: torch.cat(
            [torch.as_tensor(numpy.asarray(args[0])).long()[:, None]]
            + [torch.as_tensor(numpy.asarray(a)).long() for a in args[1:4]],
            1,
        ),
    )


def bisenet(ctx):
    """The flip of imgaug, drawn once for picture and mask."""
    import numpy

    class Fliplr:
        def __init__(self, p=0.0):
            self.p, self.flip = p, None

        def to_deterministic(self):
            fixed = Fliplr(self.p)
            fixed.flip = numpy.random.rand() < self.p
            return fixed

        def augment_image(self, image):
            flip = numpy.random.rand() < self.p if self.flip is None else self.flip
            return image[:, ::-1].copy() if flip else image

    tensorboardx()
    _pictures()
    stand_in("imgaug")
    stand_in("imgaug.augmenters", Fliplr=Fliplr)


def adda(ctx):
    """What an evaluation fetches (the first stage evaluates on the training loader) is no training sample."""
    import sys

    old_variables()
    note = ctx.data.note_sample

    def note_sample(split, index, tag=""):
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name in ("eval_src", "eval_tgt"):
                split = "test"
                break
            frame = frame.f_back
        note(split, index, tag)

    ctx.data.note_sample = note_sample
    if ctx.state.cfg.get("oracle"):  # harness self-check: one order of USPS for all ranks
        import numpy

        numpy.random.seed(20240)
