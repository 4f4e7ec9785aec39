"""Layouts: which element of a tile is in which register of which thread. The mirror of include/tessera/tile.cuh.

A tile is seen as a matrix: unit dims vanish, a vector is one row, and of more than two dims the leading ones are one
axis. Each axis of the matrix is spread over threads and registers by digits of the position (see `Axis`).
"""

from __future__ import annotations

from dataclasses import field

from tessera.immutable import immutable
from tessera.language.order import PARTIALS_ACROSS, PARTIALS_ALONG

PARTIALS = {1: PARTIALS_ALONG, 0: PARTIALS_ACROSS}
"""How many interleaved partial results a reduction over columns (1) and over rows (0) keeps."""


def power_of_two(n: int) -> int:
    """The least power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def log2(n: int) -> int:
    return n.bit_length() - 1


@immutable
class AxisLayout:
    """From the position's lowest digit up: t0 threads, inner registers, t1 threads, t2 threads, outer registers."""

    extent: int
    t0: int = 1
    s0: int = 0
    inner: int = 1
    t1: int = 1
    s1: int = 0
    t2: int = 1
    s2: int = 0
    outer: int = 1

    @property
    def registers(self) -> int:
        return self.inner * self.outer

    def position(self, register: int, thread: int) -> int:
        """The position that a thread holds in a register."""
        digits = ((self.t0, self.s0), (self.t1, self.s1), (self.t2, self.s2))
        a, b, c = (thread >> shift & (count - 1) for count, shift in digits)
        outer, inner = divmod(register, self.inner)
        return (((outer * self.t2 + c) * self.t1 + b) * self.inner + inner) * self.t0 + a

    @property
    def bits(self) -> int:
        """The bits of a thread's number that the positions it holds depend on."""
        return (self.t0 - 1) << self.s0 | (self.t1 - 1) << self.s1 | (self.t2 - 1) << self.s2

    def warp_exchange(self, warps: int) -> bool:
        """Whether a reduction along this axis crosses warps, which takes shared memory."""
        return self.bits >= 32


ONE = AxisLayout(1)


@immutable
class Layout:
    """`spelling` is the C++ type, which is equal wherever the axes are."""

    row: AxisLayout
    col: AxisLayout
    spelling: str = field(compare=False, default="")

    @property
    def registers(self) -> int:
        return self.row.registers * self.col.registers

    @property
    def shape(self) -> tuple[int, int]:
        return self.row.extent, self.col.extent

    def repeated(self, threads: int) -> bool:
        """Whether several threads hold the same element. One of them stores it."""
        return self.row.bits | self.col.bits != threads - 1

    @property
    def vector(self) -> int:
        """Neighbouring columns in neighbouring registers: what one load or store moves at most."""
        return self.col.inner if self.col.t0 == 1 else 1

    @property
    def tensor_core(self) -> bool:
        """Whether it is the accumulator of mma instructions."""
        return self.row.t0 == 8

    @property
    def quarters(self) -> bool:
        """Whether it is the accumulator of sm_70's."""
        return self.row.t0 == 2

    def rows(self, name: str) -> Layout:
        """Vectors with one element per row; `name` is how this layout is called in the source."""
        return Layout(ONE, self.row, f"ts::RowsOf<{name}>")

    def cols(self, name: str) -> Layout:
        return Layout(ONE, self.col, f"ts::ColsOf<{name}>")

    def describe(self) -> str:
        """For people: `64x128 f32`-like shapes are shown elsewhere; this shows which thread holds which elements."""
        return self.spelling.removeprefix("ts::")


def blocked(rows: int, cols: int, threads: int, vector: int, *, row_pairs: bool = False) -> Layout:
    """Threads dealt out over a rows x cols tile: whole warps along a row where rows suffice for the other warps.

    `vector`: neighbouring columns that one thread should hold; fewer where the tile is too small to occupy all threads.
    `row_pairs`: two neighbouring rows per thread, which saves a reduction over rows its costliest exchange.
    """
    while vector > 1 and rows * cols < threads * vector:
        vector //= 2
    along = min(threads, power_of_two(-(-cols // vector)))
    if rows >= threads // 32:
        along = min(along, 32)
    pair = 2 if row_pairs and rows >= 2 else 1
    across = threads // along
    while across > 1 and (across > power_of_two(-(-rows // pair)) or across * pair > PARTIALS[0]):
        across, along = across // 2, along * 2
    vector = max(1, min(vector, PARTIALS[1] // along))
    row = AxisLayout(rows, inner=pair, t1=across, s1=log2(along), outer=-(-rows // (pair * across)))
    col = AxisLayout(cols, inner=vector, t1=along, outer=-(-cols // (vector * along)))
    tail = f", {pair}" if pair > 1 else ""
    return Layout(row, col, f"ts::Blocked<{rows}, {cols}, {across}, {along}, {vector}{tail}>")


def fragment(rows: int, cols: int, warps_down: int, warps_across: int) -> Layout:
    """The accumulator of mma.m16n8 products spread over warps_down x warps_across warps. Four warps down and one across
    hold what one wgmma.m64 gives."""
    row = AxisLayout(rows, 8, 2, 2, warps_down, 5 + log2(warps_across), outer=-(-rows // (16 * warps_down)))
    col = AxisLayout(cols, inner=2, t1=4, s1=0, t2=warps_across, s2=5, outer=-(-cols // (8 * warps_across)))
    return Layout(row, col, f"ts::Fragment<{rows}, {cols}, {warps_down}, {warps_across}>")


def quarters(rows: int, cols: int, warps_down: int, warps_across: int) -> Layout:
    """The accumulator of sm_70's mma.m8n8k4: each fourth of a warp has 8 rows of 32."""
    row = AxisLayout(rows, 2, 0, 2, 4, 2, 2 * warps_down, 4, outer=-(-rows // (32 * warps_down)))
    col = AxisLayout(
        cols, inner=2, t1=2, s1=1, t2=warps_across, s2=5 + log2(warps_down), outer=-(-cols // (4 * warps_across))
    )
    return Layout(row, col, f"ts::Quarters<{rows}, {cols}, {warps_down}, {warps_across}>")


def warp_grid(rows: int, cols: int, warps: int, keep_rows: bool, height: int = 16) -> tuple[int, int]:
    """How warps, each with `height` rows at a time, divide an accumulator: down the rows first where rows are reduced
    or feed another product (a row then stays inside one warp), else as square as possible, which reads the fewest
    operand bytes from shared memory."""
    best = (1, 1)
    down = 1
    while down <= warps and rows % (height * down) == 0 and height * down <= PARTIALS[0]:
        across = warps // down
        while across > 1 and cols % (8 * across):
            across //= 2
        better = down * across > best[0] * best[1] or (
            down * across == best[0] * best[1]
            and (keep_rows or rows // down + cols // across < rows // best[0] + cols // best[1])
        )
        if better:
            best = (down, across)
        down *= 2
    return best


def fold_scratch(kept: int, axis: AxisLayout, threads: int, itemsize: int) -> int:
    """Bytes of shared memory that reducing `kept` vectors along `axis` exchanges between warps at once (0: none)."""
    if not axis.warp_exchange(threads // 32):
        return 0
    low = axis.t0 * axis.inner * axis.t1 * axis.t2
    outer = min(axis.outer, max(1, PARTIALS[1] // low))
    first_in_thread = axis.t0 == 1 and (axis.inner > 1 or (axis.t1 == 1 and axis.t2 == 1))
    live = kept * (max(1, axis.inner // 2) if first_in_thread else outer * axis.inner)
    return live * threads * itemsize
