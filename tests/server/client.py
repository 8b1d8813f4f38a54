"""An editor in a few lines: messages out, messages in, no library between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESOLVES = {"textDocument": {"codeAction": {"resolveSupport": {"properties": ["edit"]}}}}


class EditorClient:
    """Starts `ddpify server` in a folder, and keeps what it says of each file last."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "ddpify", "server"]
        pipe = subprocess.PIPE
        here = os.environ | {"PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, env=here)
        self._number = 0
        self.texts: dict[Path, str] = {}
        self.shown: list[str] = []
        self._fresh: dict[str, list[dict[str, Any]]] = {}
        self.can = self.ask(
            "initialize",
            {
                "processId": None,
                "capabilities": RESOLVES,
                "rootUri": folder.as_uri(),
                "workspaceFolders": [{"uri": folder.as_uri(), "name": "project"}],
            },
        )["capabilities"]
        self.tell("initialized", {})

    def tell(self, method: str, params: object) -> None:
        """A notification."""
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: object) -> Any:
        """A request, and its answer."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            said = self._next()
            if said.get("id") == self._number and "method" not in said:
                return said["result"]

    def open(self, file: Path, text: str | None = None) -> list[dict[str, Any]]:
        """What is said of a file that is opened."""
        self.texts[file] = file.read_text() if text is None else text
        document = {"uri": file.as_uri(), "languageId": "python", "version": 1}
        self.tell("textDocument/didOpen", {"textDocument": document | {"text": self.texts[file]}})
        return self.told(file)

    def type(self, file: Path, text: str) -> list[dict[str, Any]]:
        """What is said of a file whose buffer becomes this."""
        self._fresh.clear()
        self.texts[file] = text
        document = {"uri": file.as_uri(), "version": 2}
        change = {"textDocument": document, "contentChanges": [{"text": text}]}
        self.tell("textDocument/didChange", change)
        return self.told(file)

    def save(self, file: Path) -> list[dict[str, Any]]:
        """What is said of a file whose buffer is written."""
        self._fresh.clear()
        file.write_text(self.texts[file])
        self.tell("textDocument/didSave", {"textDocument": {"uri": file.as_uri()}})
        return self.told(file)

    def close(self, file: Path) -> list[dict[str, Any]]:
        """What is said of a file that is closed."""
        self._fresh.clear()
        self.tell("textDocument/didClose", {"textDocument": {"uri": file.as_uri()}})
        return self.told(file)

    def told(self, file: Path) -> list[dict[str, Any]]:
        """The next that is said of a file."""
        while file.as_uri() not in self._fresh:
            self._next()
        return self._fresh.pop(file.as_uri())

    def message(self) -> str:
        """The next that the editor is to show."""
        while not self.shown:
            self._next()
        return self.shown.pop()

    def actions(self, file: Path, at: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """What is offered in a range, by title."""
        document = {"uri": file.as_uri()}
        asked = {"textDocument": document, "range": at, "context": {"diagnostics": []}}
        return {one["title"]: one for one in self.ask("textDocument/codeAction", asked)}

    def choose(self, action: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What is said once an action is carried out in the only file that it is about."""
        (change,) = self.ask("codeAction/resolve", action)["edit"]["documentChanges"]
        (file,) = (one for one in self.texts if one.as_uri() == change["textDocument"]["uri"])
        return self.type(file, edited(self.texts[file], change["edits"]))

    def end(self) -> int:
        """Shut down and leave: the exit code."""
        assert self.ask("shutdown", None) is None
        self.tell("exit", None)
        return self._process.wait()

    def kill(self) -> None:
        """Whatever happened."""
        self._process.kill()
        self._process.communicate()

    def _send(self, message: Mapping[str, Any]) -> None:
        raw = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(raw), raw))
        self._process.stdin.flush()

    def _next(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        head = iter(lambda: stream.readline().strip(), b"")
        sizes = [line.split(b":")[1] for line in head if line.lower().startswith(b"content-length")]
        assert sizes, "the server is gone"
        said: dict[str, Any] = json.loads(stream.read(int(sizes[0])))
        params = said.get("params", {})
        if said.get("method") == "textDocument/publishDiagnostics":
            self._fresh[params["uri"]] = params["diagnostics"]
        elif said.get("method") == "window/showMessage":
            self.shown.append(params["message"])
        assert said.get("method") != "window/logMessage", params["message"]
        return said


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    """A text (of ASCII) after the edits, which do not overlap."""
    lines = text.splitlines(keepends=True)

    def offset(at: Mapping[str, int]) -> int:
        return sum(map(len, lines[: at["line"]])) + at["character"]

    for one in sorted(edits, key=lambda one: offset(one["range"]["start"]), reverse=True):
        start, end = (offset(one["range"][side]) for side in ("start", "end"))
        text = text[:start] + one["newText"] + text[end:]
    return text
