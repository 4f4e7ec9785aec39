"""Products with scales of blocks on this machine's GPU: by instructions that take them on 12.x, elsewhere in bf16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera.language import dtypes as dt
from tessera.language.dtypes import DType
from tests.device import gpu
from tests.emulator import test_block_scaled as block

if reason := gpu.missing():
    pytest.skip(reason, allow_module_level=True)

FP4, E8M0, E4M3 = dt.fp4_e2m1, dt.fp8_e8m0, dt.fp8_e4m3
FORMATS = [(FP4, FP4, E4M3), *((a, b, E8M0) for a in block.SMALL for b in block.SMALL)]


def kernel(given: tuple[Any, ...], scale: DType) -> Callable[..., Any]:
    """Compiled for this GPU, which has to use its instruction where there is one."""
    target = gpu.target()
    out = np.full((given[0].shape[0], given[2].shape[1]), 99, np.float32)
    made = block.compiled(block.wide, *given, out, target=target.name, STEP=block.step_of(scale))
    assert ("ts::mma_scaled(" in made.source) == (target.name == "sm_120f")
    loaded = target.load(made)

    def run(*arguments: Any) -> Any:
        arrays = [gpu.DeviceArray(x) for x in (*arguments, out)]
        loaded.run([x.pointer for x in arrays], [], [])
        return arrays[-1].get()

    return run


@pytest.mark.parametrize(("a", "b", "scale"), FORMATS, ids=str)
def test_formats(a: DType, b: DType, scale: DType) -> None:
    for m, n, k in ((32, 16, 128), (45, 21, 96)):
        given = block.operands(a, b, scale, m, n, k)
        np.testing.assert_array_equal(kernel(given, scale)(*given), block.wanted(*given))


@pytest.mark.parametrize(("dtype", "scale"), [(FP4, E4M3), (FP4, E8M0), (dt.fp8_e5m2, E8M0)], ids=str)
def test_each_scale_by_itself(dtype: DType, scale: DType) -> None:
    """All are 1 but one: its own row (column) and block must feel it, and no other."""
    given = block.operands(dtype, dtype, scale, 32, 16, 64)
    run, (one, eight) = kernel(given, scale), (np.float32(x).astype(scale.numpy) for x in (1, 8))
    for scales in (given[1], given[3]):
        for at in np.ndindex(scales.shape):
            given[1][:], given[3][:] = one, one
            scales[at] = eight
            np.testing.assert_array_equal(run(*given), block.wanted(*given))
