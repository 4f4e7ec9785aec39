"""One candidate configuration: compiled, with its own copies of arguments, run for its bits and for its time.

Everything runs through the launch that calls use. Parameters that the kernel stores to are copies, restored before each
measurement, so the caller's arrays stay as they are and every measurement sees the same data.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.ir.core import Op
from tessera.compiler.machines import HOST
from tessera.compiler.structure import in_a_row
from tessera.compiler.targets.base import Target, platform_of
from tessera.compiler.tile.program import Program
from tessera.language.dims import DimError, evaluate, prod
from tessera.language.lazy import np
from tessera.language.schedule import names_in
from tessera.runtime.arrays.adapter import Adapter, host_stopwatch
from tessera.runtime.arrays.devices import get_num_threads
from tessera.runtime.arrays.libraries import CUPY, TORCH, adapter_of
from tessera.runtime.call import straight
from tessera.runtime.call.arguments import Bound, Parameters
from tessera.runtime.call.dispatch import outside
from tessera.runtime.call.prepared import PreparedLaunch, prepare
from tessera.runtime.call.requests import compile_call
from tessera.runtime.code.reads import is_function, python_function
from tessera.runtime.code.watch import Watch

_PERIOD = 65521
"""random numbers before they repeat; a prime, so that no row or block of a usual shape equals the next one"""


_IDLE = 0.1
"""of the threads' time, from which on it is said that programs do not divide among them"""
_TOLD = {
    "registers": "registers",
    "spills": "B spilled",
    "shared": "B of shared memory",
    "scratch_bytes": "B of scratch",
    "occupancy": "",
}
"""resources of a kernel: the most of any kernel is told, of occupancy the least"""


class Candidate:
    """A configuration of a program for one call. `shared` holds random inputs, made once for all of them.

    Raises what compiling raises, and what `screen` does.
    """

    def __init__(
        self, fn: Any, bound: Bound, target: Target, watch: Watch, screen: Callable[[Program], None] | None,
        shared: dict[int, Any],
    ) -> None:  # fmt: skip
        parameters = Parameters(fn.definition(), fn.__wrapped__)
        built = compile_call(fn, parameters, bound, target, watch, debug=False, screen=screen, recorded=False)
        getters = outside(built, watch)
        self.prepared: PreparedLaunch = prepare(built, parameters, bound, getters)
        self.prepared.poisoned = False
        self.code = (built.artifact.source, repr(built.artifact.resources))
        self.resources: Mapping[str, Any] = built.artifact.resources
        self._launch = straight.ready(self.prepared)
        self._shared = shared
        names = [p.name for p in built.plan.params]
        self._given = [bound.values[n] if n in bound.values else getters[n]() for n in names]
        self._values = list(self._given)
        for i in self.prepared.written:
            self._values[i] = self._copy(i)

    def work(self) -> tuple[int | None, int | None]:
        """FLOPs and least bytes of one launch, where they are known."""
        plan, env = self.prepared.plan, self.prepared.env
        try:
            return (
                sum(evaluate(k.flops, env) for k in plan.launches),
                sum(evaluate(k.bytes, env) for k in plan.launches),
            )
        except DimError:
            return None, None

    def facts(self) -> str:
        """What tells configurations apart: programs and what they leave idle, registers, spills, occupancy, scratch."""
        plan, env = self.prepared.plan, self.prepared.env
        try:
            programs = max((math.prod(evaluate(d, env) for d in k.grid) for k in plan.launches), default=1)
        except DimError:
            return ""
        said = [f"{programs:,} program{'s' * (programs != 1)}"]
        if self.prepared.device == HOST:
            workers = get_num_threads()
            rounds = programs / workers
            idle = 1 - rounds / math.ceil(rounds)
            if idle > _IDLE:
                said[0] += f" on {workers} threads, idle for {idle:.0%} of their time"
        for name, unit in _TOLD.items():
            known = [
                r[name] for r in self.resources.values() if r and isinstance(r.get(name), (int, float)) and r[name]
            ]
            if known and name == "occupancy":
                said.append(f"occupancy {min(known):.0%}")
            elif known:
                said.append(f"{max(known):,} {unit}")
        return ", ".join(said)

    # bits

    def bits(self, random: bool) -> str:
        """A hash of everything that a launch gives, with the call's data or with random floating-point numbers."""
        values = [self._random(i) for i in range(len(self._given))] if random else self._restored()
        self.prepared.poisoned = self.prepared.device == HOST  # so that elements that are never written compare equal
        try:
            results: Any = self.prepared.run(*values)
        finally:
            self.prepared.poisoned = False
        h = hashlib.blake2b()
        for array in (*in_a_row(results), *(values[i] for i in self.prepared.written)):
            adapter = adapter_of(array)
            if adapter is not None:
                host = np.ascontiguousarray(adapter.numpy(array))
                h.update(repr((host.shape, str(host.dtype))).encode())
                h.update(host.reshape(-1).view(np.uint8).data)
        return h.hexdigest()

    def _random(self, i: int) -> Any:
        """The argument with other numbers of its dtype; what is not floating-point may be an index, and stays."""
        value, adapter = self._given[i], self.prepared.adapters[i]
        if adapter is None:
            return value
        view = adapter.view(value)
        written = i in self.prepared.written
        if not (view.dtype.is_float or view.dtype.is_complex):
            return self._copy(i) if written else value
        if not written and i in self._shared:
            return self._shared[i]
        numbers = np.random.Generator(np.random.Philox(i)).standard_normal(_PERIOD, np.float32)
        made = _like(adapter, value, np.resize(numbers.astype(view.dtype.numpy), view.shape))
        if not written:
            self._shared[i] = made
        return made

    # time

    def time(self, repeat: int) -> float:
        """Seconds per launch, over `repeat` launches in a row."""
        values, launch = self._restored(), self._launch
        library, device = self.prepared.library, self.prepared.device
        with nullcontext() if device == HOST else library.current(device):
            stop = host_stopwatch() if device == HOST else library.stopwatch()
            for _ in range(repeat):
                launch(*values)
            return max(stop(), 1) / repeat * 1e-9

    def _restored(self) -> list[Any]:
        for i in self.prepared.written:
            target, source = self._values[i], self._given[i]
            adapter: Adapter = self.prepared.adapters[i]  # type: ignore[assignment]
            if self.prepared.device == HOST:
                np.copyto(adapter.numpy(target), adapter.numpy(source))
            else:
                self._values[i] = self._copy(i)
        return self._values

    def _copy(self, i: int) -> Any:
        adapter: Adapter = self.prepared.adapters[i]  # type: ignore[assignment]
        return _like(adapter, self._given[i], np.array(adapter.numpy(self._given[i])))


def _like(adapter: Adapter, value: Any, array: Any) -> Any:
    """A NumPy array as an argument of the same library on the same device."""
    if adapter is TORCH:
        return TORCH.wrap(array).to(value.device)
    if adapter.view(value).device != HOST and adapter is not CUPY:
        return adapter.wrap(CUPY.wrap(array))
    return adapter.wrap(array)


# Which configurations differ at all: parameters that nothing reads are left out before anything is compiled.

LAUNCH = frozenset({"num_warps", "warps", "num_stages", "stages"})
"""how a GPU runs a program; other targets have no use for them"""
IMPLICIT = frozenset({"BLOCK", "ROWS"})
"""taken where a kernel's text leaves the block open"""


def read_by(fn: Any, watch: Watch, target: Target) -> frozenset[str]:
    """The parameters that can change the code of a function or kernel for a target, among those of its space."""
    if fn.kind == "function":  # which refuses what it does not know
        return frozenset(name for config in fn.options["autotune"]["configs"] for name in config)
    spoken = names_in(python_function(fn).__code__) | IMPLICIT
    for read in watch.reads:
        if is_function(read.value):
            spoken |= names_in(python_function(read.value).__code__)
    return spoken | LAUNCH if platform_of(target.device).streams else spoken


def text_of(config: Mapping[str, Any], read: frozenset[str]) -> str:
    """A configuration as the store knows it: what is read of it, in one spelling."""
    return json.dumps({k: v for k, v in config.items() if k in read}, sort_keys=True)


# What need not be compiled or cannot be run: too much for the machine, or not with random data.


class Pruned(Exception):
    """A configuration that is left out, and why."""


def screen_for(target: Target) -> Callable[[Program], None] | None:
    """What looks at a lowered program before its code is generated; raises Pruned. Shared memory, registers
    and threads of CUDA are refused by the code generator itself (TS405, TS411, TS602)."""
    caches = getattr(getattr(target, "isa", None), "cached_bytes", None)
    return None if caches is None else lambda program: _fits_caches(program, caches)


def _fits_caches(program: Program, caches: int) -> None:
    """One program's tiles are read over and over: beyond the caches every use goes to memory."""
    for kernel in dict.fromkeys(launch.kernel for launch in program.launches):
        shared, largest = _tiles(kernel)
        if shared + largest > caches:
            raise Pruned(f"its tiles take {(shared + largest) / 2**20:.1f} MiB, the caches hold {caches / 2**20:.1f}")


def _tiles(kernel: Any) -> tuple[int, int]:
    """Bytes of the shared tiles together, and of the largest other tile."""
    shared = largest = 0
    for op in kernel.walk():
        sizes = [_bytes(value.type) for value in op.results]
        if op.name == "tile.alloc_shared":
            shared += sum(sizes)
        else:
            largest = max([largest, *sizes])
    return shared, largest


def _bytes(kind: Any) -> int:
    """0 for what is not a tile, and for one whose size is only known at launch."""
    dtype, shape = getattr(kind, "dtype", None), getattr(kind, "shape", None)
    if dtype is None or shape is None or type(kind).__name__ == "ViewType":
        return 0
    count = prod(shape)
    return math.ceil(count * dtype.itemsize) if isinstance(count, int) else 0


def unlaunchable(resources: Mapping[str, Any]) -> str | None:
    """Why code that was compiled cannot be launched, from the compiler's own figures."""
    for kernel, figures in resources.items():
        if isinstance(figures, dict) and figures.get("blocks_per_sm") == 0:  # type: ignore[union-attr]
            return f"{kernel} needs more {figures.get('occupancy_limiter', 'resources')} than a multiprocessor has"  # type: ignore[union-attr]
    return None


def takes_any_data(fn: Any, bound: Bound) -> bool:
    """Whether a program may be run on random numbers: no loop goes on until its data are such and such, and no integer,
    which may be a position in memory or a number of turns, is made from them."""
    op = analyse(fn.definition(), bound.arguments).op
    return op is not None and not any(map(_depends_on_data, op.walk()))


def _depends_on_data(op: Op) -> bool:
    if op.name in ("tile.while", "graph.while"):
        return True
    taken, given = (
        [d for v in values if (d := getattr(v.type, "dtype", None))] for values in (op.operands, op.results)
    )
    return not op.regions and any(d.is_float for d in taken) and any(d.is_integer for d in given)
