"""One program of the suite: ours, the same for the peers, and the arrays that all of them get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import ml_dtypes
import numpy as np
import torch

import tessera as ts
from benchmarks.harness import Work

Form = Callable[..., Any]
MAKERS: dict[str, Callable[[int], Row]] = {}
"""name -> maker of the row, given what large sizes are divided by"""
NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Row:
    """`arrays(xp, *arguments)` is the program for NumPy and, compiled, for JAX; `seen` is what of a result is compared,
    where not all of it can be equal. `tolerance` is relative to the largest value. Results may be tuples."""

    ours: Form
    arguments: tuple[Any, ...]
    torch: Form | None = None
    arrays: Form | None = None
    numba: Form | None = None
    tolerance: float = 1e-4
    seen: Form = field(default=lambda x: x)

    def exact(self) -> Any:
        """The result for the same numbers in f64."""
        if self.torch is not None:
            return self.flat(self.torch(*map(_wide, map(tensor, self.arguments))))
        assert self.arrays is not None
        return self.flat(self.arrays(np, *(x.astype("f8") if x.dtype == np.float32 else x for x in self.arguments)))

    def most(self, want: Any) -> float:
        """How far a result may be from `want`."""
        return self.tolerance * max(1.0, float(np.max(np.abs(want), initial=0.0)))

    def peers(self, *, compiled: bool = False) -> Mapping[str, Callable[[], Any]]:
        """The peers that have this program; `compiled`: torch.compile as well, which takes seconds for each row."""
        found: dict[str, Callable[[], Any]] = {}
        if (eager := self.torch) is not None:
            given = list(map(tensor, self.arguments))
            found["torch"] = lambda: eager(*given)
            if compiled:
                inductor = torch.compile(eager)
                found["inductor"] = lambda: inductor(*given)
        if (arrays := self.arrays) is not None:
            found["numpy"] = lambda: arrays(np, *self.arguments)
            jitted, put = jax.jit(lambda *a: arrays(jax.numpy, *a)), list(map(jax.numpy.asarray, self.arguments))
            found["jax"] = lambda: jax.block_until_ready(jitted(*put))
        if (loops := self.numba) is not None:
            found["numba"] = lambda: loops(*self.arguments)
        return found

    def work(self, name: str, *, compiled: bool = False) -> Work:
        """Raises SystemExit where a peer computes something else."""
        run, want, peers = ts.function(self.ours), self.exact(), self.peers(compiled=compiled)
        most = self.most(want)
        for peer, call in peers.items():
            off = np.max(np.abs(self.flat(call()) - want), initial=0.0)
            if not off <= most:
                raise SystemExit(f"{name}: {peer} is off by {off:.3g}")
        moved = sum(x.nbytes for x in self.arguments)
        return Work(
            name, lambda: run(*self.arguments), dict(peers), lambda: self.flat(run(*self.arguments)), want, moved,
            "GB/s in", most,
        )  # fmt: skip

    def flat(self, result: Any) -> Any:
        """All numbers of a result, in f64; of complex ones both parts."""
        if isinstance(result, (tuple, list)):
            return np.concatenate([self.flat(x) for x in result])
        if isinstance(result, torch.Tensor):
            result = _wide(result.detach()).numpy()
        numbers = np.asarray(result)
        numbers = numbers.astype("c16").view("f8") if np.iscomplexobj(numbers) else numbers.astype("f8")
        return np.asarray(self.seen(numbers)).ravel()


def row(name: str) -> Callable[[Callable[[int], Row]], Callable[[int], Row]]:
    def keep(make: Callable[[int], Row]) -> Callable[[int], Row]:
        MAKERS[name] = make
        return make

    return keep


def tensor(x: Any) -> torch.Tensor:
    narrow = NARROW.get(x.dtype.name)
    return torch.from_numpy(x) if narrow is None else torch.from_numpy(x.astype(np.float32)).to(narrow)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x.to(torch.complex128) if x.is_complex() else x


def normal(*shape: int, dtype: Any = np.float32, scale: float = 1.0) -> Any:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * scale).astype(dtype)


def integers(most: int, *shape: int, dtype: str = "i8") -> Any:
    return np.random.default_rng(most).integers(0, most, shape).astype(dtype)


BF16 = ml_dtypes.bfloat16
