"""Tests whose emulated kernels are compiled together: one call of the C++ compiler serves a block of a file's tests.

    @builds(lambda shape, op: ready(reduction(op, shape)))
    @pytest.mark.parametrize(...)
    def test_every_shape(shape, op, built):

`built` is what the function gives for the test's parameters. It is called for the tests behind this one as well; what
it raises for a test is raised by that test.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import tessera as ts
from tessera.compiler.targets.cuda import host_library
from tests import generators

BLOCK = 12


def builds(make: Callable[..., Any]) -> Callable[[Any], Any]:
    def mark(test: Any) -> Any:
        test.builds = make
        return test

    return mark


def ahead(target: str, f: Any, *args: Any, **kwargs: Any) -> None:
    """Compiles what the call `f(*args, **kwargs)` runs on an emulator, so that the call finds it: within
    `host_library.together()`, or for a test that `builds` its program, beside others."""
    if target.startswith("emulator"):
        bound = inspect.signature(f.__wrapped__).bind(*args, **kwargs)
        ts.compile(f, target=target, arguments=bound.arguments)


class Blocks:
    """The tests of each file that build something, in their order, and what has been built ahead."""

    def __init__(self, items: list[pytest.Item]) -> None:
        self.tests: dict[Any, list[Any]] = defaultdict(list)
        self.made: dict[Any, Any] = {}
        for item in items:
            if hasattr(getattr(item, "function", None), "builds"):
                self.tests[item.path].append(item)

    def take(self, item: Any) -> Any:
        if item not in self.made:
            tests = self.tests[item.path]
            start = tests.index(item)
            with host_library.together():
                self.made |= {test: _made(test) for test in tests[start : start + BLOCK]}
            generators.rewind(item.module)  # what the test draws itself does not depend on what was built
        made = self.made.pop(item)
        if isinstance(made, BaseException):
            raise made
        return made


def _made(test: Any) -> Any:
    try:
        return test.function.builds(**(test.callspec.params if hasattr(test, "callspec") else {}))
    except (Exception, pytest.skip.Exception) as error:
        return error
