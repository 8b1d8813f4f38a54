"""The edits that launch an entry with torchrun, and nothing else on its line.

``gpu`` stands for "one process per visible GPU". torchrun's ``auto`` would be the other
choice without a GPU list: on a machine without CUDA it starts one process per core, which
splits the batch over dozens of ranks; ``gpu`` stops there and says why.
"""

from __future__ import annotations

from ddpify.launchers.model import Form, Interpreter, Launch
from ddpify.rules.base import Edit, How
from ddpify.source import Site, Span

COUNT = "NPROC_PER_NODE"
_DEFAULT = f'"${{{COUNT}:-gpu}}"'


def launch_edits(launch: Launch) -> tuple[Edit, ...]:
    """The edits for ``launch``: none where it is distributed already or not supported."""
    python = launch.python
    if python is None or launch.already_torchrun or launch.unsupported:
        return ()
    count, line = _processes(launch)
    code = _started(python, f"--standalone --nproc_per_node={count}")
    if not line or launch.above is None:
        return (_text(launch, python.span, code),)
    above = launch.above
    line = f"{line}{above.newline}{above.indent}"
    if (above.at.line, above.at.column) == (python.span.line, python.span.column):
        return (_text(launch, python.span, line + code),)
    return (_text(launch, above.at, line), _text(launch, python.span, code))


def _processes(launch: Launch) -> tuple[str, str]:
    """The process count for the command line, and the line above that works it out."""
    if launch.gpus.count is not None:
        return str(launch.gpus.count), ""
    if launch.gpus.value is None:
        return _DEFAULT, ""
    counted = _count_of(launch.gpus.value, launch.bash)
    if launch.counted:
        return f'"${COUNT}"', ""
    if launch.above is None:
        return f'"{counted}"', ""
    return f'"${COUNT}"', f"{COUNT}={counted}"


def _count_of(value: str, bash: bool) -> str:
    """Shell text for the length of a GPU list; an empty list is one process on the CPU."""
    count = "awk -F, '{print NF ? NF : 1}'"
    if bash:
        return f"$({count} <<< {value})"
    return f"$(printf '%s\\n' {value} | {count})"


def _started(python: Interpreter, options: str) -> str:
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
