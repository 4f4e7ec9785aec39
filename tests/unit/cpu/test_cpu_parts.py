"""Long programs are compiled as several texts in parallel: the same machine code, the same results."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor
from tessera.compiler import parallel
from tessera.compiler.targets.cpu.llvm import isa, jit, parts
from tessera.errors import TargetError
from tessera.runtime.code import build

X = np.random.default_rng(3).normal(size=(48, 64)).astype(np.float32)


def program() -> Any:
    @ts.function
    def several(x: Tensor["N", 64, ts.f32]):  # type: ignore[name-defined]
        y = ts.softmax(x @ x.T, axis=-1)
        for k in range(3):
            y = ts.cumsum(ts.sort(y, axis=0), axis=1) * (k + 0.5)
        return y, ts.argmax(y, axis=0), ts.attention(x[None, None], x[None, None], x[None, None])

    return several


def text_of() -> str:
    return str(ts.compile(program(), arguments=(X,), target="cpu").artifact.source)


def names(text: str) -> list[str]:
    return re.findall(r"^define .*?@([\w.]+)\(", text, re.MULTILINE)


def test_each_function_is_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LEAST", 4000)
    text = text_of()
    texts = parts.divided(text)
    assert 3 < len(texts) <= parts.MOST
    assert sorted(name for part in texts for name in names(part)) == sorted(names(text))
    assert len(parts.divided("\n".join(texts[0].splitlines()[:3]))) == 1
    assert parts.divided(text) == texts


@pytest.mark.parametrize("profile", [False, True])
def test_results_are_those_of_one_text(profile: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        build.forget()
        f = program()
        if profile:
            with ts.profiler():
                return [np.asarray(r) for r in f(X)]
        return [np.asarray(r) for r in f(X)]

    monkeypatch.setenv("TESSERA_CACHE_SIZE", "0")
    want = run()
    objects: list[int] = []
    load = jit.Loaded.__init__

    def counting(self: Any, *codes: bytes, **options: Any) -> None:
        objects.append(len(codes))
        load(self, *codes, **options)

    monkeypatch.setattr(parts, "LEAST", 4000)
    monkeypatch.setattr(jit.Loaded, "__init__", counting)
    found = run()
    assert max(objects) > 3
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, want, strict=True))


def test_threads_that_compile_at_once_make_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_text = getattr(jit._object, "__wrapped__", jit._object)  # what earlier runs have kept is not looked for
    monkeypatch.setattr(parts, "LEAST", 4000)
    texts = parts.divided(text_of())
    want = [compile_text(t, isa.host(), "x") for t in texts]
    monkeypatch.setenv("TESSERA_NUM_THREADS", "6")
    calls = [lambda t=t: compile_text(t, isa.host(), "x") for t in texts * 3]
    assert parallel.in_parallel(calls) == want * 3


def test_the_first_error_in_order_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NUM_THREADS", "3")
    begun = threading.Barrier(3)

    def fail(i: int) -> int:
        begun.wait(60)
        raise ValueError(f"call {i}")

    with pytest.raises(ValueError, match="call 0"):
        parallel.in_parallel([lambda i=i: fail(i) for i in range(3)])
    assert parallel.in_parallel([lambda i=i: i * i for i in range(20)]) == [i * i for i in range(20)]
    with pytest.raises(TargetError, match="TS603"):
        jit.compile_objects("define void @f() #0 {\n  nonsense\n}\n", isa.host(), "f")


def test_each_part_has_the_internal_functions_that_it_calls() -> None:
    own = "define internal void @own(ptr %p) #0 { ret void }\n"

    def calling(name: str, called: str) -> str:
        calls = f"  call void @{called}(ptr %p)\n" * 9000
        return f"define void @{name}(ptr %p) #0 {{\nentry:\n{calls}  ret void\n}}\n"

    functions = [calling("a", "own"), calling("b", "own"), calling("c", "a")]
    texts = parts.divided(own + "".join(functions) + "attributes #0 = { nounwind }\n")
    assert len(texts) > 2
    for text in texts:
        assert text.count(own) == ("call void @own" in text)
        jit.compile_object(text, isa.host(), "parts")
