"""The decorators: what they make of a function, and where its text is found."""

from __future__ import annotations

import functools
import linecache
import subprocess
import sys

import numpy as np
import pytest

import tessera as ts
from tessera import tile
from tessera.compiler.frontend.importing import install_import_hook
from tessera.compiler.frontend.syntax.parse import compile_text
from tessera.errors import CompileError, register_source
from tessera.language.decorators import Function, Kernel
from tessera.language.policies import Policy, PolicyError


@ts.function
def plain(x: ts.Tensor["B", ts.f32]) -> ts.Tensor["B", ts.f32]:
    """Doubles."""
    return x * 2


@ts.kernel
def tiled(x: ts.Tensor["n", ts.f32]):
    i = tile.linear_id()
    if i < n:
        x[i] = x[i] * 2


def noted(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs)

    return wrapper


@ts.numerics(fast=True)
@ts.function
@noted
def stacked(x: ts.Tensor["B"]) -> ts.Tensor["B"]:
    return x + 1


class Model:
    def __init__(self, scale):
        self.scale = scale

    @ts.function
    def scaled(self, x: ts.Tensor["B", ts.f32]):
        return x * self.scale

    @staticmethod
    @ts.function
    def shifted(x: ts.Tensor["B", ts.f32]):
        return x + 1


def shown(f) -> str:
    """The text of a definition's tree, in the text it was read from."""
    d = f.definition()
    return "\n".join(d.source.split("\n")[d.tree.lineno - 1 : d.tree.end_lineno]).strip()


def test_what_a_decorator_makes():
    assert isinstance(plain, Function)
    assert isinstance(tiled, Kernel)
    assert (plain.name, plain.__name__, plain.__doc__, plain.kind, tiled.kind) == (
        "plain",
        "plain",
        "Doubles.",
        "function",
        "kernel",
    )
    assert plain.__wrapped__.__module__ == __name__
    assert repr(plain).startswith("<tessera function plain(x")


def test_the_text_of_a_function_is_found():
    d = plain.definition()
    assert (d.kind, d.name, d.file) == ("function", "plain", __file__)
    assert linecache.getline(d.file, d.line).strip() == "@ts.function"
    assert shown(plain).startswith("def plain(x")
    assert shown(plain).endswith("return x * 2")
    assert plain.definition() is d


def test_stacked_decorators():
    assert shown(stacked).startswith("def wrapper(")  # what the decorator has made
    assert stacked.options["numerics"].fast is True
    assert isinstance(stacked, Function)


def test_nested_functions_of_one_name_are_told_apart():
    def make(first):
        if first:

            @ts.function
            def inner(x: ts.Tensor["B"]):
                return x + 1
        else:

            @ts.function
            def inner(x: ts.Tensor["B"]):
                return x + 2

        return inner

    assert shown(make(True)).endswith("x + 1")
    assert shown(make(False)).endswith("x + 2")


def test_methods():
    assert shown(Model.scaled).startswith("def scaled(self")
    bound = Model(3).scaled
    assert bound.func is Model.__dict__["scaled"]
    assert shown(Model.shifted).endswith("return x + 1")


def test_options_make_a_new_function():
    faster = ts.numerics(policy="@accum(f64)")(plain)
    assert faster is not plain
    assert faster.options["numerics"].accum is ts.f64
    assert "numerics" not in plain.options
    assert ts.function(numerics="@accum(f64)")(plain.__wrapped__).options == faster.options
    assert ts.numerics(fast=False)(plain.__wrapped__).options["numerics"] == Policy(fast=False)


def test_kernel_configurations():
    kernel = ts.kernel(BLOCK=64, num_warps=8)(tiled.__wrapped__)
    assert kernel.config == {"BLOCK": 64, "num_warps": 8}
    assert kernel.with_config(BLOCK=32).config == {"BLOCK": 32, "num_warps": 8}
    assert kernel.config["BLOCK"] == 64
    tuned = ts.kernel.autotune(space={"BLOCK": [128, 256], "num_warps": [4]})(tiled.__wrapped__)
    assert tuned.config == {"BLOCK": 128, "num_warps": 4}
    assert tuned.options["autotune"]["configs"] == [{"BLOCK": b, "num_warps": 4} for b in (128, 256)]
    assert "autotune" not in tuned.with_config(BLOCK=64).options
    listed = ts.autotune.space(configs=[{"BLOCK": 8}, {"BLOCK": 16}])(kernel)
    assert listed.config == {"BLOCK": 8, "num_warps": 8}
    assert listed.options["autotune"]["configs"] == [{"BLOCK": b, "num_warps": 8} for b in (8, 16)]
    with pytest.raises(CompileError, match="list of values for BLOCK"):
        ts.kernel.autotune(space={"BLOCK": 128})


async def asynchronous(x):
    return x


def generating(x):
    yield x


@pytest.mark.parametrize("python", [asynchronous, generating])
def test_coroutines_and_generators_are_refused_where_they_are_defined(python):
    with pytest.raises(CompileError, match="async or a generator") as e:
        ts.function(python)
    (d,) = e.value.diagnostics
    assert (d.code, d.span.file, d.span.line) == ("TS102", __file__, python.__code__.co_firstlineno)
    assert linecache.getline(d.span.file, d.span.line).strip() in str(e.value)


@pytest.mark.parametrize("thing", [len, 3, "f", int, functools.partial(plain.__wrapped__, 1)])
def test_what_is_no_python_function_is_refused(thing):
    with pytest.raises(CompileError, match="no text to compile"):
        ts.function(thing)


def test_decorating_twice_is_refused():
    with pytest.raises(CompileError, match="is a Tessera function already"):
        ts.kernel(plain)


def run(text, file):
    register_source(file, text)
    namespace = {"ts": ts}
    exec(compile_text(text, file), namespace)
    return namespace


def test_registered_text_is_found():
    """As notebook cells do it, in the dialect."""
    cell = "@ts.function\ndef f[B](x: ts.Tensor[B, dtype=ts.f32]) -> ts.Tensor[B]:\n    return x + 1\n"
    f = run(cell, "In[1]")["f"]
    assert shown(f).startswith("def f[B](x")
    assert [p.name for p in f.definition().tree.type_params] == ["B"]


def test_a_cell_that_is_run_again_keeps_the_texts_apart():
    old = run("@ts.function\ndef f(x): return x + 1\n", "In[2]")["f"]
    assert shown(old).endswith("x + 1")
    new = run("\n@ts.function\ndef f(x): return x + 2\n", "In[3]")["f"]
    assert shown(new).endswith("x + 2")
    assert shown(old).endswith("x + 1")


def test_text_that_is_not_to_be_had():
    namespace = {"ts": ts}
    exec("@ts.function\ndef f(x): return x", namespace)
    with pytest.raises(CompileError) as e:
        namespace["f"].definition()
    assert e.value.code == "TS109"
    assert "(<string>) cannot be read; define it in a file, or in a cell of its own" in str(e.value)


def test_text_that_has_changed_since():
    f = run("@ts.function\ndef f(x): return x\n", "In[4]")["f"]
    register_source("In[4]", "\n\n\n")
    with pytest.raises(CompileError, match="has changed") as e:
        f.definition()
    assert e.value.code == "TS109"


def test_a_lambda_is_no_kernel():
    with pytest.raises(CompileError, match="write it with def") as e:
        ts.kernel(lambda x: x)
    assert e.value.code == "TS102"
    assert ts.function(lambda x: x).name == "<lambda>"


def test_every_tile_name_says_that_it_belongs_into_a_kernel():
    for name in ("load", "mma", "exp", "row_max", "barrier", "range", "print"):
        with pytest.raises(CompileError, match=f"ts.tile.{name} ") as e:
            getattr(ts.tile, name)(1)
        assert e.value.code == "TS401"


def test_tile_names_are_those_of_the_compiler():
    """What people see documented is what the kernel layer knows."""
    from tessera.compiler.frontend.kernel.builtins import public

    documented = {
        n for n in dir(ts.tile) if callable(getattr(ts.tile, n)) and hasattr(getattr(ts.tile, n), "__tessera_builtin__")
    }
    assert documented == set(public())
    assert all(getattr(ts.tile, n).__doc__ for n in documented)


def test_static_range_is_an_ordinary_range_outside():
    assert list(ts.static_range(1, 6, 2)) == [1, 3, 5] == list(ts.range(1, 6, 2))


def test_accumulate_is_a_policy_of_a_whole_function():
    @ts.accumulate(ts.f64)
    def total(x: Tensor["N"]):
        return ts.sum(x)

    x = np.full(100_000, 0.1, np.float32)
    assert total(x) == np.float32(np.sum(x, dtype=np.float64)) and isinstance(total, ts.Function)
    with pytest.raises(PolicyError, match=r"accum needs f32.*not 'f31'"):
        ts.accumulate("f31")


def test_importing_and_decorating_load_no_compiler():
    code = (
        "import sys, tessera as ts\n"
        "f = ts.function(lambda x: x)\n"
        "bad = [m for m in sys.modules if m.startswith(('numpy', 'llvmlite', 'tessera.compiler', 'tessera.runtime'))]\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


MODULE = '''
"""A module in the dialect."""
import tessera as ts
from tessera import Tensor, f32, accum

SCALE = 2

@ts.function
def doubled[B, S](x: Tensor[B, S, dtype=f32, @accum(f32)]) -> Tensor[B, S]:
    return x * SCALE
'''


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    install_import_hook()
    yield tmp_path
    for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", "")).startswith(str(tmp_path))]:
        del sys.modules[name]


def test_tess_files_are_imported(on_path):
    (on_path / "dialect_model.tess").write_text(MODULE, encoding="utf-8-sig")
    import dialect_model

    assert dialect_model.__doc__ == "A module in the dialect."
    assert dialect_model.__file__.endswith("dialect_model.tess")
    assert shown(dialect_model.doubled).startswith("def doubled[B, S]")
    assert dialect_model.doubled.definition().file == dialect_model.__file__
    assert not list(on_path.rglob("*.pyc"))


def test_packages_of_tess_files(on_path):
    package = on_path / "dialect_package"
    package.mkdir()
    (package / "__init__.tess").write_text("from .layers import doubled\n", encoding="utf-8")
    (package / "layers.tess").write_text(MODULE, encoding="utf-8")
    import dialect_package

    assert dialect_package.doubled.__wrapped__.__module__ == "dialect_package.layers"


def test_errors_in_tess_files_point_into_them(on_path):
    (on_path / "dialect_broken.tess").write_text("x = 1\ny = (2\n", encoding="utf-8")
    with pytest.raises(CompileError) as e:
        import dialect_broken  # noqa: F401
    assert "dialect_broken.tess:2:5" in str(e.value)
    assert "y = (2" in str(e.value)
    (on_path / "dialect_raises.tess").write_text("T = dict\nK = T[int, k=1]\nK / 0\n", encoding="utf-8")
    with pytest.raises(TypeError) as f:
        import dialect_raises  # noqa: F401
    assert f.traceback[-1].lineno == 2


def test_plain_python_comes_first_and_the_hook_once(on_path):
    (on_path / "dialect_both.tess").write_text("kind = 'tess'", encoding="utf-8")
    (on_path / "dialect_both.py").write_text("kind = 'py'", encoding="utf-8")
    import dialect_both

    assert dialect_both.kind == "py"
    before = list(sys.meta_path)
    install_import_hook()
    assert sys.meta_path == before
