"""Hints about the numbers that programs read: how wide they are, and how they lie in memory."""

from __future__ import annotations

import ast
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.compiler import figures
from tessera.compiler.machines import HOST
from tessera.profiler.analyses.traffic import arrays_of
from tessera.profiler.kernel_stats import NEAR_ROOF, KernelStats
from tessera.profiler.machine import DeviceCeilings
from tessera.profiler.quantity import format_bytes, format_time, format_value
from tessera.profiler.recording import Recording
from tessera.profiler.rules.hint import Hint, function_of, roof
from tessera.profiler.trial import layouts, narrowing
from tessera.profiler.trial.made import HintTrial
from tessera.runtime.arrays.frozen import Frozen
from tessera.runtime.events import CallEvent, LaunchEvent

FASTER = 1.3
"""times as many narrow products in a second as wide ones, from which on they are worth their rounding"""
MOSTLY = 2.0
"""times as long for the operations as for the bytes, from which on operations are what takes the time"""
USED = 32
"""operations with each number that a tile reads, from which on rounding it takes less than it saves"""
LEAST_NARROWED = 0.15
"""of a kernel's bytes that narrower arrays save"""
MOST_ROWS, UNPACKED_ROWS, PACKED = 64, 4, 1 << 21
"""rows of a product, above which packing is little beside multiplying; and what the CPU multiplies without packing, by
rows of f32 and by multiplications (docs/cpu.md)"""
LEAST_TURNED = 1 << 16
"""bytes of an array, below which it lies in the first caches however it is read"""


@dataclass(frozen=True, slots=True)
class _Called:
    """All calls of one program on one device."""

    kernels: Sequence[KernelStats]
    call: CallEvent | None
    """one of them, where it can be made again"""
    recording: Recording

    @property
    def program(self) -> Any:
        return None if self.call is None else self.call.program()

    @property
    def launches(self) -> list[LaunchEvent]:
        return [launch for kernel in self.kernels for launch in kernel.launches]

    @property
    def usual(self) -> int:
        """ns: see `KernelStats`."""
        return sum(kernel.usual for kernel in self.kernels)

    @property
    def machine(self) -> DeviceCeilings:
        return self.recording.machine(self.kernels[0].device)

    def own(self, kernel: KernelStats) -> bool:
        """Whether the kernel is made of the program's own text, and not of a kernel that it calls."""
        return kernel.written_by_hand == (self.program.kind == "kernel")


def _called(recording: Recording, stats: Sequence[KernelStats]) -> Iterator[_Called]:
    """Those whose program is known: without its text nothing can be said of what to change in it."""
    calls = {call.run: call for call in recording.calls}
    groups: dict[tuple[str, str], list[KernelStats]] = {}
    for kernel in stats:
        groups.setdefault((function_of(kernel.launches[0]), kernel.device), []).append(kernel)
    for kernels in groups.values():
        call = next((c for c in (calls.get(_run(x)) for k in kernels for x in reversed(k.launches)) if c), None)
        found = _Called(kernels, call, recording)
        if found.program is not None:
            yield found


def _run(launch: LaunchEvent) -> int:
    return int(launch.attributes.get("run", 0))


def narrower_products(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Products of f32 where this processor multiplies bf16 faster, and operations take the time, not bytes."""
    for called in _called(recording, stats):
        machine, rates = called.machine, rates_of_products(called.machine)
        if rates is None or rates[1] < FASTER * rates[0]:
            continue
        wide, narrow = rates
        own = [k for k in called.kernels if k.dtype == "f32" and called.own(k) and _multiplies(k, called.program)]
        found = [k for k in own if _used_often(k)]
        some = [(k, [x for x in k.launches if _by_operations(x, machine, wide)]) for k in found]
        ran = [x for _, launches in some for x in launches]
        if not ran or not narrowing.products_can(called.program):
            continue
        took = sum(k.usual * len(launches) / len(k.launches) for k, launches in some)
        flops = sum(x.flops or 0 for x in ran)
        how = "cast the operands of its products to bf16"
        if called.program.kind != "kernel":
            how = 'round the operands of its products to bf16, by @ts.function(numerics="@compute(bf16)")'
        yield Hint(
            kind="narrower products",
            kernel=found[0].kernel,
            title=found[0].title,
            measured=f"{format_value(flops / max(took, 1) * 1e9, 'FLOP/s')} in products of f32",
            ideal=f"up to {format_value(narrow, 'FLOP/s')} in products of bf16",
            cause=f"f32 is multiplied at up to {format_value(wide, 'FLOP/s')} here, and operations take the time",
            change=f"{how}; sums and results stay f32",
            saving=(0.0, took * (1 - wide / narrow)),  # what holds it back besides is not faster
            local_time=called.usual,
            region_time=recording.represented,
            source="modelled",
            file=found[0].file,
            line=found[0].line,
            trial=HintTrial(recording, ran, "narrower products"),
        )


def rates_of_products(machine: DeviceCeilings) -> tuple[float, float] | None:
    """FLOP/s of f32 and of bf16. Those of all threads may be of different busy moments; one thread's are not, and the
    second is at least as many times the first as there."""
    wide, narrow = (machine.ceiling("compute", dtype).value for dtype in ("f32", "bf16"))
    if wide is None or narrow is None:
        return None
    known = figures.figures()
    if machine.device.partition(":")[0] == HOST and machine.name == known.processor and known.measured:
        narrow = max(narrow, wide * known.rate("product bf16") / known.rate("product f32"))
    return wide, narrow


def _multiplies(kernel: KernelStats, program: Any) -> bool:
    if kernel.written_by_hand:
        return narrowing.products_can(program)
    return "contract" in str(kernel.launches[0].attributes.get("label", "")).split("+")


def _used_often(kernel: KernelStats) -> bool:
    """Whether tiles do enough with each number of their operands that rounding it is little beside."""
    read = [entry.modelled.value for entry in arrays_of(kernel)]
    known = [value for value in read if value is not None]
    return bool(known) and len(known) == len(read) and (kernel.flops.value or 0) >= USED * sum(known) / 4


def _by_operations(launch: LaunchEvent, machine: DeviceCeilings, rate: float) -> bool:
    moved = roof(0, launch.bytes or 0, "f32", machine)
    return moved is not None and (launch.flops or 0) / rate * 1e9 > MOSTLY * moved


def narrower_arrays(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Arrays of f32 that fit into no cache, in kernels that do little with each element but read it."""
    for called in _called(recording, stats):
        machine, multiplied = called.machine, set[str]()
        for kernel in called.kernels:
            if not called.own(kernel) or kernel.dtype != "f32" or _multiplies(kernel, called.program):
                multiplied |= set(_operands(kernel))
        for kernel in called.kernels:
            wide = [n for n in _operands(kernel) if n not in multiplied and _is_wide(called.call, n)]
            names = tuple(n for n in wide if narrowing.arrays_can(called.program, [n]))
            smallest = min(launch.bytes or 0 for launch in kernel.launches)
            size = sum(_bytes(called.call, n) for n in names)
            large = smallest > machine.last_cache_bytes > 0 and size / 2 >= LEAST_NARROWED * smallest
            if not large or kernel.bound == "compute":
                continue
            left = [roof(x.flops or 0, max(0, (x.bytes or 0) - size // 2), "f32", machine) for x in kernel.launches]
            yield Hint(
                kind="narrower arrays",
                kernel=kernel.kernel,
                title=kernel.title,
                measured=f"{format_bytes(size)} of {', '.join(names)} read as f32, more than the caches hold",
                ideal=f"{format_bytes(size / 2)}",
                cause="memory sets the pace: few operations are done with each number that is read",
                change=f"keep {', '.join(names)} in bf16, or in f16 where bf16 is too coarse, and compute in f32",
                saving=(0.0, max(0.0, kernel.usual - sum(t or 0.0 for t in left))),
                local_time=called.usual,
                region_time=recording.represented,
                source="modelled",
                file=kernel.file,
                line=kernel.line,
                trial=HintTrial(recording, kernel.launches, "narrower arrays", parameters=names),
            )


def _operands(kernel: KernelStats) -> list[str]:
    """The operands that it reads, by the names of arrays: `x` for `x.ravel()`."""
    parts = kernel.launches[-1].attributes.get("parts", ())
    return list(dict.fromkeys(str(operand).partition(".")[0] for operand, *_ in parts))


def _is_wide(call: CallEvent | None, name: str) -> bool:
    held = call.arguments.get(name) if call is not None else None
    return held is not None and held.dtype == "f32" and not held.strides


def _bytes(call: CallEvent | None, name: str) -> int:
    return 4 * math.prod(call.arguments[name].shape) if call is not None else 0


def copied_arguments(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Arguments that are not contiguous, and are copied at each call."""
    for called in _called(recording, stats):
        first = {_run(x): x for x in reversed(called.launches) if x.attributes.get("copying")}
        names = tuple(n for n, held in called.call.arguments.items() if held.strides) if called.call is not None else ()
        if not first or not names or called.kernels[0].device.partition(":")[0] != HOST:
            continue
        each = [int(x.attributes["copying"]) for x in first.values()]
        took = min(sum(each), round(len(each) * statistics.median(each)))  # in equal runs the same
        size = sum(int(x.attributes["copied"]) for x in first.values())
        again = roof(0, size, "f32", called.machine) or 0.0
        kernel = called.kernels[0]
        # Afterwards the kernel fetches what the copy left in the caches; what the copy drove out of them stays.
        yield Hint(
            kind="copied arguments",
            kernel=kernel.kernel,
            title=kernel.title,
            measured=f"{format_time(took)} copying {format_bytes(size)} of {', '.join(names)} in {len(first):,} calls",
            ideal="0 ns",
            cause=f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not contiguous: a view, such as x.T",
            change=f"give {function_of(kernel.launches[0])} contiguous arrays, copied once, or transpose inside of it",
            saving=(max(0.0, took / 2 - again), float(took + max(0.0, called.usual - _least(called)))),
            local_time=called.usual + took,
            region_time=recording.represented,
            source="measured",
            file=kernel.file,
            line=kernel.line,
            trial=HintTrial(recording, sorted(first.values(), key=_run), "contiguous arrays", parameters=names),
        )


def _least(called: _Called) -> float:
    return sum(roof(x.flops or 0, x.bytes or 0, "f32", called.machine) or 0.0 for x in called.launches)


def packed_weights(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """Products of few rows by an array that is the same in all calls, which is packed at each of them."""
    for called in _called(recording, stats):
        if called.program.kind == "kernel" or called.kernels[0].device.partition(":")[0] != HOST:
            continue
        calls = [c for c in recording.calls if c.program() is called.program]
        weights = [n for n in _right_operands(called.program) if _is_kept(calls, n)]
        for kernel in called.kernels:
            names = tuple(n for n in weights if n in _operands(kernel))
            if len(names) != 1 or not _multiplies(kernel, called.program) or not called.own(kernel):
                continue
            held, launch = calls[-1].arguments[names[0]], kernel.launches[-1]
            size, width = math.prod(held.shape), (launch.flops or 0) / 2
            if width > MOST_ROWS * size or width < PACKED or (width <= UNPACKED_ROWS * size and kernel.dtype == "f32"):
                continue
            left = sum(roof(x.flops or 0, x.bytes or 0, kernel.dtype, called.machine) or 0.0 for x in kernel.launches)
            yield Hint(
                kind="packed weights",
                kernel=kernel.kernel,
                title=kernel.title,
                measured=f"{names[0]}, the same array in {len(calls):,} calls, packed at each of them",
                ideal="packed once",
                cause=f"about {round(width / size):,} rows are multiplied by it, which take little beside packing it",
                change=f"give ts.frozen({names[0]}), made once: products then keep what they pack",
                saving=(0.0, max(0.0, kernel.usual - left)),
                local_time=called.usual,
                region_time=recording.represented,
                source="modelled",
                file=kernel.file,
                line=kernel.line,
                trial=HintTrial(recording, kernel.launches, "frozen arrays", parameters=names),
            )


def _right_operands(program: Any) -> list[str]:
    """The parameters that stand on the right of `@`, as they are or transposed."""
    tree = program.definition().tree
    right = [n.right for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult)]
    plain = [n.value if isinstance(n, ast.Attribute) and n.attr == "T" else n for n in right]
    own = {a.arg for a in ast.walk(tree.args) if isinstance(a, ast.arg)}
    return list(dict.fromkeys(n.id for n in plain if isinstance(n, ast.Name) and n.id in own))


def _is_kept(calls: Sequence[CallEvent], name: str) -> bool:
    """Whether three calls or more got one array that is still there, and may be stored to."""
    values = [c.arguments[name].value() if name in c.arguments else None for c in calls]
    return (
        len(values) > 2
        and values[0] is not None
        and all(v is values[0] for v in values)
        and not isinstance(values[0], Frozen)
    )


def transposed_reads(recording: Recording, stats: list[KernelStats]) -> Iterator[Hint]:
    """A parameter that its function reads transposed alone, in a kernel that is far from its roof. Products are left
    out, which pack their operands."""
    for called in _called(recording, stats):
        if called.program.kind == "kernel" or called.call is None:
            continue
        for kernel in called.kernels:
            left = sum(roof(x.flops or 0, x.bytes or 0, kernel.dtype, called.machine) or 0.0 for x in kernel.launches)
            near = kernel.ideal.value is None or left > NEAR_ROOF * kernel.usual
            names = tuple(n for n in _operands(kernel) if _turned(called, n))
            if near or not names or not called.own(kernel) or _multiplies(kernel, called.program):
                continue
            if not layouts.turned_can(called.program, names):
                continue
            size = sum(math.prod(called.call.arguments[n].shape) * 4 for n in names)
            yield Hint(
                kind="transposed reads",
                kernel=kernel.kernel,
                title=kernel.title,
                measured=f"{format_bytes(size)} of {', '.join(names)} read across the rows in which they lie",
                ideal="rows read from end to end",
                cause="neighbours in a column lie a row apart: each comes in a cache line of its own",
                change=f"keep {', '.join(names)} transposed between calls, and take {', '.join(names)} without .T",
                saving=(0.0, max(0.0, kernel.usual - left)),
                local_time=called.usual,
                region_time=recording.represented,
                source="modelled",
                file=kernel.file,
                line=kernel.line,
                trial=HintTrial(recording, kernel.launches, "turned arrays", parameters=names),
            )


def _turned(called: _Called, name: str) -> bool:
    held = called.call.arguments.get(name) if called.call is not None else None
    if held is None or held.strides or len(held.shape) != 2 or 4 * math.prod(held.shape) < LEAST_TURNED:
        return False
    tree = called.program.definition().tree
    return any(isinstance(n, ast.Attribute) and n.attr == "T" and getattr(n.value, "id", "") == name
               for n in ast.walk(tree))  # fmt: skip
