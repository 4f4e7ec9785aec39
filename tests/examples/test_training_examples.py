"""The programs of examples/ that train, at a small size."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tessera.compiler.frontend.incremental import FileAnalysis

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def quiet(*_):
    pass


def test_digits_are_read():
    digits = example("digits")
    images, labels = digits.drawn(600, seed=3)
    assert images.shape == (600, 1, 8, 8) and images.min() >= 0 and images.max() <= 1
    assert digits.train(images, labels, rounds=3, say=quiet) > 0.8


TEXT = np.frombuffer((EXAMPLES.parent / "LICENSE").read_bytes(), np.uint8)
SMALL = {"width": 16, "heads": 2, "layers": 1, "length": 24, "count": 8, "say": quiet, "text": TEXT}


def test_a_language_model_learns_and_resumes_to_the_bit(tmp_path):
    model = example("language_model")
    whole, pairs = model.train(steps=60, **SMALL)
    assert whole < 3.6 < math.log(256) and 2 < pairs < 3
    model.train(steps=60, until=20, folder=str(tmp_path), **SMALL)
    resumed, _ = model.train(steps=60, folder=str(tmp_path), **SMALL)
    assert resumed == whole


def test_the_corpus_is_text_of_any_python():
    text = example("language_model").corpus()
    assert len(text) > 200_000 and text.dtype == np.uint8 and b"Return" in text.tobytes()


@pytest.mark.parametrize("name", ["digits", "language_model"])
def test_the_checker_finds_no_fault(name):
    path = EXAMPLES / f"{name}.py"
    file = FileAnalysis(str(path))
    file.update(path.read_text())
    assert [d.message for d in file.diagnostics] == []
