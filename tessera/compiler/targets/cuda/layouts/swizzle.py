"""The swizzle of every shared tile: chosen by the bank analyser over what the kernel does with the tile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType
from tessera.compiler.targets.cuda.layouts.banks import (
    Access,
    ChainOperand,
    Copied,
    Matrices,
    MmaAccess,
    QuarterOperand,
    RegisterAccess,
    SharedLayout,
    choose,
    conflicts,
)
from tessera.compiler.targets.cuda.layouts.barriers import shared_source
from tessera.compiler.targets.cuda.layouts.groups import LayoutGrouping, is_tile, shape_of
from tessera.compiler.targets.cuda.layouts.layout import ONE
from tessera.compiler.targets.cuda.write import cxx
from tessera.immutable import immutable
from tessera.language.dims import prod
from tessera.language.dtypes import DType


def shared_shape(t: SharedType) -> tuple[int, int]:
    """The matrix that a shared tile is stored as."""
    shape = [int(d) for d in t.shape]  # type: ignore[call-overload]
    return int(prod(shape[:-1])), shape[-1]  # type: ignore[call-overload]


@immutable
class Placed:
    """A shared tile as it is stored, and its accesses. `stages`: how many there are, if it is a ring."""

    layout: SharedLayout
    accesses: frozenset[Access]
    stages: int | None = None

    def describe(self) -> str:
        """For people."""
        several = f", {self.stages} stages" if (self.stages or 1) > 1 else ""
        return f"{self.layout.describe()}{several}; {conflicts(self.layout, self.accesses)}"

    def spelling(self, dtype: DType) -> str:
        """The C++ type."""
        s = self.layout
        numbers = [s.rows, s.cols, *([self.stages] if self.stages else []), *([s.swizzle] if s.swizzle else [])]
        return f"ts::{'Stages' if self.stages else 'Shared'}<{cxx.type_name(dtype)}, {', '.join(map(str, numbers))}>"


def placed(t: SharedType, accesses: Iterable[Access], stages: int | None = None) -> Placed:
    """The tile in the layout that suits these accesses."""
    found = frozenset(accesses)
    return Placed(choose(SharedLayout(*shared_shape(t), t.dtype.itemsize), found), found, stages)


def accesses(grouping: LayoutGrouping, shared: Value) -> Iterator[Access]:
    """All that a kernel does with a tile of alloc_shared."""
    for user, i in shared.uses:
        match user.name:
            case "tile.copy_async":
                yield Copied()
            case "tile.store_shared":
                tile = user.operands[1]
                yield from held(grouping, grouping.stored_turned(tile) or tile, "stored")
            case "tile.load_shared":
                yield from _loaded(grouping, user.result, shared)
            case "tile.mma" if i < 2:
                yield operand(grouping, user, i, False)
            case _:
                pass


def held(grouping: LayoutGrouping, v: Value, verb: str) -> Iterator[Access]:
    """Moves between a shared tile and the registers of `v`."""
    layout = grouping.of(v).layout if is_tile(v) else None
    if verb == "stored" and grouping.stored_by_matrices(v):
        yield Matrices()
    elif layout is not None:
        yield RegisterAccess(layout, verb)


def _loaded(grouping: LayoutGrouping, v: Value, shared: Value) -> Iterator[Access]:
    """Products that read `v` where it was loaded from do so without registers."""
    uses = [use for user, i in v.uses for use in (user.result.uses if user.name == "tile.transpose" else [(user, i)])]
    for user, i in uses:
        source, transposed = (None, False)
        if user.name == "tile.mma" and i != 2:
            source, transposed = shared_source(user.operands[i], user)
        if source is shared and i > 2:
            continue  # scales are few
        if source is shared:
            yield operand(grouping, user, i, transposed)
        else:
            yield from held(grouping, v, "loaded")


def operand(grouping: LayoutGrouping, product: Op, number: int, transposed: bool) -> Access:
    """How a product reads an operand from a shared tile that holds it `transposed`, or not."""
    left, v = number == 0, product.result
    layout = grouping.of(v).layout if is_tile(v) else None
    if layout is None:
        return ChainOperand(ONE, left != transposed)
    if layout.tensor_core:
        return MmaAccess(left, transposed)
    if layout.quarters:
        return QuarterOperand(left, transposed)
    column = layout.shape[0] == 1 and shape_of(v)[0] != 1  # held as a vector: its positions are then rows
    return ChainOperand(layout.row if left != column else layout.col, left != transposed)
