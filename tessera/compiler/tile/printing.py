"""How a tile that a kernel prints is shown: the same text on every target."""

from __future__ import annotations

from typing import Any


def say(label: str, where: tuple[int, ...], values: Any) -> None:
    """Shows the tile of one program; `where` is the program's place in the grid."""
    print(f"{label or 'tile'} in program {where}:\n{values}")
