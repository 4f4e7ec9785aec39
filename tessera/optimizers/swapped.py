"""Whether the model and the gradient have been given in each other's place: both have the same names and shapes.

PyTorch, optax and Tessera take them in different orders. Three things tell them apart: an array that was a parameter
before (in `init`, as a result of `update`, or loaded), a tensor that requires a gradient, and integers, of which a
gradient has None.
"""

from __future__ import annotations

from typing import Any

import tessera as ts
from tessera.nn import tree


@tree.inside
def swapped(model: Any, gradient: Any) -> bool:
    """Whether `gradient` is the model, and `model` is not, as far as one can tell."""
    given, derived = tree.arrays(model), tree.arrays(gradient)
    more = derived.keys() - given.keys()
    if more and derived.keys() > given.keys():
        return not any(ts.asarray(derived[n]).dtype.is_float for n in more)
    return any(map(_is_marked, derived.values())) and not any(map(_is_marked, given.values()))


def _is_marked(array: Any) -> bool:
    return tree.is_parameter(array) or bool(getattr(array, "requires_grad", False))
