"""The names of `ts.nn`, for type checkers and editors. Made by scripts/make_stubs.py."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self, TypeAlias, TypeVar

from . import init as init
from . import stable as stable
from . import tree as tree
from tessera import abs as abs
from tessera import absolute as absolute
from tessera import acos as acos
from tessera import acosh as acosh
from tessera import add as add
from tessera import all as all
from tessera import amax as amax
from tessera import amin as amin
from tessera import any as any
from tessera import arange as arange
from tessera import arccos as arccos
from tessera import arccosh as arccosh
from tessera import arcsin as arcsin
from tessera import arcsinh as arcsinh
from tessera import arctan as arctan
from tessera import arctan2 as arctan2
from tessera import arctanh as arctanh
from tessera import argmax as argmax
from tessera import argmin as argmin
from tessera import argsort as argsort
from tessera import asin as asin
from tessera import asinh as asinh
from tessera import astype as astype
from tessera import atan as atan
from tessera import atan2 as atan2
from tessera import atanh as atanh
from tessera import attention as attention
from tessera import attention_with_logsumexp as attention_with_logsumexp
from tessera import avg_pool1d as avg_pool1d
from tessera import avg_pool2d as avg_pool2d
from tessera import avg_pool3d as avg_pool3d
from tessera import batch_norm as batch_norm
from tessera import bernoulli as bernoulli
from tessera import bit_and as bit_and
from tessera import bit_not as bit_not
from tessera import bit_or as bit_or
from tessera import bit_xor as bit_xor
from tessera import bitcast as bitcast
from tessera import bitcast_convert_type as bitcast_convert_type
from tessera import bitwise_and as bitwise_and
from tessera import bitwise_invert as bitwise_invert
from tessera import bitwise_left_shift as bitwise_left_shift
from tessera import bitwise_not as bitwise_not
from tessera import bitwise_or as bitwise_or
from tessera import bitwise_right_shift as bitwise_right_shift
from tessera import bitwise_xor as bitwise_xor
from tessera import bmm as bmm
from tessera import broadcast_to as broadcast_to
from tessera import cast as cast
from tessera import cat as cat
from tessera import ceil as ceil
from tessera import chunk as chunk
from tessera import clamp as clamp
from tessera import clip as clip
from tessera import concat as concat
from tessera import concatenate as concatenate
from tessera import conj as conj
from tessera import conjugate as conjugate
from tessera import conv1d as conv1d
from tessera import conv2d as conv2d
from tessera import conv3d as conv3d
from tessera import conv_transpose1d as conv_transpose1d
from tessera import conv_transpose2d as conv_transpose2d
from tessera import conv_transpose3d as conv_transpose3d
from tessera import copysign as copysign
from tessera import cos as cos
from tessera import cosh as cosh
from tessera import count_nonzero as count_nonzero
from tessera import cross_entropy as cross_entropy
from tessera import cummax as cummax
from tessera import cummin as cummin
from tessera import cumprod as cumprod
from tessera import cumsum as cumsum
from tessera import cumulative_prod as cumulative_prod
from tessera import cumulative_sum as cumulative_sum
from tessera import detach as detach
from tessera import dft as dft
from tessera import diff as diff
from tessera import div as div
from tessera import divide as divide
from tessera import dot as dot
from tessera import dropout as dropout
from tessera import einsum as einsum
from tessera import elu as elu
from tessera import embedding as embedding
from tessera import eq as eq
from tessera import equal as equal
from tessera import erf as erf
from tessera import exp as exp
from tessera import exp2 as exp2
from tessera import expand_dims as expand_dims
from tessera import expm1 as expm1
from tessera import eye as eye
from tessera import fit_length as fit_length
from tessera import flatten as flatten
from tessera import flip as flip
from tessera import floor as floor
from tessera import floor_divide as floor_divide
from tessera import floordiv as floordiv
from tessera import fma as fma
from tessera import full as full
from tessera import full_like as full_like
from tessera import gather as gather
from tessera import ge as ge
from tessera import gelu as gelu
from tessera import gelu_tanh as gelu_tanh
from tessera import gemm as gemm
from tessera import greater as greater
from tessera import greater_equal as greater_equal
from tessera import group_norm as group_norm
from tessera import gt as gt
from tessera import hypot as hypot
from tessera import imag as imag
from tessera import iota as iota
from tessera import irdft as irdft
from tessera import isfinite as isfinite
from tessera import isinf as isinf
from tessera import isnan as isnan
from tessera import layer_norm as layer_norm
from tessera import le as le
from tessera import leaky_relu as leaky_relu
from tessera import left_shift as left_shift
from tessera import lerp as lerp
from tessera import less as less
from tessera import less_equal as less_equal
from tessera import linear as linear
from tessera import linspace as linspace
from tessera import log as log
from tessera import log10 as log10
from tessera import log1p as log1p
from tessera import log2 as log2
from tessera import log_softmax as log_softmax
from tessera import logaddexp as logaddexp
from tessera import logical_and as logical_and
from tessera import logical_not as logical_not
from tessera import logical_or as logical_or
from tessera import logical_xor as logical_xor
from tessera import logsumexp as logsumexp
from tessera import lt as lt
from tessera import make_complex as make_complex
from tessera import masked_fill as masked_fill
from tessera import matmul as matmul
from tessera import matrix_transpose as matrix_transpose
from tessera import max as max
from tessera import max_pool1d as max_pool1d
from tessera import max_pool2d as max_pool2d
from tessera import max_pool3d as max_pool3d
from tessera import maximum as maximum
from tessera import mean as mean
from tessera import min as min
from tessera import minimum as minimum
from tessera import mm as mm
from tessera import mod as mod
from tessera import moveaxis as moveaxis
from tessera import mse as mse
from tessera import mse_loss as mse_loss
from tessera import mul as mul
from tessera import multiply as multiply
from tessera import ne as ne
from tessera import neg as neg
from tessera import negative as negative
from tessera import nextafter as nextafter
from tessera import norm as norm
from tessera import normal as normal
from tessera import not_equal as not_equal
from tessera import one_hot as one_hot
from tessera import ones as ones
from tessera import ones_like as ones_like
from tessera import outer as outer
from tessera import pad as pad
from tessera import permute as permute
from tessera import permute_dims as permute_dims
from tessera import positive as positive
from tessera import pow as pow
from tessera import power as power
from tessera import prod as prod
from tessera import put as put
from tessera import put_along_axis as put_along_axis
from tessera import randint as randint
from tessera import random_bits as random_bits
from tessera import ravel as ravel
from tessera import rdft as rdft
from tessera import real as real
from tessera import reciprocal as reciprocal
from tessera import relu as relu
from tessera import remainder as remainder
from tessera import repeat as repeat
from tessera import reshape as reshape
from tessera import right_shift as right_shift
from tessera import rms_norm as rms_norm
from tessera import roll as roll
from tessera import round as round
from tessera import rsqrt as rsqrt
from tessera import saturate_cast as saturate_cast
from tessera import scaled_dot_product_attention as scaled_dot_product_attention
from tessera import scatter as scatter
from tessera import scatter_add as scatter_add
from tessera import segment_max as segment_max
from tessera import segment_min as segment_min
from tessera import segment_sum as segment_sum
from tessera import shift_left as shift_left
from tessera import shift_right as shift_right
from tessera import sigmoid as sigmoid
from tessera import sign as sign
from tessera import signbit as signbit
from tessera import silu as silu
from tessera import sin as sin
from tessera import sinh as sinh
from tessera import sliding_window_view as sliding_window_view
from tessera import softmax as softmax
from tessera import softplus as softplus
from tessera import sort as sort
from tessera import split as split
from tessera import sqrt as sqrt
from tessera import square as square
from tessera import squeeze as squeeze
from tessera import stack as stack
from tessera import std as std
from tessera import stochastic_cast as stochastic_cast
from tessera import stop_gradient as stop_gradient
from tessera import sub as sub
from tessera import subtract as subtract
from tessera import sum as sum
from tessera import swapaxes as swapaxes
from tessera import take as take
from tessera import take_along_axis as take_along_axis
from tessera import tan as tan
from tessera import tanh as tanh
from tessera import tensordot as tensordot
from tessera import topk as topk
from tessera import transpose as transpose
from tessera import tril as tril
from tessera import triu as triu
from tessera import true_divide as true_divide
from tessera import trunc as trunc
from tessera import unbind as unbind
from tessera import uniform as uniform
from tessera import unsqueeze as unsqueeze
from tessera import unstack as unstack
from tessera import var as var
from tessera import vecdot as vecdot
from tessera import where as where
from tessera import xlogy as xlogy
from tessera import zeros as zeros
from tessera import zeros_like as zeros_like
from tessera.nn.module import Module as Module
from tessera.nn.stable import FusedAdamW as FusedAdamW
from tessera.nn.stable import FusedSGD as FusedSGD
from tessera.nn.stable import cross_entropy_safe as cross_entropy_safe

Array: TypeAlias = Any
"""a Tensor, a number, or an array of NumPy, CuPy, PyTorch or JAX"""
A = TypeVar("A")
"""results belong to the library of the first array"""


def Parameter(data: Any) -> Any:
    """`data` as an array of floats, f32 if it is a number or a list: a parameter in a field, as any such array is.

    Raises LaunchError TS351 for what is no float.
    """

def buffer(*given: Any, default: Any = ..., default_factory: Any = ..., init: bool = ...) -> Any:
    """A field whose arrays are not trained: `mean: Tensor["D"] = ts.nn.buffer()`. Raises LaunchError TS105 for an
    array, which a class does not hold: `self.register_buffer("mean", array)`, in `__init__`, makes a buffer of one.
    """

def rope(x: Any, base: float = ..., start: Any = ...) -> Any:
    """x [..., S, D] with the pair of features (i, i + D/2) at position s rotated by the angle s * base^(-2i/D); D is
    even. The first position is `start`, a number or a tensor of one.

    Rotary position embedding (J. Su et al., "RoFormer", 2021), with the halves of a head as pairs, as in Llama. Angles
    are f32, the result has the dtype of x.
    """

def alibi(q: Any, k: Any) -> Any:
    """The bias [H, S, T] of the scores of q [..., H, S, D] and k [..., G, T, D]: -2^(-8(h+1)/H) times the distance of
    query and key (O. Press, N. A. Smith, M. Lewis, "Train short, test long", 2022). The last query is at the last key;
    H is a power of 2. It has the dtype of q.
    """

def tree_ravel(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All parameters of a tree, its arrays of floats without buffers, in one vector, and the function that makes a tree
    of such a vector: for solvers of one vector, as `jax.flatten_util.ravel_pytree`. In functions and outside.

    The vector has the dtype that the parameters have together; `unravel(vector)` gives each its own.
    """

def binary_cross_entropy(logits: Any, labels: Any, pos_weight: Any = ..., reduction: Literal['mean', 'sum', 'none'] = ...) -> Any:
    """The mean of -(w y log p + (1 - y) log(1 - p)) with p = sigmoid(logits), for labels y in [0, 1] of the same shape.

    w is `pos_weight`, a number or one for each of the last axis, 1 without. Computed as max(x, 0) - x y +
    log(1 + e^-|x|), which neither overflows nor cancels.
    """

def huber(x: Any, y: Any, delta: float = ..., reduction: Literal['mean', 'sum', 'none'] = ...) -> Any:
    """The mean of (x - y)^2 / 2 where |x - y| <= delta, and of delta (|x - y| - delta / 2) elsewhere (P. J. Huber,
    1964).
    """

def triplet_margin(anchor: Any, positive: Any, negative: Any, margin: float = ..., p: float = ..., reduction: Literal['mean', 'sum', 'none'] = ...) -> Any:
    """The mean of max(0, d(anchor, positive) - d(anchor, negative) + margin) over vectors [..., n], with the p-norm of
    the difference, to which 1e-6 is added, as d (PyTorch's).
    """

def ctc_loss(log_probs: Any, labels: Any, steps: Any, lengths: Any, blank: int = ..., reduction: Literal['mean', 'sum', 'none'] = ..., zero_infinity: bool = ...) -> Any:
    """-log of the probability that a sequence of labels stands in a longer one of predictions, with blanks and repeats
    at any place (A. Graves et al., 2006).

    `log_probs` [T, B, C] are log_softmax of each step's scores, of which `steps` [B] count; `labels` [B, L] are numbers
    below C, of which `lengths` [B] count. The mean is that of each loss divided by its number of labels. A loss is
    infinite where there are too few steps, with `zero_infinity` 0, and so is its gradient.
    """

class Linear(Module):
    """x W + b: features [..., D] to [..., H], with `weight` [D, H] and `bias` [H] or None, of one float dtype.

    Raises CompileError TS203 if the last axis of x is not D.
    """
    weight: Any
    bias: Any
    def __init__(self, inputs: int, outputs: int, *, key: int | None = ..., bias: bool = ..., dtype: Any = ..., weights: Callable[..., Any] = ...) -> None:
        """`weights(shape, key, dtype)` makes the first weight; the first bias is 0."""
    def __call__(self, x: A) -> A: ...

class FusedLinearGeLU(Linear):
    """gelu(x W + b): `Linear` and the function after it, computed where the product's sums end."""
    def __init__(self, inputs: int, outputs: int, *, key: int | None = ..., bias: bool = ..., dtype: Any = ..., weights: Callable[..., Any] = ...) -> None:
        """`weights(shape, key, dtype)` makes the first weight; the first bias is 0."""
    def __call__(self, x: A) -> A: ...

class FusedLinearSiLU(Linear):
    """silu(x W + b): `Linear` and the function after it, computed where the product's sums end."""
    def __init__(self, inputs: int, outputs: int, *, key: int | None = ..., bias: bool = ..., dtype: Any = ..., weights: Callable[..., Any] = ...) -> None:
        """`weights(shape, key, dtype)` makes the first weight; the first bias is 0."""
    def __call__(self, x: A) -> A: ...

class Embedding(Module):
    """The rows of a table [N, D] at integers [...]: [..., D]. A row outside of the table reads as 0.

    The table starts normal with `std`. `transposed(x)` is x W^T, [..., D] to [..., N], for models that tie their output
    layer to the table.
    """
    weight: Any
    def __init__(self, rows: int, features: int, *, key: int | None = ..., std: float = ..., dtype: Any = ...) -> None: ...
    def __call__(self, indices: Array) -> Any: ...
    def transposed(self, x: A) -> A: ...

class Dropout(Module):
    """Elements set to 0 with probability `p`, the others divided by 1 - p; x itself without a key.

    The key is passed at each call, and the same key drops the same elements: use another one for each layer and step.
    The loss of `ts.train` needs none: there each call without one gets its own at each step. Elsewhere TS374 warns
    where a gradient is taken, but not under `@ts.compile(mode="inference")`.
    """
    p: float
    def __init__(self, p: float = ...) -> None: ...
    def __call__(self, x: Any, key: Any = ...) -> Any: ...

class MLP(Module):
    """Linear, `act`, Linear: [..., D] to [..., D], or to as many features as `outputs` says, `hidden` between."""
    up: Linear
    down: Linear
    act: Callable
    def __init__(self, features: int, hidden: int, outputs: int | None = ..., *, key: int | None = ..., act: Callable[..., Any] = ..., bias: bool = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class SwiGLU(Module):
    """(silu(x G) * (x U)) W, without biases: [..., D] to [..., D] (N. Shazeer, "GLU variants improve transformer",
    2020).
    """
    gate: Linear
    up: Linear
    down: Linear
    def __init__(self, features: int, hidden: int, *, key: int | None = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Any) -> Any: ...

class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis: [..., D] (J. L. Ba, J. R. Kiros, G. E. Hinton,
    2016). `var` is the population's; `weight` starts as 1, `bias` as 0 (None without).
    """
    weight: Any
    bias: Any
    eps: float
    def __init__(self, features: int, *, eps: float = ..., bias: bool = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: A) -> A: ...

class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis: [..., D] (B. Zhang, R. Sennrich, 2019)."""
    weight: Any
    eps: float
    def __init__(self, features: int, *, eps: float = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: A) -> A: ...

class GroupNorm(Module):
    """Normalises each group of neighbouring channels of x [B, C, ...] over all its positions; then weight [C] and bias
    [C] (Y. Wu, K. He, 2018). `groups` divides C.
    """
    weight: Any
    bias: Any
    groups: int
    eps: float
    def __init__(self, groups: int, channels: int, *, eps: float = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: A) -> A: ...

class BatchNorm1d(Module):
    """`BatchNorm` of x [B, C] or [B, C, L]."""
    weight: Any
    bias: Any
    mean: Any
    var: Any
    eps: float
    momentum: float
    def __init__(self, channels: int, *, eps: float = ..., momentum: float = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Array, training: Any = ...) -> Any: ...

class BatchNorm2d(Module):
    """`BatchNorm` of images x [B, C, H, W]."""
    weight: Any
    bias: Any
    mean: Any
    var: Any
    eps: float
    momentum: float
    def __init__(self, channels: int, *, eps: float = ..., momentum: float = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Array, training: Any = ...) -> Any: ...

class BatchNorm3d(Module):
    """`BatchNorm` of volumes x [B, C, D, H, W]."""
    weight: Any
    bias: Any
    mean: Any
    var: Any
    eps: float
    momentum: float
    def __init__(self, channels: int, *, eps: float = ..., momentum: float = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Array, training: Any = ...) -> Any: ...

class MultiHeadAttention(Module):
    """Attention of `heads` heads over x [..., S, D]: [..., S, D] (A. Vaswani et al., 2017).

    softmax(Q K^T / sqrt(D / heads)) V for each head, joined and mapped by `out`, where Q, K and V are linear in x.
    `groups`: the number of heads of K and V, each shared by heads / groups neighbouring heads of Q (J. Ainslie et al.,
    2023). `causal`: a position sees itself and those before. `positions`: "rotary" rotates Q and K by `rope`, "alibi"
    adds `alibi` to the scores, None uses no positions. `window`: a query sees only keys less than this distance away. D
    is a multiple of heads, and heads of groups.
    """
    query: Linear
    key: Linear
    value: Linear
    out: Linear
    heads: int
    groups: int
    causal: bool
    positions: str | None
    window: int | None
    def __init__(self, features: int, heads: int, *, key: int | None = ..., groups: int | None = ..., causal: bool = ..., positions: Literal['rotary', 'alibi'] | None = ..., window: int | None = ..., bias: bool = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Array, mask: Any = ..., memory: Any = ..., cache: Any = ...) -> Any:
        """`mask`: bools [..., S, T], true where a key is seen. `memory` [..., T, D]: the input of K and V, if not x.
        `cache`: a `KVCache` [B, groups, S_max, D / heads] that x [B, S, D] continues: the keys and values of x are
        appended, and the queries see all cached ones.
        """
    def continued(self, q: Any, k: Any, v: Any, mask: Any, cache: Any) -> Any:
        """Attention to the cached keys, and to k and v, which are appended: positions without tokens cost nothing. In a
        circular cache a token that takes the place of an older one hides it from all of q.
        """

class SlidingWindowAttention(MultiHeadAttention):
    """`MultiHeadAttention` in which a position sees itself and the `window` - 1 before it (I. Beltagy, M. E. Peters, A.
    Cohan, "Longformer", 2020), and with `causal=False` as many after it: the time is proportional to S times `window`.
    """
    def __init__(self, features: int, heads: int, window: int, *, key: int | None = ..., groups: int | None = ..., causal: bool = ..., positions: str | None = ..., bias: bool = ..., dtype: Any = ...) -> None: ...

class FlashAttention2(Module):
    """`ts.attention` as a layer without parameters: q [..., H, S, D], k [..., G, T, D] and v [..., G, T, E] give [...,
    H, S, E]. Neither it nor its gradient stores the scores (T. Dao, "FlashAttention-2", 2023).
    """
    causal: bool
    window: int | None
    softcap: float | None
    scale: float | None
    def __init__(self, causal: bool = ..., window: int | None = ..., softcap: float | None = ..., scale: float | None = ...) -> None: ...
    def __call__(self, q: Array, k: Array, v: Array, mask: Any = ..., lengths: Any = ...) -> Any:
        """`mask`: bools, true where a key is seen, or floats to add; `lengths`: the number of keys in each batch."""

class RoPE(Module):
    """`rope` as a layer: x [..., S, D] rotated by its positions."""
    base: float
    def __init__(self, base: float = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...

class ALiBi(Module):
    """`alibi` as a layer: a bias of the scores, for the mask of `ts.attention`."""
    def __init__(self) -> None: ...
    def __call__(self, q: Array, k: Array) -> Any: ...

class TransformerBlock(Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)): [..., S, D] (the norm first: R. Xiong et al., 2020).

    `feed_forward` is "gelu" (an MLP of 4 D features) or "swiglu" (8/3 D, rounded up to a multiple of 8); norms are
    `LayerNorm` for the first and `RMSNorm` for the second. `dropout` applies to both added parts, as `Dropout` does.
    Other arguments are those of `MultiHeadAttention`.
    """
    attention: MultiHeadAttention
    feed: MLP
    before_attention: LayerNorm
    before_feed: LayerNorm
    drop: Dropout
    def __init__(self, features: int, heads: int, *, key: int | None = ..., groups: int | None = ..., causal: bool = ..., positions: Literal['rotary', 'alibi'] | None = ..., feed_forward: Literal['gelu', 'swiglu'] = ..., hidden: int | None = ..., dropout: float = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Array, key: Any = ..., mask: Any = ..., cache: Any = ...) -> Any:
        """`cache`: a `KVCache` that x continues, as in `MultiHeadAttention`."""
    def attended(self, x: Any, key: Any = ..., mask: Any = ..., cache: Any = ...) -> Any:
        """x with what attention adds."""
    def fed(self, x: Any, key: Any = ...) -> Any:
        """x with what the feed-forward part adds."""

class EncoderLayer(TransformerBlock):
    """A `TransformerBlock` without a causal mask."""
    def __init__(self, features: int, heads: int, *, key: int | None = ..., causal: bool = ..., **options: Any) -> None: ...

class DecoderLayer(Module):
    """A `TransformerBlock` with attention to an encoder's output between its two parts (A. Vaswani et al., 2017; the
    norms first). x [..., S, D] and memory [..., T, D] to [..., S, D].

    `mask` [..., S, T] is true where a position of the memory is seen. Arguments are those of `TransformerBlock`;
    `positions` apply only to x.
    """
    block: TransformerBlock
    across: MultiHeadAttention
    before_across: LayerNorm
    def __init__(self, features: int, heads: int, *, key: int | None = ..., groups: int | None = ..., dtype: Any = ..., **options: Any) -> None: ...
    def __call__(self, x: Array, memory: Array, key: Any = ..., mask: Any = ...) -> Any: ...

class Stack(Module):
    """Layers in sequence, each called as `layer(x, key, *args)`, or as `layer(x)` without further arguments. Arguments
    by name go to each layer by name: `stack(x, memory=memory)`.

    `Stack(make, n, key=k)` makes them with `make(key=...)` and n keys derived from k. Each layer gets its own key,
    derived from the call's key, for dropout. Equal layers are compiled once. `stack[i]`, `len(stack)` and
    `for layer in stack` reach them.
    """
    layers: list
    def __init__(self, make: Callable[..., Any], count: int, *, key: int | None = ...) -> None: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, layer: Any) -> Any: ...
    def __len__(self) -> Any: ...
    def __iter__(self) -> Any: ...
    def __call__(self, x: Any, key: Any = ..., *args: Any, caches: Any = ..., **named: Any) -> Any:
        """`caches`: one for each layer, passed as `cache=`."""

class Sequential(Module):
    """Layers and functions in sequence: `Sequential(nn.Linear(4, 8, key=0), ts.relu)`. `model[0]` is the first of them,
    `model[:-1]` all but the last.
    """
    layers: list
    def __init__(self, *layers: Callable[..., Any]) -> None: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, layer: Any) -> Any: ...
    def __len__(self) -> Any: ...
    def __iter__(self) -> Any: ...
    def __call__(self, x: Any) -> Any: ...

class Conv1d(Module):
    """`Conv` over one axis: x [B, C, L]."""
    weight: Any
    bias: Any
    stride: int
    padding: int | str
    dilation: int
    groups: int
    def __init__(self, inputs: int, outputs: int, kernel: int, *, key: int | None = ..., stride: int = ..., padding: int | Literal['same', 'valid'] = ..., dilation: int = ..., groups: int = ..., bias: bool = ..., dtype: Any = ...) -> None: ...
    @staticmethod
    def axes() -> int: ...
    def __call__(self, x: Any) -> Any: ...

class Conv2d(Module):
    """`Conv` over two axes: x [B, C, H, W]."""
    weight: Any
    bias: Any
    stride: int
    padding: int | str
    dilation: int
    groups: int
    def __init__(self, inputs: int, outputs: int, kernel: int, *, key: int | None = ..., stride: int = ..., padding: int | Literal['same', 'valid'] = ..., dilation: int = ..., groups: int = ..., bias: bool = ..., dtype: Any = ...) -> None: ...
    @staticmethod
    def axes() -> int: ...
    def __call__(self, x: Any) -> Any: ...

class Conv3d(Module):
    """`Conv` over three axes: x [B, C, D, H, W]."""
    weight: Any
    bias: Any
    stride: int
    padding: int | str
    dilation: int
    groups: int
    def __init__(self, inputs: int, outputs: int, kernel: int, *, key: int | None = ..., stride: int = ..., padding: int | Literal['same', 'valid'] = ..., dilation: int = ..., groups: int = ..., bias: bool = ..., dtype: Any = ...) -> None: ...
    @staticmethod
    def axes() -> int: ...
    def __call__(self, x: Any) -> Any: ...

class ConvTranspose1d(Module):
    """`ConvTranspose` over one axis: x [B, C, L]."""
    weight: Any
    bias: Any
    stride: int
    padding: int
    output_padding: int
    groups: int
    dilation: int
    def __init__(self, inputs: int, outputs: int, kernel: int, *, key: int | None = ..., stride: int = ..., padding: int = ..., output_padding: int = ..., groups: int = ..., bias: bool = ..., dilation: int = ..., dtype: Any = ...) -> None: ...
    @staticmethod
    def axes() -> int: ...
    def __call__(self, x: Any) -> Any: ...

class ConvTranspose2d(Module):
    """`ConvTranspose` over two axes: x [B, C, H, W]."""
    weight: Any
    bias: Any
    stride: int
    padding: int
    output_padding: int
    groups: int
    dilation: int
    def __init__(self, inputs: int, outputs: int, kernel: int, *, key: int | None = ..., stride: int = ..., padding: int = ..., output_padding: int = ..., groups: int = ..., bias: bool = ..., dilation: int = ..., dtype: Any = ...) -> None: ...
    @staticmethod
    def axes() -> int: ...
    def __call__(self, x: Any) -> Any: ...

class ConvTranspose3d(Module):
    """`ConvTranspose` over three axes: x [B, C, D, H, W]."""
    weight: Any
    bias: Any
    stride: int
    padding: int
    output_padding: int
    groups: int
    dilation: int
    def __init__(self, inputs: int, outputs: int, kernel: int, *, key: int | None = ..., stride: int = ..., padding: int = ..., output_padding: int = ..., groups: int = ..., bias: bool = ..., dilation: int = ..., dtype: Any = ...) -> None: ...
    @staticmethod
    def axes() -> int: ...
    def __call__(self, x: Any) -> Any: ...

class MaxPool1d(Module):
    """`MaxPool` of x [B, C, L]."""
    kernel: int
    stride: int | None
    padding: int
    def __init__(self, kernel: int, stride: int | None = ..., padding: int = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...

class MaxPool2d(Module):
    """`MaxPool` of x [B, C, H, W]."""
    kernel: int
    stride: int | None
    padding: int
    def __init__(self, kernel: int, stride: int | None = ..., padding: int = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...

class MaxPool3d(Module):
    """`MaxPool` of x [B, C, D, H, W]."""
    kernel: int
    stride: int | None
    padding: int
    def __init__(self, kernel: int, stride: int | None = ..., padding: int = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...

class AvgPool1d(Module):
    """`AvgPool` of x [B, C, L]."""
    kernel: int
    stride: int | None
    padding: int
    def __init__(self, kernel: int, stride: int | None = ..., padding: int = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...

class AvgPool2d(Module):
    """`AvgPool` of x [B, C, H, W]."""
    kernel: int
    stride: int | None
    padding: int
    def __init__(self, kernel: int, stride: int | None = ..., padding: int = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...

class AvgPool3d(Module):
    """`AvgPool` of x [B, C, D, H, W]."""
    kernel: int
    stride: int | None
    padding: int
    def __init__(self, kernel: int, stride: int | None = ..., padding: int = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...

class TopKRouter(Module):
    """The `k` experts of each token x [N, D]: (weights [N, k], experts [N, k] of int64, balance, a number).

    p = softmax(x W) over all experts, and the k largest are taken; for k > 1 their weights are divided by their sum, as
    in GShard (D. Lepikhin et al., 2020), for k = 1 the weight is p, as in Switch (W. Fedus, B. Zoph, N. Shazeer, 2021).
    `balance` is Switch's load-balancing loss, E sum_e f_e P_e with f_e the share of all choices that fell on e and P_e
    the mean of p: 1 where both are even. Add it to the loss, times 0.01. Probabilities are f32 for any dtype of x.
    """
    gate: Linear
    k: int
    def __init__(self, features: int, experts: int, *, key: int | None = ..., k: int = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...

class MixtureOfExperts(Module):
    """Each token of x [..., D] goes through `k` of the experts: (y [..., D], balance, the loss of `TopKRouter`).

    y is the sum of weight_e * act(x U_e) V_e over the token's experts e (N. Shazeer et al., 2017), with `up` [E, D, H]
    and `down` [E, H, D]. An expert takes at most `capacity` times the even share k N / E of the choices, rounded up;
    first choices take precedence, then earlier tokens, and a choice beyond the capacity counts 0 (Switch, 2021), so add
    y to x, as blocks do. `capacity=None` drops no choice: each expert's tokens fill blocks of 32 slots (as in
    MegaBlocks, T. Gale et al., 2022), and weights are copied once per block. An expert without tokens has gradient 0.
    """
    router: TopKRouter
    up: Any
    down: Any
    act: Callable
    capacity: float | None
    def __init__(self, features: int, hidden: int, experts: int, *, key: int | None = ..., k: int = ..., capacity: float | None = ..., act: Callable[..., Any] = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Array) -> Any: ...
    def slots(self, chosen: Array) -> Any:
        """Which choice lies in each slot [groups, slots of a group], -1 in those that stay empty, and the expert of
        each group; None where there is one group for each expert.
        """
    def blocks(self, counts: Array, blocks: int) -> Any:
        """The expert of each block of slots, and [blocks, BLOCK], the how manieth of its choices a slot takes."""

class SwitchTransformer(Module):
    """Blocks of a transformer, every second of which has experts in place of one feed-forward part: x [..., S, D] to
    (y [..., S, D], balance), the mean of the balance losses (W. Fedus, B. Zoph, N. Shazeer, 2021).

    Each token goes to `k` experts. `capacity` is that of `MixtureOfExperts`, the other arguments are those of
    `TransformerBlock`.
    """
    blocks: list
    def __init__(self, features: int, heads: int, layers: int, experts: int, *, key: int | None = ..., k: int = ..., capacity: float | None = ..., hidden: int | None = ..., causal: bool = ..., positions: Literal['rotary', 'alibi'] | None = ..., dropout: float = ..., dtype: Any = ...) -> None: ...
    def __call__(self, x: Array, key: Any = ..., mask: Any = ...) -> Any: ...

class LSTM(Module):
    """x [B, T, D] to the states h [B, T, H] after each step (S. Hochreiter, J. Schmidhuber, 1997; with a forget gate:
    F. A. Gers et al., 2000).

    i, f, g, o = x_t W + h U + b in four parts; c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c). h and c
    start as 0, or as `state`, a pair (h, c) of [B, H]. With it the result is a pair too, of the states and of the last
    (h, c), from which the next call goes on; `layer.initial(x)` is the pair of zeros. Weights start uniform with |w| <
    1 / sqrt(H), as in PyTorch, whose two biases add up to this one. With an `output_size` the states go through a
    `Linear` layer: [B, T, output_size].
    """
    input: Any
    state: Any
    bias: Any
    out: Linear | None
    def __init__(self, input_size: int, hidden_size: int, output_size: int | None = ..., *, key: int | None = ..., dtype: Any = ...) -> None: ...
    def initial(self, x: Array) -> Any: ...
    def __call__(self, x: Array, state: Array = ...) -> Any: ...

class GRU(Module):
    """x [B, T, D] to the states h [B, T, H] after each step (K. Cho et al., 2014).

    r, z = sigmoid of two parts of x_t W + b + h U; n = tanh(x_t W + b + r (h U + state_bias)), of the third; h = (1 -
    z) n + z h, with h = 0 at first, or `state` [B, H]. With it the result is the pair of the states and of the last h,
    from which the next call goes on; `layer.initial(x)` is 0. Weights start like those of `LSTM`.
    """
    input: Any
    state: Any
    bias: Any
    state_bias: Any
    def __init__(self, input_size: int, hidden_size: int, *, key: int | None = ..., dtype: Any = ...) -> None: ...
    def initial(self, x: Array) -> Any: ...
    def __call__(self, x: Array, state: Array = ...) -> Any: ...

class FlashDecoding(Module):
    """Attention of a few queries q [B, H, S, D] to the first `length` of many keys: k, v [B, G, T, D] to [B, H, S, D].

    The keys are split into parts of `part`, which are combined in a fixed order: see `split_attention`. `length` is a
    number or one for each batch [B], passed as data, so it never recompiles; None is all keys. The last query is at the
    position of the last key, and sees it and those before.
    """
    part: int
    scale: float | None
    def __init__(self, part: int = ..., scale: float | None = ...) -> None: ...
    def __call__(self, q: Array, k: Array, v: Array, length: Any = ...) -> Any: ...

class PagedAttention(Module):
    """Attention of the last tokens of each sequence, q [B, H, S, D], to the pages of a `PagedCache`: [B, H, S, D].

    Each page is one part: see `split_attention`. The last query is at the last token of its sequence.
    """
    scale: float | None
    def __init__(self, scale: float | None = ...) -> None: ...
    def __call__(self, q: Array, cache: Any) -> Any: ...

class PagedCache(StatefulObject):
    """Keys and values in pages that the sequences of a batch share (W. Kwon et al., "PagedAttention", 2023).

    keys and values [P, L, G, D]: P pages of L tokens. `table` [B, N] int64: the pages of each sequence, in order;
    `lengths` [B]: how many tokens each has. Both are data: set them (`cache.table = ...`) to give pages to another
    sequence. Without `table`, each sequence has its own N = P // B pages.
    """
    keys: Any
    values: Any
    table: Any
    lengths: Any
    refused: Any
    def __init__(self, pages: int, page: int, heads: int, features: int, *, batch: int, table: Any = ..., dtype: Any = ...) -> None: ...
    def append(self, k: Array, v: Array) -> Any:
        """Appends one token to each sequence. A sequence whose pages are full is an error (TS382)."""
    def check(self) -> None: ...

class StatefulObject(Module):
    """Base of objects that `@ts.effect` methods change. A subclass automatically is a dataclass.

    Its arrays keep their shapes, dtypes and memory. They are not parameters and have no gradient.
    """
    def __init__(self) -> None: ...
    def check(self) -> None:
        """Called after each call that changes the object. Raises the errors of its effects."""
    def copy(self) -> Self:
        """A copy with its own arrays."""

class StatefulTensor(StatefulObject):
    """State whose tensors have one shape: a subclass declares its dims in `shape`, and its `dtype`.

    `KVCache(B=2, H=8, S_max=1024, D_h=64)` sets each field to zeros of that shape; a subclass with other fields defines
    `__init__`. Sizes may be positional, in the order of `shape`; `dtype=` overrides the declared one. Raises
    LaunchError TS105 for a missing or unknown size.
    """
    def __init__(self, *sizes: int, dtype: Any | None = ..., **named: int) -> None: ...
    @classmethod
    def zeros(cls, sizes: tuple[Any, ...], named: dict[str, int], dtype: Any) -> Any:
        """A tensor of the declared shape."""

class KVCache(StatefulTensor):
    """The keys and values of the tokens so far: two tensors [B, H, S_max, D_h], and the number of tokens.

    The length is data, so it never recompiles. `overflow` applies to a token that finds the cache full: with "refuse"
    it is an error (TS382) and the cache does not change; with "wrap" it replaces the oldest, so the cache holds the
    last S_max tokens (a circular buffer, for windows).
    """
    keys: Any
    values: Any
    length: Any
    refused: Any
    overflow: str
    def __init__(self, *sizes: int, dtype: Any | None = ..., overflow: Literal['refuse', 'wrap'] = ..., **named: int) -> None: ...
    def append(self, k: Array, v: Array) -> Any:
        """Appends the keys and values of T tokens. Writes only their memory."""
    def prefetch_window(self, start: Any, end: Any) -> Any:
        """Prefetches the keys and values at the positions from `start` to `end`; returns the largest key and the
        largest value there.

        It reads them once, from memory into the processor's caches, and changes nothing. Inside of a function, where
        kernels prefetch anyway, it costs nothing unless its result is used.
        """
    def reset(self) -> Any:
        """Removes all tokens."""
    def positions(self) -> Any:
        """The token number at each position, [S_max]; -1 for none."""
    def check(self) -> None: ...

class MixedPrecision(Module):
    """A model whose products are computed in a narrow dtype. Call it like the model; `report` lists the changes."""
    model: Any
    run: Callable
    report: str
    def __init__(self, model: Any, run: Callable, report: str) -> None: ...
    def __call__(self, *inputs: Any, **named: Any) -> Any: ...
