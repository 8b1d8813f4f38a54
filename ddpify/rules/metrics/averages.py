"""Numbers of each rank's share that are averaged over the ranks, though that of all is no mean.

The mean of the ranks' F1 scores is no F1 score; that of their ratios or means is the whole one's
only where all ranks count equally many.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ddpify.ranks.collective import Collective, collective
from ddpify.ranks.mixing import OTHERS, of_other
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.origins import PIECE, STRIDE, Symbol, of_one_rank
from ddpify.ranks.passes import iterated
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.ranks.words import DIST
from ddpify.rules.shared.counted import divides_evenly
from ddpify.rules.shared.losses import reduction
from ddpify.rules.shared.quotients import is_quotient
from ddpify.rules.shared.syntax import scope_nodes

_SENT: Final = {
    "all_reduce": "tensor",
    "reduce": "tensor",
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "all_gather_object": "obj",
    "gather": "tensor",
    "gather_object": "obj",
}
_AVERAGED: Final = frozenset({f"{DIST}ReduceOp.SUM", f"{DIST}ReduceOp.AVG"})
_MEANS: Final = frozenset("sum mean average fmean nanmean".split())
# What gives the number that it is given, or several of them in one tensor.
_PASSES: Final = frozenset(
    """tensor as_tensor from_numpy stack cat float double item to cuda cpu detach clone reshape view
    unsqueeze squeeze numpy""".split()
)
_SCORES: Final = frozenset(
    """f1_score fbeta_score precision_score recall_score roc_auc_score average_precision_score
    matthews_corrcoef cohen_kappa_score r2_score explained_variance_score jaccard_score auc
    balanced_accuracy_score median_absolute_error pearsonr spearmanr kendalltau auroc
    average_precision""".split()
)
_LIBRARIES: Final = ("sklearn.metrics.", "torchmetrics.functional.", "scipy.stats.")
_SPREADS: Final = frozenset("std var median nanmedian quantile percentile corrcoef".split())
# Of a mean over all samples these are no means of what they are on the ranks.
_CURVED: Final = frozenset("exp exp2 expm1 sqrt rsqrt log log2 log10 log1p".split())
_ARITHMETIC: Final = frozenset("Mult Div Add Sub USub".split())
_NUMERIC: Final = ("math.", "torch.", "numpy.")
_COUNTS: Final = frozenset({"sum", "count_nonzero"})
_LIMITS: Final = frozenset("max maximum clamp clamp_min int float item".split())


@dataclass(frozen=True)
class Averaged:
    """The collective that puts the ranks' numbers together, and what computed each."""

    call: RankCall
    made: RankCall
    mean: bool  # it is a mean or a ratio, right where all ranks count equally many


def averages(run: Run) -> Iterator[Averaged]:
    """Those of which the average is not that of all samples."""
    for call, value in _put_together(run):
        if not call.everywhere or _is_of_those_that_have_one(value):
            continue
        found = next(_unlike(run, call, value), None)
        if found is not None:
            yield found


def _is_of_those_that_have_one(value: RankValue) -> bool:
    """Whether a rank that has no number gives zeros, and one that has gives its weight, too: ``[0,
    0] if auc is None else [auc, 1]``. The mean over such ranks is meant."""
    made = [thing.call for thing in value.things if thing.call is not None and thing.call.args]
    rows = [call.args[0].items or () for call in made]
    none = any(
        call.name == "torch.zeros" or (len(row) > 1 and all(one.constant == 0 for one in row))
        for call, row in zip(made, rows, strict=True)
    )
    weighed = any(len(row) > 1 and any(one.constant for one in row) for row in rows)
    return len(made) == len(value.things) == 2 and none and weighed


def _put_together(run: Run) -> Iterator[tuple[RankCall, RankValue]]:
    """What the ranks give to collectives after which there is a mean of it."""
    for call in run.named(*(f"{DIST}{name}" for name in _SENT)):
        shared = collective(call)
        value = shared.given(_SENT[call.method]) if shared is not None else None
        if shared is not None and value is not None and _is_mean(shared):
            yield call, value
    for call in run.named(*OTHERS):
        if call.args and of_other(call) is not None:
            yield call, call.args[0]


def _is_mean(shared: Collective) -> bool:
    """Whether the numbers of the ranks are added up, by the collective or afterwards."""
    call = shared.call
    if "reduce" in call.method:
        op = shared.given("op")
        return op is None or not _AVERAGED.isdisjoint(op.names())
    into = shared.node("gather_list" if call.method == "gather" else shared.filled)
    into = shared.node("object_gather_list") if call.method == "gather_object" else into
    return isinstance(into, ast.Name) and any(_adds_up(node, into.id) for node in scope_nodes(call))


def _adds_up(node: ast.AST, name: str) -> bool:
    """``sum(parts) / n``, ``np.mean(parts)``, ``torch.stack(parts).mean()``; not of a part."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    word = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if word not in _MEANS:
        return False
    over = [*node.args[:1], *((function.value,) if isinstance(function, ast.Attribute) else ())]
    return any(_is_all_of(one, name) for one in over)


def _is_all_of(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return isinstance(node, ast.Name) and node.id == name


def _unlike(run: Run, call: RankCall, value: RankValue) -> Iterator[Averaged]:
    for made in made_of(value):
        if not _of_one_rank(made):
            continue
        if _is_statistic(made):
            yield Averaged(call, made, False)
        elif made.method in ("mean", "nanmean") and _of_unequal(made):
            yield Averaged(call, made, True)
    if any(loop.node in run.step_loops or iterated(loop) for loop in call.loops):
        return  # one of many, each of a batch: ``psnr(…)`` of each, then their mean
    curved = next(filter(_is_curved, made_of(value)), None)
    if curved is not None or _is_root(value):
        yield Averaged(call, curved or call, False)
    ratio = next((one for v in _held(value) if (one := _counted_by(v)) is not None), None)
    if ratio is not None:
        yield Averaged(call, ratio, True)
    elif any(_is_over_share(run, one) for one in _held(value)):
        yield Averaged(call, call, True)


def made_of(value: RankValue, depth: int = 6) -> Iterator[RankCall]:
    """The calls whose result it is, or holds, as it is."""
    for item in value.items or () if depth else ():
        yield from made_of(item, depth - 1)
    for thing in (*value.things, *_computed(value)) if depth else ():
        made = thing.call
        if made is None or thing.kind != "result":
            continue
        if made.method in _PASSES:
            for inner in made.inputs:
                yield from made_of(inner, depth - 1)
        else:
            yield made


def _computed(value: RankValue) -> Iterator[RankThing]:
    """What a number was computed from with constants, or is one of the results of:
    ``100 * f1_score(a, b)``, ``rho, p = spearmanr(a, b)``."""
    atom = value.atoms[0]
    while isinstance(atom, Symbol) and atom.parts and atom.parts[0] in _ARITHMETIC:
        inner = [part for part in atom.parts[1:] if isinstance(part, Symbol)]
        if len(inner) != 1:
            return
        atom = inner[0]
    yield from (t for t in value.made_from if f"{text(atom)}[".startswith(f"{t.key}["))


def _is_statistic(made: RankCall) -> bool:
    if made.name.startswith(_LIBRARIES):
        return made.method in _SCORES
    of_library = made.name.startswith(("torch.", "numpy.", "statistics."))
    return made.method in _SPREADS and (of_library or made.receiver is not None)


def _is_curved(made: RankCall) -> bool:
    """The perplexity ``exp(total / count)`` of a rank, its root of a mean square."""
    if made.method not in _CURVED or not _of_one_rank(made):
        return False
    if made.receiver is None and not made.name.startswith(_NUMERIC):
        return False
    return any(map(_is_fraction, made.inputs))


def _is_root(value: RankValue, depth: int = 6) -> bool:
    """``(total / count) ** 0.5``, ``2 ** (bits / count)`` of this rank's own, or what holds it."""
    for atom in value.atoms if of_one_rank(value.all_origins) else ():
        if isinstance(atom, Symbol) and atom.parts[:1] == ("Pow",):
            base, power = atom.parts[1:]
            if isinstance(base, Symbol):
                return is_quotient(base) and isinstance(power, float) and 0 < power < 1
            return is_quotient(power)
    made = value.things[0].call if depth and len(value.things) == 1 else None
    if made is None or made.method not in _PASSES:
        return False
    return any(_is_root(one, depth - 1) for one in made.inputs)


def _is_fraction(value: RankValue) -> bool:
    """Whether it is a quotient, or a mean: that of a loss, too."""
    if any(is_quotient(atom) for one in _held(value) for atom in one.atoms):
        return True
    made = made_of(value)
    return any(one.method in ("mean", "nanmean") or reduction(one) == "mean" for one in made)


def _of_one_rank(made: RankCall) -> bool:
    return any(of_one_rank(value.all_origins) for value in made.inputs)


def _of_unequal(made: RankCall) -> bool:
    """Whether it is of every n-th row, of rows that are not known to divide evenly."""
    values = [v for v in made.inputs if any(o.what in (PIECE, STRIDE) for o in v.all_origins)]
    return bool(values) and not any(map(divides_evenly, values))


def _held(value: RankValue, depth: int = 6) -> Iterator[RankValue]:
    """A number, and what it holds as it is: the quotient of ``torch.tensor(total / count)``."""
    yield value
    for one in value.items or () if depth else ():
        yield from _held(one, depth - 1)
    made = value.things[0].call if depth and len(value.things) == 1 else None
    if made is not None and made.method in _PASSES:
        for one in made.inputs:
            yield from _held(one, depth - 1)


def _is_over_share(run: Run, value: RankValue) -> bool:
    """Whether what it is divided by was counted over every n-th of what may not divide evenly."""
    below = [a.parts[2] for a in value.atoms if isinstance(a, Symbol) and a.parts[:1] == ("Div",)]
    for loop in run.loops if below else ():
        over = loop.over
        if over is None or not any(o.what in (PIECE, STRIDE) for o in over.all_origins):
            continue
        rows = (f"element@{loop.site}", *(text(item.atoms[0]) for item in over.items or ()))
        lengths = tuple(f"len({row}" for row in rows)
        if _holds_length(below[0], lengths) and not divides_evenly(over):
            return True
    return False


def _holds_length(atom: Any, lengths: tuple[str, ...]) -> bool:
    """``0 + len(row) - 1``"""
    if not isinstance(atom, Symbol):
        return False
    if atom.parts[:1] in (("Add",), ("Sub",)):
        return any(_holds_length(part, lengths) for part in atom.parts[1:])
    return atom.key.startswith(lengths)


def _counted_by(value: RankValue) -> RankCall | None:
    """What counts this rank's samples below a fraction line: ``x.sum() / mask.sum()``."""
    for atom in value.atoms:
        if is_quotient(atom):
            known = {thing.key: thing for thing in value.sources()}
            return next(_counts(atom.parts[2], known), None)
    return None


def _counts(atom: Any, known: dict[str, RankThing]) -> Iterator[RankCall]:
    if not isinstance(atom, Symbol):
        return
    for part in atom.parts[1:]:
        yield from _counts(part, known)
    thing = known.get(atom.key.removesuffix(":0"))
    made = thing.call if thing is not None else None
    if made is not None and made.method in _COUNTS and _of_one_rank(made):
        yield made
    elif made is not None and made.method in _LIMITS:  # `max(1, count)`
        for one in made.inputs:
            yield from _counts(one.atoms[0], {t.key: t for t in one.sources()})
