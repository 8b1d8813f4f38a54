"""DDP962: the name of a run is of each process's own clock, and Lightning's hooks use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.hooks import CALLBACKS
from ddpify.ranks.model import RankCall, RankValue
from ddpify.ranks.origins import CLOCK
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.lightnings import DATA_MODULE, MODULE, several
from ddpify.rules.shared.rank_zero import in_hook
from ddpify.site import Site


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per reading of the clock that goes to a module, data module or callback."""
    if not several(run):
        return
    read = {call.site for call in run.calls if _is_for_all(call)}
    done: set[Site] = set()
    for call in run.calls:
        if in_hook(call) or not _makes_hooks(call):
            continue
        for site in _clocks(call.given):
            if site in read and site not in done:
                done.add(site)
                yield Finding(
                    "DDP962",
                    site,
                    "each process reads its own clock, the others seconds after the first: a"
                    " folder or a name made of it is another one in each",
                    Severity.WARNING,
                    advice="have rank 0's on all of them, as `ddpify migrate` does",
                    because=((call.site, "hooks have it from here"),),
                )


def _is_for_all(call: RankCall) -> bool:
    """Whether all ranks make a call, and none knows better than another whether it does."""
    return call.everywhere and not in_hook(call) and not any(g.test.local for g in call.conditions)


def _makes_hooks(call: RankCall) -> bool:
    """Whether a call makes an object of the project's whose hooks a Trainer calls."""
    made = call.result.things if call.result is not None else ()
    classes = (t.cls for t in made if t.kind == "instance" and t.cls is not None)
    return any(cls.inherits(MODULE, DATA_MODULE, *CALLBACKS) for cls in classes)


def _clocks(values: Iterable[RankValue]) -> Iterator[Site]:
    found = {o.site for value in values for o in value.all_origins if o.kind == CLOCK}
    yield from sorted(found)


_FIT: Final = "    trainer.fit(Net(), datamodule=Rows())\n"
_NET: Final = ("def __init__(self):", "def __init__(self, day=None):")
_FITS: Final = "    trainer.fit(Net(day), datamodule=Rows())\n"
_TIME: Final = ("import torch\n", "import time\nimport torch\n")
_DATE: Final = ("import torch\n", "from datetime import datetime\nimport torch\n")
_DAY: Final = '    day = time.strftime("runs/%H%M%S")  # DDP962\n'
_NOW: Final = "    day = datetime.now()  # DDP962\n"


RULE = Rule(
    "DDP962",
    "run-name-of-each-process",
    "Lightning's processes run the script from its first line, one after the other. A run folder"
    " named by the clock is another one in each of them: what the hooks of rank 1 write or read is"
    " not where rank 0 writes (Lightning broadcasts the folders of its own loggers and checkpoints"
    " only).",
    "lightning#20536; BUGS K03",
    lint=lint,
    severity=Severity.WARNING,
    words=("strftime", "datetime.now", "time.time()"),
    bad=(
        changed(LIGHTNING, _TIME, _NET, (_FIT, _DAY + _FITS)),
        changed(LIGHTNING, _DATE, _NET, (_FIT, _NOW + _FITS)),
    ),
    good=(
        changed(  # measured, and shown by rank 0
            LIGHTNING,
            _TIME,
            (_FIT, f"    begun = time.time()\n{_FIT}    name_of(time.time() - begun)\n"),
        ),
        changed(LIGHTNING, ("datamodule=Rows()", 'datamodule=Rows("today.pt")')),
    ),
)
