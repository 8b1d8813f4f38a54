"""The launches in one shell script.

Every simple command is looked at as the shell would see it: its words, the folder it runs
in, the GPU list in force, and the statement it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from ddpify.launchers.commands import StartWords, find_start
from ddpify.launchers.edits import COUNT
from ddpify.launchers.entries import Folders, LaunchEntries
from ddpify.launchers.gpus import gpus_of, pin_of
from ddpify.launchers.held import held_launches
from ddpify.launchers.model import Above, Gpus, Launch, Nodes
from ddpify.launchers.script import CHAINS, LOOPS, Command, Script, Word, ancestors, is_left
from ddpify.launchers.slurm import HEAD, batch_remark, step_of
from ddpify.site import Span

_BLOCKS = frozenset(("program", "do_group", "compound_statement", "subshell", "case_item"))
_BRANCHES = frozenset(("if_statement", "elif_clause", "else_clause"))
_SUBSHELLS = frozenset(("subshell", "command_substitution", "process_substitution"))


def read_shell(
    path: str, text: str, entries: Collection[str], files: Collection[str] = ()
) -> tuple[Launch, ...]:
    """The commands of a script that start one of ``entries``, in the order of the text.

    Args:
        path: The script, relative to the project root.
        text: Its text.
        entries: The programs that ddpify migrates, relative to the root.
        files: The project's other Python files: a name that fits one of them too is
            not taken for an entry.
    """
    script = Script.parse(path, text)
    known = LaunchEntries.of(entries, files)
    launches = list(_launches(script, known))
    launches.extend(held_launches(script, known))
    return tuple(sorted(launches, key=lambda launch: launch.site))


def _launches(script: Script, entries: LaunchEntries) -> Iterator[Launch]:
    own_count = COUNT in script.text
    earlier: dict[int, tuple[int, str]] = {}
    named: set[int] = set()
    for command in script.commands:
        folders = _folders(script, command)
        start = find_start(script, command.words, entries, folders)
        if start is None or _asks_for_help(command, start):
            continue
        launch = _launch(script, command, start, own_count)
        if launch.above is not None and launch.gpus.value and not launch.unsupported:
            launch = _counted(script, command, launch, earlier)
        if launch.nodes is not None and launch.nodes.above is not None:
            block = _block(command)
            launch = replace(launch, nodes=replace(launch.nodes, named=block in named))
            named.add(block)
        yield replace(launch, announced=tuple(_announced(script, command, start)))


def _announced(script: Script, command: Command, start: StartWords) -> Iterator[Span]:
    """Python's words in an `echo` that shows the whole command right before it runs."""
    before = [c for c in script.commands if c.node.end_byte <= command.node.start_byte]
    echo = before[-1] if before and before[-1].words else None
    if start.interpreter is None or echo is None or echo.words[0].literal != "echo":
        return
    whole = script.data[start.start : command.node.end_byte]
    at = script.data.find(whole, echo.node.start_byte, echo.node.end_byte)
    if at >= 0 and _block(echo) == _block(command):
        words = start.interpreter.text.encode("utf-8", "surrogateescape")
        yield script.span(at, at + len(words))


def _asks_for_help(command: Command, start: StartWords) -> bool:
    """Whether the program only says how it is called, for which one process is enough."""
    last = command.words[-1]
    return last.start > start.start and last.literal in ("-h", "--help")


def _launch(script: Script, command: Command, start: StartWords, own_count: bool) -> Launch:
    node = command.node
    gpus = gpus_of(script, command, start.start) if start.interpreter else Gpus()
    launch = Launch(
        script.site(node.start_byte, node.end_byte),
        start.match.entry,
        start.interpreter,
        gpus,
        # a script that has a variable of this name keeps it for itself
        None if own_count else _above(script, command),
        script.bash,
        already_torchrun=start.distributed,
        pin=pin_of(script, command),
        slurm=any(w.start < start.start and w.literal == "srun" for w in command.words),
    )
    if start.distributed:
        return launch
    problem = _problem(script, command, start)
    if problem:
        return replace(launch, unsupported=problem)
    srun = next((w for w in command.words if w.start < start.start and w.literal == "srun"), None)
    if srun is None:
        return replace(launch, remark=batch_remark(script))
    return _step(script, command, launch, srun, start)


def _step(
    script: Script, command: Command, launch: Launch, srun: Word, start: StartWords
) -> Launch:
    """The launch as Slurm starts it."""
    words = tuple(w for w in command.words if srun.start < w.start < start.start)
    step = step_of(script, words)
    problem = step.problem
    if step.nodes and not problem and _beside_others(script, command):
        problem = "it is started on several nodes beside others, which need ports of their own"
    if problem:
        return replace(launch, unsupported=problem)
    gpus = step.gpus if launch.gpus.unset else launch.gpus
    if not step.nodes:
        return replace(launch, gpus=gpus)
    place = None if step.one_task else script.span(srun.end, srun.end)
    nodes = Nodes(place, None if HEAD in script.text else _above(script, command))
    return replace(launch, gpus=gpus, nodes=nodes)


def _beside_others(script: Script, command: Command) -> bool:
    """Whether the command is put in the background while more of its kind may run."""
    others = [c for c in script.commands if any(w.literal == "srun" for w in c.words)]
    more = len(others) > 1 or any(p.type in LOOPS for p in ancestors(command.node))
    return more and is_left(command.node)


def _problem(script: Script, command: Command, start: StartWords) -> str:
    outermost = command.node
    for parent in ancestors(command.node):
        if parent.type == "ERROR":
            return _lost(script)
        if parent.parent is not None:
            outermost = parent
    if script.first_error is not None and script.first_error <= outermost.end_byte:
        return _lost(script)
    return start.problem or start.match.problem


def _lost(script: Script) -> str:
    at = script.first_error or 0
    return f"the script cannot be read as shell from line {script.span(at, at).line} on"


def _folders(script: Script, command: Command) -> Folders:
    """Where the command runs, after the `cd`s before it."""
    folders = Folders.of_script(script.path)
    around = {parent.id for parent in ancestors(command.node)}
    for other in script.commands:
        if other.node.start_byte >= command.node.start_byte:
            break
        name = other.words[0].literal if other.words else None
        if name not in ("cd", "pushd", "popd"):
            continue
        shells = (parent.id for parent in ancestors(other.node) if parent.type in _SUBSHELLS)
        if all(shell in around for shell in shells):
            targets = [word for word in other.words[1:] if word.literal not in ("--", "-P", "-L")]
            folders = folders.after_cd(targets[0] if targets else None)
    return folders


def _above(script: Script, command: Command) -> Above | None:
    """The place for a line above, if the command begins a statement on a line of its own."""
    node, parent = command.node, command.node.parent
    while parent is not None and parent.type in CHAINS:
        if node.start_byte != parent.start_byte:
            return None
        node, parent = parent, parent.parent
    if parent is None or parent.type not in _BLOCKS | _BRANCHES:
        return None
    if parent.type in ("if_statement", "elif_clause"):
        before = (c.type for c in parent.children if c.start_byte < node.start_byte)
        if "then" not in before:
            return None
    indent = script.line_head(node.start_byte)
    if indent.strip():
        return None
    return Above(script.span(node.start_byte, node.start_byte), indent, script.newline)


def _counted(
    script: Script, command: Command, launch: Launch, earlier: dict[int, tuple[int, str]]
) -> Launch:
    """Mark a launch whose GPUs an earlier one of the same block has counted already."""
    block = _block(command)
    value = launch.gpus.value or ""
    end, counted = earlier.get(block, (0, ""))
    between = script.slice(end, command.node.start_byte)
    earlier[block] = (command.node.start_byte, value)
    same = counted == value and not _may_change(script, value, between)
    return replace(launch, counted=same)


def _block(command: Command) -> int:
    """What tells the block of statements that holds the command from others."""
    return next(p.id for p in ancestors(command.node) if p.type in _BLOCKS | _BRANCHES)


def _may_change(script: Script, value: str, between: str) -> bool:
    """Whether a variable of ``value`` may get another value between two launches."""
    names = re.findall(r"\$\{?(\w+)", value)
    if sum(assignment.name in names for assignment in script.assignments) > 1:
        return True
    if any(name.isdigit() for name in names):
        return re.search(r"\b(shift|set)\b", between) is not None
    named = "|".join(names)
    return re.search(rf"(?<![$\w{{])(?:{named})\b", between) is not None
