"""Programs in processes of their own, without the second that Python takes to load the compiler for each: they are
forked from one that has loaded it, and run nothing but what they are given.

What users import by name (`tessera.nn`, `tessera.profiler`) is not loaded: a program has to import it itself.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
LOADED = ("tessera.compiler", "tessera.runtime")
LIBRARIES = ("llvmlite.binding", "ml_dtypes", "numpy", "platformdirs", "rich.console", "typer")
_HEAD = 8
"""bytes of a number on the socket: the length of a request, a process's number, its status"""
_server: list[tuple[subprocess.Popen[bytes], socket.socket]] = []


def run_python(
    words: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text: str = "",
    timeout: float = 200.0,
) -> subprocess.CompletedProcess[str]:
    """What `python FILE ...`, `python -m MODULE ...` or `python -c TEXT ...` says, and its status.

    Raises subprocess.TimeoutExpired. Where there is no fork, it is a new process.
    """
    given = [str(word) for word in words]
    if not hasattr(os, "fork"):
        command = [sys.executable, *given]
        return subprocess.run(command, cwd=cwd, env=env, input=text, capture_output=True, text=True, timeout=timeout)
    with tempfile.TemporaryFile() as read, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        read.write(text.encode())
        read.seek(0)
        asked = {"words": given, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        status = _ask(json.dumps(asked).encode(), [f.fileno() for f in (read, out, err)], timeout, given)
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(given, status, *said)


def _ask(request: bytes, files: Sequence[int], timeout: float, words: Sequence[str]) -> int:
    line = _connected()
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
    line.sendmsg([len(request).to_bytes(_HEAD, "little")], [rights])
    line.sendall(request)
    process = _number(line)
    line.settimeout(timeout)
    try:
        return os.waitstatus_to_exitcode(_number(line))
    except TimeoutError:
        os.kill(process, signal.SIGKILL)
        line.settimeout(None)
        _number(line)
        raise subprocess.TimeoutExpired(list(words), timeout) from None
    finally:
        line.settimeout(None)


def _number(line: socket.socket) -> int:
    read = line.recv(_HEAD, socket.MSG_WAITALL)
    if len(read) < _HEAD:
        raise EOFError("the process that others are forked from has ended")
    return int.from_bytes(read, "little")


def _connected() -> socket.socket:
    if not _server:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.processes", str(theirs.fileno())]
            process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        _server.append((process, ours))
        atexit.register(_end)
    return _server[0][1]


def _end() -> None:
    for process, line in _server:
        line.close()
        process.wait()


# the other side


def _load() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    for name in LOADED:
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            try:
                importlib.import_module(found.name)
            except ImportError:  # of an optional library
                continue
    from tests import kept  # slow: the tests' side of this file need not load the compiler

    if folder := os.environ.get(kept.VARIABLE):
        kept.install(Path(folder))
    gc.collect()
    gc.freeze()


def _forked(line: socket.socket) -> dict[str, Any]:
    """Waits for requests, and returns in a process of its own for each, with its files in their places."""
    while True:
        head, rights, _, _ = line.recvmsg(_HEAD, socket.CMSG_SPACE(3 * 4), socket.MSG_WAITALL)
        if not head:
            os._exit(0)
        files = array.array("i", rights[0][2]) if rights else array.array("i")
        request = json.loads(line.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL))
        child = os.fork()
        if child == 0:
            line.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return request
        for file in files:
            os.close(file)
        line.sendall(child.to_bytes(_HEAD, "little"))
        line.sendall(os.waitpid(child, 0)[1].to_bytes(_HEAD, "little"))


def _program(words: list[str], path: list[str]) -> tuple[Any, ModuleType]:
    """Code and module of what Python would run as the main program of these words."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    if words[0] == "-c":
        sys.argv, sys.path[:] = ["-c", *words[2:]], ["", *path]
        return compile(words[1], "<string>", "exec"), main
    if words[0] == "-m":
        sys.path[:] = [os.getcwd(), *path]
        spec = importlib.util.find_spec(words[1])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{words[1]}.__main__")
        assert spec is not None and spec.origin is not None and spec.loader is not None
        sys.argv = [spec.origin, *words[2:]]
        main.__spec__, main.__package__, main.__file__ = spec, spec.parent, spec.origin
        return spec.loader.get_code(spec.name), main  # type: ignore[attr-defined]
    sys.argv, sys.path[:] = list(words), [str(Path(words[0]).parent), *path]
    main.__file__ = words[0]
    return compile(Path(words[0]).read_bytes(), words[0], "exec"), main


if __name__ == "__main__":
    path = sys.path[1:]  # without the present folder, which -m has put there
    _load()
    request = _forked(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    code, main = _program(request["words"], path)
    exec(code, main.__dict__)
