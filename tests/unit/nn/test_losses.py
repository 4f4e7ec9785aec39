"""What losses say of predictions and targets that do not belong together."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tests.conftest import require

LOGITS = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
LABELS = np.array([0, 3, -100, 2])
"""the second is none of three classes"""


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("apply", [lambda f: f, ts.function], ids=["eager", "compiled"])
def test_the_loss_of_a_label_beyond_the_classes_is_nan(apply, smoothing):
    found = apply(lambda x, y: ts.cross_entropy(x, y, reduction="none", label_smoothing=smoothing))(LOGITS, LABELS)
    assert np.isnan(found).tolist() == [False, True, False, False] and float(found[2]) == 0
    assert np.isnan(apply(lambda x, y: ts.cross_entropy(x, y, label_smoothing=smoothing))(LOGITS, LABELS))
    fits = np.where(LABELS == 3, -1, LABELS)
    mean = apply(lambda x, y: ts.cross_entropy(x, y, label_smoothing=smoothing))(LOGITS, fits)
    assert float(mean) == pytest.approx(float(found[0] + found[3]) / 2, rel=1e-6)


def test_a_run_names_the_label():
    def loss(model, x, y):
        return ts.cross_entropy(model(x), y)

    wanted = r"item 1 takes label 3 at \[1\], which is none of the 3 classes 0 to 2 \(a label below 0 does not count\)"
    with pytest.raises(ts.DebugCheckError, match=wanted) as raised:
        ts.train(nn.Linear(3, 3, key=0), ts.optimizers.SGD(0.1), loss, [(LOGITS, LABELS)], steps=1, live=False)
    assert raised.value.diagnostics[0].span.file == __file__


def test_labels_that_are_no_numbers_of_classes():
    with pytest.raises(ts.CompileError, match=r"TS301(.|\n)*y.to\(ts.int64\) converts them$"):
        ts.cross_entropy(LOGITS, LABELS.astype(np.float32))
    with pytest.raises(ts.CompileError, match=r"TS301(.|\n)*y.argmax\(axis=-1\) gives those of one-hot rows"):
        ts.cross_entropy(LOGITS, LOGITS)


BY_PYTORCH = {
    nn.binary_cross_entropy: "binary_cross_entropy_with_logits",
    nn.huber: "huber_loss",
}


@pytest.mark.parametrize("loss", BY_PYTORCH, ids=BY_PYTORCH.values())
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_are_reduced_as_those_of_pytorch(loss, reduction):
    torch = require("torch")
    x, y = np.random.default_rng(0).uniform(-40, 40, (6, 3)), np.random.default_rng(1).random((6, 3))
    theirs = getattr(torch.nn.functional, BY_PYTORCH[loss])
    np.testing.assert_allclose(
        loss(x, y, reduction=reduction), theirs(torch.tensor(x), torch.tensor(y), reduction=reduction), rtol=1e-12
    )
    with pytest.raises(ts.LaunchError, match=r"TS213(.|\n)*'mean', 'sum' or 'none', not 'avg'"):
        loss(x, y, reduction="avg")


def test_positives_have_a_weight():
    torch = require("torch")
    x, y = np.random.default_rng(0).uniform(-90, 90, (6, 3)), np.random.default_rng(1).random((6, 3))
    theirs = torch.nn.functional.binary_cross_entropy_with_logits
    for weight in (2.5, np.array([0.5, 1.0, 4.0])):
        wanted = theirs(torch.tensor(x), torch.tensor(y), pos_weight=torch.tensor(weight))
        found = ts.function(lambda x, y, w: nn.binary_cross_entropy(x, y, pos_weight=w))(x, y, weight)
        np.testing.assert_allclose([found, nn.binary_cross_entropy(x, y, weight)], [wanted] * 2, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_triplets_are_those_of_pytorch(reduction):
    torch = require("torch")
    given = np.random.default_rng(0).normal(size=(3, 6, 4))
    for p in (1, 2):
        theirs = torch.nn.functional.triplet_margin_loss(*torch.tensor(given), margin=0.7, p=p, reduction=reduction)
        loss = ts.function(lambda a, x, y, p=p: nn.triplet_margin(a, x, y, 0.7, p, reduction))
        for found in (loss(*given), nn.triplet_margin(*given, 0.7, p, reduction)):
            np.testing.assert_allclose(found, theirs, rtol=1e-12)


STEPS, LENGTHS = np.array([12, 12, 9, 5, 2]), np.array([4, 3, 2, 0, 4])


def spoken():
    """Scores of 12 steps, and labels: two that are equal behind each other, three, none, and more than steps."""
    rng = np.random.default_rng(0)
    labels = rng.integers(1, 7, (5, 4))
    labels[0, 1], labels[1] = labels[0, 0], 3
    return rng.normal(size=(12, 5, 7)), labels


@pytest.mark.parametrize("options", [{}, {"zero_infinity": True}, {"reduction": "sum"}, {"reduction": "none"}], ids=str)
def test_ctc_is_that_of_pytorch(options):
    torch = require("torch")
    x, labels = spoken()
    theirs = torch.tensor(x, requires_grad=True)
    given = map(torch.tensor, (labels, STEPS, LENGTHS))
    wanted = torch.nn.functional.ctc_loss(torch.log_softmax(theirs, -1), *given, **options)

    def loss(x):
        return nn.ctc_loss(ts.log_softmax(x, -1), labels, STEPS, LENGTHS, **options)

    for found in (loss(x), ts.function(loss)(x)):
        np.testing.assert_allclose(found, wanted.detach(), rtol=1e-10)
    if options.get("zero_infinity"):
        wanted.backward()
        np.testing.assert_allclose(ts.grad(loss)(x), theirs.grad, atol=1e-12)


def test_ctc_with_another_blank_and_one_step():
    torch = require("torch")
    x, _ = spoken()
    labels, ones = np.array([[0]] * 5), np.ones(5, np.int64)
    given = [torch.tensor(a) for a in (labels, ones, ones)]
    wanted = torch.nn.functional.ctc_loss(torch.log_softmax(torch.tensor(x[:1]), -1), *given, blank=6)
    found = ts.function(lambda x: nn.ctc_loss(ts.log_softmax(x, -1), labels, ones, ones, blank=6))(x[:1])
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


LOSSES = {"mse": ts.mse, "huber": nn.huber, "binary_cross_entropy": nn.binary_cross_entropy}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4,), (4, 1))], ids=str)
def test_a_column_and_a_row_are_no_pairs(name, shapes):
    x, y = (np.ones(s, np.float32) for s in shapes)
    with pytest.raises(ts.TesseraError, match="TS213"):
        LOSSES[name](x, y)

    @ts.function
    def loss(x, y):
        return LOSSES[name](x, y)

    with pytest.raises(ts.CompileError, match=f"TS213 in loss(.|\n)*{name} compares") as raised:
        loss(x, y)
    assert raised.value.diagnostics[0].span.file == __file__


@pytest.mark.parametrize("name", LOSSES)
def test_pairs_and_numbers_are(name):
    @ts.function
    def loss(x: Tensor["B", "K"], y: Tensor["B", "K"]):
        return LOSSES[name](x, y) - LOSSES[name](x, 1.0)

    x = np.ones((4, 2), np.float32)
    assert float(loss(x, x)) == 0
