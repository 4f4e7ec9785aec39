"""Whether the model and the gradient have been given in each other's place: both have the same names and shapes.

PyTorch, optax and Tessera take them in different orders. Three things tell them apart: an array that was a parameter
before (in `init`, or as a result of `update`), a tensor that requires a gradient, and integers, of which a gradient has
None.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tessera as ts
from tessera.nn import tree

_parameters: dict[int, Callable[[], Any]] = {}
"""arrays that are parameters, by identity, while they live"""


def weak(array: Any) -> Callable[[], Any]:
    """Gives the array while it lives."""
    try:
        return weakref.ref(array)
    except TypeError:  # of a library whose arrays have no weak references
        return lambda: None


def note(array: Any) -> None:
    """This array is a parameter. One of a model is enough, as a model is swapped as a whole."""
    for key in [key for key, known in _parameters.items() if known() is None]:
        del _parameters[key]
    _parameters[id(array)] = weak(array)


@tree.inside
def noted(trained: dict[str, Any]) -> None:
    """These arrays are parameters."""
    if trained:
        note(next(iter(trained.values())))


def is_parameter(array: Any) -> bool:
    """Whether an array was a parameter before."""
    known = _parameters.get(id(array))
    return known is not None and known() is array


@tree.inside
def swapped(model: Any, gradient: Any) -> bool:
    """Whether `gradient` is the model, and `model` is not, as far as one can tell."""
    given, derived = tree.arrays(model), tree.arrays(gradient)
    more = derived.keys() - given.keys()
    if more and derived.keys() > given.keys():
        return not any(ts.asarray(derived[n]).dtype.is_float for n in more)
    return any(map(_is_marked, derived.values())) and not any(map(_is_marked, given.values()))


def _is_marked(array: Any) -> bool:
    return is_parameter(array) or bool(getattr(array, "requires_grad", False))
