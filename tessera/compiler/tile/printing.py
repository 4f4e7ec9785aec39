"""The text of a printed tile, the same on every target."""

from __future__ import annotations

from typing import Any


def say(label: str, where: tuple[int, ...], values: Any) -> None:
    """Shows the tile of one program; `where` is the program's place in the grid."""
    print(f"{label or 'tile'} in program {where}:\n{values}")
