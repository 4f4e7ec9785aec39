"""Which tiles must be laid out alike, and how: the analysis that decides every layout of a kernel.

Values that meet in elementwise ops, loops and branches form a group with one layout. Tensor-core products fix the
layout of their group, vectors take the layout of the matrix whose rows or columns they belong to, and all else is
dealt out so that memory is read in whole vectors. Groups too large for registers have axes that are walked in chunks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape, TileType
from tessera.compiler.machines import mma_depth
from tessera.compiler.targets.cuda.layouts.layout import (
    PARTIALS,
    Layout,
    blocked,
    fragment,
    power_of_two,
    quarters,
    warp_grid,
)
from tessera.compiler.tile.dialect import has_scales
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dims import Dim, prod
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE

STREAMABLE = frozenset(("load", "gather", "store", "scatter", "iota", "cast", "bitcast", "philox"))
"""Ops that, like elementwise ones, may work on a tile part by part."""


def squeezed(shape: Shape) -> tuple[int, ...]:
    """The axes that are left when those of size 1 are dropped."""
    return tuple(i for i, d in enumerate(shape) if d != 1)


def is_scalar(v: Value) -> bool:
    """Whether a tile has one element: then it is a plain C++ value that every thread holds."""
    return isinstance(v.type, TileType) and not squeezed(v.type.shape)


def is_tile(v: Value) -> bool:
    return isinstance(v.type, TileType) and bool(squeezed(v.type.shape))


def shape_of(v: Value) -> Shape:
    assert isinstance(v.type, TileType)
    return v.type.shape


def dtype_of(v: Value) -> DType:
    assert isinstance(v.type, TileType)
    return v.type.dtype


@dataclass(slots=True, eq=False)
class TileLine:
    """One axis of tiles that move together. `chunk` None: held whole; else walked in steps of `chunk` positions."""

    extent: Dim
    chunk: int | None = None
    parent: TileLine | None = None

    def find(self) -> TileLine:
        line = self
        while line.parent is not None:
            line = line.parent
        return line

    def unite(self, other: TileLine) -> None:
        a, b = self.find(), other.find()
        if a is not b:
            b.parent = a

    @property
    def held(self) -> int:
        """Positions in registers at a time."""
        if self.chunk is not None:
            return self.chunk
        assert isinstance(self.extent, int)
        return self.extent


@dataclass(slots=True, eq=False)
class LayoutGroup:
    """Tiles with one layout. `split`: how many squeezed axes make up the rows of the matrix."""

    shape: Shape
    split: int
    row: TileLine
    col: TileLine
    values: list[Value] = field(default_factory=list[Value])
    parent: LayoutGroup | None = None
    layout: Layout | None = None
    name: str = ""
    products: list[Op] = field(default_factory=list[Op])
    """the mma and contract ops that give members"""

    def find(self) -> LayoutGroup:
        group = self
        while group.parent is not None:
            group = group.parent
        return group

    def unite(self, other: LayoutGroup) -> None:
        a, b = self.find(), other.find()
        if a is b:
            return
        b.parent = a
        a.row.unite(b.row)
        a.col.unite(b.col)
        a.values += b.values
        a.products += b.products

    @property
    def lines(self) -> tuple[TileLine, TileLine]:
        return self.row.find(), self.col.find()

    @property
    def streamed(self) -> bool:
        return any(line.chunk is not None for line in self.lines)


class LayoutGrouping:
    """The groups of one kernel. After `assign`, each has a layout and a name for it."""

    def __init__(self, kernel: Op) -> None:
        self.kernel = kernel
        self._groups: dict[Value, LayoutGroup] = {}
        self.tensor_cores = TensorCores()
        self.threads = 0
        self._vectors: list[tuple[LayoutGroup, LayoutGroup, int]] = []
        """(vector, matrix, axis of the matrix that is left out)"""
        self._form({})
        splits = self._splits()
        if any(split != len(self._groups[v].shape) - 1 for v, split in splits.items()):
            self._vectors.clear()
            self._form(splits)

    def _form(self, splits: Mapping[Value, int]) -> None:
        for op in self.kernel.walk():
            for v in (*op.results, *(a for region in op.regions for a in region.block.args)):
                if is_tile(v):
                    kept = tuple(shape_of(v)[a] for a in squeezed(shape_of(v)))
                    split = splits.get(v, len(kept) - 1)
                    rows, cols = TileLine(prod(kept[:split])), TileLine(prod(kept[split:]))
                    self._groups[v] = LayoutGroup(kept, split, rows, cols, [v])
        for op in self.kernel.walk():
            self._relate(op)

    def _splits(self) -> dict[Value, int]:
        """Where a matrix's columns begin among more than two axes: with the last one, unless reductions over several
        trailing axes want them together. All tiles of a group have the same layout."""
        out: dict[Value, int] = {}
        for group in self.groups:
            wanted = {s for v in group.values if (s := self._wanted(v)) is not None}
            if len(wanted) == 1:
                out.update(dict.fromkeys(group.values, wanted.pop()))
        return out

    @staticmethod
    def _wanted(v: Value) -> int | None:
        kept = squeezed(shape_of(v))
        if len(kept) > 2:
            for user in v.users:
                if user.name == "tile.reduce":
                    gone = [kept.index(a) for a in user.attrs["axes"] if a in kept]  # type: ignore[union-attr]
                    if gone and gone == list(range(gone[0], len(kept))):
                        return gone[0]
        return None

    def of(self, v: Value) -> LayoutGroup:
        """The group of a tile with more than one element."""
        return self._groups[v].find()

    @property
    def groups(self) -> list[LayoutGroup]:
        return list(dict.fromkeys(g.find() for g in self._groups.values()))

    def _same(self, *values: Value) -> None:
        tiles = [v for v in values if is_tile(v)]
        for v in tiles[1:]:
            if (
                self._groups[v].shape == self._groups[tiles[0]].shape
                and self._groups[v].split == self._groups[tiles[0]].split
            ):
                self.of(tiles[0]).unite(self.of(v))

    def _relate(self, op: Op) -> None:
        name = op.name.partition(".")[2]
        match name:
            case _ if name in TABLE or name in ("cast", "bitcast", "scan", "sort", "philox", "reshape"):
                self._same(*op.results, *op.operands)
            case "gather":
                self._same(op.result, *op.operands[1:])
            case "scatter" | "store":
                self._same(*(v for v in op.operands[1:] if is_tile(v)))
            case "load":
                self._same(op.result, *(v for v in op.operands if is_tile(v)))
            case "transpose":
                if self._moves_units_only(op):
                    self._same(op.result, op.operands[0])
            case "broadcast":
                self._relate_broadcast(op)
            case "reduce":
                self._relate_reduce(op)
            case "mma":
                self._same(op.result, op.operands[2])
                self.of(op.result).products.append(op) if is_tile(op.result) else None
            case "contract":
                self.of(op.result).products.append(op) if is_tile(op.result) else None
            case "for" | "pipeline":
                body = op.regions[-1].block
                for i, v in enumerate(op.operands[3:]):
                    self._same(v, body.args[i + 1], body.terminator.operands[i], op.results[i])
            case "if":
                for i, r in enumerate(op.results):
                    self._same(r, *(region.block.terminator.operands[i] for region in op.regions))
            case "while":
                for i, v in enumerate(op.operands):
                    test, body = op.regions[0].block, op.regions[1].block
                    self._same(v, test.args[i], body.args[i], body.terminator.operands[i], op.results[i])
            case _:
                pass

    @staticmethod
    def _moves_units_only(op: Op) -> bool:
        kept = squeezed(shape_of(op.operands[0]))
        perm: tuple[int, ...] = op.attrs["perm"]  # type: ignore[assignment]
        return [p for p in perm if p in kept] == list(kept)

    def _relate_broadcast(self, op: Op) -> None:
        x, t = op.operands[0], op.result
        if not is_tile(x) or not is_tile(t):
            return
        place = self.place(op)
        group = self.of(t)
        if place == "same":
            self._same(x, t)
        elif place == "rows":
            self.of(x).col.unite(group.row)
            self._vectors.append((self.of(x), group, 1))
        elif place == "cols":
            self.of(x).col.unite(group.col)
            self._vectors.append((self.of(x), group, 0))

    def place(self, op: Op) -> str:
        """The place of a broadcast operand in its result's matrix: "same", a vector along "rows" or "cols", or
        "other"."""
        x, t = op.operands[0], op.result
        axes: tuple[int, ...] = op.attrs["axes"]  # type: ignore[assignment]
        kept = squeezed(shape_of(t))
        own = [kept.index(axes[a]) for a in squeezed(shape_of(x))]
        group = self._groups[t]
        if own == list(range(len(kept))):
            return "same"
        if len(own) == 1 or self._groups[x].split == 0 or len(self._groups[x].shape) == 1:
            if own == list(range(group.split)):
                return "rows"
            if own == list(range(group.split, len(kept))):
                return "cols"
        return "other"

    def _relate_reduce(self, op: Op) -> None:
        x, t = op.operands[0], op.result
        if not is_tile(x):
            return
        axis = self.reduced(op)
        if axis == "none":
            self._same(x, t)
        if is_tile(t) and axis in (0, 1) and len(self._groups[t].shape) == 1:
            matrix = self.of(x)
            self.of(t).col.unite(matrix.row if axis == 1 else matrix.col)
            self._vectors.append((self.of(t), matrix, axis))

    def _moves(self, op: Op) -> bool:
        """Whether a reduction gives its result another layout than that of its operand's elements, rows or columns."""
        axis = self.reduced(op)
        return axis == "other" or (axis == "none" and self.of(op.operands[0]) is not self.of(op.result))

    def reduced(self, op: Op) -> int | str:
        """The part of a matrix that a reduction of it folds: 1 the columns, 0 the rows, "all", "none" or "other"."""
        shape = shape_of(op.operands[0])
        kept = squeezed(shape)
        gone = [kept.index(a) for a in op.attrs["axes"] if a in kept]  # type: ignore[union-attr]
        gone.sort()
        if not gone:
            return "none"
        if len(gone) == len(kept):
            return "all"
        split = self._groups[op.operands[0]].split
        if gone == list(range(split, len(kept))):
            return 1
        return 0 if gone == list(range(split)) else "other"

    # sizes
    def stream(self, budget: int) -> None:
        """Marks the axes that are walked in chunks, so that no group holds more than `budget` elements at a time.

        Axes of tiles that must be whole (operands of products, values carried by loops, scans, moves of elements) stay
        whole where their size is known: such a tile spills rather than fails.
        """
        whole = self._whole_lines()
        for group in self.groups:
            row, col = group.lines
            if _held(row) * _held(col) <= budget:
                continue
            if col not in whole and (not isinstance(col.extent, int) or col.extent > PARTIALS[1]):
                col.chunk = PARTIALS[1]
            if row not in whole and _held(row) * _held(col) > budget and len(group.shape) <= 2:
                fits = max(1, budget // 2 // min(_held(col), budget))
                row.chunk = PARTIALS[0] if self._folded(group) else power_of_two(fits + 1) // 2

    def _whole_lines(self) -> set[TileLine]:
        out: set[TileLine] = set()
        for op in self.kernel.walk():
            if op.name in ("tile.func", "tile.return"):
                continue
            here = self.streamable(op)
            for v in (*op.operands, *op.results):
                captured = v.owner is not op and (v.op.block if v.op else v.owner) is not op.block
                if is_tile(v) and (captured or not here):
                    out.update(line for line in self.of(v).lines if isinstance(line.extent, int))
        return out

    def streamable(self, op: Op) -> bool:
        """Whether an op works on a part of its tiles at a time."""
        name = op.name.partition(".")[2]
        tiles = [v for v in (*op.operands, *op.results) if is_tile(v)]
        if name in ("reshape", "transpose"):
            return len({id(self.of(v)) for v in tiles}) <= 1
        if name == "broadcast":
            return len(tiles) < 2 or self.place(op) != "other"
        if name == "reduce":
            return not tiles or not self._moves(op)
        return name in TABLE or name in STREAMABLE or not tiles

    def _folded(self, group: LayoutGroup) -> bool:
        """Whether some reduction runs along the rows of the group's matrix."""
        return any(u.name == "tile.reduce" and self.reduced(u) in (0, "all") for v in group.values for u in v.users)

    @property
    def elements(self) -> int:
        """The most elements that one tile holds at a time."""
        return max((_held(row) * _held(col) for row, col in (g.lines for g in self.groups)), default=1)

    # layouts
    def assign(self, threads: int, tensor_cores: TensorCores, warpgroups: Collection[Op] = ()) -> dict[str, Layout]:
        """Gives every group a layout; returns the layouts by the names that the source uses. `warpgroups`: the products
        that take four warps to 64 rows."""
        self.threads = threads
        self.tensor_cores = tensor_cores
        names: dict[str, Layout] = {}
        matrices = [g for g in self.groups if not any(v.find() is g for v, _, _ in self._vectors)]
        for group in sorted(matrices, key=lambda g: not g.products):
            layout = self._product(group, threads, tensor_cores, warpgroups) or self._dealt(group, threads)
            self._name(group, layout, names)
        for vector, matrix, axis in sorted(self._vectors, key=lambda r: not r[1].find().products):
            vector, matrix = vector.find(), matrix.find()
            if vector.layout is None:
                if matrix.layout is None:  # a vector of vectors: the matrix is itself one
                    self._name(matrix, self._dealt(matrix, threads), names)
                assert matrix.layout is not None
                layout = matrix.layout.rows(matrix.name) if axis == 1 else matrix.layout.cols(matrix.name)
                self._name(vector, layout, names)
        return names

    def stored_by_matrices(self, v: Value) -> bool:
        """Whether stmatrix takes a tile to shared memory: 16-bit elements in an accumulator's layout, and rows of whole
        pieces. Lanes then write what other lanes hold."""
        layout = self.of(v).layout if is_tile(v) else None
        if layout is None or not layout.tensor_core or not self.tensor_cores.stores or dtype_of(v).bits != 16:
            return False
        rows, cols = layout.shape
        whole = rows % 16 == 0 and cols % (8 * layout.col.t2) == 0
        return whole and shape_of(v)[-1] == cols

    def stored_turned(self, v: Value) -> Value | None:
        """The tile whose transpose `v` is, where stmatrix transposes it on its way to shared memory."""
        op = v.op
        if op is None or op.name != "tile.transpose" or op.attrs["perm"] != (1, 0):
            return None
        return op.operands[0] if self.stored_by_matrices(op.operands[0]) else None

    def _name(self, group: LayoutGroup, layout: Layout, names: dict[str, Layout]) -> None:
        rows, cols = layout.shape
        base = f"Vec{cols}" if rows == 1 and len(group.shape) == 1 else f"Tile{rows}x{cols}"
        name, n = base, 1
        while name in names and names[name] != layout:
            n += 1
            name = f"{base}_{n}"
        names.setdefault(name, layout)
        group.layout, group.name = layout, name

    def _product(
        self, group: LayoutGroup, threads: int, tensor_cores: TensorCores, warpgroups: Collection[Op]
    ) -> Layout | None:
        """The accumulator of tensor-core products, where all products of the group can use them."""
        if not group.products or group.streamed:
            return None
        rows, cols = (line.held for line in group.lines)
        if all(op in warpgroups for op in group.products):
            return fragment(rows, cols, threads // 32, 1)
        if not all(on_tensor_cores(op, tensor_cores) for op in group.products):
            return None
        related = any(m.find() is group and axis == 1 for _, m, axis in self._vectors)
        feeds = any(u.name == "tile.mma" and u.operands[0] in group.values for v in group.values for u in v.users)
        layout = quarters if tensor_cores.rows == 32 else fragment
        return layout(rows, cols, *warp_grid(rows, cols, threads // 32, related or feeds, tensor_cores.rows))

    def _dealt(self, group: LayoutGroup, threads: int) -> Layout:
        rows, cols = (line.held for line in group.lines)
        sums = self._folded(group)
        return blocked(rows, cols, threads, self._vector(group), row_pairs=sums)

    def _vector(self, group: LayoutGroup) -> int:
        """Elements in 16 bytes of the widest dtype that moves between memory and the group."""
        sizes = [1]
        for v in group.values:
            if v.op is not None and v.op.name in ("tile.load", "tile.load_shared", "tile.gather"):
                sizes.append(dtype_of(v).itemsize)
            if any(u.name in ("tile.store", "tile.store_shared", "tile.scatter") for u in v.users):
                sizes.append(dtype_of(v).itemsize)
        vector = 16 // max(*sizes, 4 if len(sizes) == 1 else 1)
        cols = group.shape[-1]
        while vector > 1 and isinstance(cols, int) and cols % vector:
            vector //= 2
        return max(1, vector)


def _held(line: TileLine) -> int:
    """Positions in registers; a size known only at launch counts as endless."""
    if line.chunk is None and not isinstance(line.extent, int):
        return 1 << 40
    return line.held


_ACCUMULATORS = {
    dtypes.f64: (dtypes.f64,),
    dtypes.int8: (dtypes.int32, dtypes.int64),
    dtypes.uint8: (dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64),
}
"""What products of these dtypes may be added to on tensor cores; those of all others to f32."""


@immutable
class TensorCores:
    """The operands of an architecture's mma instructions. `rows`: those of one warp's products, which have 8 columns.
    `stores`: whether stmatrix stores their results."""

    dtypes: frozenset[DType] = frozenset()
    rows: int = 16
    stores: bool = False


def on_tensor_cores(op: Op, cores: TensorCores) -> bool:
    """Whether a product's shape and dtypes fit the architecture's mma instructions."""
    a, b, acc = op.operands[0].type, op.operands[1].type, op.result.type
    assert isinstance(acc, TileType) and not isinstance(a, type(None))
    if has_scales(op):  # `keep_scales` gave it them because an instruction takes them
        return True
    dtype: DType = a.dtype  # type: ignore[union-attr]
    if dtype != b.dtype or dtype not in cores.dtypes or acc.dtype not in _ACCUMULATORS.get(dtype, (dtypes.f32,)):  # type: ignore[union-attr]
        return False
    m, n = acc.shape
    step = mma_depth(dtype)  # type: ignore[arg-type]
    k = a.shape[1] if op.name == "tile.mma" else step  # type: ignore[union-attr]
    return all(isinstance(d, int) for d in (m, n, k)) and m % cores.rows == 0 and n % 8 == 0 and k % step == 0  # type: ignore[operator]
