"""The lossless tree of a file, of one with the keyword ``async`` of Python before 3.7, too."""

from __future__ import annotations

import libcst as cst

from ddpify.source import Respelled, Source


def parsed(source: Source) -> cst.Module:
    """The tree whose code is the source's text. Raises ``libcst.ParserSyntaxError``."""
    legacy = source.legacy
    if legacy is None:
        return cst.parse_module(source.text)
    restored = cst.parse_module(legacy.text).visit(_Restoring(legacy))
    assert isinstance(restored, cst.Module)
    return restored


class _Restoring(cst.CSTTransformer):
    """Writes ``async`` where its stand-in was parsed."""

    def __init__(self, legacy: Respelled) -> None:
        super().__init__()
        self._stand_in = legacy.stand_in

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        keyword = updated_node.keyword
        if keyword is None or keyword.value != self._stand_in:
            return updated_node
        return updated_node.with_changes(keyword=keyword.with_changes(value="async"))
