"""What stands above functions: predictions, the last profile, commands."""

from __future__ import annotations

import re
import time

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tessera.compiler.machines import MACHINES
from tessera.compiler.predict import Measured, digest, record
from tests.lsp.test_notebooks import FIRST, IMPORTS, SECOND, Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = '''"""𝒮"""
import tessera as ts
from tessera import Tensor

@ts.function
def größe(x: Tensor["B", "D"]):
    return ts.softmax(x) * 2

@ts.kernel
def double(x: Tensor["N"], y: Tensor["N"]):
    y[tile_n : tile_n + 64] = x[tile_n : tile_n + 64] * 2
'''


async def lenses(editor, doc):
    """Function -> the commands above it, in order."""
    found = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(doc))
    out: dict[str, list[lsp.Command]] = {}
    for lens in found:
        resolved = lens if lens.command else await editor.client.code_lens_resolve_async(lens)
        out.setdefault(editor.covered(doc, lens.range), []).append(resolved.command)
    return out


async def test_predictions(start):
    editor = await start(options={"target": "sm_90a", "dims": {"B": 4096, "D": 1024}})
    doc = editor.open(MODEL)
    found = await lenses(editor, doc)
    (predicted, *others) = found["größe"]
    machine = MACHINES["sm_90a"].peaks
    least = 2 * 4096 * 1024 * 4
    us = least / (machine.gbytes * 1e3) + machine.launch_us
    assert re.fullmatch(rf"modelled on sm_90a: {us:.3g} to \d+ µs in 1 launch, {least / 1e6:.3g} MB", predicted.title)
    assert [(c.title, c.command, list(c.arguments)) for c in others] == [
        ("Profile", "tessera.profile", [doc.uri, "größe"]),
        ("Show IR", "tessera.showIr", [doc.uri, "größe"]),
    ]
    assert list(predicted.arguments) == [doc.uri, "größe", "schedule"]
    kernel = found["double"][0]
    assert kernel.title.startswith("modelled on sm_90a at N=1024: ")
    assert list(kernel.arguments) == [doc.uri, "double", "tile"]


async def test_sizes_and_targets_change(start):
    editor = await start()
    doc = editor.open(MODEL)
    assert (await lenses(editor, doc))["größe"][0].title.startswith("modelled on cpu at B=D=1024: ")
    editor.client.set_configuration({"tessera": {"dims": {"N": 64, "B": 2, "D": 3}, "target": "sm_70"}})
    editor.client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))
    while lsp.WORKSPACE_CODE_LENS_REFRESH not in editor.client.refreshed:
        await editor.inlay_hints(doc)
    found = await lenses(editor, doc)
    assert found["double"][0].title == "modelled on sm_70: 512 B, there is no model of sm_70"
    editor.replace(doc, "softmax(x)", "sofmax(x)")
    assert (await lenses(editor, doc))["größe"][0].title == "no prediction for sm_70: it has 1 error"
    editor.client.set_configuration({"tessera": {"codeLens": {"enable": False}}})
    editor.client.refreshed.clear()
    editor.client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))
    while lsp.WORKSPACE_CODE_LENS_REFRESH not in editor.client.refreshed:
        await editor.inlay_hints(doc)
    assert not await lenses(editor, doc)


STEP = """import tessera as ts
from tessera import Tensor, nn

@ts.function
def step(model: nn.MLP, x: Tensor["B", "D"]):
    return ts.value_and_grad(lambda model: ts.mse(model(x), x))(model)

model = nn.MLP(64, 256, key=0)
step(model, x)
"""


async def test_a_step_of_a_model_that_the_file_constructs(start):
    editor = await start(options={"target": "sm_90a", "dims": {"B": 512}})
    doc = editor.open(STEP)
    title = (await lenses(editor, doc))["step"][0].title
    assert re.fullmatch(
        r"modelled on sm_90a at model=nn.MLP\(64, 256, key=0\) \(line 8\): "
        r"[\d.]+ to [\d.]+ µs in \d+ launches, [\d.]+ MB",
        title,
    )
    editor.replace(doc, "256", "512")
    wider = (await lenses(editor, doc))["step"][0].title
    assert "nn.MLP(64, 512, key=0)" in wider and bytes_of(wider) > bytes_of(title)
    editor.replace(doc, "nn.MLP(64, 512, key=0)", "read(path)")
    assert (await lenses(editor, doc))["step"][0].title == "no prediction for sm_90a: what model holds must be known"


TRAIN = """import tessera as ts
from tessera import Tensor, nn

def loss(model, x: Tensor["B", "D"]):
    return ts.mse(model.down(x), x)

opt = ts.optimizers.AdamW(1e-3)
run = ts.train(nn.MLP(64, 64, key=0), opt, loss, data)
"""


async def test_a_step_of_train(start):
    """Above the call, with the update; and what the loss does not use is found where it stands."""
    editor = await start(options={"target": "cpu", "dims": {"B": 128}})
    doc = editor.open(TRAIN, "trains.py")
    ((found,),) = (await lenses(editor, doc)).values()
    assert found.title.startswith(
        "a step: modelled on cpu at model=nn.MLP(64, 64, key=0) (line 8), optimizer=opt (line 8): "
    )
    assert re.search(r": [\d.]+ to [\d.]+ µs in \d+ launches, \d+ kB$", found.title) and not found.command
    (idle,) = await editor.diagnostics(doc)
    assert idle.code == "TS354" and "loss does not depend on model.up" in idle.message
    assert editor.covered(doc, idle.range) == "loss"
    editor.replace(doc, "AdamW", "SGD")
    ((less,),) = (await lenses(editor, doc)).values()
    assert bytes_of(less.title) < bytes_of(found.title)
    editor.replace(doc, "model.down(x)", "model(x)")
    assert not await editor.diagnostics(doc)


def bytes_of(title: str) -> float:
    return float(title.split()[-2])


async def test_why_there_is_no_prediction(editor):
    """Sizes that nobody gave are those that asserts allow."""
    head = "import math\nimport tessera as ts\nfrom tessera import Tensor\n@ts.function\n"
    text = f'{head}def f(x: Tensor["B", "D"], ws: list[Tensor["D", "D"]]):\n    return x @ ws[0]\n@ts.function\n'
    doc = editor.open(
        f'{text}def g(x: Tensor["B", "D"]):\n    assert D % 3 == 0\n    return x / math.sqrt(D)\n', "why.py"
    )
    found = await lenses(editor, doc)
    assert found["f"][0].title == "no prediction for cpu: what ws holds must be known"
    assert found["g"][0].title.startswith("modelled on cpu at B=1024, D=768: ")


async def test_large_programs_are_not_lowered_while_typing(editor):
    loop = "    for i in range(600):\n        x = x * 2 + i\n    return x\n"
    doc = editor.open(f'import tessera as ts\n@ts.function\ndef f(x: ts.Tensor["N"]):\n{loop}', "large.py")
    (found,) = (await lenses(editor, doc)).values()
    assert "it has 2,402 operators; up to 2,000 are predicted" in found[0].title


async def test_the_line_of_a_magic_has_the_last_word(start):
    editor = await start(options={"target": "cpu", "dims": {"B": 1}})
    cell = SECOND.replace("%%tessera", "%%tessera --target sm_80 --dims S=4096,D=64").replace("sofmax", "softmax")
    book = Notebook(editor, IMPORTS, FIRST, cell)
    (predicted, *others) = (await lenses(editor, book[2]))["attend"]
    assert [c.title for c in others] == ["Show IR"]  # a cell is profiled in its kernel
    assert predicted.title.startswith("modelled on sm_80: ") and "µs in" in predicted.title


async def test_the_last_profile(start, monkeypatch, tmp_path):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    measured = Measured(5_120_000, 3, "cpu", time.time() - 7300, digest(MODEL), {"B": 8, "D": None})
    record("/work shop/model.py", {"größe": measured})
    editor = await start()
    doc = editor.open(MODEL)
    shown = (await lenses(editor, doc))["größe"][1]
    assert shown.title == "measured on cpu at B=8, several D: 5.12 ms in 3 launches, 2 h ago"
    assert (shown.command, list(shown.arguments)) == ("tessera.openProfile", [doc.uri, "größe"])
    found = await lenses(editor, doc)
    assert [c.title for c in found["größe"][2:]] == ["Profile", "Try hints", "Show IR"]
    assert [c.title for c in found["double"][1:]] == ["Profile", "Show IR"], "it has not been profiled"
    trial = found["größe"][3]
    assert (trial.command, list(trial.arguments)) == ("tessera.tryHints", [doc.uri, "größe"])
    editor.replace(doc, "* 2\n\n", "* 3\n\n")
    assert (await lenses(editor, doc))["größe"][1].title.endswith(", 2 h ago, before the last edits")


async def test_sizes_of_a_call(start):
    """For editors that run a function: settings and defaults are known, the rest is open and has a value that does."""
    editor = await start(options={"dims": {"B": 8, "Q": 3}})
    doc = editor.open(
        MODEL + '\n@ts.function\ndef heads(x: Tensor["B", "D"], h: int, w: int = 4):\n    return x * h * w\n'
    )

    async def asked(**where):
        return await editor.client.protocol.send_request_async(
            "tessera/sizes", {"textDocument": {"uri": doc.uri}, **where}
        )

    found = await asked(function="größe")
    assert (found.function, found.sizes._asdict(), found.open) == ("größe", {"B": 8, "D": 1024}, ["D"])
    found = await asked(position={"line": 10, "character": 8})
    assert (found.function, found.open) == ("double", ["N"])
    found = await asked(function="heads")
    assert (found.sizes._asdict(), found.open) == ({"B": 8, "D": 1024, "h": 1, "w": 4}, ["D", "h"])
    with pytest.raises(JsonRpcException, match="there is no function or kernel 'none' here"):
        await asked(function="none")
