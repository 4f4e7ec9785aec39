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
    "lanes that leave a loop over what is not known": (
        "@ts.kernel\ndef f(x: Tensor['N', ts.f32], y: Tensor['N', ts.f32]):\n    i = ts.tile.linear_id()\n"
        "    for _ in ts.tile.floor(0, 50):\n        if x[i] > 0:\n            break\n    y[i] = x[i]\n"
    ),
    "lanes that go on in a loop over what is not known": (
        "@ts.kernel\ndef f(x: Tensor['N', ts.f32], y: Tensor['N', ts.f32]):\n    i = ts.tile.linear_id()\n"
        "    for _ in ts.tile.floor(0, 50):\n        if x[i] > 0:\n            continue\n        y[i] = x[i]\n"
    ),
    "a message of an assertion that is a size": (
        "@ts.kernel\ndef f(x: Tensor['N', ts.f32]):\n    ts.tile.static_assert(0, N)\n    x[0:4] = x[0:4]\n"
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
