"""DDP218: a batch that comes from no loader is trained on whole by every rank."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Division, Facts
from ddpify.ranks.model import RankCall
from ddpify.ranks.passes import loaders_in
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Example, Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT
from ddpify.rules.shared.feeds import dealt_by, is_share
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per training loop whose batches can only be divided once they are made."""
    for division in (one for one in facts.divisions if not one.done):
        per_rank = settings.batch_size == "per-rank"
        batch = "every rank makes this batch and would train on all of it: it takes its own share"
        data = "every rank makes these data and would train on all of them: it keeps its columns"
        yield Finding(
            "DDP218",
            division.columns or division.statement,
            f"{data if division.columns else batch} (loading is not divided)",
            Severity.ERROR,
            () if per_rank else _fix(facts, division),
            "a batch that is made whole is divided: leave out --batch-size per-rank",
        )
        if division.ragged:
            yield Finding(
                "DDP218",
                division.loop,
                "the last batch of a pass may have fewer samples: the job ends there, and says so,"
                " where the ranks cannot share it out evenly",
                Severity.NOTE,
                (),
                "leave out a shorter last batch, or start as many ranks as divide it",
            )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per share that is taken of what is this rank's part already."""
    for call in run.calls:
        why = _dealt_before(call) if is_share(call) else ""
        if why:
            yield Finding(
                "DDP218",
                call.site,
                f"{why}: of two ranks, half of the samples are never trained on",
                Severity.ERROR,
                (),
                "let every rank make the whole batch, and divide it once",
            )


def _dealt_before(call: RankCall) -> str:
    sources = [thing for value in call.args for thing in value.sources()]
    if any(is_share(before) for one in sources if one.call for before in one.call.way):
        return "this is a share of a share"
    loaders = [loader for value in call.args for loader in loaders_in(value)]
    if any(dealt_by(loader) for loader in loaders):
        return "the loader's sampler deals these batches already"
    return ""


def _fix(facts: Facts, division: Division) -> tuple[Edit, ...]:
    names = ", ".join(division.names)
    dim = f", dim={division.axis}" if division.axis else ""
    sizes = dict.fromkeys(division.sizes)
    states = (edit(facts, How.REPLACE, size, "per_rank_batch_size({})") for size in sizes)
    share = edit(facts, How.BEFORE, division.statement, f"{names} = own_share({names}{dim})")
    if division.columns is not None:
        share = edit(facts, How.REPLACE, division.columns, f"own_share({{}}{dim})")
    return (share, *states)


_SLICED = Example(
    (
        (
            "main.py",
            """import torch
from torch import nn

points, kinds = torch.randn(960, 12), torch.randint(0, 3, (960,))
net = nn.DataParallel(nn.Linear(12, 3).cuda())
descent = torch.optim.SGD(net.parameters(), lr=0.1)
for turn in range(5):
    order = torch.randperm(960)
    for start in range(0, 960, 32):
        chosen = order[start : start + 32]
        signal, kind = points[chosen].cuda(), kinds[chosen].cuda()
        descent.zero_grad()
        answer = net(signal)  # DDP218
        nn.functional.cross_entropy(answer, kind).backward()
        descent.step()
torch.save(net.module.state_dict(), "net.pt")
""",
        ),
    )
)
_STREAMED = Example(
    (
        (
            "main.py",
            """import random

import torch
from torch import nn


class Clips:
    def __init__(self, rows, size):
        self.rows, self.size = rows, size

    def batches(self):
        random.shuffle(self.rows)
        for start in range(0, len(self.rows), self.size):
            part = self.rows[start : start + self.size]
            yield torch.tensor([x for x, _ in part]), torch.tensor([y for _, y in part])


class Coach:
    def __init__(self, clips):
        self.clips = clips
        self.brain = nn.DataParallel(nn.GRU(4, 8), dim=1)
        self.head = nn.DataParallel(nn.Linear(8, 1), dim=1)
        both = [*self.brain.parameters(), *self.head.parameters()]
        self.adam = torch.optim.Adam(both)

    def practise(self, laps):
        for lap in range(laps):
            for clip, target in self.clips.batches():  # DDP218
                self.adam.zero_grad()
                states, _ = self.brain(clip)  # DDP218
                ((self.head(states) - target) ** 2).mean().backward()
                self.adam.step()


if __name__ == "__main__":
    rows = [([[0.5] * 4] * 6, [[1.0]] * 6) for _ in range(64)]
    Coach(Clips(rows, 16)).practise(3)
""",
        ),
    )
)

_SIDE_BY_SIDE = Example(
    (
        (
            "main.py",
            """import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.gru, self.head = nn.Embedding(50, 8), nn.GRU(8, 8), nn.Linear(8, 50)

    def forward(self, words, memory):
        read, memory = self.gru(self.embed(words), memory)
        return self.head(read).view(-1, 50), memory

    def blank(self, streams):
        return torch.zeros(1, streams, 8)


def window(stream, at):
    return stream[at : at + 10], stream[at + 1 : at + 11].reshape(-1)


text = torch.randint(0, 50, (20, 401)).t()  # DDP218
reader = Reader()
rule = torch.optim.SGD(reader.parameters(), lr=0.5)
for lap in range(3):
    memory = reader.blank(20)
    for at in range(0, len(text) - 11, 10):
        words, following = window(text, at)
        guess, memory = reader(words, memory)
        memory = memory.detach()
        rule.zero_grad()
        nn.functional.cross_entropy(guess, following).backward()
        rule.step()
""",
        ),
    )
)
_MIGRATED = Example(
    (
        (
            "main.py",
            """import torch
from torch import nn

from ddp_metrics import own_share
from ddp_utils import (
    cleanup_distributed,
    fork_random_streams,
    is_main_process,
    setup_distributed,
    wrap_model,
)

setup_distributed()
points, kinds = torch.randn(960, 12), torch.randint(0, 3, (960,))
net = wrap_model(nn.Linear(12, 3))
descent = torch.optim.SGD(net.parameters(), lr=0.1)
fork_random_streams()
for turn in range(5):
    for start in range(0, 960, 32):
        signal, kind = points[start : start + 32], kinds[start : start + 32]
        descent.zero_grad()
        signal, kind = own_share(signal, kind)
        nn.functional.cross_entropy(net(signal), kind).backward()
        descent.step()
    if is_main_process():
        print("turn", turn)
cleanup_distributed()
""",
        ),
    )
)


RULE = Rule(
    "DDP218",
    "batch-not-divided",
    "What slices, iterators of one's own or a library make into batches, no sampler can deal. Every"
    " rank then makes the same batch, as nn.DataParallel did, and takes its equal part of it right"
    " before the model is called; rank 0's batch counts, so that ranks may shuffle each in its own"
    " way. Data that hold the samples of all batches side by side are divided once, where they are"
    " made. The axis of samples is the one that DataParallel divided, that of a recurrent layer, of"
    " torchtext's fields, or what --batch-dim names.",
    "torch.nn.DataParallel; CONTRACT: Data",
    check,
    bad=(_SLICED, _STREAMED, _SIDE_BY_SIDE),
    good=(*CORRECT, _MIGRATED),
    lint=lint,
    words=("own_share(",),
)
