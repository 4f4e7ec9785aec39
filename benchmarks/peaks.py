"""Peak memory of a training step of twenty models: predicted from their text, and taken by a call.

Three kinds of steps: a gradient, a step of `TrainingState` with AdamW, and one of `ts.train` with AdamW. The prediction
is the one that editors show while the text is typed: nothing runs for it. What a step takes are its arguments, and what
the profiler has seen it allocate beside them. That includes scratch memory of workers, about half a megabyte for each,
which is not predicted. The time beside it is modelled for a machine of the table, not for the one that runs this.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NAME = "peaks within 5 % of predictions"
GOAL = 0.05
"""of the measured peak: how far a prediction may be off"""
HEAD = "import functools\nimport tessera as ts\nfrom tessera import Tensor, nn\n\n"
CLASSES = """
class Net(nn.Module):
    first: nn.Conv2d
    second: nn.Conv2d
    out: nn.Linear

    def __init__(self, channels, *, key):
        a, b, c = nn.init.split(key, 3)
        self.first = nn.Conv2d(1, channels, 3, key=a, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, key=b, padding=1)
        self.out = nn.Linear(channels * 16, 10, key=c)

    def __call__(self, x):
        h = ts.max_pool2d(ts.relu(self.first(x)), 2)
        return self.out(ts.reshape(ts.relu(self.second(h)), (x.shape[0], -1)))


class Reader(nn.Module):
    table: nn.Embedding
    blocks: nn.Stack
    norm: nn.RMSNorm

    def __init__(self, width, heads, layers, *, key, **options):
        a, b = nn.init.split(key, 2)
        self.table = nn.Embedding(256, width, key=a)
        self.blocks = nn.Stack(functools.partial(nn.TransformerBlock, width, heads, **options), layers, key=b)
        self.norm = nn.RMSNorm(width)

    def __call__(self, text):
        return self.table.transposed(self.norm(self.blocks(self.table(text))))
"""
FLAT, ROWS = 'Tensor["B", "D"]', (32768, 64)
LINES, WORDS = 'Tensor["B", "S", "D"]', (64, 256, 64)
TEXT, TEXTS = 'Tensor["B", "S", ts.int64]', (32, 256)
SQUARE = "ts.mean(ts.square(model(x)))"
MODELS: dict[str, tuple[str, str, tuple[int, ...], str]] = {
    "linear": ("nn.Linear(64, 128, key=0)", FLAT, ROWS, SQUARE),
    "MLP": ("nn.MLP(64, 256, key=0)", FLAT, ROWS, SQUARE),
    "MLP of relu": ("nn.MLP(64, 256, key=0, act=ts.relu)", FLAT, ROWS, SQUARE),
    "SwiGLU": ("nn.SwiGLU(64, 192, key=0)", FLAT, ROWS, SQUARE),
    "sequence": (
        "nn.Sequential(nn.Linear(64, 96, key=0), ts.tanh, nn.LayerNorm(96), nn.Linear(96, 64, key=1))",
        FLAT, ROWS, SQUARE,
    ),
    "stack of 4": ("nn.Stack(functools.partial(nn.MLP, 64, 128), 4, key=0)", FLAT, ROWS, SQUARE),
    "stack of 12": ("nn.Stack(functools.partial(nn.MLP, 64, 64), 12, key=0)", FLAT, ROWS, SQUARE),
    "stack under remat": (
        "nn.Stack(functools.partial(nn.MLP, 64, 128), 4, key=0)", FLAT, ROWS,
        "ts.mean(ts.square(ts.remat(lambda x: model(x))(x)))",
    ),
    "layer norm": ("nn.LayerNorm(64)", FLAT, (131072, 64), SQUARE),
    "RMS norm": ("nn.Sequential(nn.Linear(64, 64, key=0), nn.RMSNorm(64))", FLAT, ROWS, SQUARE),
    "bf16": (
        "nn.MLP(64, 256, key=0, dtype=ts.bf16)", 'Tensor["B", "D", ts.bf16]', ROWS,
        "ts.mean(ts.square(model(x).to(ts.f32)))",
    ),
    "convolutions": ("Net(16, key=0)", 'Tensor["B", 1, 8, 8]', (4096, 1, 8, 8), SQUARE),
    "attention": ("nn.MultiHeadAttention(64, 4, key=0)", LINES, WORDS, SQUARE),
    "grouped heads": ("nn.MultiHeadAttention(64, 4, key=0, groups=2, causal=True)", LINES, WORDS, SQUARE),
    "encoder": ("nn.EncoderLayer(64, 4, key=0)", LINES, WORDS, SQUARE),
    "rotary block": (
        "nn.TransformerBlock(64, 4, key=0, positions='rotary', feed_forward='swiglu')", LINES, WORDS, SQUARE,
    ),
    "language model": (
        "Reader(64, 4, 2, key=0)", TEXT, TEXTS, "ts.cross_entropy(model(x[:, :-1]), x[:, 1:])",
    ),
    "rotary language model": (
        "Reader(64, 4, 3, key=0, positions='rotary', feed_forward='swiglu')", TEXT, TEXTS,
        "ts.cross_entropy(model(x[:, :-1]), x[:, 1:])",
    ),
    "experts": ("nn.MixtureOfExperts(64, 128, 4, key=0)", FLAT, ROWS, "ts.mean(ts.square(model(x)[0]))"),
    "second derivative": (
        "nn.MLP(64, 128, key=0, act=ts.tanh)", FLAT, ROWS,
        "ts.mean(ts.square(ts.jvp(lambda x: model(x), (x,), (ts.ones_like(x),))[1]))",
    ),
}  # fmt: skip


STEPS = {
    "gradient": """
@ts.function
def step(model, x: {annotation}):
    return ts.value_and_grad(lambda model: {loss})(model)

def run(x):
    return step(model, x)

def arguments():
    return model
""",
    "state": """
state = ts.optimizers.TrainingState(model, ts.optimizers.AdamW(1e-3))

@ts.function
def step(state: ts.optimizers.TrainingState, x: {annotation}):
    value, gradient = ts.value_and_grad(lambda model: {loss})(state.model)
    state.step(gradient)
    return value

def run(x):
    return step(state, x)

def arguments():
    return state
""",
    "train": """
def loss(model, x: {annotation}):
    return {loss}

def data(i):
    return batch

def run(x):
    global trained, batch
    batch = x
    if trained is None:
        trained = ts.train(model, ts.optimizers.AdamW(1e-3), loss, data, steps=1, live=False)
    else:
        trained.resume(steps=trained.step + 1)

def arguments():
    return [trained.model, trained.optimizer]

trained = batch = None
""",
}
"""the text of each kind of step, and what it is given beside the batch"""


@dataclass(frozen=True, slots=True)
class Peak:
    name: str
    predicted: int
    measured: int
    least: float
    most: float
    """the predicted time in ms: of arithmetic and memory traffic that overlap wholly, and not at all"""
    took: float
    """in ms: the fastest of a few calls"""

    @property
    def off(self) -> float:
        """How far the prediction is off, as a part of what was measured."""
        return self.predicted / self.measured - 1


def peaks(part: int = 1, only: str = "", kinds: Iterable[str] = STEPS) -> Iterator[Peak]:
    """`part` divides batches."""
    for kind in kinds:
        for name, (model, annotation, shape, loss) in MODELS.items():
            if only in f"{name}, {kind}":
                text = f"{HEAD}{CLASSES}\n\nmodel = {model}\n{STEPS[kind].format(annotation=annotation, loss=loss)}"
                yield _peak(f"{name}, {kind}", text, annotation, (max(shape[0] // part, 1), *shape[1:]))


def _peak(name: str, text: str, annotation: str, shape: tuple[int, ...]) -> Peak:
    import numpy as np

    import tessera as ts

    rng = np.random.default_rng(0)
    x: Any = rng.integers(0, 256, shape) if "int64" in annotation else rng.standard_normal(shape).astype(np.float32)
    x = ts.asarray(x).astype(ts.bf16) if "bf16" in annotation else ts.asarray(x)
    with TemporaryDirectory() as folder:
        file = Path(folder, "peak_of_a_step.py")
        file.write_text(text)
        prediction = _predicted(str(file), text, dict(zip("BSD", shape, strict=False)))
        if prediction.bytes is None:
            raise SystemExit(f"{name}: {prediction.text}")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None
        module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        took = []
        for _ in range(4):
            start = time.perf_counter()
            module.run(x)
            took.append(time.perf_counter() - start)
        given = sum(ts.asarray(a).nbytes for a in (*ts.nn.tree.arrays(module.arguments()).values(), x))
        with ts.Profiler(tiles=False) as profile:
            module.run(x)
        del sys.modules[file.stem]
    events = profile.recording.memory
    taken = max(e.total for e in events) - (events[0].total - events[0].delta)
    us, most = prediction.us or 0.0, prediction.most_us or 0.0
    return Peak(name, prediction.bytes, given + taken, us / 1e3, most / 1e3, min(took) * 1e3)


def _predicted(file: str, text: str, sizes: dict[str, int]) -> Any:
    from tessera.compiler.frontend.incremental import FileAnalysis
    from tessera.compiler.predict import predict, predict_training

    analysed = FileAnalysis(file)
    analysed.update(text)
    if analysed.trainings:
        return predict_training(analysed.trainings[0], sizes, "cpu", math.inf)
    return predict(next(a for a in analysed.analyses if a.name == "step"), sizes, "cpu", largest=math.inf)


def row(part: int = 1) -> dict[str, Any]:
    """All models as one row of `python -m benchmarks training`."""
    found = list(peaks(part))
    inside = sum(abs(p.off) <= GOAL for p in found)
    return {
        "name": NAME, "value": float(inside), "unit": f"of {len(found)}",
        "ratio": inside / len(found), "goal": 1.0, "peers": {},
        "models": {p.name: {"predicted": p.predicted, "measured": p.measured} for p in found},
    }  # fmt: skip


def main() -> None:
    for p in peaks():
        print(
            f"{p.name:32s} predicted {p.predicted / 1e6:8.2f} MB   measured {p.measured / 1e6:8.2f} MB   {p.off:+6.1%}"
            f"   predicted {p.least:6.2f} to {p.most:6.2f} ms   measured {p.took:7.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
