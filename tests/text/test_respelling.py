"""The keyword ``async`` of Python before 3.7: read in place, and written as torch has it today."""

from __future__ import annotations

import pytest

from ddpify.rewrite import ReadOnlySource
from ddpify.source import UnreadableSource
from tests.text.edits import rewritten, source_of

OLD = 'def go(x, y):\n    print("é async=1"); y = y.cuda(\n        async = True)  # async=2\n'


@pytest.mark.parametrize("text", [OLD, OLD.replace("\n", "\r\n")], ids=["lf", "crlf"])
def test_positions_are_those_of_the_file(text: str) -> None:
    source = source_of(text)
    ((site, value),) = source.moves_spelled_async
    assert value == "True"
    assert source.segment(site.span) == "y.cuda(\n        async = True)"
    assert source.text == text


CALL = "y.cuda(\n        async = True)"


def test_a_file_is_written_without_the_keyword_or_not_at_all() -> None:
    now = rewritten(
        OLD, ("argument", CALL, "", "async"), ("argument", CALL, "True", "non_blocking")
    )
    assert "y = y.cuda(non_blocking=True)  # async=2" in now
    with pytest.raises(ReadOnlySource):
        rewritten(OLD, ("argument", 'print("é async=1")', "1", "k"))


@pytest.mark.parametrize(
    "text",
    [
        "move(x, async=True)\n",
        "def move(x, async=False):\n    pass\n",
        "x.cuda(async=True)\nprint 1\n",
        "x.cuda(async=True, non_blocking=False)\n",
        "async = 1\n",
    ],
)
def test_what_is_no_move_of_a_tensor_stays_an_error(text: str) -> None:
    with pytest.raises(UnreadableSource, match="not valid Python 3"):
        source_of(text).parse()


def test_a_file_of_today_is_not_respelled() -> None:
    assert source_of("async def f():\n    await x.cuda(non_blocking=True)\n").legacy is None
