"""The functions of kernels, for type checkers and editors. Made by scripts/make_stubs.py."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def helper(function: Callable[..., T]) -> Callable[..., T]:
    """Marks a function as one that kernels call, for its readers. It stays what it is; a plain function serves as well.

    It is inlined where it is called. Its annotations are checked there: `Tile["m", f32]` binds m to the size of a tile.
    """


def abs(x: Any) -> Any:
    """|x|, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the dtype of the real part, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def add(x: Any, y: Any) -> Any:
    """x + y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* any -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def all(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """Whether every element is true, along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def alloc_shared(shape: Any, dtype: Any = 'f32', swizzle: str = 'none') -> Any:
    """A new, uninitialised tile in shared memory.

    `swizzle` is "none" or "xor". With either, the compiler swaps the 16-byte pieces of rows within 32, 64 or 128 bytes
    if that avoids bank conflicts; the panel shows the layout. Results do not depend on it.

    - *Shapes:* gives `shape`, known at compile time
    - *Dtypes:* gives `dtype`
    - *Cost:* Its bytes of a multiprocessor's shared memory (TS405 where there are too few); on a CPU scratch memory.
    """

def any(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """Whether any element is true, along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def arange(start: Any, stop: Any = None) -> Any:
    """The integers start, start + 1, ... below `stop`; with one argument from 0.

    - *Shapes:* gives `[stop - start]`, known at compile time
    - *Dtypes:* gives int64
    - *Cost:* Nothing: computed from the position where it is used.
    """

def argmax(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """The position of the largest element (the first of equal ones) along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* real numbers -> int64
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def argmin(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """The position of the smallest element (the first of equal ones) along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* real numbers -> int64
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def argsort(x: Any, axis: int = -1, descending: bool = False, *, dim: Any = ...) -> Any:
    """The positions from which `sort` takes its elements.

    - *Shapes:* `[..., N, ...] -> [..., N, ...]`
    - *Dtypes:* real numbers and bools -> int64
    - *Cost:* N log N comparisons of each line on a CPU (merge sort); on a GPU N log² N in a network, in shared memory: an element's size and 4 bytes for each element of the tile.
    """

def associative_scan(values: Any, combine: Any, axis: Any = -1, reverse: Any = False, identity: Any = None, *, dim: Any = ...) -> Any:
    """An inclusive scan by your own function along `axis`: element i combines elements 0 to i. With `reverse`, it
    combines elements i to the last, and `combine` takes the later element first.

    Elements that do not exist, at a ragged edge or behind a mask, are left out, or replaced by `identity`, a number
    for each tile. The order of combination depends only on the positions, and is the same on every target.

    `combine` is a function or lambda of two elements, the left one first, that gives one. Over a tuple of tiles it takes
    two tuples and gives one, or it takes all elements of the left, then of the right one. It must be associative and need
    not be commutative, for the order of elements is kept. It computes with elements alone; an `if` in it chooses among
    them.

    - *Shapes:* `[..., N, ...] -> [..., N, ...]`; of a tuple a tuple
    - *Dtypes:* any -> the dtype, f32 for narrower floats
    - *Cost:* One call of `combine` for each element, at most two. The tiles are in scratch memory, or in shared memory on a GPU, where the threads combine as many pairs at once as there are.
    """

def atan(x: Any) -> Any:
    """inverse tangent, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 20 operations for each element, in registers.
    """

def atan2(y: Any, x: Any) -> Any:
    """the angle of the point (y, x), element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 25 operations for each element, in registers.
    """

def barrier() -> Any:
    """Waits for this program's async copies, then for all its threads.

    - *Cost:* A few dozen cycles on a GPU, nothing on a CPU. The compiler inserts a missing one, with a note (TS408).
    """

def bit_and(x: Any, y: Any) -> Any:
    """bitwise and, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* integers and bools -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def bit_not(x: Any) -> Any:
    """bitwise not, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* integers and bools -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def bit_or(x: Any, y: Any) -> Any:
    """bitwise or, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* integers and bools -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def bit_xor(x: Any, y: Any) -> Any:
    """bitwise xor, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* integers and bools -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def cast(x: Any, dtype: Any) -> Any:
    """The elements converted to `dtype`, rounded to nearest even.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* any -> `dtype`; complex numbers to complex ones only
    - *Cost:* One conversion for each element; none if the dtype does not change.
    """

def cat(tiles: Any, axis: Any = -1, *, dim: Any = ...) -> Any:
    """Tiles joined along `axis`.

    - *Shapes:* `([M, N], [M, K], ...) -> [M, N + K + ...]`
    - *Dtypes:* any -> the same, or the common dtype
    - *Cost:* Every element moves through scratch memory, or through shared memory on a GPU.
    """

def causal_mask(scores: Any, q0: Any, k0: Any, value: float = float("-inf"), transposed: bool = False) -> Any:
    """`scores` where query q0 + row is not before key k0 + column, else `value`.

    `transposed`: the scores have a row for each key and a column for each query.

    - *Shapes:* `[M, N] -> [M, N]`; `q0` and `k0` are indices
    - *Dtypes:* any number -> the same, or the common dtype with `value`
    - *Cost:* Two comparisons and a selection for each element.
    """

def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up.

    - *Shapes:* two sizes give a size; integer tiles and numbers give a tile, as in other arithmetic
    - *Dtypes:* integers -> their common dtype
    - *Cost:* Nothing for sizes; a division for each element of tiles.
    """

def ceil(x: Any) -> Any:
    """smallest integer >= x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* floats -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def col_all(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """Whether every element is true, in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def col_any(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """Whether any element is true, in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def col_argmax(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The position of the largest element (the first of equal ones) in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* real numbers -> int64
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def col_argmin(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The position of the smallest element (the first of equal ones) in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* real numbers -> int64
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def col_max(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The largest element in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* real numbers -> the dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def col_mean(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The mean of the elements that exist in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* numbers and bools -> the dtype, f32 for integers and narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def col_min(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The smallest element in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* real numbers -> the dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def col_prod(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The product in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* numbers and bools -> the dtype, f32 for narrower floats, 64 bits for integers and bools
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def col_sum(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The sum in each column of a tile with two axes, as a vector of the columns.

    - *Shapes:* `[M, N] -> [N]`, or `[1, N]` with `keepdim=True`
    - *Dtypes:* numbers and bools -> the dtype, f32 for narrower floats, 64 bits for integers and bools
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def concat(tiles: Any, axis: Any = -1, *, dim: Any = ...) -> Any:
    """Tiles joined along `axis`.

    - *Shapes:* `([M, N], [M, K], ...) -> [M, N + K + ...]`
    - *Dtypes:* any -> the same, or the common dtype
    - *Cost:* Every element moves through scratch memory, or through shared memory on a GPU.
    """

def concatenate(tiles: Any, axis: Any = -1, *, dim: Any = ...) -> Any:
    """Tiles joined along `axis`.

    - *Shapes:* `([M, N], [M, K], ...) -> [M, N + K + ...]`
    - *Dtypes:* any -> the same, or the common dtype
    - *Cost:* Every element moves through scratch memory, or through shared memory on a GPU.
    """

def context() -> Any:
    """The bound dims (`ctx.S`) and the schedule's parameters (`ctx.BLOCK_M`, `ctx.num_warps` ...).

    - *Shapes:* gives sizes and numbers that are known at compile time
    - *Cost:* Nothing.
    """

def copy_async(shared: Any, source: Any) -> Any:
    """Starts copying a block of a tensor into a shared tile. The data are there after the next barrier.

    - *Shapes:* the shared tile's shape
    - *Dtypes:* the shared tile's dtype: a copy does not convert
    - *Cost:* The block's bytes from memory, while the program continues; on a CPU immediately.
    """

def cos(x: Any) -> Any:
    """cosine of radians, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 15 operations for each element, in registers.
    """

def cosh(x: Any) -> Any:
    """hyperbolic cosine, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 20 operations for each element, in registers.
    """

def cp_async(shared: Any, source: Any) -> Any:
    """Starts copying a block of a tensor into a shared tile. The data are there after the next barrier.

    - *Shapes:* the shared tile's shape
    - *Dtypes:* the shared tile's dtype: a copy does not convert
    - *Cost:* The block's bytes from memory, while the program continues; on a CPU immediately.
    """

def cummax(x: Any, axis: int = -1, *, dim: Any = ...) -> Any:
    """The running maximum along `axis`, in ascending order: element i is that of elements 0 to i.

    - *Shapes:* `[..., N, ...] -> [..., N, ...]`
    - *Dtypes:* real numbers -> the dtype, f32 for narrower floats, int64 for integers
    - *Cost:* One operation for each element, one after the other on a CPU; on a GPU segments of 32 at once, in shared memory.
    """

def cummin(x: Any, axis: int = -1, *, dim: Any = ...) -> Any:
    """The running minimum along `axis`, in ascending order: element i is that of elements 0 to i.

    - *Shapes:* `[..., N, ...] -> [..., N, ...]`
    - *Dtypes:* real numbers -> the dtype, f32 for narrower floats, int64 for integers
    - *Cost:* One operation for each element, one after the other on a CPU; on a GPU segments of 32 at once, in shared memory.
    """

def cumprod(x: Any, axis: int = -1, *, dim: Any = ...) -> Any:
    """The running product along `axis`, in ascending order: element i is that of elements 0 to i.

    - *Shapes:* `[..., N, ...] -> [..., N, ...]`
    - *Dtypes:* numbers -> the dtype, f32 for narrower floats, int64 for integers
    - *Cost:* One operation for each element, one after the other on a CPU; on a GPU segments of 32 at once, in shared memory.
    """

def cumsum(x: Any, axis: int = -1, *, dim: Any = ...) -> Any:
    """The running sum along `axis`, in ascending order: element i is that of elements 0 to i.

    - *Shapes:* `[..., N, ...] -> [..., N, ...]`
    - *Dtypes:* numbers -> the dtype, f32 for narrower floats, int64 for integers
    - *Cost:* One operation for each element, one after the other on a CPU; on a GPU segments of 32 at once, in shared memory.
    """

def debug_assert(condition: Any, message: Any = '') -> Any:
    """In debug mode, checks every element of the condition that the surrounding `if`s select.

    - *Shapes:* a tile of any shape, or a value known at compile time (then TS106 at once)
    - *Dtypes:* bool, or true where it is not 0
    - *Cost:* Nothing without `TESSERA_DEBUG=1`.
    """

def debug_print(*values: Any) -> Any:
    """Prints tiles once per program, in the order of programs, with the preceding strings as labels.

    On a GPU a launch keeps at most 64 MiB of output; the rest is counted.

    - *Shapes:* strings, and tiles of any shape
    - *Dtypes:* any
    - *Cost:* Every element is written out: for looking, not for kernels that should be fast.
    """

def device_assert(condition: Any, message: Any = '') -> Any:
    """In debug mode, checks every element of the condition that the surrounding `if`s select.

    - *Shapes:* a tile of any shape, or a value known at compile time (then TS106 at once)
    - *Dtypes:* bool, or true where it is not 0
    - *Cost:* Nothing without `TESSERA_DEBUG=1`.
    """

def div(x: Any, y: Any) -> Any:
    """x / y; integers divide as f32, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def dot(a: Any, b: Any, accumulator: Any = None, a_scale: Any = None, b_scale: Any = None) -> Any:
    """accumulator + a @ b for tiles [M, K] and [K, N], in shared memory or not, and for batches of them.

    The axes before the last two are a batch and broadcast as in NumPy's matmul. Each matrix of a batch has the same
    bits as alone.

    Operands of fp6 and fp4 are multiplied as f16, and fp8_e8m0 as bf16, which hold all their values.

    `a_scale` [..., M, K / B] and `b_scale` [..., K / B, N] are scales of blocks along K: fp8_e8m0 of B = 32 (the OCP
    Microscaling formats), or fp8_e4m3 of B = 16 (NVFP4). Operands of up to 8 bits or bf16 are multiplied by their
    scales, rounded to bf16, and then multiplied. For 8 bits and fewer this is exact within the range of bf16.

    `accumulator` is a dtype (the sum starts at 0) or a tile; by default f32 for floats up to f32, f64 for f64, int64
    for integers. Operands of two float dtypes are multiplied in the narrower one. Up to 128 products are added in
    order, starting from the accumulator; for longer tiles, such chains are added (decision 8).

    - *Shapes:* `[..., M, K], [..., K, N] -> [..., M, N]`; up to 64 matrices; scales as above
    - *Dtypes:* numbers -> the accumulator's
    - *Cost:* 2 M N K operations for each matrix; on tensor cores bf16, f16 and fp8 where the GPU has them.
    """

def each() -> Any:
    """An index with one program for each element of the axis. Leading dims without an index have it implicitly:
    `x[ts.tile.each(), i : i + 16]` is `x[i : i + 16]` if `i` walks the second axis.

    - *Shapes:* indexes one axis of a tensor, which the tile then does not have
    - *Cost:* Nothing.
    """

def eq(x: Any, y: Any) -> Any:
    """x == y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in registers.
    """

def erf(x: Any) -> Any:
    """error function, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 20 operations for each element, in registers.
    """

def exp(x: Any) -> Any:
    """e**x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 10 operations for each element, in registers.
    """

def exp2(x: Any) -> Any:
    """2**x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 9 operations for each element, in registers.
    """

def expand_dims(x: Any, axis: Any, *, dim: Any = ...) -> Any:
    """A new axis of size 1 at `axis`, as in `x[:, None]`.

    - *Shapes:* `[M, N] -> [1, M, N]`, `[M, 1, N]` or `[M, N, 1]`
    - *Dtypes:* any -> the same
    - *Cost:* Nothing: no element moves.
    """

def expm1(x: Any) -> Any:
    """e**x - 1, exact near 0, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 12 operations for each element, in registers.
    """

def fabs(x: Any) -> Any:
    """|x|, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the dtype of the real part, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def flip(x: Any, axis: Any = -1, *, dim: Any = ...) -> Any:
    """The elements along `axis` in reverse order, like `x[::-1]`. Elements that do not exist, at a ragged edge, come
    first.

    - *Shapes:* `[..., N, ...] -> [..., N, ...]`
    - *Dtypes:* any -> the same
    - *Cost:* Every element moves through scratch memory, or through shared memory on a GPU.
    """

def floor(x: Any) -> Any:
    """largest integer <= x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* floats -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def floordiv(x: Any, y: Any) -> Any:
    """floor(x / y), element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> the common dtype, f32 for narrower floats
    - *Cost:* 2 operations for each element, in registers.
    """

def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once where the target can, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* floats -> the common dtype, f32 for narrower floats
    - *Cost:* 2 operations for each element, in registers.
    """

def full(shape: Any, value: Any, dtype: Any = 'f32') -> Any:
    """A tile filled with `value`; `shape` is known at compile time.

    - *Shapes:* gives `shape`; `value` is a number or a tile of one element
    - *Dtypes:* gives `dtype`
    - *Cost:* Nothing: one number stands for all elements.
    """

def gather(source: Any, index: Any, *more: Any, axis: Any = -1, dim: Any = ...) -> Any:
    """Elements of a tensor at computed indices, one integer tile per axis. For a tile, elements along `axis`, as in
    NumPy's `take_along_axis`: `index` is as long as the tile along the other axes. An index out of range, also a
    negative one, gives padding: 0, and left out of reductions.

    - *Shapes:* the index tiles' common shape; of a tile `[M, N], [M, K] -> [M, K]` for the last axis
    - *Dtypes:* indices are integers; gives the dtype of the tensor or tile
    - *Cost:* One access for each element, and the more the further apart they lie; of a tile in shared or scratch memory.
    """

def ge(x: Any, y: Any) -> Any:
    """x >= y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> bool
    - *Cost:* One operation for each element, in registers.
    """

def gelu(x: Any) -> Any:
    """x * Phi(x), Phi the normal distribution function (erf form), element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 23 operations for each element, in registers.
    """

def gelu_tanh(x: Any) -> Any:
    """the tanh approximation of gelu, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 22 operations for each element, in registers.
    """

def grid(*lengths: Any, grouped: Any = None, persistent: Any = False) -> Any:
    """Sets properties of the grid that the compiler cannot derive. Call it once, at the top. It does not change a bit
    of the results.

    `lengths`: the number of programs along axis 0, 1 and 2 of `program_id`. The default is one for each block that they
    index. With fewer, each program takes several steps: `for t in ts.tile.range(p, tiles, ts.tile.num_programs())`.

    `grouped`: the order of programs along the last two axes of the grid: down this many rows, then on to the next
    column. Products then find more of their operands in the second-level cache.

    `persistent`: the GPU launches only as many blocks as it runs at the same time, and each runs several programs in
    turn. Programs cannot observe this. On a CPU, worker threads always share the programs like this.

    - *Shapes:* `lengths` are sizes; `grouped` is a number known at compile time
    - *Cost:* Nothing; `grouped` two divisions for each program.
    """

def gt(x: Any, y: Any) -> Any:
    """x > y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> bool
    - *Cost:* One operation for each element, in registers.
    """

def imag(x: Any) -> Any:
    """the imaginary part of x; 0 of a real number, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* complex numbers -> the dtype of the real part, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def isfinite(x: Any) -> Any:
    """whether x is neither NaN nor infinite, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* floats -> bool
    - *Cost:* One operation for each element, in registers.
    """

def isinf(x: Any) -> Any:
    """whether x is infinite, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* floats -> bool
    - *Cost:* One operation for each element, in registers.
    """

def isnan(x: Any) -> Any:
    """whether x is NaN, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* floats -> bool
    - *Cost:* One operation for each element, in registers.
    """

def le(x: Any, y: Any) -> Any:
    """x <= y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> bool
    - *Cost:* One operation for each element, in registers.
    """

def linear_id() -> Any:
    """The global element index over the launch, as a vector of `BLOCK` lanes. `if i < n:` is a mask.

    - *Shapes:* gives `[BLOCK]`
    - *Dtypes:* gives int64
    - *Cost:* Nothing: addresses are computed from the first lane's.
    """

def load(source: Any, shape: Any = None, mask: Any = None, other: Any = None, prefetch: Any = 1) -> Any:
    """A block of a tensor as a tile. Elements that are masked out, or outside of the tensor, are `other`; without
    `other` they are padding: 0, and left out of reductions.

    With `shape`, this program's block of a parameter; axes that no output has stay open for `load_partition`, and
    `prefetch` is the number of partitions in flight.

    - *Shapes:* the block's shape; `mask` has the block's axes, or some of them
    - *Dtypes:* the tensor's
    - *Cost:* The block's bytes, where they are not cached; neighbours along the last axis are read together.
    """

def load_partition(panel: Any, *at: Any) -> Any:
    """The partition of `load(tensor, shape=...)` that starts at element `at` of its open axis (of each open axis, in
    order).

    - *Shapes:* the `shape` that `load` was given
    - *Dtypes:* the tensor's
    - *Cost:* As `load`; fetched `prefetch` steps ahead.
    """

def log(x: Any) -> Any:
    """natural logarithm, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 10 operations for each element, in registers.
    """

def log10(x: Any) -> Any:
    """logarithm to base 10, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 11 operations for each element, in registers.
    """

def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 12 operations for each element, in registers.
    """

def log2(x: Any) -> Any:
    """logarithm to base 2, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 10 operations for each element, in registers.
    """

def logical_and(x: Any, y: Any) -> Any:
    """x and y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in registers.
    """

def logical_not(x: Any) -> Any:
    """not x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in registers.
    """

def logical_or(x: Any, y: Any) -> Any:
    """x or y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in registers.
    """

def logical_xor(x: Any, y: Any) -> Any:
    """x xor y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in registers.
    """

def lt(x: Any, y: Any) -> Any:
    """x < y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> bool
    - *Cost:* One operation for each element, in registers.
    """

def make_complex(x: Any, y: Any) -> Any:
    """the complex number x + y i, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* floats -> the complex dtype with such parts
    - *Cost:* One operation for each element, in registers.
    """

def max(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """The largest element along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* real numbers -> the dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def maximum(x: Any, y: Any) -> Any:
    """the larger of x and y; NaN if either is NaN, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def mean(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """The mean of the elements that exist along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* numbers and bools -> the dtype, f32 for integers and narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def min(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """The smallest element along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* real numbers -> the dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def minimum(x: Any, y: Any) -> Any:
    """the smaller of x and y; NaN if either is NaN, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def mma(a: Any, b: Any, accumulator: Any = None, a_scale: Any = None, b_scale: Any = None) -> Any:
    """accumulator + a @ b for tiles [M, K] and [K, N], in shared memory or not, and for batches of them.

    The axes before the last two are a batch and broadcast as in NumPy's matmul. Each matrix of a batch has the same
    bits as alone.

    Operands of fp6 and fp4 are multiplied as f16, and fp8_e8m0 as bf16, which hold all their values.

    `a_scale` [..., M, K / B] and `b_scale` [..., K / B, N] are scales of blocks along K: fp8_e8m0 of B = 32 (the OCP
    Microscaling formats), or fp8_e4m3 of B = 16 (NVFP4). Operands of up to 8 bits or bf16 are multiplied by their
    scales, rounded to bf16, and then multiplied. For 8 bits and fewer this is exact within the range of bf16.

    `accumulator` is a dtype (the sum starts at 0) or a tile; by default f32 for floats up to f32, f64 for f64, int64
    for integers. Operands of two float dtypes are multiplied in the narrower one. Up to 128 products are added in
    order, starting from the accumulator; for longer tiles, such chains are added (decision 8).

    - *Shapes:* `[..., M, K], [..., K, N] -> [..., M, N]`; up to 64 matrices; scales as above
    - *Dtypes:* numbers -> the accumulator's
    - *Cost:* 2 M N K operations for each matrix; on tensor cores bf16, f16 and fp8 where the GPU has them.
    """

def mod(x: Any, y: Any) -> Any:
    """x - y * floor(x / y): the sign of y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* real numbers -> the common dtype, f32 for narrower floats
    - *Cost:* 3 operations for each element, in registers.
    """

def mul(x: Any, y: Any) -> Any:
    """x * y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* any -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def ne(x: Any, y: Any) -> Any:
    """x != y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in registers.
    """

def neg(x: Any) -> Any:
    """-x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def negative(x: Any) -> Any:
    """-x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def num_programs(axis: int = 0, *, dim: Any = ...) -> Any:
    """The number of programs along grid axis `axis`.

    - *Shapes:* gives an index
    - *Cost:* Nothing.
    """

def ones(shape: Any, dtype: Any = 'f32') -> Any:
    """A tile of ones; `shape` is known at compile time.

    - *Shapes:* gives `shape`
    - *Dtypes:* gives `dtype`
    - *Cost:* Nothing: a constant.
    """

def permute(x: Any, *axes: Any) -> Any:
    """The axes in reverse order, or in the order given.

    - *Shapes:* `[M, N] -> [N, M]`; with `axes` any order
    - *Dtypes:* any -> the same
    - *Cost:* Nothing on a CPU. On a GPU the elements move through shared memory, unless a product reads or a store writes a shared tile the other way round.
    """

def pow(x: Any, y: Any) -> Any:
    """x to the power y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* numbers -> the common dtype, f32 for narrower floats
    - *Cost:* 20 operations for each element, in registers.
    """

def power(x: Any, y: Any) -> Any:
    """x to the power y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* numbers -> the common dtype, f32 for narrower floats
    - *Cost:* 20 operations for each element, in registers.
    """

def print(*values: Any) -> Any:
    """Prints tiles once per program, in the order of programs, with the preceding strings as labels.

    On a GPU a launch keeps at most 64 MiB of output; the rest is counted.

    - *Shapes:* strings, and tiles of any shape
    - *Dtypes:* any
    - *Cost:* Every element is written out: for looking, not for kernels that should be fast.
    """

def prod(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """The product along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* numbers and bools -> the dtype, f32 for narrower floats, 64 bits for integers and bools
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def program_id(axis: int = 0, *, dim: Any = ...) -> Any:
    """This program's number on grid axis `axis` (0, 1 or 2); what the number indexes gives the axis its length.

    - *Shapes:* gives an index
    - *Cost:* Nothing.
    """

def random_bits(seed: Any, at: Any) -> Any:
    """64 random bits for each element.

    `at` is the number of each element and `seed` an integer: element i equals `ts.random_bits(seed, shape)` at
    row-major position i (Philox4x32-10), for any blocks, schedule and target.

    - *Shapes:* `[], [...] -> [...]`
    - *Dtypes:* whole numbers -> uint64
    - *Cost:* About 80 integer operations an element.
    """

def range(*bounds: Any) -> Any:
    """`range(stop)`, `range(start, stop)`, `range(start, stop, step)`. Outermost: a grid axis. Nested: serial,
    ascending.

    - *Shapes:* gives an index for each step
    - *Dtypes:* bounds are sizes, indices or integers; the step is positive
    - *Cost:* Outermost one program a step; nested a loop.
    """

def range_k(*bounds: Any) -> Any:
    """As `range`, but always serial.

    - *Shapes:* gives an index for each step
    - *Dtypes:* as for `range`
    - *Cost:* A loop; loads from memory are fetched `num_stages` steps ahead.
    """

def real(x: Any) -> Any:
    """the real part of x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* complex numbers -> the dtype of the real part, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def reciprocal(x: Any) -> Any:
    """1 / x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def reduce(values: Any, combine: Any, axis: Any = None, identity: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """Reduces the elements along `axis` (one, a tuple, or all by default) by your own function.

    Elements that do not exist, at a ragged edge or behind a mask, are left out. If no element exists, the result is
    `identity`, a number for each tile, by default 0. Neighbours are combined first, then neighbouring results, in the
    same order on every target.

    `combine` is a function or lambda of two elements, the left one first, that gives one. Over a tuple of tiles it takes
    two tuples and gives one, or it takes all elements of the left, then of the right one. It must be associative and need
    not be commutative, for the order of elements is kept. It computes with elements alone; an `if` in it chooses among
    them.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both; of a tuple a tuple
    - *Dtypes:* any -> the dtype, f32 for narrower floats
    - *Cost:* One call of `combine` for each element. The tiles are in scratch memory, or in shared memory on a GPU, where the threads combine as many pairs at once as there are.
    """

def reduce_across(x: Any, op: Any = 'sum') -> Any:
    """Reduces over programs of the launch: `op` is "sum", "prod", "max" or "min". Store or return the result directly.
    It combines the programs along the grid coordinates that do not appear in the index of the store.

    Each program stores its partial result, and a second launch combines them in ascending order. So results depend only
    on the blocks, not on threads or on which program runs first. There are no atomics.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the dtype of the stored-to tensor, f32 or wider for sums of floats
    - *Cost:* A launch, and memory for one tile of each program.
    """

def relu(x: Any) -> Any:
    """max(x, 0), element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def repeat(x: Any, repeats: int, axis: int = -1, *, dim: Any = ...) -> Any:
    """Each element along `axis`, `repeats` times, as in `np.repeat`.

    - *Shapes:* `[..., N, ...] -> [..., N * repeats, ...]`
    - *Dtypes:* any -> the same
    - *Cost:* Every element moves through scratch memory, or through shared memory on a GPU.
    """

def reshape(x: Any, *shape: Any) -> Any:
    """The same elements in C order under another shape. Its axes belong to none of a tensor, and take the identity of
    the axes that they meet.

    - *Shapes:* any shape of as many elements, known at compile time
    - *Dtypes:* any -> the same
    - *Cost:* Nothing if only axes of size 1 come or go; else the elements move through shared or scratch memory.
    """

def round(x: Any) -> Any:
    """nearest integer, halves to even, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* floats -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def row_all(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """Whether every element is true, in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def row_any(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """Whether any element is true, in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* any -> bool
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def row_argmax(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The position of the largest element (the first of equal ones) in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* real numbers -> int64
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def row_argmin(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The position of the smallest element (the first of equal ones) in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* real numbers -> int64
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def row_max(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The largest element in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* real numbers -> the dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def row_mean(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The mean of the elements that exist in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* numbers and bools -> the dtype, f32 for integers and narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def row_min(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The smallest element in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* real numbers -> the dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def row_prod(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The product in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* numbers and bools -> the dtype, f32 for narrower floats, 64 bits for integers and bools
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def row_sum(x: Any, keepdim: bool = False, *, keepdims: Any = ...) -> Any:
    """The sum in each row of a tile with two axes, as a vector of the rows.

    - *Shapes:* `[M, N] -> [M]`, or `[M, 1]` with `keepdim=True`
    - *Dtypes:* numbers and bools -> the dtype, f32 for narrower floats, 64 bits for integers and bools
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 2 operations for each element, in registers.
    """

def scatter(target: Any, index: Any, value: Any, axis: Any = -1, *, dim: Any = ...) -> Any:
    """Writes elements of a tensor at computed indices, which must be distinct. For a tile, returns a new one with
    `value` at the indices `index` along `axis`: of several values for one element the last one stays, and indices out
    of range are ignored. `x[:, index] = value` is the same.

    - *Shapes:* `index` is an integer tile, or a tuple of one for each axis; `value` has their shape. Of a tile `[..., N, ...], [K], [..., K, ...] -> [..., N, ...]`, or the index as long as the values
    - *Dtypes:* indices are integers; the value is rounded to the dtype of the tensor or tile
    - *Cost:* One access for each element, and the more the further apart they lie; of a tile N times K comparisons for each line along the axis.
    """

def scatter_add(x: Any, index: Any, value: Any, axis: int = -1, *, dim: Any = ...) -> Any:
    """Adds each element of `value` at its index along `axis`, in the order of `index` on every target, and returns the
    new tile. Indices out of range are ignored. `index` has one axis, or those of `value`.

    - *Shapes:* `[..., N, ...], [K], [..., K, ...] -> [..., N, ...]`
    - *Dtypes:* any number, and integers -> the dtype of the tile, f32 for narrower floats
    - *Cost:* N times K comparisons for each line along the axis; every element moves through scratch memory, or through shared memory on a GPU.
    """

def shift_left(x: Any, y: Any) -> Any:
    """x << y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* integers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def shift_right(x: Any, y: Any) -> Any:
    """x >> y, arithmetic when signed, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* integers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def sigmoid(x: Any) -> Any:
    """1 / (1 + e**-x), element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 12 operations for each element, in registers.
    """

def sign(x: Any) -> Any:
    """-1, 0 or 1, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def signbit(x: Any) -> Any:
    """whether x has a minus, as -0.0 has, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* floats -> bool
    - *Cost:* One operation for each element, in registers.
    """

def silu(x: Any) -> Any:
    """x * sigmoid(x), element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 13 operations for each element, in registers.
    """

def sin(x: Any) -> Any:
    """sine of radians, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 15 operations for each element, in registers.
    """

def sinh(x: Any) -> Any:
    """hyperbolic sine, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 20 operations for each element, in registers.
    """

def softplus(x: Any) -> Any:
    """log(1 + e**x) without overflow, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 22 operations for each element, in registers.
    """

def sort(x: Any, axis: int = -1, descending: bool = False, *, dim: Any = ...) -> Any:
    """The elements along `axis` in ascending order, NaN last; with `descending` in descending order, NaN first. Equal
    elements keep their order. For bf16, f16 and smaller floats the result is f32, as in all arithmetic.

    - *Shapes:* `[..., N, ...] -> [..., N, ...]`
    - *Dtypes:* real numbers and bools -> the dtype, f32 for narrower floats
    - *Cost:* N log N comparisons of each line on a CPU (merge sort); on a GPU N log² N in a network, in shared memory: an element's size and 4 bytes for each element of the tile.
    """

def split(x: Any, parts: Any, axis: Any = -1, *, dim: Any = ...) -> Any:
    """A tuple of `parts` tiles of equal size, split along `axis`.

    - *Shapes:* `[..., N, ...] -> ([..., N / parts, ...], ...)`
    - *Dtypes:* any -> the same, in every part
    - *Cost:* Every element moves through scratch memory, or through shared memory on a GPU.
    """

def sqrt(x: Any) -> Any:
    """square root, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def square(x: Any) -> Any:
    """x * x, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* numbers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def stack(tiles: Any, axis: Any = 0, *, dim: Any = ...) -> Any:
    """Tiles of one shape along a new axis at `axis`.

    - *Shapes:* `([M, N], [M, N], ...) -> [..., M, N]`, `[M, ..., N]` or `[M, N, ...]`
    - *Dtypes:* any -> the same, or the common dtype
    - *Cost:* Every element moves through scratch memory, or through shared memory on a GPU.
    """

def static_assert(condition: Any, message: Any = '') -> Any:
    """In debug mode, checks every element of the condition that the surrounding `if`s select.

    - *Shapes:* a tile of any shape, or a value known at compile time (then TS106 at once)
    - *Dtypes:* bool, or true where it is not 0
    - *Cost:* Nothing without `TESSERA_DEBUG=1`.
    """

def static_range(*bounds: Any) -> Any:
    """A loop that is unrolled; its bounds are known at compile time.

    - *Shapes:* gives an integer for each step
    - *Dtypes:* bounds are integers known at compile time
    - *Cost:* Nothing at run time; its body is compiled once for each step.
    """

def store(target: Any, value: Any, mask: Any = None) -> Any:
    """Writes a tile to a block of a tensor; to a whole parameter, at this program's coordinates.

    - *Shapes:* the block's, or one that broadcasts to it; `mask` has the block's axes, or some of them
    - *Dtypes:* any number; rounded to the tensor's dtype
    - *Cost:* The block's bytes; neighbours along the last axis are written together.
    """

def sub(x: Any, y: Any) -> Any:
    """x - y, element by element.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* numbers -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def sum(x: Any, axis: Any = None, keepdim: bool = False, *, dim: Any = ..., keepdims: Any = ...) -> Any:
    """The sum along `axis` (a number or a tuple; default: all axes). `keepdim=True` leaves the axis with size 1.

    - *Shapes:* `[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both
    - *Dtypes:* numbers and bools -> the dtype, f32 for narrower floats, 64 bits for integers and bools
    - *Cost:* One operation for each element, in an order that depends on the length alone; on a GPU threads exchange what they have.
    """

def take(x: Any, places: Any, axis: int = -1, *, dim: Any = ...) -> Any:
    """Elements of a tile along `axis` at computed indices `places`, like `x[:, places]`. An index out of range gives
    padding: 0, and left out of reductions. A single number as index removes the axis.

    - *Shapes:* `[..., N, ...], [K] -> [..., K, ...]`; `[..., N, ...], [] -> [..., ...]`
    - *Dtypes:* any, and integers -> the dtype of the tile
    - *Cost:* Every element moves through scratch memory, or through shared memory on a GPU.
    """

def tan(x: Any) -> Any:
    """tangent of radians, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 20 operations for each element, in registers.
    """

def tanh(x: Any) -> Any:
    """hyperbolic tangent, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* real numbers -> the common dtype, f32 for integers and narrower floats
    - *Cost:* 15 operations for each element, in registers.
    """

def trans(x: Any, *axes: Any) -> Any:
    """The axes in reverse order, or in the order given.

    - *Shapes:* `[M, N] -> [N, M]`; with `axes` any order
    - *Dtypes:* any -> the same
    - *Cost:* Nothing on a CPU. On a GPU the elements move through shared memory, unless a product reads or a store writes a shared tile the other way round.
    """

def transpose(x: Any, *axes: Any) -> Any:
    """The axes in reverse order, or in the order given.

    - *Shapes:* `[M, N] -> [N, M]`; with `axes` any order
    - *Dtypes:* any -> the same
    - *Cost:* Nothing on a CPU. On a GPU the elements move through shared memory, unless a product reads or a store writes a shared tile the other way round.
    """

def trunc(x: Any) -> Any:
    """x without its fraction, element by element.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* floats -> the common dtype, f32 for narrower floats
    - *Cost:* One operation for each element, in registers.
    """

def uniform(seed: Any, at: Any) -> Any:
    """Uniform random floats over [0, 1), one for each element.

    `at` is the number of each element and `seed` an integer: element i equals `ts.uniform(seed, shape)` at
    row-major position i, for any blocks, schedule and target. So dropout is one line, and its backward pass gets the
    same numbers: `ts.tile.where(ts.tile.uniform(seed, i) < p, 0, x[i] / (1 - p))`.

    - *Shapes:* `[], [...] -> [...]`
    - *Dtypes:* whole numbers -> f32
    - *Cost:* About 80 integer operations an element.
    """

def unpack_fp4(x: Any, axis: Any = -1, *, dim: Any = ...) -> Any:
    """Unpacks bytes that hold two fp4_e2m1 numbers, the first one in the lower half, along `axis`.

    - *Shapes:* `[..., N, ...] -> [..., 2 N, ...]`
    - *Dtypes:* uint8 -> fp4_e2m1
    - *Cost:* Every byte moves through scratch memory, or through shared memory on a GPU; 15 operations for each element.
    """

def unsqueeze(x: Any, axis: Any, *, dim: Any = ...) -> Any:
    """A new axis of size 1 at `axis`, as in `x[:, None]`.

    - *Shapes:* `[M, N] -> [1, M, N]`, `[M, 1, N]` or `[M, N, 1]`
    - *Dtypes:* any -> the same
    - *Cost:* Nothing: no element moves.
    """

def view(x: Any, *shape: Any) -> Any:
    """The same elements in C order under another shape. Its axes belong to none of a tensor, and take the identity of
    the axes that they meet.

    - *Shapes:* any shape of as many elements, known at compile time
    - *Dtypes:* any -> the same
    - *Cost:* Nothing if only axes of size 1 come or go; else the elements move through shared or scratch memory.
    """

def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y.

    - *Shapes:* operands are aligned by the axes that they belong to (a vector of rows with the rows), and broadcast
    - *Dtypes:* the condition is bool, or true where it is not 0; x and y -> their common dtype
    - *Cost:* One selection for each element.
    """

def zeros(shape: Any, dtype: Any = 'f32') -> Any:
    """A tile of zeros; `shape` is known at compile time.

    - *Shapes:* gives `shape`
    - *Dtypes:* gives `dtype`
    - *Cost:* Nothing: a constant.
    """

def zeros_like(x: Any) -> Any:
    """Zeros of the shape and dtype of `x`.

    - *Shapes:* `[...] -> [...]`
    - *Dtypes:* any -> the same
    - *Cost:* Nothing: a constant.
    """
