"""What is not proven of ranks that part: a note.

Of 79 decisions of ranks that people read in public programs, 48 went by a value from a file that
the way to the decision does not pass: 1 was right, and those of 4 of 5 repositories were not. Of
the 31 others 8 were not false. Much lies between, such as a configuration that each process makes.

In 49 more repositories, of 17 such reports where over 30 functions are read, the 4 that were right
are of a rank that ends; the others took what all decide alike for a rank's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import dropwhile

from ddpify.ranks import words
from ddpify.ranks.model import RankGuard
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.origins import CLOCK, DATA, RANDOM
from ddpify.ranks.run import Run
from ddpify.ranks.trace import Mismatch

_MANY = 30  # functions of a program that are read


def is_doubtful(run: Run, one: Mismatch, guard: RankGuard | None) -> bool:
    """Whether it is not seen that ranks part by a condition, or that they communicate then."""
    if guard is None:
        return False
    if one.kind != "guard" and len(run.entered) > _MANY and not _ends(one):
        return True
    if one.kind == "local":
        return _is_far(run, one, guard) or in_training_alone(run, one.event.guards)
    return one.kind == "guard" and (_is_of_training(one, guard) or _may_be_called(run, one))


def _ends(one: Mismatch) -> bool:
    """Whether a rank's process ends, or a function of it outside of loops."""
    left = one.exit
    return left is not None and (left.kind == "stop" or (left.kind == "return" and not left.loops))


def in_training_alone(run: Run, guards: Sequence[RankGuard]) -> bool:
    """Whether what stands under these conditions is for training, ``if self.training: …``, and
    nothing here trains: no backward, no Trainer, no engine's batch."""
    if run.backwards or run.hook or any(run.named(words.HF_TRAINER, words.TRAINER)):
        return False
    asked = (guard for guard in guards if guard.is_open(0) or guard.is_open(1))
    modes = any(guard.holds and _asks_mode(guard.node) for guard in asked)
    return modes and not any(run.methods("train_batch"))


def _is_far(run: Run, one: Mismatch, guard: RankGuard) -> bool:
    """Whether what differs comes from a file that the way to the condition does not pass, and not
    from a function that the file of the condition calls."""
    own = [origin.site for origin in guard.test.origins if origin.kind in (DATA, CLOCK, RANDOM)]
    near = {guard.site.path, *(call.site.path for call in one.event.stack)}
    if not own or any(site.path in near for site in own):
        return False
    asked = {c.target for c in run.calls if c.target and c.site.path == guard.site.path}
    return not any(site.within(function.site) for function in asked for site in own)


def _is_of_training(one: Mismatch, guard: RankGuard) -> bool:
    """Whether a helper that is called under the condition communicates in training mode alone, and
    it is not known in which it is: ``if self.training: all_gather(…)``."""
    below = dropwhile(lambda c: all(g.node is not guard.node for g in c.guards), one.event.stack)
    first = next(below, None)
    inner = one.event.guards[len(first.guards) :] if first is not None else ()
    rank = (one.ranks & -one.ranks).bit_length() - 1
    return any(g.is_open(rank) and _asks_mode(g.node) for g in inner)


def _may_be_called(run: Run, one: Mismatch) -> bool:
    """Whether the other ranks hand a function that enters the same to what is not read:
    ``button.click(fn=generate)``, or a server that has it by its decorator."""
    said = f"{one.event.op.rpartition('.')[2]}("
    given = {
        thing.info
        for call in run.calls
        if call.target is None and call.ranks & ~one.ranks
        for value in call.given
        for thing in value.things
        if thing.kind == "function"
    }
    served = {f for m in run.modules.values() for f in m.functions.values() if _is_registered(f)}
    return any(f.place not in run.entered and said in f.text for f in given | served)


def _is_registered(function: FunctionDefinition) -> bool:
    """``@app.post("/generate")``, of an object that the file makes: no ``@torch.no_grad()``."""
    decorators = getattr(function.node, "decorator_list", ())
    calls = (one.func for one in decorators if isinstance(one, ast.Call))
    owners = [one.value for one in calls if isinstance(one, ast.Attribute)]
    made = {name for node in function.module.tree.body for name in _made(node)}
    return any(isinstance(one, ast.Name) and one.id in made for one in owners)


def _made(node: ast.stmt) -> Iterator[str]:
    """The names to which a file assigns what a call gives: ``app = FastAPI()``."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        yield from (one.id for one in node.targets if isinstance(one, ast.Name))


def _asks_mode(test: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "training" for n in ast.walk(test))
