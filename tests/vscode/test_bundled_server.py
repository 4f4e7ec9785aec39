"""The server inside the extension: complete without any library of the interpreter's, NumPy included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pytest_lsp.client import make_test_lsp_client

PROGRAM = """import tessera as ts
from tessera import Tensor
from tessera.kernels import attention_safe


@ts.function
def project(x: Tensor["R", "C", ts.bf16], w: Tensor["D", "C", ts.bf16]) -> Tensor["R", "D"]:
    y = ts.gelu(x) * 2.0
    return y @ w


@ts.kernel
def scale(x: Tensor["M", "K", ts.f16], y: Tensor["M", "K", ts.f16]):
    rows = x[tile_m:tile_m + 16]
    y[tile_m:tile_m + 16] = rows * 2.0


@ts.function
def double(x: Tensor["N"]) -> Tensor["N"]:
    return x + x
"""


@pytest.fixture(scope="module")
def folder(vsix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the extension, as it unpacks it."""
    unpack = 'process.stdout.write(require("zlib").brotliDecompressSync(require("fs").readFileSync(process.argv[1])))'
    packed = vsix.with_name("server.br")
    text = subprocess.run(["node", "-e", unpack, str(packed)], capture_output=True, check=True).stdout.decode()
    parts = text.split("\0")
    folder = tmp_path_factory.mktemp("bundled")
    for name, content in zip(parts[::2], parts[1::2], strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def test_every_module_can_be_imported(folder: Path) -> None:
    """None lacks a module that was left out of the bundle, or one that only an installation has."""
    code = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import tessera_lsp
for module in pkgutil.walk_packages(tessera_lsp.__path__, "tessera_lsp."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print([name for name in ("numpy", "ml_dtypes", "llvmlite", "rich", "typer") if name in sys.modules])
"""
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "[]", run.stderr


@pytest.mark.asyncio
async def test_answers_what_editors_ask(folder: Path) -> None:
    client: Any = make_test_lsp_client()
    await client.start_io(sys.executable, "-I", "-S", str(folder))
    features = lsp.TextDocumentClientCapabilities(diagnostic=lsp.DiagnosticClientCapabilities())
    await client.initialize_session(lsp.InitializeParams(lsp.ClientCapabilities(text_document=features)))
    document = lsp.TextDocumentIdentifier("file:///work/program.py")
    item = lsp.TextDocumentItem(document.uri, "python", 1, PROGRAM)
    client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(100, 0))
    hints = await client.text_document_inlay_hint_async(lsp.InlayHintParams(document, whole))
    labels = [h.label if isinstance(h.label, str) else "".join(part.value for part in h.label) for h in hints]
    assert sorted(labels) == [": [16, K] f16", ": [R, C] bf16", "M by tile_m:", "M by tile_m:"]

    report = await client.text_document_diagnostic_async(lsp.DocumentDiagnosticParams(document))
    (found,) = [d for d in report.items if d.severity == lsp.DiagnosticSeverity.Error]
    assert found.code == "TS203"
    context = lsp.CodeActionContext([])
    (fix, *_) = await client.text_document_code_action_async(lsp.CodeActionParams(document, found.range, context))
    assert "transpose" in fix.title

    at = lsp.Position(7, PROGRAM.splitlines()[7].index("gelu"))
    hover = await client.text_document_hover_async(lsp.HoverParams(document, at))
    assert (
        "the normal distribution function" in hover.contents.value
    )  # documentation is in the bundle where it is shown

    asked = {"textDocument": {"uri": document.uri}, "function": "double"}
    ir = await client.protocol.send_request_async("tessera/ir", {**asked, "level": "graph"})
    assert "add(x, x) : [N] f32" in ir.text
    with pytest.raises(JsonRpcException, match="this server came without the compiler"):
        await client.protocol.send_request_async("tessera/ir", {**asked, "level": "tile"})
    await client.shutdown_session()
