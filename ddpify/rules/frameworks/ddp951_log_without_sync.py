"""DDP951: what a Lightning module logs of an evaluation, or an epoch, is this rank's part."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddpify.ranks.hooks import BATCHES, EVALUATION
from ddpify.ranks.model import RankCall, RankThing, RankValue
from ddpify.ranks.modules import FunctionDefinition
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.examples import changed
from ddpify.rules.examples.lightning import LIGHTNING
from ddpify.rules.frameworks.lightnings import logs, several
from ddpify.rules.frameworks.weighing import is_rounded, weighed
from ddpify.rules.shared.fields import makers
from ddpify.rules.shared.hook_parts import evaluating, is_agreed, training
from ddpify.rules.shared.own_gathers import attribute_of
from ddpify.rules.shared.syntax import scope_nodes

_LOG = 'self.log("val_loss", loss_of(self.net(x), y), sync_dist=True)'

_TRAINED = "        return nn.functional.mse_loss(self.net(x), y)\n"


def _training(rest: str) -> str:
    """A training step that logs its loss."""
    return (
        "        loss = nn.functional.mse_loss(self.net(x), y)\n"
        f'        self.log("loss", loss{rest}\n        return loss\n'
    )


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per line that logs an unreduced number of an evaluation or an epoch, and of
    a program for one device a note per line that logs those of steps."""
    if not several(run):
        return
    found = list(_of_all(run))
    yield from found
    told = {one.site for one in found}
    for call in logs(run) if run.assumed else ():
        if call.spelled.site not in told and not call.star and _unsynced(call):
            yield from _of_step(run, call)


def _of_all(run: Run) -> Iterator[Finding]:
    """Those of an evaluation, or of an epoch."""
    for call in logs(run):
        hook = evaluating(call) or _of_epoch(call)
        if hook is None or call.star or not _unsynced(call) or _is_called(call):
            continue
        if any(_is_local(run, value, hook) for value in _logged(call)):
            # Lightning warns of it; what ddpify migrates has to be right
            needed = run.assumed and hook.name in EVALUATION
            yield Finding(
                "DDP951",
                call.spelled.site,
                "the number is that of rank 0's part of the data, not of all of it",
                Severity.ERROR if needed else Severity.WARNING,
                # on some ranks only, a reduction would wait for the others
                _reduced(run, call) if call.everywhere and hook.name in BATCHES else (),
                (
                    "log it on all ranks with sync_dist=True"
                    if hook.name in BATCHES
                    else "a mean of the ranks' numbers may be another one than that of all samples:"
                    " self.all_gather what it is made of, or keep it in a torchmetrics object"
                ),
                because=((hook.site, "Lightning gives each rank its part of the data"),),
            )


def _of_step(run: Run, call: RankCall) -> Iterator[Finding]:
    """What a program for one device will show of each step: a person is told what it is then."""
    hook = training(call)
    if hook is not None and any(_is_local(run, value, hook) for value in _logged(call)):
        yield Finding(
            "DDP951",
            call.spelled.site,
            "of each step this shows rank 0's part of the batch",
            Severity.NOTE,
            advice="sync_dist=True (reduce_fx='sum' of a sum) shows the whole batch, and has all"
            " ranks wait in every step",
        )


def _of_epoch(call: RankCall) -> FunctionDefinition | None:
    """The hook of the training loop that logs a number of a whole epoch."""
    hook, asked = training(call), call.kwargs.get("on_epoch")
    if hook is None:
        return None
    whole = hook.name.endswith("_epoch_end") if asked is None else asked.constant is True
    return hook if whole else None


def _reduced(run: Run, call: RankCall) -> tuple[Edit, ...]:
    return (_synced(run, call), *(weighed(run, call) if is_rounded(run, call) else ()))


def _synced(run: Run, call: RankCall) -> Edit:
    """Reduce it; where the same line logs numbers of steps in training, not these: each would
    have all ranks wait."""
    told = call.spelled
    others = (one for one in logs(run) if one.spelled.node is told.node)
    steps = any(training(one) and not _of_epoch(one) for one in others)
    function = told.node.func
    own = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
    code = f"not {own}.training" if steps and own else "True"
    return Edit(How.ARGUMENT, told.site, code, "sync_dist")


def _unsynced(call: RankCall) -> bool:
    flags = [call.kwargs.get(name) for name in ("sync_dist", "rank_zero_only")]
    return all(flag is None or flag.constant is False for flag in flags)


def _logged(call: RankCall) -> Iterator[RankValue]:
    value = call.arg(1, "value") if call.method == "log" else call.arg(0, "dictionary")
    if value is not None:
        yield from (one for _, one in value.keys) if value.keys is not None else (value,)


def _is_called(call: RankCall) -> bool:
    """Whether what is logged is called nearby: ``recall(logits, y)``, ``self.log("r", recall)``.
    No tensor is; it is a torchmetrics object, whichever dict it was taken from."""
    value = call.node_of(1, "value")
    calls = (node for node in scope_nodes(call) if isinstance(node, ast.Call))
    return isinstance(value, ast.Name) and any(
        isinstance(one.func, ast.Name) and one.func.id == value.id for one in calls
    )


def _is_local(run: Run, value: RankValue, hook: FunctionDefinition) -> bool:
    """Whether it is computed from batches, and by nothing that gathers or may be a metric."""
    sources = list(value.sources())
    computed = any(
        (t.kind == "result" and t.name.startswith("torch."))
        or (t.kind == "parameter" and t.name in hook.parameters[1:2])
        for t in sources
    )
    agreed = any(is_agreed(run, thing) for thing in sources)
    metric = any(_may_be_metric(thing, thing in value.things) for thing in sources)
    return computed and not agreed and not metric


def _may_be_metric(thing: RankThing, outermost: bool) -> bool:
    """Whether ``self.x`` or ``self.x(…)`` may be a torchmetrics object or what it gives."""
    if thing.name.startswith("torchmetrics."):
        return True
    owner, name = attribute_of(thing)
    if owner is None:
        return False
    made = list(makers(owner, name))
    if any(one.startswith("torchmetrics") for names in made for one in names):
        return True
    torch_only = bool(made) and all(names and names[0].startswith("torch.") for names in made)
    return outermost and not torch_only


RULE = Rule(
    "DDP951",
    "log-without-sync",
    "Lightning deals the data to the ranks. What self.log without sync_dist=True reports of a"
    " validation, a test or an epoch (on_epoch=True) is each rank's own mean; what is shown, saved"
    " and compared is that of rank 0 (measured: 6.5 and 8.5 where 7.5 is right). torchmetrics"
    " objects reduce themselves.",
    "lightning#20153, PR#21841; BUGS M04",
    lint=lint,
    words=(".log(", "log_dict"),
    bad=(
        changed(LIGHTNING, (_LOG, _LOG.replace(", sync_dist=True", "") + "  # DDP951")),
        changed(LIGHTNING, (_TRAINED, _training(", on_step=False, on_epoch=True)  # DDP951"))),
    ),
    good=(
        LIGHTNING,
        changed(LIGHTNING, (_TRAINED, _training(", prog_bar=True)"))),
        changed(LIGHTNING, (_LOG, 'self.log("epoch", float(self.current_epoch))')),
    ),
)
