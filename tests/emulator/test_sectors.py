"""Sectors of global accesses: what is computed from layouts and offsets is what emulated threads touch."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate, global_accesses, lower
from tessera.compiler.targets import base
from tessera.compiler.targets.base import GlobalAccess
from tessera.compiler.targets.cuda import host_library, nvrtc
from tessera.compiler.tile.program import Program
from tessera.errors import source_line
from tessera.profiler import Profiler
from tests import kernel_runner
from tests.emulator import kernels

TARGET = "emulator:sm_80"


@ts.kernel(num_warps=1)
def patterns(
    x: ts.Tensor["n", ts.f32],
    pairs: ts.Tensor["n", 2, ts.f32],
    wide: ts.Tensor["n", 40, ts.f32],
    shifted: ts.Tensor["n + 1", ts.f32],
    halves: ts.Tensor["n", ts.f16],
    picked: ts.Tensor["n", ts.int32],
    y: ts.Tensor["n", ts.f32],
    vectors: ts.Tensor["4 * n", ts.f32],
    z: ts.Tensor["4 * n", ts.f32],
    columns: ts.Tensor["n", 40, ts.f32],
):
    a = x[tile_n : tile_n + 32]  # 4
    b = pairs[tile_n : tile_n + 32, 0]  # 8
    c = wide[tile_n : tile_n + 32, 3]  # 32
    d = shifted[tile_n + 1 : tile_n + 33]  # 5
    e = halves[tile_n : tile_n + 32]  # 2
    f = wide[picked[tile_n : tile_n + 32], 0]
    y[tile_n : tile_n + 32] = a + b + c + d + f + e
    z[4 * tile_n : 4 * tile_n + 128] = vectors[4 * tile_n : 4 * tile_n + 128]  # 16
    columns[tile_n : tile_n + 32, 1] = a


@ts.kernel(num_warps=4)
def ragged(
    x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["N", "M", ts.f32], z: ts.Tensor["M", "N", ts.f64],
    w: ts.Tensor["M", "N", ts.f64],
):  # fmt: skip
    block = x[tile_m : tile_m + 16, tile_n : tile_n + 64]
    y[tile_n : tile_n + 64, tile_m : tile_m + 16] = ts.tile.transpose(block)
    total = ts.tile.zeros((16, 64), dtype=ts.f64)
    for k in ts.tile.range_k(0, M, 16):
        total = total + z[k : k + 16, tile_n : tile_n + 64]
    w[tile_m : tile_m + 16, tile_n : tile_n + 64] = total


@ts.kernel(num_warps=4)
def product(a: ts.Tensor["M", "K", ts.f16], b: ts.Tensor["K", "N", ts.f16], c: ts.Tensor["M", "N", ts.f32]):
    acc = ts.tile.zeros((32, 64), dtype=ts.f32)
    for k in ts.tile.range_k(0, K, 32):
        acc += a[tile_m : tile_m + 32, k : k + 32] @ b[k : k + 32, tile_n : tile_n + 64]
    c[tile_m : tile_m + 32, tile_n : tile_n + 64] = acc


def lowered(kernel: Any, arrays: list[Any]) -> Program:
    return lower(kernel_runner.check(kernel, *arrays).unit(), base.get(TARGET)).program


def told(program: Program) -> list[GlobalAccess]:
    return global_accesses(program, base.get(TARGET), {})


def aligned(array: Any) -> Any:
    """The array at a multiple of 64 bytes."""
    room = np.zeros(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    out = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


LOG = """
struct Logged { u64 address, block; i32 thread, bytes, write, visit, part, array; };
static Logged logged[1 << 20];
static int n_logged, visits[1024], parts[1024];
TS_HOST int thread();
inline void visit() { ++visits[thread()]; }
inline void part(int n) { parts[thread()] = n; }
inline void log_access(const void* p, u64 n, bool write) {
  if (n_logged == 1 << 20) return;
  logged[n_logged++] = {(u64)p, (u64)m.block, m.current, (i32)n, write, visits[m.current], parts[m.current], 0};
}
"""


class Logged(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("block", ctypes.c_uint64)] + [
        (name, ctypes.c_int32) for name in ("thread", "bytes", "write", "visit", "part", "array")
    ]


def watched(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def emulated(program: Program, arrays: list[Any], folder: Path) -> dict[tuple[int, bool], tuple[int, int]]:
    """(number of the array, stored) -> (requests, sectors), counted from the addresses of threads that were emulated.

    The device library is compiled with counters: which access of a thread it is, and which instruction of this access.
    """
    target: Any = base.get(TARGET)
    executable: Any = target.load(generate(program, target))
    include = folder / "include"
    shutil.copytree(nvrtc.INCLUDE, include)
    host, memory, shared = (include / "tessera" / name for name in ("host.h", "memory.cuh", "shared.cuh"))
    host.write_text(
        watched(
            host.read_text(),
            {
                "TS_HOST void check_global(": LOG + "TS_HOST void check_global(",
                "  u64 a = (u64)p;\n  for (int i = 0; i < m.n_regions; ++i) {\n    const Region& r = m.regions[i];\n"
                "    if (a < r.begin || a >= r.begin + r.size) continue;\n    if (a + n": "  log_access(p, n, write);\n"
                "  u64 a = (u64)p;\n  for (int i = 0; i < m.n_regions; ++i) {\n    const Region& r = m.regions[i];\n"
                "    if (a < r.begin || a >= r.begin + r.size) continue;\n    if (a + n",
            },
        )
    )
    memory.write_text(
        watched(
            memory.read_text(),
            {
                "  constexpr int last = R ? R - 1 : 0;\n": "  constexpr int last = R ? R - 1 : 0;\n  hw::visit();\n",
                "if (whole && together) vector(": "hw::part(16 * k);\n      if (whole && together) vector(",
                "        TS_UNROLL for (int u = 0; u < V; ++u)\n          single(k + u, base + p": (
                    "        TS_UNROLL for (int u = 0; u < V; ++u)\n          "
                    "hw::part(16 * k + 1 + u), single(k + u, base + p"
                ),
                "      single(k, base + p, inside": "      hw::part(16 * k);\n      single(k, base + p, inside",
            },
        )
    )
    shared.write_text(
        watched(
            shared.read_text(),
            {
                "  constexpr int total = S::rows * S::cols / V;\n": (
                    "  constexpr int total = S::rows * S::cols / V;\n  hw::visit();\n"
                ),
                "    int p = i * V, rest = p;\n": (
                    "    int p = i * V, rest = p;\n    int number = i / hw::threads() * 16;\n    hw::part(number);\n"
                ),
                "      TS_UNROLL for (int u = 0; u < V; ++u)\n        hw::store_shared(to + u, inside": (
                    "      TS_UNROLL for (int u = 0; u < V; ++u)\n        hw::part(number + 1 + u), "
                    "hw::store_shared(to + u, inside"
                ),
            },
        )
    )
    text = executable.text
    for name in (text.key, "made"):
        (folder / name).mkdir()
    (folder / text.key / "code.cu").write_text(text.source)
    (folder / "made" / "host.cpp").write_text(
        "#include <tessera/host.h>\n"
        + "\n".join(line for line in text.source.splitlines() if line.startswith("#include"))
        + "\n"
        + text.host_text()
        + 'extern "C" int emulate(tessera::hw::Launch* l) { return tessera::hw::emulate(l); }\n'
        'extern "C" int logged_count() { return tessera::hw::n_logged; }\n'
        'extern "C" void* logged_accesses() { return tessera::hw::logged; }\n'
    )
    command = [*host_library.compiler(), *text.flags, f"-I{include}", "-shared", str(folder / "made" / "host.cpp")]
    subprocess.run([*command, "-o", str(folder / "made.so")], check=True)
    library = ctypes.CDLL(str(folder / "made.so"))
    library.logged_accesses.restype = ctypes.c_void_p
    executable.__dict__["library"] = library
    held = [aligned(a) for a in arrays]
    executable.run([a.ctypes.data for a in held], [], [])
    assert library.logged_count() < 1 << 20
    found = ctypes.cast(library.logged_accesses(), ctypes.POINTER(Logged))
    touched: dict[tuple[int, bool], dict[tuple[int, ...], set[int]]] = defaultdict(lambda: defaultdict(set))
    for one in found[: library.logged_count()]:
        number = next(i for i, a in enumerate(held) if a.ctypes.data <= one.address < a.ctypes.data + max(1, a.nbytes))
        request = (one.block, one.thread // 32, one.visit, one.part)
        sectors = range(one.address // 32, (one.address + one.bytes - 1) // 32 + 1)
        touched[number, bool(one.write)][request].update(sectors)
    return {key: (len(requests), sum(map(len, requests.values()))) for key, requests in touched.items()}


def summed(found: list[GlobalAccess], names: list[str]) -> dict[tuple[int, bool], tuple[int, int]]:
    out: dict[tuple[int, bool], tuple[int, int]] = {}
    for a in found:
        if a.requests is not None and a.sectors is not None:
            key = names.index(a.array), a.kind == "store"
            requests, sectors = out.get(key, (0, 0))
            out[key] = requests + a.requests, sectors + a.sectors
    return out


def test_planted_patterns() -> None:
    n = 64
    f = np.zeros(n, np.float32)
    arrays = [f, np.zeros((n, 2), np.float32), np.zeros((n, 40), np.float32), np.zeros(n + 1, np.float32)]
    arrays += [np.zeros(n, np.float16), np.zeros(n, np.int32), f, np.zeros(4 * n, np.float32)]
    arrays += [np.zeros(4 * n, np.float32), np.zeros((n, 40), np.float32)]
    found = told(lowered(patterns, arrays))
    seen = {a.array: a for a in found if not a.why and a.kind == "load"}
    wanted = {"x": 4, "pairs": 8, "wide": 32, "shifted": 5, "halves": 2, "vectors": 16}
    assert {name: seen[name].per_request for name in wanted} == wanted
    assert {name: seen[name].least for name in wanted} == {**dict.fromkeys(wanted, 4), "halves": 2, "vectors": 16}
    assert {a.array: a.per_request for a in found if a.kind == "store"} == {"y": 4, "z": 16, "columns": 32}
    (gathered,) = [a for a in found if a.why]
    assert (gathered.array, gathered.requests, gathered.why) == ("wide", None, "its indices are data")
    for name, per in wanted.items():
        text = source_line(seen[name].file, seen[name].line) or ""
        assert name in text and text.strip().endswith(f"# {per}"), text


def test_open_sizes_are_asked_for() -> None:
    found = told(lowered(product, []))
    assert {a.why for a in found} == {"no size is given for M, N"} and not any(a.requests for a in found)
    assert "not known: no size is given for M, N" in str(found[0])
    sized = global_accesses(lowered(product, []), base.get(TARGET), {"M": 64, "N": 64, "K": 64})
    assert [a.per_request for a in sized] == [16, 16, 8]


@pytest.mark.parametrize("sizes", [(40, 100), (32, 64)])
def test_tiles_with_ragged_edges_touch_what_is_told(sizes: tuple[int, int], tmp_path: Path) -> None:
    rows, cols = sizes
    arrays = [np.zeros((rows, cols), np.float32), np.zeros((cols, rows), np.float32)]
    arrays += [np.zeros((rows, cols)), np.zeros((rows, cols))]
    program = lowered(ragged, arrays)
    found = told(program)
    assert not [a for a in found if a.why] and len(found) == 4
    assert summed(found, ["x", "y", "z", "w"]) == emulated(program, arrays, tmp_path)


def test_operands_of_products_touch_what_is_told(tmp_path: Path) -> None:
    arrays = [np.zeros((70, 72), np.float16), np.zeros((72, 100), np.float16), np.zeros((70, 100), np.float32)]
    program = lowered(product, arrays)
    found = told(program)
    assert not [a for a in found if a.why]
    assert summed(found, ["a", "b", "c"]) == emulated(program, arrays, tmp_path)


CASES = {
    "an axis in chunks": kernels.softmax(cols=3000),
    "stages of a product": kernels.matmul(transposed="A"),
    "a loop of shared tiles": kernels.attention(s=80),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_touch_what_is_told(name: str, tmp_path: Path) -> None:
    program, inputs = CASES[name].program, CASES[name].inputs
    arrays = [np.array(inputs[p.name]).astype(p.dtype.numpy) if p.name in inputs else np.zeros(p.shape, p.dtype.numpy)
              for p in program.params]  # fmt: skip
    found = told(program)
    assert not [a for a in found if a.why or a.masked]
    assert summed(found, [p.name for p in program.params]) == emulated(program, arrays, tmp_path)


def test_patterns_touch_what_is_told(tmp_path: Path) -> None:
    n = 96
    f = np.zeros(n, np.float32)
    arrays = [f, np.zeros((n, 2), np.float32), np.zeros((n, 40), np.float32), np.zeros(n + 1, np.float32)]
    arrays += [np.zeros(n, np.float16), np.arange(n, dtype=np.int32), f, np.zeros(4 * n, np.float32)]
    arrays += [np.zeros(4 * n, np.float32), np.zeros((n, 40), np.float32)]
    names = ["x", "pairs", "wide", "shifted", "halves", "picked", "y", "vectors", "z", "columns"]
    program = lowered(patterns, arrays)
    wanted, counted = summed(told(program), names), emulated(program, arrays, tmp_path)
    wide = names.index("wide"), False
    gathered = counted.pop(wide)
    assert gathered[1] > wanted.pop(wide)[1], "the gather reads it too"
    assert wanted == counted


@ts.kernel
def first_column(x: ts.Tensor["n", 64, ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i, 0] * 2


def test_the_page_of_a_profile_shows_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of the programs that were called, as a static figure; a profile from a file has no programs."""
    monkeypatch.setenv("TESSERA_TARGET", "emulator:sm_80")
    with ts.profiler(host=False) as prof:
        first_column(np.ones((128, 64), np.float32), np.zeros(128, np.float32))
    page = prof.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    (section,) = re.findall(r"<section><h2>Sectors of memory</h2>(.*?)</section>", page)
    row = re.search(r'<tr><th>\d+</th><td data-h="access">load</td>.*?</tr>', section)
    assert ">static<" in section and row is not None
    assert re.findall(r"<td[^>]*>([^<]*)</td>", row[0]) == ["load", "x f32", "32", "4", "4"]
    again = Profiler.load(prof.save(tmp_path / "run.tsprof")).to_html(tmp_path / "again.html")
    assert "Sectors of memory" not in again.read_text(encoding="utf-8")
