"""What was compiled and how, in a form for people: `Compiled.explain()`."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.names.values import Static
from tessera.compiler.ir.types import shape_text
from tessera.compiler.line_costs import LineCost
from tessera.compiler.predict import Prediction, quantity, time_text
from tessera.compiler.schedule.refusals import Refusal
from tessera.compiler.targets.base import GlobalAccess, SpilledValue, Target
from tessera.language.dims import Dim
from tessera.runtime.autotune.trials import show
from tessera.runtime.code.build import Built
from tessera.runtime.code.plan import LaunchPlan

if TYPE_CHECKING:
    from tessera.runtime.autotune.choose import Choice


_MOST_LINES = 8
_ORIGIN = {"miss": "compiled now", "disk": "loaded from the disk cache", "hit": "the same code was in memory"}


class Explanation:
    """What runs, where, with which kernels, and where the code came from. Print it, or let a notebook show it."""

    def __init__(
        self,
        built: Built,
        target: Target,
        configuration: Choice | None = None,
        arguments: Mapping[str, Any] | None = None,
        called: bool = False,
        apart: Sequence[Refusal] = (),
        predicted: Prediction | None = None,
        costs: Sequence[LineCost] = (),
        spilled: Callable[[], Sequence[SpilledValue] | str] = tuple,
        accesses: Callable[[], Sequence[GlobalAccess]] = tuple,
    ) -> None:
        self.called = called
        """whether it tells of the last call, and not of a compilation ahead of calls"""
        self.name, self.target = built.plan.name, target.name
        self.cache = built.origin
        self.configuration = configuration and {"config": configuration.config, "why": configuration.why}
        self.stages = [(stage, ns) for stage, ns in built.stages]
        """(stage, ns) in order"""
        self.kernels: list[dict[str, Any]] = [
            {
                "kernel": k.kernel,
                "title": k.title,
                "fuses": k.label,
                "grid": tuple(map(_plain, k.grid)),
                "flops": _plain(k.flops),
                "bytes": _plain(k.bytes),
                "file": k.file,
                "line": k.line,
                "resources": built.artifact.resources.get(k.kernel),
                "layouts": _resource(built, k.kernel, "layouts", {}),
                "tiles": _resource(built, k.kernel, "tiles", []),
                "notes": _resource(built, k.kernel, "notes", []),
            }
            for k in built.plan.launches
        ]
        self.bands = [{"first": first, "last": last, "units": step} for first, last, step in built.plan.bands]
        """launches, counted from 0, that run in turns, so many of their programs (or rows of programs) at a time"""
        self.apart = [{**r.to_json(), "text": str(r)} for r in apart]
        """operators that follow one another and are in two kernels, and why"""
        self._find_spilled, self._find_accesses = spilled, accesses
        self._same: Mapping[str, str] = built.artifact.meta.get("same", {})
        self.workspace = _workspace(built.plan)
        self.predicted = asdict(predicted) if predicted is not None else None
        """time and memory of a call, modelled"""
        self.modelled = _modelled(predicted)
        self.lines = [asdict(cost) for cost in costs]
        """what each line should cost, modelled, the costliest first"""
        self.parameters = [
            f"{p.name} {'scalar' if p.shape is None else shape_text(p.shape)} {p.dtype}" for p in built.plan.params
        ]
        self.parameters += [f"{n} = {v.value!r}" for n, v in (arguments or {}).items() if isinstance(v, Static)]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        plain = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {**plain, "spilled": self.spilled, "accesses": self.accesses}

    @cached_property
    def spilled(self) -> list[dict[str, Any]] | str:
        """Values that lie in memory because there are too few registers, or why they are not known. Found when
        they are asked for: a disassembler may have to start."""
        found = self._find_spilled()
        return found if isinstance(found, str) else [{**asdict(s), "text": str(s)} for s in found]

    @cached_property
    def accesses(self) -> list[dict[str, Any]]:
        """Sectors of global memory that the accesses of kernels touch."""
        return [{**asdict(a), "text": str(a)} for a in self._find_accesses()]

    def __str__(self) -> str:
        total = sum(ns for _, ns in self.stages) / 1e6
        lines = [f"{self.name} on {self.target}: {len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"]
        lines[0] += " in the last call" if self.called else ""
        lines.append(f"  takes     {', '.join(self.parameters) or 'nothing'}")
        if self.configuration:
            lines.append(f"  under     {show(self.configuration['config'])}: {self.configuration['why']}")
        for k in self.kernels:
            grid = " x ".join(map(str, k["grid"])) or "1"
            what = k["title"] if k["title"] == k["kernel"] else f"{k['title']} = {k['kernel']}"
            lines.append(f"  launches  {what}: {k['fuses']}; grid {grid}; {_count(k['flops'], 'FLOP')}, "
                         f"{_count(k['bytes'], 'B')}  ({k['file']}:{k['line']})")  # fmt: skip
            lines += [
                f"    tile    {t['name']}: {t['what']}, {t['where']}: {t['how']}; {t['takes']}" for t in k["tiles"]
            ]
            lines += [f"    note    {text}" for text in k["notes"]]
            lines += [f"    spilled {s['text']}" for s in self._spilled_of(k["kernel"])]
            code = self._same.get(k["kernel"], k["kernel"])
            lines += [f"    access  {a['text']}" for a in self.accesses if a["kernel"] == code]
        lines += [f"  spilled   not known: {self.spilled}"] if isinstance(self.spilled, str) else []
        lines += [
            f"  bands     launches {b['first'] + 1} to {b['last'] + 1} take turns, {b['units']} programs at a time: "
            "what one stores is in a cache when the next reads it"
            for b in self.bands
        ]
        lines += [f"  apart     {r['text']}" for r in self.apart]
        lines.append(f"  workspace {_count(self.workspace, 'B')}")
        lines += [f"  modelled  {self.modelled}"] if self.modelled else []
        lines += _cost_lines(self.lines) if len(self.lines) > 1 else []
        stages = ", ".join(f"{stage} {ns / 1e6:.2f}" for stage, ns in self.stages)
        lines.append(f"  cache     {_ORIGIN[self.cache]}, {total:.1f} ms ({stages})")
        return "\n".join(lines)

    def _spilled_of(self, kernel: str) -> list[dict[str, Any]]:
        code = self._same.get(kernel, kernel)
        return [] if isinstance(self.spilled, str) else [s for s in self.spilled if s["kernel"] == code]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}</tr>"
            for cells in (
                (
                    k["title"],
                    k["fuses"],
                    " × ".join(map(str, k["grid"])),
                    _count(k["flops"], "FLOP"),
                    _count(k["bytes"], "B"),
                    k["line"],
                )
                for k in self.kernels
            )
        )
        total = sum(ns for _, ns in self.stages) / 1e6
        c = self.configuration
        under = f", under {_text(show(c['config']))}: {_text(c['why'])}" if c else ""
        return (
            f'<div class="tessera-explanation"><b>{_text(self.name)}</b> on {_text(self.target)}, '
            f"{_text(_ORIGIN[self.cache])} in {total:.1f} ms{under}<table><tr><th>kernel</th><th>fuses</th>"
            f"<th>grid</th><th>work</th><th>traffic</th><th>line</th></tr>{rows}</table>"
            + "".join(f"<p>{_text(r['text'])}</p>" for r in self.apart)
            + "</div>"
        )


def _modelled(found: Prediction | None) -> str:
    """`12 to 14 µs, 3.1 MB with arguments and results`; "" where nothing is known."""
    memory = f"{quantity(found.bytes, 'B')} with arguments and results" if found and found.bytes is not None else ""
    return ", ".join(filter(None, [found.time if found else "", memory]))


def _resource(built: Built, kernel: str, what: str, default: Any) -> Any:
    """What the target tells of a kernel, where it does."""
    kernels = built.artifact.meta.get("kernels")
    kernel = built.artifact.meta.get("same", {}).get(kernel, kernel)
    return kernels.get(kernel, {}).get(what, default) if isinstance(kernels, dict) else default  # type: ignore[union-attr]


def _text(value: object) -> str:
    return html.escape(str(value))


def _workspace(plan: LaunchPlan) -> int | str:
    """The memory of a call beside arguments and results. With open sizes, sharing is unknown: the sum."""
    if all(isinstance(t.bytes, int) for t in plan.temporaries):
        return plan.workspace({})
    total: Dim = plan.constants
    for t in plan.temporaries:
        total = total + t.bytes
    return _plain(total)


def _plain(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


def _count(value: int | str, unit: str) -> str:
    """`1.05 MB`; a symbolic count as it is."""
    if isinstance(value, str):
        return f"{value} {unit}"
    scaled = float(value)
    for prefix in ("", "k", "M", "G", "T"):
        if scaled < 1000 or prefix == "T":
            return f"{scaled:.3g} {prefix}{unit}"
        scaled /= 1000
    raise AssertionError


def _cost_lines(costs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The costliest lines with their part of the whole, by the middle of their ranges."""
    total = sum(c["us"] + c["most_us"] for c in costs) or 1.0
    out = [
        f"  {'lines' if i == 0 else '':9s} {c['file']}:{c['line']}: "
        f"{time_text(c['us'], c['most_us'], c['at_least'])} ({(c['us'] + c['most_us']) / total:.0%})"
        for i, c in enumerate(costs[:_MOST_LINES])
    ]
    return [*out, f"            and {len(costs) - _MOST_LINES} more"] if len(costs) > _MOST_LINES else out
