"""Reductions and scans along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.ir.core import Value
from tessera.compiler.tile.builtin import TileBuiltin, register
from tessera.language.lazy import np

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

WHAT = {
    "sum": ("The sum", "numbers and bools -> the dtype, f32 for narrower floats, 64 bits for integers and bools"),
    "prod": ("The product", "numbers and bools -> the dtype, f32 for narrower floats, 64 bits for integers and bools"),
    "max": ("The largest element", "real numbers -> the dtype, f32 for narrower floats"),
    "min": ("The smallest element", "real numbers -> the dtype, f32 for narrower floats"),
    "any": ("Whether any element is true,", "any -> bool"),
    "all": ("Whether every element is true,", "any -> bool"),
    "argmax": ("The position of the largest element (the first of equal ones)", "real numbers -> int64"),
    "argmin": ("The position of the smallest element (the first of equal ones)", "real numbers -> int64"),
    "mean": (
        "The mean of the elements that exist",
        "numbers and bools -> the dtype, f32 for integers and narrower floats",
    ),
}
"""reduction -> what it gives, dtypes"""


class Reduction(TileBuiltin, abstract=True):
    """One reduction."""

    cost = "One operation for each element, in an order that depends on the length alone; on a GPU threads exchange "
    cost += "what they have."
    along = 1
    """the axis of the example"""

    def __init__(self, op: str, prefix: str = "") -> None:
        self.op, self.name = op, prefix + op
        self.what, self.dtypes = WHAT[op]

    @property
    def example(self) -> str:  # type: ignore[override]
        """A program whose result is computed with NumPy, for what it prints."""
        truth = self.op in ("any", "all")
        x = np.array([[1, 5, 3], [4, 0, 2]], np.float32)
        wanted = getattr(np, self.op)(x != 5 if truth else x, axis=self.along)
        kind = {"b": "bool", "i": "int64", "f": "f32"}[wanted.dtype.kind]
        dim, part = ("M", "0:2") if self.along else ("N", ":")
        axis = ", axis=1" if "axis" in self.parameters else ""
        return f"""
@ts.kernel
def example(x: Tensor["M", "N", ts.f32], y: Tensor["{dim}", ts.{kind}]):
    y[{part}] = ts.tile.{self.name}(x[0:2, :]{" != 5" if truth else ""}{axis})

>>> y = np.zeros({wanted.size}, np.{wanted.dtype})
>>> example(np.array([[1, 5, 3], [4, 0, 2]], np.float32), y)
>>> y
{np.array2string(wanted)}
"""


class OverAxes(Reduction, abstract=True):
    """Over axes that the call names."""

    shapes = "`[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both"

    @property
    def doc(self) -> str:
        kept = "`keepdim=True` leaves the axis with size 1."
        return f"{self.what} along `axis` (a number or a tuple; default: all axes). {kept}"

    def build(self, k: KernelState, x: Any, axis: Any = None, keepdim: bool = False) -> Value:
        return k.reduce(self.op, k.tile(x), axis, bool(keepdim))


class OfRows(Reduction, abstract=True):
    """Of each row of a matrix."""

    shapes = "`[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`"

    @property
    def doc(self) -> str:
        return f"{self.what} in each row of a tile with two axes, as a vector of the rows."

    def build(self, k: KernelState, x: Any, keepdim: bool = False) -> Value:
        return k.reduce(self.op, _matrix(k, x, self.name), 1, keepdim)


class OfColumns(Reduction, abstract=True):
    """Of each column of a matrix."""

    shapes = "`[M, N] -> [N]`, or `[1, N]` with `keepdim=True`"
    along = 0

    @property
    def doc(self) -> str:
        return f"{self.what} in each column of a tile with two axes, as a vector of the columns."

    def build(self, k: KernelState, x: Any, keepdim: bool = False) -> Value:
        return k.reduce(self.op, _matrix(k, x, self.name), 0, keepdim)


def _matrix(k: KernelState, x: Any, name: str) -> Value:
    value = k.tile(x)
    if tile_type(value).rank != 2:
        raise KernelFault("TS402", f"{name} takes a tile of two axes, not {tile_type(value).pretty()}")
    return value


for _name in WHAT:
    register(OverAxes(_name))
    register(OfRows(_name, "row_"))
    register(OfColumns(_name, "col_"))


def whole(k: KernelState, x: Any, axis: Any, what: str) -> Value:
    """A tile that this program holds completely along `axis`."""
    value = k.tile(x)
    k.demand_whole(value, (k.tiles.axis_of(value, axis, what),))
    return value


class Scan(TileBuiltin, abstract=True):
    shapes = "`[..., N, ...] -> [..., N, ...]`"
    dtypes = "numbers -> the dtype, f32 for narrower floats, int64 for integers"
    cost = "One operation for each element, one after the other on a CPU; on a GPU segments of 32 at once, in shared "
    cost += "memory."

    def __init__(self, name: str, op: str, what: str, printed: str) -> None:
        self.name, self.op, self.what, self.printed = name, op, what, printed
        if op in ("max", "min"):
            self.dtypes = "real numbers -> the dtype, f32 for narrower floats, int64 for integers"

    @property
    def doc(self) -> str:
        return f"The running {self.what} along `axis`, in ascending order: element i is that of elements 0 to i."

    @property
    def example(self) -> str:  # type: ignore[override]
        return f"""
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    return ts.tile.{self.name}(x)

>>> example(np.array([2, 1, 3, 1], np.float32))
{self.printed}
"""

    def build(self, k: KernelState, x: Any, axis: int = -1) -> Value:
        return k.tiles.scan(self.op, whole(k, x, axis, f"a running {self.op}"), axis)


register(Scan("cumsum", "sum", "sum", "[2. 3. 6. 7.]"))
register(Scan("cumprod", "prod", "product", "[2. 2. 6. 6.]"))
register(Scan("cummax", "max", "maximum", "[2. 2. 3. 3.]"))
register(Scan("cummin", "min", "minimum", "[2. 1. 1. 1.]"))
