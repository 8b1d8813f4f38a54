"""Plugins of the lot 17 recipes: stand-ins for small packages that are not installed, names that
newer releases dropped, and which samples are trained on.  Nothing a tool is judged by is touched.
"""

import sys
import zlib

from lot_common import Anything, note_rows, old_variables, stand_in


def own_clock(ctx):
    """Seconds that are printed never agree between two runs (so they count as noise, whatever the load)."""
    import os
    import time

    factor = 20 + int.from_bytes(os.urandom(2), "big") / 500

    def faster(real):
        start = real()
        return lambda: start + factor * (real() - start)

    time.time, time.perf_counter = faster(time.time), faster(time.perf_counter)


def variables(ctx):
    """Variable(x, volatile=True) of torch 0.3."""
    old_variables()


def _oracle(ctx):
    return bool(ctx.state.cfg.get("oracle"))


def _share(ctx, count):
    """Harness self-check: what a mean over this rank's parts is worth in the mean over all ranks' parts."""
    import torch

    total = torch.tensor(float(count))
    torch.distributed.all_reduce(total)
    return float(count) * ctx.state.world / total.item()


def _crc(row):
    return zlib.crc32(row.detach().contiguous().cpu().numpy().tobytes())


def speech(ctx):
    """Features are read from NumPy's files.  One training sample per utterance the network is given while it trains,
    named by its frames without padding."""
    import numpy
    import torch

    stand_in("kaldi_io", read_mat=numpy.load)

    def note(module, args):
        if type(module).__name__ == "Transformer" and module.training and torch.is_grad_enabled():
            for row, length in zip(args[0], args[1], strict=False):
                ctx.data.note_sample("train", _crc(row[: int(length)]), "forward")

    torch.nn.modules.module.register_module_forward_pre_hook(note)
    if _oracle(ctx):  # harness self-check: each rank its part of a batch, means over all signs

        def part(module):
            load = module.load_inputs_and_targets

            def mine(batch, **kwargs):
                if batch[0][0].startswith("train"):
                    batch = batch[ctx.state.rank :: ctx.state.world]
                return load(batch, **kwargs)

            module.load_inputs_and_targets = mine

        def whole(module):
            loss = module.cal_loss
            module.cal_loss = lambda pred, gold, smoothing=0.0: loss(
                pred, gold, smoothing
            ) * _share(ctx, gold.ne(-1).sum().item())

        ctx.hooks.on_import("data", part)
        ctx.hooks.on_import("loss", whole)


def protonets(ctx):
    """The parts of torchnet that are used.  One training sample per class of an episode."""
    import numpy
    import torch

    class ListDataset(torch.utils.data.Dataset):
        def __init__(self, elem_list, load=lambda x: x):
            self.list, self.load = elem_list, load

        def __len__(self):
            return len(self.list)

        def __getitem__(self, idx):
            return self.load(self.list[int(idx)])

    class TransformDataset(torch.utils.data.Dataset):
        def __init__(self, dataset, transforms):
            self.dataset, self.transforms = dataset, transforms

        def __len__(self):
            return len(self.dataset)

        def __getitem__(self, idx):
            return self.transforms(self.dataset[idx])

    def compose(transforms):
        def composite(z):
            for t in transforms:
                z = t(z)
            return z

        return composite

    class AverageValueMeter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.values = []

        def add(self, value, n=1):
            self.values += [value] * n

        def value(self):
            return float(numpy.mean(self.values)), float(numpy.std(self.values))

    stand_in("torchnet")
    stand_in("torchnet.dataset", ListDataset=ListDataset, TransformDataset=TransformDataset)
    stand_in("torchnet.transform", compose=compose)
    stand_in("torchnet.meter", AverageValueMeter=AverageValueMeter)
    ctx.data.instrument(
        TransformDataset,
        split=lambda self, a: "train" if a["dataset"].list[0].startswith("Alpha") else "test",
    )
    if _oracle(ctx):  # harness self-check: each rank some of the classes, prototypes of all
        from torch.distributed.nn.functional import all_gather
        from torch.nn import functional

        rank, world = ctx.state.rank, ctx.state.world

        class Mine:
            def __init__(self, sampler):
                self.sampler = sampler

            def __len__(self):
                return len(self.sampler)

            def __iter__(self):
                return (ids[rank::world] for ids in self.sampler)

        def shard(a):
            if a.get("batch_sampler") is not None and a["dataset"]._acceptance_split == "train":
                a["batch_sampler"] = Mine(a["batch_sampler"])

        ctx.data.loader_hooks.insert(0, shard)

        def whole(module):
            loss = module.Protonet.loss

            def over_all(self, sample):
                if not self.training:
                    return loss(self, sample)
                xs, xq = sample["xs"], sample["xq"]
                n, s, q = xs.size(0), xs.size(1), xq.size(1)
                z = self.encoder.forward(torch.cat([xs.flatten(0, 1), xq.flatten(0, 1)]))
                proto = torch.cat(all_gather(z[: n * s].view(n, s, -1).mean(1)))
                log_p = functional.log_softmax(-module.euclidean_dist(z[n * s :], proto), dim=1)
                target = (torch.arange(n) + rank * n).repeat_interleave(q)
                value = functional.nll_loss(log_p, target)
                acc = log_p.argmax(1).eq(target).double().mean()
                return value, {"loss": value.item(), "acc": acc.item()}

            module.Protonet.loss = over_all

        ctx.hooks.on_import("protonets.models.few_shot", whole)


def charrnn(ctx):
    """Places in the text come from a stream of numbers of its own that only counts the calls: with two ranks, either
    both draw the whole batch (they agree on the random state, or only one of them draws), or each draws its own rows.
    One training sample per row the network is given sign by sign.  A drawn sign is the likeliest one.
    """
    import os
    import random
    import time

    import numpy
    import torch

    stand_in("unidecode", unidecode=lambda s: s)
    torch.multinomial = lambda p, n, *args, **kwargs: p.argmax().view(1)
    state, length, batch = (
        ctx.state,
        ctx.state.cfg["options"]["length"],
        ctx.state.cfg["options"]["batch"],
    )
    real, stream, calls, alone = (
        random.randint,
        numpy.random.RandomState(5).random_sample(4000),
        [0],
        [],
    )

    def same():
        """Whether the other rank's random state is this one's when a place is drawn for the first time."""
        mine = str(zlib.crc32(repr(random.getstate()).encode()))
        path = os.path.join(state.rec, "draws_%d.txt")
        with open(path % state.rank + ".part", "w") as f:
            f.write(mine)
        os.replace(path % state.rank + ".part", path % state.rank)
        for _ in range(50):
            if os.path.exists(path % (1 - state.rank)):
                with open(path % (1 - state.rank)) as f:
                    return f.read() == mine
            time.sleep(0.1)
        return True

    def randint(a, b):
        if state.phase != "single" and not alone:
            alone.append(_oracle(ctx) or not same())
        k = calls[0]
        calls[0] += 1
        real(a, b)
        if alone and alone[0]:
            rows = batch // state.world
            k = k // rows * batch + state.rank * rows + k % rows
        return a + int(stream[k] * (b - a))

    random.randint = randint
    columns = []

    def note(module, args):
        if (
            type(module).__name__ != "CharRNN"
            or not torch.is_grad_enabled()
            or args[0].size(0) == 1
        ):
            return
        if not args[1].any():
            columns.clear()
        columns.append(args[0].detach().clone())
        if len(columns) == length:
            for row in torch.stack(columns, 1):
                ctx.data.note_sample("train", _crc(row), "forward")

    torch.nn.modules.module.register_module_forward_pre_hook(note)
    if _oracle(ctx):
        at = sys.argv.index("--batch_size") + 1
        sys.argv[at] = str(batch // state.world)


def betavae(ctx):
    """What is looked at for the pictures is no training sample."""
    old_variables()
    stand_in("visdom", Visdom=Anything)
    looking, real = [], ctx.data.note_sample
    ctx.data.note_sample = lambda split, index, tag="": real(
        "test" if looking else split, index, tag
    )

    def hook(module):
        traverse = module.Solver.viz_traverse

        def viz_traverse(self, *args, **kwargs):
            looking.append(1)
            try:
                return traverse(self, *args, **kwargs)
            finally:
                looking.clear()

        module.Solver.viz_traverse = viz_traverse

    ctx.hooks.on_import("solver", hook)


def windows(ctx):
    """One training sample per window the network is given under gradients."""
    import torch

    if not _oracle(ctx):
        return note_rows(ctx, "TransAm", lambda args: args[0].transpose(0, 1))
    rank, world = (
        ctx.state.rank,
        ctx.state.world,
    )  # harness self-check: each rank its part of a batch

    def part(module, args):
        if type(module).__name__ == "TransAm" and torch.is_grad_enabled():
            mine = args[0][:, rank::world]
            for row in mine.transpose(0, 1):
                ctx.data.note_sample("train", _crc(row), "forward")
            return (mine,)

    torch.nn.modules.module.register_module_forward_pre_hook(part)
    forward = torch.nn.MSELoss.forward

    def loss(self, output, target):
        if output.shape[1] != target.shape[1]:
            target = target[:, rank::world]
        return forward(self, output, target)

    torch.nn.MSELoss.forward = loss


def fastspeech(ctx):
    """Spectrograms are ready: what would make them is not used (but set up when a module is imported)."""
    import numpy

    stand_in("unidecode", unidecode=lambda s: s)
    stand_in("inflect", engine=Anything)
    stand_in("numba", jit=lambda *args, **kwargs: lambda f: f)
    stand_in("librosa")
    stand_in("librosa.util", pad_center=lambda window, size: window, tiny=None)
    stand_in(
        "librosa.filters", mel=lambda rate, n, mels, low, high: numpy.zeros((mels, n // 2 + 1))
    )


def random_state(numpy):
    _, key, at, *_ = numpy.random.get_state()
    return zlib.crc32(key.tobytes()), at


def rvae(ctx):
    """Lines are drawn in their order, as if the numbers were those of one process: all of a batch (by ranks that agree
    on the random state), or a rank's part of it.  One training sample per line the network is given, named by its
    words; words after the first ones are those of the other part.  Lists are saved as objects."""
    import pickle

    import numpy
    import torch
    from accept_shim import torchpatch
    from lot_common import agreed

    stand_in("six.moves", cPickle=pickle)
    state, options = ctx.state, ctx.state.cfg["options"]
    real, save, load, calls = numpy.random.randint, numpy.save, numpy.load, [0]

    def randint(low, high=None, size=None, **kwargs):
        torchpatch.started = True
        known = zlib.crc32(repr(random_state(numpy)).encode())
        drawn = real(low, high, size, **kwargs)
        if high is not None or not isinstance(size, int):
            return drawn
        start, calls[0] = calls[0] * options["batch"], calls[0] + 1
        rows = numpy.arange(start, start + options["batch"])
        same = agreed(state, known, "lines")  # always so on rank 0
        if size < options["batch"]:  # a rank's own part, or what the other rank draws, too
            part = 0 if same and not _oracle(ctx) else state.rank
            rows = rows[part * size : (part + 1) * size]
        elif not same:
            rows = rows + 2
        return rows % low

    def kept(file, value, *args, **kwargs):
        if isinstance(value, list):
            rows, value = value, numpy.empty(len(value), object)
            for i, row in enumerate(rows):
                value[i] = row
        return save(file, value, *args, **kwargs)

    numpy.random.randint, numpy.save = randint, kept
    numpy.load = lambda *args, **kwargs: load(*args, **{"allow_pickle": True, **kwargs})

    def note(module, args):
        if (
            type(module).__name__ != "RVAE"
            or len(args) < 4
            or args[1] is None
            or not torch.is_grad_enabled()
        ):
            return
        for row in args[3]:
            row = row[row < module.params.word_vocab_size - 3]
            if bool((row < options["words"]).all()):
                ctx.data.note_sample("train", _crc(row), "forward")

    torch.nn.modules.module.register_module_forward_pre_hook(note)
    if _oracle(ctx):
        at = sys.argv.index("--batch-size") + 1
        sys.argv[at] = str(options["batch"] // state.world)


def lstmcrf(ctx):
    """One training sample per sentence the network is given under gradients, named by its words without padding."""
    import torch

    rank, world = ctx.state.rank, ctx.state.world

    def note(module, args):
        if type(module).__name__ != "rnn_crf" or len(args) < 3 or not torch.is_grad_enabled():
            return None
        if _oracle(ctx):  # harness self-check: each rank its part of a batch
            xc, xw, y0 = (a[:, rank::world] for a in args)
            longest = int(xw.gt(0).sum(0).max())
            args = (xc[:longest], xw[:longest], y0[: longest + 1])
        for row in args[1].transpose(0, 1):
            ctx.data.note_sample("train", _crc(row[row > 0]), "forward")
        return args

    torch.nn.modules.module.register_module_forward_pre_hook(note)
