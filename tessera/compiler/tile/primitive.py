"""Functions of `ts.tile` with their own op, because no other functions express them.

    class Roll(TilePrimitive):
        '''The elements moved `by` places along the last axis; those that leave at the end come in at the front.'''

        def result(self, x: TileType, by: int) -> TileType: ...      # signature, shape and dtype rule
        def reference(self, x, by): return np.roll(x, by, -1)        # NumPy: the meaning
        def element(self, c, at, x, by): ...                         # code for every target, one element at a time
        def cpu(self, c, at, x, by): ...                             # instead of it, where the CPU has a better way
        def cuda(self, c, at, x, by): ...                            # the same for CUDA

The parameters of `result` annotated `TileType` are operands, all others are known at compile time. An op gives one
tile; each of its elements is computed from elements of the operands at any places. A target whose code is missing
refuses programs that use the function (TS602); the others compile them.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.spec import SPECS, OpSpec, demand, invalid
from tessera.compiler.ir.types import TileType
from tessera.compiler.machines import REFERENCE
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.errors import Diagnostic, TargetError
from tessera.immutable import immutable
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE


class TilePrimitive(TileBuiltin, abstract=True):
    """Base of the functions with an op of their own, which is `tile.` and the function's name.

    Operands arrive in the dtype that arithmetic is done in: f32 for bf16, f16 and smaller floats.
    """

    padding: float | Mapping[str, float] = 0
    """the value where an operand's elements do not exist, beyond the edge of the tensor or behind a mask; one number
    for all operands, or one each by name. Where the result has the shape of the first operand, its elements exist where
    that one's do; else all of them do."""

    moves: tuple[str, ...] = ()
    """operands that elements of the result are taken from unchanged. They keep their dtypes, and an element of the
    result exists where the one that it is taken from does, whatever the shapes."""
    places: str = ""
    """for an op that moves elements along the axis that its attribute `axis` names: the operand of the places that they
    are taken from. A place that is not in the tile gives 0, an element that does not exist."""

    def __init_subclass__(cls, abstract: bool = False, **rest: Any) -> None:
        super().__init_subclass__(abstract=abstract, **rest)
        if not abstract:
            definition = cls.definition
            assert isinstance(definition, TilePrimitive)
            PRIMITIVES[definition.op] = definition
            SPECS[definition.op] = OpSpec(definition.op, definition.doc.partition("\n")[0], _verify)

    def result(self, *operands: Any, **attrs: Any) -> TileType:
        """The type that it gives. Raises ValueError with a sentence for people where operands do not fit."""
        raise TypeError(f"{self.name} has no rule for shapes and dtypes")

    reference: Callable[..., Any] | None = None
    """(*arrays, **attrs) -> array: the meaning, in NumPy."""
    element: Callable[..., Any] | None = None
    """(c, at, *operands, **attrs) -> Element: the result's element at the places `at`, for every target. `c` is an
    ElementWriter, `at` has an At for each axis, operands are called with places: `x(i, j)`."""
    cpu: Callable[..., Any] | None = None
    """as `element`, for the CPU alone: `c.fn` writes LLVM instructions."""
    cuda: Callable[..., Any] | None = None
    """as `element`, for CUDA alone: values are C++ expressions."""

    def kept(self, before: int, after: int, *given: Any, **attrs: Any) -> dict[int, int]:
        """For an op that moves elements: the result's axes along which elements keep their place in every moved
        operand, with the operands' axes. `before` is the rank of the operands, `after` that of the result."""
        return {}

    def padding_of(self, operand: str) -> float:
        return self.padding.get(operand, 0) if isinstance(self.padding, Mapping) else self.padding

    def flops(self, operands: Sequence[TileType], result: TileType, **attrs: Any) -> Dim:
        """Operations for cost models; by default one for each element of the result."""
        return dims.prod(result.shape)

    # what is derived
    @property
    def op(self) -> str:
        prefix = self.path.removeprefix("tessera.tile").removeprefix(".")
        return f"tile.{prefix}.{self.name}" if prefix else f"tile.{self.name}"

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.result).parameters)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the parameters that take tiles."""
        return tuple(n for n, p in self.parameters.items() if "TileType" in str(p.annotation))

    def build(self, k: Any, *args: Any, **kwargs: Any) -> Any:
        bound = self.bind(args, kwargs)
        bound.apply_defaults()
        attrs = {n: v for n, v in bound.arguments.items() if n not in self.operands}
        return k.primitive(self, [bound.arguments[n] for n in self.operands], attrs)

    def code(self, target: str, op: Op) -> Callable[..., Any]:
        """The function that writes an element for a target, "cpu" or "cuda". Raises TargetError TS602 where there is
        none."""
        found = getattr(self, target) or self.element
        if found is None:
            raise self.missing(target, op, f"the class {type(self).__name__} has neither `{target}` nor `element`")
        return found

    def missing(self, target: str, op: Op, why: str) -> TargetError:
        message = f"{self.name} has no code for the target {target}: {why}."
        return TargetError(Diagnostic("TS602", message, op.span, label=self.name))

    def evaluate(self, op: Op, arrays: Sequence[Any]) -> Any:
        """The meaning, on arrays in compute precision. Raises TargetError TS602 where it is not defined."""
        if self.reference is None:
            raise self.missing(REFERENCE, op, f"the class {type(self).__name__} has no `reference`")
        return self.reference(*arrays, **op.attrs)


PRIMITIVES: dict[str, TilePrimitive] = {}
"""by op"""


def _verify(op: Op) -> None:
    definition = PRIMITIVES[op.name]
    demand(len(op.operands) == len(definition.operands), op, f"takes {len(definition.operands)} operands")
    try:
        wanted = definition.result(*(v.type for v in op.operands), **op.attrs)
    except ValueError as e:
        invalid(op, str(e))
    demand(op.result.type == wanted, op, f"gives {wanted}, not {op.result.type}")


# How code of one element is written

Code: TypeAlias = Any
"""A number of the target: a register of LLVM, a C++ expression, or a Python number."""


@immutable
class Element:
    """One element: the target's value, and its dtype."""

    value: Code
    dtype: DType


class ElementWriter(ABC):
    """Writes the code of one element. Numbers among the operands of `apply` take the dtype of the elements."""

    def apply(self, name: str, *operands: Element | bool | int | float) -> Element:
        """A function of `language/scalars.py`: `c.apply("maximum", a, 0)`. All elements have one dtype."""
        dtype = next(x.dtype for x in reversed(operands) if isinstance(x, Element))
        wanted = dtypes.f32 if TABLE[name].gives == "float" and not (dtype.is_float or dtype.is_complex) else dtype
        given = [x if isinstance(x, Element) else self.number(x, dtype) for x in operands]
        if wanted != dtype:
            given = [self.cast(x, wanted) for x in given]
        gives = {"bool": dtypes.bool_, "real": wanted.part, "complex": wanted.paired if wanted.is_float else wanted}
        return self.scalar(name, given, wanted, gives.get(TABLE[name].gives, wanted))

    def choose(self, condition: Element, a: Element | float, b: Element | float) -> Element:
        """a where the condition holds, else b. Both are computed: their places must exist."""
        return self.apply("where", condition, a, b)

    @abstractmethod
    def fold(self, n: int, start: Element, step: Callable[[At, Element], Element]) -> Element:
        """`step(j, x)` for j = 0, 1 ... n - 1 in this order, where x is what the step before gave; at first `start`,
        whose dtype all steps give. A loop in the code."""

    @abstractmethod
    def scalar(self, name: str, operands: Sequence[Element], dtype: DType, result: DType) -> Element:
        """A function of the table over elements of `dtype`."""

    @abstractmethod
    def number(self, value: bool | int | float, dtype: DType) -> Element:
        """A constant."""

    @abstractmethod
    def cast(self, x: Element, dtype: DType) -> Element:
        """`x` converted to `dtype`."""

    @abstractmethod
    def index(self, name: str, a: Code, b: Code) -> Code:
        """Index arithmetic: iadd, isub, imul, idiv, imod, imin, imax (div and mod round down, by what is positive)."""

    @abstractmethod
    def compare(self, name: str, a: Code, b: Code) -> Element:
        """A comparison of indices: lt, le, eq. Gives a bool."""

    @abstractmethod
    def place(self, x: Element) -> At:
        """An integer element as an index."""

    @abstractmethod
    def counted(self, at: At, dtype: DType) -> Element:
        """An index as an integer element."""


class At:
    """An index: supports + - * // % with indices and numbers, `at < n`, `<=`, `.equals(n)`, and `clip`."""

    __slots__ = ("value", "writer")

    def __init__(self, writer: ElementWriter, value: Code) -> None:
        self.writer, self.value = writer, value

    def _with(self, name: str, other: At | int, turned: bool = False) -> At:
        mine, theirs = self.value, other.value if isinstance(other, At) else other
        return At(self.writer, self.writer.index(name, *((theirs, mine) if turned else (mine, theirs))))

    def __add__(self, other: At | int) -> At:
        return self._with("iadd", other)

    def __sub__(self, other: At | int) -> At:
        return self._with("isub", other)

    def __rsub__(self, other: int) -> At:
        return self._with("isub", other, turned=True)

    def __mul__(self, other: At | int) -> At:
        return self._with("imul", other)

    def __floordiv__(self, other: At | int) -> At:
        return self._with("idiv", other)

    def __mod__(self, other: At | int) -> At:
        return self._with("imod", other)

    __radd__, __rmul__ = __add__, __mul__

    def clip(self, n: int) -> At:
        """The nearest index from 0 to n - 1."""
        return self._with("imax", 0)._with("imin", n - 1)

    def __lt__(self, other: At | int) -> Element:
        return self.writer.compare("lt", self.value, other.value if isinstance(other, At) else other)

    def __le__(self, other: At | int) -> Element:
        return self.writer.compare("le", self.value, other.value if isinstance(other, At) else other)

    def equals(self, other: At | int) -> Element:
        return self.writer.compare("eq", self.value, other.value if isinstance(other, At) else other)


@immutable
class Operand:
    """An operand while code is written: `x(i, j)` is its element there."""

    shape: tuple[int, ...]
    dtype: DType
    read: Callable[[Sequence[Code]], Element]

    def __call__(self, *at: At | int) -> Element:
        if len(at) != len(self.shape):
            raise TypeError(f"a tile of {len(self.shape)} axes is read at {len(at)} places")
        return self.read([i.value if isinstance(i, At) else i for i in at])
