"""What people do wrong, and what goes wrong around them: a coded message without our frames, then a good call works."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tessera as ts
from tessera import knobs
from tessera.errors import TesseraError

X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
FRAMES = ("Traceback", "site-packages", "/tessera/compiler/", "/tessera/runtime/")


@ts.function
def scaled(x: ts.Tensor["B", "D", ts.f32], y: ts.Tensor["D", ts.f32]):
    return x * 2 + y


@ts.function
def added(x, y):
    return x + y


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y


def good() -> None:
    np.testing.assert_array_equal(scaled(X, Y), X * 2 + Y)


def refused(call: Callable[[], Any], code: str, *said: str) -> None:
    with pytest.raises(TesseraError) as error:
        call()
    text = str(error.value)
    assert code in [d.code for d in error.value.diagnostics], text
    assert all(s in text for s in said), text
    assert not any(f in text for f in FRAMES), text
    good()


def frozen() -> Any:
    a = np.ones(3, np.float32)
    a.flags.writeable = False
    return a


def huge(n: int = 2**40) -> Any:
    return np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (n,), (0,))


# Arguments

ARGUMENTS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "size": (lambda: scaled(X, np.ones(4, np.float32)), "TS208", "D is 3"),
    "rank": (lambda: scaled(Y, Y), "TS209", "1 axis"),
    "dtype": (lambda: scaled(X.astype(np.float64), Y), "TS304", "astype(np.float32)"),
    "big-endian": (lambda: scaled(X.astype(">f4"), Y), "TS501", "foreign order"),
    "objects": (lambda: added(np.array([1, None]), Y), "TS501", "Python object"),
    "text": (lambda: added(np.array(["a"]), Y), "TS501", "text"),
    "list": (lambda: scaled(X.tolist(), Y), "TS501", "np.asarray"),
    "list without annotation": (lambda: added([1.0, 2.0, 3.0], Y), "TS105", "a list"),
    "None": (lambda: scaled(None, Y), "TS501", "None"),
    "masked": (lambda: added(np.ma.array(Y, mask=[0, 1, 0]), Y), "TS501", "filled"),
    "device": (lambda: added(torch.ones(3, device="meta"), Y), "TS504", "meta"),
    "missing": (lambda: scaled(X), "TS105", "'y'"),
    "too many": (lambda: scaled(X, Y, Y), "TS105", "too many"),
    "unknown keyword": (lambda: scaled(X, Y, z=Y), "TS105", "'z'"),
    "scalar": (lambda: saxpy(Y, Y.copy(), "2"), "TS501", "alpha must be a number"),
    "read-only in place": (lambda: saxpy(Y, frozen(), 1.0), "TS503", "read-only"),
    "strided in place": (lambda: saxpy(Y, np.ones(6, np.float32)[::2], 1.0), "TS503", "not contiguous"),
    "broadcast in place": (lambda: saxpy(huge(), huge(), 1.0), "TS503", "strides [0]"),
    "overlapping in place": (lambda: saxpy(X.reshape(-1)[1:4], X.reshape(-1)[:3], 1.0), "TS507", "overlap in part"),
    "huge input": (lambda: added(huge(), huge()), "TS505", "4 TiB"),
    "huge result": (lambda: ts.function(lambda x: x[:, None] * x)(huge(2**30)), "TS505", "PiB"),
    "huge creation": (lambda: ts.zeros((2**50,)), "TS505", "PiB"),
    "negative size": (lambda: ts.zeros((-1,)), "TS213", "negative"),
    "target": (lambda: ts.compile(scaled, target="sm_13"), "TS601", "sm_13"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str) -> None:
    call, code, said = ARGUMENTS[name]
    refused(call, code, said)


@pytest.mark.parametrize(
    "x",
    [
        np.asfortranarray(X),
        np.repeat(X, 2, 1)[:, ::2],
        X[::-1, ::-1],
        X[:1].repeat(2, 0),
        np.broadcast_to(X[:1], (2, 3)),
    ],
    ids=["fortran", "strided", "reversed", "copied", "broadcast"],
)
def test_inputs_of_any_layout(x: Any) -> None:
    np.testing.assert_array_equal(scaled(x, frozen()), x * 2 + 1)


# Programs


def _try(x: Any) -> Any:
    try:
        return x + 1
    except ValueError:
        return x


def _global(x: Any) -> Any:
    global COUNTER
    COUNTER = 2
    return x


def _nonlocal(x: Any) -> Any:
    n = 1

    def inner() -> None:
        nonlocal n
        n = 2

    inner()
    return x * n


def _match(x: Any) -> Any:
    match 3:
        case 3:
            return x


def _import(x: Any) -> Any:
    import math

    return x * math.pi


def _recursion(x: Any) -> Any:
    return _recursion(x) + 1


def _unknown(x: Any) -> Any:
    return x + undefined_name


def _store(x: Any) -> Any:
    x[0] = 1
    return 2.0


def _class(x: Any) -> Any:
    class Inner:
        pass

    return x


def _attribute(x: Any) -> Any:
    return x.expp()


def _generator(x: Any) -> Any:
    yield x


async def _async(x: Any) -> Any:
    return x


def _deleted(x: Any) -> Any:
    y = x + 1
    del y
    return y


def _raising(x: Any) -> Any:
    raise ValueError("not today")


def _endless(x: Any) -> Any:
    while True:
        x = x + 1
    return x


def _branching(x: Any) -> Any:
    if x > 0:
        return x
    return -x


PROGRAMS = {
    _try: "TS102", _global: "TS102", _nonlocal: "TS102", _match: "TS102", _import: "TS102", _class: "TS102",
    _generator: "TS102", _async: "TS102", _store: "TS102", _endless: "TS111", _recursion: "TS108",
    _unknown: "TS103", _deleted: "TS110", _attribute: "TS104", _raising: "TS107", _branching: "TS213",
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_programs(program: Any) -> None:
    refused(lambda: ts.function(program)(Y), PROGRAMS[program], Path(__file__).name)


def test_names_that_tessera_has_not() -> None:
    with pytest.raises(AttributeError, match="did you mean 'softmax'"):
        ts.sofmax
    assert {"softmax", "kernel", "f32", "__version__"} <= set(dir(ts))


# Values


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_nan_and_infinity(target: str) -> None:
    nan, inf = np.nan, np.inf
    x = np.array(
        [[1, nan, 3, 4], [inf, 0, 1, 2], [-inf, 1, -inf, 2], [-inf, -inf, -inf, -inf], [5, 5, 5, 5]], np.float32
    )
    t = torch.from_numpy(x)
    wanted: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "softmax": (lambda x: ts.softmax(x, axis=-1), t.softmax(-1)),
        "log_softmax": (lambda x: ts.log_softmax(x, axis=-1), t.log_softmax(-1)),
        "max": (lambda x: ts.max(x, axis=1), t.amax(1)),
        "min": (lambda x: ts.min(x, axis=1), t.amin(1)),
        "argmax": (lambda x: ts.argmax(x, axis=1), t.argmax(1)),
        "argmin": (lambda x: ts.argmin(x, axis=1), t.argmin(1)),
        "layer_norm": (lambda x: ts.layer_norm(x), torch.nn.functional.layer_norm(t, (4,))),
        "where": (lambda x: ts.where(x > 0, x, 0.0), t.where(t > 0, torch.tensor(0.0))),
        "relu": (lambda x: ts.relu(x), t.relu()),
        "logsumexp": (lambda x: ts.logsumexp(x, axis=1), t.logsumexp(1)),
        "maximum": (lambda x: ts.maximum(x, 2.0), t.maximum(torch.tensor(2.0))),
    }
    with knobs.target.override(target):
        for name, (program, want) in wanted.items():
            np.testing.assert_allclose(ts.function(program)(x), want.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


NOTHING: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "map": (lambda x: ts.exp(x) * 2, lambda x: x),
    "sum": (lambda x: ts.sum(x, axis=0), lambda x: x.sum(0)),
    "sum all": (lambda x: ts.sum(x), lambda x: x.sum()),
    "mean": (lambda x: ts.mean(x), lambda x: np.float32(np.nan)),
    "prod": (lambda x: ts.prod(x), lambda x: x.prod()),
    "any": (lambda x: ts.any(x > 0, axis=1), lambda x: (x > 0).any(1)),
    "logsumexp": (lambda x: ts.logsumexp(x), lambda x: np.float32(-np.inf)),
    "cumsum": (lambda x: ts.cumsum(x, axis=1), lambda x: x),
    "matmul": (lambda x: x @ x.T, lambda x: x @ x.T),
    "turned matmul": (lambda x: x.T @ x, lambda x: x.T @ x),
    "softmax": (lambda x: ts.softmax(x, axis=1), lambda x: x),
    "softmax of columns": (lambda x: ts.softmax(x, axis=0), lambda x: x),
    "layer_norm": (lambda x: ts.layer_norm(x), lambda x: x),
    "concat": (lambda x: ts.concat([x, x], axis=1), lambda x: np.concatenate([x, x], 1)),
    "pad": (lambda x: ts.pad(x, ((1, 1), (1, 1))), lambda x: np.pad(x, 1)),
    "flip": (lambda x: ts.flip(x, 0).T, lambda x: x.T),
    "reshape": (lambda x: x.reshape(-1), lambda x: x.reshape(0)),
    "attention": (lambda x: ts.attention(x[None], x[None], x[None]), lambda x: x[None]),
}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", NOTHING)
def test_zero_sizes(name: str, target: str) -> None:
    program, want = NOTHING[name]
    with knobs.target.override(target):
        for shape in ((0, 3), (3, 0)):
            x = np.zeros(shape, np.float32)
            np.testing.assert_array_equal(ts.function(program)(x), want(x))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extremes_of_nothing_are_refused(name: str) -> None:
    refused(lambda: getattr(ts, name)(np.zeros((0, 3), np.float32), axis=0), "TS213", "no elements")


# Settings and the machine


@pytest.mark.parametrize(
    "variable, value",
    [
        ("TESSERA_NUM_THREADS", "many"),
        ("TESSERA_NUM_THREADS", "0"),
        ("TESSERA_CACHE_SIZE", "large"),
        ("TESSERA_DEBUG", "perhaps"),
    ],
)
def test_settings(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    knob = next(k for k in knobs.KNOBS if k.variable == variable)
    monkeypatch.setenv(variable, value)
    with pytest.raises(TesseraError, match=f"TS607.*\n.*{variable}='{value}'"):
        knob()
    monkeypatch.undo()
    good()


PROGRAM = """
import numpy as np, tessera as ts

@ts.function
def program(x):
    return ts.gelu(x) * 2 + ts.sum(x)

x = np.arange(5, dtype=np.float32)
"""


def script(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM + textwrap.dedent(text))
    return [sys.executable, str(file)]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TESSERA_CACHE_DIR": str(tmp_path / "cache"), **more}


def finish(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_ctrl_c_while_compiling(tmp_path: Path) -> None:
    text = """
    import tessera.compiler.pipeline as pipeline, signal, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    from tessera.compiler.extensions import Pass
    passes = pipeline.PASSES
    def slow(func):
        print("compiling", flush=True)
        time.sleep(600)
    pipeline.PASSES = (Pass("slow", "graph", slow), *passes)
    try:
        program(x)
    except KeyboardInterrupt:
        print("interrupted")
    pipeline.PASSES = passes
    print("then", program(x).shape)
    """
    process = subprocess.Popen(
        script(tmp_path, text), env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "compiling\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0 and out == "interrupted\nthen (5,)\n", err


def test_a_full_disk(tmp_path: Path) -> None:
    text = f"""
    import os, warnings
    from pathlib import Path
    def full(*args, **kwargs):
        raise OSError({errno.ENOSPC}, "No space left on device")
    Path.write_bytes = Path.write_text = os.replace = os.link = full
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(program(x).shape, program(x[:3]).shape)
    print([str(w.message) for w in caught])
    """
    out = finish(script(tmp_path, text), environment(tmp_path))
    assert out.startswith("(5,) (3,)") and "TS606" in out and "Traceback" not in out


def test_a_cache_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    out = finish(script(tmp_path, "print(program(x).shape)"), environment(tmp_path))
    assert "(5,)" in out and "TS606" in out and "Traceback" not in out


def test_damaged_entries(tmp_path: Path) -> None:
    command, env = script(tmp_path, "print(program(x).tolist())"), environment(tmp_path)
    want = finish(command, env)
    files = [f for f in (tmp_path / "cache").rglob("*") if f.is_file()]
    assert files
    for f in files:
        f.chmod(0o600)
        f.write_bytes(f.read_bytes()[: f.stat().st_size // 2] + b"\xff\x00damage")
    assert finish(command, env).splitlines()[0] == want.splitlines()[0]


def test_two_processes_compile_the_same_at_once(tmp_path: Path) -> None:
    command, env = script(tmp_path, "print(program(x).tolist())"), environment(tmp_path)
    running = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in "ab"
    ]
    results = [p.communicate(timeout=200) for p in running]
    assert results[0][0] == results[1][0] != ""
    assert results[0][1] == results[1][1] == ""


def test_killed_at_any_moment(tmp_path: Path) -> None:
    command, env = script(tmp_path, "print('ready', flush=True)\nprint(program(x).tolist())"), environment(tmp_path)
    for delay in (0.0, 0.02, 0.06):
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.kill()
        process.communicate(timeout=200)
    assert finish(command, env).startswith("ready\n[")


HOOK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Absent())
try:
    {call}
except ts.TesseraError as e:
    print(type(e).__name__, e)
print(ts.devices() is not None, end="")
"""


@pytest.mark.parametrize(
    "names, call, said",
    [
        (["llvmlite"], "program(x)", ("MissingDependency", "TS604", "llvmlite", "pip install")),
        (["cuda", "nvidia", "cupy"], "ts.compile(program, target='sm_80', arguments=[x])", ("TS604", "tessera[cuda]")),
        (["cupy"], "ts.asarray(x, device='cuda')", ("CuPy",)),
    ],
    ids=["llvmlite", "nvrtc", "cupy"],
)
def test_missing_libraries(names: list[str], call: str, said: tuple[str, ...], tmp_path: Path) -> None:
    out = finish(script(tmp_path, HOOK.format(names=set(names), call=call)), environment(tmp_path))
    assert all(s in out for s in said) and "Traceback" not in out, out


def test_missing_compiler(tmp_path: Path) -> None:
    call = "program(x)"
    env = environment(tmp_path, TESSERA_TARGET="emulator:sm_80", PATH=str(tmp_path), CXX="")
    out = finish(script(tmp_path, HOOK.format(names={"none"}, call=call)), env)
    assert "TS60" in out and "compiler" in out and "Traceback" not in out, out


def test_an_unknown_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_TARGET", "abacus")
    with pytest.raises(TesseraError, match="TS601") as error:
        scaled(X, Y)
    assert "abacus" in str(error.value)
    monkeypatch.undo()
    good()


def test_a_fault_of_a_pass_is_said_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from tessera.compiler import pipeline
    from tessera.compiler.extensions import Pass

    def broken(func: Any) -> None:
        raise KeyError("inside")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "PASSES", (Pass("broken", "graph", broken),))
        with pytest.raises(TesseraError, match="TS900"):
            ts.function(lambda x: x * 3)(X)
    good()


def test_a_fault_of_a_target_is_said_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from tessera.compiler.targets import base

    target = base.get("cpu")

    def broken(*args: Any, **options: Any) -> Any:
        raise KeyError("inside")

    with monkeypatch.context() as patch:
        patch.setattr(type(target), "compile", broken)
        with pytest.raises(TesseraError, match="TS900") as error:
            ts.function(lambda x: x * 5)(X)
        assert "for cpu failed: KeyError" in str(error.value)
    good()
