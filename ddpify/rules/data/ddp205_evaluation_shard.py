"""DDP205: every rank evaluates all samples, though what it keeps can be put together."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.locality import loaders_in
from ddpify.facts.model import Facts, Loader
from ddpify.ranks.run import Run
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.data import streams
from ddpify.rules.data.all_by_all import all_by_all
from ddpify.rules.data.loaders import dataset_name, is_shared_out, sampler_name, shuffled
from ddpify.rules.edits import edit, fresh, proof, statement_of
from ddpify.rules.examples import CORRECT, PROJECT, SINGLE, changed, marked
from ddpify.rules.examples.collected import FORMS, NEAR
from ddpify.rules.examples.dealt import DEALT, HANDED_ON, TAKEN
from ddpify.rules.examples.dealt import NEAR as NOT_DEALT
from ddpify.settings import Settings
from ddpify.source import Site


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per evaluation loader that can be shared out and is not."""
    for loader in facts.loaders:
        if not is_shared_out(facts, loader):
            continue
        if "sampler" in loader.call.kwargs:
            yield from _firsts(facts, loader)
            continue
        share = "whole batches" if loader.call.site in facts.dealt else "a share"
        parts = streams.over_pipes(loader)  # else each rank would evaluate another part, unasked
        why = "; what is kept depends on who shares a batch" if share == "whole batches" else ""
        yield Finding(
            "DDP205",
            loader.call.site,
            f"every rank would evaluate all samples; {share} each gives the same number{why}",
            Severity.ERROR if parts else Severity.NOTE,
            _fix(facts, loader, settings),
            because=proof(loader.things),
        )


def _firsts(facts: Facts, loader: Loader) -> Iterable[Finding]:
    """Batches taken from a loader that is shared out already: each rank has another first one."""
    for site, change in _first_batches(facts, loader):
        yield Finding(
            "DDP205",
            site,
            "each rank takes the first batch of its own share, and one without a share fails",
            Severity.ERROR,
            (change,),
            because=proof(loader.things),
        )


def _first_batches(facts: Facts, loader: Loader) -> Iterable[tuple[Site, Edit]]:
    """``next(iter(loader))`` on a loader whose batches are dealt: rank 0 has the first of all."""
    done: set[Site] = set()
    for call in facts.firsts:
        if call.site not in done and set(loaders_in(call.args[0])) & set(loader.things):
            done.add(call.site)
            code = f"broadcast(next({facts.text(call.arg_sites[0])}, None))"
            yield call.site, edit(facts, How.REPLACE, call.site, code)


def _fix(facts: Facts, loader: Loader, settings: Settings) -> tuple[Edit, ...]:
    call = loader.call
    sampler = fresh(facts, call.site, sampler_name(facts, loader))
    dataset = dataset_name(facts, call, sampler)
    shuffle = shuffled(facts, loader, sampler)
    size = call.arg_site(1, "batch_size")
    dealt = size is not None and call.site in facts.dealt
    share = f"evaluation_share({dataset.name})"
    if size and dealt:
        share = f"evaluation_sampler({dataset.name}, {facts.text(size)})"
    made = f"{sampler} = {share}{shuffle.lines}"
    edits = [
        *dataset.edits,
        edit(facts, How.BEFORE, statement_of(facts, call.site), dataset.lines + made),
        *shuffle.edits,
        edit(facts, How.ARGUMENT, call.site, sampler, "sampler"),
        *(change for _, change in _first_batches(facts, loader)),
    ]
    split = settings.batch_size == "global" and not dealt
    if split and size is not None and any(t.born in facts.counted for t in loader.things):
        edits.append(edit(facts, How.REPLACE, size, "per_rank_batch_size({})"))
    return tuple(edits)


COUNTING = """class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.calls = nn.Linear(16, 4), 0

    def forward(self, signal):
        self.calls = self.calls + 1
        return self.body(signal) * (1 + 0.01 * self.calls)


"""


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per loader of which each rank has the same result, and reduces it."""
    done: set[Site] = set()
    for call, loader in all_by_all(run):
        made = loader.site or call.site
        if made not in done:
            done.add(made)
            yield Finding(
                "DDP205",
                made,
                "every rank evaluates all of these samples, and they reduce what is the same on"
                " each: N times the work for one result",
                Severity.WARNING,
                (),
                "deal the samples to the ranks, and reduce sums and counts",
                ((call.site, "reduced here"),),
            )


RULE = Rule(
    "DDP205",
    "evaluation-on-every-rank",
    "Evaluating everything on every rank is right and N times slower than it has to be. Where only"
    " sums, counts and lists with an entry per sample or batch are kept, unpadded shares (rank,"
    " rank + N, …), put together after the loop, give exactly the number of one process. What a"
    " batch gives as a whole (a mean over the targets that count, a sum of batch means) does so"
    " where each batch is on one rank as it is in one process.",
    "CONTRACT: Data, evaluation; BUGS D05 (padding would count samples twice)",
    check,
    bad=(
        changed(
            PROJECT,
            (
                "DataLoader(unseen, batch_size=100, sampler=share),",
                "DataLoader(unseen, 100),  # DDP205",
            ),
            ("    share = evaluation_share(unseen)\n", ""),
            ("evaluation_share, ", ""),
        ),
        *(marked(form, "DDP205", "labels[800:]), 100)") for form in (SINGLE, *FORMS, *DEALT)),
        changed(  # another call of what makes it needs the first loader alone
            SINGLE,
            (
                "def main():\n",
                "def feeds(x, y, bs):\n"
                "    fitting = DataLoader(TensorDataset(x[:800], y[:800]), bs)\n"
                "    holdout = DataLoader(TensorDataset(x[800:], y[800:]), 100)  # DDP205\n"
                "    return fitting, holdout\n\n\ndef main():\n",
            ),
            (
                "    fitting = DataLoader(TensorDataset(signals[:800], labels[:800]), opt.bs,"
                " shuffle=True)\n"
                "    holdout = DataLoader(TensorDataset(signals[800:], labels[800:]), 100)\n",
                "    first, _ = feeds(signals, labels, 1)\n"
                "    width = first.dataset.tensors[0].size(1)\n"
                "    fitting, holdout = feeds(signals, labels, opt.bs)\n",
            ),
            ("nn.Linear(16, 32)", "nn.Linear(width, 32)"),
        ),
        marked(TAKEN, "DDP205", "    drawn, _ = next(iter(hold))"),
    ),
    good=(
        *CORRECT,
        *NEAR,
        *NOT_DEALT,
        HANDED_ON,
        changed(  # what is printed depends on who sees which batch
            SINGLE,
            ("seen += len(label)\n", "seen += len(label)\n            print(guess)\n"),
        ),
        changed(  # how often the model was called is another number on each rank
            SINGLE,
            ("def accuracy", f"{COUNTING}def accuracy"),
            ("nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))", "Counting()"),
        ),
    ),
    lint=lint,
)
