"""DDP108: a port of its own where torchrun has already chosen one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ddpify.ranks.events import Store
from ddpify.ranks.model import ALL, RankCall, RankValue
from ddpify.ranks.origins import CLOCK, IDENTITY, RANDOM, Origin, Symbol
from ddpify.ranks.run import Run
from ddpify.ranks.values import text
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS
from ddpify.rules.shared.parents import SPAWN
from ddpify.rules.shared.taken import ports
from ddpify.site import Site

PORT = "MASTER_PORT"
_FIXED = re.compile(r"tcp://[^\s{}]+:\d+$")
_SAYS_RANK = re.compile(r"[?&](?:rank|world_size)=")
# A program that starts its own processes, or that another launcher starts, has its own port.
_OTHER_STARTS = re.compile(
    r"\bspawn\(|\bProcess\(|start_processes|SLURM_|OMPI_COMM|PMI_|MPI\.|ray\.|submitit"
    r"|elastic_launch|start_method"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per fixed port in a program that torchrun starts, and per address that each
    process chooses for itself."""
    for place, value in _chosen(run):
        why = next(
            (o for o in sorted(value.all_origins, key=lambda o: o.site) if _parts(run, o)), None
        )
        if why is not None:
            yield Finding(
                "DDP108",
                place,
                "each process waits at an address of its own: the group never comes together",
                Severity.ERROR,
                advice="choose it once, before the processes start, and hand it on",
                because=((why.site, why.told),),
            )
    for call, port in ports(run):
        yield Finding(
            "DDP108",
            call.site,
            f"every rank of a machine listens on port {port}: one has it, the others fail",
            Severity.ERROR,
            advice="listen on the rank with number 0 only, or add the local rank to the port",
        )
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


def _chosen(run: Run) -> Iterator[tuple[Site, RankValue]]:
    """The addresses that all processes set once they are started: of torchrun, or of a spawn."""
    session = run.session
    if session is None or run.frameworks or not session.everywhere or _is_alone(run):
        return
    spawned = {call.node for call in run.named(SPAWN)}
    method = session.arg(1, "init_method")
    if _SAYS_RANK.search(session.module.source.text):
        method = None  # `tcp://localhost:23456?rank=0`: no part of the address
    places: list[tuple[Store | RankCall, RankValue | None]] = [
        (one, one.value) for one in run.stores if _is_address(one)
    ]
    for place, value in [*places, (session, method)]:
        own = {one.node for one in place.stack} & spawned or _is_torchrun(run)
        unknown = any(isinstance(g.test.atoms[0], Symbol) for g in place.guards)
        given = value is not None and any("environ" in text(atom) for atom in value.atoms)
        if value is not None and own and place.ranks == ALL and not unknown and not given:
            yield place.site, value


def _is_address(one: Store) -> bool:
    return one.key in (PORT, "MASTER_ADDR") and one.element and "os.environ" in one.base.names()


def _is_alone(run: Run) -> bool:
    """Whether a program says of itself that it is one process."""
    sizes = [run.session.arg(3, "world_size")] if run.session is not None else []
    sizes += [one.value for one in run.stores if one.key == "WORLD_SIZE" and one.element]
    return any(size is not None and size.constant in (1, "1") for size in sizes)


def _parts(run: Run, origin: Origin) -> bool:
    """Whether processes come to other values: not by what was drawn before they were started."""
    drawn = origin.kind in (RANDOM, CLOCK) and origin.site not in run.shared
    return drawn or origin.kind in IDENTITY


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
    " starts: `client socket has timed out`. So does each process of a spawn that draws its port"
    " itself. And a server of the program's own that every rank starts finds its port taken:"
    " `OSError: [Errno 98] Address already in use` on all ranks of a machine but one (measured).",
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
    words=("getsockname", "Server(", ".bind(", "start_http_server(", "make_server("),
    fixes=False,
)
