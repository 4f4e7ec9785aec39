"""`tessera check`: shapes, dtypes and numerics of files, without executing them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from tessera.compiler.frontend.files import FileAnalysis, read_text
from tessera.errors import CompileError, Diagnostic, render


def check(
    files: Annotated[list[Path], typer.Argument(help="Python or .tess files; folders are searched for them.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    shapes: Annotated[bool, typer.Option("--shapes", help="Also list the shape of every assigned name.")] = False,
) -> None:
    """Check files without running them. Exits with 1 if there are errors."""
    found: list[Diagnostic] = []
    listed: list[tuple[str, int, str, str]] = []
    names = [p for f in files for p in _expand(f)]
    for path in names:
        diagnostics, assigned = _check(path)
        found += diagnostics
        listed += assigned
    errors = sum(d.severity == "error" for d in found)
    if as_json:
        print(json.dumps({"diagnostics": [d.to_json() for d in found], "files": len(names)}, indent=1))
    else:
        color = sys.stdout.isatty()
        if shapes:
            for file, line, name, shape in listed:
                print(f"{file}:{line}: {name}: {shape}")
        for d in found:
            print(render(d, color=color), end="\n\n")
        print(_verdict(errors, len(found) - errors, len(names)))
    raise typer.Exit(1 if errors else 0)


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if p.suffix in (".py", ".tess") and ".venv" not in p.parts)
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}")
    return [path]


def _check(path: Path) -> tuple[list[Diagnostic], list[tuple[str, int, str, str]]]:
    try:
        text = read_text(path)
    except CompileError as e:
        return list(e.diagnostics), []
    analysis = FileAnalysis(str(path))
    analysis.update(text)
    assigned = [
        (str(path), e.span.line, e.name, e.text)
        for a in analysis.analyses
        for e in a.expressions
        if e.kind in ("assign", "param")
    ]
    return analysis.diagnostics, assigned


def _verdict(errors: int, others: int, files: int) -> str:
    def count(n: int, what: str) -> str:
        return f"{n} {what}" + ("s" if n != 1 else "")

    said = [count(errors, "error")] if errors else ["no errors"]
    if others:
        said.append(count(others, "warning"))
    return f"{', '.join(said)} in {count(files, 'file')}"
