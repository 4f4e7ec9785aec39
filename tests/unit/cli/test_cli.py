"""The command line as people and scripts use it."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tessera as ts
from tessera import cli
from tessera.cli.app import COMMANDS
from tests.processes import run_python

PROGRAM = """
import tessera as ts
raise SystemExit("the file was executed")

@ts.function
def scaled(x: ts.Tensor["B", "D"], w: ts.Tensor["D"]) -> ts.Tensor["B", "D"]:
    return x * w

@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y
"""
WRONG = PROGRAM.replace("x * w", "x @ w + x.mean(axis=5)")


def tessera(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_python(["-m", "tessera", *words], cwd=cwd)


def answered(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What `tessera` of these words gives, without a process for it: half a second of imports."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["tessera", *map(str, words)])
        try:
            cli.main()
        except SystemExit as e:
            code = int(e.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


def test_check_reports_without_executing(folder: Path) -> None:
    good = tessera("check", "good.py", cwd=folder)
    assert (good.returncode, good.stdout.strip()) == (0, "no errors in 1 file"), good.stderr
    wrong = tessera("check", "wrong.py", "--json", cwd=folder)
    assert wrong.returncode == 1 and "executed" not in wrong.stderr
    (found,) = json.loads(wrong.stdout)["diagnostics"]
    assert found["code"] == "TS204" and found["line"] == 7 and found["end_column"] > found["column"]
    assert {"message", "file", "end_line", "notes", "fixes"} <= set(found)


def test_check_searches_folders_and_lists_shapes(folder: Path) -> None:
    result = tessera("check", ".", "--shapes", cwd=folder)
    assert "good.py:6: x: [B, D] f32" in result.stdout and result.stdout.strip().endswith("1 error in 2 files")


@pytest.mark.parametrize(
    ("content", "place", "said"),
    [
        (b"[tool]\nx = 3\n", (1, 1, 7), "tessera.toml is not read by this version"),
        (b"", (1, 1, 1), "tessera.toml is not read by this version"),
        (b"[tool]\nx = = 3\n", (2, 5, 8), "not valid TOML (Invalid value)"),
        (b"[tool", (1, 6, 6), "not valid TOML"),
        (b"a = 1\nx = [\n1,\n", (3, 3, 3), "not valid TOML"),
        (b"\xff\xfe", (1, 1, 1), "is not a text file in UTF-8"),
    ],
)
def test_a_file_of_settings_that_nobody_reads_is_said(folder, content, place, said):
    (folder / "tessera.toml").write_bytes(content)
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "good.py").write_text(PROGRAM)
    for words, cwd in ((["."], folder), ([], folder / "deep"), (["good.py"], folder / "deep" / "er")):
        result = answered("check", *words, "--json", cwd=cwd)
        (found,) = (d for d in json.loads(result.stdout)["diagnostics"] if d["severity"] == "warning")
        assert found["code"] == "TS613" and Path(cwd, found["file"]).samefile(folder / "tessera.toml")
        assert (found["line"], found["column"], found["end_column"]) == place
        assert said in found["message"] and "settings are environment variables: see docs/settings" in found["message"]


def test_only_the_projects_own_file_of_settings_counts(folder):
    """Not one above the root of its repository, nor one of another project beside it."""
    project, other = folder / "project", folder / "other"
    for root in (project, other):
        (root / ".git").mkdir(parents=True)
        (root / "good.py").write_text(PROGRAM)
    for place in (folder, other):
        (place / "tessera.toml").write_text("")
    assert "TS613" not in answered("check", "project", cwd=folder).stdout
    assert answered("check", "project", "other", cwd=folder).stdout.count("TS613") == 1


@pytest.mark.parametrize("level", ["graph", "schedule", "tile", "target"])
def test_ir_shows_every_level(folder: Path, level: str) -> None:
    result = answered(
        "ir", "good.py:scaled", "--level", level, "--target", "reference", "--dims", "B=4,D=8", cwd=folder
    )
    assert result.returncode == 0, result.stderr
    assert {"graph": "= mul(x, ", "schedule": "= group(", "tile": "= mul(", "target": "= mul("}[level] in result.stdout


def test_sizes_that_are_not_given_stay_symbolic(folder: Path) -> None:
    result = tessera("ir", "good.py:saxpy", "--level", "tile", "--target", "reference", cwd=folder)
    assert "func saxpy(x: [n] f32, " in result.stdout and "# good.py:" in result.stdout
    generic = tessera("ir", "good.py:saxpy", "--level", "tile", "--target", "reference", "--generic", cwd=folder)
    assert "!tessera.view<[n], f32>" in generic.stdout


OPEN = """
import tessera as ts
from tessera import Tensor

@ts.kernel
def doubled(x: Tensor["...", "N", ts.f32]) -> Tensor["...", "N", ts.f32]:
    return x * 2
"""


def test_kernels_over_any_number_of_axes_are_compiled_for_one(folder: Path) -> None:
    (folder / "open.py").write_text(OPEN)
    result = tessera("ir", "open.py:doubled", "--level", "tile", "--dims", "...=4,N=64", cwd=folder)
    assert "func doubled(x: [4, 64] f32, result: [4, 64] f32)" in result.stdout, result.stderr
    result = tessera("ir", "open.py:doubled", "--level", "tile", cwd=folder)
    assert result.returncode == 1 and "--dims ...=8 compiles it for one axis" in result.stderr + result.stdout


@pytest.mark.parametrize("target, binary", [("cpu", ".o"), ("sm_90a", ".cubin")])
def test_compile_writes_the_artefact_and_its_resources(folder: Path, target: str, binary: str) -> None:
    result = tessera("compile", "good.py:saxpy", "--target", target, "-o", "out", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    written = {Path(p).suffix: Path(p) for p in json.loads(result.stdout)["files"]}
    assert (folder / written[binary]).stat().st_size > 500
    assert json.loads((folder / written[".json"]).read_text())["resources"]
    kernels = json.loads(result.stdout)["kernels"]
    assert ("saxpy" in kernels) == (target != "cpu") and all("tiles" in k and "notes" in k for k in kernels.values())


def test_compile_tells_what_each_phase_took(folder: Path) -> None:
    result = tessera("compile", "good.py:scaled", "--target", "cpu", "-o", "out", "--time", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    spent = json.loads(result.stdout)["ms"]
    assert next(iter(spent)) == "front end" and list(spent)[-1] == "loading"
    assert {"canonicalize", "graph_to_schedule", "schedule_to_tile", "code", "LLVM"} <= set(spent)
    assert all(ms >= 0 for ms in spent.values()) and spent["LLVM"] > 0
    shown = tessera("compile", "good.py:scaled", "--target", "cpu", "-o", "out", "--time", cwd=folder).stdout
    assert " ms  LLVM\n" in shown and " ms  together\n" in shown
    other = tessera("compile", "good.py:scaled", "--target", "cpu", "-o", "out", cwd=folder).stdout
    assert " ms  " not in other


def test_run_and_profile_a_script(folder: Path) -> None:
    script = PROGRAM.replace('raise SystemExit("the file was executed")', "import sys, numpy as np")
    script = (
        script.replace("def scaled", "def scaled[B, D]").replace('"B", "D"', "B, D").replace('Tensor["D"]', "Tensor[D]")
    )
    script += "print(sys.argv[1:], scaled(np.ones((2, 3), 'f4'), np.arange(3, dtype='f4')).tolist())\n"
    (folder / "script.tess").write_text(script)
    result = tessera("run", "script.tess", "one", cwd=folder)
    assert result.stdout.strip() == "['one'] [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]", result.stderr
    result = tessera("profile", "script.tess", "--html", "p.html", "--trace", "t.json", cwd=folder)
    assert "scaled" in result.stdout and (folder / "p.html").stat().st_size > 1000, result.stderr
    assert json.loads((folder / "t.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    "words, said",
    [
        (("check", "absent.py"), "no file absent.py"),
        (("ir", "good.py:scald"), "did you mean 'scaled'"),
        (("ir", "good.py:scaled", "--dims", "B=x"), "is not NAME=SIZE"),
        (("ir", "good.py:scaled", "--level", "silicon"), "level is one of"),
        (("compile", "good.py"), "FILE:NAME"),
        (("compile", "good.py:scaled", "--target", "sm_42"), "TS601"),
        (("frobnicate",), "No such command"),
        (("ir", "good.py:4"), "line 4 of good.py is in no function or kernel; it has scaled, saxpy"),
        (("ir", "good.py:scaled", "--dims", "Q=3"), "scaled has no size 'Q'; it has B, D"),
        (("compile", "good.py:saxpy", "--dims", "B=3", "-o", "out"), "saxpy has no size 'B'; it has n"),
        (("compile", "good.py:scaled", "-o", "wrong.py"), "TS616 wrong.py: File exists"),
        (("trace", "merge", "good.npz", "-o", "absent/t.json"), "TS616 absent/t.json: No such file or directory"),
        (("check", "good.py", "latin.py"), "TS101 latin.py is not UTF-8 text"),
        (("check", "good.py", "--costs", "--target", "sm_42"), "TS601"),
    ],
)
def test_mistakes_on_the_command_line_are_said_without_a_traceback(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    (folder / "latin.py").write_bytes(b"import tessera  # caf\xe9")
    with ts.profiler() as prof:
        pass
    prof.save(folder / "good.npz")
    result = answered(*words, cwd=folder)
    text = " ".join((result.stderr + result.stdout).replace("│", " ").split())
    assert result.returncode in (1, 2) and said in text and "Traceback" not in text


def test_a_terminal_that_has_not_the_letters_of_a_name(folder: Path) -> None:
    (folder / "wrong.py").write_text(WRONG.replace('"D"', '"Δ"'), "utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "tessera", "check", "wrong.py"],
        cwd=folder, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 1 and r"\u0394" in found.stdout and "TS900" not in found.stderr, found


def test_a_file_that_a_script_does_not_find_is_its_own_business(folder: Path) -> None:
    (folder / "opens.py").write_text("def f():\n    open('absent')\nf()\n")
    for command in ("run", "profile"):
        said = answered(command, "opens.py", cwd=folder)
        assert said.returncode == 1 and "Traceback" in said.stderr and "TS616" not in said.stderr


def test_a_mistake_in_no_line_of_a_program_has_no_place(folder: Path) -> None:
    """Where the library of the command line calls, not a program."""
    (folder / "run.py").write_text(PROGRAM.replace('raise SystemExit("the file was executed")', ""))
    said = tessera("tune", "run.py:saxpy", "--dims", "n=8", cwd=folder).stderr
    assert "Bad call TS105 in saxpy\n  saxpy has no configurations to tune; give it one" in said, said


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("raise ValueError('too late')", 1, "ValueError: too late"),
    ],
)
def test_a_script_that_ends_early_is_shown_all_the_same(folder: Path, end: str, code: int, said: str) -> None:
    script = PROGRAM.replace('raise SystemExit("the file was executed")', "import sys, numpy as np")
    script += f"scaled(np.ones((2, 3), 'f4'), np.arange(3, dtype='f4'))\n{end}\n"
    (folder / "early.py").write_text(script)
    result = tessera("profile", "early.py", cwd=folder)
    assert result.returncode == code and said in result.stderr
    assert "Kernel Execution Summary:" in result.stdout and "scaled:7 x * w" in result.stdout


def test_options_of_a_script_follow_two_dashes(folder: Path) -> None:
    (folder / "own.py").write_text("import sys\nprint(sys.argv[1:])\n")
    for command in ("run", "profile"):
        refused = answered(command, "own.py", "--steps", "3", cwd=folder)
        assert refused.returncode == 2
        assert f"Options of the script follow a --: tessera {command} own.py -- --steps ..." in refused.stderr
        assert "['--steps', '3']" in answered(command, "own.py", "--", "--steps", "3", cwd=folder).stdout
    assert "follow a --" not in answered("profile", "own.py:f", "--steps", "3", cwd=folder).stderr


@pytest.mark.parametrize("words", [("run", "raises.py"), ("profile", "raises.py"), ("profile", "raises.py:scaled")])
def test_a_script_that_raises_has_the_traceback_that_python_gives_it(folder: Path, words: tuple[str, ...]) -> None:
    text = PROGRAM.replace('raise SystemExit("the file was executed")', "def f():\n    {}['key']")
    (folder / "raises.py").write_text(text + "\nf()\n")
    result = tessera(*words, cwd=folder)
    lines = result.stderr.splitlines()
    assert result.returncode == 1
    assert [line.split('"')[1].split("/")[-1] for line in lines if line.startswith("  File")] == ["raises.py"] * 2
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "KeyError: 'key'")


def test_doctor_and_cache_speak_json(folder: Path) -> None:
    found = json.loads(tessera("doctor", "--json", cwd=folder).stdout)
    (processor,) = (f for f in found if f["what"] == "processor")
    assert "not measured" in processor["detail"]  # TESSERA_FIGURES=usual
    assert {"  reading", "  copying", "  products", "  functions", "  launches"} <= {f["what"] for f in found}
    assert {"tessera", "python", "device", "llvmlite"} <= {f["what"] for f in found}
    assert json.loads(tessera("cache", "stats", "--json", cwd=folder).stdout)
    assert "every entry is whole" in tessera("cache", "verify", cwd=folder).stdout


def test_help_loads_the_list_of_commands_and_no_command(tmp_path: Path) -> None:
    shown = tessera("--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert [line.split()[0] for line in shown.stdout.partition("Commands:\n")[2].splitlines() if line[2:3] > " "] == [
        *COMMANDS
    ]
    code = "import sys; from tessera.cli.app import application; application(''); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert len([m for m in loaded if m.split(".")[0] == "tessera"]) < 12
    assert len(loaded) < 250 and not {"rich", "numpy", "llvmlite", "tessera.language"} & set(loaded)


def test_each_command_is_listed_with_its_first_words() -> None:
    files = {p.stem for p in Path(cli.__file__).parent.glob("*.py")} - {"__init__", "__main__", "app", "programs"}
    assert files == COMMANDS.keys()
    for name, summary in COMMANDS.items():
        function = getattr(importlib.import_module(f"tessera.cli.{name}"), name)
        assert " ".join((function.__doc__ or "").split("\n\n")[0].split()) == summary


def test_a_command_that_is_none_is_answered_with_a_near_one(tmp_path: Path) -> None:
    wrong = tessera("chek", cwd=tmp_path)
    assert wrong.returncode == 2 and "check" in wrong.stderr
