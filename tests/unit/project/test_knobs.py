"""Settings from the environment: types, defaults, refusals, and that they are read in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera import knobs
from tessera.errors import TesseraError

ROOT = Path(knobs.__file__).parents[1]


@pytest.mark.parametrize(
    ("knob", "text", "value"),
    [
        (knobs.cache_dir, "~/tessera", Path.home() / "tessera"),
        (knobs.cache_limit, "0", 0),
        (knobs.cache_limit, "500MB", 500 * 10**6),
        (knobs.cache_limit, "1.5 GiB", 3 * 2**29),
        (knobs.cache_limit, "12", 12),
        (knobs.target, "sm_90a", "sm_90a"),
        (knobs.num_threads, "3", 3),
        (knobs.debug, "1", True),
        (knobs.debug, "off", False),
        (knobs.dump, "/tmp/ir", Path("/tmp/ir")),
    ],
)
def test_values(knob, text, value):
    with knob.override(text):
        assert knob() == value


@pytest.mark.parametrize(
    ("knob", "text", "allowed"),
    [
        (knobs.cache_limit, "much", "a size such as 500MB"),
        (knobs.cache_limit, "5 parsecs", "a size such as 500MB"),
        (knobs.cache_limit, "-1", "a size such as 500MB"),
        (knobs.cache_limit, "MB", "a size such as 500MB"),
        (knobs.num_threads, "0", "a number from 1 to 1024"),
        (knobs.num_threads, "-2", "a number from 1 to 1024"),
        (knobs.num_threads, "two", "a number from 1 to 1024"),
        (knobs.num_threads, "²", "a number from 1 to 1024"),
        (knobs.debug, "maybe", "1 or 0"),
    ],
)
def test_bad_values_say_what_is_allowed(knob, text, allowed):
    with knob.override(text), pytest.raises(TesseraError, match=allowed) as e:
        knob()
    assert e.value.code == "TS607"
    assert f"{knob.variable}={text!r}" in str(e.value)


def test_defaults(monkeypatch):
    for knob in knobs.KNOBS:
        monkeypatch.delenv(knob.variable, raising=False)
    assert knobs.cache_dir().name == "tessera"
    assert knobs.cache_limit() == 10**9
    assert knobs.target() == "auto"
    assert knobs.num_threads() >= 1
    assert knobs.debug() is False
    assert knobs.dump() is None
    with knobs.target.override(""):
        assert knobs.target() == "auto"


def test_overriding_ends_with_the_block():
    with knobs.num_threads.override(5):
        with knobs.num_threads.override(None):
            assert "TESSERA_NUM_THREADS" not in __import__("os").environ
        with pytest.raises(ZeroDivisionError), knobs.num_threads.override(7):
            assert knobs.num_threads() == 7
            raise ZeroDivisionError
        assert knobs.num_threads() == 5


def test_every_variable_is_read_here_only():
    """No other source looks at a TESSERA_ variable, and none is spoken of that does not exist."""
    known = {k.variable for k in knobs.KNOBS}
    for folder in ("tessera", "lsp", "jupyter_ext"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert set(re.findall(r"\bTESSERA_[A-Z_]+\b", text)) <= known, file
            if file.name != "knobs.py":
                assert not re.search(r"environ[^\n]*TESSERA_|getenv[^\n]*TESSERA_", text), file


def test_the_table_has_them_all():
    rows = knobs.table()
    assert len(rows) == len({r[0] for r in rows}) == len(knobs.KNOBS)
    assert all(variable.startswith("TESSERA_") and default and doc.endswith(".") for variable, default, doc in rows)
