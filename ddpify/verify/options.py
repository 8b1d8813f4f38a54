"""What the user asked ``ddpify verify`` for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ddpify.verify.which import OWN, ProjectPython, chosen

NOISES: Final = ("dropout", "batchnorm", "augmentation", "draws")
# Relative differences that rounding makes over a few epochs of training; measured in
# tests/training: up to 3e-12 in float64 and 1e-5 in float32.
TOLERANCES: Final = {"float64": 1e-9, "float32": 1e-4}


@dataclass(frozen=True)
class Options:
    """One verification.

    ``steps`` 0 means the whole run, ``overfit`` 0 all samples. ``timeout`` is in seconds, and
    without any progress, not in all. ``neutralise`` names what of ``NOISES`` is switched off.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    nproc: int = 2
    baseline: str = ""  # a git revision, or a folder
    distributed_only: bool = False
    steps: int = 0
    tolerance: float = 0.0  # 0: that of the dtype
    dtype: str = "float64"
    neutralise: frozenset[str] = frozenset()
    overfit: int = 0
    full: bool = False
    timeout: float = 300.0
    keep: bool = False
    python: str = sys.executable
    why_python: str = OWN  # why it is this interpreter, in a few words
    ignore_output: tuple[str, ...] = ()  # regular expressions: such text is not compared
    command: tuple[str, ...] = ()  # how ddpify was called

    @classmethod
    def of(cls, script: Path, flags: Mapping[str, Any]) -> Options:
        """From flags named as the fields are; "all" is every noise.

        Without a flag the interpreter is the project's.
        """
        asked = set(flags.get("neutralise", ()))
        noises = frozenset(NOISES if "all" in asked else asked & {*NOISES})
        found = ProjectPython(flags["python"], "--python") if "python" in flags else chosen(script)
        given = {**flags, "python": found.python, "why_python": found.why}
        return cls(**{**given, "script": script, "neutralise": noises})

    @property
    def elsewhere(self) -> bool:
        """Whether it trains in another environment than ddpify's own, which nobody named."""
        own = Path(self.python).parent.parent == Path(sys.prefix)
        return not own and self.why_python != "--python"

    @property
    def allowed(self) -> float:
        """The largest relative difference that counts as rounding."""
        return self.tolerance or TOLERANCES[self.dtype]
