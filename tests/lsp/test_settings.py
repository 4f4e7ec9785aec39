"""What a person can set, and the ways of talking to the server."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import pytest
from lsprotocol import types as lsp
from tessera_lsp.settings import Settings, read
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.browsers import PATIENCE, free_port
from tests.lsp.conftest import connected, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = """import tessera as ts
from tessera import Tensor, bf16

@ts.function
def f(x: Tensor["B", "S", bf16 @ ts.accum(ts.f32)], w: Tensor["S", "D", bf16]):
    note = "𝒮é"; y = x @ w
    z = ts.exp(y)
    a, b = z + 1, z.sum(-1)
    return a, b
"""

KERNEL = """import tessera as ts
@ts.kernel
def é(x: ts.Tensor["M", 256, ts.f16], y: ts.Tensor["M", 256, ts.f16]):
    tile = ts.tile.alloc_shared((256, 256), ts.f16)
    ts.tile.cp_async(tile, x[tile_m:tile_m + 256])
    ts.tile.barrier()
    y[tile_m:tile_m + 256] = ts.tile.load(tile)
"""


async def set_to(editor, settings):
    editor.client.set_configuration({"tessera": settings})
    editor.client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))


async def test_kinds_of_hints(start):
    editor = await start()
    doc = editor.open(MODEL)
    assert (await editor.hints(doc))['note = "𝒮é"; y'] == ": [B, D] bf16 @accum(f32)"
    editor.client.refreshed.clear()
    await set_to(editor, {"inlayHints": {"policies": False}})
    both = {lsp.WORKSPACE_INLAY_HINT_REFRESH, lsp.WORKSPACE_CODE_LENS_REFRESH}
    await eventually(lambda: set(editor.client.refreshed), both)
    assert (await editor.hints(doc))['note = "𝒮é"; y'] == ": [B, D] bf16"
    editor.client.refreshed.clear()
    await set_to(editor, {"inlayHints": {"shapes": False, "dtypes": False}})
    await eventually(lambda: set(editor.client.refreshed), both)
    assert await editor.hints(doc) == {
        'note = "𝒮é"; y': ": @accum(f32)", "z": ": @accum(f32)", "a": ": @accum(f32)", "a, b": ": @accum(f32)",
    }  # fmt: skip


async def test_settings_at_the_start(start):
    editor = await start(options={"inlayHints": {"dtypes": False, "policies": False}})
    doc = editor.open(MODEL)
    assert (await editor.hints(doc))['note = "𝒮é"; y'] == ": [B, D]"


async def test_quiet_hints_stand_where_shapes_change_and_near_the_cursor(start):
    editor = await start(options={"tessera": {"inlayHints": {"quiet": True}}})
    doc = editor.open(MODEL)
    assert list(await editor.hints(doc)) == ['note = "𝒮é"; y', "a, b"]
    editor.client.protocol.notify(
        "tessera/cursor", {"textDocument": {"uri": doc.uri}, "position": {"line": 7, "character": 0}}
    )
    await eventually(lambda: lsp.WORKSPACE_INLAY_HINT_REFRESH in editor.client.refreshed)
    assert list(await editor.hints(doc)) == ['note = "𝒮é"; y', "z", "a", "a, b"]


async def test_the_target_says_how_much_shared_memory_there_is(start):
    editor = await start(options={"target": "sm_90a"})
    doc = editor.open(KERNEL)
    assert not [d for d in await editor.diagnostics(doc) if d.code == "TS405"]
    await set_to(editor, {"target": "sm_75"})
    await eventually(lambda: editor.client.diagnostic_refresh_count > 0)
    (found,) = [d for d in await editor.diagnostics(doc) if d.code == "TS405"]
    assert "sm_75 has 65536" in found.message


async def test_what_cannot_be_understood_is_left_out(caplog):
    given = {
        "target": 3,
        "dims": {"B": 8, "S": "x", "T": True},
        "inlayHints": ["shapes"],
        "codeLens": {"enable": False},
    }
    assert read(given) == Settings(dims={"B": 8}, lenses=False)
    assert "tessera.dims.S is a int" in caplog.text and "tessera.inlayHints is an object" in caplog.text
    assert read(None) == Settings()


@asynccontextmanager
async def listening():
    """A server on a websocket, and its port."""
    port = free_port()
    server = await asyncio.create_subprocess_exec(sys.executable, "-m", "tessera_lsp", "--ws", str(port))
    try:
        _, writer = await connected(lambda: asyncio.open_connection("127.0.0.1", port))
        writer.close()
        yield server, port
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def test_a_websocket_on_loopback(start):
    async with listening() as (server, port):
        editor = await start(port=port, websocket=True)
        assert (await editor.hints(editor.open(MODEL)))["z"] == ": [B, D] bf16 @accum(f32)"
        async with connect(f"ws://127.0.0.1:{port}") as second:
            with pytest.raises(ConnectionClosed, match="has its client"):
                await second.recv()
        assert await editor.hints(editor.open(MODEL, "other.py")), "the first client is served on"
        await asyncio.wait_for(editor.client.shutdown_session(), PATIENCE)
        await asyncio.wait_for(server.wait(), PATIENCE)


async def test_pages_from_elsewhere_cannot_use_the_websocket():
    async with listening() as (_, port):
        for origin in ("https://example.org", "null", "http://localhost.example.org", f"http://example.org:{port}"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"ws://127.0.0.1:{port}", origin=origin)
            assert refused.value.response.status_code == 403
        async with connect(f"ws://127.0.0.1:{port}", origin="http://localhost:8888") as own:
            await own.send('{"jsonrpc": "2.0", "id": 1, "method": "shutdown"}')
            assert json.loads(await own.recv())["id"] == 1
