"""The functions of `ts.tile`, a family a file. Importing this package registers them all."""

from __future__ import annotations

from tessera.compiler.frontend.kernel.builtins import (
    checking,
    combining,
    drawing,
    elementwise,
    folds,
    loops,
    making,
    memory,
    parts,
    placed,
    places,
    products,
    shaping,
)
from tessera.compiler.tile.builtin import BUILTINS, as_function, public

__all__ = ["BUILTINS", "FAMILIES", "as_function", "public"]

FAMILIES = (
    places, loops, making, drawing, memory, shaping, parts, placed, folds, combining, products, elementwise, checking,
)  # fmt: skip
"""in the order of the reference page"""
