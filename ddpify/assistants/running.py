"""A command of ddpify in a process of its own: what it prints cannot get into the protocol.

Nor can an assistant's request, whatever it makes of memory or time, do harm to the server; and the
answer is what the command line gives, by construction.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process

Tell = Callable[[float, str], Awaitable[None]]
_BEAT = 5.0  # seconds: clients give up on what says nothing
_GRACE = 20.0  # to end its own processes, and to remove its copies
# Not `-m`: that would import from the folder, in which a project may have a click.py.
_START = "import sys; sys.path[:1] = []; sys.path.append(sys.argv.pop(1)); "
_START += "from ddpify.cli import main; sys.exit(main())"


@dataclass
class Ran:
    """How a command ended; ``said`` is standard error, which tells how far it is."""

    code: int = 0
    out: bytearray = field(default_factory=bytearray)
    said: bytearray = field(default_factory=bytearray)

    @property
    def last(self) -> str:
        """The last whole line on standard error."""
        return (self.said.decode(errors="replace").splitlines() or [""])[-1]


async def run(arguments: Sequence[str], folder: Path, tell: Tell) -> Ran:
    """Run ``ddpify ARGUMENTS`` in a folder; ``tell`` hears of it every few seconds.

    Cancelled, the command is interrupted as by Ctrl-C.
    """
    package = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", _START, package, *arguments]
    ran = Ran()
    process = await anyio.open_process(command, stdin=subprocess.DEVNULL, cwd=folder)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_tell, ran, tell)
            await _followed(process, ran)
            group.cancel_scope.cancel()
    finally:
        await _end(process)
    ran.code = process.returncode or 0
    return ran


async def _followed(process: Process, ran: Ran) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    async with anyio.create_task_group() as group:
        group.start_soon(_read, process.stdout, ran.out)
        group.start_soon(_read, process.stderr, ran.said)
    await process.wait()


async def _read(stream: ByteReceiveStream, into: bytearray) -> None:
    async for part in stream:
        into += part


async def _tell(ran: Ran, tell: Tell) -> None:
    begun = anyio.current_time()
    while True:
        await anyio.sleep(_BEAT)
        await tell(anyio.current_time() - begun, ran.last)


async def _end(process: Process) -> None:
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            with anyio.move_on_after(_GRACE):
                await process.wait()
        if process.returncode is None:
            process.kill()
        await process.aclose()
