"""A bounded slice of the derived backward kernels; `python -m tests.fuzz backwards --help` runs more of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuzz import backwards
from tests.fuzz.backwards import Writer, check


@pytest.mark.parametrize("part", range(2))
def test_backward_kernels_as_differences(part: int) -> None:
    refused = [code for seed in range(1 + 6 * part, 7 + 6 * part) for code in check(seed, ("cpu",))]
    assert len(refused) <= 1, "nearly all kernels have one"


def test_a_gradient_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = backwards._gradients

    def wrong(*given: Any) -> Any:
        first, *others = right(*given)
        return [np.asarray(first) + 1e-3, *others]

    monkeypatch.setattr(backwards, "_gradients", wrong)
    with pytest.raises(AssertionError, match="the gradient of x"):
        check(1, ("cpu",))


def test_kernels_have_what_they_are_about() -> None:
    texts = "".join(Writer(seed).text for seed in range(1, 300))
    for part in ("cumsum", "sort", "flip", " @ m", "range_k", "for j", "else:", "helped(", "tile_n", "z[i", "keepdim"):
        assert texts.count(part) > 5, part
