"""docs/rules.md lists the rules there are. After a change: `make golden`."""

from __future__ import annotations

import os
from pathlib import Path

from ddpify.checking.catalogue import catalogue
from ddpify.report.rule import index

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"
HEAD = """\
# Rules

What `ddpify check` reports. `ddpify rule CODE` has the whole reason, its source, and a wrong and a
right program for each; `ddpify rule --all` has all of them. Written by `make golden`.

"""


def test_the_list_of_rules_is_current() -> None:
    text = HEAD + index(catalogue())
    if os.environ.get("GOLDEN") == "write":
        PAGE.write_text(text, "utf-8")
    assert PAGE.read_text("utf-8") == text, "make golden"
