"""What Python computes while a function is compiled: each function here gives what Python and NumPy give for it."""

# ruff: noqa: B006, B007, B023, B033, B905, PIE800, SIM222
from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator

import numpy as np
import pytest

import tessera as ts


def parameters(x):
    def g(y, k=2, *rest, scale=1.0, **kw):
        return y * k * scale + len(rest) + sum(kw.values())

    return g(x) + g(x, 3, 1, 2, scale=2.0, a=1, b=2)


def late_binding(x):
    fs = [lambda y: y * i for i in range(3)]
    return sum(f(x) for f in fs)


def early_binding(x):
    fs = [lambda y, i=i: y * i for i in range(3)]
    return sum(f(x) for f in fs)


def own_names_of_comprehensions(x):
    i = 5
    ys = [x * i for i in range(3)]
    return ys[0] + ys[2] * i


def names_after_loops(x):
    for i in range(3):
        pass
    return x * i


def break_skips_else(x):
    t = 0
    for i in range(5):
        if i == 3:
            break
        if i == 1:
            continue
        t = t + i
    else:
        t = 100
    return x + t


def while_runs_else(x):
    t = 0
    i = 0
    while i < 5:
        i += 1
        if i == 9:
            break
    else:
        t = 100
    return x + t + i


def integer_arithmetic(x):
    return x * (-7 // 2) + (-7 % 3) + (7 // -2) + (7 % -3) + 2**-1 + (-2) ** 3


def unpacking(x):
    a, (b, *c) = x, (x + 1, x + 2, x + 3)
    return a + b * 2 + c[0] * 3 + c[1] * 4 + len(c)


def dicts(x):
    d = {"a": x, "b": x * 2}
    d["c"] = d.pop("a") + 1
    d.update(e=x * 5)
    return sum(v * (i + 1) for i, v in enumerate(d.values())) + len(d)


def formatting(x):
    s = f"{3:>4}|{2.5:.2f}"
    return x * len(s)


def assignment_expression(x):
    if (n := len([1, 2, 3])) > 2:
        return x * n
    return x


def chained_comparisons(x):
    return x * (1 < 2 < 3) + (1 < 3 < 2) + (not 0) + (0 or 5) + (3 and 4)


def lists(x):
    l = [1, 2, 3, 4, 5]
    l[1:3] = [9]
    l.append(7)
    l.insert(0, 8)
    l.remove(9)
    del l[0]
    return x * sum(l) + l[-1] + l[::-1][0] + l.index(4)


def recursion(x):
    def fact(n):
        return 1 if n <= 1 else n * fact(n - 1)

    return x * fact(5)


def nested_loops(x):
    out = x
    for i in reversed(range(1, 4)):
        for j in range(i):
            if j == 1:
                continue
            if j == 2:
                break
            out = out * i + j
    return out


def tuples(x):
    t = (1, 2) + (3,) * 2
    return x * t.count(3) + t[1:][0]


def spreading(x):
    class_ = [*range(3), *[4]]
    m = {**{"k": 1}, "k": 2}
    return x * m["k"] + len(class_)


def zipping(x):
    k = 0
    for a, b in zip([1, 2, 3], [4, 5]):
        k += a * b
    for i, v in enumerate("ab", start=1):
        k += i
    return x + k


def builtins_of_numbers(x):
    return x + divmod(-7, 2)[0] + divmod(7, -2)[1] + abs(-3) + round(2.5) + round(3.5) + int(-2.7) + bool(3)


def names_changed_in_turn(x):
    y = x
    for _ in range(2):
        x = y
        y = x + 1
    return x * 10 + y


def lists_of_tensors(x):
    acc = []
    for i in range(3):
        acc += [x * i]
    return acc[0] + acc[1] + acc[2] + len(acc)


def functions_of_functions(x):
    def outer(f):
        def inner(y):
            return f(f(y))

        return inner

    return outer(outer(lambda y: y * 2))(x)


def folds(x):
    return x + any([0, 0, 1]) + all([]) + sum([], 3) + sum([1, 2], 10)


def shared_lists(x):
    v = [[0] * 2] * 2
    v[0][0] = 5
    return x + v[1][0]


def kinds_of_parameters(x):
    def f(a, /, b, *, c):
        return a + b * c

    return f(x, c=2, b=x)


def sets(x):
    s = {1, 2, 2, 3}
    return x + len(s) + (2 in s) + (5 not in s) + len({1, 2} & {2, 3})


def continue_in_while(x):
    i = 10
    while i > 0:
        i -= 3
        if i == 4:
            continue
        x = x + i
    return x


def else_of_nested_loops(x):
    t = 0
    for i in range(3):
        for j in range(3):
            if j == 1:
                break
        else:
            t += 100
        t += j
    else:
        t += 7
    return x + t


def aliases(x):
    a = [1, 2, 3]
    b = a
    b.append(4)
    return x + len(a)


def defaults_are_made_once(x):
    def f(l=[]):
        l.append(1)
        return len(l)

    f()
    f()
    return x + f()


def bits(x):
    m = x.astype(np.int32) if isinstance(x, np.ndarray) else x.astype(ts.int32)
    return m // -2 + m % -3 + (m << 1) + (m >> 1) + (m ^ 5) + (~m) + (m & 3) + (m | 8)


def smallest_by_key(x):
    return x * max([1, 5, 2], key=lambda v: -v) + min(["aaa", "b"], key=len).count("b")


def sorted_by_key(x):
    items = [(1, "b"), (3, "a"), (2, "b")]
    items.sort(key=lambda item: item[1])
    return x * sorted([3, 1, 2], key=lambda v: -v)[0] + items[0][0] * 10 + items[1][0]


def stable_in_reverse(x):
    found = sorted([(1, 0), (0, 1), (1, 2), (0, 3)], key=lambda pair: pair[0], reverse=True)
    return x + sum(pair[1] * 10**i for i, pair in enumerate(found))


def tensors_by_key(x):
    return max([x, x[:1]], key=lambda t: t.shape[0]) + min([x.sum(), x.max()], key=lambda t: 0)


def sizes_by_key(x):
    return x * max(x.shape, key=lambda n: -n) + sorted(x.shape, key=lambda n: -n)[1] + sum(x.shape, start=2)


def default_of_nothing(x):
    return x * max([], key=lambda v: v, default=4) + max([], default=5)


def reduced(x):
    total = functools.reduce(operator.add, [x, x * 2, 3]) + functools.reduce(lambda a, b: a * 2 + b, (x, x), x)
    return total + functools.reduce(operator.mul, [x.sum()], 2) + math.prod([x, x + 1], start=2)


def chained(x):
    firsts = [a * b for a, b in itertools.pairwise(itertools.chain([x], [x + 1, x + 2]))]
    pairs = itertools.zip_longest(itertools.chain.from_iterable([[x], [x]]), [2], fillvalue=x)
    return sum(firsts) + sum(a * b for a, b in pairs) + sum(itertools.islice([x, x, x], 1, None))


def accumulated(x):
    running = list(itertools.accumulate([x, x + 1, 2], operator.mul, initial=x))
    return sum(running) + list(itertools.accumulate([x, x]))[-1] + len(running)


def combined(x):
    pairs = sum(a * b for a, b in itertools.combinations([x, x + 1, x + 2], 2))
    grid = sum(x * a + b for a, b in itertools.product([1, 2], repeat=2))
    return pairs + grid + sum(itertools.starmap(operator.sub, [(x, 2), (3, x)])) + sum(itertools.repeat(x, 3))


def operators_by_name(x):
    chosen = operator.getitem([x, 2], 0) + operator.neg(x) + operator.truediv(x, 4)
    return chosen + sum(map(operator.mul, [x, x], [1, 2])) + (x if operator.gt(x.shape[0], 1) else 0)


def _doubled(function):
    @functools.wraps(function)
    def twice(*args):
        return 2 * function(*args)

    return twice


@_doubled
def _one_more(x):
    return x + 1


def functions_that_others_have_made(x):
    return _one_more(x) * 3


@dataclasses.dataclass(eq=False)
class _Pair:
    a: object
    b: object = 1

    def __add__(self, other):
        return _Pair(self.a + other.a, self.b + other.b) if isinstance(other, _Pair) else NotImplemented

    def __rmul__(self, k):
        return _Pair(self.a * k, self.b * k)

    def __neg__(self):
        return _Pair(-self.a, -self.b)

    def __lt__(self, other):
        return self.b < other.b

    def __getitem__(self, i):
        return (self.a, self.b)[i]

    def __len__(self):
        return 0

    def __contains__(self, item):
        return item == self.b

    @staticmethod
    def twice(x):
        return x * 2

    @classmethod
    def of(cls, x):
        return cls(x, 3)

    @functools.cached_property
    def total(self):
        return self.a + self.b


@dataclasses.dataclass(eq=False)
class _Further(_Pair):
    def __post_init__(self):
        self.b = self.b + 1

    def __add__(self, other):
        return super().__add__(other) + _Pair(1, 1)

    @property
    def total(self):
        return super().twice(self.a)


def special_methods(x):
    p = 3 * (_Pair(x, 1) + _Pair(x, 2))
    chosen = (x if p else 5 * x) + (2 if 9 in p else 7) * x + (1 if p < _Pair(0, 99) else 0)
    return p[0] + p[1] + (-p).b + len(p) + chosen


def methods_without_an_instance(x):
    p = _Pair(x)
    return p.twice(x) + _Pair.of(x).b + p.of(x).b + p.total


def methods_of_classes_above(x):
    p = _Further(x, 2)
    return (p + _Pair(x, 5)).a + p.total + p.b


def replaced_dataclasses(x):
    return dataclasses.replace(_Further(x, 2), a=x * 2).b + dataclasses.replace(_Pair(x), b=7).total


def views_of_dicts(x):
    d = {"a": x, "b": 2}
    return sum(d.values()) + len(d.items()) * x + sum(v for v in d.values())


def functions_and_modules_are_themselves(x):
    held = _Pair(ts.relu, ts)
    same = [held.a is ts.relu, held.b is ts, math is math, len is len, held.a == ts.relu, held.b == ts]
    others = [held.a is not ts.exp, held.a != ts.exp, held.a is not None, ts is not math, held.a in (ts.exp, ts.relu)]
    return x * sum(2**i for i, true in enumerate([*same, *others, type(x.ndim) is int]) if true)


PROGRAMS = [f for name, f in list(globals().items()) if getattr(f, "__module__", "") == __name__ and name[0] != "_"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_function_means_what_python_means(program):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(np.asarray(ts.function(program)(x)), program(x), rtol=1e-6)


def test_keys_that_only_the_program_knows_are_refused():
    @ts.function
    def largest(x):
        return max([x, x + 1], key=lambda t: t.sum())

    with pytest.raises(ts.errors.CompileError, match="max compares keys, which are not known at compile time"):
        largest(np.ones(3, np.float32))


def test_what_is_not_known_is_said():
    @ts.function
    def of_a_function(x):
        return x * len(list(itertools.takewhile(lambda v: v < 2, [1, 2])))

    with pytest.raises(ts.errors.CompileError, match="takewhile cannot be made of"):
        of_a_function(np.ones(3, np.float32))

    @ts.function
    def of_nothing(x):
        return x * functools.reduce(operator.add, [])

    with pytest.raises(ts.errors.CompileError, match="TS107"):
        of_nothing(np.ones(3, np.float32))
