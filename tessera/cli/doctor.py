"""`tessera doctor`: what this machine has, and what to install for the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

import tessera
from tessera import knobs
from tessera.compiler.figures import LEVELS
from tessera.errors import MissingDependency
from tessera.runtime.arrays import devices


@dataclass(frozen=True, slots=True)
class Checkup:
    """One line: `ok` None means optional and absent."""

    what: str
    ok: bool | None
    detail: str
    remedy: str = ""


LIBRARIES = (
    ("llvmlite", "llvmlite", "the CPU target", ""),
    ("cuda.bindings", "cuda-bindings", "the CUDA target", "nvrtc"),
    ("cupy", "cupy-cuda13x", "running on a GPU", "cuda"),
    ("plotly", "plotly", "profiles as figures", "plot"),
    ("jupyterlab", "jupyterlab", "notebooks", "jupyter"),
    ("pygls", "pygls", "the language server", "lsp"),
    ("torch", "torch", "PyTorch arrays", "torch"),
)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Measure the processor again.")] = False,
) -> None:
    """Show what works on this machine and what its processor does, and what to install for the rest."""
    found = [*_machine(), *_processor(measure), *_devices(), *map(_library, LIBRARIES), _compiler()]
    if as_json:
        print(json.dumps([asdict(f) for f in found], indent=1))
        return
    from rich.console import Console  # slow: 15 ms for the other commands
    from rich.markup import escape  # slow: 15 ms for the other commands
    from rich.table import Table  # slow: 15 ms for the other commands

    table = Table(show_header=False, box=None, padding=(0, 1))
    for f in found:
        mark = {True: "[green]ok[/]", False: "[red]!![/]", None: "[dim]--[/]"}[f.ok]
        table.add_row(mark, f.what, escape(f.detail) + (f"  [dim]{escape(f.remedy)}[/]" if f.remedy else ""))
    Console().print(table)


def _machine() -> list[Checkup]:
    return [
        Checkup("tessera", True, tessera.__version__),
        Checkup("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        Checkup("cache", True, str(knobs.cache_dir())),
        Checkup("default target", True, devices.resolve("auto")),
    ]


def _processor(again: bool) -> list[Checkup]:
    """Its figures by one thread and by all, measured now where they are not known."""
    from tessera.runtime.processor import measured_again, measured_figures  # slow: the code generator of the CPU target

    try:
        known = measured_again() if again else measured_figures()
    except MissingDependency as error:
        return [Checkup("processor", False, str(error).splitlines()[0])]
    first, second, last = (f"{size >> 10:,} KiB" for size in known.caches)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(known.when))
    said = f"the best measured up to {when}" if known.measured else "not measured: figures of a usual processor"
    if known.disturbed:
        said += f"; other work took {known.waited:.0%} of the time, so figures of all threads may be too low"
    remedy = "tessera doctor --measure: measures again" if known.measured else ""
    threads = f"{known.threads} threads" if known.threads > 1 else "1 thread"
    about = f"{known.processor}, {threads}; caches of {first} and {second} a core, {last} together; {said}"

    def rates(what: str, names: Sequence[str], unit: str) -> str:
        there = [(n, known.rates[f"{what} {n}".strip()]) for n in names if f"{what} {n}".strip() in known.rates]
        return (
            ", ".join(f"{n.removesuffix(' f32')} {one / 1e9:.3g} | {all_ / 1e9:.3g}" for n, (one, all_) in there) + unit
        )

    functions = ("exp f32", "log f32", "tanh f32", "sin f32", "gelu f32", "pow f32")
    one, together = (1e9 / rate for rate in known.rates["launch"])
    return [
        Checkup("processor", True, about, remedy),
        Checkup("  reading", True, rates("read", LEVELS, " GB/s, by one thread | by all")),
        Checkup("  copying", True, rates("copy", LEVELS, " GB/s, read and written")),
        Checkup("  products", True, rates("product", ("f32", "f64", "bf16", "int8"), " G operations/s")),
        Checkup("  functions", True, rates("", functions, " G elements/s of f32")),
        Checkup("  launches", True, f"{one:.0f} ns by one thread | {together:.0f} ns by all"),
    ]


def _devices() -> list[Checkup]:
    out = [Checkup("device", True, str(d)) for d in devices.devices()]
    if not devices.cuda_devices():
        out.append(
            Checkup("device", None, "no CUDA device", "kernels compile for every GPU all the same, and run on the CPU")
        )
    return out


def _library(entry: tuple[str, str, str, str]) -> Checkup:
    module, package, why, extra = entry
    try:
        present = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        present = False
    if not present:
        return Checkup(
            package,
            None if extra else False,
            f"not installed: {why}",
            f"pip install 'tessera[{extra}]'" if extra else "",
        )
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "installed"
    return Checkup(package, True, f"{version}: {why}")


def _compiler() -> Checkup:
    path = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if path:
        return Checkup("C++ compiler", True, f"{path}: emulating CUDA kernels")
    return Checkup("C++ compiler", None, "none: CUDA kernels cannot be emulated", "install g++, or pip install ziglang")
