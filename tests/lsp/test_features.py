"""One scenario per feature against the real server process, with text before the range that UTF-16 counts otherwise."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = '''"""Attention, with 𝒮 for the sequence."""
import tessera as ts
from tessera import Tensor, bf16

HEADS = 4


def helper(a, eps=1e-5):
    """Shifts."""
    return a + eps


@ts.function
def attend(x: Tensor["B", "S", "D", bf16 @ ts.accum(ts.f32)], w: Tensor["D", "D", bf16]) -> Tensor["B", "S", "D", bf16]:
    """𝒜ttends."""
    assert D % HEADS == 0
    note = "𝒮é"; q = (x @ w).reshape(B, S, HEADS, D // HEADS)
    scores = q.transpose(1, 2) @ q.permute(0, 2, 3, 1)
    weights = ts.softmax(scores, axis=-1)
    weights = ts.exp(weights)
    mixed = weights @ q.transpose(1, 2)
    out = helper(mixed.transpose(1, 2).reshape(B, S, D))
    return out


@ts.kernel
def scale(x: Tensor["M", "K", ts.f16], y: Tensor["M", "K", ts.f16]):
    ctx = ts.tile.context()
    rows = x[tile_m:tile_m + 16]
    k = ctx.K
    y[tile_m:tile_m + 16] = rows * 2.0
'''


async def test_inlay_hints(editor):
    doc = editor.open(MODEL)
    hints = await editor.hints(doc)
    assert hints['note = "𝒮é"; q'] == ": [B, S, 4, D//4] bf16 @accum(f32)"
    assert hints["scores"] == ": [B, 4, S, S] bf16 @accum(f32)"
    assert hints["weights"] == ": [B, 4, S, S] bf16 @accum(f32)"
    assert hints["rows"] == ": [16, K] f16"
    assert hints["k"] == ": K"
    # the second `weights` has the type of the first: said once
    types = [h for h in await editor.inlay_hints(doc) if h.kind is lsp.InlayHintKind.Type]
    places = [h.position.line for h in types]
    assert len(places) == len(set(places))


async def test_dims_of_a_hint_lead_to_where_they_were_bound(editor):
    doc = editor.open(MODEL)
    q = next(h for h in await editor.inlay_hints(doc) if "D//4" in "".join(p.value for p in h.label))
    assert q.position == editor.at(doc, "; q| = (x")
    parts = {p.value: p for p in q.label if p.location}
    assert list(parts) == ["B", "S", "D"]
    assert editor.covered(doc, parts["S"].location.range) == '"S"'
    assert parts["S"].location.range.start == editor.at(doc, 'x: Tensor["B", |"S", "D", bf16 @')
    assert parts["D"].tooltip == "D is axis 2 of x and axis 0 of w and axis 1 of w"


async def test_a_hint_says_what_a_function_does_with_state(editor):
    text = """import tessera as ts
from tessera import KVCache, Tensor

@ts.function
def f(cache: KVCache, k: Tensor["B", "H", "T", "D_h"]):
    cache.append(k, k)
    return cache.length
"""
    assert await editor.hints(editor.open(text)) == {"def f(cache: KVCache": "appends, reads"}


async def test_hints_of_parameters_whose_annotation_does_not_show_the_shape(editor):
    text = """import tessera as ts
Batch = ts.Tensor["B", "S", ts.f16]
@ts.function
def f(é: Batch, s: ts.f32, n=3, w: ts.Tensor["S"] = None):
    return é
"""
    doc = editor.open(text)
    assert await editor.hints(doc) == {"def f(é: Batch": "[B, S] f16"}


async def test_hover_over_an_operator(editor):
    doc = editor.open(MODEL)
    found = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "ts.soft|max")))
    assert editor.covered(doc, found.range) == "softmax"
    assert "softmax(x, axis=-1)" in found.contents.value
    assert "with the maximum subtracted first" in found.contents.value
    assert "[B, 4, S, S] bf16" in found.contents.value


async def test_hover_says_what_an_operator_does_not_share_a_kernel_with(editor):
    doc = editor.open(MODEL)

    async def hovered(place):
        params = lsp.HoverParams(doc, editor.at(doc, place))
        return (await editor.client.text_document_hover_async(params)).contents.value

    said = await hovered("ts.soft|max")
    line = editor.at(doc, "ts.soft|max").line + 1
    why = "are in two kernels: it needs whole rows, and a program of the product has only a block of its result"
    assert f"contract (line {line - 1}) and max (line {line}) {why}" in said
    assert "in two kernels" not in await hovered("softmax(sco|res")
    assert "in two kernels" not in await hovered("wei|ghts = ts.softmax")


async def test_hover_over_a_method_a_variable_and_a_policy(editor):
    doc = editor.open(MODEL)
    method = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "(x @ w).resh|ape")))
    assert editor.covered(doc, method.range) == "reshape"
    assert "[B, S, 4, D//4] bf16" in method.contents.value
    variable = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "; |q = (x")))
    assert variable.range == lsp.Range(editor.at(doc, "; |q = (x"), editor.at(doc, "; q| = (x"))
    assert "q: [B, S, 4, D//4] bf16" in variable.contents.value
    assert "Numerics: `@accum(f32)`" in variable.contents.value
    assert "- `S`: axis 1 of `x` (line 14)" in variable.contents.value


CALLED = """import tessera as ts
from tessera import Tensor

@ts.kernel
def scaled(x: Tensor["M", "N"], by: ts.f32 = 0.5) -> Tensor["M", "N"]:
    \"""Each row times a number.\"""
    return x * by

@ts.function
def twice(é: Tensor["R", "C"], *, k=1):
    y = scaled(é, 2.0)
    return (y, y)

def helper(a):
    return a

note = "𝒮"; out = twice(helper(1)); ts.exp(out)
"""


async def test_hover_over_a_constant_says_its_value(editor):
    text = MODEL.replace("HEADS = 4", "HEADS = 4\nFAR = 10 ** 90")
    doc = editor.open(text.replace('note = "', 'note = FAR; note = "'), "constants.py")
    for mark, shown in (("assert D % H|EADS", "HEADS = 4"), ("note = F|AR", None)):
        found = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, mark)))
        if shown is None:
            assert found is None
        else:
            assert shown in found.contents.value and editor.covered(doc, found.range) == "HEADS"


async def test_hover_over_functions_says_what_they_are_given_and_return(editor):
    doc = editor.open(CALLED)

    async def hover(mark):
        found = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, mark)))
        return (editor.covered(doc, found.range), found.contents.value) if found is not None else None

    kernel = 'scaled(x: Tensor["M", "N"], by: ts.f32 = 0.5) -> Tensor["M", "N"]\n'
    for mark in ("def sca|led", "y = sca|led(é"):
        name, text = await hover(mark)
        assert name == "scaled" and kernel in text and "Each row times a number." in text
    for mark in ("def |twice", "out = twi|ce("):
        name, text = await hover(mark)
        assert name == "twice" and 'twice(é: Tensor["R", "C"], *, k=1) -> ([R, C] f32, [R, C] f32)\n' in text
    name, text = await hover("ts.e|xp(out)")
    assert name == "exp" and "exp(x)" in text
    for mark in ("def hel|per", "twice(hel|per(1", "|note", "ret|urn a"):  # other servers speak of those
        assert await hover(mark) is None
    params = lsp.SignatureHelpParams(doc, editor.at(doc, "y = scaled(é, |2.0"))
    help_ = await editor.client.text_document_signature_help_async(params)
    assert help_.signatures[0].label == kernel.strip() and help_.active_parameter == 1
    start, end = help_.signatures[0].parameters[1].label
    assert kernel[start:end] == "by: ts.f32 = 0.5"


async def test_hover_over_a_dim_and_nothing(editor):
    doc = editor.open(MODEL)
    dim = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "reshape(B, |S, HEADS")))
    assert "dim S" in dim.contents.value and "axis 1 of `x`" in dim.contents.value
    assert await editor.client.text_document_hover_async(lsp.HoverParams(doc, lsp.Position(5, 0))) is None


async def test_hover_in_a_kernel(editor):
    doc = editor.open(MODEL)
    found = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "ts.tile.con|text")))
    assert "context()" in found.contents.value and "The bound dims" in found.contents.value
    tile = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "rows = x[tile|_m:")))
    assert "tile_m: the grid coordinate over M" in tile.contents.value
    rows = await editor.client.text_document_hover_async(lsp.HoverParams(doc, editor.at(doc, "= ro|ws * 2.0")))
    assert "rows: [16, K] f16" in rows.contents.value


WRONG = """import tessera as ts
from tessera import Tensor

@ts.function
def f(x: Tensor["B", "C"], w: Tensor["D", "E"]) -> Tensor["B", "E"]:
    s = "𝒮"; y = x @ w
    return ts.sofmax(y)
"""


async def test_pull_diagnostics(editor):
    doc = editor.open(WRONG)
    report = await editor.client.text_document_diagnostic_async(lsp.DocumentDiagnosticParams(doc))
    first = report.items[0]
    assert (first.code, first.severity, first.source) == ("TS203", lsp.DiagnosticSeverity.Error, "tessera")
    assert editor.covered(doc, first.range) == "x @ w"
    assert first.range.start == editor.at(doc, "y = |x @ w")
    assert first.code_description.href.endswith("/errors.html#ts203")
    related = [editor.covered(doc, r.location.range) for r in first.related_information]
    assert '"C"' in related and '"D"' in related
    again = lsp.DocumentDiagnosticParams(doc, previous_result_id=report.result_id)
    assert (await editor.client.text_document_diagnostic_async(again)).kind == "unchanged"
    editor.open(WRONG.replace("sofmax", "softmax"))
    assert len((await editor.client.text_document_diagnostic_async(again)).items) == 1, "opened anew, another text"


async def test_quick_fix(editor):
    doc = editor.open(WRONG)
    area = lsp.Range(editor.at(doc, "ts.|sofmax"), editor.at(doc, "ts.|sofmax"))
    params = lsp.CodeActionParams(doc, area, lsp.CodeActionContext([]))
    actions = await editor.client.text_document_code_action_async(params)
    action = next(a for a in actions if a.diagnostics[0].code == "TS104")
    assert action.kind == lsp.CodeActionKind.QuickFix
    (edit,) = action.edit.document_changes[0].edits
    assert editor.covered(doc, edit.range) == "sofmax" and edit.new_text == "softmax"
    only = lsp.CodeActionParams(doc, area, lsp.CodeActionContext([], only=[lsp.CodeActionKind.Refactor]))
    offered = await editor.client.text_document_code_action_async(only)
    assert all(a.kind.startswith("refactor") and a.disabled for a in offered), "while it has errors"
    assert action.edit.document_changes[0].text_document.version == 1


async def complete(editor, doc, mark):
    params = lsp.CompletionParams(doc, editor.at(doc, mark))
    return {i.label: i for i in (await editor.client.text_document_completion_async(params)).items}


async def test_completion_of_operators(editor):
    doc = editor.open(MODEL)
    await editor.hints(doc)
    editor.replace(doc, "weights = ts.exp(weights)", "weights = ts.")
    found = await complete(editor, doc, "weights = ts.|\n")
    assert found["softmax"].detail == "softmax(x, axis=-1)"
    assert found["softmax"].documentation.startswith("exp(x) / sum(exp(x)) along `axis`")
    assert found["f32"].kind == lsp.CompletionItemKind.EnumMember
    assert "sum" in found and "tile" in found and "function" in found


async def test_completion_of_tensor_methods(editor):
    doc = editor.open(MODEL)
    await editor.hints(doc)
    editor.replace(doc, "weights = ts.exp(weights)", "weights = scores.")
    found = await complete(editor, doc, "weights = scores.|\n")
    assert found["softmax"].detail == "softmax(axis=-1)"
    assert "shape" in found and "T" in found and "f32" not in found


async def test_completion_of_dims_variables_and_dtypes(editor):
    doc = editor.open(MODEL)
    found = await complete(editor, doc, "weights = ts.softmax(|scores")
    assert found["S"].detail == "dim: axis 1 of x"
    assert found["scores"].detail == "[B, 4, S, S] bf16 @accum(f32)"
    assert found["helper"].detail == "helper(a, eps=1e-05)"
    assert "mixed" not in found, "it is assigned further down"
    quoted = await complete(editor, doc, 'w: Tensor["|D", "D"')
    assert {"B", "S", "D"} == set(quoted)
    unquoted = await complete(editor, doc, 'w: Tensor["D", "D", |bf16]')
    assert "ts.f32" in unquoted and "bf16" in unquoted
    assert await complete(editor, doc, 'note = "𝒮|é') == {}


async def test_completions_begin_with_what_is_near(editor):
    """Variables and dims, then functions, those that the text uses most first; modules last."""
    doc = editor.open(MODEL.replace("HEADS = 4", "HEADS = 4  # tanh, tanh, tanh, exp"))
    at_names = await complete(editor, doc, "weights = ts.softmax(|scores")
    names = sorted(at_names, key=lambda n: at_names[n].sort_text)
    assert max(map(names.index, ("scores", "S"))) < names.index("helper") < names.index("ts")
    await editor.hints(doc)
    editor.replace(doc, "weights = ts.exp(weights)", "weights = ts.")
    of_module = await complete(editor, doc, "weights = ts.|\n")
    order = sorted(of_module, key=lambda n: of_module[n].sort_text)
    assert order.index("tanh") < order.index("abs") < order.index("Bool") < order.index("f32") < order.index("tile")
    assert of_module["Bool"].kind == lsp.CompletionItemKind.Class


async def test_completion_in_kernels(editor):
    doc = editor.open(MODEL)
    found = await complete(editor, doc, "rows = |x[")
    assert found["tile_m"].detail == "grid coordinate over M"
    tiles = await complete(editor, doc, "ctx = ts.tile.|context")
    assert tiles["mma"].detail == "mma(a, b, accumulator=None, a_scale=None, b_scale=None)" and "exp" in tiles
    dims = await complete(editor, doc, "k = ctx.|K")
    assert "M" in dims and "num_warps" in dims


async def test_completion_in_a_file_that_never_parsed(editor):
    doc = editor.open("import tessera as ts\n\n@ts.function\ndef f(x: ts.Tensor['N']):\n    return ts.\n")
    found = await complete(editor, doc, "return ts.|\n")
    assert "softmax" in found


async def test_signature_help(editor):
    doc = editor.open(MODEL)

    async def help_at(mark):
        params = lsp.SignatureHelpParams(doc, editor.at(doc, mark))
        return await editor.client.text_document_signature_help_async(params)

    found = await help_at("ts.softmax(scores, |axis")
    (signature,) = found.signatures
    assert signature.label == "softmax(x, axis=-1)" and found.active_parameter == 1
    start, end = signature.parameters[1].label
    assert signature.label[start:end] == "axis=-1"
    assert (await help_at("ts.softmax(|scores")).active_parameter == 0
    assert (await help_at("q.transpose(|1, 2) @ q.permute")).signatures[0].label.startswith("transpose(")
    assert (await help_at("helper(|mixed")).signatures[0].label == "helper(a, eps=1e-05)"
    assert await help_at("HEADS = |4") is None
    editor.replace(doc, "weights = ts.exp(weights)", "weights = ts.sum(scores, axis=")
    keyword = await help_at("ts.sum(scores, axis=|\n")
    assert keyword.signatures[0].parameters[keyword.active_parameter].label == (7, 16)
    assert keyword.signatures[0].label[7:16] == "axis=None"


async def test_definition(editor):
    doc = editor.open(MODEL)

    async def goes_to(mark):
        params = lsp.DefinitionParams(doc, editor.at(doc, mark))
        return (await editor.client.text_document_definition_async(params)).range.start

    assert await goes_to("weights = ts.softmax(sco|res") == editor.at(doc, "|scores = q")
    assert await goes_to("ts.exp(weig|hts)") == editor.at(doc, "|weights = ts.softmax")
    assert await goes_to("mixed = weig|hts @") == editor.at(doc, "|weights = ts.exp")
    assert await goes_to("scores = |q.transpose") == editor.at(doc, "; |q = (x")
    assert await goes_to("reshape(B, S, |HEADS, D //") == editor.at(doc, "|HEADS = 4")
    assert await goes_to("out = hel|per(") == editor.at(doc, "def |helper")
    assert await goes_to("(|x @ w)") == editor.at(doc, "def attend(|x: ")
    assert await goes_to("assert |D %") == editor.at(doc, 'x: Tensor["B", "S", "|D", bf16 @')


async def test_references_of_a_dim(editor):
    doc = editor.open(MODEL)
    at = editor.at(doc, "reshape(B, |S, HEADS")
    params = lsp.ReferenceParams(lsp.ReferenceContext(True), doc, at)
    found = await editor.client.text_document_references_async(params)
    assert [editor.covered(doc, r.range) for r in found] == ["S"] * 4
    assert at in [r.range.start for r in found]
    marks = await editor.client.text_document_document_highlight_async(lsp.DocumentHighlightParams(doc, at))
    assert [m.range for m in marks] == [r.range for r in found]
    params.position = editor.at(doc, "mixed = weig|hts @")
    assert len(await editor.client.text_document_references_async(params)) == 4


async def test_rename_of_a_dim(editor):
    doc = editor.open(MODEL)
    at = editor.at(doc, "reshape(B, |S, HEADS")
    offered = await editor.client.text_document_prepare_rename_async(lsp.PrepareRenameParams(doc, at))
    assert offered.placeholder == "S" and editor.covered(doc, offered.range) == "S"
    edit = await editor.client.text_document_rename_async(rename(doc, at, "T"))
    renamed = apply(editor, doc, edit)
    assert 'Tensor["B", "T", "D", bf16]:' in renamed
    assert "reshape(B, T, HEADS, D // HEADS)" in renamed and "reshape(B, T, D))" in renamed
    assert 'Tensor["B", "S"' not in renamed
    editor.type(doc, renamed)
    assert not await editor.diagnostics(doc)


async def test_rename_in_a_kernel_takes_the_coordinate_along(editor):
    doc = editor.open(MODEL)
    at = editor.at(doc, 'scale(x: Tensor["|M"')
    renamed = apply(editor, doc, await editor.client.text_document_rename_async(rename(doc, at, "R")))
    assert "rows = x[tile_r:tile_r + 16]" in renamed and 'y: Tensor["R", "K"' in renamed
    at = editor.at(doc, "ctx.|K")
    renamed = apply(editor, doc, await editor.client.text_document_rename_async(rename(doc, at, "C")))
    assert "k = ctx.C" in renamed and 'x: Tensor["M", "C"' in renamed


@pytest.mark.parametrize("name", ["D", "q", "x y", "class"])
async def test_a_rename_that_would_change_the_meaning_is_refused(editor, name):
    doc = editor.open(MODEL)
    at = editor.at(doc, "reshape(B, |S, HEADS")
    with pytest.raises(Exception, match=r"has a dim or variable|is not a name"):
        await editor.client.text_document_rename_async(rename(doc, at, name))


async def test_document_symbols(editor):
    doc = editor.open(MODEL)
    found = await editor.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(doc))
    assert [s.name for s in found] == ["HEADS", "helper", "attend", "scale"]
    attend = found[2]
    assert editor.covered(doc, attend.selection_range) == "attend"
    assert editor.covered(doc, attend.range).startswith("@ts.function") and attend.detail == "(x, w)"
    assert editor.covered(doc, attend.range).endswith("return out")


def rename(doc, at, name):
    return lsp.RenameParams(text_document=doc, position=at, new_name=name)


def apply(editor, doc, edit: lsp.WorkspaceEdit) -> str:
    text = editor.texts[doc.uri]
    for e in sorted(edit.document_changes[0].edits, key=lambda e: (e.range.start.line, e.range.start.character))[::-1]:
        start, end = editor.offset(text, e.range.start), editor.offset(text, e.range.end)
        text = text[:start] + e.new_text + text[end:]
    return text
