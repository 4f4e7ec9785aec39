"""The functions of `ts.tile`, a family a file. Importing this package registers them all."""

from __future__ import annotations

from tessera.compiler.frontend.kernel.builtins import (
    checking,
    creation,
    custom_reductions,
    elementwise,
    gather_scatter,
    grid,
    joining,
    loops,
    memory,
    products,
    random,
    reductions,
    selection,
    shaping,
    sorting,
)
from tessera.compiler.tile.builtin import BUILTINS, as_function, public

__all__ = ["BUILTINS", "FAMILIES", "as_function", "public"]

FAMILIES = (
    grid, loops, creation, random, memory, shaping, joining, gather_scatter, reductions, sorting,
    custom_reductions, products, selection, elementwise, checking,
)  # fmt: skip
"""in the order of the reference page"""
