"""All rules, with those that are not about what a program does."""

from __future__ import annotations

from ddpify.checking.model import Named
from ddpify.rules.base import Example, Rule, Severity
from ddpify.rules.examples import started
from ddpify.rules.registry import all_rules, conversions

_OWN = (
    Rule(
        "DDP000",
        "cannot-be-read",
        "A file that is not valid Python 3 cannot be read, and what is wrong in it is not found. "
        "The other files are read all the same.",
        "ddpify",
        bad=(Example((("main.py", 'print "hello"  # DDP000\n'),)),),
        good=(Example((("main.py", 'print("hello")\n'),)),),
    ),
    Rule(
        "DDP001",
        "helpers-differ",
        "A migrated project carries a copy of ddpify's helper module. A copy that was changed by "
        "hand is not renewed by the next migration, and one of another version may lack helpers.",
        "ddpify",
        severity=Severity.NOTE,
    ),
    Rule(
        "DDP002",
        "launcher-without-torchrun",
        "A migrated script that is started with `python` trains in one process, on one GPU; only "
        "torchrun starts one process per GPU.",
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        severity=Severity.WARNING,
        bad=(started.PLAINLY_STARTED,),
        good=(started.STARTED,),
    ),
    Rule(
        "DDP005",
        "unused-suppression",
        "A comment that silences nothing (the finding was mended, or the code is wrong) will hide "
        "the next finding in its line. Codes of other linters are left alone.",
        "ruff's RUF100",
        severity=Severity.WARNING,
        bad=(Example((("main.py", "x = 1  # noqa: DDP801\n"),)),),
        good=(Example((("main.py", "import os  # noqa: F401\n"),)),),
    ),
    Rule(
        "DDP008",
        "left-to-do",
        "`ddpify migrate --partial` marks what it could not decide with a comment, and the program "
        "ends at its start until that is done: half a migration may hang, or train wrongly.",
        "ddpify",
    ),
    Rule(
        "DDP960",
        "trainer-of-one-device",
        "A Lightning Trainer that is given devices=1 trains on one, however many there are. "
        'devices="auto" takes them all, and on one device does what devices=1 did.',
        "https://lightning.ai/docs/pytorch/stable/common/trainer.html",
        severity=Severity.WARNING,
        bad=(started.ONE_DEVICE,),
        good=(started.ALL_DEVICES,),
    ),
    Rule(
        "DDP961",
        "trainer-without-sync-batchnorm",
        "One device had the statistics of the whole batch; on several GPUs a BatchNorm has those "
        "of its rank's part, unless the Trainer makes it a SyncBatchNorm. In one process it does "
        "not.",
        "lightning.pytorch.plugins.layer_sync.TorchSyncBatchNorm",
        severity=Severity.WARNING,
        bad=(started.UNSYNCED,),
        good=(started.SYNCED,),
    ),
    Rule(
        "DDP963",
        "launch-on-one-gpu",
        "Lightning starts one process per GPU that it sees, or joins the tasks that srun has "
        "started. CUDA_VISIBLE_DEVICES=0 shows it one, and a Slurm job of one task is one process.",
        "https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html",
        severity=Severity.WARNING,
        bad=(started.PINNED,),
        good=(started.UNPINNED,),
    ),
    Rule(
        "DDP964",
        "trainer-without-unused-parameters",
        "Where optimizers are stepped one after the other by hand, a backward for one leaves out "
        "the weights of the others: DDP ends with an error unless it looks for such weights.",
        "lightning.pytorch.strategies.DDPStrategy; measured",
        severity=Severity.WARNING,
        bad=(started.NOT_LOOKING,),
        good=(started.LOOKING,),
    ),
)


def catalogue() -> tuple[Rule, ...]:
    """In the order of their codes."""
    rules = {rule.id: rule for rule in (*_OWN, *all_rules(), *conversions())}
    return tuple(rule for _, rule in sorted(rules.items()))


def named(codes: set[str]) -> dict[str, Named]:
    """What reports say of these rules."""
    return {rule.id: Named(rule.name, rule.safe) for rule in catalogue() if rule.id in codes}
