"""The Shapes tab: the source, each line with what is known of its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.result import Analysis, ExprInfo
from tessera.profiler.views.markup import text
from tessera_jupyter.markup import python
from tessera_jupyter.subject import Subject

_MARGIN = 68
"""the column of the types: with it they are in view in a notebook of usual width, where longer lines are wrapped"""


def shapes_tab(subjects: Sequence[Subject]) -> str:
    """Plain lines with the types in a column of their own: readable wherever text is."""
    analyses = [s.analysis for s in subjects]
    width = min(_MARGIN, max((len(line) for a in analyses for _, line in source_lines(a)), default=0))
    # Here too: a notebook that is not trusted loses the panel's style.
    style = f"--ts-margin:{width}ch;white-space:pre;overflow-x:auto"
    return f'<pre class="ts-typed" style="{style}">' + "\n".join(_definition(a, width) for a in analyses) + "</pre>"


def source_lines(analysis: Analysis) -> list[tuple[int, str]]:
    """(number, text) of the definition's lines, decorators included."""
    definition = analysis.definition
    last = definition.tree.end_lineno or definition.line
    return [(n, definition.text.lines[n - 1]) for n in range(definition.line, last + 1)]


def _definition(analysis: Analysis, width: int) -> str:
    by_line: dict[int, list[ExprInfo]] = {}
    for info in analysis.expressions:
        if info.span.file == analysis.definition.file:
            by_line.setdefault(info.span.line, []).append(info)
    assumed: dict[int, list[str]] = {}
    for p in definition_signature(analysis.definition).parameters:
        if p.static and p.default is not None:
            value = analysis.definition.text.segment(analysis.definition.text.span(p.default))
            assumed.setdefault(p.span.line, []).append(f"<b>{text(p.name)}</b> {text(value)} unless given")
    return "".join(
        _row(analysis, n, line, by_line.get(n, []), assumed.get(n, []), width) for n, line in source_lines(analysis)
    )


def _row(analysis: Analysis, number: int, line: str, infos: list[ExprInfo], assumed: list[str], width: int) -> str:
    """`assumed`: the defaults under which the types hold."""
    every = dict.fromkeys(f"{analysis.definition.text.segment(i.span)}: {i.text}" for i in infos)
    shown = ", ".join([*(_label(info) for info in main_infos(infos)), *assumed])
    title = f' title="{text(chr(10).join(every))}"' if every else ""
    types = f'<span class="ts-type{"" if shown else " ts-none"}"{title}>│ {shown}\n</span></span>'
    code = f'<i class="ts-n">{number:>3} </i><span class="ts-code">{python(line)}</span>'
    below = len(line) > width and shown  # where nothing wraps lines, the types would be out of view beside it
    pad = "\n" + " " * (width + 5) if below else " " * (width - len(line) + 1)
    return f'<span class="ts-row">{code}<i class="ts-pad">{pad}</i>{types}'


def main_infos(infos: Iterable[ExprInfo]) -> list[ExprInfo]:
    """What is worth a line's margin: parameters, assigned names and results, else its widest expression."""
    infos = list(infos)
    named = [i for i in infos if i.kind != "expr"]
    if not named and infos:
        named = [max(infos, key=lambda i: (i.span.end_line, i.span.end_col - i.span.col))]
    return list({(i.kind, i.name, i.text): i for i in named}.values())


def _label(info: ExprInfo) -> str:
    mark = {"return": "&rarr; ", "expr": ""}.get(info.kind, f"<b>{text(info.name)}</b> ")
    return mark + text(info.text)
