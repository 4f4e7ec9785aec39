"""`tessera benchmark`: compares the speed of a file's functions with a saved result or a revision, for CI."""

from __future__ import annotations

import contextlib
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tessera import knobs
from tessera.cli.programs import read, sizes
from tessera.cli.run import execute
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.sizes import declared_sizes, usual_sizes
from tessera.compiler.machines import HOST
from tessera.errors import TesseraError
from tessera.language.decorators import Decorated
from tessera.profiler.quantity import format_percent, format_time
from tessera.profiler.trial.intervals import median_interval
from tessera.profiler.trial.lines import LineChange, LineComparison, Repeated, Repetitions, by_turns, compare_lines
from tessera.runtime.call.examples import example_arguments

FORMAT, VERSION = "tessera-benchmark", 1
PREFIX = "benchmark_"
"""the prefix of plain functions to measure"""
Calls = dict[str, Callable[[], Any]]


def benchmark(
    what: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A file, or one function in it.")],
    compare: Annotated[str | None, typer.Option(metavar="REF", help="A saved result, or a git revision.")] = None,
    dims: Annotated[str | None, typer.Option(help="Sizes of the functions' dims: B=8,S=128.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds of measuring per function.")] = 4.0,
    save: Annotated[Path | None, typer.Option(help="Write the result here, for a later --compare.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Measure the functions of a file on the CPU. With --compare, exit with 1 if one has become slower.

    Measures the functions benchmark_... without parameters. If there are none, measures every function and kernel whose
    arguments can be made from its annotations. A revision is checked out to a temporary worktree, and both versions
    run in alternation. Slower means certainly over 3 % slower. The file is imported, which runs its top-level code.
    """
    text, colon, name = what.rpartition(":")
    named = bool(colon) and name.isidentifier()
    file, name = Path(text if named else what).resolve(), name if named else ""
    if not file.is_file():
        raise typer.BadParameter(f"there is no file {file}")
    kept = Path(compare) if compare is not None and Path(compare).is_file() else None
    revision = compare if kept is None else None
    root = _root(file) if revision is not None else file.parent
    given = sizes(dims)
    printed = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with contextlib.ExitStack() as stack:
        stack.enter_context(printed)
        stack.enter_context(knobs.target.override(HOST))
        old = Calls()
        tree = root
        if revision is not None:
            tree = stack.enter_context(_worktree(root, revision))
            with _imports_from(root, tree):
                old, _ = _programs(tree / file.relative_to(root), name, given)
        new, left = _programs(file, name, given)
        if not new:
            why = "; ".join(f"{n}: {reason}" for n, reason in left.items())
            raise typer.BadParameter(f"nothing in {what} can be measured{why and f' ({why})'}")
        before, after = dict[str, Repetitions](), dict[str, Repetitions]()
        for one, call in new.items():
            now, then = Repeated(call), Repeated(old[one]) if one in old else None
            by_turns((then.once if then is not None else _nothing, now.once), seconds)
            after[one] = _renamed(now.found, root)
            if then is not None:
                before[one] = _renamed(then.found, tree)
    if kept is not None:
        before = _read(kept)
    found = {n: compare_lines(before[n], r, by_turn=kept is None) for n, r in after.items() if n in before}
    if save is not None:
        save.write_text(json.dumps(_document(after)), encoding="utf-8")
    if as_json:
        print(json.dumps(_figures(after, found, left), indent=1))
    else:
        _print(after, found, left, compare)
    for one in (n for n in (old or before) if n not in after):
        typer.echo(f"only in {compare}: {one}", err=True)
    if any(c.total.verdict == "slower" for c in found.values()):
        raise typer.Exit(1)


def _nothing() -> None: ...


# what is measured


def _programs(file: Path, name: str, given: dict[str, int]) -> tuple[Calls, dict[str, str]]:
    """The calls to measure, by name, and why other functions are left out. Imports the file."""
    if not file.is_file():
        raise typer.BadParameter(f"the revision has no file {file.name}")
    analyses = {a.name: a for a in read(str(file)) if a.definition.owner is None}
    space = execute(file, [], name="__benchmark__")
    own = {n: f for n, f in space.items() if n.startswith(PREFIX) and inspect.isfunction(f) and _takes_nothing(f)}
    if own and (not name or name in own):
        return {n: f for n, f in own.items() if name in ("", n)}, {}
    calls, left = Calls(), dict[str, str]()
    for found, analysis in analyses.items():
        program = space.get(found)
        if name not in ("", found) or not isinstance(program, Decorated):
            continue
        try:
            declared = declared_sizes(definition_signature(analysis.definition))
            used = usual_sizes(analysis, {n: s for n, s in given.items() if n in declared})
            made = example_arguments(program, used)
            program(**made)
        except TesseraError as e:
            left[found] = str(e).strip().partition("\n")[0]
            continue
        calls[found] = lambda program=program, made=made: program(**made)
    return calls, left


def _takes_nothing(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _renamed(found: Repetitions, root: Path) -> Repetitions:
    """Relative paths for the files below the root, so that two trees have the same names."""

    def name(file: str) -> str:
        path = Path(file).resolve()
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else file

    lines = {(name(file), line): samples for (file, line), samples in found.lines.items()}
    return Repetitions(found.total, lines, {name(file): text for file, text in found.texts.items()})


# another version


@contextmanager
def _imports_from(root: Path, tree: Path) -> Generator[None]:
    """Imports modules below `root` from `tree` instead, and unloads them afterwards; Tessera itself stays loaded."""

    def other(entry: str) -> str:
        path = Path(entry or ".").resolve()
        ours = not path.is_relative_to(root) or (path / "tessera" / "cli").is_dir()
        return entry if ours else str(tree / path.relative_to(root))

    saved, known = list(sys.path), set(sys.modules)
    sys.path[:] = map(other, sys.path)
    try:
        yield
    finally:
        sys.path[:] = saved
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).resolve().is_relative_to(tree):
                del sys.modules[name]


def _root(file: Path) -> Path:
    """The repository that a file lies in. Raises BadParameter."""
    return Path(_git(file.parent, "rev-parse", "--show-toplevel")).resolve()


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise typer.BadParameter("a revision needs git, which is not installed") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it failed"]
        raise typer.BadParameter(f"git {words[0]}: {said[-1].removeprefix('fatal: ')}")
    return done.stdout.strip()


@contextmanager
def _worktree(root: Path, revision: str) -> Generator[Path]:
    """Checks the revision out to a temporary folder."""
    try:
        commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except typer.BadParameter:
        raise typer.BadParameter(f"{revision!r} is neither a file nor a revision of {root}") from None
    with tempfile.TemporaryDirectory(prefix="tessera-benchmark-") as folder:
        tree = Path(folder).resolve() / root.name
        _git(root, "worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git(root, "worktree", "remove", "--force", str(tree))


# results


def _document(found: dict[str, Repetitions]) -> dict[str, Any]:
    programs = {
        n: {"total": r.total, "lines": {f"{f}:{line}": s for (f, line), s in r.lines.items()}, "texts": r.texts}
        for n, r in found.items()
    }
    return {"format": FORMAT, "version": VERSION, "programs": programs}


def _read(path: Path) -> dict[str, Repetitions]:
    """What `--save` wrote. Raises BadParameter for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise ValueError
        return {
            str(n): Repetitions(
                [float(s) for s in p["total"]],
                {_place(key): [float(s) for s in samples] for key, samples in p["lines"].items()},
                {str(f): str(text) for f, text in p["texts"].items()},
            )
            for n, p in document["programs"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise typer.BadParameter(f"{path} is not a result that tessera benchmark --save wrote") from None


def _place(key: str) -> tuple[str, int]:
    file, _, line = key.rpartition(":")
    return file, int(line)


def _figures(after: dict[str, Repetitions], found: dict[str, LineComparison], left: dict[str, str]) -> dict[str, Any]:
    """Times in seconds; ratios as [low, median, high]."""

    def change(c: LineChange) -> dict[str, Any]:
        ratio = None if c.ratio is None else [c.ratio.low, c.ratio.middle, c.ratio.high]
        return {
            "file": c.file, "before_line": c.before, "line": c.after, "text": c.text, "before": c.seconds[0],
            "after": c.seconds[1], "ratio": ratio, "edited": c.edited, "verdict": c.verdict,
        }  # fmt: skip

    compared = {n: {"total": change(c.total), "lines": list(map(change, c.changes))} for n, c in found.items()}
    return {**_document(after), "left_out": left, "compared": compared}


def _print(
    after: dict[str, Repetitions], found: dict[str, LineComparison], left: dict[str, str], compare: str | None
) -> None:
    for name, repetitions in after.items():
        took = median_interval(repetitions.total)
        spread = f"{format_time(took.low * 1e9)} to {format_time(took.high * 1e9)}"
        print(f"{name}: {format_time(took.middle * 1e9)} (median of {len(repetitions.total)}, 95 % interval {spread})")
        if name in found:
            print(found[name])
        elif compare is not None:
            print(f"  not in {compare}")
    for name, why in left.items():
        print(f"{name}: left out: {why}")
    for name, one in found.items():
        if one.total.verdict == "slower" and one.total.ratio is not None:
            longer = [format_percent(r - 1) for r in (one.total.ratio.middle, one.total.ratio.low)]
            print(f"{name} is slower than {compare}: it takes {longer[0]} longer, surely {longer[1]}")
