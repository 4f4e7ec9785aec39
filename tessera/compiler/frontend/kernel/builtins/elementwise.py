"""Elementwise functions. `language/scalars.py` defines what they compute."""

from __future__ import annotations

import inspect
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tessera.compiler.tile.builtin import TileBuiltin, register
from tessera.language.lazy import np
from tessera.language.scalars import TABLE, Accepts, Gives, Scalar

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

ALSO = {"abs": ("fabs",), "pow": ("power",), "neg": ("negative",)}
TAKES: dict[Accepts, str] = {
    "any": "any", "number": "numbers", "real": "real numbers", "float": "floats", "complex": "complex numbers",
    "integer": "integers", "bool": "bools", "integral_or_bool": "integers and bools",
    "ordered": "real numbers and bools",
}  # fmt: skip
GIVES: dict[Gives, str] = {
    "same": "the common dtype, f32 for narrower floats",
    "bool": "bool",
    "float": "the common dtype, f32 for integers and narrower floats",
    "real": "the dtype of the real part, f32 for narrower floats",
    "complex": "the complex dtype with such parts",
}


class Elementwise(TileBuiltin, abstract=True):
    """One function of `language/scalars.py`, over tiles and numbers."""

    def __init__(self, scalar: Scalar) -> None:
        self.scalar, self.name, self.also = scalar, scalar.name, ALSO.get(scalar.name, ())
        self.dtypes = f"{TAKES[scalar.accepts]} -> {GIVES[scalar.gives]}"
        meet = "operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast"
        self.shapes = "`[...] -> [...]`" if scalar.arity == 1 else meet
        operations = f"{scalar.flops} operations" if scalar.flops > 1 else "One operation"
        self.cost = f"{operations} for each element, in registers."

    @property
    def doc(self) -> str:
        return f"{self.scalar.doc}, element by element."

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return {n: inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in self.scalar.parameters}

    def build(self, k: KernelState, *values: Any) -> Any:
        return k.apply(self.name, *values)

    @property
    def example(self) -> str:  # type: ignore[override]
        """A program whose result is computed with the function's meaning in NumPy, for what it prints."""
        kind, numpy, rows = _operands(self.scalar)
        wanted = self._expected(numpy, rows)
        gives = {"b": "bool", "i": "int32", "f": "f32", "c": "complex64"}[wanted.dtype.kind]
        names = self.scalar.parameters
        taken = ", ".join(f'{n}: Tensor["n", ts.{kind}]' for n in names)
        given = (
            ", ".join(f"np.array({row}, np.{numpy})" for row in rows).replace("nan", "np.nan").replace("inf", "np.inf")
        )
        return f"""
@ts.kernel
def example({taken}) -> Tensor["n", ts.{gives}]:
    return ts.tile.{self.name}({", ".join(names)})

>>> example({given})
{np.array2string(wanted, precision=4)}
"""

    @property
    def sample(self) -> tuple[list[str], str]:
        """The operands of the example, and what it prints."""
        _, numpy, rows = _operands(self.scalar)
        return [str(row) for row in rows], np.array2string(self._expected(numpy, rows), precision=4)

    def _expected(self, numpy: str, rows: list[list[Any]]) -> Any:
        with np.errstate(all="ignore"):
            return self.scalar.reference(*(np.array(row, numpy) for row in rows))


def _operands(scalar: Scalar) -> tuple[str, str, list[list[Any]]]:
    """The dtype of an example, its NumPy name, and a row of elements for each operand."""
    if scalar.accepts in ("integer", "integral_or_bool"):
        return "int32", "int32", [[1, 6, 12], [2, 3, 1]][: scalar.arity]
    if scalar.accepts == "complex":
        return "complex64", "complex64", [[1 + 2j, 3 - 1j]]
    if scalar.name in ("isnan", "isinf", "isfinite"):
        return "f32", "float32", [[1.0, math.nan, math.inf]]
    if scalar.name in ("logical_and", "logical_or", "logical_xor", "logical_not"):
        return "f32", "float32", [[0.0, 1.0, 2.0], [0.0, 0.0, 3.0]][: scalar.arity]
    return "f32", "float32", [[0.5, 1.25, 2.0], [2.0, 1.25, 0.5], [1.0, 2.0, 3.0]][: scalar.arity]


for _scalar in TABLE.values():
    if _scalar.name != "where":  # it takes what is not a tile of one dtype with the others
        register(Elementwise(_scalar))
