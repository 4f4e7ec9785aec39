"""Layers, optimizers and trainings with settings of every odd kind: each is refused with a code, at the call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.errors import Diagnostic, TesseraError, register_source

GOOD: dict[str, Any] = {
    **dict.fromkeys(("inputs", "outputs", "channels", "input_size", "hidden_size", "heads", "groups"), 2),
    **dict.fromkeys(
        ("features", "hidden", "rows", "layers", "experts", "count", "pages", "page", "batch", "kernel"), 4
    ),
    "make": lambda key=None: ts.nn.Dropout(),
    "shape": (3, 4),
    "window": 3,
    **dict.fromkeys(("lr", "value", "start", "end", "peak", "factor", "most", "max_norm"), 0.5),
    **dict.fromkeys(("steps", "warmup", "seed"), 8),
    "matches": lambda name, p: True,
    "schedules": (ts.optimizers.Constant(0.1), ts.optimizers.Constant(0.2)),
    "at": (3,),
    "key": 0,
}
"""arguments for parameters without a default, by name: a new name needs one"""
MORE: dict[Any, dict[str, Any]] = {ts.nn.KVCache: dict.fromkeys(("B", "H", "S_max", "D_h"), 2)}
NEGATIVE = {"key", "scale", "seed"}
"""numbers that may be below 0"""
UNCHECKED = {
    *("Module", "Parameter", "buffer", "rope", "alibi", "StatefulObject", "MixedPrecision", "Optimizer"),
    *(
        "tree_ravel",
        "OptimizerState",
        "StepReport",
        "TrainingState",
        "BoundOptimizer",
        "accumulate",
        "chain",
        "clip_grad_norm",
    ),
}
"""what has no settings, takes tensors, or is made by others"""


def layers() -> Iterator[Any]:
    for name, home in ts.nn._HOME.items():
        if home not in ("losses", "stable", "fused", "optimizers") and name not in UNCHECKED:
            yield pytest.param(getattr(ts.nn, name), id=name)


def initial_values() -> Iterator[Any]:
    for name, found in vars(ts.nn.init).items():
        if inspect.isfunction(found) and not name.startswith("_") and found.__module__ == "tessera.nn.init":
            yield pytest.param(found, id=f"init.{name}")


def optimizers() -> Iterator[Any]:
    for name in ts.optimizers.__all__:
        if name not in UNCHECKED:
            yield pytest.param(getattr(ts.optimizers, name), id=f"optimizers.{name}")


PUBLIC = [*layers(), *initial_values(), *optimizers(), pytest.param(ts.manual_seed, id="manual_seed")]


def odd(p: inspect.Parameter) -> Iterator[Any]:
    """Values that a parameter with this annotation does not take."""
    said = str(p.annotation)
    kinds = {kind for kind in ("int", "float", "bool", "str", "Literal", "Callable", "tuple") if kind in said}
    if not kinds and p.name != "dtype":
        return
    yield from (object(), 1j, {"a": 1}, b"x")
    if "None" not in said:
        yield None
    if not kinds & {"str"}:
        yield "nonsense"
    if p.name == "dtype":
        yield from (ts.int32, 3) if said == "Any" else (3,)
        return
    if kinds & {"int", "float"}:
        yield from (math.nan, True, [1, "x"])
        yield from () if p.name in NEGATIVE or str(p.default).startswith("-") else (-1, -math.inf)
    elif "Callable" not in kinds:
        yield from (2.5, 7)
    if "int" in kinds and "float" not in kinds:
        yield from (2.5, math.inf, np.float32(1.5), 2.0)


def given(f: Callable[..., Any]) -> tuple[dict[str, Any], list[inspect.Parameter]]:
    """Arguments that fit, and the parameters that are tried."""
    every = [p for p in inspect.signature(f).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {p.name: GOOD[p.name] for p in every if p.default is p.empty} | MORE.get(f, {}), every


def refusal(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Diagnostic | str:
    try:
        made = call(*args, **kwargs)
    except TesseraError as e:
        found = e.diagnostics[0]
        return found if found.code == "TS105" and found.span.file == __file__ else f"not at the call: {e}"
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return f"silence: {made!r}"


@pytest.mark.parametrize("f", PUBLIC)
def test_odd_settings_are_refused_at_the_call(f: Any) -> None:
    fits, every = given(f)
    f(**fits)
    wrong: list[str] = []
    for p in every:
        for value in odd(p):
            said = refusal(f, **{**fits, p.name: value})
            if not isinstance(said, Diagnostic) or p.name not in said.message:
                wrong.append(f"{p.name}={value!r}: {said}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("f", PUBLIC)
def test_arguments_that_no_parameter_takes_are_refused_at_the_call(f: Any) -> None:
    fits, every = given(f)
    kinds = {p.kind for p in inspect.signature(f).parameters.values()}
    said = [refusal(f, **{n: v for n, v in fits.items() if n != name}) for name in fits]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        said += [refusal(f, **fits, nonsense=1)]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        said += [refusal(f, *[2] * 30)]
    slip = next((p.name for p in reversed(every) if len(p.name) > 3), None)
    if slip and inspect.Parameter.VAR_KEYWORD not in kinds:
        other = {n: v for n, v in fits.items() if n != slip}
        said.append(found := refusal(f, **other, **{f"{slip}s": 1}))
        assert isinstance(found, Diagnostic), found
        assert f"did you mean {slip!r}?" in found.message
    wrong = [s for s in said if not isinstance(s, Diagnostic)]
    assert not wrong, "\n".join(map(str, wrong))


def test_numbers_of_numpy_are_numbers() -> None:
    layer = ts.nn.Linear(np.int64(3), np.int32(4), key=np.int64(1), bias=np.bool_(True))
    assert layer.weight.shape == (3, 4)
    assert ts.nn.Dropout(np.float64(0.25)).p == 0.25
    pool = ts.nn.MaxPool2d(np.int64(2), padding=np.int64(0))
    assert type(pool.kernel) is int
    assert ts.nn.MultiHeadAttention(np.int64(4), 2, key=np.int64(0)).heads == 2


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ts.optimizers.AdamW(1e-3, numerics="nonsense"), "AdamW: numerics: "),
        (lambda: ts.optimizers.SGD(0.1, loss_scale=2.0, numerics=ts.loss_scale("dynamic")), "leave one of them out"),
        (lambda: ts.optimizers.chain(ts.optimizers.ClipNorm(1.0), "sgd"), "the last part is an optimizer"),
        (lambda: ts.optimizers.clip_grad_norm({"w": ts.ones((3,))}, -1.0), "max_norm is a number of at least 0"),
        (lambda: ts.optimizers.accumulate(None, {"w": ts.ones((3,))}, share="half"), "share is a number, not 'half'"),
        (lambda: ts.nn.LSTM(3, 4).initial("x"), "x is a tensor, not 'x'"),
        (lambda: ts.nn.GroupNorm(2, 3), "2 groups cannot share 3 channels"),
    ],
)  # fmt: skip
def test_what_a_function_refuses_stands_at_the_call(call: Callable[[], Any], said: str) -> None:
    found = refusal(call)
    assert isinstance(found, Diagnostic), found
    assert said in found.message


def test_an_optimizer_of_parameters_is_no_misfit_in_a_text() -> None:
    text = "import tessera as ts\n\nmodel = ts.nn.Linear(3, 4)\n"
    assert problems(text + "opt = ts.optimizers.AdamW(model.parameters(), lr=1e-3)\n") == []
    (found,) = problems(text + "opt = ts.optimizers.AdamW(model, lr=-1.0)\n")
    assert found.message == "AdamW: lr is a number of at least 0 or a function, not -1.0"


CALLS = """
ts.nn.Linear("a", 3)
ts.nn.Linear(3.5, 4)
ts.nn.Linear(-1, 4)
ts.nn.Linear(3)
ts.nn.Linear(3, 4, biass=False)
ts.nn.Linear(in_features=3, out_features=4)
ts.nn.Dropout(2.0)
ts.nn.Conv2d(3, 8, kernel="x")
ts.nn.LayerNorm(None)
ts.nn.MaxPool2d((2, 2))
ts.nn.LSTM(3, 4, 5, 6)
ts.nn.KVCache(B=2, H="x", S_max=3, D_h=4)
ts.nn.Sequential(ts.relu, "relu")
ts.nn.Linear(3, 4, dtype=ts.int32)
ts.nn.init.normal(0, (3, 4))
ts.optimizers.AdamW(lr="fast")
ts.optimizers.AdamW(1e-3, betas=0.9)
ts.optimizers.AdamW(1e-3, weight_decays=0.1)
ts.optimizers.SGD()
ts.optimizers.Cosine(1e-3, steps=10.5)
ts.optimizers.ClipNorm(None)
""".strip().splitlines()

OUTSIDE = """
ts.train(None, ts.optimizers.SGD(0.1), len, [], stpes=3)
ts.train(None, ts.optimizers.SGD(0.1), len, [], steps="many")
ts.set_num_threads("a")
ts.checkpoint.save("folder", keep="all")
ts.checkpoint.load(strict="yes")
ts.progress([], steps="x")
ts.manual_seed("a")
""".strip().splitlines()
"""functions that programs do not call"""


@pytest.mark.parametrize("call", [*CALLS, *OUTSIDE])
def test_a_text_says_what_the_run_says(call: str) -> None:
    text = f"import tessera as ts\n\nmade = {call}\n"
    (found,) = problems(text)
    register_source("settings.py", text)
    with pytest.raises(TesseraError) as e:
        exec(compile(text, "settings.py", "exec"), {})
    said = e.value.diagnostics[0]
    assert (found.code, found.message, found.span) == (said.code, said.message, said.span)


@pytest.mark.parametrize(
    "text",
    [
        "import tessera\n\ntessera.set_num_threads('a')\n",
        "from tessera import set_num_threads as threads\n\nthreads('a')\n",
        "from tessera import checkpoint as kept\n\nkept.exists(folder=3.5)\n",
        "import tessera.checkpoint as kept\n\nkept.exists(folder=3.5)\n",
        "import os, tessera as ts\n\nts.set_num_threads('a')\n",
    ],
)
def test_it_does_so_whatever_an_import_calls_it(text: str) -> None:
    assert [d.code for d in problems(text)] == ["TS105"]
    assert not problems(text.replace("'a'", "2").replace("3.5", "'folder'"))


def problems(text: str) -> list[Diagnostic]:
    analysis = FileAnalysis("settings.py")
    analysis.update(text)
    return analysis.problems


@pytest.mark.parametrize("call", CALLS)
def test_a_program_says_what_its_text_says(call: str) -> None:
    text = f"import tessera as ts\n\n\n@ts.function\ndef f(x: ts.Tensor['N']):\n    made = {call}\n    return x\n"
    (found,) = FileAnalysis("settings.py").update(text)[0].diagnostics
    scope: dict[str, Any] = {"__name__": "settings"}
    register_source("settings.py", text)
    exec(compile(text, "settings.py", "exec"), scope)
    with pytest.raises(TesseraError) as e:
        scope["f"](ts.ones((3,)))
    said = e.value.diagnostics[0]
    assert (found.code, found.message, found.span) == (said.code, said.message, said.span)


QUIET = """
import pytest
import tessera as ts


def make(width=0):
    return ts.nn.Linear(width, 3)


def with_size(sizes):
    return [ts.nn.Linear(size, 3) for size in sizes]


with pytest.raises(ts.LaunchError):
    ts.nn.Linear("a", 3)
try:
    ts.nn.Linear("a", 3)
except ts.LaunchError:
    pass


class Own(ts.nn.Module):
    size: int


Own("what users declare is theirs")
size = "a"
size = 3
ts.nn.Linear(size, 4)
"""


def test_what_may_fit_is_not_refused_in_a_text() -> None:
    assert problems(QUIET) == []


def test_layers_of_users_say_what_python_says() -> None:
    class Own(ts.nn.Module):
        size: int

        def __init__(self, size: int) -> None:
            self.size = size

    assert Own("any").size == "any"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'size'"):
        Own()  # pyright: ignore[reportCallIssue]


def test_a_base_is_given_settings_by_a_layer_of_a_user() -> None:
    class Wide(ts.nn.Linear):
        def __init__(self, inputs: int) -> None:
            super().__init__(inputs, "wide")  # type: ignore[arg-type]

    found = refusal(Wide, 3)
    assert isinstance(found, Diagnostic)
    assert found.message == "Wide: outputs is a whole number of at least 1, not 'wide'"
    assert found.span.line == inspect.getsourcelines(Wide)[1] + 2
