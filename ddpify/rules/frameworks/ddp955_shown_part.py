"""DDP955: what Lightning's hooks print or write is of this rank's batches only."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from ddpify.ranks.hooks import TRAINER
from ddpify.ranks.model import ALL, RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.lightnings import several
from ddpify.rules.shared.hook_parts import evaluating, is_part, training
from ddpify.rules.shared.outputs import OPENS, own
from ddpify.rules.shared.rank_zero import in_hook

_PRINT: Final = "builtins.print"
_WRITES: Final = frozenset("dump write writelines writerow writerows write_text".split())
_OF_PATHS: Final = frozenset({"write_text", "write_bytes"})
_GATHERS: Final = tuple(
    "all_gather gather all_gather_object gather_object gather_for_metrics".split()
)
_GATHERING: Final = tuple(f"torch.distributed.{name}" for name in _GATHERS)
_CHILDREN: Final = ("_spawn", "_fork", "_notebook")
_ADVICE: Final = "self.log it with sync_dist=True, or all_gather it on all ranks before"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per line of a hook that shows numbers of a rank's own batches."""
    if not several(run):
        return
    yield from _predicted(run)
    for call in run.calls:
        hook = evaluating(call) or training(call)
        shows = call.name == _PRINT or call.method in _WRITES
        if not shows or hook is None or not in_hook(call) or any(v.by_rank for v in call.given):
            continue
        if call.name == _PRINT and _is_progress(call):
            continue
        if _is_own_file(run, call) or _may_be_gathered(run, call, hook):
            continue
        if any(is_part(run, value) for value in call.given):
            place = next(one for one in call.way if one.function is hook)
            yield Finding(
                "DDP955",
                place.site,
                "what is shown is of one rank's part of the data",
                Severity.ERROR if _is_lost(call) else Severity.WARNING,
                advice=_ADVICE,
            )


def _is_progress(call: RankCall) -> bool:
    """Whether a step of training prints of its own batch: nothing that was kept of several."""
    made = (thing for value in call.given for thing in value.sources())
    kept = any(thing.kind == "attribute" and _is_of_instance(thing) for thing in made)
    return training(call) is not None and not kept


def _is_of_instance(thing: RankThing) -> bool:
    """Whether an attribute is an object's of the program, which may count: no option, no part of
    the Trainer."""
    return thing.receiver is None or thing.receiver.cls is not None


def _is_own_file(run: Run, call: RankCall) -> bool:
    """Whether it goes into a file of this process alone, or one that its samples name."""
    made = (thing.call for value in call.inputs for thing in value.things if thing.call is not None)
    paths = [path for one in made if one.name in OPENS and (path := _path(one)) is not None]
    if call.method in _OF_PATHS and call.receiver is not None:
        paths.append(call.receiver)
    return any(own(path) or is_part(run, path) for path in paths)


def _path(opened: RankCall) -> RankValue | None:
    return opened.receiver if opened.receiver is not None else opened.arg(0, "file")


def _may_be_gathered(run: Run, call: RankCall, hook: FunctionDefinition) -> bool:
    """Whether the hook gathers before: by a function with an arm for one process, say."""
    gathers = (one for one in run.methods(*_GATHERS) if one.order < call.order)
    named = (one for one in run.named(*_GATHERING) if one.order < call.order)
    return any(hook in {each.function for each in one.way} for one in (*gathers, *named))


def _predicted(run: Run) -> Iterator[Finding]:
    """``trainer.predict(…)``: each rank predicts its part, whoever takes what it gives."""
    for call in run.named(f"{TRAINER}.predict"):
        if run.assumed or (_is_kept(call) and not _is_spawned(call)):
            yield Finding(
                "DDP955",
                call.site,
                "each rank predicts its part of the samples, in turns, some of them twice",
                Severity.ERROR,
                advice="gather them in the data set's order, or predict in another run on one"
                " device",
            )


def _is_kept(call: RankCall) -> bool:
    """Whether what a call gives is taken, for more than a print."""
    nodes = (one for one in call.module.nodes if isinstance(one, ast.stmt))
    for node in nodes:
        if not isinstance(node, ast.Expr) and any(one is call.node for one in _parts(node)):
            return not (isinstance(node, ast.Assign) and _is_printed(call, node))
    return False


def _is_printed(call: RankCall, node: ast.Assign) -> bool:
    """Whether the only use of what is taken is to print of it."""
    name = ast.unparse(node.targets[0])
    within = call.function.node if call.function is not None else call.module.tree
    prints = [
        one
        for one in ast.walk(within)
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "print"
    ]
    shown = {id(part) for one in prints for part in ast.walk(one)}
    uses = [one for one in ast.walk(within) if isinstance(one, ast.Name) and one.id == name]
    read = [id(one) for one in uses if isinstance(one.ctx, ast.Load)]
    return bool(read) and shown.issuperset(read)


def _is_spawned(call: RankCall) -> bool:
    """Whether the processes are the Trainer's children: it has no predictions to give back."""
    trainers = (one.call for one in call.receiver.things) if call.receiver is not None else ()
    given = (made.kwargs.get("strategy") for made in trainers if made is not None)
    words = (str(value.constant) for value in given if value is not None)
    return any(word.endswith(_CHILDREN) for word in words)


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """What is in a statement, but for other statements."""
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        yield node
        left += [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt)]


def _is_lost(call: RankCall) -> bool:
    """Whether all ranks write samples of an evaluation into one file: each has its own of them."""
    return call.name != _PRINT and call.ranks == ALL and evaluating(call) is not None


_FITTED: Final = "    trainer.fit(Net(), datamodule=Rows())\n"
_ON_ONE: Final = "        if self.trainer.is_global_zero:\n"


def _with(*lines: str) -> Example:
    """The program with a counter, and these lines behind the validation step."""
    log = 'self.log("val_loss", loss_of(self.net(x), y), sync_dist=True)\n'
    counted = f"{log}\n    def on_validation_epoch_end(self):\n{''.join(lines)}"
    return changed(
        LIGHTNING,
        ("self.net = nn.Linear(8, 8)\n", "self.net, self.seen = nn.Linear(8, 8), 0\n"),
        ("        loss_of = nn.functional.mse_loss\n", "        self.seen += len(x)\n"),
        (log, counted.replace("loss_of", "nn.functional.mse_loss")),
    )


RULE = Rule(
    "DDP955",
    "part-of-an-epoch-shown",
    "Lightning deals the batches to the ranks: counts and lists that hooks keep of them are those"
    " of one rank. Printed, or written on rank 0, they are taken for those of the whole data.",
    "LightningModule.log(sync_dist=True), LightningModule.all_gather; BUGS M01",
    lint=lint,
    bad=(
        _with(f'{_ON_ONE}            print("seen", self.seen)  # DDP955\n'),
        _with(f'{_ON_ONE}            open("seen.txt", "w").write(str(self.seen))  # DDP955\n'),
        changed(
            LIGHTNING,
            (
                _FITTED,
                f"{_FITTED}    rows = trainer.predict(Net(), Rows())  # DDP955\n    rows[0]\n",
            ),
        ),
    ),
    good=(
        LIGHTNING,
        changed(LIGHTNING, (_FITTED, f"{_FITTED}    trainer.predict(Net(), Rows())\n")),
        changed(
            LIGHTNING,
            (
                _FITTED,
                f"{_FITTED}    rows = trainer.predict(Net(), Rows())\n    print(rows[0])\n",
            ),
        ),
        _with("        print(self.global_rank, self.all_gather(torch.tensor(self.seen)))\n"),
    ),
)
