"""What docs/editors.md tells people to paste, and a program to open with it."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/editors.md"
PROGRAM = """import tessera as ts
from tessera import Tensor


@ts.function
def project(größe: Tensor["R", "C"], w: Tensor["D", "C"]) -> Tensor["R", "D"]:
    y = größe * 2
    return y @ w
"""
DIALECT = PROGRAM.replace("project(", "project[R, C, D](").replace('"', "")
"""the same for a `.tess` file"""
MISTAKE = "[R, C] @ [D, C]: contracted dimensions C and D differ"


def snippet(heading: str, language: str, index: int = 0) -> str:
    """One of the blocks in `language` under the heading that starts with `heading`, up to the next of its rank."""
    _, found, rest = PAGE.read_text("utf-8").partition(f"\n{heading}")
    assert found, f"docs/editors.md has no heading {heading!r}"
    section = rest.partition(f"\n{heading.split()[0]} ")[0]
    blocks = section.split(f"\n```{language}\n")[1:]
    assert index < len(blocks), f"{heading!r} has {len(blocks)} blocks in {language}"
    return blocks[index].partition("\n```")[0] + "\n"


def beside_other_tools() -> str:
    """A `pyproject.toml` for programs in `models`."""
    return snippet("## Beside other Python tools", "toml")
