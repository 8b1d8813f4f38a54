"""An editor's session: when a project is read again, what is published, what is answered."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from ddpify.checking.model import Checked
from ddpify.rules.base import Finding
from ddpify.server import actions
from ddpify.server.reading import ProjectReader, encoded, is_marked, text_of, top_of
from ddpify.server.told import EditorPlaces, diagnostic, hover
from ddpify.server.worker import ReadingThread

PAUSE = 0.2  # seconds without a key after which a buffer is read
_LINE_END = re.compile("\r\n|\r|\n")


@dataclass(frozen=True)
class Answer:
    """What was said of an open file, and of which text."""

    text: str
    findings: tuple[Finding, ...]
    ranges: tuple[types.Range, ...]
    checked: Checked


class EditorSession:
    """The open files, their projects, and what was found last."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self._thread = ReadingThread()
        self._uris: dict[Path, str] = {}
        self._readers: dict[Path, ProjectReader] = {}
        self._due: dict[Path, asyncio.Task[None]] = {}
        self._answers: dict[Path, Answer] = {}
        self._said = ""

    # -- what the editor tells -----------------------------------------------------------------

    def opened(self, uri: str) -> None:
        """A file is shown."""
        file = _file(uri)
        if file is not None:
            self._uris[file] = uri
            self.read_soon(file, 0)

    def closed(self, uri: str) -> None:
        """A file is not shown any more: the others are as they are on disk."""
        file = _file(uri)
        if file in self._uris:
            del self._uris[file]
            self._answers.pop(file, None)
            self._publish(uri, ())
            self.read_soon(file, PAUSE)

    def changed(self, uri: str, pause: float = PAUSE) -> None:
        """A buffer is another one, or was written."""
        file = _file(uri)
        if file in self._uris:
            self.read_soon(file, pause)

    def changed_on_disk(self, changes: Sequence[types.FileEvent]) -> None:
        """Files were written, perhaps by others."""
        for change in changes:
            file = _file(change.uri)
            known = change.type is types.FileChangeType.Changed and change.uri.endswith(".py")
            for root, reader in self._readers.items():
                if file is not None and file.is_relative_to(root):
                    if not known:
                        reader.forget()
                    self._soon(root, PAUSE)

    # -- reading -------------------------------------------------------------------------------

    def read_soon(self, file: Path, pause: float) -> None:
        """Read the project of a file, once nothing else has happened for a while."""
        named = (_file(uri) for uri in self._server.workspace.folders)
        folders = [one for one in named if one is not None]
        root = top_of(file, folders)
        if root not in self._readers:
            self._readers[root] = ProjectReader(root, is_marked(root) or root in folders)
        self._soon(root, pause)

    def _soon(self, root: Path, pause: float) -> None:
        if root in self._due:
            self._due[root].cancel()
        self._due[root] = asyncio.get_running_loop().create_task(self._guarded(root, pause))

    async def _guarded(self, root: Path, pause: float) -> None:
        try:
            await self._read(root, pause)
        except Exception:  # a bug must not end the session
            self._log(traceback.format_exc())

    async def _read(self, root: Path, pause: float) -> None:
        await asyncio.sleep(pause)
        reader = self._readers[root]
        texts = {file: self._text(uri) for file, uri in self._open(root)}
        if not texts:
            return
        found = await self._thread.do(partial(reader.read, tuple(texts), texts))
        if found.why:
            self._tell(found.why)
            return
        for file, findings in found.findings.items():
            self._answer(file, texts[file], findings, found.checked)
        if not reader.warm:  # the answer came from the cache: be ready for what is typed
            await self._thread.do(partial(reader.read, tuple(texts), texts, cache=False))

    def _open(self, root: Path) -> Iterator[tuple[Path, str]]:
        readers = self._readers
        for file, uri in self._uris.items():
            homes = [top for top in file.parents if top in readers]
            if homes and homes[0] == root:
                yield file, uri

    def _answer(
        self, file: Path, text: str, findings: tuple[Finding, ...], checked: Checked
    ) -> None:
        places = self._places()
        ranges = tuple(places.marked(file, one.site.span) for one in findings)
        self._answers[file] = Answer(text, findings, ranges, checked)
        uri = self._uris[file]
        self._publish(uri, [diagnostic(one, file, places) for one in findings])

    # -- what the editor asks ------------------------------------------------------------------

    def actions(self, uri: str, at: types.Range, only: Sequence[str]) -> list[types.CodeAction]:
        """What may be done there; nothing while a newer text is being read."""
        file = _file(uri)
        answer = self._current(file)
        if file is None or answer is None:
            return []
        near = [n for n, one in enumerate(answer.ranges) if _touch(one, at)]
        places = self._places()
        found = actions.offered(file, answer.findings, near, answer.checked, places)
        return [one for one in found if not only or _is_kind(one, only)]

    def resolved(self, action: types.CodeAction) -> types.CodeAction:
        """An action with its edit."""
        data = action.data
        file = Path(str(data["file"])) if isinstance(data, dict) else None
        answer = self._current(file)
        if isinstance(data, dict) and answer is not None:
            versions = {
                one: self._server.workspace.get_text_document(uri).version
                for one, uri in self._uris.items()
            }
            action.edit = actions.edit_of(
                data, answer.findings, self._bytes, self._places(), versions
            )
        return action

    def hover(self, uri: str, at: types.Position) -> types.Hover | None:
        """The pages of the rules that are broken there."""
        answer = self._answers.get(_file(uri) or Path())
        where = types.Range(at, at)
        near = [n for n, one in enumerate(answer.ranges) if _touch(one, where)] if answer else []
        if answer is None or not near:
            return None
        return hover([answer.findings[n] for n in near], answer.ranges[near[0]])

    def _current(self, file: Path | None) -> Answer | None:
        """What was found in the text that is shown now."""
        if file is None or file not in self._answers or file not in self._uris:
            return None
        answer = self._answers[file]
        return answer if answer.text == self._text(self._uris[file]) else None

    # -- texts ---------------------------------------------------------------------------------

    def _text(self, uri: str) -> str:
        return self._server.workspace.get_text_document(uri).source

    def _bytes(self, path: str) -> bytes:
        file = Path(path).absolute()
        uri = self._uris.get(file)
        return encoded(self._text(uri)) if uri is not None else file.read_bytes()

    def _places(self) -> EditorPlaces:
        """Places in the files as they are now; each is split once."""
        known: dict[Path, list[str]] = {}

        def lines(file: Path) -> list[str]:
            if file not in known:
                uri = self._uris.get(file)
                text = self._text(uri) if uri is not None else text_of(file)
                known[file] = _LINE_END.split(text)
            return known[file]

        return EditorPlaces(self._server.workspace.position_codec, lines)

    # -- telling -------------------------------------------------------------------------------

    def _publish(self, uri: str, found: Sequence[types.Diagnostic]) -> None:
        params = types.PublishDiagnosticsParams(uri, list(found))
        self._server.text_document_publish_diagnostics(params)

    def _tell(self, text: str) -> None:
        """Say once why nothing is found."""
        if text != self._said:
            self._said = text
            message = types.ShowMessageParams(types.MessageType.Error, f"ddpify: {text}")
            self._server.window_show_message(message)

    def _log(self, text: str) -> None:
        self._server.window_log_message(types.LogMessageParams(types.MessageType.Error, text))


def _file(uri: str) -> Path | None:
    """The file that is meant; None where it is none on disk."""
    path = uris.to_fs_path(uri) if uri.startswith("file:") else None
    return Path(path).resolve() if path else None


def _touch(one: types.Range, other: types.Range) -> bool:
    return one.start <= other.end and other.start <= one.end


def _is_kind(action: types.CodeAction, only: Sequence[str]) -> bool:
    kind = str(getattr(action.kind, "value", action.kind))
    return any(kind == one or kind.startswith(f"{one}.") for one in only)
