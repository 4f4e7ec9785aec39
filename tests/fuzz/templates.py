"""Statements over operators, as templates: `fusion` fills in names of tensors, numbers, axes, shapes and dtypes.

Operands: {a} and {z} are any tensors, {f} floats, {i} integers, {k} integers with an axis, {v} a vector of integers,
{m} and {q} bools; {b} is of the dtype of {a}, {s} also of its shape, {g} of the dtype of {f}, {j} of that of {i}.
"""

from __future__ import annotations

FUNCTIONS = (
    "ts.sin({f})", "ts.cos({f})", "ts.tan({f})", "ts.asin({f})", "ts.acosh({f})", "ts.atanh({f})", "ts.sinh({f})",
    "ts.tanh({f})", "ts.exp({f})", "ts.exp2({f})", "ts.expm1({f})", "ts.log(ts.abs({f}))", "ts.log1p({f})",
    "ts.sqrt({f})", "ts.rsqrt({f})", "ts.gelu({f})", "ts.gelu_tanh({f})", "ts.silu({f})", "ts.sigmoid({f})",
    "ts.softplus({f})", "ts.erf({f})", "ts.lgamma({f})", "ts.digamma({f})", "ts.atan2({f}, {g})", "ts.hypot({f}, {g})",
    "ts.pow({f}, {g})", "ts.logaddexp({f}, {g})", "ts.xlogy({f}, {g})",
)  # fmt: skip
ROUNDED = (
    "ts.floor({f})", "ts.round({f})", "ts.trunc({f})", "ts.frac({f})", "ts.sign({a})", "ts.abs({a})", "-{a}",
    "ts.square({a})", "ts.reciprocal({f})", "ts.isnan({f})", "ts.signbit({f})", "ts.copysign({f}, {g})",
    "ts.nextafter({f}, {g})", "ts.nan_to_num({f})", "ts.fma({f}, {g}, {f})", "ts.heaviside({f}, {g})",
    "ts.lerp({f}, {g}, 0.3)", "ts.fmod({f}, {g})", "ts.fmax({f}, {g})", "ts.fmin({f}, {g})", "ts.hardtanh({f})",
    "ts.celu({f})", "ts.relu6({f})", "ts.hardswish({f})", "ts.sinc({f})",
)  # fmt: skip
ARITHMETIC = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / {b}", "{a} // {b}", "{a} % {b}", "ts.remainder({a}, {b})",
    "{a} + {n}", "{a} * {n}", "{a} / {n}", "{a} // {n}", "{a} % {n}", "{n} - {a}", "{n} // {a}", "{a} ** 2",
    "{i} ** 3", "{f} ** 0.5", "{f} ** -1", "{a} + {z}", "{a} * {z}", "{a} * 0.5", "1.5 - {a}",
)  # fmt: skip
BITS = (
    "{i} << 1", "{i} >> 1", "{i} & {j}", "{i} | {j}", "{i} ^ {j}", "~{i}", "{i} << ({j} & 7)", "{i} >> ({j} & 7)",
    "{i} << {j}", "{i} >> {j}",
)  # fmt: skip
CHOICES = (
    "ts.where({m}, {a}, {b})", "ts.where({a} > {b}, {a}, {b})", "ts.where({m}, {a}, 0)", "ts.maximum({a}, {b})",
    "ts.minimum({a}, {n})", "ts.clip({a}, {bounds})", "ts.masked_fill({a}, {m}, {n})", "{a} > {b}", "{a} == {b}",
    "{a} <= {n}", "{a} != {b}", "ts.logical_xor({m}, {q})", "{m} & {q}", "{m} | {q}", "~{m}", "ts.logical_not({a})",
)  # fmt: skip
CASTS = (
    "ts.cast({a}, ts.{dtype})", "ts.cast({a}, ts.{integer})", "{a}.to(ts.{float})",
    "ts.saturate_cast({a}, ts.{integer})", "ts.bitcast({a}, ts.{dtype})",
)  # fmt: skip
SUBSCRIPTS = (
    "{a}[1:]", "{a}[::-1]", "{a}[..., ::2]", "{a}[:, None]", "{a}[..., -1]", "{a}[0]", "{a}[-1]", "{a}[:, 1:-1]",
    "{a}[2::-1]", "{a}[:0]", "{a}[{k}]", "{a}[:, {k}]", "{a}[..., None]", "{a}[::-2]",
    "{a}[{m}.reshape(-1)[0:1].to(ts.int32)]",
)  # fmt: skip
ARRANGED = (
    "{a}.T", "ts.flip({a}, {axis})", "ts.roll({a}, {n}, {axis})", "ts.reshape({a}, (-1,))", "{a}.reshape({shape})",
    "ts.swapaxes({a}, 0, -1)", "ts.moveaxis({a}, 0, -1)", "ts.permute({a}, {order})", "ts.unsqueeze({a}, {axis})",
    "ts.squeeze({a})", "ts.broadcast_to({a}, (2, *{a}.shape))", "ts.rot90({a})", "ts.tril({a})", "ts.triu({a}, 1)",
    "ts.diagonal({a})", "ts.diag({a})", "ts.fliplr({a})", "ts.repeat({a}, 2, {axis})", "ts.pad({a}, {widths})",
    "ts.pad({a}, {widths}, value={n})", "ts.stack([{a}, {s}], {axis})", "ts.concat([{a}, {s}], {axis})",
    "ts.concat([{a}, {b}], {axis})", "ts.split({a}, (1,), {axis})[1]", "ts.chunk({a}, 2, {axis})[0]",
    "ts.unstack({a})[0]", "ts.vstack([{a}, {s}])", "ts.hstack([{a}, {s}])", "ts.sliding_window_view({a}, 2, {axis})",
    "ts.outer({a}, {b})", "ts.kron({a}, {b})", "ts.flatten({a})", "ts.fft.fftshift({a})", "ts.real({a})",
    "ts.imag({a})", "ts.conj({a})", "ts.make_complex({f}, {g})",
)  # fmt: skip
ORDERED = (
    "ts.max({a}, {axis})", "ts.min({a}, {axis}, keepdims=True)", "ts.max({a}, {axes})", "ts.argmax({a}, {axis})",
    "ts.argmin({a}, {axis})", "ts.argmax({a})", "ts.any({a}, {axis})", "ts.all({a}, {axis})",
    "ts.count_nonzero({a}, {axis})", "ts.ptp({a}, {axis})", "ts.median({f}, {axis})", "ts.nanmax({f}, {axis})",
    "ts.cummax({a}, {axis})", "ts.cummin({a}, {axis})", "ts.diff({a}, axis={axis})", "ts.sort({a}, {axis})",
    "ts.argsort({a}, {axis})", "ts.sort({a}, {axis}, descending=True)", "ts.argsort({a}, {axis}, descending=True)",
    "ts.topk({a}, 1, axis={axis})[0]", "ts.topk({a}, 2, axis={axis})[1]",
    "ts.searchsorted(ts.sort(ts.reshape({f}, (-1,))), {g})", "ts.bincount(ts.abs(ts.reshape({i}, (-1,))) % 7, 7)",
    "ts.histogram({f}, 4, -2.0, 2.0)",
)  # fmt: skip
LOOKED_UP = (
    "ts.take({a}, {i}, axis={axis})", "ts.take({a}, {i} % 3, axis={axis})", "ts.take_along_axis({a}, {i}, axis={axis})",
    "ts.gather({a}, {axis}, {i})", "ts.scatter({a}, {i}, {b}, {axis})", "ts.put_along_axis({a}, {i}, {b}, {axis})",
    "ts.segment_max({a}, {v}, 3)", "ts.one_hot({i} % 5, 5)", "ts.index_select({a}, {axis}, {v})",
    "ts.put({a}, {v}, {b})",
)  # fmt: skip
SUMS = (
    "ts.sum({a})", "ts.sum({a}, {axis})", "ts.sum({a}, {axis}, keepdims=True)", "ts.sum({a}, {axes})",
    "ts.sum({a}, ())", "ts.mean({a}, {axis})", "ts.mean({a}, {axes}, keepdims=True)", "ts.prod({a}, {axis})",
    "ts.var({f}, {axis})", "ts.std({f}, {axis})", "ts.logsumexp({f}, {axis})", "ts.softmax({f}, {axis})",
    "ts.log_softmax({f}, {axis})", "ts.norm({f}, axis={axis})", "ts.nanmean({f}, {axis})", "ts.nansum({f}, {axis})",
    "ts.quantile({f}, 0.3, axis={axis})", "ts.trace({a})", "ts.cumsum({a})", "ts.cumsum({a}, {axis})",
    "ts.cumprod({a}, {axis})", "ts.flip(ts.cumsum(ts.flip({a}, {axis}), {axis}), {axis})",
    "ts.segment_sum({a}, {v}, 4)", "ts.scatter_add({a}, {i}, {b}, {axis})",
)  # fmt: skip
PRODUCTS = (
    "{a} @ {b}", "{a} @ {b}.T", "{a}.T @ {b}", "ts.einsum('ij,kj->ik', {a}, {b})", "ts.einsum('ii', {a})",
    "ts.einsum('ii->i', {a})", "ts.einsum('ij->ji', {a})", "ts.einsum('ij,ij->', {a}, {s})",
    "ts.einsum('...j->...', {a})", "ts.einsum('ij,jk,kl->il', {a}, {b}.T, {b})", "ts.einsum('i,j->ij', {a}, {b})",
    "ts.tensordot({a}, {b}, 1)", "ts.inner({a}, {b})", "ts.dot({a}, {b})", "ts.vdot({a}, {s})", "ts.vecdot({a}, {s})",
    "ts.cross({a}, {s})", "ts.linear({f}, {g})", "ts.cdist({f}, {g})", "ts.cosine_similarity({f}, {g})",
    "ts.layer_norm({f})", "ts.rms_norm({f})", "ts.normalize({f})", "ts.glu({f})", "ts.mse({f}, {g})", "ts.cov({f})",
    "ts.trapezoid({f})", "ts.interp({f}, ts.sort(ts.reshape({g}, (-1,))), ts.reshape({g}, (-1,)))",
    "ts.fft.fft({a})", "ts.fft.rfft({f})", "ts.fft.ifft({a})",
)  # fmt: skip

TEMPLATES = {
    template: weight
    for weight, family in (
        (1, FUNCTIONS), (2, ROUNDED), (5, ARITHMETIC), (2, BITS), (3, CHOICES), (2, CASTS), (3, SUBSCRIPTS),
        (3, ARRANGED), (3, ORDERED), (2, LOOKED_UP), (3, SUMS), (2, PRODUCTS),
    )
    for template in family
}  # fmt: skip
"""how often each is taken"""
