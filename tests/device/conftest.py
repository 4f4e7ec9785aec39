"""Everything in this folder runs on a GPU, and is skipped with the reason where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.gpu import missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reason := missing():
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason=reason))
