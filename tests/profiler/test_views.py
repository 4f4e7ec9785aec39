"""Figures hold what was recorded, stay small, and the HTML page works in a browser without a network."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tessera.errors import MissingDependency
from tessera.profiler import Profiler
from tessera.profiler.machine import Ceiling, DeviceCeilings
from tessera.profiler.recording import Recording
from tessera.profiler.roofline import roofline_figure
from tessera.profiler.style import EDGE, GRID, escape, shorten
from tessera.profiler.timeline import MOST_BARS, bars_of, gantt_figure, histogram_figure
from tessera.runtime.events import MemoryEvent, TileBatch, TileEvent
from tests import browsers
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


def test_phases_have_a_colour_each() -> None:
    events = [TileEvent(1, 0, 0, 0, "load", 0, 5, 1), TileEvent(1, 0, 0, 0, "mma", 5, 5, 2)]
    figure = gantt_figure(recorded(launch(), batch(events)))
    assert [trace.name for trace in bars(figure)] == ["load", "mma"]
    assert len({trace.marker.color for trace in bars(figure)}) == 2


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


def test_nothing_to_draw_is_said_in_words() -> None:
    prof = profile(recorded())
    for figure in (
        prof.timeline().figure(),
        prof.timeline().histogram(),
        prof.roofline().figure(),
        prof.memory().figure(),
    ):
        assert len(figure.layout.annotations) == 1
        assert len(figure.data) == 0


def test_results_show_themselves_in_a_notebook() -> None:
    bundle = profile(many(8)).timeline()._repr_mimebundle_()
    assert "8 tiles on 4 lanes" in bundle["text/plain"]
    assert len(bundle["application/vnd.plotly.v1+json"]["data"]) == 2


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
    page.wait_for_function("document.querySelectorAll('.plot .main-svg').length >= 4")
    return page, problems


BAR_COUNT = "document.getElementById('timeline').data.slice(1).reduce((n, trace) => n + trace.x.length, 0)"


def test_the_page_draws_in_a_browser_and_zooming_chooses_other_bars(chromium: Any, tmp_path: Path) -> None:
    page, problems = open_page(chromium, many(3 * MOST_BARS), tmp_path)
    assert problems == []
    assert page.locator("table").first.inner_text().count("saxpy") == 1
    plot = "document.getElementById('timeline')"
    page.evaluate(f"Plotly.relayout({plot}, {{'xaxis2.range[0]': 100.0, 'xaxis2.range[1]': 101.0}})")
    page.wait_for_function(f"{plot}.layout.annotations[0].text.includes('40 of 6,000')")
    drawn = page.evaluate(f"{plot}.data[1].base.concat()")
    # From 100 to 101 us: four workers, a tile of 90 ns every 100 ns; and no tile elsewhere.
    assert len(drawn) == 40
    assert all(99.9 < start < 101 for start in drawn)
    assert page.evaluate(f"{plot}.layout.shapes[0].x0") == pytest.approx(100.0)
    page.evaluate(f"Plotly.relayout({plot}, {{'xaxis2.autorange': true}})")
    page.wait_for_function(f"({BAR_COUNT}) === {MOST_BARS}")
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


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    text = profile(many(10)).to_html(tmp_path / "profile.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert text.count("<script>") == 2  # Plotly once, and the page's own
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text.split("</head>")[1])


def test_roofs_of_one_rate_share_a_label_that_keeps_their_origins() -> None:
    roofs = [Ceiling("compute", "f16", 1e14, "measured", "x"), Ceiling("compute", "bf16", 1e14, "modelled", "y")]
    figure = roofline_figure([], [DeviceCeilings("cuda:0", "a GPU", 1, 1, tuple(roofs))])
    assert [label.text for label in figure.layout.annotations] == ["f16, bf16 modelled 100 TFLOP/s (measured)"]
