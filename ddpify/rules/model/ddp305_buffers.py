"""DDP305: ranks evaluate with batch-norm statistics of their own."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.copies import original
from ddpify.facts.events import Forward
from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.scopes import FunctionInfo, Loop
from ddpify.ranks.buffers import has_buffers
from ddpify.ranks.model import RankCall
from ddpify.ranks.model import RankLoop as RankLoop
from ddpify.ranks.modules import FunctionDefinition as RankFunction
from ddpify.ranks.passes import iterated
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, PROJECT, SINGLE, changed
from ddpify.rules.shared.model_names import name_at
from ddpify.rules.shared.wrapped import wraps
from ddpify.settings import Settings
from ddpify.source import Site

SYNC = "ddpify.runtime.sync_buffers"


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per evaluation loop that starts with unsynchronised buffers."""
    training = {x.batch.site for x in facts.training}
    done: set[Site] = set()
    for forward in facts.evaluation_forwards:
        loop = _evaluation_loop(forward)
        if loop is None or loop.site in done | training or not _has_buffers(facts, forward):
            continue
        done.add(loop.site)
        if _synchronised(facts, loop.function):
            continue
        name = name_at(facts, forward, loop)
        fix = (edit(facts, How.BEFORE, loop.site, f"sync_buffers({name})"),) if name else ()
        yield Finding(
            "DDP305",
            loop.site,
            "ranks would evaluate with batch-norm statistics of their own",
            Severity.ERROR,
            fix,
            "" if fix else "give the model a name where this loop is, then run again",
        )


def _evaluation_loop(forward: Forward) -> Loop | None:
    found = [x for x in forward.call.where.loops() if loaders_in(x.over)]
    return found[0] if found else None


def _has_buffers(facts: Facts, forward: Forward) -> bool:
    born = original(whole(forward.model)).born  # of a copy: what it takes over
    return any(m.buffers for m in facts.models if any(t.born == born for t in m.things))


def _synchronised(facts: Facts, function: FunctionInfo | None) -> bool:
    return any(call.where.function is function for call in facts.named(SYNC))


def lint(run: Run) -> Iterable[Finding]:
    """Yield a finding per evaluation of the model inside a wrapper that nothing has synchronised.

    In a migrated program; others mostly evaluate the wrapper, which then synchronises.
    """
    done: set[Site] = set()
    for wrap in wraps(run) if run.helpers else ():
        called = run.methods("__call__", "forward") if has_buffers(wrap.wrapper) else ()
        for call in called:
            loop = next((loop for loop in call.loops if _evaluates(run, loop)), None)
            inside = call.receiver is not None and any(
                t in wrap.inner for t in call.receiver.things
            )
            if loop is None or call.grad or not inside or loop.site in done:
                continue
            if call.everywhere and not _in_step(run, call):
                done.add(loop.site)
                yield Finding(
                    "DDP305",
                    loop.site,
                    "ranks evaluate with batch-norm statistics of their own",
                    Severity.WARNING,
                    advice="call sync_buffers(model) before the loop",
                )


def _evaluates(run: Run, loop: RankLoop) -> bool:
    return bool(iterated(loop)) and loop.node not in run.training_loops


def _in_step(run: Run, call: RankCall) -> bool:
    """Whether buffers were sent since the last step of training before it, if there was one."""
    steps = [one.order for one in run.backwards if one.order < call.order]
    sent = [one.order for one in run.calls if one.target is not None and _sends(one.target)]
    return not steps or any(steps[-1] < order < call.order for order in sent)


def _sends(function: RankFunction) -> bool:
    return function.module.ours and function.name == "sync_buffers"


_ASKED = "def asked(signal):\n    net.eval()\n    return net(signal.cuda()).argmax(1)\n\n\n"

RULE = Rule(
    "DDP305",
    "evaluation-with-own-buffers",
    "The wrapper copies rank 0's buffers before a training forward (not behind one under no_sync()"
    " or no_grad), never after it: when training stops for an evaluation of the inner module, each"
    " rank's batch-norm statistics include its own last batch. The ranks then measure different"
    " models, and a decision made from the number splits the job.",
    "torch.nn.parallel.DistributedDataParallel (forward_sync_buffers); BUGS C04",
    check,
    bad=(
        changed(
            PROJECT,
            (
                "self.body = nn.Linear(64, 32)",
                "self.body = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32))",
            ),
            ("in stream:\n        guess", "in stream:  # DDP305\n        guess"),
        ),
        changed(
            SINGLE,
            ("nn.Linear(16, 32), nn.ReLU()", "nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU()"),
            ("in pairs:\n", "in pairs:  # DDP305\n"),
        ),
        changed(  # a global, in a function that the loop calls
            SINGLE,
            ("nn.Linear(16, 32), nn.ReLU()", "nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU()"),
            ("def main():\n", f"{_ASKED}def main():\n    global net\n"),
            ("accuracy(net, pairs):\n    net.eval()\n", "accuracy(pairs):\n"),
            (
                "in pairs:\n            guess = net(signal.cuda()).argmax(1)",
                "in pairs:  # DDP305\n            guess = asked(signal)",
            ),
            ("accuracy(net, holdout)", "accuracy(holdout)"),
        ),
        changed(  # a backbone whose layers are not seen may have batch norm
            PROJECT,
            ("from torch import nn\n", "import timm\nfrom torch import nn\n"),
            ("self.body = nn.Linear(64, 32)", 'self.body = timm.create_model("resnet18")'),
            ("in stream:\n        guess", "in stream:  # DDP305\n        guess"),
        ),
    ),
    lint=lint,
    good=(
        *CORRECT,
        SINGLE,
        changed(  # another model has them
            PROJECT,
            ("import Classifier,", "import Classifier, Guide,"),
            ("    brain = wrap", "    guide = Guide().to(place).eval()\n    brain = wrap"),
            ("fit(brain, learn,", "fit(guide, brain, learn,"),
            ("def fit(brain,", "def fit(guide, brain,"),
            ("(brain(picture), kind)", "(brain(guide(picture)), kind)"),
            (
                "class Classifier",
                "class Guide(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                "        self.norm = nn.BatchNorm1d(64)\n\n    def forward(self, picture):\n"
                "        return self.norm(picture)\n\n\nclass Classifier",
            ),
        ),
        changed(
            PROJECT,
            (
                "self.body = nn.Linear(64, 32)",
                "self.body = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32))",
            ),
            ("import reduce_sum\n", "import reduce_sum\nfrom ddp_utils import sync_buffers\n"),
            ("    hits = seen = 0\n", "    hits = seen = 0\n    sync_buffers(brain)\n"),
        ),
    ),
)
