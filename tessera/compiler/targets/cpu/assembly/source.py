"""What the text of LLVM IR says of its functions: kernels that run them, lines and names that are the user's."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from tessera.compiler.targets.base import Artifact

Line = tuple[str, int]
"""a file of the user's and a line"""
_DEFINED = re.compile(r"define .*?@([\w.$]+)\(")
_NAMED = re.compile(r"@([\w.$]+)")
_RESULT = re.compile(r"  %([\w.]+) = ")


class SourceText:
    """`lines`: the user's line of a line of the IR; `kernels`: the kernel that a function belongs to, the first where
    several call it; `defined` and `values`: of a function's vectors, the user's lines that compute them and what their
    author calls them."""

    def __init__(self, artifact: Artifact) -> None:
        self._text = artifact.source.splitlines()
        self.lines: dict[int, Line] = {}
        self.kernels: dict[str, str] = {}
        self.defined: dict[str, dict[str, Line]] = defaultdict(dict)
        self.values: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._own = artifact.meta["kernels"]
        self._bounds: dict[str, tuple[int, int]] = {}
        """the first and the last line of each function"""
        self._callers: dict[str, list[tuple[str, int]]] = defaultdict(list)
        """function -> those that name it, and at which line"""
        self._read({line: (file, at) for line, file, at in artifact.meta["lines"]})
        for name in self._own:
            self._belongs(name, name)
        for name in self._bounds:
            self._as_called(name)
        for name, (first, last) in self._bounds.items():
            for line in range(first, last + 1):
                if line in self.lines and (result := _RESULT.match(self._text[line - 1])):
                    self.defined[name][result[1]] = self.lines[line]
        for v in artifact.meta["values"]:
            self.values[v["function"]].update(dict.fromkeys(v["variables"], v))

    def loops_around(self, function: str) -> int:
        """How many loops of a function go over programs: one of a kernel's, none of one that a kernel calls."""
        return int(function in self._own or function.removesuffix(".code") in self._own)

    def _read(self, starts: dict[int, Line]) -> None:
        """Functions, what they name, and their own lines: the table has a row at each change."""
        now: Line | None = None
        function = ""
        for line, text in enumerate(self._text, 1):
            if defined := _DEFINED.match(text):
                function, now = defined[1], None
                self._bounds[function] = (line, line)
            elif function:
                self._bounds[function] = (self._bounds[function][0], line)
                now = starts.get(line, now)
                if now is not None:
                    first = self._bounds[function][0]
                    for at in range(line if first in self.lines else first, line + 1):
                        self.lines[at] = now
                for named in _NAMED.findall(text):
                    self._callers[named].append((function, line))
                function = "" if text == "}" else function

    def _belongs(self, function: str, kernel: str) -> None:
        """`function`, those that it names, and the code that launches of the kernel share."""
        if function in self.kernels or function == "run":
            return
        self.kernels[function] = kernel
        named = (other for other, callers in self._callers.items() if any(by == function for by, _ in callers))
        for other in (f"{function}.code", *named):
            if other in self._bounds:
                self._belongs(other, kernel)

    def _as_called(self, function: str) -> None:
        """A function without lines of its own has that of its calls, where this is one."""
        first, last = self._bounds[function]
        if any(line in self.lines for line in range(first, last + 1)) or function in self._own:
            return
        for caller, _ in self._callers[function]:
            if caller != function:
                self._as_called(caller)
        places = {self.lines[at] for caller, at in self._callers[function] if caller != function and at in self.lines}
        if len(places) == 1:
            (place,) = places
            self.lines.update(dict.fromkeys(range(first, last + 1), place))
