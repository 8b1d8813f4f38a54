"""DDP006: what is trained goes into code that was not read."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Danger, Escape, Facts, shown
from ddpify.facts.values import Kind
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples import LEARNER, SINGLE, changed
from ddpify.settings import Settings

ADVICE = {
    Danger.TRAINING: "move what it does with it into the project, or out of the training",
    Danger.CALLBACK: "call it where it can be seen",
    Danger.LOSS: "write the loss in the project, or see that it is a mean over the samples",
    Danger.FILE: "write it with torch.save, or see that it is written once",
    Danger.OUTPUT: "see that it neither writes nor shows anything N times",
    Danger.BATCH_SIZE: "see whether it means the batch of all ranks or that of one",
    Danger.OPTIMIZER: "see that it steps by the gradients alone",
    Danger.EACH_RANK: "see that it neither writes nor shows anything N times",
    Danger.MODEL: "see that each step gives each parameter a gradient",
}
SEVERITY = {
    Danger.OUTPUT: Severity.WARNING,
    Danger.BATCH_SIZE: Severity.WARNING,
    Danger.OPTIMIZER: Severity.NOTE,
    Danger.MODEL: Severity.NOTE,
    Danger.EACH_RANK: Severity.NOTE,
}


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield a finding per use of a tracked value that was not followed."""
    shares = (Danger.LOSS, Danger.OUTPUT, Danger.BATCH_SIZE) if facts.whole_batches else ()
    for escape in (one for one in facts.followed.escapes if one.danger not in shares):
        severity = SEVERITY.get(escape.danger, Severity.ERROR)
        if escape.kind is Kind.SCHEDULER:
            severity = Severity.WARNING
        advice = _of_above(facts, escape) or ADVICE[escape.danger]
        yield Finding("DDP006", escape.site, _message(escape), severity, (), advice)


def _of_above(facts: Facts, escape: Escape) -> str:
    """What lets unread code of a package be read that only lies above the project's folder."""
    top = escape.to.partition(".")[0]
    if top not in facts.beyond:
        return ""
    return (
        f"that it is the `{top}` in `{facts.beyond[top]}` is not sure: let a pyproject.toml there"
        " name all packages that are imported from there, or the script add that folder to sys.path"
    )


def _message(escape: Escape) -> str:
    what, to = escape.what, shown(escape.to)
    return {
        Danger.TRAINING: f"{what} goes into {to}, which was not read: it may step, save or wrap it",
        Danger.CALLBACK: f"{to}: a function that has hold of what is trained may be called where"
        " nobody sees it",
        Danger.LOSS: f"the loss goes through {to}, which was not read: of a share of the batch it"
        " may be another loss",
        Danger.FILE: f"{what} goes into {to}, which was not read: each rank may write the file",
        Danger.OUTPUT: f"{to} was not read, and each rank gives it what its own samples made",
        Danger.BATCH_SIZE: f"the batch size goes into {to}, which was not read",
        Danger.EACH_RANK: f"{what} goes into {to}, which was not read: what it does with it, each"
        " rank does",
        Danger.OPTIMIZER: f"the optimizer is made by {to}, which was not read",
        Danger.MODEL: f"the model is made by {to}, which was not read: unused parameters and a"
        " forward that compares samples would not be seen",
    }[escape.danger]


_HIDDEN = ("import torch\n", "import torch\nfrom hidden import extra\n")
_STEP = "            adam.step()\n"
_LOSS = "nn.functional.cross_entropy(net(signal.cuda()), label.cuda())"
_SAVED = 'torch.save(net.state_dict(), "net.pth")'
_ROUNDS = "    for round_ in range(5):\n"
_HOOK = "    kept = []\n\n    def seen(part, given, made):\n"
_MARK = "  # DDP006"
_HOOKED = f"\n    net[0].register_forward_hook(seen){_MARK}\n"
_PRINTED = '        print("round", round_, "accuracy", accuracy(net, holdout))\n'


def _owned(mark: str, rate: str) -> tuple[tuple[str, str], ...]:
    """A schedule that asks the object which holds what is trained."""
    return (
        (
            "import torch\n",
            "import torch\n\n\nclass Whole:\n"
            "    def __init__(self, net, fitting, adam):\n"
            "        self.net, self.fitting = net, fitting\n"
            "        self.decay = torch.optim.lr_scheduler.LambdaLR(\n"
            f"            adam, lambda step: self.rate(step, len(self.fitting)){mark}\n"
            f"        )\n\n    def rate(self, step, steps):\n        return {rate}\n",
        ),
        (_ROUNDS, f"    whole = Whole(net, fitting, adam)\n{_ROUNDS}"),
        (_STEP, f"{_STEP}            whole.decay.step()\n"),
    )


RULE = Rule(
    "DDP006",
    "not-followed",
    "A migration is right as far as the program was read. What goes into code that was not read"
    " (a library nobody knows, a module that is not found, a function that is chosen while the"
    " program runs, a container nobody followed) may be stepped, saved, wrapped or shown there,"
    " by each rank. Each such use is named; one that could make training wrong ends the migration,"
    " unless `--accept DDP006@file:line` says that it is fine.",
    "DESIGN, no silent escape",
    check,
    bad=(
        changed(SINGLE, _HIDDEN, (_STEP, f"{_STEP}            extra.clip(net)  # DDP006\n")),
        changed(SINGLE, _HIDDEN, (_LOSS, "extra(net(signal.cuda()), label.cuda())  # DDP006")),
        changed(SINGLE, _HIDDEN, (_SAVED, 'extra(net.state_dict(), "net.pth")  # DDP006')),
        changed(
            SINGLE,
            ("import argparse\n", "import argparse\nimport atexit\n"),
            (_ROUNDS, f"    atexit.register(lambda: torch.save(net, 'n'))  # DDP006\n{_ROUNDS}"),
        ),
        changed(
            LEARNER,
            (
                "import torch\nfrom torch import nn\n",
                "import hidden, torch\nfrom torch import nn\n",
            ),
            (
                "        self.measure = nn.MSELoss()\n",
                "        self.measure, self.box = nn.MSELoss(), hidden.Box()\n"
                "        self.box.core = self.core  # DDP006\n",
            ),
        ),
        changed(
            SINGLE,
            ("import argparse\n", "import argparse\nimport importlib\n"),
            (_STEP, f"            importlib.import_module(opt.ema).update(net)  # DDP006\n{_STEP}"),
        ),
        changed(
            SINGLE,
            (
                _ROUNDS,
                "    decay = torch.optim.lr_scheduler.LambdaLR(\n"
                "        adam, lambda step: 1 - net[0].bias.mean().item()  # DDP006\n"
                f"    )\n{_ROUNDS}",
            ),
            (_STEP, f"{_STEP}            decay.step()\n"),
        ),
        changed(SINGLE, *_owned("  # DDP006", "1 - self.net[0].bias.mean().item()")),
        changed(SINGLE, (_ROUNDS, f"{_HOOK}        return made * len(net)\n{_HOOKED}{_ROUNDS}")),
        changed(  # what a hook keeps may be anything
            SINGLE,
            (_ROUNDS, f"{_HOOK}        kept.append(made)\n{_HOOKED}{_ROUNDS}"),
            (_LOSS, f"{_LOSS} + kept[-1].sum()"),
        ),
    ),
    good=(
        changed(  # read where it is registered
            SINGLE,
            (
                _ROUNDS,
                f"{_HOOK}        kept.append((type(part), len(net)))\n"
                f"{_HOOKED.replace(_MARK, '')}{_ROUNDS}",
            ),
        ),
        changed(
            SINGLE,
            ("import torch\n", "import thop\nimport torch\n"),
            (_PRINTED, f"        thop.profile(net, (signal,))\n{_PRINTED}"),
        ),
        changed(SINGLE, _HIDDEN, ("    torch.manual_seed(7)\n", "    extra.seed(7)\n")),
        changed(  # it asks for a length alone
            SINGLE,
            (
                _ROUNDS,
                "    decay = torch.optim.lr_scheduler.LambdaLR(\n"
                f"        adam, lambda step: 1 - step / (5 * len(fitting))\n    )\n{_ROUNDS}",
            ),
            (_STEP, f"{_STEP}            decay.step()\n"),
        ),
        changed(SINGLE, *_owned("", "1 - step / (5 * steps)")),
        changed(
            SINGLE,
            ("def main():\n", "def clip(net):\n    net.zero_grad()\n\n\ndef main():\n"),
            (_STEP, f"            globals()['clip'](net)\n{_STEP}"),
        ),
    ),
    fixes=False,
)
