"""The language server: which of the protocol's messages asks for what."""

from __future__ import annotations

import gc

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from ddpify import __version__
from ddpify.server.actions import FIX_ALL
from ddpify.server.session import EditorSession

_WATCHED = "**/{*.{py,ipynb,sh,slurm,sbatch,yaml,yml,toml,cfg,txt,md},Makefile,Pipfile,.gitignore}"


def made() -> LanguageServer:
    """The server; it says nothing yet."""
    server = LanguageServer("ddpify", __version__, types.TextDocumentSyncKind.Full)
    session = EditorSession(server)
    _listen(server, session)
    _answer(server, session)
    return server


def _listen(server: LanguageServer, session: EditorSession) -> None:
    @server.feature(types.INITIALIZED)
    def _(params: types.InitializedParams) -> None:
        if _can_watch(server.client_capabilities):
            watcher = types.FileSystemWatcher(_WATCHED)
            options = types.DidChangeWatchedFilesRegistrationOptions([watcher])
            one = types.Registration("watch", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            server.client_register_capability(types.RegistrationParams([one]))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _(params: types.DidOpenTextDocumentParams) -> None:
        session.opened(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _(params: types.DidChangeTextDocumentParams) -> None:
        session.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def _(params: types.DidSaveTextDocumentParams) -> None:
        session.changed(params.text_document.uri, 0)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _(params: types.DidCloseTextDocumentParams) -> None:
        session.closed(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def _(params: types.DidChangeWatchedFilesParams) -> None:
        session.changed_on_disk(params.changes)


def _answer(server: LanguageServer, session: EditorSession) -> None:
    kinds = [types.CodeActionKind.QuickFix, FIX_ALL]
    offered = types.CodeActionOptions(kinds, resolve_provider=True)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, offered)
    def _(params: types.CodeActionParams) -> list[types.CodeAction]:
        only = [str(getattr(one, "value", one)) for one in params.context.only or ()]
        found = session.actions(params.text_document.uri, params.range, only)
        if _can_resolve(server.client_capabilities):
            return found
        return [session.resolved(one) for one in found]

    @server.feature(types.CODE_ACTION_RESOLVE)
    def _(action: types.CodeAction) -> types.CodeAction:
        return session.resolved(action)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def _(params: types.HoverParams) -> types.Hover | None:
        return session.hover(params.text_document.uri, params.position)


def _can_watch(client: types.ClientCapabilities) -> bool:
    files = client.workspace.did_change_watched_files if client.workspace else None
    return bool(files and files.dynamic_registration)


def _can_resolve(client: types.ClientCapabilities) -> bool:
    action = client.text_document.code_action if client.text_document else None
    return bool(action and action.resolve_support and "edit" in action.resolve_support.properties)


def serve() -> None:
    """Answer on standard input and output until the editor ends it."""
    gc.enable()  # switched off for commands, which end soon
    made().start_io()
