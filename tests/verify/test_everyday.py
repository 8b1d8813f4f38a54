"""`ddpify verify` from day to day: what is said before anything runs, and what is asked after."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from ddpify import cli
from ddpify.verify.options import Options
from ddpify.verify.verdict import Verdict, Verification
from tests.verify import samples
from tests.verify.hazards.base import ORIGINAL, put
from tests.verify.test_which import environment

Said = pytest.CaptureFixture[str]
UNDECIDED = replace(samples.CHECKS[2], verdict=Verdict.UNDECIDED, noises=("dropout",))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the current folder, which is the project."""
    put(ORIGINAL, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return Path("train.py")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """What was to be run; nothing is. Dropout leaves it undecided as long as it is on."""
    seen: list[Options] = []

    def run(options: Options, *_: object) -> Verification:
        seen.append(options)
        checks = samples.CHECKS if "dropout" in options.neutralise else (UNDECIDED,)
        return replace(samples.passing(), options=options, checks=checks)

    monkeypatch.setattr("ddpify.verify.run.verify", run)
    return seen


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        pytest.fail("it runs")

    monkeypatch.setattr("ddpify.verify.run.Bench.compare", run)
    monkeypatch.setattr("ddpify.verify.run.examined", lambda _: nullcontext())


def failed(arguments: list[str], capsys: Said) -> str:
    """The one line of a refusal."""
    assert cli.main(arguments) == cli.FAILED
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("verify train.py --epochs 2", "ddpify verify train.py -- --epochs 2"),
        ("verify --epochs=2 train.py", "ddpify verify train.py -- --epochs=2"),
        (
            "verify --lr 1 train.py --nproc 4 --keep",
            "ddpify verify train.py --nproc 4 --keep -- --lr 1",
        ),
        (
            "verify train.py -b 8 --json=x -- --lr 1",
            "ddpify verify train.py --json=x -- -b 8 --lr 1",
        ),
        ("plan train.py --epochs 2", "ddpify plan train.py -- --epochs 2"),
    ],
)
def test_a_script_s_own_options_are_shown_where_they_go(
    given: str, line: str, capsys: Said
) -> None:
    said = failed(given.split(), capsys)
    assert said == f"ddpify: your script's own options go behind `--`: {line}\n"


def test_a_slip_of_the_keyboard_is_one(capsys: Said) -> None:
    said = failed("verify train.py --nprok 2".split(), capsys)
    assert said == "ddpify: no option --nprok; did you mean --nproc?\n"


def test_a_folder_stands_for_its_script(script: Path, asked: list[Options], capsys: Said) -> None:
    cli.main(["verify", "."])
    assert asked[0].script == script
    assert capsys.readouterr().err.startswith("ddpify: the script is train.py\n")
    Path("tool.py").write_text("if __name__ == '__main__':\n    print('.backward(')\n")
    Path("Makefile").write_text("train:\n\tpython train.py\n")
    for named in (".", "Makefile"):
        cli.main(["verify", named])
        assert capsys.readouterr().err.startswith("ddpify: the script is train.py\n")
    Path("other.py").write_text(ORIGINAL)
    said = failed(["verify", "."], capsys)
    assert said == "ddpify: .: verify runs one script; name one of other.py, train.py\n"


def test_the_project_s_python_is_named_before_it_trains(
    script: Path, asked: list[Options], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    python = environment(script.resolve().parent / ".venv") / "bin/python"
    cli.main(["verify", "train.py"])
    assert capsys.readouterr().err == f"ddpify: trains with {python} (.venv of the project)\n"
    cli.main(["verify", "train.py", f"--python={python}"])
    assert capsys.readouterr().err == ""
    assert [one.python for one in asked] == [str(python)] * 2


def test_a_notebook_is_named_as_it_was_given(script: Path, capsys: Said) -> None:
    Path("book.ipynb").write_text("{}")
    assert failed(["verify", "book.ipynb"], capsys).startswith("ddpify: book.ipynb: a notebook;")
    assert failed(["verify", "none"], capsys) == "ddpify: none: no such file or folder\n"


def test_reports_that_cannot_be_written_are_refused_first(
    script: Path, asked: list[Options], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert (
        failed(["verify", "train.py", "--html=."], capsys)
        == "ddpify: .: is a folder; name a file\n"
    )
    said = failed(["verify", "train.py", "--json=train.py/x"], capsys)
    assert "train.py/x: cannot be written" in said
    assert "GITHUB_STEP_SUMMARY is not set" in failed(["verify", "train.py", "--summary"], capsys)
    assert not asked


def test_reports_have_their_folders_and_a_job_its_summary(
    script: Path, asked: list[Options], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Path("job.md")
    job.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(job))
    flags = ["--junit=a/b/x.xml", "--summary", "--neutralise=dropout"]
    assert cli.main(["verify", "train.py", *flags]) == cli.CLEAN
    assert job.read_text().startswith("before\n## ✅ 2 processes train the same model.")
    suite = xml.parse("a/b/x.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == (str(len(samples.CHECKS)), "0")


def test_what_noise_leaves_undecided_ends_with_the_line_that_decides_it(
    script: Path, asked: list[Options], capsys: Said
) -> None:
    assert cli.main(["verify", "train.py", "--", "--epochs", "2"]) == cli.TO_DO
    line = "  ddpify verify train.py --neutralise=dropout -- --epochs 2"
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert len(asked) == 1


def test_asked_for_it_runs_again_without_the_noise(
    script: Path, asked: list[Options], capsys: Said
) -> None:
    assert cli.main(["verify", "train.py", "--neutralise=auto"]) == cli.CLEAN
    assert [one.neutralise for one in asked] == [frozenset(), {"dropout"}]
    said = capsys.readouterr()
    assert "by right: dropout; both run again" in said.err
    assert "Compared with dropout neutralised." in said.out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code", "runs"), [("\n", 0, 2), ("n\n", 1, 1)])
def test_on_a_terminal_it_asks(
    answer: str,
    code: int,
    runs: int,
    script: Path,
    asked: list[Options],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert cli.main(["verify", "train.py"]) == code
    assert len(asked) == runs


@pytest.mark.parametrize(
    ("text", "arguments", "sentence"),
    [
        (
            ORIGINAL,
            ["--batch-size", "33"],
            "batch size 33 (--batch-size) cannot be split over 2 ranks: use 32 or 34",
        ),
        (
            ORIGINAL.replace("default=16", "default=7"),
            [],
            "batch size 7 (--batch-size) cannot be split over 2 ranks: use 6 or 8",
        ),
        (
            ORIGINAL.replace("train_set, batch_size=args.batch_size", "train_set, batch_size=7"),
            ["--epochs", "1"],
            "batch size 7 (train.py:40) cannot be split over 2 ranks: use 6 or 8",
        ),
    ],
)
def test_a_batch_size_that_does_not_divide_is_said_before_anything_runs(
    text: str, arguments: list[str], sentence: str, tmp_path: Path, capsys: Said, nothing_runs: None
) -> None:
    script = put(text, tmp_path / "project")
    assert (
        failed(["verify", str(script), "--", *arguments], capsys)
        == f"ddpify: {script}: {sentence}\n"
    )


OTHER = ORIGINAL.replace(
    "    for epoch in range(args.epochs):",
    """\
    if args.epochs > 9:
        loader = DataLoader(data, batch_size=33, shuffle=True)
    for epoch in range(args.epochs):""",
)
SETTINGS = ORIGINAL.replace("default=16", "default=7")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        pytest.param(OTHER, [], id="another loader may be the one"),
        pytest.param(OTHER, ["--batch-size", "32"], id="of another loader"),
        pytest.param(SETTINGS, ["--epochs", "1"], id="a file of settings may be an argument"),
        pytest.param(
            SETTINGS.replace("parse_args()", 'parse_args(["--batch-size", "16"])'),
            [],
            id="parsed from a list",
        ),
        pytest.param(
            ORIGINAL.replace('batch-size", type=int', 'batch-size", type=lambda n: 2 * int(n)'),
            ["--batch-size", "3"],
            id="an option of its own reading",
        ),
    ],
)
def test_a_batch_size_that_may_be_another_is_left_to_the_ranks(
    text: str, arguments: list[str], tmp_path: Path, capsys: Said, nothing_runs: None
) -> None:
    assert text != ORIGINAL
    script = put(text, tmp_path / "project")
    with pytest.raises(pytest.fail.Exception, match="it runs"):
        cli.main(["verify", str(script), "--", *arguments])


@pytest.mark.parametrize(
    "command", ["verify", pytest.param("plan --measure", marks=pytest.mark.thorough)]
)
def test_on_windows_there_is_one_sentence(command: str, script: Path) -> None:
    program = (
        "import sys; sys.modules['fcntl'] = None\n"
        "from ddpify.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", program, *command.split(), "train.py"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    what = command.split()[-1]
    assert (done.returncode, done.stdout) == (cli.FAILED, "")
    assert done.stderr == f"ddpify: {what} does not run on Windows; use WSL\n"
