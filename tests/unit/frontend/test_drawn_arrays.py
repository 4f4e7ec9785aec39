"""What a text tells of the arrays that it makes with NumPy outside of programs, beside what NumPy makes."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.called.arguments import Names
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes

MADE = [
    "np.zeros((2, 3))",
    "np.ones(4, np.float32)",
    "np.empty((2, 0), dtype=int)",
    "np.zeros(3, float)",
    "np.zeros(3, dtype='float32')",
    "np.zeros(3, 'float')",
    "np.full((2, 2), 1)",
    "np.full((2, 2), 1.0)",
    "np.full(3, 1, np.uint8)",
    "np.eye(3)",
    "np.eye(3, 4, dtype=np.float32)",
    "np.array([[1, 2], [3, 4.0]])",
    "np.array([1, 2], np.float32)",
    "np.asarray([[True], [False]])",
    "np.array(3)",
    "np.random.rand(2, 3)",
    "np.random.randn(2, 3).astype(np.float32)",
    "np.random.random((2, 3))",
    "np.random.normal(0.0, 1.0, (2, 3))",
    "np.random.uniform(size=5)",
    "np.random.randint(0, 10, (2, 3))",
    "np.random.default_rng(0).normal(size=(3, 2))",
    "np.random.default_rng(0).standard_normal((3, 2), dtype=np.float32)",
    "np.random.default_rng(0).integers(0, 9, size=(2,))",
    "np.zeros((2, 6)).reshape(3, 4).T",
    "np.ones((2, 3)) * 2.0 + np.ones(3)",
    "ts.rand(2, 3)",
    "ts.randn((4, 5))",
]


def told(*lines: str) -> object:
    """What a file tells of `x`, which its last line makes."""
    file = FileAnalysis("made.py")
    file.update("\n".join(["import numpy as np", "import tessera as ts", *lines]))
    names = Names(file.scope, file.scope, file.scope.tree)
    found = names.made(names.bound["x"][0][0])
    return found.type if found is not None else None


@pytest.mark.parametrize("text", MADE)
def test_shape_and_dtype_are_those_of_the_array(text: str) -> None:
    made = eval(text, {"np": np, "ts": ts})
    assert told(f"x = {text}") == TensorType(made.shape, dtypes.of(made.dtype))


def test_sizes_and_generators_have_names() -> None:
    rng = "rng = np.random.default_rng(0)"
    assert told("N = 4", rng, "x = rng.random((N, N + 1), dtype=np.float32)") == TensorType((4, 5), dtypes.f32)


@pytest.mark.parametrize(
    "text",
    [
        "np.random.rand()",
        "np.random.normal()",
        "np.zeros(n)",
        "np.zeros((2, -1))",
        "np.zeros(3, 'f4')",
        "np.array([[1], [2, 3]])",
        "np.array(rows)",
        "np.full(3, value)",
        "np.zeros(3, order='F')",
        "np.load('x.npy')",
    ],
)
def test_other_things_are_not_known(text: str) -> None:
    assert told(f"x = {text}") is None


def test_calls_with_arrays_are_checked() -> None:
    file = FileAnalysis("made.py")
    file.update("""import numpy as np
import tessera as ts
from tessera import nn

model = nn.Sequential(nn.Linear(8, 16, key=0), nn.Linear(16, 8, key=0))
x = np.random.rand(4, 9).astype(np.float32)
model(x)


def loss(model, x):
    return ts.mean(model(x) ** 2)


def fits(rng):
    return ts.grad(loss)(model, rng.normal(size=(4, 8)))


ts.grad(loss)(model, x[:, :8])
fits(np.random.default_rng(0))
""")
    assert [(d.code, d.span.line) for d in file.diagnostics] == [("TS208", 7)]
