"""DDP504: every rank opens the experiment tracker."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.effects import EffectKind
from ddpify.facts.events import Call, Where
from ddpify.facts.model import Facts
from ddpify.facts.values import Kind, Value
from ddpify.python import writers
from ddpify.ranks.model import ALL, RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, once
from ddpify.rules.effects import wandb_runs
from ddpify.rules.effects.effects import gated, gated_statement, null_writer
from ddpify.rules.examples import BY_HAND, CORRECT, SCRIPT, TRAINER, changed
from ddpify.rules.shared.meetings import at_once
from ddpify.rules.shared.outputs import by_all
from ddpify.settings import Settings
from ddpify.site import Site

MESSAGE = "every rank would log to the tracker"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per tracker made, and per module-level tracker call."""
    runs = _runs(facts) if wandb_runs.is_asked(facts) else {}
    for found in gated(facts, "DDP504", (EffectKind.TRACKER,), MESSAGE, Severity.WARNING):
        if found.site not in runs:
            yield found
    made = tuple(c for c in facts.calls if any(t.born == c.site for t in c.result.of(Kind.TRACKER)))
    for site, calls in once(made).items():
        if site in runs or all(c.where.one_rank() for c in calls):
            continue
        fix = _fix(facts, calls[0])
        yield Finding(
            "DDP504", site, MESSAGE, Severity.WARNING, fix, "" if fix else "make it on rank 0 only"
        )
    yield from _silenced(facts, runs)
    for site in dict.fromkeys(_answers(facts)):
        yield Finding(
            "DDP504",
            site,
            "only rank 0 has a tracker to ask: the others' stand-in is no path and no name",
            Severity.ERROR,
            (edit(facts, How.REPLACE, site, "broadcast({})"),),
        )


def _runs(facts: Facts) -> dict[Site, list[Call]]:
    """What opens or sets up a run of which all ranks read the configuration."""
    return once(facts.named(wandb_runs.OPENS, wandb_runs.UPDATES))


def _silenced(facts: Facts, runs: dict[Site, list[Call]]) -> Iterable[Finding]:
    """One finding per run that every rank opens, for what it holds."""
    for site, calls in runs.items():
        silent = calls[0].where.one_rank() or wandb_runs.is_silent(facts, calls[0])
        if calls[0].name != wandb_runs.OPENS or silent:
            continue
        yield Finding(
            "DDP504",
            site,
            "every rank would open a run of its own, and without one none could read its settings",
            Severity.ERROR,
            wandb_runs.silent_run(facts, calls[0]),
            'open it on all ranks, with mode="disabled" on all but rank 0',
        )


def _answers(facts: Facts) -> Iterable[Site]:
    """Where all ranks ask a tracker for a value, ``writer.log_dir``, ``writer.get_logdir()``."""
    handed = {c.arg_sites[0] for c in facts.calls if c.name.endswith(".broadcast") and c.arg_sites}
    for call in facts.calls:
        asks = call.name.rpartition(".")[2] in ANSWERS and not call.alone
        if asks and _is_asked(call.receiver, call.where) and call.site not in handed:
            yield call.site
    yield from (site for site in wandb_runs.answers(facts, ANSWERS) if site not in handed)
    for access in facts.accesses:
        if access.attribute in ANSWERS and _is_asked(access.base, access.where):
            site = facts.tree(access.base_site).read_of(access.base_site)
            if site is not None and site not in handed:
                yield site


def _is_asked(tracker: Value | None, where: Where) -> bool:
    if tracker is None or where.one_rank():
        return False
    return bool(tracker.dep(Kind.TRACKER))


def _fix(facts: Facts, call: Call) -> tuple[Edit, ...]:
    if call.alone:
        return gated_statement(facts, call)
    return (null_writer(facts, call.site),)


ANSWERS = frozenset("log_dir logdir get_logdir dir id name url".split())


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per tracker that every rank opens as the same."""
    silent = any(s.key in ("WANDB_MODE", "WANDB_DISABLED") and s.ranks != ALL for s in run.stores)
    calls = [call for call in run.calls if not (silent and call.name.startswith("wandb."))]
    if run.helpers:
        yield from _logged(run, calls)
    for call in calls:
        if call.name not in writers.TRACKERS or _tells_ranks_apart(run, call):
            continue
        if call.name in _CONNECTIONS and not any(by_all(run, use) for use in _uses(run, call)):
            continue
        if by_all(run, call) and at_once(run, call):
            yield Finding(
                "DDP504",
                call.site,
                "every rank opens the tracker: one training shows as several runs",
                Severity.WARNING,
                advice="open it on the rank with number 0 only",
            )


def _logged(run: Run, calls: list[RankCall]) -> Iterable[Finding]:
    """What every rank of a migrated program says to a tracker that is a module: ``wandb.log``."""
    for call in calls:
        module, _, name = call.name.partition(".")
        said = module in ("wandb", "mlflow") and "." not in name
        if said and call.name not in writers.TRACKERS and call.alone and by_all(run, call):
            yield Finding(
                "DDP504",
                call.site,
                "every rank logs to the tracker",
                Severity.WARNING,
                advice="log on the rank with number 0 only",
            )


# What only connects to a server: it shows what it is told.
_CONNECTIONS = frozenset({"visdom.Visdom"})


def _tells_ranks_apart(run: Run, call: RankCall) -> bool:
    """Whether each rank opens its own, or puts its number into the name of all that it says."""
    if call.star or any(value.by_rank for value in call.given):
        return True
    tags = [use.arg(0, "tag") for use in _uses(run, call) if use.method.startswith("add_")]
    return bool(tags) and all(tag is not None and tag.by_rank for tag in tags)


def _uses(run: Run, call: RankCall) -> list[RankCall]:
    """The methods that are called of a tracker."""
    made = set(call.result.things) if call.result is not None else set()
    held = ((one, one.receiver) for one in run.calls if one.receiver is not None)
    return [one for one, value in held if not made.isdisjoint(value.things)]


RULE = Rule(
    "DDP504",
    "tracker-on-every-rank",
    "Every rank that opens a tracker makes a run of its own (wandb) or an event file of its own"
    " (TensorBoard): one training shows as N curves.",
    "BUGS M07; PATTERNS A11",
    check,
    bad=(
        changed(
            TRAINER,
            (
                "SummaryWriter(folder) if is_main_process() else NullWriter()",
                "SummaryWriter(folder)  # DDP504",
            ),
        ),
        changed(
            TRAINER,
            ('f"{self.folder}/pupil.pt")', 'f"{self.board.log_dir}/pupil.pt")  # DDP504'),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "import torch\nimport wandb\nimport"),
            (
                "    if is_main_process():\n        print(n, running / len(feed))\n",
                '    wandb.log({"running": running})  # DDP504\n',
            ),
        ),
        changed(  # what it holds is read by all ranks, which have none without it
            SCRIPT,
            ("import torch\nimport", "import torch\nimport wandb\nimport"),
            ("device = ", 'wandb.init(config={"rounds": 20})  # DDP504\ndevice = '),
            ("range(20)", "range(wandb.config.rounds)"),
        ),
        changed(
            BY_HAND,
            ("import torch\nimport torch.dist", "import torch\nimport wandb\nimport torch.dist"),
            ("    gpu = int", '    wandb.init(project="images")  # DDP504\n    gpu = int'),
        ),
    ),
    good=(
        *CORRECT,
        changed(
            TRAINER,
            ("import begin_epoch, save", "import begin_epoch, broadcast, save"),
            ('f"{self.folder}/pupil.pt")', 'f"{broadcast(self.board.log_dir)}/pupil.pt")'),
        ),
        changed(
            SCRIPT,
            ("import torch\nimport", "import torch\nimport wandb\nimport"),
            ("    begin_epoch,\n", "    begin_epoch,\n    broadcast,\n"),
            (
                "device = ",
                'run = wandb.init(mode=None if is_main_process() else "disabled")\n'
                "run.config.update(broadcast(dict(run.config)), allow_val_change=True)\ndevice = ",
            ),
            ("range(20)", "range(run.config.rounds)"),
        ),
    ),
    lint=lint,
    words=("SummaryWriter", "wandb", "Visdom("),
    severity=Severity.WARNING,
)
