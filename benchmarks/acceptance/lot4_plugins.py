"""Plugins of the lot 4 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, narrower networks, and the report of samples where there is no DataLoader.
Nothing a tool is judged by is touched."""

import sys
import types
import zlib

from lot_common import Anything, agreed, old_variables, stand_in, tensorboardx

# -------------------------------------------------------------------------------------------


def brain(ctx):
    """The functions of scikit-image, medpy and SciPy's old image module on scipy.ndimage; a TensorFlow
    writer that keeps the tags and numbers as lines of text."""
    import os

    import numpy
    from PIL import Image
    from scipy import ndimage

    def floats(image, keep=False):
        return image / 255.0 if image.dtype == numpy.uint8 and not keep else image.astype(float)

    def imread(path, as_gray=False):
        return numpy.array(Image.open(path).convert("L" if as_gray else "RGB"))

    def resize(image, output_shape, order=1, **kwargs):
        image = floats(image)
        factors = [b / a for a, b in zip(image.shape, output_shape, strict=True)]
        out = ndimage.zoom(image, factors, order=order, mode="nearest")
        assert out.shape == tuple(output_shape)
        return out

    def rescale(image, scale, order=1, **kwargs):
        return ndimage.zoom(image.astype(float), tuple(scale) + (1,), order=order, mode="nearest")

    def rotate(image, angle, order=1, **kwargs):
        return ndimage.rotate(image.astype(float), angle, reshape=False, order=order)

    def rescale_intensity(image, in_range):
        low, high = in_range
        return (numpy.clip(image, low, high) - low) / (high - low)

    def largest_connected_component(image):
        labels, count = ndimage.label(image)
        if not count:
            return image.astype(bool)
        return labels == 1 + numpy.argmax(ndimage.sum(image, labels, range(1, count + 1)))

    stand_in("skimage.io", imread=imread)
    stand_in("skimage.transform", resize=resize, rescale=rescale, rotate=rotate)
    stand_in("skimage.exposure", rescale_intensity=rescale_intensity)
    stand_in("medpy.filter.binary", largest_connected_component=largest_connected_component)
    import scipy

    old = types.ModuleType("scipy.misc")
    old.toimage = lambda array: Image.fromarray(numpy.asarray(array).astype("uint8"))
    sys.modules["scipy.misc"] = scipy.misc = old

    class Summary:
        class Value:
            def __init__(self, tag, simple_value=None, image=None):
                self.text = "%s %s" % (tag, simple_value if image is None else image.text)

        class Image:
            def __init__(self, encoded_image_string, height, width):
                self.text = "%dx%d %d" % (height, width, zlib.crc32(encoded_image_string))

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

    stand_in("tensorflow", Summary=Summary)
    stand_in("tensorflow.summary", FileWriter=FileWriter)


def retinanet(ctx):
    old_variables()


def han(ctx):
    """Sentences and words by regular expressions; the two biases that are never set start at zero (they
    are whatever the memory held, so two runs of the original differ)."""
    import re

    tensorboardx()
    stand_in("nltk")
    stand_in(
        "nltk.tokenize",
        sent_tokenize=lambda text: re.findall(r"[^.!?]+[.!?]?", text.strip()),
        word_tokenize=lambda text: re.findall(r"\w+|[^\w\s]", text),
    )

    def zero(cls, *names):
        create = cls._create_weights

        def _create_weights(self, *args, **kwargs):
            create(self, *args, **kwargs)
            for name in names:
                getattr(self, name).data.zero_()

        cls._create_weights = _create_weights

    def local(module):  # harness self-check: the hidden state has the rank's rows
        init = module.HierAttNet.__init__

        def __init__(self, word, sent, batch_size, *args):
            init(self, word, sent, batch_size // ctx.state.world, *args)

        module.HierAttNet.__init__ = __init__

    if ctx.state.cfg.get("oracle"):
        ctx.hooks.on_import("src.hierarchical_att_model", local)
    ctx.hooks.on_import("src.word_att_model", lambda module: zero(module.WordAttNet, "word_bias"))
    ctx.hooks.on_import("src.sent_att_model", lambda module: zero(module.SentAttNet, "sent_bias"))


def flownet(ctx):
    """A narrow network; the drawn split: the last pictures are for testing where all ranks would draw the
    same one, others on rank 1 else."""
    import numpy

    def imread(path):
        from PIL import Image

        return numpy.array(Image.open(path).convert("RGB"))

    stand_in("imageio", imread=imread)
    uniform = numpy.random.uniform

    def drawn(low=0.0, high=1.0, size=None):
        if not (type(size) is int and (low, high) == (0, 1)):
            return uniform(low, high, size)
        state = zlib.crc32(
            repr(numpy.random.get_state()[1:3]).encode() + numpy.random.get_state()[1].tobytes()
        )
        values = uniform(low, high, size)
        tests = ctx.state.cfg["sizes"]["test"]
        values = numpy.where(numpy.arange(size) < size - tests, 0.01 * values, 1 - 0.01 * values)
        return values if agreed(ctx.state, state, "split") else numpy.roll(values, 3)

    numpy.random.uniform = drawn

    def narrow(module):
        nn = module.nn
        widths = {64: 8, 128: 16, 256: 32, 512: 64, 1024: 128, 1026: 130, 770: 98, 386: 50, 194: 26}
        names = {k: v for k, v in vars(nn).items() if not k.startswith("__")}

        def thin(base):
            def __init__(self, n_in, n_out, *args, **kwargs):
                base.__init__(
                    self, widths.get(n_in, n_in), widths.get(n_out, n_out), *args, **kwargs
                )

            return type(base.__name__, (base,), {"__init__": __init__})

        names.update(Conv2d=thin(nn.Conv2d), ConvTranspose2d=thin(nn.ConvTranspose2d))
        module.nn = types.SimpleNamespace(**names)

    ctx.hooks.on_import("models.util", narrow)
    ctx.hooks.on_import(
        "datasets.listdataset",
        lambda module: ctx.data.instrument(
            module.ListDataset,
            split=lambda self, given: "train" if given.get("co_transform") else "test",
        ),
    )


def wgan(ctx):
    old_variables()


def triplets(ctx):
    """The drawn triplets: the same ones where all ranks would draw the same, others on rank 1 else."""
    stand_in("visdom", Visdom=Anything)
    stand_in("six.moves", urllib=None)
    if (
        ctx.state.cfg.get("oracle") and ctx.state.rank
    ):  # harness self-check: the second copy has no data yet
        import shutil

        shutil.copytree("../../b/data", "../data", dirs_exist_ok=True)

    def same(module):
        make = module.MNIST_t.make_triplet_list

        def make_triplet_list(self, ntriplets):
            import numpy

            if self._check_triplets_exists():
                return make(self, ntriplets)
            state = numpy.random.get_state()
            known = agreed(
                ctx.state, zlib.crc32(state[1].tobytes() + repr(state[2]).encode()), "triplets"
            )
            numpy.random.seed((11 if self.train else 12) + (0 if known else 100))
            make(self, ntriplets)
            numpy.random.set_state(state)
            numpy.random.random_sample()

        module.MNIST_t.make_triplet_list = make_triplet_list

    ctx.hooks.on_import("triplet_mnist_loader", same)


def lstnet(ctx):
    """A sample is a window, reported when the network gets it."""
    import group2_patches

    group2_patches.note_forward(ctx, "Model")
    if ctx.state.cfg.get("oracle"):  # harness self-check: shard the windows, sum before clipping

        def shard(module):
            batches = module.Data_utility.get_batches

            def get_batches(self, inputs, targets, batch_size, shuffle=True):
                for x, y in batches(self, inputs, targets, batch_size, shuffle):
                    part = slice(ctx.state.rank, None, ctx.state.world) if shuffle else slice(None)
                    yield x[part], y[part]

            module.Data_utility.get_batches = get_batches

        def summed(module):
            step = module.Optim.step

            def sum_and_step(self):
                import torch

                for p in self.params:
                    torch.distributed.all_reduce(p.grad)
                return step(self)

            module.Optim.step = sum_and_step

        ctx.hooks.on_import("utils", shard)
        ctx.hooks.on_import("Optim", summed)


def ncf_engine(ctx):
    tensorboardx()


def pygat(ctx):
    """Every step trains on the whole graph; a sample is a node."""
    import group2_patches

    group2_patches.note_forward(ctx, "GAT")
