"""Lines that an edit made too long, in files that do not set one item to a line."""

from __future__ import annotations

import pytest

from ddpify.rewrite.wrapping import sets_one_item_a_line, wrapped

WIDTH = 40

CASES = [
    pytest.param(
        "from helpers import first_name, second_name, third_name\n",
        "from helpers import (first_name,\n                     second_name,\n"
        "                     third_name)\n",
        id="an import gets parentheses",
    ),
    pytest.param(
        "loader = Loader(data, size=share(64), shuffle=sampler is None)\n",
        "loader = Loader(data, size=share(64),\n                shuffle=sampler is None)\n",
        id="under the first item",
    ),
    pytest.param(
        "loader = Loader(\n    data, size=share(64), shuffle=sampler is None,\n    workers=2)\n",
        "loader = Loader(\n    data, size=share(64),\n    shuffle=sampler is None,\n"
        "    workers=2)\n",
        id="in the line's own indentation",
    ),
    pytest.param(
        "print('%d of %d' % (one, two), f'{a, b}', end='')\n",
        "print('%d of %d' % (one, two),\n      f'{a, b}', end='')\n",
        id="the outermost brackets first",
    ),
    pytest.param(
        "for i, batch in tqdm(enumerate(loader), total=9):\n    pass\n",
        "for i, batch in tqdm(enumerate(loader),\n                     total=9):\n    pass\n",
        id="the head of a loop",
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_breaks_the_long_line_only(text: str, expected: str) -> None:
    assert wrapped(text, lambda line: len(line) > WIDTH, WIDTH) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("log = open(join(folder, 'log.txt'), 'w') if main() else None\n", id="tail"),
        pytest.param("total = table[first_index, second_index, third]\n", id="an index"),
        pytest.param("words = 'one, two, three, four, five, six, seven'\n", id="no comma"),
        pytest.param("message = f'{a, b} and {c, d} and {e, g} and {h, i}'\n", id="f-string"),
    ],
)
def test_leaves_what_reads_badly_in_two_lines_to_black(text: str) -> None:
    assert wrapped(text, lambda line: len(line) > WIDTH, WIDTH) is None


def test_a_file_that_closes_calls_on_a_line_of_their_own_is_blacks() -> None:
    assert sets_one_item_a_line("run(\n    first,\n    second,  # last\n)\n")
    assert sets_one_item_a_line("run(\r\n    first,\r\n)\r\n")
    assert not sets_one_item_a_line("run(first,\n    second)\nsteps = [\n    a,\n]\n")
