"""The names and layouts of PyTorch's layers: state dicts of the same model there, and back."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.nn import tree


class Theirs(NamedTuple):
    """What PyTorch calls the field of a layer: the terms of a sum have several names, and "" is no level of its own.
    `turned`: a matrix that it holds the other way round."""

    names: tuple[str, ...]
    turned: bool = False


_RECURRENT = {"input": Theirs(("weight_ih_l0",), turned=True), "state": Theirs(("weight_hh_l0",), turned=True)}
_OF_LAYERS: dict[str, dict[str | None, Theirs]] = {
    "Linear": {"weight": Theirs(("weight",), turned=True)},
    "Sequential": {"layers": Theirs(("",))},
    "Stack": {"layers": Theirs(("",))},
    "BatchNorm": {
        "mean": Theirs(("running_mean",)),
        "var": Theirs(("running_var",)),
        None: Theirs(("num_batches_tracked",)),
    },
    "LSTM": {**_RECURRENT, "bias": Theirs(("bias_ih_l0", "bias_hh_l0"))},
    "GRU": {**_RECURRENT, "bias": Theirs(("bias_ih_l0",)), "state_bias": Theirs(("bias_hh_l0",))},
}
"""by layer and field; None stands for what only PyTorch has, which is 0"""


def given(module: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of a module's arrays as PyTorch's layers have them."""
    found: dict[str, Any] = {}
    for path, theirs in _places(module):
        array = ts.asarray(own[path]).detach() if path else ts.zeros((), ts.int64)
        first, *others = theirs.names
        found[first] = (array.T if theirs.turned else array).copy()
        found |= {name: ts.zeros_like(array) for name in others}
    return found


def taken(module: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """What PyTorch's layers have, as a module has it."""
    found: dict[str, Any] = {}
    for path, theirs in _places(module):
        if path:
            first, *others = [ts.asarray(state[name]).detach() for name in theirs.names]
            array = functools.reduce(ts.add, others, first)
            found[path] = array.T if theirs.turned else array
    return found


def demand_other(module: Any, strange: Collection[str]) -> None:
    """Raises LaunchError TS361 where all names that a module does not have are those of PyTorch's layers."""
    if {*strange} <= {n for _, theirs in _places(module) for n in theirs.names}:
        message = 'these are the names of PyTorch\'s layers: load_state_dict(state, layout="torch")'
        raise LaunchError(Diagnostic("TS361", message))


def _places(held: Any, path: str = "", place: str = "", own: Theirs | None = None) -> Iterator[tuple[str, Theirs]]:
    """The arrays of a tree by path, and what PyTorch calls them; "" is the path of what only PyTorch has."""
    own = Theirs(("",)) if own is None else own
    if tree.is_array(held):
        yield path, Theirs(tuple(_joined(place, n) for n in own.names), own.turned)
        return
    inner = _joined(place, own.names[0])
    known = next((known for c in type(held).__mro__ if (known := _OF_LAYERS.get(c.__name__))), {})
    for name, part in tree.parts(held):
        yield from _places(part, _joined(path, name), inner, known.get(name, Theirs((name,))))
    if None in known:
        yield "", Theirs((_joined(inner, known[None].names[0]),))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name
