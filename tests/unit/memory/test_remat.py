"""`ts.remat`: less is kept, and not one bit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, nn
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.pipeline import to_graph, to_program
from tessera.compiler.predict import predict
from tessera.compiler.tile.lifetimes import peak
from tessera.language.saving import bytes_of

B, D, LAYERS = 256, 32, 4
RNG = np.random.default_rng(0)
W = RNG.standard_normal((LAYERS, 2, D, D)).astype(np.float32) / 6
X = RNG.standard_normal((B, D)).astype(np.float32)


def block(w, h, key):
    attn = ts.softmax(h @ w[0])
    inner = ts.gelu(attn @ w[1])
    return h + ts.dropout(inner, key, p=0.2)


def stack(wrap: Any) -> Any:
    def loss(w: Tensor["L", 2, "D", "D", f32], x: Tensor["B", "D", f32]):
        h = x
        for i in range(4):
            h = wrap(block)(w[i], h, i)
        return ts.mean(ts.square(h))

    return ts.value_and_grad(loss)


WRAPS: dict[str, Any] = {
    "plain": lambda f: f,
    "everything": lambda f: ts.remat(f, ts.save.everything),
    "products": lambda f: ts.remat(f, policy=ts.save.products),
    "names": lambda f: ts.remat(f, ts.save.names("attn", "other")),
    "nothing": ts.remat,
    "nested": lambda f: ts.remat(ts.remat(f, ts.save.products), ts.save.names("attn")),
    "500kB": lambda f: ts.remat(f, memory="500kB"),
    "400kB": lambda f: ts.remat(f, memory="400kB"),
}


def bits(result: Any) -> list[bytes]:
    if isinstance(result, (tuple, list)):
        return [b for r in result for b in bits(r)]
    return [np.asarray(result).tobytes()]


def program(function: Any, **sizes: int) -> Any:
    return to_program(analyse(function.definition(), None, sizes).unit(), "cpu").program


@pytest.fixture(scope="module")
def usual() -> list[bytes]:
    return bits(stack(WRAPS["plain"])(W, X))


@pytest.mark.parametrize("name", WRAPS)
def test_dropout_under_every_policy_and_limit_has_equal_bits(name: str, usual: list[bytes]) -> None:
    assert bits(stack(WRAPS[name])(W, X)) == usual


def test_policies_keep_what_they_say() -> None:
    taken = {name: peak(program(stack(WRAPS[name]), L=LAYERS, D=D, B=B)) for name in WRAPS}
    assert taken["nothing"] < taken["names"] < taken["plain"]
    assert taken["nothing"] < taken["products"] and taken["nothing"] < taken["everything"]
    assert taken["500kB"] <= 500_000 and taken["400kB"] <= 400_000


def test_a_larger_limit_is_no_slower_and_a_smaller_one_takes_no_more(usual: list[bytes]) -> None:
    last = None
    for most in (2_000_000, 550_000, 480_000, 430_000, 410_000, 380_000):
        made = program(stack(lambda f, most=most: ts.remat(f, memory=most)), L=LAYERS, D=D, B=B)
        work = sum(launch.flops for launch in made.launches)
        if last is not None:
            assert peak(made) <= last[0] and work >= last[1]
        assert peak(made) <= most
        last = peak(made), work


def test_a_limit_that_cannot_be_met_says_what_the_least_is() -> None:
    with pytest.raises(ts.CompileError) as e:
        stack(lambda f: ts.remat(f, memory="40kB"))(W, X)
    (d,) = e.value.diagnostics
    assert d.code == "TS358" and "does not fit into 39.06 KiB: it holds" in d.message and "at least" in d.message
    assert d.span.line == block.__code__.co_firstlineno


def test_without_sizes_no_limit_can_be_met() -> None:
    with pytest.raises(ts.CompileError) as e:
        to_graph(analyse(stack(WRAPS["400kB"]).definition(), None, {}).unit())
    assert e.value.code == "TS358" and "sizes of B, D, L" in str(e.value)


@pytest.mark.parametrize(
    ("said", "found"),
    [("1.5GiB", 3 << 29), ("800MB", 800_000_000), ("2 kib", 2048), (512, 512), ("64B", 64), (".5MB", 500_000)],
)
def test_sizes_of_memory(said: Any, found: int) -> None:
    assert bytes_of(said) == found


@pytest.mark.parametrize("said", ["", "1.5", "GiB", "-1GB", "1.5 GiBs", "1e400GB", 0, -5, True, float("nan"), [1]])
def test_sizes_that_cannot_be_read(said: Any) -> None:
    with pytest.raises(ValueError, match=r"as '1.5GiB'"):
        bytes_of(said)
    if not isinstance(said, list):
        with pytest.raises(ts.CompileError) as e:
            ts.remat(lambda x: x, memory=said)
        assert e.value.code == "TS105"


@pytest.mark.parametrize("policy", ["products", 3, ts.save, ts.save.names(3)])  # type: ignore[arg-type]
def test_policies_that_are_none(policy: Any) -> None:
    with pytest.raises(ts.CompileError) as e:
        ts.remat(lambda x: x, policy)
    assert e.value.code == "TS105"


def test_in_a_program_it_says_where() -> None:
    @ts.function
    def f(x: Tensor["N", f32]):
        return ts.remat(ts.sin, memory="much")(x)

    with pytest.raises(ts.CompileError) as e:
        f(X[0])
    assert e.value.code == "TS105" and "as '1.5GiB'" in str(e.value)


@ts.remat(policy=ts.save.nothing)
def decorated(x: Tensor["N", f32]):
    return ts.sin(ts.exp(x))


@ts.remat
@ts.function
def twice(x: Tensor["N", f32]):
    return decorated(decorated(x))


class Net(nn.Module):
    weight: Tensor["D", "D"]

    def inner(self, x):
        return ts.tanh(ts.exp(-ts.square(x @ self.weight)))

    @ts.remat
    def outer(self, x):
        return ts.sin(self.inner(x))


def test_as_a_decorator() -> None:
    x = X[0]
    np.testing.assert_allclose(decorated(x), np.sin(np.exp(x)), rtol=1e-5, atol=1e-6)
    plain = ts.grad(lambda x: ts.sum(ts.sin(ts.exp(ts.sin(ts.exp(x))))))(x)
    assert bits(ts.grad(lambda x: ts.sum(twice(x)))(x)) == bits(plain)


def test_methods_and_modules() -> None:
    net = Net(W[0, 0])

    @ts.function
    def plain(net: Net, x: Tensor["B", "D", f32]):
        return ts.grad(lambda net: ts.sum(ts.sin(net.inner(x))))(net)

    @ts.function
    def method(net: Net, x: Tensor["B", "D", f32]):
        return ts.grad(lambda net: ts.sum(ts.sin(ts.remat(net.inner)(x))))(net)

    @ts.function
    def decorated_method(net: Net, x: Tensor["B", "D", f32]):
        return ts.grad(lambda net: ts.sum(net.outer(x)))(net)

    expected = bits(plain(net, X).weight)
    assert bits(method(net, X).weight) == expected
    assert bits(decorated_method(net, X).weight) == expected


@pytest.mark.parametrize("wrap", [lambda f: f, ts.remat, lambda f: ts.remat(f, ts.save.names("a"))])
def test_any_order_and_inside_of_loops(wrap: Any) -> None:
    def step(x, t):
        a = ts.sin(x * t)
        return x + ts.exp(a) * 0.1

    def loop(x, t):
        for _ in ts.range(5):
            x = wrap(step)(x, t)
        return ts.sum(x * x)

    def plain(x, t):
        for _ in range(5):
            x = x + ts.exp(ts.sin(x * t)) * 0.1
        return ts.sum(x * x)

    x, t = X[0].astype(np.float64), np.array(0.7)
    second = [ts.hessian(f, argnums=0)(x, t) for f in (loop, plain)]
    np.testing.assert_allclose(*second, rtol=1e-10)
    mixed = [ts.grad(lambda x, t, f=f: ts.sum(ts.square(ts.grad(f)(x, t))), argnums=1)(x, t) for f in (loop, plain)]
    np.testing.assert_allclose(*mixed, rtol=1e-9)


def test_stop_gradient_inside_of_it_inside_of_a_loop() -> None:
    def loss(x, wrap):
        def step(x):
            return ts.sin(x) * ts.stop_gradient(ts.exp(-x))

        for _ in ts.range(4):
            x = wrap(step)(x)
        return ts.sum(x)

    x = X[0]
    with_it, without = (ts.grad(lambda x, w=w: loss(x, w))(x) for w in (ts.remat, lambda f: f))
    assert bits(with_it) == bits(without)


def test_a_rule_of_ones_own_under_it() -> None:
    @ts.function
    def cube(x: Tensor["N", f32]):
        return x * x * x

    @cube.vjp
    def rule(result, cotangent, x):
        return cotangent * 3 * x * x

    x = X[0]
    for order in (1, 2):

        def f(x, order=order):
            inner = ts.remat(lambda x: ts.sin(cube(ts.exp(x))))
            return ts.sum(inner(x)) if order == 1 else ts.sum(ts.grad(lambda x: ts.sum(inner(x)))(x))

        def plain(x, order=order):
            inner = lambda x: ts.sin(ts.exp(x) * ts.exp(x) * ts.exp(x))  # noqa: E731
            return ts.sum(inner(x)) if order == 1 else ts.sum(ts.grad(lambda x: ts.sum(inner(x)))(x))

        np.testing.assert_allclose(ts.grad(f)(x / 4), ts.grad(plain)(x / 4), rtol=2e-4)


WIDE = RNG.standard_normal((32768, D)).astype(np.float32)


@pytest.mark.parametrize("wrap", [WRAPS["plain"], WRAPS["nothing"], lambda f: ts.remat(f, memory="55MB")])
def test_the_peak_is_as_predicted(wrap: Any) -> None:
    """Beside what is predicted a worker has scratch memory of its own, half a megabyte here."""
    step = stack(wrap)
    predicted = predict(analyse(step.definition(), None, {}), {"L": LAYERS, "D": D, "B": len(WIDE)}, "cpu").bytes
    step(W, WIDE)
    with ts.Profiler(tiles=False) as profile:
        step(W, WIDE)
    taken = sum(e.delta for e in profile.recording.memory if "temporaries" in e.what and e.delta > 0)
    measured = taken + WIDE.nbytes + 2 * W.nbytes + 4
    assert predicted is not None and abs(measured - predicted) <= 0.05 * predicted


def test_operators_that_kernels_compute() -> None:
    """Attention is one operator with several results, for which a kernel stands when it is scheduled."""

    def layers(q: Tensor["S", "D", f32], most: str):
        def layer(q):
            return q + ts.attention(q, ts.sin(q), ts.cos(q))

        def loss(q):
            for _ in range(3):
                q = layer(q)
            return ts.sum(q)

        return ts.grad(ts.remat(loss, memory=most) if most else loss)(q)

    q = RNG.standard_normal((64, 16)).astype(np.float32)
    step = ts.function(layers)
    assert bits(step(q, "120kB")) == bits(step(q, ""))


def steps(x: Tensor["B", "D", f32], w: Tensor["L", "D", "D", f32]):
    h = x
    for i in range(4):
        h = ts.gelu(h @ w[i])
    return ts.mean(ts.square(h))


def sums(x: Tensor["B", "D", f32], w: Tensor["L", "D", "D", f32]):
    h = x
    for i in range(4):
        h = h + ts.silu(h @ w[i]) * h
    return ts.mean(ts.square(h))


@pytest.mark.parametrize(("loss", "share"), [(steps, 0.95), (sums, 1.0)])
def test_without_a_limit_what_is_cheap_is_computed_again(loss: Any, share: float) -> None:
    """Less is held than by the quickest choice, which a large limit allows, and never more; all bits are the same."""
    plain, quickest = ts.grad(loss, argnums=(0, 1)), ts.grad(ts.remat(loss, memory="1GB"), argnums=(0, 1))
    least, most = (peak(program(f, L=LAYERS, D=128, B=512)) for f in (plain, quickest))
    assert least <= share * most
    w = RNG.standard_normal((LAYERS, D, D)).astype(np.float32) / 6
    assert bits(plain(X, w)) == bits(quickest(X, w))
