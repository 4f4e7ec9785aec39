"""What is logged and how it is shown, in notebooks, terminals and files; loops of one's own."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import numpy as np
import pytest

import tessera as ts
from tessera.training import monitor, page, views
from tessera.training.history import History
from tests.unit.training.test_train import BATCHES, bits, fresh, loss, train


@pytest.fixture(autouse=True)
def nothing_logged():
    """What other tests have logged outside of a run ends here."""
    monitor._unbound.close()


def history(**columns):
    found = History()
    for i in range(max(map(len, columns.values()))):
        found.add(i + 1, {name: column[i] for name, column in columns.items() if i < len(column)})
    return found


def test_a_history_is_columns_and_rows():
    found = history(loss=[3, np.float32(2), ts.asarray(1.0)], rate=[0.5])
    found.add(3, {"late": np.array([[7.0]])})
    assert found["loss"].tolist() == [3, 2, 1] and np.isnan(found["late"]).tolist() == [True, True, False]
    assert list(found) == [
        {"step": 1, "loss": 3, "rate": 0.5},
        {"step": 2, "loss": 2},
        {"step": 3, "loss": 1, "late": 7},
    ]
    assert len(found) == 3 and repr(found) == "<3 steps of loss, rate, late>"
    again = History.of_arrays(found.arrays())
    assert list(again) == list(found)
    found.add(2, {"loss": 9.0})  # from an earlier step on
    assert found.steps == [1, 2] and found["loss"].tolist() == [3, 9] and np.isnan(found["late"]).all()


@pytest.mark.parametrize(
    "wrong, said", [("text", "'text'"), (np.ones(2), r"an array of shape \[2\]"), (None, "None"), (1j, "1j")]
)
def test_what_is_no_number_is_refused(wrong, said):
    with pytest.raises(ts.LaunchError, match=rf"(?s)TS105.*log takes numbers by name: 'a' is {said}"):
        ts.log({"a": wrong})


def test_logs_stand_outside_of_functions():
    with pytest.raises(ts.CompileError, match=r"(?s)TS105.*outside of functions, which return them"):
        train(lambda model, x, y: ts.log({"x": ts.mean(x)}))


def test_the_logarithm_stays_the_logarithm():
    assert float(ts.log(ts.asarray(1.0))) == 0 and ts.log(np.float32(1)) == 0
    assert ts.function(lambda x: ts.log(x))(np.ones(2, np.float32)).tolist() == [0, 0]


def test_a_loop_of_ones_own(capsys):
    @ts.function
    def step(model, x, y):
        return ts.value_and_grad(lambda model: loss(model, x, y))(model)

    opt = ts.optimizers.AdamW(0.01)
    model, state, shown = fresh(), opt.init(fresh()), ts.progress(BATCHES, steps=8)
    for x, y in shown:
        value, gradient = step(model, x, y)
        model, state = opt.update(model, gradient, state)
        ts.log({"loss": value})
        ts.log({"norm": state.norm})
    assert shown.history.steps == list(range(1, 9)) and shown.history["norm"].all()
    assert bits(model) == bits(train(opt=opt, steps=8).model)
    assert re.search(r"8 of 8 in 0:0\d, .*, loss 0\.\d+, norm", capsys.readouterr().out)


def test_progress_is_one_pass_without_steps():
    assert sum(1 for _ in ts.progress(BATCHES, live=False)) == len(BATCHES)
    assert list(ts.progress(iter([1, 2]), live=False)) == [1, 2]
    assert list(ts.progress((i for i in "ab"), steps=5, live=False)) == ["a", "b"]
    assert list(ts.progress(["a", "b"], steps=5, live=False)) == ["a", "b", "a", "b", "a"]


def test_logs_outside_of_a_run_are_shown_too(capsys):
    for i in range(3):
        ts.log({"accuracy": i / 2})
    unbound = monitor._unbound.monitor
    assert unbound.history["accuracy"].tolist() == [0, 0.5, 1]
    unbound._begun, unbound._first, unbound._last = 100.0, (1, 100.0), 104.0  # and it is closed at some later time
    monitor._unbound.close()
    assert re.search(r"3 steps in 0:04, 2 s each, accuracy 1\n$", capsys.readouterr().out)


def test_a_loop_that_is_left_logs_no_further(capsys):
    for x in ts.progress([1, 2, 3], live=False):
        ts.log({"x": x})
        break
    ts.log({"y": 1.0})
    assert monitor._unbound.monitor.history.names == ("y",)
    monitor._unbound.close()


def glance(**changes):
    found = history(loss=np.geomspace(5, 0.05, 400), grad_norm=1 + np.sin(np.arange(400)))
    given = {"history": found, "step": 400, "steps": 1000, "seconds": 40.0, "rate": 10.0, "said": ""}
    return views.Glance(**given | changes)


def test_what_is_said_of_the_time():
    assert glance().heading == "400 of 1,000, 1:00 left, 10/s"
    assert glance(steps=None).heading == "400 steps in 0:40, 10/s"
    assert glance(rate=0.1, steps=40_000).heading == "400 of 40,000, 110:00:00 left, 10 s each"
    assert glance(said="interrupted").heading == "400 of 1,000 in 0:40, 10/s"
    assert glance(rate=None).heading == "400 of 1,000 in 0:40"


def test_curves_in_a_notebook():
    shown = page.page(glance(said="<b>"))
    tree = ElementTree.fromstring(shown)
    loss_, norm = tree.iter("svg")
    assert loss_.get("aria-label") == "loss 0.05" and norm.get("aria-label").startswith("grad_norm")
    ticks = [t.text for t in loss_.iter("text")]
    assert {"0.1", "1"} <= set(ticks)  # it spans two powers of ten: logarithmic
    (line,) = loss_.iter("polyline")
    points = np.array([p.split(",") for p in line.get("points").split()], float)
    assert len(points) == 180 and (np.diff(points[:, 0]) > 0).all() and (np.diff(points[:, 1]) > 0).all()
    assert len(list(norm.iter("polygon"))) == 1 and len(shown) < 40_000 and "&lt;b&gt;" in shown
    assert "400 of 1,000" in page.plain(glance()) and "█" in page.plain(glance())


@pytest.mark.parametrize(
    "values", [[1.0], [2.0, 2.0], [np.nan], [0.0, -1.0, np.inf], [1e-30, 1e30], [5.0, np.nan, 4.0]]
)
def test_odd_curves_are_drawn(values):
    shown, _, image = page.chart(history(odd=values), "odd", "red").partition("<img")
    assert "nan" not in shown.replace(">odd nan<", "").replace('"odd nan"', "") and "inf," not in shown
    ElementTree.fromstring(shown)
    ElementTree.fromstring(unquote(re.search('data:image/svg.xml,(.*?)"', image)[1]))
    views.sparkline(np.array(values))


def test_a_line_of_a_terminal(monkeypatch):
    from rich.console import Console

    line = views.TerminalLine()
    line._console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    line.draw(glance())
    line.draw(glance(step=1000, said="interrupted: so"))
    line.close()
    first, second = line._console.file.getvalue().split("\r\x1b[2K")[1:]
    assert (
        first == f"{'━' * 12} 400 of 1,000, 1:00 left, 10/s  loss 0.05 █▆▄▃▂▂▁▁▁▁▁▁  grad_norm 0.5…" or len(first) < 80
    )
    assert second.endswith("\ninterrupted: so\n")


def test_accumulated_gradients():
    a, b = {"w": np.ones(2, np.float32)}, {"w": np.full(2, 3, np.float32)}
    with ts.accumulate_gradients(steps=2) as total:
        total.add(a)
        total.add(b)
    assert total.gradient["w"].tolist() == [2, 2]
    none = pytest.raises(ts.LaunchError, match=r"(?s)TS105.*0 of 4 gradients were added.*total\.add\(gradient\)")
    with none, ts.accumulate_gradients(steps=4):
        pass
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*2 gradients are there already"):
        total.add(a)
    with pytest.raises(ZeroDivisionError), ts.accumulate_gradients(steps=4):
        1 / 0


def test_a_mode_of_compilation():
    @ts.compile(mode="training")
    def doubled(x):
        return x * 2

    assert doubled(np.ones(2)).tolist() == [2, 2] and isinstance(doubled, ts.Function)
    for wrong in ({"mode": "fast"}, {}):
        with pytest.raises(ts.CompileError, match=r"(?s)TS105.*mode is 'training'"):
            ts.compile(**wrong)
