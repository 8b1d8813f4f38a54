"""Small programs whose comments say what the analysis has to find, and where.

`#: training` stands on the line of a call that makes a training loader, `#: evaluation` on one
whose batches are only looked at, `#: epoch` and `#: batches` on the two loops of training, and
`#: home` on the statement after which a trained model is wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ddpify.facts.model import Facts, Role
from ddpify.source import Site
from tests.projects import put, read

WORDS = ("training", "evaluation", "epoch", "batches", "home")
HEAD = """import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
"""


def project(text: str) -> dict[str, str]:
    """Files from one text: `## name` starts a file; the first is main.py, `HEAD` is on top."""
    names = ["main.py", *re.findall(r"^## (.*)$", text, flags=re.MULTILINE)]
    parts = re.split(r"^## .*\n", text, flags=re.MULTILINE)
    return {name: HEAD + part for name, part in zip(names, parts, strict=True)}


def facts_of(text: str, folder: Path) -> Facts:
    """The facts of a program."""
    return read(put(project(text), folder) / "main.py")


def wanted(text: str) -> dict[str, set[str]]:
    """What the comments say: each word's places."""
    found: dict[str, set[str]] = {word: set() for word in WORDS}
    for path, code in project(text).items():
        for number, line in enumerate(code.splitlines(), 1):
            for word in line.partition("#:")[2].split():
                found[word].add(f"{path}:{number}")
    return found


def found(facts: Facts) -> dict[str, set[str]]:
    """What the analysis says, in the same form."""
    loops = facts.training
    return {
        "training": places(x.call.site for x in facts.loaders if Role.TRAINING in x.roles),
        "evaluation": places(x.call.site for x in facts.loaders if Role.EVALUATION in x.roles),
        "epoch": places(x.epoch.site for x in loops if x.epoch is not None),
        "batches": places(x.batch.site for x in loops),
        "home": places(x.home.statement for x in facts.models if x.home is not None),
    }


def places(sites: Iterable[Site]) -> set[str]:
    """`file:line` of each."""
    return {str(site) for site in sites}
