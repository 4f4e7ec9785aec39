"""A name in an annotation that Tessera does not have is an error, for editors and at the call. Where annotations are
text (`from __future__ import annotations`), Python would not say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import analyse_file

WRONG = {
    'ts.Tensro["n"]': ("tessera has no 'Tensro'. Did you mean ts.Tensor?", "ts.Tensor"),
    'ts.Tensor["n", ts.f23]': ("tessera has no 'f23'. Did you mean ts.f32?", "ts.f32"),
    "ts.nosuch": ("tessera has no 'nosuch'", None),
    "ts.Scalar[ts.f32]": ("tessera has no 'Scalar'; a parameter that is a number is annotated by its dtype", None),
}
RIGHT = (
    "ts.Function",
    "ts.Profiler",
    '"ts.Compiled"',
    "ts.nn.Linear",
    "np.ndarray",
    "later.Name",
    "ts.f32",
    "Unknown[int]",
)


def text_of(annotation: str) -> str:
    head = "from __future__ import annotations\nimport numpy as np\nimport tessera as ts\n\n\n"
    return f"{head}@ts.function\ndef f(a: {annotation}, x: ts.Tensor['n']):\n    return x * 2\n"


@pytest.mark.parametrize("annotation", WRONG)
def test_a_name_that_there_is_not(annotation: str, tmp_path: Path) -> None:
    message, change = WRONG[annotation]
    text = text_of(annotation)
    (found,) = (d for a in analyse_file("file.py", text) for d in a.diagnostics)
    assert found.code == "TS211" and message in found.message
    assert [edit.text for fix in found.fixes for edit in fix.edits] == ([change] if change else [])
    file = tmp_path / "file.py"
    file.write_text(text)
    scope: dict[str, object] = {"__name__": "file", "__file__": str(file)}
    exec(compile(text, file, "exec"), scope)
    with pytest.raises(ts.CompileError) as at_call:
        scope["f"](np.ones(2, np.float32), np.ones(2, np.float32))  # type: ignore[operator]
    assert [d.message for d in at_call.value.diagnostics] == [found.message]


@pytest.mark.parametrize("annotation", RIGHT)
def test_names_that_there_are_or_may_be(annotation: str) -> None:
    assert [d.message for a in analyse_file("file.py", text_of(annotation)) for d in a.diagnostics] == []
