"""DDP107: the local rank comes from an option that torchrun does not pass."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.model import RankCall
from ddpify.ranks.options import destination
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Import, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.process import PROCESS, TRAINING
from ddpify.rules.shared.options import additions, is_local_rank
from ddpify.rules.shared.written import attribute_is_read


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per option of that name of which nothing else is known."""
    if run.frameworks or any("LOCAL_RANK" in m.source.text for m in run.modules.values()):
        return
    for call in additions(run):
        if is_local_rank(call) and not _under_test(call) and _is_read(run, destination(call)):
            yield _finding(call)


def _finding(call: RankCall) -> Finding:
    required = call.kwargs.get("required")
    message = "torchrun does not pass this option: every rank takes its default, and so one GPU"
    fix: tuple[Edit, ...] = ()
    if required is not None and (required.constant or required.names()):  # `required=int`, too
        message = "torchrun does not pass this option: the program stops"
    elif _is_int(call) and "default" in call.kwargs:
        code = 'int(environ.get("LOCAL_RANK", {}))'
        fix = (Edit(How.ARGUMENT, call.site, code, "default", (Import("os", "environ"),)),)
    advice = 'take int(os.environ["LOCAL_RANK"]), which torchrun sets'
    return Finding("DDP107", call.site, message, Severity.ERROR, fix, advice)


def _is_int(call: RankCall) -> bool:
    kind, default = call.kwargs.get("type"), call.kwargs.get("default")
    whole = default is not None and type(default.constant) is int
    return whole and kind is not None and "builtins.int" in kind.names()


def _under_test(call: RankCall) -> bool:
    """Whether the option exists under a condition, the version of torch for instance."""
    return bool(call.conditions)


def _is_read(run: Run, name: str) -> bool:
    """Whether the program looks at the option, and never sets it itself."""
    is_set = any(store.key == name for store in run.stores)
    return not is_set and attribute_is_read(run, name)


_OPTION = (
    "import os\n\nimport torch\n",
    "import argparse\n\nimport torch\n",
)
_PARSER = """    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default={default}){mark}
    local_rank = parser.parse_args().local_rank
"""
_READ = '    local_rank = int(os.environ["LOCAL_RANK"])\n'

RULE = Rule(
    "DDP107",
    "local-rank-option",
    "torch.distributed.launch passed --local_rank (since torch 2.0 spelt --local-rank, which a"
    " parser of --local_rank refuses); torchrun passes nothing and sets LOCAL_RANK. With its"
    " default all ranks take one GPU.",
    "torch.distributed.launch documentation; timm#1724; BUGS L04, L05",
    bad=(
        changed(PROCESS, _OPTION, (_READ, _PARSER.format(default="0", mark="  # DDP107"))),
        changed(
            TRAINING,
            ("processes.join()", "processes.join(options().local_rank)"),
            ("def join():\n", "def join(gpu):\n"),
            ('    gpu = int(os.environ["LOCAL_RANK"])\n', ""),
            ("import os\n\n", ""),
            ("import numpy", "import argparse\n\nimport numpy"),
            (
                "def main():",
                "def options():\n    parser = argparse.ArgumentParser()\n"
                '    parser.add_argument("--local-rank", type=int, default=-1)  # DDP107\n'
                "    return parser.parse_args()\n\n\ndef main():",
            ),
        ),
    ),
    good=(
        PROCESS,
        TRAINING,
        changed(
            PROCESS,
            ("import os\n\nimport torch\n", "import argparse\nimport os\n\nimport torch\n"),
            (_READ, _PARSER.format(default='int(os.environ.get("LOCAL_RANK", 0))', mark="")),
        ),
    ),
    lint=lint,
)
