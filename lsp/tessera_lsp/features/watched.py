"""Files that others change on the disk (a version checked out, a generated module): who imports them is read again."""

from __future__ import annotations

from lsprotocol import types as lsp
from pygls.uris import to_fs_path

from tessera_lsp.server import TesseraServer

WATCHED = "**/*.{py,tess}"


def register(server: TesseraServer) -> None:
    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def changed(params: lsp.DidChangeWatchedFilesParams) -> None:
        """What an editor has open counts as it is there."""
        opened = server.modules.opened
        events = {path: e.type for e in params.changes if (path := to_fs_path(e.uri)) and path not in opened}
        appeared = any(kind != lsp.FileChangeType.Changed for kind in events.values())
        for document in (*server.documents.values(), *(n.document for n in server.notebooks.values())):
            if events:
                document.changed_on_disk(events.keys(), appeared)


def registrations(client: lsp.ClientCapabilities) -> list[lsp.Registration]:
    """What the client is asked to watch, where it can be asked."""
    able = client.workspace.did_change_watched_files if client.workspace is not None else None
    if able is None or not able.dynamic_registration:
        return []
    options = lsp.DidChangeWatchedFilesRegistrationOptions([lsp.FileSystemWatcher(WATCHED)])
    return [lsp.Registration("watched", lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)]
