"""A Program's buffers and steps as JSON in the artefact, and the code that walks them at launch.

The walk is the same on a GPU and in the emulator; `StepMachine` is what they do differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any, Protocol

from tessera.compiler.targets.base import Artifact, TileRecorder
from tessera.compiler.targets.cuda.call import records
from tessera.compiler.targets.cuda.emit.phases import names
from tessera.compiler.targets.cuda.generate import Generated
from tessera.compiler.targets.cuda.write import print_buffer
from tessera.compiler.tile.asserts import filled
from tessera.compiler.tile.lifetimes import place, temporaries
from tessera.compiler.tile.program import (
    Branch,
    BufferArg,
    Exchange,
    Launch,
    Loop,
    Program,
    Step,
    come_home,
    exchanges,
    turn,
)
from tessera.errors import DebugCheckError, Diagnostic, LaunchError, Span
from tessera.immutable import immutable, mutable
from tessera.language import dtypes, rounding
from tessera.language.dims import evaluate, parse
from tessera.language.lazy import np

MAX_BLOCKS = 2**31 - 1
WHOLE = "tile"
"""the phase of a tile that has one"""
ALIGNMENT = 16
"""Bytes that the start of every buffer is a multiple of. Arguments that are not have code of their own (`narrow`)."""
TEMPORARY_ALIGNMENT = 256
"""the same of temporaries, as the driver aligns what it allocates"""


def describe(program: Program, generated: Generated) -> dict[str, Any]:
    """Everything but code: what `Steps` needs to run the program."""
    known = phases(generated)
    used = {t.buffer: [t.first, t.last] for t in temporaries(program)}
    buffers = [
        {
            "name": b.name,
            "role": b.role,
            "shape": [str(d) for d in b.shape],
            "dtype": b.dtype.name,
            "id": b.id,
            "used": used.get(b.id),
        }
        for b in program.buffers
    ]
    scalars = [i for i, p in enumerate(program.params) if p.shape is None]
    kernels = {
        k.name: {
            "threads": k.threads,
            "shared": k.shared,
            "parameters": [list(p) for p in k.parameters],
            "signature": k.signature,
            "grid": [str(d) for d in op.attrs["grid"]],  # type: ignore[union-attr]
            "asserts": [[message, extent, list(astuple(span))] for message, extent, span in k.asserts],
            "prints": [site.describe() for site in k.prints],
            "layouts": k.layouts,
            "tiles": k.tiles,
            "notes": k.notes,
            "values": k.values,
            "phases": [[known.index(n), p.line] for n, p in zip(names(k.phases), k.phases, strict=True)],
            "writes": _written(op),
            "span": list(astuple(op.span)),
            "tensor_maps": k.tensor_maps,
            "persistent": k.goes_on,
        }
        for op, k in generated.written
    }
    steps = _steps(program.steps, generated, scalars)
    exchanged = [[e.bound, e.others] for e in exchanges(program)]
    return {
        "buffers": buffers, "scalars": len(scalars), "free": list(program.free), "kernels": kernels, "steps": steps,
        "exchanges": exchanged,
    }  # fmt: skip


def _written(kernel: Any) -> list[int]:
    return [int(i) for i in kernel.attrs.get("writes", ())]


def phases(generated: Generated) -> list[str]:
    """What the phase numbers of tile records mean."""
    return list(dict.fromkeys([WHOLE, *(name for _, k in generated.written for name in names(k.phases))]))


def _steps(steps: Sequence[Step], generated: Generated, scalars: list[int]) -> list[Any]:
    out: list[Any] = []
    for step in steps:
        match step:
            case Launch():
                args = [
                    ["window", a.buffer, str(a.offset)]
                    if isinstance(a, BufferArg)
                    else ["scalar", scalars.index(a.param), a.dtype.name]
                    for a in step.args
                ]
                out.append(["launch", generated.kernels[step.kernel].name, args])
            case Branch():
                out.append(
                    [
                        "branch",
                        step.cond,
                        _steps(step.then, generated, scalars),
                        _steps(step.orelse, generated, scalars),
                    ]
                )
            case Loop():
                out.append(
                    [
                        "loop",
                        step.cond,
                        _steps(step.head, generated, scalars),
                        _steps(step.body, generated, scalars),
                        step.turns,
                    ]
                )
    return out


def constants(artifact: Artifact) -> dict[int, bytes]:
    """The content of the buffers that are known when compiling, by their number."""
    files = artifact.files.items()
    return {int(name.removeprefix("constant.")): data for name, data in files if name.startswith("constant.")}


def pack_scalar(value: object, dtype_name: str) -> bytes:
    """A scalar argument as the bytes that the kernel's parameter holds."""
    if dtype_name == "f32" or dtype_name == "f64":
        return np.array(value, dtype="f4" if dtype_name == "f32" else "f8").tobytes()
    dtype = dtypes.BY_NAME[dtype_name]
    if dtype.is_integer:
        return (int(value) % (1 << dtype.bits)).to_bytes(dtype.itemsize, "little")  # type: ignore[call-overload]
    return rounding.rounded_number(value, dtype).tobytes()  # type: ignore[arg-type]


@mutable
class KernelCall:
    """One launch, ready to go: `arguments` are the bytes of each kernel parameter."""

    kernel: str
    grid: int
    threads: int
    shared: int
    arguments: list[bytes]
    windows: list[tuple[str, int, int, bool]]
    """(name, address, bytes, whether it may be written) of every buffer it is given"""


@immutable
class BoundTensorMap:
    """How tensor copies see memory: axes innermost first; `strides` in bytes of all axes but the innermost."""

    address: int
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


class StepMachine(Protocol):
    """Where calls run. Addresses are plain integers."""

    def allocate(self, size: int) -> int: ...
    def constant(self, number: int, data: bytes) -> int:
        """The address of constant `number`, which stays where it is from its first use on."""
        ...

    def upload(self, address: int, data: bytes) -> None: ...
    def download(self, address: int, size: int) -> bytes: ...
    def copy(self, to: int, source: int, size: int) -> None: ...
    def tensor_map(self, tensor: BoundTensorMap) -> bytes:
        """The 128 bytes that a kernel takes for it."""
        ...

    def resident(self, kernel: str) -> int:
        """How many blocks of a kernel it runs at a time."""
        ...

    def records(self, launch: int, programs: int, phases: Sequence[Sequence[int]]) -> int | None:
        """Where launch number `launch` writes the records of its programs, for somebody to read later; None where
        they are read as soon as it has run."""
        ...

    def launch(self, call: KernelCall) -> None: ...
    def host_times(self, times: Any) -> Any:
        """Times of the clock of records on that of `time.perf_counter_ns`."""
        ...

    def free(self, address: int) -> None: ...


class Steps:
    """The artefact's steps. One instance serves many runs; memory is the machine's."""

    def __init__(self, meta: Mapping[str, Any], constants: Mapping[int, bytes]) -> None:
        self.meta, self.constants = meta, constants
        self.buffers = {b["id"]: b for b in meta["buffers"]}
        self.bound = [b["id"] for b in meta["buffers"] if b["role"] in ("input", "output")]
        self.written = {
            a[1]
            for _, name, args in _launches(meta["steps"])
            for i, a in enumerate(args)
            if i in meta["kernels"][name]["writes"]
        }
        self.exchanges = [Exchange(tuple(bound), tuple(others)) for bound, others in meta["exchanges"]]
        self.written.update(b for exchange in self.exchanges for b in exchange.bound)
        self.alignment: int = meta.get("alignment", ALIGNMENT)
        self.mapped = {
            args[described["argument"]][1]
            for _, name, args in _launches(meta["steps"])
            for described in meta["kernels"][name]["tensor_maps"]
        }
        """buffers that tensor copies read, as they are or as the memory of another one"""
        for exchange in self.exchanges:
            if not self.mapped.isdisjoint(exchange.buffers):
                self.mapped.update(exchange.buffers)
        self.needs = {b["id"]: self._needed(b) for b in meta["buffers"]}
        """what an argument's address is a multiple of, or it is copied to one that is"""
        self.numbers = {id(step): number for number, step in enumerate(_launches(meta["steps"]))}
        """a launch's place among all launches, by its step"""
        self._dims = {text: parse(text) for text in self._texts()}

    def _needed(self, buffer: Mapping[str, Any]) -> int:
        if buffer["id"] in self.mapped:
            return ALIGNMENT
        return max(self.alignment, dtypes.BY_NAME[buffer["dtype"]].itemsize)

    def moves(self, pointers: Sequence[int]) -> bool:
        """Whether some argument must be copied before the launches."""
        return any(p % self.needs[b] for b, p in zip(self.bound, pointers, strict=True))

    def _texts(self) -> set[str]:
        out = {d for b in self.meta["buffers"] for d in b["shape"]} | {
            d for k in self.meta["kernels"].values() for d in k["grid"]
        }
        maps = [tensor for k in self.meta["kernels"].values() for tensor in k["tensor_maps"]]
        out |= {d for tensor in maps for d in (*tensor["sizes"], *tensor["strides"])}
        return out | {a[2] for _, _, args in _launches(self.meta["steps"]) for a in args if a[0] == "window"}

    def size(self, text: str, env: Mapping[str, int]) -> int:
        d = self._dims[text]
        return d if isinstance(d, int) else evaluate(d, env)

    def window(self, arg: Sequence[Any], env: Mapping[str, int]) -> tuple[int, int]:
        """The buffer of a launch's window and the byte that it starts at."""
        itemsize = dtypes.BY_NAME[self.buffers[arg[1]]["dtype"]].itemsize
        return arg[1], self.size(arg[2], env) * itemsize

    def tensor_map(self, described: Mapping[str, Any], address: int, env: Mapping[str, int]) -> BoundTensorMap:
        """A tensor map at these sizes. Axes without elements are given one, as the driver demands; no copy reads it."""
        itemsize = dtypes.BY_NAME[described["dtype"]].itemsize
        sizes = tuple(max(1, self.size(d, env)) for d in described["sizes"])
        strides = tuple(max(ALIGNMENT, self.size(d, env) * itemsize) for d in described["strides"][1:])
        return BoundTensorMap(address, described["dtype"], sizes, strides, tuple(described["box"]))

    def nbytes(self, buffer: Mapping[str, Any], env: Mapping[str, int]) -> int:
        return math.prod(self.size(d, env) for d in buffer["shape"]) * dtypes.BY_NAME[buffer["dtype"]].itemsize

    def workspace(self, env: Mapping[str, int]) -> tuple[dict[int, int], int]:
        """Where each temporary begins in the memory of a call, and how many bytes that takes."""
        temps = [b for b in self.meta["buffers"] if b["used"] is not None]
        places, total = place([(self.nbytes(b, env), *b["used"]) for b in temps], TEMPORARY_ALIGNMENT)
        return {b["id"]: at for b, at in zip(temps, places, strict=True)}, total

    def run(
        self,
        machine: StepMachine,
        pointers: Sequence[int],
        scalars: Sequence[object],
        dims: Sequence[int],
        record: TileRecorder | None = None,
    ) -> None:
        env = dict(zip(self.meta["free"], dims, strict=True))
        address = dict(zip(self.bound, pointers, strict=True))
        own: list[int] = []
        moved: list[tuple[int, int, int]] = []
        try:
            places, workspace = self.workspace(env)
            if places:
                own.append(machine.allocate(max(1, workspace)))
                address |= {number: own[0] + at for number, at in places.items()}
            for number, buffer in self.buffers.items():
                given = address.get(number, 0)
                if given % self.needs[number]:
                    size = self.nbytes(buffer, env)
                    address[number] = machine.allocate(max(1, size))
                    own.append(address[number])
                    machine.copy(address[number], given, size)
                    if number in self.written:
                        moved.append((given, address[number], size))
                if buffer["role"] == "constant":
                    address[number] = machine.constant(number, self.constants[number])
            home = address.copy()
            StepRun(self, machine, address, scalars, env, record).steps(self.meta["steps"])
            for exchange in self.exchanges:
                size = self.nbytes(self.buffers[exchange.buffers[0]], env)
                come_home(exchange, address, home, lambda to, source, size=size: machine.copy(to, source, size))
            for given, copy, size in moved:
                machine.copy(given, copy, size)
        finally:
            for a in own:
                machine.free(a)


def _launches(steps: Sequence[Any]) -> Iterator[list[Any]]:
    """The launches among steps, those inside branches and loops too, in order of appearance."""
    for step in steps:
        if step[0] == "launch":
            yield step
        else:
            yield from _launches(step[2])
            yield from _launches(step[3])


def grid_size(plan: Steps, name: str, env: Mapping[str, int]) -> int:
    """The number of programs of a launch. Raises LaunchError beyond what one launch takes."""
    grid = math.prod(plan.size(d, env) for d in plan.meta["kernels"][name]["grid"])
    if grid > MAX_BLOCKS:
        raise LaunchError(
            f"{name} would need {grid} programs; one launch takes at most {MAX_BLOCKS}.\nUse larger tiles."
        )
    return grid


@mutable
class StepRun:
    """One run of the steps with its addresses, scalars and sizes."""

    plan: Steps
    machine: StepMachine
    address: dict[int, int]
    scalars: Sequence[object]
    env: Mapping[str, int]
    record: TileRecorder | None

    def steps(self, steps: Sequence[Any]) -> None:
        for step in steps:
            if step[0] == "launch":
                self.launch(step[1], step[2], self.plan.numbers[id(step)])
            elif step[0] == "branch":
                self.steps(step[2] if self.holds(step[1]) else step[3])
            else:
                self.steps(step[2])
                while self.holds(step[1]):
                    self.steps(step[3])
                    turn(self.address, step[4])
                    self.steps(step[2])

    def holds(self, buffer: int) -> bool:
        return self.machine.download(self.address[buffer], 1) != b"\0"

    def launch(self, name: str, args: Sequence[Any], number: int) -> None:
        kernel = self.plan.meta["kernels"][name]
        grid = grid_size(self.plan, name, self.env)
        if grid == 0:
            return
        blocks = min(grid, self.machine.resident(name)) if kernel["persistent"] else grid
        call = KernelCall(name, blocks, kernel["threads"], kernel["shared"], [], [])
        own: list[tuple[str, int, int]] = []
        for kind, detail in kernel["parameters"]:
            if kind in ("view", "scalar"):
                self._argument(call, args[int(detail)], int(detail) in kernel["writes"])
            elif kind == "dim":
                call.arguments.append(int(self.env[detail]).to_bytes(8, "little", signed=True))
            elif kind == "tensor_map":
                described = kernel["tensor_maps"][int(detail)]
                buffer, start = self.plan.window(args[described["argument"]], self.env)
                tensor = self.plan.tensor_map(described, self.address[buffer] + start, self.env)
                call.arguments.append(self.machine.tensor_map(tensor))
            elif kind == "records" and (place := self.machine.records(number, grid, kernel["phases"])) is not None:
                call.arguments.append(place.to_bytes(8, "little"))
            else:
                start = self._start_of(kind, kernel, grid)
                size = len(start)
                at = self.machine.allocate(size)
                self.machine.upload(at, start)
                own.append((kind, at, size))
                call.arguments.append(at.to_bytes(8, "little"))
                call.windows.append((kind, at, size, True))
        try:
            self.machine.launch(call)
            for kind, at, size in own:
                self._read_back(kind, self.machine.download(at, size), kernel, number)
        finally:
            for _, at, _ in own:
                self.machine.free(at)

    def _argument(self, call: KernelCall, arg: Sequence[Any], writes: bool) -> None:
        if arg[0] == "scalar":
            call.arguments.append(pack_scalar(self.scalars[arg[1]], arg[2]))
            return
        buffer = self.plan.buffers[arg[1]]
        _, offset = self.plan.window(arg, self.env)
        base = self.address[arg[1]]
        call.arguments.append((base + offset).to_bytes(8, "little"))
        call.windows.append((buffer["name"], base, self.plan.nbytes(buffer, self.env), writes))

    def _start_of(self, kind: str, kernel: Mapping[str, Any], grid: int) -> bytes:
        """The content of a launch's own buffer before it runs."""
        if kind == "prints":
            return print_buffer.buffer(kernel["prints"], grid)
        if kind == "faults":
            return bytes(max(512, 8 * len(kernel["asserts"])))
        return records.empty(grid, 1, len(kernel["phases"]))

    def _read_back(self, kind: str, data: bytes, kernel: Mapping[str, Any], number: int) -> None:
        if kind == "prints":
            print_buffer.show(data, kernel["prints"], [self.plan.size(d, self.env) for d in kernel["grid"]])
        elif kind == "faults":
            asserts = kernel["asserts"]
            flags: list[int] = np.frombuffer(data, np.uint64)[: len(asserts)].tolist()
            failed = [self._failed(known, flag) for known, flag in zip(asserts, flags, strict=True) if flag]
            if failed:
                raise DebugCheckError(failed)
        elif self.record is not None:
            for columns in records.runs(data, kernel["phases"]):
                start = self.machine.host_times(columns["start"])
                self.record.record({**columns, "start": start, "launch": number})

    def _failed(self, known: Sequence[Any], flag: int) -> Diagnostic:
        """The message of a failed assert; its flag holds the least index out of range (see faults.cuh)."""
        message, extent, span = known
        index = (~flag & (1 << 64) - 1) - (1 << 63)
        return Diagnostic("TS506", filled(message, index, parse(extent), self.env), Span(*span))
