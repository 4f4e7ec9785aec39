"""Lines of Python and of IR with their tokens marked, for colours."""

from __future__ import annotations

import re
from keyword import kwlist

from tessera.profiler.views.markup import text

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
