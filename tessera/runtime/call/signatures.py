"""Expressions generated for the argument types of a call: its look-up key, and its arguments in the code's order.

No loop over parameters runs per call. Everything in an expression is a name; values travel in the namespace.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.language.annotations import ScalarAnn
from tessera.language.lazy import np
from tessera.language.records import STATE, Attribute
from tessera.runtime.arrays.libraries import NUMPY, adapter_of
from tessera.runtime.call.arguments import Bound, Leaf, Parameters
from tessera.runtime.call.contents import BY_VALUE, content_of
from tessera.runtime.codegen import expression


def places(parameters: Parameters, args: Sequence[Any], complete: bool) -> dict[tuple[Any, ...], str]:
    """The expression of every parameter: `a0`, `a1` ... `complete`: one argument for each parameter, in order."""
    out: dict[tuple[Any, ...], str] = {}
    for i, (name, p) in enumerate(parameters.python.parameters.items()):
        if complete:
            out[(name,)] = f"a{i}"
        elif p.kind is inspect.Parameter.VAR_POSITIONAL:
            out |= {(name, k - i): f"a{k}" for k in range(i, len(args))}
        elif i < len(args) and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            out[(name,)] = f"a{i}"
    return out


def _lambda(count: int, body: str, names: dict[str, Any]) -> Callable[..., Any]:
    return expression(f"lambda {', '.join(f'a{i}' for i in range(count))}: {body}", names)


def key_expression(parameters: Parameters, args: Sequence[Any], complete: bool) -> tuple[str, dict[str, Any]]:
    """The key of a launch as an expression over `a0`, `a1` ..., and its names; for arguments of the types of `args`."""
    scalars = scalar_parameters(parameters)
    by_place = {expression: path[0] for path, expression in places(parameters, args, complete).items()}
    parts: list[str] = []
    names: dict[str, Any] = {}
    for i, value in enumerate(args):
        a = f"a{i}"
        if by_place.get(a) in scalars:
            continue
        if found := array_key(a, value, names):
            parts += found
        elif isinstance(value, BY_VALUE):
            parts.append(a)
        elif isinstance(value, float):
            parts.append(f"{a}.hex()")  # 0.0 and -0.0 are different constants, NaN is the same as itself
        else:
            names[f"content_{a}"] = content_of(value)
            parts.append(f"content_{a}({a})")
    return f"({', '.join(parts)}{',' if parts else ''})", names


def array_key(a: str, value: Any, names: dict[str, Any]) -> list[str]:
    """The parts of a key that stand for the array `a`, which is of the type of `value`; none for others."""
    adapter = adapter_of(value)
    if adapter is None:
        return []
    if adapter is NUMPY:
        return [f"{a}.dtype", f"{a}.shape", f"{a}.strides"]
    if adapter.name == "tessera":
        names |= {"ndarray": np.ndarray, "tensor_key": adapter.key}
        # NumPy's are read here; a GPU's say as well on which device they are
        host = f"((d := {a}._data).dtype, d.shape, d.strides)"
        return [f"{host} if type({a}._data) is ndarray else tensor_key({a})"]
    names[f"key_{a}"] = adapter.key
    return [f"key_{a}({a})"]


def scalar_parameters(parameters: Parameters) -> frozenset[str]:
    """Parameters whose values are passed at run time and are not part of the key."""
    found = parameters.signature.parameters
    return frozenset(p.name for p in found if isinstance(p.annotation, ScalarAnn) and not p.static)


def _step(step: Any) -> str:
    return f".{step}" if isinstance(step, Attribute) else f"[{step!r}]"


def gather_function(
    parameters: Parameters, args: Sequence[Any], complete: bool, bound: Bound, wanted: Sequence[str],
    captured: Mapping[str, Callable[[], Any]],
) -> Callable[..., Any] | None:  # fmt: skip
    """From a call's arguments to the values `wanted` by the code; None where they are the arguments as they are."""
    where = places(parameters, args, complete)
    leaves = {leaf.name: leaf for leaf in bound.leaves}
    names: dict[str, Any] = {}
    parts: list[str] = []
    for i, name in enumerate(wanted):
        if name in leaves:
            parts.append(value_expression(parameters, leaves[name], where, names, i))
        else:
            names[f"get{i}"] = captured[name]
            parts.append(f"get{i}()")
    if parts == [f"a{i}" for i in range(len(args))]:
        return None
    return _lambda(len(args), f"({', '.join(parts)}{',' if parts else ''})", names)


def states_function(
    parameters: Parameters, args: Sequence[Any], complete: bool, bound: Bound
) -> Callable[..., tuple[Any, ...]] | None:
    """From a call's arguments to the stateful objects among them that look after themselves; None where none does."""
    where = places(parameters, args, complete)
    found: list[str] = []
    for leaf in bound.leaves:
        if leaf.kind == "record" and getattr(type(leaf.value), STATE, False) and hasattr(leaf.value, "check"):
            place = _place(leaf, where)
            found += [] if place is None else [place]
    return _lambda(len(args), f"({', '.join(found)},)", {}) if found else None


def _place(leaf: Leaf, where: Mapping[tuple[Any, ...], str]) -> str | None:
    """The expression of a leaf; None for a default, which is the same at every call."""
    for length in range(len(leaf.path), 0, -1):
        if leaf.path[:length] in where:
            return where[leaf.path[:length]] + "".join(map(_step, leaf.path[length:]))
    return None


def value_expression(
    parameters: Parameters, leaf: Leaf, where: Mapping[tuple[Any, ...], str], names: dict[str, Any], i: int
) -> str:
    """The value of a leaf as the code takes it."""
    a = _place(leaf, where)
    if a is None:
        names[f"default{i}"] = leaf.value
        a = f"default{i}"
    if leaf.kind == "array" and adapter_of(leaf.value) is not None:
        return a
    assert leaf.dtype is not None
    dtype, parameter = leaf.dtype, parameters.by_name[leaf.path[0]]
    plain = {"float": float, "bool": bool}.get(dtype.kind)
    if type(leaf.value) is not plain:
        names[f"number{i}"] = lambda value: parameters.number(parameter, leaf.name, value, dtype)
        a = f"number{i}({a})"
    if leaf.kind == "array":  # a number for a parameter of rank 0
        names[f"array{i}"], names[f"dtype{i}"] = np.asarray, dtype.numpy
        return f"array{i}({a}, dtype{i})"
    return a
