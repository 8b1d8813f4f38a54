"""What the libraries of a training script make: torch, torchvision, tqdm, the runtime.

Names are qualified as imported. A call that is not listed gives an unknown thing that keeps
its identity, so that behaviour (`.parameters()`, `.step()`) can still tell what it is.
"""

from __future__ import annotations

from dataclasses import replace

from ddpify.facts import (
    builtin_calls,
    counts,
    helper_calls,
    measures,
    rows,
    standard_calls,
    sums,
    wrapping,
)
from ddpify.facts.details import (
    CountMean,
    LoaderArguments,
    NumbersPasses,
    Optimized,
    Partial,
    Reduction,
    call_that_made,
    made_by,
)
from ddpify.facts.events import Call
from ddpify.facts.iteration import iterates
from ddpify.facts.protocol import Machine
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.standard_calls import STANDARD
from ddpify.facts.values import (
    NOTHING,
    Kind,
    Measure,
    Thing,
    Value,
    computed,
    constant,
    flat_deps,
    flat_measure,
    join,
    one,
)
from ddpify.names import INSTALLED
from ddpify.python import words
from ddpify.source import Site

NO_GRAD = words.NO_GRAD
WRAPPERS = frozenset({"DistributedDataParallel", "FullyShardedDataParallel", "DataParallel"})
RANK_CALLS = frozenset(
    {
        *words.RANK_CALLS,
        *words.LOCAL_RANK_CALLS,
        f"{INSTALLED}.get_rank",
        f"{INSTALLED}.get_local_rank",
        f"{INSTALLED}.is_main_process",
    }
)
RANK_VARIABLES = words.RANK_VARIABLES.keys() | words.OTHER_RANK_VARIABLES
_TORCH_DRAWS = tuple(start for start, library in words.DRAWS if library in (words.TORCH, "secrets"))
CLOCKS = words.CLOCKS | words.OWN_NUMBERS
TRACKERS = words.TRACKERS
MODEL_SOURCES = (
    "torchvision.models.",
    "timm.create_model",
    "segmentation_models_pytorch.",
    "torch.hub.load",
)
PASS_THROUGH = (
    words.COMPILERS
    | words.COPIES
    | frozenset(
        """asyncio.run contextlib.nullcontext contextlib.closing types.MappingProxyType""".split()
    )
)
ITERATES = words.ITERATES | {"more_itertools.peekable"}


def instance_kind(info: ClassInfo) -> Kind:
    """What an instance of a project class is, by what it inherits."""
    for base in info.external_bases():
        kind = class_kind(base)
        if kind is not None:
            return Kind.CRITERION if kind is Kind.MODEL and base.endswith("Loss") else kind
    return Kind.INSTANCE


def class_kind(name: str) -> Kind | None:
    """What a class of a library makes, None when it is not known."""
    tail = name.rsplit(".", 1)[-1]
    if name.startswith(("torch.nn.", "torch.jit.ScriptModule")) and tail[:1].isupper():
        return _nn_kind(tail)
    if name.startswith("torch.optim.lr_scheduler."):
        return Kind.SCHEDULER
    if name.startswith("torch.optim.") and tail[:1].isupper():
        return Kind.OPTIMIZER
    if tail == "DataLoader" and name.split(".")[0] in ("torch", "monai"):
        return Kind.LOADER
    if name.startswith("torch.utils.data"):
        return _data_kind(tail)
    if name.startswith("torchvision.datasets."):
        return Kind.DATASET
    if tail == "GradScaler" and name.startswith("torch."):
        return Kind.SCALER
    if tail == "SummaryWriter" or name in TRACKERS:
        return Kind.TRACKER
    return None


def _nn_kind(tail: str) -> Kind | None:
    if tail in ("Parameter", "DataParallel", "DistributedDataParallel"):
        return None
    return Kind.CRITERION if tail.endswith("Loss") else Kind.MODEL


def _data_kind(tail: str) -> Kind | None:
    if tail.endswith("Sampler"):
        return Kind.SAMPLER
    return Kind.DATASET if tail.endswith("Dataset") or tail == "Subset" else None


def call_external(m: Machine, f: Frame, name: str, call: Call) -> Value:
    """The result of calling a library's function or class."""
    tail = name.rsplit(".", 1)[-1]
    special = _special(m, f, name, tail, call)
    if special is not None:
        return special
    kind = class_kind(name)
    if kind is not None:
        thing = m.make(kind, f, call.site, name)
        describe(m, thing, call)
        return one(thing)
    if name.startswith(MODEL_SOURCES):
        return one(m.make(Kind.MODEL, f, call.site, name))
    return _of_process(m, f, name, call, _function_result(m, f, name, tail, call))


def _special(m: Machine, f: Frame, name: str, tail: str, call: Call) -> Value | None:
    if tail in WRAPPERS and name.startswith(("torch.", "apex.")):
        return _wrap_call(m, f, tail, call)
    if name.startswith(f"{INSTALLED}."):
        return helper_calls.call_helper(m, f, tail, call)
    if name in STANDARD:
        return standard_calls.call_standard(m, f, name, call)
    if name.startswith("builtins."):
        return builtin_calls.call_builtin(m, f, tail, call)
    if name.startswith("tqdm."):
        return _progress(m, f, tail, call)
    if name in words.NAMESPACES:
        thing = m.make(Kind.INSTANCE, f, call.site, name)
        thing.attrs.update(call.kwargs)
        return one(thing)
    if name == words.PARTIAL and call.args:
        return _partial(call)
    if name in PASS_THROUGH and call.args:
        return call.args[0]
    if name in ITERATES:
        return iterates(m, f, call, join(*[m.element_of(f, a) for a in call.args]))
    return _ambient(m, f, name, tail, call)


def _ambient(m: Machine, f: Frame, name: str, tail: str, call: Call) -> Value | None:
    """What differs from process to process: rank, clock, random numbers, the file system."""
    if name in RANK_CALLS:
        return one(m.make(Kind.RANK, f, call.site, name))
    if name in words.SIZE_CALLS:
        return one(m.make(Kind.WORLD, f, call.site, name))
    if name.startswith("os.") and (tail == "getenv" or ".environ" in name):
        return environment(m, f, call.arg(0, "key"), call.site)
    if name in CLOCKS:
        return Value((), frozenset({m.make(Kind.CLOCK, f, call.site, name)}))
    if name.startswith(("random.", "numpy.random.")):
        made = () if _seeded(name, call) else (m.make(Kind.RANDOM, f, call.site, name),)
        drawn = frozenset(made)
        shape = computed(*call.args, *call.kwargs.values())
        sized = any(_counts(v) for v in (*call.args, *call.kwargs.values()))
        return Value((), drawn | shape.deps, Measure.SAMPLES if sized else Measure.UNIFORM)
    return None


def _seeded(name: str, call: Call) -> bool:
    """A generator that each process makes of the same seed: its draws are the same, too."""
    return name in words.GENERATORS and any(v != constant(None) for v in call.args)


def _of_process(m: Machine, f: Frame, name: str, call: Call, value: Value) -> Value:
    """``value`` with what each process has for itself: torch's draws, the answers of files."""
    if name in words.FILE_TESTS:
        return value.but(deps=value.deps | {m.make(Kind.FILES, f, call.site, name)})
    if name.startswith(_TORCH_DRAWS) and "generator" not in call.kwargs:
        return value.but(deps=value.deps | {m.make(Kind.RANDOM, f, call.site, name)})
    return value


def _partial(call: Call) -> Value:
    """The same callables, which remember the arguments they have already."""
    given = Partial(call.args[1:], dict(call.kwargs))
    if not given.args and not given.kwargs:
        return call.args[0]
    return Value(
        tuple(replace(t, details={**t.details, Partial: given}) for t in call.args[0].things)
    )


def environment(m: Machine, f: Frame, key: Value | None, site: Site) -> Value:
    """A read of ``os.environ``."""
    if key is not None and key.known and key.const in RANK_VARIABLES:
        return one(m.make(Kind.RANK, f, site, str(key.const)))
    return NOTHING


def _function_result(m: Machine, f: Frame, name: str, tail: str, call: Call) -> Value:
    if name in ("torch.load", "pickle.load", "torch.utils.model_zoo.load_url"):
        return one(m.make(Kind.CHECKPOINT, f, call.site, name))
    if name in ("torch.utils.data.random_split",):
        return _split(m, f, call)
    if name == "torch.device":
        return one(m.make(Kind.DEVICE, f, call.site, name))
    if name in ("csv.writer", "csv.DictWriter"):
        return one(
            m.make(Kind.UNKNOWN, f, call.site, name), flat_deps(call.args[0]) if call.args else ()
        )
    if name == "logging.getLogger":
        return one(m.make(Kind.LOGGER, f, call.site, name))
    if name in ("wandb.init", "neptune.init_run", "comet_ml.Experiment"):
        return one(m.make(Kind.TRACKER, f, call.site, name))
    if name in ("argparse.ArgumentParser", "configargparse.ArgumentParser"):
        return one(m.make(Kind.INSTANCE, f, call.site, name))
    measured = sums.made(name, call) or _measured(m, f, name, tail, call)
    if measured is not None:
        return rows.function(name, tail, call, measured)
    return call_unknown(m, f, None, call)


def call_unknown(m: Machine, f: Frame, callee: Thing | None, call: Call) -> Value:
    """An unknown callable makes an unknown thing, remembered by where it is made."""
    values = (*call.args, *call.kwargs.values())
    deps = computed(*values) if values else NOTHING
    if callee is not None and callee.part_of is not None:
        return deps
    thing = m.make(Kind.UNKNOWN, f, call.site, callee.name if callee is not None else call.name)
    made_by(thing, call, deps.deps)
    return one(thing, deps.deps, deps.measure)


def describe(m: Machine, thing: Thing, call: Call) -> None:
    """Remember the arguments that rules ask for later."""
    made_by(thing, call)
    if thing.kind is Kind.LOADER:
        names = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler")
        given = {name: call.arg(position, name) for position, name in enumerate(names)}
        thing.describe(LoaderArguments(**given, drop_last=call.kwargs.get("drop_last")))
    elif thing.kind is Kind.OPTIMIZER:
        thing.describe(Optimized(call.arg(0, "params") or NOTHING))
    elif thing.kind is Kind.CRITERION:
        thing.describe(Reduction(_reduction(call)))
    elif thing.kind is Kind.DATASET and call.args:
        thing.inner = call.args[0]


def _reduction(call: Call) -> Measure:
    given = call.kwargs.get("reduction")
    for old in ("size_average", "reduce"):
        if old in call.kwargs and call.kwargs[old].known:
            return Measure.MEAN if call.kwargs[old].const else Measure.SUM
    if given is None:
        return Measure.MEAN
    names = {"mean": Measure.MEAN, "sum": Measure.SUM, "none": Measure.SAMPLES}
    return names.get(given.const, Measure.MIXED) if given.known else Measure.MIXED


def criterion_result(m: Machine, f: Frame, thing: Thing, call: Call) -> Value:
    """The loss a criterion object gives for a batch."""
    reduction = thing.detail(Reduction)
    loss = _loss(call, reduction.measure if reduction is not None else Measure.MIXED)
    return _over_count(m, f, loss, call, call_that_made(thing), 0)


def _over_count(
    m: Machine, f: Frame, loss: Value, call: Call, made: Call | None, weight: int
) -> Value:
    """A loss, as a mean over a count that differs between ranks where it is one."""
    varies = made is not None and varying_count(made, weight)
    if loss.measure is Measure.RATIO or (loss.measure is Measure.MEAN and varies):
        mean = CountMean(m.where(f), call=call, made=made if varies else None)
        return counts.over(m, f, loss, call.site, mean)
    return loss


def varying_count(call: Call, weight: int) -> bool:
    """Whether a cross entropy divides by class weights or by the targets not ignored.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    tail = call.name.rsplit(".", 1)[-1].lower().replace("_", "")
    if tail not in ("crossentropyloss", "nllloss", "crossentropy"):
        return False
    given = (call.arg(weight, "weight"), call.kwargs.get("ignore_index"))
    return any(value is not None and value != constant(None) for value in given)


def _loss(call: Call, reduction: Measure) -> Value:
    values = (*call.args, *call.kwargs.values())
    local = {flat_measure(v) for v in values} - {Measure.UNIFORM}
    if local == {Measure.PICKED}:  # a term per picked entry
        reduction = measures.OF_PICKED.get(reduction, Measure.MIXED)
    elif local - {Measure.SAMPLES}:  # packed, or mixed with a mean: not one term per sample
        reduction = Measure.MIXED
    return computed(*values, measure=reduction if local else Measure.UNIFORM)


def reduced(
    m: Machine,
    f: Frame,
    how: str,
    measure: Measure,
    axis: object,
    call: Call,
    values: tuple[Value, ...],
) -> Value:
    """``x.sum(axis)`` or ``x.mean(axis)``: perhaps a count, or a mean over one."""
    value = computed(*values, measure=measures.reduce_samples(measure, how, axis))
    if value.measure is Measure.RATIO and measure is Measure.PICKED:
        return counts.over(m, f, value, call.site, CountMean(m.where(f), call=call))
    return counts.tally(m, f, value, call.site) if measure in measures.ENTRIES else value


def picked(call: Call, values: tuple[Value, ...]) -> Value:
    """What a mask picks of samples, also as a tuple of indices."""
    part = computed(*values, measure=Measure.PICKED)
    pieces = "as_tuple" in call.kwargs or call.name == "torch.where"
    return part.but(things=(Thing(Kind.ITERATOR, call.site, inner=part),)) if pieces else part


def _measured(m: Machine, f: Frame, name: str, tail: str, call: Call) -> Value | None:
    """torch's functions on tensors with a batch axis."""
    if not name.startswith(("torch.", "numpy.")) or not call.args:
        return None
    first = call.args[0]
    if name.startswith("torch.nn.functional.") and _is_loss(tail):
        return _over_count(m, f, _loss(call, _reduction(call)), call, call, 2)
    if tail in ("sum", "mean"):
        axis = call.arg(1, "dim") or call.arg(1, "axis")
        given = None if axis is None else (axis.const if axis.known else "unknown")
        return reduced(m, f, tail, flat_measure(first), given, call, call.args)
    if tail in measures.CREATES and _counted(call):
        return computed(*call.args, measure=Measure.SAMPLES)
    if tail in counts.CLAMPS and first.of(Kind.TALLY):
        return counts.kept(m, f, first, tail, call)
    if first.measure in measures.ENTRIES:
        found = _on_entries(m, f, tail, call)
        if found is not None:
            return found
    if name in ("torch.cat", "torch.stack", "numpy.concatenate", "torch.autograd.Variable"):
        local = {m for v in call.args for m in _held(v)} - {Measure.UNIFORM}
        if tail in ("cat", "concatenate") and first.rows:  # of each sample some, end to end
            return computed(*call.args, measure=Measure.PICKED)
        return computed(*call.args, measure=local.pop() if len(local) == 1 else None)
    return None


def _on_entries(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    """A function of a tensor with entries of samples, None when it is not followed."""
    first = call.args[0]
    if tail in counts.PICKS or (tail == "where" and len(call.args) == 1):
        return picked(call, call.args)
    if tail in counts.SIZES:
        return counts.size(m, f, first, call.site)
    if tail == "count_nonzero" and len(call.args) == 1 and not call.kwargs:
        counted = counts.without_gradient(computed(first, measure=Measure.SUM))
        return counts.tally(m, f, counted, call.site)
    if mixes_samples(tail, call, 1):
        mixed = computed(*call.args, *call.kwargs.values(), measure=Measure.MIXED)
        return pair(call, mixed) if tail in measures.RANKINGS or len(call.args) > 1 else mixed
    if tail in measures.ELEMENTWISE_FUNCTIONS:
        part = computed(*call.args, measure=first.measure)
        return pair(call, part) if tail in measures.PAIR_RESULTS and len(call.args) > 1 else part
    return None


def _held(value: Value) -> list[Measure]:
    """The measures of a list's entries, or of the value itself."""
    entries = [entry for thing in value.things for entry in thing.items or ()]
    return [entry.measure for entry in entries] if entries else [flat_measure(value)]


def _counted(call: Call) -> bool:
    """Whether a new tensor gets one row per sample of a batch."""
    return any(_counts(value) for value in (*call.args[:1], *call.kwargs.values()))


def _counts(value: Value) -> bool:
    """A number of samples, or a shape that begins with one."""
    first = value.things[0].items if value.things else None
    return (first[0] if first else value).measure is Measure.COUNT


def mixes_samples(name: str, call: Call, given: int) -> bool:
    """Whether a call looks along the batch; ``given``: how many arguments come before its own."""
    place = {**measures.EXTREMES, **measures.RANKINGS}.get(name)
    if place is None:
        return False
    axis = call.arg(place + given, "dim") or call.arg(place + given, "axis")
    return measures.mixes_samples(name, axis)


def pair(call: Call, part: Value) -> Value:
    """``values, indices`` of max, topk, sort."""
    return Value((Thing(Kind.TUPLE, call.site, items=(part, part)),), part.deps, part.measure)


def _is_loss(tail: str) -> bool:
    return tail.endswith(("_loss", "cross_entropy", "_with_logits")) or tail == "kl_div"


def _wrap_call(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    inner = call.arg(0, "module") or NOTHING
    m.parallel |= tail == "DataParallel"
    if tail == "DataParallel" and m.drop_data_parallel:
        for thing in inner.of(Kind.UNKNOWN):
            thing.kind = Kind.MODEL
        return inner
    return wrapping.wrap(m, f, inner, call.site, f"torch.nn.parallel.{tail}")


def _progress(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    if tail == "write":
        return NOTHING
    thing = m.make(Kind.PROGRESS, f, call.site, call.name)
    over = call.arg(0, "iterable")
    thing.inner = over if over is not None else NOTHING
    if tail == "trange":
        thing.describe(NumbersPasses())
    made_by(thing, call)
    return one(thing)


def _split(m: Machine, f: Frame, call: Call) -> Value:
    parts = []
    for index in range(4):
        part = m.make(Kind.DATASET, f, call.site, f"split {index}")
        part.inner = call.args[0] if call.args else NOTHING
        parts.append(one(part))
    return one(Thing(Kind.TUPLE, call.site, items=tuple(parts)))
