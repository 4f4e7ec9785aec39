"""The summary of a run as JSON and as text, from the rows that are there: after a kill too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ladder.runner import Results

STAGES = ("smoke", "tests", "sanitizer", "table")


def write(results: Results, about: Mapping[str, Any]) -> str:
    """Writes summary.json and table.txt beside the results; gives the text."""
    counts = {stage: dict(Counter(row["status"] for row in results.of(stage))) for stage in STAGES}
    troubles = [row for row in results.rows.values() if row["status"] not in ("ok", "skipped")]
    summary = {"about": about, "counts": counts, "troubles": troubles, "table": results.of("table")}
    _replace(results.folder / "summary.json", json.dumps(summary, indent=1) + "\n")
    text = (
        "\n".join([*_head(about), "", *_counts(counts), "", *_troubles(troubles), *_table(results.of("table"))]) + "\n"
    )
    _replace(results.folder / "table.txt", text)
    return text


def _replace(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _head(about: Mapping[str, Any]) -> list[str]:
    gpu = about.get("gpu")
    named = ", ".join(f"{k} {v}" for k, v in gpu.items()) if isinstance(gpu, dict) else str(gpu)
    changed = ", with changes" if about.get("changed") else ""
    packages = ", ".join(f"{k} {v}" for k, v in dict(about.get("packages", {})).items())
    return [
        f"{about.get('date')}  commit {about.get('commit')}{changed}  code {about.get('code')}",
        f"GPU: {named}",
        f"NVRTC {about.get('nvrtc')}, Python {about.get('python')}, {packages}",
    ]


def _counts(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    return [f"{stage:10s} " + (", ".join(f"{n} {s}" for s, n in c.items()) or "nothing") for stage, c in counts.items()]


def _troubles(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    out: list[str] = []
    for row in rows:
        why = " ".join(str(row.get("why", "")).split())
        out.append(f"{row['status']:8s} {row['stage']}: {row['name']}: {why[:300]}")
    return [*out, ""] if out else []


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    measured = [row for row in rows if "us" in row]
    if not measured:
        return []
    out = [f"{'':34s} {'us':>9s} {'spread':>7s} {'rate':>16s}  against (times ours)"]
    for row in measured:
        peers = "; ".join(
            f"{name} {t:.1f} us, {t / row['us']:.2f}x" if isinstance(t, (int, float)) else f"{name}: {t}"
            for name, t in row.get("peers", {}).items()
        )
        rate = f"{row['rate']:.1f} {row['unit']}"
        out.append(f"{row['name']:34s} {row['us']:9.1f} {row['spread']:7.1f} {rate:>16s}  {peers}  [{row['timed']}]")
    return out
