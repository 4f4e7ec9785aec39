"""MkDocs hook: tile-functions.md, every function of `ts.tile` by family, from the definitions."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File, Files

from tessera.compiler.frontend.kernel.builtins import FAMILIES, public
from tessera.compiler.frontend.kernel.builtins.elementwise import Elementwise
from tessera.compiler.tile.builtin import TileBuiltin

HEAD = """# Functions of kernels

Every function of `ts.tile`, with what it takes and gives, what it costs, and a program that runs on every target; what
stands below a `>>>` is what it prints, with four digits. `dim` and `keepdims` are accepted for `axis` and `keepdim`.
Most functions are methods of tiles too: `x.sum(axis=1)`. How tiles meet, and which axis an index means, stands in
[Kernels](kernels.md); a function of your own is [one class](adding-a-tile-builtin.md).

```py
import numpy as np
import tessera as ts
from tessera import Tensor
```"""


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "tile-functions.md", content=tile_page()))
    return files


def tile_page() -> str:
    """All functions: families in the order of FAMILIES, functions in the order of their files."""
    lines = [HEAD]
    known = list(dict.fromkeys(public().values()))
    for module in FAMILIES:
        about = (module.__doc__ or "").replace("\n", " ").strip()
        title, _, rest = about.partition(". ") if about.endswith(".") else (about, "", "")
        lines += ["", f"## {title.rstrip('.')}", *(["", rest] if rest else [])]
        members = [b for b in known if b.family == module.__name__.rpartition(".")[2]]
        if any(isinstance(b, Elementwise) for b in members):
            lines += ["", "| function | meaning | dtypes | operations | example |", "|---|---|---|---|---|"]
        lines += [line for b in members for line in (_row(b) if isinstance(b, Elementwise) else _entry(b))]
    return "\n".join(lines) + "\n"


def _also(builtin: TileBuiltin) -> str:
    return f"also {', '.join(f'`{n}`' for n in builtin.also)}" if builtin.also else ""


def _anchors(builtin: TileBuiltin) -> str:
    return "".join(f'<span id="{n}"></span>' for n in builtin.also)


def _row(builtin: Elementwise) -> list[str]:
    given, printed = builtin.sample
    also = f" ({_also(builtin)})" if builtin.also else ""
    cells = (
        f'{_anchors(builtin)}<span id="{builtin.name}"></span>`{builtin.signature}`',
        builtin.scalar.doc + also,
        builtin.dtypes,
        str(builtin.scalar.flops),
        f"`{', '.join(given)}` gives `{printed}`",
    )
    return [f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |"]


def _entry(builtin: TileBuiltin) -> list[str]:
    also = [f"*{_also(builtin)}*", ""] if builtin.also else []
    program, *calls = builtin.example.strip("\n").split("\n>>> ")
    run = "\n".join(f">>> {c}".rstrip() for c in calls)
    head = f"### {_anchors(builtin)}`{builtin.signature}` {{ #{builtin.name} }}"
    shown = ["```py", program.strip(), "```", "", "```pycon", run, "```"]
    return ["", head, "", *also, builtin.text, "", *shown]
