"""`ts.vmap` with `in_dims` and `out_axes`, against the function of one element after the other.

    python -m tests.fuzz mapped --count 1000 --seed 1 --targets cpu,reference

The axis lies anywhere in the arguments that have it; others are the same for all elements.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tessera.errors import CompileError, register_source
from tests.fuzz.seeded import INTERNAL, command

SIZES = {"B": 3, "M": 2, "N": 4, "K": 5}
OPERATORS = (
    "ts.sin({a})", "{a} * {b}", "{a} + {b}", "ts.sum({a})", "ts.sum({a}, axis=-1)", "ts.mean({a}, axis=0)", "{a}.T",
    "ts.max({a}, axis=-1, keepdims=True)", "ts.cumsum({a}, axis=-1)", "ts.sort({a}, axis=-1)", "{a} @ {b}", "{a}[0]",
    "ts.softmax({a}, axis=-1)", "ts.flip({a}, axis=0)", "{a}[..., ::-1]", "ts.where({a} > 0, {a}, {b})",
    "ts.argmax({a}, axis=-1)", "ts.outer({a}, {b})", "ts.concat([{a}, {a}], axis=-1)", "{a}.reshape(-1)",
    "ts.take({a}, ts.argmax({a}, axis=0), axis=0)", "ts.einsum('ij,ij->i', {a}, {a})", "ts.stack([{a}, {b}], axis=-1)",
    "ts.var({a}, axis=0)", "ts.tril({a})", "ts.roll({a}, 1, 0)", "ts.unsqueeze({a}, -1)", "ts.repeat({a}, 2, 0)",
    "ts.grad(lambda u: ts.sum(ts.sin(u) * u))({a})", "{a} - ts.mean({a}, axis=0, keepdims=True)",
)  # fmt: skip


def read(text: str, name: str) -> dict[str, Any]:
    register_source(name, text)
    names: dict[str, Any] = {"ts": ts}
    exec(compile(text, name, "exec"), names)
    return names


def flat(found: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in (found if isinstance(found, tuple) else (found,))]


class Mapped:
    """A function of one element, and one that maps it over the axis B."""

    def __init__(self, seed: int) -> None:
        self.seed, self.r = seed, random.Random(seed)
        self.dims: dict[str, list[str]] = {}
        for name in "xyz"[: self.r.randint(1, 3)]:
            own = self.r.sample(["M", "N", "K"], self.r.randint(0, 2))
            if not self.dims or self.r.random() < 0.7:
                own.insert(self.r.randint(0, len(own)), "B")
            self.dims[name] = own
        values = np.random.default_rng(seed)
        self.values = [values.standard_normal([SIZES[d] for d in own]) for own in self.dims.values()]
        self.last = self.r.random() < 0.4
        self.text = self.written()

    def element(self, n: int) -> list[np.ndarray]:
        pairs = zip(self.values, self.dims.values(), strict=True)
        return [np.asarray(np.take(v, n, own.index("B")) if "B" in own else v) for v, own in pairs]

    def of_one(self, lines: list[str]) -> str:
        return f"def f({', '.join(self.dims)}):\n" + "".join(f"    {line}\n" for line in lines)

    def runs(self, lines: list[str], n: int) -> bool:
        try:
            f = read(self.of_one(lines), f"mapped{self.seed}_{n}.py")["f"]
            ts.function(f)(*self.element(0))
        except (ts.TesseraError, ValueError, TypeError):
            return False
        return True

    def written(self) -> str:
        lines, names, tried = list[str](), list(self.dims), 0
        for k in range(self.r.randint(1, 4)):
            for _ in range(15):
                a, b, tried = self.r.choice(names[-3:]), self.r.choice(names), tried + 1
                line = f"v{k} = {self.r.choice(OPERATORS).format(a=a, b=b)}"
                if self.runs([*lines, line, f"return v{k}"], tried):
                    lines.append(line)
                    names.append(f"v{k}")
                    break
        lines.append(f"return {names[-1]}{f', {self.r.choice(names)}' if self.r.random() < 0.3 else ''}")
        said = [f"{n}: ts.Tensor[{''.join(f'{d!r}, ' for d in own)}ts.f64]" for n, own in self.dims.items()]
        out = ", out_axes=-1" if self.last else ""
        called = f"ts.vmap(f, in_dims='B'{out})({', '.join(self.dims)})"
        return f"{self.of_one(lines)}\n\ndef main({', '.join(said)}):\n    return {called}\n"


def check(seed: int, targets: tuple[str, ...]) -> list[str]:
    """The codes of the errors by which it is refused. Raises AssertionError where a target is wrong."""
    with knobs.target.override("reference"):
        p = Mapped(seed)
        names = read(p.text, f"mapped{seed}.py")
        each = [flat(ts.function(names["f"])(*p.element(n))) for n in range(SIZES["B"])]
    wanted = [np.stack(v, -1 if p.last else 0) for v in zip(*each, strict=True)]
    for target in targets:
        with knobs.target.override(target):
            try:
                found = flat(ts.function(names["main"])(*p.values))
            except CompileError as e:
                codes = [d.code for d in e.diagnostics if d.severity == "error"]
                assert not INTERNAL & set(codes), f"{p.text}{e}"
                return codes
        for got, want in zip(found, wanted, strict=True):
            right = got.shape == want.shape and np.allclose(got, want, rtol=1e-9, atol=1e-9)
            assert right, f"on {target}\n{p.text}{got}\nnot {want}"
    return []


def main(arguments: list[str]) -> int:
    return command("mapped", __doc__, check, arguments)
