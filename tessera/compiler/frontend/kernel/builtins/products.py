"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.builtins.joining import repeat
from tessera.compiler.frontend.kernel.tiles import KernelFault, operand_type, tile_type
from tessera.compiler.frontend.kernel.values import Axes
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import SharedType, shape_text
from tessera.compiler.machines import BLOCK_SCALED
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language import dtypes

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


class Mma(TileBuiltin):
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
    """

    also = ("dot",)
    shapes = "`[..., M, K], [..., K, N] -> [..., M, N]`; up to 64 matrices; scales as above"
    dtypes = "numbers -> the accumulator's"
    cost = "2 M N K operations for each matrix; on tensor cores bf16, f16 and fp8 where the GPU has them."
    example = """
@ts.kernel
def example(a: Tensor["M", "K", ts.f32], b: Tensor["K", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    acc = ts.tile.zeros((16, 16))
    for k in ts.tile.range_k(0, K, 16):
        acc = ts.tile.mma(a[tile_m : tile_m + 16, k : k + 16], b[k : k + 16, tile_n : tile_n + 16], acc)
    return acc

>>> example(np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 0, 1], [0, 1, 1]], np.float32))
[[1. 2. 3.]
 [3. 4. 7.]]
"""

    def build(
        self, k: KernelState, a: Any, b: Any, accumulator: Any = None, a_scale: Any = None, b_scale: Any = None
    ) -> Value:
        left, left_axes = k.matrix(a)
        right, right_axes = k.matrix(b)
        given = k.tile(accumulator) if k.is_tile(accumulator) else accumulator
        if a_scale is not None or b_scale is not None:
            left = _scaled(k, "a", left, left_axes, a_scale, -1)
            right = _scaled(k, "b", right, right_axes, b_scale, -2)
        out = k.tiles.mma(left, right, left_axes, right_axes, given)
        if (a_scale is not None or b_scale is not None) and out.op is not None:
            out.op.attrs["scaled"] = True  # targets may take the scales as they are (tile/passes/keep_scales.py)
            out.op.attrs["subnormals"] = True  # scales reach down to 2**-127
        return out


def _scaled(k: KernelState, name: str, x: Value, axes: Axes, scale: Any, along: int) -> Value:
    """An operand times the scales of its blocks along the axis `along`, in bf16. Raises KernelFault."""
    t = operand_type(x)
    if not (t.dtype.is_float and (t.dtype == dtypes.bf16 or t.dtype.bits <= 8)):
        message = f"{name} of a scaled product is bf16 or a float of up to 8 bits, not {t.dtype}"
        raise KernelFault("TS302", f"{message}; convert it with cast(...)")
    tiles = k.tiles
    if isinstance(x.type, SharedType):
        x = tiles.load_shared(x, axes)
    if scale is None:
        return tiles.cast(x, dtypes.bf16)
    s = k.tile(scale)
    of = tile_type(s)
    if of.dtype not in BLOCK_SCALED:
        wanted = " or ".join(f"{d} for each {n} elements" for d, n in BLOCK_SCALED.items())
        raise KernelFault("TS302", f"{name}_scale is {wanted} along K, not {of.dtype}")
    block = BLOCK_SCALED[of.dtype]
    shape, at = tuple(map(k.known, t.shape)), t.rank + along
    if t.rank < 2 or of.rank != t.rank:
        raise KernelFault("TS402", f"{name}_scale has as many axes as {name}, {t.rank}, not {of.rank}")
    whole = (*of.shape[:at], of.shape[at] * block, *of.shape[at + 1 :])
    for a, (n, m) in enumerate(zip(map(k.known, whole), shape, strict=True)):
        if isinstance(n, int) and isinstance(m, int) and n != m and (a in (at, t.rank - 3 - along) or 1 not in (n, m)):
            fits = f"{name} is {shape_text(shape)}, so that {name}_scale has one for each {block} of axis {at}"
            raise KernelFault("TS402", f"{fits}; it is {shape_text(of.shape)}")
    if k.known(whole[at]) != shape[at]:  # an editor does not know them; the compiler does, and checks
        return tiles.cast(x, dtypes.bf16)
    spread = repeat(k, tiles.cast(s, dtypes.f32), block, at)
    own = tiles.identities.of(spread)
    tiles.identities.set(spread, tuple(axes[a] if a == at else axis for a, axis in enumerate(own)))
    return tiles.cast(tiles.map("mul", x, spread), dtypes.bf16)
