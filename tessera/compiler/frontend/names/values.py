"""What the evaluator computes with.

Ordinary Python values stand for themselves, also lists, tuples and dicts that hold abstract values. A symbolic size
is a `dims.Expr`, a tensor or tile is an `ir.core.Value`. The classes here stand for what Python has no object for.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final, TypeGuard

from tessera.compiler.frontend.names.definition import FileScope, Scope
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.immutable import immutable, mutable
from tessera.language.dims import Expr
from tessera.language.dtypes import DType
from tessera.language.records import STATE


class Unknown:
    """A value that cannot be known here. Everything that depends on it is unknown too and stays quiet."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "unknown"


class Several(Unknown):
    """An unknown number of values of one kind: the tensors of a `list[Tensor["D", "D"]]`. To all who do not ask for
    `item` it is unknown."""

    __slots__ = ("item", "keyed")

    def __init__(self, item: Any, keyed: bool = False) -> None:
        """`keyed`: the values of a dict."""
        self.item, self.keyed = item, keyed


class Missing:
    """The answer "there is none" of look-ups, where None may be a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "missing"


UNKNOWN: Final = Unknown()
MISSING: Final = Missing()


@immutable
class Number:
    """A Python number of this type that depends on sizes which are still symbols: `1 / math.sqrt(D)`, `H > 224`."""

    type: type
    text: str
    """the expression, for people"""
    made: tuple[Any, ...] = ()
    """an operator and its operands by which a program computes it in f64; () where only Python can"""


@immutable
class Counting:
    """`ts.range(start, stop, step)` and its tile form: a loop that runs when the program runs."""

    start: Any
    stop: Any
    step: Any
    path: str = "tessera.range"

    def __repr__(self) -> str:
        return f"{self.path.replace('tessera', 'ts', 1)}({self.start}, {self.stop}, {self.step})"


@immutable
class Namespace:
    """A module by its dotted name: one of Tessera's own, `math`, or (nothing is known of its members) a foreign one."""

    path: str

    def __repr__(self) -> str:
        return f"the module {self.path}"


@immutable
class FileModule(Namespace):
    """A file of the workspace that is imported: its names are those of its text."""

    scope: FileScope


@immutable
class Builtin:
    """A function of the language, by path: "len", "tessera.range", "tessera.tile.mma". Layers say what it does."""

    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"the function {self.name}"


NO_GRAD = Builtin("tessera.no_grad()")
"""a context under which nothing has derivatives"""


@immutable
class OperatorRef:
    """A graph operator as a function value, by its name in the operator registry."""

    name: str

    def __repr__(self) -> str:
        return f"the function {self.name}"


def is_named(value: Any) -> bool:
    """Whether this stands for a function or module of Python by its name."""
    return isinstance(value, (Namespace, Builtin, OperatorRef))


@immutable
class Method:
    """`owner.name`, not yet called, where the owner is abstract or a Python builtin container."""

    owner: Any
    name: str

    def __repr__(self) -> str:
        return f"the method {self.name}"


@immutable(eq=False)
class ClassRef:
    """A class of the file that is read as text: its name, its constants and its dataclass fields in order, and what
    its own ones are annotated with, to be read in `scope`."""

    name: str
    members: Mapping[str, Any]
    fields: tuple[str, ...] = ()
    annotations: Mapping[str, ast.expr] = field(default_factory=dict[str, ast.expr])
    scope: Scope | None = None
    named_tuple: bool = False
    makes_data: bool = False
    """whether the classes below it are dataclasses by themselves, as those of `ts.nn.Module`"""
    bases: tuple[ClassRef, ...] = ()
    """the classes above it whose text is known"""
    buffers: frozenset[str] = frozenset()
    """fields whose arrays are not trained"""
    static: frozenset[str] = frozenset()
    """methods that take no instance"""
    data: bool = False
    """whether it is a dataclass"""

    def __repr__(self) -> str:
        return f"the class {self.name}"

    by_name: frozenset[str] = frozenset()
    """fields that the constructor takes by name only"""
    made: dict[Any, Any] = field(default_factory=dict[Any, Any], repr=False)
    """the objects that it has made outside of programs, by arguments: see `evaluate/alike/constructors.py`"""


CALLED = frozenset({"__call__", "forward"})
"""the methods that calls of an object run"""


@immutable(eq=False)
class Property:
    """A member of a class of a text that an instance computes when it is asked for it; `getter` is a function."""

    getter: Any


@mutable(eq=False)
class Record:
    """An instance of a dataclass made while evaluating, or of a text-only class."""

    type_name: str
    members: dict[str, Any]
    cls: Any = None
    outside: bool = False
    """whether it stands for an object of the caller, which a function does not change, but for effects of state"""

    @property
    def is_state(self) -> bool:
        """Whether it is an object of the caller that effects change."""
        cls = self.cls
        found: object = cls.members.get(STATE) if isinstance(cls, ClassRef) else getattr(cls, STATE, False)
        return self.outside and found is True


def as_items(value: object) -> object:
    """The tuple that an instance of a named tuple of the text is; any other value as it is."""
    if isinstance(value, Record) and isinstance(value.cls, ClassRef) and value.cls.named_tuple:
        return tuple(value.members[n] for n in value.cls.fields)
    return value


class Described:
    """Base of other kinds of values that Python has no object for. `described` is how messages call one."""

    __slots__ = ()

    @property
    def described(self) -> str:
        return f"a {type(self).__name__.lower()}"

    def __repr__(self) -> str:
        return self.described


@immutable
class Partial(Described):
    """`functools.partial(function, *args, **keywords)`, where the function or an argument is abstract."""

    function: Any
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]


@immutable(eq=False)
class Super(Described):
    """`super()` in a method: the members of the classes above its own, for one instance. They are those of a text, or
    live classes."""

    record: Record
    bases: tuple[ClassRef | type, ...]

    def member(self, name: str) -> Any:
        """As its class holds it; MISSING where no class above has it."""
        held = ((b.members if isinstance(b, ClassRef) else vars(b)) for b in self.bases if b is not object)
        return next((members[name] for members in held if name in members), MISSING)


class LayerValue(Described):
    """Base of a layer's own kinds of values: memory, vectors of lanes."""

    __slots__ = ()


@immutable
class OutsideArray:
    """An array that a text reads from outside, with known shape and dtype: from a running notebook."""

    shape: tuple[int, ...]
    dtype: DType
    __dlpack__ = __setitem__ = None  # read as live arrays are, whose elements no analysis asks for


@immutable
class Static:
    """In `analyse(arguments=...)`: an ordinary Python value, known at compile time."""

    value: Any


ABSTRACT = (
    Value,
    Described,
    Expr,
    Unknown,
    Number,
    Counting,
    Namespace,
    Builtin,
    OperatorRef,
    Method,
    ClassRef,
    Record,
)


# isinstance of an Any narrows to containers of unknown elements; these say that the elements are any values
def is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_tuple(value: Any) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


def is_sequence(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, (list, tuple))


def remade(value: list[Any] | tuple[Any, ...], items: Iterable[Any]) -> Any:
    """A list, tuple or named tuple as `value` is, of other items."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def unshared(value: Any) -> Any:
    """A copy that shares no container: what is stored into one is not in the other."""
    if isinstance(value, Record):
        return Record(value.type_name, unshared(value.members), value.cls, value.outside)
    if value.__class__ is dict:
        return {k: unshared(v) for k, v in value.items()}
    if value.__class__ is set:
        return value.copy()
    return remade(value, [unshared(v) for v in value]) if is_sequence(value) else value


def is_collection(value: Any) -> TypeGuard[Collection[Any]]:
    return isinstance(value, (list, tuple, set, frozenset))


def is_dict(value: Any) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def is_live_array(value: Any) -> bool:
    """An array of any library, from outside of the program."""
    try:
        known = not isinstance(value, type) and hasattr(value, "shape") and hasattr(value, "dtype")
        return known and (hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__"))
    except Exception:  # the `__getattr__` of a user's class raises what it likes
        return False


def is_slice(value: Any) -> TypeGuard[slice[Any, Any, Any]]:
    return isinstance(value, slice)


_LEAF, _ABSTRACT, _ITEMS, _DICT, _SLICE, _RECORD, _UNKNOWN = range(7)


@lru_cache(maxsize=1024)
def _sort_of(kind: type) -> int:
    """What the values of a class are, for those who look through all arguments of every call."""
    sorts: list[tuple[type | tuple[type, ...], int]] = [
        (Unknown, _UNKNOWN), (Record, _RECORD), (ABSTRACT, _ABSTRACT), (dict, _DICT), (slice, _SLICE),
        ((list, tuple, set, frozenset), _ITEMS),
    ]  # fmt: skip
    return next((sort for kinds, sort in sorts if issubclass(kind, kinds)), _LEAF)


def is_static(value: Any) -> bool:
    """Whether `value` is an ordinary Python value through and through."""
    sort = _sort_of(value.__class__)
    if sort == _LEAF:
        return True
    if sort == _ITEMS:
        for v in value:  # noqa: SIM110 (asked of the arguments of every call: no generator)
            if not is_static(v):
                return False
        return True
    if sort == _DICT:
        return is_static([*value, *value.values()])
    return sort == _SLICE and is_static((value.start, value.stop, value.step))


def has_unknown(value: Any) -> bool:
    """Whether `value` is, or holds, something unknown."""
    sort = _sort_of(value.__class__)
    if sort <= _ABSTRACT:
        return False
    if sort == _ITEMS:
        for v in value:  # noqa: SIM110 (as above)
            if has_unknown(v):
                return True
        return False
    if sort == _SLICE:
        return has_unknown((value.start, value.stop, value.step))
    return sort == _UNKNOWN or has_unknown([*(value if sort == _DICT else value.members).values()])


def leaves(value: object) -> Iterator[object]:
    """The elements of nested tuples, lists, dicts and records, in order; any other value is its own leaf."""
    if is_sequence(value):
        for v in value:
            yield from leaves(v)
    elif is_dict(value):
        for v in value.values():
            yield from leaves(v)
    elif isinstance(value, Record):
        yield from leaves(value.members)
    elif is_slice(value):
        yield from leaves((value.start, value.stop, value.step))
    else:
        yield value


def paired(a: Any, b: Any) -> list[tuple[Any, Any]] | None:
    """What stands at the same places of two structures, in the order of `a`; None where they differ. Items of dicts
    belong together by their keys, whatever the order of these. The places of what is not known are not either."""
    if isinstance(b, Unknown):
        return [(v, b) for v, _ in held_leaves(a)]
    inner_a, inner_b = _items(a), _items(b)
    if inner_a is None or inner_b is None:
        return [(a, b)] if inner_a is inner_b else None
    if inner_a.keys() != inner_b.keys() or (isinstance(a, Record) and getattr(b, "cls", None) is not a.cls):
        return None
    found: list[tuple[Any, Any]] = []
    for k, v in inner_a.items():
        pairs = paired(v, inner_b[k])
        if pairs is None:
            return None
        found += pairs
    return found


def held_leaves(value: Any, held: bool = False) -> Iterator[tuple[Any, bool]]:
    """What stands in a structure, in order, and whether a dataclass holds it."""
    inner = _items(value)
    if inner is None:
        yield value, held
    else:
        for v in inner.values():
            yield from held_leaves(v, held or isinstance(value, Record))


def _items(value: Any) -> dict[Any, Any] | None:
    """What a structure holds, by place; None for what is not one. State is one value, whatever it holds."""
    if is_sequence(value):
        return dict(enumerate(value))
    if is_dict(value):
        return value
    return value.members if isinstance(value, Record) and not value.is_state else None


def type_name(value: object) -> str:
    """How messages call a value: "a tensor [B, S] f32", "a size B*S", "an int"."""
    if isinstance(value, Value):
        kind = "a tensor" if isinstance(value.type, TensorType) else "a tile"
        return f"{kind} {value.type.pretty()}"
    if isinstance(value, Described):
        return value.described
    if isinstance(value, Expr):
        return f"the size {value}"
    if isinstance(value, Number):
        return f"the number {value.text}"
    if isinstance(value, (Builtin, OperatorRef, Method)):
        return f"the function {value.name}"
    if isinstance(value, Namespace):
        return f"the module {value.path}"
    if isinstance(value, Record):
        return f"a {value.type_name}"
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
