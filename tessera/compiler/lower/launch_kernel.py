"""A `schedule.launch` as a launch of its kernel: scalars become what a Program passes, operands their buffers."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from tessera.compiler.ir.core import Op, Value, clone
from tessera.compiler.ir.launches import kernel_of, steps_of, stored
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.types import TensorType, TileType, ViewType
from tessera.compiler.lower.kernel_to_program import demand_static_tiles, zeros_launch
from tessera.compiler.lower.program_builder import ProgramBuilder
from tessera.compiler.lower.reduce_across import stages
from tessera.compiler.schedule.views import layout_of
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.program import BufferArg, Launch, ScalarArg
from tessera.compiler.tile.work import flops, traffic
from tessera.errors import NOWHERE, Note
from tessera.language import dtypes
from tessera.language.dims import Dim


def launch_kernel(op: Op, out: ProgramBuilder) -> None:
    """Adds the launch. Raises CompileError (TS404) where a tile's extent depends on a dim without a size."""
    kernel = clone(kernel_of(op), {})
    name = str(kernel.attrs["sym_name"])
    demand_static_tiles(kernel, name, (Note("launched here", op.span),))
    args: list[BufferArg | ScalarArg] = []
    for arg, v in zip(list(kernel.region.block.args), op.operands, strict=False):
        args += _argument(kernel, arg, v, out)
    for result, i in zip(op.results, stored(op), strict=True):
        if i < len(op.operands):  # normalised: nothing else uses that memory
            out.of[result] = out.of[_base(op.operands[i])]
        else:
            args.append(BufferArg(out.temp(result)))
    for i in cast("tuple[int, ...]", kernel.attrs.get("zeroed", ())):
        given = args[i]
        assert isinstance(given, BufferArg)
        zeros = zeros_launch(kernel.region.block.args[i], given.buffer, op.span, name)
        out.steps.append(replace(zeros, kernel=_once(zeros.kernel, str(zeros.kernel.attrs["sym_name"]), out)))
    steps, numbers = steps_of(op), None
    if steps > 1:
        numbers = out.of[out.constant(range(steps), dtypes.int32, "step", op.span)]
        args.append(BufferArg(numbers))
    apart = stages(kernel)
    for s in apart:
        args.append(BufferArg(out.temp(_memory(kernel.region.block.args[s.shares]))))
    kernel = _once(kernel, name, out)
    label = str(op.attrs.get("label", name))
    for i in range(steps):
        given = [replace(a, offset=i) if isinstance(a, BufferArg) and a.buffer == numbers else a for a in args]
        out.steps.append(Launch(kernel, tuple(given), op.span, *_figures(kernel, out), label))
    for s in apart:
        second = _once(s.kernel, str(s.kernel.attrs["sym_name"]), out)
        given = args[s.shares], args[s.target]
        out.steps.append(Launch(second, given, op.span, *_figures(second, out), f"shares of {label}"))


def _memory(argument: Value) -> Value:
    """A tensor for an argument that is memory of the program's own."""
    t = argument.type
    assert isinstance(t, ViewType)
    made = Op("graph.partials", (), (TensorType(t.shape, t.dtype),), NOWHERE, {}, hints=(argument.hint,))
    return made.result


def _base(v: Value) -> Value:
    layout = layout_of(v)
    assert layout is not None
    return layout.base


def _argument(kernel: Op, arg: Value, v: Value, out: ProgramBuilder) -> list[BufferArg | ScalarArg]:
    """The launch's argument for an operand; a number is put into the kernel and no longer passed."""
    layout = layout_of(v)
    assert layout is not None
    if isinstance(arg.type, ViewType):
        return [BufferArg(out.of[layout.base], layout.offset)]
    assert isinstance(arg.type, TileType)
    if layout.base in out.scalars:
        return [ScalarArg(out.scalars[layout.base], arg.type.dtype)]
    made = layout.base.op
    if made is not None and made.name == "graph.constant":
        _put_first(kernel, arg, made)
        return []
    _load_first(kernel, arg)
    return [BufferArg(out.of[layout.base], layout.offset)]


def _put_first(kernel: Op, arg: Value, constant: Op) -> None:
    """The number `constant` in the place of a scalar argument."""
    block = kernel.region.block
    b = TileBuilder(block, 0, kernel.span)
    arg.replace_by(b.constant(constant.attrs["value"], cast(TileType, arg.type).dtype))  # type: ignore[arg-type]
    _drop(kernel, arg)


def _load_first(kernel: Op, arg: Value) -> None:
    """A scalar that another kernel has computed is in memory: the argument becomes a view of it."""
    b = TileBuilder(kernel.region.block, 0, kernel.span)
    number = arg.type
    assert isinstance(number, TileType)
    arg.type = ViewType((), number.dtype)
    uses = list(arg.uses)
    loaded = b.load(arg, [], ())
    for user, i in uses:
        user.set_operand(i, loaded)


def _drop(kernel: Op, arg: Value) -> None:
    """Takes an argument out; those behind it move up."""
    gone = arg.index
    block = kernel.region.block
    del block.args[gone]
    for i, a in enumerate(block.args):
        a.index = i
    for name in ("writes", "returns", "zeroed") if "zeroed" in kernel.attrs else ("writes", "returns"):
        numbers = cast("tuple[int, ...]", kernel.attrs[name])
        kernel.attrs[name] = tuple(i - (i > gone) for i in numbers)
    kernel.attrs["arg_names"] = tuple(a.hint for a in block.args)


def _figures(kernel: Op, out: ProgramBuilder) -> tuple[Dim, Dim]:
    """Floating-point operations and bytes of a launch, found once for each kernel."""
    if kernel not in out.figures:
        out.figures[kernel] = flops(kernel), traffic(kernel)
    return out.figures[kernel]


def _once(kernel: Op, name: str, out: ProgramBuilder) -> Op:
    """Kernels that are the same are compiled once; different ones of one name get names of their own."""
    key = (kernel.span, print_op(kernel))
    if key not in out.launched:
        taken = {k.attrs["sym_name"] for k in out.launched.values()}
        names = (name, *(f"{name}_{i}" for i in range(2, len(taken) + 2)))
        kernel.attrs["sym_name"] = next(n for n in names if n not in taken)
        out.launched[key] = kernel
    return out.launched[key]
