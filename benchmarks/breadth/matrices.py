"""Linear algebra: factors, solutions and batches of small matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import tessera as ts
from benchmarks.breadth.row import Row, normal, row


def positive(*shape: int) -> np.ndarray:
    x = normal(*shape)
    return (x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(np.float32)


def well_conditioned(*shape: int) -> np.ndarray:
    return (normal(*shape) + 2 * np.sqrt(shape[-1]) * np.eye(shape[-1])).astype(np.float32)


@row("cholesky 512 x 512")
def cholesky(n: int) -> Row:
    return Row(lambda x: ts.linalg.cholesky(x), (positive(512 // n, 512 // n),), torch=torch.linalg.cholesky,
               arrays=lambda xp, x: xp.linalg.cholesky(x))  # fmt: skip


@row("solve 512 x 512 for 64")
def solve(n: int) -> Row:
    arguments = well_conditioned(512 // n, 512 // n), normal(512 // n, 64)
    return Row(lambda a, b: ts.linalg.solve(a, b), arguments, torch=torch.linalg.solve,
               arrays=lambda xp, a, b: xp.linalg.solve(a, b))  # fmt: skip


@row("qr 512 x 512")
def qr(n: int) -> Row:
    x = well_conditioned(512 // n, 512 // n)
    return Row(lambda x: ts.linalg.qr(x), (x,), torch=lambda x: tuple(torch.linalg.qr(x)),
               arrays=lambda xp, x: tuple(xp.linalg.qr(x)))  # fmt: skip


@row("eigh 256")
def eigh(n: int) -> Row:
    """As a matrix and its eigenvalues: signs of vectors are not defined."""
    x = positive(256 // n, 256 // n)

    def of(xp: Any, x: Any) -> Any:
        w, v = xp.linalg.eigh(x)
        return w, v * w @ v.T

    return Row(lambda x: of(ts, x), (x,), torch=lambda x: of(torch, x), arrays=of)


@row("svd 256")
def svd(n: int) -> Row:
    x = well_conditioned(256 // n, 256 // n)

    def of(xp: Any, x: Any) -> Any:
        u, s, vt = xp.linalg.svd(x)
        return s, u * s @ vt

    return Row(lambda x: of(ts, x), (x,), torch=lambda x: of(torch, x), arrays=of)


@row("cholesky of 4096, 8 x 8")
def small_factors(n: int) -> Row:
    return Row(lambda x: ts.linalg.cholesky(x), (positive(4096 // n, 8, 8),), torch=torch.linalg.cholesky,
               arrays=lambda xp, x: xp.linalg.cholesky(x))  # fmt: skip


@row("solve 4096 of 8 x 8")
def small_systems(n: int) -> Row:
    arguments = well_conditioned(4096 // n, 8, 8), normal(4096 // n, 8, 1)
    return Row(lambda a, b: ts.linalg.solve(a, b), arguments, torch=torch.linalg.solve,
               arrays=lambda xp, a, b: xp.linalg.solve(a, b))  # fmt: skip
