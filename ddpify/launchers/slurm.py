"""What Slurm does with a launch: on how many nodes, as how many tasks, with how many GPUs.

torchrun starts the processes of one node itself, so every node has to start it once. With one
task per node that is `srun torchrun`, and the nodes find each other at the first one's name;
more tasks per node would train as many times over. Those are not rewritten: to make one task of
four takes their CPUs along (`--cpus-per-task`), and four may also be meant as four runs.

Sources: the manuals of sbatch and srun; `torch/distributed/run.py` for the rendezvous.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ddpify.launchers.model import Gpus
from ddpify.launchers.script import Script, Word

HEAD = "HEAD_NODE"
# not `head`: it hangs up early, which under `set -o pipefail` can end the script
FIRST_NODE = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)'
# jobs that share a node must not share a port; the system's own choices begin at 32768
_PORT = "$((10000 + SLURM_JOB_ID % 20000))"
ONE_TASK = " --ntasks-per-node=1"
_DIRECTIVE = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_ALLOCATED = re.compile(r'"?\$\{?SLURM_(?:JOB_NUM_NODES|NNODES)\}?"?')
_OPTIONS = {
    "nodes": re.compile(r"(?:^|\s)(?:--nodes(?:=|\s+)|-N\s*)(\S+)"),
    "tasks": re.compile(r"(?:^|\s)(?:--ntasks(?:=|\s+)|-n\s*)(\S+)"),
    "tasks per node": re.compile(r"(?:^|\s)--ntasks-per-node(?:=|\s+)(\S+)"),
}
_GPUS = re.compile(r"(?:^|\s)(?:--gres(?:=|\s+)\S*\bgpu|--gpus-per-(?:node|task)[=\s])")
_GPUS_PER_NODE = re.compile(
    r"(?:^|\s)(?:--gres(?:=|\s+)(?:\S*,)?gpu(?::[a-zA-Z]\w*)?:|"
    r"--gpus-per-(?:node|task)(?:=|\s+)(?:[a-zA-Z]\w*:)?)(\d+)(?![\w:])"
)
_GPUS_IN_ALL = re.compile(r"(?:^|\s)(?:--gpus(?:=|\s+)|-G\s*)(?:[a-zA-Z]\w*:)?(\d+)(?![\w:])")


@dataclass(frozen=True)
class Step:
    """How `srun` starts a command: ``nodes`` on several nodes, ``one_task`` per node as it is."""

    problem: str = ""
    nodes: bool = False
    one_task: bool = False
    gpus: Gpus = field(default_factory=Gpus)


def step_of(script: Script, words: tuple[Word, ...]) -> Step:
    """What a command behind ``words``, which hold `srun`, is started as."""
    options = " ".join(word.text for word in words)
    given = {what: _given(what, options, _directives(script)) for what in _OPTIONS}
    nodes = given["nodes"]
    several = nodes not in ("1", "1-1", "") and (
        _ALLOCATED.fullmatch(nodes) is not None or re.fullmatch(r"\d+(-\d+)?", nodes) is not None
    )
    own = _gpus(_GPUS_PER_NODE, options)
    if not several:
        if own.unset:
            own = _gpus(_GPUS_IN_ALL, options)
        return Step(_one_node_problem(given), gpus=own)
    problem = _several_problem(given, options, _directives(script))
    if own.unset and _GPUS.search(f"{options} {_directives(script)}"):
        own = Gpus(number='"$SLURM_GPUS_ON_NODE"')  # a number in a directive may be changed there
    one_task = given["tasks per node"] == "1" or given["tasks"] != ""
    return Step(problem, True, one_task, own)


def batch_remark(script: Script) -> str:
    """The remark on a command without `srun` in a batch script; "" if there is none."""
    nodes = _given("nodes", "", _directives(script))
    if nodes in ("", "1", "1-1"):
        return ""
    return f"; without srun it runs on the first of the job's {nodes} nodes only"


def tasks_problem(text: str, slurm: bool) -> str:
    """What keeps a batch script from starting one process per GPU, where `srun` has to start each.

    Empty for a script that is none, or says nothing of GPUs.
    """
    directives = " ".join(_lines(text))
    number = _gpus(_GPUS_PER_NODE, directives).number or _gpus(_GPUS_IN_ALL, directives).number
    tasks = _given("tasks per node", "", directives) or "1"
    if number == "1":
        return "the job asks for one GPU"
    if number is None or (tasks == number and slurm):
        return ""
    how = f"{tasks} of its tasks per node" if slurm else "one process, without srun"
    return f"the job has {number} GPUs, and this is {how}"


def gpus_of_batch(text: str) -> int | None:
    """How many GPUs of each node a batch script asks for, if it says a number."""
    number = _gpus(_GPUS_PER_NODE, " ".join(_lines(text))).number
    return int(number) if number else None


def nodes_of(text: str) -> int:
    """The number of nodes that a batch script states; 1 where it states none."""
    found = _given("nodes", "", " ".join(_lines(text)))
    return int(found) if found.isdecimal() else 1


def tasks_edit(text: str, command: str) -> tuple[int, int, str] | None:
    """The stretch of a batch script to replace, and by what, so that it has a task for each GPU.

    None where `srun` or the script say how many tasks there are in all, or not how many GPUs a
    node has.
    """
    directives = " ".join(_lines(text))
    gpus = _gpus(_GPUS_PER_NODE, directives).number
    told = any(_given(what, command, "") for what in ("tasks", "tasks per node"))
    if gpus is None or told or _given("tasks", "", directives) or "--gpus-per-task" in directives:
        return None
    each = re.search(r"^#SBATCH\b.*?--ntasks-per-node(?:=|\s+)(\d+)\s*$", text, re.MULTILINE)
    if each is not None:
        return (*each.span(1), gpus)
    if "--ntasks-per-node" in directives:
        return None
    last = [found.end() for found in _DIRECTIVE.finditer(text)][-1]
    return last, last, f"\n#SBATCH --ntasks-per-node={gpus}"


def meeting_point(named: bool) -> str:
    """torchrun's options for several nodes; ``named``: ``$HEAD_NODE`` is the first of them."""
    host = f"${HEAD}" if named else FIRST_NODE
    return f'--rdzv_id="$SLURM_JOB_ID" --rdzv_backend=c10d --rdzv_endpoint="{host}:{_PORT}"'


def given(what: str, options: str, script: Script) -> str:
    """What `srun`, or else the script's directives, say of nodes or tasks; "" if nothing."""
    return _given(what, options, _directives(script))


def _directives(script: Script) -> str:
    return " ".join(_lines(script.text))


def _lines(text: str) -> list[str]:
    return [line.split(" #")[0] for line in _DIRECTIVE.findall(text)]


def _given(what: str, options: str, directives: str) -> str:
    found = _OPTIONS[what].search(options) or _OPTIONS[what].search(directives)
    return found.group(1).strip("\"'") if found else ""


def _gpus(pattern: re.Pattern[str], options: str) -> Gpus:
    found = pattern.search(options)
    return Gpus(number=found.group(1)) if found else Gpus()


def _one_node_problem(given: dict[str, str]) -> str:
    for what, value in given.items():
        if value in ("", "1", "1-1"):
            continue
        if not re.fullmatch(r"\d+(-\d+)?", value):
            return f"how many {what} srun starts, {value}, is not known"
        return f"srun starts it as {value} {what}, each of which would start torchrun"
    return ""


def _several_problem(given: dict[str, str], options: str, directives: str) -> str:
    nodes, tasks, each = given["nodes"], given["tasks"], given["tasks per node"]
    if each not in ("", "1"):
        return f"srun starts it as {each} tasks per node, each of which would start torchrun"
    if tasks not in ("", nodes) and not _ALLOCATED.fullmatch(tasks):
        return f"srun starts it as {tasks} tasks on {nodes} nodes; torchrun needs one on each"
    allocated = _given("nodes", "", directives)
    own = _given("nodes", options, "")
    if not allocated and not _ALLOCATED.fullmatch(own):
        return f"srun starts it on {nodes} nodes, and the script is no job that knows their names"
    if own and own != allocated and not _ALLOCATED.fullmatch(own):
        return f"srun starts it on {own} of the job's {allocated} nodes"
    return ""
