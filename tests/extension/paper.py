from __future__ import annotations

import ctypes
import itertools

import numpy as np

import tessera as ts
from tessera.compiler.tile.program import BufferArg, Launch
from tessera.errors import Diagnostic, TargetError
from tessera.hardware import Artifact
from tessera.language.dims import evaluate, prod
from tessera.language.scalars import TABLE

REDUCERS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
NUMPY = {"f32": "float32", "f64": "float64"}


@ts.hardware.register("paper")
class Paper:
    """Writes Python over NumPy. Kernels of functions whose sizes are known, in f32, f64 and integers."""

    name = "paper"
    device = "cpu"  # where arrays live
    passes = ("reduce_one_axis",)  # optional passes that its programs go through
    fingerprint = "paper-1"  # part of every cache key: changes with the code that it writes

    def compile(self, program, *, profile=False, debug=False):
        lines = ["import numpy as np", "def run(buffers):"]
        if program.free or any(p.shape is None for p in program.params):
            raise refused(program, "sizes that are known at launch, or scalar parameters")
        for number, step in enumerate(program.steps):
            if not isinstance(step, Launch):
                raise refused(program, "branches and loops over results")
            lines += ["    " + line for line in launch(number, step)]
        sizes = [(b.dtype.name, int(prod(b.shape)), b.role) for b in program.buffers]
        constants = {f"constant{i}": b.data for i, b in enumerate(program.buffers) if b.data is not None}
        return Artifact(self.name, program.name, "\n".join(lines) + "\n", constants, meta={"buffers": sizes})

    def load(self, artifact):
        return Executable(artifact)


def launch(number, step):
    """One launch: a loop over its grid around the kernel's ops, a line each."""
    grid = [range(evaluate(d, {})) for d in step.kernel.attrs["grid"]]
    names, lines = {}, []
    for i, (value, arg) in enumerate(zip(step.kernel.region.block.args, step.args, strict=True)):
        if not isinstance(arg, BufferArg):
            raise refused(step.kernel, "scalar arguments")
        names[value] = f"v{i}"
        shape = tuple(evaluate(d, {}) for d in value.type.shape)
        strides = [evaluate(d, {}) for d in value.type.strides] if value.type.strides is not None else None
        lines.append(f"v{i} = window(buffers[{arg.buffer}], {evaluate(arg.offset, {})}, {shape}, {strides})")
    lines.append(f"for program in {list(itertools.product(*grid))}:")
    for op in step.kernel.region.block.ops[:-1]:
        for r in op.results:
            names[r] = f"t{len(names)}"
        text = write(op, [names[v] for v in op.operands])
        lines.append("    " + (f"{names[op.result]} = {text}" if op.results else text))
    return lines


def write(op, v):
    """The Python of one op over the names of its operands."""
    kind, attrs = op.name.removeprefix("tile."), op.attrs
    index = {"iadd": "+", "isub": "-", "imul": "*", "idiv": "//", "imod": "%"}
    if kind in index:
        return f"{v[0]} {index[kind]} {v[1]}"
    if kind in ("imin", "imax"):
        return f"{kind[1:]}({', '.join(v)})"
    if kind == "dim":
        return str(evaluate(attrs["dim"], {}))
    if kind == "program_id":
        return f"program[{attrs['axis']}]"
    if kind == "store" and not attrs.get("masked"):
        return f"store({', '.join(v)})"
    dtype, shape = (op.result.type.dtype, op.result.type.shape) if op.results else (None, ())
    if dtype is None or (dtype.bits < 32 and dtype.kind != "bool") or not all(isinstance(n, int) for n in shape):
        raise refused(op, f"{op.name} of {op.result.type if op.results else 'nothing'}")
    if kind == "load" and not attrs.get("masked"):
        return f"load({v[0]}, {shape}, {attrs.get('fill', 0)!r}, {', '.join(v[1:])})"
    if kind == "constant":
        return f"np.asarray({attrs['value']!r}, np.{dtype.numpy})"
    if kind == "broadcast":
        return f"broadcast({v[0]}, {attrs['axes']}, {shape})"
    if kind == "reshape":
        return f"{v[0]}.reshape({shape})"
    if kind == "reduce" and attrs["op"] in REDUCERS:
        return f"REDUCERS[{attrs['op']!r}].reduce({v[0]}, {attrs['axes']}, np.{dtype.numpy})"
    if kind in TABLE:
        return f"np.asarray(TABLE[{kind!r}].reference({', '.join(v)})).astype(np.{dtype.numpy})"
    raise refused(op, op.name)


def refused(at, what):
    return TargetError(Diagnostic("TS602", f"the target paper does not write {what}", at.span))


class Executable:
    """Runs the text on the addresses that a call gives."""

    def __init__(self, artifact):
        self.artifact = artifact
        names = dict(globals(), inf=np.inf, nan=np.nan)
        exec(artifact.source, names)
        self.program = names["run"]

    def run(self, pointers, scalars, dims, *, stream=0, record=None):
        given, buffers = iter(pointers), []
        for i, (name, count, role) in enumerate(self.artifact.meta["buffers"]):
            dtype = np.dtype(NUMPY.get(name, name))
            if role == "temp":
                buffers.append(np.empty(count, dtype))
            elif role == "constant":
                buffers.append(np.frombuffer(self.artifact.files[f"constant{i}"], dtype))
            else:
                memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(next(given))
                buffers.append(np.frombuffer(memory, dtype))
        self.program(buffers)


def window(flat, offset, shape, strides):
    rest = flat[offset:]
    return (
        rest[: int(np.prod(shape))].reshape(shape)
        if strides is None
        else np.lib.stride_tricks.as_strided(rest, shape, [s * flat.itemsize for s in strides])
    )


def inside(view, shape, at):
    """Which part of the view a tile lies on, and which part of the tile that is."""
    first = [max(0, a) for a in at]
    last = [min(n, a + size) for n, a, size in zip(view.shape, at, shape, strict=True)]
    of_view = tuple(map(slice, first, last))
    return of_view, tuple(slice(f - a, e - a) for f, e, a in zip(first, last, at, strict=True))


def load(view, shape, fill, *at):
    tile = np.full(shape, fill, view.dtype)
    of_view, of_tile = inside(view, shape, at)
    tile[of_tile] = view[of_view]
    return tile


def store(view, tile, *at):
    of_view, of_tile = inside(view, tile.shape, at)
    view[of_view] = tile[of_tile]


def broadcast(tile, axes, shape):
    aligned = [1] * len(shape)
    for n, axis in zip(tile.shape, axes, strict=True):
        aligned[axis] = n
    return np.broadcast_to(tile.reshape(aligned), shape)


@ts.function
def normalised(x: ts.Tensor["N", "M", ts.f32], scale: ts.Tensor["M", ts.f32]):
    return ts.softmax(x * scale)


if __name__ == "__main__":
    random = np.random.default_rng(0)
    x, scale = random.normal(size=(50, 70)).astype(np.float32), random.normal(size=70).astype(np.float32)
    compiled = ts.compile(normalised, target="paper", dims={"N": 50, "M": 70})
    wanted = np.exp(x * scale - (x * scale).max(-1, keepdims=True))
    np.testing.assert_allclose(compiled(x, scale), wanted / wanted.sum(-1, keepdims=True), rtol=1e-5)
