"""Finds the prepared call for an operator's arguments: by position in one generated function, else by a full key."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tessera.compiler.graph.infer import shown
from tessera.compiler.graph.operator import Operator, OperatorParameter
from tessera.errors import Diagnostic, LaunchError, RecompilationWarning
from tessera.language import dtypes
from tessera.language.lazy import np
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.call import dispatch
from tessera.runtime.call.contents import content
from tessera.runtime.call.dispatch import CallSite
from tessera.runtime.call.ready import Ready
from tessera.runtime.call.signatures import array_key
from tessera.runtime.callsite import call_span
from tessera.runtime.code.recent import Recent
from tessera.runtime.code.watch import Watch, settings
from tessera.runtime.codegen import expression
from tessera.runtime.eager.compile import CONSTANT_NUMBERS, NUMBERS, EagerCall, flat_operands, prepare_call
from tessera.runtime.eager.tensor import Tensor

KEPT = 1024
"""prepared calls; beyond it those used longest ago go"""

_calls: Recent[tuple[Any, ...], EagerCall] = Recent(KEPT)
_sites: dict[tuple[Any, ...], CallSite] = {}


def positional(operator: Operator, args: tuple[Any, ...]) -> Any:
    """Calls an operator whose arguments are given by position: the usual call, and the quick one."""
    site = _sites.get((operator.name, *map(type, args)))
    return _first(operator, args) if site is None else site.call(*args)


def general(operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Calls an operator with any arguments. Raises LaunchError TS105 where they do not fit its parameters."""
    recorder = dispatch.recorder
    if recorder is not None and recorder.among((*args, *kwargs.values())):
        return recorder.operator(operator, tuple(args), kwargs)
    try:
        operands, attrs = operator.bind(args, kwargs)
    except TypeError as error:
        raise LaunchError(Diagnostic("TS105", str(error), call_span())) from None
    return _launch(operator, operands, attrs)


def _launch(operator: Operator, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
    operands = as_arrays(operator, operands)
    flat = flat_operands(operands)
    call = _find(operator, operands, flat, attrs)
    if call is None:
        return _launch(operator, _with_tensor(operands), attrs)
    return call.run(*[flat[i] for i in call.positions])


def _find(operator: Operator, operands: Sequence[Any], flat: list[Any], attrs: dict[str, Any]) -> EagerCall | None:
    """The prepared call for operands like these; None where all of them are numbers."""
    if any(isinstance(v, NUMBERS) for v in flat) and not any(adapter_of(v) is not None for v in flat):
        return None
    attrs = {name: as_attribute(name, value) for name, value in attrs.items()}
    structure = tuple(len(o) if isinstance(o, (list, tuple)) else -1 for o in operands)
    key = (operator.name, tuple(_key(operator, v) for v in flat), structure, content(attrs), settings())
    call = _calls.get(key)
    if call is None:
        call = prepare_call(operator, operands, attrs)
        _calls.put(key, call)
        _count(operator, flat, (structure, content(attrs)))
    return call


SIZES = 32
"""sizes of which an operator outside of functions is compiled without a warning"""
_sizes: Counter[tuple[Any, ...]] = Counter()
"""how often an operator was compiled, by shapes in which one size is left open"""
_told: set[str] = set()


def _count(operator: Operator, flat: Sequence[Any], rest: tuple[Any, ...]) -> None:
    """Warns TS508, once for all operators, of one that is compiled for ever new sizes where all else stays."""
    views = [a.view(v) for v in flat if (a := adapter_of(v)) is not None]
    common = (operator.name, tuple(v.dtype for v in views), rest)
    grows = False
    for size in {n for v in views for n in v.shape}:
        form = (*common, tuple(tuple(None if n == size else n for n in v.shape) for v in views))
        _sizes[form] += 1
        grows |= _sizes[form] == SIZES
    if not grows or _told:
        return
    _told.add(operator.name)
    shapes = " and ".join(str(list(v.shape)) for v in views)
    message = (
        f"{operator.name} has been compiled for {SIZES} sizes, the last time for {shapes}, and probably so were the"
        ' operators around it. A function, @ts.function(open_dims="T"), is compiled once for all sizes, and so is what'
        " is padded to one size. Text is generated with a ts.KVCache."
    )
    place = call_span()
    said = Diagnostic("TS508", message, place, "warning")
    warnings.warn_explicit(said.render(), RecompilationWarning, place.file, place.line)


def as_arrays(operator: Operator, operands: Sequence[Any]) -> list[Any]:
    """The operands with lists and NumPy's scalars as Tensors, as NumPy takes them.

    Raises LaunchError TS501 for what is not an array, list or number.
    """
    return [
        [_as_array(operator, p, v) for v in o]
        if p.variadic and isinstance(o, (list, tuple))
        else _as_array(operator, p, o)
        for p, o in zip(operator.operands, operands, strict=True)
    ]


def _is_plain(parameter: OperatorParameter, value: Any) -> bool:
    """Whether an operand is given in the form that operators work on."""
    return isinstance(value, NUMBERS) or adapter_of(value) is not None or (value is None and parameter.optional)


def _as_array(operator: Operator, parameter: OperatorParameter, value: Any) -> Any:
    return value if _is_plain(parameter, value) else from_list(operator.name, parameter.name, value)


def from_list(function: str, parameter: str, value: Any) -> Tensor:
    """A list or one of NumPy's scalars as a Tensor. Raises LaunchError TS501 for what is neither."""
    what = shown(value)
    if isinstance(value, (list, tuple, range, np.generic)):
        try:
            return Tensor(value)
        except LaunchError as error:
            what += f": {error.diagnostics[0].message}"
    message = f"{function} takes an array, a list or a number as {parameter}, not {what}"
    raise LaunchError(Diagnostic("TS501", message, call_span(), function=function))


def _with_tensor(operands: Sequence[Any]) -> list[Any]:
    """Numbers alone: the first of them becomes a Tensor, so that there is something to compute with."""
    out = [list(o) if isinstance(o, (list, tuple)) else o for o in operands]
    for i, o in enumerate(out):
        if isinstance(o, NUMBERS):
            out[i] = Tensor(o)
            return out
        if isinstance(o, list) and o:
            o[0] = Tensor(o[0])
            return out
    return out


def as_attribute(name: str, value: Any) -> Any:
    """dtypes in any library's spelling, and integers held in arrays, as the operators want them."""
    if name == "dtype" and value is not None:
        return dtypes.of(value) or value
    if adapter_of(value) is not None and getattr(value, "shape", None) == () and dtypes.of(value.dtype) is not None:
        return value.item()
    return value.item() if isinstance(value, np.generic) else value


def _key(operator: Operator, value: Any) -> Any:
    adapter = adapter_of(value)
    if adapter is not None:
        return type(value), adapter.key(value)
    if isinstance(value, NUMBERS) and operator.name not in CONSTANT_NUMBERS:
        return type(value)
    return content(value)


def _first(operator: Operator, args: tuple[Any, ...]) -> Any:
    """A positional call of new types, or of a new key."""
    if dispatch.recorder is not None and dispatch.recorder.among(args):
        return dispatch.recorder.operator(operator, args, {})
    if any(p.spread or p.variadic for p in operator.parameters) or len(args) > len(operator.parameters):
        return general(operator, args, {})
    try:
        operands, attrs = operator.bind(args, {})
    except TypeError:
        return general(operator, args, {})
    if not all(map(_is_plain, operator.operands, operands)):
        return _launch(operator, operands, attrs)
    call = _find(operator, operands, flat_operands(operands), attrs)
    if call is None:
        return _launch(operator, operands, attrs)
    types = (operator.name, *map(type, args))
    if types not in _sites:
        _sites.setdefault(types, _site(operator, args))  # one step: of two threads, one is first
    place = [i for i, p in enumerate(operator.parameters) if p.operand]  # flat operand -> argument
    wanted = [f"a{place[i]}" for i in call.positions]
    given = [f"a{i}" for i in range(len(args))]
    run = call.run
    if wanted != given:
        run = expression(f"lambda {', '.join(given)}: run({', '.join(wanted)})", {"run": run})
    site = _sites[types]
    site.add(site.key(*args), Ready(run, Watch([]).guard()))
    return run(*args)


def _site(operator: Operator, args: tuple[Any, ...]) -> CallSite:
    parts: list[str] = []
    names: dict[str, Any] = {"content": content}
    for i, (p, value) in enumerate(zip(operator.parameters, args, strict=False)):
        if p.operand and isinstance(value, NUMBERS) and operator.name not in CONSTANT_NUMBERS:
            continue  # passed when it runs
        parts += array_key(f"a{i}", value, names) or [f"content(a{i})"]
    key = f"({', '.join(parts)}{',' if parts else ''})"
    return CallSite(key, names, len(args), lambda args: _first(operator, args))
