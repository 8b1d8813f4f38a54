"""The choices of one run, from ``[tool.ddpify]`` and from flags.

Frozen and complete before anything is analysed, so that no layer asks the environment.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_ACCEPTED = re.compile(r"[A-Z]+\d{3}@.+:\d+")


StrategyName = Literal["ddp", "fsdp"]
LauncherName = Literal["", "torchrun", "slurm", "torchx", "kubernetes"]
LAUNCHERS = ("torchrun", "slurm", "torchx", "kubernetes")


class SettingsError(Exception):
    """A setting is unknown or has a wrong value; the message is one sentence for the user."""


@dataclass(frozen=True)
class Settings:
    """What the user chose.

    ``lr_scale``: how the learning rate grows with the global batch where the batch size is kept on
    each rank, within ``warmup_steps`` steps. ``runtime_module`` is the dotted name of the vendored
    helper module, "" to let ddpify choose; ``batch_dim`` is the axis of samples in batches that
    come from no loader; ``whole_batches``: rather than refuse, let ranks have whole batches of
    which models compute its rows; ``sync_bn`` "auto" means: where one process saw the whole batch,
    ``find_unused`` "auto": where the reading finds parameters that may get no gradient.
    ``static_graph`` and ``bucket_cap`` (MiB) go to DistributedDataParallel. ``fsdp_wrap`` are the
    classes of what is sharded alone, empty for those that repeat in a list; ``fsdp_bf16``: compute
    in bfloat16, reduce in float32; ``fsdp_offload``: keep shards on the CPU; ``fsdp_hybrid``: shard
    within a node, replicate over nodes; ``fsdp_recompute``: forget activations of these modules
    until the backward; ``fsdp_reshard``: and their weights; ``fsdp_meta``: build the model on rank
    0 alone, its shapes on the others; ``fsdp_min_params``: shard other parts alone, too, that have
    so many numbers; ``checkpoint``: whole files of rank 0, or a directory of all
    ranks' shards, which async ones write as the run goes on. An empty ``select`` means every rule.
    Select and ignore hold code prefixes. Patterns of files
    (``per_file_ignores``, ``exclude``) are those of a .gitignore beside the pyproject.toml.
    ``accept`` are refusals that are taken for right, each a ``RULE@file:line``. ``launcher``: what
    starts the program on ``nodes`` nodes with ``gpus_per_node`` GPUs each, "" for no start file.
    """

    strategy: StrategyName = "ddp"
    runtime: Literal["vendor", "import"] = "vendor"
    runtime_module: str = ""
    batch_size: Literal["global", "per-rank"] = "global"
    lr_scale: Literal["none", "linear", "sqrt"] = "none"
    warmup_steps: int | None = None
    batch_dim: int | None = None
    whole_batches: bool = True
    sync_bn: Literal["auto", "on", "off"] = "auto"
    find_unused: Literal["auto", "on", "off"] = "auto"
    static_graph: bool = False
    bucket_cap: int | None = None
    fsdp_wrap: tuple[str, ...] = ()
    fsdp_bf16: bool = False
    fsdp_offload: bool = False
    fsdp_hybrid: bool = False
    fsdp_recompute: bool = False
    checkpoint: Literal["whole", "sharded", "sharded-async"] = "whole"
    fsdp_reshard: bool = True
    fsdp_meta: bool = False
    fsdp_min_params: int | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    launcher: LauncherName = ""
    nodes: int | None = None
    gpus_per_node: int | None = None
    line_length: int | None = None

    def wants(self, rule: str) -> bool:
        """Whether the rule with this id is switched on: the longest prefix that fits decides."""
        select = (*(self.select or ("",)), *self.extend_select)
        return decided(rule, select, self.ignore) is True


def decided(rule: str, select: tuple[str, ...], ignore: tuple[str, ...]) -> bool | None:
    """Whether one choice switches a rule on; None: the choice does not speak of the rule."""
    on, off = _fit(rule, select), _fit(rule, ignore)
    return None if on == off == -1 else on > off


def _fit(rule: str, prefixes: tuple[str, ...]) -> int:
    """How much of the code the longest of these prefixes covers; -1 if none does."""
    lengths = (len(one) for one in prefixes if rule.startswith(one))
    return max(lengths, default=-1)


def load(start: Path, flags: Mapping[str, object]) -> Settings:
    """Settings of the project that holds ``start``; a flag that is None, or (), was not given.

    Raises:
        SettingsError: the project's ``pyproject.toml`` or a flag cannot be used.
    """
    found = _pyprojects(start)
    settings = _read(found) if found else Settings()
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    config = cast("tuple[str, ...]", given.pop("config", ()))
    settings = replace(settings, **_values(_configured(config), "--config "))
    if "accept" in given:
        given["accept"] = (*settings.accept, *cast("tuple[str, ...]", given["accept"]))
    return checked(replace(settings, **given), "")  # type: ignore[arg-type]


def nearest_pyproject(start: Path) -> Path | None:
    """The file that ``load`` reads: the nearest with ``[tool.ddpify]``, else the nearest.

    Raises:
        SettingsError: one on the way is not TOML.
    """
    found = _pyprojects(start)
    return _own(found)[0] if found else None


def _pyprojects(start: Path) -> list[tuple[Path, Mapping[str, Any]]]:
    """Each ``pyproject.toml`` in ``start`` or above, with ``[tool]``, up to the first of ours."""
    absolute = start.absolute()
    found: list[tuple[Path, Mapping[str, Any]]] = []
    for folder in (absolute, *absolute.parents):
        file = folder / "pyproject.toml"
        if os.path.isfile(file):
            found.append((file, _tool(file)))
            if "ddpify" in found[-1][1]:
                break
    return found


def _own(found: Sequence[tuple[Path, Mapping[str, Any]]]) -> tuple[Path, Mapping[str, Any]]:
    return found[-1] if "ddpify" in found[-1][1] else found[0]


def toml(file: Path) -> dict[str, Any]:
    """What a file says. Raises OSError, UnicodeDecodeError or TOMLDecodeError, a ValueError."""
    with file.open("rb") as stream:
        return tomllib.load(stream)


def parsed_toml(text: str) -> dict[str, Any]:
    """What a text says. Raises TOMLDecodeError, a ValueError."""
    return tomllib.loads(text)


def _tool(file: Path) -> Mapping[str, Any]:
    try:
        tool = toml(file).get("tool", {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read ({error})") from error
    if not isinstance(tool, dict):
        raise SettingsError(f"{file}: [tool] must be a table")
    return tool


def _read(found: Sequence[tuple[Path, Mapping[str, Any]]]) -> Settings:
    """Settings of the file that counts; the formatter that is nearest says how long lines are."""
    file, tool = _own(found)
    table = tool.get("ddpify", {})
    where = f"{file}: [tool.ddpify] "
    if not isinstance(table, dict):
        raise SettingsError(f"{where}must be a table")
    values = _values(table, where)
    lengths = (_formatter_line_length(tool) for _, tool in found)
    values.setdefault("line_length", next(filter(None, lengths), None))
    return checked(replace(Settings(), **values), where)


def _values(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What a table says, by the names of the fields. Raises SettingsError."""
    known = {field.name.replace("_", "-"): field.name for field in fields(Settings)}
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise SettingsError(f"{where}has no key {unknown[0]!r}; keys are {', '.join(known)}")
    return {known[key]: _frozen(value) for key, value in table.items()}


def _configured(given: Sequence[str]) -> dict[str, Any]:
    """The table that these are; a value that is no TOML is a word. Raises SettingsError."""
    table: dict[str, Any] = {}
    for one in given:
        key, equals, value = (part.strip() for part in one.partition("="))
        if not equals:
            raise SettingsError(f"--config {one}: must be KEY=VALUE, as line-length=88")
        try:
            table[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            table[key] = value
    return table


def checked(settings: Settings, where: str) -> Settings:
    """``settings``, when every value can be used. Raises SettingsError."""
    for name, (sentence, valid) in _VALID.items():
        value = getattr(settings, name)
        if not valid(value):
            key = name.replace("_", "-")
            raise SettingsError(f"{where}{key} must be {sentence}, not {value!r}")
    _of_the_strategy(settings, where)
    if settings.lr_scale != "none" and settings.batch_size == "global":
        why = "the global batch, and with it the learning rate, stay what they were"
        raise SettingsError(f"{where}lr-scale goes with batch-size per-rank: else {why}")
    if settings.warmup_steps is not None and settings.lr_scale == "none":
        raise SettingsError(f"{where}warmup-steps goes with lr-scale: the rate grows up to that")
    for name in ("nodes", "gpus_per_node"):
        if getattr(settings, name) is not None and not settings.launcher:
            key = name.replace("_", "-")
            raise SettingsError(f"{where}{key} goes with launcher: it is said in the start file")
    return settings


def _of_the_strategy(settings: Settings, where: str) -> None:
    """Options of the other strategy would do nothing: that is said. Raises SettingsError."""
    for name in _OTHERS[settings.strategy]:
        if getattr(settings, name) != getattr(Settings(), name):
            other = "fsdp" if settings.strategy == "ddp" else "ddp"
            raise SettingsError(f"{where}{name.replace('_', '-')} goes with strategy {other}")


def of_strategy(settings: Settings, strategy: StrategyName) -> Settings:
    """The same choices for a strategy: those that go with the other one are as by default."""
    theirs = {name: getattr(Settings(), name) for name in _OTHERS[strategy]}
    return replace(settings, strategy=strategy, **theirs)


def _is_codes(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(code, str) and code for code in value)


def _is_names(value: object) -> bool:
    return _is_codes(value) and all(one.isidentifier() for one in cast("tuple[str]", value))


def _is_ignores(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) and _is_codes(one[1])
        for one in value
    )


def _is_module(value: object) -> bool:
    return isinstance(value, str) and (
        not value or all(part.isidentifier() for part in value.split("."))
    )


def _is_axis(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_accepted(value: object) -> bool:
    return _is_codes(value) and all(_ACCEPTED.fullmatch(one) for one in cast("tuple[str]", value))


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 20 <= value <= 500


_OTHERS: Mapping[str, Sequence[str]] = {  # what goes with the other strategy
    "ddp": [*(f.name for f in fields(Settings) if f.name.startswith("fsdp_")), "checkpoint"],
    "fsdp": ["static_graph", "bucket_cap", "find_unused"],
}
_SWITCH = ('"auto", "on" or "off"', lambda value: value in ("auto", "on", "off"))
_VALID: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "strategy": ('"ddp" or "fsdp"', lambda value: value in ("ddp", "fsdp")),
    "runtime": ('"vendor" or "import"', lambda value: value in ("vendor", "import")),
    "runtime_module": ("a dotted module name", _is_module),
    "batch_size": ('"global" or "per-rank"', lambda value: value in ("global", "per-rank")),
    "lr_scale": ('"none", "linear" or "sqrt"', lambda value: value in ("none", "linear", "sqrt")),
    "warmup_steps": ("a number from 1", lambda n: n is None or (_is_axis(n) and n != 0)),
    "batch_dim": ("a number from 0", lambda value: value is None or _is_axis(value)),
    "whole_batches": ("true or false", lambda value: isinstance(value, bool)),
    "sync_bn": _SWITCH,
    "find_unused": _SWITCH,
    "static_graph": ("true or false", lambda value: isinstance(value, bool)),
    "bucket_cap": ("a number of MiB from 1", lambda n: n is None or (_is_axis(n) and n != 0)),
    **{
        f"fsdp_{name}": ("true or false", lambda value: isinstance(value, bool))
        for name in ("bf16", "offload", "hybrid", "recompute", "reshard", "meta")
    },
    "checkpoint": (
        '"whole", "sharded" or "sharded-async"',
        lambda value: value in ("whole", "sharded", "sharded-async"),
    ),
    "fsdp_min_params": ("a number from 1", lambda n: n is None or (_is_axis(n) and n != 0)),
    "fsdp_wrap": ("a list of names of classes", _is_names),
    "select": ("a list of rule codes", _is_codes),
    "ignore": ("a list of rule codes", _is_codes),
    "extend_select": ("a list of rule codes", _is_codes),
    "per_file_ignores": ("a table of file patterns, each with a list of rule codes", _is_ignores),
    "exclude": ("a list of file patterns", _is_codes),
    "accept": ("a list of refusals, each RULE@file:line as the refusal says", _is_accepted),
    "launcher": (
        '"torchrun", "slurm", "torchx" or "kubernetes"',
        lambda value: value in ("", *LAUNCHERS),
    ),
    "nodes": ("a number from 1", lambda n: n is None or (_is_axis(n) and n != 0)),
    "gpus_per_node": ("a number from 1", lambda n: n is None or (_is_axis(n) and n != 0)),
    "line_length": ("a whole number from 20 to 500", lambda n: n is None or _is_length(n)),
}


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _frozen(one)) for key, one in value.items())
    return tuple(value) if isinstance(value, list) else value


def _formatter_line_length(tool: Mapping[str, Any]) -> int | None:
    """What the formatter is told, or does untold; ruff's table may be there for its rules."""
    for name, untold in (("black", 88), ("ruff", None)):
        table = tool.get(name)
        if isinstance(table, dict):
            length = table.get("line-length", untold)
            return length if isinstance(length, int) and _is_length(length) else None
    return None
