"""Tile programs built by hand, and running them: emulated CUDA against the Tile IR interpreter and NumPy."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import Shape, TileType, ViewType
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.emulate import EmulatedExecutable
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.interpret.interpreter import run_kernel
from tessera.compiler.tile.interpret.memory import WatchedView
from tessera.compiler.tile.program import Buffer, BufferArg, Launch, Program, ScalarArg
from tessera.compiler.unit import Param
from tessera.errors import Span
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tests.together import builds

SPAN = Span("kernel.py", 1, 1, 1, 10)


@dataclass(frozen=True)
class Arg:
    """A parameter of a kernel. `shape` None: a scalar. `out`: stored to; `strides` of the view, else contiguous."""

    name: str
    shape: Shape | None
    dtype: DType
    out: bool = False
    strides: Shape | None = None


@dataclass
class Case:
    """A kernel with inputs and what it should give. `expected` maps output names to arrays."""

    program: Program
    inputs: dict[str, Any]
    expected: dict[str, Any] | None = None
    dims: dict[str, int] = field(default_factory=dict)
    rtol: float = 1e-6
    atol: float = 1e-6


def build(
    name: str, args: Sequence[Arg], grid: Shape, body: Callable[..., None], free: tuple[str, ...] = (), **attrs: Any
) -> Program:
    """`body(t, *arguments)` writes the kernel's ops with a TileBuilder. Extra keywords become attributes."""
    types = [TileType((), a.dtype) if a.shape is None else ViewType(a.shape, a.dtype, a.strides) for a in args]
    block = Block(types, [a.name for a in args])
    t = LineBuilder(block, span=SPAN)
    body(t, *block.args)
    t.op("tile.return")
    writes = tuple(i for i, a in enumerate(args) if a.out)
    plain: dict[str, Any] = {"sym_name": name, "grid": grid, "arg_names": tuple(a.name for a in args), "writes": writes}
    kernel = Op("tile.func", (), (), SPAN, {**plain, **attrs}, [Region([block])])
    params = tuple(Param(a.name, a.shape, a.dtype, a.out) for a in args)
    buffers = tuple(
        Buffer(i, a.name, a.shape, a.dtype, "output" if a.out else "input", i)
        for i, a in enumerate(args)
        if a.shape is not None
    )
    bound = tuple(BufferArg(i) if a.shape is not None else ScalarArg(i, a.dtype) for i, a in enumerate(args))
    launch = Launch(kernel, bound, SPAN, 0, 0, name)
    return Program(name, params, buffers, (launch,), tuple(i for i in writes), free)


class LineBuilder(TileBuilder):
    """Every op on a line of its own, so that messages can be told apart."""

    def op(self, name: str, *rest: Any, **named: Any) -> Op:
        assert self.span is not None
        self.span = Span("kernel.py", self.span.line + 1, 1, self.span.line + 1, 10)
        return super().op(name, *rest, **named)

    def ints(self, *dims: Dim) -> list[Value]:
        return [self.index(d) for d in dims]

    def unary(self, name: str, x: Value) -> Value:
        return self.map(name, x)


def poisoned(shape: Sequence[int], dtype: DType) -> Any:
    fill = b"\xff" if dtype.kind != "bool" else b"\x01"
    return np.frombuffer(bytearray(fill * (int(np.prod(shape)) * dtype.itemsize)), dtype.numpy).reshape(shape)


def sizes(shape: Shape, dims: dict[str, int]) -> tuple[int, ...]:
    from tessera.language.dims import evaluate

    return tuple(evaluate(d, dims) for d in shape)


def run(
    case: Case, target: str = "emulator:sm_80", seed: int = 0, executable: EmulatedExecutable | None = None
) -> dict[str, Any]:
    """The outputs by name. Arrays are copied first, and outputs start as poison unless `inputs` holds them."""
    program = case.program
    if executable is None:
        compiled = base.get(target)
        executable = compiled.load(generate(program, compiled))  # type: ignore[assignment]
    assert executable is not None
    executable.seed = seed
    arrays: dict[str, Any] = {}
    scalars: list[Any] = []
    for p in program.params:
        if p.shape is None:
            scalars.append(case.inputs[p.name])
        elif p.name in case.inputs:
            arrays[p.name] = np.ascontiguousarray(case.inputs[p.name]).astype(p.dtype.numpy, copy=True)
        else:
            arrays[p.name] = poisoned(sizes(p.shape, case.dims), p.dtype)
    executable.run([a.ctypes.data for a in arrays.values()], scalars, [case.dims[d] for d in program.free])
    return {p.name: arrays[p.name] for p in program.params if p.writes}


def interpret(case: Case) -> dict[str, Any]:
    """The outputs by the Tile IR interpreter."""
    program = case.program
    kernel = program.launches[0].kernel
    args: list[Any] = []
    arrays: dict[str, Any] = {}
    for p, arg in zip(program.params, kernel.region.block.args, strict=True):
        if p.shape is None:
            args.append(p.dtype.numpy.type(case.inputs[p.name]))
            continue
        shape = sizes(p.shape, case.dims)
        data = np.array(case.inputs[p.name], p.dtype.numpy) if p.name in case.inputs else poisoned(shape, p.dtype)
        arrays[p.name] = data
        t = arg.type
        assert isinstance(t, ViewType)
        if t.strides is not None:
            steps = [s * data.itemsize for s in sizes(t.strides, case.dims)]
            data = np.lib.stride_tricks.as_strided(data, sizes(t.shape, case.dims), steps)
        args.append(WatchedView(p.name, data))
    run_kernel(kernel, args, case.dims)
    return {p.name: arrays[p.name] for p in program.params if p.writes}


@dataclass
class Ready:
    """A case that is compiled."""

    case: Case
    target: str
    executable: Any


def ready(case: Case, target: str = "emulator:sm_80") -> Ready:
    compiled = base.get(target)
    return Ready(case, target, compiled.load(generate(case.program, compiled)))


def check(what: Case | Ready, target: str = "emulator:sm_80", seeds: Sequence[int] = (0, 1, 2, 7)) -> dict[str, Any]:
    """Runs the case under several interleavings, which must agree to the bit, and compares with what is expected."""
    made = what if isinstance(what, Ready) else ready(what, target)
    case, target, executable = made.case, made.target, made.executable
    results = [run(case, target, seed, executable) for seed in seeds]
    for other in results[1:]:
        for name, value in other.items():
            assert value.tobytes() == results[0][name].tobytes(), f"{name} depends on the order of the threads"
    expected = case.expected if case.expected is not None else interpret(case)
    for name, value in expected.items():
        got = results[0][name]
        wide = np.complex128 if np.iscomplexobj(got) else np.float64 if got.dtype.kind not in "iub" else got.dtype
        np.testing.assert_allclose(
            got.astype(wide), np.asarray(value).astype(wide), rtol=case.rtol, atol=case.atol, err_msg=name
        )
    return results[0]


def checked(make: Any = None, *, seeds: Sequence[int] = (0, 1, 2, 7)) -> Any:
    """Makes a test of a function that gives the case to check, which is compiled together with others of its file."""
    if make is None:
        return lambda function: checked(function, seeds=seeds)

    def test(built: Ready, **_: Any) -> None:
        check(built, seeds=seeds)

    def build_it(**parameters: Any) -> Ready:
        made = make(**parameters)
        return made if isinstance(made, Ready) else ready(made)

    test = functools.wraps(make)(test)
    del test.__wrapped__
    names = [*inspect.signature(make).parameters, "built"]
    test.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names])  # type: ignore[attr-defined]
    return builds(build_it)(test)
