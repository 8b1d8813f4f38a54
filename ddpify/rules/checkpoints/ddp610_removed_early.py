"""DDP610: one rank removes what other ranks still read, or write into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpify.ranks.model import ALL, RANK0, RANK1, RankCall, RankValue
from ddpify.ranks.run import Run
from ddpify.rules.base import Finding, Rule, Severity
from ddpify.rules.examples.ranks import on_ranks
from ddpify.rules.shared.early_folders import early_uses
from ddpify.rules.shared.exclusion import excludes
from ddpify.rules.shared.folders import removed, spelled, within
from ddpify.rules.shared.meetings import overtakes, reads, waited_for
from ddpify.rules.shared.outputs import caught, checkpoints, files, own


@dataclass(frozen=True)
class FileUse:
    """A call that reads a file, or writes one."""

    call: RankCall
    path: RankValue
    writes: bool


def lint(run: Run) -> Iterable[Finding]:
    """Yield one finding per file or folder that one rank removes while others may use it."""
    alone = [(c, p) for c in run.calls if c.ranks in (RANK0, RANK1) and (p := removed(c))]
    early = {call for call, _ in early_uses(run)} if alone else set()  # DDP604 says it of those
    used = [one for one in _uses(run) if one.call not in early] if alone else []
    for call, path in alone:
        if own(path) or spelled(path, 0) != spelled(path, 1):
            continue
        late = [one for one in used if _meets_removal(run, call, path, one)]
        if late:
            use = min(late, key=lambda one: abs(one.call.order - call.order))
            what = "other ranks write here" if use.writes else "all ranks read it here"
            yield Finding(
                "DDP610",
                call.site,
                "one rank removes this while others may still use it",
                Severity.ERROR,
                advice="let all ranks wait in between: torch.distributed.barrier()",
                because=((use.call.site, what),),
            )


def _uses(run: Run) -> Iterator[FileUse]:
    yield from (FileUse(call, path, False) for call, path in reads(run))
    for write in (*files(run), *checkpoints(run)):
        if write.path is not None and not caught(write.call):
            yield FileUse(write.call, write.path, True)


def _meets_removal(run: Run, removal: RankCall, path: RankValue, use: FileUse) -> bool:
    """Whether another rank may come to a use when it is too late, or still be about it."""
    rank = ALL & ~removal.ranks
    if not use.call.ranks & rank or not within(use.path, path, rank - 1):
        return False
    earlier = use.call.order < removal.order
    if excludes(run, *((use.call, removal) if earlier else (removal, use.call))):
        return False
    if earlier:
        ended = waited_for(run, use.call, removal)
        return not ended and overtakes(run, use.call, removal, rank)
    return use.writes and overtakes(run, removal, use.call)


RULE = Rule(
    "DDP610",
    "removed-too-early",
    "Rank 0 alone removes a file when it has read it, or empties a folder before the run: without a"
    " meeting point in between the others find the file gone, or lose what they have just written"
    " (measured with one rank half a second behind: FileNotFoundError in both).",
    "os.remove, shutil.rmtree; BUGS K03",
    lint=lint,
    words=("remove(", "unlink(", "rmtree(", "rmdir("),
    bad=(
        on_ranks("""
            if rank == 0:
                torch.save(value, "start.pt")
            dist.barrier()
            value = torch.load("start.pt")
            if rank == 0:
                os.remove("start.pt")  # DDP610
            """),
        on_ranks(
            """
            empty("parts", rank)
            torch.save(value, f"parts/{rank}.pt")
            """,
            """
            import shutil


            def empty(folder, rank):
                os.makedirs(folder, exist_ok=True)
                if rank == 0:
                    shutil.rmtree(folder)  # DDP610
                    os.makedirs(folder)
                os.makedirs(folder, exist_ok=True)
            """,
        ),
    ),
    good=(
        on_ranks("""
            if rank == 0:
                torch.save(value, "start.pt")
            dist.barrier()
            value = torch.load("start.pt")
            dist.all_reduce(value)
            if rank == 0:
                os.remove("start.pt")
            """),
        on_ranks(
            """
            empty("parts", rank)
            torch.save(value, f"parts/{rank}.pt")
            """,
            """
            import shutil


            def empty(folder, rank):
                if rank == 0:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.makedirs(folder)
                dist.barrier()
            """,
        ),
    ),
)
