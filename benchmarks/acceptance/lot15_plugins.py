"""Plugins of the lot 15 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import sys
import zlib

from lot_common import Anything, no_grad_is_test, stand_in, tensorboardx


def _nth_is_train(ctx, module, name, n=1):
    """Of the objects made of that class, the n-th is the training one."""
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == n else "test"

    ctx.hooks.on_import(module, lambda m: ctx.data.instrument(getattr(m, name), split=part))


def own_clock(ctx):
    """Seconds that are printed never agree between two runs (so they count as noise, whatever the load)."""
    import os
    import time

    real, factor = time.time, 20 + int.from_bytes(os.urandom(2), "big") / 500
    start = real()
    time.time = lambda: start + factor * (real() - start)
    time.ctime = lambda *args: "Thu Jan  1 00:00:00 1970"


def _share(ctx, count):
    """Harness self-check: what a mean over this rank's parts is worth in the mean over all ranks' parts."""
    import torch

    total = torch.tensor(float(count))
    torch.distributed.all_reduce(total)
    return float(count) * ctx.state.world / total.item()


def oracle_token_means(ctx):
    """Harness self-check only: means over tokens are means over those of all ranks."""
    if not ctx.state.cfg.get("oracle"):
        return
    from torch.nn import functional

    for name in ("nll_loss", "cross_entropy"):

        def mean(input, target, *args, real=getattr(functional, name), **kwargs):
            loss = real(input, target, *args, **kwargs)
            return loss * _share(ctx, (target != kwargs.get("ignore_index", -100)).sum().item())

        setattr(functional, name, mean)


def _sorted_folders():
    """The order of a folder's files is that of their names."""
    import os

    listed = os.listdir
    os.listdir = lambda *args: sorted(listed(*args))


def folding(ctx):
    tensorboardx()


def pointer(ctx):
    """A mask is made by .byte()."""
    from group2_patches import byte_masks

    byte_masks(ctx)


def siren(ctx):
    """Packages that are imported and not used here; two measures that scikit-image has renamed."""
    import numpy
    import skimage

    stand_in("skvideo.io")
    stand_in("cv2")
    stand_in("cmapy")
    stand_in("skimage.filters")

    def psnr(a, b, data_range=1):
        return 10 * numpy.log10(data_range**2 / numpy.mean((a - b) ** 2))

    stand_in("skimage.measure")
    skimage.measure = sys.modules["skimage.measure"]
    skimage.measure.compare_psnr = psnr
    skimage.measure.compare_ssim = lambda a, b, **kwargs: 1.0


def tasnet(ctx):
    """Sounds are read by SciPy.  One training sample per row of what the network is given under gradients (it is
    never put back into training mode), named by its content."""
    import torch
    from scipy.io import wavfile

    def load(name, channels_first=True):
        rate, wave = wavfile.read(name)
        return torch.tensor(wave[None] / 32768.0, dtype=torch.float32), rate

    stand_in("torchaudio", load=load)

    def data_parallel(module, inputs, device_ids=None):  # as without GPUs
        return module(inputs)

    torch.nn.parallel.data_parallel = data_parallel
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: each rank makes all pieces and takes its part

        def part(module):
            pieces, rank, world = module.DataLoaders.__iter__, ctx.state.rank, ctx.state.world
            module.Datasets._acceptance_split = "whole"

            def mine(self):
                for batch in pieces(self):
                    if self.is_train:
                        batch = {
                            "mix": batch["mix"][rank::world],
                            "ref": [r[rank::world] for r in batch["ref"]],
                        }
                    yield batch

            module.DataLoaders.__iter__ = mine

        ctx.hooks.on_import("DataLoaders", part)

    def note(module, args):
        if type(module).__name__ == "ConvTasNet" and torch.is_grad_enabled():
            for row in args[0].detach().unbind(0):
                ctx.data.note_sample(
                    "train", zlib.crc32(row.contiguous().cpu().numpy().tobytes()), "forward"
                )

    torch.nn.modules.module.register_module_forward_pre_hook(note)


def lmlstmcrf(ctx):
    _nth_is_train(ctx, "datasets", "WCDataset")


def music(ctx):
    """The submodule of the MIDI reader (its numbers of events); the training set is evaluated, too."""
    _sorted_folders()
    no_grad_is_test(ctx)
    stand_in(
        "third_party.midi_processor.processor",
        RANGE_NOTE_ON=128,
        RANGE_NOTE_OFF=128,
        RANGE_VEL=32,
        RANGE_TIME_SHIFT=100,
    )


def ge2e(ctx):
    """Spectrograms are ready; settings are read without naming a loader."""
    import yaml

    _sorted_folders()
    stand_in("librosa")
    real = yaml.load_all
    yaml.load_all = lambda stream, Loader=yaml.SafeLoader: real(stream, Loader)
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: N is cut in the settings, the loss sees all embeddings
        import torch
        from torch.distributed.nn.functional import all_gather

        world = ctx.state.world

        def smaller(module):
            module.hparam.train.N //= world

        def whole(arguments):
            arguments["batch_size"] *= world

        def every(module):
            forward = module.GE2ELoss.forward
            module.GE2ELoss.forward = lambda self, mine: forward(self, torch.cat(all_gather(mine)))

        ctx.hooks.on_import("hparam", smaller)
        ctx.data.loader_hooks.insert(0, whole)
        ctx.hooks.on_import("speech_embedder_net", every)


def lemniscate(ctx):
    """Harness self-check only: what is written to the memory is written on all ranks."""
    if ctx.state.cfg.get("oracle"):
        import torch

        def everywhere(module):
            backward = module.LinearAverageOp.backward

            def gathered(mine):
                parts = [torch.empty_like(mine) for _ in range(ctx.state.world)]
                torch.distributed.all_gather(parts, mine.contiguous())
                return torch.cat(parts)

            def written(self, gradient):
                _, memory, y, _ = self.saved_tensors
                out = backward(self, gradient)
                memory.index_copy_(0, gathered(y), gathered(memory[y]))
                return out

            module.LinearAverageOp.backward = staticmethod(written)

        ctx.hooks.on_import("lib.LinearAverage", everywhere)


def mvts(ctx):
    """A debugger and a reader of classification files that are not used; old names of pandas and matplotlib; lists
    of arrays of different lengths are saved as objects; the validation set is made first."""
    import matplotlib
    import matplotlib.cm
    import numpy
    import pandas

    stand_in("ipdb")
    matplotlib.cm.get_cmap = matplotlib.colormaps.get_cmap
    stand_in("sktime.utils", load_data=Anything())
    if not hasattr(pandas.DataFrame, "applymap"):
        pandas.DataFrame.applymap = pandas.DataFrame.map
    savez = numpy.savez

    def kept(value):
        try:
            return numpy.asanyarray(value)
        except ValueError:
            out = numpy.empty(len(value), object)
            for i, v in enumerate(value):
                out[i] = v
            return out

    numpy.savez = lambda file, **parts: savez(file, **{k: kept(v) for k, v in parts.items()})
    _nth_is_train(ctx, "datasets.dataset", "ClassiregressionDataset", 2)


def cosmic(ctx):
    """Harness self-check only: the loss is divided by the number of utterances on all ranks."""
    if ctx.state.cfg.get("oracle"):

        def whole(module):
            forward = module.MaskedNLLLoss.forward
            module.MaskedNLLLoss.forward = lambda self, pred, target, mask: forward(
                self, pred, target, mask
            ) * _share(ctx, mask.sum().item())

        ctx.hooks.on_import("model", whole)
