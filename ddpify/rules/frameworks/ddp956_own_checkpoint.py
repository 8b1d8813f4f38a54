"""DDP956: each process of Lightning looks for itself which checkpoint to go on from."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.hooks import TRAINER
from ddpify.ranks.model import RankValue
from ddpify.ranks.origins import CLOCK, FILES, RANDOM
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.lightnings import several

_LISTS = frozenset("glob iglob iterdir listdir rglob scandir walk".split())
_FIT = "    trainer.fit(Net(), datamodule=Rows())\n"
_FOUND = """    found = sorted(glob.glob("runs/*.ckpt"))
    trainer.fit(Net(), datamodule=Rows(), ckpt_path=found[-1] if found else None)  # DDP956
"""
_CLOCK = """    day = time.strftime("%H%M%S")
    trainer.fit(Net(), datamodule=Rows(), ckpt_path=f"{day}.ckpt")  # DDP956
"""


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per ``ckpt_path`` that processes may find otherwise."""
    if not several(run):
        return
    for name in ("fit", "validate", "test", "predict"):
        for call in run.named(f"{TRAINER}.{name}"):
            path = call.kwargs.get("ckpt_path")
            if path is None or not _is_found(path):
                continue
            yield Finding(
                "DDP956",
                call.site,
                "each process looks for the checkpoint itself, later than the one that started it:"
                " it may find another one, or none, and they wait for each other",
                Severity.ERROR,
                advice="name it on the command line, or by an environment variable that is set"
                " where it is missing: processes that Lightning starts inherit it",
            )


def _is_found(path: RankValue) -> bool:
    """Whether a clock, a draw or the contents of a folder say what it is."""
    if any(path.has(kind) for kind in (FILES, CLOCK, RANDOM)):
        return True
    return any(thing.name.rpartition(".")[2] in _LISTS for thing in path.sources())


RULE = Rule(
    "DDP956",
    "checkpoint-found-by-each",
    "Lightning's processes run the script from its first line, the others seconds after the first,"
    " which may have made folders and files by then. Before fit there is no process group, and"
    " trainer.strategy.broadcast gives each process what it has (Lightning 2.6, measured).",
    "lightning.pytorch.strategies.DDPStrategy.broadcast; lightning#20536",
    lint=lint,
    bad=(
        changed(
            LIGHTNING,
            ("import lightning", "import glob\n\nimport lightning"),
            (_FIT, _FOUND),
        ),
        changed(LIGHTNING, ("import lightning", "import time\n\nimport lightning"), (_FIT, _CLOCK)),
    ),
    good=(
        LIGHTNING,
        changed(LIGHTNING, (_FIT, _FIT.replace("())\n", '(), ckpt_path="last")\n'))),
    ),
)
