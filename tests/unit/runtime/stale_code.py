"""A program whose text says one thing with the argument "a" and another with "b"; run by test_stale_code."""

from __future__ import annotations

import collections
import enum
import functools
import json
import sys

import numpy as np

import tessera as ts

FIRST = sys.argv[1] == "a"
FACTOR = 2.0 if FIRST else 3.0
X = np.ones(2, np.float32)

if FIRST:

    class Parts:
        K = 2.0

        @staticmethod
        def static(x):
            return x * 2

        @classmethod
        def of_class(cls, x):
            return x * cls.K

        def method(self, x):
            return x * 2

        @property
        def value(self):
            return 2.0

        def __call__(self, x):
            return x * 2

        def __getitem__(self, i):
            return 2.0

        def __len__(self):
            return 2

        def __iter__(self):
            return iter((2.0,))

    def last(x):
        return x * 2

else:

    class Parts:
        K = 3.0

        @staticmethod
        def static(x):
            return x * 3

        @classmethod
        def of_class(cls, x):
            return x * cls.K

        def method(self, x):
            return x * 3

        @property
        def value(self):
            return 3.0

        def __call__(self, x):
            return x * 3

        def __getitem__(self, i):
            return 3.0

        def __len__(self):
            return 3

        def __iter__(self):
            return iter((3.0,))

    def last(x):
        return x * 3


class Below(Parts):
    def method(self, x):
        return Parts.method(self, x)


class Choice(enum.Enum):
    ONE = FACTOR


class Pair(collections.namedtuple("Pair", "k")):
    def go(self, x):
        return x * self.k


class Holder:
    pass


def scaled(x, k):
    return x * k


def closure(k):
    def inner(x):
        return x * k

    return inner


def chain_1(x):
    return last(x)


def chain_2(x):
    return chain_1(x)


def chain_3(x):
    return chain_2(x)


def chain_4(x):
    return chain_3(x)


def chain_5(x):
    return chain_4(x)


def chain_6(x):
    return chain_5(x)


def chain_7(x):
    return chain_6(x)


def takes(held, x):
    return x * held.scale


def takes_deep(held, x):
    return x * held.n.n.n.n.n.n.n.n.scale


parts, below, pair = Parts(), Below(), Pair(FACTOR)
partial = functools.partial(scaled, k=FACTOR)
table = {"f": parts.method}
one, other = closure(0.0), closure(FACTOR)
held, innermost = Holder(), Holder()
held.scale = innermost.scale = held.inner = FACTOR
held.parts = [partial]
held.call = parts
deep = innermost
for _ in range(8):
    outer = Holder()
    outer.n = deep
    deep = outer

PROGRAMS = {
    "static method": lambda x: Parts.static(x),
    "class method": lambda x: Parts.of_class(x),
    "class constant": lambda x: x * Parts.K,
    "method": lambda x: parts.method(x),
    "property": lambda x: x * parts.value,
    "call": lambda x: parts(x),
    "item": lambda x: x * parts[0],
    "length": lambda x: x * len(parts),
    "iteration": lambda x: [x * k for k in parts][-1],
    "method of the class above": lambda x: below.method(x),
    "partial": lambda x: partial(x),
    "enumeration": lambda x: x * Choice.ONE.value,
    "named tuple": lambda x: pair.go(x),
    "bound method in a dict": lambda x: table["f"](x),
    "partial in a list": lambda x: held.parts[0](x),
    "object in an object": lambda x: held.call(x),
    "two closures of one function": lambda x: one(x) + other(x),
    "chain of calls": lambda x: chain_7(x),
    "object that is handed on": lambda x: takes(held, x),
    "object deep inside": lambda x: takes_deep(deep, x),
}

functions = {name: ts.function(f) for name, f in PROGRAMS.items()}
found = {name: float(f(X)[0]) for name, f in functions.items()}

# What changes while the process runs counts as well.
parts_before = Parts.__call__
Parts.K = 9.0
Parts.__call__ = lambda self, x: x * 9
held.scale = innermost.scale = 9.0
table["f"] = Pair(9.0).go
CHANGED = ("class constant", "class method", "call", "object in an object", "object that is handed on",
           "object deep inside", "bound method in a dict")  # fmt: skip
changed = {name: float(functions[name](X)[0]) for name in CHANGED}
print(json.dumps({"found": found, "changed": changed}))
