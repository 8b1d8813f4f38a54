"""Random draws of the training loop: a row for each sample, wherever it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ddpify.verify.observer import drawing_arrays, drawing_tensors, streams
from ddpify.verify.observer.draws import Draws
from ddpify.verify.observer.loaders import Batch

Make = Callable[[Any], Any]
EVEN, ODD = tuple(range(0, 8, 2)), tuple(range(1, 8, 2))


class Drawing:
    """The functions that a run gets instead of its own, without being put in their places."""

    def __init__(self, samples: Sequence[int], neutral: bool = True, **batch: Any) -> None:
        self.size = len(samples)
        self.notes: list[tuple[str, str]] = []
        self.recorder = SimpleNamespace(quiet=False, forked=False, note=self._note)
        values = {"passed": 0, "place": 0, "grad": True, **batch}
        self.loaders = SimpleNamespace(batch=Batch(samples=tuple(samples), **values))
        noise = SimpleNamespace(counts=lambda: (0, 0))
        self.draws = Draws(self.recorder, self.loaders, noise, neutral)  # type: ignore[arg-type]
        self._made: dict[tuple[Any, str], Any] = {}
        drawing_tensors.replace(self, self.draws)  # type: ignore[arg-type]
        drawing_arrays.replace(self, self.draws)  # type: ignore[arg-type]

    def replace(self, owner: Any, name: str, make: Make) -> None:
        if hasattr(owner, name):  # some are of later versions
            self._made[owner, name] = make(getattr(owner, name))

    def torch(self, name: str, *args: Any, **how: Any) -> Any:
        return self._made[torch, name](*args, **how)

    def fill(self, name: str, *args: Any, **how: Any) -> Any:
        return self._made[Tensor, name](*args, **how)

    def numpy(self, name: str, *args: Any, **how: Any) -> Any:
        return self._made[np.random, name](*args, **how)

    def plain(self, name: str, *args: Any, **how: Any) -> Any:
        return self._made[random, name](*args, **how)

    def step(self) -> list[tuple[str, str]]:
        """What is recorded when an optimizer steps."""
        self.draws._count()
        return self.notes

    def _note(self, kind: str, detail: str = "") -> None:
        self.notes.append((kind, detail))

    def of_samples(self, *shape: int) -> Tensor:
        """Another number for each sample, the same on each process."""
        batch = self.loaders.batch
        rows = torch.tensor([float(sample) for sample in batch.samples]) / 10 + 0.1
        return rows.reshape(-1, *(1 for _ in shape)).expand(-1, *shape).contiguous()


ROWS: dict[str, Callable[[Drawing], Any]] = {
    "randn": lambda d: d.torch("randn", d.size, 3),
    "randn of a size": lambda d: d.torch("randn", (d.size, 3, 2), dtype=torch.float64),
    "randn by name": lambda d: d.torch("randn", size=(d.size, 20)),
    "rand": lambda d: d.torch("rand", d.size, 1, 1, 1),
    "rand into": lambda d: d.torch("rand", d.size, 2, out=torch.empty(1)),
    "randint": lambda d: d.torch("randint", 0, 10**6, (d.size,)),
    "randint from nought": lambda d: d.torch("randint", 10**6, (d.size,), dtype=torch.int32),
    "randint by name": lambda d: d.torch("randint", low=5, high=10**6, size=(d.size, 2)),
    "randn_like": lambda d: d.torch("randn_like", torch.ones(d.size, 4, dtype=torch.bfloat16)),
    "rand_like": lambda d: d.torch("rand_like", torch.ones(d.size, 4).t().contiguous().t()),
    "randint_like": lambda d: d.torch("randint_like", torch.ones(d.size, 4), 3, 10**6),
    "normal of a size": lambda d: d.torch("normal", 1.0, 2.0, (d.size, 3)),
    "normal by tensors": lambda d: d.torch("normal", d.of_samples(3), torch.ones(3)),
    "normal around": lambda d: d.torch("normal", mean=0.0, std=d.of_samples(3)),
    "bernoulli": lambda d: d.torch("bernoulli", d.of_samples(30)),
    "poisson": lambda d: d.torch("poisson", 100 * d.of_samples(3)),
    "gamma": lambda d: d.torch("_standard_gamma", d.of_samples(3)),
    "dirichlet": lambda d: d.torch("_sample_dirichlet", d.of_samples(3)),
    "multinomial": lambda d: d.torch("multinomial", d.of_samples(900), 5),
    "categories": lambda d: d.torch("multinomial", torch.ones(900), d.size, True),
    "normal_": lambda d: d.fill("normal_", torch.empty(d.size, 3), 1, std=2),
    "uniform_": lambda d: d.fill("uniform_", torch.empty(d.size, 3), -1, 1),
    "random_": lambda d: d.fill("random_", torch.empty(d.size, dtype=torch.int64), 0, 10**6),
    "exponential_": lambda d: d.fill("exponential_", torch.empty(d.size, 2)),
    "bernoulli_": lambda d: d.fill("bernoulli_", torch.empty(d.size, 30), d.of_samples(30)),
    "numpy normal": lambda d: d.numpy("normal", 0, 1, (d.size, 3)),
    "numpy normal by name": lambda d: d.numpy("normal", loc=1.0, size=(d.size, 3)),
    "numpy normal by arrays": lambda d: d.numpy("normal", 5.0, d.of_samples(3).numpy()),
    "numpy uniform": lambda d: d.numpy("uniform", size=d.size),
    "numpy random": lambda d: d.numpy("random", (d.size, 1, 1, 1)),
    "numpy random_sample": lambda d: d.numpy("random_sample", (d.size,)),
    "numpy randn": lambda d: d.numpy("randn", d.size, 4),
    "numpy randint": lambda d: d.numpy("randint", 0, 10**6, d.size),
    "numpy randint of a type": lambda d: d.numpy("randint", 0, 10**6, d.size, np.int32),
    "numpy beta": lambda d: d.numpy("beta", 0.2, 0.4, size=(d.size, 1)),
    "numpy binomial": lambda d: d.numpy("binomial", 10**6, d.of_samples().numpy()),
    "numpy choice": lambda d: d.numpy("choice", 10**6, d.size),
    "numpy multinomial": lambda d: d.numpy("multinomial", 900, [0.2, 0.8], size=d.size),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_rank_draws_the_rows_of_its_samples(name: str) -> None:
    before = streams.digests()
    draw = ROWS[name]
    whole, even, odd = (np.asarray(_array(draw(Drawing(s)))) for s in (range(8), EVEN, ODD))
    assert len(whole) == 8
    assert (whole[0::2] == even).all()
    assert (whole[1::2] == odd).all()
    rows = whole.reshape(8, -1)
    assert len({tuple(row) for row in rows}) == 8  # and each row is another
    again = Drawing(range(8), place=1, passed=1)
    assert (np.asarray(_array(draw(again))) != whole).any()  # in another pass, other numbers
    assert streams.digests() == before
    plain = _array(draw(Drawing(range(8), neutral=False)))
    assert (plain.dtype, plain.shape) == (whole.dtype, whole.shape)
    assert streams.digests() != before


def _array(drawn: Any) -> Any:
    return drawn.double().numpy() if isinstance(drawn, Tensor) else drawn


SHARED: dict[str, tuple[Callable[[Drawing], Any], str]] = {
    "one number": (lambda d: d.torch("rand", 1), "rand(1) #0"),
    "no dimension": (lambda d: d.torch("rand", ()), "rand() #0"),
    "fixed noise": (lambda d: d.torch("randn", 25, 3), "randn(25, 3) #0"),
    "a distribution": (lambda d: d.torch("_sample_dirichlet", torch.ones(3)), "_sample_dirichlet"),
    "mixup": (lambda d: d.numpy("beta", 0.2, 0.2), "numpy.beta() #0"),
    "numpy": (lambda d: d.numpy("rand"), "numpy.rand() #0"),
    "numpy sample": (lambda d: d.numpy("choice", 90, 9, False), "numpy.choice(9) #0"),
    "random": (lambda d: d.plain("random"), "random.random() #0"),
    "choice": (lambda d: d.plain("choice", "abcdefgh" * 9), "random.choice(72) #0"),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_no_row_of_a_sample_is_the_same_in_every_process(name: str) -> None:
    before = streams.digests()
    draw, known = SHARED[name]
    runs = [Drawing(samples) for samples in (range(8), EVEN, ODD)]
    drawn = [np.asarray(draw(run)) for run in runs]
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] == drawn[2]).all()
    assert (np.asarray(draw(Drawing(range(8), place=1))) != drawn[0]).any()
    assert runs[1].step()[0][0] == "shared"
    assert runs[1].step()[0][1].startswith(known)
    assert streams.digests() == before


def test_draws_for_a_batch_are_told_apart() -> None:
    drawing = Drawing(range(8))
    first, second = (drawing.torch("randn", 8, 3) for _ in range(2))
    assert (first != second).all()
    drawing.loaders.batch = Batch(0, 0, tuple(range(8)), True)  # handed out anew
    assert (drawing.torch("randn", 8, 3) == first).all()


@pytest.mark.parametrize(
    "draw",
    [
        lambda d: d.torch("randperm", d.size),
        lambda d: d.torch("randn", 2 * d.size, 3),
        lambda d: d.numpy("permutation", d.size * [0]),
        lambda d: d.numpy("choice", 90, d.size, replace=False),
        lambda d: d.plain("shuffle", list(range(d.size))),
        lambda d: [d.plain("random") for _ in range(d.size)],
    ],
    ids=["permutation", "two views", "shuffled", "without replacement", "in place", "one by one"],
)
def test_what_depends_on_the_share_is_recorded_as_such(draw: Callable[[Drawing], Any]) -> None:
    whole, share = Drawing(range(8)), Drawing(EVEN)
    draw(whole)
    draw(share)
    assert set(whole.step()) != set(share.step())
    assert {kind for kind, _ in whole.notes + share.notes} == {"shared"}


def test_what_is_asked_for_is_kept() -> None:
    drawing = Drawing(range(8))
    drawn = drawing.torch("randn", 8, 3, dtype=torch.float16, requires_grad=True)
    assert (drawn.dtype, drawn.requires_grad, drawn.is_leaf) == (torch.float16, True, True)
    like = torch.ones(8, 3, 4, 4).to(memory_format=torch.channels_last)
    assert drawing.torch("randn_like", like).is_contiguous(memory_format=torch.channels_last)
    out = torch.empty(8, 3)
    assert drawing.torch("normal", torch.zeros(8, 3), 1.0, out=out) is out
    assert out.std() > 0
    order = drawing.torch("randperm", 8, dtype=torch.int32)
    assert sorted(order.tolist()) == list(range(8))
    assert order.dtype == torch.int32
    shape = torch.ones(8, 3, requires_grad=True)
    drawing.torch("_standard_gamma", shape).sum().backward()  # differentiable, as it was
    assert shape.grad is not None
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        drawing.fill("normal_", torch.ones(8, requires_grad=True))


def test_the_distributions_are_the_same() -> None:
    drawing = Drawing(range(2000))
    for name, mean, deviation in (("randn", 0.0, 1.0), ("rand", 0.5, 12**-0.5)):
        drawn = drawing.torch(name, 2000, 8)
        assert drawn.mean().item() == pytest.approx(mean, abs=0.05)
        assert drawn.std().item() == pytest.approx(deviation, abs=0.05)
    assert set(drawing.torch("randint", 3, 6, (2000,)).tolist()) == {3, 4, 5}


def test_a_generator_of_the_scripts_own_is_left_alone_and_counts() -> None:
    drawing = Drawing(range(8))
    own, same = (torch.Generator().manual_seed(3) for _ in range(2))
    drawn = drawing.torch("randn", 8, 3, generator=own)
    assert (drawn == torch.randn(8, 3, generator=same)).all()
    assert drawing.step() == [("draws", ""), ("rows", "torch")]


def test_draws_count_where_they_are_not_neutral_and_a_step_follows() -> None:
    drawing = Drawing(range(8), neutral=False)
    assert drawing.step() == []
    drawing.torch("rand", 1)
    assert drawing.step() == [("draws", "")]
    drawing.numpy("normal", 0, 1, (8, 2))
    drawing.numpy("normal", 0, 1, (8, 2))
    assert drawing.step() == [("draws", ""), ("draws", ""), ("rows", "numpy")]
    drawing.recorder.quiet = True
    drawing.torch("rand", 1)
    drawing.recorder.quiet, drawing.loaders.batch = False, None  # no batch: before the first
    drawing.torch("rand", 1)
    assert len(drawing.step()) == 3


def test_draws_for_evaluation_are_neutral_and_no_noise_of_training() -> None:
    drawing = Drawing(range(8), grad=False)
    whole = drawing.torch("randn", 8, 3)
    assert (Drawing(EVEN, grad=False).torch("randn", 4, 3) == whole[::2]).all()
    drawing.torch("rand", 1)
    plain = Drawing(range(8), neutral=False, grad=False)
    plain.torch("randn", 8, 3)
    assert drawing.step() == plain.step() == []
