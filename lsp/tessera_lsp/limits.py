"""Positions that the protocol does not allow: brought inside before its classes refuse the whole message.

Editors send -1 for "before the beginning" and numbers of 32 bits for "the end".
"""

from __future__ import annotations

from typing import Any, cast

LAST = 2**31 - 1
"""the largest number of a line or character"""


def clamp(params: Any) -> None:
    """Moves each position of a message's parameters to the nearest that is allowed."""
    pending = [params]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += cast("list[Any]", value)
        elif isinstance(value, dict):
            found = cast("dict[str, Any]", value)
            if "line" in found and "character" in found:
                for name in ("line", "character"):
                    number = found[name]
                    if isinstance(number, int) and not 0 <= number <= LAST:
                        found[name] = min(max(number, 0), LAST)
            else:
                pending += [v for v in found.values() if isinstance(v, (dict, list))]
