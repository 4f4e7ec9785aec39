"""What the kernel's arrays hold, beside the assignments that made them: as the kernel tells it, and in JupyterLab."""

from __future__ import annotations

import re
import time
from weakref import ref

import numpy as np
import pytest
from tessera_jupyter.session import arrays
from tessera_jupyter.session import elements as reading
from tessera_jupyter.session.elements import elements

import tessera as ts
from tests.browsers import expect
from tests.conftest import require
from tests.jupyter.test_labextension import HEAD, cell, edit, expect_hints, point_at


def test_few_elements_are_told_as_they_are():
    assert elements(np.array([[1, 2.5], [np.nan, 1 / 3]], np.float32)) == {
        "values": "[[1, 2.5], [nan, 0.333]]", "least": "0.3333", "most": "2.5", "mean": "1.278", "nan": 1,
    }  # fmt: skip
    assert elements(np.array(7))["values"] == "7"
    assert elements(np.zeros((0, 3), np.float32)) == {"values": "[]"}
    assert elements(np.array([True, False])) == {"values": "[True, False]", "true": 1}
    assert elements(ts.ones((3,), ts.bf16)) == {"values": "[1, 1, 1]", "least": "1", "most": "1", "mean": "1"}
    big = np.array([2**63 - 1, 0], np.int64)
    assert elements(big)["values"] == "[9223372036854775807, 0]"


def test_many_are_told_by_statistics():
    numbers = np.arange(-4, 96, dtype=np.float32).reshape(10, 10)
    numbers[3, 3] = np.nan
    numbers[4, 4] = np.inf
    rest = numbers[np.isfinite(numbers)]
    assert elements(numbers) == {
        "first": "[-4, -3, -2, -1, 0, 1, 2, 3, ...]", "least": "-4", "most": "inf", "mean": "inf", "nan": 1, "inf": 1,
    }  # fmt: skip
    numbers[4, 4] = 0
    assert elements(numbers)["mean"] == f"{(rest.sum() / (rest.size + 1)):.4g}"
    assert elements(np.full(20, np.nan))["nan"] == 20 and "least" not in elements(np.full(20, np.nan))
    assert elements(np.full(10, 3 + 4j)) | {"first": ""} == {
        "first": "", "least": "5", "most": "5", "mean": "5", "complex": True
    }  # fmt: skip
    halves = elements(np.full(30_000, 60_000, np.float16))  # whose sum no f16 holds
    assert halves["mean"] == "6e+04"


def test_of_very_many_a_sample_is_read(monkeypatch):
    monkeypatch.setattr(reading, "READ", 1000)
    monkeypatch.setattr(reading, "SAMPLE", 512)
    numbers = np.tile(np.arange(8, dtype=np.float32), 4096).reshape(4096, 8).T  # strided, and periodic
    found = elements(numbers)
    assert (found["read"], found["least"], found["most"]) == (512, "0", "7")
    assert abs(float(found["mean"]) - 3.5) < 0.1
    assert found["first"].startswith("[0, 0, 0")
    assert elements(numbers > 3)["read"] == 512


class OnDevice:
    """An array that may not be read: whoever does fails the test."""

    shape, dtype = (4,), np.dtype(np.float32)

    def __init__(self, kind, ready=True):
        self.kind, self.is_ready = kind, lambda: ready

    def __dlpack_device__(self):
        return self.kind, 1

    def __dlpack__(self, **_):
        pytest.fail("read")

    def __setitem__(self, *_):
        raise AssertionError


def test_what_would_wait_is_not_read():
    assert elements(OnDevice(2)) == {"unread": "they lie on device 1, and reading them would wait for its work"}
    assert elements(OnDevice(1, ready=False)) == {"unread": "they are being computed"}


def test_other_libraries(nb):
    torch = require("torch")
    tensor = torch.tensor([1.0, 2.0], requires_grad=True)
    assert elements(tensor)["values"] == "[1, 2]"
    assert elements(torch.ones(9, dtype=torch.bfloat16))["first"] == "[1, 1, 1, 1, 1, 1, 1, 1, ...]"
    assert "refuses" in elements(torch.eye(3).to_sparse())["unread"]
    jax = require("jax")
    assert elements(jax.numpy.arange(3))["values"] == "[0, 1, 2]"


def live(nb):
    return nb.shell.magics_manager.registry["TesseraMagics"].session.live


def bound(nb):
    """Of each array the run that bound it, and the one that changed it, counted from the first of the test's."""
    first = 2  # after that which the fixture runs
    told = live(nb).told()["arrays"]
    return {n: tuple(a[k] - first for k in ("cell", "changed") if k in a) for n, a in told.items()}


def test_who_bound_an_array(nb):
    nb.run("W = np.ones(3)\nn = 3")
    nb.run("V = W")
    assert bound(nb) == {"W": (0,), "V": (1,)}
    nb.run("print(W)")
    assert bound(nb) == {"W": (0,), "V": (1,)}
    nb.run("W += 1")  # the same array: its name is bound, and V has other elements
    assert bound(nb)["W"] == (3,)
    nb.run("def fresh():\n    global W\n    V = 0\n    W = np.zeros(2)\nfresh()")
    assert bound(nb)["W"] == (4,) and bound(nb)["V"][0] == 1
    nb.run("del V")
    assert bound(nb) == {"W": (4,)}
    nb.run("%%tessera\nW = ts.ones((2,), ts.f32)\n")
    assert bound(nb) == {"W": (6,)}


def test_arrays_from_before_are_nobodys(nb):
    nb.run("%unload_ext tessera_jupyter\nold = np.ones(3)\n")
    nb.run("%load_ext tessera_jupyter\nnew = np.ones(3)")
    told = live(nb).told()
    assert "cell" not in told["arrays"]["old"] and "elements" not in told["arrays"]["old"]
    assert told["arrays"]["new"]["cell"] == 3 and list(told["cells"]) == [3]


def test_elements_that_changed_in_place(nb):
    nb.run("W = np.ones(3)")
    live(nb).told(2)
    nb.run("W[0] = 7")
    array = live(nb).told(3)["arrays"]["W"]
    assert (array["cell"], array["changed"], array["elements"]["values"]) == (2, 3, "[7, 1, 1]")


def test_a_cell_that_raised_is_told_as_far_as_it_ran(nb):
    nb.run("a = np.ones(2)\nb = a * 2\nraise ValueError\nb = a * 3")
    assert live(nb).told()["cells"] == {2: "a = np.ones(2)\nb = a * 2"}
    nb.run("a = np.ones(4)\nb = a b")
    assert live(nb).told()["arrays"]["a"]["shape"] == [2]


def test_no_array_is_kept_alive(nb):
    nb.run("W = np.ones(3)")
    gone = ref(nb["W"])
    nb.run("del W")
    assert gone() is None and live(nb).told() == {"arrays": {}, "cells": {}}


def test_time_is_bounded(nb, monkeypatch):
    monkeypatch.setattr(arrays, "BUDGET", -1.0)
    nb.run("W = np.ones(3)")
    assert live(nb).told()["arrays"] == {"W": {"shape": [3], "dtype": "f64", "cell": 2}}


def test_pauses_of_a_busy_machine_are_not_work(nb, monkeypatch):
    def paused(array):
        time.sleep(0.03)
        return elements(array)

    monkeypatch.setattr(arrays, "elements", paused)
    nb.run("a, b, c = np.ones(1), np.ones(2), np.ones(3)")
    told = live(nb).told()["arrays"]
    assert [told[name]["elements"]["values"] for name in "abc"] == ["[1]", "[1, 1]", "[1, 1, 1]"]


MADE = """rng = np.random.default_rng(0)
W = rng.standard_normal((64, 8), np.float32)
W[0, 0] = np.nan
bias = np.float32([0, 0.5, 1 / 3])
"""
TESSERA = """%%tessera
@ts.function
def project(x: Tensor["B", 64]):
    return x @ W
v = project(np.zeros((1, 64), np.float32))
"""
MADE_HINTS = [
    [1, ": [64, 8] f32"], [1, "min -2.59, max 3.432, mean 0.01475, 1 NaN"],
    [3, ": [3] f32"], [3, "[0, 0.5, 0.333]"],
]  # fmt: skip
V_HINTS = [[2, "B=1 now"], [4, ": [1, 8] f32"], [4, "[[nan, 0, 0, 0, 0, 0, 0, 0]]"]]


@pytest.fixture
def made(lab, extension):
    page = lab("values.ipynb", f"{HEAD}\nimport numpy as np", MADE, TESSERA)
    page.run(0)
    expect_hints(page, 1, [])
    page.run(1)
    page.run(2)
    expect_hints(page, 1, MADE_HINTS)
    expect_hints(page, 2, V_HINTS)
    return page


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_values_stand_beside_assignments(made, theme):
    made.page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", theme)
    made.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=theme)
    expect(cell(made, 1).get_by_text("min -2.59", exact=False)).to_have_attribute("title", re.compile("bound by .2."))
    name = {"x": 10, "y": 8}  # in a line that begins with it
    tip = point_at(made, cell(made, 1).locator(".cm-line", has_text="W["), ".tessera-hover", position=name)
    expect(tip).to_contain_text("min -2.59, max 3.432, mean 0.01475, 1 NaN")
    made.shot(f"values-{theme.rpartition(' ')[2].lower()}")


def test_they_go_when_they_are_not_of_this_text_any_more(made):
    edit(made, 1, "1 / 3", "1 / 4")
    expect_hints(made, 1, MADE_HINTS[:2])
    made.run(1)
    changed = [[3, ": [3] f32"], [3, "[0, 0.5, 0.25]"]]
    expect_hints(made, 1, [*MADE_HINTS[:2], *changed])
    made.run(2, "bias += 1")
    expect_hints(made, 2, [[0, "[1, 1.5, 1.25]"]])
    expect_hints(made, 1, MADE_HINTS[:2])
    made.run(2, "W[0, 0] = 50")
    expect_hints(made, 1, [MADE_HINTS[0], [1, "since [6]: min -2.59, max 50, mean 0.1124"]])
    made.shot("values-changed")
    made.page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    expect_hints(made, 1, [])


def test_the_setting_turns_values_off(made):
    setting = """shown => window.jupyterapp.serviceManager.settings.save(
        'tessera-jupyterlab:plugin', JSON.stringify({inlayHints: {values: shown}}))"""
    try:
        made.page.evaluate(setting, False)
        made.reload()
        made.run(2)
        expect_hints(made, 1, [])
        made.run(1)
        expect(cell(made, 1)).to_be_visible()
        expect_hints(made, 1, [])
    finally:
        made.page.evaluate(setting, True)
