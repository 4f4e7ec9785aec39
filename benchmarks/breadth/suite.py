"""All rows, in the order in which they are run."""

from __future__ import annotations

from benchmarks.breadth import arrays, layers, matrices, products
from benchmarks.breadth.row import MAKERS

__all__ = ["MAKERS", "arrays", "layers", "matrices", "products"]
