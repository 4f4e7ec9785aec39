"""Settings: asked for where the client can be asked, else taken as it sends them."""

from __future__ import annotations

from typing import Any

from lsprotocol import types as lsp

from tessera import knobs
from tessera_lsp import settings
from tessera_lsp.features import watched
from tessera_lsp.messages import CURSOR, CursorParams
from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        _set(server, settings.read(_section(params.initialization_options)))

    @server.feature(lsp.INITIALIZED)
    async def initialized(_: lsp.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        changes = workspace.did_change_configuration if workspace is not None else None
        asked = watched.registrations(server.client_capabilities)
        if changes is not None and changes.dynamic_registration:
            section = {"section": settings.SECTION}
            asked.append(lsp.Registration("settings", lsp.WORKSPACE_DID_CHANGE_CONFIGURATION, section))
        if asked:
            await server.client_register_capability_async(lsp.RegistrationParams(asked))
        await _ask(server)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def changed(params: lsp.DidChangeConfigurationParams) -> None:
        if not await _ask(server):
            take(server, settings.read(_section(params.settings)))

    @server.feature(CURSOR)
    def cursor(params: CursorParams) -> None:
        moved = server.cursor != (params.text_document.uri, params.position.line)
        server.cursor = params.text_document.uri, params.position.line
        if moved and server.settings.quiet:
            server.refresh("inlay_hint")


def _section(given: Any) -> Any:
    """Some clients send the section, others an object with the section in it."""
    return given.get(settings.SECTION, given) if isinstance(given, dict) else None


async def _ask(server: TesseraServer) -> bool:
    """Whether the client could be asked."""
    workspace = server.client_capabilities.workspace
    if workspace is None or not workspace.configuration:
        return False
    wanted = lsp.ConfigurationParams([lsp.ConfigurationItem(section=settings.SECTION)])
    (given,) = await server.workspace_configuration_async(wanted) or [None]
    if given is not None:
        take(server, settings.read(given))
    return True


def take(server: TesseraServer, new: settings.Settings) -> None:
    if new != server.settings:
        targeted = new.target != server.settings.target
        _set(server, new)
        server.refresh("inlay_hint", "code_lens", *(["diagnostics"] if targeted else []))


def _set(server: TesseraServer, new: settings.Settings) -> None:
    """What a kernel may use of memory depends on the target, so another one changes what is found."""
    old, server.settings = server.settings, new
    if new.target != old.target:
        knobs.target.set(server.default_target if new.target == "auto" else new.target)
        for document in (*server.documents.values(), *(n.document for n in server.notebooks.values())):
            document.analyse_anew()
