"""DDP108: a port of its own where torchrun has already chosen one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS

PORT = "MASTER_PORT"
_FIXED = re.compile(r"tcp://[^\s{}]+:\d+$")
# A program that starts its own processes, or that another launcher starts, has its own port.
_OTHER_STARTS = re.compile(
    r"\bspawn\(|\bProcess\(|start_processes|SLURM_|OMPI_COMM|PMI_|MPI\.|ray\.|submitit"
    r"|elastic_launch|start_method"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per fixed port in a program that torchrun starts."""
    if run.session is None or run.frameworks or not _is_torchrun(run):
        return
    said: list[Store | RankCall] = [*_stores(run), *_updates(run), *_addresses(run)]
    for one in said:
        yield Finding(
            "DDP108",
            one.site,
            "torchrun's store listens on a port of its own: all ranks wait for another, in vain",
            Severity.ERROR,
            advice="leave MASTER_ADDR and MASTER_PORT to torchrun, or use os.environ.setdefault",
        )


def _is_torchrun(run: Run) -> bool:
    """Whether the ranks are those of the environment, and nobody else starts processes."""
    session = run.session
    if session is None or not session.everywhere:
        return False
    if any(_OTHER_STARTS.search(module.source.text) for module in run.modules.values()):
        return False
    rank = session.kwargs.get("rank")
    return rank is None or any(origin.what == "RANK" for origin in rank.origins)


def _stores(run: Run) -> Iterable[Store]:
    """`os.environ["MASTER_PORT"] = "…"`, on all ranks."""
    for store in run.stores:
        ours = store.key == PORT and store.element and "os.environ" in store.base.names()
        if ours and store.ranks == ALL and _is_fixed(store.value):
            yield store


def _updates(run: Run) -> Iterable[RankCall]:
    """`os.environ.update(MASTER_PORT="…")` and `update({"MASTER_PORT": "…"})`."""
    for call in run.calls:
        if call.name != "os.environ.update" or not call.everywhere:
            continue
        keys = dict(call.args[0].keys or ()) if call.args else {}
        value = call.kwargs.get(PORT) or keys.get(PORT)
        if value is not None and _is_fixed(value):
            yield call


def _is_fixed(value: RankValue) -> bool:
    return isinstance(value.constant, (str, int))


def _addresses(run: Run) -> Iterable[RankCall]:
    """`init_method="tcp://127.0.0.1:23456"`."""
    session = run.session
    method = session.arg(1, "init_method") if session is not None else None
    text = method.constant if method is not None else None
    if session is not None and isinstance(text, str) and _FIXED.match(text):
        yield session


RULE = Rule(
    "DDP108",
    "fixed-master-port",
    "Under torchrun the agent holds the store, on a port that it passes in MASTER_PORT, and no rank"
    " opens another. A program that writes its own port over it waits for a server that nobody"
    " starts: `client socket has timed out`.",
    "pytorch PR#89149, minimind#52, lightning#3957; BUGS L06",
    bad=(
        changed(
            PROCESS,
            (
                "    dist.init",
                '    os.environ["MASTER_PORT"] = "12355"  # DDP108\n    dist.init',
            ),
        ),
        changed(
            PROCESS,
            (
                'dist.init_process_group("nccl")',
                'dist.init_process_group("nccl", init_method="tcp://localhost:23456")  # DDP108',
            ),
        ),
    ),
    good=(
        PROCESS,
        changed(
            PROCESS,
            (
                "    dist.init",
                '    os.environ.setdefault("MASTER_PORT", "12355")\n    dist.init',
            ),
        ),
    ),
    lint=lint,
)
