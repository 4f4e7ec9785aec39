"""`ts.saved`: every value that a backward pass reads, with its place, its size and its readers."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32
from tessera.language.dims import parse
from tessera.nn import MLP
from tessera.profiler.memory import MemoryReport


def loss(w1: Tensor["D", "H", f32], w2: Tensor["H", "D", f32], x: Tensor["B", "D", f32]):
    hidden = ts.exp(x @ w1)
    out = hidden @ w2
    return ts.mean(ts.square(out - x))


FIRST = loss.__code__.co_firstlineno
TYPES = Tensor[8, 32], Tensor[32, 8], Tensor[64, 8]


def step(w1: Tensor["D", "H", f32], w2: Tensor["H", "D", f32], x: Tensor["B", "D", f32]):
    return ts.value_and_grad(loss, argnums=(0, 1))(w1, w2, x)


def test_lines_names_sizes_and_readers() -> None:
    found = ts.saved(step, *TYPES)
    by_name = {v.name: v for v in found}
    assert {v.name for v in found if not v.operator} == {"w2", "x"}
    hidden = by_name["hidden"]
    assert (hidden.line, hidden.shape, hidden.dtype, hidden.bytes) == (FIRST + 1, (64, 32), "f32", 64 * 32 * 4)
    assert {line for _, line in hidden.used_by} == {FIRST + 1, FIRST + 2}
    assert hidden.again_flops >= 2 * 64 * 8 * 32 and hidden.again_us > 0
    assert hidden.file == __file__
    assert found.bytes == sum(v.bytes for v in found if v.operator)
    assert "step keeps" in repr(found) and "hidden" in repr(found) and "<table>" in found._repr_html_()


def test_of_the_annotations_alone_sizes_are_symbolic() -> None:
    found = ts.saved(step)
    (hidden,) = (v for v in found if v.name == "hidden")
    assert hidden.bytes == parse("4*B*H") and hidden.again_us is None
    assert "4*B*H B" in repr(found)


def test_what_takes_no_gradient_is_differentiated_by_its_first_argument() -> None:
    assert [v.name for v in ts.saved(loss, *TYPES)] == [v.name for v in ts.saved(ts.grad(loss), *TYPES)]


def test_policies_are_seen() -> None:
    wrapped = lambda w1, w2, x: ts.remat(loss)(w1, w2, x)  # noqa: E731
    found = ts.saved(ts.value_and_grad(wrapped, argnums=(0, 1)), *TYPES)
    assert found.bytes == 0 and {v.name for v in found} <= {"w1", "w2", "x"}


def test_all_bytes_that_wait_are_named() -> None:
    """Temporaries that are written before the first kernel of the backward pass and read by it are all listed."""
    from tessera.compiler.frontend.analyse import analyse
    from tessera.compiler.pipeline import to_program
    from tessera.compiler.tile.lifetimes import temporaries

    sizes = {"D": 8, "H": 32, "B": 64}
    program = to_program(analyse(ts.function(step).definition(), None, sizes).unit(), "cpu").program
    turn = next(i for i, k in enumerate(program.launches) if k.label == "contract" and i > 1)
    waiting = [t for t in temporaries(program) if t.first < turn <= t.last]
    kept = {v.bytes for v in ts.saved(step, *TYPES) if v.operator}
    assert {t.bytes for t in waiting} - {64 * 8 * 4} <= kept


def test_arrays_and_dataclasses_stand_for_types() -> None:
    model = MLP(4, 8, key=0)

    @ts.function
    def trained(model: MLP, x: Tensor["B", "D", f32]):
        return ts.value_and_grad(lambda model: ts.mean(ts.square(model(x))))(model)

    found = ts.saved(trained, model, np.zeros((16, 4), np.float32))
    assert found.bytes > 0 and all(isinstance(v.bytes, int) for v in found)


def test_errors_are_those_of_the_program() -> None:
    with pytest.raises(ts.CompileError) as e:
        ts.saved(loss, Tensor[8, 32], Tensor[31, 8], Tensor[64, 8])
    assert e.value.code.startswith("TS2")


def test_the_memory_timeline_names_forward_lines() -> None:
    run = ts.function(step)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 32), (32, 8), (64, 8))]
    run(*arrays)
    with ts.Profiler(tiles=False) as profile:
        run(*arrays)
    found = {(file, line, name): size for file, line, name, size in MemoryReport(profile.recording.memory).held()}
    assert found[__file__, FIRST + 1, "hidden"] == 64 * 32 * 4
    assert "hidden" in MemoryReport(profile.recording.memory).details()
    assert sum(found.values()) == ts.saved(step, *arrays).bytes
