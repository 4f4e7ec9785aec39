"""First values of layers: from a key, or from the stream that `ts.manual_seed` starts; never from a compilation."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.compiler.frontend.incremental import FileAnalysis
from tests.conftest import require

torch = require("torch")

LAYERS = {
    "Linear": lambda **key: nn.Linear(4, 3, **key),
    "Embedding": lambda **key: nn.Embedding(5, 3, **key),
    "Conv2d": lambda **key: nn.Conv2d(2, 3, 3, **key),
    "ConvTranspose1d": lambda **key: nn.ConvTranspose1d(2, 3, 3, **key),
    "MLP": lambda **key: nn.MLP(4, 8, **key),
    "SwiGLU": lambda **key: nn.SwiGLU(4, 8, **key),
    "MultiHeadAttention": lambda **key: nn.MultiHeadAttention(8, 2, **key),
    "TransformerBlock": lambda **key: nn.TransformerBlock(8, 2, **key),
    "DecoderLayer": lambda **key: nn.DecoderLayer(8, 2, **key),
    "Stack": lambda **key: nn.Stack(lambda key: nn.Linear(4, 4, key=key), 2, **key),
    "LSTM": lambda **key: nn.LSTM(4, 8, 2, **key),
    "GRU": lambda **key: nn.GRU(4, 8, **key),
    "MixtureOfExperts": lambda **key: nn.MixtureOfExperts(4, 8, experts=2, **key),
    "SwitchTransformer": lambda **key: nn.SwitchTransformer(8, 2, 2, 2, **key),
}


def values(model: nn.Module) -> bytes:
    return b"".join(p.numpy().tobytes() for p in model.parameters())


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_the_seed_decides_where_no_key_is_given(make):
    ts.manual_seed(3)
    first, second = values(make()), values(make())
    ts.manual_seed(3)
    again = values(make())
    assert first == again != second
    assert values(make(key=1)) == values(make(key=1)) != values(make(key=2))


def test_random_keys_are_those_of_the_seed_and_of_the_thread():
    ts.manual_seed(7)
    keys = [ts.random_key() for _ in range(100)]
    assert len({*keys}) == 100 and all(0 <= k < 2**63 for k in keys)
    ts.manual_seed(7)
    assert [ts.random_key() for _ in range(100)] == keys
    found: list[int] = []
    worker = threading.Thread(target=lambda: found.append(ts.random_key()))
    worker.start()
    worker.join()
    assert found[0] not in keys


class Net(nn.Module):
    def __init__(self, n):
        self.a = nn.Linear(n, 8)

    def forward(self, x):
        return self.a(x)


@ts.function
def a_layer(x: Tensor["B", 4]):
    return nn.Linear(4, 3)(x)


@ts.function
def a_model(x: Tensor["B", 4]):
    return Net(4)(x)


@ts.function
def a_key(x: Tensor["B", 4]):
    return x + ts.uniform(ts.random_key(), (4,))


@pytest.mark.parametrize("f", [a_layer, a_model, a_key], ids=["layer", "model", "key"])
def test_compiled_code_keeps_no_random_values(f):
    with pytest.raises(ts.CompileError, match=r"(?s)TS105.*compiled code would keep the first ones"):
        f(np.ones((2, 4), np.float32))


def test_a_key_may_be_given_inside():
    @ts.function
    def keyed(x: Tensor["B", 4]):
        return nn.Linear(4, 3, key=0)(x)

    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(keyed(x), nn.Linear(4, 3, key=0)(x))


def test_a_text_is_refused_at_the_authors_line():
    text = """import tessera as ts
from tessera import Tensor, nn

@ts.function
def f(x: Tensor["B", 4]):
    return nn.Linear(4, 3)(x)

model = nn.Linear(4, 3)
"""
    file = FileAnalysis("/work/layers.py")
    file.update(text)
    (wrong,) = [d for d in file.diagnostics if d.severity == "error"]
    assert (wrong.code, wrong.span.line) == ("TS105", 6) and "compiled code would keep" in wrong.message


STREAM = np.random.default_rng(0)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + np.random.randn(3),
        lambda x: x + np.random.default_rng().standard_normal(3),
        lambda x: x + STREAM.standard_normal(3),
        lambda x: x * random.random(),
        lambda x: x + torch.randn(3),
    ],
    ids=["module", "no seed", "stream from outside", "python", "torch"],
)
def test_a_program_does_not_keep_the_numbers_of_a_stream(draw):
    with pytest.raises(ts.CompileError, match=r"TS105(.|\n)*compiled code would keep the first ones; give a key"):
        ts.function(draw)(np.ones(3))


def test_seeded_numbers_are_constants():
    found = ts.function(lambda x: x + np.random.default_rng(7).standard_normal(3))(np.zeros(3))
    np.testing.assert_array_equal(found, np.random.default_rng(7).standard_normal(3))


def test_keys_of_a_key_are_the_same_in_functions_and_outside():
    @ts.function
    def drawn(key: ts.int64):
        first, second = ts.split_key(key, 2)
        return ts.normal(first, (4,)), ts.normal(second, (4,)), nn.init.split(key, 2)[1]

    @ts.function
    def each(keys: Tensor["N", ts.int64]):
        return ts.vmap(lambda key: ts.normal(ts.split_key(key, 2)[0], (4,)))(keys)

    a, b = ts.split_key(7, 2)
    assert (a, b) == tuple(nn.init.split(7, 2)) == tuple(map(int, ts.split_key(ts.tensor(7, ts.int32), 2)))
    first, second, other = drawn(7)
    assert np.array_equal(first, ts.normal(a, (4,))) and np.array_equal(second, ts.normal(b, (4,))) and other == b
    assert np.array_equal(each(np.array([3, 7]))[1], first)


def test_what_is_no_key():
    for wrong in (2.5, ts.tensor(2.5)):
        with pytest.raises(ts.CompileError, match="TS301"):
            ts.split_key(wrong, 2)
    with pytest.raises(ts.CompileError, match=r"ts\.split_key\(key, n\) makes keys of a key"):
        ts.split(7, 2)
    with pytest.raises(AttributeError, match="split_key"):
        _ = ts.random
