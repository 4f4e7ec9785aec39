"""Annotations as the evaluator sees them: read from syntax, with names looked up in the function's scope."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import tessera
from tessera.compiler.frontend.names.constructor import UNSAID, set_by_constructor
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.live import LiveScope, read
from tessera.compiler.frontend.names.values import MISSING, Builtin, ClassRef, Namespace, Record, Unknown
from tessera.compiler.frontend.syntax.parse import Source
from tessera.errors import NOWHERE, Diagnostic, Span
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.annotations import (
    GENERIC,
    Annotation,
    AnnotationError,
    ConstAnn,
    LiteralAnn,
    NoSuchName,
    RecordAnn,
    ScalarAnn,
    SequenceAnn,
    TensorAnn,
    TileAnn,
    TupleAnn,
    UnknownAnn,
    annotation_from_ast,
    apart,
    holds_tensors,
    part,
)
from tessera.language.dims import Dim, Expr, symbol, symbols
from tessera.language.policies import unenforced

NOTHING = UnknownAnn()


@immutable
class Parameter:
    """One parameter. `static`: passed as an ordinary value that is known when the function is compiled."""

    name: str
    annotation: Annotation
    span: Span
    annotated: bool = False
    static: bool = False
    default: ast.expr | None = None
    variadic: str = ""
    """"*" or "**" for the two kinds that collect arguments"""


@immutable
class Signature:
    """`dims` maps each named size to the place where it is written first."""

    parameters: tuple[Parameter, ...]
    returns: Annotation | None
    returns_span: Span | None
    dims: Mapping[str, Span]
    type_parameters: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """names of the scope that the annotations mention"""


def signature_of(
    node: ast.FunctionDef | ast.Lambda, source: Source, scope: Scope
) -> tuple[Signature, list[Diagnostic]]:
    """Reads a function's parameters. Annotations that cannot be understood count as absent; the findings say why."""
    if scope.signatures is None:
        return _read_signature(node, source, scope)
    found = scope.signatures.get(node)
    if found is None:
        found = scope.signatures[node] = _read_signature(node, source, scope)
    return found


def _read_signature(
    node: ast.FunctionDef | ast.Lambda, source: Source, scope: Scope
) -> tuple[Signature, list[Diagnostic]]:
    found: list[Diagnostic] = []
    names = _type_parameters(node)
    reads: dict[str, None] = {}

    def named(dotted: str) -> object:
        reads[dotted] = None
        return resolve(scope, dotted)

    def read(annotation: ast.expr | None) -> Annotation:
        if annotation is None:
            return NOTHING
        try:
            said = annotation_from_ast(annotation, named, source.span, names)
        except AnnotationError as e:
            found.extend(e.diagnostics)
            return NOTHING
        found.extend(refused(said, source.span(annotation)))
        return said

    a = node.args
    positional = [*a.posonlyargs, *a.args]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(a.defaults)), *a.defaults]
    out = [_parameter(p, read(p.annotation), source, d) for p, d in zip(positional, defaults, strict=True)]
    if a.vararg is not None:
        out.append(_parameter(a.vararg, _several(read(a.vararg.annotation)), source, None, "*"))
    out += [_parameter(p, read(p.annotation), source, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    if a.kwarg is not None:
        out.append(_parameter(a.kwarg, _several(read(a.kwarg.annotation), keyed=True), source, None, "**"))
    written = node.returns if isinstance(node, ast.FunctionDef) else None
    none = isinstance(written, ast.Constant) and written.value is None
    returns = read(written) if written is not None and not none else None
    dims = {name: _declared(source, node, name) for name in names}
    for p in out:
        for name, span in dims_in(p.annotation):
            dims.setdefault(name, p.span if span is NOWHERE else span)  # of a field of a class
    returns = apart(returns, dims) if returns is not None else None
    for name, span in dims_in(returns):
        dims.setdefault(name, source.span(written) if span is NOWHERE and written is not None else span)
    return Signature(
        tuple(out), returns, source.span(written) if written is not None else None, dims, names, tuple(reads)
    ), found


def refused(annotation: Annotation, span: Span) -> list[Diagnostic]:
    """TS306 for the numerics policies of an annotation that nothing enforces."""
    if isinstance(annotation, TupleAnn):
        return [d for item in annotation.items for d in refused(item, span)]
    if isinstance(annotation, SequenceAnn):
        return refused(annotation.item, span)
    if isinstance(annotation, RecordAnn):
        return [d for _, field in annotation.fields for d in refused(field, span)]
    why = unenforced(getattr(annotation, "policy", None), getattr(annotation, "dtype", None))
    return [Diagnostic("TS306", why, span)] if why else []


def definition_signature(definition: Definition) -> Signature:
    """The parameters of a definition, for binding arguments to them."""
    return signature_of(definition.tree, definition.text, definition.scope)[0]


def is_scalar(p: Parameter) -> bool:
    """Whether it is a number that is passed when the program runs."""
    return isinstance(p.annotation, ScalarAnn) and not p.static


def as_annotated(p: Parameter, value: Any) -> Any:
    """An ordinary value of the kind that a compile-time number is annotated with; MISSING where it is not: 2.5 is no
    `int`, and 2.0 is 2. Of a `Literal` the value itself, if it is one of those."""
    if isinstance(p.annotation, LiteralAnn):
        absent = value is None and (p.annotation.optional or p.default is not None)
        return value if absent or p.annotation.holds(value) else MISSING
    if not isinstance(p.annotation, ScalarAnn) or not p.static:
        return value
    if value is None:
        return None if p.annotation.optional or p.default is not None else MISSING
    if not isinstance(value, (bool, int, float, complex)):
        return MISSING
    if p.annotation.dtype.kind == "bool":
        return bool(value) if value in (0, 1) else MISSING
    kept = dtypes.number(value, p.annotation.dtype)
    return MISSING if kept is None else kept


def item_of(p: Parameter, key: object) -> Parameter:
    """Item `key` of a parameter that takes a tuple, list or dict. Numbers among the items are known at compile time."""
    found = part(p.annotation, key)
    said = found if holds_tensors(found) else NOTHING
    return Parameter(f"{p.name}.{key}", said, p.span, p.annotated, p.static)


def number_dim(p: Parameter, named: Container[str]) -> Dim | None:
    """The size that a compile-time number is: H for `heads: Const["H"]`, and for `H: Const` where H is one of the sizes
    that annotations name."""
    if isinstance(p.annotation, ConstAnn) and p.annotation.dim is not None:
        return p.annotation.dim
    return symbol(p.name) if p.static and p.name in named else None


def _type_parameters(node: ast.AST) -> tuple[str, ...]:
    return tuple(p.name for p in getattr(node, "type_params", ()))


def _declared(source: Source, node: ast.AST, name: str) -> Span:
    found = next((p for p in getattr(node, "type_params", ()) if p.name == name), None)
    return source.span(found) if found else _line(source, node)


def _line(source: Source, node: ast.AST) -> Span:
    line = getattr(node, "lineno", 1)
    return Span(source.file, line, 1, line, 1)


def _parameter(
    arg: ast.arg, annotation: Annotation, source: Source, default: ast.expr | None, variadic: str = ""
) -> Parameter:
    return Parameter(
        arg.arg,
        annotation,
        source.span(arg),
        arg.annotation is not None,
        _static(arg.annotation, annotation),
        default,
        variadic,
    )


_TEXTS = ("str", "bytes")


def _static(node: ast.expr | None, annotation: Annotation) -> bool:
    """Const, `int`, `bool`, `str`, `Int`, `Bool` are compile-time; `float`, `Float`, dtypes are passed when it runs."""
    if isinstance(annotation, ConstAnn):
        return True
    if isinstance(annotation, ScalarAnn):
        head = node.value if isinstance(node, ast.Subscript) else node
        last = head.attr if isinstance(head, ast.Attribute) else head.id if isinstance(head, ast.Name) else ""
        return not annotation.dtype.is_float and (annotation.python or last in ("Int", "Bool"))
    return isinstance(annotation, UnknownAnn) and (isinstance(annotation, LiteralAnn) or annotation.text in _TEXTS)


def _several(annotation: Annotation, keyed: bool = False) -> Annotation:
    """The annotation of `*args: A`."""
    return SequenceAnn(annotation, keyed) if holds_tensors(annotation) else NOTHING


def resolve(scope: Scope, dotted: str, within: tuple[str, ...] = ()) -> object:
    """What a dotted name in an annotation stands for, in `annotation_from_ast`'s terms. `within`: the classes whose
    fields are being read."""
    value: Any = read(scope, dotted)
    if value is MISSING:
        return _missing(scope, dotted)
    if isinstance(value, Unknown):
        return UnknownAnn(dotted) if dotted.rpartition(".")[2] not in GENERIC else None
    if isinstance(value, Builtin) and "." not in value.path:
        return getattr(builtins, value.path)
    if isinstance(value, ClassRef) and value.data and value.name not in within:
        return _record(value, (*within, value.name))
    if tuple in getattr(value, "__mro__", ()) and hasattr(value, "_fields"):
        return _named_tuple(value)
    if is_dataclass(value) and (name := getattr(value, "__name__", "")) and name not in within:
        found = RecordAnn(name, tuple(_live_fields(value, (*within, name))), value)
        return found if holds_tensors(found) else UnknownAnn(dotted)
    return UnknownAnn(dotted) if isinstance(value, (ClassRef, Record, Namespace)) else value


def _missing(scope: Scope, dotted: str) -> NoSuchName | None:
    owner, _, name = dotted.rpartition(".")
    module = read(scope, owner) if owner else None
    if isinstance(module, Namespace) and module.path == "tessera" and name not in dir(tessera):
        return NoSuchName(module.path)
    return None


def _named_tuple(cls: Any) -> Annotation:
    """The annotation that a live named tuple stands for, where some of its fields are tensors."""
    module = sys.modules.get(cls.__module__)
    scope = LiveScope(SimpleNamespace(__globals__=vars(module) if module else {}))  # type: ignore[arg-type]

    def field(said: Any) -> Annotation:
        text = getattr(said, "__forward_arg__", said)  # of a ForwardRef
        if not isinstance(text, str):
            return annotation_from_ast(ast.Name(cls.__name__), lambda _: said)
        return annotation_from_ast(ast.parse(text, mode="eval").body, lambda n: resolve(scope, n, (cls.__name__,)))

    try:
        fields = tuple((n, field(a)) for n, a in cls.__annotations__.items())
    except (AnnotationError, SyntaxError):
        return UnknownAnn(cls.__name__)
    found = RecordAnn(cls.__name__, fields, cls)
    return found if holds_tensors(found) else UnknownAnn(cls.__name__)


_FIELDS: WeakKeyDictionary[type, tuple[tuple[str, Annotation], ...]] = WeakKeyDictionary()
"""of live classes"""


def fields_of(cls: Any, only: Sequence[str] | None = None) -> tuple[tuple[str, Annotation], ...]:
    """What the fields of a dataclass, live or of a text, are annotated with. `only`: the others need not be read."""
    if isinstance(cls, ClassRef):
        if only is not None:
            return _some_fields(cls, only)
        found = _record(cls, (cls.name,)) if cls.data else NOTHING
        return found.fields if isinstance(found, RecordAnn) else ()
    if cls not in _FIELDS:
        _FIELDS[cls] = tuple(_live_fields(cls, (cls.__name__,)))
    return _FIELDS[cls]


def _some_fields(cls: ClassRef, names: Sequence[str]) -> tuple[tuple[str, Annotation], ...]:
    """Those that are called so. A model holds layers of layers, whose own need not be read."""
    if not cls.data or not names:
        return ()
    try:
        return tuple(_fields(cls, (cls.name,), names).items())
    except AnnotationError:
        return ()


def _live_fields(cls: Any, within: tuple[str, ...]) -> Iterator[tuple[str, Annotation]]:
    module = sys.modules.get(cls.__module__)
    scope = LiveScope(SimpleNamespace(__globals__=vars(module) if module else {}))  # type: ignore[arg-type]
    for name, declared in getattr(cls, "__dataclass_fields__", {}).items():
        said: Any = declared.type
        try:
            text = ast.parse(said, mode="eval").body if isinstance(said, str) else ast.Name(cls.__name__)

            def resolved(dotted: str, said: Any = said) -> object:
                return resolve(scope, dotted, within) if isinstance(said, str) else said

            yield name, apart(annotation_from_ast(text, resolved))
        except (AnnotationError, SyntaxError):  # said where the class is checked
            continue


def with_self(signature: Signature, owner: ClassRef) -> Signature:
    """The signature of a method: `self` is an instance of its class, whose sizes count."""
    first, *rest = signature.parameters
    first = replace(first, annotation=_record(owner, (owner.name,)))
    sizes = {n: first.span for n, _ in dims_in(first.annotation)} | dict(signature.dims)
    return replace(signature, parameters=(first, *rest), dims=sizes)


def _record(cls: ClassRef, within: tuple[str, ...]) -> Annotation:
    """The annotation that a dataclass stands for, where some of its fields are tensors, or it is a part of a model,
    such as `Dropout`."""
    try:
        fields = tuple(_fields(cls, within).items())
    except AnnotationError:
        return UnknownAnn(cls.name)
    found = RecordAnn(cls.name, fields, cls)
    return found if holds_tensors(found) or (cls.makes_data and len(within) > 1) else UnknownAnn(cls.name)


def _fields(cls: ClassRef, within: tuple[str, ...], only: Sequence[str] | None = None) -> dict[str, Annotation]:
    """The fields of a class: those of the classes above it, each read where its class stands, its own, and what its
    constructor sets beside them; of these `only` some."""

    def of(node: ast.expr, scope: Scope | None) -> Annotation:
        def named(dotted: str) -> object:
            return resolve(scope, dotted, within) if scope is not None else UnknownAnn(dotted)

        return apart(annotation_from_ast(node, named))

    found: dict[str, Annotation] = {}
    for base in cls.bases:
        found |= _fields(base, within, only)
    found |= {n: of(a, cls.scope) for n, a in cls.annotations.items() if only is None or n in only}
    if only is not None and found.keys() >= set(only):
        return found
    for name, node in set_by_constructor(cls).items():
        if name not in found and (only is None or name in only):
            try:
                found[name] = of(node, cls.scope) if node is not UNSAID else NOTHING
            except AnnotationError:  # of a parameter: said where the constructor is checked
                found[name] = NOTHING
    return found


def dims_in(annotation: Annotation | None) -> list[tuple[str, Span]]:
    """The named sizes of an annotation with their places."""
    if isinstance(annotation, TupleAnn):
        return [d for item in annotation.items for d in dims_in(item)]
    if isinstance(annotation, SequenceAnn):
        return dims_in(annotation.item)
    if isinstance(annotation, RecordAnn):
        return [d for _, field in annotation.fields for d in dims_in(field)]
    sizes: tuple[Any, ...] = ()
    if isinstance(annotation, (TensorAnn, TileAnn)):
        sizes = annotation.shape or ()
    elif isinstance(annotation, ConstAnn):
        sizes = (annotation.dim,) if annotation.dim is not None else ()
    if not isinstance(annotation, (TensorAnn, TileAnn, ConstAnn)):
        return []
    spans = annotation.spans
    found = [(n, spans[i]) for i, d in enumerate(sizes) if i < len(spans) for n in sorted(_names(d))]
    return [(n, span) for n, span in found if not n.startswith("?")]


def _names(d: object) -> frozenset[str]:
    return symbols(d) if isinstance(d, Expr) else frozenset()


def size_text(shape: tuple[Dim | Any, ...]) -> str:
    """`"B", "C", 1, 1`, as in an annotation."""
    return ", ".join("..." if d is ... else str(d) if isinstance(d, int) else f'"{d}"' for d in shape)
