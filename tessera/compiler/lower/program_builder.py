"""The inputs of lowering a group: the group read back, and the buffers and launches collected so far."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, cast

from tessera.compiler.graph.operator import attributes_of, operator_of, split_operands, types_of
from tessera.compiler.ir.core import Op, RenamedCopy, Value, original_of
from tessera.compiler.ir.types import Shape, TensorType, ViewType
from tessera.compiler.lower.equal_groups import RepeatedGroups
from tessera.compiler.lower.kernel_writer import Argument
from tessera.compiler.lower.parts import home_of
from tessera.compiler.machines import Sizes
from tessera.compiler.schedule.access import Access, access, reads
from tessera.compiler.schedule.alignment import Axes, align
from tessera.compiler.schedule.views import ViewLayout, is_view, kind_of
from tessera.compiler.tile.equal import all_but_names
from tessera.compiler.tile.program import Buffer, BufferArg, Launch, ScalarArg, Step
from tessera.compiler.unit import Param
from tessera.errors import Span
from tessera.immutable import mutable
from tessera.language import dtypes
from tessera.language.dims import Dim, prod
from tessera.language.lazy import np

NO_HOMES: Mapping[Value, ViewLayout] = {}


@mutable
class GroupBody:
    """A `schedule.group` read back: its graph ops, and the axes of the space that its values have."""

    group: Op
    ops: list[Op]
    axes: dict[Value, Axes]
    space: Shape
    inner: tuple[int, ...]
    homes: list[ViewLayout]
    """the memory layout of each of its results, as windows onto the group's own values"""

    @staticmethod
    def of(group: Op, homes: Mapping[Value, ViewLayout] = NO_HOMES) -> GroupBody:
        space: Any = group.attrs["space"]
        inner: Any = group.attrs["inner"]
        body = group.region.block
        ops = [op for op in body.ops[:-1] if not is_view(op) and kind_of(op) != "generate"]
        axes: dict[Value, Axes] = {}
        if group.attrs["kind"] == "contract":
            axes[ops[0].result] = tuple(a if d != 1 else -1 for a, d in enumerate(space))
        for op in ops:
            if kind_of(op) not in ("contract", "join", "pad", "scatter", "put", "sort"):
                added = align(op, axes, space)
                assert added is not None, "graph_to_schedule has aligned it"
                axes.update(added)
        places = [
            replace(home_of(outer, homes), base=v)
            for v, outer in zip(body.terminator.operands, group.results, strict=True)
        ]
        return GroupBody(group, ops, axes, space, inner, places)

    @property
    def results(self) -> Sequence[Value]:
        return self.group.region.block.terminator.operands

    def stores(self) -> list[tuple[Value, Access]]:
        """The results, and how they are stored."""
        return [(v, access(home, self.axes[v], self.space)) for v, home in zip(self.results, self.homes, strict=True)]

    def accesses(self) -> list[Access]:
        return [a for op in self.ops for _, a in reads(op, self.axes, self.space)]


@mutable
class ProgramBuilder:
    """Collects buffers and launches. `of` maps function-level values to buffer ids, `scalars` to scalar parameters."""

    name: str
    params: tuple[Param, ...]
    sizes: Sizes
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    steps: list[Step] = field(default_factory=list[Step])
    of: dict[Value, int] = field(default_factory=dict[Value, int])
    scalars: dict[Value, int] = field(default_factory=dict[Value, int])
    homes: dict[Value, ViewLayout] = field(default_factory=dict[Value, ViewLayout])
    """parts of other values: the value in whose memory they are computed, and their layout in it"""
    destined: dict[Value, Value] = field(default_factory=dict[Value, Value])
    """values that are computed in the memory of another one: of a state, or of a value that a loop carries"""
    kernels: int = 0
    launched: dict[tuple[Span, str], Op] = field(default_factory=dict["tuple[Span, str]", Op])
    """the author's kernels, by place and text"""
    figures: dict[Op, tuple[Dim, Dim]] = field(default_factory=dict["Op", "tuple[Dim, Dim]"])
    """floating-point operations and bytes of these"""
    constants: dict[tuple[dtypes.DType, Shape, bytes], Value] = field(
        default_factory=dict["tuple[dtypes.DType, Shape, bytes]", Value]
    )
    repeated: RepeatedGroups = field(default_factory=RepeatedGroups)
    codes: dict[Op, Op] = field(default_factory=dict["Op", "Op"])
    """of each kernel the first that differs in names alone"""
    texts: dict[tuple[Any, ...], Op] = field(default_factory=dict[tuple[Any, ...], "Op"])
    """these by all that is not a name"""

    def buffer(self, v: Value, shape: Shape, dtype: dtypes.DType, role: Any, param: int | None = None) -> int:
        self.of[v] = len(self.buffers)
        self.buffers.append(Buffer(len(self.buffers), v.hint or f"t{len(self.buffers)}", shape, dtype, role, param))
        return self.of[v]

    def temp(self, v: Value) -> int:
        t = v.type
        assert isinstance(t, TensorType)
        return self.buffer(v, t.shape, t.dtype, "temp")

    def result(self, v: Value) -> int:
        """Memory for a group's result: that of a state whose old value nothing reads, or of the value that it is a part
        of, else its own."""
        whole = home_of(v, self.homes).base
        if whole not in self.of:
            state = self.destined.get(whole)
            if state is not None and state in self.of and not state.uses and state.type == whole.type:
                self.of[whole] = self.of[state]
            else:
                self.temp(whole)
        self.of[v] = self.of[whole]
        return self.of[v]

    def constant(self, numbers: Any, dtype: dtypes.DType, name: str, span: Span) -> Value:
        """Memory that holds these numbers, a sequence or an array; the same numbers once."""
        array = np.ascontiguousarray(numbers, dtype.numpy)
        data, shape = array.tobytes(), array.shape
        if (dtype, shape, data) not in self.constants:
            value = Op("graph.partials", (), (TensorType(shape, dtype),), span, {}, hints=(name,)).result
            i = self.buffer(value, shape, dtype, "constant")
            self.buffers[i] = replace(self.buffers[i], data=data)
            self.constants[dtype, shape, data] = value
        return self.constants[dtype, shape, data]

    def launch(
        self, kernel: Op, arguments: Sequence[Argument], inside: dict[Value, Value], label: str, flops: Dim, span: Span,
        moved: Dim | None = None,
    ) -> None:  # fmt: skip
        """Adds a launch; `inside` maps the group's own values to function-level ones. `moved`: bytes, where they are
        not those of all that it may look at."""
        args: list[BufferArg | ScalarArg] = []
        touched: Dim = 0
        for a in arguments:
            outer = inside.get(a.base, a.base)
            if outer in self.scalars:
                args.append(ScalarArg(self.scalars[outer], a.type.dtype))
                continue
            args.append(BufferArg(self.of[outer], a.offset))
            assert isinstance(a.type, ViewType)
            touched = touched + _touched(a.type) * a.type.dtype.itemsize * (2 if a.changed else 1)
        moved = touched if moved is None else moved
        self.steps.append(Launch(self._once(kernel), tuple(args), span, flops, moved, label))

    def _once(self, kernel: Op) -> Op:
        """The kernel; where an earlier one differs in names alone, a copy of that one."""
        code = original_of(kernel)
        first = self.codes.get(code)
        if first is None:
            first = self.codes[code] = self.texts.setdefault(all_but_names(code), code)
        names = cast("tuple[str, ...]", kernel.attrs["arg_names"])
        return kernel if first is code else RenamedCopy(first, str(kernel.attrs["sym_name"]), names)

    @contextmanager
    def collect(self) -> Generator[list[Step]]:
        """Steps added inside go into the list it gives."""
        outer, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = outer

    def kernel_name(self, label: str) -> str:
        words = "_".join(w for w in label.replace("+", " ").split() if w.isidentifier())
        self.kernels += 1
        return f"{self.name}_{self.kernels - 1}_{words}"[:60]


def _touched(view: ViewType) -> Dim:
    """Distinct elements behind a view."""
    strides = view.strides if view.strides is not None else (1,) * view.rank
    return prod(d for d, s in zip(view.shape, strides, strict=True) if s != 0)


def flops_of(ops: Sequence[Op]) -> Dim:
    total: Dim = 0
    for op in ops:
        results = [r.type for r in op.results if isinstance(r.type, TensorType)]
        total = total + operator_of(op).flops(types_of(split_operands(op)), results, **attributes_of(op))
    return total


def inside(group: Op) -> dict[Value, Value]:
    """Maps the group's own values to the function-level values that they represent."""
    body = group.region.block
    known = dict(zip(body.args, group.operands, strict=True))
    return known | dict(zip(body.terminator.operands, group.results, strict=True))


def scalars_of(group: Op, out: ProgramBuilder) -> set[Value]:
    return {a for a, v in zip(group.region.block.args, group.operands, strict=True) if v in out.scalars}
