"""The emulator needs a C++ compiler; the modules here may be imported without one."""

from __future__ import annotations

import pytest

from tests.conftest import require


@pytest.fixture(scope="session", autouse=True)
def cpp_compiler() -> None:
    require("g++")
