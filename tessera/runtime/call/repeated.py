"""Calls that are like an earlier one, as straight code: what is checked, taken out, launched and put together.

The usual call makes a key of its arguments, looks a launch up, takes what the code wants out of the arguments, and
launches. A loop makes the same call again and again. For that, all of it is one function: it takes the arguments apart
as the earlier ones were, compares what is constant in the code, and leaves dtypes and shapes to the executable's
`exact` entry, which looks at them where they lie::

    def call(a0, a1):
        try:
            if type(a0) is not Linear or (*(h := a0.__dict__),) != names: return other(a0, a1)
            v1, v2, = h.values()
            if type(v1) is not Tensor or type(d1 := v1._data) is not ndarray: return other(a0, a1)
            ...
        except (AttributeError, ValueError): return other(a0, a1)
        if not guard() or active(): return other(a0, a1)
        o3 = empty(shape3, dtype3)
        if fast(d1, d2, d5, o3): return other(a0, a1)  # another shape, say
        return finish(o3)

`other` is the usual way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tessera.compiler.machines import HOST
from tessera.language.records import STATE, is_record, members
from tessera.runtime.arrays.adapter import Adapter
from tessera.runtime.call import straight
from tessera.runtime.call.arguments import Bound, Parameters
from tessera.runtime.call.contents import BY_VALUE, Explored, Unwritten, content
from tessera.runtime.call.ready import Ready
from tessera.runtime.call.signatures import places, scalar_parameters, value_expression


def repeated_call(
    parameters: Parameters, args: Sequence[Any], complete: bool, bound: Bound, ready: Ready,
    other: Callable[..., Any], owner: Any,
) -> Callable[..., Any] | None:  # fmt: skip
    """What runs `ready` for arguments like `args`, and `other` for all else; None where it cannot be told at once that
    they are. `owner` keeps the last launch."""
    prepared, made = ready.prepared, ready.made
    if prepared is None or made is None or prepared.device != HOST or not straight.plain(prepared):
        return None
    given = ", ".join(f"a{i}" for i in range(len(args)))
    try:
        walk = _Comparison(parameters, args, complete, f"return other({given})")
    except Unwritten:
        return None
    leaves = {leaf.name: leaf for leaf in bound.leaves}
    where = places(parameters, args, complete)
    names = walk.names
    names |= {"ready": ready, "guard": ready.guard, "other": other, "owner": owner}
    body = [f"if not guard(): return other({given})"]
    values: list[str] = []
    arrays: dict[int, str] = {}
    for i, p in enumerate(prepared.plan.params):
        leaf = leaves.get(p.name)
        if leaf is None:
            names[f"get{i}"] = made.outside[p.name]
            body.append(f"x{i} = get{i}()")
            values.append(f"x{i}")
        elif leaf.path in walk.arrays:
            array = walk.arrays.pop(leaf.path)
            if p.shape is None:  # passed by value, from an array of rank 0
                names[f"dtype_of{i}"] = leaf.dtype.numpy  # type: ignore[union-attr]
                body.append(f"if {array}.dtype is not dtype_of{i} or {array}.ndim: return other({given})")
            values.append(array if p.shape is None else walk.objects[leaf.path])
            arrays[i] = array
        else:
            body.append(f"x{i} = {value_expression(parameters, leaf, where, names, i)}")
            values.append(f"x{i}")
    if walk.arrays:  # an array that the code does not take, and so the executable does not look at
        return None
    writer = straight.LaunchWriter(prepared, values, arrays, f"other({given})")
    writer.slots()
    if not writer.quick("exact"):
        return None
    result = writer.returned()
    body += [*writer.lines, "ready.used = True", *(["owner.ready = ready"] if owner is not None else [])]
    states = [walk.objects[leaf.path] for leaf in bound.leaves if leaf.path in walk.objects and _checked(leaf.value)]
    if prepared.written and states:
        body += [f"result = {result}", *(f"{state}.check()" for state in states)]
        result = "result"
    names |= writer.names
    return walk.function(given, [*body, f"return {result}"], "call")


def _settled(value: Any) -> bool:
    """Whether a value cannot change: it is a constant, or a tuple or frozen dataclass of such."""
    if isinstance(value, tuple):
        return all(map(_settled, cast("tuple[Any, ...]", value)))
    if is_record(value):
        frozen = getattr(type(value), "__dataclass_params__", None)
        return frozen is not None and frozen.frozen and all(map(_settled, members(value).values()))
    return type(value) is float or type(value) in BY_VALUE


def _checked(value: Any) -> bool:
    return getattr(type(value), STATE, False) is True and hasattr(value, "check")


class _Comparison(Explored):
    """Compares what a launch depends on with the arguments of a call, except for the dtypes and shapes of arrays.

    `objects` are the names of what the arguments hold, by path, `arrays` those of their arrays of NumPy's."""

    def __init__(self, parameters: Parameters, args: Sequence[Any], complete: bool, refusal: str) -> None:
        super().__init__(refusal)
        self.objects: dict[tuple[Any, ...], str] = {}
        self.arrays: dict[tuple[Any, ...], str] = {}
        scalars = scalar_parameters(parameters)
        paths = {text: path for path, text in places(parameters, args, complete).items()}
        for i, value in enumerate(args):
            path = paths.get(f"a{i}", (f"a{i}",))
            if path[0] in scalars:
                self.names[f"scalar{i}"] = type(value)
                self.unless(f"type(a{i}) is not scalar{i}")
            else:
                self.value(f"a{i}", value, 0, path)

    def named(self, v: str, path: tuple[Any, ...]) -> None:
        self.objects[path] = v

    def array(self, text: str, example: Any, path: tuple[Any, ...]) -> None:
        self.arrays[path] = text

    def record(self, v: str, example: Any, other: str, i: int, depth: int, path: tuple[Any, ...]) -> None:
        """Frozen settings, such as an optimizer's rule, are what they were where they are the same object."""
        before = len(self.lines)
        super().record(v, example, other, i, depth, path)
        if _settled(example):
            self.names[f"same{i}"] = example
            self.lines[before:] = [f"if {v} is not same{i}:", *(f" {line}" for line in self.lines[before:])]

    def foreign(self, v: str, i: int, adapter: Adapter) -> None:
        raise Unwritten

    def plain(self, v: str, i: int, example: Any) -> None:
        self.names[f"same{i}"] = example
        if type(example) is float:
            self.names[f"hex{i}"] = example.hex()
            other = f"{v}.hex() != hex{i}"
        else:
            other = f"{v} != same{i}"
        self.unless(f"{v} is not same{i} and (type({v}) is not kind{i} or {other})")

    def unusual(self, v: str, i: int, example: Any) -> None:
        self.names[f"same{i}"] = example
        if (found := content(example)) == (type(example), id(example)):
            self.unless(f"{v} is not same{i}")
        else:
            self.names[f"content{i}"] = found
            self.unless(f"content({v}) != content{i}")
