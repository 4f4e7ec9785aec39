"""A compilation that takes its time: it is told, it can be interrupted, and nothing of it is left."""

from __future__ import annotations

import re
import threading

import pytest
from tessera_jupyter import progress

from tessera.compiler.targets import base as targets
from tessera.compiler.targets.reference import ReferenceTarget

CELL = "%%tessera\n@ts.function\ndef double(x: Tensor['n']) -> Tensor['n']:\n    return x * 2\n"


class Slow(ReferenceTarget):
    """The reference target once the person has been told of it, or after an interrupt."""

    name = "slow"
    fingerprint = "slow"
    interrupted = False
    told = threading.Event()

    def compile(self, program, *, profile=False, debug=False):
        self.told.clear()
        assert self.told.wait(100)
        if self.interrupted:
            raise KeyboardInterrupt
        return super().compile(program, profile=profile, debug=debug)


@pytest.fixture
def slow(monkeypatch):
    target = Slow()
    monkeypatch.setitem(targets._registered, "slow", lambda: target)
    monkeypatch.setenv("TESSERA_TARGET", "slow")
    bundle = progress._bundle
    monkeypatch.setattr(progress, "_bundle", lambda what, seconds: target.told.set() or bundle(what, seconds))
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "_INTERVAL", 0.05)
    yield target
    targets._targets.pop("slow", None)


def test_a_long_compilation_is_told_and_the_note_goes_away(nb, slow):
    ran = nb.run(CELL)
    assert ran.error is None
    told = [d["text/plain"] for d in ran.displays]
    assert any(re.fullmatch(r"Compiling double for slow \.\.\. \d+\.\d s", text) for text in told)
    assert told[-2] == ""  # then the panel


def test_a_call_that_compiles_is_told_in_any_cell(nb, slow):
    nb.run("@ts.function\ndef triple(x: Tensor['n']) -> Tensor['n']:\n    return x * 3")
    slow.interrupted = True
    ran = nb.run("triple(np.ones(2, np.float32))")
    assert isinstance(ran.error, KeyboardInterrupt)
    assert "Compiling triple for slow" in ran.text
    slow.interrupted = False
    ran = nb.run("triple(np.ones(2, np.float32)).tolist()")
    assert "Compiling triple for slow" in ran.text
    assert ran.result == [3.0, 3.0]


def test_only_the_outermost_wait_is_told(nb, slow):
    nb.run(CELL)
    ran = nb.run("%tessera profile double(np.ones(2, np.float32))")
    texts = [d.get("text/plain", "") for d in ran.displays]
    assert {t.partition(" ...")[0] for t in texts if t.startswith(("Running ", "Compiling "))} == {
        "Running double(np.ones(2, np.float32))"
    }
    assert not any("magics.py" in t for t in texts)  # what the magic itself does is no line of the program


def test_what_is_quick_says_nothing(nb, monkeypatch):
    monkeypatch.setenv("TESSERA_TARGET", "reference")
    assert all("..." not in d.get("text/plain", "") for d in nb.run(CELL).displays)


def test_tuning_tells_which_configuration_it_is_at(nb, slow):
    nb.run(
        "@ts.kernel.autotune(space=dict(BLOCK=[16, 32, 64]))\n"
        "def tripled(x: ts.Tensor['n', ts.f32]) -> ts.Tensor['n', ts.f32]:\n"
        "    return x[ts.tile.linear_id()] * 3.0"
    )
    ran = nb.run("tripled(np.ones(20, np.float32)).tolist()")
    assert ran.result == [3.0] * 20
    assert "Tuning tripled for slow: BLOCK=32" in ran.text or "Tuning tripled for slow: BLOCK=64" in ran.text
    assert "Compiling tripled" not in ran.text  # one thing is told at a time


def test_what_a_tuning_has_found_is_drawn_while_it_goes_on_and_stays(nb, monkeypatch):
    """With the reason of each failure, and why the others lost."""
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    monkeypatch.setattr(progress, "_INTERVAL", 0.02)
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)  # as in a kernel of its own process
    nb.run(
        "@ts.kernel.autotune(space=dict(BLOCK=[64, 4096, 3, 65536]))\n"
        "def waves(x: ts.Tensor['n', ts.f32]) -> ts.Tensor['n', ts.f32]:\n"
        "    c = ts.tile.context()\n"
        "    assert c.BLOCK != 3, 'three is no size'\n"
        "    return ts.tile.exp(x[tile_n : tile_n + c.BLOCK])"
    )
    ran = nb.run("y = waves(np.ones(1_000_000, np.float32))")
    assert ran.error is None
    drawn = [d["text/html"] for d in ran.displays if "tessera-tuning" in d.get("text/html", "")]
    running = [html for html in drawn if "tessera-progress" in html]
    assert len(running) >= 2 and any("untried" in html or "nothing is timed yet" in html for html in running)
    rows = [row for html in running for row in html.split("<tr") if ">untried<" in row]
    assert rows and not any("✕" in row for row in rows), "it has not failed"
    assert sum("waves on cpu" in d.get("text/html", "") for d in ran.displays) == len(drawn), "nothing displays itself"
    assert "three is no size" in ran.displays[-1]["text/plain"]
    assert "three is no size" in drawn[-1] and "<svg" in drawn[-1]
    assert re.search(r"times (as long|slower)|within 2% of the best", drawn[-1])
    assert "tessera-progress" not in drawn[-1] and ran.displays[-1]["text/html"] == drawn[-1]
    assert str(nb["waves"].tuning_report().config["BLOCK"]) in drawn[-1].partition("</b>")[0]
