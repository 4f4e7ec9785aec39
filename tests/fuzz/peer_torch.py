"""The names of random programs (`peers`), as PyTorch reads them."""

from __future__ import annotations

import torch
from torch.nn import functional

NAMES = """
sin cos tanh exp sqrt log log1p log2 sigmoid relu abs erf atan acos expm1 rsqrt square reciprocal sinh where
floor sign maximum minimum atan2 pow hypot logaddexp xlogy lerp copysign remainder flip permute reshape concat
stack roll tril triu einsum
"""
for _name in NAMES.split():
    globals()[_name] = getattr(torch, _name)
for _name in ("silu", "softplus", "gelu", "elu", "leaky_relu", "logsigmoid", "conv1d", "softmax", "log_softmax"):
    globals()[_name] = getattr(functional, _name)


def where(c, a, b):
    return torch.where(c, a, torch.as_tensor(b, dtype=a.dtype))


def clip(x, low, high):
    return torch.clamp(x, low, high)


def sum(x, axis=None, keepdims=False):
    return x.sum() if axis is None else x.sum(axis, keepdim=keepdims)


def mean(x, axis, keepdims=False):
    return x.mean(axis, keepdim=keepdims)


def amax(x, axis, keepdims=False):
    return torch.amax(x, axis, keepdim=keepdims)


def amin(x, axis, keepdims=False):
    return torch.amin(x, axis, keepdim=keepdims)


def prod(x, axis, keepdims=False):
    return torch.prod(x, axis, keepdim=keepdims)


def logsumexp(x, axis, keepdims=False):
    return torch.logsumexp(x, axis, keepdim=keepdims)


def var1(x, axis, keepdims=False):
    return torch.var(x, axis, correction=1, keepdim=keepdims)


def std1(x, axis, keepdims=False):
    return torch.std(x, axis, correction=1, keepdim=keepdims)


def norm2(x, axis, keepdims=False):
    return torch.sqrt(torch.sum(x * x, axis, keepdim=keepdims))


def normed(x, axis):
    far = x - x.mean(axis, keepdim=True)
    return far / torch.sqrt((far * far).mean(axis, keepdim=True) + 0.1)


def cumsum(x, axis):
    return torch.cumsum(x, axis)


def cumprod(x, axis):
    return torch.cumprod(x, axis)


def diff(x, axis):
    return torch.diff(x, dim=axis)


def outer(a, b):
    return torch.outer(a, b)


def argsort(x, axis):
    return torch.argsort(x.detach(), dim=axis, stable=True)


def repeated(x, count, axis):
    return torch.repeat_interleave(x, count, dim=axis)


def padded(x, low, high, axis):
    pads = [0] * (2 * x.ndim)
    pads[2 * (x.ndim - 1 - axis)], pads[2 * (x.ndim - 1 - axis) + 1] = low, high
    return functional.pad(x, pads)


def counted(shape, _like):
    count = 1
    for n in shape:
        count *= n
    return torch.arange(count, dtype=torch.float64).reshape(shape) * 0.1 - 0.2


def taken(x, ids, axis):
    return torch.index_select(x, axis, ids)


def along(x, ids, axis):
    return torch.gather(x, axis, ids)


def scattered(x, ids, updates, axis):
    return torch.scatter_add(x, axis, ids, updates)


def segments(x, ids, count, axis):
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return torch.zeros(shape, dtype=x.dtype).index_add(axis, ids, x)


def sorted(x, axis, descending):
    return torch.sort(x, dim=axis, descending=descending, stable=True)[0]


def top(x, k, axis):
    return torch.topk(x, k, dim=axis)[0]


def stored(x, at, update, axis):
    return x.index_copy(axis, torch.tensor([at]), update.unsqueeze(axis))


def slope(f, x):
    if not x.requires_grad:
        x = x.clone().requires_grad_()
    # x itself may be read by f from outside: only the argument is differentiated
    u = x + 0.0
    return torch.autograd.grad(f(u), u, create_graph=True)[0]


def mapped(f, x):
    return torch.stack([f(r) for r in x])


def scanned(f, init, xs):
    out = []
    for x in xs:
        init, y = f(init, x)
        out.append(y)
    return torch.stack(out)


def through_f32(x):
    return torch.sin(x.float()).double()
