"""Calls of Tessera's functions, layers and objects with arguments of every odd kind: no error of Python comes out."""

from __future__ import annotations

import ast
import copy
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.errors import Diagnostic, TesseraError

ODD = [
    "'text'", "None", "[1]", "1.5", "(lambda a: a)", "ts", "ts.f32", "{'a': 1}", "b'x'", "-99", "10**30", "1j",
    "object()", "...", "True", "(x, 2)", "model", "ts.nn.Linear", "step", "()", "''",
]  # fmt: skip
CALLS = """
ts.train(model, opt, loss, data, steps=1, live=False, every=10, keep=1, accumulate=1, seed=0, validate=1)
opt.init(model)|opt.update(model, model, state, lr=0.1)|ts.optimizers.EMA(0.9).update(model, model)
ts.optimizers.Cosine(0.1, 10)(3)|ts.clip_grad_norm(model, 1.0)|ts.accumulate_gradients(2)
ts.monitor_numerics(step)|ts.fault_tolerant(2, on=(OSError,), every=1)|ts.set_num_threads(2)
ts.checkpoint.save(folder, keep=1, shard=1000, model=model, step=3)|ts.checkpoint.exists(folder)
ts.checkpoint(folder, every=2, keep=1)|ts.nn.Stack(make, 2, key=0)|ts.nn.Linear(3, 4, key=0)(x)
ts.nn.LayerNorm(3)(x)|ts.nn.GroupNorm(1, 3)(x)|ts.nn.BatchNorm1d(3)(x, training=True)|ts.nn.SwiGLU(3, 8, key=0)(x)
ts.nn.LSTM(3, 4, key=0)(x[None], (q[0, 0, :1], q[0, 0, :1]))|ts.nn.GRU(3, 4, key=0)(x[None])|ts.nn.RoPE()(q)
ts.nn.ALiBi()(q, q)|ts.nn.MultiHeadAttention(4, 2, key=0)(q[0])
ts.nn.FlashDecoding()(q, q, q)|ts.nn.TopKRouter(3, 2, key=0)(x)
ts.nn.Parameter(x)|model.parameters()|model.load_state_dict(model.state_dict())|model.to(ts.f32)
ts.to_mixed_precision(model, compute=ts.bf16, accumulate=ts.f32, storage=ts.bf16)|ts.scaled('block', ts.fp8_e4m3, 1)
ts.scaled('tensor').quantize(x)|ts.scaled('tensor').matmul(x, x.T)|ts.replace(model, weight=x)
ts.tree_leaves(model)|ts.grad(scalar, argnums=0, has_aux=False)|ts.hessian(scalar, 0)|ts.remat(square)
ts.vmap(square, in_axes=0, out_axes=0)|ts.saved(scalar, ts.Tensor[4, 3], target='cpu')
ts.compile(step, target='cpu', dims={'N': 4, 'D': 3})|ts.Profiler(tiles=True, host=True, every=1)
ts.profile_memory(step)|ts.why_copied(step)|ts.why_recompiled(step)|ts.manual_seed(0)|ts.random_key()
ts.accum(ts.f32)|ts.compute(ts.bf16)|ts.loss_scale(2.0)|ts.NumericalPolicy(accumulation=ts.f32, rounding='nearest')
ts.quantile(x, 0.5, axis=0)|ts.meshgrid(x[0], x[0], indexing='ij')|ts.narrow(x, 0, 0, 2)|ts.fft.fft(x, n=3, axis=-1)
ts.linalg.matrix_power(x[:3], 2)|ts.log({'loss': 1.0}, step=1)|ts.nn.rope(q, base=100.0)|ts.nn.huber(x, x, delta=1.0)
ts.range(1, 3)|ts.static_range(3)|ts.Schedule('s', block=(8,), warps=2)|ts.compile(step, arguments=(x,))|ts.devices()
ts.hvp(scalar, (x,), (x,))|ts.jvp(scalar, (x,), (x,))|ts.custom_vjp(square, nondiff_argnums=(0,))
ts.nn.buffer(default=None, init=True)|ts.checkpoint.save(folder, keep=2, w=x, step=3)|ts.function()(square)
ts.compile(mode='training')(square)|ts.effect('update')(square)|ts.numerics(fast=True)(square)
ts.autotune(space={'block': [1]})(square)|ts.remat()(square)|ts.fault_tolerant(2)(square)|ts.no_grad()(square)
"""


@ts.function
def step(x: ts.Tensor["N", "D"]):
    return x * 2


def scalar(x: Any) -> Any:
    return ts.sum(x * x)


def square(x: Any) -> Any:
    return x * x


def make(key: Any = None) -> Any:
    return ts.nn.Linear(3, 3, key=key)


def loss(model: Any, x: Any, y: Any) -> Any:
    return ts.mse(model(x), y)


def scope(folder: Path) -> dict[str, Any]:
    model, opt = ts.nn.Linear(3, 4, key=0), ts.optimizers.SGD(0.1)
    held = {
        "step": step,
        "scalar": scalar,
        "square": square,
        "make": make,
        "loss": loss,
        "ts": ts,
        "folder": str(folder),
    }
    data = [(np.ones((2, 3), np.float32), np.ones((2, 4), np.float32))]
    x, q = ts.ones((4, 3)), ts.ones((1, 2, 6, 4))
    return {**held, "model": model, "opt": opt, "state": opt.init(model), "data": data, "x": x, "q": q}


def variants(call: ast.Call, odd: Iterator[str]) -> Iterator[ast.Call]:
    """The call with each of its arguments replaced by two odd ones, left out, and misspelt; with one more, and with
    many more."""
    for kind in ("args", "keywords"):
        for i in range(len(getattr(call, kind))):
            for text in itertools.islice(odd, 2):
                made = copy.deepcopy(call)
                value = ast.parse(text, mode="eval").body
                if kind == "args":
                    made.args[i] = value
                else:
                    made.keywords[i].value = value
                yield made
            made = copy.deepcopy(call)
            del getattr(made, kind)[i]
            yield made
    for i in range(len(call.keywords)):
        made = copy.deepcopy(call)
        made.keywords[i].arg = f"{made.keywords[i].arg}_s"
        yield made
    for count in (1, 30):
        made = copy.deepcopy(call)
        made.args += [ast.Constant(None)] * count
        yield made
    yield ast.Call(call.func, call.args, [*call.keywords, ast.keyword("nonsense", ast.Constant(1))])


@pytest.mark.parametrize("text", CALLS.strip().replace("\n", "|").split("|"))
def test_no_error_of_python_comes_out(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = scope(tmp_path / "kept")
    eval(text, names)
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    wrong: list[str] = []
    for made in variants(call, itertools.cycle(ODD)):
        said = ast.unparse(ast.fix_missing_locations(made))
        try:
            eval(said, names)
        except TesseraError as e:
            assert not {d.code for d in e.diagnostics} & {"TS900"}, said
        except Exception as e:
            wrong.append(f"{said}: {type(e).__name__}: {e}")
    ts.set_num_threads(2)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ts.train(model, opt, loss, data, stepss=3)", "train has no parameter 'stepss'; did you mean 'steps'?"),
        ("opt.update(model, model, state, lr='x')", "SGD.update: lr is a number or None, not 'x'"),
        ("model(x, 3)", "the call of Linear takes 1 argument by position, not 2: (x)"),
        ("model('a')", "the call of Linear: x is a tensor, not 'a'"),
        ("model(x, bias=True)", "the call of Linear has no parameter 'bias'; bias= is given where the object is made"),
        ("ts.nn.Stack(lambda: model, 2)", "Stack: make does not take what it is called with: "),
        ("ts.nn.Stack(model, 2)", "Stack: make is a function that makes a layer, not a layer: "),
        ("ts.nn.Stack(2, make)", "Stack: make and count have changed places: "),
        ("ts.to_mixed_precision(3)", "to_mixed_precision takes a model or a @ts.function, not int"),
        ("ts.scaled('a')", "scaled: kind is 'tensor' or 'block' or 'mx', not 'a'"),
        ("ts.log('loss', 3.0)", "log(x) takes 1 argument, 2 were given; ts.log({'loss': value}) logs numbers by name"),
        ("ts.quantile(x, 2.0)", "quantile: a quantile is a fraction from 0 to 1, not 2.0"),
        ("ts.nn.LSTM(3, 4)(x[None], [1])", "the call of LSTM: state is a tuple of 2, each a tensor or None, not [1]"),
        ("ts.nn.buffer(x)", "buffer declares a field of a class"),
        ("ts.nn.buffer(nonsense=1)", "buffer has no parameter 'nonsense'"),
        ("ts.range('a')", "range: 'str' object cannot be interpreted as an integer"),
        ("ts.Schedule(block=None)", "Schedule: block is a whole number or a tuple or list, each a whole number, not "),
        ("ts.compile(step, arguments=1.5)", "compile: arguments is a dict or a tuple or list or None, not 1.5"),
        ("ts.vmap(square, in_axes=x)", "vmap: in_axes is the number of an axis, None, or a tuple, list or dict of "),
        ("ts.hvp(scalar, (x,), None)", "hvp: tangents is a tuple or list, not None"),
        ("ts.hvp(scalar, x, x)", "hvp: primals is a tuple with an entry for each argument of the function: (x,)"),
        ("ts.custom_vjp(nondiff_argnums=None)", "custom_vjp: nondiff_argnums is a whole number or a tuple or list"),
        ("ts.save(model, 'model.pt')", "save: ts.save has policies of ts.remat"),
        ("ts.devices('a')", "devices takes no arguments by position, not 1: devices()"),
        ("ts.checkpoint.save(folder, keep=2, step=x)", "save: with keep=2, step is a whole number"),
        ("ts.function()(square, 2)", "function takes 1 argument by position, not 2: function(function)"),
    ],
)
def test_what_is_said_stands_at_the_call(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TesseraError) as e:
        eval(compile(text, "entrances.py", "eval"), scope(tmp_path))
    found = e.value.diagnostics[0]
    assert (found.code, found.span.file) == ("TS105", "entrances.py")
    assert found.message.startswith(said)


@pytest.mark.parametrize("shape", [(3, 4), (3, 6, 4)])
def test_names_for_other_parts_than_a_tensor_has(shape: tuple[int, ...]) -> None:
    def unpacked(x: Any) -> Any:
        out, last = x
        return out + last

    said: list[Diagnostic] = []
    for f in (unpacked, ts.function(unpacked)):
        with pytest.raises(TesseraError) as e:
            f(ts.ones(shape))
        said.append(e.value.diagnostics[0])
    assert (said[0].code, said[0].message, said[0].span) == (said[1].code, said[1].message, said[1].span)
    assert ("nn.LSTM and nn.GRU give their last state" in said[0].message) == (len(shape) == 3)


class Recurrent(ts.nn.Module):
    def __init__(self) -> None:
        self.layers = [ts.nn.GRU(3, 4, key=0), ts.nn.LSTM(3, 4, key=0), ts.nn.MultiHeadAttention(4, 2, key=0)]

    def forward(self, x: Any, which: int) -> Any:
        out, last = self.layers[which](x)
        return out + last

    def meant(self, x: Any) -> Any:
        y = self.layers[0](x)
        first, second = y
        halves, _ = self.layers[0](x, ts.zeros((2, 4)))
        a, b = ts.split(self.layers[0](x), 2)
        return first + second + halves[0] + a[0] + b[0]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("which, name", enumerate(("GRU", "LSTM", "MultiHeadAttention")))
def test_names_for_two_results_that_get_the_rows_of_a_batch_of_two(compiled: bool, which: int, name: str) -> None:
    """PyTorch's layers give a pair: with any other batch it is an error."""
    model, x = Recurrent(), ts.ones((2, 5, 4 if which == 2 else 3))
    call = ts.function(lambda model, x: model(x, which)) if compiled else Recurrent.forward
    with pytest.warns(ts.CompilationWarning, match=f"TS102(.|\n)*{name} gives one tensor, and these names are its"):
        call(model, x) if compiled else call(model, x, which)


@pytest.mark.parametrize("compiled", [False, True])
def test_names_for_rows_that_are_meant(compiled: bool) -> None:
    model, x = Recurrent(), ts.ones((2, 5, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (ts.function(lambda model, x: model.meant(x)) if compiled else Recurrent.meant)(model, x)


def test_the_user_s_own_errors_are_as_python_has_them() -> None:
    def mine(x: Any) -> Any:
        return x.nonsense + 1

    with pytest.raises(TypeError, match="concatenate"):
        ts.tree_map(lambda a: [] + "mine", [ts.ones((2,))])  # type: ignore[operator]
    with pytest.raises(AttributeError, match="nonsense"):
        ts.nn.Sequential(mine)(ts.ones((2,)))
