"""Whatever is offered on realistic programs leaves no error behind, in the whole file."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types as lsp
from tessera_lsp.document import Document
from tessera_lsp.settings import Settings

from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.editor.refactor import (
    Selection,
    annotate,
    assert_sizes,
    distribute,
    extract,
    extract_kernel,
    fuse,
    precision,
)
from tessera.errors import Fix

MARKERS = Path(__file__).parent / "markers"


def selections(known):
    """The name of the function, and its statements two by two."""
    yield Selection((known.tree.lineno, 5), (known.tree.lineno, 5))
    places = [s for statement in known.tree.body if (s := known.span(statement)) is not None]
    for first, last in zip(places[::2], places[1::2], strict=False):
        yield Selection((first.line, first.col), (last.end_line, last.end_col))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["gpt.py", "pde.py"])
async def test_offers_stand_the_whole_file(name):
    text = (MARKERS / name).read_text(encoding="utf-8")
    document = Document(lsp.TextDocumentItem((MARKERS / name).as_uri(), "python", 1, text))
    await document.analyse(document.text)
    before = {(d.code, d.message) for d in document.diagnostics if d.severity == "error"}
    kinds: dict[str, int] = {}
    changed = FileAnalysis(document.file)  # one for all: what an offer leaves as it was is not read again
    for known in document.known:
        settings = Settings(dims=dict.fromkeys(known.analysis.dims, 64))
        for selection in selections(known):
            offers = [o for make in (annotate.offers, precision.offers, extract.offers, extract_kernel.offers)
                      for o in make(document, known, selection)]  # fmt: skip
            for make in (distribute.offers, assert_sizes.offers, fuse.explained):
                offers += make(document, known, selection, settings)
            for offer in offers:
                assert bool(offer.disabled) != bool(offer.edits)
                kinds[offer.kind] = kinds.get(offer.kind, 0) + 1
                changed.update(apply(text, Fix("", offer.edits)))
                errors = [d for d in changed.diagnostics if d.severity == "error"]
                assert not [d.message for d in errors if (d.code, d.message) not in before], offer.title
    made = {m.KIND for m in (annotate, precision, extract, extract_kernel, distribute, fuse)}
    assert set(kinds) == (made | {assert_sizes.KIND} if name == "gpt.py" else made)  # stencils read between vectors
