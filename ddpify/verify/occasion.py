"""When, where and of what a verification was made: what a report is asked months later."""

from __future__ import annotations

import platform
import subprocess
from datetime import datetime
from pathlib import Path

from ddpify.verify.verdict import Occasion


def occasion(script: Path) -> Occasion:
    """Now, on this machine."""
    return Occasion(
        date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z"),
        host=platform.node(),
        system=f"{platform.system()} {platform.machine()}",
        commit=_commit(script.resolve().parent),
    )


def _commit(folder: Path) -> str:
    """The one that is checked out, and whether files were changed since."""
    found = _git(folder, "rev-parse", "--short", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no") if found else ""
    return f"{found}, with changes that are not committed" if changed else found


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.decode(errors="replace").strip()
