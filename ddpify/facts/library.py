"""What the libraries of a training script make: torch, torchvision, tqdm, the runtime.

Names are qualified as imported. A call that is not listed gives an unknown thing that keeps
its identity, so that behaviour (`.parameters()`, `.step()`) can still tell what it is.
"""

from __future__ import annotations

from dataclasses import replace

from ddpify.facts import (
    batch_axis,
    builtin_calls,
    commands,
    copies,
    helper_calls,
    rows,
    sums,
    wrapping,
)
from ddpify.facts.builtin_calls import STANDARD
from ddpify.facts.criteria import reduction_of
from ddpify.facts.details import (
    LoaderArguments,
    NumbersPasses,
    Optimized,
    Partial,
    Reduction,
    made_by,
)
from ddpify.facts.events import Call
from ddpify.facts.iteration import iterates
from ddpify.facts.joining import computed, flat_deps, join
from ddpify.facts.library_classes import class_kind
from ddpify.facts.protocol import Machine
from ddpify.facts.roles import models_of_optimizer
from ddpify.facts.scopes import ClassInfo, Frame
from ddpify.facts.tensor_calls import is_batch_size, on_tensors
from ddpify.facts.values import MORE, NOTHING, REST, Kind, Measure, Thing, Value, constant, one
from ddpify.names import INSTALLED
from ddpify.python import words
from ddpify.source import Site

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
_OTHER_DRAWS = tuple(
    start for start, library in words.DRAWS if library in (words.PYTHON, words.NUMPY)
)
CLOCKS = words.CLOCKS | words.OWN_NUMBERS
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


def call_external(m: Machine, f: Frame, name: str, call: Call) -> Value:
    """The result of calling a library's function or class."""
    tail = name.rsplit(".", 1)[-1]
    if m.target.shards and name in words.CLIPS:
        return NOTHING  # a norm of all, which is made a plain tensor
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
        return builtin_calls.call_standard(m, f, name, call)
    if name.startswith("builtins."):
        return builtin_calls.call_builtin(m, f, tail, call)
    if name.startswith("tqdm."):
        return _progress(m, f, tail, call)
    if name in words.NAMESPACES:
        thing = m.make(Kind.INSTANCE, f, call.site, name)
        thing.attrs.update(call.kwargs)
        return one(thing)
    if name.startswith(words.APEX_AMP):
        return _apex(m, f, tail, call)
    return _handed_on(m, f, name, call) or _ambient(m, f, name, tail, call)


def _handed_on(m: Machine, f: Frame, name: str, call: Call) -> Value | None:
    """What calls, binds, wraps or goes through what it is given."""
    if name == words.PARTIAL and call.args:
        return _partial(call)
    if name == copies.DEEPCOPY and call.args:
        return copies.deepcopy(m, f, call)
    if name in PASS_THROUGH and call.args:
        return call.args[0]
    if name in ITERATES:
        return iterates(m, f, call, join(*[m.element_of(f, a) for a in call.args]))
    return None


def _apex(m: Machine, f: Frame, tail: str, call: Call) -> Value | None:
    """NVIDIA's apex, of one process: models and optimizers themselves, a loss times a number."""
    given = [call.arg(n, name) for n, name in enumerate(("models", "optimizers"))]
    if tail == "initialize" and given[0] is not None:
        both = tuple(value for value in given if value is not None)
        return one(Thing(Kind.TUPLE, call.site, items=both)) if given[1] else given[0]
    if tail == "scale_loss" and call.args:
        return call.args[0]
    if tail == "master_params" and call.args:
        owners = [t for o in call.args[0].of(Kind.OPTIMIZER) for t in models_of_optimizer(o)]
        made = m.make(Kind.PARAMETERS, f, call.site)
        made.inner = Value(tuple(owners))
        return one(made)
    return None


def _ambient(m: Machine, f: Frame, name: str, tail: str, call: Call) -> Value | None:
    """What differs from process to process: rank, clock, random numbers, the file system."""
    if name in commands.RUNNERS:
        return commands.run(m, f, call)
    if name in RANK_CALLS:
        return one(m.make(Kind.RANK, f, call.site, name))
    if name in words.SIZE_CALLS:
        return one(m.make(Kind.WORLD, f, call.site, name))
    if name.startswith("os.") and (tail == "getenv" or ".environ" in name):
        return environment(m, f, call.arg(0, "key"), call.site)
    if name in CLOCKS:
        return Value((), frozenset({m.make(Kind.CLOCK, f, call.site, name)}))
    if name.startswith(_OTHER_DRAWS):
        made = () if _seeded(name, call) else (m.make(Kind.RANDOM, f, call.site, name),)
        drawn = frozenset(made)
        shape = computed(*call.args, *call.kwargs.values())
        sized = any(is_batch_size(v) for v in (*call.args, *call.kwargs.values()))
        orders = _orders(m, f, call) if name == words.PERMUTES else ()
        measure = Measure.SAMPLES if sized else Measure.UNIFORM
        own = sized and rows.made(tail, call)
        return Value(orders, drawn | shape.deps, measure, rows=own)
    return None


def _orders(m: Machine, f: Frame, call: Call) -> tuple[Thing, ...]:
    """An order of a batch's samples: ``np.random.permutation(len(x))``."""
    if not call.args or call.args[0].measure is not Measure.COUNT:
        return ()
    made = m.make(Kind.UNKNOWN, f, call.site, call.name)
    made_by(made, call)
    return (made,)


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
    name = str(key.const) if key is not None and key.known else ""
    if name == "WORLD_SIZE":
        return one(m.make(Kind.WORLD, f, site, name))
    return one(m.make(Kind.RANK, f, site, name)) if name in RANK_VARIABLES else NOTHING


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
    if name in ("argparse.ArgumentParser", "configargparse.ArgumentParser"):
        return one(m.make(Kind.INSTANCE, f, call.site, name))
    if name == "torch.autograd.grad":
        return batch_axis.gradients(call)
    measured = sums.made(name, call) or on_tensors(m, f, name, tail, call)
    if measured is not None:
        measured = rows.function(name, tail, call, measured)
        return batch_axis.moved(tail, call, 1, call.args[0], measured) if call.args else measured
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
        told(thing, call)
    elif thing.kind is Kind.OPTIMIZER:
        thing.describe(Optimized(call.arg(0, "params") or NOTHING))
    elif thing.kind is Kind.CRITERION:
        own = thing.ref if isinstance(thing.ref, ClassInfo) else None
        given = own is not None and bool(call.args or call.kwargs or own.lookup("__init__"))
        # What a class of the project makes of its arguments, weights perhaps, is not read.
        thing.describe(Reduction(Measure.MIXED if given else reduction_of(call)))
    elif thing.kind is Kind.DATASET and call.args:
        thing.inner = call.args[0]


def told(loader: Thing, call: Call) -> None:
    """Remember what a loader is given, by this call of its class or of the library's."""
    names = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler")
    given = {name: call.arg(position, name) for position, name in enumerate(names)}
    for word in {MORE, REST} & call.kwargs.keys():  # whatever it is not given otherwise
        rest = call.kwargs[word]
        given = {name: rest if value is None else value for name, value in given.items()}
    loader.describe(LoaderArguments(**given, drop_last=call.kwargs.get("drop_last")))


def _wrap_call(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    inner = call.arg(0, "module") or NOTHING
    m.parallel |= tail == "DataParallel"
    if tail == "DataParallel" and m.target.drop_data_parallel:
        for thing in inner.of(Kind.UNKNOWN):
            thing.kind = Kind.MODEL
        return inner
    return wrapping.wrap(m, f, inner, call.site, f"torch.nn.parallel.{tail}")


def _progress(m: Machine, f: Frame, tail: str, call: Call) -> Value:
    if tail == "write":
        return NOTHING
    thing = m.make(Kind.PROGRESS, f, call.site, call.name)
    over = call.arg(0, "iterable") or NOTHING
    if thing.inner is not None and thing.inner.things != over.things:
        thing = Thing(Kind.PROGRESS, call.site, call.name)  # `tqdm(loaders[phase])`: another bar
    thing.inner = over
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
