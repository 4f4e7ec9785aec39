"""Adjoint certificates of random programs: <Jv, w> = <v, J'w> for derivatives of the first to third order.

    python -m tests.fuzz certificates --count 100000 --seed 1

Programs are made in Graph IR (`certified`), and evaluated without rounding (`exact`), so that the digits of f64
hold for numbers of all dtypes. What is certified is a program's derivative, forward or backward, of the order
before. Jv is held against differences, too, and against what the compiler's passes make of the derivative, and
derivatives of finite values must be finite. In narrow dtypes the rounded derivatives are held to what rounding
explains.
"""

from __future__ import annotations

import argparse
import collections
import gc
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.compiler.autodiff.forward import push_forward
from tessera.compiler.autodiff.reverse import pull_back
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.core import Op, Value, clone
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.verifier import verify
from tessera.compiler.pipeline import passes
from tessera.errors import CompileError
from tessera.language.dtypes import DType
from tessera.language.rounding import round_to
from tests.fuzz.certified import Programs, redrawn
from tests.fuzz.exact import Exact, wide

EPSILON = {"f64": 2**-52, "f32": 2**-23, "bf16": 2**-8, "f16": 2**-10, "complex64": 2**-23, "complex128": 2**-52}
STEP = 1e-5


@dataclass
class Certificate:
    """The program and both sides: `moves` are the v, `weights` the w, `ahead` is Jv and `back` J'w.

    `inputs` and `outs` belong to the derivative that is certified; `last` is the last op of those that compute it.
    """

    p: Programs
    inputs: list[Value]
    outs: list[Value]
    moves: dict[Value, Value]
    weights: dict[Value, Value]
    ahead: dict[Value, Value]
    back: dict[Value, Value]
    last: Op
    ways: str


def certificate(p: Programs) -> Certificate | None:
    """None where nothing depends on the inputs. Raises CompileError where a derivative is refused."""
    rng, g, block = random.Random(f"{p.seed}/ways"), p.g, p.block
    inputs, outs, ways = list(p.inputs), list(p.outs), ""

    def arguments(like: Sequence[Value], name: str) -> dict[Value, Value]:
        found = {v: p.argument(name, tensor(v).shape, tensor(v).dtype) for v in like}
        for a in found.values():
            p.arrays[a] = wide(p.arrays[a], tensor(a).dtype)
        return found

    for _ in range(p.order - 1):
        if not outs:
            return None
        ops, way = list(block.ops), rng.choice("fr")
        ways += way
        given = arguments(inputs if way == "f" else outs, way)
        if way == "f":
            found = push_forward(g, ops, given, outs)
        else:
            found = pull_back(g, ops, inputs, list(given.items()))
        inputs = [*inputs, *given.values()]
        outs = [v for v in dict.fromkeys(found) if v is not None]  # of x + y both cotangents are one value
    if not outs:
        return None
    ops = list(block.ops)
    moves, weights = arguments(inputs, "v"), arguments(outs, "w")
    ahead = push_forward(g, ops, moves, outs)
    back = pull_back(g, ops, inputs, list(weights.items()))
    return Certificate(
        p, inputs, outs, moves, weights,
        {o: v for o, v in zip(outs, ahead, strict=True) if v is not None},
        {i: v for i, v in zip(inputs, back, strict=True) if v is not None}, ops[-1], ways,
    )  # fmt: skip


def bilinear(a: Any, b: Any) -> float:
    """The products of rules are not conjugated."""
    return float(np.sum(a * b).real)


class Sides:
    """Both sides of a certificate in numbers, found in `arrays`."""

    def __init__(self, c: Certificate, arrays: dict[Value, Any]) -> None:
        self.derivatives = [arrays[v] for v in (*c.ahead.values(), *c.back.values())]
        self.values = [arrays[v] for v in c.outs]
        ahead = [(arrays[v], arrays[c.weights[o]]) for o, v in c.ahead.items()]
        back = [(arrays[v], arrays[c.moves[i]]) for i, v in c.back.items()]
        self.left = sum(bilinear(a, b) for a, b in ahead)
        self.right = sum(bilinear(a, b) for a, b in back)
        self.size = max(1.0, *(float(np.sum(np.abs(a * b))) for a, b in (*ahead, *back)), 0.0)

    @property
    def finite(self) -> bool:
        return all(bool(np.all(np.isfinite(a))) for a in self.derivatives)


def arguments_of(c: Certificate) -> dict[Value, Any]:
    return {a: wide(c.p.arrays[a], tensor(a).dtype) for a in c.p.block.args}


def exact(c: Certificate, noise: Any = None, seed: int = 0) -> dict[Value, Any]:
    return Exact(arguments_of(c), noise, seed).run([op for op in c.p.block.ops if op.results])


@np.errstate(all="ignore")
def fault(c: Certificate) -> str:
    """What is wrong with the derivatives; empty where nothing is."""
    said = ""
    for attempt in range(3):  # a kink within the step, or on it, looks like a fault and moves away
        if attempt:
            redrawn(c.p, attempt)
        arrays = exact(c)
        sides = Sides(c, arrays)
        if not all(bool(np.all(np.isfinite(a))) for a in sides.values):
            return ""
        said = unequal(c, sides) or sloped(c, arrays, sides)
        if not said:
            break
    return said or passed(c, sides) or rounded(c, sides)


def unequal(c: Certificate, sides: Sides) -> str:
    if not sides.finite:
        return "finite: a derivative of finite values is not"
    far = abs(sides.left - sides.right)
    if far <= 1e-9 * sides.size:
        return ""
    spread = spreads(c, lambda _: 1e-14, 4)
    return f"sides: {sides.left} and {sides.right}" if far > 30 * spread else ""


def spreads(c: Certificate, noise: Any, count: int) -> float:
    """How far results move where each op is disturbed a little."""
    clean = Sides(c, exact(c))
    found = 0.0
    for n in range(count):
        moved = Sides(c, exact(c, noise, n))
        if not moved.finite:
            return np.inf
        found = max(found, abs(moved.left - clean.left), abs(moved.right - clean.right))
    return found


def sloped(c: Certificate, arrays: dict[Value, Any], sides: Sides) -> str:
    """Jv against differences of the values."""
    if not c.p.sloped:
        return ""

    primal = c.p.block.ops[: c.p.block.index(c.last) + 1]  # more than at first: derivatives count the steps of loops

    def slope(h: float) -> float:
        ends = []
        for sign in (h, -h):
            at = arguments_of(c)
            for i in c.inputs:
                at[i] = at[i] + sign * at[c.moves[i]]
            end = Exact(at).run(primal)
            ends.append(sum(bilinear(end[o], arrays[c.weights[o]]) for o in c.outs))
        return (ends[0] - ends[1]) / (2 * h)

    one = slope(STEP)
    if abs(one - sides.left) <= 1e-5 * sides.size:
        return ""
    two, three = slope(STEP / 8), slope(STEP * 8)
    doubt = max(abs(one - two), abs(one - three))
    near = min(abs(s - sides.left) for s in (one, two, three))
    return f"slope: {two}, not {sides.left}" if near > 1e-5 * sides.size + 20 * doubt else ""


def whole(c: Certificate) -> Op:
    """The certificate as a function that returns both sides."""
    if c.p.block.ops[-1].name != "graph.return":
        c.p.g.builder.op("graph.return", [*c.ahead.values(), *c.back.values()])
    return c.p.f


def passed(c: Certificate, sides: Sides) -> str:
    """The passes of the compiler change nothing: on every 32nd program, since they take their time."""
    if c.p.seed % 32:
        return ""
    f = clone(whole(c), {})
    verify(f)
    arrays = dict(zip(f.region.block.args, arguments_of(c).values(), strict=True))
    for one in passes("graph"):
        one.run(f)
    if any(op.name == "graph.bitcast" for op in f.walk()):  # which says what a number's bits are
        return ""
    known = Exact(arrays).run(f.region.block.ops[:-1])
    found = [known[v] for v in f.region.block.terminator.operands]
    for far, b in zip(apart(found, sides.derivatives), sides.derivatives, strict=True):
        if not far <= 1e-8 * max(1.0, float(np.max(np.abs(b), initial=0.0))):
            moved = [Sides(c, exact(c, folded, n)).derivatives for n in range(4)]
            if not far <= 20 * sum(max(apart(m, sides.derivatives)) for m in moved):
                return f"passes: {found} and {sides.derivatives}"
    return ""


def folded(t: DType) -> float:
    """What is computed while compiling is rounded."""
    return 1e-14 if t.bits == 64 else epsilon(t)


def epsilon(t: DType) -> float:
    return EPSILON.get(t.name, 0.25 if t.is_float else 0.0)


def rounded(c: Certificate, sides: Sides) -> str:
    """Derivatives of narrow numbers, rounded as they are on every target, against what rounding explains: on every
    eighth program."""
    if max(map(epsilon, c.p.palette)) < 1e-12 or c.p.seed % 8:
        return ""
    f = whole(c)
    given = {v: round_to(a, tensor(v).dtype) for v, a in arguments_of(c).items()}

    def sides_of(noise: Any, seed: int) -> Sides:
        at = {v: wide(a, tensor(v).dtype) for v, a in given.items()}
        return Sides(c, Exact(at, noise, seed).run(f.region.block.ops[:-1]))

    clean = sides_of(None, 0)
    kinds = [tensor(v).dtype for v in f.region.block.terminator.operands]
    found = [wide(a, t) for a, t in zip(evaluate(f, list(given.values())), kinds, strict=True)]
    if not clean.finite or not all(bool(np.all(np.isfinite(a))) for a in found):  # f16 and fp8 end early
        return ""
    far, spread = apart(found, clean.derivatives), [0.0] * len(found)
    for n in range(16):
        moved = sides_of(epsilon, n)
        if not moved.finite:
            return ""
        spread = list(map(max, spread, apart(moved.derivatives, clean.derivatives)))
        if all(f <= 20 * s + 1e-6 for f, s in zip(far, spread, strict=True)):
            return ""
    return f"rounding: off by {far} where noise of rounding gives {spread}"


def apart(a: Sequence[Any], b: Sequence[Any]) -> list[float]:
    """The greatest difference of arrays."""
    return [float(np.max(np.abs(x - y), initial=0.0)) for x, y in zip(a, b, strict=True)]


# runs


def tried(seed: int, steps: Sequence[int] | None = None) -> tuple[str, Certificate | None, Programs]:
    """The fault of a seed's program, or "", its certificate, and the program."""
    p, c, said = Programs(seed), None, ""
    try:
        p.make(steps)
        c = certificate(p)
        said = "" if c is None else fault(c)
    except CompileError as e:
        said = f"refused {e.diagnostics[0].code}: {e}"
    except Exception as e:
        said = f"internal: {type(e).__name__}: {e}"
    return said, c, p


def least(seed: int, said: str) -> tuple[str, Certificate | None, Programs]:
    """The program without the steps that its fault does not need."""
    best = tried(seed)
    kept = list(best[2].kept)
    for n in list(kept):
        fewer = [k for k in kept if k != n]
        found = tried(seed, fewer)
        if found[0].split(":")[0] == said.split(":")[0]:
            kept, best = fewer, found
    return best


def described(seed: int, found: tuple[str, Certificate | None, Programs]) -> Iterator[str]:
    """The fault, and the program alone, without its derivatives."""
    said, c, p = found
    yield f"# seed {seed}, steps {p.kept} ({', '.join(p.used)}), order {p.order} {c.ways if c else ''}: {said}"
    again = Programs(seed)
    again.make(p.kept)
    yield print_op(again.f)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz certificates")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stops after so long")
    given = parser.parse_args(arguments)
    counts: collections.Counter[str] = collections.Counter()
    operators: collections.Counter[str] = collections.Counter()
    faults = count = 0
    started = time.monotonic()
    gc.disable()
    for seed in range(given.seed, given.seed + given.count):
        if time.monotonic() - started > given.seconds:
            break
        count += 1
        said, c, p = tried(seed)
        operators.update(p.used)
        counts[f"order {p.order}" if c is not None else "nothing to certify"] += 1
        if said:
            faults += 1
            print("\n".join(described(seed, least(seed, said))), flush=True)
        if count % 200 == 0:
            gc.collect()
        if count % 1000 == 0:
            print(f"# {count} programs, {faults} faults, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{count} programs from seed {given.seed}, {faults} faults: {dict(counts)}, {len(operators)} kinds of steps")
    return bool(faults)
