"""Markdown that clients draw: what a person has written in a program is shown in it as text, and never drawn.

A docstring can hold `![](https://...)`, which an editor would fetch, or a link that runs a command. So the texts of
programs stand in fenced blocks and code spans that nothing inside them can end.
"""

from __future__ import annotations

import re

_TICKS = re.compile(r"`+")


def block(text: str, language: str = "text") -> str:
    """A fenced block that ends where it should, whatever backticks the text has."""
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}\n\n"


def inline(text: str) -> str:
    """A code span, in which backticks of the text are only themselves."""
    text = " ".join(text.split("\n"))
    ticks = "`" * (_longest(text) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{padding}{text}{padding}{ticks}"


def _longest(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)
