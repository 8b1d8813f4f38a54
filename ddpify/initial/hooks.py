"""The hook for pre-commit: `ddpify check` before each commit."""

from __future__ import annotations

from pathlib import Path

from ddpify.plan import Change

NAME = ".pre-commit-config.yaml"
# The ddpify that is installed: nothing has to be downloaded, and it is the one that migrates.
ENTRY = """\
  - repo: local
    hooks:
      - id: ddpify-check
        name: ddpify check
        entry: ddpify check --force-exclude
        language: system
        types_or: [python, shell, makefile, markdown]
        # one process reads all files: what one does is often wrong because of another
        require_serial: true
"""


def hook(root: Path) -> Change | str:
    """The new file; or, where there is one, what to say of it: "" if it has the hook."""
    file = root / NAME
    if not file.exists():
        return Change(NAME, None, f"repos:\n{ENTRY}".encode(), ())
    if b"ddpify" in file.read_bytes():
        return ""
    return f"{NAME} is there and stays as it is; paste below its `repos:`\n\n{ENTRY}"
