"""What people look for and Tessera does not have says what there is instead; so do files that are not profiles."""

from __future__ import annotations

import functools
import json
import linecache

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32
from tessera.language import absent


@ts.function
def model(x: Tensor["N", f32]):
    return x * 2.0


@ts.kernel
def copied(x: Tensor["N", f32], y: Tensor["N", f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[i] = x[i]


@pytest.mark.parametrize("program", [model, copied])
def test_programs_name_what_there_is_instead(program):
    with pytest.raises(AttributeError, match=r"'export'; ts\.compile\(f, \.\.\.\)\.save"):
        _ = program.export
    with pytest.raises(AttributeError, match=r"'grad'; ts\.grad\(f\) makes the function"):
        _ = program.grad
    with pytest.raises(AttributeError, match=f"{program.kind} '{program.name}' has no attribute 'nonsense'$"):
        _ = program.nonsense
    assert not hasattr(program, "__array__")


def test_what_is_named_instead_exists(tmp_path):
    compiled = ts.compile(model, dims={"N": 8})
    assert compiled.save(tmp_path) and compiled.ir("graph") and compiled.source


def test_the_package_names_what_there_is_instead():
    for name, why in (
        ("backward", r"ts\.grad\(f\)"),
        ("Module", "ts.nn has modules"),
        ("serving", "no server"),
        ("pmap", "ts.distributed"),
        ("float", r"the dtype is ts\.f32$"),
        ("long", r"the dtype is ts\.int64$"),
        ("from_numpy", r"ts\.asarray"),
    ):
        with pytest.raises(AttributeError, match=why):
            getattr(ts, name)
    for package, name, why in (
        (ts.nn, "ModuleList", "a field may be a list"),
        (ts.nn, "TransformerEncoderLayer", "EncoderLayer"),
        (ts, "cuda", r"ts\.devices\(\)"),
        (ts, "fori_loop", r"for i in ts\.range\(n\)"),
        (ts, "program_id", r"in kernels it is ts\.tile\.program_id"),
        (ts.nn, "GRUCell", r"x\[:, None\], state"),
        (ts.linalg, "eig", "NumPy and SciPy"),
        (ts, "tree_flatten", r"ts\.tree_leaves\(tree\)"),
        (ts, "ravel_pytree", r"ts\.tree_ravel"),
        (ts, "functional_call", r"lambda model: loss\(model, x\)"),
        (ts.nn.init, "xavier_uniform_", "glorot_uniform"),
        (ts.optimizers, "StepLR", "a function of the step"),
    ):
        with pytest.raises(AttributeError, match=f"has no attribute {name!r}; .*{why}"):
            getattr(package, name)


@pytest.mark.parametrize(
    "text, match",
    [
        ("x.float()", r"'float'; write x\.to\(ts\.f32\)"),
        ("x.add_(1)", r"x = x\.add\(\.\.\.\) is another tensor; x\[\.\.\.\] = x\.add\(\.\.\.\) stores"),
        ("ts.cross_entropy(ts.ones((2, 3, 4)), ts.zeros((2, 4), ts.int64))", r"moveaxis\(logits, 1, -1\)"),
        (
            "x.scatter_add(0, ts.argmax(x), x)",
            r"PyTorch.s x\.scatter_add\(0, index, source\) is x",
        ),
        ("x.index_add(0, ts.argmax(x), x)", r"x \+ ts\.segment_sum\(rows, indices, len\(x\)\) adds rows"),
        ("ts.gelu(x, approximate='tanh')", r"ts\.gelu_tanh is the approximation"),
        ("ts.softplus(x, beta=2.0)", r"ts\.softplus\(beta \* x\) / beta"),
        ("ts.tensordot(x, x, dims=1)", r"it is axes="),
        ("x.unfold(0, 2, 1)", r"sliding_window_view"),
        ("ts.attention(x, x, x, attn_mask=x)", r"no parameter 'attn_mask'; it is mask="),
        ("ts.scaled_dot_product_attention(x, x, x, is_causal=True)", r"no parameter 'is_causal'; it is causal="),
        ("ts.cross_entropy(ts.ones((2, 3)), ts.zeros((2,), ts.int64), dim=1)", r"moveaxis\(logits, 1, -1\)"),
        ("x.zero_()", r"x = ts\.zeros_like\(x\)"),
        ("ts.relu(x, inplace=True)", r"no parameter 'inplace'; results are new"),
        ("ts.zeros(3, device='cuda')", r"no parameter 'device'; a function runs where its arguments are"),
        ("x.size(-1)", r"x\.size is the number of elements, x\.shape\[i\]"),
        ("x.view(-1).backward()", r"ts\.grad\(f\)"),
        ("ts.nn.functional.relu(x)", r"functions are those of ts"),
        ("ts.ones(3, 3)", r"a shape of several axes is a tuple"),
        ("x.gather(0, ts.argmax(x))", r"take_along_axis\(x, indices, axis=-1\)"),
    ],
)
def test_functions_of_other_libraries_inside_of_functions(text, match):
    with pytest.raises(ts.TesseraError, match=match):
        ts.function(functions(text))(np.ones(3, np.float32))


def functions(text):
    file = f"<other library: {text}>"
    source = f"def f(x):\n    return {text}\n"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"ts": ts}
    exec(compile(source, file, "exec"), scope)
    return scope["f"]


def test_attributes_of_other_libraries():
    model, rule = ts.nn.MLP(4, 8, key=0), ts.optimizers.AdamW(1e-3)
    for owner, name, why in (
        (ts.Tensor([1.0]), "float", r"x\.to\(ts\.f32\)"),
        (ts.Tensor([1.0]), "zero_", r"x = ts\.zeros_like\(x\)"),
        (ts.Tensor([1.0]), "fill_", r"x = ts\.full_like\(x, value\)"),
        (ts.Tensor([1.0]), "mul_", r"x = x\.mul\(\.\.\.\) is another tensor; x\[\.\.\.\] = x\.mul"),
        (ts.Tensor([1.0], requires_grad=True), "data", r"write x\.detach\(\); x\[\.\.\.\] = y stores"),
        (model, "eval", r"leave it out: ts\.train trains dropout"),
        (rule, "step", r"opt\.update\(model, gradient, state\)"),
        (rule, "zero_grad", r"AdamW\(model\.parameters\(\), lr=1e-3\) holds them"),
    ):
        with pytest.raises(AttributeError, match=f"no attribute {name!r}; .*{why}"):
            getattr(owner, name)
        assert not hasattr(owner, "nonsense")
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*no parameter 'inplace'; results are new"):
        ts.relu(ts.ones((3,)), inplace=True)
    with pytest.raises(ts.LaunchError, match=r"(?s)TS356.*an optimizer of model\.parameters\(\) makes those"):
        ts.mean(model(ts.ones((2, 4)))).backward()
    with pytest.raises(
        ts.LaunchError, match=r"(?s)TS105.*normal: shape and key have changed places: normal\(shape, key="
    ):
        ts.nn.init.normal(0, (3, 4))


def test_names_that_exist_are_not_said_to_be_absent():
    """The table is cleared when the thing itself comes."""
    known = set(dir(ts))
    assert not known & set(absent._OF_PACKAGE)
    assert not set(dir(ts.nn)) & set(absent._OF_NN)
    assert not set(vars(ts.nn.init)) & set(absent._OF_INIT)
    assert not set(dir(ts.optimizers)) & set(absent._OF_OPTIMIZERS)
    for name in absent._OF_PROGRAM:
        assert name not in dir(type(model)), name
    assert not set(dir(ts.nn.Module)) & set(absent._OF_MODULE)
    assert set(dir(ts.optimizers.AdamW)) & set(absent._OF_OPTIMIZER) == {"init", "update"}  # others lack them


@pytest.mark.parametrize(
    "content", [json.dumps({"traceEvents": []}).encode(), b"", b"PK\x03\x04", np.arange(3).tobytes()]
)
def test_files_that_are_no_profiles(tmp_path, content):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(ts.TesseraError) as raised:
        ts.Profiler.load(path)
    said = str(raised.value)
    assert raised.value.code == "TS701" and "not a profile that prof.save(path) wrote" in said and "perfetto" in said
    assert "pickle" not in said
    with pytest.raises(ts.TesseraError, match="cannot be read: Is a directory"):
        ts.Profiler.load(tmp_path)


@pytest.mark.parametrize("dtypes", [("int32",) * 3, ("float32", "float32", "int32"), ("float16", "float32", "float32")])
def test_the_library_blames_what_it_was_given(dtypes):
    q, k, v = (np.ones((2, 8, 4), d) for d in dtypes)
    with pytest.raises(ts.CompileError) as raised:
        ts.kernels.attention_safe(q, k, v)
    (found,) = raised.value.diagnostics
    assert found.span.file == __file__ and "attention_safe with these arguments" in found.message
    assert "one float dtype" in found.message and not found.notes


def test_idioms_of_pytorch():
    w = ts.tensor([1.0, 2.0], requires_grad=True)
    ts.sum(w * w).backward()
    assert w.grad.tolist() == [2, 4] and not ts.tensor(w).requires_grad
    with pytest.raises(ts.LaunchError, match=r"TS105(.|\n)*ts\.checkpoint\.save"):
        ts.save({}, "model.pt")
    with pytest.raises(ts.LaunchError, match=r"(?s)TS105.*write a list of layers for num_layers="):
        ts.nn.LSTM(4, 8, num_layers=2, key=0)


def test_a_model_is_no_function():
    for given in (ts.nn.Linear(2, 2, key=0), functools.partial(len, [])):
        with pytest.raises(ts.CompileError, match=r"(?s)TS109.*lambda model, x: model\(x\)"):
            ts.function(given)


TRITON = {
    "ts.tile.load(x + i, mask=i < N)": r"TS406(.|\n)*there are no pointers: x\[i\], x\[i : i \+ 32\]",
    "ts.tile.make_block_ptr(x)": r"TS104(.|\n)*there are no pointers",
    "ts.tile.atomic_add(x, 1.0)": "TS104(.|\n)*programs add up what they have with ts.tile.reduce_across",
    "ts.tile.multiple_of(N, 16)": "TS104(.|\n)*write assert N % 16 == 0",
    "ts.tile.debug_barrier()": "TS104(.|\n)*barriers are inserted",
    "ts.tile.math.exp(x[i])": "TS104(.|\n)*its functions are those of ts.tile: ts.tile.exp",
    "ts.tile.threadIdx.x": r"TS104(.|\n)*ts.tile.program_id\(axis\) numbers programs",
}


@pytest.mark.parametrize("habit", TRITON)
def test_habits_of_triton(habit, tmp_path):
    file = tmp_path / "habit.py"
    file.write_text(
        "import tessera as ts\nfrom tessera import Tensor\n\n\n@ts.kernel\n"
        'def kernel(x: Tensor["N", ts.f32], y: Tensor["N", ts.f32]):\n'
        f"    i = ts.tile.linear_id()\n    if i < N:\n        y[i] = x[i]\n    z = {habit}\n"
    )
    scope: dict[str, object] = {}
    exec(compile(file.read_text(), file, "exec"), scope)
    with pytest.raises(ts.CompileError, match=TRITON[habit]):
        scope["kernel"](np.ones(64, np.float32), np.ones(64, np.float32))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ts.normalize(x, dim=1) - ts.normalize(x, axis=1),
        lambda x: ts.cosine_similarity(x, 2 - x, dim=0) - ts.cosine_similarity(x, 2 - x, axis=0),
        lambda x: ts.quantile(x, 0.5, dim=1, keepdim=True) - ts.quantile(x, 0.5, axis=1, keepdims=True),
        lambda x: ts.linalg.norm(x, dim=1, keepdim=True) - ts.linalg.norm(x, axis=1, keepdims=True),
        lambda x: ts.triu(x, diagonal=1) - ts.triu(x, k=1),
        lambda x: ts.one_hot(x.to(ts.int64), num_classes=9) - ts.one_hot(x.to(ts.int64), 9),
        lambda x: ts.linspace(0, 1, steps=4) - ts.linspace(0, 1, 4),
        lambda x: ts.leaky_relu(x - 3, negative_slope=0.2) - ts.leaky_relu(x - 3, 0.2),
    ],
)
def test_parameters_have_pytorchs_names_too(call):
    """Of operators, and of functions that are made of them."""
    x = ts.Tensor(np.arange(1, 7, dtype=np.float32).reshape(2, 3))
    for found in (call(x), ts.function(call)(x)):
        assert not np.asarray(found).any()
