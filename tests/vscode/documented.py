"""What docs/editors.md tells people to paste."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/editors.md"


def snippet(heading: str, language: str) -> str:
    """The first block in `language` under the heading that starts with `heading`."""
    _, found, rest = PAGE.read_text("utf-8").partition(f"\n{heading}")
    assert found, f"docs/editors.md has no heading {heading!r}"
    _, found, rest = rest.partition(f"\n```{language}\n")
    assert found, f"{heading!r} has no block in {language}"
    return rest.partition("\n```")[0] + "\n"
