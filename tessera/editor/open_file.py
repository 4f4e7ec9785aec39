"""What is asked of a file that is open in an editor, whichever editor and protocol that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.syntax.parse import Source
from tessera.compiler.frontend.workspace import Modules
from tessera.editor.functions import Known
from tessera.errors import Diagnostic


class Plain(Protocol):
    """A text as Python reads it: without a byte order mark."""

    @property
    def plain(self) -> str: ...


class OpenFile(Protocol):
    """The text as it is now, and what the front end knows of it."""

    file: str
    known: list[Known]
    modules: Modules

    @property
    def text(self) -> Plain: ...
    @property
    def source(self) -> Source: ...
    @property
    def scope(self) -> TextScope: ...
    @property
    def parses(self) -> bool: ...
    @property
    def diagnostics(self) -> Sequence[Diagnostic]: ...
    def function_at(self, line: int) -> Known | None:
        """The function that a line belongs to."""
        ...


class Preferences(Protocol):
    """What a person has set: the target, and sizes to predict for."""

    @property
    def target(self) -> str: ...
    @property
    def dims(self) -> Mapping[str, int]: ...
