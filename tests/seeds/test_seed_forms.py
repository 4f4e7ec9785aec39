"""Examples on training, layers, policies, state and effects, as the seed documents have them: what runs as written, and
what is refused with a reason. docs/status.md lists the latter. Names that the texts leave open are defined above them.
"""

from __future__ import annotations

import dataclasses
import linecache
import zlib
from typing import Any

import numpy as np
import pytest

import tessera
import tessera as ts
from tessera import nn
from tessera.training import monitor

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
HEAD = "from typing import *\nimport tessera\nimport tessera as ts\n" + (
    "from tessera import Int, KVCache, StatefulObject, StatefulTensor, Tensor, bf16, dropout, effect, f32, fp32, mse\n"
    "from dataclasses import dataclass\nDType = RoundingMode = Any\n"
)


def run(text: str, **names: Any) -> dict[str, Any]:
    """The names of a text that runs as a file of its own, whose annotations are evaluated."""
    file = f"<seed {zlib.crc32(text.encode())}>"
    whole = HEAD + text
    linecache.cache[file] = (len(whole), None, whole.splitlines(keepends=True), file)
    scope = {**names, "__name__": "seed"}
    exec(compile(whole, file, "exec", dont_inherit=True), scope)
    return scope


def test_train_step():
    """Overview, example 3, on one device."""
    found = run("""
@ts.jit
@ts.autodiff
def train_step(x, y, W):
    \"\"\"Training step with automatic gradient computation\"\"\"
    pred = ts.gemm(x, W)  # Automatically handles TP sharding
    loss = ts.mse(pred, y)
    return loss

# Gradients automatically handle distributed communication
grad_W = ts.grad(train_step)(x, y, W)
""", x=X, y=X, W=np.eye(4, dtype=np.float32))  # fmt: skip
    assert np.array_equal(found["grad_W"], np.zeros((8, 4)))  # by the first argument, as ts.grad does


def test_layer_norm_and_dynamic_model():
    found = run("""
@tessera.function
def dynamic_model(x: Tensor, steps: Int) -> Tensor:
    # Static unrolling when possible
    for i in tessera.static_range(steps):
        x = layer(x)

    # Dynamic with shape inference
    while tessera.norm(x) > threshold:
        x = normalize(x)

    # Conditional with branch prediction
    if tessera.is_training():
        x = dropout(x, p=0.1)

    return x
""", layer=lambda x: x * 2.0, normalize=lambda x: x / 2.0, threshold=3.0)  # fmt: skip
    model = found["dynamic_model"]
    np.testing.assert_array_equal(model(X, 3), X * 8 / 2 ** np.ceil(np.log2(np.linalg.norm(X * 8) / 3)))
    with pytest.raises(ts.CompileError, match=r"(?s)TS105.*dropout\(x, p=0\.1\).*needs 'key'.*the same key drops"):
        ts.compile(mode="training")(model)(X, 3)


def test_state_management():
    found = run("""
# Stateful objects for sequences and optimization
class KVCache(StatefulTensor):
    \"\"\"Manages key-value cache for attention\"\"\"
    shape: Tuple[str, ...] = ("B", "H", "S_max", "D_h")
    dtype: DType = bf16

    @effect("append")
    def append(self, k: Tensor, v: Tensor) -> None:
        # Efficient circular buffer append
        pass

    @effect("prefetch")
    def prefetch_window(self, start: int, end: int) -> None:
        # DMA to on-chip memory
        pass

class OptimizerState(StatefulObject):
    \"\"\"Manages optimizer state with mixed precision\"\"\"
    params: Dict[str, Tensor]
    momentum: Dict[str, Tensor @fp32]
    variance: Dict[str, Tensor @fp32]

    @effect("update")
    def step(self, grads: Dict[str, Tensor]) -> None:
        # Fused optimizer update
        pass
""")
    cache = found["KVCache"](B=1, H=2, S_max=8, D_h=4)
    assert (cache.shape, cache.dtype) == (("B", "H", "S_max", "D_h"), ts.bf16)
    state = found["OptimizerState"](*({"w": ts.ones((2,))} for _ in range(3)))
    assert state.step({"w": ts.ones((2,))}) is None and state.params["w"].tolist() == [1, 1]


def test_numerical_policies():
    found = run("""
@dataclass
class NumericalPolicy:
    accumulation: DType = f32
    rounding: RoundingMode = "nearest"
    loss_scale: float = 1.0
    saturate: bool = False
    deterministic: bool = False

@ts.function
def total(x: Tensor["B", "S", "D", bf16 @tessera.NumericalPolicy(accumulation=f32)]):
    return x.sum()
""")
    ours = {f.name for f in dataclasses.fields(ts.Policy)}
    assert {f.name for f in dataclasses.fields(found["NumericalPolicy"])} - {"accumulation"} <= ours
    assert float(found["total"](ts.ones((2, 3, 4), ts.bf16))) == 24
    model = nn.MLP(4, 8, key=0).to_mixed_precision(compute=ts.bf16, accumulate=ts.f32, storage=ts.fp8)
    assert "fp8_e4m3" in model.report


def test_the_standard_library():
    run("""
from tessera.nn import (
    # Attention variants
    FlashAttention2,
    FlashDecoding,
    PagedAttention,
    SlidingWindowAttention,

    # Optimized layers
    RMSNorm,
    LayerNorm,
    GroupNorm,
    RoPE,  # Rotary embeddings
    ALiBi,  # Attention with linear biases

    # Efficient operations
    FusedLinearGeLU,
    FusedLinearSiLU,
    FusedAdamW,
    FusedSGD,

    # Specialized modules
    MixtureOfExperts,
    TopKRouter,
    SwitchTransformer
)
# 1. Use stable primitives
from tessera.nn.stable import *
assert softmax_safe
""")


def test_monitoring_numerical_health():
    text = """
# 2. Monitor numerical health
@tessera.monitor_numerics
def training_loop():
    for batch in dataloader:
        loss = model(batch)

        # Automatic alerts on numerical issues
        if tessera.has_nan(loss):
            tessera.debug.dump_state()
            raise NumericalInstability()
"""

    @ts.function
    def model(x):
        return ts.mean(ts.log(x))  # the line

    run(text, dataloader=[X * X, X * X + 1], model=model)["training_loop"]()
    with pytest.raises(ts.DebugCheckError, match=r"(?s)TS371 in model.*# the line.*log of x takes -.* and gives NaN"):
        run(text, dataloader=[X * X, X], model=model)["training_loop"]()


def test_optimizers_of_the_trainers():
    """`Adam(model.parameters())`, `optimizer.step(loss)` and what is logged; without the loop's decorators."""
    model = nn.MLP(4, 8, key=0)
    found = run("""
optimizer = tessera.optimizers.Adam(model.parameters())
for step in range(steps):
    batch = next(dataset)
    loss = mse(model(batch), batch)
    optimizer.step(loss)
tessera.log({
    "loss": loss,
    "learning_rate": optimizer.lr,
    "gradient_norm": optimizer.grad_norm
})
""", model=model, steps=20, dataset=iter([X] * 20))  # fmt: skip
    monitor._unbound.close()  # what was logged, for the next test
    assert found["optimizer"].report.applied and float(found["loss"]) < float(ts.mse(nn.MLP(4, 8, key=0)(X), X))
    run("""
loss = mse(model(batch), batch)
loss.backward()
# Automatic gradient clipping
tessera.clip_grad_norm(model, max_norm=1.0)
optimizer.step()
""", model=model, optimizer=found["optimizer"], batch=X * 100)  # fmt: skip
    assert found["optimizer"].grad_norm == pytest.approx(1.0, rel=1e-4)


def test_fault_tolerance_of_a_loop_that_yields(tmp_path, monkeypatch):
    """The loop of the text, which yields its state in place of the `except`."""
    monkeypatch.chdir(tmp_path)
    model, rounds = nn.MLP(4, 8, key=0), []
    text = """
@tessera.checkpoint(interval=1000)
@tessera.fault_tolerant(max_restarts=3)
def resilient_training(
    model,
    dataset,
    steps: int = 100000,
    step: int = 0
):
    \"\"\"Automatic checkpointing and recovery\"\"\"
    optimizer = tessera.optimizers.Adam(model.parameters())

    for step in range(step, steps):
        batch = dataset(step)
        loss = mse(model(batch), batch)
        optimizer.step(loss)

        if step % 100 == 0:
            # Async checkpoint without blocking
            tessera.checkpoint.save_async(
                "aside",
                model=model,
                optimizer=optimizer,
                step=step
            )
        yield dict(model=model, step=step + 1)
"""

    def dataset(step):
        rounds.append(step)
        if rounds == [0, 1, 2]:
            raise ts.DeviceError("the device does not answer")
        return X

    with pytest.warns(RuntimeWarning, match="starts again, with 2 restarts left"):
        run(text)["resilient_training"](model, dataset, 4)
    assert rounds == [0, 1, 2, 2, 3] and ts.checkpoint.load("aside")["step"] == 0


REFUSED = {
    "a loop that does not yield": (
        """
@tessera.checkpoint(interval=1000)
@tessera.fault_tolerant(max_restarts=3)
def resilient_training(
    model: Model,
    dataset: Dataset,
    steps: int = 100000
):
    optimizer = tessera.optimizers.Adam(model.parameters())
    for step in range(steps):
        try:
            batch = dataset.next()
            loss = model(batch)
            optimizer.step(loss)
        except tessera.DeviceError as e:
            # Automatic recovery from device failure
            tessera.recover_and_continue()
""",
        r"TS105.*resilient_training does not pass on its state: .*yield dict\(model=",
    ),
    "recovery inside of a loop": ("tessera.recover_and_continue()", "leave out the try: @ts.fault_tolerant"),
    "effects as blocks": (
        """
@tessera.function
def efficient_attention(x: Tensor, cache: KVCache) -> Tensor:
    with tessera.effects.prefetch(cache, into="smem", overlap="compute"):
        return flash_attention(x, cache)
efficient_attention(ts.ones((1, 4)), KVCache(1, 1, 4, 4))
""",
        "TS104.*kernels load what they read ahead of its use by themselves",
    ),
    "a learned optimizer that is no module": (
        """
@tessera.meta_learning
class LearnedOptimizer:
    def __init__(self):
        self.update_net = tessera.nn.LSTM(
            input_size=4,  # grad, momentum, variance, lr
            hidden_size=32,
            output_size=1  # parameter update
        )
    @tessera.differentiable
    def step(self, params: Dict[str, Tensor], grads: Dict[str, Tensor]):
        return params
""",
        r"TS105.*write class LearnedOptimizer\(ts\.nn\.Module\)",
    ),
    "weights from nowhere": (
        """
@ts.function
def my_first_model(x: ts.Tensor["B", 784]) -> ts.Tensor["B", 10]:
    \"\"\"MNIST classifier\"\"\"
    x = ts.nn.linear(x, 256)
    x = ts.nn.relu(x)
    x = ts.nn.linear(x, 10)
    return ts.nn.softmax(x)
my_first_model(ts.ones((2, 784)))
""",
        r"TS213.*linear takes its weights.*hold nn\.Linear\(inputs, outputs, key=0\) in a module",
    ),
    "gradients that nobody adds": (
        """
with tessera.accumulate_gradients(steps=4):
    loss = forward(batch)
""",
        "TS105.*0 of 4 gradients were added",
    ),
    "other modes": ('@tessera.compile(mode="prefill")\ndef prefill(x): return x', "TS105.*'training' or 'inference'"),
}


@pytest.mark.parametrize("text, said", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(text, said):
    names = {"Model": nn.Module, "Dataset": list, "flash_attention": lambda x, cache: x}
    with pytest.raises((ts.TesseraError, AttributeError, TypeError), match=f"(?s){said}"):
        run(text, forward=float, batch=1, **names)


def test_the_lstm_of_the_learned_optimizer():
    net = tessera.nn.LSTM(input_size=4, hidden_size=32, output_size=1)
    assert net(X[:, None]).shape == (8, 1, 1) and net.out.weight.shape == (32, 1)
