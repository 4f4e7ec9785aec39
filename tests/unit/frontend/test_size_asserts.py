"""Asserts on sizes: facts for code that is compiled for any size, checked when it is launched."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tessera.compiler.frontend.names.live import live_definition
from tessera.compiler.pipeline import lower
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.generate import Generated, generate
from tessera.compiler.targets.cuda.target import settings_for
from tessera.errors import CompileError, LaunchError
from tests import kernel_runner
from tests.conftest import require
from tests.seeds.kernels import gemm, matmul_kernel


@ts.kernel
def doubled(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    assert N % 32 == 0
    assert M >= 16 and M % 16 == 0, "whole blocks of rows"
    for k in ts.tile.range_k(0, N, 32):
        y[tile_m : tile_m + 16, k : k + 32] = x[tile_m : tile_m + 16, k : k + 32] * 2


@ts.kernel
def open_sizes(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    y[tile_m : tile_m + 16, tile_n : tile_n + 32] = x[tile_m : tile_m + 16, tile_n : tile_n + 32] * 2


@ts.function
def product(a: ts.Tensor["M", "K", ts.bf16], b: ts.Tensor["K", "N", ts.bf16]):
    assert K % 8 == 0 and N % 8 == 0
    return a @ b


@ts.function
def open_product(a: ts.Tensor["M", "K", ts.bf16], b: ts.Tensor["K", "N", ts.bf16]):
    return a @ b


def analysed(f: Any) -> Any:
    return kernel_runner.analyse(live_definition(f, "function", {}))


def generated(kernel: Any, arch: int = 80) -> Generated:
    """For any sizes."""
    kind = "function" if kernel in (product, open_product) else "kernel"
    analysis = kernel_runner.analyse(live_definition(kernel.__wrapped__, kind, {}))
    assert all(d.severity == "note" for d in analysis.diagnostics)
    program = lower(analysis.unit(), base.get("sm_90a" if arch == 90 else f"sm_{arch}")).program
    return generate(program, settings_for(arch, False, False))


def notes(g: Generated) -> list[str]:
    return [note for k in g.kernels.values() for note in k.notes]


def test_asserted_multiples_are_moved_as_vectors_without_checks_of_ends() -> None:
    made = generated(doubled)
    assert made.source.count("ts::Aligned<>") == 2 and "Unaligned" not in made.source
    assert notes(made) == []


def test_what_is_not_asserted_is_suggested() -> None:
    made = generated(open_sizes)
    assert "Unaligned" in made.source
    first, second = notes(made)
    assert "x is not moved 4 elements at a time" in first and "y is not moved" in second
    assert first.endswith("; it would be with `assert N % 4 == 0` at the top")


@pytest.mark.parametrize("kernel", [doubled, open_sizes, gemm, matmul_kernel], ids=lambda k: k.__name__)
def test_a_kernel_is_told_while_it_is_typed_what_the_target_would_say(kernel: Any) -> None:
    """Each size once: what is a multiple of 8 is one of 4."""
    said: dict[str, int] = {}
    for size, by in re.findall(r"assert (\w+) % (\d+) == 0", " ".join(notes(generated(kernel)))):
        said[size] = max(said.get(size, 0), int(by))
    with knobs.target.override("sm_80"):
        analysis = kernel_runner.analyse(live_definition(kernel.__wrapped__, "kernel", {}))
    found = [d for d in analysis.diagnostics if d.code == "TS417"]
    assert {f"assert {size} % {by} == 0" for size, by in said.items()} == {d.message.split(": ")[-1] for d in found}
    assert all(d.severity == "note" and d.fixes for d in found)


def test_tensor_copies_of_any_size_need_an_assert() -> None:
    assert "ts::Ring<" in generated(product, 90).source and not notes(generated(product, 90))
    made = generated(open_product, 90)
    assert "ts::Ring<" not in made.source
    wanted = "not by wgmma with tensor copies: .*it would be with `assert K % 8 == 0 and N % 8 == 0` at the top"
    assert any(re.search(wanted, note) for note in notes(made))


@pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])
def test_asserts_are_checked_at_launch(target: str) -> None:
    if target.startswith("emulator"):
        require("g++")
    compiled = ts.compile(doubled, target=target)
    for shape in ((16, 32), (48, 96), (16, 0)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        y = np.full_like(x, np.nan)
        compiled(x, y)
        np.testing.assert_array_equal(y, x * 2)
    for shape, said in (
        ((16, 12), "assert N % 32 == 0: N%32 is 12, not 0"),
        ((8, 32), "whole blocks of rows: min(16, M) is 8, not 16"),
        ((24, 32), "whole blocks of rows: M%16 is 8, not 0"),
    ):
        with pytest.raises(LaunchError) as e:
            compiled(np.ones(shape, np.float32), np.ones(shape, np.float32))
        assert e.value.code == "TS209" and said in str(e.value)


def test_a_failed_assert_says_the_sizes() -> None:
    with pytest.raises(CompileError) as e:
        kernel_runner.program(doubled, np.ones((16, 12), np.float32), np.ones((16, 12), np.float32))
    assert e.value.code == "TS106" and "assert N % 32 == 0 is false (N = 12)" in str(e.value)


@pytest.mark.parametrize("test, good, bad", [("S >= 128", 128, 127), ("S < 5 * 2", 9, 10), ("4 < S <= 8", 8, 9)])
def test_orders_in_functions_are_checked_at_launch(test: str, good: int, bad: int) -> None:
    from tessera.errors import register_source

    head = "import tessera as ts\n\n\n@ts.function\ndef f(x: ts.Tensor['S', ts.f32]):\n"
    text = f"{head}    assert {test}\n    return x * 2\n"
    register_source(f"orders_{good}.py", text)
    space: dict[str, Any] = {"__name__": "orders"}
    exec(compile(text, f"orders_{good}.py", "exec"), space)
    compiled = ts.compile(space["f"], target="reference")
    np.testing.assert_array_equal(compiled(np.ones(good, np.float32)), 2)
    with pytest.raises(LaunchError, match=r"assert \(?[S45]"):
        compiled(np.ones(bad, np.float32))


def test_asserts_on_what_programs_compute_stay_debug_checks() -> None:
    @ts.kernel
    def even(x: ts.Tensor["n", ts.f32]):
        for i in ts.tile.range(0, n, 8):
            assert i % 16 == 0, "every other block"
            x[i : i + 8] = 0

    op = kernel_runner.check(even, np.ones(32, np.float32)).op
    assert op is not None and any(x.name == "tile.assert" for x in op.walk())


def heads(x: Any, H: int) -> Any:
    assert x.shape[1] % H == 0, "whole heads"
    return x.reshape(x.shape[0], H, -1).sum(1)


def in_a_branch(x: ts.Tensor["B", "D", ts.f32], H: int):
    if D > 64:
        assert D % H == 0
        x = x.reshape(B, H, -1).sum(1)
    else:
        x = x * 2
    return x


def in_an_expression(x: ts.Tensor["B", "D", ts.f32], H: int):
    return heads(x, H) if D > 64 else x * 2


def in_a_loop(x: ts.Tensor["B", "D", ts.f32], H: int):
    for _ in range(D // 65):
        assert D % H == 0
        x = x.reshape(B, H, -1).sum(1)
    return x * (1 if D > 64 else 2)


@pytest.mark.parametrize("f", [in_a_branch, in_an_expression, in_a_loop])
@pytest.mark.parametrize("target", ["reference", "cpu", "emulator:sm_80"])
def test_asserts_on_paths_that_sizes_choose_concern_who_takes_them(f: Any, target: str) -> None:
    program = ts.function(f)
    assert analysed(f).checks == ()
    for d, want in [(6, 2.0), (128, 4.0)]:
        x = np.ones((2, d), np.float32)
        out = ts.compile(program, target=target, arguments=(x, 4))(x, 4)
        np.testing.assert_array_equal(out, np.full((2, 32 if d > 64 else d), want))
    with pytest.raises(CompileError, match=r"D % H|whole heads"):
        ts.compile(program, target=target, arguments=(np.ones((2, 66), np.float32), 4))


def test_what_one_path_asserts_is_no_fact_on_the_other_nor_behind() -> None:
    def by_size(x: ts.Tensor["B", "D"], y: ts.Tensor["B", "S"]):
        if B > 4:
            assert D == S
            z = x + y
        else:
            z = x - y
        return z, x * y

    def by_elements(x: ts.Tensor["B", "D"], y: ts.Tensor["B", "S"]):
        if x.sum() > 0:
            assert D == S
            z = (x + y).sum()
        else:
            z = (x - y).sum()
        return z, x * y

    def same(x: Any, y: Any) -> Any:
        assert x.shape == y.shape
        return (x + y).sum()

    def in_expressions(x: ts.Tensor["B", "D"], y: ts.Tensor["B", "S"]):
        z = same(x, y) if B > 4 else x.sum()
        w = same(x, y) if x.sum() > 0 else (x - y).sum()
        return z, w, x * y

    for f in (by_size, by_elements, in_expressions):
        found = [(d.code, d.span.line) for d in analysed(f).diagnostics]
        lines = inspect.getsource(f).split("\n")
        first = inspect.getsourcelines(f)[1]
        wrong = [first + i for i, line in enumerate(lines) if "x - y" in line or "x * y" in line]
        assert found == [("TS202", n) for n in wrong], f.__name__


def test_after_a_path_that_returned_the_other_ones_facts_hold() -> None:
    def f(x: ts.Tensor["B", "D"], y: ts.Tensor["B", "S"]):
        if x.sum() > 0:
            return x
        else:
            assert D == S
        return x + y

    a = analysed(f)
    assert not a.diagnostics and [c.why for c in a.checks] == ["assert D == S"]


def test_asserts_where_elements_choose_must_hold_for_all_calls() -> None:
    @ts.function
    def f(x: ts.Tensor["B", "D", ts.f32]):
        if x.sum() > 0:
            assert D % 4 == 0, "quarters"
            x = x * 2
        return x

    x = np.zeros((2, 6), np.float32)
    with pytest.raises(CompileError, match="it must hold for all calls, also for those that do not get here"):
        f(x)
    with pytest.raises(LaunchError, match="quarters: D%4 is 2, not 0"):
        ts.compile(f, target="reference")(x)
    np.testing.assert_array_equal(f(np.ones((2, 8), np.float32)), 2)


TESTS = {
    "D <= 64 or D % 4 == 0": ([6, 64, 128], [66]),
    "D != 3": ([2, 4], [3]),
    "not (D == 5 or D == 6)": ([4, 7], [5, 6]),
    "D % 7": ([6, 8], [7, 14]),
    "not D % 7": ([7, 14], [6]),
    "D in (1, 2, 4)": ([1, 2, 4], [3, 8]),
    "D not in [1, 2] and D > 1": ([3, 9], [1, 2]),
    "not 3 < D < 8": ([3, 8], [4, 7]),
    "D == B or (D > 8 and D % B != 1)": ([2, 10], [3, 11]),
}


def program(name: str, *lines: str) -> Any:
    from tessera.errors import register_source

    body = "".join(f"    {line}\n" for line in lines)
    text = f"import tessera as ts\n\n\n@ts.function\ndef f(x: ts.Tensor['B', 'D', ts.f32]):\n{body}"
    register_source(name, text)
    space: dict[str, Any] = {"__name__": "asserted"}
    exec(compile(text, name, "exec"), space)
    return space["f"]


@pytest.mark.parametrize("test", TESTS)
def test_every_assert_on_sizes_is_checked(test: str) -> None:
    f = program(f"assert_{abs(hash(test))}.py", f"assert {test}", "return x * 2")
    compiled = ts.compile(f, target="reference")
    for sizes, holds in zip(TESTS[test], (True, False), strict=True):
        for d in sizes:
            x = np.ones((2, d), np.float32)
            assert bool(eval(test, {"D": d, "B": 2})) is holds
            if holds:
                np.testing.assert_array_equal(compiled(x), 2)
                np.testing.assert_array_equal(f(x), 2)
                continue
            with pytest.raises(LaunchError, match="assert "):
                compiled(x)
            with pytest.raises(CompileError, match="is false"):
                f(x)


@pytest.mark.parametrize("test", ["D / 2 > 3", "D ** 0.5 == 3", "(lambda n: n > 8)(D)", "B > 0 and D * 0.5 > 4"])
def test_an_assert_that_a_launch_cannot_check_needs_the_sizes(test: str) -> None:
    f = program(f"assert_{abs(hash(test))}.py", f"assert {test}", "return x * 2")
    with pytest.raises(CompileError, match="TS502"):
        ts.compile(f, target="reference")
    np.testing.assert_array_equal(f(np.ones((2, 9), np.float32)), 2)
    with pytest.raises(CompileError, match="is false"):
        f(np.ones((2, 4), np.float32))


def test_an_assert_of_alternatives_names_the_sizes() -> None:
    f = program("alternatives.py", "assert D <= 64 or D % B == 0, 'blocks'", "return x")
    with pytest.raises(LaunchError, match="blocks does not hold for B=4, D=66"):
        ts.compile(f, target="reference")(np.ones((4, 66), np.float32))


@pytest.mark.parametrize(
    "test", ["D in (64, 128)", "D in {64, 128}", "D in range(64, 129)", "not D % 64", "D in {64: 1}"]
)
def test_what_sizes_decide_is_open_until_they_are_known(test: str) -> None:
    f = program(f"open_{abs(hash(test))}.py", f"if {test}:", "    return x * 2", "return x.sum(1)")
    with pytest.raises(CompileError, match="must be known to decide this"):
        ts.compile(f, target="reference")
    assert f(np.ones((2, 64), np.float32)).shape == (2, 64)
    assert f(np.ones((2, 63), np.float32)).shape == (2,)


@ts.function
def guarded_shapes(a: ts.Tensor["K", 2], b: ts.Tensor["L", 2]):
    if a.shape != b.shape:
        raise ValueError("the shapes differ")
    return a + b


@ts.function
def guarded_orders(a: ts.Tensor["K", 2], b: ts.Tensor["L", 2]):
    if a.shape[0] % 4 or not b.shape[0] < 8:
        raise ValueError("too long")
    elif a.shape[0] > b.shape[0]:
        raise ValueError("the shapes differ")
    return ts.sum(a) + ts.sum(b)


@pytest.mark.parametrize(
    ("f", "good", "bad"),
    [(guarded_shapes, (3, 3), ((3, 4),)), (guarded_orders, (4, 5), ((4, 8), (3, 5), (8, 4)))],
)
def test_a_guard_is_checked_at_launch_as_an_assert_is(f: Any, good: Any, bad: Any) -> None:
    compiled = ts.compile(f)
    assert np.asarray(compiled(*(np.ones((n, 2), np.float32) for n in good))).any()
    for sizes in bad:
        with pytest.raises(LaunchError, match=r"(?s)TS209.*(the shapes differ|too long)"):
            compiled(*(np.ones((n, 2), np.float32) for n in sizes))
