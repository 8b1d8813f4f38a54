"""What can go wrong between a plan and its text: a file we may not touch, or a bug of ours."""

from __future__ import annotations


class ReadOnlySource(Exception):
    """The file cannot be rewritten without loss; findings yes, edits no.

    Attributes:
        path: the file, relative to the project root.
        why: the reason, half a sentence for the user.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: cannot be rewritten ({why})")
        self.path = path
        self.why = why


class RewriteError(AssertionError):
    """An edit could not be carried out as planned: a bug in the named rules or in ddpify."""

    def __init__(self, path: str, rules: tuple[str, ...], why: str, line: int = 0) -> None:
        place = f"{path}:{line}" if line else path
        super().__init__(f"{place}: {', '.join(rules)}: {why}; nothing was written")
        self.path = path
        self.rules = rules
        self.why = why


class CodeError(ValueError):
    """The code of an edit is not what its kind of edit needs."""
