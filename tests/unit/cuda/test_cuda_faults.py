"""What is said of a GPU that has failed, threads without a context, processes that were forked off."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.compiler.targets.cuda.call import context, device
from tessera.compiler.targets.cuda.call.device import DeviceExecutable
from tessera.errors import DeviceError
from tests.conftest import require
from tests.emulator import kernels as k
from tests.emulator.programs import assert_program
from tests.unit.cuda.test_cuda_device import HostDriver, aligned, use

require("g++")


class Status(int):
    """A CUresult."""

    name = "CUDA_ERROR_ILLEGAL_ADDRESS"


class Faulty(HostDriver):
    """As a GPU's: the fault of one kernel is told by the calls behind it, whatever they are."""

    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)
    bad = ""
    error: Any = 0
    context = 7
    made: list[Any]

    def cuCtxGetCurrent(self) -> Any:
        return 0, self.context

    def cuCtxSetCurrent(self, context: int) -> Any:
        self.context = context
        return (0,)

    def cuDeviceGet(self, number: int) -> Any:
        return 0, number

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return 0, 100 + device

    def cuStreamGetCtx(self, stream: int) -> Any:
        return 0, 200 + stream

    def cuPointerGetAttribute(self, attribute: int, pointer: int) -> Any:
        return 0, 1

    def cuLaunchKernel(self, name: str, *rest: Any) -> Any:
        if self.error:
            return (self.error,)
        if name == self.bad:
            self.error = Status(700)
            return (0,)
        return super().cuLaunchKernel(name, *rest)

    def cuStreamSynchronize(self, _: int) -> Any:
        return (self.error,)


@pytest.fixture(autouse=True)
def nothing_before(monkeypatch: pytest.MonkeyPatch) -> None:
    context.recent.clear()
    context.lost.clear()


def loaded(program: Any, **options: Any) -> tuple[DeviceExecutable, Faulty]:
    target = base.get("emulator:sm_80")
    artifact = generate(program, target, **options)
    emulated: Any = target.load(artifact)
    artifact.target = "sm_80"
    artifact.files["code.cubin"] = b"cubin"
    bindings = Faulty(emulated)
    return DeviceExecutable(artifact, bindings), bindings


def test_a_fault_names_the_latest_launches_and_what_to_do() -> None:
    first, driver = loaded(k.softmax(rows=6, block=2).program)
    other, same = loaded(k.saxpy(n=100).program)
    same.__dict__ = driver.__dict__ | {"emulated": same.emulated, "machine": same.machine}
    driver.bad = "softmax"
    x, y = aligned(k.normal(6, 200)), aligned(np.zeros((6, 200), np.float32))
    first.run(use(driver, x, y), [], [])
    same.error = driver.error
    with pytest.raises(DeviceError) as e:
        other.run(use(same, x, y), [1.0], [])
    (found,) = e.value.diagnostics
    assert found.code == "TS612" and "CUDA_ERROR_ILLEGAL_ADDRESS" in found.message
    assert [note.message for note in found.notes] == ["saxpy, kernel.py:1", "softmax, kernel.py:1"]
    assert "TESSERA_DEBUG=1" in found.message and "start it again" in found.message
    with pytest.raises(DeviceError, match=r"cuLaunchKernel is too late\. The GPU's context is lost") as e:
        other.run(use(same, x, y), [1.0], [])
    assert e.value.diagnostics[0].notes == found.notes, "what came behind is not to blame"


def test_debug_waits_for_each_kernel_and_names_the_one() -> None:
    executable, driver = loaded(assert_program(), debug=True)
    (name,) = executable.artifact.meta["kernels"]
    driver.bad = name
    with pytest.raises(DeviceError) as e:
        executable.run(use(driver, aligned(np.ones(40, np.float32))), [], [])
    (found,) = e.value.diagnostics
    assert found.code == "TS612" and found.message.startswith(f"{name} ended the GPU's context")
    assert (found.span.file, found.span.line, found.function) == ("kernel.py", 1, name)


def test_other_errors_stay_what_they_are() -> None:
    executable, driver = loaded(k.saxpy(n=100).program)
    driver.error = Status(1)
    driver.error.name = "CUDA_ERROR_INVALID_VALUE"
    x = aligned(k.normal(100))
    for _ in range(2):
        with pytest.raises(DeviceError, match="cuLaunchKernel failed: CUDA_ERROR_INVALID_VALUE"):
            executable.run(use(driver, x, x), [1.0], [])
    assert not context.lost


@pytest.mark.parametrize(("stream", "wanted"), [(0, 101), (9, 209)])
def test_a_thread_without_a_context_gets_that_of_the_stream_or_the_memory(stream: int, wanted: int) -> None:
    executable, driver = loaded(k.saxpy(n=100).program)
    driver.context = 0
    x, y = aligned(k.normal(100)), aligned(k.normal(100))
    expected = np.float32(2) * x + y
    executable.run(use(driver, x, y), [2.0], [], stream=stream)
    assert driver.context == wanted
    np.testing.assert_array_equal(y, expected)


def test_code_is_not_loaded_on_a_device_that_it_does_not_run_on() -> None:
    executable, driver = loaded(k.saxpy(n=100).program)
    driver.context = 0
    driver.cuDeviceGetAttribute = lambda attribute, _: (0, (7, 5)[attribute])  # type: ignore[method-assign]
    x = aligned(k.normal(100))
    with pytest.raises(DeviceError, match=r"sm_80 does not run on this device \(compute capability 7\.5\)"):
        executable.run(use(driver, x, x), [1.0], [])


def test_a_forked_child_holds_no_handles_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    executable, driver = loaded(k.saxpy(n=100).program)
    x = aligned(k.normal(100))
    executable.run(use(driver, x, x), [1.0], [])
    quick: Any = executable.entry([])
    assert quick(*use(driver, x, x), 1.0, 0) is False
    monkeypatch.setattr(context.process, "used", True)
    read, write = os.pipe()
    if not (child := os.fork()):
        said = "nothing"
        try:
            held = [executable._functions, executable._constants, *executable._ready.values()]
            driver.cuCtxGetCurrent = lambda: (Status(3), None)  # type: ignore[method-assign]
            assert quick(*use(driver, x, x), 1.0, 0) is True and not any(held)
            with pytest.raises(DeviceError, match="fork"):
                device.driver()
            executable.run(use(driver, x, x), [1.0], [])
        except BaseException as e:
            said = str(e)
        os.write(write, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 10000).decode()
    assert "CUDA does not outlive a fork" in said and "spawn" in said
    assert quick(*use(driver, x, x), 1.0, 0) is False, "the parent goes on"


@pytest.mark.parametrize(("capability", "wanted"), [((8, 9), b"cubin"), ((9, 0), b"text"), ((13, 0), b"text")])
def test_later_gpus_get_the_ptx(capability: tuple[int, int], wanted: bytes) -> None:
    executable, driver = loaded(k.saxpy(n=100).program)
    executable.artifact.files["code.ptx"] = b"text"
    seen: list[bytes] = []
    load = driver.cuModuleLoadData
    driver.cuDeviceGetAttribute = lambda attribute, _: (0, capability[attribute])  # type: ignore[method-assign]
    driver.cuModuleLoadData = lambda a: (seen.append(ctypes.string_at(a)), load(a))[1]  # type: ignore[method-assign]
    x = aligned(k.normal(100))
    executable.run(use(driver, x, x), [1.0], [])
    assert seen == [wanted], "PTX ends with a null"


def test_ptx_that_an_old_driver_does_not_compile_is_told() -> None:
    executable, driver = loaded(k.saxpy(n=100).program)
    executable.artifact.files["code.ptx"] = b"text"
    status = Status(222)
    status.name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
    driver.cuDeviceGetAttribute = lambda attribute, _: (0, (13, 0)[attribute])  # type: ignore[method-assign]
    driver.cuModuleLoadData = lambda _: (status, None)  # type: ignore[method-assign]
    x = aligned(k.normal(100))
    with pytest.raises(DeviceError, match=r"UNSUPPORTED_PTX_VERSION[\s\S]*newer driver"):
        executable.run(use(driver, x, x), [1.0], [])
