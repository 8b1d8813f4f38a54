"""Plugins of the lot 7 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import ast
import contextlib
import glob
import os
import sys
import zlib

from lot_common import Anything, old_variables, stand_in, tensorboardx


def two_more(ctx):
    """Two pictures more than full batches."""
    ctx.state.cfg["sizes"]["train"] += 2


def _first_is_training(ctx, cls):
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == 1 else "test"

    ctx.data.instrument(cls, split=part)


def _get_cmap(ctx):
    """matplotlib.cm.get_cmap, dropped by 3.9."""

    def add(module):
        import matplotlib

        def get_cmap(name=None, lut=None):
            chosen = matplotlib.colormaps[name]
            return chosen if lut is None else chosen.resampled(lut)

        module.get_cmap = get_cmap

    ctx.hooks.on_import("matplotlib.cm", add)


def _double_from_numpy():
    """Arrays become tensors in double precision, as all else here."""
    import torch

    from_numpy = torch.from_numpy
    torch.from_numpy = lambda array: (
        from_numpy(array).double() if array.dtype == "float32" else from_numpy(array)
    )


def sngan(ctx):
    """Harness self-check only: the option is the batch size of a rank, the loader's is divided by the check."""
    if not ctx.state.cfg.get("oracle"):
        return
    sys.argv[sys.argv.index("--batch_size") + 1] = "2"

    def hook(arguments):
        arguments["batch_size"] *= 2

    ctx.data.loader_hooks.insert(0, hook)


def glow(ctx):
    """save_image(range=...) is value_range now."""
    _double_from_numpy()
    if ctx.state.cfg.get("oracle"):  # harness self-check: one set of first weights for all ranks
        import numpy

        numpy.random.seed(20240)

        def whole(module):  # ... and the statistics of the whole first batch
            initialize = module.ActNorm.initialize

            def gathered(self, input):
                import torch

                parts = [torch.empty_like(input) for _ in range(ctx.state.world)]
                torch.distributed.all_gather(parts, input.contiguous())
                initialize(self, torch.cat(parts))

            module.ActNorm.initialize = gathered

        ctx.hooks.on_import("model", whole)

    def rename(module):
        save_image = module.save_image

        def save(*args, **kwargs):
            if "range" in kwargs:
                kwargs["value_range"] = kwargs.pop("range")
            return save_image(*args, **kwargs)

        module.save_image = save

    ctx.hooks.on_import("torchvision.utils", rename)


class Path(str):
    """What the script uses of path.Path."""

    def __truediv__(self, other):
        return Path(os.path.join(self, other))

    def __rtruediv__(self, other):
        return Path(os.path.join(other, self))

    name = property(lambda self: Path(os.path.basename(self)))

    def dirname(self):
        return Path(os.path.dirname(self))

    def normpath(self):
        return Path(os.path.normpath(self))

    def isfile(self):
        return os.path.isfile(self)

    def files(self, pattern="*"):
        return [Path(p) for p in glob.glob(os.path.join(self, pattern)) if os.path.isfile(p)]

    def makedirs_p(self):
        os.makedirs(self, exist_ok=True)
        return self


def _resize(image, shape):
    """skimage.transform.resize for pictures of floats."""
    import numpy
    from PIL import Image

    height, width = (int(n) for n in shape[:2])
    parts = [
        numpy.asarray(
            Image.fromarray(image[..., c].astype("float32")).resize((width, height), Image.BILINEAR)
        )
        for c in range(image.shape[2])
    ]
    return numpy.stack(parts, 2).astype(image.dtype)


def _read(path):
    import numpy
    from PIL import Image

    return numpy.array(Image.open(path))


def sfmlearner(ctx):
    """Terminal and progress bars that print; camera matrices in double precision, as all else here.  The
    clock that names the folder stands still, a minute later for the second rank."""
    import datetime
    import types

    tensorboardx()
    _get_cmap(ctx)

    class Terminal:
        height = 40

        @contextlib.contextmanager
        def location(self, *place):
            yield

    class ProgressBar:
        def __init__(self, max_value, fd):
            self.max_value, self.fd = max_value, fd

        def update(self, value):
            self.fd.write("bar at %d of %d" % (value, self.max_value))

        def start(self):
            self.update(0)

        def finish(self):
            self.update(self.max_value)

    stand_in("blessings", Terminal=Terminal)
    stand_in("progressbar", ProgressBar=ProgressBar)
    stand_in("path", Path=Path)
    stand_in("imageio", imread=_read)
    stand_in("skimage.transform", resize=_resize)

    def folders(module):
        fetch = module.SequenceFolder.__getitem__

        def __getitem__(self, index):
            picture, others, camera, inverse = fetch(self, index)
            return picture, others, camera.astype("float64"), inverse.astype("float64")

        module.SequenceFolder.__getitem__ = __getitem__
        ctx.data.instrument(module.SequenceFolder, split_arg="train", train_values=[True])

    ctx.hooks.on_import("datasets.sequence_folders", folders)
    stopped = types.SimpleNamespace(
        now=lambda: datetime.datetime(2026, 11, 23, 16, 50 + ctx.state.rank)
    )

    def clock(module):
        if hasattr(module, "save_path_formatter"):
            module.datetime = types.SimpleNamespace(datetime=stopped)

    ctx.hooks.on_import("utils", clock)


def densenet(ctx):
    """fire: --name value of the command line are the arguments of the function."""

    def Fire(function):
        words, given = sys.argv[1:], {}
        for name, value in zip(words[::2], words[1::2], strict=False):
            with contextlib.suppress(ValueError, SyntaxError):
                value = ast.literal_eval(value)
            given[name.lstrip("-").replace("-", "_")] = value
        return function(**given)

    stand_in("fire", Fire=Fire)


def wavernn(ctx):
    """Sounds are written as arrays; English text is not used.  Test sounds are no training samples."""
    import numpy

    numpy.cumproduct = numpy.cumprod

    def write_wav(path, y, sr, norm=False):
        import numpy

        with open(path, "wb") as f:
            numpy.save(f, y)

    stand_in("librosa")
    stand_in("librosa.output", write_wav=write_wav)
    stand_in("unidecode", unidecode=lambda s: s)
    stand_in("inflect", engine=Anything)
    ctx.hooks.on_import(
        "utils.dataset", lambda module: _first_is_training(ctx, module.VocoderDataset)
    )


def densedepth(ctx):
    """The first set is the training one.  A narrow decoder."""
    tensorboardx()
    _get_cmap(ctx)
    ctx.hooks.on_import("data", lambda module: _first_is_training(ctx, module.depthDatasetMemory))

    def narrow(module):
        module.Decoder.__init__.__defaults__ = (1664, 0.1)

    ctx.hooks.on_import("model", narrow)


def vqa(ctx):
    """Names of torch 0.3; lengths of a packed sequence are a list of tensors of one element."""
    import torch

    old_variables()

    def lengths(module):
        pack = module.pack_padded_sequence
        module.pack_padded_sequence = lambda input, lengths, **more: pack(
            input, [int(n) for n in lengths], **more
        )
        build = module.Net.__init__

        def init(self, *args, **kwargs):
            """A bias that softmax takes out again has rounding for a gradient: away from 0 that is not seen."""
            build(self, *args, **kwargs)
            self.attention.x_conv.bias.data.fill_(0.1)

        module.Net.__init__ = init

    ctx.hooks.on_import("model", lengths)
    if not hasattr(torch.nn.init, "xavier_uniform"):
        torch.nn.init.xavier_uniform = torch.nn.init.xavier_uniform_


def ncrfpp(ctx):
    """One training sample per sentence that the network is given while it trains, named by its words."""
    import torch

    def hook(module, args):
        if type(module).__name__ == "WordSequence" and module.training and torch.is_grad_enabled():
            for row, length in zip(args[0].detach(), args[2], strict=False):
                words = row[: int(length)].contiguous().cpu().numpy().tobytes()
                ctx.data.note_sample("train", zlib.crc32(words), "forward")

    torch.nn.modules.module.register_module_forward_pre_hook(hook)
    if not ctx.state.cfg.get("oracle"):
        return

    def share(module):  # harness self-check: a rank's rows of the batch that all make
        calculate_loss = module.SeqLabel.calculate_loss

        def own_rows(
            self, words, features, lengths, chars, char_lengths, char_recover, labels, mask
        ):
            batch, width = words.shape
            rows = torch.arange(ctx.state.rank, batch, ctx.state.world)
            own = int(lengths[rows].max())

            def cut(x):
                return x[rows, :own]

            chars = cut(chars[char_recover].view(batch, width, -1)).flatten(0, 1)
            char_lengths, order = (
                cut(char_lengths[char_recover].view(batch, width))
                .flatten()
                .sort(0, descending=True)
            )
            loss, tags = calculate_loss(
                self,
                cut(words),
                [cut(f) for f in features],
                lengths[rows],
                chars[order],
                char_lengths,
                order.sort()[1],
                cut(labels),
                cut(mask),
            )
            whole = torch.zeros_like(labels)
            whole[rows, :own] = tags
            return loss, whole

        module.SeqLabel.calculate_loss = own_rows

    ctx.hooks.on_import("model.seqlabel", share)


def mnist_svhn(ctx):
    """A picture of one channel is normalized with the first mean, as it was; imsave of older SciPy."""

    def one_channel(module):
        forward = module.Normalize.forward

        def normalize(self, tensor):
            if tensor.shape[0] < len(self.mean):
                return module.Normalize(self.mean[: tensor.shape[0]], self.std[: tensor.shape[0]])(
                    tensor
                )
            return forward(self, tensor)

        module.Normalize.forward = normalize

    ctx.hooks.on_import("torchvision.transforms", one_channel)

    def imsave(path, array):
        import numpy
        from PIL import Image

        low, high = array.min(), array.max()
        Image.fromarray(((array - low) / (high - low) * 255).astype(numpy.uint8)).save(path)

    import importlib

    importlib.import_module("scipy.misc").imsave = imsave


def yhretinanet(ctx):
    """Smaller pictures; the weights that would be downloaded raise the scores, so that boxes are found."""
    import torch
    from torch.utils import model_zoo

    stand_in("pycocotools.coco", COCO=None)
    stand_in("pycocotools.cocoeval", COCOeval=None)
    stand_in("skimage.io", imread=_read)
    stand_in("skimage.transform", resize=_resize)
    stand_in("skimage.color", gray2rgb=None)
    model_zoo.load_url = lambda *args, **kwargs: {
        "classificationModel.output.bias": torch.linspace(-3.4, -2.9, 27)
    }

    def one_after_the_other(module):
        """The compiled nms is not there with torchvision on this machine."""

        def nms(boxes, scores, iou_threshold):
            keep, order = [], scores.argsort(descending=True, stable=True).tolist()
            while order:
                first = order.pop(0)
                keep.append(first)
                if order:
                    overlap = module.box_iou(boxes[first : first + 1], boxes[order])[0]
                    order = [
                        i
                        for i, o in zip(order, overlap.tolist(), strict=False)
                        if o <= iou_threshold
                    ]
            return torch.tensor(keep, dtype=torch.int64)

        module.nms = nms

    ctx.hooks.on_import("torchvision.ops", one_after_the_other)

    def small(module):
        module.Resizer.__call__.__defaults__ = (56, 80)

    ctx.hooks.on_import("retinanet.dataloader", small)

    def hook(arguments):  # harness self-check: the groups one after the other
        from torch.utils.data import Subset

        groups = getattr(arguments.get("batch_sampler"), "groups", None)
        if groups is not None and ctx.data.split_of(arguments["dataset"]) == "train":
            arguments.pop("batch_sampler")
            arguments["dataset"] = Subset(
                arguments["dataset"], [i for group in groups for i in group]
            )
            arguments["batch_size"] = len(groups[0])

    def all_used(module):  # ... and zeros where a rank's picture has no anchor that fits
        forward = module.FocalLoss.forward

        def both(self, classifications, regressions, *rest):
            first, second = forward(self, classifications, regressions, *rest)
            return first, second + 0 * regressions.sum()

        module.FocalLoss.forward = both

    if ctx.state.cfg.get("oracle"):
        ctx.data.loader_hooks.insert(0, hook)
        ctx.hooks.on_import("retinanet.losses", all_used)
