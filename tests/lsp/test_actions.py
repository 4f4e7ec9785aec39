"""Changes that people ask for: each is tried before it is offered, and applied here to see what it gives."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified
from tessera_lsp.document import Document
from tessera_lsp.features import code_actions

from tessera.compiler import tried_edits
from tessera.editor.refactor import Offer
from tests.lsp.test_features import apply
from tests.lsp.test_notebooks import IMPORTS, Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = '''"""𝒮"""
import tessera as ts
from tessera import Tensor, bf16


@ts.function
def attend(x: Tensor["B", "S", "D"], w: Tensor["D", "D"]):
    """Attends."""
    note = "𝒮é"; q = (x @ w).reshape(B, S, 4, D // 4)
    k = q.transpose(1, 2)
    scores = ts.softmax(k @ k.permute(0, 1, 3, 2))
    total = scores.sum(-1) * S
    total = total + 1.0
    return total, q


def plain(x: Tensor["N"]):
    y = ts.exp(x)
    return ts.sqrt(y) + 1
'''


async def actions(editor, doc, start, end=None, kind="", trigger=lsp.CodeActionTriggerKind.Invoked):
    """Title -> action, for what is selected between two marks."""
    area = lsp.Range(editor.at(doc, start), editor.at(doc, end or start))
    context = lsp.CodeActionContext([], only=[kind] if kind else None, trigger_kind=trigger)
    found = await editor.client.text_document_code_action_async(lsp.CodeActionParams(doc, area, context))
    return {a.title: a for a in found}


async def applied(editor, doc, action):
    """The text after an action, of which nothing is wrong; notes say what could be faster."""
    text = apply(editor, doc, action.edit)
    editor.type(doc, text)
    assert not [d.message for d in await editor.diagnostics(doc) if d.severity <= lsp.DiagnosticSeverity.Warning]
    return text


async def test_annotating(editor):
    doc = editor.open(MODEL)
    found = await actions(editor, doc, "; q = |(x @ w)")
    text = await applied(editor, doc, found["Annotate q with its shape"])
    assert 'note = "𝒮é"; q: Tensor["B", "S", 4, "D//4"] = (x @ w)' in text
    assert "Annotate note with its shape" not in found
    found = await actions(editor, doc, "def att|end")
    text = await applied(editor, doc, found["Annotate what attend returns"])
    assert '-> tuple[Tensor["B", 4, "S"], Tensor["B", "S", 4, "D//4"]]:\n    """Attends' in text


async def test_all_that_is_selected_is_annotated_at_once(editor):
    doc = editor.open(MANY)
    found = await actions(editor, doc, "|a = ts.exp", "c = a * b|\n")
    assert not any(t.startswith("Annotate") for t in found.keys() - {"Annotate a, b and c with their shapes"})
    text = await applied(editor, doc, found["Annotate a, b and c with their shapes"])
    assert 'é = 1; a: Tensor["N"] = ts.exp(x); b: Tensor["N", 1] = a[:, None]\n    c: Tensor["N", "N"] = a * b' in text
    doc = editor.open(MANY, "more.py")
    assert "Annotate 4 variables with their shapes" in await actions(editor, doc, "|a = ts.exp", "d = c + 1|")


MANY = """import tessera as ts
from tessera import Tensor


@ts.function
def many(x: Tensor["N"]):
    é = 1; a = ts.exp(x); b = a[:, None]
    c = a * b
    d = c + 1
    return d
"""


async def test_a_fault_costs_one_entry_and_typing_ends_the_search(caplog):
    """The menu is what the other offers are; an answer for a text that is gone is none."""
    document = Document(lsp.TextDocumentItem("file:///model.py", "python", 1, MODEL))
    await document.analyse(document.text)

    def faulty():
        yield Offer("A", "refactor")
        raise ValueError("max() arg is an empty sequence")

    assert [a.title for a in await code_actions._tried(document, faulty())] == ["A"]
    assert "empty sequence" in caplog.text

    def slow():
        yield Offer("A", "refactor")
        document.edit(2, [])
        yield Offer("B", "refactor")

    with pytest.raises(JsonRpcContentModified):
        await code_actions._tried(document, slow())
    document.close()


async def test_a_hint_is_inserted_as_annotation(editor):
    doc = editor.open(MODEL)
    hints = {editor.label(h): h for h in await editor.inlay_hints(doc)}
    resolved = await editor.client.inlay_hint_resolve_async(hints[": [B, S, 4, D//4] f32"])
    (edit,) = resolved.text_edits
    assert edit.range == lsp.Range(editor.at(doc, "; q| = (x"), editor.at(doc, "; q| = (x"))
    assert edit.new_text == ': Tensor["B", "S", 4, "D//4"]'


async def test_changing_the_precision(editor):
    doc = editor.open(MODEL)
    found = await actions(editor, doc, "def att|end", kind="refactor")
    (title,) = [t for t in found if t.startswith("Change the precision of attend: f32 to bf16")]
    text = await applied(editor, doc, found[title])
    assert 'def attend(x: Tensor["B", "S", "D", bf16], w: Tensor["D", "D", bf16]):' in text
    found = await actions(editor, doc, "def att|end", kind="refactor.rewrite.precision")
    (title,) = [t for t in found if t.startswith("Change the precision of attend: bf16 to f32")]
    assert 'x: Tensor["B", "S", "D", ts.f32]' in apply(editor, doc, found[title].edit)


async def test_a_precision_that_does_not_fit_says_why(editor):
    text = MODEL.replace("    total = total + 1.0\n", "    assert x.dtype == ts.f32\n")
    doc = editor.open(text)
    found = await actions(editor, doc, "def att|end", kind="refactor.rewrite.precision")
    assert found and all(a.disabled and a.edit is None for a in found.values())


async def test_a_precision_that_callers_do_not_give_says_so(editor):
    doc = editor.open(
        MODEL + "\n\n@ts.function\ndef caller(x: Tensor['B', 'S', 8], w: Tensor[8, 8]):\n    return attend(x, w)\n"
    )
    found = await actions(editor, doc, "def att|end", kind="refactor.rewrite.precision")
    assert [a.disabled.reason.partition(":")[0] for a in found.values()] == ["in caller"] * 2


async def test_a_precision_that_callers_of_an_object_do_not_give_says_so(editor):
    text = """import tessera as ts
from tessera import Tensor, nn


class Twice(nn.Module):
    weight: Tensor["N"]

    def __call__(self, x: Tensor["N"]) -> Tensor["N"]:
        return x * 2


@ts.function
def step(model: Twice, x: Tensor["N"]):
    return model(x)
"""
    doc = editor.open(text, "object.py")
    found = await actions(editor, doc, "def __ca|ll__", kind="refactor.rewrite.precision")
    assert found and all(a.disabled and "in step: " in a.disabled.reason for a in found.values()), found


async def test_a_precision_changes_casts_with_the_annotations(editor):
    kernel = """@ts.kernel
def mix(p: Tensor["M", "K"], v: Tensor["K", "N", "bf16"], out: Tensor["M", "N", bf16]):
    acc = ts.tile.zeros((32, 32), ts.f32)
    note = "𝒮é"; acc += ts.tile.mma(ts.tile.cast(p[tile_m : tile_m + 32, :], bf16), v[:, tile_n : tile_n + 32])
    out[tile_m : tile_m + 32, tile_n : tile_n + 32] = acc
"""
    doc = editor.open(MODEL + "\n\n" + kernel)
    found = await actions(editor, doc, "def mi|x", kind="refactor.rewrite.precision")
    text = await applied(editor, doc, found["Change the precision of mix: bf16 to f16"])
    assert text == MODEL + "\n\n" + kernel.replace('"bf16"', '"f16"').replace("bf16]", "ts.f16]").replace(
        ", bf16)", ", ts.f16)"
    )
    doc = editor.open(MODEL + "\n\n" + kernel)
    found = await actions(editor, doc, "def mi|x", kind="refactor.rewrite.precision")
    text = await applied(editor, doc, found["Change the precision of mix: f32 to bf16"])
    assert 'p: Tensor["M", "K", bf16]' in text and "zeros((32, 32), ts.f32)" in text


async def test_a_precision_in_the_dialect(editor):
    head = "import tessera as ts\nfrom tessera import Tensor, accum, bf16, f32\n\n\n@ts.function\n"
    line = (
        'def f[N](x: Tensor["N", dtype=bf16], y: Tensor["N", bf16, @accum(f32)], z: Tensor["N", "bf16 @accum(f32)"]):\n'
    )
    doc = editor.open(f"{head}{line}    return x + y + z\n", "model.tess")
    found = await actions(editor, doc, "def |f", kind="refactor.rewrite.precision")
    (title,) = [t for t in found if t.startswith("Change the precision of f: bf16 to f32")]
    changed = line.replace("dtype=bf16", "dtype=f32").replace(", bf16,", ", f32,").replace('"bf16 @', '"f32 @')
    assert apply(editor, doc, found[title].edit) == f"{head}{changed}    return x + y + z\n"


async def test_what_gives_no_value_is_not_extracted(editor):
    doc = editor.open(MODEL)
    assert not await actions(editor, doc, '    |"""Attends', 'Attends."""|', kind="refactor.extract")


async def test_extracting(editor):
    doc = editor.open(MODEL)
    before = {k: v for k, v in (await editor.hints(doc)).items() if k.startswith(("total", "scores"))}
    found = await actions(editor, doc, "    |k = q.tr", "permute(0, 1, 3, 2))|", kind="refactor.extract")
    text = await applied(editor, doc, found["Extract function"])
    assert "    scores = extracted(q)\n    total = scores" in text
    assert (
        '@ts.function\ndef extracted(q: Tensor["B", "S", 4, "D//4"]):\n    k = q.transpose(1, 2)\n'
        "    scores = ts.softmax(k @ k.permute(0, 1, 3, 2))\n    return scores\n"
    ) in text, text
    after = await editor.hints(doc)
    assert {k: after[k] for k in before if k in after and k != "scores"} == {
        k: v for k, v in before.items() if k != "scores"
    }


async def test_extracting_what_names_dims_and_returns(editor):
    doc = editor.open(MODEL)
    found = await actions(editor, doc, "    |total = scores.sum", "return total, q|", kind="refactor.extract")
    text = await applied(editor, doc, found["Extract function"])
    assert (
        "permute(0, 1, 3, 2))\n    return extracted(" in text and "total = total + 1.0\n    return total, q\n" in text
    )


async def test_what_cannot_be_extracted_says_why(editor):
    text = MODEL.replace(
        "    total = total + 1.0\n", "    for i in range(3):\n        total = total + i\n        break\n"
    )
    doc = editor.open(text)
    found = await actions(editor, doc, "        |total = total + i", "        break|", kind="refactor.extract")
    assert "left" in found["Extract function"].disabled.reason


async def test_operators_that_are_one_kernel_already(start):
    editor = await start(options={"target": "sm_90a", "dims": {"N": 1 << 20}})
    doc = editor.open(MODEL.replace("def plain", "@ts.function\ndef plain"))
    found = await actions(editor, doc, "    |y = ts.exp", "sqrt(y) + 1|", kind="refactor.rewrite.fuse")
    reason = found["Fuse these operators"].disabled.reason
    kept = 2 * 2 * 4 * (1 << 20)  # what exp and sqrt give is written and read once each
    assert reason.startswith(
        f"they are one kernel already (ts.exp, ts.sqrt, +), which keeps {kept:,} bytes out of memory"
    )
    assert reason.endswith("µs at most (modelled)")


async def test_operators_that_cannot_be_one_kernel_say_why(editor):
    doc = editor.open(MODEL)
    found = await actions(editor, doc, "scores = |ts.softmax", "3, 2))|", kind="refactor.rewrite.fuse")
    reason = found["Fuse these operators"].disabled.reason
    assert (
        reason
        == "the kernel of ts.softmax, scores.sum, *, + needs whole rows of the product @, which its blocks do not hold"
    )
    found = await actions(editor, doc, "    |k = q.tr", "3, 2))|", kind="refactor.rewrite.fuse")
    assert "Fuse these operators" in found


async def test_operators_of_a_plain_function_are_fused_by_the_decorator(editor):
    doc = editor.open(MODEL)
    found = await actions(editor, doc, "    y = |ts.exp")
    text = await applied(editor, doc, found["Fuse the 2 operators of plain: @ts.function"])
    assert '\n\n@ts.function\ndef plain(x: Tensor["N"]):\n' in text
    assert (await editor.hints(doc))["y"] == ": [N] f32"


async def test_moving_the_cursor_asks_for_fixes_only(editor):
    doc = editor.open(MODEL.replace("softmax", "sofmax"))
    automatic = lsp.CodeActionTriggerKind.Automatic
    found = await actions(editor, doc, "ts.|sofmax", trigger=automatic)
    assert found and all(a.kind == lsp.CodeActionKind.QuickFix for a in found.values())


CANCELS = """import tessera as ts
from tessera import Tensor


@ts.function
def shrink(x: Tensor["N"]):
    note = "𝒮é"; y = ts.exp(x) - 1
    return y
"""


async def test_ignoring_a_warning(editor):
    doc = editor.open(CANCELS)
    automatic = lsp.CodeActionTriggerKind.Automatic
    found = await actions(editor, doc, "y = ts.|exp", trigger=automatic)
    *fixes, last = found.values()
    assert last.title == "Ignore TS314 on this line" and not last.is_preferred
    assert fixes and all(a.kind == lsp.CodeActionKind.QuickFix for a in fixes)
    assert list(await actions(editor, doc, "y = ts.|exp", kind="quickfix.ignore")) == [last.title]
    assert [d.code for d in await editor.diagnostics(doc)] == ["TS314"]
    text = apply(editor, doc, last.edit)
    assert '    note = "𝒮é"; y = ts.exp(x) - 1  # tessera: ignore[TS314]\n' in text
    editor.type(doc, text)
    assert not await editor.diagnostics(doc)


@pytest.mark.parametrize(
    "line, after",
    [
        ("y = ts.exp(x) - 1  # small", "y = ts.exp(x) - 1  # small  # tessera: ignore[TS314]"),
        ("y = ts.exp(x) - 1  # tessera: ignore[TS301]", "y = ts.exp(x) - 1  # tessera: ignore[TS301, TS314]"),
        ("y = (ts.exp(x)\n        - 1)", "y = (ts.exp(x)  # tessera: ignore[TS314]\n        - 1)"),
        ("y = ts.exp(x) \\\n        - 1", "y = ts.exp(x) \\\n        - 1  # tessera: ignore[TS314]"),
    ],
)
async def test_where_the_comment_stands(editor, line, after):
    doc = editor.open(CANCELS.replace("y = ts.exp(x) - 1", line))
    found = await actions(editor, doc, "y |= ", "return| y", kind="quickfix.ignore")
    text = apply(editor, doc, found["Ignore TS314 on this line"].edit)
    assert text == CANCELS.replace("y = ts.exp(x) - 1", after)
    editor.type(doc, text)
    assert not await editor.diagnostics(doc)


async def test_entries_of_one_title_say_where_they_are(editor):
    """Two of one line by their columns; of fixes that do the same one is left."""
    doc = editor.open(CANCELS.replace("    return y", "    z = ts.exp(y) - 1\n    return z"))
    first, second = '"𝒮é"; y = ts.exp(x) - 1', "z = ts.exp(y) - 1"
    found = await actions(editor, doc, f"{first[:6]}|{first[6:]}", f"{second}|")
    assert [t for t in found if t.startswith(("Use", "Ignore"))] == [
        "Use expm1 (line 7)", "Use expm1 (line 8)", "Ignore TS314 on this line (line 7)",
        "Ignore TS314 on this line (line 8)",
    ]  # fmt: skip
    text = apply(editor, doc, found["Use expm1 (line 8)"].edit)
    assert text.count("ts.exp(") == 1 and "z = ts.expm1(y)" in text
    doc = editor.open(CANCELS.replace("ts.exp(x) - 1", "(ts.exp(x) - 1) * (ts.exp(2 * x) - 1)"))
    found = await actions(editor, doc, "y = (|ts", kind="quickfix")
    assert [t for t in found if t.startswith("Use")] == ["Use expm1"]
    found = await actions(editor, doc, "y = (|ts", "2 * x) - 1|", kind="quickfix")
    assert [t for t in found if t.startswith("Use")] == [
        "Use expm1 (line 7, column 24)",
        "Use expm1 (line 7, column 42)",
    ]
    assert [t for t in found if t.startswith("Ignore")] == ["Ignore TS314 on this line"]


async def test_errors_cannot_be_ignored(editor):
    doc = editor.open(MODEL.replace("softmax", "sofmax"))
    assert await editor.diagnostics(doc)
    assert not await actions(editor, doc, "ts.|sofmax", kind="quickfix.ignore")


async def test_in_a_cell(editor):
    cell = "%%tessera\n@ts.function\ndef f(é: Tensor['B', 'D']):\n    n = '𝒮'; y = é.sum(-1)\n    return y\n"
    book = Notebook(editor, IMPORTS, cell)
    found = await actions(editor, book[1], "; |y = é")
    (change,) = found["Annotate y with its shape"].edit.document_changes
    assert change.text_document.uri == book[1].uri
    (edit,) = change.edits
    assert (edit.range.start, edit.new_text) == (editor.at(book[1], "; y| = é"), ': Tensor["B"]')


KERNELS = """import tessera as ts
from tessera import Tensor


@ts.kernel(BM=4)
def small(x: Tensor["N"]) -> Tensor["N"]:
    c = ts.tile.context()
    return x[tile_n : tile_n + c.BM] * 2


@ts.function
def other(x: Tensor["N"]):
    return x + 1
"""


async def test_an_edit_that_was_tried_is_offered_for_the_text_it_was_tried_on(start, monkeypatch, tmp_path):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "tried.py"
    file.write_text(KERNELS)
    tried_edits.record(str(file), KERNELS, KERNELS.replace("BM=4", "BM=64"), "Use BM=64 in small (tried)")
    editor = await start()
    doc = lsp.TextDocumentIdentifier(file.as_uri())
    editor.texts[doc.uri], editor.versions[doc.uri] = KERNELS, 1
    editor.client.text_document_did_open(
        lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(doc.uri, "python", 1, KERNELS))
    )
    kind = "refactor.rewrite.tried"
    for mark in ("|@ts.kernel", "def |small", "|c = ts"):
        action = (await actions(editor, doc, mark, kind=kind))["Use BM=64 in small (tried)"]
        assert apply(editor, doc, action.edit) == KERNELS.replace("BM=4", "BM=64")
    assert not await actions(editor, doc, "def |other", kind=kind)
    assert not await actions(editor, doc, "def |small", trigger=lsp.CodeActionTriggerKind.Automatic)
    editor.replace(doc, "* 2", "* 3")
    assert not await actions(editor, doc, "def |small", kind=kind)
