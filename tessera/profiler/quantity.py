"""A figure that says where it comes from, and how figures are written for people."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.runtime.events import Source

# A figure computed from others is no better founded than the weakest of them.
_STRENGTH: tuple[Source, ...] = ("static", "modelled", "measured")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with its unit and origin. `value` is None if it cannot be determined; `reason` is why."""

    value: float | None
    unit: str
    source: Source = "measured"
    reason: str = ""

    def __bool__(self) -> bool:
        return self.value is not None

    def __str__(self) -> str:
        if self.value is None:
            return f"not available ({self.reason})"
        return f"{format_value(self.value, self.unit)} ({self.source})"


def weakest(*sources: Source) -> Source:
    """The origin of a figure that is derived from figures with these origins."""
    return _STRENGTH[min(_STRENGTH.index(source) for source in sources)]


def format_value(value: float, unit: str) -> str:
    """`value` with the prefix that fits, in three digits: 1.2e12 B/s -> "1.20 TB/s". Times are given in ns."""
    if unit == "ns":
        return format_time(value)
    if unit in ("B/s", "FLOP/s", "B", "FLOP"):
        for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= scale * 0.9995:
                return f"{_three_digits(value / scale)} {prefix}{unit}"
        return f"{value:.0f} {unit}"
    return f"{_three_digits(value)} {unit}".rstrip()


def format_time(ns: float) -> str:
    """Nanoseconds in the unit that reads best: 950 ns, 12.1 µs, 45.2 ms, 3.05 s."""
    if abs(ns) < 999.5:
        return f"{ns:.0f} ns"
    for limit, scale, unit in ((1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if abs(ns) < limit * 0.9995:
            return f"{_three_digits(ns / scale)} {unit}"
    return f"{_three_digits(ns / 1e9)} s"


def format_bytes(count: float) -> str:
    """Bytes with decimal prefixes, as memory sizes are quoted: 7.2 GB."""
    return format_value(count, "B")


def format_percent(fraction: float) -> str:
    """A fraction as a percentage with three significant digits at most: 0.673 -> "67.3%"."""
    percent = fraction * 100
    return f"{percent:.0f}%" if abs(percent) >= 99.95 else f"{percent:.1f}%"


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    decimals = 0 if magnitude >= 99.95 else 1 if magnitude >= 9.995 else 2
    return f"{value:,.{decimals}f}"
