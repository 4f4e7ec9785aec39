"""The programs of examples/ that train, at a small size."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import FileAnalysis
from tests.conftest import require

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))  # as where it is run from: examples use each other
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
SMALL = {"width": 16, "heads": 2, "layers": 1, "length": 24, "count": 8, "say": quiet, "text": TEXT, "speak": 0}


def test_a_language_model_learns_and_resumes_to_the_bit(tmp_path):
    model = example("language_model")
    whole, pairs = model.train(steps=60, **SMALL)
    assert whole < 3.6 < math.log(256) and 2 < pairs < 3
    model.train(steps=60, until=20, folder=str(tmp_path), **SMALL)
    resumed, _ = model.train(steps=60, folder=str(tmp_path), **SMALL)
    assert resumed == whole


def test_a_language_model_writes_what_it_would_of_the_whole_text():
    """Byte by byte over caches, against all bytes so far at once."""
    gpt = example("language_model")
    model, prompt = gpt.make(16, 2, 2, key=1), b"hello, "
    whole = ts.function(lambda model, text: model(text))
    text = bytearray(prompt)
    for _ in range(6):
        given = np.frombuffer(bytes(text), np.uint8)[None]
        text.append(int(np.asarray(whole(model, given))[0, -1].argmax()))
    assert gpt.generate(model, prompt, 6) == bytes(text)
    drawn = gpt.generate(model, prompt, 6, temperature=1.0, seed=3)
    assert drawn == gpt.generate(model, prompt, 6, temperature=1.0, seed=3) and drawn.startswith(prompt)


def test_the_corpus_is_text_of_any_python():
    text = example("language_model").corpus()
    assert len(text) > 200_000 and text.dtype == np.uint8 and b"Return" in text.tobytes()


def test_a_vision_transformer_learns():
    vit, digits = example("vit"), example("digits")
    images, labels = digits.drawn(600, seed=3)
    moved = vit.moved(images, np.random.default_rng(0))
    assert moved.shape == images.shape and (moved == images).all((1, 2, 3)).mean() < 0.3
    assert vit.train(images, labels, rounds=20, width=24, layers=1, dropout=0.0, say=quiet) > 0.4


def test_an_lstm_learns():
    whole, pairs = example("lstm").train(120, width=16, hidden=24, length=16, count=8, text=TEXT, say=quiet)
    assert whole < 3.5 and 2 < pairs < 3


def test_experts_learn():
    model = example("mixture")
    whole, _ = model.train(120, width=16, heads=2, layers=2, experts=3, length=24, count=8, text=TEXT, say=quiet)
    assert whole < 3.6


def test_an_equation_is_solved():
    heat = example("heat")
    assert heat.train(150, width=16, count=64, say=quiet) < 0.1
    x = np.linspace(0, 1, 5, dtype=np.float32)
    u, zeros = heat.make(8), np.zeros(5, np.float32)
    np.testing.assert_allclose(u(x, zeros), np.sin(np.pi * x), atol=1e-6)
    np.testing.assert_allclose(u(zeros, x), zeros, atol=1e-6)


def test_learning_to_learn():
    maml = example("maml")
    before, after = maml.train(1000, width=24, count=10, say=quiet)
    assert np.isfinite(before) and after < before


def test_moons_come_out_of_noise():
    diffusion = example("diffusion")
    assert diffusion.train(600, width=24, layers=1, count=64, say=quiet) < 0.3
    added, left = diffusion.schedule()
    assert added.min() > 0 and left[0] > 0.99 and left[-1] < 0.01
    rng = np.random.default_rng(0)
    assert diffusion.apart(diffusion.moons(500, rng), diffusion.moons(500, rng)) < 0.01


def test_fine_tuning_by_adapters():
    lora = example("lora")
    before, after = lora.train(40, 40, width=16, heads=2, layers=1, rank=2, length=24, count=8, text=TEXT,
                               other=TEXT[::-1].copy(), say=quiet)  # fmt: skip
    assert after < before - 0.02
    assert len(lora.programs()) > 500_000


def test_adapters_are_merged_into_weights():
    lora, rng = example("lora"), np.random.default_rng(0)
    model = lora.make(16, 2, 2, key=0)
    narrow = lora.adapters(model, 2, key=1)
    text = TEXT[None, :20]
    assert np.array_equal(lora.evaluate(lora.adapted(model, narrow), text), lora.evaluate(model, text))
    for layer in narrow:
        for part in layer.values():
            part.up = rng.standard_normal(part.up.shape).astype(np.float32)
    one, two = (lora.evaluate(lora.adapted(model, narrow, put), text) for put in (lora.Added, lora.merged))
    np.testing.assert_allclose(one, two, rtol=1e-5)
    assert float(one) != float(lora.evaluate(model, text))


def test_handwritten_digits_are_read():
    require("sklearn")
    images, labels = example("digits").digits()
    assert images.shape == (1797, 1, 8, 8) and images.max() == 1
    assert example("digits").train(images, labels, rounds=6, say=quiet) >= 0.97


@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.py")))
def test_the_checker_finds_no_fault(name):
    path = EXAMPLES / f"{name}.py"
    file = FileAnalysis(str(path))
    file.update(path.read_text())
    assert [d.message for d in file.diagnostics] == []
