"""Look-up keys for nested and unusual arguments.

`content` says it of any value, step by step. `content_of` writes that out for values that are built as one that has
been seen is: modules, states and lists of arrays have the same classes, names and lengths at each call, and a look-up
key for each call. For a layer of two arrays::

    def key(a):
        try:
            if type(a) is not kind0 or (*(h0 := a.__dict__),) != names0: return other(a)
            v1, v2 = h0.values()
            if type(v1) is not Tensor or type(d1 := v1._data) is not ndarray: return other(a)
            if type(v2) is not Tensor or type(d2 := v2._data) is not ndarray: return other(a)
        except (AttributeError, ValueError): return other(a)  # built in another way
        return (built, d1.dtype, d1.shape, d1.strides, d2.dtype, d2.shape, d2.strides)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tessera.compiler.frontend.names.fingerprint import changes, fingerprint
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.records import field_names, is_record, members
from tessera.runtime.arrays.adapter import Adapter
from tessera.runtime.arrays.libraries import NUMPY, adapter_of
from tessera.runtime.codegen import define

BY_VALUE = (bool, int, str, bytes, type(None), DType)
"""types of values that are keys themselves, beside other values of their type"""
FORMS = 4
"""the most structures of one argument's values that get a key function each"""
MOST = 4096
"""values that an argument may hold for that; larger ones are gone through step by step"""
DEEPEST = 64
MANY = 8
"""items of one type from which on they share a function, however many they are: it is written and compiled once"""


def content(value: Any) -> Any:
    """A hashable key of a nested or unusual argument: arrays by their keys, plain values by content.

    Dataclasses count by what they hold. Other objects (configurations, functions) are themselves: a prepared launch
    keeps those it was made for alive and watches what they hold.
    """
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(content, value))
    if isinstance(value, dict):
        return dict, tuple((k, content(v)) for k, v in value.items())
    adapter = adapter_of(value)
    if adapter is not None:
        return type(value), adapter.key(value)
    if is_record(value):
        try:
            return type(value), tuple([(n, content(v)) for n, v in members(value).items()])
        except RecursionError:  # objects that hold each other are no tree
            return type(value), id(value)
    if isinstance(value, (*BY_VALUE, float, complex, frozenset, slice, range)) or changes(value):
        return type(value), fingerprint(value)
    return type(value), id(value)


def content_of(example: Any, forms: int = FORMS) -> Callable[[Any], Any]:
    """What gives each value a key, as `content` does, and at once for those that are built as `example` is. Equal keys
    mean equal contents; values that are built alike have equal keys where their contents are equal."""
    try:
        return _KeyWriter(example, _Other(forms - 1)).key
    except Unwritten:
        return content


class _Other:
    """The key of values that are built in another way than those before it."""

    def __init__(self, forms: int) -> None:
        self.forms = forms
        self.key: Callable[[Any], Any] = content

    def __call__(self, value: Any) -> Any:
        if self.forms > 0:
            self.key, self.forms = content_of(value, self.forms), 0
        return self.key(value)


class Unwritten(Exception):
    """Of a value that is too large, or holds itself."""


class Explored:
    """Lines that take a value apart which is built as an example is, and the values that their names stand for. A
    subclass says what is done with arrays and with plain values; `refusal` is the statement for values that are built
    in another way."""

    def __init__(self, refusal: str) -> None:
        self.names: dict[str, Any] = {"content": content, "ndarray": np.ndarray}
        self.lines: list[str] = []
        self.refusal = refusal
        self.count = 0

    def array(self, text: str, example: Any, path: tuple[Any, ...]) -> None:
        """An array of NumPy's, of which the type is not known yet."""
        raise NotImplementedError

    def foreign(self, v: str, i: int, adapter: Adapter) -> None:
        """An array of another library."""
        raise NotImplementedError

    def plain(self, v: str, i: int, example: Any) -> None:
        """A value that holds no others, of which the type is not known yet."""
        raise NotImplementedError

    def unusual(self, v: str, i: int, example: Any) -> None:
        """A value of a known type that is not taken apart."""
        raise NotImplementedError

    def named(self, v: str, path: tuple[Any, ...]) -> None:
        """Where a value stands, and the name that it has."""

    def function(self, arguments: str, body: list[str], name: str) -> Callable[..., Any]:
        """A function of what has been written: the walk, then `body`."""
        walk = "".join(f"        {line}\n" for line in self.lines) or "        pass\n"
        refused = f"    except (AttributeError, ValueError): {self.refusal}\n"  # built in another way
        rest = "".join(f"    {line}\n" for line in body)
        return define(f"def {name}({arguments}):\n    try:\n{walk}{refused}{rest}", self.names)[name]

    def unless(self, condition: str) -> None:
        self.lines.append(f"if {condition}: {self.refusal}")

    def held(self, text: str, items: list[tuple[Any, Any]], depth: int, path: tuple[Any, ...]) -> None:
        """The items of what `text` iterates over; another number of them is a ValueError."""
        first, self.count = self.count + 1, self.count + len(items)
        if self.count > MOST or depth > DEEPEST:
            raise Unwritten
        if not items:
            self.unless(f"len({text})")
            return
        names = [f"v{first + i}" for i in range(len(items))]
        self.lines.append(f"{', '.join(names)}, = {text}")
        for name, (step, value) in zip(names, items, strict=True):
            self.value(name, value, depth + 1, (*path, step))

    def value(self, v: str, example: Any, depth: int = 0, path: tuple[Any, ...] = ()) -> None:
        kind: type[Any] = type(example)
        i = len(self.names)
        self.names[f"kind{i}"] = kind
        self.named(v, path)
        other = f"type({v}) is not kind{i}"
        adapter = adapter_of(example)
        if isinstance(example, (tuple, list)):
            self.unless(other)
            self.held(v, [*enumerate(cast("list[Any]", example))], depth, path)
        elif kind is dict:
            self.names[f"names{i}"] = tuple(example)
            self.unless(f"{other} or (*{v},) != names{i}")
            self.held(f"{v}.values()", list(example.items()), depth, path)
        elif adapter is NUMPY:
            self.unless(other)
            self.array(v, example, path)
        elif adapter is not None and adapter.name == "tessera" and type(example._data) is np.ndarray:
            d = f"d{i}"  # a GPU's say as well on which device they are
            self.unless(f"{other} or type({d} := {v}._data) is not ndarray")
            self.array(d, example._data, path)
        elif adapter is not None:
            self.unless(other)
            self.foreign(v, i, adapter)
        elif is_record(example) and kind is example.__class__:
            self.record(v, example, other, i, depth, path)
        elif kind is float or kind in BY_VALUE:
            self.plain(v, i, example)
        else:
            self.unless(other)
            self.unusual(v, i, example)

    def record(self, v: str, example: Any, other: str, i: int, depth: int, path: tuple[Any, ...]) -> None:
        """An instance of a dataclass: by its `__dict__`, where all fields stand there, or by slots alone."""
        inner: Any = getattr(example, "__dict__", None)
        fields = field_names(type(example))
        if type(inner) is dict and all(n in inner for n in fields):
            self.names[f"names{i}"] = tuple(inner)
            self.unless(f"{other} or (*(h{i} := {v}.__dict__),) != names{i}")
            self.held(f"h{i}.values()", list(inner.items()), depth, path)
        elif inner is None and all(hasattr(example, n) and n.isidentifier() for n in fields):
            self.unless(other)
            held = [(n, getattr(example, n)) for n in fields]
            self.held(f"({''.join(f'{v}.{n}, ' for n in fields)})", held, depth, path)
        else:
            self.unless(other)
            self.unusual(v, i, example)


class _KeyWriter(Explored):
    """A key: its parts are what a launch depends on."""

    def __init__(self, example: Any, other: _Other, depth: int = 0) -> None:
        super().__init__("return other(a)")
        self.names |= {"other": other, "built": object()}
        self.parts: list[str] = ["built"]
        self.value("a", example, depth)
        self.key = self.function("a", [f"return ({', '.join(self.parts)},)"], "key")

    def held(self, text: str, items: list[tuple[Any, Any]], depth: int, path: tuple[Any, ...]) -> None:
        """Many items of one type, such as the layers of a model, have keys of their own: each by a function that is
        written for the first of them."""
        kinds = {type(value) for _, value in items}
        if len(items) < MANY or len(kinds) > 1 or isinstance(items[0][1], (*BY_VALUE, float)):
            super().held(text, items, depth, path)
            return
        one = _KeyWriter(items[0][1], _Other(FORMS - 1), depth + 1)
        self.count += len(items) * (1 + one.count)
        if self.count > MOST:
            raise Unwritten
        i = len(self.names)
        self.names[f"item{i}"] = one.key
        self.lines.append(f"v{i} = (*{text},)")  # before anything else runs, which might change it
        self.unless(f"len(v{i}) != {len(items)}")
        self.parts.append(f"*map(item{i}, v{i})")

    def array(self, text: str, example: Any, path: tuple[Any, ...]) -> None:
        self.parts += [f"{text}.dtype", f"{text}.shape", f"{text}.strides"]

    def foreign(self, v: str, i: int, adapter: Adapter) -> None:
        self.names[f"key{i}"] = adapter.key
        self.parts.append(f"key{i}({v})")

    def plain(self, v: str, i: int, example: Any) -> None:
        self.unless(f"type({v}) is not kind{i}")
        if type(example) is float:
            self.parts.append(f"{v}.hex()")  # 0.0 and -0.0 are different constants, NaN is the same as itself
        elif example is not None:
            self.parts.append(v)

    def unusual(self, v: str, i: int, example: Any) -> None:
        self.parts.append(f"content({v})")
