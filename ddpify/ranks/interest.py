"""Which files and functions can matter at all: decided from the text, before anything is parsed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ddpify.ranks import words
from ddpify.ranks.memory import TextMemory
from ddpify.ranks.modules import ClassDefinition, FunctionDefinition, Module

# A file that says none of these is not about several processes. Plain texts: looking for one is
# many times faster than an expression with as many branches.
_DISTRIBUTED = (
    "torch.distributed",
    "from torch import distributed",
    "DistributedDataParallel",
    "DistributedSampler",
    "FullySharded",
    "fully_shard",
    "init_process_group",
    "ddp_utils",
)
_FRAMEWORK = re.compile(
    r"(?:from|import)[ \t][\w., \t]*"
    r"\b(?:accelerate|deepspeed|horovod|mpi4py|(?:pytorch_)?lightning)"
)
_METRICS = "torchmetrics"  # its objects put together what all ranks have, where they compute
_FRAMEWORKS = ("accelerate", "deepspeed", "horovod", "mpi4py", "lightning")
# What a program with the Hugging Face Trainer asks where it means several processes.
ASKED = (
    *("is_world_process_zero", "is_local_process_zero", "local_rank", "process_index"),
    *("should_save", "fsdp=", "deepspeed=", "ddp_find_unused_parameters="),
)
# What a function of a distributed project has to say to be entered, beside the words of the rules:
# who communicates, who is who, what is trained on what, what each rank has for itself.
_HOT = tuple(
    "distributed dist. all_reduce all_gather allreduce barrier broadcast rank world_size RANK"
    " WORLD_SIZE is_main is_master master_process DataParallel DDP FSDP fully_shard process_group"
    " spawn( Accelerator Fabric Trainer DataLoader Sampler Dataset nn.Module nn.Sequential"
    " torch.compile deepcopy .parameters() .Adam .SGD optim. backward( prepare( .apply( no_grad"
    " autocast time.time monotonic perf_counter random shuffle environ parse_args yield"
    " instantiate LightningCLI sys.exit torchmetrics.".split()
)
# What a model's forward, entered at every call, has to say.
_NARROW = re.compile(
    r"\bdist\.|distributed\.|all_reduce|all_gather|get_rank|barrier\(|broadcast|random\.(random|choice)"
)
# A property, of which some communicate: ``logger.global_avg``.
_PROPERTY = re.compile(r"@(?:functools\.)?(?:cached_)?property\s+def (\w+)")
_MEETS = re.compile(r"all_reduce|all_gather|barrier\(|broadcast|reduce\(")
# What a function is decorated with that has a model compute, and trains none.
_EVALUATES = re.compile(r"\b(?:no_grad|inference_mode)\b")
# What makes and keeps the objects that mpi4py sends: of a program without torch, all is read.
_OBJECTS = ("np.", "numpy.", "self.", "return ")
_TORCH = ("import torch", "from torch")
# What draws random numbers, as it is mostly written.
_DRAWS = re.compile(
    r"\brand(?:n|int|perm|n_like|_like)?\(|random\.\w+\(|permutation\(|torch\.normal\("
)
# Imports from which collectives may come.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+((?:torch|accelerate|lightning)[\w.]*)[ \t]+import[ \t]*"
    r"(\([^)]*\)|[^\n]*)|import[ \t]+(torch(?:\.|metrics)[\w.]*)[ \t]+as[ \t]+(\w+))",
    re.MULTILINE,
)
_IMPORTED = re.compile(r"([*\w]+)(?:[ \t]+as[ \t]+(\w+))?")
_COMMENT = re.compile(r"#[^\n]*")
_COMMUNICATING = (
    *(f"{words.DIST}{op}" for op in words.COLLECTIVES),
    *words.FUNCTIONS,
    *words.COLLECTIVE_CALLS,
)
# Their methods, of whatever receiver: `trainer.save_checkpoint(`.
_METHODS = tuple(
    sorted({f".{name.rpartition('.')[2]}(" for name in words.COLLECTIVE_CALLS} - {".step("})
) + tuple(sorted(f".{name}(" for name in (*words.COLLECTIVE_METHODS, "compute")))
# A meter: what it is given is the rank's own, and so is then what it holds.
_ADDS = re.compile(r"self\.\w+[ \t]*\+=")
# What an object collects: functions to call, or what each rank has.
_COLLECTS = re.compile(
    r"self\.\w+[^=\n]*=[ \t]*"
    r"(?:\[\]|\{\}|(?:list|dict|(?:collections\.)?OrderedDict)\(\)|(?:collections\.)?defaultdict\()"
)
# A function, or a class that may not be a model, whose ``__init__`` is a call of its name.
_DEF = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def[ \t]+(\w+)|class[ \t]+(\w+)[ \t]*(?:\(([^)]*)\))?)",
    re.MULTILINE,
)
_CALLED = re.compile(r"(\w+)\s*\(")
_SHORT = 24  # nodes of a question that is read wherever it is asked
_COMMON = frozenset(
    "__init__ forward __call__ get items append extend join format len range print int str float"
    " isinstance list dict set tuple zip enumerate super max min sum open getattr hasattr".split()
)


def says(text: str, words: tuple[str, ...]) -> bool:
    """Whether a text has one of the words."""
    return any(map(text.__contains__, words))


def called_here(text: str) -> re.Pattern[str] | None:
    """How a file spells calls of collectives: ``td.``, ``reduce(``; None if it imports none."""
    found: set[str] = set()
    concerned = says(text, (*_DISTRIBUTED, *_FRAMEWORKS, _METRICS))
    for match in _IMPORT.finditer(text) if concerned else ():
        place, names, module, alias = match.groups()
        if module:
            found.update(_spelled(module, alias))
            continue
        for name, other in _IMPORTED.findall(_COMMENT.sub("", names)):
            found.update(_spelled(f"{place}.{name}", other or name))
    spelled = "|".join(map(re.escape, sorted(found)))
    return re.compile(rf"(?<![\w.])(?:{spelled})") if found else None


def renamed(text: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """How a file calls what is wanted and imported by another name: ``Average(``."""
    imported = (names for _, names, _, _ in _IMPORT.findall(text) if " as " in names)
    renames = (pair for names in imported for pair in _IMPORTED.findall(_COMMENT.sub("", names)))
    return tuple(f"{other}(" for name, other in renames if other and says(name, wanted))


def _spelled(name: str, alias: str) -> Iterator[str]:
    """What stands where a name of a library is used, if it communicates or holds what does."""
    if name == f"{words.DIST}*":
        yield from (f"{op}(" for op in words.COLLECTIVES)
    known = words.canonical(name)
    if known in _COMMUNICATING or known.startswith(f"{_METRICS}."):
        yield f"{alias}("
    elif known == _METRICS or any(one.startswith(f"{known}.") for one in _COMMUNICATING):
        yield f"{alias}."


def is_distributed(text: str) -> bool:
    """Whether a file is about several processes."""
    if says(text, _DISTRIBUTED):
        return True
    if "transformers" in text and says(text, ASKED):
        return True
    return says(text, _FRAMEWORKS) and bool(_FRAMEWORK.search(text))


@dataclass
class Interest:
    """The functions worth entering, by name: those that say a hot word or call one that does."""

    hot: set[str] = field(default_factory=set)
    talks: set[str] = field(default_factory=set)  # those that narrowly say one, or call one
    words: tuple[str, ...] = _HOT
    opens: bool = False  # whether a process group is opened in one of the files
    mpi: bool = False  # whether mpi4py is imported
    _known: dict[FunctionDefinition, bool] = field(default_factory=dict)
    _called: dict[Module, re.Pattern[str] | None] = field(default_factory=dict)
    _renamed: dict[Module, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, texts: Iterable[str], more: Iterable[str] = (), memory: TextMemory | None = None
    ) -> Interest:
        """From the texts of all files that take part; ``more``: words that rules look for."""
        texts = [*texts]
        memory = memory or TextMemory()
        mpi = any("from mpi4py import" in text or "import mpi4py" in text for text in texts)
        plain = mpi and not any(says(text, _TORCH) for text in texts)
        met = (name for text in texts for name in memory.once(_meeting_properties, text))
        objects = (*(_OBJECTS if plain else ()), *met)
        wanted = tuple(dict.fromkeys((*_HOT, *_METHODS, *more, *objects)))
        calls: dict[str, set[str]] = {}
        hot: set[str] = set()
        talks: set[str] = set()
        opens = False
        for text in texts:
            opens = opens or "init_process_group(" in text
            told = memory.once(_told, text, wanted)
            hot |= told.hot
            talks |= told.talks
            for name, called in told.calls.items():
                calls.setdefault(name, set()).update(called)
        return cls(_closed(hot - _COMMON, calls), talks - _COMMON, wanted, opens, mpi)

    def enters(self, info: FunctionDefinition) -> bool:
        """Whether a call of it is read."""
        known = self._known.get(info)
        if known is None:
            text = info.text
            known = (
                says(text, self.words)
                or says(text, self._renames(info.module))
                or self.communicates(info)
                or bool(_ADDS.search(text) or _COLLECTS.search(text))
                or not self.hot.isdisjoint(info.called() - _COMMON)
                or _answers(info.node)
                or self._builds(info)
                or any(
                    map(
                        _EVALUATES.search,
                        map(ast.unparse, getattr(info.node, "decorator_list", ())),
                    )
                )
            )
            self._known[info] = known
        return known

    def _builds(self, info: FunctionDefinition) -> bool:
        """Whether it makes a model of its own file, or calls there what does: ``resnet18()``."""
        self._known[info] = False  # while it is asked about those that it calls
        here = info.module
        called = info.called() - {info.name} - _COMMON
        if any(map(_is_model, (here.classes[name] for name in called & here.classes.keys()))):
            return True
        return any(self.enters(here.functions[name]) for name in called & here.functions.keys())

    def _renames(self, module: Module) -> tuple[str, ...]:
        if module not in self._renamed:
            self._renamed[module] = renamed(module.source.text, self.words)
        return self._renamed[module]

    def communicates(self, info: FunctionDefinition) -> bool:
        """Whether a function calls a collective by a name that its file gives it."""
        if info.module not in self._called:
            self._called[info.module] = called_here(info.module.source.text)
        called = self._called[info.module]
        return called is not None and bool(called.search(info.text))

    def narrow(self, info: FunctionDefinition) -> bool:
        """Whether a model's forward is read: it, or a function it calls, says a word."""
        if _NARROW.search(info.text) or self.communicates(info):
            return True
        return not self.talks.isdisjoint(info.called())


@dataclass(frozen=True)
class _Told:
    """What the text of one file says of its functions; ``calls``: of those that say nothing."""

    hot: set[str]
    talks: set[str]
    calls: dict[str, set[str]]


def _told(text: str, wanted: tuple[str, ...]) -> _Told:
    told = _Told(set(), set(), {})
    called = called_here(text)
    said = tuple(filter(text.__contains__, wanted))  # few of them, of many functions
    said += renamed(text, said)
    for name, chunk in _chunks(text):
        communicates = called is not None and called.search(chunk) is not None
        if communicates or says(chunk, said):
            told.hot.add(name)
            if communicates or _NARROW.search(chunk):
                told.talks.add(name)
        else:
            told.calls.setdefault(name, set()).update(_CALLED.findall(chunk))
    return told


def _meeting_properties(text: str) -> tuple[str, ...]:
    """How a property is read in which ranks meet."""
    known = set(_PROPERTY.findall(text)) if "property" in text else set()
    if not known or not _MEETS.search(text):
        return ()
    return tuple(f".{n}" for n, chunk in _chunks(text) if n in known and _MEETS.search(chunk))


def draws(info: FunctionDefinition, depth: int = 3) -> bool:
    """Whether a function says that it draws, or what it calls and makes of its own file does."""
    if _DRAWS.search(info.text):
        return True
    here = info.module
    called = info.called() - {info.name}
    made = (here.classes[name].methods.get("__init__") for name in called & here.classes.keys())
    below = [*(here.functions[name] for name in called & here.functions.keys()), *made]
    return depth > 0 and any(draws(one, depth - 1) for one in below if one is not None)


def _answers(node: ast.AST) -> bool:
    """Whether a function only answers a question: ``return get_worker_info() is not None``."""
    body = getattr(node, "body", None)
    last = body[-1] if isinstance(body, list) and len(body) <= 2 else None
    asked = last.value if isinstance(last, ast.Return) else None
    return isinstance(asked, (ast.Compare, ast.BoolOp, ast.UnaryOp)) and (
        len([*ast.walk(asked)]) <= _SHORT
    )


def _is_model(info: ClassDefinition) -> bool:
    """By its own bases, as they are written: nothing is resolved yet."""
    return any(ast.unparse(base).endswith("Module") for base in info.node.bases)


def _chunks(text: str) -> Iterable[tuple[str, str]]:
    """The functions of a file, by name; what makes an object is called by that of its class."""
    found = list(_DEF.finditer(text))
    made = ""
    for match, following in zip(found, [*found[1:], None], strict=False):
        name, of_class, bases = match.groups()
        if of_class:
            made = "" if "Module" in (bases or "") else of_class
            continue
        chunk = text[match.end() : following.start() if following else len(text)]
        yield (made if name == "__init__" and made else name), chunk


def _closed(hot: set[str], calls: Mapping[str, set[str]]) -> set[str]:
    callers: dict[str, list[str]] = {}
    for name, called in calls.items():
        for one in called - _COMMON:
            callers.setdefault(one, []).append(name)
    todo = list(hot)
    while todo:
        for caller in callers.get(todo.pop(), ()):
            if caller not in hot and caller not in _COMMON:
                hot.add(caller)
                todo.append(caller)
    return hot
