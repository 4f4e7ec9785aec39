"""Kernels that store to the arrays that they read, on the emulator: threads wait where elements change places."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cpu.test_stores_in_place import FLAT, SQUARE, matrices, same_as_reference, vectors


@pytest.mark.parametrize("kernel", FLAT, ids=lambda k: k.__name__)
def test_vectors(kernel: Any) -> None:
    same_as_reference(kernel, *vectors(1031, "f4"), target="emulator:sm_80")


@pytest.mark.parametrize("kernel", SQUARE, ids=lambda k: k.__name__)
def test_matrices(kernel: Any) -> None:
    same_as_reference(kernel, *matrices(kernel, "f4"), target="emulator:sm_80")
