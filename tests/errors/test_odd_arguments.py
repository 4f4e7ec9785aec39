"""Functions given arguments of every odd kind: the messages name what a person wrote, never what the compiler holds."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.kernel.builtins import public
from tessera.errors import Diagnostic

HEAD = "import numpy as np\nimport tessera as ts\nfrom tessera import Tensor, nn\n\n\n"
COMMON = [
    "'text'", "None", "[1]", "1.5", "(lambda a: a)", "ts", "ts.f32", "{'a': 1}", "b'x'", "-99", "10**30", "1j",
    "range(3)", "slice(0, 4)", "np.sin", "{1}", "nn.Linear", "...", "ts.sin",
]  # fmt: skip
IN_KERNELS = [
    "ts.tile.linear_id()", "{first}", "({first}, 2)", "ts.tile.each()", "ts.tile.zeros((4,))", "ts.tile.context()",
    "ts.tile.alloc_shared((4, 4), ts.f32)", "ts.tile.program_id(0)", "ts.tile.linear_id()[:, None]",
    "ts.tile.alloc_shared((4, 4), ts.f32).T", "ts.tile.linear_id() + 1",
]  # fmt: skip
IN_FUNCTIONS = ["x", "(x, 2)", "x.sum", "N", "x > 0", "x.shape[0] * 2", "x[0]", "f", "ts.range(3)", "float('nan')"]
INTERNAL = re.compile(
    r"object at 0x|tessera\.compiler|%[\w?]+(#\d|: )|\b[A-Z]\w+\(\w+=|<(class|function|built-in|module|bound)|<\w+ at "
)
CALLS = """ts.sum(x, 0, keepdims=True)|ts.softmax(x, axis=-1)|ts.reshape(x, (N, D))|x.permute(1, 0)
ts.concat([x, x], axis=0)|ts.where(x > 0, x, 0.0)|ts.einsum('ij,kj->ik', x, x)|ts.take(x, i, axis=0)
ts.sort(x, axis=1, descending=True)|ts.topk(x, 2, axis=1)|ts.zeros((N, D), ts.f32)
ts.full((N, D), 1.0, ts.f32)|ts.arange(0, 10, 2)|ts.one_hot(i, 5)|ts.clip(x, 0.0, 1.0)
ts.pad(x, ((1, 1), (0, 0)))|ts.roll(x, 1, axis=0)|ts.split(x, 2, axis=0)|ts.norm(x, 2, axis=0)
ts.layer_norm(x, w, w)|ts.cross_entropy(x, i)|ts.attention(x[None], x[None], x[None], causal=True)
x.to(ts.bf16)|x[0, 1:3]|ts.uniform(3, (N, D))|ts.fft.fft(x, axis=-1)|ts.linalg.solve(x.T @ x, w)
ts.repeat(x, 2, axis=0)|ts.broadcast_to(x, (2, N, D))|ts.grad(lambda t: ts.sum(t * t), 0)(x)
ts.vmap(lambda t: t * 2)(x)|ts.scan(lambda c, t: (c + t, c), w, x)|ts.remat(ts.sin)(x)"""


def places(tree: ast.AST) -> Iterator[tuple[Any, Any]]:
    """(list or node, position or field) of every argument of a call, of one argument more, and of subscripts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.args.append(ast.Name("None"))
            yield from ((node.args, i) for i in reversed(range(len(node.args))))
            node.args.pop()
            yield from ((keyword, "value") for keyword in node.keywords)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            yield node, "slice"


def variants(tree: ast.AST, odd: Iterator[str], first: str, each: int) -> Iterator[str]:
    """The text with each argument in turn replaced by `each` odd ones."""
    for owner, at in places(tree):
        old = owner[at] if isinstance(at, int) else getattr(owner, at)
        for text in itertools.islice(odd, each):
            new = ast.parse(text.replace("{first}", first), mode="eval").body
            if isinstance(at, int):
                owner[at] = new
            else:
                setattr(owner, at, new)
            yield ast.unparse(ast.fix_missing_locations(tree))
        if isinstance(at, int):
            owner[at] = old
        else:
            setattr(owner, at, old)


def findings(text: str) -> list[Diagnostic]:
    analyses = FileAnalysis("odd.py").update(HEAD + text)
    return [d for a in analyses for d in a.diagnostics]


def faults(text: str) -> list[str]:
    found = [(d, " ".join([d.message, *(note.message for note in d.notes)])) for d in findings(text)]
    return [f"{d.code}: {said}\n{text}" for d, said in found if d.code == "TS900" or INTERNAL.search(said)]


def test_functions_of_kernels() -> None:
    odd = itertools.cycle([*IN_KERNELS, *COMMON])
    bad: list[str] = []
    for builtin in dict.fromkeys(public().values()):
        program = ast.parse(builtin.example.strip("\n").split("\n>>> ")[0])
        for f in (node for node in program.body if isinstance(node, ast.FunctionDef) and node.args.args):
            for text in variants(f, odd, f.args.args[0].arg, 2):
                bad += faults(text)
    assert not bad, "\n\n".join(bad[:5])


def test_functions_of_tensors() -> None:
    odd = itertools.cycle([*IN_FUNCTIONS, *COMMON])
    parameters = "x: Tensor['N', 'D', ts.f32], w: Tensor['D', ts.f32], i: Tensor['N', ts.int32]"
    head = f"@ts.function\ndef f({parameters}):\n    return "
    bad: list[str] = []
    for call in CALLS.replace("\n", "|").split("|"):
        assert not findings(head + call), call
        for text in variants(ast.parse(call, mode="eval"), odd, "x", 3):
            bad += faults(head + text)
    assert not bad, "\n\n".join(bad[:5])


@pytest.mark.parametrize("transform", [ts.grad, ts.value_and_grad, ts.jacobian, ts.hessian, ts.jacfwd, ts.jacrev])
def test_there_is_no_gradient_by_none(transform: Any) -> None:
    with pytest.raises(ts.CompileError, match="positions or names of parameters, not None"):
        transform(lambda x: ts.sum(x), None)
