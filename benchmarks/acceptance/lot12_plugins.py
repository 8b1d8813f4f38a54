"""Plugins of the lot 12 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which part a data set is.  Nothing a tool is judged by is touched."""

import sys
import types
import zlib

from lot_common import Anything, no_grad_is_test, note_rows, old_variables, stand_in, tensorboardx


def _own_clock():
    """Whole seconds that are printed never agree between two runs (so they count as noise, whatever the load)."""
    import os
    import time

    real, factor = time.time, 20 + int.from_bytes(os.urandom(2), "big") / 500
    start = real()
    time.time = lambda: start + factor * (real() - start)


def gpt2zh(ctx):
    """The names of transformers 2.1: module of the network, optimizer, schedule, and the parts of a tokenizer's base
    that this one uses.  One sample per row of what the network is given."""
    import torch
    from transformers.models.gpt2 import modeling_gpt2

    transformers = sys.modules["transformers"]
    stand_in("sentencepiece", SentencePieceProcessor=Anything)
    transformers.modeling_gpt2 = sys.modules["transformers.modeling_gpt2"] = modeling_gpt2

    class AdamW(torch.optim.AdamW):
        def __init__(self, params, lr=1e-3, correct_bias=True, weight_decay=0.0, eps=1e-6):
            super().__init__(params, lr=lr, eps=eps, weight_decay=weight_decay)

    class WarmupLinearSchedule(torch.optim.lr_scheduler.LambdaLR):
        def __init__(self, optimizer, warmup_steps, t_total, last_epoch=-1):
            def factor(step):
                if step < warmup_steps:
                    return step / max(1, warmup_steps)
                return max(0.0, (t_total - step) / max(1.0, t_total - warmup_steps))

            super().__init__(optimizer, factor, last_epoch=last_epoch)

    transformers.AdamW, transformers.WarmupLinearSchedule = AdamW, WarmupLinearSchedule

    class PreTrainedTokenizer:
        def __init__(self, **tokens):
            self.__dict__.update(tokens)
            self.all_special_tokens = [v for k, v in tokens.items() if k.endswith("_token")]

        def tokenize(self, line):
            out = []
            for word in line.split(" "):
                out += [word] if word in self.all_special_tokens else self._tokenize(word)
            return out

        def convert_tokens_to_ids(self, tokens):
            if isinstance(tokens, str):
                return self._convert_token_to_id(tokens)
            return [self._convert_token_to_id(t) for t in tokens]

    module = types.ModuleType("transformers.tokenization_utils")
    module.PreTrainedTokenizer = PreTrainedTokenizer
    sys.modules[module.__name__] = module
    note_rows(ctx, "GPT2Model", lambda args: args[0])
    if ctx.state.cfg.get("oracle"):  # harness self-check: each rank its part of a batch
        forward = modeling_gpt2.GPT2LMHeadModel.forward

        def part(self, input_ids=None, labels=None, **kwargs):
            mine = slice(ctx.state.rank, None, ctx.state.world)
            return forward(self, input_ids=input_ids[mine], labels=labels[mine], **kwargs)

        modeling_gpt2.GPT2LMHeadModel.forward = part


def gin(ctx):
    """One sample per graph that the network is given while it trains, named by its edges and features."""
    import torch

    def note(module, args):
        if type(module).__name__ == "GraphCNN" and module.training and torch.is_grad_enabled():
            for graph in args[0]:
                name = repr((graph.label, graph.node_tags, graph.edge_mat.tolist()))
                ctx.data.note_sample("train", zlib.crc32(name.encode()), "forward")

    torch.nn.modules.module.register_module_forward_pre_hook(note)
    if ctx.state.cfg.get("oracle"):  # harness self-check: each rank its part of a batch
        import numpy

        permutation = numpy.random.permutation
        numpy.random.permutation = lambda n: permutation(n)[:4][ctx.state.rank :: ctx.state.world]


def _no_pictures():
    """OpenCV is imported and not used."""
    stand_in("cv2")


def hopenet(ctx):
    """Without pretrained weights: an empty file of them."""
    from torch.utils import model_zoo

    _no_pictures()
    old_variables()
    model_zoo.load_url = lambda *args, **kwargs: {}


def zerodce(ctx):
    """A name that Pillow dropped; the order of a folder's files is that of their names."""
    import glob

    from PIL import Image

    _no_pictures()
    Image.ANTIALIAS = Image.LANCZOS
    listed = glob.glob
    glob.glob = lambda *args, **kwargs: sorted(listed(*args, **kwargs))
    if ctx.state.cfg.get("oracle"):  # harness self-check: the old name, too, clips averages
        import torch

        torch.nn.utils.clip_grad_norm = lambda *args, **kwargs: torch.nn.utils.clip_grad_norm_(
            *args, **kwargs
        )


def cut(ctx):
    """No pages are written; nothing is asked of the package for them."""
    _own_clock()
    stand_in("dominate", document=Anything)
    stand_in("dominate.tags", **{k: Anything() for k in "meta h3 table tr td p a img br".split()})
    if ctx.state.cfg.get("oracle"):  # harness self-check: the batch size is cut in the options, too
        world = ctx.state.world

        def smaller(module):
            parse = module.BaseOptions.parse

            def parsed(self):
                opt = parse(self)
                opt.batch_size //= world
                return opt

            module.BaseOptions.parse = parsed

        def whole(arguments):
            arguments["batch_size"] *= world

        ctx.hooks.on_import("options.base_options", smaller)
        ctx.data.loader_hooks.insert(0, whole)


def simsiam(ctx):
    """What the test of neighbours fetches is no training sample."""
    tensorboardx()
    no_grad_is_test(ctx)
    if ctx.state.cfg.get(
        "oracle"
    ):  # harness self-check: there, the loader for that test is cut, too

        def hook(module):
            module.knn_monitor = lambda *args, **kwargs: 0.0

        ctx.hooks.on_import("tools", hook)


def openreid(ctx):
    """Learned distances are not used; the first Preprocessor is the training one."""
    old_variables()
    names = "ITML_Supervised LMNN LSML_Supervised SDML_Supervised NCA LFDA RCA_Supervised".split()
    stand_in("metric_learn", **dict.fromkeys(names, Anything))
    stand_in("metric_learn.base_metric", BaseMetricLearner=Anything)
    made = []

    def part(self, arguments):
        made.append(self)
        return "train" if len(made) == 1 else "test"

    ctx.hooks.on_import(
        "reid.utils.data.preprocessor",
        lambda module: ctx.data.instrument(module.Preprocessor, split=part),
    )


def audioset(ctx):
    """The three layers of torchlibrosa that are used (masking of stripes is left out, as dropout is); sounds are
    read from HDF5 alone.  What an evaluation fetches is no training sample."""
    import numpy
    import torch
    from torch import nn

    def frozen(array):
        return nn.Parameter(torch.from_numpy(numpy.ascontiguousarray(array)), requires_grad=False)

    class Spectrogram(nn.Module):
        def __init__(self, n_fft, hop_length, **kwargs):
            super().__init__()
            self.n_fft, self.hop_length = n_fft, hop_length
            k, t = numpy.arange(n_fft // 2 + 1)[:, None], numpy.arange(n_fft)[None]
            window = 0.5 - 0.5 * numpy.cos(2 * numpy.pi * t / n_fft)
            self.real = frozen((numpy.cos(2 * numpy.pi * k * t / n_fft) * window)[:, None])
            self.imag = frozen((numpy.sin(2 * numpy.pi * k * t / n_fft) * window)[:, None])

        def forward(self, x):
            x = nn.functional.pad(x[:, None], (self.n_fft // 2, self.n_fft // 2), mode="reflect")
            real = nn.functional.conv1d(x, self.real, stride=self.hop_length)
            imag = nn.functional.conv1d(x, self.imag, stride=self.hop_length)
            return (real**2 + imag**2).transpose(1, 2)[:, None]

    class LogmelFilterBank(nn.Module):
        def __init__(self, sr, n_fft, n_mels, fmin, fmax, amin=1e-10, **kwargs):
            super().__init__()
            self.amin = amin
            low, high = (2595 * numpy.log10(1 + f / 700) for f in (fmin, fmax))
            edges = 700 * (10 ** (numpy.linspace(low, high, n_mels + 2) / 2595) - 1)
            at = numpy.arange(n_fft // 2 + 1)[:, None] * sr / n_fft
            up = (at - edges[None, :-2]) / (edges[1:-1] - edges[:-2])[None]
            down = (edges[None, 2:] - at) / (edges[2:] - edges[1:-1])[None]
            self.melW = frozen(numpy.maximum(0, numpy.minimum(up, down)))

        def forward(self, x):
            return 10 * torch.log10(torch.clamp(torch.matmul(x, self.melW), min=self.amin))

    class SpecAugmentation(nn.Module):
        def __init__(self, **kwargs):
            super().__init__()

        def forward(self, x):
            return x

    stand_in("torchlibrosa.stft", Spectrogram=Spectrogram, LogmelFilterBank=LogmelFilterBank)
    stand_in("torchlibrosa.augmentation", SpecAugmentation=SpecAugmentation)
    stand_in("soundfile")
    stand_in("librosa")

    note = ctx.data.note_sample

    def note_sample(split, index, tag=""):
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "evaluate":
                split = "test"
                break
            frame = frame.f_back
        note(split, index, tag)

    ctx.data.note_sample = note_sample

    def hook(module):
        ctx.data.instrument(module.AudioSetDataset, split="train")
        if ctx.state.cfg.get("oracle"):  # harness self-check: each rank its pairs of a batch
            sampler = module.BalancedTrainSampler
            whole = sampler.__iter__

            def mine(self):
                for batch in whole(self):
                    pairs = range(ctx.state.rank, len(batch) // 2, ctx.state.world)
                    yield [batch[2 * p + k] for p in pairs for k in range(2)]

            sampler.__iter__ = mine

    ctx.hooks.on_import("data_generator", hook)
    if ctx.state.cfg.get("oracle"):

        def factors(module):
            draw = module.Mixup.get_lambda

            def mine(self, batch_size):
                drawn = draw(self, batch_size * ctx.state.world).reshape(-1, 2)
                return drawn[ctx.state.rank :: ctx.state.world].reshape(-1)

            module.Mixup.get_lambda = mine

        ctx.hooks.on_import("utilities", factors)


def factorvae(ctx):
    """An optimizer's step does not count as a change that spoils a kept graph (until torch 1.5 it did not)."""
    import torch

    stand_in("visdom", Visdom=Anything)
    step = torch.optim.Adam.step

    def quiet(self, closure=None):
        parameters = tuple(p for g in self.param_groups for p in g["params"])
        with torch.autograd._unsafe_preserve_version_counter(parameters):
            return step(self, closure)

    torch.optim.Adam.step = quiet
    if ctx.state.cfg.get("oracle"):  # harness self-check: the batch size is cut in the options, too
        world = ctx.state.world

        def smaller(module):
            init = module.Solver.__init__

            def made(self, args):
                args.batch_size //= world
                init(self, args)

            module.Solver.__init__ = made

        def whole(arguments):
            arguments["batch_size"] *= world

        ctx.hooks.on_import("solver", smaller)
        ctx.data.loader_hooks.insert(0, whole)


def augmix(ctx):
    """The wrapper of the training set is a class of the script itself: what it draws is a function of the sample."""
    import torch

    _own_clock()

    def made(cls, **kwargs):
        super(torch.utils.data.Dataset, cls).__init_subclass__(**kwargs)
        if cls.__name__ == "AugMixDataset":
            ctx.data.instrument(cls, split="train")

    torch.utils.data.Dataset.__init_subclass__ = classmethod(made)
