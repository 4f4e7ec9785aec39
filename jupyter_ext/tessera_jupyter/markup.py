"""The few pieces of HTML that the panel is made of. Whatever comes from a program goes through `text`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from keyword import kwlist


def text(value: object) -> str:
    """Escaped, so that nothing in a program, a file name or an error can become markup."""
    return html.escape(str(value))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], names: Sequence[str] = ()) -> str:
    """`head` and the cells of `rows` are markup; the first cell of a row is its header.

    `names`: those of the columns behind the first. With them a panel without room for the columns shows each row as a
    few lines; without, the table scrolls.
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


_PYTHON = re.compile(
    r"""(?P<comment>\#.*)|(?P<string>[rbfRBF]{0,2}(?:"[^"\n]*"|'[^'\n]*'))|(?P<number>\b\d[\w.]*)"""
    rf"|(?P<decorator>^\s*@[\w.]+)|(?P<keyword>\b(?:{'|'.join(kwlist)})\b)",
    re.M,
)


_IR = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<comment>(?<=\s)\#\s.*|^//.*)"""
    r"|(?P<keyword>\b(?:func|for|in|while|do|else|with|yield|return|strides|shared)\b|\bif(?=\())"
    r"|(?P<dtype>\b(?:bool|index|u?int\d+|bf16|t?f\d+|fp\d_e\dm\d|complex\d+)\b)|(?P<op>\b[a-z_]\w*(?=\())"
    r"|(?P<number>(?<!\w)\d+(?:\.\d+)?(?:e[+-]?\d+)?\b)"
)


def python(line: str) -> str:
    """One line of source with its tokens marked, for colours."""
    return _marked(line, _PYTHON)


def ir(line: str) -> str:
    """One line of Graph, Schedule or Tile IR with its tokens marked, for colours."""
    return _marked(line, _IR)


def _marked(line: str, tokens: re.Pattern[str]) -> str:
    out, at = [], 0
    for m in tokens.finditer(line):
        out += [text(line[at : m.start()]), f'<i class="ts-{m.lastgroup}">{text(m.group())}</i>']
        at = m.end()
    return "".join([*out, text(line[at:])])
