"""The IR at every level as lines, each with the lines of the user's text that it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.readable import readable
from tessera.compiler.pipeline import Lowered
from tessera.compiler.targets import base as targets
from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cuda import cubin
from tessera.errors import Span
from tessera.immutable import immutable
from tessera.runtime.code.assembly import assembly_of, plain_assembly

Origin = tuple[str, tuple[int, ...]]
"""a file and its lines"""


@immutable
class LevelLine:
    """One line of IR, generated code or assembly, and the lines of the user's text that it comes from."""

    text: str
    file: str = ""
    origin: tuple[int, ...] = ()


@immutable
class Level:
    """One level of the compilation. `more`: how many lines were left out; `why`: why there are none."""

    name: str
    lines: tuple[LevelLine, ...]
    more: int = 0
    why: str = ""

    @property
    def title(self) -> str:
        return self.name.capitalize()


def op_lines(ops: list[Op], generic: bool = False) -> Iterator[LevelLine]:
    """IR for people; `generic`: as MLIR's generic text."""
    for op in ops:
        printed = readable(op, generic)
        for text, span in zip(printed.text.splitlines(), printed.spans, strict=True):
            yield LevelLine(text) if span is None else LevelLine(text, span.file, _numbers(span))


def target_lines(lowered: Lowered, artifact: Artifact) -> Iterator[LevelLine]:
    """The generated code: LLVM IR, CUDA C++, or Tile IR where a target prints that."""
    table = _origins(artifact)
    texts = artifact.source.splitlines()
    if not table:
        tile = list(op_lines(lowered.ops("tile")))
        if [line.text for line in tile] == [text for text in texts if text]:
            yield from tile
            return
    origin: Origin = ("", ())
    for number, text in enumerate(texts, 1):
        ends = not text or text.startswith(("define", "}"))  # what follows belongs to no op until the table says so
        origin = table.get(number, ("", ()) if ends else origin)
        yield LevelLine(text, *origin)


def assembly_lines(lowered: Lowered, artifact: Artifact) -> Iterator[LevelLine]:
    """The machine's instructions, linked by the lines of the generated code that they come from.

    Raises MissingDependency where the disassembler is not installed.
    """
    text = assembly_of(artifact) or ""
    if "code.cubin" in artifact.files:
        table = _origins(artifact)
        for row in cubin.rows(text, ".cu"):
            live = f"{row.live:>3}" if row.live is not None else "  ?"
            yield LevelLine(f"{row.offset:04x} {live}  {row.text}", *table.get(row.line, ("", ())))
        return
    read = getattr(targets.get(artifact.target), "machine_code", None)
    places = iter(read(artifact, text) if read is not None else ())
    kernels = _kernels(lowered.ops("tile"))
    for line in (plain_assembly(artifact) or "").splitlines():
        if line.startswith("\t") and line[1:2] not in (".", "") and (one := next(places, None)) is not None:
            yield LevelLine(line.replace("\t", "  "), *((one.file, (one.user_line,)) if one.user_line else ("", ())))
        else:
            yield LevelLine(line.replace("\t", "  "), *kernels.get(line.removesuffix(":").removeprefix("_"), ("", ())))


def _origins(artifact: Artifact) -> Mapping[int, Origin]:
    """A target says in `meta["lines"]` where the lines of its source come from, at least at each change: [line, file,
    user's line]."""
    return {int(line): (file, (int(at),)) for line, file, at in artifact.meta.get("lines", ())}


def _kernels(ops: list[Op]) -> dict[str, Origin]:
    """Kernel -> everything that it comes from."""
    out: dict[str, Origin] = {}
    for kernel in ops:
        inner = [op.span for op in kernel.walk() if op is not kernel and op.span.file == kernel.span.file]
        lines = sorted({n for span in inner for n in _numbers(span)})
        out[str(kernel.attrs["sym_name"])] = kernel.span.file, tuple(lines)
    return out


def _numbers(span: Span) -> tuple[int, ...]:
    return tuple(range(span.line, span.end_line + 1)) if span.line > 0 else ()
