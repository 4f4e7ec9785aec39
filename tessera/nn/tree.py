"""Arrays in dataclasses, lists, tuples and dicts, by their paths.

A path is, for example, `"blocks.0.attention.query"`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import tessera as ts
from tessera.language.records import BUFFER, STATE, members


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """An array in a tree. `buffer`: its field is a buffer."""

    path: str
    array: Any
    buffer: bool = False

    @property
    def trained(self) -> bool:
        """Whether it is a parameter: a float array that is not a buffer."""
        return not self.buffer and ts.asarray(self.array).dtype.is_float


def is_array(value: Any) -> bool:
    """Whether a value is an array of any library."""
    known = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
    return known and hasattr(value, "shape") and not isinstance(value, type)


def leaves(tree: Any, path: str = "", buffer: bool = False) -> Iterator[Leaf]:
    """The arrays of a tree in order."""
    if is_array(tree):
        yield Leaf(path, tree, buffer)
        return
    for name, held, is_state in _parts(tree):
        yield from leaves(held, f"{path}.{name}" if path else name, buffer or is_state)


def _parts(tree: Any) -> Iterator[tuple[str, Any, bool]]:
    """The children of a tree: names, values, and whether they are buffers."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        state, fields = getattr(type(tree), STATE, False), type(tree).__dataclass_fields__
        for name, held in members(tree).items():  # also what `__init__` has set without declaring it
            yield name, held, state or (name in fields and BUFFER in fields[name].metadata)
    elif isinstance(tree, Mapping):
        yield from ((str(k), v, False) for k, v in tree.items())
    elif isinstance(tree, (list, tuple)):
        yield from ((str(i), v, False) for i, v in enumerate(tree))


def _inside(function: Any) -> Any:
    """Functions may call it too: `frontend/function/trees.py` defines it for tensors."""
    function.__tessera_builtin__ = f"tessera.nn.tree.{function.__name__}"
    return function


@_inside
def replaced(tree: Any, arrays: Mapping[str, Any], path: str = "") -> Any:
    """A copy of the tree with these arrays at their paths; all else is shared with it."""
    if is_array(tree):
        return arrays.get(path, tree)

    def inner(name: Any, held: Any) -> Any:
        return replaced(held, arrays, f"{path}.{name}" if path else str(name))

    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        changed = copy.copy(tree)
        for name, held, _ in _parts(tree):
            object.__setattr__(changed, name, inner(name, held))
        return changed
    if isinstance(tree, Mapping):
        return {k: inner(k, v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [inner(i, v) for i, v in enumerate(tree)]
        return items if isinstance(tree, list) else type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    return tree


@_inside
def renewed(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """As `replaced`, and a tensor that replaces one with `requires_grad` also requires a gradient."""
    wanted = {leaf.path for leaf in leaves(tree) if isinstance(leaf.array, ts.Tensor) and leaf.array.requires_grad}
    return replaced(tree, {n: ts.Tensor(a, requires_grad=True) if n in wanted else a for n, a in arrays.items()})


@_inside
def copied(tree: Any) -> Any:
    """The tree with its own copies of all arrays."""
    with ts.no_grad():
        return renewed(tree, {leaf.path: ts.asarray(leaf.array).copy() for leaf in leaves(tree)})


@_inside
def arrays(tree: Any) -> dict[str, Any]:
    """All arrays of a tree by path."""
    return {leaf.path: leaf.array for leaf in leaves(tree)}


@_inside
def parameters(tree: Any) -> dict[str, Any]:
    """The parameters of a tree by path: its arrays of floats, without buffers."""
    return {leaf.path: leaf.array for leaf in leaves(tree) if leaf.trained}


@_inside
def same_array(arrays: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the first two of these arrays that are one object; () if each is its own."""
    places: dict[int, str] = {}
    for name, array in arrays.items():
        if id(array) in places:
            return places[id(array)], name
        places[id(array)] = name
    return ()
