"""What can be folded: functions, classes and blocks, docstrings, imports, long brackets, runs of comments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import groupby

from lsprotocol import types as lsp

from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer

_BRACKETS = (ast.Call, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Subscript)


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_FOLDING_RANGE)
    async def folding(params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
        document = await server.document(params.text_document)
        found: dict[int, lsp.FoldingRange] = {}
        for first, last, kind in (*_comments(document), *_of_tree(document.scope.tree)):
            if document.holds(first) and document.holds(last) and last > first:
                start, end = document.text.at(first, 1).line, document.text.at(last, 1).line
                found.setdefault(start, lsp.FoldingRange(start, end, kind=kind))  # one fold a line, the outermost
        return [found[line] for line in sorted(found)]


def _comments(document: Document) -> Iterator[tuple[int, int, lsp.FoldingRangeKind | None]]:
    lines = enumerate(document.text.plain.split("\n"), 1)
    for comment, run in groupby(lines, lambda line: line[1].lstrip().startswith("#")):
        numbers = [n for n, _ in run]
        if comment:
            yield numbers[0], numbers[-1], lsp.FoldingRangeKind.Comment


def _of_tree(tree: ast.Module) -> Iterator[tuple[int, int, lsp.FoldingRangeKind | None]]:
    for imports, run in groupby(tree.body, lambda s: isinstance(s, (ast.Import, ast.ImportFrom))):
        statements = list(run)
        if imports:
            yield statements[0].lineno, statements[-1].end_lineno or 0, lsp.FoldingRangeKind.Imports
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            for name in ("body", "orelse", "finalbody"):
                block: list[ast.stmt] = getattr(node, name, [])
                if block:
                    yield _head(node, name, block), block[-1].end_lineno or 0, None
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield node.lineno, node.end_lineno or 0, None
        elif isinstance(node, _BRACKETS):
            yield node.lineno, (node.end_lineno or 0) - 1, None  # the closing bracket stays in view


def _head(node: ast.stmt, name: str, block: list[ast.stmt]) -> int:
    """The line that stays in view: that of the `def`, `for` or `else`."""
    return node.lineno if name == "body" else max(node.lineno, block[0].lineno - 1)
