"""The start file for machines without a scheduler: the same line is run on each of them."""

from __future__ import annotations

import shlex

from ddpify.clusters.model import ClusterJob, StartText, comment

SUFFIX = ".sh"
_TEXT = StartText("""\
#!/usr/bin/env bash
#
# Starts @@entry on @@size. Run the same line on each of them, in any order:
#
#     HEAD=node0 bash @@path
#
# HEAD is one of the nodes, by a name or address under which all of them reach it. Arguments
# behind the file's name go to @@entry, too.

# Ends at the first command that fails, and at a variable that nobody has set.
set -euo pipefail
# Relative paths of the program mean the same wherever this file is called from.
cd "$(dirname "${BASH_SOURCE[0]}")"@@folder

# Where the nodes meet. No default is right on more than one machine, so there is none@@but.
HEAD="${HEAD:@@unset}"
# A port of HEAD that is free, the same on all nodes. Two runs at a time need two. From 32768 on
# the system hands ports out by itself.
PORT="${PORT:-@@port}"
# Runs with the same id at the same place join each other: two runs at a time need two ids.
RUN_ID="${RUN_ID:-@@stem}"

# CPU threads of one process. torchrun takes 1 as well, with a warning; more than there are cores
# for all processes of the node together makes each of them slow.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# Nodes with several network cards: NCCL (GPU) and Gloo (CPU) take one that they find, which may
# lead nowhere; the first collective hangs then. Name it if that happens (`ip -brief address`).
# export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
# Says which network NCCL takes, and why it fails.
# export NCCL_DEBUG=INFO
@@environment@@arguments
# How long a node waits for HEAD to answer (read, 60 s by default) and for all others to come
# (join, 600 s by default), in seconds.
CONF="read_timeout=@@patience,join_timeout=@@patience"

OPTIONS=(
  # The run begins when so many nodes are there, and not before.
  --nnodes=@@nodes
  # One process per GPU@@each.
  --nproc-per-node="${NPROC_PER_NODE:-@@gpus}"
  # The nodes agree on their numbers by themselves: no node needs to be told its rank.
  --rdzv-backend=c10d
  --rdzv-endpoint="$HEAD:$PORT"
  --rdzv-id="$RUN_ID"
  # torchrun guesses from its own names whether it runs on HEAD, where the meeting place is to be
  # opened. It is wrong where HEAD is an alias or a second card: all wait, and nobody opens it.
  # Then set IS_HOST=true on that node and IS_HOST=false on the others.
  --rdzv-conf="$CONF${IS_HOST:+,is_host=$IS_HOST}"
  # How often all processes are started again after one has failed. Worth more than 0 only if the
  # program goes on from its last checkpoint by itself: else it begins anew each time.
  --max-restarts="${MAX_RESTARTS:-0}"
  # What each process prints also goes into a file of its own: the reason of a failure is in the
  # file of the rank that failed first.
  --log-dir=logs
  --tee=3
)
# Under which name the others reach this node, where its full host name is not known to them
# (ADDRESS=10.0.0.3): one node's is told to all, who wait in vain for one that they cannot find.
if [ -n "${ADDRESS:-}" ]; then OPTIONS+=(--local-addr="$ADDRESS"); fi

exec torchrun "${OPTIONS[@]}" @@program "$@"
""")


def text(job: ClusterJob, path: str) -> str:
    """The whole file."""
    one = job.nodes == 1
    return _TEXT.filled(
        job,
        path,
        but=" but for one node" if one else "",
        unset="-localhost" if one else f"?is one of the nodes: HEAD=node0 bash {path}",
        environment=environment(job),
        arguments=arguments(job),
        each="" if job.gpus_per_node else " of the node",
        gpus=job.gpus_per_node or "gpu",
    )


def environment(job: ClusterJob) -> str:
    """The lines that set what the present line's program has in its environment."""
    taken = job.taken
    lines = [f"export {name}={shlex.quote(value)}" for name, value in taken.variables]
    return _block([*comment(f"What {taken.place} has in its environment."), *lines] * bool(lines))


def arguments(job: ClusterJob) -> str:
    """The lines that put the present arguments before those of the command line."""
    taken = job.taken
    lines = not_taken(job)
    if taken.arguments:
        lines += comment(f"The arguments of {taken.place}, then those behind the file's name.")
        lines += ["set -- \\", *(f"  {row} \\" for row in rows(taken.arguments)), '  "$@"']
    return _block(lines)


def _block(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in ["", *lines]) if lines else ""


def rows(words: tuple[str, ...]) -> list[str]:
    """Arguments as lines of shell, an option beside its values."""
    found: list[list[str]] = []
    for word in words:
        if (word.startswith("-") and not _is_number(word)) or not found:
            found.append([])
        found[-1].append(word)
    return [shlex.join(row) for row in found]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def not_taken(job: ClusterJob) -> list[str]:
    """Comments on what the start file does not have from the project's own lines."""
    taken = job.taken
    lines = []
    if taken.left:
        said = f"Not taken over from {taken.place}, for the shell fills it in:"
        lines += comment(f"{said} {', '.join(taken.left)}")
    if taken.decided:
        said = f"Not taken over from {taken.place}, for it is decided here:"
        lines += comment(f"{said} {', '.join(taken.decided)}")
    if taken.others:
        few = ", ".join(taken.others[:3]) + (", ..." if len(taken.others) > 3 else "")
        lines += comment(f"Other lines that start it, of which nothing is taken over: {few}")
    return lines
