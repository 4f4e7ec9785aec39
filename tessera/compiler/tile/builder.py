"""The builder of Tile IR for passes and lowerings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.compiler.ir.core import Attr, Block, Builder, Op, Region, Value
from tessera.compiler.ir.types import INDEX, TileType, ViewType
from tessera.compiler.tile import dialect as dialect  # what it builds is verified by it
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE


class TileBuilder(Builder):
    """A builder that derives the result types of tile ops, so that passes and lowerings read like programs."""

    def index(self, dim: Dim) -> Value:
        return self.value("tile.dim", (), INDEX, {"dim": dim})

    def program_id(self, axis: int) -> Value:
        return self.value("tile.program_id", (), INDEX, {"axis": axis})

    def iop(self, name: str, a: Value, b: Value) -> Value:
        return self.value(f"tile.{name}", (a, b), INDEX)

    def constant(self, value: bool | int | float | complex, dtype: DType) -> Value:
        return self.value("tile.constant", (), TileType((), dtype), {"value": value})

    def broadcast(self, x: Value, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> Value:
        t = _typed(x)
        if t.shape == shape:
            return x
        return self.value("tile.broadcast", (x,), TileType(shape, t.dtype), {"axes": axes})

    def full(self, shape: tuple[Dim, ...], value: bool | int | float | complex, dtype: DType) -> Value:
        return self.broadcast(self.constant(value, dtype), shape, ())

    def cast(self, x: Value, dtype: DType) -> Value:
        t = _typed(x)
        return x if t.dtype == dtype else self.value("tile.cast", (x,), TileType(t.shape, dtype))

    def map(self, name: str, *operands: Value, **attrs: Attr) -> Value:
        """An elementwise op; result dtype by the scalar's rule (operands already share shape and dtype)."""
        t = _typed(operands[-1])
        scalar = TABLE[name]
        dtype = t.dtype
        if scalar.gives == "bool":
            dtype = dtypes.bool_
        elif scalar.gives == "float" and not (dtype.is_float or dtype.is_complex):
            dtype = dtypes.f32
        elif scalar.gives == "real":
            dtype = dtype.part
        elif scalar.gives == "complex":
            dtype = dtype.paired
        return self.value(f"tile.{name}", operands, TileType(t.shape, dtype), attrs)

    def reduce(self, op: str, x: Value, axes: tuple[int, ...], dtype: DType | None = None, **attrs: Attr) -> Value:
        t = _typed(x)
        shape = tuple(s for i, s in enumerate(t.shape) if i not in axes)
        out = dtypes.int64 if op in ("argmax", "argmin") else dtype or t.dtype
        return self.value("tile.reduce", (x,), TileType(shape, out), {"op": op, "axes": axes, **attrs})

    def reshape(self, x: Value, shape: tuple[Dim, ...]) -> Value:
        t = _typed(x)
        return x if t.shape == shape else self.value("tile.reshape", (x,), TileType(shape, t.dtype))

    def transpose(self, x: Value, perm: tuple[int, ...]) -> Value:
        t = _typed(x)
        return self.value("tile.transpose", (x,), TileType(tuple(t.shape[i] for i in perm), t.dtype), {"perm": perm})

    def loop(
        self, lower: Value, upper: Value, step: Value, initial: Sequence[Value], body: Callable[..., Sequence[Value]]
    ) -> list[Value]:
        """`tile.for`: `body(counter, *carried)` gives what the next step carries."""
        block = Block([INDEX, *(v.type for v in initial)])
        with self.inside(block):
            self.op("tile.yield", list(body(*block.args)))
        types = [v.type for v in initial]
        return self.op("tile.for", [lower, upper, step, *initial], types, regions=[Region([block])]).results

    def while_loop(
        self, initial: Sequence[Value], test: Callable[..., Value], body: Callable[..., Sequence[Value]]
    ) -> list[Value]:
        """`tile.while`: as long as `test(*carried)` holds, `body(*carried)` gives what is carried next."""
        types = [v.type for v in initial]
        head, block = Block(types), Block(types)
        with self.inside(head):
            self.op("tile.yield", [test(*head.args)])
        with self.inside(block):
            self.op("tile.yield", list(body(*block.args)))
        return self.op("tile.while", list(initial), types, regions=[Region([head]), Region([block])]).results

    def branch(self, condition: Value, then: Callable[[], object], otherwise: Callable[[], object]) -> None:
        """`tile.if` for what its sides store."""
        sides: list[Region] = []
        for write in (then, otherwise):
            block = Block()
            with self.inside(block):
                write()
                self.op("tile.yield")
            sides.append(Region([block]))
        self.op("tile.if", [condition], (), regions=sides)

    def load(
        self,
        view: Value,
        offsets: list[Value],
        shape: tuple[Dim, ...],
        mask: Value | None = None,
        fill: float | int | bool = 0,
    ) -> Value:
        assert isinstance(view.type, ViewType)
        attrs: dict[str, object] = {"fill": fill}
        if mask is not None:
            attrs["masked"] = True
        operands = [view, *offsets, *([mask] if mask is not None else [])]
        return self.value("tile.load", operands, TileType(shape, view.type.dtype), attrs)  # type: ignore[arg-type]

    def store(self, view: Value, tile: Value, offsets: list[Value], mask: Value | None = None) -> Op:
        attrs = {"masked": True} if mask is not None else {}
        return self.op("tile.store", [view, tile, *offsets, *([mask] if mask is not None else [])], (), attrs)  # type: ignore[arg-type]


def _typed(v: Value) -> TileType:
    assert isinstance(v.type, TileType), v
    return v.type
