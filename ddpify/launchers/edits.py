"""The edits that launch an entry with torchrun, and nothing else on its line.

``gpu`` stands for "one process per visible GPU". torchrun's ``auto`` would be the other
choice without a GPU list: on a machine without CUDA it starts one process per core, which
splits the batch over dozens of ranks; ``gpu`` stops there and says why. In documentation it
is written out: it reads well, is right on the reader's machine, whatever that has, and counts
what ``CUDA_VISIBLE_DEVICES`` shows. ``python main.py`` still works where there is no GPU.
"""

from __future__ import annotations

from ddpify.launchers.model import Above, Form, Launch, Nodes, PythonWords
from ddpify.launchers.slurm import FIRST_NODE, HEAD, ONE_TASK, meeting_point
from ddpify.rules.base import Edit, How
from ddpify.source import Site, Span

COUNT = "NPROC_PER_NODE"
DEFAULT = f'"${{{COUNT}:-gpu}}"'


def launch_edits(launch: Launch) -> tuple[Edit, ...]:
    """The edits for ``launch``: none where it is distributed already or not supported."""
    python = launch.python
    if python is None or launch.already_torchrun or launch.unsupported:
        return ()
    count, lines = _processes(launch)
    if launch.nodes is None:
        code = _started(python, f"--standalone {count}")
        shown = code.replace('"', "")
        spans = () if lines or "$(" in code else launch.announced
        said = tuple(_text(launch, span, shown) for span in spans)
        return (*said, *_with_lines(launch, python, launch.above, lines, code))
    above = launch.nodes.above
    code = _started(python, f'--nnodes="$SLURM_NNODES" {count} {meeting_point(above is not None)}')
    edits = _with_lines(launch, python, launch.above or above, (*lines, *_head(launch.nodes)), code)
    place = launch.nodes.one_task
    return edits if place is None else (_text(launch, place, ONE_TASK), *edits)


def _with_lines(
    launch: Launch, python: PythonWords, above: Above | None, lines: tuple[str, ...], code: str
) -> tuple[Edit, ...]:
    """``code`` in place of Python, and the lines above the launch; one edit at one place."""
    if above is None or not lines:
        return (_text(launch, python.span, code),)
    text = "".join(f"{line}{above.newline}{above.indent}" for line in lines)
    if (above.at.line, above.at.column) == (python.span.line, python.span.column):
        return (_text(launch, python.span, text + code),)
    return (_text(launch, above.at, text), _text(launch, python.span, code))


def _head(nodes: Nodes) -> tuple[str, ...]:
    """The line that names the first node."""
    return () if nodes.named or nodes.above is None else (f"{HEAD}={FIRST_NODE}",)


def _processes(launch: Launch) -> tuple[str, tuple[str, ...]]:
    """The option for the process count, and the line above that works it out."""
    count, lines = _count(launch)
    return f"--nproc_per_node={count}", lines


def _count(launch: Launch) -> tuple[str, tuple[str, ...]]:
    gpus = launch.gpus
    if gpus.count is not None or gpus.number is not None:
        return gpus.number or str(gpus.count), ()
    if launch.brief:
        return "gpu", ()
    if gpus.value is None:
        return DEFAULT, ()
    counted = _count_of(gpus.value, launch.bash)
    if launch.counted:
        return f'"${COUNT}"', ()
    if launch.above is None:
        return f'"{counted}"', ()
    return f'"${COUNT}"', (f"{COUNT}={counted}",)


def _count_of(value: str, bash: bool) -> str:
    """Shell text for the length of a GPU list; an empty list is one process on the CPU."""
    count = "awk -F, '{print NF ? NF : 1}'"
    if bash:
        return f"$({count} <<< {value})"
    return f"$(printf '%s\\n' {value} | {count})"


def _started(python: PythonWords, options: str) -> str:
    run = f"{python.program} -m torch.distributed.run"
    match python.form:
        case Form.SWAP:
            return f"torchrun {options}{python.tail}"
        case Form.MODULE:
            return f"{run} {options}{python.tail}"
        case Form.WRAP:
            # torchrun hands none of Python's own options on to the processes it starts
            return f"{run if python.program else 'torchrun'} {options} --no-python {python.text}"
        case Form.PREFIX:
            return f"torchrun {options} {python.text}"


def _text(launch: Launch, span: Span, code: str) -> Edit:
    return Edit(How.TEXT, Site(launch.site.path, span), code)
