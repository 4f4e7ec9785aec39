"""The classes of annotations, and the rules for the items in their brackets.

Dims come first (strings, integers, expressions, `...`), then a dtype, then numerics policies; `dtype=` and `policy=`
name the latter two (only in the dialect; plain Python passes them by position).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import field, replace
from types import EllipsisType
from typing import Any, ClassVar, NoReturn, SupportsIndex, TypeAlias, TypeGuard, cast

from tessera.errors import NOWHERE, AnnotationError, Diagnostic, Edit, Fix, Span
from tessera.immutable import immutable
from tessera.language import dims, dtypes, policies
from tessera.language.dims import Dim, DimError, Expr
from tessera.language.dtypes import DType
from tessera.language.policies import Policy, PolicyError, PolicyPart
from tessera.nearest import nearest
from tessera.tracebacks import outward

Shape: TypeAlias = "tuple[Dim | EllipsisType, ...]"


class _Optional:
    """`annotation | None` at run time."""

    __slots__ = ()

    def __or__(self, other: object) -> Any:
        return replace(cast(Any, self), optional=True) if other in (None, type(None)) else NotImplemented

    __ror__ = __or__


@immutable
class _Shaped(_Optional):
    shape: Shape | None = None
    dtype: DType | None = None
    policy: Policy | None = None
    optional: bool = False
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return _text(type(self).__name__.removesuffix("Ann"), self.shape, self.dtype, self.policy, self.optional)

    __iter__: ClassVar[None] = None

    def __getitem__(self, item: object) -> NoReturn:
        fail(no_dims_of(self))


@immutable
class TensorAnn(_Shaped):
    """`shape` None: open, any rank. An Ellipsis in it stands for any number of axes. `spans`: one for each axis."""


@immutable
class TileAnn(_Shaped):
    """As TensorAnn, for a parameter that a kernel reads or writes tile by tile."""


@immutable
class ConstAnn(_Optional):
    """A Python value known at compile time. `Const["H"]` binds the dim to it; `Const[int]` gives its type."""

    dim: Dim | None = None
    dtype: DType | None = None
    optional: bool = False
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        message = (
            f'["{self.dim}"]' if self.dim is not None else f"[{self.dtype.kind}]" if self.dtype is not None else ""
        )
        return f"Const{message}" + (" | None" if self.optional else "")


@immutable
class ScalarAnn(_Optional):
    """A scalar passed by value. `python`: annotated with Python's own `int`, `float`, `bool` or `complex`."""

    dtype: DType
    python: bool = False
    optional: bool = False

    def __str__(self) -> str:
        return (self.dtype.kind if self.python else str(self.dtype)) + (" | None" if self.optional else "")


@immutable
class TupleAnn(_Optional):
    """`tuple[A, B]`, for functions that return several values."""

    items: tuple[Annotation, ...]
    optional: bool = False

    def __str__(self) -> str:
        return f"tuple[{', '.join(map(str, self.items))}]" + (" | None" if self.optional else "")


@immutable
class SequenceAnn(_Optional):
    """`list[A]`, `tuple[A, ...]` and, `keyed`, `dict[str, A]`: several values of one kind."""

    item: Annotation
    keyed: bool = False
    optional: bool = False

    def __str__(self) -> str:
        return (f"dict[str, {self.item}]" if self.keyed else f"list[{self.item}]") + (
            " | None" if self.optional else ""
        )


@immutable
class RecordAnn(_Optional):
    """A dataclass or named tuple, by its annotated fields. `type` represents the class itself.

    `given`: the annotation has sizes, as in `Linear["D", "H"]`.
    """

    name: str
    fields: tuple[tuple[str, Annotation], ...]
    type: object = field(default=None, compare=False, repr=False)
    optional: bool = False
    given: bool = False

    @property
    def named_tuple(self) -> bool:
        """Whether `type` is a live named tuple."""
        return isinstance(self.type, type) and issubclass(self.type, tuple)

    def __str__(self) -> str:
        return self.name + (" | None" if self.optional else "")


@immutable
class UnknownAnn(_Optional):
    """An annotation without meaning for the compiler, such as `KVCache` or `str`; `text` is its source."""

    text: str = ""
    optional: bool = False

    def __str__(self) -> str:
        return (self.text or "Any") + (" | None" if self.optional else "")


@immutable
class LiteralAnn(UnknownAnn):
    """`Literal["sum", "mean"]`: one of these values, which is known when a program is compiled."""

    values: tuple[str | bytes | int | bool | None, ...] = ()

    def holds(self, value: object) -> bool:
        """Whether it is one of the values: 1 is not True."""
        return any(type(value) is type(v) and value == v for v in self.values)

    def __str__(self) -> str:
        return " or ".join(map(repr, self.values)) + (" or None" if self.optional else "")


@immutable
class NoSuchName:
    """A name that a module of Tessera does not have, such as `ts.Tensro`."""

    module: str


Annotation: TypeAlias = TensorAnn | TileAnn | ConstAnn | ScalarAnn | TupleAnn | SequenceAnn | RecordAnn | UnknownAnn


def holds_tensors(a: Annotation) -> bool:
    """Whether it is or contains a tensor with a shape."""
    if isinstance(a, (TensorAnn, TileAnn)):
        return a.shape is not None
    if isinstance(a, SequenceAnn):
        return holds_tensors(a.item)
    parts = a.items if isinstance(a, TupleAnn) else [f for _, f in a.fields] if isinstance(a, RecordAnn) else ()
    return any(map(holds_tensors, parts))


def no_dims_of(value: object) -> str:
    """Why what stands before the brackets takes no dims: `f32["B"]`, `Tensor["B"]["N"]`; "" where it does."""
    if isinstance(value, DType):
        return value.no_dims
    return f"{value} has its dims already" if isinstance(value, (TensorAnn, TileAnn)) else ""


def misheld(a: Annotation, kind: str) -> str:
    """What an annotation wants in place of a `kind` ("tensor", "sequence" or "dict") that cannot be what it says: of
    `list[Tensor]` for one tensor "a tuple or list of tensors"; "" where it can."""
    if not holds_tensors(a) or isinstance(a, (TensorAnn, TileAnn)):
        return ""
    if isinstance(a, RecordAnn):
        return f"a {a.name}" if kind == "tensor" else ""
    wanted = "dict" if isinstance(a, SequenceAnn) and a.keyed else "sequence"
    words = {"dict": "a dict of tensors", "sequence": "a tuple or list of tensors"}
    return words[wanted] if kind and kind != wanted else ""


def part(a: Annotation, key: object) -> Annotation:
    """The annotation of the item `key` (an index or a key) of a tuple, list or dict, or of the field of a dataclass."""
    if isinstance(a, SequenceAnn):
        return a.item
    if isinstance(a, RecordAnn) and isinstance(key, str):
        return dict(a.fields).get(key, UnknownAnn())
    items = a.items if isinstance(a, TupleAnn) else tuple(f for _, f in a.fields) if isinstance(a, RecordAnn) else ()
    return items[key] if isinstance(key, int) and key < len(items) else UnknownAnn()


def parts_of(a: Annotation) -> tuple[Annotation, ...]:
    """The annotations inside one: of a tuple's items, a list's item, a dataclass's fields."""
    if isinstance(a, TupleAnn):
        return a.items
    if isinstance(a, RecordAnn):
        return tuple(f for _, f in a.fields)
    return (a.item,) if isinstance(a, SequenceAnn) else ()


def named_sizes(a: Annotation) -> list[str]:
    """The names of the sizes of an annotation, in the order in which they are written."""
    found: dict[str, None] = {}
    for inner in parts_of(a):
        found |= dict.fromkeys(named_sizes(inner))
    for d in (getattr(a, "shape", None) or ()) if isinstance(a, (TensorAnn, TileAnn)) else ():
        found |= dict.fromkeys(sorted(dims.symbols(d)) if isinstance(d, Expr) else ())
    return [n for n in found if not n.startswith("?")]


def with_sizes(a: Annotation, sizes: Mapping[str, Dim]) -> Annotation:
    """The annotation with other sizes for these names."""
    if isinstance(a, TupleAnn):
        return replace(a, items=tuple(with_sizes(i, sizes) for i in a.items))
    if isinstance(a, SequenceAnn):
        return replace(a, item=with_sizes(a.item, sizes))
    if isinstance(a, RecordAnn):
        return replace(a, fields=tuple((n, with_sizes(f, sizes)) for n, f in a.fields))
    if isinstance(a, (TensorAnn, TileAnn)) and a.shape is not None:
        return replace(a, shape=tuple(d if d is ... else dims.substitute(d, sizes) for d in a.shape))
    return a


def apart(a: Annotation, known: Container[str] = ()) -> Annotation:
    """The annotation of a field or result. A dataclass in it has its own, unknown sizes, unless they are given or
    `known`."""
    if isinstance(a, RecordAnn):
        own = {n: dims.symbol(f"?{n}") for n in named_sizes(a) if n not in known}
        return a if a.given else with_sizes(a, own)
    if isinstance(a, TupleAnn):
        return replace(a, items=tuple(apart(i, known) for i in a.items))
    return replace(a, item=apart(a.item, known)) if isinstance(a, SequenceAnn) else a


def _text(head: str, shape: Shape | None, dtype: DType | None, policy: Policy | None, optional: bool) -> str:
    items = [] if shape is None else ["..." if d is ... else str(d) if isinstance(d, int) else f'"{d}"' for d in shape]
    items += [str(dtype)] if dtype else []
    items += [str(p) for p in policy.parts()] if policy else []
    inside = ", ".join(items) or ("()" if shape == () else "")
    return head + (f"[{inside}]" if inside else "") + (" | None" if optional else "")


@immutable
class Item:
    """One thing between the brackets, evaluated; `keyword` is the name before its `=`."""

    value: object
    span: Span = NOWHERE
    keyword: str = ""


def fail(message: str, span: Span = NOWHERE, *fixes: Fix) -> NoReturn:
    raise AnnotationError(Diagnostic("TS211", message, span, fixes=fixes))


def closest(name: str, known: Collection[str]) -> str | None:
    return nearest(name, known)


# Python evaluates an annotation


def _runtime_items(item: object) -> list[Item]:
    parts: tuple[object, ...] = cast("tuple[object, ...]", item) if isinstance(item, tuple) else (item,)
    out: list[Item] = []
    for part in parts:
        if isinstance(part, slice):  # how the dialect's `dtype=bf16` arrives
            keyword: Any = cast(Any, part)
            out.append(Item(keyword.stop, keyword=str(keyword.start)))
        else:
            out.append(Item(part))
    return out


def tensor_spec(item: object) -> TensorAnn:
    """The annotation `Tensor[item]`; `item` is the argument of `__class_getitem__`. Raises AnnotationError."""
    return TensorAnn(*tensor_items(_runtime_items(item)))


class Tile:
    """`Tile["M", "K", bf16]`: a kernel parameter, read or written tile by tile."""

    __tessera_builtin__ = "tessera.Tile"

    @outward
    def __class_getitem__(cls, item: object) -> TileAnn:
        return TileAnn(*tensor_items(_runtime_items(item)))


class Const:
    """`Const["H"]`: a Python value known at compile time, here bound to the dim H. `Const[int]` gives its type."""

    __tessera_builtin__ = "tessera.Const"

    @outward
    def __class_getitem__(cls, item: object) -> ConstAnn:
        return const_items(_runtime_items(item))


class Int:
    """`Int[32]`, in the dialect `Int[bits=32]`: a signed integer scalar; 64 bits by default."""

    __tessera_builtin__ = "tessera.Int"

    @outward
    def __class_getitem__(cls, item: object) -> ScalarAnn:
        return scalar_items("Int", _runtime_items(item))


class Float:
    """`Float[16]`, in the dialect `Float[bits=16]`: a floating point scalar; 32 bits by default."""

    __tessera_builtin__ = "tessera.Float"

    @outward
    def __class_getitem__(cls, item: object) -> ScalarAnn:
        return scalar_items("Float", _runtime_items(item))


class Bool:
    """A truth value passed by value."""

    __tessera_builtin__ = "tessera.Bool"


# what the items mean


def tensor_items(items: Sequence[Item]) -> tuple[Shape, DType | None, Policy | None, bool, tuple[Span, ...]]:
    shape: list[Dim | EllipsisType] = []
    spans: list[Span] = []
    numerics: Policy | None = None
    if items and _is_empty(items[0].value):  # Tensor[()] and Tensor[(), f32] are scalars
        items = items[1:]
    for item in items:
        found = numerics_of(item)
        if found is None:
            if numerics is not None:
                fail("dims stand before the dtype and its policies", item.span)
            size = dim_of(item)
            if size is ... and ... in shape:
                fail("only one `...` may stand in a shape", item.span)
            shape.append(size)
            spans.append(item.span)
            continue
        if numerics and numerics.dtype and found.dtype and numerics.dtype != found.dtype:
            fail(f"two dtypes are given: {numerics.dtype} and {found.dtype}", item.span)
        try:
            numerics = (numerics or Policy()).merge(found)
        except PolicyError as e:
            fail(e.reason, item.span)
    policy = replace(numerics, dtype=None) if numerics else None
    dtype = numerics.dtype if numerics else None
    return tuple(shape), dtype, None if policy is None or policy.empty else policy, False, tuple(spans)


def _is_empty(value: object) -> bool:
    return isinstance(value, tuple) and not cast("tuple[Any, ...]", value)


def numerics_of(item: Item) -> Policy | None:
    """The dtype and policies of `item`; None if it is a dim."""
    value = item.value
    if item.keyword and item.keyword not in ("dtype", "policy"):
        fail(f"{item.keyword}= is not known here; dtype= and policy= are", item.span)
    if isinstance(value, str):
        if "@" not in value and not item.keyword and dtypes.named(value.strip()) is None:
            return None
        try:
            return policies.parse(value)
        except PolicyError as e:
            fail(e.reason, item.span)
    if isinstance(value, Policy):
        return value
    if isinstance(value, PolicyPart):
        return Policy().merge(value)
    if value is ... or value is None or isinstance(value, Expr) or _is_integer(value):
        if item.keyword:
            fail(f"{item.keyword}= needs a dtype or a policy, not {value}", item.span)
        return None
    known = isinstance(value, (DType, type)) or _is_dtype(value)
    dtype = dtypes.of(value) if known else None
    if dtype is None and item.keyword:
        fail(f"{item.keyword}= needs a dtype or a policy, not {value!r}", item.span)
    return Policy(dtype) if dtype else None


def _is_integer(value: object) -> TypeGuard[SupportsIndex]:
    return isinstance(value, SupportsIndex) and not isinstance(value, type)


def _is_dtype(value: object) -> bool:
    # numpy.dtype, torch.dtype, numpy.dtypes.Float32DType; that of an ml_dtypes.bfloat16 is a class of numpy.dtype
    return any("dtype" in kind.__name__.lower() for kind in type(value).__mro__)


def dim_of(item: Item) -> Dim | EllipsisType:
    value = item.value
    if value is ... or value == "...":
        return ...
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        try:
            value = dims.parse(value)
        except DimError as e:
            near = "..." if value.lstrip().startswith("*") else closest(value, dtypes.BY_NAME)
            fixes = [Fix(f'Write "{near}"', (Edit(item.span, f'"{near}"'),))] if near else []
            fail(f"{e}" + (f". Did you mean {near}?" if near and near != "..." else ""), item.span, *fixes)
    if isinstance(value, Expr):
        return value
    if _is_integer(value) and not isinstance(value, bool):
        value = value.__index__()
        if value < 0:
            fail(f"a size cannot be {value}", item.span)
        return value
    text = str(value) if isinstance(value, _Optional) else repr(value)
    fail(f"{text} is neither a dim (a name in quotes, an integer, ...) nor a dtype nor a policy", item.span)


def const_items(items: Sequence[Item]) -> ConstAnn:
    if len(items) != 1:
        fail("Const takes one dim or type", items[1].span if items else NOWHERE)
    found = numerics_of(items[0])
    if found is not None:
        return ConstAnn(dtype=found.dtype)
    size = dim_of(items[0])
    if size is ...:
        fail("Const takes one dim or type", items[0].span)
    return ConstAnn(size, spans=(items[0].span,))


_BITS = {"Int": {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64},
         "Float": {16: dtypes.f16, 32: dtypes.f32, 64: dtypes.f64}}  # fmt: skip
SCALARS = {"Int": dtypes.int64, "Float": dtypes.f32, "Bool": dtypes.bool_}


def scalar_items(head: str, items: Sequence[Item]) -> ScalarAnn:
    span = items[-1].span if items else NOWHERE
    if head not in _BITS or len(items) != 1 or items[0].keyword not in ("", "bits"):
        fail(f"{head} takes no such argument; Int[bits=32] and Float[bits=16] are understood", span)
    bits = items[0].value
    if not isinstance(bits, int) or bits not in _BITS[head]:
        fail(f"{head} has {', '.join(map(str, _BITS[head]))} bits, not {bits}", span)
    return ScalarAnn(_BITS[head][bits])
