"""Which known name was meant by one that is not known."""

from __future__ import annotations

from collections.abc import Collection


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that a slip of the fingers makes of: another case, or at most a third of the letters otherwise.

    What is farther away was hardly meant: `sin` for `serving`, or `ones` for `nonsense`.
    """
    for other in known:
        if other.lower() == name.lower():
            return other
    import difflib  # slow: for a name that is not known

    close = difflib.get_close_matches(name, known, n=5, cutoff=0.6)
    most = 1 if len(name) < 4 else max(2, len(name) // 3)
    found = [(distance, i) for i, other in enumerate(close) if (distance := _edits(name, other)) <= most]
    return close[min(found)[1]] if found else None


def _edits(a: str, b: str) -> int:
    """Letters to be put in, left out, changed or swapped with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
