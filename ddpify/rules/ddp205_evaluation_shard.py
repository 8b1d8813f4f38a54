"""DDP205: every rank evaluates all samples, though what it keeps can be put together."""

from __future__ import annotations

from collections.abc import Iterable

from ddpify.facts.model import Facts, Loader, Role, Status
from ddpify.rules.base import Edit, Finding, How, Rule, Severity
from ddpify.rules.edits import edit, fresh, proof, statement_of
from ddpify.rules.examples import CORRECT, PROJECT, SINGLE, changed, marked
from ddpify.rules.examples_collected import FORMS, NEAR
from ddpify.rules.loaders import dataset_name, sampler_name, shuffled
from ddpify.settings import Settings


def check(facts: Facts, settings: Settings) -> Iterable[Finding]:
    """Yield one finding per evaluation loader that can be shared out and is not."""
    if facts.status is Status.DISTRIBUTED:
        return
    for loader in facts.loaders:
        if loader.roles != {Role.EVALUATION} or loader.call.site not in facts.sharded:
            continue
        if "sampler" in loader.call.kwargs:
            continue
        yield Finding(
            "DDP205",
            loader.call.site,
            "every rank would evaluate all samples; a share each gives the same number",
            Severity.NOTE,
            _fix(facts, loader, settings),
            because=proof(loader.things),
        )


def _fix(facts: Facts, loader: Loader, settings: Settings) -> tuple[Edit, ...]:
    call = loader.call
    sampler = fresh(facts, call.site, sampler_name(facts, call, "eval_sampler"))
    dataset = dataset_name(facts, call, sampler)
    shuffle = shuffled(facts, call, sampler)
    made = f"{sampler} = evaluation_sampler({dataset.name}){shuffle.lines}"
    edits = [
        *dataset.edits,
        edit(facts, How.BEFORE, statement_of(facts, call.site), dataset.lines + made),
        *shuffle.edits,
        edit(facts, How.ARGUMENT, call.site, sampler, "sampler"),
    ]
    size = call.arg_site(1, "batch_size")
    split = settings.batch_size == "global"
    if split and size is not None and any(t.born in facts.counted for t in loader.things):
        edits.append(edit(facts, How.REPLACE, size, "per_rank_batch_size({})"))
    return tuple(edits)


RULE = Rule(
    "DDP205",
    "evaluation-on-every-rank",
    "Evaluating everything on every rank is right and N times slower than it has to be. Where only"
    " sums, counts and lists with an entry per sample or batch are kept, unpadded shares (rank,"
    " rank + N, …), put together after the loop, give exactly the number of one process.",
    "CONTRACT: Data, evaluation; BUGS D05 (padding would count samples twice)",
    check,
    bad=(
        changed(
            PROJECT,
            (
                "DataLoader(unseen, batch_size=100, sampler=share),",
                "DataLoader(unseen, 100),  # DDP205",
            ),
            ("    share = evaluation_sampler(unseen)\n", ""),
            ("evaluation_sampler, ", ""),
        ),
        *(marked(form, "DDP205", "labels[800:]), 100)") for form in (SINGLE, *FORMS)),
    ),
    good=(
        *CORRECT,
        *NEAR,
        changed(  # what is printed depends on who sees which batch
            SINGLE,
            ("seen += len(label)\n", "seen += len(label)\n            print(guess)\n"),
        ),
    ),
)
