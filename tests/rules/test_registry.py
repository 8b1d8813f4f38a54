"""The registry: one file per rule, each with its id, its reason and its examples."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import ddpify.rules
from ddpify.report.rule import page
from ddpify.rules.base import Rule
from ddpify.rules.registry import all_rules
from ddpify.source import Source
from tests.lint.cases import all_cases

FOLDER = Path(ddpify.rules.__file__).parent
FILES = sorted(FOLDER.rglob("ddp*.py"), key=lambda file: file.stem)
FAMILIES = dict(
    zip(
        "0123456789",
        "project process data model gradients effects checkpoints metrics collectives"
        " frameworks".split(),
        strict=True,
    )
)
RULES = [pytest.param(rule, id=rule.id) for rule in all_rules()]


def test_every_rule_file_is_registered_once_in_the_order_of_the_codes() -> None:
    ids = [rule.id for rule in all_rules()]
    assert len(ids) == len(FILES)
    assert ids == sorted(set(ids))


def test_names_are_not_shared() -> None:
    names = [rule.name for rule in all_rules()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_named_after_its_rule_and_says_so(file: Path) -> None:
    family = file.parent.name
    module = importlib.import_module(f"ddpify.rules.{family}.{file.stem}")
    code = file.stem.partition("_")[0].upper()
    assert re.fullmatch(r"DDP\d{3}", code)
    assert FAMILIES[code[3]] == family
    assert module.RULE.id == code
    assert module.__doc__.startswith(f"{code}: ")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_gives_its_reason_its_source_and_its_examples(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert rule.why.endswith(".")
    assert rule.source
    assert rule.bad
    assert rule.good
    labelled = sum(rule.id in mark.codes for case in all_cases() for mark in case.marks())
    assert len(rule.bad) + labelled >= 2


@pytest.mark.parametrize("rule", RULES)
def test_the_examples_are_short_complete_projects(rule: Rule) -> None:
    for example in (*rule.bad, *rule.good):
        files = dict(example.files)
        assert example.entry in files
        for path, text in files.items():
            if path.endswith(".py"):
                Source.from_bytes(text.encode(), Path(path), path).parse()
            assert len(text.splitlines()) <= 60, path


def test_sources_can_be_read_by_who_has_none_of_our_notes() -> None:
    for rule in all_rules():
        assert not re.search(r"\b(BUGS|CONTRACT|PATTERNS|seed \d)\b", page(rule)), rule.id
