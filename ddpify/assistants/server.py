"""The tools: each is a command, its answer what the command prints for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from ddpify import __version__, schemas
from ddpify.assistants.folders import Confines, Refused
from ddpify.assistants.running import Ran, run
from ddpify.assistants.words import ABOUT, TOOLS
from ddpify.names import HEADER_PREFIX

_FAILED = 2  # the exit code of an error or a refusal
_UNFIT = (Refused, OSError, ValueError)  # the latter of a NUL, half a character, megabytes
Paths = Annotated[
    list[str],
    Field(min_length=1, description="The script that is run, what starts it, or the folder."),
]
Accept = Annotated[
    list[Annotated[str, Field(pattern=r"^DDP\d{3}@.+:\d+$")]],
    Field(description="Refusals that are right as they are: RULE@FILE:LINE, from by_hand.accept."),
]
Strategy = Annotated[
    Literal["ddp", "fsdp"] | None, Field(description="A replica on each rank (ddp), or shards.")
]
BatchSize = Annotated[
    Literal["global", "per-rank"] | None,
    Field(description="The script's batch size is split over the ranks, or kept on each."),
]
Codes = Annotated[list[str], Field(description="Rule codes, or beginnings of them.")]
Arguments = Annotated[list[str], Field(description="The script's own arguments.")]
Noises = list[Literal["dropout", "batchnorm", "augmentation", "draws", "all"]]


class Tools:
    """The tools of one server, which is confined to its folders."""

    def __init__(self, folders: Confines, python: str = "") -> None:
        self._folders, self._python = folders, python

    async def plan(
        self,
        ctx: Context[Any],
        path: str,
        nproc: Annotated[int, Field(ge=1)] | None = None,
        strategy: Strategy = None,
        arguments: Arguments = [],  # noqa: B006 (pydantic copies it)
    ) -> CallToolResult:
        flags = ["--format=json", *_flags(nproc=nproc, strategy=strategy)]
        return await self._run(ctx, ["plan", *flags], [path], arguments)

    async def diff(
        self,
        ctx: Context[Any],
        paths: Paths,
        strategy: Strategy = None,
        batch_size: BatchSize = None,
        accept: Accept = [],  # noqa: B006
    ) -> CallToolResult:
        flags = _flags(strategy=strategy, batch_size=batch_size, accept=accept)
        return await self._run(ctx, ["diff", "--format=json", *flags], paths)

    async def migrate(
        self,
        ctx: Context[Any],
        paths: Paths,
        output: Annotated[str, Field(description="Write into this folder instead.")] = "",
        force: Annotated[bool, Field(description="Change uncommitted files, too.")] = False,
        strategy: Strategy = None,
        batch_size: BatchSize = None,
        accept: Accept = [],  # noqa: B006
    ) -> CallToolResult:
        flags = _flags(strategy=strategy, batch_size=batch_size, accept=accept)
        flags += ["--force"] * force
        try:
            where = f"--output={self._folders.path(output)}" if output else "--inplace"
        except _UNFIT as error:
            return _refusal(_why(error))
        return await self._run(ctx, ["migrate", "--format=json", where, *flags], paths)

    async def check(
        self,
        ctx: Context[Any],
        paths: Annotated[list[str], Field(description="Files or folders.")] = ["."],  # noqa: B006
        select: Codes = [],  # noqa: B006
        ignore: Codes = [],  # noqa: B006
        assume_distributed: bool = False,
    ) -> CallToolResult:
        flags = _flags(select=select, ignore=ignore)
        flags += ["--assume-distributed"] * assume_distributed
        return await self._run(ctx, ["check", "--format=json", *flags], paths)

    async def verify(
        self,
        ctx: Context[Any],
        script: str,
        arguments: Arguments = [],  # noqa: B006
        nproc: Annotated[int, Field(ge=2)] = 2,
        baseline: Annotated[str, Field(description="The original: git revision, folder.")] = "",
        distributed_only: Annotated[bool, Field(description="Against itself on 1 rank.")] = False,
        steps: Annotated[int, Field(ge=1, description="Stop after so many.")] | None = None,
        neutralise: Noises = [],  # noqa: B006
        timeout: Annotated[float, Field(gt=0, description="Seconds without progress.")] = 300,
        every_step: Annotated[bool, Field(description="With each step's numbers.")] = False,
    ) -> CallToolResult:
        try:
            original = self._baseline(baseline)
        except _UNFIT as error:
            return _refusal(_why(error))
        flags = _flags(nproc=nproc, steps=steps, neutralise=neutralise, timeout=timeout)
        flags += _flags(baseline=original, python=self._python)
        flags += ["--distributed-only"] * distributed_only
        leave = () if every_step else ("steps",)
        return await self._run(ctx, ["verify", "--json=-", *flags], [script], arguments, leave)

    async def rule(self, ctx: Context[Any], code: str) -> CallToolResult:
        return await self._run(ctx, ["rule", "--format=json", "--", code])

    def _baseline(self, given: str) -> str:
        """A folder has to be in the server's; what is none is a revision, and git's to find."""
        tops = [top / given for top in self._folders.tops] if given else []
        is_path = Path(given).is_absolute() or any(one.is_dir() for one in tops)
        return str(self._folders.path(given)) if is_path else given

    async def _run(
        self,
        ctx: Context[Any],
        command: list[str],
        paths: Sequence[str] = (),
        arguments: Sequence[str] = (),
        leave: Sequence[str] = (),
    ) -> CallToolResult:
        async def tell(seconds: float, said: str) -> None:
            await ctx.report_progress(seconds, message=said or f"{seconds:.0f} s")

        own = ["--", *arguments] if arguments else []
        try:
            found = [self._folders.project(path) for path in paths]
            folder = self._folders.top(found[0]) if found else self._folders.tops[0]
            ran = await run([*command, *map(str, found), *own], folder, tell)
        except _UNFIT as error:
            return _refusal(_why(error))
        return _answer(ran, leave)


def serve(folders: Sequence[Path], python: str = "") -> MCPServer[Any]:
    """A server for these folders; ``python`` is the interpreter that trains."""
    tools = Tools(Confines(folders), python)
    made = [_tool(tools, name) for name in TOOLS]
    return MCPServer(
        "ddpify", version=__version__, instructions=ABOUT, tools=made, log_level="WARNING"
    )


def _tool(tools: Tools, name: str) -> Tool:
    """A method as a tool, which answers by the schema that is published for the command."""
    text, hints = TOOLS[name]
    annotations = ToolAnnotations(title=f"ddpify {name}", **hints)
    tool = Tool.from_function(
        getattr(tools, name),
        name,
        description=text,
        annotations=annotations,
        structured_output=False,
    )
    schema = json.loads(schemas.text(name))
    tool.fn_metadata.output_schema = schema if "type" in schema else schema["$defs"]["rule"]
    return tool


def _flags(**given: object) -> list[str]:
    """``--name=value``; what was not given is left to the project's settings."""
    found = []
    for name, value in given.items():
        values = value if isinstance(value, list) else [value] if value not in (None, "") else []
        found += [f"--{name.replace('_', '-')}={one}" for one in values]
    return found


def _answer(ran: Ran, leave: Sequence[str]) -> CallToolResult:
    said = ran.said.decode(errors="replace").strip()
    document = json.loads(ran.out.decode()) if ran.out else None
    if document is None or ran.code not in range(_FAILED + 1):
        return _refusal(said or f"ddpify ended with exit code {ran.code}")
    _shorten(document, leave)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    failed = ran.code == _FAILED
    return CallToolResult(
        content=[TextContent(type="text", text=one) for one in ([said] * failed + [text])],
        structured_content=document,
        is_error=failed,
    )


def _why(error: Exception) -> str:
    """One sentence, without the text that the system did not take: it may be megabytes long."""
    if isinstance(error, Refused):
        return str(error)
    cause = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
    return f"the command cannot be started with these arguments: {cause}"


def _refusal(text: str) -> CallToolResult:
    line = text if "ddpify" in text[:8] else f"ddpify: {text}"
    return CallToolResult(content=[TextContent(type="text", text=line)], is_error=True)


def _shorten(document: dict[str, Any], leave: Sequence[str]) -> None:
    """Without what nobody reads: the text of the helpers, and what was not asked for."""
    document.update({key: [] for key in leave})
    for key in {"bad", "good"} & document.keys():
        document[key] = sorted(document[key], key=lambda files: len(str(files)))[:1]
    for change in document.get("changes", ()):
        hunks = change["hunks"]
        if isinstance(hunks, list) and hunks and hunks[0]["lines"][0][1:].startswith(HEADER_PREFIX):
            change["hunks"] = []
