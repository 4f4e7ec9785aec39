"""What single operations of a kernel take one thread, by the figures of the processor."""

from __future__ import annotations

import math
from typing import cast

from tessera.compiler.figures import LEVELS, Figures
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.tile.loops.sizes import ALONE, FEW, NEAR, SMALL, sample_of
from tessera.compiler.tile.loops.sizes import HEIGHT as COLUMN
from tessera.compiler.tile.loops.sizes import TOGETHER as LONGEST_NETWORK
from tessera.compiler.tile.work import Amount, Work
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE

REACHED = 0.9
"""of the rate of multiply-adds in registers: what products reach beside their loads and ragged edges"""
KEYS = 16
"""operations that make a key of an element, and an element of the key, with a look for zeros and NaN"""
REGISTERS = 16
"""vectors that are sorted between a load and a store of each"""
ROUNDING, WIDENING = {2: 2, 1: 12}, {2: 2, 1: 8}
"""operations that make a narrow float of so many bytes, and that make one wide"""
HALVED = 8
"""operations that round to bf16: its bits, the last of them, half of it, a look for NaN"""
BESIDE = (4, 2)
"""lines whose prefixes are added up side by side"""
SERIAL = 4
"""instructions for an element that is by itself: it is loaded, added and stored, and a loop goes on"""
SEARCH = 5
"""instructions of a step of `argmax`: two comparisons, an "and", two choices"""
_STEPS = {"philox": 50}
"""of what is no function of `scalars.TABLE`; Philox: ten rounds of two products, an addition and two exclusive ors"""
_DIVIDES = frozenset({"tile.div", "tile.sqrt", "tile.reciprocal", "tile.rsqrt"})
_FREE = frozenset(
    {"broadcast", "reshape", "transpose", "iota", "to_scalar", "dim", "program_id", "to_index", "constant", "real",
     "imag", "make_complex", "subview"}
)  # fmt: skip


def number(amount: Amount) -> float:
    return float(cast(float, amount))


def level_of(size: float, figures: Figures) -> str:
    """The first cache of a core, or the last one, that holds so many bytes; else memory."""
    return next((n for n, most in zip(LEVELS, figures.caches, strict=False) if size <= most), LEVELS[-1])


def _narrow(dtype: DType) -> bool:
    return dtype.is_float and dtype.itemsize < 4


def _word(op: Op) -> int:
    """Bytes of what is sorted of an element: its key, and with it the position where that is wanted."""
    size = max(cast("TileType | ViewType", op.operands[2 if op.name == "tile.merge" else 0].type).dtype.itemsize, 4)
    return 2 * size if op.attrs.get("positions") or (op.name == "tile.merge" and len(op.operands) > 3) else size


class Operations:
    """Seconds of one thread for a vector of a kernel's values."""

    def __init__(self, figures: Figures, work: Work) -> None:
        self.figures, self.work = figures, work
        wide = figures.vector
        self.lanes = wide // 4
        self.step = 1 / figures.rate("step f32")
        """of a single operation on an element of four bytes"""
        self.instruction = self.lanes * self.step
        self.load = wide / figures.rate("read L1")
        self.store = max(2 * wide / figures.rate("copy L1") - self.load, self.load)
        self.transposed = wide / 4 / figures.rate("transpose f32")
        """a vector of a block that is transposed in registers, with its load and store"""
        self.shuffle = max(self.transposed - self.load - self.store, 0.0) / math.log2(self.lanes)
        self.apart_lanes = 1 / figures.rate("gather L1")
        """one lane of a vector whose elements lie apart"""

    def divides(self, op: Op) -> bool:
        """Divisions and roots have a unit of their own."""
        return op.name in _DIVIDES

    def vector(self, op: Op) -> float:
        """A vector of the results of an elementwise op."""
        name, dtype = op.name.partition(".")[2], cast(TileType, op.result.type).dtype
        if name in _FREE:
            return 0.0
        rounded = self.rounding(dtype)
        if name == "cast":
            widened = _narrow(cast(TileType, op.operands[0].type).dtype)  # it was when it was loaded
            return rounded or (0.0 if widened else self.instruction)
        if ("narrow" in op.attrs or _narrow(dtype)) and f"{name} f16" in self.figures.rates:
            return self.lanes / self.figures.rate(f"{name} f16") + rounded
        if dtype.is_float and f"{name} f32" in self.figures.rates:
            return self.lanes / self.figures.rate(f"{name} f32") + rounded
        known = TABLE.get(name)
        steps = _STEPS.get(name) or (known.flops if known is not None else 1)
        return max(steps, 1) * self.instruction + rounded

    def combine(self, op: Op) -> float:
        """A vector of elements that a reduction takes up."""
        searching = op.attrs["op"] in ("argmax", "argmin")
        return (SEARCH if searching else 1) * self.instruction

    def widening(self, dtype: DType) -> float:
        """A vector of narrow floats that were loaded."""
        return WIDENING[dtype.itemsize] * self.instruction if _narrow(dtype) else 0.0

    def rounding(self, dtype: DType) -> float:
        """A vector of results that become narrow floats."""
        if not _narrow(dtype):
            return 0.0
        return (HALVED if dtype == dtypes.bf16 else ROUNDING[dtype.itemsize]) * self.instruction

    # -- ops with loops of their own -----------------------------------------------------------------------------------
    def apart(self, op: Op) -> float:
        """All of an op that is written by itself."""
        name = op.name.partition(".")[2]
        if name in ("contract", "mma"):
            return self.product(op)
        if not op.results or not all(isinstance(v.type, TileType) for v in op.results):
            return 0.0
        if name == "scan":
            return self.scan(op)
        if name == "sort":
            return self.sorting(op)
        if name == "merge":
            return self.merge(op)
        return number(self.work.elements(op.result)) * self.vector(op) / self.lanes

    def scan(self, op: Op) -> float:
        """Prefixes: in each line an addition waits for the one before."""
        elements = number(self.work.elements(op.operands[0]))
        shape, axis = self.work.shape(op.operands[0]), cast(int, op.attrs["axis"])
        if axis != len(shape) - 1:
            lanes = min(number(shape[-1]), self.lanes)
            return elements / lanes * max(1 / self.figures.rate("chain f32"), SERIAL * self.instruction)
        lines = math.prod(number(n) for n in shape[:axis])
        beside = next((n for n in BESIDE if lines % n == 0), 1)
        return elements * max(1 / (beside * self.figures.rate("chain f32")), SERIAL * self.instruction)

    def sorting(self, op: Op) -> float:
        """Lines side by side, one in each lane, or the columns of a long line: a network of comparators, each of two
        operations for two elements and one to move them. Columns of a long line are merged."""
        shape, axis = [number(n) for n in self.work.shape(op.operands[0])], cast(int, op.attrs["axis"])
        elements, length = math.prod(shape), max(shape[axis], 2)
        word = _word(op)
        sample = sample_of(int(shape[axis]), int(number(self.work.shape(op.result)[axis])))
        if sample is not None and (length * word >= ALONE or length > LONGEST_NETWORK):
            return elements / length * self.selecting(int(length), sample, word)
        beside = length <= (LONGEST_NETWORK if 2 * elements >= length * self.lanes else FEW)
        height = 2 ** math.ceil(math.log2(length)) if beside else COLUMN
        wanted = min(height, max(number(self.work.shape(op.result)[axis]), REGISTERS)) if beside else height
        width = math.log2(wanted)
        levels = width * (width + 1) / 2 + (width if height > wanted else 0)
        level = level_of(height * self.lanes * word, self.figures)
        moved = levels / math.log2(REGISTERS) * 2 * word / self.figures.rate(f"copy {level}")
        compared = 1.5 * levels * self.step * word / 4
        entered = word / 4 * (2 / self.figures.rate("transpose f32") + KEYS * self.step)
        merged = 0.0 if beside else max(math.log2(length / height), 0) * self.merging(word)
        return elements * (entered + max(compared, moved) + merged)

    def selecting(self, n: int, sample: tuple[int, int], word: int) -> float:
        """A line is compared with a bound from a sample; what is up to that bound is sorted, as the sample is."""
        some = sample[0] + n * sample[1] / sample[0]
        rows = max(math.log2(some / self.lanes), 1)
        ordered = 1.5 * rows * (rows + 1) / 2 * self.step * word / 4 + math.log2(self.lanes) * self.merging(word)
        return n * ((KEYS + 2) * self.step + 1 / self.figures.rate("copy L2") * 4) + some * ordered

    def merging(self, word: int) -> float:
        """Seconds for an element of two runs that become one."""
        return word / 4 / self.figures.rate("merge i32")

    def merge(self, op: Op) -> float:
        """A part of a line from its sorted runs; with positions, keys are where these say."""
        elements, view = number(self.work.elements(op.result)), cast(ViewType, op.operands[-1].type)
        runs = max(number(view.shape[1]) / cast(int, op.attrs["run"]), 2)
        table = view.shape[1] * cast(ViewType, op.operands[2].type).dtype.itemsize  # type: ignore[operator]
        level = level_of(number(table), self.figures)
        apart = (
            1 / self.figures.rate(f"line {level if level != LEVELS[0] else LEVELS[1]}") if len(op.operands) > 3 else 0.0
        )
        return elements * (math.log2(runs) * self.merging(_word(op)) + apart)

    def product(self, op: Op) -> float:
        """Multiply-adds of blocks of rows, and the packing of the operands where it is a large one. Lanes hold
        columns; where these are few, steps of a sum, and rows are turned in registers."""
        rows, columns, length = map(number, self.work.product(op))
        dtype = cast("TileType | ViewType", op.operands[0].type).dtype
        rate = REACHED * self.product_rate(dtype)
        if op.name == "tile.mma":
            return 2 * rows * columns * length / rate
        lanes = self.figures.vector // max(dtype.itemsize, 4)
        if columns < lanes / 2:
            turned = (math.log2(lanes) - 1) / lanes * self.shuffle
            return 2 * rows * columns * length / rate + rows * length * turned
        right = op.operands[1].type
        across = isinstance(right, ViewType) and right.strides is not None and right.strides[-1] != 1
        large = across or rows * columns * length > SMALL
        packed = (rows + columns) * length * dtype.itemsize if large else 0.0
        if packed and length <= NEAR and self.figures.vector == 64 and dtype in (dtypes.f32, dtypes.f64):
            packed = columns * length * dtype.itemsize if across else 0.0
        filled = -(-columns // lanes) * lanes
        return 2 * rows * filled * length / rate + 2 * packed / self.figures.rate("copy L3")

    def product_rate(self, dtype: DType) -> float:
        """Operations in a second, by one thread."""
        name = "int8" if dtype == dtypes.uint8 else dtype.name
        name = f"product {name}"
        return self.figures.rate(name if name in self.figures.rates else "product f32") / (4 if dtype.is_complex else 1)
