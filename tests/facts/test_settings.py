"""A constant that is a setting decides no branch: it may be another one tomorrow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import put
from tests.python.readers import by_facts

HEAD = "from torch.utils.data import DataLoader\n\ndata, other = object(), object()\n"
BRANCHES = """if {}:
    loader = DataLoader(data)  # first
else:
    loader = DataLoader(other)  # second
probe(loader)
"""
FIELD = "class Config:\n    def __init__(self):\n        self.debug = True\n\nc = Config()\n"
OPTIONS = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
CLASS = "class Config:\n    debug = True\n\nc = Config()\n"
SETTINGS = {
    "name": ("DEBUG = True\n", "DEBUG"),
    "negated": ("DEBUG = True\n", "not DEBUG"),
    "compared": ("MODE = 'train'\n", "MODE == 'train'"),
    "missing": ("RESUME = None\n", "RESUME is None"),
    "class": ("class Config:\n    debug = True\n\n", "Config.debug"),
    "field": (FIELD, "c.debug"),
    "attribute": (
        "from easydict import EasyDict\n\nc = EasyDict()\nc.test = EasyDict()\n"
        "c.test.flip = True\n",
        "c.test.flip",
    ),
    "entry": ("config = {'debug': True}\n", "config['debug']"),
    "option": (f"{OPTIONS}if args.sparse:\n    args.debug = True\n", "args.debug"),
    "option-by-setattr": (
        f"{OPTIONS}if args.sparse:\n    setattr(args, 'debug', True)\n",
        "args.debug",
    ),
    "of-its-class": (f"{OPTIONS}{CLASS}if args.sparse:\n    c.debug = False\n", "c.debug"),
    "handed-on": ("DEBUG = True\n\ndef same(flag):\n    return flag\n\n", "same(DEBUG)"),
}
KNOWN = {
    "literal": ("", "True"),
    "argument": ("def asked(flag):\n    return flag\n\n", "asked(True)"),
    "made-late": (FIELD.replace("True", "None"), "c.debug is None"),
    "main": ("", "__name__ == '__main__'"),
}


def arrived(head: str, test: str, folder: Path) -> int:
    text = HEAD + head + BRANCHES.format(test)
    return len(by_facts(put({"main.py": text}, folder) / "main.py"))


@pytest.mark.parametrize("name", SETTINGS)
def test_both_branches_on_a_setting_are_followed(name: str, tmp_path: Path) -> None:
    assert arrived(*SETTINGS[name], tmp_path) == 2


@pytest.mark.parametrize("name", KNOWN)
def test_a_branch_on_what_a_call_gives_is_the_only_one(name: str, tmp_path: Path) -> None:
    assert arrived(*KNOWN[name], tmp_path) == 1


@pytest.mark.parametrize("name", ["name", "class", "field"])
def test_a_branch_that_ends_on_a_setting_does_not_hide_the_rest(name: str, tmp_path: Path) -> None:
    head, test = SETTINGS[name]
    body = f"def go():\n    if {test}:\n        return\n    probe(DataLoader(data))\n\ngo()\n"
    text = f"{HEAD}{head}{body}"
    assert len(by_facts(put({"main.py": text}, tmp_path) / "main.py")) == 1
