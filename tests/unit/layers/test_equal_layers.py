"""Many equal layers are lowered as three, and the Program is the one that lowering all of them gives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, nn
from tessera.compiler import pipeline
from tessera.compiler.ir.printer import print_op
from tessera.compiler.ir.verifier import verify
from tessera.compiler.layers.fold import fold
from tessera.compiler.layers.unfold import unfold
from tessera.compiler.lower.equal_groups import RepeatedGroups
from tessera.compiler.tile.program import Launch, Program
from tessera.compiler.unit import Unit


class _Found(Exception):
    pass


def unit_of(function: Any, *args: Any) -> Unit:
    """What the compiler is given for a call."""

    def caught(unit: Unit, *_: Any) -> Any:
        raise _Found(unit)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(_Found) as found:
        patch.setattr(pipeline, "lower", caught)
        function(*args)
    return found.value.args[0]


def lines(program: Program) -> Iterator[str]:
    """All of a Program as text."""
    yield from map(repr, program.buffers)
    for step in program.steps:
        if isinstance(step, Launch):
            yield f"{step.args} {step.span} {step.flops} {step.bytes} {step.label}\n{print_op(step.kernel)}"
        else:
            yield repr(step)
    yield f"{program.outputs} {program.states} {program.free} {program.checks} {program.structure}"


def demand_same(function: Any, *args: Any, repeats: bool = True) -> None:
    """The Program of a call is the one that lowering all layers gives; `repeats`: three layers stand for all."""
    unit = unit_of(function, *args)
    folded = fold(unit.op)
    if repeats:
        assert folded is not None, "no layers were found"
        verify(folded.func)
        assert unfold(pipeline.to_program(replace(unit, op=folded.func), "cpu").program, folded) is not None
    lowered, whole = (pipeline.to_program(unit, "cpu", whole=w) for w in (False, True))
    assert [*lines(lowered.program)] == [*lines(whole.program)]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(np.float32)


class Residual(nn.Module):
    norm: nn.RMSNorm
    inner: nn.MLP

    def __init__(self, *, key: int) -> None:
        self.norm, self.inner = nn.RMSNorm(16), nn.MLP(16, 32, key=key)

    def __call__(self, x):
        return x + self.inner(self.norm(x))


BLOCK = functools.partial(nn.TransformerBlock, 16, 2)


@ts.function
def forward(model: nn.Stack, x: Tensor["B", "S", "D"]):
    return model(x)


@ts.function
def gradient(model: nn.Stack, x: Tensor["B", "S", "D"]):
    return ts.value_and_grad(lambda model: ts.mean(ts.square(model(x))))(model)


@pytest.mark.parametrize("function", [forward, gradient])
@pytest.mark.parametrize(("make", "count"), [(BLOCK, 8), (BLOCK, 12), (Residual, 20)])
def test_layers_of_modules(function: Any, make: Callable[..., Any], count: int):
    demand_same(function, nn.Stack(make, count, key=1), normal(2, 8, 16))


def test_layers_in_a_list():
    @ts.function
    def run(weights, x):
        def loss(weights):
            for w, b in weights:
                x1 = ts.tanh(x @ w + b) if w is weights[0][0] else ts.tanh(x1 @ w + b)
            return ts.mean(x1 * x1)

        return ts.value_and_grad(loss)(weights)

    demand_same(run, [(normal(16, 16, seed=i), normal(16, seed=i)) for i in range(40)], normal(8, 16))


def test_two_stacks():
    @ts.function
    def run(first: nn.Stack, second: nn.Stack, x):
        def loss(models):
            known = models[0](x)
            return ts.mean(ts.square(models[1](ts.tanh(known) * 0.5) + known))

        return ts.grad(loss)((first, second))

    demand_same(run, nn.Stack(Residual, 12, key=1), nn.Stack(BLOCK, 8, key=2), normal(2, 8, 16))


def test_the_ir_of_all_layers_is_there_for_those_who_look():
    unit = unit_of(gradient, nn.Stack(BLOCK, 6, key=1), normal(2, 8, 16))
    lowered, whole = (pipeline.to_program(unit, "cpu", whole=w) for w in (False, True))
    for level in ("graph", "schedule"):
        assert [print_op(op) for op in lowered.ops(level)] == [print_op(op) for op in whole.ops(level)]


def values_of_all_layers(x, layers):
    held = []
    for layer in layers:
        x = layer(x)
        held.append(ts.mean(x))
    return sum(held[1:], held[0]) + held[2] * ts.mean(x)


def weights_of_all_layers(x, layers):
    for layer in layers:
        x = layer(x)
    return ts.mean(x) + sum(ts.sum(ts.square(layer.inner.up.weight)) for layer in layers)


def a_weight_between(x, layers):
    for layer in layers:
        x = layer(x)
    return ts.mean(x) + ts.sum(layers[5].inner.up.weight) + ts.sum(layers[1].inner.up.weight)


def a_value_of_the_first_layer(x, layers):
    first = layers[0](x)
    for layer in layers[1:]:
        x = layer(x) * first
    return ts.mean(x)


def the_last_two_layers(x, layers):
    before = x
    for layer in layers:
        before, x = x, layer(x) + before
    return ts.mean(x) + ts.mean(before)


def inside_of(number: int) -> Callable[..., Any]:
    def body(x, layers):
        for i, layer in enumerate(layers):
            inner = layer.norm(x)
            if i == number:
                held = inner
            x = x + layer.inner(inner)
        return ts.mean(x) + ts.mean(held)

    body.__name__ = f"inside_of_layer_{number}"
    return body


def numbers_that_change(x, layers):
    for i, layer in enumerate(layers):
        x = layer(x) * (0.5 + i / 8)
    return ts.mean(x)


def tied_weights(x, layers):
    for i, layer in enumerate(layers):
        x = layer(x) + layers[i // 2].norm(x)
    return ts.mean(x)


def each_twice(x, layers):
    for _ in range(2):
        for layer in layers:
            x = layer(x)
    return ts.mean(x)


def backwards(x, layers):
    for one, other in zip(layers, layers[::-1], strict=True):
        x = one(x) + other.norm(x)
    return ts.mean(x)


@pytest.mark.parametrize(
    "body",
    [
        values_of_all_layers, weights_of_all_layers, a_weight_between, a_value_of_the_first_layer, the_last_two_layers,
        numbers_that_change, tied_weights, each_twice, backwards, *map(inside_of, (0, 1, 2, 6, 7, 8)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("derived", [False, True])
def test_what_else_reads_layers(body: Callable[..., Any], derived: bool):
    """Whether these repeat or not: the Program is right."""

    @ts.function
    def run(model: nn.Stack, x):
        loss = lambda model: body(x, model.layers)  # noqa: E731
        return ts.value_and_grad(loss)(model) if derived else loss(model)

    demand_same(run, nn.Stack(Residual, 9, key=1), normal(2, 8, 16), repeats=False)


@ts.function
def step(state: ts.optimizers.TrainingState, x: Tensor["B", "S", "D"]):
    loss, slope = ts.value_and_grad(lambda model: ts.mean(ts.square(model(x))))(state.model)
    state.step(slope)
    return loss


def test_updates_in_place_are_written_once(monkeypatch: pytest.MonkeyPatch):
    """A kernel that stores to what it reads is that of all equal parameters, and the text is that of kernels written
    one by one."""

    def program() -> Program:
        rule = ts.optimizers.AdamW(1e-3, clip=1.0)
        state = ts.optimizers.TrainingState(nn.Stack(BLOCK, 6, key=1), rule)
        return pipeline.to_program(unit_of(step, state, normal(2, 8, 16)), "cpu").program

    shared = program()
    updates = [launch for launch in shared.launches if launch.label.endswith("where")]
    assert len(updates) > 60 and len({id(launch.code) for launch in updates}) < 20
    monkeypatch.setattr(RepeatedGroups, "lowered", lambda *args: args[-1]())
    single = program()
    assert [*lines(shared)] == [*lines(single)]


NO_DECAY = ts.optimizers.Group(lambda name, p: len(p.shape) < 2, weight_decay=0.0)


@pytest.mark.parametrize(
    ("rule", "make", "count", "width"),
    [
        (ts.optimizers.AdamW(1e-3, clip=1.0), BLOCK, 8, 16),
        (ts.optimizers.AdamW(1e-3, groups=(NO_DECAY,)), functools.partial(nn.TransformerBlock, 128, 2), 7, 128),
        (ts.optimizers.SGD(1e-2, momentum=0.9, loss_scale="dynamic"), Residual, 20, 16),
    ],
    ids=["clipped", "chunks", "scaled"],
)
def test_a_step_of_many_layers(rule: Any, make: Callable[..., Any], count: int, width: int):
    """Also where sums of squares are those of chunks, and no window of the update begins where a layer does."""
    demand_same(step, ts.optimizers.TrainingState(nn.Stack(make, count, key=1), rule), normal(2, 8, width))


class Language(nn.Module):
    table: nn.Embedding
    blocks: nn.Stack
    norm: nn.LayerNorm

    def __call__(self, text: Tensor["B", "S", ts.int64]):
        return self.table.transposed(self.norm(self.blocks(self.table(text))))


def loss_of(model: Language, text: Tensor["B", "S", ts.int64]):
    return ts.value_and_grad(lambda model: ts.cross_entropy(model(text), text))(model)


@pytest.mark.parametrize("train", [False, True])
def test_a_language_model(train: bool):
    """No window of its launches is a layer: some launches of the first layer's derivative stand behind the last window,
    and read what the first window makes. Sums of squares are two launches each."""

    @ts.function
    def run(state: ts.optimizers.TrainingState, text: Tensor["B", "S", ts.int64]):
        loss, slope = loss_of(state.model, text)
        if not train:
            return loss, slope
        state.step(slope)
        return loss

    blocks = nn.Stack(functools.partial(nn.TransformerBlock, 128, 2), 8, key=1)
    model = Language(nn.Embedding(97, 128, key=0), blocks, nn.LayerNorm(128))
    state = ts.optimizers.TrainingState(model, ts.optimizers.AdamW(1e-3))
    demand_same(run, state, np.random.default_rng(0).integers(0, 97, (1, 64)))


def test_states_that_nothing_reads_are_computed_in_place():
    """The norm and what the report tells: their kernels store to the memory of the state, and nothing is copied."""
    state = ts.optimizers.TrainingState(nn.Stack(BLOCK, 2, key=1), ts.optimizers.AdamW(1e-3))
    program = pipeline.to_program(unit_of(step, state, normal(2, 8, 16)), "cpu").program
    names = {b.id: b.name for b in program.buffers}
    changed = [names[i] for launch in program.launches if launch.label == "copy" for i in _stored(launch)]
    assert changed.count("state.memory.step") == 1, "it is read, and copied behind what reads it"
    assert not {"state.memory.norm", "state.memory.tally"} & {*changed}


def _stored(launch: Launch) -> list[int]:
    return [a.buffer for n, a in enumerate(launch.args) if n in launch.kernel.attrs["writes"] and hasattr(a, "buffer")]
