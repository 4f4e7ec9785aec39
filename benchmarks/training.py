"""Training beside torch.compile and jax.jit: steps, backward passes, updates, compile time and memory, in one run; and
a GPT that writes token by token.

python -m benchmarks training [-- --threads N --only NAME --quick --json]

Results are compared with PyTorch's before anything is timed; competitors take turns. `ratio` is the best peer's median
over ours: above 1 we are faster. Updates stand beside a copy of as many bytes, and bf16 ones beside f32. Each row says
its goal, and whether it is reached, which on a busy machine means little. Compile times and memory are measured in a
process for each library: the first step with empty caches less a later one, how long a process that finds the compiled
program on the disk takes until it can be launched, and how much the peak of a step grows with the batch.
"""

from __future__ import annotations

import argparse
import compileall
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import peaks
from benchmarks.harness import Run, compare, parser_of
from benchmarks.record import ROOT

TURNS = 3
"""processes of each size whose compiling is timed; the fastest counts, as the others waited"""


@dataclass(frozen=True)
class Step:
    """One row: each library's run gives numbers that are alike; `amount`, if any, is what one call does."""

    name: str
    runs: dict[str, Run]
    amount: float = 0
    unit: str = ""
    tolerance: float = 1e-3
    goal: float = 0
    """the ratio to reach; 0 where there is none"""
    beside: str = ""
    """the run that the ratio is of; "" for the best peer"""


def steps(part: int) -> dict[str, Callable[[str], Step]]:
    """Makers of the rows by their names, which they are given. `part` divides sizes."""
    long, rows, total = 1024 // part, 4096 // part, 20 * ((1 << 19) // part) / 1e6
    table, adam = (50_000 // part, 256, 16_384 // part), (20, (1 << 19) // part)
    return {
        "tiny MLP step": lambda name: tiny_mlp(name, whole_step=False),
        "tiny MLP step, in place": lambda name: tiny_mlp(name, whole_step=True),
        "nanoGPT step 4x128, 12x64": lambda name: nano_gpt(name, gpt.ours),
        "nanoGPT step 4x128, 12x64, in place": lambda name: nano_gpt(name, gpt.in_place),
        "GPT decoding 4x128, 128 tokens so far": lambda name: writing(name, decoding.NANO, goal=2.0),
        "GPT decoding 1x768, 512 tokens so far": lambda name: writing(name, decoding.GPT2_BLOCK, goal=1.2),
        f"layer norm backward {rows}x1024": lambda name: norm_backward(name, rows, 1024),
        f"softmax backward {rows}x1024": lambda name: softmax_backward(name, rows, 1024),
        f"cross entropy backward {rows}x1024": lambda name: loss_backward(name, rows, 1024),
        f"MLP backward {long}": lambda name: mlp_backward(name, long),
        f"attention backward 8x{long}x64": lambda name: attention_backward(name, 8, long, 64),
        f"attention backward, bf16 8x{long}x64": lambda name: attention_backward(name, 8, long, 64, narrow=True),
        f"attention, derived 4x{long}x{derived.DEPTH}": lambda name: derived_attention(name, 4, long, causal=False),
        f"attention, derived, causal 4x{long}x{derived.DEPTH}": lambda name: derived_attention(
            name, 4, long, causal=True
        ),
        f"embedding backward {table[0]}x{table[1]}": lambda name: embedding_backward(name, *table),
        f"AdamW of {total:.0f} M": lambda name: adamw(name, *adam, in_place=False),
        f"AdamW of {total:.0f} M, in place": lambda name: adamw(name, *adam, in_place=True),
        f"AdamW of {total:.0f} M, bf16": lambda name: narrow_adamw(name, *adam, narrow_moments=False),
        f"AdamW of {total:.0f} M, bf16 with its moments": lambda name: narrow_adamw(name, *adam, narrow_moments=True),
        "PINN with second derivatives": pinn,
    }


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(np.float32)


def gradients(
    name: str, ours: Any, theirs: Any, jaxs: Any, arrays: list[Any], narrow: bool = False, **more: Any
) -> Step:
    """A row of gradients by `arrays` of the sum of what functions give, times fixed numbers; `narrow`: all in bf16."""
    weights = normal(*np.shape(jax.jit(jaxs)(*arrays)), seed=7)
    kind = torch.bfloat16 if narrow else torch.float32
    leaves, ct = [torch.tensor(a, dtype=kind, requires_grad=True) for a in arrays], torch.tensor(weights, dtype=kind)
    given, jw = (
        [jnp.asarray(a, jnp.bfloat16 if narrow else jnp.float32) for a in held] for held in (arrays, [weights])
    )
    if narrow:
        arrays, weights = [np.asarray(a) for a in given], np.asarray(jw[0])

    @ts.function
    def run(arrays, weights):
        return ts.grad(lambda arrays: ts.sum(ours(*arrays) * weights))(arrays)

    compiled = torch.compile(lambda *a: (theirs(*a) * ct).sum())

    def by_torch() -> Any:
        with torch.enable_grad():
            return torch.autograd.grad(compiled(*leaves), leaves)

    jitted = jax.jit(jax.grad(lambda a, w: (jaxs(*a) * w).sum()))
    runs = {
        "tessera": lambda: run(arrays, weights),
        "torch": by_torch,
        "jax": lambda: jax.block_until_ready(jitted(given, jw[0])),
    }
    return Step(name, runs, **more)


def tiny_mlp(name: str, whole_step: bool) -> Step:
    """8 -> 32 -> 8, 32 rows, AdamW: what is measured is calling. `whole_step`: gradient and update are one program, as
    JAX's are; else two."""
    x, y = normal(32, 8), normal(32, 8, seed=1)
    model = nn.MLP(8, 32, key=0, act=ts.relu)
    p = {n: np.array(a) for n, a in model.named_parameters().items()}
    opt = ts.optimizers.AdamW(gpt.RATE, weight_decay=gpt.DECAY)
    held = [model, opt.init(model)]

    @ts.function
    def derived(model: nn.MLP, x, y):
        return ts.value_and_grad(lambda model: ts.mse(model(x), y))(model)

    def ours() -> Any:
        loss, gradient = derived(held[0], x, y)
        held[:] = opt.update(held[0], gradient, held[1])
        return loss

    state = ts.optimizers.TrainingState(model, opt)

    @ts.function
    def stepped(state: ts.optimizers.TrainingState, x, y):
        loss, gradient = ts.value_and_grad(lambda model: ts.mse(model(x), y))(state.model)
        state.step(gradient)
        return loss

    leaves = [torch.tensor(a, requires_grad=True) for a in p.values()]
    theirs = torch.optim.AdamW(leaves, gpt.RATE, gpt.BETAS, gpt.EPS, gpt.DECAY, fused=True)
    tx, ty = torch.tensor(x), torch.tensor(y)
    loss_of = torch.compile(lambda a, b, c, d: torch.nn.functional.mse_loss(torch.relu(tx @ a + b) @ c + d, ty))

    def by_torch() -> Any:
        with torch.enable_grad():
            loss = loss_of(*leaves)
            loss.backward()
        theirs.step()
        theirs.zero_grad()
        return loss

    @jax.jit
    def whole(p: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
        def loss_of(p: Any) -> Any:
            h = jax.nn.relu(x @ p["up.weight"] + p["up.bias"])
            return ((h @ p["down.weight"] + p["down.bias"] - y) ** 2).mean()

        loss, gradient = jax.value_and_grad(loss_of)(p)
        return loss, *gpt.adamw_in_jax(p, gradient, m, v, t)

    q = jax.tree.map(jnp.asarray, p)
    kept: list[Any] = [q, *(jax.tree.map(jnp.zeros_like, q) for _ in range(2)), jnp.zeros(())]
    jx, jy = jnp.asarray(x), jnp.asarray(y)

    def by_jax() -> Any:
        loss, *kept[:] = whole(*kept, jx, jy)
        return jax.block_until_ready(loss)

    run = (lambda: stepped(state, x, y)) if whole_step else ours
    return Step(name, {"tessera": run, "torch": by_torch, "jax": by_jax}, 1e6, "ksteps/s", goal=3.0)


def nano_gpt(name: str, ours: Callable[[Any], Run]) -> Step:
    """`ours`: gradient and update as two programs, or as one, which JAX's are."""
    return Step(name, {n: make(gpt.NANO) for n, make in (gpt.STEPS | {"tessera": ours}).items()}, goal=1.5)


def writing(name: str, given: decoding.Decoding, goal: float) -> Step:
    """Tokens that a GPT writes one by one, with a cache of keys and values."""
    runs = {
        "tessera": decoding.ours(given),
        "torch": decoding.by_torch(given, compiled=True),
        "torch eager": decoding.by_torch(given, compiled=False),
    }
    return Step(name, runs, 1e6 * decoding.COUNT, "ktokens/s", goal=goal)


def softmax_backward(name: str, rows: int, columns: int) -> Step:
    F, x = torch.nn.functional, normal(rows, columns)
    amount = 12 * x.size  # what comes in twice, what goes out once
    return gradients(name, lambda x: ts.softmax(x), lambda x: F.softmax(x, -1), jax.nn.softmax, [x], amount=amount,
                     unit="GB/s", goal=1.4)  # fmt: skip


def loss_backward(name: str, rows: int, columns: int) -> Step:
    F, x, labels = torch.nn.functional, normal(rows, columns), np.random.default_rng(0).integers(0, columns, rows)
    tl, jl = torch.tensor(labels), jnp.asarray(labels)

    def by_jax(x: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(x), jl[:, None], -1).mean()

    ours = lambda x: ts.cross_entropy(x, labels)  # noqa: E731
    return gradients(name, ours, lambda x: F.cross_entropy(x, tl), by_jax, [x], amount=8 * x.size, unit="GB/s",
                     goal=1.4)  # fmt: skip


def norm_backward(name: str, rows: int, columns: int) -> Step:
    def norm_in_jax(x: Any, w: Any, b: Any) -> Any:
        apart = x - x.mean(-1, keepdims=True)
        return apart * jax.lax.rsqrt((apart * apart).mean(-1, keepdims=True) + 1e-5) * w + b

    def norm_in_torch(x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (columns,), w, b)

    x, given = normal(rows, columns), [normal(columns), normal(columns, seed=1)]
    ours = lambda x, w, b: ts.layer_norm(x, w, b)  # noqa: E731
    return gradients(name, ours, norm_in_torch, norm_in_jax, [x, *given], amount=12 * x.size, unit="GB/s",
                     tolerance=1e-2, goal=1.4)  # fmt: skip


def mlp_backward(name: str, n: int) -> Step:
    F, arrays = torch.nn.functional, [normal(n, n), normal(n, 4 * n) * 0.03, normal(4 * n, n, seed=2) * 0.03]
    # Whole parts, whose products every library adds without rounding: all of them have the same signs before the relu.
    arrays[:2] = [np.round(array * parts) / np.float32(parts) for array, parts in zip(arrays, (4, 256), strict=False)]
    ours = lambda x, a, b: ts.relu(x @ a) @ b  # noqa: E731
    jaxs = lambda x, a, b: jax.nn.relu(x @ a) @ b  # noqa: E731
    return gradients(name, ours, lambda x, a, b: F.relu(x @ a) @ b, jaxs, arrays,
                     amount=5 * 8 * n**3, unit="GF/s", tolerance=1e-2, goal=0.97)  # fmt: skip


def attention_backward(name: str, heads: int, length: int, depth: int, narrow: bool = False) -> Step:
    F, arrays = torch.nn.functional, [normal(1, heads, length, depth, seed=i) for i in range(3)]

    def jaxs(*parts: Any) -> Any:
        q, k, v = (a.swapaxes(1, 2) for a in parts)
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).swapaxes(1, 2)

    def theirs(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    ours = lambda q, k, v: ts.attention(q, k, v, causal=True)  # noqa: E731
    amount = 7 * heads * length**2 * depth  # seven products of half a square
    return gradients(name, ours, theirs, jaxs, arrays, narrow, amount=amount, unit="GF/s", goal=2.0 if narrow else 1.4,
                     tolerance=5e-2 if narrow else 1e-3)  # fmt: skip


def derived_attention(name: str, heads: int, length: int, causal: bool) -> Step:
    """A kernel with a derived backward beside the kernels of `ts.attention`, which are written by hand."""
    runs, depth = derived.attention(heads, length, causal), derived.DEPTH
    amount = (9 if causal else 18) * heads * length**2 * depth  # nine products, of which a mask leaves half
    return Step(name, runs, amount, "GF/s", goal=0.8, beside="ts.attention")


def embedding_backward(name: str, rows: int, width: int, count: int) -> Step:
    table, at = normal(rows, width), np.random.default_rng(0).integers(0, rows // 10, count)
    ta, ja = torch.tensor(at), jnp.asarray(at)
    ours = lambda table: ts.embedding(at, table)  # noqa: E731
    return gradients(name, ours, lambda t: torch.nn.functional.embedding(ta, t),
                     lambda t: t[ja], [table], amount=4 * width * (rows + count), unit="GB/s", goal=1.5)  # fmt: skip


def adamw(name: str, count: int, size: int, in_place: bool) -> Step:
    """Beside a copy of as many bytes: 32 are moved for each parameter, since the gradient is read for its norm before
    it is used. `in_place`: in the arrays of a `TrainingState`; else to new ones."""
    p, g = ([normal(size, seed=i + s) for i in range(count)] for s in (0, 100))
    opt = ts.optimizers.AdamW(gpt.RATE, weight_decay=gpt.DECAY)
    held = [p, opt.init(p)]

    def ours() -> Any:
        held[:] = opt.update(held[0], g, held[1])

    state = ts.optimizers.TrainingState(p, opt)

    @ts.function
    def stepped(state: ts.optimizers.TrainingState, g):
        state.step(g)

    leaves = [torch.tensor(a, requires_grad=True) for a in p]
    for leaf, a in zip(leaves, g, strict=True):
        leaf.grad = torch.tensor(a)
    theirs = torch.optim.AdamW(leaves, gpt.RATE, gpt.BETAS, gpt.EPS, gpt.DECAY, fused=True)
    jitted = jax.jit(gpt.adamw_in_jax, donate_argnums=(0, 2, 3))
    q, jg = ([jnp.asarray(a) for a in arrays] for arrays in (p, g))
    kept: list[Any] = [q, *(jax.tree.map(jnp.zeros_like, q) for _ in range(2)), jnp.zeros(())]

    def by_jax() -> Any:
        kept[:] = jax.block_until_ready(jitted(kept[0], jg, *kept[1:]))

    total = count * size
    source, target = np.ones(total * 4, np.float32), np.empty(total * 4, np.float32)
    run = (lambda: stepped(state, g)) if in_place else ours
    runs = {"tessera": run, "torch": theirs.step, "jax": by_jax, "copy": lambda: np.copyto(target, source)}
    return Step(name, runs, 32 * total, "GB/s", goal=0.95, beside="copy")


def narrow_adamw(name: str, count: int, size: int, narrow_moments: bool) -> Step:
    """bf16 parameters that are rounded stochastically beside f32 ones; moments are f32, or with `narrow_moments` bf16
    and rounded as parameters are. For each parameter f32 moves 32 bytes, these 24 and 16."""
    arrays = [normal(size, seed=i) for i in range(count)]

    def updates(p: list[Any], **options: Any) -> Run:
        state = ts.optimizers.TrainingState(p, ts.optimizers.AdamW(gpt.RATE, weight_decay=gpt.DECAY, **options))

        @ts.function
        def stepped(state: ts.optimizers.TrainingState, g):
            state.step(g)

        return lambda: stepped(state, p)

    narrow = [np.asarray(ts.asarray(a).astype(ts.bf16)) for a in arrays]
    more = {"state_dtype": ts.bf16} if narrow_moments else {}
    runs = {"tessera": updates(narrow, numerics=ts.stochastic_round, **more), "f32": updates(arrays)}
    moved = (16 if narrow_moments else 24) * count * size
    return Step(name, runs, moved, "GB/s", goal=1.8 * narrow_moments)


def pinn(name: str) -> Step:
    """The residual of the heat equation at 1024 places by a network 2 -> 64 -> 64 -> 1: torch.compile refuses its
    second derivatives, so that PyTorch runs eagerly."""
    shapes = [(2, 64), (64,), (64, 64), (64,), (64, 1), (1,)]
    p, (x, t) = [normal(*s, seed=i) / s[0] ** 0.5 for i, s in enumerate(shapes)], normal(2, 1024)

    def network(stack: Any, tanh: Any, p: Any, x: Any, t: Any) -> Any:
        h = tanh(stack([x, t], -1) @ p[0] + p[1])
        return (tanh(h @ p[2] + p[3]) @ p[4] + p[5])[:, 0]

    @ts.function
    def run(p, x, t):
        def loss(p):
            def u(x, t):
                h = ts.tanh(ts.stack([x, t], axis=-1) @ p[0] + p[1])
                return (ts.tanh(h @ p[2] + p[3]) @ p[4] + p[5])[:, 0]

            one = ts.ones_like(x)
            u_t = ts.jvp(lambda t: u(x, t), (t,), (one,))[1]
            u_xx = ts.jvp(lambda x: ts.jvp(lambda x: u(x, t), (x,), (one,))[1], (x,), (one,))[1]
            return ts.mean(ts.square(u_t - 0.1 * u_xx))

        return ts.grad(loss)(p)

    leaves = [torch.tensor(a, requires_grad=True) for a in p]
    tx, tt = (torch.tensor(a, requires_grad=True) for a in (x, t))

    def by_torch() -> Any:
        with torch.enable_grad():
            u = network(torch.stack, torch.tanh, leaves, tx, tt)
            u_x, u_t = torch.autograd.grad(u.sum(), (tx, tt), create_graph=True)
            u_xx = torch.autograd.grad(u_x.sum(), tx, create_graph=True)[0]
            loss = (u_t - 0.1 * u_xx).square().mean()
            return torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)

    def loss_in_jax(p: Any, x: Any, t: Any) -> Any:
        u = lambda x, t: network(jnp.stack, jnp.tanh, p, x, t)  # noqa: E731
        one = jnp.ones_like(x)
        u_t = jax.jvp(lambda t: u(x, t), (t,), (one,))[1]
        u_xx = jax.jvp(lambda x: jax.jvp(lambda x: u(x, t), (x,), (one,))[1], (x,), (one,))[1]
        return ((u_t - 0.1 * u_xx) ** 2).mean()

    jitted, given = jax.jit(jax.grad(loss_in_jax)), jax.tree.map(jnp.asarray, (p, x, t))
    runs = {"tessera": lambda: run(p, x, t), "torch": by_torch, "jax": lambda: jax.block_until_ready(jitted(*given))}
    return Step(name, runs, tolerance=1e-2, goal=1.5)


def measure(step: Step, quick: bool, threads: int) -> dict[str, Any]:
    """Checks, times, and gives the row that is printed."""
    with torch.no_grad():
        found = {n: [_plain(a) for a in _leaves(run())] for n, run in step.runs.items()}
        for name, results in found.items():
            for a, b in zip(results, found.get("torch", found.get(step.beside, results)), strict=False):
                if not np.allclose(a, b, rtol=step.tolerance, atol=step.tolerance * (np.abs(b).max() + 1e-6)):
                    raise SystemExit(f"{step.name}: {name} is off by {np.abs(a - b).max():.3g}")
        times = compare(step.runs, budget=2.0 if quick else 6.0, threads=threads)
    peers = [n for n in times if n not in ("tessera", "copy")]
    ours, best = times["tessera"], step.beside or min(peers, key=lambda n: times[n].median)
    return {
        "name": step.name, "ms": 1e3 * ours.median, "spread_ms": 1e3 * ours.spread,
        "rate": step.amount / ours.median / 1e9, "unit": step.unit, "best_peer": best,
        "peer_ms": 1e3 * times[best].median, "ratio": times[best].median / ours.median,
        "clean": f"{ours.clean}/{ours.samples}",
        "peers_ms": {n: 1e3 * t.median for n, t in times.items() if n != "tessera"}, "goal": step.goal,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """A result of any library as an array of f64."""
    return np.asarray(value.detach().double() if isinstance(value, torch.Tensor) else value, np.float64)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in _leaves(v)]
    return [] if value is None else [value]


# what a process of its own measures


def first_step(library: str, layers: int) -> float:
    """Seconds of the first gradient of a GPT-2-small of so many layers, less those of a later one."""
    step, times = gpt.STEPS[library](replace(gpt.GPT2, layers=layers), train=False), []
    for _ in range(4):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times[0] - min(times[1:])


def compiled(library: str, layers: int) -> float:
    """Seconds of compiling the gradient of a GPT-2-small of so many layers, which is not launched: no memory is touched
    for its results."""
    sizes = replace(gpt.GPT2, layers=layers)
    args = gpt.made(sizes), sizes.text()
    start = time.perf_counter()
    ts.compile(gpt.derived, arguments=args)
    return time.perf_counter() - start


def ready(library: str, layers: int) -> float:
    """Seconds until the first gradient of a GPT-2-small of so many layers can be launched. Its first run takes longer
    than later ones, as the memory of its results is touched for the first time."""
    sizes = replace(gpt.GPT2, layers=layers)
    args = gpt.made(sizes), sizes.text()
    start = time.perf_counter()
    launcher = dispatch.launcher_of(gpt.derived)
    launcher.found(args, launcher.sites)
    return time.perf_counter() - start


def peak(library: str, count: int) -> float:
    """Bytes that were resident at most during a step of the nanoGPT with so many texts."""
    step = gpt.STEPS[library](replace(gpt.NANO, count=count), train=False)
    for _ in range(3):
        step()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # forgets the largest size so far
    step()
    with open("/proc/self/status", encoding="ascii") as f:
        return 1024.0 * next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))


def apart(what: str, library: str, number: int, threads: int, times: int = 1) -> float:
    """`first_step`, `compiled`, `ready` or `peak` in a process with empty caches; in the last of several, each of which
    finds what those before it have kept on the disk. Our modules have been compiled, as an installer does."""
    compileall.compile_dir(ROOT / "tessera", quiet=2)
    with TemporaryDirectory() as folder:
        caches = dict.fromkeys(("TESSERA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"), folder)
        command = [sys.executable, "-m", "benchmarks.training", "--apart", what, library, str(number)]
        for _ in range(times):
            run = subprocess.run([*command, "--threads", str(threads)], env={**os.environ, **caches}, check=True,
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
    return float(run.stdout.split()[-1])


def processes(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows that are measured once, in processes of their own."""
    few, many = (1, 2) if options.quick else (2, 12)
    for name, what, numbers, unit, scale in (
        (f"GPT-2-small, compiling {many} layers", "first_step", (few, many), "s", 1.0),
        ("nanoGPT, memory of 96 more texts", "peak", (96, 192), "MB", 1e-6),
    ):
        if options.only.takes(name):
            found = {n: [scale * apart(what, n, k, options.threads) for k in numbers] for n in gpt.STEPS}
            value = {n: v[1] - (v[0] if what == "peak" else 0) for n, v in found.items()}
            best = min(("torch", "jax"), key=value.__getitem__)
            yield {
                "name": name, "value": value["tessera"], "unit": unit, "best_peer": best, "peer": value[best],
                "ratio": value[best] / value["tessera"], "peers": value, "at": numbers, "measured": found,
                **({"goal": 1 / 0.7} if what == "peak" else {"most": 2.0}),
            }  # fmt: skip
            if what == "first_step":
                first = found["tessera"]
                turns = [[apart("compiled", "tessera", k, options.threads) for k in (few, many)] for _ in range(TURNS)]
                alone = [min(t[i] for t in turns) for i in range(2)]
                beside = f"{many} layers beside {few}"
                yield {"name": beside, "value": alone[1] / alone[0], "unit": "times", "measured": turns, "most": 1.15}
                yield {"name": f"{beside}, first call with its memory", "value": first[1] / first[0], "unit": "times"}
                kept = apart("ready", "tessera", many, options.threads, times=2)
                yield {"name": f"{name}, from disk", "value": kept, "unit": "s", "most": 0.1}
    if options.only.takes(peaks.NAME):
        yield peaks.row(4 if options.quick else 1)


def main() -> None:
    parser = parser_of(__doc__, "a quarter of the sizes, a third of the time")
    parser.add_argument("--apart", nargs=3, metavar=("WHAT", "LIBRARY", "NUMBER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    _load(options.threads)
    if options.apart:
        what, library, number = options.apart
        print(
            {"first_step": first_step, "compiled": compiled, "ready": ready, "peak": peak}[what](library, int(number))
        )
        return
    made = (make(name) for name, make in steps(4 if options.quick else 1).items() if options.only.takes(name))
    measured = (measure(step, options.quick, options.threads) for step in made)
    rows: list[dict[str, Any]] = []
    for row in itertools.chain(measured, processes(options)):
        rows.append(row)
        if not options.json:
            _print(row)
    options.only.demand()
    if options.json:
        json.dump({"threads": options.threads, "rows": rows}, sys.stdout, indent=1)


def _print(row: dict[str, Any]) -> None:
    if "ms" in row:
        rate = f"{row['rate']:7.1f} {row['unit']}" if row["unit"] else ""
        ours = f"{row['ms']:9.3f} ms ±{row['spread_ms']:.3f} {rate}"
        theirs = ", ".join(f"{n} {ms:.3f}" for n, ms in row["peers_ms"].items())
    else:
        ours = f"{row['value']:9.3f} {row['unit']}"
        theirs = ", ".join(f"{n} {v:.3f}" for n, v in row.get("peers", {}).items() if n != "tessera")
    ratio = f"ratio {row['ratio']:5.2f}" if "ratio" in row else ""
    peers = f"({theirs})" if theirs else ""
    print(f"{row['name']:34s} {ours:38s} {ratio:11s} {_goal(row):26s} {peers}".rstrip(), flush=True)


def _goal(row: dict[str, Any]) -> str:
    """What is to be reached, and whether it is. On a busy machine neither says much."""
    if row.get("most"):
        return f"goal <= {row['most']:.2f} {row['unit']}: {'reached' if row['value'] <= row['most'] else 'missed'}"
    return (
        f"goal {row['goal']:.2f}: {'reached' if row['ratio'] >= row['goal'] else 'missed'}" if row.get("goal") else ""
    )


def _load(threads: int) -> None:
    """Imports the peers with as many threads as we take."""
    from benchmarks import cpu

    cpu.load(threads)
    global np, torch, jax, jnp, ts, nn, decoding, derived, gpt, dispatch
    import jax
    import jax.numpy as jnp
    import numpy as np
    import torch

    import tessera as ts
    from benchmarks import decoding, derived, gpt
    from tessera import nn
    from tessera.runtime.call import dispatch


if __name__ == "__main__":
    main()
