"""What is known of the number of processes."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from ddpify.ranks import sizes
from ddpify.ranks.logic import negation
from ddpify.ranks.model import RankValue
from ddpify.ranks.operations import binary, compare
from ddpify.ranks.origins import Symbol
from ddpify.ranks.values import constant

SIZE = constant(sizes.world_size())
RANK = RankValue((0, 1))


@pytest.mark.parametrize(
    ("name", "other", "holds"),
    [
        ("Gt", 1, True),
        ("GtE", 2, True),
        ("Eq", 1, False),
        ("LtE", 1, False),
        ("Eq", 2, None),
        ("Lt", 4, None),
        ("NotEq", 6, None),
        ("In", (1, 2, 4), None),
        ("In", (0, 1), False),
    ],
)
def test_a_condition_is_decided_where_it_is_for_two_and_more(
    name: str, other: Any, holds: bool | None
) -> None:
    found = compare(name, SIZE, constant(other)).atoms[0]
    assert isinstance(found, Symbol) if holds is None else found is holds


def test_the_other_rank_is_the_last_one() -> None:
    last = binary("Sub", SIZE, constant(1))
    assert compare("Eq", RANK, last).atoms == (False, True)
    assert binary("Mod", binary("Add", RANK, constant(1)), SIZE).atoms == (1, 0)


def test_a_condition_and_its_contrary_are_one() -> None:
    few, many = compare("Lt", SIZE, constant(4)), compare("GtE", SIZE, constant(4))
    assert negation(few).atoms[0] == many.atoms[0]
    assert compare("LtE", SIZE, constant(3)).atoms[0] == few.atoms[0]


def test_what_is_computed_from_it_knows_it_too() -> None:
    share = binary("FloorDiv", constant(64), SIZE)
    assert share.constant == 32
    assert isinstance(compare("Lt", share, constant(8)).atoms[0], Symbol)
    assert isinstance(binary("Mod", SIZE, constant(2)).atoms[0], Symbol)
    assert sizes.apply(operator.add, sizes.apply(int, sizes.world_size(str)), 1) == 3
