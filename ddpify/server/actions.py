"""What an editor offers to do about findings: fix them, or silence them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lsprotocol import types
from pygls import uris

from ddpify.checking.codes import UNREADABLE, UNUSED
from ddpify.checking.files import is_python
from ddpify.checking.fixing import fix
from ddpify.checking.model import Checked
from ddpify.checking.noqa import with_noqa
from ddpify.plan import Change
from ddpify.report.replacements import replacements
from ddpify.rules.base import Finding
from ddpify.server.told import EditorPlaces, diagnostic
from ddpify.settings import load
from ddpify.source import Source

Read = Callable[[str], bytes]
FIX_ALL = "source.fixAll.ddpify"


def offered(
    file: Path, found: Sequence[Finding], at: Iterable[int], checked: Checked, places: EditorPlaces
) -> Iterator[types.CodeAction]:
    """The actions for the findings with the numbers ``at``; their edits are made when one of them
    is chosen."""
    for number in at:
        one = found[number]
        about = [diagnostic(one, file, places)]
        if one.fix:
            safe = checked.safe(one)
            title = f"{one.advice or 'fix it'} ({one.rule}{'' if safe else ', unsafe fix'})"
            yield types.CodeAction(
                title[:1].upper() + title[1:],
                kind=types.CodeActionKind.QuickFix,
                diagnostics=about,
                is_preferred=safe,
                data={"file": str(file), "fix": [number]},
            )
        if one.rule not in (UNUSED, UNREADABLE) and is_python(file):
            yield types.CodeAction(
                f"Silence {one.rule} here with a comment",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=about,
                data={"file": str(file), "noqa": number},
            )
    every = [number for number, one in enumerate(found) if checked.safe(one)]
    if every:
        yield types.CodeAction(
            "Make all safe fixes of ddpify in this file",
            kind=FIX_ALL,
            data={"file": str(file), "fix": every},
        )


def edit_of(
    data: Mapping[str, object],
    found: Sequence[Finding],
    read: Read,
    places: EditorPlaces,
    versions: Mapping[Path, int | None],
) -> types.WorkspaceEdit:
    """The edit of an action that was offered."""
    file = Path(str(data["file"]))
    numbers = data.get("fix")
    if isinstance(numbers, list):
        wanted = [found[int(number)] for number in numbers]
        changes: Iterable[Change] = fix(wanted, read, load(file, {}).line_length).changes
    else:
        changes = [_silenced(found[int(str(data["noqa"]))], str(file), read)]
    edits: list[types.TextDocumentEdit | types.CreateFile] = []
    for change in changes:
        edits += _edits(change, places, versions)
    return types.WorkspaceEdit(document_changes=edits)


def _silenced(one: Finding, path: str, read: Read) -> Change:
    source = Source.from_bytes(read(path), Path(path), path)
    text, _ = with_noqa(source.text, {one.site.span.line: [one.rule]})
    return Change(path, source.raw, source.encode(text), ())


def _edits(
    change: Change, places: EditorPlaces, versions: Mapping[Path, int | None]
) -> Iterator[types.TextDocumentEdit | types.CreateFile]:
    file = Path(change.path).absolute()
    uri = uris.from_fs_path(str(file)) or ""
    if change.before is None:
        yield types.CreateFile(uri)
        nowhere = types.Position(0, 0)
        parts = [types.TextEdit(types.Range(nowhere, nowhere), change.after.decode())]
    else:
        parts = [
            types.TextEdit(places.range(file, span), text) for span, text in replacements(change)
        ]
    document = types.OptionalVersionedTextDocumentIdentifier(uri, versions.get(file))
    yield types.TextDocumentEdit(document, list(parts))
