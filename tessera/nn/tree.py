"""Arrays in dataclasses, lists, tuples and dicts, by their paths.

A path is, for example, `"blocks.0.attention.query"`.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.language.records import BUFFER, REGISTERED, STATE, ArrayType, difference, members, tensor_fields
from tessera.tracebacks import outward


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
    return _is_array_class(value.__class__) and hasattr(value, "shape")


@lru_cache(maxsize=1024)
def _is_array_class(kind: type) -> bool:
    return (hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")) and not issubclass(kind, type)


def is_number(record: Any, name: str, held: Any) -> bool:
    """Whether what a field of a dataclass holds is a NumPy scalar that is a number, and no array without axes."""
    kind = held.__class__
    scalar = kind.__module__ == "numpy" and hasattr(kind, "__array__") and not hasattr(kind, "__setitem__")
    return scalar and name not in tensor_fields(record.__class__)


def whole(array: Any) -> Any:
    """NumPy's arithmetic makes scalars of arrays without axes; they are arrays all the same."""
    return array if hasattr(array, "__setitem__") or array.shape != () else array[...]


def leaves(tree: Any, path: str = "", buffer: bool = False) -> Iterator[Leaf]:
    """The arrays of a tree in order."""
    found: list[Leaf] = []
    _collect(tree, path, buffer, found)
    return iter(found)


def _collect(tree: Any, path: str, buffer: bool, found: list[Leaf]) -> None:
    if is_array(tree):
        found.append(Leaf(path, whole(tree), buffer))
        return
    for name, held, is_state in _parts(tree):
        if held.__class__ not in _PLAIN:
            _collect(held, f"{path}.{name}" if path else name, buffer or is_state, found)


def parts(tree: Any) -> list[tuple[str, Any]]:
    """The children of a tree that may hold arrays, by name."""
    return [(name, held) for name, held, _ in _parts(tree) if held.__class__ not in _PLAIN]


_PLAIN = frozenset({bool, int, float, str, type(None)})
"""classes of values that hold no arrays"""


def _parts(tree: Any) -> Iterable[tuple[str, Any, bool]]:
    """The children of a tree: names, values, and whether they are buffers."""
    kind = tree.__class__
    state, buffers = _states(kind)
    if buffers is not None:  # of a dataclass, also what `__init__` has set without declaring it
        held = members(tree)
        registered = held.get(REGISTERED, ())
        return [(n, v, state or n in buffers or n in registered) for n, v in held.items() if not is_number(tree, n, v)]
    if isinstance(tree, Mapping):
        return [(str(k), v, False) for k, v in tree.items()]
    if isinstance(tree, (list, tuple)):
        return [(str(i), v, False) for i, v in enumerate(tree)]
    return ()


@lru_cache(maxsize=1024)
def _states(kind: type) -> tuple[bool, frozenset[str] | None]:
    """Whether all that a dataclass holds is state, and its fields that are buffers; None for other classes."""
    if not dataclasses.is_dataclass(kind) or issubclass(kind, type):
        return False, None
    buffers = frozenset(n for n, f in kind.__dataclass_fields__.items() if BUFFER in f.metadata)
    return getattr(kind, STATE, False), buffers


@lru_cache(maxsize=1024)
def is_plain(kind: type) -> bool:
    """Whether an object of a class is its `__dict__`, so that a copy needs no code of the class."""
    own = (getattr(kind, "__copy__", None), kind.__reduce_ex__, kind.__reduce__, kind.__getstate__)
    usual = (None, object.__reduce_ex__, object.__reduce__, object.__getstate__)
    return own == usual and not any(vars(c).get("__slots__") for c in kind.__mro__) and kind.__dictoffset__ != 0


def inside(function: Any) -> Any:
    """Functions may call it too: `frontend/function/trees.py` defines it for tensors."""
    function.__tessera_builtin__ = f"{function.__module__}.{function.__name__}"
    return function


@inside
def replaced(tree: Any, arrays: Mapping[str, Any], path: str = "") -> Any:
    """A copy of the tree with these arrays at their paths; all else is shared with it."""
    return _with(tree, path, lambda path, array: arrays.get(path, array))


@inside
def renewed(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """As `replaced`, and a tensor that replaces one with `requires_grad` also requires a gradient."""

    def new(path: str, array: Any) -> Any:
        found = arrays.get(path, array)
        if isinstance(array, ts.Tensor) and array.requires_grad and found is not array:
            return ts.Tensor(found, requires_grad=True)
        return found

    return _with(tree, "", new)


def _with(tree: Any, path: str, new: Callable[[str, Any], Any]) -> Any:
    """A copy of the tree with `new(path, array)` in place of each array."""
    if tree.__class__ in _PLAIN:
        return tree
    if is_array(tree):
        return new(path, tree)

    def inner(name: Any, held: Any) -> Any:
        return _with(held, f"{path}.{name}" if path else str(name), new)

    if _states(tree.__class__)[1] is not None:
        plain = [n for n, v in members(tree).items() if v.__class__ in _PLAIN or is_number(tree, n, v)]
        held = {n: v if n in plain else inner(n, v) for n, v in members(tree).items()}
        if is_plain(tree.__class__):
            changed = object.__new__(tree.__class__)
            changed.__dict__.update(held)
            return changed
        changed = copy.copy(tree)
        for name, value in held.items():
            object.__setattr__(changed, name, value)
        return changed
    if isinstance(tree, Mapping):
        return {k: inner(k, v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [inner(i, v) for i, v in enumerate(tree)]
        return items if isinstance(tree, list) else type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    return tree


@outward
def tree_map(f: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """A copy of `tree` with `f(array, *arrays)` in place of each array; `others` have arrays at the same paths.

    Trees are arrays, and dataclasses, lists, tuples and dicts that hold them. What is no array is that of `tree`.
    Raises LaunchError TS105 for trees that differ.
    """
    parts = [arrays(t) for t in (tree, *others)]
    if wrong := difference(parts):
        raise LaunchError(Diagnostic("TS105", wrong))
    return replaced(tree, {path: whole(f(*(part[path] for part in parts))) for path in parts[0]})


@outward
def tree_leaves(tree: Any) -> list[Any]:
    """The arrays of a tree, in order: of dataclasses, lists, tuples and dicts that hold them."""
    return [*arrays(tree).values()]


@inside
def copied(tree: Any) -> Any:
    """The tree with its own copies of all arrays."""
    with ts.no_grad():
        return renewed(tree, {leaf.path: ts.asarray(leaf.array).copy() for leaf in leaves(tree)})


@inside
def moved(tree: Any, where: Any) -> Any:
    """The tree on another device, or with arrays of floats of another dtype."""
    arrays = {leaf.path: ts.asarray(leaf.array) for leaf in leaves(tree)}
    with ts.no_grad():
        found = {name: array.to(where) for name, array in arrays.items()}
    return renewed(tree, {n: a for n, a in found.items() if arrays[n].dtype.is_float or a.dtype == arrays[n].dtype})


@inside
def arrays(tree: Any) -> dict[str, Any]:
    """All arrays of a tree by path."""
    return {leaf.path: leaf.array for leaf in leaves(tree)}


@inside
def parameters(tree: Any) -> dict[str, Any]:
    """The parameters of a tree by path: its arrays of floats, without buffers."""
    return {leaf.path: leaf.array for leaf in leaves(tree) if leaf.trained}


@inside
def recorded(tree: Any) -> dict[str, Any]:
    """The parameters of a tree by path that require a gradient; inside of functions no tensor does."""
    return {p: a for p, a in parameters(tree).items() if isinstance(a, ts.Tensor) and a.requires_grad}


@inside
def types(tree: Any) -> Any:
    """The dicts, lists and tuples of a tree with an `ArrayType` in place of each array."""
    if is_array(tree):
        return ArrayType(tuple(tree.shape), ts.asarray(tree).dtype)
    if isinstance(tree, Mapping):
        return {k: types(v) for k, v in tree.items()}
    return type(tree)(types(v) for v in tree) if tree.__class__ in (list, tuple) else tree


@inside
def changed(name: str, instead: str) -> None:
    """A method of this name changes its object, which functions refuse."""


@inside
def same_array(arrays: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the first two of these arrays that are one object; () if each is its own."""
    places: dict[int, str] = {}
    for name, array in arrays.items():
        if id(array) in places:
            return places[id(array)], name
        places[id(array)] = name
    return ()


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


@inside
def noted(trained: dict[str, Any]) -> None:
    """These arrays are parameters."""
    if trained:
        note(next(iter(trained.values())))


def is_parameter(array: Any) -> bool:
    """Whether an array was a parameter before."""
    known = _parameters.get(id(array))
    return known is not None and known() is array
