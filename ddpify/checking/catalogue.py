"""All rules, with those that are not about what a program does."""

from __future__ import annotations

from ddpify.checking.model import Named
from ddpify.rules.base import Example, Rule, Severity
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
)


def catalogue() -> tuple[Rule, ...]:
    """In the order of their codes."""
    rules = {rule.id: rule for rule in (*_OWN, *all_rules(), *conversions())}
    return tuple(rule for _, rule in sorted(rules.items()))


def named(codes: set[str]) -> dict[str, Named]:
    """What reports say of these rules."""
    return {rule.id: Named(rule.name, rule.safe) for rule in catalogue() if rule.id in codes}
