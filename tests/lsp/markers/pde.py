"""Steps of partial differential equations: heat, waves, advection, a pressure solve, Burgers' equation by spectra."""
# fmt: off
# ruff: noqa

import tessera as ts
from tessera import Tensor

DX = 0.01
DT = 0.5 * DX * DX
VISCOSITY = 0.1


def laplacian(u):
    inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]
    return inner / (DX * DX)


@ts.function
def heat(u: Tensor["N", "M"]) -> Tensor["N", "M"]:
    change = laplacian(u)  #: [N-2, M-2] f32
    inside = u[1:-1, 1:-1] + DT * change  #: [N-2, M-2] f32
    return ts.pad(inside, ((1, 1), (1, 1)))


@ts.function
def heat_many(u: Tensor["N", "M"], steps: int = 4):
    for _ in range(steps):
        u = ts.pad(u[1:-1, 1:-1] + DT * laplacian(u), ((1, 1), (1, 1)))
    energy = (u * u).sum() * DX * DX  #: [] f32
    return u, energy


@ts.function
def wave(u: Tensor["N", "M"], before: Tensor["N", "M"], speed: Tensor["N", "M"]):
    courant = (speed * DT / DX) ** 2  #: [N, M] f32
    change = laplacian(u)  #: [N-2, M-2] f32
    inner = 2.0 * u[1:-1, 1:-1] - before[1:-1, 1:-1] + courant[1:-1, 1:-1] * change  #: [N-2, M-2] f32
    return ts.pad(inner, ((1, 1), (1, 1))), u


@ts.function
def upwind(q: Tensor["N"], velocity: Tensor["N"]) -> Tensor["N"]:
    left = ts.roll(q, 1, axis=0)  #: [N] f32
    right = ts.roll(q, -1, axis=0)  #: [N] f32
    slope = ts.where(velocity > 0, q - left, right - q)  #: [N] f32
    return q - DT / DX * velocity * slope


@ts.function
def jacobi(p: Tensor["N", "M"], rhs: Tensor["N", "M"]) -> Tensor["N", "M"]:
    for sweep in range(8):
        neighbours = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]  #: [N-2, M-2] f32
        inner = (neighbours - DX * DX * rhs[1:-1, 1:-1]) * 0.25  #: [N-2, M-2] f32
        p = ts.pad(inner, ((1, 1), (1, 1)))
    return p


@ts.function
def divergence(u: Tensor["N", "M"], v: Tensor["N", "M"]):
    du = u[2:, 1:-1] - u[:-2, 1:-1]  #: [N-2, M-2] f32
    dv = v[1:-1, 2:] - v[1:-1, :-2]  #: [N-2, M-2] f32
    total = (du + dv) / (2.0 * DX)  #: [N-2, M-2] f32
    worst = ts.abs(total).max()  #: [] f32
    return total, worst


@ts.function
def settle(u: Tensor["N", "M"], limit: Tensor[()]):
    worst = ts.abs(laplacian(u)).max()  #: [] f32
    while worst > limit:
        u = ts.pad(u[1:-1, 1:-1] + DT * laplacian(u), ((1, 1), (1, 1)))
        worst = ts.abs(laplacian(u)).max()
    return u


@ts.function
def clamped(u: Tensor["N", "M"], edge: Tensor["M"]):
    top = u[0] - edge  #: [M] f32
    side = u[:, 0] - edge
    #      ^^^^^^^^^^^^^^ TS202
    return top, side
