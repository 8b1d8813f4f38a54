"""What is read from a file that is opened for both is every rank's; what is written is rank 0's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpify.rules.effects.ddp502_files import RULE
from ddpify.settings import Settings
from tests.facts.marks import facts_of

READ = "book = h5py.File('a.h5', 'r+')\n"
CASES = {
    "only read": (f"{READ}rows = book['x'][:]\nbook.close()\n", '"r"'),
    "written by a key": (f"{READ}book['x'] = 1\n", "NullWriter"),
    "written to what a key gives": (f"{READ}book['x'][0] = 1\n", "NullWriter"),
    "read and written": (f"{READ}book['x'] = book['y'][:]\n", ""),
    "handed on": (f"{READ}rows = decode(book)\n", ""),
    "filled": ("book = open('a.pkl', 'wb+')\npickle.dump([1], book)\n", "NullWriter"),
    "loaded": ("book = open('a.pkl', 'rb+')\nrows = pickle.load(book)\n", ""),
    "appended to": ("book = open('a.txt', 'a+')\nbook.write('x')\n", "NullWriter"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_is_opened_for_both(name: str, tmp_path: Path) -> None:
    text, wanted = CASES[name]
    facts = facts_of(
        f"import h5py, pickle\ndef work(decode):\n{indented(text)}work(float)\n", tmp_path
    )
    (finding,) = RULE.check(facts, Settings())
    written = "".join(edit.code for edit in finding.fix)
    assert wanted in written if wanted else not written


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
