"""The functions of numpy.random, row by row, and those of random, which draw no rows."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sized
from itertools import repeat
from typing import Any, Final

from ddpify.verify.observer.drawing import DrawSource, watched
from ddpify.verify.observer.patching import Patcher

# How many arguments precede ``size``; each number is drawn for itself.
_ELEMENTWISE: Final = {
    0: """random_sample random ranf sample standard_normal standard_cauchy standard_exponential
        tomaxint""",
    1: """chisquare exponential geometric logseries pareto poisson power rayleigh standard_gamma
        standard_t weibull zipf""",
    2: """beta binomial f gamma gumbel laplace logistic lognormal negative_binomial
        noncentral_chisquare normal uniform vonmises wald randint""",
    3: "hypergeometric noncentral_f triangular",
}
# The same, but their arguments describe every row.
_VECTORS: Final = {"choice": 1, "dirichlet": 1, "multinomial": 2, "multivariate_normal": 2}
_ALIASES: Final = {"ranf": "random_sample", "sample": "random_sample"}
_WHOLE: Final = ("shuffle", "permutation", "bytes")
_PLAIN: Final = """
    random uniform randint randrange choice choices sample shuffle gauss normalvariate
    lognormvariate expovariate vonmisesvariate gammavariate betavariate paretovariate
    weibullvariate triangular getrandbits randbytes binomialvariate
""".split()

_Call = tuple[tuple[Any, ...], dict[str, Any]]


def replace(patcher: Patcher, source: DrawSource) -> None:
    for name in _PLAIN:
        patcher.replace(random, name, functools.partial(_plain, source, name))
    try:
        import numpy
    except ImportError:
        return
    arrays = _Arrays(numpy, source)
    for before, names in _ELEMENTWISE.items():
        for name in names.split():
            patcher.replace(numpy.random, name, arrays.replacing(name, before, arrays.sized))
    for name, before in _VECTORS.items():
        patcher.replace(numpy.random, name, arrays.replacing(name, before, arrays.vectors))
    for name in ("rand", "randn"):
        patcher.replace(numpy.random, name, arrays.replacing(name, 0, arrays.dimensions))
    for name in _WHOLE:
        patcher.replace(numpy.random, name, arrays.replacing(name, 0, arrays.whole))


def _plain(source: DrawSource, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        seed = source.seeds(f"random.{name}", _length(args), divisible=False)
        return getattr(random.Random(seed), name)(*args, **kwargs)  # type: ignore[arg-type]

    return watched(source, "random", original, draw)


def _length(args: tuple[Any, ...]) -> tuple[int, ...]:
    """The length of what is drawn from: it may be that of the batch."""
    return (len(args[0]),) if args and isinstance(args[0], Sized) else ()


class _Arrays:
    """``numpy`` is a parameter, as it need not be there."""

    def __init__(self, numpy: Any, source: DrawSource) -> None:
        self._numpy = numpy
        self._source = source
        self._state = numpy.random.RandomState(0)

    def replacing(self, name: str, before: int, draw: Callable[..., Any]) -> Callable[..., Any]:
        neutral = functools.partial(draw, name, before)
        return lambda original: watched(self._source, "numpy", original, neutral)

    def sized(self, name: str, before: int, /, *args: Any, **kwargs: Any) -> Any:
        size = _size(before, args, kwargs)
        shape = _tuple(size) if size is not None else self._shape(args, kwargs)
        seeds = self._source.seeds(f"numpy.{name}", shape)
        if isinstance(seeds, int):
            return self._draw(name, seeds, args, kwargs)
        calls = (
            _sized(before, *self._row(args, kwargs, row, shape), (1, *shape[1:]))
            for row in range(shape[0])
        )
        return self._stacked(name, seeds, calls)

    def vectors(self, name: str, before: int, /, *args: Any, **kwargs: Any) -> Any:
        shape = _tuple(_size(before, args, kwargs))
        once = name == "choice" and not kwargs.get("replace", args[2] if len(args) > 2 else True)
        seeds = self._source.seeds(f"numpy.{name}", shape, divisible=not once)
        if isinstance(seeds, int):
            return self._draw(name, seeds, args, kwargs)
        return self._stacked(name, seeds, repeat(_sized(before, args, kwargs, (1, *shape[1:]))))

    def dimensions(self, name: str, _: int, /, *shape: int) -> Any:
        seeds = self._source.seeds(f"numpy.{name}", shape)
        if isinstance(seeds, int):
            return self._draw(name, seeds, shape, {})
        return self._stacked(name, seeds, repeat(((1, *shape[1:]), {})))

    def whole(self, name: str, _: int, /, *args: Any, **kwargs: Any) -> Any:
        seed = self._source.seeds(f"numpy.{name}", _length(args), divisible=False)
        return self._draw(name, seed, args, kwargs)

    def _stacked(self, name: str, seeds: list[int], calls: Iterable[_Call]) -> Any:
        rows = [self._draw(name, seed, *call) for seed, call in zip(seeds, calls, strict=False)]
        return self._numpy.concatenate(rows)

    def _draw(self, name: str, seed: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        self._state.seed(seed)
        return getattr(self._state, _ALIASES.get(name, name))(*args, **kwargs)

    def _shape(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        """That of the parameters together."""
        given = (*args, *(value for name, value in kwargs.items() if name != "dtype"))
        return tuple(self._numpy.broadcast_shapes(*map(self._numpy.shape, given)))

    def _row(self, args: Any, kwargs: dict[str, Any], row: int, shape: tuple[int, ...]) -> _Call:
        """The same arguments, but of those with the rows of ``shape`` this row."""

        def part(value: Any) -> Any:
            own = self._numpy.shape(value) if not isinstance(value, type) else ()
            has_rows = len(own) == len(shape) and own[:1] == shape[:1]
            return value[row : row + 1] if has_rows else value

        return tuple(map(part, args)), {name: part(value) for name, value in kwargs.items()}


def _tuple(size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    return tuple(size) if hasattr(size, "__iter__") else (int(size),)


def _size(before: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[before] if len(args) > before else kwargs.get("size")


def _sized(before: int, args: tuple[Any, ...], kwargs: dict[str, Any], size: Any) -> _Call:
    """The same arguments, but this size."""
    if len(args) > before:
        return (*args[:before], size, *args[before + 1 :]), kwargs
    return args, {**kwargs, "size": size}
