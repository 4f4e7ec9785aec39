"""A bounded slice of the front end's fuzzer, and programs that it has found."""

from __future__ import annotations

import pytest

from tessera.compiler.frontend.incremental import FileAnalysis
from tests.fuzz.frontend import Writer, failure

HEAD = "import tessera as ts\nfrom tessera import Tensor\n\n"
FOUND = {
    "a permutation of a text and a size": (
        "@ts.kernel\ndef f(x: Tensor['M', 'N']):\n    i = ts.tile.program_id(0)\n    return x.transpose('a', i)\n"
    ),
    "a dtype of a coordinate": (
        "@ts.kernel\ndef f(x: Tensor['M', 'N']):\n    i = ts.tile.program_id(0)\n    return i.shape\n"
    ),
}


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_random_programs(start):
    assert [found for seed in range(start, start + 50) if (found := failure(seed)) is not None] == []


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_were_found(name):
    file = FileAnalysis("found.py")
    file.update(HEAD + FOUND[name])
    assert file.diagnostics and not [d for d in file.diagnostics if d.code == "TS900"]


def test_a_seed_is_a_program():
    assert Writer(7).program() == Writer(7).program() != Writer(8).program()
    assert {Writer(s).kernel for s in range(20)} == {True, False}
