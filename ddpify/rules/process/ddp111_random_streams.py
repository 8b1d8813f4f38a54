"""DDP111: every rank draws the same random numbers while it trains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddpify.facts.details import call_that_made
from ddpify.facts.model import Facts, TrainingLoop
from ddpify.facts.scopes import Loop
from ddpify.ranks.run import Run
from ddpify.rules.base import Example, Finding, How, Rule, Severity
from ddpify.rules.edits import edit
from ddpify.rules.examples import CORRECT, SCRIPT, SINGLE, TRAINER, changed
from ddpify.rules.process.draws import same_draws
from ddpify.rules.process.generators import same_noise
from ddpify.rules.process.merged_draws import merged_draws
from ddpify.rules.process.workers import workers_seeds
from ddpify.rules.shared.telling import is_at_head
from ddpify.settings import Settings
from ddpify.source import Site

FORK = "ddpify.runtime.fork_random_streams"


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per seed that makes all ranks draw the same augmentation."""
    later = "add the rank to the seed once model and splits are made; samplers keep theirs"
    for site, why, in_step, because in same_draws(run):
        found = _alike(site, why, later, *because)
        yield found if in_step else replace(found, severity=Severity.NOTE)
    for seeding, draw, gather in merged_draws(run):
        drawn, gathered = (draw.site, "drawn here"), (gather.site, "gathered here")
        yield _alike(seeding.site, _COPIES, f"{_ADD} of what each rank samples", drawn, gathered)
    for seeding, draw in same_noise(run):
        drawn = (draw.site, "drawn here in each round")
        yield _alike(seeding.site, _NOISE, f"{_ADD} of the generator", drawn)


_ADD = "add the rank to the seed"
_COPIES = "one seed for all ranks: each makes the same samples, and what is gathered are copies"
_NOISE = "one seed for all ranks: each trains on its own samples with the same noise"


def _alike(site: Site, message: str, advice: str, *because: tuple[Site, str]) -> Finding:
    return Finding("DDP111", site, message, Severity.WARNING, (), advice, because)


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding at the outermost training loop, and per seed of a loader's workers."""
    yield from _workers(facts)
    if facts.named(FORK):
        return
    for loop in facts.training[:1]:
        anew = _made_in(facts, loop)
        outer = loop.batch
        while outer.parent is not None and outer.parent.site not in anew:
            outer = outer.parent
        if outer.parent is not None:
            yield _again(facts, outer.parent)
        first = _first_pass(facts, loop, outer)
        if first is None and outer is loop.epoch and is_at_head(facts, loop):
            continue  # `begin_epoch` forks, and nothing draws before it
        yield Finding(
            "DDP111",
            outer.site,
            "all ranks would draw the same augmentation and dropout",
            Severity.WARNING,
            (edit(facts, How.BEFORE, first or outer.site, "fork_random_streams()"),),
        )


def _made_in(facts: Facts, loop: TrainingLoop) -> set[Site]:
    """The loops around training that make its models anew: one run after another."""
    things = (thing for model in facts.models for thing in model.things)
    calls = (call_that_made(thing) for thing in things)
    wheres = [call.where for call in calls if call is not None]
    return {each.site for where in wheres for each in where.loops()} - {loop.batch.site}


def _again(facts: Facts, rounds: Loop) -> Finding:
    return Finding(
        "DDP111",
        rounds.site,
        "what a later round draws for its data and splits would differ between ranks",
        Severity.WARNING,
        (edit(facts, How.BEFORE, rounds.body, "share_random_streams()"),),
    )


def _workers(facts: Facts) -> Iterable[Finding]:
    for site, seed in dict.fromkeys(workers_seeds(facts)):
        yield Finding(
            "DDP111",
            site,
            "the loader's workers are seeded alike on all ranks: each draws the same augmentation",
            Severity.WARNING,
            (edit(facts, How.REPLACE, site, seed),),
        )


def _first_pass(facts: Facts, loop: TrainingLoop, outer: Loop) -> Site | None:
    """``batches = iter(loader)`` before the loop: there the workers get their seed.

    Unless a model is made only after it, which has to be drawn alike.
    """
    homes = [model.home.statement for model in facts.models if model.home is not None]
    for call in facts.named("builtins.iter"):
        begun = any(t in value.things for value in call.args[:1] for t in loop.loaders)
        same = call.where.stack == outer.frame.stack and not call.where.loops()
        after = all(_is_before(home, call.site) for home in homes)
        if begun and same and after and _is_before(call.site, outer.site):
            return call.where.statement
    return None


def _is_before(one: Site, other: Site) -> bool:
    return one.path == other.path and one.span.line < other.span.line


def _with_workers(before: str, begin: str) -> Example:
    """A loader whose workers are begun by a function."""
    return changed(
        SCRIPT,
        ("import torch\nimport", "import time\n\nimport numpy as np\nimport torch\nimport"),
        ("    fork_random_streams,\n", "    fork_random_streams,\n    get_rank,\n"),
        ("feed = ", f"{before}feed = "),
        (
            "    sampler=row_sampler,\n",
            f"    sampler=row_sampler,\n    num_workers=4,\n" f"    worker_init_fn={begin}\n",
        ),
    )


RULE = Rule(
    "DDP111",
    "random-streams",
    "Ranks share a seed while data, splits and initial weights are made:"
    " otherwise each has another task. From there on they must differ: with one stream every rank"
    " draws the same noise, flips and dropout masks, and the batch holds N copies of one draw."
    " Draws of which samples take unequally many (crops that have to fit, numbers below a length)"
    " part the ranks after some samples: then it is a note.",
    "BUGS D11, transformers#37932",
    check,
    bad=(
        changed(  # draws before `begin_epoch` forks
            SCRIPT,
            ("fork_random_streams()\nfor n in range(20):", "for n in range(20):  # DDP111"),
            ("    begin_epoch(feed", "    jitter = torch.rand(20)\n    begin_epoch(feed"),
            ("net(x.to", "net((x + jitter).to"),
        ),
        changed(
            TRAINER,
            ("        fork_random_streams()\n", ""),
            (
                "lessons):\n            begin",
                "lessons):  # DDP111\n            off = 0\n            begin",
            ),
        ),
        changed(  # steps are counted: a pass begins somewhere in the loop
            SINGLE,
            ("    for round_ in range(5):\n", "    for round_ in range(5):  # DDP111\n"),
            (
                "        for signal, label in fitting:\n",
                "        if round_ % 25 == 0:\n            pairs = iter(fitting)\n"
                "        signal, label = next(pairs)\n        with torch.enable_grad():\n",
            ),
        ),
        _with_workers("", "lambda number: np.random.seed(number + int(time.time()))  # DDP111"),
        _with_workers("def begin(number):\n    np.random.seed(number)  # DDP111\n\n\n", "begin"),
    ),
    good=(
        *CORRECT,
        changed(SCRIPT, ("fork_random_streams()\n", ""), ("    fork_random_streams,\n", "")),
        _with_workers("", "lambda number: np.random.seed(torch.initial_seed() % 2**32 + number)"),
        _with_workers(
            "def begin(number):\n    seed = torch.initial_seed() % 2**32\n"
            "    np.random.seed(seed)\n\n\n",
            "begin",
        ),
        _with_workers("", "lambda number: np.random.seed(number + 1000 * get_rank())"),
    ),
    lint=lint,
    words=("seed(",),
    severity=Severity.WARNING,
)
