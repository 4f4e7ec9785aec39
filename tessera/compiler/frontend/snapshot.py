"""Lists, dicts and records that a branch or loop may change, so that a path which is not taken leaves no trace."""

from __future__ import annotations

from typing import Any

from tessera.compiler.frontend.frame import Frame
from tessera.compiler.frontend.values import Record, is_dict, is_list, is_tuple

_MUTABLE = (list, dict, set, Record)


class Snapshot:
    """Remembers the content of every mutable container that can be reached from a frame's names."""

    def __init__(self, frame: Frame) -> None:
        self._saved: dict[int, tuple[Any, Any]] = {}
        outer: Frame | None = frame
        while outer is not None:
            for value in outer.names.values():
                self._save(value)
            outer = outer.outer

    def _save(self, value: Any) -> None:
        if is_tuple(value):
            for v in value:
                self._save(v)
        if type(value) not in _MUTABLE or id(value) in self._saved:
            return
        content: Any = value.members if isinstance(value, Record) else value
        self._saved[id(value)] = (value, content.copy())
        if not isinstance(value, set):
            for v in list(content.values() if is_dict(content) else content):
                self._save(v)

    def changed(self) -> bool:
        """Whether any container holds other objects now."""
        return any(not _same(value, content) for value, content in self._saved.values())

    def restore(self) -> list[Any]:
        """Puts the old content back; gives the containers that had changed."""
        found: list[Any] = []
        for value, content in self._saved.values():
            if _same(value, content):
                continue
            found.append(value)
            target = value.members if isinstance(value, Record) else value
            if is_list(target):
                target[:] = content
            else:
                target.clear()
                target.update(content)
        return found


def _same(value: Any, content: Any) -> bool:
    now = value.members if isinstance(value, Record) else value
    if isinstance(now, set):
        return now == content
    if len(now) != len(content):
        return False
    if is_dict(now):
        return all(k in content and now[k] is content[k] for k in now)
    return all(a is b for a, b in zip(now, content, strict=True))
