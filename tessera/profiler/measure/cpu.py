"""The ceilings of a CPU: the figures of the processor, which predictions go by as well."""

from __future__ import annotations

import time

from tessera.profiler.machine import Ceiling, DeviceCeilings
from tessera.runtime.processor import measured_again, measured_figures

_BANDWIDTHS = {"memory": ("read memory", "copy memory", "stream memory"), "cache": ("read L2", "copy L2")}
"""ceiling -> figures, of which the highest counts"""
_PRODUCTS = ("f32", "f64", "bf16", "int8")


def identity(index: int) -> None:
    """The figures are kept with the compiler. All CPUs are one device: `index` is not used."""


def measure(device: str, index: int, again: bool) -> DeviceCeilings:
    """The ceilings of this processor: its figures by all threads, measured now if they are not known."""
    known = measured_again() if again else measured_figures()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(known.when))
    how = f"by {known.threads} threads, the best measured up to {when}" if known.measured else "a usual processor"
    source = "measured" if known.measured else "static"
    ceilings: list[Ceiling] = []
    for name, figures in _BANDWIDTHS.items():
        best = max(figures, key=lambda figure: known.rates[figure][1])
        ceilings.append(Ceiling("bandwidth", name, known.rates[best][1], source, f"{best} {how}"))
    for dtype in _PRODUCTS:
        if (rate := known.rates.get(f"product {dtype}")) is not None:
            ceilings.append(Ceiling("compute", dtype, rate[1], source, f"multiply-adds in registers {how}"))
    _, second, last = known.caches
    return DeviceCeilings(device, known.processor, known.threads, second, tuple(ceilings), last_cache_bytes=last)
