"""`check` reads any Python file without an exception, and runs nothing of what it reads."""

from __future__ import annotations

import random
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from ddpify.lint import lint

# What a file could do when it is run: at the top, in a decorator, a default, a class body.
_CANARY = """import pathlib
import torch.distributed as dist

def touch(name):
    pathlib.Path(__file__).with_name(name).write_text("run")
    return lambda function: function

touch("top")

@touch("decorator")
def step(path=touch("default")):
    dist.all_reduce(path)

class Held:
    kept = touch("class")

if __name__ == "__main__":
    dist.init_process_group()
    touch("main")
    step()
    eval("touch('eval')")
"""
_READING = ("ddpify", "encodings.", "_codecs_", "_multibytecodec")
_ODD = {
    "empty.py": b"",
    "null.py": b"import torch.distributed as dist\n\0\ndist.barrier()\n",
    "latin.py": "# -*- coding: latin-1 -*-\nimport torch.distributed\nname = 'é'\n".encode(
        "latin-1"
    ),
    "not_utf8.py": b"import torch.distributed\nname = '\xe9'\n",
    "broken.py": b"import torch.distributed as dist\nif dist.get_rank() == 0\n    dist.barrier()\n",
    "python2.py": b"import torch.distributed as dist\nprint 'rank', dist.get_rank()\n",
    "mark.py": b"\xef\xbb\xbfimport torch.distributed as dist\ndist.barrier()\n",
    "returns.py": b"import torch.distributed as dist\r\nif 1:\r\n    dist.barrier()\r\n",
    "deep.py": b"import torch.distributed as dist\nx = " + b"(" * 90 + b"1" + b")" * 90 + b"\n",
    "long.py": b"import torch.distributed as dist\nx = " + b"+".join([b"1"] * 900) + b"\n",
    "itself.py": b"import torch.distributed as dist\ndef f(): return f()\nf()\ndist.barrier(f())\n",
    "cycle.py": b"import torch.distributed as dist\nfrom cycle import *\nclass A(A): pass\nA()\n",
    "stars.py": b"from torch.distributed import *\na, *b = *c, *d = 0, 1\nbarrier(*b, **a)\n",
}


def _library() -> list[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    return [p for p in sorted(root.rglob("*.py")) if "site-packages" not in p.parts]


def _arbitrary() -> list[Path]:
    """The standard library, what is installed, and repositories that were fetched."""
    places = [Path(sysconfig.get_path("purelib")), *sorted(Path("/tmp").glob("pub*"))]
    found = [*_library(), *(p for place in places for p in sorted(place.rglob("*.py")))]
    return [path for path in found if path.is_file()]


def _read_apart(files: Sequence[Path], assume: bool) -> None:
    """Read the files folder by folder, as somebody would who names them; none is imported."""
    before = set(sys.modules)
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    for folder, held in folders.items():
        lint(folder, held, assume_distributed=assume)
    new = set(sys.modules) - before
    # a file may name its encoding, which Python loads to decode it
    assert not {name for name in new if not name.startswith(_READING)}


def _copy(file: Path, folder: Path) -> Path:
    folder.mkdir()
    return Path(shutil.copy(file, folder))


@pytest.fixture(scope="module", autouse=True)
def _rules_are_loaded() -> None:
    """So that what is imported afterwards is imported for the sake of what is read."""
    lint(Path(), [])


def test_a_sample_of_the_standard_library() -> None:
    files = random.Random(0).sample(_library(), 300)
    _read_apart(files, assume=False)


def test_a_sample_read_as_if_it_were_distributed(tmp_path: Path) -> None:
    """Each by itself: nothing is skipped then, and what it imports would be read as well."""
    for number, file in enumerate(random.Random(1).sample(_library(), 40)):
        _read_apart([_copy(file, tmp_path / str(number))], assume=True)


@pytest.mark.parametrize("assume", [False, True])
@pytest.mark.parametrize("name", _ODD)
def test_odd_files(name: str, assume: bool, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(_ODD[name])
    lint(tmp_path, [file], assume_distributed=assume)


def test_nothing_is_run(tmp_path: Path) -> None:
    file = tmp_path / "canary.py"
    file.write_text(_CANARY)
    lint(tmp_path, [file])
    lint(tmp_path, [file], assume_distributed=True)
    assert [path.name for path in tmp_path.iterdir()] == ["canary.py"]
    assert "canary" not in sys.modules


def test_the_canary_would_tell(tmp_path: Path) -> None:
    """Run, it writes the files that the test above looks for."""
    file = tmp_path / "canary.py"
    body = _CANARY.replace("import torch.distributed as dist", "dist = None")
    exec(compile(body, str(file), "exec"), {"__name__": "canary", "__file__": str(file)})
    assert {path.name for path in tmp_path.iterdir()} == {"top", "decorator", "default", "class"}


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_five_thousand_files(tmp_path: Path) -> None:
    """Each by itself: with all that they import it would take an hour."""
    files = random.Random(2).sample(_arbitrary(), 5000)
    for number, file in enumerate(files):
        _read_apart([_copy(file, tmp_path / str(number))], assume=False)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_five_hundred_files_as_if_they_were_distributed(tmp_path: Path) -> None:
    for number, file in enumerate(random.Random(3).sample(_arbitrary(), 500)):
        _read_apart([_copy(file, tmp_path / str(number))], assume=True)
