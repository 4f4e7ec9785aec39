"""Figures hold what was recorded, stay small, and the HTML page works in a browser without a network."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest

import tessera as ts
from tessera.errors import MissingDependency
from tessera.profiler import Profiler
from tessera.profiler.export.page import page
from tessera.profiler.machine import Ceiling, DeviceCeilings
from tessera.profiler.recording import Recording
from tessera.profiler.roofline import Roofline, roofline_figure
from tessera.profiler.style import EDGE, GRID, escape, shorten
from tessera.profiler.timeline import gantt_figure, histogram_figure
from tessera.profiler.views import parts
from tessera.profiler.views import tiles as views
from tessera.profiler.views.lanes import MOST_BARS, bars_of
from tessera.runtime.events import MemoryEvent, TileBatch, TileEvent
from tests import browsers
from tests.browsers import expect
from tests.conftest import require
from tests.profiler.synthetic import batch, launch, recorded, tiles

require("plotly")

HOSTILE = "</script><img src=x onerror=document.title='run'>"


def profile(recording: Recording) -> Profiler:
    prof = Profiler()
    prof.recording = recording
    return prof


def many(count: int) -> Recording:
    rows = [(i, i % 4, i // 4 * 100, 90) for i in range(count)]
    return recorded(launch(flops=10_000, bytes=5_000, attributes={"resources": 4}), tiles(*rows))


def bars(figure: Any) -> list[Any]:
    return [trace for trace in figure.data if trace.type == "bar"]


def test_every_tile_is_a_bar_where_it_ran() -> None:
    figure = gantt_figure(recorded(launch(), tiles((0, 0, 1000, 100), (1, 1, 1050, 60))))
    (trace,) = bars(figure)
    assert [*trace.base] == [0, 50]
    assert [*trace.x] == [100, 60]
    assert [*trace.y] == [0, 1]
    assert figure.layout.yaxis2.ticktext == ("worker 0", "worker 1")
    assert "100 ns" in trace.text[0] and "line 7" in trace.text[0] and "measured" in trace.text[0]


def test_phases_of_a_single_kernel_have_a_colour_each() -> None:
    events = [TileEvent(1, 0, 0, 0, "load", 0, 5, 1), TileEvent(1, 0, 0, 0, "mma", 5, 5, 2)]
    figure = gantt_figure(recorded(launch(), batch(events)))
    assert [trace.name for trace in bars(figure)] == ["load", "mma"]
    assert len({trace.marker.color for trace in bars(figure)}) == 2
    two = [launch(1, "f:3 a @ w"), launch(2, "f:3 a @ w (2)"), launch(3, "f:4 softmax(a)")]
    events += [TileEvent(n, 0, 0, 0, "mma", 10 * n, 5, 2) for n in (2, 3)]
    assert bars_of(recorded(*two, batch(events))).groups == ["f:3 a @ w", "f:4 softmax(a)"], "kernels, and equal as one"


def test_no_more_bars_than_a_browser_can_hold() -> None:
    figure = gantt_figure(many(5 * MOST_BARS))
    assert sum(len(trace.x) for trace in bars(figure)) == MOST_BARS
    caption = figure.layout.annotations[0].text
    assert caption == "2,000 of 10,000 tile records (20.0%)"


def test_a_window_shows_what_reaches_into_it_and_the_longest_first() -> None:
    found = bars_of(recorded(launch(), tiles((0, 0, 0, 10), (1, 0, 20, 10), (2, 0, 40, 10))))
    assert found.within((5, 25)).tolist() == [0, 1]
    assert found.within((10, 20)).tolist() == []
    long = [(i, 0, i, 1000 if i == 7 else 1) for i in range(3 * MOST_BARS)]
    crowded = bars_of(recorded(launch(), tiles(*long)))
    shown = crowded.within((0, crowded.span)).tolist()
    assert len(shown) == MOST_BARS and 7 in shown


def test_rows_name_what_tells_them_apart() -> None:
    events = [
        TileEvent(1, 0, 3, 0, "tile", 0, 5, 1),
        TileEvent(1, 1, 3, 1, "tile", 0, 5, 1),
        TileEvent(2, 0, 0, 0, "tile", 0, 5, 1),
    ]
    both = recorded(launch(1, device="cuda:0", target="sm_90a"), launch(2), batch(events))
    assert bars_of(both).rows == ["cpu:0 · worker 0 · slot 0", "cuda:0 · SM 3 · slot 0", "cuda:0 · SM 3 · slot 1"]


def test_labels_of_many_rows_do_not_run_into_each_other() -> None:
    figure = gantt_figure(recorded(launch(), tiles(*[(i, i, 0, 10) for i in range(264)])))
    assert len(figure.layout.yaxis2.ticktext) <= 16


def test_every_axis_has_the_look_that_suits_both_themes() -> None:
    for figure in (gantt_figure(many(8)), histogram_figure(many(8))):
        axes = [*figure.select_xaxes(), *figure.select_yaxes()]
        assert {axis.gridcolor for axis in axes} == {GRID}
        assert {axis.linecolor for axis in axes} == {EDGE}


def test_the_histogram_counts_tiles() -> None:
    figure = histogram_figure(many(100))
    assert sum(figure.data[0].y) == 100
    assert histogram_figure(recorded(launch(), tiles((0, 0, 0, 0), (1, 0, 0, 5)))).data


def test_the_roofline_has_a_point_per_kernel_and_a_line_per_ceiling() -> None:
    figure = profile(many(8)).roofline().figure()
    points = [trace for trace in figure.data if trace.mode == "markers"]
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert [([*point.x], [*point.y]) for point in points] == [([2.0], [pytest.approx(1e8)])]
    assert len(lines) == 3
    labels = {label.text for label in figure.layout.annotations}
    assert labels == {"memory 10.0 GB/s (measured)", "cache 100 GB/s (measured)", "f32 100 GFLOP/s (measured)"}


def test_a_point_is_the_median_launch_with_the_spread_of_all() -> None:
    """One launch of eight that was interrupted moves neither the point nor its bar."""
    work = {"flops": 1000, "bytes": 500, "attributes": {"label": "product"}}
    runs = [launch(n, "f:3 a @ w", n * 1000, 100 + 10 * n if n < 7 else 9_000, **work) for n in range(8)]
    copies = [launch(9, "f:3 a @ w (2)", **work)]
    prof = profile(recorded(*runs))
    (point,) = prof.roofline().points
    low, middle, high = point.rates
    assert 5.8e9 < low < 7.2e9 < middle < 7.8e9 < high < 8.8e9
    (drawn,) = [trace for trace in prof.roofline().figure().data if trace.mode == "markers"]
    assert drawn.y[0] == middle and drawn.error_y.array[0] == pytest.approx(high - middle)
    assert prof.roofline().view().count('class="ts-spread"') == 2 * 3  # once wide, once narrow
    assert "half of its 8 launches at" in prof.roofline().view()
    assert len(profile(recorded(*runs, *copies)).roofline().points) == 1, "of an unrolled loop"


def test_nothing_to_draw_is_said_in_words() -> None:
    prof = profile(recorded())
    for shown in (prof.timeline(), prof.roofline(), prof.memory()):
        assert 'class="ts-why"' in shown.view()
    for figure in (
        prof.timeline().figure(),
        prof.timeline().histogram(),
        prof.roofline().figure(),
        prof.memory().figure(),
    ):
        assert len(figure.layout.annotations) == 1
        assert len(figure.data) == 0


def test_results_show_themselves_in_a_notebook() -> None:
    prof = profile(many(8))
    bundle = prof.timeline()._repr_mimebundle_()
    assert "8 tiles on 4 lanes" in bundle["text/plain"]
    assert "Tiles over time: 8 on 4 lanes in 190 ns" in bundle["text/html"]
    assert "Nothing was allocated" in prof.memory()._repr_mimebundle_()["text/html"]
    assert not re.search(r"(src|href)=(?!.data:)|url\(|@import", bundle["text/html"]), "it loads nothing"


def test_without_plotly_there_is_text_and_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_import = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("plotly"):
            raise ImportError(name)
        return plain_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    prof = profile(recorded(launch(1, "<b>"), tiles((0, 0, 0, 10))))
    with pytest.raises(MissingDependency, match=r"tessera\[plot\]"):
        prof.timeline().figure()
    bundle = prof.timeline()._repr_mimebundle_()
    assert "&lt;b&gt;" in bundle["text/html"] and len(bundle) == 2
    assert "Tiles over time" in page(prof.recording)
    assert str(prof.summary())


def test_labels_are_escaped_and_shortened() -> None:
    assert escape("a<b>&") == "a&lt;b&gt;&amp;"
    assert shorten("short") == "short"
    assert shorten("a_very_long_kernel_name_that_ends_in_f32", 11) == "a_ver…n_f32"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browsers.chromium() as launched:
        yield launched


def open_page(chromium: Any, recording: Recording, folder: Path) -> tuple[Any, list[str]]:
    """The page, drawn, and what it has complained of or asked others for, also later."""
    path = profile(recording).to_html(folder / "profile.html")
    page = chromium.new_page()
    page.set_default_timeout(browsers.PATIENCE * 1000)
    problems: list[str] = []
    own = ("file:", "data:", "blob:")
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(own) else problems.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_function(f"{VIEW}?.canvas.width > 0")
    return page, problems


VIEW = "document.querySelector('.ts-over-time').tesseraTiles"


def slow_one(count: int, at: int, lanes: int = 4) -> Recording:
    """Tiles of 900 to 999 ns, one after the other on each lane, of which one takes 9 µs; its grid is 1,000 wide."""
    index = np.arange(count)
    took = 900 + index * 7919 % 100
    took[at] = 9_000
    lane, turn = index % lanes, index // lanes
    start = np.zeros(count, np.int64)
    for one in range(lanes):
        mine = lane == one
        start[mine] = np.cumsum(np.r_[0, took[mine][:-1] + 50])
    columns = {"tile": index, "resource": lane, "slot": 0, "start": start, "duration": took, "line": 12}
    number = launch(kernel="attend:12 softmax(scores)", grid=(count // 1000, 1000), attributes={"resources": lanes})
    assert turn.max() > 0
    return recorded(number, TileBatch.from_columns(("tile",), launch=1, **columns))


def test_blocks_hold_every_tile_and_keep_the_slowest_single() -> None:
    found = views.tiles_of(slow_one(50_000, 31_234))
    assert found is not None
    few, all_of_them = views.blocks_of(found, 2_000), views.blocks_of(found, 100_000)
    assert len(all_of_them.start) == 50_000 and all_of_them.size == 1
    assert len(few.start) < 3_000 and few.size > 20
    assert few.busy.sum() == all_of_them.busy.sum() == found.bars.duration.sum()
    for row in range(4):  # blocks follow each other without overlap
        mine = few.row == row
        assert (few.start[mine][1:] >= few.end[mine][:-1]).all()
    (at,) = np.flatnonzero(few.slowest == found.slowest[0])
    assert found.bars.tile[found.slowest[0]] == 31_234 and few.end[at] - few.start[at] == 9_000, "alone in its block"


def test_what_a_page_holds_does_not_grow_with_the_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(views.view(slow_one(40_000, 5))) < 150_000  # of the 300 kB that a saved panel may take
    monkeypatch.setattr(views, "IN_PAGE", 2_000)
    text = views.view(slow_one(40_000, 5), views.IN_PAGE)
    assert len(text) < 60_000
    assert "Tiles over time: " in text and "tile (0, 5)" in text, "a picture and a table where no script runs"


def test_times_beyond_two_seconds_keep_their_places() -> None:
    hour = 3_600_000_000_000
    found = views.tiles_of(recorded(launch(), tiles((0, 0, 0, 10), (1, 0, hour, 5_000_000_000))))
    assert found is not None
    told = views.data(found, 100)
    assert told["span"] == hour + 5_000_000_000
    assert told["span"] / told["tick"] < 2**31 and 5_000_000_000 / told["grain"] < 2**31


def test_the_slowest_of_a_hundred_thousand_tiles_is_in_sight_at_every_zoom(chromium: Any, tmp_path: Path) -> None:
    """And what a person does to find it: keys, the table, a drag over the histogram, the kernel's least multiple."""
    page, problems = open_page(chromium, slow_one(100_000, 61_007), tmp_path)
    canvas, first_row = page.locator("canvas.ts-canvas"), page.locator(".ts-slow tbody tr").first
    expect(canvas).to_have_attribute(
        "aria-label", re.compile(r"100,000 on 4 lanes.*Slowest: tile \(61, 7\) of attend:12")
    )
    at = page.evaluate(f"{VIEW}.slowStart[{VIEW}.longest(0, {VIEW}.blocks)]")
    for part in (1, 1e-1, 1e-2, 1e-3, 1e-4):  # its pixel stands out, also where a thousand tiles share it
        tall = page.evaluate(
            """([at, part]) => {
                const view = document.querySelector('.ts-over-time').tesseraTiles, half = view.span * part / 2;
                view.show(at + 4500 - half, at + 4500 + half);
                const box = view.at, [from, to] = view.window, dense = devicePixelRatio || 1;
                const x = box.left + (at + 4500 - from) / (to - from) * (box.right - box.left);
                const row = view.rowOf(view.longest(0, view.blocks));
                const copy = new OffscreenCanvas(view.canvas.width, view.canvas.height).getContext('2d');
                copy.drawImage(view.canvas, 0, 0);
                const column = copy.getImageData(
                    Math.floor(x * dense), (34 + row * box.row) * dense, 1, box.row * dense).data;
                let painted = 0;
                for (let i = 0; i < column.length; i += 4) if (column[i + 2] > 150 && column[i] < 120) painted++;
                return painted / dense / box.row;
            }""",
            [at, part],
        )
        assert tall > 0.8, part
        expect(first_row).to_contain_text("tile (61, 7)")
    canvas.press("Home")
    canvas.press("+")
    assert page.evaluate(f"{VIEW}.window[1] - {VIEW}.window[0]") == pytest.approx(page.evaluate(f"{VIEW}.span") / 2)
    page.locator("input.ts-least").fill("2")
    canvas.press("Home")
    expect(page.locator(".ts-said")).to_have_text(re.compile("^1 (tile|block)s? chosen in this window$"))
    assert page.locator(".ts-slow tbody tr").count() == 1
    canvas.press("Escape")
    page.locator(".ts-histogram svg.ts-for-wide").scroll_into_view_if_needed()
    box = page.locator(".ts-histogram svg.ts-for-wide").bounding_box()
    right = box["x"] + box["width"] * (760 - 14 - 4) / 760
    page.mouse.move(right - 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(right, box["y"] + 60)
    page.mouse.up()
    expect(page.locator(".ts-slow tbody tr")).to_have_count(1)
    expect(first_row).to_have_text(re.compile(r"tile \(61, 7\).*9 µs9.47 ×.*worker 312"))
    first_row.get_by_role("button").click()
    assert page.evaluate(f"{VIEW}.window[1] - {VIEW}.window[0]") < 60_000
    assert problems == []
    page.close()


def test_half_an_editor_has_room_for_kernels_and_their_times(chromium: Any, tmp_path: Path) -> None:
    name = "attend:7 ts.softmax(query @ key.transpose(-2, -1), axis=-1) @ value"
    path = profile(recorded(launch(kernel=name))).to_html(tmp_path / "page.html")
    page = chromium.new_page(viewport={"width": 560, "height": 500})
    page.goto(path.as_uri())
    cells = page.locator("section.scroll tbody tr").first.locator("th, td")
    page.get_by_text(name).first.wait_for()
    time = cells.nth(1)
    assert re.fullmatch(r"[\d.]+ (ns|µs|ms)", time.inner_text())
    box, share = time.bounding_box(), cells.nth(2).bounding_box()
    page.close()
    assert box["x"] > 0 and share["x"] + share["width"] <= 560


def test_a_tile_says_what_it_read(chromium: Any, tmp_path: Path) -> None:
    """In the table without scripts and, by the same words, in the table of the script; also what is not known."""

    @ts.kernel(BM=16, BN=32)
    def product(a: ts.Tensor["M", "K"], w: ts.Tensor["K", "N"]) -> ts.Tensor["M", "N"]:
        c = ts.tile.context()
        return a[tile_m : tile_m + c.BM, :] @ w[:, tile_n : tile_n + c.BN]

    @ts.function
    def picked(x: ts.Tensor["M", "N", ts.f32], at: ts.Tensor["K", ts.int64]):
        return ts.take(x, at, axis=0)

    def step() -> None:
        product(a, w)
        picked(a, np.arange(3))

    a, w = np.ones((40, 24), np.float32), np.ones((24, 50), np.float32)
    step()
    with ts.profiler() as prof:
        step()
    saved = Profiler.load(prof.save(tmp_path / "run.tsprof"))
    for own in (prof, saved):
        launches = {e.title: e for e in own.recording.launches}
        said = parts.text_of(parts.trees(launches["product"]), (2, 1))
        assert said == "a[32:40, 0:24], w[0:24, 32:50]"
        (other,) = (e for title, e in launches.items() if title != "product")
        said = parts.text_of(parts.trees(other), (0,))
        assert said == "x[?, ?], at[0:3] (? is computed from data)"
    static = re.findall(r"a\[[\d:]+, 0:24\], w\[0:24, [\d:]+\]", views.view(prof.recording))
    page, problems = open_page(chromium, prof.recording, tmp_path)
    live = [row.inner_text() for row in page.locator(".ts-slow tbody tr").all()]
    assert sorted(re.findall(r"a\[[\d:]+, 0:24\], w\[0:24, [\d:]+\]", " ".join(live))) == sorted(static)
    assert len(set(static)) >= 4 and not problems
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_table_scrolls_sideways(chromium: Any, tmp_path: Path, scheme: str) -> None:
    """Also where a kernel with a long name ran with several long-named sizes."""
    dims = ("Batch", "Sequence", "Features", "Hidden", "Heads")
    recording = recorded(
        *(
            launch(
                n, "attend:7 ts.softmax(query @ key.transpose(-2, -1), axis=-1)", flops=10**9, bytes=10**7,
                grid=(8, 16, 4), attributes={"file": "/a/folder/model.py", "line": 7, "sizes": dict.fromkeys(dims, n)},
            )
            for n in (1, 2)
        )
    )  # fmt: skip
    path = profile(recording).to_html(tmp_path / "page.html")
    for width in (1200, 800, 560):
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(path.as_uri())
        assert "several Batch, several Sequence" in page.locator(".scroll").first.inner_text()
        wide = page.locator("html, .scroll").evaluate_all(
            "all => all.filter(e => e.scrollWidth > e.clientWidth).length"
        )
        assert wide == 0, width
        page.close()


def test_names_from_the_program_cannot_run_as_script(chromium: Any, tmp_path: Path) -> None:
    attributes = {"file": HOSTILE, "line": 3}
    recording = recorded(
        launch(1, HOSTILE, flops=10, bytes=10, attributes=attributes),
        TileBatch.from_columns((HOSTILE,), launch=1, tile=[0, 1], start=[0, 5], duration=4, slot=0),
        MemoryEvent(1, HOSTILE, 5, 5, HOSTILE, 3, HOSTILE),
        MemoryEvent(2, "cpu:0", 5, 5, "x"),
    )
    page, problems = open_page(chromium, recording, tmp_path)
    assert problems == []
    assert page.locator("img[src=x]").count() == 0
    # An image that cannot be loaded is told so after those that were there before it.
    page.evaluate("new Promise(told => { const image = new Image(); image.onerror = told; image.src = 'y'; })")
    assert page.title() == "Tessera profile"
    page.close()


def test_an_image_of_a_picture_says_what_the_picture_does() -> None:
    """For notebooks that lose their SVG: the same words in an image that is well formed, and has a style of its own."""
    named = launch(1, kernel='a<b> & "c" µ')
    markup = views.view(recorded(named, tiles(*((i, i % 4, 50 * i, 40) for i in range(8)))))
    figures = list(ElementTree.fromstring(f"<div>{markup}</div>").iter("figure"))
    assert len(figures) == 2
    for figure in figures:
        drawn, image = next(figure.iter("svg")), next(figure.iter("img"))
        head, _, data = image.get("src", "").partition(",")
        assert head == "data:image/svg+xml" and not set(data) & {"<", ">", '"', "#"}
        still = ElementTree.fromstring(unquote(data))
        words = [t.text for t in still.iter("{http://www.w3.org/2000/svg}text")]
        assert words == [t.text for t in drawn.iter("text")] and words
        assert ".ts-axis" in "".join(s.text or "" for s in still.iter("{http://www.w3.org/2000/svg}style"))
        assert image.get("width") == drawn.get("viewBox", "").split()[2]


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    text = profile(many(10)).to_html(tmp_path / "profile.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert text.count("<script>") == 1 and "Plotly" not in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text.split("</head>")[1])


def test_roofs_of_one_rate_share_a_label_that_keeps_their_origins() -> None:
    roofs = [Ceiling("compute", "f16", 1e14, "measured", "x"), Ceiling("compute", "bf16", 1e14, "modelled", "y")]
    figure = roofline_figure([], [DeviceCeilings("cuda:0", "a GPU", 1, 1, tuple(roofs))])
    assert [label.text for label in figure.layout.annotations] == ["f16, bf16 modelled 100 TFLOP/s (measured)"]


def test_names_of_slopes_stand_clear_of_the_axis() -> None:
    """Where a slope enters the plane from below, its name would lie on the figures of the axis."""
    point = launch(flops=10**6, bytes=10**5, duration=10**5)
    markup = Roofline(recorded(point)).view()
    place = {name: float(y) for y, name in re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>([^<]+)</text>', markup)}
    assert {"memory", "cache"} <= place.keys()
    figures = min(y for name, y in place.items() if re.fullmatch(r"[\d.]+", name))
    assert max(place["memory"], place["cache"]) < figures - 12
