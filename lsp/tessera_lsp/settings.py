"""What a person has set for the server: the section `tessera` of the editor's settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)
SECTION = "tessera"


@dataclass(frozen=True, slots=True)
class Settings:
    """`target`: what code lenses predict for and IR is compiled for; `dims`: sizes for both."""

    target: str = "auto"
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    shapes: bool = True
    dtypes: bool = True
    policies: bool = True
    values: bool = True
    """in notebooks also what the kernel's arrays hold"""
    sizes: bool = True
    """in notebooks also the sizes that a function's dims had at its last call"""
    quiet: bool = False
    """hints only where a shape changes, and near the cursor where the client tells of it"""
    lenses: bool = True


def read(given: Any) -> Settings:
    """The settings that a client has sent. What cannot be understood is logged, and is as if it were not there."""
    section = _Section(given, SECTION)
    hints, lenses = section.inner("inlayHints"), section.inner("codeLens")
    dims = section.inner("dims")
    return Settings(
        target=section.value("target", str, "auto") or "auto",
        dims={name: size for name in dims.values if (size := dims.value(name, int, -1)) >= 0},
        shapes=hints.value("shapes", bool, True),
        dtypes=hints.value("dtypes", bool, True),
        policies=hints.value("policies", bool, True),
        values=hints.value("values", bool, True),
        sizes=hints.value("sizes", bool, True),
        quiet=hints.value("quiet", bool, False),
        lenses=lenses.value("enable", bool, True),
    )


class _Section:
    """A JSON object that a person has written; absent and null are empty."""

    def __init__(self, given: Any, name: str) -> None:
        self.name, self.values = name, given if isinstance(given, dict) else {}
        if given is not None and not isinstance(given, dict):
            log.warning("the setting %s is an object, not %r", name, given)

    def inner(self, name: str) -> _Section:
        return _Section(self.values.get(name), f"{self.name}.{name}")

    def value(self, name: str, kind: type, default: Any) -> Any:
        found = self.values.get(name)
        if found is None:
            return default
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            log.warning("the setting %s.%s is a %s, not %r", self.name, name, kind.__name__, found)
            return default
        return found
