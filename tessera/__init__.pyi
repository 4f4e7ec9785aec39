"""Public names of Tessera, for type checkers and editors. Made by scripts/make_stubs.py."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from builtins import bool as _bool
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

import tessera.checkpoint as _checkpoint
from tessera.language.dims import Expr as _Expr
from tessera.language.dtypes import DType as _DType
array_api = _standard
from . import compiler as compiler
from . import dist as dist
from . import errors as errors
from . import fft as fft
from . import hardware as hardware
from . import kernels as kernels
from . import knobs as knobs
from . import linalg as linalg
from . import nn as nn
from . import optimizers as optimizers
from . import scheduler as scheduler
from . import tile as tile
from tessera.compiler.frontend.importing import install_import_hook as install_import_hook
from tessera.errors import CompilationWarning as CompilationWarning
from tessera.errors import CompileError as CompileError
from tessera.errors import DebugCheckError as DebugCheckError
from tessera.errors import DeviceError as DeviceError
from tessera.errors import Diagnostic as Diagnostic
from tessera.errors import LaunchError as LaunchError
from tessera.errors import MissingDependency as MissingDependency
from tessera.errors import RecompilationWarning as RecompilationWarning
from tessera.errors import TargetError as TargetError
from tessera.errors import TesseraError as TesseraError
from tessera.errors import TrainingWarning as TrainingWarning
from tessera.functions.activations import celu as celu
from tessera.functions.activations import glu as glu
from tessera.functions.activations import hardshrink as hardshrink
from tessera.functions.activations import hardsigmoid as hardsigmoid
from tessera.functions.activations import hardswish as hardswish
from tessera.functions.activations import hardtanh as hardtanh
from tessera.functions.activations import logsigmoid as logsigmoid
from tessera.functions.activations import mish as mish
from tessera.functions.activations import prelu as prelu
from tessera.functions.activations import relu6 as relu6
from tessera.functions.activations import selu as selu
from tessera.functions.activations import softmin as softmin
from tessera.functions.activations import softshrink as softshrink
from tessera.functions.activations import softsign as softsign
from tessera.functions.activations import tanhshrink as tanhshrink
from tessera.functions.activations import threshold as threshold
from tessera.functions.arranging import array_split as array_split
from tessera.functions.arranging import atleast_1d as atleast_1d
from tessera.functions.arranging import atleast_2d as atleast_2d
from tessera.functions.arranging import atleast_3d as atleast_3d
from tessera.functions.arranging import block_diag as block_diag
from tessera.functions.arranging import column_stack as column_stack
from tessera.functions.arranging import cross as cross
from tessera.functions.arranging import diag as diag
from tessera.functions.arranging import diag_embed as diag_embed
from tessera.functions.arranging import diagonal as diagonal
from tessera.functions.arranging import dstack as dstack
from tessera.functions.arranging import fliplr as fliplr
from tessera.functions.arranging import flipud as flipud
from tessera.functions.arranging import hstack as hstack
from tessera.functions.arranging import index_select as index_select
from tessera.functions.arranging import inner as inner
from tessera.functions.arranging import kron as kron
from tessera.functions.arranging import meshgrid as meshgrid
from tessera.functions.arranging import narrow as narrow
from tessera.functions.arranging import rot90 as rot90
from tessera.functions.arranging import select as select
from tessera.functions.arranging import trace as trace
from tessera.functions.arranging import unflatten as unflatten
from tessera.functions.arranging import vdot as vdot
from tessera.functions.arranging import vstack as vstack
from tessera.functions.distances import cdist as cdist
from tessera.functions.distances import cosine_similarity as cosine_similarity
from tessera.functions.distances import normalize as normalize
from tessera.functions.draws import categorical as categorical
from tessera.functions.draws import exponential as exponential
from tessera.functions.draws import gumbel as gumbel
from tessera.functions.draws import gumbel_softmax as gumbel_softmax
from tessera.functions.draws import laplace as laplace
from tessera.functions.draws import permutation as permutation
from tessera.functions.elementwise import allclose as allclose
from tessera.functions.elementwise import angle as angle
from tessera.functions.elementwise import cbrt as cbrt
from tessera.functions.elementwise import deg2rad as deg2rad
from tessera.functions.elementwise import degrees as degrees
from tessera.functions.elementwise import fmax as fmax
from tessera.functions.elementwise import fmin as fmin
from tessera.functions.elementwise import fmod as fmod
from tessera.functions.elementwise import frac as frac
from tessera.functions.elementwise import has_nan as has_nan
from tessera.functions.elementwise import heaviside as heaviside
from tessera.functions.elementwise import isclose as isclose
from tessera.functions.elementwise import isneginf as isneginf
from tessera.functions.elementwise import isposinf as isposinf
from tessera.functions.elementwise import logit as logit
from tessera.functions.elementwise import nan_to_num as nan_to_num
from tessera.functions.elementwise import rad2deg as rad2deg
from tessera.functions.elementwise import radians as radians
from tessera.functions.elementwise import sinc as sinc
from tessera.functions.gamma import digamma as digamma
from tessera.functions.gamma import lgamma as lgamma
from tessera.functions.gaussian import erfc as erfc
from tessera.functions.gaussian import erfinv as erfinv
from tessera.functions.images import adaptive_avg_pool1d as adaptive_avg_pool1d
from tessera.functions.images import adaptive_avg_pool2d as adaptive_avg_pool2d
from tessera.functions.images import adaptive_avg_pool3d as adaptive_avg_pool3d
from tessera.functions.images import affine_grid as affine_grid
from tessera.functions.images import grid_sample as grid_sample
from tessera.functions.images import interpolate as interpolate
from tessera.functions.images import pixel_shuffle as pixel_shuffle
from tessera.functions.images import pixel_unshuffle as pixel_unshuffle
from tessera.functions.keys import split_key as split_key
from tessera.functions.searching import bucketize as bucketize
from tessera.functions.searching import digitize as digitize
from tessera.functions.searching import interp as interp
from tessera.functions.searching import isin as isin
from tessera.functions.searching import searchsorted as searchsorted
from tessera.functions.sequences import convolve as convolve
from tessera.functions.sequences import correlate as correlate
from tessera.functions.sequences import gradient as gradient
from tessera.functions.sequences import polyval as polyval
from tessera.functions.sequences import unwrap as unwrap
from tessera.functions.statistics import average as average
from tessera.functions.statistics import bincount as bincount
from tessera.functions.statistics import corrcoef as corrcoef
from tessera.functions.statistics import cov as cov
from tessera.functions.statistics import histogram as histogram
from tessera.functions.statistics import median as median
from tessera.functions.statistics import nanmax as nanmax
from tessera.functions.statistics import nanmean as nanmean
from tessera.functions.statistics import nanmedian as nanmedian
from tessera.functions.statistics import nanmin as nanmin
from tessera.functions.statistics import nanstd as nanstd
from tessera.functions.statistics import nansum as nansum
from tessera.functions.statistics import nanvar as nanvar
from tessera.functions.statistics import percentile as percentile
from tessera.functions.statistics import ptp as ptp
from tessera.functions.statistics import quantile as quantile
from tessera.functions.statistics import trapezoid as trapezoid
from tessera.language.check_grad import check_grad as check_grad
from tessera.language.decorators import Function as Function
from tessera.language.decorators import Kernel as Kernel
from tessera.language.decorators import accumulate as accumulate
from tessera.language.decorators import autodiff as autodiff
from tessera.language.decorators import autotune as autotune
from tessera.language.decorators import custom_jvp as custom_jvp
from tessera.language.decorators import custom_vjp as custom_vjp
from tessera.language.decorators import differentiable as differentiable
from tessera.language.decorators import effect as effect
from tessera.language.decorators import function as function
from tessera.language.decorators import is_training as is_training
from tessera.language.decorators import jit as jit
from tessera.language.decorators import kernel as kernel
from tessera.language.decorators import numerics as numerics
from tessera.language.decorators import range as range
from tessera.language.decorators import shape_checked as shape_checked
from tessera.language.decorators import static_range as static_range
from tessera.language.distribution import distributed as distributed
from tessera.language.distribution import mesh as mesh
from tessera.language.policies import NumericalPolicy as NumericalPolicy
from tessera.language.policies import Policy as Policy
from tessera.language.policies import accum as accum
from tessera.language.policies import compute as compute
from tessera.language.policies import deterministic as deterministic
from tessera.language.policies import device as device
from tessera.language.policies import loss_scale as loss_scale
from tessera.language.policies import saturate as saturate
from tessera.language.policies import stochastic_round as stochastic_round
from tessera.language.records import replace as replace
from tessera.language.saving import save as save
from tessera.language.schedule import Schedule as Schedule
from tessera.language.transforms import grad as grad
from tessera.language.transforms import hessian as hessian
from tessera.language.transforms import hvp as hvp
from tessera.language.transforms import jacfwd as jacfwd
from tessera.language.transforms import jacobian as jacobian
from tessera.language.transforms import jacrev as jacrev
from tessera.language.transforms import jvp as jvp
from tessera.language.transforms import linearize as linearize
from tessera.language.transforms import remat as remat
from tessera.language.transforms import scan as scan
from tessera.language.transforms import value_and_grad as value_and_grad
from tessera.language.transforms import vjp as vjp
from tessera.language.transforms import vmap as vmap
from tessera.nn.mixed import to_mixed_precision as to_mixed_precision
from tessera.nn.scaled import ScaledTensor as ScaledTensor
from tessera.nn.scaled import scaled as scaled
from tessera.nn.state import KVCache as KVCache
from tessera.nn.state import StatefulObject as StatefulObject
from tessera.nn.state import StatefulTensor as StatefulTensor
from tessera.nn.tree import tree_leaves as tree_leaves
from tessera.nn.tree import tree_map as tree_map
from tessera.nn.vectors import tree_ravel as tree_ravel
from tessera.optimizers.gradients import clip_grad_norm as clip_grad_norm
from tessera.profiler import Profiler as Profiler
from tessera.profiler import analyze_performance as analyze_performance
from tessera.profiler import benchmark as benchmark
from tessera.profiler import profile_memory as profile_memory
from tessera.profiler import profiler as profiler
from tessera.runtime.arrays.devices import devices as devices
from tessera.runtime.arrays.devices import get_num_threads as get_num_threads
from tessera.runtime.arrays.devices import set_num_threads as set_num_threads
from tessera.runtime.arrays.frozen import frozen as frozen
from tessera.runtime.code.why_recompiled import why_recompiled as why_recompiled
from tessera.runtime.compiled import Compiled as Compiled
from tessera.runtime.compiled import compile as compile
from tessera.runtime.eager.creation import array as array
from tessera.runtime.eager.creation import manual_seed as manual_seed
from tessera.runtime.eager.creation import random_key as random_key
from tessera.runtime.eager.operators import op as op
from tessera.runtime.eager.recorded import no_grad as no_grad
from tessera.runtime.eager.tensor import Tensor as _Tensor
from tessera.runtime.saved import saved as saved
from tessera.runtime.why_copied import why_copied as why_copied
from tessera.training.accumulation import accumulate_gradients as accumulate_gradients
from tessera.training.alerts import monitor_numerics as monitor_numerics
from tessera.training.meta import meta_learning as meta_learning
from tessera.training.monitor import progress as progress
from tessera.training.restarts import fault_tolerant as fault_tolerant
from tessera.training.run import TrainingRun as TrainingRun
from tessera.training.run import train as train
import tessera.runtime.standard as _standard

Dim: TypeAlias = int | _Expr
Shape: TypeAlias = Dim | Sequence[Dim]
Axes: TypeAlias = int | tuple[int, ...] | None
Number: TypeAlias = _bool | int | float | complex
DType: TypeAlias = _DType | str | type | Any
Array: TypeAlias = Any
"""a Tensor, a number, or an array of NumPy, CuPy, PyTorch or JAX"""
Fill: TypeAlias = Number | Dim | Array
A = TypeVar("A")
"""results belong to the library of the first array"""

__version__: str
inf: float
nan: float
pi: float
e: float
newaxis: None


class _Annotation(type):
    """What `Tensor` is where it annotates nothing: `ts.saved(step, Tensor[4, 64])`."""

    def __getitem__(cls, item: Any) -> Any: ...
    def __matmul__(cls, other: Any) -> Any: ...


_anything: Any
"""a name that is made of it is an object as well as a type, to every type checker"""


class _Checkpoints:
    """The module `tessera.checkpoint`, which can be called."""

    Saving = _checkpoint.Saving
    exists = staticmethod(_checkpoint.exists)
    load = staticmethod(_checkpoint.load)
    save = staticmethod(_checkpoint.save)
    save_async = staticmethod(_checkpoint.save_async)
    wait = staticmethod(_checkpoint.wait)

    def __call__(
        self, folder: Any = ..., *, every: int = ..., keep: int = ..., interval: int = ...
    ) -> Callable[[Any], Callable[..., Any]]:
        """Keeps the state of a loop that yields it."""

checkpoint: _Checkpoints


f64 = _anything
f32 = _anything
tf32 = _anything
f16 = _anything
bf16 = _anything
fp8_e4m3 = _anything
fp8_e5m2 = _anything
fp8_e8m0 = _anything
fp6_e2m3 = _anything
fp6_e3m2 = _anything
fp4_e2m1 = _anything
int8 = _anything
int16 = _anything
int32 = _anything
int64 = _anything
uint8 = _anything
uint16 = _anything
uint32 = _anything
uint64 = _anything
complex64 = _anything
complex128 = _anything
bool = _anything
bool_ = _anything
fp64 = _anything
fp32 = _anything
fp16 = _anything
fp8 = _anything
float64 = _anything
float32 = _anything
float16 = _anything
bfloat16 = _anything
Tile = _anything
Const = _anything
Int = _anything
Float = _anything
Bool = _anything

class Tensor(_Tensor, metaclass=_Annotation):
    @property
    def real(self) -> Tensor: ...
    @property
    def imag(self) -> Tensor: ...
    @property
    def T(self) -> Tensor: ...
    @property
    def mT(self) -> Tensor: ...
    def abs(self) -> Tensor:
        """|x|."""
    def absolute(self) -> Tensor:
        """|x|."""
    def acos(self) -> Tensor:
        """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""
    def acosh(self) -> Tensor:
        """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""
    def add(self, y: Array) -> Tensor:
        """x + y."""
    def all(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """Whether all elements along `axis` are true (not zero)."""
    def amax(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """The largest element along `axis`; NaN if there is one."""
    def amin(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """The smallest element along `axis`; NaN if there is one."""
    def any(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """Whether any element along `axis` is true (not zero)."""
    def arccos(self) -> Tensor:
        """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""
    def arccosh(self) -> Tensor:
        """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""
    def arcsin(self) -> Tensor:
        """The angle, in radians, whose sine is x; NaN outside of [-1, 1]."""
    def arcsinh(self) -> Tensor:
        """The number whose hyperbolic sine is x."""
    def arctan(self) -> Tensor:
        """Inverse tangent."""
    def arctan2(self, x: Array) -> Tensor:
        """The angle of the point (y, x)."""
    def arctanh(self) -> Tensor:
        """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""
    def argmax(self, axis: int | None = None, keepdims: _bool = False, *, dim: int | None = ..., dims: int | None = ..., keepdim: _bool = ...) -> Tensor:
        """The index of the first largest element along `axis`; the first NaN if there is one."""
    def argmin(self, axis: int | None = None, keepdims: _bool = False, *, dim: int | None = ..., dims: int | None = ..., keepdim: _bool = ...) -> Tensor:
        """The index of the first smallest element along `axis`; the first NaN if there is one."""
    def argsort(self, axis: int = -1, descending: _bool = False, stable: _bool = True, *, dim: int = ..., dims: int = ...) -> Tensor:
        """The positions of the elements along `axis` in ascending order, or in descending order, as int64.

        Equal elements keep their order; NaN counts as the largest.
        """
    def asin(self) -> Tensor:
        """The angle, in radians, whose sine is x; NaN outside of [-1, 1]."""
    def asinh(self) -> Tensor:
        """The number whose hyperbolic sine is x."""
    def atan(self) -> Tensor:
        """Inverse tangent."""
    def atan2(self, x: Array) -> Tensor:
        """The angle of the point (y, x)."""
    def atanh(self) -> Tensor:
        """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""
    def bit_and(self, y: Array) -> Tensor:
        """Bitwise and."""
    def bit_not(self) -> Tensor:
        """Bitwise not."""
    def bit_or(self, y: Array) -> Tensor:
        """Bitwise or."""
    def bit_xor(self, y: Array) -> Tensor:
        """Bitwise xor."""
    def bitcast(self, dtype: DType) -> Tensor:
        """The bits of `x` as elements of `dtype`, which is as wide. 1.0 of f32 as uint32 is 0x3F800000."""
    def bitwise_and(self, y: Array) -> Tensor:
        """Bitwise and."""
    def bitwise_invert(self) -> Tensor:
        """Bitwise not."""
    def bitwise_left_shift(self, y: Array) -> Tensor:
        """x << y."""
    def bitwise_not(self) -> Tensor:
        """Bitwise not."""
    def bitwise_or(self, y: Array) -> Tensor:
        """Bitwise or."""
    def bitwise_right_shift(self, y: Array) -> Tensor:
        """x >> y, arithmetic when signed."""
    def bitwise_xor(self, y: Array) -> Tensor:
        """Bitwise xor."""
    def bmm(self, y: Array) -> Tensor:
        """The matrix product over the last two axes; leading axes are batches and broadcast. 1-D operands as in NumPy."""
    def broadcast_to(self, *shape: Any) -> Tensor:
        """`x` broadcast to `shape` by NumPy's rule; -1 keeps the size of the operand."""
    def cast(self, dtype: DType) -> Tensor:
        """`x` with elements of `dtype`, rounded to nearest even; numbers that are too large become infinite.

        In formats of 8 bits and fewer they become the largest finite value. Floats become integers by truncation towards
        zero, limited to the integer's range; NaN becomes 0.
        """
    def ceil(self) -> Tensor:
        """Smallest integer >= x."""
    def chunk(self, chunks: int, axis: int = 0, *, dim: int = ..., dims: int = ...) -> tuple[Tensor, ...]:
        """`x` split along `axis` into `chunks` parts; all but the last have size ceil(size / chunks), as in PyTorch.

        The size must be known, because the number of parts depends on it.
        """
    def clamp(self, min: Array | None = None, max: Array | None = None) -> Tensor:
        """`x` limited to the range from `min` to `max`, either of which may be None; NaN stays NaN."""
    def clip(self, min: Array | None = None, max: Array | None = None) -> Tensor:
        """`x` limited to the range from `min` to `max`, either of which may be None; NaN stays NaN."""
    def conj(self) -> Tensor:
        """The complex conjugate; a real number is its own."""
    def conjugate(self) -> Tensor:
        """The complex conjugate; a real number is its own."""
    def copysign(self, y: Array) -> Tensor:
        """|x| with the sign bit of y (zeros and NaN have one too)."""
    def cos(self) -> Tensor:
        """Cosine of radians."""
    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""
    def cummax(self, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> Tensor:
        """The largest element so far along `axis` (None: of the flattened tensor); NaN from the first NaN on."""
    def cummin(self, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> Tensor:
        """The smallest element so far along `axis` (None: of the flattened tensor); NaN from the first NaN on."""
    def cumprod(self, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> Tensor:
        """Running products along `axis` (None: of the flattened tensor). Integers and bools count as 64-bit integers."""
    def cumsum(self, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> Tensor:
        """Running sums along `axis` (None: of the flattened tensor). Integers and bools are summed as 64-bit integers."""
    def detach(self) -> Tensor:
        """`x` itself, but a constant for derivatives: no gradient flows through it."""
    def div(self, y: Array) -> Tensor:
        """x / y; integers divide as f32."""
    def divide(self, y: Array) -> Tensor:
        """x / y; integers divide as f32."""
    def dot(self, y: Array) -> Tensor:
        """The inner product of the last axis of x with the second-last of y (the only one of a vector), as in NumPy."""
    def dropout(self, key: Array, p: float = 0.5) -> Tensor:
        """`x` with elements set to 0 with probability `p`, the others divided by 1 - p. `key` is the seed."""
    def elu(self, alpha: float = 1.0) -> Tensor:
        """x where it is positive, else alpha * (e**x - 1)."""
    def eq(self, y: Array) -> Tensor:
        """x == y."""
    def equal(self, y: Array) -> Tensor:
        """x == y."""
    def erf(self) -> Tensor:
        """Error function."""
    def exp(self) -> Tensor:
        """e**x."""
    def exp2(self) -> Tensor:
        """2**x."""
    def expand(self, *shape: Any) -> Tensor:
        """`x` broadcast to `shape` by NumPy's rule; -1 keeps the size of the operand."""
    def expand_dims(self, *axis: Any, dim: int | Sequence[int] = ..., dims: int | Sequence[int] = ...) -> Tensor:
        """`x` with new axes of size 1 at the positions `axis` of the result."""
    def expm1(self) -> Tensor:
        """e**x - 1, exact near 0."""
    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """`x` with the axes `start` to `end` (inclusive) made one, in C order."""
    @overload
    def flip(self, axis: int | Sequence[int] | None = None, *, dim: int | Sequence[int] | None = ..., dims: int | Sequence[int] | None = ...) -> Tensor:
        """`x` in reverse order along `axis`; None means along all axes."""
    @overload
    def flip(self, *axis: int) -> Tensor: ...
    def floor(self) -> Tensor:
        """Largest integer <= x."""
    def floor_divide(self, y: Array) -> Tensor:
        """floor(x / y)."""
    def floordiv(self, y: Array) -> Tensor:
        """floor(x / y)."""
    def fma(self, y: Array, z: Array) -> Tensor:
        """x * y + z, rounded once where the target can."""
    def gather(self, indices: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> Tensor:
        """`out[i, j, k] = x[i, indices[i, j, k], k]` for axis 1: one index per element. Other axes broadcast."""
    def ge(self, y: Array) -> Tensor:
        """x >= y."""
    def gelu(self) -> Tensor:
        """x * Phi(x), Phi the normal distribution function (erf form)."""
    def gelu_tanh(self) -> Tensor:
        """The tanh approximation of gelu."""
    def greater(self, y: Array) -> Tensor:
        """x > y."""
    def greater_equal(self, y: Array) -> Tensor:
        """x >= y."""
    def gt(self, y: Array) -> Tensor:
        """x > y."""
    def hypot(self, y: Array) -> Tensor:
        """sqrt(x * x + y * y) without overflow of the squares: the larger magnitude times sqrt(1 + ratio**2)."""
    def isfinite(self) -> Tensor:
        """Whether x is neither NaN nor infinite."""
    def isinf(self) -> Tensor:
        """Whether x is infinite."""
    def isnan(self) -> Tensor:
        """Whether x is NaN."""
    def layer_norm(self, weight: Array | None = None, bias: Array | None = None, axis: Axes = -1, eps: float = 1e-05, *, dim: Axes = ..., dims: Axes = ...) -> Tensor:
        """(x - mean) / sqrt(var + eps) * weight + bias over `axis`; weight and bias have the shape of those axes."""
    def le(self, y: Array) -> Tensor:
        """x <= y."""
    def leaky_relu(self, slope: float = 0.01, *, negative_slope: float = ...) -> Tensor:
        """x where it is positive, else slope * x."""
    def left_shift(self, y: Array) -> Tensor:
        """x << y."""
    def lerp(self, y: Array, weight: Array) -> Tensor:
        """`x + weight * (y - x)`: from x at weight 0 to y at weight 1."""
    def less(self, y: Array) -> Tensor:
        """x < y."""
    def less_equal(self, y: Array) -> Tensor:
        """x <= y."""
    def log(self) -> Tensor:
        """Natural logarithm."""
    def log10(self) -> Tensor:
        """Logarithm to base 10."""
    def log1p(self) -> Tensor:
        """log(1 + x), exact near 0."""
    def log2(self) -> Tensor:
        """Logarithm to base 2."""
    def log_softmax(self, axis: int = -1, *, dim: int = ..., dims: int = ...) -> Tensor:
        """log(softmax(x)) along `axis`, computed as x - max - log(sum(exp(x - max)))."""
    def logaddexp(self, y: Array) -> Tensor:
        """log(exp(x) + exp(y)) without overflow."""
    def logical_and(self, y: Array) -> Tensor:
        """x and y."""
    def logical_not(self) -> Tensor:
        """Not x."""
    def logical_or(self, y: Array) -> Tensor:
        """x or y."""
    def logical_xor(self, y: Array) -> Tensor:
        """x xor y."""
    def logsumexp(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """log(sum(exp(x))) along `axis`, without overflow. Of elements that are all -inf it is -inf."""
    def lt(self, y: Array) -> Tensor:
        """x < y."""
    def make_complex(self, y: Array) -> Tensor:
        """The complex number x + y i."""
    def masked_fill(self, mask: Array, value: Array) -> Tensor:
        """`value` where `mask` holds, else `x`."""
    def matmul(self, y: Array) -> Tensor:
        """The matrix product over the last two axes; leading axes are batches and broadcast. 1-D operands as in NumPy."""
    def max(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """The largest element along `axis`; NaN if there is one."""
    def maximum(self, y: Array) -> Tensor:
        """The larger of x and y; NaN if either is NaN."""
    def mean(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """The sum of the elements along `axis` divided by their number."""
    def min(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """The smallest element along `axis`; NaN if there is one."""
    def minimum(self, y: Array) -> Tensor:
        """The smaller of x and y; NaN if either is NaN."""
    def mm(self, y: Array) -> Tensor:
        """The matrix product over the last two axes; leading axes are batches and broadcast. 1-D operands as in NumPy."""
    def mod(self, y: Array) -> Tensor:
        """x - y * floor(x / y): the sign of y."""
    def moveaxis(self, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Tensor:
        """`x` with the axes `source` at the places `destination`; the others keep their order."""
    def mul(self, y: Array) -> Tensor:
        """x * y."""
    def multiply(self, y: Array) -> Tensor:
        """x * y."""
    def ne(self, y: Array) -> Tensor:
        """x != y."""
    def neg(self) -> Tensor:
        """-x."""
    def negative(self) -> Tensor:
        """-x."""
    def nextafter(self, y: Array) -> Tensor:
        """The number next to x on the way to y; f32 and f64 only."""
    def norm(self, ord: float = 2, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """The norm of order `ord` of the elements along `axis`: (sum |x|**ord)**(1/ord).

        The orders `inf` and `-inf` are the largest and the smallest |x|.
        """
    def not_equal(self, y: Array) -> Tensor:
        """x != y."""
    def one_hot(self, depth: Dim, dtype: DType = f32, *, num_classes: Dim = ...) -> Tensor:
        """A new last axis of size `depth`: 1 at the position given by `indices`, 0 elsewhere."""
    def outer(self, y: Array) -> Tensor:
        """All products of an element of x (flattened) with one of y (flattened): a matrix."""
    def pad(self, pad_width: int | tuple[Any, ...], mode: str = 'constant', value: float = 0) -> Tensor:
        """`x` with `value` around it: `pad_width` is a number, a pair (before, after), or a pair per axis, as in NumPy."""
    def permute(self, *perm: Any) -> Tensor:
        """`x` with its axes in the order `perm`, which names every axis, as in PyTorch."""
    def permute_dims(self, *perm: Any) -> Tensor:
        """`x` with its axes in the order `perm`, which names every axis, as in PyTorch."""
    def positive(self) -> Tensor:
        """x itself."""
    def pow(self, y: Array) -> Tensor:
        """x to the power y."""
    def power(self, y: Array) -> Tensor:
        """x to the power y."""
    def prod(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """The product of the elements along `axis`. Integers and bools are multiplied as 64-bit integers."""
    def put(self, indices: Array, updates: Array, axis: int = 0, *, dim: int = ..., dims: int = ...) -> Tensor:
        """`x` with `updates` in place of its slices at `indices` along `axis`: `out[:, indices[i]] = updates[:, i]` for 1.

        The counterpart of `take`: the axes of `indices` stand in `updates` where `axis` is in `x`. Negative indices count
        from the end; indices outside are ignored. If several updates have one place, the last counts. If nothing uses the
        old `x` afterwards, as in a loop that carries it, its memory is changed in place: only `updates` are copied.
        """
    def ravel(self, start: int = 0, end: int = -1) -> Tensor:
        """`x` with the axes `start` to `end` (inclusive) made one, in C order."""
    def reciprocal(self) -> Tensor:
        """1 / x."""
    def relu(self) -> Tensor:
        """max(x, 0)."""
    def remainder(self, y: Array) -> Tensor:
        """x - y * floor(x / y): the sign of y."""
    def repeat(self, repeats: int, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> Tensor:
        """Each element `repeats` times along `axis`; None: of the flattened tensor."""
    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in C order under another shape; one size may be -1 and is solved for."""
    def right_shift(self, y: Array) -> Tensor:
        """x >> y, arithmetic when signed."""
    def rms_norm(self, weight: Array | None = None, axis: Axes = -1, eps: float = 1e-06, *, dim: Axes = ..., dims: Axes = ...) -> Tensor:
        """x / sqrt(mean(x * x) + eps) * weight over `axis`; weight has the shape of those axes (Zhang, Sennrich 2019)."""
    def roll(self, shift: Any, axis: Any = None, *, dim: Any = ..., dims: Any = ...) -> Tensor:
        """`x` shifted along `axis` by `shift` places; elements moved past the end return at the start. None: flattened."""
    def round(self) -> Tensor:
        """Nearest integer, halves to even."""
    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""
    def scatter(self, indices: Array, updates: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> Tensor:
        """`x` with `updates` in place of the elements at `indices` along `axis`: `out[indices[i, j], j] = updates[i, j]`.

        Negative indices count from the end; indices outside are ignored. Of several updates of one place the last counts.
        """
    def scatter_add(self, indices: Array, updates: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> Tensor:
        """`x` with `updates` added to the elements at `indices` along `axis`: `out[indices[i, j], j] += updates[i, j]`.

        Negative indices count from the end; indices outside are ignored. Several updates of one place are added in
        ascending order of their positions.
        """
    def shift_left(self, y: Array) -> Tensor:
        """x << y."""
    def shift_right(self, y: Array) -> Tensor:
        """x >> y, arithmetic when signed."""
    def sigmoid(self) -> Tensor:
        """1 / (1 + e**-x)."""
    def sign(self) -> Tensor:
        """-1, 0 or 1."""
    def signbit(self) -> Tensor:
        """Whether x has a minus, as -0.0 has."""
    def silu(self) -> Tensor:
        """x * sigmoid(x)."""
    def sin(self) -> Tensor:
        """Sine of radians."""
    def sinh(self) -> Tensor:
        """Hyperbolic sine."""
    def softmax(self, axis: int = -1, *, dim: int = ..., dims: int = ...) -> Tensor:
        """exp(x) / sum(exp(x)) along `axis`, with the maximum subtracted first. Of elements that are all -inf it is NaN."""
    def softplus(self) -> Tensor:
        """log(1 + e**x) without overflow."""
    def sort(self, axis: int = -1, descending: _bool = False, stable: _bool = True, *, dim: int = ..., dims: int = ...) -> Tensor:
        """The elements along `axis` in ascending order, or in descending order; NaN counts as the largest."""
    def split(self, sections: int | tuple[int, ...], axis: int = 0, *, dim: int = ..., dims: int = ...) -> tuple[Tensor, ...]:
        """`x` split along `axis` into `sections` equal parts, or at the positions `sections`, as in NumPy."""
    def sqrt(self) -> Tensor:
        """Square root."""
    def square(self) -> Tensor:
        """x * x."""
    @overload
    def squeeze(self, axis: int | Sequence[int] | None = None, *, dim: int | Sequence[int] | None = ..., dims: int | Sequence[int] | None = ...) -> Tensor:
        """`x` without axes of size 1: those named by `axis`, or all whose size is known to be 1."""
    @overload
    def squeeze(self, *axis: int) -> Tensor: ...
    def std(self, axis: Axes = None, correction: float = 0, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ..., ddof: float = ...) -> Tensor:
        """The standard deviation along `axis`: the square root of the variance."""
    def stop_gradient(self) -> Tensor:
        """`x` itself, but a constant for derivatives: no gradient flows through it."""
    def sub(self, y: Array) -> Tensor:
        """x - y."""
    def subtract(self, y: Array) -> Tensor:
        """x - y."""
    def sum(self, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> Tensor:
        """The sum of the elements along `axis`. Integers and bools are summed as 64-bit integers."""
    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """`x` with two axes swapped."""
    def take(self, indices: Array, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> Tensor:
        """The slices of `x` at `indices` along `axis`, which the axes of `indices` replace; None: of the flattened tensor.

        Negative indices count from the end; indices outside read as 0.
        """
    def take_along_axis(self, indices: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> Tensor:
        """`out[i, j, k] = x[i, indices[i, j, k], k]` for axis 1: one index per element. Other axes broadcast."""
    def tan(self) -> Tensor:
        """Tangent of radians."""
    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""
    def tile(self, *reps: Any) -> Tensor:
        """`x` repeated as a whole, `reps` times along each axis, as in NumPy."""
    def topk(self, k: Dim, axis: int = -1, largest: _bool = True, *, dim: int = ..., dims: int = ..., diagonal: Dim = ...) -> tuple[Tensor, ...]:
        """The `k` largest elements along `axis` in descending order, and their positions as int64.

        With `largest=False` the smallest, in ascending order. Of equal elements the first come first.
        """
    @overload
    def transpose(self, perm: Sequence[int] | None = None) -> Tensor:
        """`x` with its axes in the order `perm`; without it, in reverse order.

        Two axes as separate arguments, `x.transpose(1, 2)`, are swapped, as in PyTorch; a tuple is always a permutation.
        """
    @overload
    def transpose(self, *perm: int) -> Tensor: ...
    def tril(self, k: int = 0, *, diagonal: int = ...) -> Tensor:
        """`x` with zeros above diagonal number k of its last two axes."""
    def triu(self, k: int = 0, *, diagonal: int = ...) -> Tensor:
        """`x` with zeros below diagonal number k of its last two axes."""
    def true_divide(self, y: Array) -> Tensor:
        """x / y; integers divide as f32."""
    def trunc(self) -> Tensor:
        """x without its fraction."""
    def unbind(self, axis: int = 0, *, dim: int = ..., dims: int = ...) -> tuple[Tensor, ...]:
        """A tuple of the slices of `x` along `axis`. The size of this axis must be known."""
    def unsqueeze(self, *axis: Any, dim: int | Sequence[int] = ..., dims: int | Sequence[int] = ...) -> Tensor:
        """`x` with new axes of size 1 at the positions `axis` of the result."""
    def unstack(self, axis: int = 0, *, dim: int = ..., dims: int = ...) -> tuple[Tensor, ...]:
        """A tuple of the slices of `x` along `axis`. The size of this axis must be known."""
    def var(self, axis: Axes = None, correction: float = 0, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ..., ddof: float = ...) -> Tensor:
        """The variance along `axis`: squared distances from the mean, summed, divided by the number less `correction`.

        Two passes, so that nothing cancels. `correction` (NumPy's `ddof`) 0 is the population's, 1 the sample's variance.
        Complex numbers have the real variance of their distances from the mean.
        """
    def view(self, *shape: Any) -> Tensor:
        """The same elements in C order under another shape; one size may be -1 and is solved for."""
    grad: Tensor | None  # type: ignore
    @property
    def T(self) -> Tensor:
        """All axes reversed; a view."""
    def requires_grad_(self, wanted: _bool = True) -> Tensor:
        """Sets `requires_grad`; the tensor itself. Raises LaunchError TS351 where it holds no floats."""
    def to(self, where: Any) -> Tensor:
        """On another device ("cpu", "cuda", "cuda:1"), or of another dtype. The same tensor where nothing changes.
        Raises LaunchError TS501 where `where` is neither.
        """
    def cpu(self) -> Tensor:
        """"""
    def cuda(self, index: int = 0) -> Tensor:
        """"""
    def astype(self, dtype: Any) -> Tensor:
        """Elements converted, as `cast` does. Raises LaunchError TS501 where `dtype` is none."""
    def copy(self) -> Tensor:
        """"""
    def contiguous(self) -> Tensor:
        """Itself where its elements lie in C order without gaps, else a copy."""
    def allclose(self, y, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: _bool = False) -> Tensor:
        """Whether all elements are close, as `isclose` says."""
    def angle(self) -> Tensor:
        """The angle of complex numbers in radians, from -pi to pi; 0 or pi for real ones."""
    def bincount(self, weights=None, *, length: int) -> Tensor:
        """How often each of 0 ... length - 1 stands in `x` [n], or the sum of its `weights`. Other numbers do not count.

        NumPy finds the length in the elements; here, sizes do not depend on them.
        """
    def corrcoef(self) -> Tensor:
        """Correlations of the rows of x [variables, observations], limited to [-1, 1]."""
    def cov(self, correction: float = 1) -> Tensor:
        """Covariances of the rows of x [variables, observations], as a matrix [variables, variables]."""
    def cross(self, y, axis: int = -1) -> Tensor:
        """Vector products in space: along `axis` both have 3 elements."""
    def deg2rad(self) -> Tensor:
        """Degrees as radians."""
    def degrees(self) -> Tensor:
        """Radians as degrees: NumPy's name for `rad2deg`."""
    def diag(self, k: int = 0) -> Tensor:
        """A vector as diagonal number `k` of a matrix of zeros; of a matrix, its diagonal number `k`."""
    def diag_embed(self) -> Tensor:
        """The last axis [n] as the diagonals of matrices [n, n]."""
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """The elements [i, i + offset] of the axes `axis1` and `axis2`, as a new last axis."""
    def digamma(self) -> Tensor:
        """The derivative of `lgamma`, as PyTorch's: -infinity at 0, NaN at negative integers. Integers count as f32.

        In f64 the error is at most 2e-15 (1 + |digamma(x)|) for x > 0; in f32 1 unit in the last place. The asymptotic
        series for large x, else the recurrence up to it; reflection for x < 0 (M. Abramowitz, I. Stegun, 1964, 6.3.5,
        6.3.7, 6.3.18).
        """
    def erfc(self) -> Tensor:
        """1 - erf(x), with all digits where erf(x) is close to 1. Integers count as f32. In f64 the relative error is at
        most 1e-15, in f32 1 unit in the last place.
        """
    def erfinv(self) -> Tensor:
        """The y with erf(y) = x, infinite at 1 and -1, NaN beyond. Integers count as f32. In f64 the relative error is at
        most 1e-15, in f32 1 unit in the last place.

        A formula with two digits (S. Winitzki, 2008), and three steps of Newton's method, for x near 1 on log(erfc(y)).
        """
    def fliplr(self) -> Tensor:
        """`x` in reverse order along axis 1."""
    def flipud(self) -> Tensor:
        """`x` in reverse order along axis 0."""
    def fmax(self, y) -> Tensor:
        """The greater of both; of NaN and a number, the number."""
    def fmin(self, y) -> Tensor:
        """The smaller of both; of NaN and a number, the number."""
    def fmod(self, y) -> Tensor:
        """The remainder of x / y with the sign of x, as in C; it is exact."""
    def frac(self) -> Tensor:
        """x without its integer part, with the sign of x."""
    def heaviside(self, at_zero) -> Tensor:
        """0 for negative x, 1 for positive x, `at_zero` at 0, NaN for NaN."""
    def index_select(self, axis: int, index) -> Tensor:
        """The slices of `x` along `axis` at the positions `index`."""
    def inner(self, y) -> Tensor:
        """Sums of products along the last axes of both."""
    def isclose(self, y, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: _bool = False) -> Tensor:
        """Where |x - y| <= atol + rtol |y|. Infinities are close to themselves, NaN to NaN with `equal_nan`."""
    def isin(self, values) -> Tensor:
        """Whether each element of `x` is one of `values`."""
    def isneginf(self) -> Tensor:
        """Where an element is -infinity."""
    def isposinf(self) -> Tensor:
        """Where an element is infinity."""
    def kron(self, y) -> Tensor:
        """Kronecker's product: `y` times each element of `x`, as blocks. Both have as many axes."""
    def lgamma(self) -> Tensor:
        """log |gamma(x)|, as PyTorch's; infinity at 0 and the negative integers. Integers count as f32.

        In f64 the relative error is at most 1e-15 for x > 0, also near 1 and 2, where the function is 0; for x < 0 the
        error is at most 1e-15 (1 + |lgamma(x)| + |lgamma(1 - x)|). In f32 it is 1 unit in the last place for x > 0.
        Stirling's series for large x, else the recurrence to the interval around 2; Euler's reflection for x < 0
        (M. Abramowitz, I. Stegun, 1964, 6.1.15, 6.1.17, 6.1.41). The derivative is `digamma`.
        """
    def logit(self, eps: float | None = None) -> Tensor:
        """log(x / (1 - x)); with `eps`, x is first limited to [eps, 1 - eps]."""
    def median(self, axis: int | None = None, keepdims: _bool = False) -> Tensor:
        """The element in the middle, and the mean of the two in the middle of an even number, as in NumPy."""
    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
        """`x` with numbers for NaN and the infinities: by default 0 and the greatest and least finite numbers."""
    def nanmean(self, axis: int | tuple[int, ...] | None = None, keepdims: _bool = False) -> Tensor:
        """The mean of the elements that are not NaN; NaN where there are none."""
    def nanmedian(self, axis: int | None = None, keepdims: _bool = False) -> Tensor:
        """The median of the elements that are not NaN; NaN where there are none."""
    def nansum(self, axis: int | tuple[int, ...] | None = None, keepdims: _bool = False) -> Tensor:
        """The sum of the elements that are not NaN."""
    def narrow(self, axis: int, start: int, length: int) -> Tensor:
        """`length` elements of `x` along `axis`, from `start` on, which counts from the end where it is negative."""
    def ptp(self, axis: int | tuple[int, ...] | None = None, keepdims: _bool = False) -> Tensor:
        """The greatest element less the least."""
    def quantile(self, q: float | tuple[float, ...], axis: int | None = None, keepdims: _bool = False) -> Tensor:
        """The value below which the fraction `q` of the elements lies, between the two nearest ones in proportion.

        `q` is a number or a list of numbers, whose quantiles lie along a new first axis. NaN where an element is NaN, or
        there is none.
        """
    def rad2deg(self) -> Tensor:
        """Radians as degrees."""
    def radians(self) -> Tensor:
        """Degrees as radians: NumPy's name for `deg2rad`."""
    def rot90(self, k: int = 1, axes=(0, 1)) -> Tensor:
        """`x` turned `k` times by a quarter, from the first of `axes` to the second."""
    def sinc(self) -> Tensor:
        """sin(pi x) / (pi x), 1 at 0."""
    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """The sum of the diagonal of the axes `axis1` and `axis2`."""
    def unflatten(self, axis: int, sizes: tuple[int, ...]) -> Tensor:
        """`x` with `axis` split into axes of these sizes, of which one may be -1."""
    def vdot(self, y) -> Tensor:
        """The sum of the products of all elements; those of `x` are conjugated."""
    def __add__(self, other: Array) -> Tensor: ...
    def __radd__(self, other: Array) -> Tensor: ...
    def __sub__(self, other: Array) -> Tensor: ...
    def __rsub__(self, other: Array) -> Tensor: ...
    def __mul__(self, other: Array) -> Tensor: ...
    def __rmul__(self, other: Array) -> Tensor: ...
    def __truediv__(self, other: Array) -> Tensor: ...
    def __rtruediv__(self, other: Array) -> Tensor: ...
    def __floordiv__(self, other: Array) -> Tensor: ...
    def __rfloordiv__(self, other: Array) -> Tensor: ...
    def __mod__(self, other: Array) -> Tensor: ...
    def __rmod__(self, other: Array) -> Tensor: ...
    def __pow__(self, other: Array) -> Tensor: ...
    def __rpow__(self, other: Array) -> Tensor: ...
    def __eq__(self, other: Array) -> Tensor: ...  # type: ignore
    def __ne__(self, other: Array) -> Tensor: ...  # type: ignore
    def __lt__(self, other: Array) -> Tensor: ...  # type: ignore
    def __le__(self, other: Array) -> Tensor: ...  # type: ignore
    def __gt__(self, other: Array) -> Tensor: ...  # type: ignore
    def __ge__(self, other: Array) -> Tensor: ...  # type: ignore
    def __and__(self, other: Array) -> Tensor: ...
    def __rand__(self, other: Array) -> Tensor: ...
    def __or__(self, other: Array) -> Tensor: ...
    def __ror__(self, other: Array) -> Tensor: ...
    def __xor__(self, other: Array) -> Tensor: ...
    def __rxor__(self, other: Array) -> Tensor: ...
    def __lshift__(self, other: Array) -> Tensor: ...
    def __rlshift__(self, other: Array) -> Tensor: ...
    def __rshift__(self, other: Array) -> Tensor: ...
    def __rrshift__(self, other: Array) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def __matmul__(self, other: Array) -> Tensor: ...
    def __rmatmul__(self, other: Array) -> Tensor: ...
    def __getitem__(self, index: Any) -> Tensor: ...
    def __class_getitem__(cls, item: Any) -> type[Tensor]: ...  # type: ignore

def asarray(data: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """A Tensor over `data`: the same memory where it is an array on that device, a copy of lists and numbers.

    Tensors in lists are stacked, as in functions: numbers beside them get their dtype, and derivatives go through.
    """

def empty(*shape: Any, dtype: Any = f32, device: str | None = None) -> Tensor:
    """A tensor of uninitialised memory: its values are undefined."""

def from_dlpack(array: Any) -> Tensor:
    """A Tensor that shares the memory of any array with `__dlpack__`: PyTorch, JAX, CuPy, NumPy and others.

    Raises LaunchError TS501 where the array cannot be shared, TS504 for devices without a target.
    """

def rand(*shape: Any, dtype: Any = f32, seed: int | None = None, device: str | None = None) -> Tensor:
    """Uniformly distributed over [0, 1). `rand(2, 3)` or `rand((2, 3))`."""

def randn(*shape: Any, dtype: Any = f32, seed: int | None = None, device: str | None = None) -> Tensor:
    """Normally distributed with mean 0 and standard deviation 1."""

class _TensorNamespace:
    def __call__(self, data: Any, dtype: Any = None, device: str | None = None, requires_grad: _bool = False) -> Tensor: ...
    def __getattr__(self, name: str) -> Any: ...
tensor: _TensorNamespace

def abs(x: A) -> A:
    """|x|."""

def absolute(x: A) -> A:
    """|x|."""

def acos(x: A) -> A:
    """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""

def acosh(x: A) -> A:
    """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""

def add(x: A, y: Array) -> A:
    """x + y."""

def all(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """Whether all elements along `axis` are true (not zero)."""

def amax(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """The largest element along `axis`; NaN if there is one."""

def amin(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """The smallest element along `axis`; NaN if there is one."""

def any(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """Whether any element along `axis` is true (not zero)."""

def arange(start: float | Dim, stop: float | Dim | None = None, step: float | Dim = 1, dtype: DType | None = None) -> Tensor:
    """start, start + step ... before stop; `arange(n)` counts from 0. Floats give f32, integers and dims int64."""

def arccos(x: A) -> A:
    """The angle from 0 to pi whose cosine is x; NaN outside of [-1, 1]."""

def arccosh(x: A) -> A:
    """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""

def arcsin(x: A) -> A:
    """The angle, in radians, whose sine is x; NaN outside of [-1, 1]."""

def arcsinh(x: A) -> A:
    """The number whose hyperbolic sine is x."""

def arctan(x: A) -> A:
    """Inverse tangent."""

def arctan2(y: A, x: Array) -> A:
    """The angle of the point (y, x)."""

def arctanh(x: A) -> A:
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""

def argmax(x: A, axis: int | None = None, keepdims: _bool = False, *, dim: int | None = ..., dims: int | None = ..., keepdim: _bool = ...) -> A:
    """The index of the first largest element along `axis`; the first NaN if there is one."""

def argmin(x: A, axis: int | None = None, keepdims: _bool = False, *, dim: int | None = ..., dims: int | None = ..., keepdim: _bool = ...) -> A:
    """The index of the first smallest element along `axis`; the first NaN if there is one."""

def argsort(x: A, axis: int = -1, descending: _bool = False, stable: _bool = True, *, dim: int = ..., dims: int = ...) -> A:
    """The positions of the elements along `axis` in ascending order, or in descending order, as int64.

    Equal elements keep their order; NaN counts as the largest.
    """

def asin(x: A) -> A:
    """The angle, in radians, whose sine is x; NaN outside of [-1, 1]."""

def asinh(x: A) -> A:
    """The number whose hyperbolic sine is x."""

def astype(x: A, dtype: DType) -> A:
    """`x` with elements of `dtype`, rounded to nearest even; numbers that are too large become infinite.

    In formats of 8 bits and fewer they become the largest finite value. Floats become integers by truncation towards
    zero, limited to the integer's range; NaN becomes 0.
    """

def atan(x: A) -> A:
    """Inverse tangent."""

def atan2(y: A, x: Array) -> A:
    """The angle of the point (y, x)."""

def atanh(x: A) -> A:
    """The number whose hyperbolic tangent is x; NaN outside of [-1, 1]."""

def attention(q: A, k: Array, v: Array, mask: Array | None = None, lengths: Array | None = None, starts: Array | None = None, causal: _bool = False, scale: float | None = None, window: int | None = None, softcap: float | None = None, *, diagonal: Array = ...) -> A:
    """Scaled dot-product attention: softmax(q k^T * scale + mask) v over [..., heads, positions, features].

    `k` and `v` may have fewer heads than `q` (grouped queries): each serves heads(q) / heads(k) query heads. `mask` is
    bool (true: attend) or added to the scores, and broadcasts to [..., heads, queries, keys]. `causal` lets query i see
    keys 0 to i, `window` only those less than so many positions away (with `causal` itself and window - 1 before).
    `lengths` [...] counts the keys that there are in each batch, and `starts` [...] is the position of query 0 among
    them, 0 by itself, for `causal` and `window`. Keys beyond these bounds cost nothing. `softcap` makes scores softcap
    * tanh(scores / softcap) before the mask. `scale` defaults to 1 / sqrt(features). A query that may see no key gets
    0. Scores and sums are f32; with narrower operands the weights are rounded to the operands' dtype before they meet
    `v`, as in FlashAttention. Neither it nor its gradient holds the scores in memory.
    """

def attention_with_logsumexp(q: A, k: Array, v: Array, mask: Array | None = None, lengths: Array | None = None, starts: Array | None = None, causal: _bool = False, scale: float | None = None, window: int | None = None, softcap: float | None = None, *, diagonal: Array = ...) -> tuple[A, ...]:
    """What `attention` gives, and the logarithm of the sum of the exponentials of each query's scores [..., heads,
    queries], f32 (f64 for f64); -inf where a query sees no key.

    Of keys in several parts, each part's result weighs exp(logsumexp) in the mean that is the result of all.
    """

def avg_pool1d(x: A, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, count_include_pad: _bool = True) -> A:
    """The mean of each window of `kernel_size` along the last axis, `stride` apart (default: side by side).

    Padding counts as zeros; without `count_include_pad` it does not count.
    """

def avg_pool2d(x: A, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, count_include_pad: _bool = True) -> A:
    """The mean of each window of `kernel_size` along the last 2 axes, `stride` apart (default: side by side).

    Padding counts as zeros; without `count_include_pad` it does not count.
    """

def avg_pool3d(x: A, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, count_include_pad: _bool = True) -> A:
    """The mean of each window of `kernel_size` along the last 3 axes, `stride` apart (default: side by side).

    Padding counts as zeros; without `count_include_pad` it does not count.
    """

def batch_norm(x: A, mean: Array | None = None, var: Array | None = None, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-05) -> A:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of x [batch, channels, ...].

    `mean` and `var` are vectors, such as running averages. Without them those of the batch are used: means over all
    axes except the channels, and the variance with correction 0.
    """

def bernoulli(seed: Array, shape: Shape, p: float = 0.5) -> Tensor:
    """True with probability p."""

def bit_and(x: A, y: Array) -> A:
    """Bitwise and."""

def bit_not(x: A) -> A:
    """Bitwise not."""

def bit_or(x: A, y: Array) -> A:
    """Bitwise or."""

def bit_xor(x: A, y: Array) -> A:
    """Bitwise xor."""

def bitcast(x: A, dtype: DType) -> A:
    """The bits of `x` as elements of `dtype`, which is as wide. 1.0 of f32 as uint32 is 0x3F800000."""

def bitcast_convert_type(x: A, dtype: DType) -> A:
    """The bits of `x` as elements of `dtype`, which is as wide. 1.0 of f32 as uint32 is 0x3F800000."""

def bitwise_and(x: A, y: Array) -> A:
    """Bitwise and."""

def bitwise_invert(x: A) -> A:
    """Bitwise not."""

def bitwise_left_shift(x: A, y: Array) -> A:
    """x << y."""

def bitwise_not(x: A) -> A:
    """Bitwise not."""

def bitwise_or(x: A, y: Array) -> A:
    """Bitwise or."""

def bitwise_right_shift(x: A, y: Array) -> A:
    """x >> y, arithmetic when signed."""

def bitwise_xor(x: A, y: Array) -> A:
    """Bitwise xor."""

def bmm(x: A, y: Array) -> A:
    """The matrix product over the last two axes; leading axes are batches and broadcast. 1-D operands as in NumPy."""

def broadcast_to(x: A, *shape: Any) -> A:
    """`x` broadcast to `shape` by NumPy's rule; -1 keeps the size of the operand."""

def cast(x: A, dtype: DType) -> A:
    """`x` with elements of `dtype`, rounded to nearest even; numbers that are too large become infinite.

    In formats of 8 bits and fewer they become the largest finite value. Floats become integers by truncation towards
    zero, limited to the integer's range; NaN becomes 0.
    """

def cat(xs: Sequence[A], axis: int = 0, *, dim: int = ..., dims: int = ...) -> A:
    """The tensors one after the other along `axis`; all other sizes agree."""

def ceil(x: A) -> A:
    """Smallest integer >= x."""

def chunk(x: A, chunks: int, axis: int = 0, *, dim: int = ..., dims: int = ...) -> tuple[A, ...]:
    """`x` split along `axis` into `chunks` parts; all but the last have size ceil(size / chunks), as in PyTorch.

    The size must be known, because the number of parts depends on it.
    """

def clamp(x: A, min: Array | None = None, max: Array | None = None) -> A:
    """`x` limited to the range from `min` to `max`, either of which may be None; NaN stays NaN."""

def clip(x: A, min: Array | None = None, max: Array | None = None) -> A:
    """`x` limited to the range from `min` to `max`, either of which may be None; NaN stays NaN."""

def concat(xs: Sequence[A], axis: int = 0, *, dim: int = ..., dims: int = ...) -> A:
    """The tensors one after the other along `axis`; all other sizes agree."""

def concatenate(xs: Sequence[A], axis: int = 0, *, dim: int = ..., dims: int = ...) -> A:
    """The tensors one after the other along `axis`; all other sizes agree."""

def conj(x: A) -> A:
    """The complex conjugate; a real number is its own."""

def conjugate(x: A) -> A:
    """The complex conjugate; a real number is its own."""

def conv1d(x: A, weight: Array, bias: Array | None = None, stride: int | Sequence[int] = 1, padding: int | str | Sequence[Any] = 0, dilation: int | Sequence[int] = 1, groups: int = 1) -> A:
    """x [batch, channels, ...] over its last axis: convolved with weights [results, channels / groups, ...], plus a bias [results].

    `padding` is a number, one for each axis, a pair for each axis, 'same' or 'valid'.
    """

def conv2d(x: A, weight: Array, bias: Array | None = None, stride: int | Sequence[int] = 1, padding: int | str | Sequence[Any] = 0, dilation: int | Sequence[int] = 1, groups: int = 1) -> A:
    """x [batch, channels, ...] over its last 2 axes: convolved with weights [results, channels / groups, ...], plus a bias [results].

    `padding` is a number, one for each axis, a pair for each axis, 'same' or 'valid'.
    """

def conv3d(x: A, weight: Array, bias: Array | None = None, stride: int | Sequence[int] = 1, padding: int | str | Sequence[Any] = 0, dilation: int | Sequence[int] = 1, groups: int = 1) -> A:
    """x [batch, channels, ...] over its last 3 axes: convolved with weights [results, channels / groups, ...], plus a bias [results].

    `padding` is a number, one for each axis, a pair for each axis, 'same' or 'valid'.
    """

def conv_transpose1d(x: A, weight: Array, bias: Array | None = None, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0, groups: int = 1, dilation: int | Sequence[int] = 1) -> A:
    """x [batch, channels, ...] over its last axis: the transpose of a convolution with weights [channels, results / groups, ...], plus a bias [results].

    `output_padding` selects one of the sizes that a stride makes possible.
    """

def conv_transpose2d(x: A, weight: Array, bias: Array | None = None, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0, groups: int = 1, dilation: int | Sequence[int] = 1) -> A:
    """x [batch, channels, ...] over its last 2 axes: the transpose of a convolution with weights [channels, results / groups, ...], plus a bias [results].

    `output_padding` selects one of the sizes that a stride makes possible.
    """

def conv_transpose3d(x: A, weight: Array, bias: Array | None = None, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0, groups: int = 1, dilation: int | Sequence[int] = 1) -> A:
    """x [batch, channels, ...] over its last 3 axes: the transpose of a convolution with weights [channels, results / groups, ...], plus a bias [results].

    `output_padding` selects one of the sizes that a stride makes possible.
    """

def copysign(x: A, y: Array) -> A:
    """|x| with the sign bit of y (zeros and NaN have one too)."""

def cos(x: A) -> A:
    """Cosine of radians."""

def cosh(x: A) -> A:
    """Hyperbolic cosine."""

def count_nonzero(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """How many elements along `axis` are not zero, as int64."""

def cross_entropy(logits: A, labels: Array, reduction: str = 'mean', label_smoothing: float = 0.0) -> A:
    """-log_softmax(logits)[label] over the last axis, for integer labels of the shape of the other axes.

    `label_smoothing` e adds the mean over all classes with weight e. Labels below 0, such as -100, do not count: their
    loss is 0, and the mean is that of the others, NaN if there is none. The loss of a label beyond the classes is NaN.
    """

def cummax(x: A, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> A:
    """The largest element so far along `axis` (None: of the flattened tensor); NaN from the first NaN on."""

def cummin(x: A, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> A:
    """The smallest element so far along `axis` (None: of the flattened tensor); NaN from the first NaN on."""

def cumprod(x: A, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> A:
    """Running products along `axis` (None: of the flattened tensor). Integers and bools count as 64-bit integers."""

def cumsum(x: A, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> A:
    """Running sums along `axis` (None: of the flattened tensor). Integers and bools are summed as 64-bit integers."""

def cumulative_prod(x: A, axis: int | None = None, dtype: DType | None = None, include_initial: _bool = False, *, dim: int | None = ..., dims: int | None = ...) -> A:
    """Running products along `axis`; with `include_initial` a 1 stands before them."""

def cumulative_sum(x: A, axis: int | None = None, dtype: DType | None = None, include_initial: _bool = False, *, dim: int | None = ..., dims: int | None = ...) -> A:
    """Running sums along `axis`; with `include_initial` a 0 stands before them."""

def detach(x: A) -> A:
    """`x` itself, but a constant for derivatives: no gradient flows through it."""

def dft(x: A, imaginary: Array | None = None, axis: int = -1, inverse: _bool = False, power: float = 0.0, *, dim: int = ..., dims: int = ...) -> A:
    """n^power * sum over j of x[j] exp(-2 pi i j k / n) along `axis`; `inverse`: with +i.

    With `imaginary`, of x + i imaginary for real ones. It is linear and its matrix symmetric, so that it is its own
    tangent and its own adjoint.
    """

def diff(x: A, prepend: Array | None = None, append: Array | None = None, axis: int = -1, n: int = 1, *, dim: int = ..., dims: int = ...) -> A:
    """x[i + 1] - x[i] along `axis`, taken `n` times; `prepend` and `append` are joined on first."""

def div(x: A, y: Array) -> A:
    """x / y; integers divide as f32."""

def divide(x: A, y: Array) -> A:
    """x / y; integers divide as f32."""

def dot(x: A, y: Array) -> A:
    """The inner product of the last axis of x with the second-last of y (the only one of a vector), as in NumPy."""

def dropout(x: A, key: Array, p: float = 0.5) -> A:
    """`x` with elements set to 0 with probability `p`, the others divided by 1 - p. `key` is the seed."""

def einsum(equation: str, *operands: A) -> A:
    """Einstein summation: `einsum("bik,bkj->bij", x, y)`. Letters name axes; those not in the result are summed.

    A letter repeated within an operand selects the diagonal, `...` stands for any further axes, sizes of 1 broadcast.
    Operands are contracted from left to right.
    """

def elu(x: A, alpha: float = 1.0) -> A:
    """x where it is positive, else alpha * (e**x - 1)."""

def embedding(indices: A, weight: Array) -> A:
    """The rows of `weight` at `indices`; a row outside of `weight` reads as 0."""

def eq(x: A, y: Array) -> A:
    """x == y."""

def equal(x: A, y: Array) -> A:
    """x == y."""

def erf(x: A) -> A:
    """Error function."""

def exp(x: A) -> A:
    """e**x."""

def exp2(x: A) -> A:
    """2**x."""

def expand_dims(x: A, *axis: Any, dim: int | Sequence[int] = ..., dims: int | Sequence[int] = ...) -> A:
    """`x` with new axes of size 1 at the positions `axis` of the result."""

def expm1(x: A) -> A:
    """e**x - 1, exact near 0."""

def eye(n: Dim, m: Dim | None = None, k: int = 0, dtype: DType = f32, *, diagonal: int = ...) -> Tensor:
    """A matrix of n rows and m columns (None: n) with ones on diagonal k and zeros elsewhere."""

def fit_length(x: A, n: Dim, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """`x` with `n` elements along `axis`: the first of them, or all and zeros behind."""

def flatten(x: A, start: int = 0, end: int = -1) -> A:
    """`x` with the axes `start` to `end` (inclusive) made one, in C order."""

def flip(x: A, axis: int | Sequence[int] | None = None, *, dim: int | Sequence[int] | None = ..., dims: int | Sequence[int] | None = ...) -> A:
    """`x` in reverse order along `axis`; None means along all axes."""

def floor(x: A) -> A:
    """Largest integer <= x."""

def floor_divide(x: A, y: Array) -> A:
    """floor(x / y)."""

def floordiv(x: A, y: Array) -> A:
    """floor(x / y)."""

def fma(x: A, y: Array, z: Array) -> A:
    """x * y + z, rounded once where the target can."""

def full(shape: Shape, value: Fill, dtype: DType | None = None) -> Tensor:
    """A tensor of one value: a number, a dim, which is read at launch, or a tensor, which is broadcast."""

def full_like(x: A, value: Fill, dtype: DType | None = None) -> A:
    """A tensor of one value with the shape, and by default the dtype, of `x`."""

def gather(x: A, indices: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """`out[i, j, k] = x[i, indices[i, j, k], k]` for axis 1: one index per element. Other axes broadcast."""

def ge(x: A, y: Array) -> A:
    """x >= y."""

def gelu(x: A) -> A:
    """x * Phi(x), Phi the normal distribution function (erf form)."""

def gelu_tanh(x: A) -> A:
    """The tanh approximation of gelu."""

def gemm(x: A, y: Array) -> A:
    """The matrix product over the last two axes; leading axes are batches and broadcast. 1-D operands as in NumPy."""

def greater(x: A, y: Array) -> A:
    """x > y."""

def greater_equal(x: A, y: Array) -> A:
    """x >= y."""

def group_norm(x: A, num_groups: Dim, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-05) -> A:
    """x [batch, channels, ...] normalised over groups of channels and all axes after them, times weight plus bias.

    Each sample has `num_groups` means and variances; weight and bias have an element for each channel (Wu, He 2018).
    With as many groups as channels it is an instance norm.
    """

def gt(x: A, y: Array) -> A:
    """x > y."""

def hypot(x: A, y: Array) -> A:
    """sqrt(x * x + y * y) without overflow of the squares: the larger magnitude times sqrt(1 + ratio**2)."""

def imag(x: A) -> A:
    """The imaginary part of x; 0 of a real number."""

def iota(shape: Shape, dtype: DType = int64, axis: int = 0, *, dim: int = ..., dims: int = ...) -> Tensor:
    """0, 1, 2 ... along `axis`, repeated along the others."""

def irdft(x: A, n: Dim, axis: int = -1, power: float = 0.0, *, dim: int = ..., dims: int = ...) -> A:
    """The `n` real numbers whose transform, the inverse one, has results 0 to n // 2 like `x` along `axis`.

    The imaginary parts of result 0, and of result n / 2, are taken for 0.
    """

def isfinite(x: A) -> A:
    """Whether x is neither NaN nor infinite."""

def isinf(x: A) -> A:
    """Whether x is infinite."""

def isnan(x: A) -> A:
    """Whether x is NaN."""

def layer_norm(x: A, weight: Array | None = None, bias: Array | None = None, axis: Axes = -1, eps: float = 1e-05, *, dim: Axes = ..., dims: Axes = ...) -> A:
    """(x - mean) / sqrt(var + eps) * weight + bias over `axis`; weight and bias have the shape of those axes."""

def le(x: A, y: Array) -> A:
    """x <= y."""

def leaky_relu(x: A, slope: float = 0.01, *, negative_slope: float = ...) -> A:
    """x where it is positive, else slope * x."""

def left_shift(x: A, y: Array) -> A:
    """x << y."""

def lerp(x: A, y: Array, weight: Array) -> A:
    """`x + weight * (y - x)`: from x at weight 0 to y at weight 1."""

def less(x: A, y: Array) -> A:
    """x < y."""

def less_equal(x: A, y: Array) -> A:
    """x <= y."""

def linear(x: A, weight: Array, bias: Array | None = None) -> A:
    """x weight^T + bias: features [..., n] to [..., m], with a weight [m, n], as in PyTorch."""

def linspace(start: float, stop: float, num: int = 50, dtype: DType = f32, *, steps: int = ...) -> Tensor:
    """`num` evenly spaced numbers from start to stop, both included."""

@overload
def log(x: Mapping[str, Any], step: int | None = None) -> None:  # type: ignore
    """Logs numbers by name: those of the run that goes on, or of a loop of one's own."""
@overload
def log(x: A) -> A:
    """Natural logarithm."""

def log10(x: A) -> A:
    """Logarithm to base 10."""

def log1p(x: A) -> A:
    """log(1 + x), exact near 0."""

def log2(x: A) -> A:
    """Logarithm to base 2."""

def log_softmax(x: A, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """log(softmax(x)) along `axis`, computed as x - max - log(sum(exp(x - max)))."""

def logaddexp(x: A, y: Array) -> A:
    """log(exp(x) + exp(y)) without overflow."""

def logical_and(x: A, y: Array) -> A:
    """x and y."""

def logical_not(x: A) -> A:
    """Not x."""

def logical_or(x: A, y: Array) -> A:
    """x or y."""

def logical_xor(x: A, y: Array) -> A:
    """x xor y."""

def logsumexp(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """log(sum(exp(x))) along `axis`, without overflow. Of elements that are all -inf it is -inf."""

def lt(x: A, y: Array) -> A:
    """x < y."""

def make_complex(x: A, y: Array) -> A:
    """The complex number x + y i."""

def masked_fill(x: A, mask: Array, value: Array) -> A:
    """`value` where `mask` holds, else `x`."""

def matmul(x: A, y: Array) -> A:
    """The matrix product over the last two axes; leading axes are batches and broadcast. 1-D operands as in NumPy."""

def matrix_transpose(x: A) -> A:
    """`x` with its last two axes swapped."""

def max(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """The largest element along `axis`; NaN if there is one."""

def max_pool1d(x: A, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1) -> A:
    """The largest element of each window of `kernel_size` along the last axis, `stride` apart (default: side by side).

    Padding is never the largest; of equal elements the first gets the derivative.
    """

def max_pool2d(x: A, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1) -> A:
    """The largest element of each window of `kernel_size` along the last 2 axes, `stride` apart (default: side by side).

    Padding is never the largest; of equal elements the first gets the derivative.
    """

def max_pool3d(x: A, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1) -> A:
    """The largest element of each window of `kernel_size` along the last 3 axes, `stride` apart (default: side by side).

    Padding is never the largest; of equal elements the first gets the derivative.
    """

def maximum(x: A, y: Array) -> A:
    """The larger of x and y; NaN if either is NaN."""

def mean(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """The sum of the elements along `axis` divided by their number."""

def min(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """The smallest element along `axis`; NaN if there is one."""

def minimum(x: A, y: Array) -> A:
    """The smaller of x and y; NaN if either is NaN."""

def mm(x: A, y: Array) -> A:
    """The matrix product over the last two axes; leading axes are batches and broadcast. 1-D operands as in NumPy."""

def mod(x: A, y: Array) -> A:
    """x - y * floor(x / y): the sign of y."""

def moveaxis(x: A, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> A:
    """`x` with the axes `source` at the places `destination`; the others keep their order."""

def mse(x: A, y: Array, reduction: str = 'mean') -> A:
    """The mean (or sum, or each) of the squared differences of x and y, of which one has the shape of both together:
    [B, 1] and [B] would give B * B differences.
    """

def mse_loss(x: A, y: Array, reduction: str = 'mean') -> A:
    """The mean (or sum, or each) of the squared differences of x and y, of which one has the shape of both together:
    [B, 1] and [B] would give B * B differences.
    """

def mul(x: A, y: Array) -> A:
    """x * y."""

def multiply(x: A, y: Array) -> A:
    """x * y."""

def ne(x: A, y: Array) -> A:
    """x != y."""

def neg(x: A) -> A:
    """-x."""

def negative(x: A) -> A:
    """-x."""

def nextafter(x: A, y: Array) -> A:
    """The number next to x on the way to y; f32 and f64 only."""

def norm(x: A, ord: float = 2, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """The norm of order `ord` of the elements along `axis`: (sum |x|**ord)**(1/ord).

    The orders `inf` and `-inf` are the largest and the smallest |x|.
    """

def normal(seed: Array, shape: Shape = (), mean: float = 0.0, std: float = 1.0, dtype: DType = f32) -> Tensor:
    """Normally distributed floats: the transform of Box and Muller (1958) of two random words."""

def not_equal(x: A, y: Array) -> A:
    """x != y."""

def one_hot(indices: A, depth: Dim, dtype: DType = f32, *, num_classes: Dim = ...) -> A:
    """A new last axis of size `depth`: 1 at the position given by `indices`, 0 elsewhere."""

def ones(shape: Shape, dtype: DType = f32) -> Tensor:
    """A tensor of ones."""

def ones_like(x: A, dtype: DType | None = None) -> A:
    """Ones with the shape, and by default the dtype, of `x`."""

def outer(x: A, y: Array) -> A:
    """All products of an element of x (flattened) with one of y (flattened): a matrix."""

def pad(x: A, pad_width: int | tuple[Any, ...], mode: str = 'constant', value: float = 0) -> A:
    """`x` with `value` around it: `pad_width` is a number, a pair (before, after), or a pair per axis, as in NumPy."""

def permute(x: A, *perm: Any) -> A:
    """`x` with its axes in the order `perm`, which names every axis, as in PyTorch."""

def permute_dims(x: A, *perm: Any) -> A:
    """`x` with its axes in the order `perm`, which names every axis, as in PyTorch."""

def positive(x: A) -> A:
    """x itself."""

def pow(x: A, y: Array) -> A:
    """x to the power y."""

def power(x: A, y: Array) -> A:
    """x to the power y."""

def prod(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """The product of the elements along `axis`. Integers and bools are multiplied as 64-bit integers."""

def put(x: A, indices: Array, updates: Array, axis: int = 0, *, dim: int = ..., dims: int = ...) -> A:
    """`x` with `updates` in place of its slices at `indices` along `axis`: `out[:, indices[i]] = updates[:, i]` for 1.

    The counterpart of `take`: the axes of `indices` stand in `updates` where `axis` is in `x`. Negative indices count
    from the end; indices outside are ignored. If several updates have one place, the last counts. If nothing uses the
    old `x` afterwards, as in a loop that carries it, its memory is changed in place: only `updates` are copied.
    """

def put_along_axis(x: A, indices: Array, updates: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """`x` with `updates` in place of the elements at `indices` along `axis`: `out[indices[i, j], j] = updates[i, j]`.

    Negative indices count from the end; indices outside are ignored. Of several updates of one place the last counts.
    """

def randint(seed: Array, shape: Shape, low: int, high: int, dtype: DType = int64) -> Tensor:
    """Integers from low up to, but not including, high. The bias is below (high - low) / 2**64."""

def random_bits(seed: Array, shape: Shape, offset: Dim = 0, dtype: DType = uint64) -> Tensor:
    """64 random bits for each element, as uint64. Element i uses counter i + `offset` under the key `seed`.

    As uint32, 32 bits for each element, which take a tenth of the time: a hash of i + `offset` and the seed, good for
    rounding and masks, not for simulations. Elements 2**32 apart have the same.
    """

def ravel(x: A, start: int = 0, end: int = -1) -> A:
    """`x` with the axes `start` to `end` (inclusive) made one, in C order."""

def rdft(x: A, axis: int = -1, power: float = 0.0, *, dim: int = ..., dims: int = ...) -> A:
    """Results 0 to n // 2 of the transform `dft` of n real numbers along `axis`; the others are their conjugates."""

def real(x: A) -> A:
    """The real part of x."""

def reciprocal(x: A) -> A:
    """1 / x."""

def relu(x: A) -> A:
    """max(x, 0)."""

def remainder(x: A, y: Array) -> A:
    """x - y * floor(x / y): the sign of y."""

def repeat(x: A, repeats: int, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> A:
    """Each element `repeats` times along `axis`; None: of the flattened tensor."""

def reshape(x: A, *shape: Any) -> A:
    """The same elements in C order under another shape; one size may be -1 and is solved for."""

def right_shift(x: A, y: Array) -> A:
    """x >> y, arithmetic when signed."""

def rms_norm(x: A, weight: Array | None = None, axis: Axes = -1, eps: float = 1e-06, *, dim: Axes = ..., dims: Axes = ...) -> A:
    """x / sqrt(mean(x * x) + eps) * weight over `axis`; weight has the shape of those axes (Zhang, Sennrich 2019)."""

def roll(x: A, shift: Any, axis: Any = None, *, dim: Any = ..., dims: Any = ...) -> A:
    """`x` shifted along `axis` by `shift` places; elements moved past the end return at the start. None: flattened."""

def round(x: A) -> A:
    """Nearest integer, halves to even."""

def rsqrt(x: A) -> A:
    """1 / sqrt(x)."""

def saturate_cast(x: A, dtype: DType) -> A:
    """`x` with elements of `dtype`; numbers beyond its largest finite value, also infinity, become that value.

    Rounded to nearest even, as `cast` does. NaN stays NaN in floats and becomes 0 in integers. Integers are limited
    to the range of `dtype`, where `cast` wraps.
    """

def scaled_dot_product_attention(q: A, k: Array, v: Array, mask: Array | None = None, lengths: Array | None = None, starts: Array | None = None, causal: _bool = False, scale: float | None = None, window: int | None = None, softcap: float | None = None, *, diagonal: Array = ...) -> A:
    """Scaled dot-product attention: softmax(q k^T * scale + mask) v over [..., heads, positions, features].

    `k` and `v` may have fewer heads than `q` (grouped queries): each serves heads(q) / heads(k) query heads. `mask` is
    bool (true: attend) or added to the scores, and broadcasts to [..., heads, queries, keys]. `causal` lets query i see
    keys 0 to i, `window` only those less than so many positions away (with `causal` itself and window - 1 before).
    `lengths` [...] counts the keys that there are in each batch, and `starts` [...] is the position of query 0 among
    them, 0 by itself, for `causal` and `window`. Keys beyond these bounds cost nothing. `softcap` makes scores softcap
    * tanh(scores / softcap) before the mask. `scale` defaults to 1 / sqrt(features). A query that may see no key gets
    0. Scores and sums are f32; with narrower operands the weights are rounded to the operands' dtype before they meet
    `v`, as in FlashAttention. Neither it nor its gradient holds the scores in memory.
    """

def scatter(x: A, indices: Array, updates: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """`x` with `updates` in place of the elements at `indices` along `axis`: `out[indices[i, j], j] = updates[i, j]`.

    Negative indices count from the end; indices outside are ignored. Of several updates of one place the last counts.
    """

def scatter_add(x: A, indices: Array, updates: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """`x` with `updates` added to the elements at `indices` along `axis`: `out[indices[i, j], j] += updates[i, j]`.

    Negative indices count from the end; indices outside are ignored. Several updates of one place are added in
    ascending order of their positions.
    """

def segment_max(x: A, segment_ids: Array, num_segments: Dim, axis: int = 0, *, dim: int = ..., dims: int = ...) -> A:
    """The largest of the slices of `x` along `axis` that have the same number in `segment_ids`, element by element.

    A segment without elements gives the smallest value of the dtype; NaN wins. Slices with other numbers are ignored.
    """

def segment_min(x: A, segment_ids: Array, num_segments: Dim, axis: int = 0, *, dim: int = ..., dims: int = ...) -> A:
    """The smallest of the slices of `x` along `axis` that have the same number in `segment_ids`, element by element.

    A segment without elements gives the largest value of the dtype; NaN wins. Slices with other numbers are ignored.
    """

def segment_sum(x: A, segment_ids: Array, num_segments: Dim, axis: int = 0, *, dim: int = ..., dims: int = ...) -> A:
    """Sums of the slices of `x` along `axis` that have the same number in `segment_ids`: `num_segments` of them.

    Slices whose number is negative or too large are ignored. The others are added one after the other, in ascending
    order (many narrow ones in parts, whose sums are added in order); floats are collected in f64 and rounded once,
    integers and bools are summed as 64-bit integers.
    """

def shift_left(x: A, y: Array) -> A:
    """x << y."""

def shift_right(x: A, y: Array) -> A:
    """x >> y, arithmetic when signed."""

def sigmoid(x: A) -> A:
    """1 / (1 + e**-x)."""

def sign(x: A) -> A:
    """-1, 0 or 1."""

def signbit(x: A) -> A:
    """Whether x has a minus, as -0.0 has."""

def silu(x: A) -> A:
    """x * sigmoid(x)."""

def sin(x: A) -> A:
    """Sine of radians."""

def sinh(x: A) -> A:
    """Hyperbolic sine."""

def sliding_window_view(x: A, window_shape: int | Sequence[int], axis: int | Sequence[int] | None = None, step: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1, *, dim: int | Sequence[int] | None = ..., dims: int | Sequence[int] | None = ...) -> A:
    """Windows of `x` along the axes `axis`, `step` apart; new last axes hold the elements of a window.

    `dilation` is the distance between elements of a window. An axis of n elements has
    (n - dilation * (window - 1) - 1) // step + 1 windows.
    """

def softmax(x: A, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """exp(x) / sum(exp(x)) along `axis`, with the maximum subtracted first. Of elements that are all -inf it is NaN."""

def softplus(x: A) -> A:
    """log(1 + e**x) without overflow."""

def sort(x: A, axis: int = -1, descending: _bool = False, stable: _bool = True, *, dim: int = ..., dims: int = ...) -> A:
    """The elements along `axis` in ascending order, or in descending order; NaN counts as the largest."""

def split(x: A, sections: int | tuple[int, ...], axis: int = 0, *, dim: int = ..., dims: int = ...) -> tuple[A, ...]:
    """`x` split along `axis` into `sections` equal parts, or at the positions `sections`, as in NumPy."""

def sqrt(x: A) -> A:
    """Square root."""

def square(x: A) -> A:
    """x * x."""

def squeeze(x: A, axis: int | Sequence[int] | None = None, *, dim: int | Sequence[int] | None = ..., dims: int | Sequence[int] | None = ...) -> A:
    """`x` without axes of size 1: those named by `axis`, or all whose size is known to be 1."""

def stack(xs: Sequence[A], axis: int = 0, *, dim: int = ..., dims: int = ...) -> A:
    """Tensors of one shape along a new axis at position `axis` of the result."""

def std(x: A, axis: Axes = None, correction: float = 0, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ..., ddof: float = ...) -> A:
    """The standard deviation along `axis`: the square root of the variance."""

def stochastic_cast(x: A, dtype: DType, key: Array, draw: int = 0) -> A:
    """`x` rounded to one of its two neighbours in `dtype`, with probabilities that make the mean of the result `x`.

    `key` is an integer: element number i draws from Philox4x32-10 under this key by its number, so that the same key
    rounds the same way on every target, for any schedule and number of threads. Use another key for each step and
    tensor: the same key always rounds a value the same way. The probability is exact from f32 to bf16, which draws 16
    bits of `random_bits(key, shape, dtype=uint32)`; others draw 64 bits of Philox4x32-10, and it is within 2**-24 (from
    f64: 2**-53). Tensors of one shape may share a key, and the time for its bits: with `draw` 0, 1 and 2 an element has
    draws of which any two are independent.
    Values that `dtype` represents exactly do not change. Values beyond its largest finite one are rounded as by `cast`;
    to bf16 they become that or infinity, as if infinity were the next number.
    """

def stop_gradient(x: A) -> A:
    """`x` itself, but a constant for derivatives: no gradient flows through it."""

def sub(x: A, y: Array) -> A:
    """x - y."""

def subtract(x: A, y: Array) -> A:
    """x - y."""

def sum(x: A, axis: Axes = None, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ...) -> A:
    """The sum of the elements along `axis`. Integers and bools are summed as 64-bit integers."""

def swapaxes(x: A, axis1: int, axis2: int) -> A:
    """`x` with two axes swapped."""

def take(x: A, indices: Array, axis: int | None = None, *, dim: int | None = ..., dims: int | None = ...) -> A:
    """The slices of `x` at `indices` along `axis`, which the axes of `indices` replace; None: of the flattened tensor.

    Negative indices count from the end; indices outside read as 0.
    """

def take_along_axis(x: A, indices: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """`out[i, j, k] = x[i, indices[i, j, k], k]` for axis 1: one index per element. Other axes broadcast."""

def tan(x: A) -> A:
    """Tangent of radians."""

def tanh(x: A) -> A:
    """Hyperbolic tangent."""

def tensordot(x: A, y: Array, axes: int | tuple[tuple[int, ...], tuple[int, ...]] = 2) -> A:
    """Products summed over pairs of axes: the last `axes` of x with the first of y, or two tuples of axes."""

def topk(x: A, k: Dim, axis: int = -1, largest: _bool = True, *, dim: int = ..., dims: int = ..., diagonal: Dim = ...) -> tuple[A, ...]:
    """The `k` largest elements along `axis` in descending order, and their positions as int64.

    With `largest=False` the smallest, in ascending order. Of equal elements the first come first.
    """

def transpose(x: A, perm: Sequence[int] | None = None) -> A:
    """`x` with its axes in the order `perm`; without it, in reverse order.

    Two axes as separate arguments, `x.transpose(1, 2)`, are swapped, as in PyTorch; a tuple is always a permutation.
    """

def tril(x: A, k: int = 0, *, diagonal: int = ...) -> A:
    """`x` with zeros above diagonal number k of its last two axes."""

def triu(x: A, k: int = 0, *, diagonal: int = ...) -> A:
    """`x` with zeros below diagonal number k of its last two axes."""

def true_divide(x: A, y: Array) -> A:
    """x / y; integers divide as f32."""

def trunc(x: A) -> A:
    """x without its fraction."""

def unbind(x: A, axis: int = 0, *, dim: int = ..., dims: int = ...) -> tuple[A, ...]:
    """A tuple of the slices of `x` along `axis`. The size of this axis must be known."""

def uniform(seed: Array, shape: Shape = (), low: float = 0.0, high: float = 1.0, dtype: DType = f32) -> Tensor:
    """Uniformly distributed floats in [low, high) of 24 random bits (f64: 53). Narrow floats may round up to high."""

def unsqueeze(x: A, *axis: Any, dim: int | Sequence[int] = ..., dims: int | Sequence[int] = ...) -> A:
    """`x` with new axes of size 1 at the positions `axis` of the result."""

def unstack(x: A, axis: int = 0, *, dim: int = ..., dims: int = ...) -> tuple[A, ...]:
    """A tuple of the slices of `x` along `axis`. The size of this axis must be known."""

def var(x: A, axis: Axes = None, correction: float = 0, keepdims: _bool = False, *, dim: Axes = ..., dims: Axes = ..., keepdim: _bool = ..., ddof: float = ...) -> A:
    """The variance along `axis`: squared distances from the mean, summed, divided by the number less `correction`.

    Two passes, so that nothing cancels. `correction` (NumPy's `ddof`) 0 is the population's, 1 the sample's variance.
    Complex numbers have the real variance of their distances from the mean.
    """

def vecdot(x: A, y: Array, axis: int = -1, *, dim: int = ..., dims: int = ...) -> A:
    """The inner products of the vectors along `axis` (counted from the end): of the conjugates of x with y."""

def where(c: A, x: Array, y: Array) -> A:
    """x where the condition holds, else y."""

def xlogy(x: A, y: Array) -> A:
    """x * log(y); 0 where x is 0 and y is not NaN."""

def zeros(shape: Shape, dtype: DType = f32) -> Tensor:
    """A tensor of zeros."""

def zeros_like(x: A, dtype: DType | None = None) -> A:
    """Zeros with the shape, and by default the dtype, of `x`."""
