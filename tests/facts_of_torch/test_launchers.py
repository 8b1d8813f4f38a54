"""What torchrun and torch.distributed.launch tell processes, and when they end them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.torchrun import Completed, JobTimeout, finish, kill, start, torchrun

SCRIPTS = Path(__file__).parent / "scripts"
pytestmark = [pytest.mark.training, pytest.mark.thorough]


def run(script: str, *arguments: str, cwd: Path, timeout: float = 60) -> Completed:
    cold = sys.executable  # what torchrun does is asked here
    return torchrun(SCRIPTS / script, 2, *arguments, cwd=cwd, timeout=timeout, python=cold)


@cache
def told() -> tuple[Completed, list[dict[str, Any]]]:
    """Two processes of torchrun, and what each of them was told."""
    done = run("told.py", cwd=SCRIPTS)
    assert done.returncode == 0, done.stderr
    return done, [json.loads(text) for text in done.rank_stdout]


def test_torchrun_sets_local_rank_and_passes_nothing() -> None:
    _, ranks = told()
    assert [rank["local rank"] for rank in ranks] == ["0", "1"]
    assert [rank["arguments"] for rank in ranks] == [[], []]
    assert [rank["option"] for rank in ranks] == [0, 0], "the default of --local_rank"


def test_a_rank_in_the_environment_is_text_and_equals_no_number() -> None:
    assert [rank["rank is"] for rank in told()[1]] == [["0"], ["1"]]


def test_spawned_processes_find_no_rank_in_their_environment(tmp_path: Path) -> None:
    (tmp_path / "spawned.py").write_text(
        "import os, torch.multiprocessing as mp\n"
        "def work(rank): print([rank, os.environ.get('RANK')], flush=True)\n"
        "if __name__ == '__main__': mp.spawn(work, nprocs=2)\n"
    )
    done = subprocess.run(
        [sys.executable, "spawned.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert sorted(done.stdout.splitlines()) == ["[0, None]", "[1, None]"], done.stderr


def test_processes_of_a_job_without_seed_draw_apart() -> None:
    first, second = (rank["draws"] for rank in told()[1])
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_a_set_of_words_has_another_order_in_each_process() -> None:
    first, second = told()[1]
    assert (first["seed of hashes"], second["seed of hashes"]) == (None, None)
    assert sorted(first["order"]) == sorted(second["order"])
    assert first["order"] != second["order"]


def test_each_process_prints_and_has_a_bar() -> None:
    done, _ = told()
    assert [text.count("local rank") for text in done.rank_stdout] == [1, 1]
    assert ["3/3" in text for text in done.rank_stderr] == [True, True]


def launch(folder: Path, option: str) -> tuple[int | None, str, str]:
    """torch.distributed.launch with a script whose parser knows this option alone."""
    script = folder / "old.py"
    script.write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        f"parser.add_argument('{option}')\nprint('got', parser.parse_args())\n"
    )
    command = [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=1"]
    job = start([*command, "--master_port", str(port()), str(script)], folder)
    out, err = finish(job, 60)
    return job.returncode, out, err


def port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def test_launch_warns_and_passes_local_rank_with_a_dash(tmp_path: Path) -> None:
    code, _, err = launch(tmp_path, "--local_rank")
    assert code != 0
    assert "unrecognized arguments: --local-rank=0" in err
    assert "torch.distributed.launch is deprecated" in err
    code, out, err = launch(tmp_path, "--local-rank")
    assert (code, "got Namespace(local_rank='0')" in out) == (0, True)
    assert "FutureWarning" in err


def agents(folder: Path, *options: str) -> list[tuple[str, str]]:
    """What two torchruns on one machine print, the second begun while the first one runs."""
    script = folder / "world.py"
    script.write_text("import os, time\nprint('of', os.environ['WORLD_SIZE'])\ntime.sleep(9)\n")
    run_it = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", *options]
    first = start([*run_it, str(script)], folder)
    time.sleep(5)
    second = start([*run_it, str(script)], folder)
    return [finish(job, 60) for job in (first, second)]


def test_two_torchruns_with_one_port_are_one_too_many(tmp_path: Path) -> None:
    (out, _), (_, err) = agents(tmp_path, "--nnodes=1", f"--master_port={port()}")
    assert out.count("of 2") == 2
    assert "EADDRINUSE" in err


def test_torchruns_that_stand_alone_are_jobs_of_their_own(tmp_path: Path) -> None:
    for out, _ in agents(tmp_path, "--standalone"):
        assert out.count("of 2") == 2


def test_torchrun_takes_the_other_options_of_launch() -> None:
    ask = (
        "from torch.distributed import launch, run\n"
        "names = lambda parser: {name for one in parser._actions for name in one.option_strings}\n"
        "new = names(run.get_args_parser())\n"
        "run.get_args_parser = lambda make=run.get_args_parser: keep(make())\n"
        "launch.get_args_parser = run.get_args_parser\n"
        "kept = []\n"
        "keep = lambda parser: (kept.append(parser), parser)[1]\n"
        "launch.parse_args(['script.py'])\n"
        "print(sorted(names(kept[0]) - new))\n"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['--use-env', '--use_env']", done.stderr


def test_a_port_of_ones_own_is_one_where_nobody_waits(tmp_path: Path) -> None:
    done = run("own_port.py", cwd=tmp_path)
    assert done.returncode != 0
    assert all("client socket has timed out" in text for text in done.rank_stderr)


@pytest.mark.parametrize("how", ["raises", "1"])
def test_a_rank_that_fails_ends_the_others(how: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    done = run("fails.py", how, "50", cwd=tmp_path, timeout=90)
    assert done.returncode != 0
    assert "all done" not in done.stdout
    assert time.monotonic() - begun < 50


def test_a_rank_that_ends_with_0_is_not_missed(tmp_path: Path) -> None:
    done = run("fails.py", "0", "1", cwd=tmp_path)
    assert (done.returncode, done.rank_stdout[0]) == (0, "all done\n")


def test_local_rank_is_0_on_each_node(tmp_path: Path) -> None:
    at = f"--rdzv-endpoint=localhost:{port()}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1"]
    node = [*command, "--rdzv-backend=c10d", "--rdzv-id=facts", at]
    jobs = [start([*node, str(SCRIPTS / "node.py"), str(tmp_path)], tmp_path) for _ in range(2)]
    outputs = [finish(job, 90) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [rank["local rank"] for rank in ranks] == [0, 0]
    assert [rank["by rank"] for rank in ranks] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [rank["by local rank"] for rank in ranks] == [[0, 2, 4, 6], [0, 2, 4, 6]]


def test_a_question_is_answered_to_one_process(tmp_path: Path) -> None:
    """One line comes on the standard input of torchrun, which stays open."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    job = subprocess.Popen(
        [*command, str(SCRIPTS / "asks.py")],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert job.stdin is not None
    job.stdin.write("yes\n")
    job.stdin.flush()
    time.sleep(25)
    running = job.poll() is None
    job.stdin, stdin = None, job.stdin
    out, _ = kill(job)
    stdin.close()
    assert running, "who has no answer waits for more"
    assert (out.count("which?"), out.count("you said yes")) == (2, 1)


def test_processes_that_torchrun_started_start_others(tmp_path: Path) -> None:
    """Four processes with two ranks: whether they meet is chance, one group they are not."""
    try:
        done = run("spawns.py", cwd=tmp_path, timeout=60)
    except JobTimeout:
        return
    assert done.returncode != 0 or done.stdout.count("2.0") == 4, done.stdout


def test_modules_are_looked_for_beside_the_script_that_is_started(tmp_path: Path) -> None:
    for path, text in {
        "tools/train.py": "import lib.model",
        "tools/helpers.py": "",
        "tools/lib/__init__.py": "",
        "tools/lib/model.py": "import helpers",
        "other.py": "import sys; sys.path.append('tools/other'); import tools.lib.model",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    def error(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=30
        )
        return done.stderr.strip().rpartition("\n")[2]

    missing = "ModuleNotFoundError: No module named 'helpers'"
    assert error("tools/train.py") == ""
    assert error("other.py") == missing
    assert error("-m", "tools.lib.model") == missing
