"""`ts.saved(f, *types)`: the values saved for the backward pass, with their lines, readers, and costs of
recomputing."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import shape_text
from tessera.compiler.levels import NoIR, schedule
from tessera.compiler.lower.memory_limit import shown
from tessera.compiler.machines import predicted_machine
from tessera.compiler.schedule.cost import time_by_peaks
from tessera.compiler.schedule.saved_values import KeptValue, kept
from tessera.compiler.timing.launches import peaks_for
from tessera.errors import CompileError, Diagnostic
from tessera.fitted import fitted
from tessera.immutable import immutable
from tessera.language.annotations import TensorAnn
from tessera.language.decorators import Decorated, Function
from tessera.language.dims import Dim
from tessera.language.dtypes import f32
from tessera.language.transforms import Transform, transformed
from tessera.runtime.call.dispatch import Launcher
from tessera.runtime.compiled import argument_types


@immutable
class SavedValue:
    """One value that a backward pass reads. `operator` computes it in `file`:`line`, "" for an argument, which is there
    in any case. `used_by`: operators of the backward pass, each with the forward line that it belongs to. `again_us`:
    predicted microseconds to compute it again from arguments and what else is kept; None where sizes are not known."""

    name: str
    operator: str
    file: str
    line: int
    shape: tuple[Dim, ...]
    dtype: str
    bytes: Dim
    used_by: tuple[tuple[str, int], ...]
    again_flops: Dim
    again_us: float | None

    @staticmethod
    def of(k: KeptValue, target: str) -> SavedValue:
        peaks = peaks_for(target)
        time = time_by_peaks(k.flops, k.moved, peaks) if peaks is not None and k.operator else None
        us = time.least * 1e6 if time is not None else None
        used_by = tuple((operator, span.line) for operator, span in k.readers)
        return SavedValue(
            k.name, k.operator, k.at.file, k.at.line, k.type.shape, str(k.type.dtype), k.bytes, used_by, k.flops, us
        )


class Saved(Sequence[SavedValue]):
    """What `ts.saved` gives: the values in the order in which they are computed, arguments first. Prints as a table."""

    def __init__(self, name: str, values: Sequence[SavedValue]) -> None:
        self.name, self.values = name, tuple(values)

    def __getitem__(self, i: Any) -> Any:
        return self.values[i]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def bytes(self) -> Dim:
        """Bytes of all that is kept, arguments left out; symbolic where sizes are."""
        total: Dim = 0
        for v in self.values:
            total = total + (v.bytes if v.operator else 0)
        return total

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield "line", "value", "type", "bytes", "used by", "to compute it again"
        for v in self.values:
            lines: dict[int, list[str]] = {}
            for operator, line in v.used_by:
                lines.setdefault(line, []).append(operator)
            used = "; ".join(f"line {line}: {', '.join(dict.fromkeys(names))}" for line, names in lines.items())
            again = f"{v.again_us:.3g} µs" if v.again_us is not None else f"{v.again_flops} FLOP"
            what = v.name or v.operator
            yield (
                str(v.line) if v.operator else "", what, f"{shape_text(v.shape)} {v.dtype}", _bytes(v.bytes), used,
                again if v.operator else "an argument",
            )  # fmt: skip

    def __repr__(self) -> str:
        rows = list(self._rows())
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([f"{self.name} keeps {_bytes(self.bytes)} for its backward pass", *lines])

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        cells = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in rows)
        titles = "".join(f"<th>{html.escape(c)}</th>" for c in head)
        message = f"{self.name} keeps {_bytes(self.bytes)} for its backward pass"
        return f"<div><b>{html.escape(message)}</b><table><tr>{titles}</tr>{cells}</table></div>"


@fitted
def saved(f: Any, *types: Any, target: str = "auto") -> Saved:
    """What `f` keeps in memory for its backward pass: of each value the forward line, name, shape and bytes, which
    lines need it, and the cost of computing it again. Nothing runs.

    `types` stand for the arguments: arrays, or types such as `Tensor[8, 16]` (of f32); without any the annotations do,
    and sizes stay symbolic. If a function takes no gradient, the one by its first argument is used, as `ts.grad`
    does. Raises CompileError with the faults of the program.
    """
    fn = f if isinstance(f, Decorated) else Function(f)
    machine = predicted_machine(knobs.target() if target == "auto" else target)
    op = _scheduled(fn, types, machine)
    if not any(o.origin.order for o in op.walk()):
        fn = transformed(f, Transform("value_and_grad"))
        op = _scheduled(fn, types, machine)
    return Saved(fn.name, [SavedValue.of(k, machine) for k in kept(op)])


def _scheduled(fn: Decorated, types: tuple[Any, ...], target: str) -> Op:
    launcher = Launcher(fn)
    types = tuple(replace(t, dtype=f32) if isinstance(t, TensorAnn) and t.dtype is None else t for t in types)
    analysis = analyse(launcher.parameters.definition, argument_types(launcher, types) if types else None, {})
    try:
        return schedule(analysis, {}, target)
    except NoIR as e:
        errors = [d for d in analysis.diagnostics if d.severity == "error"]
        raise CompileError(errors or Diagnostic("TS211", str(e), analysis.definition.span)) from None


def _bytes(size: Dim) -> str:
    return shown(size) if isinstance(size, int) else f"{size} B"
