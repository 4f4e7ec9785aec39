"""The few pieces of HTML that panels and pages are made of. Whatever comes from a program goes through `text`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def text(value: object) -> str:
    """Escaped, so that nothing in a program, a file name or an error can become markup."""
    return html.escape(str(value))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], names: Sequence[str] = ()) -> str:
    """`head` and the cells of `rows` are markup; the first cell of a row is its header.

    `names`: those of the columns behind the first. With them a table without room for the columns shows each row as a
    few lines; without, it scrolls.
    """
    top = "".join(f"<th>{h}</th>" for h in head)
    tags = [f'<td data-h="{text(name)}">' for name in names] or ["<td>"] * len(head)
    body = "".join(
        f"<tr><th>{first}</th>{''.join(f'{tag}{cell}</td>' for tag, cell in zip(tags, rest, strict=False))}</tr>"
        for first, *rest in rows
    )
    kind = "ts-rows" if names else "ts-scroll"
    return f'<div class="{kind}"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def hinted(markup: str, hint: str) -> str:
    """Markup with a tooltip, which a keyboard can reach too."""
    return f'<abbr tabindex="0" title="{text(hint)}">{markup}</abbr>' if hint else markup


def unknown(reason: str) -> str:
    """A figure that is not to be had."""
    return hinted("-", reason or "not known")


def origin(source: str) -> str:
    """How a figure is known: measured, modelled or static."""
    return f'<small class="ts-origin">{text(source)}</small>' if source else ""
