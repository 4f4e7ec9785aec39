"""What outputs offer to pages: fixes as edits of cells, and hints by name."""

from __future__ import annotations

import pytest
from tessera_jupyter.actions import MIME, MOST_PROFILES, shown_hints

from tessera.profiler import Profiler
from tessera.profiler.rules import hint as rules_hint
from tessera.profiler.trial.outcome import TriedHint
from tessera.profiler.trial.paired import PairedTimes

BROKEN = """# größe 𝒳
@ts.function
def norm(x: Tensor["B", "D"]) -> Tensor["B", "D"]:
    mean = x.mean(axis=-1)
    return x - mean
"""
MENDED = BROKEN.replace("axis=-1", "axis=-1, keepdim=True")
KERNEL = """%%tessera --profile "product(x, x)" --show hints
x = np.ones((160, 160), np.float32)

@ts.kernel(BM=4, BN=4)
def product(a: Tensor["M", "K"], b: Tensor["K", "N"]) -> Tensor["M", "N"]:
    c = ts.tile.context()
    return a[tile_m : tile_m + c.BM, :] @ b[:, tile_n : tile_n + c.BN]
"""


def applied(fix):
    """The cell's text after the edits, which count UTF-16 units."""
    text = fix["cell"].encode("utf-16-le")
    for edit in sorted(fix["edits"], key=lambda e: -e["start"]):
        text = text[: 2 * edit["start"]] + edit["text"].encode("utf-16-le") + text[2 * edit["end"] :]
    return text.decode("utf-16-le")


@pytest.mark.parametrize("head", ["%%tessera\n", "\n\n%%tessera --target cpu\n"])
def test_a_fix_is_an_edit_of_the_cell(nb, head):
    (shown,) = nb.run(head + BROKEN).displays
    (fix,) = shown[MIME]["fixes"]
    assert fix["cell"] == (head + BROKEN).rstrip("\n")
    assert applied(fix) == (head + MENDED).rstrip("\n")
    assert "Fix</b>: Add keepdim=True" in shown["text/html"], "hosts without buttons show it as words"


def test_a_fix_of_a_plain_cell_is_for_the_cell_that_defined(nb):
    nb.run(BROKEN)
    (shown,) = nb.run("norm(np.ones((2, 3), np.float32))").displays
    (fix,) = shown[MIME]["fixes"]
    assert applied(fix) == MENDED.rstrip("\n")


def test_columns_count_as_editors_count(nb):
    text = '%%tessera\n@ts.function\ndef f(x: Tensor["n"]):\n    y = "𝒳𝒳"; return ts.expp(x)\n'
    (shown,) = nb.run(text).displays
    found = [fix for fix in shown[MIME]["fixes"] if fix]
    assert text.replace("ts.expp", "ts.exp").rstrip("\n") in map(applied, found)


def test_a_cell_that_a_magic_rewrote_has_no_edit(nb):
    nb.run(f"text = {BROKEN!r}\nget_ipython().run_cell_magic('tessera', '', text)")
    shown = nb.run("get_ipython().run_cell_magic('tessera', '', text)").displays[0]
    assert MIME not in shown


@pytest.fixture
def tried(nb, monkeypatch):
    """The rules that were tried; each trial says the same."""
    found = []

    def attempt(trial, hint, budget, tolerance):
        found.append(hint.rule)
        times = PairedTimes((2.0,) * 12, (1.0,) * 12)
        return TriedHint(hint.title, hint.change, hint.predicted, "- BM=4\n+ BM=8", "equal bits", times)

    monkeypatch.setattr(rules_hint, "attempt", attempt)
    return found


def names(ran):
    return [name for d in ran.displays for name in d.get(MIME, {"hints": ()})["hints"] if name]


def test_a_hint_is_tried_by_its_name(nb, tried):
    name, *_ = names(nb.run(KERNEL))
    ran = nb.run(f"%tessera try --hint {name}")
    assert ran.error is None and len(tried) == 1
    panel = ran.displays[-1]["text/html"]
    assert "tried: <b>faster</b>" in panel and ">50.0%<" in panel and "predicted" in panel
    assert 'class="ts-tab ts-hints" open data-first' in panel


STEP = """%%tessera
@ts.function
def dense(x: Tensor["K"], w: Tensor["K", "N"]):
    return ts.tanh(x @ w)
"""
EACH = """%%tessera --profile "each(xs, w)" --show hints
xs, w = np.ones((200, 16), np.float32), np.ones((16, 16), np.float32)

def each(xs, w):
    return [dense(x, w) for x in xs]
"""


def test_a_loop_of_one_cell_over_a_function_of_another(nb):
    nb.run(STEP)
    ran = nb.run(EACH)
    assert "legality: no call reads what another one gives" in ran.displays[-1]["text/html"]
    ran = nb.run(f"%tessera try --hint {names(ran)[0]}")
    panel = ran.displays[-1]["text/html"]
    assert "list(ts.vmap(dense, in_axes=(0, None))(np.asarray(xs), w))" in panel and "equal bits" in panel


def test_an_interrupted_trial_keeps_nothing(nb, tried, monkeypatch):
    name, *_ = names(nb.run(KERNEL))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(rules_hint, "attempt", interrupted)
    ran = nb.run(f"%tessera try --hint {name}")
    assert ran.error is None and "Interrupted: nothing was changed" in ran.stdout
    assert not ran.displays


@pytest.mark.parametrize("name", ["0000abcd.0", "x", "1.x"])
def test_a_hint_of_another_session_is_refused(nb, name):
    assert "profile again" in nb.run(f"%tessera try --hint {name}").stderr


def test_the_oldest_profiles_are_let_go(nb):
    first = Profiler()
    word = shown_hints(first).word
    kept = [Profiler() for _ in range(MOST_PROFILES)]
    for profile in kept:
        shown_hints(profile)
    assert "profile again" in nb.run(f"%tessera try --hint {word}.0").stderr
