"""The safe kernels on the GPU: the same tests as everywhere, with arguments in its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.conftest import require
from tests.device import gpu
from tests.differential import test_safe_kernels as safe

if reason := gpu.missing():
    pytest.skip(reason, allow_module_level=True)
torch = require("torch")


def device(x: Any) -> Any:
    """A NumPy array in the GPU's memory, by way of PyTorch, which has bf16; anything else as it is."""
    if not isinstance(x, np.ndarray):
        return x
    narrow = x.dtype == ml_dtypes.bfloat16
    there = torch.from_numpy(np.ascontiguousarray(x.view(np.int16) if narrow else x)).to("cuda")
    return there.view(torch.bfloat16) if narrow else there


def host(x: Any) -> np.ndarray:
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).cpu().numpy().view(ml_dtypes.bfloat16)
    return x.cpu().numpy()


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def on(target: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> np.ndarray:
        return host(f(*map(device, args), **{name: device(value) for name, value in kwargs.items()}))

    monkeypatch.setattr(safe, "on", on)


@pytest.mark.parametrize("name", safe.DTYPES)
@pytest.mark.parametrize("shape", [(3, 67), (2, 3, 5), (1,), (1000, 4097)])
def test_rows_agree_with_float64(shape: tuple[int, ...], name: str) -> None:
    safe.test_rows_agree_with_float64(shape, name, "cuda")


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_any_axis(axis: int) -> None:
    safe.test_any_axis(axis, "cuda")


@pytest.mark.parametrize("name", safe.DTYPES)
@pytest.mark.parametrize("case", ["plain", "causal", "mask", "mask of all heads", "scale"])
def test_attention_agrees_with_float64(case: str, name: str) -> None:
    safe.test_attention_agrees_with_float64(case, name, "cuda")


def test_the_extremes() -> None:
    safe.test_softmax_at_the_extremes("cuda")
    safe.test_logsumexp_at_the_extremes("cuda")
    safe.test_nothing_is_a_valid_size("cuda")
    for eps in (0.0, 1e-5):
        safe.test_norms_at_the_extremes(eps, "cuda")
    for name in ("f32", "bf16", "f64"):
        safe.test_attention_at_the_extremes(name, "cuda")
