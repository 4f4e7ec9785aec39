"""Binds the arguments of a call to types and sizes, or reports a mismatch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from tessera.compiler.frontend.names.binding import Conflict, Equation, describe, equations, solve, value_equation
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.frontend.names.live import run_by
from tessera.compiler.frontend.names.signature import Parameter, as_annotated, definition_signature, item_of, number_dim
from tessera.compiler.frontend.names.values import MISSING, Static, remade
from tessera.compiler.frontend.result import ArgType
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.compiler.machines import HOST
from tessera.errors import Diagnostic, LaunchError, Note
from tessera.immutable import immutable, mutable
from tessera.language import dtypes
from tessera.language.annotations import LiteralAnn, ScalarAnn, TensorAnn, TileAnn, TupleAnn, misheld
from tessera.language.dims import Dim, Facts, symbols
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.records import Attribute, holding, is_record, members, tensor_fields
from tessera.runtime.arrays.adapter import Adapter, ArrayView
from tessera.runtime.arrays.libraries import NUMPY, adapter_of
from tessera.runtime.callsite import call_span
from tessera.runtime.codegen import expression

_NUMBERS = (bool, int, float, complex)


@immutable
class Leaf:
    """One argument, or one item of a nested one: `path` leads from the parameter to it."""

    name: str
    """as `Param`s are called: "x", "layers.0" """
    path: tuple[Any, ...]
    """the parameter's name, then indices, keys and attributes"""
    value: Any
    kind: str
    """array, scalar, static; record: a dataclass whose parts are leaves of their own"""
    dtype: DType | None = None


_SCHEDULE = ("num_warps", "num_stages")
"""what Triton takes at a launch"""


@mutable
class Bound:
    """The arguments of one call, sorted. Keys of `values` and `views` are names of leaves."""

    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """what `analyse` takes: parameter -> ArgType, or a tuple, dict or dataclass of them"""
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """what the code takes when it runs: arrays and scalars"""
    views: dict[str, ArrayView] = field(default_factory=dict[str, ArrayView])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """the key as people read it, for `why_recompiled`"""
    leaves: list[Leaf] = field(default_factory=list[Leaf])
    parameters: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    """the parameter that a leaf belongs to; of a tuple, list or dict the item, by its own annotation"""
    adapter: Adapter | None = None
    """of the first array: results belong to its library"""
    device: str = HOST
    constant: set[str] = field(default_factory=set[str])
    """the names of arrays that never change"""

    @property
    def fixed(self) -> dict[str, Any]:
        """What is known when the program is compiled, by name: plain values, and dataclasses without their arrays."""
        return {leaf.name: leaf.value for leaf in self.leaves if leaf.kind in ("static", "record")}

    @property
    def spec(self) -> tuple[str, ...]:
        """The key as text: the same in every process."""
        return tuple(f"{name}: {value}" for name, value in self.fields.items())


class Parameters:
    """The parameters of one function or kernel, for binding calls. `function` is the live Python function."""

    def __init__(self, definition: Definition, function: Callable[..., Any]) -> None:
        self.definition = definition
        self.name = definition.name
        self.signature = definition_signature(definition)
        self.by_name = {p.name: p for p in self.signature.parameters}
        own = getattr(function, "__signature__", None)  # of a transform, which takes other arguments than its function
        self.python = own if own is not None else inspect.signature(run_by(function), follow_wrapped=False)
        self.dims = frozenset(self.signature.dims) - frozenset(self.signature.reads)
        """names of sizes, which hide what has such a name outside"""
        self.open = frozenset[str](definition.options.get("open_dims", ()))
        """dims whose sizes the code does not know"""
        self._orders: dict[tuple[Any, ...], Callable[..., tuple[Any, ...]]] = {}
        self._changing: dict[int, bool] = {}

    def positions(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter, live defaults filled in. Raises LaunchError TS105 where they do not fit."""
        try:
            bound = self.python.bind(*args, **kwargs)
        except TypeError as error:
            bare = [p.replace(annotation=p.empty) for p in self.python.parameters.values()]
            wanted = inspect.Signature(bare)
            how = "".join(
                f"\nWrite @ts.kernel({n}=...) or {self.name}.with_config({n}=...)" for n in kwargs if n in _SCHEDULE
            )
            message = f"{error}\nExpected: {self.name}{wanted}{how if self.definition.kind == 'kernel' else ''}"
            raise LaunchError(self._diagnostic("TS105", message, None)) from None
        bound.apply_defaults()
        return bound.arguments

    def complete(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """One argument for each parameter, in order. Raises LaunchError TS105 where they do not fit."""
        shape = (len(args), *kwargs)
        order = self._orders.get(shape)
        if order is None:
            values = self.positions(args, kwargs)  # says what does not fit
            if kwargs.keys() - self.by_name.keys():
                return tuple(values.values())
            order = self._orders[shape] = self._order(len(args), kwargs)
        return order(args, kwargs)

    def changing(self, count: int) -> bool:
        """Whether a call with this many positional arguments leaves out a default that may be another one next time."""
        if count not in self._changing:
            left = [p for i, p in enumerate(self.python.parameters.values()) if i >= count or p.kind is p.KEYWORD_ONLY]
            self._changing[count] = any(map(_changes, (p.default for p in left)))
        return self._changing[count]

    def _order(self, count: int, kwargs: Mapping[str, Any]) -> Callable[..., tuple[Any, ...]]:
        """The expression that does it for calls with this many positional and these keyword arguments."""
        names: dict[str, Any] = {}
        parts: list[str] = []
        for i, (name, p) in enumerate(self.python.parameters.items()):
            if p.kind is p.VAR_POSITIONAL:
                parts.append(f"args[{i}:]")
            elif p.kind is p.VAR_KEYWORD:
                parts.append("{}")
            elif name in kwargs:
                parts.append(f"kwargs[{name!r}]")
            elif i < count and p.kind is not p.KEYWORD_ONLY:
                parts.append(f"args[{i}]")
            else:
                names[f"default{i}"] = p.default
                parts.append(f"default{i}")
        return expression(f"lambda args, kwargs: ({', '.join(parts)},)", names)

    def bind(self, values: Mapping[str, Any], dims: Mapping[str, int] | None = None) -> Bound:
        """Sorts the arguments of a call, by parameter; `dims` are fixed sizes. Raises LaunchError with all findings."""
        out, findings = Bound(), list[Diagnostic]()
        for name, value in values.items():
            p = self.by_name[name]
            try:
                out.arguments[name] = self._nested(out, p, (name,), value)
            except LaunchError as error:
                findings += error.diagnostics
        findings += self._sizes(out, dims or {})
        findings += self._devices(out)
        if findings:
            raise LaunchError(findings)
        return out

    # one argument

    def _nested(self, out: Bound, p: Parameter, path: tuple[Any, ...], value: Any) -> Any:
        """Tuples, lists and dicts that hold arrays are sorted item by item; anything else is one argument."""
        if not p.variadic and (wanted := misheld(p.annotation, _holder(value))):
            received = f"Expected: {p.annotation}\nReceived: {_kind(value)}"
            raise LaunchError(self._diagnostic("TS501", f"{'.'.join(map(str, path))} must be {wanted}.\n{received}", p))
        if isinstance(value, (tuple, list)) and (p.variadic or holds_array(value)):
            wanted = getattr(p.annotation, "items" if isinstance(p.annotation, TupleAnn) else "fields", value)
            if len(value) != len(wanted):
                count = f"{len(value)} item{'s' * (len(value) != 1)}"
                raise LaunchError(self._diagnostic("TS209", f"{p.name} has {count}.\nExpected: {len(wanted)}", p))
            items = (self._nested(out, item_of(p, i), (*path, i), v) for i, v in enumerate(value))
            return remade(value, items)
        if isinstance(value, dict) and (p.variadic or holds_array(value)):
            return {k: self._nested(out, item_of(p, k), (*path, k), v) for k, v in value.items()}
        if is_record(value) and adapter_of(value) is None and holds_array(value):
            return self._record(out, p, path, value)
        return self._one(out, p, path, value)

    def _record(self, out: Bound, p: Parameter, path: tuple[Any, ...], value: Any) -> Any:
        """A dataclass that holds arrays, as its parts. What its methods read is read from a copy without arrays."""
        kind = type(value)
        parts = {
            n: self._nested(out, _item_of_record(p, kind, n, v), (*path, Attribute(n)), v)
            for n, v in members(value).items()
        }
        bare = holding(kind, {n: _bare(v) for n, v in parts.items()})
        self._keep(
            out, p, Leaf(".".join(map(str, path)), path, bare, "record"), f"{kind.__module__}.{kind.__qualname__}", None
        )
        return holding(kind, parts)

    def _one(self, out: Bound, p: Parameter, path: tuple[Any, ...], value: Any) -> ArgType:
        name = ".".join(map(str, path))
        wants_array = isinstance(p.annotation, (TensorAnn, TileAnn))
        scalar = p.annotation if isinstance(p.annotation, ScalarAnn) and not p.static else None
        named = wants_array or isinstance(p.annotation, (ScalarAnn, LiteralAnn))
        demanded = named and not p.annotation.optional and p.default is None
        if value is None and not demanded:
            return self._keep(out, p, Leaf(name, path, None, "static"), "None", None)
        adapter = None if scalar is not None or p.static else adapter_of(value)
        if adapter is None and wants_array:
            if not isinstance(value, (*_NUMBERS, np.generic)) or p.annotation.shape != ():  # type: ignore[union-attr]
                raise LaunchError(self._not_an_array(p, name, value))
            adapter = NUMPY  # a number for a parameter of rank 0
        if adapter is not None:
            type = self._array(out, p, name, value, adapter)
            shown = {"shape": tuple(d if isinstance(d, int) else str(d) for d in type.shape), "dtype": str(type.dtype)}
            if adapter.constant:
                shown["constant"] = "yes"
            if isinstance(p.annotation, TensorAnn) and len(p.annotation.shape or ()) == len(type.shape):
                shown["dims"] = tuple(map(str, p.annotation.shape or ()))
            return self._keep(out, p, Leaf(name, path, value, "array", type.dtype), shown, type)
        if scalar is not None:
            out.values[name] = self.number(p, name, value, scalar.dtype)
            leaf = Leaf(name, path, value, "scalar", scalar.dtype)
            return self._keep(out, p, leaf, f"scalar {scalar.dtype}", TensorType((), scalar.dtype))
        value = value.item() if isinstance(value, np.generic) else value
        kept = as_annotated(p, value)
        if kept is MISSING:
            raise LaunchError(self._unfit(p, name, value))
        value = kept
        return self._keep(out, p, Leaf(name, path, value, "static"), fingerprint(value), Static(value))

    def _keep(self, out: Bound, p: Parameter, leaf: Leaf, shown: Any, argument: ArgType) -> ArgType:
        out.leaves.append(leaf)
        out.parameters[leaf.name] = p
        out.fields[f"argument {leaf.name}"] = shown
        return argument

    def _array(self, out: Bound, p: Parameter, name: str, value: Any, adapter: Adapter) -> TensorType:
        if isinstance(value, (*_NUMBERS, np.generic)):
            wanted = p.annotation.dtype or (None if isinstance(value, np.generic) else dtypes.weak(value, None))  # type: ignore[union-attr]
            if wanted is not None:
                value = self.number(p, name, value, wanted)
            value = np.asarray(value, None if wanted is None else wanted.numpy)
        try:
            view = adapter.view(value)
        except LaunchError as error:
            raise LaunchError(
                [self._diagnostic(d.code, f"{name}: {d.message}", p) for d in error.diagnostics]
            ) from None
        wanted = getattr(p.annotation, "dtype", None)
        if wanted is not None and wanted.numpy != view.dtype.numpy:
            message = (
                f"{name} has elements of {view.dtype}; convert it with {_conversion(adapter, wanted)}.\n"
                f"Expected: {p.annotation}\nReceived: {adapter.name} array {shape_text(view.shape)} {view.dtype}"
            )
            raise LaunchError(self._diagnostic("TS304", message, p))
        out.values[name], out.views[name] = value, view
        if adapter.constant:
            out.constant.add(name)
        else:
            out.adapter = out.adapter or adapter
        return TensorType(self.known_shape(p, view.shape), wanted or view.dtype)

    def known_shape(self, p: Parameter, shape: tuple[int, ...]) -> tuple[Dim, ...]:
        """What the code knows of the shape of an argument: its sizes, and the annotation's dims where they are open."""
        wanted: Any = getattr(p.annotation, "shape", None)
        if not self.open or wanted is None:
            return shape
        if ... in wanted:
            at, more = wanted.index(...), len(shape) - len(wanted) + 1
            wanted = (*wanted[:at], *shape[at : at + more], *wanted[at + 1 :])
        if len(wanted) != len(shape):  # which is an error, reported with all others
            return shape
        return tuple(d if symbols(d) & self.open else n for d, n in zip(wanted, shape, strict=True))

    def number(self, p: Parameter, name: str, value: Any, dtype: DType) -> bool | int | float | complex:
        """A scalar argument as a Python number that `dtype` can hold. Raises LaunchError TS501, TS304."""
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            value = value.item()
        if not isinstance(value, _NUMBERS):
            message = f"{name} must be a number.\nExpected: {dtype}\nReceived: {_kind(value)}"
            raise LaunchError(self._diagnostic("TS501", message, p))
        kept = dtypes.number(value, dtype)
        if kept is None:
            raise LaunchError(self._diagnostic("TS304", f"{name} is {value!r}, which {dtype} cannot hold.", p))
        return kept

    def _unfit(self, p: Parameter, name: str, value: Any) -> Diagnostic:
        """Of a value that is known when the program is compiled."""
        if isinstance(p.annotation, LiteralAnn):
            return self._diagnostic("TS105", f"{name} is {p.annotation}, not {value!r}.", p)
        if isinstance(value, _NUMBERS):
            return self._diagnostic("TS304", f"{name} is {value!r}, which {p.annotation} cannot hold.", p)
        message = f"{name} must be a number.\nExpected: {p.annotation}\nReceived: {_kind(value)}"
        return self._diagnostic("TS501", message, p)

    def _not_an_array(self, p: Parameter, name: str, value: Any) -> Diagnostic:
        wanted = p.annotation.dtype or dtypes.f32  # type: ignore[union-attr]
        listed, series = isinstance(value, (list, tuple)), hasattr(value, "to_numpy")
        fix = f"; make it one with np.asarray({name}, np.{wanted.numpy_name})" if listed or series else ""
        return self._diagnostic(
            "TS501", f"{name} must be an array.\nExpected: {p.annotation}\nReceived: {_kind(value)}{fix}", p
        )

    # all of them together

    def _sizes(self, out: Bound, fixed: Mapping[str, int]) -> list[Diagnostic]:
        """Solves the named dims; findings name the argument and axis and where the dim was bound."""
        found: list[Equation] = []
        findings: list[Diagnostic] = []
        parameters = out.parameters
        for name, view in out.views.items():
            p = parameters[name]
            pairs = equations(name, p.annotation, view.shape)
            if pairs is None:
                count = f"{len(view.shape)} ax{'is' if len(view.shape) == 1 else 'es'}"
                message = f"{name} has {count}.\nExpected: {p.annotation}\nReceived: {shape_text(view.shape)}"
                findings.append(self._diagnostic("TS209", message, p))
            found += pairs or []
        for name, argument in out.arguments.items():
            if isinstance(argument, Static):
                found += value_equation(name, number_dim(self.by_name[name], self.signature.dims), argument.value)
        sizes, conflicts, _ = solve(found, dict(fixed), Facts())
        findings += [self._conflict(c, parameters, fixed) for c in conflicts]
        out.sizes = {name: size for name, size in sizes.items() if isinstance(size, int)}
        return findings

    def _conflict(self, c: Conflict, parameters: Mapping[str, Parameter], fixed: Mapping[str, int]) -> Diagnostic:
        e = c.equation
        p = parameters[e.name]
        notes: list[Note] = []
        if c.first is not None:
            by = parameters[c.first.name]
            notes.append(Note(f"{c.first.want} was bound to {c.first.have} by {c.first.place}", by.span))
        elif str(e.want) in fixed:
            notes.append(Note(f"{e.want} was fixed to {fixed[str(e.want)]} when {self.name} was compiled"))
        code = "TS208" if c.first is not None else "TS209"
        return self._diagnostic(code, f"{describe(c)}.\nExpected: {p.annotation}", p, *notes)

    def _devices(self, out: Bound) -> list[Diagnostic]:
        views = list(out.views.items())
        if not views:
            return []
        first, view = views[0]
        out.device = view.device
        return [
            self._diagnostic(
                "TS504", f"{name} lives on {other.device}, but {first} lives on {view.device}; move one of them.",
                self.by_name[name.partition(".")[0]],
            )
            for name, other in views[1:]
            if other.device != view.device
        ]  # fmt: skip

    def _diagnostic(self, code: str, message: str, p: Parameter | None, *notes: Note) -> Diagnostic:
        call = call_span()
        called = (Note("called here", call),) if call.line else ()
        span = p.span if p is not None else self.definition.span
        return Diagnostic(code, message, span, notes=(*notes, *called), function=self.name)


def _bare(part: Any) -> Any:
    """A part of a nested argument without its arrays."""
    if isinstance(part, (Static, TensorType)):
        return getattr(part, "value", None)
    if isinstance(part, (tuple, list)):
        return remade(part, map(_bare, part))
    if isinstance(part, dict):
        return {k: _bare(v) for k, v in part.items()}
    return holding(type(part), {n: _bare(v) for n, v in members(part).items()}) if is_record(part) else part


def _item_of_record(p: Parameter, kind: type, name: str, value: Any) -> Parameter:
    """A field of a dataclass. NumPy's arithmetic makes scalars of arrays without axes: where the class says `Tensor`,
    they are arrays all the same."""
    item = item_of(p, name)
    if isinstance(value, np.generic) and name in tensor_fields(kind) and not isinstance(item.annotation, TensorAnn):
        return replace(item, annotation=TensorAnn(()))
    return item


def holds_array(value: Any) -> bool:
    """Whether an array stands somewhere inside nested lists, tuples, dicts and dataclasses."""
    if isinstance(value, (list, tuple)):
        return any(map(holds_array, value))
    if isinstance(value, dict):
        return any(map(holds_array, value.values()))
    if adapter_of(value) is not None:
        return True
    try:
        return is_record(value) and any(map(holds_array, members(value).values()))
    except RecursionError:  # objects that hold each other are not a tree
        return False


def _holder(value: Any) -> str:
    """What `value` is to an annotation that speaks of several tensors."""
    if isinstance(value, (tuple, list)):
        return "sequence"
    return "dict" if isinstance(value, dict) else "tensor" if adapter_of(value) is not None else ""


def _kind(value: Any) -> str:
    """How messages call a value that is not what was wanted."""
    text = repr(value) if isinstance(value, (*_NUMBERS, str, type(None))) else ""
    name = type(value).__name__
    return f"{text} ({name})" if text and value is not None else text or f"a {name}"


def _conversion(adapter: Adapter, dtype: DType) -> str:
    """How to convert, in the words of the array's own library."""
    home = {"torch": "torch", "jax": "jnp", "cupy": "cp"}.get(adapter.name, "np")
    if home == "np" and not hasattr(np, dtype.numpy_name):
        home = "ml_dtypes"
    return f".to(torch.{dtype.numpy_name})" if home == "torch" else f".astype({home}.{dtype.numpy_name})"


def _changes(value: Any) -> bool:
    """Whether a value may hold something else the next time: a container, a record, a tensor that may come to require
    a gradient."""
    if isinstance(value, tuple):
        return any(map(_changes, value))
    return (
        isinstance(value, (list, dict, set))
        or adapter_of(value) is not None
        or (is_record(value) and not isinstance(value, DType))
    )
