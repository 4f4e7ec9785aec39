"""Findings in files that are not open."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from tests.lsp.conftest import eventually
from tests.lsp.test_settings import KERNEL, set_to

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAYERS = """import tessera as ts
from tessera import Tensor

HEADS = 4

@ts.function
def norm(x: Tensor["B", "D"]):
    note = "𝒮é"; y = ts.sofmax(x)
    return y
"""
MODEL = """import tessera as ts
from tessera import Tensor
from layers import HEADS

@ts.function
def block(x: Tensor["B", 8]):
    assert HEADS % 2 == 0
    return x
"""


async def ask(editor, previous=()):
    """Address -> report, and the results to name the next time."""
    given = [lsp.PreviousResultId(uri, value) for uri, value in previous]
    report = await editor.client.workspace_diagnostic_async(lsp.WorkspaceDiagnosticParams(given))
    found = {r.uri: r for r in report.items}
    return found, [(uri, r.result_id) for uri, r in found.items() if r.result_id]


async def test_files_that_are_not_open(start, tmp_path):
    layers, model, plain = (tmp_path / name for name in ("layers.py", "model.py", "plain.py"))
    layers.write_text(LAYERS, encoding="utf-8")
    model.write_text(MODEL, encoding="utf-8")
    plain.write_text("def f(:\n", encoding="utf-8")
    editor = await start(folders=[tmp_path])
    assert editor.result.capabilities.diagnostic_provider.workspace_diagnostics
    found, results = await ask(editor)
    assert set(found) == {layers.as_uri(), model.as_uri()}, "plain Python is other servers' business"
    (finding,) = found[layers.as_uri()].items
    line = '    note = "𝒮é"; y = '
    assert finding.range.start == lsp.Position(7, len(line.encode("utf-16-le")) // 2)
    assert finding.code == "TS104" and finding.code_description.href.endswith("#ts104")
    assert not found[model.as_uri()].items

    layers.write_text(LAYERS.replace("HEADS = 4", "HEADS = 3").replace("sofmax", "softmax"), encoding="utf-8")
    found, results = await ask(editor, results)
    assert not found[layers.as_uri()].items
    assert [d.code for d in found[model.as_uri()].items] == ["TS106"], "it imports what has changed"

    model.unlink()
    found, results = await ask(editor, results)
    assert found[model.as_uri()].items == () and found[layers.as_uri()].kind == "unchanged"
    found, _ = await ask(editor, results)
    assert {uri: r.kind for uri, r in found.items()} == {layers.as_uri(): "unchanged"}


async def test_another_target_finds_something_else(start, tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL, encoding="utf-8")
    editor = await start(folders=[tmp_path], options={"target": "sm_90a"})
    found, results = await ask(editor)
    (report,) = found.values()
    assert not [d for d in report.items if d.code == "TS405"]
    await set_to(editor, {"target": "sm_75"})
    await eventually(lambda: editor.client.diagnostic_refresh_count > 0)
    (report,) = (await ask(editor, results))[0].values()
    assert [d for d in report.items if d.code == "TS405"]


async def test_a_file_of_settings_that_nobody_reads(start, tmp_path):
    settings = tmp_path / "tessera.toml"
    settings.write_text('target = "cpu"\n', encoding="utf-8")
    editor = await start(folders=[tmp_path])
    found, results = await ask(editor)
    (finding,) = found[settings.as_uri()].items
    assert (finding.code, finding.severity) == ("TS613", lsp.DiagnosticSeverity.Warning)
    assert finding.range == lsp.Range(lsp.Position(0, 0), lsp.Position(0, 14))

    settings.write_text('note = "𝒮é"\nx = = 3\n', encoding="utf-8")
    found, results = await ask(editor, results)
    (finding,) = found[settings.as_uri()].items
    assert "not valid TOML" in finding.message and finding.range.start == lsp.Position(1, 4)

    settings.unlink()
    found, _ = await ask(editor, results)
    assert found[settings.as_uri()].items == ()
