"""The functions that are made of operators (`tessera.functions`), beside NumPy's and PyTorch's of the same name:
compiled, called outside of functions, and their gradients."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
import torch

import tessera as ts
from tessera.functions import HOME, METHODS

F = torch.nn.functional
RNG = np.random.default_rng(11)
NAN = math.nan


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


@dataclass
class Case:
    name: str
    ours: Callable[..., Any]
    peer: Callable[..., Any]
    args: tuple[np.ndarray, ...]
    in_torch: bool = False
    """whether the peer takes PyTorch's tensors; then gradients are compared, too"""


def C(name: str, ours: Callable[..., Any], peer: Callable[..., Any], *args: np.ndarray) -> Case:
    return Case(name, ours, peer, args)


def T(name: str, ours: Callable[..., Any], peer: Callable[..., Any], *args: np.ndarray) -> Case:
    return Case(name, ours, peer, args, True)


M, SQUARE, LINE, IMAGE = normal(3, 5), normal(4, 4), normal(6), normal(2, 3, 4, 5)
HOLES = np.where(RNG.uniform(size=(4, 6)) < 0.3, NAN, normal(4, 6))
HOLES[2] = NAN
ODD = np.array([NAN, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5])
ORDERED = np.array([-1.0, 0.0, 0.0, 1.0, 2.5, NAN])
PLACES = np.array([-2.0, -1.0, 0.0, 0.5, 2.5, 3.0, np.inf, NAN])

KEYS = np.array([0, 1, -1, 2**62, -(2**63)])


def drawn(key: int, shape: tuple[int, ...]) -> Any:
    return -np.log1p(-np.asarray(ts.uniform(key, shape)))


def order(n: int) -> Any:
    return np.argsort(np.asarray(ts.randint(3, (n,), 0, 2**62)))


CASES = [
    C("split_key", lambda k: ts.split_key(k, 3),
      lambda k: np.array([ts.split_key(int(key), 3) for key in k]).T, KEYS),
    C("exponential", lambda x: ts.exponential(3, x.shape), lambda x: drawn(3, x.shape), M),
    C("gumbel", lambda x: ts.gumbel(3, x.shape), lambda x: -np.log(drawn(3, x.shape)), M),
    C("laplace", lambda x: ts.laplace(3, x.shape),
      lambda x: np.subtract(*[drawn(key, x.shape) for key in ts.split_key(3)]), M),
    C("categorical", lambda x: (ts.categorical(3, x), ts.categorical(3, x, axis=0)),
      lambda x: [np.argmax(x - np.log(drawn(3, x.shape)), axis=axis) for axis in (-1, 0)], M),
    C("permutation", lambda x: (ts.permutation(3, 7), ts.permutation(3, x, axis=1)),
      lambda x: (order(7), x[:, order(x.shape[1])]), M),
    C("meshgrid", lambda x, y: ts.meshgrid(x, y), lambda x, y: np.meshgrid(x, y), LINE, LINE[:4]),
    C("meshgrid", lambda x, y: ts.meshgrid(x, y, x, indexing="ij"), lambda x, y: np.meshgrid(x, y, x, indexing="ij"),
      LINE, LINE[:4]),
    C("vstack", lambda x, y: ts.vstack([x, y, x[0]]), lambda x, y: np.vstack([x, y, x[0]]), M, M[:2]),
    C("hstack", lambda x, y: (ts.hstack([x, y]), ts.hstack([x[0], y[0]])),
      lambda x, y: (np.hstack([x, y]), np.hstack([x[0], y[0]])), M, M[:, :2]),
    C("dstack", lambda x: (ts.dstack([x, x]), ts.dstack([x[0], x[1]])),
      lambda x: (np.dstack([x, x]), np.dstack([x[0], x[1]])), M),
    C("column_stack", lambda x, y: ts.column_stack([x, y]), lambda x, y: np.column_stack([x, y]), M, normal(3)),
    T("diag", lambda x: (ts.diag(x), ts.diag(x, 2), ts.diag(x, -1)),
      lambda x: (torch.diag(x), torch.diag(x, 2), torch.diag(x, -1)), LINE),
    T("diagonal", lambda x: (ts.diagonal(x), ts.diagonal(x, 1), ts.diagonal(x, -2), ts.diag(x, 3)),
      lambda x: (torch.diagonal(x), torch.diagonal(x, 1), torch.diagonal(x, -2), torch.diag(x, 3)), M),
    C("diagonal", lambda x: ts.diagonal(x, 1, 2, 0), lambda x: np.diagonal(x, 1, 2, 0), normal(3, 2, 4)),
    T("trace", lambda x: ts.trace(x), torch.trace, M),
    C("trace", lambda x: ts.trace(x, 1, 1, 2), lambda x: np.trace(x, 1, 1, 2), normal(3, 2, 4)),
    C("rot90", lambda x: tuple(ts.rot90(x, k) for k in range(-1, 5)),
      lambda x: tuple(np.rot90(x, k) for k in range(-1, 5)), M),
    C("flipud", lambda x: (ts.flipud(x), ts.fliplr(x)), lambda x: (np.flipud(x), np.fliplr(x)), M),
    C("fliplr", lambda x: ts.fliplr(x), np.fliplr, M),
    T("narrow", lambda x: ts.narrow(x, 1, 1, 3), lambda x: torch.narrow(x, 1, 1, 3), M),
    T("narrow", lambda x: ts.narrow(x, 0, -2, 2), lambda x: torch.narrow(x, 0, -2, 2), M),
    T("index_select", lambda x: ts.index_select(x, 1, ts.array([2, 0, 2])),
      lambda x: torch.index_select(x, 1, torch.tensor([2, 0, 2])), M),
    T("unflatten", lambda x: (ts.unflatten(x, 1, (2, 3)), ts.unflatten(x, -1, (-1, 2))),
      lambda x: (x.unflatten(1, (2, 3)), x.unflatten(-1, (-1, 2))), normal(2, 6)),
    T("inner", lambda x, y: ts.inner(x, y), torch.inner, M, normal(2, 5)),
    C("vdot", lambda x, y: ts.vdot(x, y), np.vdot, M + 1j * normal(3, 5), M * 1j + 2),
    T("kron", lambda x, y: (ts.kron(x, y), ts.kron(x[0], y[0])),
      lambda x, y: (torch.kron(x, y), torch.kron(x[0], y[0])),
      M, normal(2, 3)),
    T("cross", lambda x, y: (ts.cross(x, y), ts.cross(x.T, y.T, 0)),
      lambda x, y: (torch.linalg.cross(x, y), torch.linalg.cross(x.T, y.T, dim=0)), normal(4, 3), normal(4, 3)),
    C("isclose", lambda x, y: (ts.isclose(x, y), ts.isclose(x, y, equal_nan=True)),
      lambda x, y: (np.isclose(x, y), np.isclose(x, y, equal_nan=True)),
      ODD, ODD * np.array([1, 1, -1, 1, 1, 1 + 1e-6, 1.1])),
    C("allclose", lambda x: (ts.allclose(x, x + 1e-9), ts.allclose(x, x + 1)), lambda x: (True, False), M),
    C("nan_to_num", lambda x: (ts.nan_to_num(x), ts.nan_to_num(x, 1.0, 2.0, 3.0)),
      lambda x: (np.nan_to_num(x), np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=3.0)), ODD),
    C("nan_to_num", lambda x: ts.nan_to_num(x), np.nan_to_num, ODD.astype(np.float32)),
    T("lgamma", lambda x: ts.lgamma(x), torch.lgamma, normal(40) * 9),
    C("lgamma", lambda x: (ts.lgamma(x), ts.digamma(x)),
      lambda x: (torch.lgamma(torch.from_numpy(x)), torch.digamma(torch.from_numpy(x))), np.concatenate([ODD, [-2.0]])),
    T("digamma", lambda x: ts.digamma(x), torch.digamma, np.abs(normal(40)) * 9),
    C("fmod", lambda x, y: ts.fmod(x, y), np.fmod, normal(50) * 100, normal(50)),
    C("fmod", lambda x, y: ts.fmod(x, y), np.fmod, np.arange(-7, 8), np.array([3, -3] * 7 + [2])),
    C("frac", lambda x: ts.frac(x), lambda x: x - np.trunc(x), ODD[3:]),
    C("fmax", lambda x, y: (ts.fmax(x, y), ts.fmin(x, y)),
      lambda x, y: (np.fmax(x, y), np.fmin(x, y)), ODD, ODD[::-1].copy()),
    C("fmin", lambda x: ts.fmin(x, 0.0), lambda x: np.fmin(x, 0.0), ODD),
    C("has_nan", lambda x: (ts.has_nan(x), ts.has_nan(ts.nan_to_num(x))), lambda x: (True, False), ODD),
    C("heaviside", lambda x: ts.heaviside(x, 0.5), lambda x: np.heaviside(x, 0.5), ODD),
    T("logit", lambda x: (ts.logit(x), ts.logit(x, 0.3)),
      lambda x: (torch.logit(x), torch.logit(x, 0.3)), RNG.uniform(0.1, 0.9, 5)),
    T("sinc", lambda x: ts.sinc(x), torch.sinc, np.append(LINE, 0.0)),
    T("deg2rad", lambda x: (ts.deg2rad(x), ts.rad2deg(x)), lambda x: (torch.deg2rad(x), torch.rad2deg(x)), LINE),
    T("rad2deg", lambda x: ts.rad2deg(x), torch.rad2deg, LINE),
    T("mish", lambda x: ts.mish(x), F.mish, 4 * M),
    T("selu", lambda x: ts.selu(x), F.selu, 4 * M),
    T("celu", lambda x: ts.celu(x, 0.7), lambda x: F.celu(x, 0.7), 4 * M),
    T("hardtanh", lambda x: ts.hardtanh(x, -0.5, 2.0), lambda x: F.hardtanh(x, -0.5, 2.0), 4 * M),
    T("relu6", lambda x: ts.relu6(x), F.relu6, 4 * M),
    T("hardsigmoid", lambda x: ts.hardsigmoid(x), F.hardsigmoid, 4 * M),
    T("hardswish", lambda x: ts.hardswish(x), F.hardswish, 4 * M),
    T("logsigmoid", lambda x: ts.logsigmoid(x), F.logsigmoid, 40 * M),
    T("softsign", lambda x: ts.softsign(x), F.softsign, 4 * M),
    T("glu", lambda x: (ts.glu(x), ts.glu(x, axis=0)), lambda x: (F.glu(x), F.glu(x, dim=0)), SQUARE),
    T("prelu", lambda x, w: ts.prelu(x, w), F.prelu, LINE, np.array([0.2])),
    *(C(f.__name__, lambda x, f=f: (f(x), f(x, axis=1), f(x, axis=0, keepdims=True)),
        lambda x, p=p: (p(x), p(x, axis=1), p(x, axis=0, keepdims=True)), HOLES)
      for f, p in ((ts.nansum, np.nansum), (ts.nanmean, np.nanmean), (ts.nanmax, np.nanmax), (ts.nanmin, np.nanmin))),
    C("quantile", lambda x: (ts.quantile(x, 0.3), ts.quantile(x, [0.0, 0.25, 1.0], axis=1), ts.quantile(x, 0.9, 0,
      True)),
      lambda x: (np.quantile(x, 0.3), np.quantile(x, [0.0, 0.25, 1.0], axis=1), np.quantile(x, 0.9, 0, keepdims=True)),
      M),
    C("quantile", lambda x: ts.quantile(x, 0.3, axis=1), lambda x: np.quantile(x, 0.3, axis=1), HOLES),
    T("quantile", lambda x: ts.quantile(x, 0.3, axis=1), lambda x: torch.quantile(x, 0.3, dim=1), M),
    C("median", lambda x: (ts.median(x), ts.median(x, axis=0), ts.median(x, keepdims=True)),
      lambda x: (np.median(x), np.median(x, axis=0), np.median(x, keepdims=True)), SQUARE),
    C("average", lambda x, w: (ts.average(x), ts.average(x, 1, w), ts.average(x, None, x * x)),
      lambda x, w: (np.average(x), np.average(x, 1, w), np.average(x, None, x * x)), M, RNG.uniform(size=5)),
    C("ptp", lambda x: (ts.ptp(x), ts.ptp(x, axis=1)), lambda x: (np.ptp(x), np.ptp(x, axis=1)), M),
    T("cov", lambda x: (ts.cov(x), ts.cov(x, 0)), lambda x: (torch.cov(x), torch.cov(x, correction=0)), M),
    T("corrcoef", lambda x: ts.corrcoef(x)[0, 1], lambda x: torch.corrcoef(x)[0, 1], M),
    C("bincount", lambda x, w: (ts.bincount(x, length=7), ts.bincount(x, w, length=7)),
      lambda x, w: (np.bincount(x, minlength=7), np.bincount(x, w, minlength=7)), RNG.integers(0, 6, 20), normal(20)),
    C("histogram", lambda x: (*ts.histogram(x, 5), *ts.histogram(x, 4, (-1.0, 1.0))),
      lambda x: (*np.histogram(x, 5), *np.histogram(x, 4, (-1.0, 1.0))), np.append(normal(60), [-1.0, 1.0, 0.5])),
    T("trapezoid", lambda y, x: (ts.trapezoid(y, x), ts.trapezoid(y, dx=0.1, axis=0)),
      lambda y, x: (torch.trapezoid(y, x), torch.trapezoid(y, dx=0.1, dim=0)), M, np.sort(normal(5))),
    C("searchsorted", lambda a, v: (ts.searchsorted(a, v), ts.searchsorted(a, v, side="right")),
      lambda a, v: (np.searchsorted(a, v), np.searchsorted(a, v, side="right")), ORDERED, PLACES),
    C("searchsorted", lambda a, v: ts.searchsorted(a, v), np.searchsorted, np.array([1, 3, 5]), np.array([[0, 3], [4,
      9]])),
    C("digitize", lambda x, b: (ts.digitize(x, b), ts.digitize(x, b, right=True)),
      lambda x, b: (np.digitize(x, b), np.digitize(x, b, right=True)), PLACES[:-1], ORDERED[:-1]),
    C("bucketize", lambda x, b: (ts.bucketize(x, b), ts.bucketize(x, b, right=True)),
      lambda x, b: (np.searchsorted(b, x, "left"), np.searchsorted(b, x, "right")), PLACES[:-1], ORDERED[:-1]),
    C("isin", lambda x, v: ts.isin(x, v), np.isin, RNG.integers(0, 9, (3, 4)), np.array([[1, 2], [5, 8]])),
    C("interp", lambda x, xp, fp: ts.interp(x, xp, fp), np.interp, 3 * normal(20), np.sort(LINE), normal(6)),
    T("normalize", lambda x: (ts.normalize(x), ts.normalize(x, 1, 0)),
      lambda x: (F.normalize(x), F.normalize(x, 1, 0)), M),
    T("cosine_similarity", lambda x, y: ts.cosine_similarity(x, y), F.cosine_similarity, M, normal(3, 5)),
    T("cdist", lambda x, y: (ts.cdist(x, y), ts.cdist(x, y, 1)), lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, 1)),
      M, normal(4, 5)),
    T("interpolate", lambda x: (ts.interpolate(x, (7, 3)), ts.interpolate(x, scale_factor=2)),
      lambda x: (F.interpolate(x, (7, 3)), F.interpolate(x, scale_factor=2)), IMAGE),
    T("interpolate", lambda x: ts.interpolate(x, (7, 3), mode="bilinear"),
      lambda x: F.interpolate(x, (7, 3), mode="bilinear"), IMAGE),
    T("interpolate", lambda x: ts.interpolate(x, (7, 1), mode="bilinear", align_corners=True),
      lambda x: F.interpolate(x, (7, 1), mode="bilinear", align_corners=True), IMAGE),
    T("interpolate", lambda x: ts.interpolate(x, scale_factor=1.6, mode="linear"),
      lambda x: F.interpolate(x, scale_factor=1.6, mode="linear", recompute_scale_factor=False), IMAGE[0]),
    C("percentile", lambda x: (ts.percentile(x, 30), ts.percentile(x, [0, 25.0, 100], axis=1)),
      lambda x: (np.percentile(x, 30), np.percentile(x, [0, 25.0, 100], axis=1)), M),
    C("nanmedian", lambda x: (ts.nanmedian(x), ts.nanmedian(x, axis=1), ts.nanmedian(x, 0, True)),
      lambda x: (np.nanmedian(x), np.nanmedian(x, axis=1), np.nanmedian(x, 0, keepdims=True)), HOLES),
    C("nanvar", lambda x: (ts.nanvar(x), ts.nanvar(x, axis=1), ts.nanvar(x, 0, 1, True)),
      lambda x: (np.nanvar(x), np.nanvar(x, axis=1), np.nanvar(x, 0, ddof=1, keepdims=True)), HOLES),
    C("nanstd", lambda x: ts.nanstd(x, axis=0), lambda x: np.nanstd(x, axis=0), HOLES),
    *(C("convolve", lambda x, k, m=mode: (ts.convolve(x, k, m), ts.convolve(k, x, m), ts.convolve(x, k[1:], m)),
        lambda x, k, m=mode: (np.convolve(x, k, m), np.convolve(k, x, m), np.convolve(x, k[1:], m)), LINE, normal(3))
      for mode in ("full", "same", "valid")),
    C("convolve", lambda x, k: ts.convolve(x, k), np.convolve, np.arange(5), np.array([1, -1])),
    *(C("correlate", lambda x, k, m=mode: (ts.correlate(x, k, m), ts.correlate(x, k[1:], m)),
        lambda x, k, m=mode: (np.correlate(x, k, m), np.correlate(x, k[1:], m)), LINE, normal(4) + 1j * normal(4))
      for mode in ("full", "same", "valid")),
    T("gradient", lambda y: (ts.gradient(y[0], 0.5), *ts.gradient(y), ts.gradient(y, 2.0, axis=1)),
      lambda y: (*torch.gradient(y[0], spacing=0.5), *torch.gradient(y), *torch.gradient(y, spacing=2.0, dim=1)), M),
    C("gradient", lambda y, x: ts.gradient(y, x, axis=1), lambda y, x: np.gradient(y, x, axis=1),
      M, np.sort(normal(5))),
    C("unwrap", lambda x: (ts.unwrap(x), ts.unwrap(x, 2.0, axis=0)),
      lambda x: (np.unwrap(x), np.unwrap(x, period=2.0, axis=0)), 9 * normal(4, 30)),
    C("polyval", lambda p, x: (ts.polyval(p, x), ts.polyval([2.0, -1.0], x)),
      lambda p, x: (np.polyval(p, x), np.polyval([2.0, -1.0], x)), LINE, M),
    T("erfc", lambda x: ts.erfc(x), torch.erfc, 5 * LINE),
    C("erfc", lambda x: ts.erfc(x), lambda x: torch.erfc(torch.from_numpy(x)), ODD),
    T("erfinv", lambda x: ts.erfinv(x), torch.erfinv, np.linspace(-0.999, 0.999, 14)),
    C("erfinv", lambda x: ts.erfinv(x), lambda x: torch.erfinv(torch.from_numpy(x)), np.append(ODD, [1.0, -1.0])),
    C("degrees", lambda x: (ts.degrees(x), ts.radians(x)), lambda x: (np.degrees(x), np.radians(x)), LINE),
    C("radians", lambda x: ts.radians(x), np.radians, LINE),
    C("angle", lambda z: (ts.angle(z), ts.angle(z.real)), lambda z: (np.angle(z), np.angle(z.real)),
      normal(9) + 1j * normal(9)),
    C("cbrt", lambda x: ts.cbrt(x), np.cbrt, np.concatenate([ODD, normal(20) ** 9, [1e-300, 1e300]])),
    C("isposinf", lambda x: (ts.isposinf(x), ts.isneginf(x)), lambda x: (np.isposinf(x), np.isneginf(x)), ODD),
    C("isneginf", lambda x: ts.isneginf(x), np.isneginf, ODD),
    T("softmin", lambda x: ts.softmin(x, 0), lambda x: F.softmin(x, 0), M),
    T("softshrink", lambda x: ts.softshrink(x, 0.3), lambda x: F.softshrink(x, 0.3), M),
    T("hardshrink", lambda x: ts.hardshrink(x, 0.3), lambda x: F.hardshrink(x, 0.3), M),
    T("tanhshrink", lambda x: ts.tanhshrink(x), F.tanhshrink, M),
    T("threshold", lambda x: ts.threshold(x, 0.1, -2.0), lambda x: F.threshold(x, 0.1, -2.0), M),
    C("select", lambda x: ts.select([x < -1, x < 0, x > 1], [x, -x, 2 * x], 7.0),
      lambda x: np.select([x < -1, x < 0, x > 1], [x, -x, 2 * x], 7.0), M),
    T("block_diag", lambda x, y: ts.block_diag(x, y[0], y), lambda x, y: torch.block_diag(x, y[0], y), M, SQUARE),
    T("diag_embed", lambda x: ts.diag_embed(x), torch.diag_embed, M),
    C("array_split", lambda x: ts.array_split(x, 3, axis=1), lambda x: np.array_split(x, 3, axis=1), M),
    C("atleast_1d", lambda x: (ts.atleast_1d(x[0, 0]), ts.atleast_1d(x)),
      lambda x: (np.atleast_1d(x[0, 0]), np.atleast_1d(x)), M),
    C("atleast_2d", lambda x: (ts.atleast_2d(x[0, 0]), ts.atleast_2d(x[0]), ts.atleast_2d(x)),
      lambda x: (np.atleast_2d(x[0, 0]), np.atleast_2d(x[0]), np.atleast_2d(x)), M),
    C("atleast_3d", lambda x: (ts.atleast_3d(x[0, 0]), ts.atleast_3d(x[0]), ts.atleast_3d(x), ts.atleast_3d(x[None])),
      lambda x: (np.atleast_3d(x[0, 0]), np.atleast_3d(x[0]), np.atleast_3d(x), x[None]), M),
    C("gumbel_softmax", lambda x: ts.gumbel_softmax(3, x, tau=0.5),
      lambda x: F.softmax(torch.from_numpy(x - np.log(drawn(3, x.shape))) / 0.5, -1), M),
    T("adaptive_avg_pool1d", lambda x: (ts.adaptive_avg_pool1d(x, 3), ts.adaptive_avg_pool1d(x, 7)),
      lambda x: (F.adaptive_avg_pool1d(x, 3), F.adaptive_avg_pool1d(x, 7)), IMAGE[0]),
    T("adaptive_avg_pool2d", lambda x: (ts.adaptive_avg_pool2d(x, (3, 1)), ts.adaptive_avg_pool2d(x, (None, 2))),
      lambda x: (F.adaptive_avg_pool2d(x, (3, 1)), F.adaptive_avg_pool2d(x, (None, 2))), IMAGE),
    T("adaptive_avg_pool3d", lambda x: ts.adaptive_avg_pool3d(x, 2), lambda x: F.adaptive_avg_pool3d(x, 2), IMAGE),
    T("pixel_unshuffle", lambda x: ts.pixel_unshuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), normal(2, 2, 4, 6)),
    *(T("affine_grid", lambda m, c=corners: ts.affine_grid(m, (2, 3, 4, 5), c),
        lambda m, c=corners: F.affine_grid(m, (2, 3, 4, 5), align_corners=c), normal(2, 2, 3))
      for corners in (False, True)),
    *(T("grid_sample", lambda x, at, o=options: ts.grid_sample(x, at, **o),
        lambda x, at, o=options: F.grid_sample(x, at, **{"align_corners": False, **o}), IMAGE, 0.8 * normal(2, 3, 2, 2))
      for options in ({}, {"padding_mode": "border"}, {"align_corners": True})),
    C("grid_sample", lambda x, at: ts.grid_sample(x, at, mode="nearest"),
      lambda x, at: F.grid_sample(torch.from_numpy(x), torch.from_numpy(at), mode="nearest", align_corners=False),
      IMAGE, 0.8 * normal(2, 3, 2, 2)),
    T("pixel_shuffle", lambda x: ts.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), normal(2, 8, 3, 2)),
]  # fmt: skip


def listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def agrees(ours: Any, theirs: Any) -> None:
    found, wanted = np.asarray(ours), np.asarray(theirs)
    assert found.shape == wanted.shape
    assert found.dtype.kind == wanted.dtype.kind
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_function_is_its_peers(case: Case) -> None:
    given = [torch.from_numpy(a.copy()) for a in case.args] if case.in_torch else case.args
    wanted = listed(case.peer(*given))
    program = ts.function(case.ours)
    eager = [listed(case.ours(*given)) for given in (case.args, map(ts.asarray, case.args))]
    for results in (listed(program(*case.args)), *eager):
        assert len(results) == len(wanted)
        for ours, theirs in zip(results, wanted, strict=True):
            agrees(ours, theirs)


@pytest.mark.parametrize("case", [c for c in CASES if c.in_torch], ids=lambda c: c.name)
def test_gradient_is_pytorchs(case: Case) -> None:
    def loss(*args: Any) -> Any:
        return sum(ts.sum(y * y) for y in listed(case.ours(*args)))

    places = tuple(range(len(case.args)))
    given = [torch.from_numpy(a.copy()).requires_grad_() for a in case.args]
    sum((y * y).sum() for y in listed(case.peer(*given))).backward()
    for ours, theirs in zip(ts.grad(loss, argnums=places)(*case.args), given, strict=True):
        agrees(ours, theirs.grad)


OF_ANY_DTYPE: dict[str, Callable[..., Any]] = {
    "deg2rad": lambda x: ts.deg2rad(x), "hardswish": lambda x: ts.hardswish(x), "selu": lambda x: ts.selu(x),
    "prelu": lambda x: ts.prelu(x, 0.3), "prelu of arrays": lambda x: ts.prelu(x, x[0]), "cov": lambda x: ts.cov(x),
    "trapezoid": lambda x: ts.trapezoid(x), "huber": lambda x: ts.nn.huber(x, 0.5),
    "rfft": lambda x: ts.real(ts.fft.rfft(x)), "interp": lambda x: ts.interp(x, x[0], x[1]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.bool_])
@pytest.mark.parametrize("name", OF_ANY_DTYPE)
def test_arrays_give_the_same_bits_outside_of_functions(name: str, dtype: Any) -> None:
    x = np.arange(9).reshape(3, 3)
    x = (x > 3 if dtype is np.bool_ else x / 4 if dtype is not np.int8 else x).astype(dtype)
    wanted = ts.function(OF_ANY_DTYPE[name])(x)
    for found in (OF_ANY_DTYPE[name](x), OF_ANY_DTYPE[name](ts.asarray(x)).numpy()):
        assert isinstance(found, np.ndarray)
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


METHOD_ARGS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("allclose", "cross", "fmax", "fmin", "fmod", "inner"), (M[:, :3],)),
    **dict.fromkeys(("isclose", "isin", "kron", "vdot"), (M[:, :3],)),
    "heaviside": (0.5,), "index_select": (1, np.array([0, 2])), "narrow": (1, 0, 2), "quantile": (0.3,),
    "unflatten": (1, (3, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_are_functions_of_the_tensor(name: str) -> None:
    x = np.abs(M[:, :3]) % 1
    x = np.array([2, 0, 2, 1]) if name == "bincount" else x
    args, options = METHOD_ARGS.get(name, ()), {"length": 3} if name == "bincount" else {}

    def method(x: Any) -> Any:
        return getattr(x, name)(*args, **options)

    wanted = getattr(ts, name)(x, *args, **options)
    for found in (method(ts.Tensor(x)), ts.function(method)(x)):
        np.testing.assert_array_equal(found, wanted)
    assert name in dir(ts.Tensor(x))


def test_what_is_no_method_names_the_function() -> None:
    for name, function in (
        ("xlogy", "ts.xlogy(x"),
        ("det", "ts.linalg.det(x)"),
        ("unfold", "ts.sliding_window_view(x"),
    ):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; write {re.escape(function)}"):
            getattr(ts.Tensor(M), name)


def test_lists_and_numbers_outside_of_functions() -> None:
    assert ts.median([1, 2, 4]).tolist() == 2
    assert ts.inner([1, 2], [3, 4]).tolist() == 11
    assert ts.vstack([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert ts.interp(0.5, [0.0, 1.0], [1.0, 2.0]).tolist() == 1.5
    assert ts.searchsorted(np.array([1.0, 2.0]), 1.5) == 1
    assert ts.quantile(M, np.array([0.1, 0.2])).shape == (2,)
    assert isinstance(ts.median(torch.ones(3)), torch.Tensor)
    assert isinstance(ts.median(ts.ones((3,))), ts.Tensor)
    with pytest.raises(ts.LaunchError, match="diag takes an array, a list or a number as x, not 'a'"):
        ts.diag("a")
    with pytest.raises(ts.LaunchError, match=r"pixel_shuffle cannot compute with these arguments"):
        ts.pixel_shuffle(M, 2)


def test_what_peers_refuse_is_refused() -> None:
    """A slice would be shorter, and a value that is missing 0."""
    x = np.ones((4, 3), np.float32)
    for start, length in ((1, 9), (-9, 2), (0, -1)):
        with pytest.raises(ts.LaunchError, match="do not lie in an axis of 4"):
            ts.narrow(x, 0, start, length)
    with pytest.raises(ts.LaunchError, match="each point has a place and a value, and here are 2 and 1"):
        ts.interp(np.array([0.5]), np.array([0.0, 1.0]), np.array([1.0]))
    assert np.isnan(ts.median(x[:0], axis=0)).all() and np.isnan(ts.quantile(x[:0], (0.1, 0.9))).all()


def test_lgamma_and_digamma_keep_their_bounds() -> None:
    near = np.array([1.0, 2.0])[:, None] + np.array([1e-3, -1e-6, 1e-9, -1e-12, 2e-16])
    x = np.concatenate(
        [np.geomspace(1e-300, 1e300, 60), near.ravel(), RNG.uniform(0, 10, 100), -RNG.uniform(0, 40, 60)]
    )
    with mpmath.workdps(40):
        logs = [_log_gamma(mpmath.mpf(v)) for v in x]
        slopes = [mpmath.digamma(mpmath.mpf(v)) for v in x if v > 0]
        beside = [
            abs(a) if v > 0 else 1 + abs(a) + abs(_log_gamma(1 - mpmath.mpf(v))) for v, a in zip(x, logs, strict=True)
        ]
        for ours, want, scale, bound in (
            (ts.lgamma(x), logs, beside, 1e-15),
            (ts.digamma(x[x > 0]), slopes, [1 + abs(s) for s in slopes], 2e-15),
        ):
            assert all(abs(a - b) <= bound * c for a, b, c in zip(ours, want, scale, strict=True))
        narrow = x[(x > 1e-37) & (x < 1e36)].astype(np.float32)
        for function, peer in ((ts.lgamma, _log_gamma), (ts.digamma, mpmath.digamma)):
            want = np.array([float(peer(mpmath.mpf(float(v)))) for v in narrow])
            assert (np.abs(np.asarray(function(narrow)) - want) <= np.spacing(np.abs(want).astype(np.float32))).all()


def test_erfc_and_erfinv_keep_their_bounds() -> None:
    x = np.concatenate([RNG.uniform(-6, 27, 300), [0.5, -0.5, 1e-300, 26.5, 0.4999999]])
    near = 1 - 10.0 ** -RNG.uniform(0, 15.9, 100)
    y = np.concatenate([RNG.uniform(-1, 1, 200), near, -near, [0.5, 1e-20, -1e-300]])
    with mpmath.workdps(40):
        tails = [mpmath.erfc(mpmath.mpf(v)) for v in x]
        inverses = [mpmath.erfinv(mpmath.mpf(v)) for v in y]
        for ours, want in ((ts.erfc(x), tails), (ts.erfinv(y), inverses)):
            apart = [abs(a - b) / abs(b) for a, b in zip(ours, want, strict=True) if abs(b) > 1e-305]
            assert max(apart) < 1e-15 and len(apart) > 290
        for function, peer, given in (
            (ts.erfc, mpmath.erfc, x[x < 9]),
            (ts.erfinv, mpmath.erfinv, y[abs(y) < 0.9999999]),
        ):
            narrow = given.astype(np.float32)
            want = np.array([float(peer(mpmath.mpf(float(v)))) for v in narrow])
            assert (np.abs(np.asarray(function(narrow)) - want) <= np.spacing(np.abs(want).astype(np.float32))).all()


def test_images_of_f64_are_computed_in_f64() -> None:
    theta, image = torch.from_numpy(normal(2, 2, 3)), torch.from_numpy(IMAGE)
    grid = F.affine_grid(theta, (2, 3, 7, 5), align_corners=False)
    for ours, theirs in (
        (ts.affine_grid(theta.numpy(), (2, 3, 7, 5)), grid),
        (ts.adaptive_avg_pool2d(IMAGE, 3), F.adaptive_avg_pool2d(image, 3)),
        (ts.grid_sample(IMAGE, grid.numpy()), F.grid_sample(image, grid, align_corners=False)),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def test_hard_draws_of_gumbel_softmax_are_ones_and_have_its_gradient() -> None:
    weights = normal(3, 5)

    def loss(x: Any, hard: bool) -> Any:
        return ts.sum(ts.gumbel_softmax(5, x, tau=0.7, hard=hard, axis=0) * weights)

    drawn = np.asarray(ts.gumbel_softmax(5, M, tau=0.7, hard=True, axis=0))
    soft = np.asarray(ts.gumbel_softmax(5, M, tau=0.7, axis=0))
    np.testing.assert_allclose(drawn, soft == soft.max(axis=0), atol=1e-7)
    hard, wanted = (ts.grad(lambda x, h=h: loss(x, h))(M) for h in (True, False))
    np.testing.assert_allclose(hard, wanted, atol=1e-7)
    assert np.abs(np.asarray(wanted)).max() > 0.01


def _log_gamma(x: Any) -> Any:
    return mpmath.re(mpmath.loggamma(x)) if x > 0 else mpmath.log(abs(mpmath.gamma(x)))


def test_every_function_has_a_case() -> None:
    assert {c.name for c in CASES} == set(HOME)


@ts.function
def of_lists(x: ts.Tensor["N"]):
    n = x.shape[0]
    return (
        ts.array([[1, 2], [3, n]]),
        ts.asarray([x[0], 2.0]),
        ts.array([], dtype=ts.f64),
        ts.array(True),
        ts.array(x, ts.f32),
    )


def test_lists_become_tensors() -> None:
    matrix, pair, empty, true, narrow = of_lists(np.arange(3.0))
    agrees(matrix, np.array([[1, 2], [3, 3]]))
    agrees(pair, np.array([0.0, 2.0]))
    assert empty.shape == (0,) and empty.dtype == np.float64
    assert true.dtype == np.bool_ and bool(true)
    assert narrow.dtype == np.float32


def test_numbers_are_looked_up_inside_of_functions():
    xp, fp = np.array([0.5, 1.5, 2.5]), np.array([1.0, 2.0, 4.0])

    @ts.function
    def found(xp: ts.Tensor["N", ts.f64], fp: ts.Tensor["N", ts.f64]):
        return ts.interp(0.7, xp, fp), ts.searchsorted(xp, 0.7), ts.digitize(2.5, xp), ts.isin(2.5, xp)

    expected = np.interp(0.7, xp, fp), np.searchsorted(xp, 0.7), np.digitize(2.5, xp), np.isin(2.5, xp)
    assert [np.asarray(r).item() for r in found(xp, fp)] == [np.asarray(e).item() for e in expected]


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_vectors_of_any_length(side: str) -> None:
    """Among equal elements and NaN, in vectors of no element too: halves of even and odd lengths."""
    found = ts.function(lambda a, v: ts.searchsorted(a, v, side=side))
    for n in (0, 1, 2, 7, 8, 33):
        a = np.sort(RNG.integers(0, n + 1, n)).astype(np.float32)
        a[n - n // 4 :] = np.nan
        v = np.append(np.arange(-2, n + 3), [np.nan, np.inf, -np.inf]).astype(np.float32)
        np.testing.assert_array_equal(found(a, v), np.searchsorted(a, v, side))


def test_draws_have_their_distributions():
    """Means and variances of a million draws, and how often each class comes; the standard error is below 0.003."""
    for draw, mean, variance in ((ts.gumbel, np.euler_gamma, np.pi**2 / 6), (ts.exponential, 1, 1), (ts.laplace, 0, 2)):
        for dtype in (ts.f16, ts.f32, ts.f64):
            x = np.asarray(draw(7, (1_000_000,), dtype)).astype(np.float64)
            assert np.isfinite(x).all() and abs(x.mean() - mean) < 0.01 and abs(x.var() - variance) < 0.02
    p = np.array([0.1, 0.2, 0.0, 0.7])
    with np.errstate(divide="ignore"):
        logits = np.broadcast_to(np.log(p), (200_000, 4))
    counts = np.bincount(np.asarray(ts.categorical(7, logits)), minlength=4)
    assert counts[2] == 0 and np.abs(counts / 200_000 - p).max() < 0.005
    firsts = [int(ts.permutation(key, 3)[0]) for key in range(300)]
    assert min(np.bincount(firsts)) > 70, "each number comes first about 100 times"
