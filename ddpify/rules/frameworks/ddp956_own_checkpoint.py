"""DDP956: each process of Lightning looks for itself which checkpoint to go on from."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.ranks.hooks import TRAINER
from ddpify.ranks.model import RankThing, RankValue
from ddpify.ranks.origins import CLOCK, FILES, RANDOM
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.lightnings import several

_WAYS = {"fit": 4, "validate": 2, "test": 2, "predict": 4}
_HELPER = "from_rank_zero"
_LISTS = frozenset("glob iglob iterdir listdir rglob scandir walk".split())
_FIT = "    trainer.fit(Net(), datamodule=Rows())\n"
_FOUND = """    found = sorted(glob.glob("runs/*.ckpt"))
    trainer.fit(Net(), datamodule=Rows(), ckpt_path=found[-1] if found else None)  # DDP956
"""
_CLOCK = """    day = time.strftime("%H%M%S")
    trainer.fit(Net(), datamodule=Rows(), ckpt_path=f"{day}.ckpt")  # DDP956
"""
_APART = (
    "each process looks for the checkpoint itself, later than the one that started it:"
    " it may find another one, or none, and they wait for each other"
)
# The one that starts the others waits for them before it writes any.
_LISTED = (
    "each process looks for the checkpoint itself: on nodes with folders of their own, or where"
    " another run writes there, they find different ones, and wait for each other"
)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per ``ckpt_path`` that processes may find otherwise."""
    if not several(run):
        return
    for name, position in _WAYS.items():
        for call in run.named(f"{TRAINER}.{name}"):
            path = call.arg(position, "ckpt_path")
            if path is None or not _is_found(path, run.once(_agreed)):
                continue
            apart = run.assumed or any(path.has(kind) for kind in (CLOCK, RANDOM))
            yield Finding(
                "DDP956",
                call.site,
                _APART if apart else _LISTED,
                Severity.ERROR if apart else Severity.NOTE,
                advice="have rank 0's on all of them, as `ddpify migrate` does, or name it on the"
                " command line",
            )


def _is_found(path: RankValue, agreed: frozenset[RankThing]) -> bool:
    """Whether each rank has it from a clock, a draw or the contents of a folder."""
    if any(path.has(kind) for kind in (FILES, CLOCK, RANDOM)):
        return True
    own = (thing for thing in path.sources() if thing not in agreed)
    return any(thing.name.rpartition(".")[2] in _LISTS for thing in own)


def _agreed(run: Run) -> frozenset[RankThing]:
    """What values are made of that rank 0 has handed to all."""
    ours = (one for one in run.calls if one.target is not None and one.target.module.ours)
    asked = (one for one in ours if one.method == _HELPER)
    return frozenset(thing for one in asked for value in one.given for thing in value.sources())


RULE = Rule(
    "DDP956",
    "checkpoint-found-by-each",
    "Lightning's processes run the script from its first line, the others seconds after the first,"
    " which may have made folders and files by then. Before fit there is no process group, and"
    " trainer.strategy.broadcast gives each process what it has (Lightning 2.6, measured). Of a"
    " list of files alone a note is made: the first process waits for the others before it writes.",
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
    fixes=False,
)
