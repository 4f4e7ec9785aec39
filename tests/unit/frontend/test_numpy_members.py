"""NumPy's functions do not take a program's tensors: an editor, which has no NumPy, says so as the compiler does."""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import analyse_file

HEAD = "import numpy as np\nimport tessera as ts\n\n\n@ts.function\ndef f(x: ts.Tensor[2, 3]):\n"
CALLS = {
    "np.cumsum(x)": "ts.cumsum",
    "np.mean(x, axis=0)": "ts.mean",
    "np.exp(x)": "ts.exp",
    "np.linalg.norm(x)": "ts.norm",
    "np.convolve(x, x)": None,
    "np.add(2, x)": "ts.add",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_tensor_is_refused_in_the_same_words(call: str) -> None:
    text = f"{HEAD}    return {call}\n"
    file = f"<numpy: {call}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    (found,) = (d for a in analyse_file(file, text) for d in a.diagnostics)
    assert [edit.text for fix in found.fixes for edit in fix.edits] == ([CALLS[call]] if CALLS[call] else [])
    scope: dict[str, object] = {}
    exec(compile(text, file, "exec"), scope)
    with pytest.raises(ts.CompileError) as at_call:
        scope["f"](np.ones((2, 3), np.float32))  # type: ignore[operator]
    assert [(d.code, d.message) for d in at_call.value.diagnostics] == [("TS105", found.message)]


def test_what_takes_no_tensor_stays_unknown() -> None:
    lines = ("a = np.arange(3.0)", "b = np.random.rand(3)", "return x + a + np.sum(a) + b + np.linalg.det(np.eye(3))")
    body = "".join(f"    {line}\n" for line in lines)
    assert [d.message for a in analyse_file("file.py", HEAD + body) for d in a.diagnostics] == []


def test_tensors_given_one_by_one() -> None:
    text = f"{HEAD}    return ts.concat(x, x)\n"
    (found,) = (d for a in analyse_file("file.py", text) for d in a.diagnostics)
    assert found.code == "TS105" and found.message.endswith("takes a list or tuple of tensors: concat([x, y])")


def test_names_of_kernels_without_tile() -> None:
    head = "import tessera as tt\n\n\n@tt.kernel\ndef k(x: tt.Tensor['M']) -> tt.Tensor['M']:\n"
    text = f"{head}    i = tt.program_id(0)\n    return x[i]\n"
    found = next(d for a in analyse_file("file.py", text) for d in a.diagnostics)
    assert found.message == "tessera has no 'program_id'; use tt.tile.program_id here"
    (edit,) = found.fixes[0].edits
    assert (
        edit.text == "tile.program_id"
        and text.splitlines()[5][edit.span.col - 1 : edit.span.end_col - 1] == "program_id"
    )
