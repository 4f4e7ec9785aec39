"""What NVRTC takes for a small kernel, in CPU time, and where it goes: its own start, the device library's text, the
front end, the optimiser, the assembler. Needs no GPU.

python -m benchmarks nvrtc [-- --target sm_80 --rounds 9 --json]
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tessera as ts
from tessera.compiler.targets.cuda import nvrtc

EMPTY = 'extern "C" __global__ void k(int* p) { *p = 1; }\n'
PHASES = {"CUDA C++ Frontend": "front end", "NVVM Optimizer": "optimiser", "PTX Translation": "assembler"}


@ts.function
def saxpy(x: ts.Tensor[4096, 4096], y: ts.Tensor[4096, 4096]) -> ts.Tensor[4096, 4096]:
    return 2.5 * x + y


@ts.function
def softmax(x: ts.Tensor[4096, 1024]) -> ts.Tensor[4096, 1024]:
    return ts.softmax(x)


@ts.function
def layer_norm(x: ts.Tensor[4096, 1024], g: ts.Tensor[1024], b: ts.Tensor[1024]) -> ts.Tensor[4096, 1024]:
    centred = x - x.mean(axis=-1, keepdim=True)
    return centred / ts.sqrt((centred * centred).mean(axis=-1, keepdim=True) + 1e-5) * g + b


@ts.function
def product_gelu(
    a: ts.Tensor[4096, 4096, ts.bf16], b: ts.Tensor[4096, 4096, ts.bf16], bias: ts.Tensor[4096, ts.bf16]
) -> ts.Tensor[4096, 4096, ts.bf16]:
    return ts.gelu(a @ b + bias)


KERNELS = (saxpy, softmax, layer_norm, product_gelu)


def phases(path: Path) -> dict[str, float]:
    """What `--time` wrote: milliseconds of each phase, waiting for a processor included."""
    rows = list(csv.reader(path.read_text().splitlines()))[1:]
    return {PHASES[name.strip()]: float(ms) for _, name, ms, _ in rows if name.strip() in PHASES}


def compiler(source: str, target: str, said: Path) -> Callable[[], None]:
    options = [f"--gpu-architecture={target}", *nvrtc.OPTIONS, f"--time={said}"]

    def run() -> None:
        said.unlink(missing_ok=True)
        nvrtc.library_for(target).compile(source, "k.cu", options)

    return run


def measure(target: str, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of CPU: the median over rounds in which all take turns, and the phases of the fastest."""
    sources = {"(nothing)": EMPTY}
    for f in KERNELS:
        source = ts.compile(f, target=target).artifact.source
        if f is saxpy:
            heads = [line for line in source.splitlines() if line.startswith("#include")]
            sources["(its headers)"] = "\n".join([*heads, EMPTY])
        sources[f.__name__] = source
    found: dict[str, list[tuple[float, dict[str, float]]]] = {name: [] for name in sources}
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "phases.csv"
        for _ in range(rounds + 1):
            for name, source in sources.items():
                start = time.process_time()
                compiler(source, target, said)()
                found[name].append(((time.process_time() - start) * 1e3, phases(said)))
    out: dict[str, dict[str, float]] = {}
    for name, samples in found.items():
        kept = samples[1:]  # the first also loads the library
        out[name] = {"cpu_ms": round(statistics.median(ms for ms, _ in kept), 1), **min(kept, key=lambda s: s[0])[1]}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="sm_80")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table = measure(options.target, options.rounds)
    if options.json:
        print(json.dumps(table))
        return
    print(f"NVRTC {nvrtc.version(options.target)} for {options.target}, ms")
    print(f"{'kernel':<16}{'CPU':>8}" + "".join(f"{p:>12}" for p in PHASES.values()))
    for name, row in table.items():
        print(f"{name:<16}{row['cpu_ms']:>8.1f}" + "".join(f"{row.get(p, 0):>12.0f}" for p in PHASES.values()))


if __name__ == "__main__":
    main()
