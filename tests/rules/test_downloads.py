"""Where a download goes first: who asks for the file once rank 0 has begun would not come along."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.examples import SINGLE, changed
from tests.projects import judged, put_example, read

FETCH = "def fetch():\n    urllib.request.urlretrieve('http://x', 'x.pt')\n\n\ndef main"
ASKS = "    if not os.path.exists('x.pt'):\n        fetch()\n"
PLACES = [
    pytest.param(ASKS, 1, id="asks"),
    pytest.param(f"{ASKS}        torch.save(1, 'y.pt')\n", 2, id="asks-and-more"),
    pytest.param("    if opt.bs > 3:\n        fetch()\n", 2, id="an-option"),
]


@pytest.mark.parametrize(("body", "line"), PLACES)
def test_the_question_goes_first_with_the_download(body: str, line: int, tmp_path: Path) -> None:
    example = changed(
        SINGLE,
        ("import argparse\n", "import argparse\nimport os\nimport urllib.request\n"),
        ("def main", FETCH),
        ("    torch.manual_seed(7)\n", f"    torch.manual_seed(7)\n{body}"),
    )
    text = dict(example.files)["main.py"]
    first = text[: text.index(body)].count("\n")
    found = [one for one in judged(read(put_example(example, tmp_path))) if one.rule == "DDP204"]
    assert [one.fix[0].site.span.line - first for one in found] == [line]
