"""What the reading knows of a value on a rank is what it is there, whatever led to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.ranks.model import ALL, RankValue
from ddpify.ranks.read import Reading
from ddpify.ranks.values import same
from tests.ranks.random_programs import Generator, run

# Where it is wrong today, by seed: an error that is raised again, and what is left after it.
WRONG: dict[bool, set[int]] = {False: set(), True: {89, 165}}
PROGRAMS = 200


@pytest.mark.parametrize("classes", [False, True], ids=["statements", "classes"])
def test_what_is_known_of_a_value_is_so(classes: bool, tmp_path: Path) -> None:
    wrong, held = {}, 0
    for seed in range(PROGRAMS):
        text = Generator(seed, classes).program()
        try:
            values = [run(text, rank) for rank in (0, 1)]
        except Exception:  # it ends by an error, or never
            continue
        held += 1
        if said := _wrong(text, values, tmp_path):
            wrong[seed] = said
    assert held > PROGRAMS // 2
    assert wrong.keys() == WRONG[classes], wrong


def _wrong(text: str, values: list[list[int]], folder: Path) -> list[str]:
    file = folder.resolve() / "main.py"
    file.write_text(text)
    found = Reading.of(file.parent, [file]).script(file)
    assert found is not None
    calls = [call for call in found.calls if call.name == "torch.manual_seed"]
    if len(calls) != len(values[0]) or any(call.ranks != ALL for call in calls):
        return ["some rank does not come to the end"]
    pairs = zip(calls, *values, strict=True)
    return [
        f"line {call.site.span.line}: read {call.args[0].atoms}, is {first} and {second}"
        for call, first, second in pairs
        if not _is_right(call.args[0], first, second)
    ]


def _is_right(read: RankValue, first: int, second: int) -> bool:
    """A constant is that of both ranks; of what differs between ranks it is known why."""
    if read.known and same(*read.atoms):
        return read.atoms == (first, second)
    return first == second or bool(read.origins)
