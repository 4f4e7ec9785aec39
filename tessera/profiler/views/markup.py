"""The few pieces of HTML that panels and pages are made of. Whatever comes from a program goes through `text`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from tessera.profiler.style import resource

_MANY = 5
"""columns that a narrow panel has no room for"""
_PROSE = "font-family:var(--jp-code-font-family,monospace);white-space:pre-wrap;line-height:1.4;overflow-wrap:anywhere"
_TAG = re.compile("<[^>]*>")


def text(value: object) -> str:
    """Escaped, so that nothing in a program, a file name or an error can become markup."""
    return html.escape(str(value))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], names: Sequence[str] = ()) -> str:
    """`head` and the cells of `rows` are markup; the first cell of a row is its header.

    It never scrolls: without room for many columns each row is a few lines, in which its cells bear the `names` of the
    columns behind the first, the words of `head` unless others are given. It needs rows.css.
    """
    rows = list(rows)
    top = "".join(f"<th>{h}</th>" for h in head)
    tags = [f'<td data-h="{text(name)}">' for name in names or [html.unescape(_TAG.sub("", h)) for h in head[1:]]]
    body = "".join(
        f"<tr><th>{first}</th>{''.join(f'{tag}{cell}</td>' for tag, cell in zip(tags, rest, strict=False))}</tr>"
        for first, *rest in rows
    )
    wide = len(head) >= _MANY or any("<code>" in first for first, *_ in rows)  # lines of text need room
    kind = "ts-rows ts-many" if wide else "ts-rows"
    return f'<div class="{kind}"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def table_alone(kind: str, markup: str) -> str:
    """Tables where neither a panel nor a page brings their look: what a cell of a notebook gives."""
    return f'<div class="ts-table {kind}"><style>{resource("rows.css")}</style>{markup}</div>'


def prose(said: object) -> str:
    """Indented lines of text: those too long for their place go on below themselves, broken between words."""
    lines = (
        f'<div style="padding-left:{4 + depth}ch;text-indent:-4ch">{text(line[depth:]) or "<br>"}</div>'
        for line in str(said).splitlines()
        for depth in [len(line) - len(line.lstrip())]
    )
    return f'<div class="tessera-prose" style="{_PROSE}">{"".join(lines)}</div>'


def hinted(markup: str, hint: str) -> str:
    """Markup with a tooltip, which a keyboard can reach too."""
    return f'<abbr tabindex="0" title="{text(hint)}">{markup}</abbr>' if hint else markup


def unknown(reason: str) -> str:
    """A figure that is not to be had."""
    return hinted("-", reason or "not known")


def origin(source: str) -> str:
    """How a figure is known: measured, modelled or static."""
    return f'<small class="ts-origin">{text(source)}</small>' if source else ""
