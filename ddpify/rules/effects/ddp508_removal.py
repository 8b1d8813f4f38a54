"""DDP508: every rank removes one file or folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ddpify.ranks.model import RankCall
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.folders import is_race, removed
from ddpify.rules.shared.meetings import at_once, done_before, for_missing
from ddpify.rules.shared.outputs import by_all, caught, own
from ddpify.rules.shared.rank_zero import on_rank_zero

_SILENT: Final = {"unlink": "missing_ok", "rmtree": "ignore_errors"}


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per file that all ranks remove, each as if it were alone."""
    for call in run.calls:
        path = removed(call)
        if path is None or own(path) or _may_be_gone(call) or caught(call):
            continue
        once = for_missing(run, call) and done_before(run, call)
        if by_all(run, call) and at_once(run, call) and not once:
            race = is_race(run, call, path)
            yield Finding(
                "DDP508",
                call.site,
                "every rank removes this: FileNotFoundError on those that come second"
                + (", where both have found it" if race else ""),
                Severity.WARNING if race else Severity.ERROR,
                on_rank_zero(run, call),
                "remove it on the rank with number 0 only",
            )


def _may_be_gone(call: RankCall) -> bool:
    """Whether a call accepts that there is nothing any more."""
    name = _SILENT.get(call.method)
    said = call.arg(1 if name == "ignore_errors" else 0, name) if name else None
    silent = said is not None and said.constant is not False and not call.name.startswith("os.")
    return call.star or silent


RULE = Rule(
    "DDP508",
    "removal-on-every-rank",
    "Ranks that remove one file, or one folder, do so at about the same time: who comes second"
    " finds nothing and ends with FileNotFoundError, though each has asked whether it is there.",
    "os.remove documentation; BUGS K07",
    lint=lint,
    words=("remove(", "unlink(", "rmtree(", "rmdir("),
    bad=(
        on_ranks("""
            if os.path.exists("old.pt"):
                os.remove("old.pt")  # DDP508
            dist.barrier()
            """),
        on_ranks(
            "rotate('checkpoints')",
            """
            import shutil


            def rotate(folder):
                for name in sorted(os.listdir(folder))[:-2]:
                    shutil.rmtree(os.path.join(folder, name))  # DDP508
            """,
        ),
    ),
    good=(
        on_ranks("""
            if rank == 0 and os.path.exists("old.pt"):
                os.remove("old.pt")
            dist.barrier()
            """),
        on_ranks("""
            os.remove(f"share{rank}.pt")
            try:
                os.remove("old.pt")
            except FileNotFoundError:
                pass
            """),
    ),
)
