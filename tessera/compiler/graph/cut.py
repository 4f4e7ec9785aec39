"""One named dim cut into parts, as an operator's `partition` rule sees it. `sharding` follows it through a function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NoReturn, cast

from tessera.compiler.ir.types import Shape, TensorType
from tessera.immutable import immutable
from tessera.language import dims
from tessera.language.dims import Expr

Combine = Literal["sum", "mean", "prod", "max", "min", "any", "all"]
"""How the whole result comes from those of the parts; `mean` weighs them by the sizes of the parts."""


class WholeNeeded(Exception):
    """An operator that is given a part of the dim does not give that part of its result."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@immutable
class Cut:
    """`dim` is cut: part number p of a tensor holds the elements from `start*k` to `stop*k` of the axis whose size is
    `dim * k`. `out` is that axis of the results, None where they have none."""

    dim: str
    out: int | None = None
    rank: int = 0
    """the rank of the results"""

    def axis(self, x: TensorType | Shape) -> int | None:
        """The axis of `x` that is cut. Raises WholeNeeded where its shape mentions the dim in any other way."""
        shape = x.shape if isinstance(x, TensorType) else x
        found = [i for i, d in enumerate(shape) if self.dim in dims.symbols(d)]
        if not found:
            return None
        size = shape[found[0]]
        each = dims.floordiv(size, dims.symbol(self.dim))
        if len(found) > 1:
            self.whole(f"{self.dim} is on {len(found)} axes of a tensor [{', '.join(map(str, shape))}]")
        if self.dim in dims.symbols(each) or not dims.equal(each * dims.symbol(self.dim), size):
            self.whole(f"an axis of size {size} does not fall into equal pieces, one for each of {self.dim}")
        return found[0]

    def mentioned(self, value: Any) -> bool:
        """Whether an attribute holds a size that depends on the dim."""
        if isinstance(value, Expr):
            return self.dim in dims.symbols(value)
        return isinstance(value, tuple) and any(map(self.mentioned, cast("tuple[Any, ...]", value)))

    def aligned(self, xs: Iterable[TensorType]) -> None:
        """Demands that the cut axes of all operands broadcast onto that of the result."""
        for x in xs:
            a = self.axis(x)
            if a is not None and a + self.rank - x.rank != self.out:
                self.whole(f"{self.dim} is on different axes of its operands")

    def whole(self, why: str) -> NoReturn:
        raise WholeNeeded(why)
