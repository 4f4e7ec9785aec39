"""What an emulator does not notice and a GPU does: narrow copies, rounding of ties, bytes that are counted twice."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda import cubin, nvrtc
from tessera.compiler.targets.cuda.call.narrow import narrowed
from tessera.compiler.targets.cuda.emulate import _HostMachine
from tessera.language.rounding import round_to
from tests.conftest import require
from tests.emulator import kernels as k
from tests.emulator.harness import check, run

SIZES = {"M": 128, "N": 128, "K": 128}


@ts.function
def plain(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
    return x @ w


@ts.function
def right_transposed(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["N", "K", ts.f32]):
    return x @ w.T


@ts.function
def left_transposed(x: ts.Tensor["K", "M", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
    return x.T @ w


@ts.function
def both_transposed(x: ts.Tensor["K", "M", ts.f32], w: ts.Tensor["N", "K", ts.f32]):
    return x.T @ w.T


@ts.function
def right_sliced(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]):
    return x @ w[:, :64]


@ts.function
def left_sliced(x: ts.Tensor["M", "K", ts.f32], w: ts.Tensor["N", "K", ts.f32]):
    return x[:, 64:] @ w.T[64:]


@pytest.mark.parametrize(
    "f",
    [plain, right_transposed, left_transposed, both_transposed, right_sliced, left_sliced],
    ids=lambda f: f.__name__,
)
def test_stages_of_products_are_filled_16_bytes_at_a_time(f: object) -> None:
    """However the operands lie: neighbours in memory are neighbours in the stage."""
    require("cuda.bindings")
    copies = re.findall(
        r"ts::copy_async<ts::Box<\d+, \d+>, ts::(\w+)<", ts.compile(f, target="sm_80", dims=SIZES).source
    )
    assert copies == ["Aligned", "Aligned"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_shared_memory_is_counted_once(arch: str) -> None:
    """What the system keeps of each block is not the kernel's own, as whose a cubin counts it from sm_90 on."""
    require("cuda.bindings")
    artifact = generate(k.matmul(m=128, n=128, k=128, block=(64, 64)).program, base.get(arch))
    (name,) = artifact.meta["kernels"]
    assert artifact.resources[name]["shared"] == artifact.meta["kernels"][name]["shared"] > 0


TIES = np.array([1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11, 2 - 2**-11, 1 + 2**-11 + 2**-20, 3], np.float32)
"""Half way between two numbers of tf32, but for the last two."""


@ts.function
def product_tf32(x: ts.Tensor["M", "K", ts.tf32], w: ts.Tensor["K", "N", ts.tf32]):
    return x @ w


@ts.function
def product_tf32_transposed(x: ts.Tensor["M", "K", ts.tf32], w: ts.Tensor["N", "K", ts.tf32]):
    return x @ w.T


@pytest.mark.parametrize("target", ["cpu", "reference", "emulator:sm_75", "emulator:sm_80", "emulator:sm_90a"])
def test_ties_of_tf32_go_to_even_on_every_target(target: str) -> None:
    """By threads (the first) as by tensor copies (the second, on sm_90a), which round so in hardware."""
    if target.startswith("emulator"):
        require("g++")
    sizes = {"M": 64, "K": 32, "N": 64}
    x, w = np.zeros((64, 32), np.float32), np.zeros((32, 64), np.float32)
    x[:, 0], w[0] = np.resize(TIES, 64), 1
    wanted = np.repeat(round_to(x[:, :1], ts.tf32), 64, axis=1)
    assert wanted[:2, 0].tolist() == [1.0, 1 + 2**-9]
    for f, right in ((product_tf32, w), (product_tf32_transposed, np.ascontiguousarray(w.T))):
        compiled = ts.compile(f, target=target, dims=sizes)
        np.testing.assert_array_equal(np.asarray(compiled(x, right)), wanted)
    if target == "emulator:sm_90a":
        assert "Without wgmma" not in compiled.source


def test_targets_without_instructions_of_their_own_carry_ptx_for_gpus_to_come() -> None:
    require("cuda.bindings")
    program = k.saxpy(n=100).program
    for arch in ("sm_80", "sm_100", "sm_120"):
        text = generate(program, base.get(arch)).files["code.ptx"].decode()
        assert f".target {arch}" in text and "saxpy_kernel" in text and "\0" not in text
    assert "code.ptx" not in generate(program, base.get("sm_90a")).files
    for name in ("sm_100a", "sm_100f", "sm_103", "b200"):
        assert base.get(name).name == "sm_100"
    assert base.get("sm_121").name == "sm_120"


@pytest.mark.parametrize("n", [8, 24, 40, 48, 56, 88, 136])
def test_instructions_begin_where_lines_do(n: int) -> None:
    """With n along the lines in memory; the emulator refuses a part that begins inside a line, as the library does."""
    require("g++")
    check(k.matmul(m=64, n=n, k=64, dtype=ts.bf16, block=(64, n)), "emulator:sm_90a", (0,))


def test_debug_builds_do_not_wait_for_ever() -> None:
    require("cuda.bindings")
    program = k.matmul(m=64, n=64, k=64, dtype=ts.bf16, block=(64, 64)).program
    target = base.get("sm_90a")
    plain, debug = (cubin.disassemble(generate(program, target, debug=d).files["code.cubin"]) for d in (False, True))
    assert "HGMMA" in plain and "HGMMA" in debug
    assert "BPT.TRAP" in debug and "BPT.TRAP" not in plain


@pytest.mark.parametrize("shift", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("make", [k.saxpy, k.softmax, k.gemm, k.matmul], ids=lambda f: f.__name__)
def test_arrays_off_16_bytes_are_not_copied(make: Any, shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for narrower vectors give the same bits."""
    require("g++")
    case = make()
    target: Any = base.get("emulator:sm_80")
    executable = target.load(generate(case.program, target))
    wanted = run(case, "emulator:sm_80", 0, executable)

    def refused(*_: Any) -> None:
        raise AssertionError("an array was copied")

    monkeypatch.setattr(_HostMachine, "copy", refused)
    arrays: dict[str, Any] = {}
    for p in case.program.params:
        if p.shape is not None:
            like = wanted[p.name] if p.writes else np.asarray(case.inputs[p.name]).astype(p.dtype.numpy)
            start = (
                np.asarray(case.inputs[p.name]).astype(p.dtype.numpy)
                if p.name in case.inputs
                else np.full_like(like, 7)
            )
            arrays[p.name] = shifted(start, shift)
    scalars = [case.inputs[p.name] for p in case.program.params if p.shape is None]
    sizes = [case.dims[d] for d in case.program.free]
    executable.run([a.ctypes.data for a in arrays.values()], scalars, sizes)
    for name, value in wanted.items():
        assert arrays[name].tobytes() == value.tobytes(), name


def shifted(x: Any, by: int) -> Any:
    """The array in memory that starts so many elements behind a 256-byte boundary."""
    raw = np.zeros(x.nbytes + 512, np.uint8)
    start = -raw.ctypes.data % 256 + by * x.itemsize
    out = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def test_narrower_code_moves_as_much_at_once_as_it_may() -> None:
    require("cuda.bindings")
    a: Any = generate(k.softmax(rows=64, cols=1024, block=1).program, base.get("sm_80"))
    widths = {}
    for alignment in (8, 4):
        code, _ = nvrtc.compile_cubin(narrowed(a.files["code.cu"].decode(), alignment), "sm_80", "softmax", [])
        widths[alignment] = set(re.findall(r"(?:LDG|STG)\.E(\.\d+)?", cubin.disassemble(code)))
    assert widths == {8: {".64"}, 4: {""}}
