"""A bounded slice of `ts.vmap` over named axes; `python -m tests.fuzz mapped --help` runs more of it."""

from __future__ import annotations

import pytest

from tests.fuzz import mapped
from tests.fuzz.mapped import Mapped, check


def test_functions_of_many_elements() -> None:
    assert not [code for seed in range(1, 13) for code in check(seed, ("reference",))]
    check(5, ("cpu",))


def test_an_axis_in_the_wrong_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Mapped.element
    monkeypatch.setattr(mapped.Mapped, "element", lambda self, n: right(self, (n + 1) % 3))
    with pytest.raises(AssertionError, match="on reference"):
        check(1, ("reference",))


def test_axes_lie_anywhere() -> None:
    texts = [Mapped(seed).text for seed in range(1, 40)]
    for part in ("Tensor['B', 'M'", "'N', 'B', ts", "'B', ts.f64]", "out_axes=-1"):
        assert any(part in text for text in texts), part
