"""The kernels of a generated file, divided into texts that are compiled in parallel.

A part is the file with empty lines in the place of the others' kernels, so that its lines have the numbers of the
file's. How a file is divided depends on nothing but the file: code in a cache is the same wherever it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.compiler.parallel import shared_out
from tessera.compiler.targets.cuda.generate import Generated
from tessera.compiler.targets.cuda.nvrtc import CompiledCode
from tessera.immutable import immutable

MOST = 8
"""Each part reads the headers again, which takes a third of the time of a small kernel."""


@immutable
class SourcePart:
    """`without`: the first and the last of the lines that are left out."""

    kernels: Sequence[str]
    without: Sequence[Sequence[int]] = ()

    def text(self, source: str) -> str:
        lines = source.split("\n")
        for first, last in self.without:
            lines[first - 1 : last] = [""] * (last - first + 1)
        return "\n".join(lines)

    def describe(self) -> dict[str, Any]:
        """As JSON: `SourcePart(**described)` is the part again."""
        return {"kernels": list(self.kernels), "without": [list(lines) for lines in self.without]}


def divided(generated: Generated) -> list[SourcePart]:
    """The parts, that with the longest text first."""
    kernels = {k.name: k for _, k in generated.written}
    names = list(kernels)
    if len(names) <= 1:
        return [SourcePart(names)]
    shares = shared_out([len(kernels[name].lines) for name in names], min(MOST, len(names)))
    out: list[SourcePart] = []
    for own in ([names[i] for i in share] for share in shares):
        headers = {header for name in own for header in kernels[name].headers}
        others = [k.lines for name, k in kernels.items() if name not in own]
        without = [[line, line] for header, line in generated.headers.items() if header not in headers]
        out.append(SourcePart(own, without + [[lines[0], lines[-1]] for lines in others]))
    return out


def files_of(codes: Sequence[CompiledCode], ptx: bool = True) -> dict[str, bytes]:
    """The files of an artefact with these parts; `ptx`: with the text that later GPUs compile further."""
    files = {file_of("code.cubin", i): code.cubin for i, code in enumerate(codes)}
    return files | ({file_of("code.ptx", i): code.ptx for i, code in enumerate(codes)} if ptx else {})


def file_of(file: str, part: int) -> str:
    """The name of a part's file: "code.cubin", that of the third part "code.2.cubin"."""
    stem, dot, kind = file.rpartition(".")
    return f"{stem}.{part}{dot}{kind}" if part else file
