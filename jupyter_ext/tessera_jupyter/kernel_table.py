"""The Kernel tab: what each kernel takes from the machine, known without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.compiler.targets.base import platform_of
from tessera.errors import TesseraError
from tessera.profiler.views.accesses import access_tables
from tessera.profiler.views.markup import hinted, origin, table, text, unknown
from tessera.profiler.views.spills import spill_tables
from tessera.runtime.code.assembly import assembly_of, spilled_or_why
from tessera_jupyter.instructions import instruction_mix
from tessera_jupyter.machine_lines import machine_lines, machine_lines_table, machine_lines_title
from tessera_jupyter.subject import WAITING, Subject

# resource -> (heading, unit), in the order of the table. Those of the target's device are always shown.
_GPU = {
    "threads": ("threads", "per block"),
    "registers": ("registers", "per thread"),
    "spills": ("spills", "B per thread"),
    "shared": ("shared memory", "B per block"),
    "blocks_per_sm": ("resident blocks", "per multiprocessor"),
    "occupancy": ("occupancy", ""),
    "instructions": ("instruction mix", ""),
}
_CPU = {
    "vector_bits": ("vector width", "bits"),
    "isa": ("instruction set", ""),
    "registers": ("vector registers", ""),
    "spills": ("spills", "B"),
    "stack_bytes": ("stack", "B"),
    "scratch_bytes": ("scratch", "B per worker"),
    "instructions": ("instruction mix", ""),
}
_MERGED = ("occupancy_limiter", "stack")
"""shown beside another figure, or the same as one"""


def kernel_tab(subjects: Sequence[Subject], waiting: bool = False) -> str:
    """`waiting`: where the machine code has still to be read, that is said in place of the figures."""
    return "".join(_subject(s, waiting and not s.is_whole) for s in subjects)


def _subject(subject: Subject, waiting: bool) -> str:
    if subject.compiled is None:
        body = f'<p class="ts-why">{text(subject.why)}</p>'
    else:
        explained = subject.compiled.explain()
        titles = {k["kernel"]: k["title"] for k in explained.kernels}
        told = "".join(_tiles(k) for k in _different(explained.kernels))
        apart = dict.fromkeys(r["text"] for r in explained.apart)
        told += "".join(f'<p class="ts-apart">{text(why)}</p>' for why in apart)
        has = hasattr(subject.compiled.target, "accesses")
        touched = access_tables(subject.compiled.accesses(), titles) if has else ""
        body = f"<p>{_summary(subject)}</p>{_table(subject, waiting)}{_lines(subject, titles, waiting)}{told}{touched}"
    return f'<section class="ts-subject" data-name="{text(subject.path)}"><h4>{text(subject.path)}</h4>{body}</section>'


def _summary(subject: Subject) -> str:
    assert subject.compiled is not None
    explained = subject.compiled.explain()
    count = len(explained.kernels)
    return text(
        f"{subject.signature} on {subject.target.name}: {count} kernel{'s' * (count != 1)}, "
        f"workspace {_count(explained.workspace)} B"
    )


def _table(subject: Subject, waiting: bool) -> str:
    assert subject.compiled is not None
    kernels = subject.compiled.explain().kernels
    names = {k["kernel"] for k in kernels}
    wanted = ("instructions", *(() if platform_of(subject.target.device).streams else ("registers", "spills")))
    waited = {f"{name}_reason": WAITING for name in wanted}
    mix = dict.fromkeys(names, waited) if waiting else _instructions(subject, names)
    resources: list[Mapping[str, Any]] = [{**mix.get(k["kernel"], {}), **(k["resources"] or {})} for k in kernels]
    figures = _figures(subject, resources)
    columns: dict[tuple[str, ...], list[str]] = {}
    """what is told of a kernel, and the titles of those of which the same is told"""
    for k, r in zip(kernels, resources, strict=True):
        told = [k["fuses"], " × ".join(map(str, k["grid"])) or "1", _count(k["flops"]), _count(k["bytes"])]
        cells = (*map(text, told), *(_cell(name, r, subject.target.name) for name in figures))
        columns.setdefault(cells, []).append(k["title"])
    labels = ["fuses", "grid", "operations", "least traffic <small>B</small>"]
    labels += [f"{text(h)} <small>{text(unit)}</small>" if unit else text(h) for h, unit in figures.values()]
    titles = map(_alike, columns.values())
    if len(columns) == 1:
        return table((origin("static"), *titles), zip(labels, *columns, strict=True))
    return f"<p>{origin('static')}</p>" + "".join(
        f'<h5>{title}</h5><div class="ts-figures">{_in_a_row(labels, cells)}</div>'
        for title, cells in zip(titles, columns, strict=True)
    )


def _in_a_row(labels: Sequence[str], cells: Sequence[str]) -> str:
    """Figures that break into lines between them: the columns of many kernels would have no room."""
    return " ".join(
        f"<span><i>{label}</i> {cell.replace('<br>', ', ')}</span>" for label, cell in zip(labels, cells, strict=True)
    )


def _alike(titles: Sequence[str]) -> str:
    """The kernels of one column: a loop that is unrolled makes many that are the same."""
    first, *others = titles
    return text(first) + (hinted(f" <small>and {len(others)} alike</small>", "\n".join(others)) if others else "")


def _lines(subject: Subject, titles: Mapping[str, str], waiting: bool) -> str:
    """Instructions and live registers by line, where the machine code tells."""
    assert subject.compiled is not None
    if waiting:
        return f'<p class="ts-why">Instructions by line: {WAITING}.</p>'
    try:
        found = machine_lines(subject.compiled)
    except TesseraError:  # the table above says why
        return ""
    own = subject.analysis.definition.file
    return "".join(
        f"<h5>{machine_lines_title(lines)} of {text(titles[kernel])} by line {origin('static')}</h5>"
        f"{machine_lines_table(lines, own)}"
        for kernel, lines in found.items()
        if kernel in titles
    ) + spill_tables(spilled_or_why(subject.compiled.artifact), titles)


_PARTS = {"line": "line", "what": "size", "where": "lies in", "takes": "takes", "how": "how"}


def _tiles(kernel: Mapping[str, Any]) -> str:
    """Where the tiles of a kernel lie and how, and what its target says of them: only a GPU's does."""
    name, out = f"{text(kernel['title'])} {origin('static')}", ""
    if tiles := kernel["tiles"]:
        rows = [(text(t["name"]), *(text(t[part]) for part in _PARTS)) for t in tiles]
        out += f'<h5>Tiles of {name}</h5><div class="ts-tiles">{table(("tile", *_PARTS.values()), rows)}</div>'
    if notes := "".join(f"<li>{text(note)}</li>" for note in kernel["notes"]):
        out += f'<h5>Notes on {name}</h5><ul class="ts-notes">{notes}</ul>'
    return out


def _different(kernels: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first of those kernels whose tiles and notes are the same."""
    return list({repr((k["fuses"], k["tiles"], k["notes"])): k for k in reversed(kernels)}.values())[::-1]


def _instructions(subject: Subject, kernels: set[str]) -> dict[str, dict[str, Any]]:
    """The instruction mix, where the target shows its machine's instructions."""
    assert subject.compiled is not None
    try:
        assembly = subject.compiled.assembly or ""
    except TesseraError as e:
        return {name: {"instructions_reason": str(e)} for name in kernels}
    same: Mapping[str, str] = subject.compiled.artifact.meta.get("same", {})  # kernels that run the code of another
    found = instruction_mix(assembly, kernels)
    read = getattr(subject.compiled.target, "code_figures", None)
    more = read(subject.compiled.artifact, assembly_of(subject.compiled.artifact) or "") if read is not None else {}
    return {
        name: {"instructions": found[code], **more.get(code, {})}
        for name in kernels
        if (code := same.get(name, name)) in found
    }


def _figures(subject: Subject, resources: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """What the device's kernels are judged by, then whatever else the target tells."""
    known = dict(_GPU if platform_of(subject.target.device).streams else _CPU)
    for name in (n for r in resources for n in r):
        if not name.endswith("_reason") and name not in (*known, *_MERGED):
            known[name] = (name.replace("_", " "), "")
    return known


def _cell(name: str, resources: Mapping[str, Any], target: str) -> str:
    value = resources.get(name)
    if value is None:
        return unknown(str(resources.get(f"{name}_reason") or f"the {target} target does not tell"))
    if name == "occupancy":
        limiter = str(resources.get("occupancy_limiter") or "")
        return hinted(f"{value:.0%}", f"limited by {limiter}") + (f" <small>{text(limiter)}</small>" if limiter else "")
    if isinstance(value, Mapping):
        return "<br>".join(text(f"{k} {v:,}") for k, v in value.items())
    return text(", ".join(map(str, value)) if isinstance(value, (list, tuple)) else _count(value))


def _count(value: Any) -> str:
    """A number with its thousands apart; a size that depends on dims as it is."""
    return f"{int(value):,}" if isinstance(value, int) or str(value).isdecimal() else str(value)
