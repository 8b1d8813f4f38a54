"""Plugins of the lot 19 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import os
import sys
import time
import zlib

from lot_common import note_rows, old_variables, stand_in


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


def _of_all_ranks(ctx, x, interleaved):
    """Harness self-check only: the rows of all ranks, differentiable (the gradients of all ranks' losses are summed)."""
    import torch

    rank, world = ctx.state.rank, ctx.state.world

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(fn, x):
            parts = [torch.empty_like(x) for _ in range(world)]
            torch.distributed.all_gather(parts, x.contiguous())
            return torch.stack(parts)

        @staticmethod
        def backward(fn, grad):
            grad = grad.clone()
            torch.distributed.all_reduce(grad)
            return grad[rank]

    parts = Gather.apply(x)
    return (parts.transpose(0, 1) if interleaved else parts).flatten(0, 1)


def tensorboardx(ctx):
    from torch.utils.tensorboard import SummaryWriter

    stand_in("tensorboardX", SummaryWriter=SummaryWriter)


def sound(ctx):
    """What is used of librosa, by torch and SciPy; a plain ratio for mir_eval's; an argument that yaml made obligatory."""
    import numpy
    import torch
    import yaml

    tensorboardx(ctx)
    load_all = yaml.load_all
    yaml.load_all = lambda stream, Loader=yaml.SafeLoader: load_all(stream, Loader)

    def load(path, sr=None):
        from scipy.io import wavfile

        rate, data = wavfile.read(path)
        return data.astype("float32") / 32768, rate

    def mel(sr, n_fft, n_mels):
        at = numpy.linspace(0, n_fft // 2, n_mels + 2)
        distance = abs(numpy.arange(n_fft // 2 + 1)[None] - at[1:-1, None])
        return numpy.maximum(0, 1 - distance / (at[1] - at[0])).astype("float32")

    def stft(y, n_fft, hop_length, win_length, window="hann"):
        out = torch.stft(
            torch.from_numpy(numpy.asarray(y, "float64")),
            n_fft,
            hop_length,
            win_length,
            torch.hann_window(win_length, dtype=torch.float64),
            return_complex=True,
        )
        return out.numpy()

    def istft(matrix, hop_length, win_length):
        out = torch.istft(
            torch.from_numpy(numpy.asarray(matrix, "complex128")),
            2 * (matrix.shape[0] - 1),
            hop_length,
            win_length,
            torch.hann_window(win_length, dtype=torch.float64),
        )
        return out.numpy()

    def bss_eval_sources(reference, estimated, compute_permutation=True):
        n = min(len(reference), len(estimated))
        error = ((reference[:n] - estimated[:n]) ** 2).sum()
        return (numpy.array([10 * numpy.log10((reference[:n] ** 2).sum() / error)]),)

    stand_in("librosa", load=load, stft=stft, istft=istft)
    stand_in("librosa.filters", mel=mel)
    stand_in("librosa.core", stft=stft)
    stand_in("mir_eval.separation", bss_eval_sources=bss_eval_sources)


def made(ctx):
    """One sample per row that the network is given while it trains."""
    note_rows(ctx, "MADE", lambda args: args[0])
    if ctx.state.cfg.get("oracle"):  # harness self-check: each rank its part of a batch
        import torch

        def Variable(x):
            return x[ctx.state.rank :: ctx.state.world] if torch.is_grad_enabled() else x

        torch.autograd.Variable = Variable


def disvae(ctx):
    """Reading pictures and writing a GIF by Pillow."""
    import numpy
    from PIL import Image

    _sorted_files()

    def mimsave(path, images, fps=10):
        frames = [Image.fromarray(numpy.asarray(image).astype("uint8")) for image in images]
        with open(path, "wb") as f:
            frames[0].save(f, format="GIF", save_all=True, append_images=frames[1:])

    stand_in("skimage.io", imread=lambda path: numpy.array(Image.open(path)))
    stand_in("imageio", mimsave=mimsave)
    if ctx.state.cfg.get("oracle"):  # harness self-check: the loss is that of the whole batch

        def whole(module):
            loss = module.BtcvaeLoss.__call__

            def of_all(self, data, recon, latent, is_train, storer, latent_sample=None):
                rows = [data, recon, *latent, latent_sample]
                data, recon, mean, logvar, latent_sample = (
                    _of_all_ranks(ctx, x, True) for x in rows
                )
                return loss(self, data, recon, (mean, logvar), is_train, storer, latent_sample)

            module.BtcvaeLoss.__call__ = of_all

        ctx.hooks.on_import("disvae.models.losses", whole)


def bimpm(ctx):
    """The torchtext of that time lies in the folder site (pure Python); its word vectors would be downloaded.  One
    sample per pair that the network is given while it trains."""
    import torch

    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site"))
    tensorboardx(ctx)
    old_variables()
    stand_in("requests")
    stand_in("nltk", word_tokenize=lambda text: text.split())
    for name in ("uniform", "constant", "orthogonal", "kaiming_normal"):
        setattr(torch.nn.init, name, getattr(torch.nn.init, name + "_"))

    def vectors(module):
        class GloVe(module.Vectors):
            def __init__(self, name="840B", dim=300, **kwargs):
                self.dim = dim

            def __getitem__(self, token):
                import numpy

                rng = numpy.random.RandomState(zlib.crc32(token.encode()))
                return torch.from_numpy(rng.randn(1, self.dim))

        module.GloVe = GloVe

    def order(module):
        module.RandomShuffler.__call__ = lambda self, data: list(data)

    ctx.hooks.on_import("torchtext.vocab", vectors)
    ctx.hooks.on_import("torchtext.data.utils", order)

    def note(module):
        forward = module.BIMPM.forward

        def noted(self, **kwargs):
            if self.training and torch.is_grad_enabled():
                for p, h in zip(kwargs["p"].tolist(), kwargs["h"].tolist(), strict=False):
                    pair = repr(([w for w in p if w != 1], [w for w in h if w != 1]))
                    ctx.data.note_sample("train", zlib.crc32(pair.encode()), "forward")
            return forward(self, **kwargs)

        module.BIMPM.forward = noted

    ctx.hooks.on_import("model.BIMPM", note)
    if ctx.state.cfg.get("oracle"):  # harness self-check: each rank its part of a batch

        def part(module):
            whole = module.Batch

            def Batch(data, dataset, device, train):
                data = data[ctx.state.rank :: ctx.state.world] if train else data
                return whole(data, dataset, device, train)

            module.Batch = Batch

        ctx.hooks.on_import("torchtext.data.iterator", part)


def clouds(ctx):
    _sorted_files()
    stand_in("cv2")


def triplets(ctx):
    """The first of three data sets is trained on.  Which classes, pictures and negatives are drawn does not depend on
    the process."""
    import random

    import torch

    def hook(module):
        ctx.data.instrument(module.CUB2011Metric, split=_first_are_train(1))

    ctx.hooks.on_import("dataset.cub200", hook)
    drawn, sample = [0], random.sample

    def turned(population, k, **kwargs):
        if sys._getframe(1).f_code.co_filename.endswith("batchsampler.py"):
            drawn[0] += 1
            items = list(population)
            at = drawn[0] % len(items)
            return (items[at:] + items[:at])[:k]
        return sample(population, k, **kwargs)

    random.sample = turned
    torch.multinomial = lambda weight, count: weight.topk(count, dim=1)[1]
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: each rank its part of a batch, the loss of the whole

        def part(module):
            batches = module.NPairs.__iter__

            def mine(self):
                for batch in batches(self):
                    half = len(batch) // ctx.state.world
                    yield batch[ctx.state.rank * half : (ctx.state.rank + 1) * half]

            module.NPairs.__iter__ = mine

        def whole(module):
            loss = module.L2Triplet.forward

            def of_all(self, embeddings, labels):
                return loss(self, *(_of_all_ranks(ctx, x, False) for x in (embeddings, labels)))

            module.L2Triplet.forward = of_all

        ctx.hooks.on_import("metric.batchsampler", part)
        ctx.hooks.on_import("metric.loss", whole)


def retina(ctx):
    """OpenCV's reading, resizing and change of colours by Pillow."""
    import numpy
    from PIL import Image

    def imread(path, flag=1):
        return numpy.asarray(Image.open(path).convert("RGB"))[..., ::-1].copy()

    def resize(src, dsize, interpolation=1):
        how = {0: Image.NEAREST, 2: Image.BICUBIC, 3: Image.BOX, 4: Image.LANCZOS}.get(
            interpolation, Image.BILINEAR
        )
        return numpy.array(Image.fromarray(numpy.ascontiguousarray(src)).resize(tuple(dsize), how))

    def colours(image, code):
        if code == "to HSV":
            out = numpy.array(
                Image.fromarray(numpy.ascontiguousarray(image[..., ::-1])).convert("HSV")
            )
            out[..., 0] = out[..., 0] * (180 / 256)
            return out
        image = image.copy()
        image[..., 0] = image[..., 0] * (256 / 180)
        return numpy.array(Image.fromarray(image, "HSV").convert("RGB"))[..., ::-1].copy()

    stand_in(
        "cv2",
        imread=imread,
        resize=resize,
        cvtColor=colours,
        COLOR_BGR2HSV="to HSV",
        COLOR_HSV2BGR="from HSV",
        INTER_NEAREST=0,
        INTER_LINEAR=1,
        INTER_CUBIC=2,
        INTER_AREA=3,
        INTER_LANCZOS4=4,
    )
    if ctx.state.cfg.get("oracle"):  # harness self-check: positives are counted over all ranks

        def whole(module):
            import torch

            def most(count, least):
                count = count.clone()
                torch.distributed.all_reduce(count)
                return max(count, least)

            module.max = most

        ctx.hooks.on_import("layers.modules.multibox_loss", whole)


def real_nvp(ctx):
    from group2_patches import oracle_clips_averages

    oracle_clips_averages(ctx)
