"""Products of every dtype that some architecture has tensor cores for, on this machine's GPU."""

from __future__ import annotations

import pytest

from tessera.language import dtypes as dt
from tests.device import gpu
from tests.emulator.test_tensor_cores import DTYPES, product

if reason := gpu.missing():
    pytest.skip(reason, allow_module_level=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_agree_with_the_interpreter(dtype: dt.DType) -> None:
    gpu.check(product(dtype))
    gpu.check(product(dtype, m=128, n=64, k=256, block=(64, 32)))


@pytest.mark.parametrize("dtype", [dt.fp8_e4m3, dt.int8, dt.f64], ids=str)
@pytest.mark.parametrize("transposed", ["A", "B", "AB"])
def test_operands_lie_either_way_round(dtype: dt.DType, transposed: str) -> None:
    gpu.check(product(dtype, transposed))
