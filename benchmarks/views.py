"""How large profiles are recorded, shown and written.

python -m benchmarks.views [--json] [--tiles 1000000]

- Ten million tiles of one kernel, a hundred calls, each recorded: what the recording holds of them, what it takes.
- Calls of 0.1 ms and more with `every=50`: the time of a call over its time without a profiler (medians of nine turns).
- A page of a million tiles on 264 lanes: its size, the time to write it, and in a headless Chromium when it is first
  painted, when it can be zoomed, and how long a zoom takes (ms, the median and the longest of twenty).
- The static card of a cubin (attention and a layer norm for three architectures), in ms: until it is shown without what
  a disassembler finds, until that is in it too, and once more with all of it on disk.
- Traces of a million tiles in each form, and all events as a table: the processor time to write them, in seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.profiler import Profiler
from tessera.profiler.recording import Recording
from tessera.runtime.events import LaunchEvent, TileBatch

_ZOOM = """
() => {
  const view = document.querySelector('.ts-over-time').tesseraTiles, took = [];
  for (let i = 0; i < 20; i++) {
    const half = view.span / 2 ** (i / 2 + 1), middle = view.span * (0.3 + 0.02 * i), start = performance.now();
    view.show(middle - half, middle + half);
    view.canvas.getContext('2d').getImageData(0, 0, 1, 1);  // until it is painted
    took.push(performance.now() - start);
  }
  return took;
}
"""
_PAINTED = """() => new Promise(told => new PerformanceObserver((list, self) => {
    const found = list.getEntries().find(e => e.name === 'first-contentful-paint');
    if (found) { self.disconnect(); told(found.startTime); }
}).observe({type: 'paint', buffered: true}))"""


@ts.kernel(BLOCK=16)
def scaled(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    c = ts.tile.context()
    y[tile_n : tile_n + c.BLOCK] = x[tile_n : tile_n + c.BLOCK] * 2.0


@ts.function
def attended(x: ts.Tensor["N", "N", ts.f32], w: ts.Tensor["N", "N", ts.f32]):
    return ts.softmax(x @ w) @ w


def recorded(tiles: int) -> dict[str, float]:
    """Calls of 100,000 tiles each until there were so many."""
    x = np.ones(1_600_000, np.float32)
    y = np.empty_like(x)
    with ts.profiler():
        scaled(x, y)
    with ts.profiler() as prof:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(tiles // 100_000):
            scaled(x, y)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    kept, left = len(prof.recording.tiles), prof.recording.left_out
    gone = prof.summary().overhead.dropped
    assert kept + left + gone == tiles, (kept, left, gone)
    return {"tiles": tiles, "kept": kept, "left out, counted": left + gone, "recording grew by, MiB": round(grown)}


def sampled() -> dict[str, float]:
    """What it costs to profile a long run."""
    found: dict[str, float] = {}
    for size, times in ((640, 60), (256, 400)):
        x = np.ones((size, size), np.float32)

        def took(x: np.ndarray = x, times: int = times) -> float:
            begin = time.perf_counter()
            for _ in range(times):
                attended(x, x)
            return (time.perf_counter() - begin) / times

        ratios: list[float] = []
        with ts.profiler(every=50):
            took()
        for _ in range(9):
            before = took()
            with ts.profiler(every=50):
                ratios.append(took() / before)
        found[f"every=50, calls of {1e3 * took():.1f} ms"] = statistics.median(ratios)
    return found


def large(tiles: int, lanes: int) -> Recording:
    """A launch whose tiles take about 5 µs, one of them 60."""
    rng = np.random.default_rng(0)
    took = rng.normal(5_000, 200, tiles).astype(np.int64)
    took[tiles // 2] = 60_000
    lane, start = np.arange(tiles) % lanes, np.zeros(tiles, np.int64)
    for one in range(lanes):
        mine = lane == one
        start[mine] = np.cumsum(np.r_[0, took[mine][:-1] + 30])
    found = Recording(0, int((start + took).max()))
    attributes: dict[str, Any] = {"resources": lanes, "record_ns": 50.0, "run": 1}
    found.add(LaunchEvent(1, "attend:12 softmax(scores)", "cpu", "cpu:0", (tiles // 1000, 1000), 0, found.end, 10**9,
                          10**9, attributes=attributes))  # fmt: skip
    columns = {"tile": np.arange(tiles), "start": start, "duration": took, "resource": lane, "slot": 0, "line": 12}
    found.add(TileBatch.from_columns(("tile",), launch=1, **columns))
    return found


def written(tiles: int, folder: Path) -> dict[str, float]:
    prof = Profiler()
    prof.recording = large(tiles, 264)
    prof.recording.machine("cpu:0")  # the ceilings are measured once a machine
    forms = {
        "page": (prof.to_html, "page.html"),
        "Chrome trace": (prof.export_chrome_trace, "trace.json"),
        "Chrome trace, compressed": (prof.export_chrome_trace, "trace.json.gz"),
        "TrackEvent trace": (prof.export_perfetto, "trace.pftrace"),
        "speedscope": (prof.export_speedscope, "speedscope.json"),
        "events as JSON": (prof.export_events, "events.json"),
        "events as Parquet": (prof.export_events, "events.parquet"),
    }
    found: dict[str, float] = {}
    for what, (write, name) in forms.items():
        begin = time.process_time()
        path = write(folder / name)
        found[f"{what}, s"] = time.process_time() - begin
        found[f"{what}, MB"] = path.stat().st_size / 1e6
    return found


def in_a_browser(page: Path) -> dict[str, float]:
    from playwright.sync_api import sync_playwright  # optional: the tests bring it

    path = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1200, "height": 900})
        tab.goto(page.as_uri())
        painted = tab.evaluate(_PAINTED)
        tab.wait_for_function("document.querySelector('.ts-over-time').tesseraTiles")
        ready = tab.evaluate("performance.now()")
        zooms = tab.evaluate(_ZOOM)
        browser.close()
    return {
        "first paint, ms": painted,
        "can be zoomed, ms": ready,
        "zoom, ms": statistics.median(zooms),
        "longest zoom, ms": max(zooms),
    }


@ts.function
def attention(q: ts.Tensor["S", "D", ts.f16], k: ts.Tensor["S", "D", ts.f16], v: ts.Tensor["S", "D", ts.f16]):
    return ts.softmax(q @ k.T * 0.125) @ v


@ts.function
def normed(x: ts.Tensor["B", "D", ts.f32], weight: ts.Tensor["D", ts.f32], bias: ts.Tensor["D", ts.f32]):
    return ts.layer_norm(x, weight, bias)


def cards() -> dict[str, float]:
    """The slowest of each: what follows the compilation of a cubin that nobody has looked at."""
    from tessera_jupyter.panel import OutputPanel  # optional: the extra jupyter
    from tessera_jupyter.subject import subject

    early, whole, again = list[float](), list[float](), list[float]()

    def ms(make: Callable[[], object]) -> float:
        begin = time.perf_counter()
        make()
        return 1e3 * (time.perf_counter() - begin)

    with tempfile.TemporaryDirectory() as folder, knobs.cache_dir.override(Path(folder)):
        for program, dims in ((attention, {"S": 1024, "D": 64}), (normed, {"B": 1024, "D": 1024})):
            for target in ("sm_80", "sm_90a", "sm_100"):
                analysed = analyse(program.definition(), None, dims)
                shown = OutputPanel((subject(program.name, program, analysed, target, dims),), show=("kernel",))
                shown.begin()
                early.append(ms(replace(shown, waiting=True).html))
                whole.append(early[-1] + ms(shown.html))
                again.append(ms(shown.html))
    return {"card, ms": max(early), "card with its instructions, ms": max(whole), "card once more, ms": max(again)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tiles", type=int, default=1_000_000)
    parser.add_argument("--only-cards", action="store_true", help="only the cards of cubins")
    options = parser.parse_args()
    found = cards()
    if not options.only_cards:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            found |= recorded(10 * options.tiles) | sampled() | written(options.tiles, folder)
            found |= in_a_browser(folder / "page.html")
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(f"{what:32} {value:12,.2f}" for what, value in found.items()))


if __name__ == "__main__":
    main()
