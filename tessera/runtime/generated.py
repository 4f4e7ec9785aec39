"""The repeated launch as straight code: no loop, no look-up that the signature decides.

What `Prepared.run` does step by step is written out once per signature, for instance for two NumPy arrays::

    def run(v0, v1):
        if active(): return slow(v0, v1)          # somebody listens: the long way
        o2 = empty(shape2, dtype2)
        execute((pointer(v0), pointer(v1), pointer(o2)), (), sizes)
        return o2
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.runtime import events, memory
from tessera.runtime.arrays import NUMPY, TORCH
from tessera.runtime.codegen import define
from tessera.runtime.tensor import TENSOR

if TYPE_CHECKING:
    from tessera.runtime.prepared import Prepared


def generated_run(prepared: Prepared) -> Callable[..., Any] | None:
    """Straight code for a prepared launch; None where it has something that only the long way knows."""
    if prepared.copied or prepared.device != "cpu" or prepared.poisoned:
        return None
    writer = _Writer(prepared)
    for i, (param, shape, dtype) in enumerate(prepared.slots):
        if param is None:
            writer.result(i, shape, dtype)
        else:
            writer.argument(param)
    return writer.finish()


class _Writer:
    """Lines of the function, and the values its names stand for."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.args = ", ".join(f"v{i}" for i in range(len(prepared.plan.params)))
        self.names: dict[str, Any] = {
            "active": events.active,
            "slow": prepared.run,
            "pointer": NUMPY.pointer_reader(),
            "sizes": tuple(prepared.sizes),
            "finish": prepared.library.finish,
        }
        self.lines = [f"if active(): return slow({self.args})"]
        self.pointers: list[str] = []
        for i in prepared.written:
            self.writable(i)

    def writable(self, param: int) -> None:
        adapter = self.prepared.adapters[param]
        if adapter is NUMPY:
            self.lines.append(f"if not v{param}.flags.writeable: return slow({self.args})")
        elif adapter is not TORCH:
            self.names[f"writable{param}"] = adapter.writable  # type: ignore[union-attr]
            self.lines.append(f"if not writable{param}(v{param}): return slow({self.args})")

    def argument(self, param: int) -> None:
        """The address of an argument."""
        adapter = self.prepared.adapters[param]
        if adapter is NUMPY:
            self.pointers.append(f"pointer(v{param})")
        elif adapter is TENSOR:  # on the host its memory is NumPy's
            self.pointers.append(f"pointer(v{param}._data)")
        elif adapter is TORCH:
            self.pointers.append(f"v{param}.data_ptr()")
        else:
            self.names[f"pointer{param}"] = adapter.pointer  # type: ignore[union-attr]
            self.pointers.append(f"pointer{param}(v{param})")

    def result(self, slot: int, shape: tuple[int, ...], dtype: DType) -> None:
        """A new array and its address."""
        nbytes = math.prod(shape) * dtype.itemsize
        self.names |= {f"shape{slot}": shape, f"dtype{slot}": dtype.numpy}
        if self.prepared.library is TORCH:
            self.names |= {"make": TORCH.empty, f"dtype{slot}": dtype}
            self.lines.append(f"o{slot}, p{slot} = make(shape{slot}, dtype{slot}, 'cpu')")
            self.pointers.append(f"p{slot}")
            return
        if nbytes < memory.SMALL:
            self.names["empty"] = np.empty
            self.lines.append(f"o{slot} = empty(shape{slot}, dtype{slot})")
        else:
            self.names["allocate"] = memory.empty
            self.lines.append(f"o{slot} = allocate(shape{slot}, dtype{slot}, {nbytes})")
        self.pointers.append(f"pointer(o{slot})")

    def launch(self) -> str:
        executable = self.prepared.built.code.executable()
        scalars = "".join(f"v{i}, " for i in self.prepared.scalars)
        self.names["execute"] = executable.run
        return f"execute(({''.join(f'{p}, ' for p in self.pointers)}), ({scalars}), sizes)"

    def returned(self) -> str:
        plain = self.prepared.library in (NUMPY, TORCH)
        out: list[str] = []
        for i in self.prepared.plan.outputs:
            param = self.prepared.plan.slots[i].param
            out.append(f"v{param}" if param is not None else f"o{i}" if plain else f"finish(o{i})")
        return f"({''.join(f'{r}, ' for r in out)})" if self.prepared.plan.tuple_result else (out or ["None"])[0]

    def finish(self) -> Callable[..., Any]:
        body = [*self.lines, self.launch(), f"return {self.returned()}"]
        source = f"def run({self.args}):\n" + "\n".join(f"    {line}" for line in body)
        return define(source, self.names)["run"]
