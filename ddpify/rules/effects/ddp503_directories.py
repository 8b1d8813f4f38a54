"""DDP503: every rank makes the same directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.facts.effects import EffectKind
from ddpify.facts.model import Facts
from ddpify.ranks.model import ALL, RankCall, RankGuard, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.effects.effects import gated
from ddpify.rules.examples import BY_HAND, CORRECT, SCRIPT, TRAINER, changed
from ddpify.rules.shared.folders import is_look, is_race, looked_for, made, removed, spelled, within
from ddpify.rules.shared.meetings import at_once, done_before, one_path
from ddpify.rules.shared.outputs import by_all, caught, checkpoints, files, own
from ddpify.rules.shared.rank_zero import named_apart, on_rank_zero
from ddpify.settings import Settings

# They make their folder, which may be there.
_BOARDS: Final = frozenset(
    f"{home}.SummaryWriter"
    for home in ("tensorboardX", "torch.utils.tensorboard", "torch.utils.tensorboard.writer")
)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per directory that all ranks make."""
    message = "every rank would make this directory: whoever comes second fails"
    yield from gated(facts, "DDP503", (EffectKind.DIRECTORY,), message, Severity.WARNING)


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per directory that every rank makes, though it must not be there."""
    for call in run.calls:
        path = made(call)
        if named_apart(run, path) and by_all(run, call):
            yield Finding(
                "DDP503",
                call.site,
                "every rank makes a directory under a name of its own",
                Severity.WARNING,
                on_rank_zero(run, call),
                "make it on the rank with number 0 only, or give all ranks one name",
            )
        if path is None or own(path) or _may_exist(call):
            continue
        if done_before(run, call) or caught(call) or _is_there(run, call, path):
            continue
        if by_all(run, call) and at_once(run, call):
            race = is_race(run, call, path)
            yield Finding(
                "DDP503",
                call.site,
                "every rank makes this directory: FileExistsError on those that come second"
                + (", where both have found none" if race else ""),
                Severity.WARNING if race else Severity.ERROR,
                on_rank_zero(run, call),
                "pass exist_ok=True, or make it on the rank with number 0 only",
            )


def _is_there(run: Run, call: RankCall, path: RankValue) -> bool:
    """Whether each rank has made it before, there or not, so that it finds it now: of places that
    make one folder the first is met."""
    gone = (folder for one in run.calls if (folder := removed(one)) is not None)
    if not is_race(run, call, path) or any(within(path, folder, 0) for folder in gone):
        return False
    return any(
        one.order < call.order
        and one.ranks == ALL
        and set(one.loops) <= set(call.loops)
        and (one_path(where, path) or within(where, path, 0))
        and all(guard in call.guards or _asks_for(run, guard, path) for guard in one.guards)
        for one, where in _makers(run)
    )


def _makers(run: Run) -> Iterator[tuple[RankCall, RankValue]]:
    """Calls after which a folder is there: they make it, or write into it."""
    for call in run.calls:
        where = call.arg(0, "log_dir") if call.name in _BOARDS else made(call)
        if where is not None:
            yield call, where
    for write in (*files(run), *checkpoints(run)):
        if write.path is not None:
            yield write.call, write.path


def _asks_for(run: Run, guard: RankGuard, path: RankValue) -> bool:
    """``if args.folder:``, of which the path is made: without one all are in it. ``if not
    exists(folder):`` leaves it there either way."""
    if guard.holds and spelled(guard.test, 0) == spelled(path, 0):
        return True
    asked = {origin.site for origin in guard.test.origins if is_look(origin)}
    seen = [one for call in run.calls if call.site in asked if (one := looked_for(call))]
    missing = ("not " in str(guard.test.atoms[0])) is guard.holds
    return missing and any(one_path(one, path) or within(one, path, 0) for one in seen)


def _may_exist(call: RankCall) -> bool:
    """Whether a call accepts that the directory is there."""
    allowed = call.arg(-1 if call.name == "os.mkdir" else 2, "exist_ok")
    return call.star or (allowed is not None and allowed.constant is not False)


RULE = Rule(
    "DDP503",
    "directory-on-every-rank",
    "Between `if not exists` and `makedirs` another rank makes the directory: FileExistsError."
    " Only the rank that writes needs it.",
    "neuralforecast#1460; BUGS K04 (12 FileExistsError in 400 runs)",
    check,
    bad=(
        changed(
            TRAINER,
            (
                "        if is_main_process():\n            os.makedirs(folder, exist_ok=True)\n",
                "        os.makedirs(folder, exist_ok=True)  # DDP503\n",
            ),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "from pathlib import Path\n\nimport torch\nimport"),
            (
                "fork_random_streams()\nfor",
                'Path("plots").mkdir(exist_ok=True)  # DDP503\nfork_random_streams()\nfor',
            ),
        ),
        changed(BY_HAND, ("    gpu = int", '    os.mkdir("weights")  # DDP503\n    gpu = int')),
    ),
    good=CORRECT,
    lint=lint,
    words=("makedirs", "mkdir"),
    severity=Severity.ERROR,
)
