"""Types of the safe kernels, for type checkers and editors. Arrays are of NumPy, CuPy, PyTorch, JAX or Tessera."""

from __future__ import annotations

from typing import TypeVar

from tessera.language.decorators import Function, Kernel

A = TypeVar("A")
"""results belong to the library of the first array"""

class _Softmax(Function):
    def __call__(self, x: A, axis: int = -1) -> A: ...

class _LogSumExp(Function):
    def __call__(self, x: A, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False) -> A: ...

class _LayerNorm(Function):
    def __call__(
        self, x: A, weight: A | None = None, bias: A | None = None, axis: int = -1, eps: float = 1e-5
    ) -> A: ...

class _RmsNorm(Function):
    def __call__(self, x: A, weight: A | None = None, axis: int = -1, eps: float = 1e-6) -> A: ...

class _Attention(Kernel):
    def __call__(
        self, Q: A, K: A, V: A, mask: A | None = None, causal: bool = False, scale: float | None = None
    ) -> A: ...

attention_safe: _Attention
layernorm_safe: _LayerNorm
logsumexp_safe: _LogSumExp
rmsnorm_safe: _RmsNorm
softmax_safe: _Softmax
