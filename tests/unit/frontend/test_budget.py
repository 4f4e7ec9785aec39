"""What a computation at compile time may cost: where it is given up, what is said, and that it takes no time."""

from __future__ import annotations

import importlib.util
import time

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.frontend import budget
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.errors import CompileError, Diagnostic

HEAD = "import math\nimport tessera as ts\nfrom tessera import Tensor\n"
GOOD = """
@ts.function
def other(x: Tensor["N", "M"]) -> Tensor["N"]:
    return x
"""
SECONDS = 60.0
"""of processor time: what is given up takes one or two, and took minutes, or the whole memory"""


def found(text: str) -> list[Diagnostic]:
    file, started = FileAnalysis("budget.py"), time.process_time()
    file.update(HEAD + text)
    assert time.process_time() - started < SECONDS
    return file.diagnostics


def function(*lines: str, annotation: str = "'N'") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"@ts.function\ndef f(x: Tensor[{annotation}]):\n{body}    return x\n"


LARGE = [
    "n = math.factorial(10**7)", "n = math.comb(10**8, 5 * 10**7)", "n = math.perm(10**7)", "n = 10**10**10",
    "n = 1 << 10**10", "n = math.prod(range(1, 10**9))", "n = sum(range(10**12))", "n = round(5, -10**10)",
    "n = 'a' * 10**12", "n = [0] * 10**12", "n = 'a'.ljust(10**12)", "n = '%999999999999d' % 3",
    "n = '%*d' % (10**12, 3)", "n = f'{3:>999999999999}'", "n = '{:>999999999999}'.format(3)",
    "n = '{:>{}}'.format(3, 10**12)", "n = (3).to_bytes(10**12, 'big')", "n = list(range(10**12))",
    "n = ('a' * 9999).replace('a', 'b' * 99999)", "n = ','.join(['a' * 9999] * 9999)", "n = math.lcm(*range(1, 99999))",
    "n = len(range(10**30))", "n = bool(range(-(10**19)))", "for i in range(10**30): x = x + i",
    "for i in ts.static_range(0, 1, 10**30): pass",
    "n = [a for a in range(10**4) for b in range(10**4) for c in range(10**4)]",
]  # fmt: skip


@pytest.mark.parametrize("line", LARGE)
def test_a_value_that_is_too_large_is_a_finding_at_its_line(line):
    codes = [(d.code, d.span.line) for d in found(function(line) + GOOD)]
    assert codes == [("TS111", 6), ("TS201", 11)]


GROWING = {
    "numbers": ("n = 3", "for i in range(60):", "    n = n * n"),
    "texts": ("n = 'a'", "for i in range(60):", "    n = n + n"),
    "lists": ("n = [1]", "for i in range(60):", "    n = n + n"),
    "lists in place": ("n = [1]", "for i in range(60):", "    n += n"),
    "extended lists": ("n = [1]", "for i in range(60):", "    n.extend(n)"),
    "pairs of pairs": ("n = 1", "for i in range(60):", "    n = [n, n]"),
    "tuples of tuples": ("n = (1,)", "for i in range(60):", "    n = (n, n)"),
    "dicts of dicts": ("n = {}", "for i in range(60):", "    n = {1: n, 2: n, 3: [n]}"),
    "appended pairs": ("n = [1]", "for i in range(60):", "    m = []", "    m.append(n)", "    m += [n]", "    n = m"),
    "a list in itself": ("n = [1]", "n.append(n)", "m = n == n"),
    "a dict in itself": ("n = {}", "n[1] = n"),
    "lists around it": ("n = [1]", "m = [n]", "n[0] = m"),
    "sizes": ("n = x.shape[0]", "for i in range(60):", "    n = n * n + n + 1"),
    "quotients": ("n = x.shape[0]", "for i in range(60):", "    n = (n + 1) // (n + 3) + n"),
    "factors": ("n = x.shape[0]", "for i in range(60):", "    n = n * 10**2999 + 1"),
    "loops": ("n = 0", "for i in range(10**4):", "    for j in range(10**4):", "        n = n + 1"),
    "while": ("n = 0", "while n >= 0:", "    n += 1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", GROWING)
def test_what_grows_without_end_is_given_up(kind):
    got = found(function(*GROWING[kind]) + GOOD)
    assert list(dict.fromkeys(d.code for d in got)) == ["TS111", "TS201"], got
    assert 6 <= got[0].span.line <= 6 + len(GROWING[kind])


@pytest.mark.parametrize(
    "line", ["g(x, n + 1) + g(x, n + 2)", "g(g(x, n + 1), n + 2)", "[g(x, n) for _ in range(9)][0]"]
)
def test_recursion_that_branches_is_found_as_any_other(line):
    text = f"def g(x, n):\n    return {line}\n" + function("y = g(x, 0)")
    assert [d.code for d in found(text)] == ["TS108"]


DEEP = {
    "a dim": "'" + "-" * 50_000 + "N'", "a number": "-" * 50_000 + "3",
    "brackets": "'" + "(" * 5_000 + "N" + ")" * 5_000 + "'", "a sum": "'" + "+".join(["N"] * 9_000) + "'",
    "minima": "'" + "min(N," * 900 + "M" + ")" * 900 + "'",
    "a product of sums": "'" + "*".join(f"(A{i}+B{i})" for i in range(40)) + "'",
}  # fmt: skip


@pytest.mark.parametrize("kind", DEEP)
def test_an_annotation_that_is_too_deep_is_a_finding_there(kind):
    got = found(function("y = x", annotation=DEEP[kind]) + GOOD)
    assert got[-1].code == "TS201"  # of the other function
    assert [d.code for d in got[:-1]] in (["TS211"], ["TS101"]), got
    assert got[0].span.line == 5
    assert len(got[0].message) < 300


def test_a_constant_of_the_module_is_given_up_with_a_note():
    text = "BIG = [i * j for i in range(10**4) for j in range(10**4)]\n" + function("n = len(BIG)")
    for _ in range(2):
        assert [(d.code, d.span.line, d.severity) for d in found(text)] == [("TS111", 4, "note")]
    file = FileAnalysis("edited.py")
    for n in range(3):
        file.update(HEAD + text + f"# {n}\n")
        assert [(d.code, d.severity) for d in file.diagnostics] == [("TS111", "note")]


PLAIN = """def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)


"""


def test_a_plain_function_of_numbers_is_pythons_business(tmp_path):
    """The compiler calls it, whatever it takes; where a text is only read, it is unknown, which is no error."""
    text = PLAIN + function("n = deep(40) + fib(21)", "x = x + n")
    notes = found(text)
    assert {(d.code, d.severity) for d in notes} == {("TS111", "note")}
    (tmp_path / "plain.py").write_text(HEAD + text)
    spec = importlib.util.spec_from_file_location("plain", tmp_path / "plain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.f(np.zeros(2, np.float32)).tolist() == [10986.0, 10986.0]


def test_what_is_small_is_computed():
    assert not found(PLAIN + function(
        "n = math.factorial(20) + math.comb(2000, 1000) % 7 + fib(12) + deep(9)", "m = [i * i for i in range(1000)]",
        "k = len('%08d' % 3) + len('a' * 1000) + sum(range(10**4)) + len(f'{3:>20}') + math.prod(range(1, 99))",
        "x = x + (k + len(m))",
    ))  # fmt: skip


@ts.function
def _too_large(x):
    return x * (3 ** (10**6))


@ts.function
def _too_long(x):
    n = 0
    for _ in range(10**4):
        for _ in range(10**4):
            n = n + 1
    return x * n


@pytest.mark.parametrize("program", [_too_large, _too_long])
def test_the_compiler_has_the_same_limits(program):
    with pytest.raises(CompileError) as e:
        program(np.zeros(2, np.float32))
    assert [d.code for d in e.value.diagnostics] == ["TS111"]


def test_a_number_made_of_itself_is_computed_once_per_part():
    lines = ("y = x.shape[0] / 2", "for i in range(40):", "    y = 0.5 * (y + x.shape[0] / y)", "x = x * y")
    file = FileAnalysis("newton.py")
    file.update(HEAD + function(*lines))
    assert not file.diagnostics
    op = analyse(file.analyses[0].definition).op
    assert op is not None and sum(1 for _ in op.walk()) < 300


def test_the_same_steps_are_counted_each_time():
    """The limits are no times: a program is over them or not, on every machine and at every run."""
    text = function("n = 0", "for i in range(900):", "    for j in range(100):", "        n = n + i * j")
    first, second = found(text), found(text)
    assert first == second and [d.code for d in first] in ([], ["TS111"])


def test_the_guesses_come_before_the_work():
    assert budget.call_explodes("comb", (10**8, 5 * 10**7)) and not budget.call_explodes("comb", (10**8, 20))
    assert not budget.call_explodes("comb", (2000, 1000))
    assert budget.call_explodes("factorial", (10**9,)) and not budget.call_explodes("factorial", (1000,))
    assert budget.operation_explodes("**", 3, 10**9) and not budget.operation_explodes("**", 1, 10**9)
    assert not budget.operation_explodes("**", 2, -3) and not budget.operation_explodes("*", 2.0, 10**9)
    assert not budget.call_explodes("factorial", ("a",))
    held: list[object] = []
    held.append(held)
    assert budget.weight(held) > budget.ITEMS


@pytest.mark.parametrize("lines", [("while True:", "    x = x + 1"), ("i = 0", "while i < 9:", "    x = x + i")])
def test_a_while_without_end_ends_before_it_has_written_a_long_program(lines):
    """So that an editor that meets one half typed does not stand still: 20,000 operators took four seconds."""
    file = FileAnalysis("budget.py")
    file.update(HEAD + function(*lines))
    (d,) = file.diagnostics
    assert d.code == "TS111" and "times at compile time" in d.message and d.span.line == 4 + len(lines)
    assert sum(len(a.op.region.block.ops) for a in file.analyses if a.op) <= budget.LOOP_OPS + 10


def test_a_while_may_count_and_compute():
    lines = ("i, n = 0, 0", "while n < 15000:", "    n += 1", "while i < 300:", "    i, x = i + 1, x + i")
    assert [d.code for d in found(function(*lines))] == []


def test_a_loop_of_many_copies_is_said_at_its_line() -> None:
    """Once, where it begins; loops of few operators and loops that run when the program runs say nothing."""
    nested = function("for i in range(30):", "    for j in range(40):", "        x = ts.sin(x) * (i + j)")
    (warning,) = found(nested)
    assert (warning.code, warning.severity, warning.span.line) == ("TS112", "warning", 6)
    assert "30 copies" in warning.message and "3,600 operators" in warning.message and "ts.range" in warning.message
    assert not found(function("for i in range(100):", "    x = x * i"))
    assert not found(function("for i in ts.range(5000):", "    x = ts.sin(x) * 2 + 1"))


def test_a_chain_of_too_many_operators_is_said(own_cache: Path) -> None:
    @ts.kernel
    def k(x: ts.Tensor["N", ts.f32]) -> ts.Tensor["N", ts.f32]:
        y = x[ts.tile.linear_id()]
        for j in ts.tile.static_range(900):
            y = y * 1.5 + j
        return y

    with pytest.raises(ts.CompileError, match=r"TS111(.|\n)*too long a chain(.|\n)*ts\.tile\.range"):
        k(np.ones(4, np.float32))
