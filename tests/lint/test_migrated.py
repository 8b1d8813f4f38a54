"""What ``migrate`` adds is missed by the linter where it is taken back.

Each bad example of a rule that judges one process and many, if it uses the helpers, is a migrated
program without one edit. The two-rank reading has to find that by itself, save for what is listed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.lint import lint
from ddpify.rules.base import Example, Rule
from ddpify.rules.registry import all_rules
from tests.projects import put_example

LATER = "only the reading for migrations finds it today"
# What the linter does not say of these, and why.
KNOWN = {
    "DDP102-0": LATER,
    "DDP102-1": LATER,
    "DDP103-2": LATER,
    "DDP111-0": "set_epoch() starts the streams of each rank, too",
    "DDP111-1": "set_epoch() starts the streams of each rank, too",
    "DDP303-0": "net[0]: nothing is known of what a torch.nn.Sequential has",
    "DDP303-2": LATER,
    "DDP401-2": LATER,
    "DDP501-2": "prints are counted in training loops only",
    "DDP503-0": "exist_ok=True: no harm in several processes",
    "DDP503-1": "exist_ok=True: no harm in several processes",
    "DDP504-1": LATER,
    "DDP701-0": "a training loop's own numbers: evaluations only",
    "DDP701-2": "a training loop's own numbers: evaluations only",
    "DDP701-11": LATER,
}


def _uses_helpers(example: Example) -> bool:
    return any("from ddp_utils import" in text for _, text in example.files)


EXAMPLES = {
    f"{rule.id}-{number}": (rule, example)
    for rule in all_rules()
    if rule.lint is not None and rule.check is not Rule.check
    for number, example in enumerate(rule.bad)
    if _uses_helpers(example)
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_edit_that_is_taken_back_is_found(name: str, tmp_path: Path) -> None:
    rule, example = EXAMPLES[name]
    put_example(example, tmp_path)
    files = [tmp_path / path for path, _ in example.files if path.endswith(".py")]
    found = [one for one in lint(tmp_path, files).findings if one.rule == rule.id]
    assert bool(found) is (name not in KNOWN), KNOWN.get(name, "")


def test_what_is_not_found_is_listed_once() -> None:
    assert set(KNOWN) <= set(EXAMPLES)
