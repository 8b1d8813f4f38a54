"""Runs a training script as ``python script.py`` would, and writes down what it did.

    python observe.py --out DIR [options] -- script.py args...
    python -m torch.distributed.run ... observe.py --out DIR [options] -- script.py args...

Migrated programs are judged from outside, by what they compute, read and write, and the script
is not edited for it. DIR/rank<r>.json and DIR/rank<r>.pt are read by tests.support.recording.
"""

from __future__ import annotations

import argparse
import atexit
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

# The script may have a package "tests" too: ours is found by the repository's root, imported,
# and forgotten again before the script runs.
sys.path[0] = str(Path(__file__).resolve().parents[2])
from tests.support.observer import patches  # noqa: E402
from tests.support.observer.hooks import watch_everything  # noqa: E402
from tests.support.observer.record import Recorder  # noqa: E402

for _name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[_name]


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(usage="observe.py --out DIR [options] -- script.py args...")
    parser.add_argument("--out", type=Path, required=True, help="folder for the recording")
    parser.add_argument("--watch", type=Path, default=Path(), help="folder whose files count")
    parser.add_argument("--global-order", type=int, default=0, help="shuffle as N ranks would")
    parser.add_argument("--first-epoch", type=int, default=0, help="number of the first epoch")
    parser.add_argument("--float64", action="store_true", help="compute in double precision")
    parser.add_argument("--neutral-dropout", action="store_true")
    parser.add_argument("--neutral-batchnorm", action="store_true")
    parser.add_argument("--timeout", type=float, default=20, help="of the process group, seconds")
    if "--" not in argv:
        parser.error("missing: -- script.py args...")
    split = list(argv).index("--")
    return parser.parse_args(argv[:split]), list(argv[split + 1 :])


def prepare(options: argparse.Namespace) -> None:
    if options.float64:
        patches.compute_in_float64()
    if options.neutral_dropout:
        patches.neutralise_dropout()
    if options.neutral_batchnorm:
        patches.neutralise_batch_norm()
    if options.global_order:
        patches.shuffle_like_ranks(options.global_order, options.first_epoch)
    patches.limit_waiting(options.timeout)


def execute(command: list[str]) -> None:
    """``script.py args`` or ``-m module args``, with sys.argv and sys.path as python sets them."""
    if command[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(command[0]).resolve().parent)
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def main(argv: Sequence[str]) -> None:
    options, command = parse(argv)
    recorder = Recorder(options.out, int(os.environ.get("RANK", "0")), options.watch)
    ending: list[tuple[str, int]] = []
    # First registered, so last called: after what the script itself does at exit.
    atexit.register(lambda: recorder.finish(*ending[-1]))
    prepare(options)
    watch_everything(recorder)
    try:
        execute(command)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        ending.append(("exited", code))
        raise
    except BaseException as error:
        ending.append((f"{type(error).__name__}: {error}", 1))
        raise
    ending.append(("finished", 0))


if __name__ == "__main__":
    main(sys.argv[1:])
