"""DDP315: inputs that only nn.DataParallel took to the GPU."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.events import Call, Forward
from ddpify.facts.model import Facts
from ddpify.facts.roles import whole
from ddpify.facts.values import NOTHING, Kind, Thing
from ddpify.rules.base import Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, LEGACY, changed
from ddpify.rules.shared.loaded import is_left
from ddpify.settings import Settings
from ddpify.source import Site


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield a finding per input of a model that is on the GPU, where nothing takes it there."""
    spread = {t.born for t in _spread(facts)}
    moved = {whole(t).born for call in facts.named(".cuda", ".to") for t in _things(call)}
    done: set[Site] = set()
    for forward in facts.forwards:
        if whole(forward.model).born not in spread & moved:
            continue
        for site in _left(facts, forward):
            if site in done:
                continue
            done.add(site)
            yield Finding(
                "DDP315",
                site,
                "nn.DataParallel took this input to the GPU, where the model is; nothing else does",
                Severity.ERROR,
                (edit(facts, How.REPLACE, site, "{}.to(local_device())"),),
            )


def _spread(facts: Facts) -> Iterable[Thing]:
    """What is in an nn.DataParallel: the trained models, and a teacher, which may have its own."""
    for model in facts.models:
        yield from model.things if model.data_parallel else ()
        for call in model.data_parallel:
            yield from (whole(t) for value in call.args[:1] for t in value.of(Kind.MODEL))


def _things(call: Call) -> tuple[Thing, ...]:
    return (call.receiver or NOTHING).of(Kind.MODEL, Kind.WRAPPED)


def _left(facts: Facts, forward: Forward) -> Iterable[Site]:
    """The tensors among a model's inputs that are still where the loader made them."""
    call = forward.call
    for site, value in zip(call.arg_sites, call.args, strict=False):
        local = bool(value.dep(Kind.BATCH)) and not value.things
        if local and is_left(facts, site):
            yield site


MARK = ("verdict.cuda())\n", "verdict.cuda())  # DDP315\n")

RULE = Rule(
    "DDP315",
    "scattered-inputs",
    "nn.DataParallel copies what it is given to the GPUs of its replicas, so that a script may give"
    " it batches that are on the CPU. Without it the model is on the GPU and its input is not.",
    "torch.nn.parallel.scatter; PATTERNS A4 (CPU inputs moved to GPU by DataParallel.scatter)",
    check,
    bad=(
        changed(LEGACY, ("judge(facts.cuda()), v", "judge(facts), v"), MARK),
        changed(
            LEGACY,
            ("judge(facts.cuda()), v", "judge(both), v"),
            (
                "        optimiser.zero_grad()\n",
                "        both = torch.cat([facts, facts])[:128]\n        optimiser.zero_grad()\n",
            ),
            MARK,
        ),
        changed(  # a teacher, which nothing trains
            LEGACY,
            (
                "judge = nn.DataParallel(judge)\n",
                "judge = nn.DataParallel(judge)\n"
                "master = nn.DataParallel(nn.Linear(12, 3).cuda())\n",
            ),
            (
                "        penalty = entropy(judge(facts.cuda()), verdict.cuda())\n",
                "        with torch.no_grad():\n            wanted = master(facts)  # DDP315\n"
                "        penalty = nn.functional.mse_loss(judge(facts.cuda()), wanted)\n",
            ),
        ),
    ),
    good=(
        *CORRECT,
        changed(  # moved under its own name, or by a function
            LEGACY,
            ("judge(facts.cuda()), v", "judge(facts), v"),
            (
                "        optimiser.zero_grad()\n",
                "        facts = facts.cuda()\n        optimiser.zero_grad()\n",
            ),
        ),
        changed(  # all on the CPU
            LEGACY,
            ("judge(facts.cuda()), verdict.cuda()", "judge(facts), verdict"),
            ("nn.Linear(24, 3)).cuda()", "nn.Linear(24, 3))"),
        ),
    ),
)
