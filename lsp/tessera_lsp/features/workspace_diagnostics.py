"""Findings in files of the workspace that are not open, for clients that ask for them.

A file is analysed once for each of its versions and targets, and anew when a file that it imports has changed. Only
findings are kept. A client asks again as soon as it is answered: with nothing new to tell, the answer takes its time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from lsprotocol import types as lsp
from pygls.uris import from_fs_path, to_fs_path

from tessera.compiler.frontend.checks.project_file import NAME, project_files, unread
from tessera.compiler.frontend.workspace import imported_files
from tessera_lsp.document import Document
from tessera_lsp.features.diagnostics import one, to_protocol
from tessera_lsp.progress import progress
from tessera_lsp.server import TesseraServer
from tessera_lsp.workspace import files, stamp, text_of

PAUSE = 3.0
"""seconds before an answer that says nothing new"""
_NUMBERS = count(1)
_Report = lsp.WorkspaceFullDocumentDiagnosticReport | lsp.WorkspaceUnchangedDocumentDiagnosticReport


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of one version of a file on a target.

    `others`: the state of all imported files, None where it imports none.
    """

    stamp: tuple[int, int, str]
    others: int | None
    result: str
    found: list[lsp.Diagnostic]


def register(server: TesseraServer) -> None:
    kept: dict[Path, Checked] = {}

    @server.feature(lsp.WORKSPACE_DIAGNOSTIC)
    async def workspace(params: lsp.WorkspaceDiagnosticParams) -> lsp.WorkspaceDiagnosticReport:
        previous = {p.uri: p.value for p in params.previous_result_ids}
        reports: list[_Report] = []
        with progress(server, params.work_done_token, "Checking the workspace"):
            for path in await asyncio.to_thread(_paths, server):
                uri = from_fs_path(str(path)) or path.as_uri()
                if str(path) in {d.file for d in server.documents.values()}:
                    continue
                checked = await _checked(server, path, uri, kept.get(path))
                if checked is None:
                    kept.pop(path, None)
                    continue
                kept[path] = checked
                if previous.pop(uri, None) == checked.result:
                    reports.append(lsp.WorkspaceUnchangedDocumentDiagnosticReport(uri, checked.result))
                else:
                    reports.append(
                        lsp.WorkspaceFullDocumentDiagnosticReport(uri, checked.found, result_id=checked.result)
                    )
        reports += [lsp.WorkspaceFullDocumentDiagnosticReport(uri, []) for uri in previous]  # gone, or open by now
        if previous or any(r.kind == "full" for r in reports):
            return lsp.WorkspaceDiagnosticReport(reports)
        await asyncio.sleep(PAUSE)
        return lsp.WorkspaceDiagnosticReport(reports)


def _paths(server: TesseraServer) -> list[Path]:
    """The files of the workspace, and those of the projects they lie in that should be settings."""
    found = list(files(server))
    folders = (to_fs_path(folder.uri) for folder in list(server.workspace.folders.values()))
    return [*found, *project_files([*(Path(f) for f in folders if f), *found])]


async def _checked(server: TesseraServer, path: Path, uri: str, old: Checked | None) -> Checked | None:
    """None for a file that is none of ours, or cannot be read."""
    now = stamp(path)
    state = (*now, server.settings.target) if now is not None else None
    if state is None or (old is not None and old.stamp == state and old.others in (None, server.modules.version)):
        return old if state is not None else None
    text = text_of(path)
    document = Document(lsp.TextDocumentItem(uri, "python", 0, text), server.encoding, modules=server.modules)
    if path.name == NAME:
        finding = await asyncio.to_thread(unread, path)
        return Checked(state, None, str(next(_NUMBERS)), [one(server, document, finding)])
    if not document.concerns_tessera:
        return None
    await document.analyse(document.text)
    await asyncio.sleep(0)
    others = server.modules.version if imported_files(document.scope) else None
    return Checked(state, others, str(next(_NUMBERS)), to_protocol(server, document))
