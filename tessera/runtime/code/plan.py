"""The launch plan of a compiled Program: plain data, stored with the artefact in the disk cache."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import Shape
from tessera.compiler.structure import Structure, of_json, to_json
from tessera.compiler.tile.aliasing import Aliasing, aliasing
from tessera.compiler.tile.lifetimes import Temporary, place, temporaries
from tessera.compiler.tile.program import BufferArg, Launch, Program, exchanges
from tessera.compiler.unit import LaunchCheck, Param
from tessera.errors import Span, source_line
from tessera.immutable import immutable
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.runtime.code.parts import OperandText, parts_read


@immutable
class PlanSlot:
    """One pointer that the executable takes. `param`: the parameter it belongs to, None for a new result."""

    shape: Shape
    dtype: DType
    param: int | None


LONGEST = 48
"""characters of an expression in a kernel's title"""


@immutable
class LaunchInfo:
    """What is known of one kernel launch before it runs; `reads` and `writes` are (buffer, bytes).

    A buffer from 0 on is the plan's slot of that number, a negative one a temporary of the program.
    """

    kernel: str
    title: str
    """the kernel as its reader knows it: `attend:12 ts.softmax(scores)`"""
    label: str
    """the operators in it"""
    grid: Shape
    file: str
    line: int
    flops: Dim
    bytes: Dim
    dtype: str
    reads: tuple[tuple[int, Dim], ...]
    writes: tuple[tuple[int, Dim], ...]
    elsewhere: bool = False
    """whether the kernel's own lines are those of another file"""
    parts: tuple[OperandText, ...] = ()
    """what each program reads of the operands, where programs are recorded"""


@immutable
class LaunchPlan:
    """`outputs` are indices into `slots`, one for each returned value. Dims are over `free`."""

    name: str
    params: tuple[Param, ...]
    slots: tuple[PlanSlot, ...]
    outputs: tuple[int, ...]
    free: tuple[str, ...]
    checks: tuple[LaunchCheck, ...]
    structure: Structure
    launches: tuple[LaunchInfo, ...]
    temporaries: tuple[Temporary, ...] = ()
    constants: int = 0
    """bytes of what is known when compiling"""
    aliasing: Aliasing = Aliasing()
    """parameters whose arrays must not overlap with others"""
    bands: tuple[tuple[int, int, int], ...] = ()
    """launches that run in turns: the first, the last, and how many units of each at a time"""

    @staticmethod
    def of(program: Program, profile: bool = False) -> LaunchPlan:
        """The plan of a lowered program. `profile`: it records what its tiles do."""
        passed = [b for b in program.buffers if b.role in ("input", "output")]
        position = {b.id: i for i, b in enumerate(passed)}
        slots = tuple(PlanSlot(b.shape, b.dtype, b.param if b.role == "input" else None) for b in passed)
        constants = sum(len(b.data or b"") for b in program.buffers)
        titles = _titles(program)
        parts = parts_read(program, titles) if profile else [()] * len(program.launches)
        info = _LaunchInfos(program, titles, position)
        launches = tuple(map(info.of, program.launches, parts))
        outputs = tuple(position[i] for i in program.outputs)
        stored = {b for k in launches for b, _ in k.writes}
        stored |= {position[b] for exchange in exchanges(program) for b in exchange.bound}
        written = {s.param for i, s in enumerate(slots) if i in stored}
        params = tuple(replace(p, writes=p.writes or i in written) for i, p in enumerate(program.params))
        bands = tuple((b.first, b.last, b.step) for b in program.bands)
        return LaunchPlan(program.name, params, slots, outputs, program.free, program.checks, program.structure,
                    launches, temporaries(program), constants, aliasing(program), bands)  # fmt: skip

    def workspace(self, env: Mapping[str, int]) -> int:
        """Bytes of temporaries, which share memory, and constants at these sizes."""
        return place([(dims.evaluate(t.bytes, env), t.first, t.last) for t in self.temporaries])[1] + self.constants

    def held(self, env: Mapping[str, int]) -> tuple[tuple[str, int, str, int], ...]:
        """What is kept for a backward pass, largest first: file, forward line, name and bytes."""
        kept = [(*t.kept, dims.evaluate(t.bytes, env)) for t in self.temporaries if t.kept is not None]
        found = [(span.file, span.line, name, size) for name, span, size in kept]
        return tuple(sorted(found, key=lambda each: -each[3]))

    def to_json(self, path_of: Callable[[Any], str | None] = lambda _: None) -> str:
        """`path_of` names classes and functions that results are made with. Raises Nameless where it does not."""
        return json.dumps(
            {
                "name": self.name,
                "params": [[p.name, _texts(p.shape), p.dtype.name, p.writes, p.optional] for p in self.params],
                "slots": [[_texts(s.shape), s.dtype.name, s.param] for s in self.slots],
                "outputs": self.outputs,
                "free": self.free,
                "checks": [[str(c.left), str(c.right), c.why] for c in self.checks],
                "structure": to_json(self.structure, path_of),
                "temporaries": [
                    [t.buffer, str(t.bytes), t.first, t.last, t.kept and [t.kept[0], t.kept[1].file, t.kept[1].line]]
                    for t in self.temporaries
                ],
                "constants": self.constants,
                "stored": self.aliasing.stored,
                "in_place": self.aliasing.in_place,
                "bands": self.bands,
                **_launches_json(self.launches),
            }
        )  # fmt: skip

    @staticmethod
    def from_json(text: str, value_of: Callable[[str], Any] = lambda _: None) -> LaunchPlan:
        """`value_of` finds what `path_of` named."""
        data: Mapping[str, Any] = json.loads(text)
        return LaunchPlan(
            data["name"],
            tuple(Param(n, _shape(s), dtypes.BY_NAME[d], w, o) for n, s, d, w, o in data["params"]),
            tuple(PlanSlot(_shape(s) or (), dtypes.BY_NAME[d], p) for s, d, p in data["slots"]),
            tuple(data["outputs"]),
            tuple(data["free"]),
            tuple(LaunchCheck(_dim(a), _dim(b), why) for a, b, why in data["checks"]),
            of_json(data["structure"], value_of),
            tuple(_launches_of_json(data)),
            tuple(
                Temporary(
                    b, _dim(size), first, last, (kept[0], Span(kept[1], kept[2], 1, kept[2], 1)) if kept else None
                )
                for b, size, first, last, kept in data["temporaries"]
            ),
            data["constants"],
            Aliasing(tuple(data["stored"]), tuple((w, o) for w, o in data["in_place"])),
            tuple((first, last, step) for first, last, step in data["bands"]),
        )


def _launches_json(launches: Sequence[LaunchInfo]) -> dict[str, Any]:
    """Launches as `[kernel, title, row, buffers read, buffers written]`: a step of many layers has hundreds of them,
    and few rows of what else is known of one."""
    rows: dict[Any, int] = {}
    texts: list[Any] = []
    out: list[Any] = []
    for k in launches:
        sizes = tuple([size for _, size in k.reads]), tuple([size for _, size in k.writes])
        row = k.label, k.grid, k.file, k.line, k.flops, k.bytes, k.dtype, k.elsewhere, k.parts, sizes
        number = rows.setdefault(row, len(rows))
        if number == len(texts):
            texts.append(
                [k.label, _texts(k.grid), k.file, k.line, str(k.flops), str(k.bytes), k.dtype, k.elsewhere, k.parts,
                 *map(_texts, sizes)]
            )  # fmt: skip
        out.append([k.kernel, k.title, number, [i for i, _ in k.reads], [i for i, _ in k.writes]])
    return {"launches": out, "rows": texts}


def _launches_of_json(data: Mapping[str, Any]) -> Iterator[LaunchInfo]:
    rows = [
        (
            label, _shape(grid) or (), file, line, _dim(flops), _dim(size), dtype, elsewhere,
            tuple((name, tuple(a and tuple(a) for a in axes), part) for name, axes, part in parts),
            [*map(_dim, read)], [*map(_dim, written)],
        )
        for label, grid, file, line, flops, size, dtype, elsewhere, parts, read, written in data["rows"]
    ]  # fmt: skip
    for kernel, title, number, reads, writes in data["launches"]:
        label, grid, file, line, flops, size, dtype, elsewhere, parts, read, written = rows[number]
        pairs = tuple(zip(reads, read, strict=True)), tuple(zip(writes, written, strict=True))
        yield LaunchInfo(kernel, title, label, grid, file, line, flops, size, dtype, *pairs, elsewhere, parts)


def _texts(shape: Shape | None) -> list[int | str] | None:
    return None if shape is None else [d if isinstance(d, int) else str(d) for d in shape]


def _dim(text: int | str) -> Dim:
    return text if isinstance(text, int) else dims.parse(text)


def _shape(texts: list[int | str] | None) -> Shape | None:
    return None if texts is None else tuple(map(_dim, texts))


def _titles(program: Program) -> dict[str, str]:
    """The title of each kernel by its name. Where several stand for one expression, the later ones have numbers."""
    found: dict[str, str] = {}
    known: dict[tuple[Span, str, bool], str] = {}
    times: Counter[str] = Counter()
    for launch in program.launches:
        name = _name(launch.kernel, program)
        if name not in found:
            key = launch.span, launch.label, launch.elsewhere
            if name != launch.label and key not in known:
                known[key] = _title(launch, program)
            title = name if launch.label == name else known[key]
            times[title] += 1
            found[name] = title if times[title] == 1 else f"{title} ({times[title]})"
    return found


def _title(launch: Launch, program: Program) -> str:
    """Where an expression stands, by its function or, if it was called, by its file, and what is written there. What a
    kernel of Tessera's own computes is said in its words: it may stand in many lines."""
    span = launch.span
    own = program.span is not None and program.span.file == span.file
    place = f"{program.name if own else Path(span.file).name}:{span.line}"
    if launch.elsewhere:
        return f"{place}{f'-{span.end_line}' if span.end_line > span.line else ''} {launch.label}"
    line = source_line(span.file, span.line) or ""
    text = line[span.col - 1 : span.end_col - 1 if span.end_line == span.line else None].strip()
    if span.end_line > span.line or len(text) > LONGEST:
        text = text[:LONGEST].rstrip() + "…"
    return f"{place} {text}".strip()


def _name(kernel: Op, program: Program) -> str:
    return str(kernel.attrs.get("sym_name", program.name))


class _LaunchInfos:
    """What is known of launches; what those of one kernel have in common is looked up once."""

    def __init__(self, program: Program, titles: Mapping[str, str], position: Mapping[int, int]) -> None:
        self.program, self.titles, self.position = program, titles, position
        self.item = {b.id: b.dtype.itemsize for b in program.buffers}
        self._codes: dict[Op, tuple[list[Dim], str]] = {}

    def of(self, launch: Launch, parts: tuple[OperandText, ...]) -> LaunchInfo:
        attrs: Any = launch.kernel.attrs
        written = attrs.get("writes", ())
        counts, dtype = self._code(launch)
        reads: list[tuple[int, Dim]] = []
        writes: list[tuple[int, Dim]] = []
        for i, arg in enumerate(launch.args):
            if isinstance(arg, BufferArg):
                buffer = arg.buffer
                place = self.position.get(buffer, -1 - buffer)
                (writes if i in written else reads).append((place, counts[i] * self.item[buffer]))
        name = _name(launch.kernel, self.program)
        at = launch.span
        return LaunchInfo(
            name, self.titles[name], launch.label, tuple(attrs.get("grid", ())), at.file, at.line, launch.flops,
            launch.bytes, dtype, tuple(reads), tuple(writes), launch.elsewhere, parts,
        )  # fmt: skip

    def _code(self, launch: Launch) -> tuple[list[Dim], str]:
        """How many elements each argument of a kernel has, and the dtype that it computes in."""
        code = launch.code
        if code not in self._codes:
            shapes = [getattr(arg.type, "shape", ()) for arg in code.region.block.args]
            self._codes[code] = [dims.prod(shape) for shape in shapes], _dtype(launch)
        return self._codes[code]


def _dtype(launch: Launch) -> str:
    """The dtype that the arithmetic is done in: of the widest float the kernel touches, which bounds its rate."""
    found = [a.type.dtype for a in launch.code.region.block.args if hasattr(a.type, "dtype")]  # type: ignore[union-attr]
    floats = [d for d in found if d.is_float]
    return max(floats or found or [dtypes.f32], key=lambda d: d.bits).name
