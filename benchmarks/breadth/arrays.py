"""Programs over arrays as in NumPy: orders, sums, pictures, simulations."""

from __future__ import annotations

import math

import numba
import numpy as np
import torch
import torch.nn.functional as F

import tessera as ts
from benchmarks.breadth.row import Row, integers, normal, row


@row("top 16 of 1024 x 4096")
def top(n: int) -> Row:
    def run(x):
        return ts.topk(x, 16)[0]

    def arrays(xp, x):
        return xp.sort(x, axis=1)[:, ::-1][:, :16]

    return Row(run, (normal(1024 // n, 4096),), torch=lambda x: torch.topk(x, 16)[0], arrays=arrays, tolerance=0)


@row("cumsum 1024 x 4096")
def cumsum(n: int) -> Row:
    return Row(lambda x: ts.cumsum(x, axis=1), (normal(1024 // n, 4096),), torch=lambda x: torch.cumsum(x, 1),
               arrays=lambda xp, x: xp.cumsum(x, axis=1))  # fmt: skip


@row("sort 1M")
def sort(n: int) -> Row:
    return Row(lambda x: ts.sort(x), (normal((1 << 20) // n),), torch=lambda x: torch.sort(x)[0],
               arrays=lambda xp, x: xp.sort(x), tolerance=0)  # fmt: skip


@row("argsort 1M")
def argsort(n: int) -> Row:
    x = (
        np.random.default_rng(0).permutation((1 << 20) // n).astype(np.float32)
    )  # no two are equal: peers are not stable
    return Row(lambda x: ts.argsort(x), (x,), torch=lambda x: torch.argsort(x),
               arrays=lambda xp, x: xp.argsort(x), tolerance=0)  # fmt: skip


@row("sort rows 4096 x 256")
def sort_rows(n: int) -> Row:
    return Row(lambda x: ts.sort(x), (normal(4096 // n, 256),), torch=lambda x: torch.sort(x)[0],
               arrays=lambda xp, x: xp.sort(x), tolerance=0)  # fmt: skip


@row("argmax 4096 x 1000")
def argmax(n: int) -> Row:
    return Row(lambda x: ts.argmax(x, axis=1), (normal(4096 // n, 1000),), torch=lambda x: torch.argmax(x, 1),
               arrays=lambda xp, x: xp.argmax(x, axis=1), tolerance=0)  # fmt: skip


@row("argmax of 4M")
def argmax_all(n: int) -> Row:
    return Row(lambda x: ts.argmax(x), (normal((1 << 22) // n),), torch=torch.argmax,
               arrays=lambda xp, x: xp.argmax(x), tolerance=0)  # fmt: skip


@row("variance 4096 x 1000")
def variance(n: int) -> Row:
    return Row(lambda x: ts.var(x, axis=1), (normal(4096 // n, 1000),),
               torch=lambda x: torch.var(x, 1, correction=0), arrays=lambda xp, x: xp.var(x, axis=1))  # fmt: skip


@row("variance of columns 4096 x 1000")
def variance_columns(n: int) -> Row:
    return Row(lambda x: ts.var(x, axis=0), (normal(4096 // n, 1000),),
               torch=lambda x: torch.var(x, 0, correction=0), arrays=lambda xp, x: xp.var(x, axis=0))  # fmt: skip


@numba.njit
def _counted(x, bins):  # type: ignore[no-untyped-def]
    out = np.zeros(bins.shape[0], np.float32)
    for i in x:
        out[i] += 1
    return out


@row("fft of 2^20 complex64")
def fft(n: int) -> Row:
    x = normal((1 << 20) // n, 2).view(np.complex64)[:, 0]
    return Row(lambda x: ts.fft.fft(x), (x,), torch=torch.fft.fft, arrays=lambda xp, x: xp.fft.fft(x))


@row("rfft of rows 4096 x 1024")
def rfft(n: int) -> Row:
    return Row(lambda x: ts.fft.rfft(x), (normal(4096 // n, 1024),), torch=torch.fft.rfft,
               arrays=lambda xp, x: xp.fft.rfft(x))  # fmt: skip


@row("histogram of 1M in 256")
def histogram(n: int) -> Row:
    def run(x, bins):
        return ts.scatter_add(bins, x, ts.ones_like(x).to(ts.f32), axis=0)

    given = integers(256, (1 << 20) // n), np.zeros(256, np.float32)
    return Row(run, given, torch=lambda x, bins: torch.bincount(x, minlength=256).to(bins.dtype),
               numba=_counted, tolerance=0)  # fmt: skip


@row("dequantise int8, scale, relu 4M")
def dequantise(n: int) -> Row:
    def run(x, scale):
        return ts.relu(x.to(ts.f32) * scale - 3.0)

    def arrays(xp, x, scale):
        return xp.maximum(x.astype("f4") * scale - xp.float32(3.0), 0)

    given = integers(100, 4096 // n, 1024, dtype="i1"), normal(1024)
    return Row(run, given, torch=lambda x, scale: F.relu(x.to(scale.dtype) * scale - 3.0), arrays=arrays)


@row("blur 5 x 5 of 2048 x 2048")
def blur(n: int) -> Row:
    def run(x):
        rows = (x[:-4] + 4 * x[1:-3] + 6 * x[2:-2] + 4 * x[3:-1] + x[4:]) * 0.0625
        return (rows[:, :-4] + 4 * rows[:, 1:-3] + 6 * rows[:, 2:-2] + 4 * rows[:, 3:-1] + rows[:, 4:]) * 0.0625

    return Row(run, (normal(2048 // n, 2048),), torch=run, arrays=lambda xp, x: run(x))


@row("Sobel of 2048 x 2048")
def sobel(n: int) -> Row:
    def form(xp, x):
        across = x[:, 2:] - x[:, :-2]
        down = x[2:] - x[:-2]
        a = across[:-2] + 2 * across[1:-1] + across[2:]
        b = down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
        return xp.sqrt(a * a + b * b)

    def run(x):
        across = x[:, 2:] - x[:, :-2]
        down = x[2:] - x[:-2]
        a = across[:-2] + 2 * across[1:-1] + across[2:]
        b = down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
        return ts.sqrt(a * a + b * b)

    return Row(run, (normal(2048 // n, 2048),), torch=lambda x: form(torch, x), arrays=form)


@row("stencil of 7 points in 192^3")
def stencil(n: int) -> Row:
    def run(x):
        near = x[:-2, 1:-1, 1:-1] + x[2:, 1:-1, 1:-1] + x[1:-1, :-2, 1:-1] + x[1:-1, 2:, 1:-1]
        return (near + x[1:-1, 1:-1, :-2] + x[1:-1, 1:-1, 2:] - 6 * x[1:-1, 1:-1, 1:-1]) * 0.1

    side = 192 // n
    return Row(run, (normal(side, side, side),), torch=run, arrays=lambda xp, x: run(x))


@row("10 steps of diffusion in 1024 x 1024")
def diffusion(n: int) -> Row:
    def run(x):
        for _ in range(10):
            x = x + 0.2 * (ts.roll(x, 1, 0) + ts.roll(x, -1, 0) + ts.roll(x, 1, 1) + ts.roll(x, -1, 1) - 4 * x)
        return x

    def arrays(xp, x):
        for _ in range(10):
            x = x + 0.2 * (xp.roll(x, 1, 0) + xp.roll(x, -1, 0) + xp.roll(x, 1, 1) + xp.roll(x, -1, 1) - 4 * x)
        return x

    return Row(run, (normal(1024 // n, 1024),), torch=lambda x: arrays(torch, x), arrays=arrays)


@numba.njit(fastmath=True, parallel=True)
def _pulled(x, m):  # type: ignore[no-untyped-def]
    out = np.zeros_like(x)
    for i in numba.prange(x.shape[0]):
        for j in range(x.shape[0]):
            dx, dy, dz = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
            r = dx * dx + dy * dy + dz * dz + np.float32(0.01)
            f = m[j] / (r * np.sqrt(r))
            out[i, 0] += dx * f
            out[i, 1] += dy * f
            out[i, 2] += dz * f
    return out


@row("forces among 2048 bodies")
def bodies(n: int) -> Row:
    def run(x, m):
        d = x[None, :, :] - x[:, None, :]
        r = ts.sum(d * d, axis=2) + 0.01
        return ts.sum(d * (m / (r * ts.sqrt(r)))[:, :, None], axis=1)

    def arrays(xp, x, m):
        d = x[None, :, :] - x[:, None, :]
        r = (d * d).sum(axis=2) + 0.01
        return (d * (m / (r * xp.sqrt(r)))[:, :, None]).sum(axis=1)

    given = normal(2048 // n, 3), np.abs(normal(2048 // n))
    return Row(run, given, torch=lambda x, m: arrays(torch, x, m), arrays=arrays, numba=_pulled, tolerance=1e-3)


@numba.njit(fastmath=True, parallel=True)
def _priced(s, k, t):  # type: ignore[no-untyped-def]
    out = np.empty_like(s)
    for i in numba.prange(s.shape[0]):
        root = 0.2 * math.sqrt(t[i])
        d = (math.log(s[i] / k[i]) + 0.04 * t[i]) / root
        near = 0.5 * (1 + math.erf(d * 0.70710678))
        far = 0.5 * (1 + math.erf((d - root) * 0.70710678))
        out[i] = s[i] * near - k[i] * math.exp(-0.02 * t[i]) * far
    return out


@row("Black-Scholes 1M")
def black_scholes(n: int) -> Row:
    def run(s, k, t):
        root = 0.2 * ts.sqrt(t)
        d = (ts.log(s / k) + 0.04 * t) / root
        near, far = 0.5 * (1 + ts.erf(d * 0.70710678)), 0.5 * (1 + ts.erf((d - root) * 0.70710678))
        return s * near - k * ts.exp(-0.02 * t) * far

    def eager(s, k, t):
        root = 0.2 * torch.sqrt(t)
        d = (torch.log(s / k) + 0.04 * t) / root
        near, far = 0.5 * (1 + torch.erf(d * 0.70710678)), 0.5 * (1 + torch.erf((d - root) * 0.70710678))
        return s * near - k * torch.exp(-0.02 * t) * far

    given = tuple(np.random.default_rng(i).uniform(0.5, 2, (1 << 20) // n).astype(np.float32) for i in range(3))
    return Row(run, given, torch=eager, numba=_priced)


@numba.njit(parallel=True)
def _escaped(re, im):  # type: ignore[no-untyped-def]
    out = np.zeros(re.shape, np.int32)
    for i in numba.prange(re.shape[0]):
        for j in range(re.shape[1]):
            x = y = np.float32(0)
            for _ in range(50):
                if x * x + y * y > np.float32(4):
                    break
                x, y = x * x - y * y + re[i, j], np.float32(2) * x * y + im[i, j]
                out[i, j] += 1
    return out


@row("Mandelbrot 512 x 512, 50 steps")
def mandelbrot(n: int) -> Row:
    """`seen`: how many steps all points take; points at the edge take others in f64."""

    def run(re, im):
        x, y, count = ts.zeros_like(re), ts.zeros_like(re), ts.zeros_like(re).to(ts.int32)
        for _ in range(50):
            inside = x * x + y * y <= 4.0
            x, y = ts.where(inside, x * x - y * y + re, x), ts.where(inside, 2 * x * y + im, y)
            count = count + inside.to(ts.int32)
        return count

    def arrays(xp, re, im):
        x, y, count = xp.zeros_like(re), xp.zeros_like(re), xp.zeros_like(re, dtype=xp.int32)
        for _ in range(50):
            inside = x * x + y * y <= 4.0
            x, y = xp.where(inside, x * x - y * y + re, x), xp.where(inside, 2 * x * y + im, y)
            count = count + inside
        return count

    re, im = np.meshgrid(np.linspace(-2, 1, 512 // n), np.linspace(-1.5, 1.5, 512 // n))
    given = np.ascontiguousarray(re, np.float32), np.ascontiguousarray(im, np.float32)
    return Row(run, given, torch=lambda *a: arrays(torch, *a), arrays=arrays, numba=_escaped, tolerance=1e-2,
               seen=np.mean)  # fmt: skip
