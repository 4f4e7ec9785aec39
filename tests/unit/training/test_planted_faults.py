"""Faults planted into random losses: the first value that is not finite is found at its line."""

from __future__ import annotations

import importlib.util
import random

import numpy as np
import pytest

import tessera as ts
from tessera import nn

SAFE = [
    "ts.tanh({v})",
    "{v} * 1.5 + 0.1",
    "ts.softmax({v})",
    "model.down(model.act(model.up({v})))",
    "ts.where({v} > 0, {v}, 0.1 * {v})",
    "ts.where({v} > 0, ts.sqrt({v}), {v})",
    "{v} - ts.max({v}, axis=-1, keepdim=True)",
    "ts.sort({v})",
    "{v}[:, ::-1]",
    "ts.cumsum({v}, axis=-1) / 4.0",
    "ts.rms_norm({v}, model.down.bias + 1.0)",
    "ts.exp({v} - ts.max({v}, axis=-1, keepdim=True))",
    "{v} @ {v}.T @ {v} / 16.0",
    "ts.sin({v})",
    "ts.concat([ts.log({v} * 0.0 - 1.0), {v}])[8:]",
    "ts.clip({v}, -3.0, 3.0)",
    "ts.maximum({v}, 0.01 * {v})",
    "({v}.to(ts.bf16) * 2).to(ts.f32)",
]
FAULTS = [
    "ts.log({v} - 1000.0)",
    "ts.sqrt({v} * 0.0 - 1.0)",
    "{v} / ({v} * 0.0)",
    "ts.exp({v} * 0.0 + 200.0)",
    "ts.square({v} * 0.0 + 1e30)",
    "ts.sqrt(ts.square({v}) * 0.0)",
    "(ts.abs({v}) * 0.0) ** 0.5",
    "ts.log(ts.sum({v} * 0.0, axis=-1, keepdim=True) - 1.0) + {v}",
    "ts.where({v} < 1e9, ts.log({v} * 0.0 - 1.0), {v})",
    "ts.acos({v} * 0.0 + 2.0)",
    "ts.stack([ts.sqrt({v} * 0.0 - 1.0), ts.log({v} * 0.0 - 2.0)])[1]",
    "({v} * 0.0 + 300.0).to(ts.f16).to(ts.f32) * 1e37 * 1e37",
]
"""each gives NaN or infinity, forwards or backwards, and is one line"""


def planted(seed: int) -> tuple[str, int]:
    """A loss as text, and the line that is at fault."""
    rng = random.Random(seed)
    count = rng.randrange(2, 8)
    at = rng.randrange(count)
    lines = ["import tessera as ts", "def loss(model, x):", "    v0 = model(x)"]
    for i in range(count):
        form = rng.choice(FAULTS) if i == at else rng.choice(SAFE)
        lines.append(f"    v{i + 1} = {form.format(v=f'v{i}')}")
    lines.append(f"    return ts.mean(v{count})")
    return "\n".join(lines) + "\n", 4 + at


@pytest.mark.parametrize("seed", range(16))
def test_a_planted_fault_is_found(seed, tmp_path):
    text, line = planted(seed)
    file = tmp_path / f"planted_{seed}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    batch = np.random.default_rng(seed).standard_normal((8, 4)).astype(np.float32)
    model = nn.MLP(4, 8, key=seed)
    try:
        run = ts.train(model, ts.optimizers.SGD(0.1), module.loss, [batch], steps=1, live=False)
    except ts.DebugCheckError as raised:
        (found,) = raised.diagnostics
        assert (found.span.file, found.span.line) == (str(file), line), f"{text}\n{raised}"
    else:  # what follows has taken it away: a clip of infinity
        assert np.isfinite([*run.history["loss"], *run.history["grad_norm"]]).all(), text
        assert all(np.isfinite(p.numpy()).all() for p in run.model.parameters())
