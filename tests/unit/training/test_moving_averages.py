"""Batch normalisation in `ts.train`: layers that are not told anything train as those of PyTorch, and their averages
move with each batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tessera as ts
from tessera import Tensor, nn

RNG = np.random.default_rng(0)
BATCHES = [
    (RNG.standard_normal((6, 2, 4, 4)).astype(np.float32), RNG.standard_normal((6, 3)).astype(np.float32))
    for _ in range(4)
]
OPT = ts.optimizers.SGD(0.1)


class Block(nn.Module):
    """A residual block as PyTorch's users write it."""

    def __init__(self, key: int):
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1, key=key), nn.BatchNorm2d(3)

    def forward(self, x):
        return ts.relu(self.norm(self.conv(x)) + x)


class Net(nn.Module):
    def __init__(self):
        self.stem = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, key=0), nn.BatchNorm2d(3), ts.relu)
        self.blocks = [Block(1), Block(2)]
        self.shared = nn.BatchNorm1d(3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = x.mean(axis=(2, 3))
        return self.shared(ts.relu(self.shared(x)) * 2 + x)  # used twice: its averages move twice


def loss(model, x, y):
    return ts.mse(model(x), y)


class Theirs(torch.nn.Module):
    """`Net` in PyTorch, with the same parameters."""

    def __init__(self, net: Net):
        super().__init__()
        self.convs = torch.nn.ModuleList([torch.nn.Conv2d(c, 3, 3, padding=1) for c in (2, 3, 3)])
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(3) for _ in range(3)])
        self.shared = torch.nn.BatchNorm1d(3)
        with torch.no_grad():
            for mine, ours in zip(self.convs, [net.stem[0], *(b.conv for b in net.blocks)], strict=True):
                mine.weight.copy_(torch.tensor(np.asarray(ours.weight)))
                mine.bias.copy_(torch.tensor(np.asarray(ours.bias)))

    def forward(self, x):
        x = torch.relu(self.norms[0](self.convs[0](x)))
        for i in (1, 2):
            x = torch.relu(self.norms[i](self.convs[i](x)) + x)
        x = x.mean((2, 3))
        return self.shared(torch.relu(self.shared(x)) * 2 + x)


def norms_of(net: Net) -> list[nn.BatchNorm1d | nn.BatchNorm2d]:
    return [net.stem[1], *(b.norm for b in net.blocks), net.shared]


@pytest.mark.parametrize("form", ["plain", "open"])
def test_averages_and_losses_are_those_of_pytorch(form: str) -> None:
    net = Net()
    theirs = Theirs(net)
    rule, expected = torch.optim.SGD(theirs.parameters(), lr=0.1), []
    for x, y in BATCHES:
        value = torch.nn.functional.mse_loss(theirs(torch.tensor(x)), torch.tensor(y))
        rule.zero_grad()
        value.backward()
        rule.step()
        expected.append(value.item())

    @ts.function(open_dims="B")
    def open_loss(model, x: Tensor["B", 2, 4, 4], y: Tensor["B", 3]):
        return loss(model, x, y)

    run = ts.train(net, OPT, loss if form == "plain" else open_loss, BATCHES, live=False, validation=BATCHES)
    np.testing.assert_allclose(run.history["loss"], expected, rtol=2e-5)
    for ours, other in zip(norms_of(run.model), [*theirs.norms, theirs.shared], strict=True):
        np.testing.assert_allclose(ours.mean, other.running_mean.numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ours.var, other.running_var.numpy(), rtol=1e-4, atol=1e-6)
    assert not np.asarray(net.shared.mean).any(), "the model that was given does not change"
    theirs.eval()  # validation uses the averages, and so does the model afterwards
    with torch.no_grad():
        found = [torch.nn.functional.mse_loss(theirs(torch.tensor(x)), torch.tensor(y)).item() for x, y in BATCHES]
        np.testing.assert_allclose(run.history.last("validation loss"), np.mean(found), rtol=1e-4)
        np.testing.assert_allclose(run.model(BATCHES[0][0]), theirs(torch.tensor(BATCHES[0][0])), rtol=1e-3, atol=1e-5)


def test_parts_of_a_step_move_them_one_after_the_other() -> None:
    """As four calls under PyTorch's accumulation do. The gradients are not compared: lr is 0."""
    run = ts.train(Net(), ts.optimizers.SGD(0.0), loss, BATCHES, steps=1, accumulate=4, live=False)
    other = ts.train(Net(), ts.optimizers.SGD(0.0), loss, BATCHES, steps=4, live=False)
    for one, two in zip(norms_of(run.model), norms_of(other.model), strict=True):
        assert np.array_equal(one.mean, two.mean) and np.array_equal(one.var, two.var)


@pytest.mark.parametrize("compute", [ts.bf16, ts.tf32], ids=["bf16", "tf32"])
def test_models_in_mixed_precision_move_them_too(compute, recwarn) -> None:
    """Products are narrow, and the norms are those of the model. The weights stay, as lr is 0."""
    still = ts.optimizers.SGD(0.0)
    plain = ts.train(Net(), still, loss, BATCHES, live=False)
    mixed = ts.train(Net().to_mixed_precision(compute=compute), still, loss, BATCHES, live=False)
    for one, two in zip(norms_of(plain.model), norms_of(mixed.model.model), strict=True):
        assert two.mean.dtype == ts.f32 and np.asarray(two.mean).any()
        np.testing.assert_allclose(two.mean, one.mean, atol=0.02)
        np.testing.assert_allclose(two.var, one.var, atol=0.02)
    assert not [w for w in recwarn if "TS374" in str(w.message)]


def test_a_resumed_run_has_the_same_averages(tmp_path) -> None:
    whole = ts.train(Net(), OPT, loss, BATCHES, live=False)
    ts.train(Net(), OPT, loss, BATCHES, steps=2, live=False, checkpoint=tmp_path)
    resumed = ts.train(Net(), OPT, loss, BATCHES, steps=4, live=False, checkpoint=tmp_path)
    for one, two in zip(norms_of(whole.model), norms_of(resumed.model), strict=True):
        assert np.array_equal(one.mean, two.mean) and np.array_equal(one.var, two.var)


def test_layers_under_remat_and_losses_that_return_the_model() -> None:
    """A layer that is told trains beside those that are not: the loss returns it."""

    class Both(nn.Module):
        def __init__(self):
            self.told, self.untold = nn.BatchNorm2d(2), nn.BatchNorm2d(2)

        def forward(self, x):
            y, told = self.told(x, training=True)
            return ts.remat(lambda y: self.untold(y * y))(y), self.replace(told=told)

    def both(model, x, y):
        out, model = model(x)
        return ts.mean(out * x), model

    run = ts.train(Both(), OPT, both, BATCHES[:1], live=False)
    assert np.asarray(run.model.told.mean).any()
    np.testing.assert_allclose(run.model.untold.mean, [0.1, 0.1], rtol=1e-3)  # of squares of what has variance 1
