"""`tessera profile`: a script under the profiler, or one function on made-up arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tessera import asarray, knobs
from tessera.cli.programs import check_sizes, named, sizes, values
from tessera.cli.run import execute
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.names.values import remade
from tessera.compiler.frontend.sizes import declared_sizes, usual_sizes
from tessera.compiler.machines import ANY_GPU, AUTO, HOST
from tessera.compiler.targets import base as targets
from tessera.errors import CompileError, DeviceError, Diagnostic
from tessera.language.decorators import Decorated
from tessera.runtime.arrays import devices
from tessera.runtime.call.examples import example_arguments

if TYPE_CHECKING:
    from tessera.profiler import Profiler


def profile(
    what: Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A .tess or .py file, or a function in it.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script, behind -- where it has options.")
    ] = None,
    dims: Annotated[str | None, typer.Option(help="Sizes of the function's dims: B=8,S=128.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter that is not a tensor: --set rate=0.5."),
    ] = None,
    target: Annotated[str, typer.Option(help="Where the function runs: auto (the GPU, if any), cpu ...")] = "auto",
    repeat: Annotated[
        int | None,
        typer.Option(min=1, help="Number of calls. [default: 3, or 1 if a call takes a second]"),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the interactive page here.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace here.")] = None,
    schedules: Annotated[
        Path | None, typer.Option(help="Write the block sizes of its kernels into this folder, as .sched files.")
    ] = None,
    tiles: Annotated[bool, typer.Option(help="Record every tile.")] = True,
    every: Annotated[
        int,
        typer.Option(min=1, help="For long runs: record one call in so many of each program; of the others, the time."),
    ] = 1,
    tries: Annotated[
        bool, typer.Option("--try", help="Try the hints: make each change in memory, compare results, measure both.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Run a script, or a function of it on random arguments, and show where the time went.

    FILE:NAME imports the file, which runs its top-level code, and calls NAME with tensors made from its annotations.
    Dims without a size get one, which is printed.
    """
    from tessera.profiler import Profiler  # slow: 60 ms for the other commands

    if tries and as_json:
        raise typer.BadParameter("--try prints what comes of each change, and --json prints figures alone")
    file, colon, name = what.rpartition(":")
    prof, about, ended = Profiler(tiles=tiles, every=every), dict[str, Any](), None
    if colon and name.isidentifier():
        call, about = _prepared(file, name, sizes(dims), target, given)
        if not as_json:
            print(_header(about))
        with Profiler(tiles=tiles):  # the first call compiles, for the profiler too
            call()
        prof.repeat(call, repeat)
    elif dims or given or target != "auto" or repeat is not None:
        raise typer.BadParameter("--dims, --set, --target and --repeat are for FILE:NAME; a script makes its own calls")
    else:
        made: dict[str, object] = {}  # what a hint changes and tries has to be there still
        ended = _run(prof, Path(what), arguments or [], made)
    if as_json:
        print(json.dumps({**about, **_figures(prof)}, indent=1))
    else:
        print(prof.summary())
        for hint in prof.hints():
            print(hint)
        if tries:
            _try(prof)
    for path, write, how in (
        (html, prof.to_html, "in a browser"),
        (trace, prof.export_chrome_trace, "at ui.perfetto.dev or chrome://tracing"),
    ):
        if path:
            typer.echo(f"wrote {write(path)}: open it {how}", err=as_json)
    if schedules:
        typer.echo(f"wrote {prof.export_schedules(schedules)}: ts.Schedule.load reads its files", err=as_json)
    if ended is not None:
        raise ended


def _run(prof: Profiler, file: Path, arguments: list[str], made: dict[str, object]) -> BaseException | None:
    """Runs a script under the profiler. Gives what ended it early: `sys.exit`, Ctrl-C, or an error behind the first
    launch. What it did until then is shown all the same. `made` gets its names."""
    try:
        with prof:
            made |= execute(file, arguments)
    except (SystemExit, KeyboardInterrupt) as e:
        return e
    except Exception as e:
        if not prof.launches():
            raise
        return e
    return None


def _try(prof: Profiler) -> None:
    """Tries the hints that an edit can try. No file is changed; editors offer the edits that made it faster."""
    found = [hint for hint in prof.hints() if hint.trial is not None and hint.trial.change != "by hand"]
    for hint in found:
        print("", hint.try_it(), sep="\n", flush=True)
    if not found:
        print("\nNothing to try: no hint of this run is a change that an edit can make.")


def _prepared(
    file: str, name: str, given: dict[str, int], target: str, settings: list[str] | None
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A call of the function, and a description of it. Raises CompileError before anything has run."""
    analysis = named(f"{file}:{name}")
    if errors := [d for d in analysis.diagnostics if d.severity == "error"]:
        raise CompileError(errors)
    set_to = values(settings, analysis, running=True)
    declared = declared_sizes(definition_signature(analysis.definition))
    check_sizes(given, analysis)
    chosen, on_gpu = _target(target)
    program = execute(Path(file), [], name="__profile__").get(name)
    if not isinstance(program, Decorated):
        raise typer.BadParameter(f"{file} defines no function or kernel {name!r} when it is run")
    used = usual_sizes(analysis, given)
    made = example_arguments(program, {**used, **set_to})
    if on_gpu:

        def moved(v: Any) -> Any:
            if isinstance(v, tuple):
                return remade(v, map(moved, v))
            return asarray(v, device=ANY_GPU) if hasattr(v, "shape") else v

        made = {k: moved(v) for k, v in made.items()}

    # Called from the line of its definition: what it allocates is the function's, not the command line's.
    source = "\n" * (analysis.definition.tree.lineno - 1) + "lambda: program(**made)"
    run: Callable[[], Any] = eval(compile(source, file, "eval"), {"program": program, "made": made})

    def call() -> None:
        with knobs.target.override(chosen):
            run()

    assumed = [n for n, default in declared.items() if default is None and n not in {**given, **set_to}]
    return call, {"function": name, "target": chosen, "sizes": used, "values": set_to, "assumed": assumed}


def _target(wanted: str) -> tuple[str, bool]:
    """The target to run on, and whether its arrays live on a GPU. Raises DeviceError where there is none."""
    found = devices.cuda_devices()
    chosen = knobs.target() if wanted == "auto" else wanted
    chosen = devices.resolve(chosen if chosen != AUTO else ANY_GPU if found else HOST)
    on_gpu = devices.home(targets.get(chosen)) == ANY_GPU
    if on_gpu and not found:
        raise DeviceError(
            Diagnostic("TS605", f"{chosen} needs a CUDA device, and there is none; --target cpu runs here.")
        )
    return chosen, on_gpu


def _header(about: dict[str, Any]) -> str:
    """`attend on cpu with B=8, S=1024 (not given, so assumed: S; --dims sets them)`"""
    text = f"{about['function']} on {about['target']}"
    if known := {**about["sizes"], **about["values"]}:
        text += " with " + ", ".join(f"{name}={value}" for name, value in known.items())
    if assumed := about["assumed"]:
        text += f" (not given, so assumed: {', '.join(assumed)}; --dims sets them)"
    return text + "\n"


def _figures(prof: Profiler) -> dict[str, Any]:
    """Times in ns; what is not known is null."""
    summary = prof.summary()
    kernels = [
        {
            "kernel": k.kernel, "title": k.title,
            "target": k.target, "device": k.device, "launches": len(k.launches), "sizes": k.sizes,
            "time": k.duration, "share": k.share, "time_is": k.source, "flops": k.flops.value, "bytes": k.bytes.value,
            "roof_fraction": k.roof_fraction, "bound": k.bound, "file": k.file, "line": k.line,
        }
        for k in summary.kernels
    ]  # fmt: skip
    hints = [
        {"kernel": h.kernel, "kind": h.kind, "measured": h.measured, "ideal": h.ideal, "cause": h.cause,
         "change": h.change, "legality": h.legality,
         "saving": h.saving, "saving_is": h.source, "file": h.file, "line": h.line}
        for h in summary.hints
    ]  # fmt: skip
    made = prof.recording.calls_made
    calls = None if made is None else [
        {"function": p.name, "sizes": p.sizes, "calls": p.count, "recorded": p.recorded, "time": p.total}
        for p in made.programs
    ]  # fmt: skip
    peak = summary.memory.peak or (None if made is not None else {})  # of a long run: of the process, if it is known
    return {
        "recorded": summary.region,
        "run": summary.run,
        "peak_bytes": peak,
        "calls": calls,
        "kernels": kernels,
        "hints": hints,
    }
