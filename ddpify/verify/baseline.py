"""The original program where it is not the working tree: a git revision, or another folder."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from ddpify.verify.scratch import copy_project, merge, place
from ddpify.verify.snapshot import ScratchError, explained


def export(root: Path, baseline: str, into: Path) -> tuple[Path, str]:
    """A scratch copy of the project as ``baseline`` has it, and what that is in words.

    Data that git does not know comes from the working tree. Raises ScratchError.
    """
    if Path(baseline).is_dir():
        return copy_project(Path(baseline), into), f"folder {baseline}"
    root = root.resolve()
    commit = _commit(root, baseline)
    target = place(root, into)
    _check_out(root, commit, target, baseline)
    merge(root, target, _tracked(root))
    return target, f"git revision {_named(commit, baseline)}"


def _commit(root: Path, revision: str) -> str:
    if revision.startswith("-"):
        raise ScratchError(f"{revision}: is not a git revision or a folder")
    _git(root, "rev-parse", "--git-dir")  # says so if this is no repository
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", revision + "^{commit}").strip()
    except ScratchError:
        raise ScratchError(
            f"{revision}: is neither a folder nor a revision in the git repository of {root}"
        ) from None


def _named(commit: str, revision: str) -> str:
    return commit[:7] if commit.startswith(revision) else f"{commit[:7]} ({revision})"


def _check_out(root: Path, commit: str, target: Path, revision: str) -> None:
    """As ``git checkout`` would, filters included, but with an index of its own.

    ``git archive`` leaves out what is marked export-ignore.
    """
    prefix = _git(root, "rev-parse", "--show-prefix").rstrip("\n")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
        tree = Path(folder, "tree")
        _git(root, "read-tree", commit, environment=index)
        _git(root, "checkout-index", "--all", f"--prefix={tree}/", environment=index)
        with explained(target):
            if not (tree / prefix).is_dir():
                raise ScratchError(f"{root}: git revision {revision} has no files of it")
            target.rmdir()
            (tree / prefix).rename(target)


def _tracked(root: Path) -> frozenset[Path]:
    """The files git knows in the working tree; of submodules nothing: they are not exported."""
    entries = _git(root, "ls-files", "--stage", "-z").split("\0")
    pairs = (entry.split("\t", 1) for entry in entries if entry)
    return frozenset(root / path for mode, path in pairs if not mode.startswith("160000"))


def _git(root: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """What git prints. Raises ScratchError with what it complains of."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    except FileNotFoundError:
        raise ScratchError(
            "git: is not installed, and --baseline with a revision needs it"
        ) from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        reason = said[0] if said else f"git {arguments[0]} fails"
        raise ScratchError(f"{root}: {reason.removeprefix('fatal: ')}") from error
    return os.fsdecode(done.stdout)
