"""A project with what a write has to keep, and how it looks."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpify import cli
from ddpify.plan import Change

CHANGES = (
    Change("a.py", b"a\n", b"A\n", ()),
    Change("new/deep/c.py", None, b"C\n", ()),
    Change("pkg/b.py", b"b\n", b"B\n", ()),
)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Makes fresh projects: ``a.py`` can be run, ``pkg/b.py`` is a link to a file outside."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # what it is for is not tried here
    count = iter(range(10_000))

    def fresh() -> Path:
        top = tmp_path / str(next(count))
        (top / "project/pkg").mkdir(parents=True)
        (top / "real.py").write_text("b\n")
        (top / "project/pyproject.toml").write_text("")
        (top / "project/a.py").write_text("a\n")
        (top / "project/a.py").chmod(0o754)
        os.utime(top / "project/a.py", ns=(10**18, 10**18))
        (top / "project/pkg/b.py").symlink_to("../../real.py")
        return top / "project"

    return fresh


def looks(root: Path) -> dict[str, object]:
    """A project and what is beside it, but the journal and a cache: bytes, modes, links."""
    found: dict[str, object] = {}
    for path in sorted(root.parent.rglob("*")):
        name = path.relative_to(root.parent).as_posix()
        if ".ddpify" not in name:
            kind = os.readlink(path) if path.is_symlink() else stat.S_IMODE(path.stat().st_mode)
            found[name] = (kind, path.read_bytes() if path.is_file() else None)
    return found


@pytest.fixture
def ddpify(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([str(one) for one in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run
