"""One mistake is one finding, and what depends on it goes on with what is annotated."""

from __future__ import annotations

import pytest

from tessera.compiler.frontend.incremental import FileAnalysis

HEAD = "import tessera as ts\nfrom tessera import Tensor, f32\n\n\n"


def analysed(text: str) -> FileAnalysis:
    file = FileAnalysis("model.py")
    file.update(HEAD + text)
    return file


def types(file: FileAnalysis, function: str) -> dict[str, str]:
    found = next(a for a in file.analyses if a.definition.name == function)
    return {e.name: e.text for e in found.expressions if e.kind == "assign"}


CALLEES = {
    "unknown name": """
@ts.function
def callee(q: Tensor["B", "S", f32], w: Tensor["S", "D", f32]) -> Tensor["B", "D", f32]:
    x = ts.sofmax(q)
    return x @ w
""",
    "another shape": """
@ts.function
def callee(q: Tensor["B", "S", f32], w: Tensor["S", "D", f32]) -> Tensor["B", "D", f32]:
    return (q @ w).T
""",
    "a plain function": """
def callee(q: Tensor["B", "S", f32], w: Tensor["S", "D", f32]) -> Tensor["B", "D", f32]:
    return q.matmull(w)
""",
}
CALLER = """

@ts.function
def caller(q: Tensor[8, "S", f32], w: Tensor["S", "D", f32]):
    x = callee(q, w)
    y = callee(q * 2, w).sum(axis=0)
    return x + y
"""


@pytest.mark.parametrize("first", [True, False], ids=["callee first", "caller first"])
@pytest.mark.parametrize("callee", CALLEES.values(), ids=CALLEES.keys())
def test_a_caller_goes_on_with_the_annotated_result(callee: str, first: bool) -> None:
    file = analysed(callee + CALLER if first else CALLER + callee)
    assert [d.function for d in file.diagnostics] == ["callee"]
    assert types(file, "caller") == {"x": "[8, D] f32", "y": "[D] f32"}


def test_parts_of_a_result_that_are_known_stay() -> None:
    file = analysed("""
@ts.function
def two(q: Tensor["B", "S", f32]) -> tuple[Tensor["B", f32], Tensor["S", f32]]:
    return q.sum(axis=1), q.sumo(axis=0)


@ts.function
def caller(q: Tensor[8, "S", f32]):
    a, b = two(q)
    c = b * 2
    return a, c
""")
    assert [d.function for d in file.diagnostics] == ["two"]
    assert types(file, "caller") == {"a": "[8] f32", "b": "[S] f32", "c": "[S] f32"}


def test_sizes_that_the_arguments_do_not_tell_stay_open() -> None:
    file = analysed("""
@ts.function
def callee(q: Tensor["B", "S", f32]) -> Tensor["B", "K", f32]:
    return q.sumo()


@ts.function
def caller(q: Tensor[8, "S", f32]):
    x = callee(q)
    return x.T
""")
    assert [d.function for d in file.diagnostics] == ["callee"]
    assert "x" not in types(file, "caller"), "K is no size of the caller's"


def test_a_result_that_is_not_what_is_annotated_is_refused_where_it_is_used() -> None:
    """The caller alone is compiled when it is called."""
    file = analysed(CALLEES["another shape"] + CALLER)
    caller = next(a for a in file.analyses if a.definition.name == "caller")
    assert {d.code for d in caller.diagnostics} == {"TS201"} and caller.op is None


def test_mistakes_of_one_place_that_differ_are_all_said() -> None:
    file = analysed("""
@ts.function
def f(q: Tensor["B", "S", f32]) -> tuple[Tensor["B", f32], Tensor["S", f32]]:
    both = q.sum(axis=0), q.sum(axis=1)
    return both
""")
    assert len(file.diagnostics) == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    import math as m\n    from os import path\n    return x * m.pi + path.sep\n", "import"),
        ("    def parts():\n        yield x\n\n    return sum(parts())\n", "yield"),
    ],
)
def test_what_a_refused_construct_gives_is_not_said_too(body: str, said: str) -> None:
    file = analysed(f"@ts.function\ndef f(x: Tensor['S', f32]):\n{body}")
    assert {d.message for d in file.diagnostics} == {f"{said} is not supported in a function"}
