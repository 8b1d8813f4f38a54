"""Notebooks are read as the Python that they hold, and reported by cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddpify import cli
from ddpify.notebooks import Notebook

SETUP = """\
%matplotlib inline
!pip install torch \\
    accelerate
import torch.distributed as dist"""
TRAIN = """\
%%time
def train(name):
    dist.init_process_group("gloo")
    rank, files = dist.get_rank(), None
    files = !ls
    if rank == 0:
        dist.barrier()
    dist.destroy_process_group()"""
CELLS = [
    ("markdown", "# How we train"),
    ("code", SETUP),
    ("code", "%%bash\nls -l"),
    ("code", TRAIN),
    ("code", "print 'of another time'"),
    ("code", "train?\ntext = '''\n!no command\n'''\ntrain('é')"),
]
PLACE = "try.ipynb:cell 4:7:9: error DDP801"


def notebook(cells: list[tuple[str, str]]) -> str:
    listed = [
        {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
        for kind, text in cells
    ]
    return json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "try.ipynb"
    file.write_text(notebook(CELLS))
    return file


def test_findings_stand_in_cells(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for named in ((), (), ("try.ipynb",)):  # the second time from the cache
        assert cli.main(["check", *named]) == cli.TO_DO
        said = capsys.readouterr().out
        assert f"{PLACE} only rank 0 enters barrier" in said
        assert "    try.ipynb:cell 4:4: get_rank(): the number of the rank\n" in said
        assert "try.ipynb:cell 5:1:1: note DDP000 not valid Python 3 (Missing parenth" in said
        assert "2 findings (1 error, 1 note) in 1 file.\n" in said
    assert cli.main(["check", "--show-source"]) == cli.TO_DO
    assert " 7 |         dist.barrier()\n   |         ^^^^^" in capsys.readouterr().out


def test_reports_for_programs_name_file_and_cell(
    book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forms = {}
    for form in ("json", "sarif", "github", "gitlab", "junit"):
        cli.main(["check", "--output-format", form, "--ignore", "DDP000"])
        forms[form] = capsys.readouterr().out
    (found,) = json.loads(forms["json"])["findings"]
    assert (found["path"], found["cell"], found["line"]) == ("try.ipynb", 4, 7)
    assert found["because"][0]["cell"] == 4
    (result,) = json.loads(forms["sarif"])["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "try.ipynb"
    assert result["message"]["text"].startswith("cell 4, line 7: only rank 0 enters barrier")
    assert place["region"]["startLine"] == 1
    hops = [one["message"]["text"] for one in result["relatedLocations"]]
    assert "cell 4, line 4: get_rank(): the number of the rank" in hops
    assert "file=try.ipynb,line=1,endLine=1,col=1," in forms["github"]
    assert "::cell 4, line 7: only rank 0" in forms["github"]
    (issue,) = json.loads(forms["gitlab"])
    assert issue["location"]["path"] == "try.ipynb"
    assert issue["location"]["positions"]["begin"] == {"line": 1, "column": 1}
    assert "DDP801: cell 4, line 7: only rank 0" in issue["description"]
    assert 'file="try.ipynb" line="1"' in forms["junit"]


def test_a_comment_in_a_cell_silences(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent = TRAIN.replace("dist.barrier()", "dist.barrier()  # noqa: DDP801")
    book.write_text(notebook([("code", SETUP), ("code", silent), ("code", "train(1)")]))
    assert cli.main(["check"]) == cli.CLEAN
    assert capsys.readouterr().out.startswith("No findings: 1 program read")


def test_nothing_is_written_into_a_notebook(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sampler = """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
loader = DataLoader(data, 2, sampler=DistributedSampler(data))
for epoch in range(3):
    for x in loader:
        model(x).sum().backward()"""
    book.write_text(notebook([("code", SETUP), ("code", sampler)]))
    before = book.read_text()
    assert cli.main(["check", "--fix", "--unsafe-fixes"]) == cli.TO_DO
    assert "try.ipynb:cell 2:5:1: error DDP201 the sampler" in capsys.readouterr().out
    assert cli.main(["check", "--add-noqa"]) == cli.CLEAN
    assert "try.ipynb:cell 2:5: write `# noqa: DDP201` yourself" in capsys.readouterr().err
    assert book.read_text() == before


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("{", "no JSON: Expecting property name"),
        ("[]", "its cells are none"),
        ("{}", "there is no 'cells'"),
        ('{"cells": 1}', "its cells are none"),
    ],
)
def test_what_is_no_notebook_is_said_in_a_line(
    raw: str, why: str, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book.write_text(raw)
    (book.parent / "more.py").write_text("def\n")
    assert cli.main(["check"]) == cli.TO_DO
    first, second = (one for one in capsys.readouterr().out.splitlines() if "DDP000" in one)
    assert first.startswith("more.py:1:1: error DDP000")
    assert f"try.ipynb:1:1: error DDP000 not a notebook ({why}" in second


def test_a_cell_that_is_none_does_not_hide_the_others(
    book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(notebook([("code", SETUP), ("code", TRAIN), ("code", "train(1)")]))
    broken = [1, {"source": "x"}, {"cell_type": "code", "source": None}]
    unused = {"cell_type": "markdown", "source": None}
    code = {"cell_type": "code", "source": ["x = 1\n", "return x"]}
    book.write_text(json.dumps({"cells": [*broken, unused, code, *whole["cells"]]}))
    assert cli.main(["check"]) == cli.TO_DO
    said = capsys.readouterr().out
    assert "try.ipynb:cell 7:7:9: error DDP801" in said
    for cell, why in (
        (1, "it has no `cell_type`"),
        (2, "it has no `cell_type`"),
        (3, "its `source` is no text"),
        (5, "not valid Python 3 ('return' outside function)"),
    ):
        note = f"try.ipynb:cell {cell}:1:1: note DDP000 {why}, so this cell is not read\n"
        assert note in said


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("%time train()", "pass; train()"),
        ("    %timeit -n 10 -r2 -o y = f(3)", "    pass;                y = f(3)"),
        ("%prun -s cumulative train()", "pass;               train()"),
        ("loss = %time train()", "loss =       train()"),
        ("%time for x in data: f(x)", "for x in data: f(x)"),
        ("%time f(x, \\\n  y)", "pass; f(x, \\\n  y)"),
        ("%%timeit x = 3\nf(x)", "pass;    x = 3\nf(x)"),
        ("%%time\nf(x)", "pass\nf(x)"),
        ("%%time\nawait f(x)", "pass\nawait f(x)"),
        ("%time !ls", "pass"),
        ("%timeit", "pass"),
        ("%timed f()", "pass"),
        ("files = !ls", "files = get_ipython()"),
        ("files = %sx ls", "files = get_ipython()"),
    ],
)
def test_what_a_magic_measures_is_read_in_its_place(line: str, python: str) -> None:
    block = f"if x:\n{line}" if line.startswith(" ") else line
    read = Notebook.of(notebook([("code", block)]).encode())
    assert read.text.removeprefix("if x:\n") == f"{python}\n"
    assert not read.left


def test_what_a_shell_line_gives_is_not_known(
    book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = TRAIN.replace("if rank == 0:", "if files and rank == 0:")
    book.write_text(notebook([("code", SETUP), ("code", train), ("code", "%time train(1)")]))
    assert cli.main(["check"]) == cli.TO_DO
    assert "try.ipynb:cell 2:7:9: error DDP801" in capsys.readouterr().out


def test_migrate_says_how_to_export_one(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["migrate", "try.ipynb"]) == cli.FAILED
    assert capsys.readouterr().err == (
        "ddpify: try.ipynb: a notebook; export it as a script first:"
        " jupyter nbconvert --to script try.ipynb\n"
    )


def test_lines_of_ipython_give_way_to_lines() -> None:
    read = Notebook.of(notebook([("code", SETUP), ("code", TRAIN)]).encode())
    assert read.text.splitlines()[:6] == [
        "pass",
        "pass",
        "",
        "import torch.distributed as dist",
        "pass",
        "def train(name):",
    ]
    assert "    files = get_ipython()\n" in read.text
    assert [read.place(line) for line in (1, 4, 5, 8)] == [(1, 1), (1, 4), (2, 1), (2, 4)]
