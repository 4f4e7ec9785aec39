"""The functions of the seed documents, read as text: what they show as right is right, and as wrong is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, sqrt
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.result import Analysis
from tests.frontend_harness import golden

HEAD = """
import tessera
import tessera as ts
from tessera import Const, Tensor, bf16, f32, softmax, sqrt
"""

ATTENTION = """
def attention(x):
    return softmax(x @ x.mT / x.shape[-1] ** 0.5) @ x
"""


def read(text: str) -> dict[str, Analysis]:
    file = FileAnalysis("model.py")
    file.update(HEAD + text)
    assert not file.problems
    return {a.name: a for a in file.analyses}


def types(a: Analysis) -> dict[str, str]:
    return {e.name: e.text for e in a.expressions if e.kind in ("assign", "param")}


def test_layer_norm() -> None:
    a = read(
        """
@tessera.function
def layer_norm(x: Tensor["B", "S", "D"]) -> Tensor["B", "S", "D"]:
    mean = x.mean(axis=-1, keepdim=True)
    var = x.var(axis=-1, keepdim=True)
    return (x - mean) / sqrt(var + 1e-5)
"""
    )["layer_norm"]
    assert a.ok and a.op is not None and not a.undecided
    assert types(a) == {"x": "[B, S, D] f32", "mean": "[B, S, 1] f32", "var": "[B, S, 1] f32"}
    assert [e.text for e in a.expressions if e.kind == "return"] == ["[B, S, D] f32"]


def test_layer_norm_computes() -> None:
    def layer_norm(x: Tensor["B", "S", "D"]) -> Tensor["B", "S", "D"]:
        mean = x.mean(axis=-1, keepdim=True)
        var = x.var(axis=-1, keepdim=True)
        return (x - mean) / sqrt(var + 1e-5)

    x = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(np.float32)
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(golden(layer_norm, x), want, rtol=1e-5, atol=1e-6)


def test_adaptive_pooling_right_and_wrong() -> None:
    text = '''
@tessera.function
def adaptive_pooling(x: Tensor["B", "C", "H", "W"]) -> Tensor["B", "C", 1, 1]:
    """Output shapes can be inferred and verified"""
    pooled = x.mean(axis=(2, 3){keep})
    return pooled
'''
    right = read(text.format(keep=", keepdim=True"))["adaptive_pooling"]
    assert right.ok and types(right)["pooled"] == "[B, C, 1, 1] f32"
    wrong = read(text.format(keep=""))["adaptive_pooling"]
    (d,) = wrong.diagnostics
    assert d.render().splitlines()[:6] == [
        "Shape error TS201 in adaptive_pooling at model.py:9:14",
        "  9 |     pooled = x.mean(axis=(2, 3))",
        "    |              ^^^^^^^^^^^^^^^^^^^ has shape [B, C]",
        '  Expected: Tensor["B", "C", 1, 1]   (the return annotation, model.py:7)',
        '  Received: Tensor["B", "C"]',
        "  Did you forget keepdim=True in the mean operation?   [fix available]",
    ]
    assert wrong.op is None


def test_transformer_block() -> None:
    found = read(
        '''
def multi_head_attention(x):
    B, S, H, D = x.shape
    q = x.transpose(0, 2, 1, 3)
    return (softmax(q @ q.mT) @ q).transpose(0, 2, 1, 3).reshape(B, S, H * D)

@tessera.function
def layer_norm(x: Tensor["B", "S", "D"]) -> Tensor["B", "S", "D"]:
    return x - x.mean(-1, keepdim=True)

@tessera.shape_checked
def transformer_block(x: Tensor["B", "S", "D"], num_heads: Const["H"]) -> Tensor["B", "S", "D"]:
    """Shapes are verified at compile time"""
    assert D % H == 0, f"Hidden dim {D} must be divisible by heads {H}"
    x_heads = x.reshape(B, S, H, D // H)
    attended = multi_head_attention(x_heads)  # Returns [B, S, D]
    return layer_norm(x + attended)  # Shape verified: [B, S, D]
'''
    )
    block = found["transformer_block"]
    assert block.ok and not block.undecided and block.op is not None
    assert types(block)["x_heads"] == "[B, S, H, D//H] f32"
    assert [(str(c.left), str(c.right), c.why) for c in block.checks] == [
        ("D%H", "0", "Hidden dim D must be divisible by heads H")
    ]


def test_variable_length_attention_checks_both_paths() -> None:
    text = """
@tessera.function
def variable_length_attention(
    x: Tensor["B", "S", "D"],
    mask: Tensor["B", "S"] | None = None
) -> Tensor["B", "S", "D"]:
    if mask is not None:
        x = x * mask{unsqueeze}
    return attention(x)
"""
    right = read(ATTENTION + text.format(unsqueeze=".unsqueeze(-1)"))["variable_length_attention"]
    assert right.ok
    wrong = read(ATTENTION + text.format(unsqueeze=""))["variable_length_attention"]
    assert [d.code for d in wrong.diagnostics] == ["TS202"]


def test_memory_intensive_function_is_rejected() -> None:
    a = read(
        """
@tessera.function
def memory_intensive_function():
    x = tessera.zeros((1024, 1024))  # +4MB
    y = tessera.ones((2048, 2048))   # +16MB
    z = x @ y.T
    return z
"""
    )["memory_intensive_function"]
    assert [d.code for d in a.diagnostics] == ["TS203"]
    assert types(a) == {"x": "[1024, 1024] f32", "y": "[2048, 2048] f32"}


def test_dynamic_model() -> None:
    a = read(
        """
threshold = 0.5

def layer(x):
    return x * 0.9

@tessera.function
def dynamic_model(x: Tensor["B", "D"], steps: int = 4) -> Tensor["B", "D"]:
    for i in tessera.static_range(steps):
        x = layer(x)
    while ts.norm(x) > threshold:
        x = x / ts.norm(x)
    return x
"""
    )["dynamic_model"]
    assert a.ok and a.op is not None
    names = [op.name for op in a.op.walk()]
    assert names.count("graph.while") == 1 and names.count("graph.mul") == 4


def test_unstable_softmax_broadcasts_wrongly() -> None:
    """`exp_x.sum()` of everything is a scalar: it broadcasts, so it is not a shape error, as in NumPy."""
    a = read(
        """
@ts.function
def unstable_softmax(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    exp_x = ts.exp(x)
    return exp_x / exp_x.sum()
"""
    )["unstable_softmax"]
    assert a.ok


@pytest.mark.parametrize("size", [100, 300])
def test_resolution_is_decided_when_sizes_are_known(size: int) -> None:
    def features(images: ts.Tensor["B", "C", "H", "W"]):
        if H > 224 or W > 224:
            y = images * 2
        else:
            y = images + 1
        B, C, rows, columns = y.shape
        return y.reshape(B, C, rows * columns)

    x = np.ones((1, 1, size, 2), np.float32)
    assert golden(features, x).ravel()[0] == 2 and golden(features, x * 3).ravel()[0] == (6 if size > 224 else 4)
