"""DDP605: the local rank decides who writes a file that all nodes share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ddpify.ranks.model import ALL, RankCall, RankGuard, RankValue
from ddpify.ranks.origins import FILES, LOCAL_RANK, RANK, Origin
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS, TRAINING
from ddpify.rules.shared.doubts import asks
from ddpify.rules.shared.folders import spelled
from ddpify.rules.shared.nodes import asks_for_node, one_node
from ddpify.rules.shared.options import default_of, help_of, options_in
from ddpify.rules.shared.outputs import Write, by_all, checkpoints, difference, files, its_own
from ddpify.rules.shared.written import given_nodes, texts

# What names a disk or a folder of one node.
NODE_ROOTS = ("/tmp", "/dev/shm", "/local", "/scratch", "/var/tmp")
NODE_CALLS = frozenset(
    {"tempfile.gettempdir", "socket.gethostname", "socket.getfqdn", "platform.node", "os.uname"}
)

_OF_NODE: Final = re.compile(
    r"\bnode\b|\blocal(?:ly attached)? (?:disk|drive|ssd|nvme|scratch|storage)\b", re.IGNORECASE
)
_OF_ALL: Final = re.compile(r"\bshare[ds]?\b|\ball (?:the )?nodes\b", re.IGNORECASE)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per checkpoint that the first process of every node writes."""
    if one_node(run):
        return
    for write in checkpoints(run):
        guard = _by_local_rank(run, write.call)
        if guard is not None and not its_own(run, write) and not _on_node(write):
            yield Finding(
                "DDP605",
                write.call.site,
                f"the first process of every node writes this {write.noun}: damaged on a shared"
                " disk",
                Severity.NOTE if _meant_for_node(run, write) else Severity.WARNING,
                advice="ask for the global rank: RANK, or torch.distributed.get_rank()",
                because=((guard.site, "decided by the local rank"),),
            )
    for write in (*checkpoints(run), *files(run)):
        if _is_named_by_local_rank(run, write):
            yield Finding(
                "DDP605",
                write.call.site,
                "named by the local rank: on a shared disk each node writes over what the others"
                " have written",
                Severity.WARNING,
                advice="put the global rank into the name: RANK, or torch.distributed.get_rank()",
                because=tuple((o.site, "the local rank") for o in _of_node(write.path))[:1],
            )


def _is_named_by_local_rank(run: Run, write: Write) -> bool:
    """Whether ranks write different things under names in which there is but the local rank."""
    if write.call.name.startswith("logging.") or not _of_node(write.path):
        return False
    if not by_all(run, write.call) or _on_node(write):
        return False
    return bool(difference(run, write))


def _of_node(path: RankValue | None) -> list[Origin]:
    """Where a path, which nothing else sets apart, has the local rank from."""
    origins = path.all_origins if path is not None else ()
    alone = all(one.kind in (LOCAL_RANK, FILES) for one in origins)
    return sorted((o for o in origins if alone and o.kind == LOCAL_RANK), key=lambda o: o.site)


def _by_local_rank(run: Run, call: RankCall) -> RankGuard | None:
    """The condition on the local rank that lets one process of a node come here."""
    if call.ranks == ALL or not call.ranks:
        return None
    if any(guard.test.has(RANK) for guard in call.guards) or _left_by_rank(run, call):
        return None
    if any(asks(run, guard) for guard in call.guards if not guard.test.has(LOCAL_RANK)):
        return None
    known = [g for g in call.guards if g.test.has(LOCAL_RANK) and g.ranks != ALL]
    return known[-1] if known else None


def _left_by_rank(run: Run, call: RankCall) -> bool:
    """Whether other ranks have left a function before because of their global rank."""
    return any(
        leave.order < call.order and any(guard.test.has(RANK) for guard in leave.guards)
        for leave in run.exits
    )


def _on_node(write: Write) -> bool:
    """Whether the path is on a disk of the node, or may have the node's name in it."""
    call = write.call
    if write.path is not None and any(t.name in NODE_CALLS for t in write.path.sources()):
        return True
    if any(map(asks_for_node, call.way)):
        return True
    said = [*texts(given_nodes(call)), *(value.constant for value in call.given)]
    said += [spelled(write.path, 0)] if write.path is not None else []
    return any(isinstance(text, str) and text.startswith(NODE_ROOTS) for text in said)


def _meant_for_node(run: Run, write: Write) -> bool:
    """Whether the path begins with an option which is a folder of the node unless another is said
    (``--cache /tmp/rows``), or of which its help says that each node has its own."""
    if write.path is None:
        return False
    text = spelled(write.path, 0)
    begins = [one for one in options_in(write.path) if text.startswith(spelled(one, 0))]
    defaults = (default_of(run, one) for one in begins)
    if any(isinstance(one, str) and one.startswith(NODE_ROOTS) for one in defaults):
        return True
    helps = (help_of(run, one) for one in begins)
    return any(_OF_NODE.search(one) and not _OF_ALL.search(one) for one in helps)


RULE = Rule(
    "DDP605",
    "save-under-local-rank",
    "LOCAL_RANK is 0 once on every node. On several nodes with a shared disk, a checkpoint guarded"
    " by it is written by several processes at once, as if it were not guarded at all; it works"
    " only as long as there is one node.",
    "apex#886, imagenet18#16; BUGS K02",
    bad=(
        changed(
            PROCESS,
            ("dist.get_rank() == 0", "local_rank == 0"),
            ('"net.pt")\n', '"net.pt")  # DDP605\n'),
        ),
        changed(
            TRAINING, ("self.rank == 0", "self.gpu == 0"), ('"plain.pt")', '"plain.pt")  # DDP605')
        ),
    ),
    good=(
        PROCESS,
        TRAINING,
        changed(  # a copy for each node, on its own disk
            PROCESS,
            ("dist.get_rank() == 0", "local_rank == 0"),
            ('"net.pt"', '"/tmp/net.pt"'),
        ),
    ),
    lint=lint,
    severity=Severity.WARNING,
    fixes=False,
)
