"""What happens before the ranks know of each other, and whether it is the same on each."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpify.ranks import words
from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.shared.outputs import FILES, MOVES, OPENS

# Lightning starts the other processes there, when its first process has come so far.
LAUNCHES = (
    "lightning.fabric.Fabric.launch",
    *(f"lightning.pytorch.Trainer.{name}" for name in ("fit", "validate", "test", "predict")),
)
_OPENINGS = (f"{words.DIST}init_process_group", "accelerate.Accelerator", *LAUNCHES)


def before_launch(run: Run, call: RankCall) -> bool:
    """Whether the process that starts the others comes here first, and alone."""
    launch = next(run.named(*LAUNCHES), None)
    return launch is not None and call.order < launch.order


def same_beginning(run: Run, call: RankCall) -> bool:
    """Whether a file is written before the ranks first meet, whole and with equal bytes on each.

    The first rank that meets the others has written it, and nobody changes it afterwards.
    """
    opening = next(run.named(*_OPENINGS), None)
    if opening is None or call.order > opening.order or not _is_whole(call):
        return False
    if any(value.all_origins for value in call.given):
        return False
    uses = [*_uses(run, call)]
    if _is_kept(run, call) and not any(use.method == "close" for use in uses):
        return False  # open, for methods that are not read
    return not any(
        use.order > opening.order or any(value.all_origins for value in use.given) for use in uses
    )


def _is_whole(call: RankCall) -> bool:
    """Whether the file has only what this process writes into it."""
    if call.name in OPENS:
        mode = call.arg(0 if call.method == "open" and call.receiver is not None else 1, "mode")
        return mode is not None and str(mode.constant).strip("bt") == "w"
    added = call.name.startswith("logging.") or call.name in MOVES
    return not (call.name in FILES and added)


def _is_kept(run: Run, opened: RankCall) -> bool:
    """Whether an object, or a name that functions use, keeps the file that a call opened."""
    things = set(opened.result.things) if opened.result is not None else set()
    if any(not things.isdisjoint(store.value.things) for store in run.stores):
        return True
    nodes = [*opened.module.nodes] if opened.function is None else []
    named = {
        target.id
        for one in nodes
        if isinstance(one, ast.Assign) and one.value is opened.node
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    functions = (one for one in nodes if isinstance(one, ast.FunctionDef))
    used = (n.id for f in functions for n in ast.walk(f) if isinstance(n, ast.Name))
    return not named.isdisjoint(used)


def _uses(run: Run, opened: RankCall) -> Iterator[RankCall]:
    """What all ranks do with a file that a call opened."""
    things = set(opened.result.things) if opened.result is not None else set()
    for call in run.calls:
        if call.everywhere and any(not things.isdisjoint(value.things) for value in call.inputs):
            yield call
