"""Products: batches, odd shapes, few rows, narrow numbers, convolutions."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

import tessera as ts
from benchmarks.breadth.row import BF16, Row, integers, normal, row


def product(a: np.ndarray, b: np.ndarray, **options: object) -> Row:
    def run(a, b):
        return a @ b

    return Row(run, (a, b), torch=torch.matmul, arrays=lambda xp, a, b: a @ b, **options)  # type: ignore[arg-type]


@row("batched product 64 of 64")
def batched(n: int) -> Row:
    return product(normal(64 // n, 64, 64), normal(64 // n, 64, 64))


@row("product of primes 1009 997 1013")
def primes(n: int) -> Row:
    return product(normal(1009 // n, 997 // n), normal(997 // n, 1013 // n))


@row("product 17 1000 17")
def thin(n: int) -> Row:
    return product(normal(17, 1000 // n), normal(1000 // n, 17))


@row("product 1000 17 1000")
def outer(n: int) -> Row:
    return product(normal(1000 // n, 17), normal(17, 1000 // n))


@row("matrix @ vector 2048")
def matrix_vector(n: int) -> Row:
    return product(normal(2048 // n, 2048 // n), normal(2048 // n))


@row("1 row @ 2048")
def one_row(n: int) -> Row:
    return product(normal(1, 2048 // n), normal(2048 // n, 2048 // n))


@row("16 rows @ 2048")
def few_rows(n: int) -> Row:
    return product(normal(16, 2048 // n), normal(2048 // n, 2048 // n))


@row("A.T @ A of 20000 x 64")
def gram(n: int) -> Row:
    def run(a):
        return a.T @ a

    return Row(run, (normal(20_000 // n, 64),), torch=lambda a: a.T @ a, arrays=lambda xp, a: a.T @ a)


@row("product bf16 512")
def bf16_product(n: int) -> Row:
    a, b = (normal(512 // n, 512 // n, dtype=BF16) for _ in range(2))
    return Row(lambda a, b: a @ b, (a, b), torch=torch.matmul, tolerance=2e-2)


@row("product f16 512")
def f16_product(n: int) -> Row:
    a, b = (normal(512 // n, 512 // n, dtype=np.float16) for _ in range(2))
    return Row(lambda a, b: a @ b, (a, b), torch=torch.matmul, tolerance=5e-3)


@row("product int8 to int32 512")
def int8_product(n: int) -> Row:
    def run(a, b):
        return a.to(ts.int32) @ b.to(ts.int32)

    def eager(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(a, b)

    a, b = integers(100, 512 // n, 512 // n, dtype="i1"), integers(99, 512 // n, 512 // n, dtype="i1")
    return Row(run, (a, b), torch=eager, arrays=lambda xp, a, b: a.astype("i4") @ b.astype("i4"), tolerance=0)


@row("pairwise distances 1000 of 64")
def distances(n: int) -> Row:
    def run(x, y):
        squares = ts.sum(x * x, axis=1)[:, None] + ts.sum(y * y, axis=1)[None, :]
        return ts.sqrt(ts.maximum(squares - 2 * (x @ y.T), 0.0))

    def arrays(xp, x, y):
        squares = xp.sum(x * x, axis=1)[:, None] + xp.sum(y * y, axis=1)[None, :]
        return xp.sqrt(xp.maximum(squares - 2 * (x @ y.T), 0.0))

    x, y = normal(1000 // n, 64), normal(1000 // n, 64)[::-1] * np.float32(1.5) + 1
    return Row(run, (x, np.ascontiguousarray(y)), torch=torch.cdist, arrays=arrays, tolerance=1e-3)


@row("conv1d 16 x 64 x 1000, 5")
def conv1d(n: int) -> Row:
    def run(x, w, b):
        return ts.conv1d(x, w, b, padding=2)

    given = normal(16 // n, 64, 1000), normal(64, 64, 5, scale=0.05), normal(64)
    return Row(run, given, torch=lambda x, w, b: F.conv1d(x, w, b, padding=2))


@row("conv2d 8 x 64 x 56 x 56, 3 x 3")
def conv2d(n: int) -> Row:
    def run(x, w, b):
        return ts.conv2d(x, w, b, padding=1)

    given = normal(8 // n, 64, 56, 56), normal(64, 64, 3, 3, scale=0.04), normal(64)
    return Row(run, given, torch=lambda x, w, b: F.conv2d(x, w, b, padding=1))


@row("conv2d of patches 8 x 3 x 224 x 224, 16 x 16")
def patches(n: int) -> Row:
    def run(x, w):
        return ts.conv2d(x, w, stride=16)

    side = 224 // n
    return Row(run, (normal(8, 3, side, side), normal(192, 3, 16, 16, scale=0.04)),
               torch=lambda x, w: F.conv2d(x, w, stride=16))  # fmt: skip


@row("depthwise conv2d 8 x 128 x 56 x 56, 3 x 3")
def depthwise(n: int) -> Row:
    def run(x, w):
        return ts.conv2d(x, w, padding=1, groups=x.shape[1])

    channels = 128 // n
    return Row(run, (normal(8, channels, 56, 56), normal(channels, 1, 3, 3)),
               torch=lambda x, w: F.conv2d(x, w, padding=1, groups=x.shape[1]))  # fmt: skip
