"""The training programs of the seed documents, as near to their texts as can be sound.

Models and optimizers' states are values here, and have names. test_seed_forms.py has the examples that run as written.
"""

from __future__ import annotations

import numpy as np
import pytest

import tessera
from tessera import Tensor, bf16, f32, nn
from tessera.training import monitor


class Model(nn.Module):
    inner: nn.MLP

    @tessera.compile(mode="training")
    def forward(self, input_ids: Tensor["B", "D"], labels: Tensor["B", tessera.int64]):
        # Numerically stable loss
        return tessera.nn.cross_entropy_safe(self.inner(input_ids), labels, label_smoothing=0.1)


@tessera.compile(mode="training")
def gradient_of(model: Model, input_ids: Tensor["B", "D"], labels: Tensor["B", tessera.int64]):
    return tessera.value_and_grad(lambda model: model.forward(input_ids, labels))(model)


RNG = np.random.default_rng(0)
IDS = RNG.standard_normal((8, 4)).astype(np.float32)
LABELS = RNG.integers(0, 4, 8)


def dataset(count):
    for _ in range(count):
        yield IDS, LABELS


def test_the_trainer_of_a_language_model(tmp_path, capsys):
    @tessera.checkpoint(tmp_path, every=10)
    def train(model, optimizer, step=0):
        rule = tessera.optimizers.AdamW(lr=1e-2, weight_decay=0.1)
        for step, batch in enumerate(dataset(25 - step), step):  # noqa: B020
            # Gradient accumulation
            with tessera.accumulate_gradients(steps=4) as total:
                for part in range(4):
                    loss, gradient = gradient_of(model, *(a[part * 2 : part * 2 + 2] for a in batch))
                    total.add(gradient)

            # Gradient clipping
            gradient, grad_norm = tessera.clip_grad_norm(total.gradient, max_norm=1.0)

            # Optimizer step
            model, optimizer = rule.update(model, gradient, optimizer)

            # Logging
            tessera.log({"loss": loss, "learning_rate": rule.lr, "gradient_norm": grad_norm})
            yield {"model": model, "optimizer": optimizer, "step": step + 1}

    model = Model(nn.MLP(4, 8, key=0))
    last = train(model, optimizer=tessera.optimizers.AdamW(lr=1e-2).init(model))
    assert last["step"] == 25 and float(last["model"].forward(IDS, LABELS)) < float(model.forward(IDS, LABELS))
    assert train(model, optimizer=last["optimizer"])["step"] == 25  # recovered, and at its end
    monitor._unbound.close()
    assert "25 steps" in (said := capsys.readouterr().out) and "gradient_norm" in said


million = 1_000_000


# 3. Use appropriate accumulation precision
@tessera.accumulate(f32)
def sum_large_array(x: Tensor[million, bf16]):
    # Accumulates in FP32 despite BF16 input
    return x.sum()


def test_numerical_stability():
    assert float(sum_large_array(tessera.ones((million,), bf16))) == 999424  # the nearest bf16
    assert not tessera.has_nan(tessera.ones(3)) and tessera.has_nan(np.array([1.0, np.nan]))


def test_a_learned_optimizer():
    @tessera.meta_learning
    class LearnedOptimizer(nn.Module):
        """Optimizer that learns to optimize"""

        update_net: nn.LSTM
        out: nn.Linear

        @tessera.differentiable
        def step(self, params: dict, grads: dict):
            """Learned optimization step"""
            updates = {}
            for name, param in params.items():
                # Network predicts optimal update
                features = tessera.stack([grads[name], param])
                update = self.out(self.update_net(features.T[:, None]))[:, 0, 0]
                updates[name] = param - update
            return updates

    def task_loss(params):
        return tessera.sum(tessera.square(params["w"] - 2.0))

    def meta_loss(optimizer, w: Tensor["D"]):
        # Optimize the optimizer
        params = {"w": w}
        for _ in range(3):
            params = optimizer.step(params, tessera.grad(task_loss)(params))
        return task_loss(params)

    learned = LearnedOptimizer(nn.LSTM(2, 4, key=0), nn.Linear(4, 1, key=1))
    tasks = [np.array([0.5, -1.0], np.float32), np.array([1.0, 3.0], np.float32)]
    run = tessera.train(learned, tessera.optimizers.Adam(2e-2), meta_loss, tasks, steps=60, live=False)
    assert run.history["loss"][-2:].sum() < run.history["loss"][:2].sum() / 4


def test_what_is_no_module_learns_nothing():
    with pytest.raises(tessera.LaunchError, match=r"(?s)TS105.*write class LearnedOptimizer\(ts\.nn\.Module\)"):

        @tessera.meta_learning
        class LearnedOptimizer:
            def __init__(self):
                self.update_net = None
