"""What every test gets: its own cache folder, reproducible Hypothesis runs, golden files, and `require`."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings

from tests import generators

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# Peers must not fight Tessera's workers, or each other's test processes, for the cores. JAX reads these when imported.
for _variable, _value in {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "TOKENIZERS_PARALLELISM": "false",
}.items():
    os.environ.setdefault(_variable, _value)

settings.register_profile("dev", deadline=None, max_examples=40)
settings.register_profile(
    "ci", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if IN_CI else "dev")


def require(name: str) -> Any:
    """The module `name`, or the path of the program `name`, for a test that cannot do without.

    Absent in CI (CI=true), it is a failure: CI installs everything. Elsewhere the test, or the file if this is called
    at its top, is skipped and the reason says what is missing.
    """
    if importlib.util.find_spec(name.partition(".")[0]) is not None:
        return importlib.import_module(name)
    if (path := shutil.which(name)) is not None:
        return path
    reason = f"{name} is not installed (make dev-setup, or your system's package manager)"
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the tests produced")
    parser.addoption("--compile-anew", action="store_true", help="use nothing that compilers made in earlier runs")


def pytest_configure(config: pytest.Config) -> None:
    """No setting of the user's shell reaches a test, and no test sees another run's cache.

    A shell has what it starts in the background ignore Ctrl-C, and so would every process that a test starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until all tests are collected: what is made now stays, and looking at it takes a fifth of the time
    whole_run = os.environ.get("TESSERA_CACHE_DIR") if hasattr(config, "workerinput") else None
    for variable in [v for v in os.environ if v.startswith("TESSERA_")]:
        del os.environ[variable]
    os.environ["TESSERA_FIGURES"] = "usual"  # predictions are the same on each machine, and nothing is measured unasked
    os.environ["TESSERA_CACHE_DIR"] = tempfile.mkdtemp(prefix="tessera-test-cache-")
    _keep_compilations(config, whole_run)
    if whole_run:
        _rewrite_assertions(config)


def _keep_compilations(config: pytest.Config, whole_run: str | None) -> None:
    """Has this process find what compilers made of a text in earlier runs, unless it only waits for workers."""
    from tests import kept  # slow: it loads the compiler, and NumPy, which reads the variables above

    os.environ.pop(kept.VARIABLE, None)
    folder = None if config.getoption("--compile-anew") else kept.default_folder()
    if whole_run:
        _share_emulator(whole_run)
    elif folder is None:
        _emulator().mkdir()
    else:
        _emulator().symlink_to(kept.emulator(folder))
    if folder is not None and (whole_run or not config.getoption("numprocesses", None)):
        kept.install(folder)


def _rewrite_assertions(config: pytest.Config) -> None:
    """Has each worker rewrite its share of the test files, and keep it where pytest looks first. Workers that begin
    at the same file would each rewrite all of them: ten seconds of processor a worker."""
    if sys.dont_write_bytecode:
        return
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    worker, of = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]  # type: ignore[attr-defined]
    start = len(files) * worker // of
    for file in files[start:] + files[:start]:
        pyc = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
        if not pyc.exists():
            pyc.parent.mkdir(parents=True, exist_ok=True)
            source_hash, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, pyc)


def _emulator() -> Path:
    """Where the emulator keeps what it compiles, found again by the hash of its text."""
    return Path(os.environ["TESSERA_CACHE_DIR"]) / "emulator"


def _share_emulator(cache: str) -> None:
    """Has what the emulator compiles lie in another cache: the same for all workers, and for tests whose cache is
    their own. The device library alone takes half a second for each of its forms."""
    _emulator().symlink_to((Path(cache) / "emulator").resolve())


FIRST = ("vscode", "jupyter", "editors", "lsp", "profiler")
"""folders whose tests share servers and browsers"""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker that has nothing left takes over the last tests of another (pytest-xdist's worksteal). Those that share
    a server come first, so that it is not started once more for them."""

    def place(item: pytest.Item) -> int:
        folder = item.nodeid.split("/", 2)[1:2]  # below tests/
        return FIRST.index(folder[0]) if folder and folder[0] in FIRST else len(FIRST)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What is there now stays to the end: the collector of garbage need not look at it again, which takes a tenth of
    the time of all tests."""
    from tessera import collector  # slow: as above

    generators.remember()
    gc.collect()
    gc.freeze()
    collector.MANY = sys.maxsize  # it would count what is frozen at each compilation: a tenth of the time of all tests
    gc.enable()
    # A worker comes to hold millions of objects, and Python's own 700, 10, 10 would often look at all of them. New ones
    # are looked at while the processor's cache has them: where they are 20,000, each takes half as long again.
    gc.set_threshold(2_000, 20, 500)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """No number that a test draws depends on the tests before it."""
    if isinstance(item, pytest.Function):
        generators.rewind(item.module)


@pytest.fixture
def young() -> None:
    """Of a test that collects garbage: what is there before it is not looked at, which late in a run takes seconds."""
    gc.freeze()


compilations: Counter[str] = Counter()
"""of all workers: how many texts were found compiled, and how many were compiled"""


def pytest_sessionfinish(session: pytest.Session) -> None:
    from tests import kept  # slow: as above

    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["compilations"] = kept.counts
    compilations.update(kept.counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    compilations.update((getattr(node, "workeroutput", None) or {}).get("compilations", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found, anew = compilations["found"], compilations["compiled"]
    terminalreporter.write_line(f"texts for LLVM and NVRTC: {found} compiled in earlier runs, {anew} in this one")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(os.environ.get("TESSERA_CACHE_DIR", ""), ignore_errors=True)
    if not hasattr(config, "workerinput"):
        from tests import kept  # slow: as above

        kept.forget(kept.default_folder())


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with golden/<name>.txt beside the test file.

    A name with a suffix (`saxpy.cu`) is taken as it is. `pytest --update-golden` writes the files.
    """
    folder = Path(request.path).parent / "golden"
    update: bool = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = folder / (name if "." in name else f"{name}.txt")
        text = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists():
            pytest.fail(f"{path} does not exist; write it with --update-golden and read it before committing")
        else:
            assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session")
def blocks(request: pytest.FixtureRequest) -> Any:
    from tests.together import Blocks  # slow: most runs of a few tests need no emulator

    return Blocks(request.session.items)


@pytest.fixture
def built(request: pytest.FixtureRequest, blocks: Any) -> Any:
    """What a test marked with `tests.together.builds` has of its parameters."""
    return blocks.take(request.node)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own, also for the processes that it starts."""
    run = os.environ["TESSERA_CACHE_DIR"]
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    _share_emulator(run)
    return tmp_path


@pytest.fixture(params=["reference", "cpu", "emulator:sm_80"])
def debug_target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each target that runs everywhere, in debug mode."""
    if request.param.startswith("emulator"):
        require("c++")
    monkeypatch.setenv("TESSERA_TARGET", request.param)
    monkeypatch.setenv("TESSERA_DEBUG", "1")
    return request.param
