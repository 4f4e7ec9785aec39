"""What a run was made on: GPU, driver, compilers, libraries, commit, date."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from typing import Any

from benchmarks.ladder.runner import ROOT, code_version

PACKAGES = ("numpy", "ml_dtypes", "cuda-bindings", "cupy-cuda13x", "cupy-cuda12x", "torch", "triton", "flash-attn")
ASKED = ("name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "temperature.gpu", "power.draw",
         "utilization.gpu", "memory.used", "memory.total")  # fmt: skip


def said_by(*command: str) -> str:
    """What a program prints; empty where it is not there, fails or hangs."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return out.stdout.strip() if out.returncode == 0 else ""


def clocks() -> dict[str, str]:
    """The first GPU now, by nvidia-smi; nothing is set."""
    answer = said_by("nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader", "--id=0")
    values = [v.strip() for v in answer.splitlines()[0].split(",")] if answer else []
    return dict(zip(ASKED, values, strict=False))


def nvrtc() -> str:
    try:
        from tessera.compiler.targets.cuda import nvrtc_library

        found = [nvrtc_library.library(major) for major in nvrtc_library.MAJORS]
        return ", ".join("{}.{}".format(*f.version) for f in found if f is not None) or "not installed"
    except Exception as e:
        return f"cannot be asked: {e}"


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def about() -> dict[str, Any]:
    """Versions by name; what is not there says so."""
    changed = said_by("git", "status", "--porcelain", "--untracked-files=no")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": said_by("git", "rev-parse", "HEAD") or "not known",
        "changed": bool(changed),
        "code": code_version(),
        "python": platform.python_version(),
        "nvrtc": nvrtc(),
        "gpu": clocks() or "nvidia-smi is not here",
        "packages": {name: version(name) for name in PACKAGES},
    }
