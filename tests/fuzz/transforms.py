"""Transforms of transforms in random programs, held against JAX's.

    python -m tests.fuzz transforms --count 1000 --seed 1 [--target cpu]

A program is a function of structures whose text nests `grad`, `jvp`, `vjp`, `linearize`, Jacobians, Hessians, `vmap`,
`remat`, rules, scans, branches, loops, stores and keys, and is written twice, for Tessera and for JAX. Its results are
those of a function (`function`), of transforms that are called outside of functions (`outside`), and the gradients of
`loss.backward()` (`backward`). Without a target the golden model of Graph IR evaluates functions.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import linecache
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tests.fuzz import peer_tessera
from tests.fuzz.transform_programs import Node, TransformProgram, program

TOLERANCE = 1e-8
_files = itertools.count()


class Unfit(Exception):
    """JAX has no finite answer."""


def read(p: TransformProgram, which: str) -> Callable[..., Any]:
    from tests.fuzz import peer_jax

    file, text = f"<transforms {next(_files)}>", p.text(which)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"L": peer_tessera if which == "mine" else peer_jax, "ts": ts, "__name__": "fuzzed"}
    exec(compile(text, file, "exec"), names)
    return names["main"]


def flat(found: Any) -> list[np.ndarray]:
    """The tensors of a structure, in JAX's order."""
    if isinstance(found, dict):
        return [v for k in sorted(found) for v in flat(found[k])]
    if isinstance(found, (tuple, list)):
        return [v for part in found for v in flat(part)]
    return [np.asarray(found)]


def wanted(p: TransformProgram, mode: str, attempt: int) -> list[np.ndarray]:
    import jax

    from tests.fuzz.jaxprs import evaluated

    main, (given, keys) = read(p, "other"), p.arguments(attempt)

    def loss(*xs: Any) -> Any:
        return sum((jax.numpy.sum(jax.numpy.sin(v)) for v in jax.tree.leaves(main(keys, *xs))), 0.0)

    if mode == "backward":
        found = evaluated(jax.grad(loss, argnums=tuple(range(len(given)))), *given)
    else:
        found = evaluated(main, keys, *given)
    if not all(np.isfinite(v).all() and np.abs(v).max(initial=0) < 1e8 for v in found):
        raise Unfit
    return found


def recorded(value: Any) -> Any:
    """The structure with tensors that require gradients."""
    if isinstance(value, dict):
        return {k: recorded(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(map(recorded, value))
    return ts.Tensor(value, requires_grad=True)


def tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for k in sorted(value):
            yield from tensors(value[k])
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from tensors(v)
    else:
        yield value


def found(p: TransformProgram, mode: str, attempt: int) -> list[np.ndarray]:
    main, (given, keys) = read(p, "mine"), p.arguments(attempt)
    if mode == "outside":
        return flat(main(keys, *given))
    made = ts.function(main)
    if mode == "function":
        return flat(made(keys, *given))
    xs = [recorded(x) for x in given]
    loss = sum((ts.sum(ts.sin(v)) for v in tensors(made(keys, *xs))), 0.0)
    if not isinstance(loss, float) and loss.requires_grad:
        loss.backward()
    return [np.zeros(x.shape) if x.grad is None else np.asarray(x.grad) for x in tensors(xs)]


def fault(p: TransformProgram, mode: str, target: str) -> str:
    """What is wrong with the program; empty where nothing is. Raises Unfit."""
    said = ""
    for attempt in range(2):  # a comparison that rounding decides looks like a fault, and moves away
        want = wanted(p, mode, attempt)
        with knobs.target.override(target or "reference"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                have = found(p, mode, attempt)
            except ts.TesseraError as e:
                codes = [d.code for d in getattr(e, "diagnostics", ()) if d.severity == "error"]
                return f"refused {codes[0] if codes else type(e).__name__}: {e}"
            except Exception as e:
                return f"raw {type(e).__name__}: {e}"
        said = difference(have, want)
        if not said:
            return ""
    return said


def difference(have: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> str:
    if len(have) != len(want):
        return f"{len(have)} results, not {len(want)}"
    far = max(1.0, *(float(np.abs(v).max(initial=0)) for v in want)) if want else 1.0
    for n, (a, b) in enumerate(zip(have, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"shape: result {n} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        if not np.allclose(a, b, rtol=0, atol=TOLERANCE * far):
            return f"wrong: result {n} is {a.tolist()}, not {b.tolist()}"
    return ""


# Smaller programs


def smaller(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    for i in reversed(range(len(nodes))):
        yield nodes[:i] + nodes[i + 1 :]
    for i, node in enumerate(nodes):
        for body in smaller(node.body):
            yield (*nodes[:i], replace(node, body=body), *nodes[i + 1 :])


def minimal(p: TransformProgram, fails: Callable[[TransformProgram], bool]) -> TransformProgram:
    """A program that still fails, from which no statement can be taken."""
    shrunk = True
    while shrunk:
        shrunk = False
        for nodes in smaller(p.nodes):
            q = replace(p, nodes=nodes)
            try:
                if fails(q):
                    p, shrunk = q, True
                    break
            except Exception:  # it is not a program any more
                continue
    return p


def kind(said: str) -> str:
    return said.split(":")[0]


def same(mode: str, target: str, wanted: str) -> Callable[[TransformProgram], bool]:
    return lambda p: kind(fault(p, mode, target)) == wanted


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz transforms")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="reference")
    parser.add_argument("--modes", default="function,outside,backward")
    given = parser.parse_args(arguments)
    import jax

    counts: collections.Counter[str] = collections.Counter()
    for seed in range(given.seed, given.seed + given.count):
        p = program(seed)
        for mode in given.modes.split(","):
            try:
                jax.clear_caches()  # which keep 10 MB of a program
                said = fault(p, mode, given.target)
            except Unfit:
                counts["unfit"] += 1
                continue
            counts[f"{mode}: {kind(said)}"] += 1
            if said:
                least = minimal(p, same(mode, given.target, kind(said)))
                print(f"# seed {seed}, {mode}: {fault(least, mode, given.target)}\n{least.text('mine')}", flush=True)
    print(dict(counts))
    return any(k.split(": ")[1].startswith(("wrong", "shape", "raw")) for k in counts if ": " in k)
