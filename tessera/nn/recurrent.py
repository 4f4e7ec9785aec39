"""Recurrent layers: loops over time at run time, so another length does not recompile."""

from __future__ import annotations

from typing import Any

import tessera as ts
from tessera import Tensor
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.nn import init
from tessera.nn.dense import Linear
from tessera.nn.module import Module


class LSTM(Module):
    """x [B, T, D] to the states h [B, T, H] after each step (S. Hochreiter, J. Schmidhuber, 1997; with a forget gate:
    F. A. Gers et al., 2000).

    i, f, g, o = x_t W + h U + b in four parts; c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c). h and c
    start as 0, or as `state`, a pair (h, c) of [B, H]. With it the result is a pair too, of the states and of the last
    (h, c), from which the next call goes on; `layer.initial(x)` is the pair of zeros. Weights start uniform with |w| <
    1 / sqrt(H), as in PyTorch, whose two biases add up to this one. With an `output_size` the states go through a
    `Linear` layer: [B, T, output_size].
    """

    _one_result = "out, (h, c) = layer(x, layer.initial(x)) gives the last state, too"
    input: Tensor["D", "4*H"]
    state: Tensor["H", "4*H"]
    bias: Tensor["4*H"]
    out: Linear | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int | None = None,
        *,
        key: int | None = None,
        dtype: Any = ts.f32,
    ) -> None:
        self.input, self.state, self.bias = _weights(input_size, hidden_size, 4, key, dtype)
        third = init.split(key, 3)[2]
        self.out = None if output_size is None else Linear(hidden_size, output_size, key=third, dtype=dtype)

    @fitted
    def initial(self, x: Tensor["B", "T", "D"]):
        zeros = ts.zeros((x.shape[0], self.state.shape[0]), x.dtype)
        return zeros, zeros

    def __call__(self, x: Tensor["B", "T", "D"], state: tuple[Tensor, Tensor] | None = None):
        _demand_sequences("LSTM", x)
        given = x @ self.input + self.bias
        h, c = self.initial(x) if state is None else state
        out = ts.zeros((x.shape[0], x.shape[1], self.state.shape[0]), x.dtype)
        for t in ts.range(x.shape[1]):
            i, f, g, o = ts.split(given[:, t] + h @ self.state, 4, axis=-1)
            c = ts.sigmoid(f) * c + ts.sigmoid(i) * ts.tanh(g)
            h = ts.sigmoid(o) * ts.tanh(c)
            out = ts.put(out, t, h, axis=1)
        out = out if self.out is None else self.out(out)
        return out if state is None else (out, (h, c))


class GRU(Module):
    """x [B, T, D] to the states h [B, T, H] after each step (K. Cho et al., 2014).

    r, z = sigmoid of two parts of x_t W + b + h U; n = tanh(x_t W + b + r (h U + state_bias)), of the third; h = (1 -
    z) n + z h, with h = 0 at first, or `state` [B, H]. With it the result is the pair of the states and of the last h,
    from which the next call goes on; `layer.initial(x)` is 0. Weights start like those of `LSTM`.
    """

    _one_result = "out, h = layer(x, layer.initial(x)) gives the last state, too"
    input: Tensor["D", "3*H"]
    state: Tensor["H", "3*H"]
    bias: Tensor["3*H"]
    state_bias: Tensor["3*H"]

    def __init__(self, input_size: int, hidden_size: int, *, key: int | None = None, dtype: Any = ts.f32) -> None:
        self.input, self.state, self.bias = _weights(input_size, hidden_size, 3, key, dtype)
        self.state_bias = ts.zeros((3 * hidden_size,), dtype)

    @fitted
    def initial(self, x: Tensor["B", "T", "D"]):
        return ts.zeros((x.shape[0], self.state.shape[0]), x.dtype)

    def __call__(self, x: Tensor["B", "T", "D"], state: Tensor | None = None):
        _demand_sequences("GRU", x)
        given = x @ self.input + self.bias
        h = self.initial(x) if state is None else state
        out = ts.zeros((x.shape[0], x.shape[1], self.state.shape[0]), x.dtype)
        for t in ts.range(x.shape[1]):
            r, z, n = ts.split(given[:, t], 3, axis=-1)
            hr, hz, hn = ts.split(h @ self.state + self.state_bias, 3, axis=-1)
            keep = ts.sigmoid(z + hz)
            h = (1 - keep) * ts.tanh(n + ts.sigmoid(r + hr) * hn) + keep * h
            out = ts.put(out, t, h, axis=1)
        return out if state is None else (out, h)


def _demand_sequences(name, x):
    """Raises LaunchError TS213 for one sequence: the loop would take its features for its steps."""
    if len(x.shape) != 3:
        message = f"{name} takes sequences [batch, time, features], not {list(x.shape)}; x[None] is a batch of one"
        raise LaunchError(Diagnostic("TS213", message))


def _weights(
    inputs: int, hidden: int, gates: int, key: int | None, dtype: Any
) -> tuple[ts.Tensor, ts.Tensor, ts.Tensor]:
    a, b = init.split(key, 2)
    first = init.lecun_uniform((inputs, gates * hidden), a, dtype, fan_in=hidden)
    second = init.lecun_uniform((hidden, gates * hidden), b, dtype, fan_in=hidden)
    return first, second, ts.zeros((gates * hidden,), dtype)
