"""The roofline of a recording: every kernel as a point under the ceilings of the device it ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.profiler.kernels import KernelStats, kernel_stats
from tessera.profiler.machine import Machine
from tessera.profiler.quantity import format_percent, format_value
from tessera.profiler.recording import Recording
from tessera.profiler.views.display import Plot

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Roofline(Plot):
    """`points` are the kernels with known flops, bytes and time; `missing` says why the others have none."""

    def __init__(self, recording: Recording) -> None:
        kernels = kernel_stats(recording)
        self.points: list[KernelStats] = [kernel for kernel in kernels if kernel.intensity.value and kernel.rate.value]
        self.missing: dict[str, str] = {
            kernel.kernel: kernel.intensity.reason or kernel.rate.reason or "it does no arithmetic"
            for kernel in kernels
            if kernel not in self.points
        }
        self.machines: dict[str, Machine] = {kernel.device: recording.machine(kernel.device) for kernel in kernels}

    def __str__(self) -> str:
        lines = ["Roofline:"]
        for machine in self.machines.values():
            lines.append(f"  {machine.name or machine.device}")
            if machine.reason:
                lines.append(f"    no ceilings: {machine.reason}")
            for ceiling in machine.ceilings:
                value = format_value(ceiling.value, ceiling.unit)
                lines.append(f"    {ceiling.name} {ceiling.kind}: {value} ({ceiling.source}: {ceiling.how})")
        for point in self.points:
            fraction = point.roof_fraction
            roof = f", {format_percent(fraction)} of the roof" if fraction is not None else ""
            rate = format_value(point.rate.value or 0, "FLOP/s")
            intensity = format_value(point.intensity.value or 0, "ops/byte")
            lines.append(f"  {point.kernel}: {rate} at {intensity}{roof}")
        lines += [f"  {kernel}: not shown, {reason}" for kernel, reason in self.missing.items()]
        return "\n".join(lines)

    def figure(self) -> go.Figure:
        """Rate over intensity, both logarithmic, with the ceilings as lines."""
        from tessera.profiler.views.roofline import roofline_figure

        return roofline_figure(self.points, list(self.machines.values()))
