"""The parameters of a tree as one vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tessera as ts
from tessera.nn import tree as trees


def tree_ravel(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All parameters of a tree, its arrays of floats without buffers, in one vector, and the function that makes a tree
    of such a vector: for solvers of one vector, as `jax.flatten_util.ravel_pytree`. In functions and outside.

    The vector has the dtype that the parameters have together; `unravel(vector)` gives each its own.
    """
    held = trees.parameters(tree)
    vector = ts.concat([ts.reshape(array, (-1,)) for array in held.values()])

    def unravel(vector):
        parts, start = {}, 0
        for path, array in held.items():
            end = start + math.prod(array.shape)
            parts[path] = ts.cast(ts.reshape(vector[start:end], array.shape), array.dtype)
            start = end
        return trees.replaced(tree, parts)

    return vector, unravel
