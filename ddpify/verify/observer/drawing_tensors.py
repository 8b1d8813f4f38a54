"""Torch's functions that draw, row by row: on the CPU, so that every device gets the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from ddpify.verify.observer.drawing import DrawSource, watched
from ddpify.verify.observer.patching import Patcher

# each fills a tensor; its arguments are numbers, or a tensor with a number for each element
FILLS: Final = """
    normal_ uniform_ random_ bernoulli_ exponential_ cauchy_ log_normal_ geometric_
""".split()
# each draws one number (or row) for each element (or row) of its tensors
BY_PARAMETERS: Final = "bernoulli poisson binomial _standard_gamma _sample_dirichlet".split()

_Call = tuple[tuple[Any, ...], dict[str, Any]]


def replace(patcher: Patcher, source: DrawSource) -> None:
    torch_ = functools.partial(watched, source, "torch")
    fills = {name: getattr(Tensor, name) for name in FILLS}

    def filling(name: str) -> Callable[..., Any]:
        return lambda original: torch_(original, functools.partial(_fill, source, name, original))

    def making(name: str, fill: str, parse: Callable[..., Any]) -> Callable[..., Any]:
        make = functools.partial(_make, source, name, fills[fill], parse)
        return lambda original: torch_(original, make)

    def telling(name: str, draw: Callable[..., Any]) -> Callable[..., Any]:
        return lambda original: torch_(original, functools.partial(draw, source, name, original))

    for name in FILLS:
        patcher.replace(Tensor, name, filling(name))
    for name, fill, parse in (
        ("randn", "normal_", _empty),
        ("rand", "uniform_", _empty),
        ("randint", "random_", _integers),
        ("randn_like", "normal_", _empty_like),
        ("rand_like", "uniform_", _empty_like),
        ("randint_like", "random_", _integers_like),
    ):
        patcher.replace(torch, name, making(name, fill, parse))
    for name in BY_PARAMETERS:
        patcher.replace(torch, name, telling(name, _by_parameters))
    patcher.replace(Tensor, "bernoulli", telling("bernoulli", _by_parameters))
    normal = functools.partial(_normal, fills["normal_"])
    patcher.replace(torch, "normal", telling("normal", normal))
    for owner in (torch, Tensor):
        patcher.replace(owner, "multinomial", telling("multinomial", _multinomial))
    patcher.replace(torch, "randperm", telling("randperm", _permutation))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator(device="cpu").manual_seed(seed)


def _fill(
    source: DrawSource,
    name: str,
    original: Callable[..., Any],
    target: Tensor,
    *args: Any,
    **how: Any,
) -> Tensor:
    return target.copy_(_filled(original, source.seeds(name, target.shape), target, args, how))


def _filled(
    fill: Callable[..., Any], seeds: int | list[int], like: Tensor, args: Any, how: dict[str, Any]
) -> Tensor:
    """On the CPU, in the shape and type of ``like``."""
    found = torch.empty(like.shape, dtype=like.dtype, device="cpu")
    if isinstance(seeds, int):
        given, named = _part(found.shape, None, args, how)
        fill(found, *given, **named, generator=_generator(seeds))
        return found
    for row, seed in enumerate(seeds):
        given, named = _part(found.shape, row, args, how)
        fill(found[row : row + 1], *given, **named, generator=_generator(seed))
    return found


def _part(shape: torch.Size, row: int | None, args: Any, how: dict[str, Any]) -> _Call:
    """The arguments on the CPU, and of tensors that have the rows of ``shape`` this row."""

    def part(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        rows = row is not None and value.ndim == len(shape) and value.shape[0] == shape[0]
        return (value[row : row + 1] if rows and row is not None else value).cpu()

    return tuple(map(part, args)), {name: part(value) for name, value in how.items()}


def _make(
    source: DrawSource,
    name: str,
    fill: Callable[..., Any],
    parse: Callable[..., tuple[Tensor, tuple[Any, ...]]],
    *args: Any,
    requires_grad: bool = False,
    **how: Any,
) -> Tensor:
    """A new tensor, or ``out``."""
    with torch.no_grad():
        made, numbers = parse(*args, **how)
        made.copy_(_filled(fill, source.seeds(name, made.shape), made, numbers, {}))
    return made.requires_grad_() if requires_grad else made


def _empty(*args: Any, **how: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return torch.empty(*args, **how), ()


def _empty_like(*args: Any, **how: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return torch.empty_like(*args, **how), ()


def _integers(*args: Any, **how: Any) -> tuple[Tensor, tuple[Any, ...]]:
    size = how.pop("size") if "size" in how else args[-1]
    bounds = _bounds([one for one in args if one is not size], how)
    if how.get("out") is None:
        how["dtype"] = how.get("dtype") or torch.int64
    return torch.empty(size, **how), bounds


def _integers_like(*args: Any, **how: Any) -> tuple[Tensor, tuple[Any, ...]]:
    like = how.pop("input") if "input" in how else args[0]
    bounds = _bounds([one for one in args if one is not like], how)
    return torch.empty_like(like, **how), bounds


def _bounds(given: list[Any], how: dict[str, Any]) -> tuple[int, int]:
    """(low, high) from ``high`` or ``low, high``, given by place or by name."""
    given = [how.pop("low"), *given] if "low" in how else given
    given = [*given, how.pop("high")] if "high" in how else given
    low, high = given if len(given) == 2 else (0, *given)
    return int(low), int(high)


def _normal(
    fill: Callable[..., Any],
    source: DrawSource,
    name: str,
    original: Callable[..., Any],
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    **how: Any,
) -> Any:
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        return _by_parameters(source, name, original, mean, std, **how)

    def parse(**rest: Any) -> tuple[Tensor, tuple[Any, ...]]:
        return torch.empty(size, **rest), (mean, std)

    return _make(source, name, fill, parse, **how)


def _by_parameters(
    source: DrawSource, name: str, original: Callable[..., Any], *args: Any, **how: Any
) -> Any:
    out = how.pop("out", None)
    tensors = [one for one in (*args, *how.values()) if isinstance(one, Tensor)]
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))  # type: ignore[no-untyped-call]
    # the numbers of a row belong together
    seeds = source.seeds(name, shape, divisible=len(shape) > (name == "_sample_dirichlet"))
    if isinstance(seeds, int):
        given, named = _part(shape, None, args, how)
        drawn = original(*given, **named, generator=_generator(seeds))
    else:
        parts = [_part(shape, row, args, how) for row in range(shape[0])]
        each = zip(parts, seeds, strict=True)
        drawn = torch.cat([original(*p, **n, generator=_generator(s)) for (p, n), s in each])
    return _delivered(drawn, out, tensors[0].device)


def _multinomial(
    source: DrawSource,
    name: str,
    original: Callable[..., Any],
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    out: Tensor | None = None,
) -> Any:
    """With one distribution for all, and replacement, each draw is a row for itself."""
    single = replacement and input.numel() == input.shape[-1]
    host = input.cpu()
    seeds = source.seeds(name, (num_samples,) if single else (*input.shape[:-1], num_samples))
    if isinstance(seeds, int):
        drawn = original(host, num_samples, replacement, generator=_generator(seeds))
    elif single:
        one = [original(host, 1, True, generator=_generator(seed)) for seed in seeds]
        drawn = torch.cat(one, dim=-1)
    else:
        how = [(host[row : row + 1], _generator(seed)) for row, seed in enumerate(seeds)]
        drawn = torch.cat([original(p, num_samples, replacement, generator=g) for p, g in how])
    return _delivered(drawn, out, input.device)


def _permutation(
    source: DrawSource,
    name: str,
    original: Callable[..., Any],
    n: int,
    *,
    out: Tensor | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **how: Any,
) -> Any:
    """It couples the samples: there is no part of it for a rank."""
    generator = _generator(source.seeds(name, (n,), divisible=False))  # type: ignore[arg-type]
    where = torch.get_default_device() if device is None else device
    drawn = _delivered(original(n, **how, generator=generator, device="cpu"), out, where)
    return drawn.requires_grad_() if requires_grad else drawn


def _delivered(drawn: Tensor, out: Tensor | None, device: Any) -> Tensor:
    if out is None:
        return drawn.to(device)
    return out.resize_(drawn.shape).copy_(drawn)
