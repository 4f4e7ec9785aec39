"""Convolution and pooling against PyTorch, with their derivatives; sizes known at launch; the emulator; refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.conftest import require
from tests.differential.test_derivatives_at_special_points import of_torch, pulled

torch = require("torch")
F = torch.nn.functional

CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("conv1d", (2, 4, 11), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    ("conv1d", (1, 1, 5), (1, 1, 1), {"padding": 2}),
    ("conv2d", (2, 3, 7, 9), (5, 3, 3, 2), {"stride": (3, 2), "padding": (2, 1), "dilation": (2, 1)}),
    ("conv2d", (1, 4, 6, 5), (8, 1, 3, 3), {"groups": 4, "padding": "same"}),
    ("conv3d", (1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"stride": (1, 2, 3), "padding": 1}),
    ("conv_transpose1d", (2, 4, 5), (4, 3, 4), {"stride": 3, "padding": 2, "output_padding": 1, "groups": 2}),
    ("conv_transpose2d", (1, 2, 4, 3), (2, 3, 3, 2), {"stride": 2, "output_padding": (2, 1), "dilation": (3, 2)}),
    ("conv_transpose2d", (2, 4, 3, 4), (4, 3, 2, 3), {"stride": (3, 3), "padding": (1, 0), "groups": 2}),
    ("conv_transpose1d", (1, 2, 3), (2, 3, 12), {"stride": 10, "padding": 4, "output_padding": 3}),
    ("conv_transpose1d", (1, 2, 1), (2, 2, 4), {"stride": 3, "padding": 2, "output_padding": 1}),
    ("conv_transpose3d", (1, 2, 2, 3, 2), (2, 1, 2, 2, 3), {"stride": (2, 1, 2), "padding": (0, 1, 0)}),
]
POOLS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("max_pool1d", (2, 3, 11), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    ("max_pool2d", (2, 3, 7, 8), {"kernel_size": (2, 3)}),
    ("max_pool2d", (1, 2, 9, 9), {"kernel_size": 7, "stride": 1, "padding": 3}),
    ("max_pool3d", (1, 2, 4, 5, 6), {"kernel_size": 2, "stride": (1, 2, 3)}),
    ("avg_pool1d", (2, 3, 9), {"kernel_size": 4, "stride": 3, "padding": 2}),
    ("avg_pool2d", (2, 3, 7, 8), {"kernel_size": 3, "padding": 1, "stride": 2, "count_include_pad": False}),
    ("avg_pool3d", (1, 1, 4, 5, 4), {"kernel_size": (3, 5, 3)}),
]


def named(case: Any) -> str:
    return f"{case[0]}{case[-1]}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_convolutions_and_their_derivatives(case: Any) -> None:
    name, of_x, of_weight, attrs = case
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=of_x), rng.normal(size=of_weight)
    results = of_weight[0] if not name.startswith("conv_t") else of_weight[1] * attrs.get("groups", 1)
    bias = rng.normal(size=results)

    def peer(*values: Any) -> Any:
        return getattr(F, name)(*values, **attrs)

    want = peer(*map(torch.tensor, (x, weight, bias))).numpy()
    found = np.asarray(ts.function(lambda x, w, b: getattr(ts, name)(x, w, b, **attrs))(x, weight, bias))
    np.testing.assert_allclose(found, want, 1e-10, 1e-12)
    ct = rng.normal(size=want.shape)
    for mine, theirs in zip(
        pulled(name, ct, x, weight, bias, **attrs), of_torch(peer, ct, x, weight, bias), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, 1e-10, 1e-12)


@pytest.mark.parametrize("case", POOLS, ids=named)
def test_pooling_and_its_derivatives(case: Any) -> None:
    """With ties: of equal elements the first gets the derivative."""
    name, shape, attrs = case
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, shape).astype(float)

    def peer(v: Any) -> Any:
        return getattr(F, name)(v, **attrs)

    want = peer(torch.tensor(x)).numpy()
    np.testing.assert_allclose(np.asarray(getattr(ts, name)(x, **attrs)), want, 1e-12)
    ct = rng.normal(size=want.shape)
    np.testing.assert_allclose(pulled(name, ct, x, **attrs)[0], of_torch(peer, ct, x)[0], 1e-12, 1e-12)


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
def test_sizes_known_at_launch(target: str, monkeypatch: Any) -> None:
    if target.startswith("emulator"):
        require("g++")
    monkeypatch.setenv("TESSERA_TARGET", target)

    @ts.function
    def net(x: ts.Tensor["B", 2, "H", "W", ts.f32], w: ts.Tensor[3, 2, 3, 3, ts.f32], b: ts.Tensor[3, ts.f32]):
        return ts.relu(ts.conv2d(x, w, b, stride=2))

    rng = np.random.default_rng(0)
    for shape in ((1, 2, 6, 9), (0, 2, 8, 8)):
        x, w, b = (rng.normal(size=s).astype(np.float32) for s in (shape, (3, 2, 3, 3), (3,)))
        want = F.relu(F.conv2d(*map(torch.tensor, (x, w, b)), stride=2)).numpy()
        np.testing.assert_allclose(np.asarray(net(x, w, b)), want, 1e-5, 1e-6)


def test_sizes_known_at_launch_do_not_change_bits_of_transposed_convolutions() -> None:
    def known(x: Any, w: Any, v: Any) -> Any:
        return [
            ts.conv_transpose2d(x, w, stride=2, padding=1),
            ts.conv_transpose2d(x, w, stride=(2, 3), dilation=(3, 2)),
            ts.conv_transpose2d(x, v, stride=2),
        ]

    def opened(x: ts.Tensor["B", 130, "H", "W"], w: ts.Tensor[130, 2, 3, 3], v: ts.Tensor[130, 2, 2, 2]) -> Any:
        return known(x, w, v)

    rng = np.random.default_rng(0)
    w, v = (rng.normal(size=(130, 2, n, n)).astype(np.float32) for n in (3, 2))
    for size in ((1, 1), (4, 5)):
        x = rng.normal(size=(2, 130, *size)).astype(np.float32)
        for mine, theirs in zip(ts.function(known)(x, w, v), ts.function(opened)(x, w, v), strict=True):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_80"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_in_f32(dtype: str, target: str) -> None:
    """Results and derivatives are rounded once; the CPU reads windows where they are, as halves."""
    if target.startswith("emulator"):
        require("g++")
    rng = np.random.default_rng(0)
    shapes = (2, 34, 7, 9), (18, 17, 3, 2), (18,), (2, 18, 3, 8)
    x, w, b, ct = (torch.tensor(rng.normal(size=s)).to(getattr(torch, dtype)) for s in shapes)
    attrs = {"stride": (2, 1), "groups": 2}

    @ts.function
    def both(x: Any, w: Any, b: Any, ct: Any) -> Any:
        return ts.conv2d(x, w, b, **attrs), *ts.vjp(lambda *v: ts.conv2d(*v, **attrs), x, w, b)[1](ct)

    def peer(*values: Any) -> Any:
        return F.conv2d(*values, **attrs)

    exact = [v.double().numpy() for v in (x, w, b)]
    want = [peer(*map(torch.tensor, exact)).numpy(), *of_torch(peer, ct.double().numpy(), *exact)]
    compiled = ts.compile(both, target=target, arguments=(x, w, b, ct))
    for mine, theirs in zip(compiled(x, w, b, ct), want, strict=True):
        assert mine.dtype == x.dtype
        np.testing.assert_allclose(mine.double().numpy(), theirs, 2**-8 if dtype[0] == "b" else 2**-11, 2e-5)
    if target == "cpu":
        alone = ts.compile(lambda x, w: ts.conv2d(x, w, groups=2), target="cpu", arguments=(x, w))
        assert len(alone.lowered.program.launches) == 1
        _, tangent = ts.jvp(lambda x, w: ts.conv2d(x, w, groups=2), (x, w), (x, w))
        np.testing.assert_allclose(torch.as_tensor(tangent).double(), 2 * alone(x, w).double(), 2**-6, 0.1)


REFUSED = [
    (lambda x: ts.conv2d(x, ts.ones((4, 3, 2, 2))), "needs weights for 2, not for 3"),
    (lambda x: ts.conv2d(x, ts.ones((4, 2, 9, 2))), "does not fit an axis of 5"),
    (lambda x: ts.conv2d(x, ts.ones((3, 1, 2, 2)), groups=2), "3 results do not fall into 2 groups"),
    (lambda x: ts.conv2d(x, ts.ones((4, 2, 2, 2)), padding="full"), "'same' or 'valid'"),
    (lambda x: ts.conv2d(x, ts.ones((4, 2, 2, 2)), stride=0), "stride is a number of at least 1"),
    (lambda x: ts.conv_transpose2d(x, ts.ones((2, 2, 2, 2)), output_padding=1), "less than the stride or the dilation"),
    (lambda x: ts.max_pool2d(x, 2, padding=2), "at most half of its kernel"),
    (lambda x: ts.avg_pool2d(x, 6), "does not fit axis 2"),
]


@pytest.mark.parametrize(("f", "why"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_does_not_fit_is_refused(f: Any, why: str) -> None:
    with pytest.raises(ts.TesseraError, match=why):
        f(ts.ones((1, 2, 5, 5)))


def test_norms_of_channels() -> None:
    rng = np.random.default_rng(0)
    x, (mean, weight, bias), var = rng.normal(size=(3, 4, 5, 2)), rng.normal(size=(3, 4)), rng.uniform(0.5, 2, 4)
    given = [torch.tensor(v) for v in (x, mean, var, weight, bias)]
    t, m, v, w, b = given
    pairs = [
        (ts.batch_norm(x, mean, var, weight, bias), F.batch_norm(t, m, v, w, b)),
        (ts.batch_norm(x, weight=weight, eps=0.1), F.batch_norm(t, None, None, w, training=True, eps=0.1)),
        (ts.group_norm(x, 2, weight, bias), F.group_norm(t, 2, w, b)),
        (ts.group_norm(x, 4), F.instance_norm(t)),
    ]
    for mine, theirs in pairs:
        np.testing.assert_allclose(np.asarray(mine), theirs.numpy(), 1e-10, 1e-12)
    with pytest.raises(ts.TesseraError, match="4 channels do not fall into 3 groups"):
        ts.group_norm(x, 3)
    with pytest.raises(ts.TesseraError, match="both mean and var"):
        ts.batch_norm(x, mean)


def test_gradients_of_sizes_known_at_launch() -> None:
    """Odd and even sizes under one compilation; what a stride leaves over gets no cotangent."""

    def net(x: ts.Tensor["B", 2, "H", "W", ts.f32], w: ts.Tensor[3, 2, 3, 3, ts.f32]):
        return ts.sum(ts.square(ts.conv2d(x, w, stride=2, padding=1)))

    gradient = ts.grad(net, argnums=(0, 1))
    rng = np.random.default_rng(0)
    for shape in ((2, 2, 8, 9), (1, 2, 5, 6), (0, 2, 8, 8)):
        arrays = [rng.normal(size=s).astype(np.float32) for s in (shape, (3, 2, 3, 3))]
        x, w = (torch.tensor(a, requires_grad=True) for a in arrays)
        F.conv2d(x, w, stride=2, padding=1).square().sum().backward()
        for mine, theirs in zip(gradient(*arrays), (x, w), strict=True):
            np.testing.assert_allclose(np.asarray(mine), theirs.grad.numpy(), 2e-4, 2e-4)


SMALL_IMAGES: list[tuple[int, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (3, (9, 5, 6), (24, 9, 3, 3), {"padding": 1}),
    (11, (10, 6, 7), (40, 10, 3, 3), {"padding": 1, "stride": 2}),
    (5, (16, 9, 9), (16, 8, 3, 3), {"padding": 1, "groups": 2}),
    (30, (12, 4, 4), (64, 12, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize("case", SMALL_IMAGES, ids=lambda case: str(case[0]))
def test_small_images_are_one_product(case: Any) -> None:
    """The bits of each image alone, with other operators in the same kernel."""
    count, image, kernel, options = case
    rng = np.random.default_rng(count)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((count, *image), kernel, kernel[:1]))

    @ts.function
    def f(x, w, b):
        return ts.relu(ts.conv2d(x, w, b, **options)) * 2 - 1

    compiled = ts.compile(f, target="cpu", arguments=(x, w, b))
    if "groups" not in options:  # the batch is an axis of the tile, not of the grid
        assert "lead=[1, 3]" in compiled.ir("tile")
        assert f"[{kernel[0]}, {count}, " in compiled.ir("tile")
    got = compiled(x, w, b)
    for i in (0, 1, count - 1):
        np.testing.assert_array_equal(got[i], f(x[i : i + 1], w, b)[0])


@pytest.mark.parametrize("dtype", ["f4", "c8", "i4"])
def test_products_with_one_operand_in_common(dtype: str) -> None:
    """On either side; in a batch that is large enough they are one product, but for complex numbers."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-9, 9, s).astype(dtype) for s in ((3, 700, 200), (700, 64)))

    @ts.function
    def right(x, w):
        return ts.einsum("bkm,bkn->bmn", x, ts.broadcast_to(w, (x.shape[0], *w.shape)))

    @ts.function
    def left(x, w):
        return ts.einsum("bkn,bkm->bnm", ts.broadcast_to(w, (x.shape[0], *w.shape)), x)

    want = np.einsum("bkm,kn->bmn", x, w)
    for f, wanted in ((right, want), (left, want.transpose(0, 2, 1))):
        compiled = ts.compile(f, target="cpu", arguments=(x, w))
        assert ("lead=" in compiled.ir("tile")) == (dtype != "c8")
        np.testing.assert_array_equal(compiled(x, w), wanted)  # whole numbers, exact in any order
        np.testing.assert_array_equal(ts.compile(f, target="reference", arguments=(x, w))(x, w), wanted)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("side", [17, 33, 43])
def test_every_second_window_is_that_of_stride_1(side: int, dtype: Any) -> None:
    """The same bits: runs of every second pixel are read in whole vectors, in two parts, and one by one."""
    rng = np.random.default_rng(side)
    x, w = (rng.standard_normal(s).astype(dtype) for s in ((2, 9, side, side), (35, 9, 3, 3)))

    @ts.function
    def both(x, w):
        return ts.conv2d(x, w, padding=1, stride=2), ts.conv2d(x, w, padding=1)

    got, every = both(x, w)
    np.testing.assert_array_equal(got, np.asarray(every)[:, :, ::2, ::2])
