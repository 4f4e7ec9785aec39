"""`tessera check`: shapes, dtypes and numerics of files, without executing them."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from tessera.compiler.frontend.checks.precision import accumulations
from tessera.compiler.frontend.checks.project_file import project_files, unread
from tessera.compiler.frontend.incremental import FileAnalysis, read_text
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.frontend.syntax.parse import source_of
from tessera.compiler.frontend.workspace import Modules
from tessera.errors import CompileError, Diagnostic, Span, render

MANY = 8
"""from this number of files on, a progress bar is shown"""
_OTHERS = frozenset({"node_modules", "__pycache__", "site-packages", "build", "dist"})


@dataclass
class _Found:
    """The result for one file. Shapes, sums and costs are lines to print: place, text, comment. A function that others
    inline has one sum."""

    findings: list[Diagnostic] = field(default_factory=list[Diagnostic])
    shapes: list[tuple[Span, str, str]] = field(default_factory=list[tuple[Span, str, str]])
    numerics: list[tuple[Span, str, str]] = field(default_factory=list[tuple[Span, str, str]])
    costs: list[tuple[Span, str, str]] = field(default_factory=list[tuple[Span, str, str]])


def check(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Python or .tess files, or folders to search. [default: this folder]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    shapes: Annotated[bool, typer.Option("--shapes", help="Also list the shape of every assigned name.")] = False,
    numerics: Annotated[bool, typer.Option("--numerics", help="Also list the precision of every sum.")] = False,
    costs: Annotated[
        bool, typer.Option("--costs", help="Also list the time and memory of every function, modelled.")
    ] = False,
    target: Annotated[str, typer.Option(help="The target of --costs: auto (this machine), cpu, sm_90a ...")] = "auto",
    dims: Annotated[str | None, typer.Option(help="Sizes of dims for --costs: B=8,S=128.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
) -> None:
    """Check files without running them. Exits with 1 if there are errors."""
    names = list({p.resolve(): p for f in files or [Path()] for p in _expand(f)}.values())
    modules = Modules()
    given = _Costs.of_options(target, dims) if costs else None
    found = [_check(p, modules, shapes, numerics, given) for p in _with_progress(names)]
    findings = [unread(p, _shown_path(p)) for p in project_files([*(files or [Path()]), *names])]
    findings += [d for f in found for d in f.findings]
    if as_json:
        out: dict[str, Any] = {"diagnostics": [d.to_json() for d in findings], "files": len(names)}
        if shapes:
            out["shapes"] = [_json(*item) for f in found for item in f.shapes]
        if numerics:
            out["numerics"] = [_json(*item) for f in found for item in f.numerics]
        if costs:
            out["costs"] = [_json(*item) for f in found for item in f.costs]
        print(json.dumps(out, indent=1))
    else:
        for f in found:
            for span, text, said in sorted(
                f.shapes + f.numerics + f.costs, key=lambda item: (item[0].line, item[0].col)
            ):
                print(f"{span.file}:{span.line}: {text}: {said}")
        for d in findings:
            print(render(d, color=sys.stdout.isatty()), end="\n\n")
        print(_verdict(findings, len(names)))
    failing = ("error", "warning") if strict else ("error",)
    raise typer.Exit(1 if any(d.severity in failing for d in findings) else 0)


def _expand(path: Path) -> list[Path]:
    """The files of a folder that mention Tessera; a file that is named is always checked."""
    if path.is_dir():
        found = (p for p in path.rglob("*") if p.suffix in (".py", ".tess") and p.is_file())
        return sorted(p for p in found if _is_own(p.relative_to(path)) and (p.suffix == ".tess" or _mentions(p)))
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}")
    return [path]


def _shown_path(path: Path) -> str:
    """The path relative to the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _is_own(path: Path) -> bool:
    return not any(part in _OTHERS or part.startswith(".") for part in path.parts[:-1])


def _mentions(path: Path) -> bool:
    try:
        return b"tessera" in path.read_bytes()
    except OSError:
        return True  # it is reported when it is read


def _with_progress(names: list[Path]) -> Iterable[Path]:
    """The files one by one, with a progress bar if there are many."""
    if len(names) < MANY or not sys.stderr.isatty():
        return names
    from rich.console import Console  # slow: 15 ms, for runs on many files
    from rich.progress import track  # slow: as the line above

    return track(names, "checking", console=Console(stderr=True), transient=True)


@dataclass(frozen=True, slots=True)
class _Costs:
    """What costs are predicted for."""

    target: str
    dims: Mapping[str, int]

    @classmethod
    def of_options(cls, target: str, dims: str | None) -> _Costs:
        from tessera.cli.programs import sizes  # slow: the compiler, for those who ask for costs
        from tessera.compiler.targets import base as targets  # slow: as above
        from tessera.runtime.arrays import devices  # slow: as above

        targets.get(devices.resolve(target))  # which raises where there is no such target
        return cls(target, sizes(dims))

    def of(self, file: FileAnalysis) -> Iterator[tuple[Span, str, str]]:
        from tessera.compiler.machines import HOST, predicted_machine  # slow: as below
        from tessera.compiler.predict import predict, predict_training  # slow: the passes, for those who ask for costs
        from tessera.runtime.processor import measured_figures  # slow: as above

        if predicted_machine(self.target) == HOST:
            measured_figures()
        for a in (a for a in file.analyses if a.definition.owner is None):
            yield a.definition.span, a.name, predict(a, self.dims, self.target, largest=math.inf).text
        source = source_of(file.file, file.text)
        for t in file.trainings:
            said = predict_training(t, self.dims, self.target, math.inf).text
            yield source.span(t.call), f"ts.train of {t.name}", said


def _check(path: Path, modules: Modules, shapes: bool, numerics: bool, costs: _Costs | None) -> _Found:
    try:
        text = read_text(path)
    except CompileError as e:
        return _Found(list(e.diagnostics))
    except OSError as e:
        return _Found([Diagnostic("TS101", f"{path} cannot be read: {e.strerror}", Span(str(path), 0, 0, 0, 0))])
    analysis = FileAnalysis(str(path), modules=modules)
    analysis.update(text)
    return _Found(
        analysis.diagnostics,
        [item for a in analysis.analyses for item in _assigned(a)] if shapes else [],
        list({item: None for a in analysis.analyses for item in accumulations(a)}) if numerics else [],
        list(costs.of(analysis)) if costs is not None else [],
    )


def _assigned(analysis: Analysis) -> Iterator[tuple[Span, str, str]]:
    for e in analysis.expressions:
        if e.kind in ("assign", "param"):
            yield e.span, e.name, e.text


def _json(span: Span, text: str, said: str) -> dict[str, object]:
    return {"file": span.file, "line": span.line, "column": span.col, "text": text, "type": said}


def _verdict(findings: list[Diagnostic], files: int) -> str:
    def count(n: int, what: str) -> str:
        return f"{n} {what}" + ("s" if n != 1 else "")

    numbers = {s: sum(d.severity == s for d in findings) for s in ("error", "warning", "note")}
    said = [count(numbers["error"], "error")] if numbers["error"] else ["no errors"]
    said += [count(n, s) for s, n in numbers.items() if n and s != "error"]
    return f"{', '.join(said)} in {count(files, 'file')}"
