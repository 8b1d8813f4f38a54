"""The table of this folder's tests: launch scripts before and after, read from cases.txt,
makefiles.txt and markdown.txt.

A file of its own, because shell in Python strings hides the quotes that matter here.
`##### name | options` starts a case, `##### after` its second half; a case without one
has to stay as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """``before`` becomes ``after``; ``runs``: the tests may execute both."""

    id: str
    before: str
    after: str
    path: str = "run.sh"
    entries: tuple[str, ...] = ("main.py",)
    files: tuple[str, ...] = ()
    runs: bool = True


def _read(block: str, path: str) -> Case:
    head, _, text = block.partition("\n")
    name, _, options = head.partition(" | ")
    before, _, after = text.partition("##### after\n")
    given = dict(option.split("=") for option in options.split("; ") if option)
    return Case(
        name,
        before,
        after or before,
        given.get("path", path),
        tuple(given.get("entries", "main.py").split(",")),
        tuple(filter(None, given.get("files", "").split(","))),
        given.get("runs") != "no" and bool(after),
    )


def table(name: str, path: str) -> tuple[Case, ...]:
    """The cases of the file ``name``; their launcher is ``path`` if they do not say."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    text = text.replace("\n##### after\n", "\n<after>").removeprefix("##### ")
    blocks = (block.replace("\n<after>", "\n##### after\n") for block in text.split("\n##### "))
    ends = (block if block.endswith("\n") else block + "\n" for block in blocks)
    return tuple(_read(block, path) for block in ends)


_CASES = table("cases.txt", "run.sh")
_ODD = (
    Case(
        "no newline at the end",
        "#!/bin/bash\npython main.py",
        '#!/bin/bash\ntorchrun --standalone --nproc_per_node="${NPROC_PER_NODE:-gpu}" main.py',
    ),
    Case(
        "Windows line ends",
        "#!/bin/bash\r\nCUDA_VISIBLE_DEVICES=$G python main.py --x\r\n",
        "#!/bin/bash\r\n"
        "NPROC_PER_NODE=$(awk -F, '{print NF ? NF : 1}' <<< \"$G\")\r\n"
        'CUDA_VISIBLE_DEVICES=$G torchrun --standalone --nproc_per_node="$NPROC_PER_NODE"'
        " main.py --x\r\n",
        runs=False,
    ),
)
REWRITTEN = (*(case for case in _CASES if case.before != case.after), *_ODD)
UNTOUCHED = tuple(case for case in _CASES if case.before == case.after)
