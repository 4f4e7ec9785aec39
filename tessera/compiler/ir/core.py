"""The SSA core of all four levels: Value, Op, Block, Region, Builder.

It knows no dialect. An op is a name with a dialect prefix (`graph.matmul`, `tile.mma`), operands, results, attributes
and regions, and always a source span. The structure is MLIR's; `printer` writes MLIR's generic text.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from tessera.compiler.ir.origin import FORWARD, OpOrigin
from tessera.compiler.ir.types import Type
from tessera.errors import Span
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

# Attributes are plain data, so that printing, hashing, comparing and saving need no code per dialect.
Attr: TypeAlias = "bool | int | float | complex | str | DType | Dim | Type | tuple[Attr, ...] | None"


class Value:
    """One result of an op, or one argument of a block (then `owner` is the block)."""

    __slots__ = ("hint", "index", "op", "owner", "type", "uses")

    op: Op | None
    """the op that defines it; None for a block argument"""

    def __init__(self, type: Type, owner: Op | Block, index: int, hint: str = "") -> None:
        self.type, self.owner, self.index, self.hint = type, owner, index, hint
        self.op = owner if isinstance(owner, Op) else None
        self.uses: list[tuple[Op, int]] = []  # in order of creation: deterministic, unlike a set

    @property
    def users(self) -> list[Op]:
        """The distinct ops that use it, in order."""
        return list(dict.fromkeys(op for op, _ in self.uses))

    def replace_by(self, other: Value) -> None:
        """Every use of this value becomes a use of `other`."""
        for op, i in list(self.uses):
            op.set_operand(i, other)

    def __repr__(self) -> str:
        return f"a value of {self.type.pretty()}"  # some messages say what they were given


class Op:
    """One operation. Operands are set through `set_operand` so that use lists stay true."""

    __slots__ = ("attrs", "block", "name", "operands", "origin", "regions", "results", "span")

    operands: tuple[Value, ...]
    """set by `set_operand` and `set_operands` alone"""

    def __init__(
        self,
        name: str,
        operands: Sequence[Value],
        result_types: Sequence[Type],
        span: Span,
        attrs: dict[str, Attr] | None = None,
        regions: Sequence[Region] = (),
        hints: Sequence[str] = (),
    ) -> None:
        self.name, self.span, self.origin = name, span, FORWARD
        self.attrs: dict[str, Attr] = attrs or {}
        self.block: Block | None = None
        self.operands = tuple(operands)
        for i, v in enumerate(self.operands):
            v.uses.append((self, i))
        self.results: list[Value] = []
        for i, t in enumerate(result_types):
            self.results.append(Value(t, self, i, hints[i] if i < len(hints) else ""))
        self.regions = tuple(regions)
        for r in self.regions:
            r.op = self

    @property
    def dialect(self) -> str:
        return self.name.partition(".")[0]

    @property
    def result(self) -> Value:
        """The single result. Raises ValueError when there is not exactly one."""
        (value,) = self.results
        return value

    @property
    def region(self) -> Region:
        (region,) = self.regions
        return region

    def set_operand(self, i: int, value: Value) -> None:
        self.operands[i].uses.remove((self, i))
        self.operands = (*self.operands[:i], value, *self.operands[i + 1 :])
        value.uses.append((self, i))

    def set_operands(self, values: Sequence[Value]) -> None:
        for i, v in enumerate(self.operands):
            v.uses.remove((self, i))
        self.operands = tuple(values)
        for i, v in enumerate(self.operands):
            v.uses.append((self, i))

    def erase(self) -> None:
        """Takes the op out. Raises ValueError while a result is still used."""
        for r in self.results:
            if r.uses:
                raise ValueError(f"{self.name} is still used by {r.uses[0][0].name}")
        for op in self.walk():  # what stands inside uses nothing any more, however deep
            op.set_operands(())
        if self.block:
            del self.block.ops[self.block.index(self)]
            self.block = None

    def walk(self) -> Iterator[Op]:
        """This op and all ops inside it, outer before inner, in order."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                for op in list(block.ops):
                    if op.regions:
                        yield from op.walk()
                    else:
                        yield op

    @property
    def parent(self) -> Op | None:
        return self.block.region.op if self.block and self.block.region else None

    def __repr__(self) -> str:
        return f"<{self.name} at {self.span}>"


_NEAR = 32
"""ops behind the one that was asked for before, among which the next is looked for first"""


class Block:
    """A list of ops with arguments; the last op is the terminator where the dialect wants one."""

    __slots__ = ("_near", "args", "ops", "region")

    def __init__(self, arg_types: Sequence[Type] = (), hints: Sequence[str] = ()) -> None:
        self.args = [Value(t, self, i, hints[i] if i < len(hints) else "") for i, t in enumerate(arg_types)]
        self.ops: list[Op] = []
        self.region: Region | None = None
        self._near = 0

    def index(self, op: Op) -> int:
        """The position of `op`; found at once when a block of any length is walked in order."""
        try:
            self._near = self.ops.index(op, self._near, self._near + _NEAR)
        except ValueError:
            self._near = self.ops.index(op)
        return self._near

    def add_arg(self, type: Type, hint: str = "") -> Value:
        value = Value(type, self, len(self.args), hint)
        self.args.append(value)
        return value

    @property
    def terminator(self) -> Op:
        return self.ops[-1]

    def insert(self, index: int, op: Op) -> Op:
        op.block = self
        self.ops.insert(index, op)
        return op

    def append(self, op: Op) -> Op:
        op.block = self
        self.ops.append(op)
        return op


class Region:
    """A list of blocks; structured dialects use exactly one."""

    __slots__ = ("blocks", "op")

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self.blocks = list(blocks)
        self.op: Op | None = None
        for b in self.blocks:
            b.region = self

    @property
    def block(self) -> Block:
        (block,) = self.blocks
        return block


class Builder:
    """Creates ops at an insertion point. `span` is the default span of what it creates, `origin` its origin."""

    def __init__(
        self, block: Block, position: int | None = None, span: Span | None = None, origin: OpOrigin = FORWARD
    ) -> None:
        self.block, self.span, self.origin = block, span, origin
        self.position: int | None = position

    def insert(self, op: Op) -> Op:
        if self.position is None:
            return self.block.append(op)
        self.block.insert(self.position, op)
        self.position += 1
        return op

    def op(
        self,
        name: str,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] = (),
        attrs: dict[str, Attr] | None = None,
        regions: Sequence[Region] = (),
        span: Span | None = None,
        hints: Sequence[str] = (),
    ) -> Op:
        where = span or self.span
        if where is None:
            raise ValueError(f"{name} is built without a source span")
        made = Op(name, operands, result_types, where, attrs, regions, hints)
        made.origin = self.origin
        return self.insert(made)

    def value(
        self, name: str, operands: Sequence[Value], type: Type, attrs: dict[str, Attr] | None = None, hint: str = ""
    ) -> Value:
        """Creates an op with one result and returns the result."""
        return self.op(name, operands, (type,), attrs, hints=(hint,) if hint else ()).result

    @contextmanager
    def at(self, span: Span) -> Generator[Builder]:
        """Spans of what is created inside default to `span`."""
        old, self.span = self.span, span
        try:
            yield self
        finally:
            self.span = old

    @contextmanager
    def under(self, origin: OpOrigin) -> Generator[Builder]:
        """What is created inside is of this origin."""
        old, self.origin = self.origin, origin
        try:
            yield self
        finally:
            self.origin = old

    @contextmanager
    def inside(self, block: Block) -> Generator[Builder]:
        """Creates at the end of `block` for a while."""
        old = self.block, self.position
        self.block, self.position = block, None
        try:
            yield self
        finally:
            self.block, self.position = old

    @staticmethod
    def before(op: Op) -> Builder:
        assert op.block is not None
        return Builder(op.block, op.block.index(op), op.span, op.origin)


class RenamedCopy(Op):
    """A copy of a function whose names are others: its own (`sym_name`), and its arguments' (`arg_names`).

    What stands inside of it is copied when somebody first looks there. Until then it is the original's, and follows it
    where a pass changes that.
    """

    __slots__ = ("_original",)

    def __init__(self, original: Op, name: str, arguments: Sequence[str]) -> None:
        self.name, self.span, self.origin = original.name, original.span, original.origin
        self.attrs = original.attrs | {"sym_name": name, "arg_names": tuple(arguments)}
        self.block, self.operands, self.results = None, (), list[Value]()
        self._original: Op | None = original_of(original)

    def __getattr__(self, name: str) -> tuple[Region, ...]:
        if name != "regions":
            raise AttributeError(name)
        if self._original is not None:
            self.regions = tuple(_clone_region(region, self, {}) for region in self._original.regions)
            names: Sequence[str] = self.attrs["arg_names"]  # type: ignore[assignment]
            for arg, hint in zip(self.region.block.args, names, strict=True):
                arg.hint = hint
            self._original = None
        return self.regions


def original_of(op: Op) -> Op:
    """What a copy that nobody has looked into is a copy of, which differs in names alone; any other op itself."""
    return op._original or op if isinstance(op, RenamedCopy) else op  # pyright: ignore[reportPrivateUsage]


class Module:
    """The functions of one compilation, by name, in order."""

    def __init__(self, ops: Iterable[Op] = ()) -> None:
        self.ops = list(ops)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __getitem__(self, name: str) -> Op:
        return next(op for op in self.ops if op.attrs.get("sym_name") == name)

    def walk(self) -> Iterator[Op]:
        for op in self.ops:
            yield from op.walk()


def clone(op: Op, mapping: dict[Value, Value]) -> Op:
    """A deep copy of `op` with operands looked up in `mapping`, which receives the new results and arguments."""
    get, new = mapping.get, object.__new__(Op)  # field by field: a step of many layers makes tens of thousands
    new.name, new.span, new.origin = op.name, op.span, op.origin
    new.attrs, new.block, new.regions = op.attrs.copy(), None, ()
    new.operands = operands = tuple([get(v, v) for v in op.operands])
    for i, v in enumerate(operands):
        v.uses.append((new, i))
    new.results = results = list[Value]()
    for r in op.results:
        mapping[r] = made = object.__new__(Value)
        made.type, made.hint, made.index, made.uses = r.type, r.hint, r.index, []
        made.op = made.owner = new
        results.append(made)
    if op.regions:
        new.regions = tuple(_clone_region(region, new, mapping) for region in op.regions)
    return new


def _clone_region(region: Region, op: Op, mapping: dict[Value, Value]) -> Region:
    blocks: list[Block] = []
    for block in region.blocks:
        copy = Block([a.type for a in block.args], [a.hint for a in block.args])
        mapping.update(zip(block.args, copy.args, strict=True))
        for inner in block.ops:
            copy.append(clone(inner, mapping))
        blocks.append(copy)
    new = Region(blocks)
    new.op = op
    return new
