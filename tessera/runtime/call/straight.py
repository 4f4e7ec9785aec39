"""The repeated launch as straight code: no loop, no look-up that the signature decides.

What `PreparedLaunch.run` does step by step is written out once per signature, for instance for two NumPy arrays::

    def run(v0, v1):
        if active(): return slow(v0, v1)          # there is a listener: the slow path
        o2 = empty(shape2, dtype2)
        if fast(v0, v1, o2): return slow(v0, v1)  # the executable's own entry, where it has one; it refuses by a number
        return o2

or for two CuPy arrays on a GPU::

    def run(v0, v1):
        if active(): return slow(v0, v1)
        try: o2 = make(shape2, dtype2)
        except Exception: return slow(v0, v1)     # which says what is missing
        if quick(v0.data.ptr, v1.data.ptr, o2.data.ptr, stream()): return slow(v0, v1)
        return o2
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.compiler.machines import HOST
from tessera.compiler.structure import expression
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.runtime import events
from tessera.runtime.arrays import host_memory
from tessera.runtime.arrays.libraries import CUPY, NUMPY, TORCH, cupy, torch_dtype
from tessera.runtime.arrays.lifetimes import lifetimes
from tessera.runtime.arrays.versions import watched
from tessera.runtime.call.prepared import PreparedLaunch, stored_to
from tessera.runtime.codegen import define

MANY = 64
"""arrays of a launch from which on writing and compiling straight code takes milliseconds"""
BEFORE = 3
"""calls that launch so many arrays step by step. Calls that are like each other have code of their own by then, see
`repeated`, and the first one has compiled for long enough"""


def ready(prepared: PreparedLaunch) -> Callable[..., Any]:
    """Loads the code; what launches it: takes the plan's parameters in order, returns the results."""
    if len(prepared.slots) >= MANY:
        return LateCode(prepared)
    return generated_run(prepared) or prepared.run


class LateCode:
    """A launch of many arrays: straight code from the fourth call on."""

    __slots__ = ("left", "prepared", "run")

    def __init__(self, prepared: PreparedLaunch) -> None:
        prepared.built.code.executable()
        self.prepared, self.left = prepared, BEFORE
        self.run: Callable[..., Any] = prepared.run

    def __call__(self, *values: Any) -> Any:
        if self.left >= 0:
            self.left -= 1
            if self.left < 0:
                self.run = generated_run(self.prepared) or self.prepared.run
        return self.run(*values)


def generated_run(prepared: PreparedLaunch) -> Callable[..., Any] | None:
    """Straight code for a prepared launch; None where it has something that only the long way knows."""
    if not plain(prepared):
        return None
    if prepared.device == HOST:
        writer = LaunchWriter(prepared)
    else:
        own = {CUPY if a.held else a for a in (*prepared.adapters, prepared.library) if a is not None}
        if own not in ({CUPY}, {TORCH}):  # streams of several libraries, or memory that must be kept
            return None
        writer = _CudaWriter(prepared)
    return writer.finish()


def plain(prepared: PreparedLaunch) -> bool:
    """Whether a launch has nothing that only the long way knows: copies, addresses of objects that must be kept."""
    kept = any(a is not None and a.transient for a in prepared.adapters)
    return not (prepared.copied or prepared.poisoned or kept)


class LaunchWriter:
    """Lines of the function, and the values its names stand for.

    `values` are the texts of the plan's parameters, `arrays` those of their arrays of NumPy's where they are known, and
    `refusal` the expression for a launch that is not as expected.
    """

    def __init__(
        self, prepared: PreparedLaunch, values: Sequence[str] = (), arrays: Mapping[int, str] | None = None,
        refusal: str = "",
    ) -> None:  # fmt: skip
        self.prepared = prepared
        self.values = list(values) or [f"v{i}" for i in range(len(prepared.plan.params))]
        self.arrays = arrays or {}
        self.args = ", ".join(self.values)
        self.refusal = refusal or f"slow({self.args})"
        self.names: dict[str, Any] = {
            "active": events.active,
            "slow": prepared.run,
            "pointer": NUMPY.pointer_reader(),
            "sizes": tuple(prepared.sizes),
            "finish": prepared.library.finish,
        }
        self.lines = [f"if active(): return {self.refusal}"]
        self.pointers: list[str] = []
        self.buffers: list[str] | None = []
        """the arrays as objects with the buffer protocol; None where one has it not"""

    def writable(self, param: int) -> str:
        """The condition that an argument may be stored to; nothing where it always may."""
        adapter, v = self.prepared.adapters[param], self.values[param]
        if adapter is NUMPY:
            return f"{v}.flags.writeable"
        if adapter is TORCH:
            return ""
        self.names[f"writable{param}"] = adapter.writable  # type: ignore[union-attr]
        return f"writable{param}({v})"

    def argument(self, param: int) -> None:
        """The address of an argument."""
        adapter, v = self.prepared.adapters[param], self.values[param]
        assert adapter is not None
        if adapter is NUMPY or adapter.held:  # on the host that is an array of NumPy's
            array = self.arrays.get(param) or (v if adapter is NUMPY else f"{v}.{adapter.held}")
            self.pointers.append(f"pointer({array})")
            self.buffers = None if self.buffers is None else [*self.buffers, array]
            return
        self.buffers = None
        if adapter is TORCH:
            self.pointers.append(f"{v}.data_ptr()")
        else:
            self.names[f"pointer{param}"] = adapter.pointer  # type: ignore[union-attr]
            self.pointers.append(f"pointer{param}({v})")

    def result(self, slot: int, shape: tuple[int, ...], dtype: DType) -> None:
        """A new array and its address."""
        nbytes = math.prod(shape) * dtype.itemsize
        self.names |= {f"shape{slot}": shape, f"dtype{slot}": dtype.numpy}
        if self.prepared.library is TORCH:
            if nbytes < host_memory.RECYCLED:
                self.names |= {"make": sys.modules["torch"].empty, f"dtype{slot}": torch_dtype(dtype)}
                self.lines.append(f"o{slot} = make(shape{slot}, dtype=dtype{slot})")
            else:
                self.names |= {"make_large": TORCH.empty, f"dtype{slot}": dtype}
                self.lines.append(f"o{slot} = make_large(shape{slot}, dtype{slot}, 'cpu')[0]")
            self.pointers.append(f"o{slot}.data_ptr()")
            self.buffers = None
            return
        if nbytes < host_memory.RECYCLED:
            self.names["empty"] = np.empty
            self.lines.append(f"o{slot} = empty(shape{slot}, dtype{slot})")
        else:
            self.names["allocate"] = host_memory.empty
            self.lines.append(f"o{slot} = allocate(shape{slot}, dtype{slot}, {nbytes})")
        self.pointers.append(f"pointer(o{slot})")
        self.buffers = None if self.buffers is None else [*self.buffers, f"o{slot}"]

    def overlaps(self) -> None:
        """Gives the long way what overlaps; it says what is wrong."""
        overlaps = self.prepared.overlaps
        for i, _, _ in overlaps.extents:  # an address is read once
            if not self.pointers[i].isidentifier():
                self.lines.append(f"p{i} = {self.pointers[i]}")
                self.pointers[i] = f"p{i}"
        if overlaps.extents and not overlaps.listed:
            self.names["crowded"] = overlaps.crowded
            self.lines.append(f"if crowded(({', '.join(self.pointers)},)): return {self.refusal}")
        for pair in overlaps.listed:
            w, o = self.pointers[pair.written.slot], self.pointers[pair.other.slot]
            same = f" and {w} != {o}" if pair.in_place else ""
            meet = f"{w} - {pair.other.bytes} < {o} < {w} + {pair.written.bytes}{same}"
            self.lines.append(f"if {meet}: return {self.refusal}")

    def slots(self) -> None:
        """The arguments that are stored to, then the addresses of arguments and results."""
        if written := [f"stored_to({self.values[i]})" for i in self.prepared.written]:
            self.names |= {"watched": watched, "stored_to": stored_to}
            self.lines.append(f"if watched: {'; '.join(written)}")
        for i, (param, shape, dtype) in enumerate(self.prepared.slots):
            if param is None:
                self.result(i, shape, dtype)
            else:
                self.argument(param)

    def quick(self, way: str) -> bool:
        """The line that runs the code by the executable's own entry, `fast` or `exact`; False where it has none."""
        entry = getattr(self.prepared.built.code.executable(), "fast", None)
        if entry is None or self.buffers is None:
            return False
        overlaps = self.prepared.overlaps
        pairs = tuple((a.written.slot, a.other.slot, a.in_place) for a in overlaps.listed)
        extents = () if overlaps.listed else tuple((e.slot, e.stored) for e in overlaps.extents)
        entries = entry(pairs, extents, [(dtype.numpy, shape) for _, shape, dtype in self.prepared.slots])
        found = None if entries is None else getattr(entries, way)
        if found is not None:
            self.names["fast"] = found
            given = [*self.buffers, *(self.values[i] for i in self.prepared.scalars)]
            self.lines.append(f"if fast({', '.join(given)}): return {self.refusal}")
        return found is not None

    def launch(self) -> bool:
        """The line that runs the code; False where only the long way can."""
        if self.quick("fast"):
            return True
        scalars = [self.values[i] for i in self.prepared.scalars]
        if writable := [text for param in self.prepared.written if (text := self.writable(param))]:
            self.lines.append(f"if not ({' and '.join(writable)}): return {self.refusal}")
        self.overlaps()
        self.names["execute"] = self.prepared.built.code.executable().run
        pointers = "".join(f"{p}, " for p in self.pointers)
        self.lines.append(f"execute(({pointers}), ({''.join(f'{s}, ' for s in scalars)}), sizes)")
        return True

    def returned(self) -> str:
        plain, tensors = self.prepared.library in (NUMPY, CUPY, TORCH), self.prepared.library.wrapper
        out: list[str] = []
        for i in self.prepared.plan.outputs:
            param = self.prepared.plan.slots[i].param
            if param is None and tensors is not None:
                self.names |= {"new": object.__new__, "Tensor": tensors}
                self.lines += [f"t{i} = new(Tensor)", f"t{i}.{self.prepared.library.held} = o{i}"]
            made = f"o{i}" if plain else f"t{i}" if tensors is not None else f"finish(o{i})"
            out.append(made if param is None else self.values[param])
        return expression(self.prepared.plan.structure, out, self.names)

    def finish(self) -> Callable[..., Any] | None:
        self.slots()
        if not self.launch():
            return None
        returned = self.returned()
        body = [*self.lines, f"return {returned}"]
        source = f"def run({self.args}):\n" + "\n".join(f"    {line}" for line in body)
        return define(source, self.names)["run"]


class _CudaWriter(LaunchWriter):
    """The same for arrays of one library on a GPU; the launches themselves are straight code of the target's."""

    def __init__(self, prepared: PreparedLaunch) -> None:
        super().__init__(prepared)
        self.names |= {"device": prepared.device, "waiting": lifetimes.waiting, "release": lifetimes.release}
        self.lines.append("if waiting: release()")

    def argument(self, param: int) -> None:
        adapter = self.prepared.adapters[param]
        assert adapter is not None
        address = ".data_ptr()" if adapter is TORCH else f".{adapter.held}.data.ptr" if adapter.held else ".data.ptr"
        self.pointers.append(f"v{param}{address}")

    def result(self, slot: int, shape: tuple[int, ...], dtype: DType) -> None:
        self.names[f"shape{slot}"] = shape
        if self.prepared.library is TORCH:
            self.names |= {"make": sys.modules["torch"].empty, f"dtype{slot}": torch_dtype(dtype)}
            made, pointer = f"make(shape{slot}, dtype=dtype{slot}, device=device)", f"o{slot}.data_ptr()"
        else:  # on the current device; `quick` refuses where that is another one
            self.names |= {"make": cupy().empty, f"dtype{slot}": dtype.numpy}
            made, pointer = f"make(shape{slot}, dtype{slot})", f"o{slot}.data.ptr"
        self.lines += [f"try: o{slot} = {made}", f"except Exception: return slow({self.args})"]
        self.pointers.append(pointer)

    def launch(self) -> bool:
        prepared = self.prepared
        executable = prepared.built.code.executable()
        with prepared.library.current(prepared.device):
            quick = executable.entry(prepared.sizes)
        if quick is None:
            return False
        self.overlaps()
        self.names |= {"quick": quick, "stream": prepared.library.stream_reader(prepared.device)}
        given = [*self.pointers, *(f"v{i}" for i in prepared.scalars), "stream()"]
        self.lines.append(f"if quick({', '.join(given)}): return slow({self.args})")
        return True
