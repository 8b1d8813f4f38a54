"""Conditions on the number of a round, evaluated: the same however they are written."""

from __future__ import annotations

from typing import Any

import pytest

from ddpify.ranks.logic import chain, negation
from ddpify.ranks.model import RankValue
from ddpify.ranks.operations import binary, compare
from ddpify.ranks.origins import Symbol
from ddpify.ranks.values import constant
from ddpify.rules.shared.windows import evaluate, symbols

ROUND = RankValue((Symbol("i"), Symbol("i")))
TOTAL = RankValue((Symbol("len(loader)"), Symbol("len(loader)")))


def every(number: RankValue, size: int) -> RankValue:
    """``number % size == 0``."""
    return compare("Eq", binary("Mod", number, constant(size)), constant(0))


def rounds(test: RankValue, **known: int) -> list[Any]:
    """What a condition says in the first eight rounds."""
    return [evaluate(test.atoms[0], {"i": number, **known}) for number in range(8)]


NEXT = binary("Add", ROUND, constant(1))
LAST = compare("Eq", NEXT, TOTAL)


@pytest.mark.parametrize(
    "test",
    [
        every(NEXT, 4),
        compare("Eq", binary("Mod", ROUND, constant(4)), constant(3)),
        negation(compare("NotEq", binary("Mod", ROUND, constant(4)), constant(3))),
        chain(False, [every(NEXT, 4), compare("Lt", ROUND, constant(0))]),
        chain(True, [every(NEXT, 4), compare("GtE", ROUND, constant(2))]),
    ],
)
def test_conditions_that_say_the_same_are_the_same(test: RankValue) -> None:
    assert rounds(test) == [number % 4 == 3 for number in range(8)]


def test_one_off_is_not_the_same() -> None:
    assert rounds(every(ROUND, 4)) == [number % 4 == 0 for number in range(8)]


def test_the_last_round_is_known_when_the_length_is() -> None:
    either = chain(False, [every(NEXT, 4), LAST])
    assert rounds(either, **{"len(loader)": 6})[5] is True
    assert rounds(LAST) == [None] * 8


def test_what_is_not_known_decides_nothing_unless_the_rest_does() -> None:
    unknown = RankValue((Symbol("loss is finite"), Symbol("loss is finite")))
    assert rounds(chain(True, [every(NEXT, 4), unknown]))[2:4] == [False, None]
    assert rounds(chain(False, [every(NEXT, 4), unknown]))[2:4] == [None, True]


def test_a_window_of_none_is_not_known() -> None:
    assert rounds(every(ROUND, 0)) == [None] * 8


def test_all_symbols_of_an_expression_are_found() -> None:
    assert {one.key for one in symbols(LAST.atoms[0])} >= {"i", "len(loader)"}
