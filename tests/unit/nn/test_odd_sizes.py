"""Sizes and keys that no layer has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import LaunchError, nn

SIZES: list[Any] = ["a", None, 1.5, 0, -3, True, [1], {"a": 1}, np.ones(3)]


@pytest.mark.parametrize("size", SIZES, ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: nn.Linear(n, 4, key=0),
        lambda n: nn.Embedding(n, 4, key=0),
        lambda n: nn.Conv2d(n, 4, 3, key=0),
        lambda n: nn.Conv2d(4, 4, 3, groups=n, key=0),
        lambda n: nn.LSTM(n, 4, key=0),
        lambda n: nn.MultiHeadAttention(8, n, key=0),
        lambda n: nn.MixtureOfExperts(8, 16, n, key=0),
    ],
    ids=["linear", "embedding", "convolution", "groups", "lstm", "heads", "experts"],
)
def test_sizes_are_whole_numbers(make: Callable[[Any], Any], size: Any) -> None:
    with pytest.raises(LaunchError, match=r"whole number.*of at least 1, not"):
        make(size)


@pytest.mark.parametrize("key", ["a", 1.5, {"a": 1}, np.ones(3)], ids=repr)
def test_keys_are_whole_numbers(key: Any) -> None:
    for make in (lambda: nn.Linear(2, 3, key=key), lambda: nn.LSTM(2, 3, key=key)):
        with pytest.raises(LaunchError, match="key is a whole number"):
            make()


@pytest.mark.parametrize("policy", [1, 1.5, [1], {"a": 1}], ids=repr)
def test_numerics_are_policies(policy: Any) -> None:
    with pytest.raises(LaunchError, match=r"AdamW: numerics: a policy is such as ts.bf16 @ ts.accum\(ts.f32\)"):
        ts.optimizers.AdamW(1e-3, numerics=policy)


def test_numpy_integers_are_sizes() -> None:
    assert nn.Linear(np.int64(3), np.int32(4), key=np.int64(1)).weight.shape == (3, 4)
