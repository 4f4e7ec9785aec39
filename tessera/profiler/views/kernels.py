"""The kernels of a profile as a table: what each took, against what the machine would have allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.compiler.predict import sizes_text
from tessera.profiler.kernel_stats import KernelStats
from tessera.profiler.quantity import Quantity, format_percent, format_time, format_value
from tessera.profiler.views.markup import hinted, origin, table, text, unknown

_MOST_COPIES = 60
"""of one expression that are listed"""


def kernel_table(rows: Sequence[tuple[KernelStats, Sequence[KernelStats]]]) -> str:
    """By time, longest first. How a figure is known stands in the head of its column where all rows agree. It needs
    views.css."""
    if not rows:
        return "<p>No kernel was launched.</p>"
    kernels = [kernel for kernel, _ in rows]
    columns = {
        "time": [Quantity(k.duration, "ns", k.source) for k in kernels],
        "intensity": [k.intensity for k in kernels],
        "bandwidth": [k.bandwidth for k in kernels],
        "rate": [k.rate for k in kernels],
    }
    common = {name: _common(figures) for name, figures in columns.items()}
    measures = [
        [_figure(figures[i], not common[name]) for name, figures in columns.items()] for i in range(len(kernels))
    ]
    cells = [
        (
            f"{_title(k, parts)}{sizes_note(k.sizes)}",
            took,
            _share(k.share),
            f"{len(k.launches):,}",
            *rates,
            unknown(k.ideal.reason) if k.roof_fraction is None else format_percent(k.roof_fraction),
            _bound(k),
        )
        for (k, parts), (took, *rates) in zip(rows, measures, strict=True)
    ]
    time, *others = columns
    names = (time, "share", "launches", *others, "of roof", "bound by")
    heads = (f"{name} {origin(common.get(name, ''))}" for name in names)
    return table(("kernel", *heads), cells, names)


def _bound(kernel: KernelStats) -> str:
    if kernel.bound == "memory" and (kernel.roof_fraction or 0) > 1:
        return hinted("cache", "faster than memory: the data stayed in cache")
    return hinted(text(kernel.bound), kernel.ideal.reason)


def _title(kernel: KernelStats, parts: Sequence[KernelStats]) -> str:
    """What an unrolled loop makes of one expression is one row, which opens."""
    if len(parts) == 1:
        return text(kernel.title)
    each = "".join(
        f"<li>({part.copy}) {format_time(part.duration)}"
        f"{'' if part.roof_fraction is None else f', {format_percent(part.roof_fraction)} of roof'}</li>"
        for part in parts[:_MOST_COPIES]
    )
    if len(parts) > _MOST_COPIES:
        each += f"<li>and {len(parts) - _MOST_COPIES} more, each shorter than these</li>"
    return f"<details><summary>{text(kernel.title)} <b>× {len(parts)}</b></summary><ul>{each}</ul></details>"


def sizes_note(sizes: Mapping[str, int | None]) -> str:
    """What stands below a kernel's title: the dims of its function."""
    return f'<small class="ts-sizes">{text(sizes_text(sizes))}</small>' if sizes else ""


def _share(share: float) -> str:
    return f'<span class="ts-meter" style="width:{max(2, min(share, 1) * 60):.0f}px"></span> {format_percent(share)}'


def _common(figures: Sequence[Quantity]) -> str:
    sources = {f.source for f in figures if f.value is not None}
    return sources.pop() if len(sources) == 1 else ""


def _figure(quantity: Quantity, labelled: bool) -> str:
    if quantity.value is None:
        return unknown(quantity.reason)
    return format_value(quantity.value, quantity.unit) + (f" {origin(quantity.source)}" if labelled else "")
