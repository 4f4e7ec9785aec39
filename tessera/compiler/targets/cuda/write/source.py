"""The text of a generated .cu file, with the user's line behind each of its lines."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import PurePath

from tessera.errors import Span, source_line


class CxxSource:
    """Lines as they are written. `spans[i]` is the user's source of line i + 1; None for lines that belong to no op."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.spans: list[Span | None] = []
        self.indent = 0
        self.span: Span | None = None
        self._said: tuple[str, int] | None = None
        self._comment = ""  # written before the next statement, so that an op without one leaves none

    def write(self, text: str = "") -> None:
        if self._comment and text:
            if self.lines and self.lines[-1] and not self.lines[-1].endswith("{"):
                self._put("")
            self._put("  " * self.indent + self._comment)
            self._comment = ""
        self._put("  " * self.indent + text if text else "")

    def _put(self, line: str) -> None:
        self.lines.append(line)
        self.spans.append(self.span)

    def at(self, span: Span) -> None:
        """The following lines belong to `span`; where that is another line of the user's, a comment shows it."""
        self.span = span
        if span.line <= 0 or (span.file, span.line) == self._said:
            return
        self._said = (span.file, span.line)
        text = source_line(span.file, span.line)
        where = f"{PurePath(span.file).name}:{span.line}"
        # A trailing backslash would continue the comment onto the next line.
        self._comment = f"// {where}  {text.strip()}".rstrip("\\ ") if text else f"// {where}"

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        self.write(head + " {")
        self.indent += 1
        yield
        self.indent -= 1
        self._said, self._comment = None, ""
        self._put("  " * self.indent + "}")

    def splice(self, other: CxxSource) -> None:
        self.lines += other.lines
        self.spans += other.spans

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def line_table(self) -> list[list[object]]:
        """[line of the .cu file, file, line] for every line that an op wrote."""
        return [[i, s.file, s.line] for i, s in enumerate(self.spans, 1) if s is not None and s.line > 0]
