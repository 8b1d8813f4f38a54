"""What ``migrate`` adds is missed by the linter where it is taken back.

Each bad example of a rule for migrations that uses the helpers is a migrated program without one
edit. The two-rank reading has to find that by itself, save for what is listed with its reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.rules.base import Example, Rule
from ddpify.rules.registry import all_rules
from tests.projects import put_example

EACH = "a way to split the work, not a bug: each rank may take as many samples as it likes"
WHOLE = "every rank evaluates everything: slow, and right"
REFUSED = "migrate refuses such a program: there is no edit that could be taken back"
STREAMS = "begin_epoch() starts the streams of each rank, too"
EXISTS = "exist_ok=True: no harm in several processes"
ALONE = "rank 0 alone uses the file, under whichever name"
FOLDER = "which files a folder holds, and since when, is not followed"
WORKERS = "what a loader's workers seed themselves with is not followed"
SETS = "the order in which a set gives its members is not followed"
STREAMS = "whose random states a checkpoint has is not followed"
CACHE = "a file that each rank asks for and writes itself: a race only where ranks are late"
RACE = "a name that rank 0 may take before another rank has looked: which is first is not followed"
# What the linter does not say of these, and why it is no bug of a program on several ranks.
KNOWN = {
    "DDP111-0": STREAMS,
    "DDP111-1": STREAMS,
    "DDP111-3": WORKERS,
    "DDP111-4": WORKERS,
    "DDP203-0": EACH,
    "DDP203-1": EACH,
    "DDP203-2": EACH,
    "DDP205-0": WHOLE,
    "DDP205-10": WHOLE,
    "DDP220-0": SETS,
    "DDP304-0": "all ranks evaluate the wrapper in step; on some of them only it is DDP804",
    "DDP305-3": "the layers of a library's model are not seen: it may have no batch norm",
    "DDP403-0": "`enable_grad()` under `no_grad()` is not followed",
    "DDP405-4": REFUSED,
    "DDP405-7": REFUSED,
    "DDP503-0": EXISTS,
    "DDP503-1": EXISTS,
    "DDP504-1": "what a stand-in answers is not followed",
    "DDP506-0": ALONE,
    "DDP506-1": ALONE,
    "DDP506-2": RACE,
    "DDP604-1": FOLDER,
    "DDP604-2": FOLDER,
    "DDP608-2": CACHE,
    "DDP608-3": CACHE,
    "DDP608-4": CACHE,
}
# What says it in a program on several ranks, where that is not the same rule.
BY_OTHERS = {
    "DDP301": "DDP312",  # the optimizer's parameters are in no wrapper
    "DDP404": "DDP803",  # a rank alone decides about a collective
    "DDP405": "DDP412",  # a backward that no forward came right before
    "DDP603-1": "DDP606",  # onto the GPU that the file was saved from
    "DDP603-2": "DDP602",  # a file of the program's own
    "DDP701-0": "DDP702",  # the numbers of a training loop
    "DDP701-2": "DDP702",
    "DDP701-11": "DDP803",  # a number of one rank decides about saving
}


def _uses_helpers(example: Example) -> bool:
    return any("from ddp_utils import" in text for _, text in example.files)


EXAMPLES = {
    f"{rule.id}-{number}": example
    for rule in all_rules()
    if rule.check is not Rule.check
    for number, example in enumerate(rule.bad)
    if _uses_helpers(example)
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_edit_that_is_taken_back_is_found(name: str, tmp_path: Path) -> None:
    example, rule = EXAMPLES[name], name.partition("-")[0]
    wanted = BY_OTHERS.get(name) or BY_OTHERS.get(rule) or rule
    put_example(example, tmp_path)
    files = [tmp_path / path for path, _ in example.files if path.endswith(".py")]
    found = [one for one in lint(tmp_path, files).findings if one.rule == wanted]
    assert bool(found) is (name not in KNOWN), KNOWN.get(name, "")


def test_what_is_not_found_is_listed_once() -> None:
    assert set(KNOWN) <= set(EXAMPLES)
    assert {name for name in BY_OTHERS if "-" in name} <= set(EXAMPLES).difference(KNOWN)
