"""Trying an edit on a long file: the edited statements alone, read anew, give the tree that the whole text gives."""

from __future__ import annotations

import ast
import random

import pytest

from benchmarks.frontend import program
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.syntax.parse import parse_module
from tessera.compiler.frontend.syntax.reparse import reread
from tessera.errors import CompileError

TEXT = program(120)


def test_one_statement_read_anew_gives_the_tree_of_the_whole() -> None:
    tree, _ = parse_module(TEXT, "a.py")
    lines, chance, told = TEXT.split("\n"), random.Random(0), 0
    for _ in range(150):
        rows = sorted(chance.sample(range(len(lines)), chance.choice((1, 1, 2))))
        edited = list(lines)
        for row in rows:
            edited[row] = edited[row].replace("x", "é + x", 1) + chance.choice(("", "  # 𝒮", ")"))
        text = "\n".join(edited)
        try:
            expected = ast.dump(parse_module(text, "a.py")[0], include_attributes=True)
        except CompileError:
            with pytest.raises(CompileError):
                found = reread(tree, TEXT, text, "a.py")
                assert found is None
                parse_module(text, "a.py")
            continue
        found = reread(tree, TEXT, text, "a.py")
        told += found is not None
        assert found is None or ast.dump(found[0], include_attributes=True) == expected
    assert told > 30
    assert ast.dump(tree) == ast.dump(parse_module(TEXT, "a.py")[0]), "the old tree is as it was"


def test_what_it_cannot_tell_is_left_to_the_parser() -> None:
    tree, _ = parse_module(TEXT, "a.py")
    assert reread(tree, TEXT, TEXT, "a.py") is None
    assert reread(tree, TEXT, TEXT + "\n", "a.py") is None
    assert reread(tree, TEXT, TEXT.replace("\n\n", "\nx = 1\n", 1), "a.py") is None


@pytest.mark.timeout(60)
def test_trees_of_other_libraries():
    """`executing`, of IPython's tracebacks, hangs a parent on each node, and so on those that all trees share."""
    other = ast.parse("x + y").body[0].value
    shared = {other.left.ctx: other.left, other.op: other}
    text = 'import tessera as ts\n@ts.function\ndef f(x: ts.Tensor["N"]):\n    y = x + x\n    return y\n'
    kept = FileAnalysis("m.py")
    kept.update(text)
    try:
        other.left.parent = other
        for node, parent in shared.items():
            node.parent = parent
        for changed in (f"\n{text}", f"\n\n(\n{text}", text.replace("x + x", "x * x")):
            kept.update(changed)
    finally:
        for node in shared:
            del node.parent
    assert [a.name for a in kept.analyses] == ["f"] and not kept.diagnostics
