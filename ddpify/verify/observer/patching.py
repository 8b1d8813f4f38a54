"""Replaces functions of torch for the rest of the process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Patcher:
    """Remembers what was there, because TorchScript reads the source of what it compiles."""

    def __init__(self) -> None:
        self._changes: list[tuple[Any, str, Any, Any]] = []
        self.replace(torch.jit, "script", self._scripting)

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put ``make(original)`` in the place of ``owner.name``, if there is one."""
        if not hasattr(owner, name):
            return
        original = getattr(owner, name)
        new = make(original)
        setattr(owner, name, new)
        self._changes.append((owner, name, original, new))

    def before(self, owner: Any, name: str, listen: Callable[..., None]) -> None:
        """Call ``listen`` with the arguments, then what was there."""

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def watched(*args: Any, **kwargs: Any) -> Any:
                listen(*args, **kwargs)
                return original(*args, **kwargs)

            return watched

        self.replace(owner, name, make)

    def _scripting(self, script: Any) -> Any:
        """Scripted code calls the functions that were there, and is not observed inside."""

        @functools.wraps(script)
        def compile_unpatched(*args: Any, **kwargs: Any) -> Any:
            with self._undone():
                return script(*args, **kwargs)

        return compile_unpatched

    @contextmanager
    def _undone(self) -> Iterator[None]:
        for owner, name, original, _ in reversed(self._changes):
            setattr(owner, name, original)
        try:
            yield
        finally:
            for owner, name, _, new in self._changes:
                setattr(owner, name, new)
