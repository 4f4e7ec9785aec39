"""Python that has no meaning in a function, each with what to do instead."""
# fmt: off
# ruff: noqa

from __future__ import annotations

import tessera as ts
from tessera import Tensor


@ts.function
def tries(x: Tensor["D"]):
    try:
   #^^^ TS102
        return x * 2
    except ValueError:
        return x


@ts.function
def stores(x: Tensor["D"]):
    x[0] = 1.0
   #^^^^ TS102
    # says: what is stored to x is lost
    return 2.0


@ts.function
def returns_numbered(x: Tensor["D"]):
    return {0: x}
          #^^^^^^ TS102
    # says: named by strings


@ts.function
def returns_one_of_several(x: Tensor["D"]) -> dict[str, Tensor["D"]]:
    return {"y": x, "loss": x.sum()}
                   #        ^^^^^^^ TS201


@ts.function
def returns_no_dict(x: Tensor["D"]) -> dict[str, Tensor]:
    return x + 1
          #^^^^^ TS201


@ts.function
def returns_other_names(x: Tensor["D"]):
    if x.sum() > 0:
      #^^^^^^^^^^^ TS212
        return {"y": x, "z": x}
    # says: a dict of y, z on one path and a dict of y on the other
    return {"y": x}


@ts.function
def returns_in_a_loop(x: Tensor["D"]):
    for i in ts.range(10):
        x = x * 2
        if x.sum() > 100:
            return x
            #      ^ TS102
    return x


@ts.function
def breaks(x: Tensor["D"]):
    for i in ts.range(10):
        x = x + i
        break
       #^^^^^ TS102
    return x


@ts.function
def one_sided(x: Tensor["D"]):
    if x.sum() > 0:
        return x
        #      ^ TS102
        # says: on one path only


@ts.function
def appends(x: Tensor["D"]):
    parts = []
    if x.sum() > 0:
   #^^^^^^^^^^^^^^ TS102
        parts.append(x)
    return x


@ts.function
def nothing(x: Tensor["D"]):
   #^^^^^^^ TS102
    y = x * 2


@ts.function
def text(x: Tensor["D"]):
    return "done"
    #      ^^^^^^ TS102


@ts.function
def prints(x: Tensor["D"]):
    print(x)
   #^^^^^^^^ TS102
    return x


@ts.function
def very_long(x: Tensor["D"]):
    for i in range(10**9):
        #    ^^^^^^^^^^^^ TS111
        # fix: for i in ts.range(10**9):
        x = x + i
    return x


@ts.function
def many_copies(x: Tensor["D"]):
    for i in range(1000):
        #    ^^^^^^^^^^^ TS112
        x = ts.sin(x) * i
    return x


@ts.function
def explodes(x: Tensor["D"]):
    return x * 10**10**10
    #          ^^^^^^^^^^ TS111


@ts.function
def sets_global(x: Tensor["D"]):
    global counter
   #^^^^^^^^^^^^^^ TS102
    return x


@ts.function
async def asynchronous(x: Tensor["D"]):
    #     ^^^^^^^^^^^^ TS102
    # fix: def asynchronous(x: Tensor["D"]):
    return x


@ts.function
def matches(x: Tensor["D"], mode: str = "a"):
    match mode:
   #^^^^^^^^^^ TS102
        case "a":
            y = x
    return y * 2


@ts.function
def matches_and_returns(x: Tensor["D"], mode: str = "a"):
    match mode:
   #^^^^^^^^^^ TS102
        case "a":
            return x


@ts.function
def undecidable_exit(x: Tensor["D"]):
    for i in range(3):
        if x.sum() > i:
       #^^^^^^^^^^^^^^ TS102
            break
        x = x * 2
    return x


def with_an_even_row(total, row):
    if row.shape[0] % 2:
        raise ValueError("the rows are odd")
       #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS107
    return total + row, None


@ts.function
def raises_in_a_scan(x: Tensor["T", 3]):
    return ts.scan(with_an_even_row, ts.zeros((3,)), x)[0]


@ts.function
def raises_in_a_loop(x: Tensor["T", 3]):
    while x.sum() < 10:
        if x.shape[1] % 2:
            raise ValueError("the rows are odd")
           #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS107
        x = x + 1
    return x


@ts.function
def raises_on_a_path(x: Tensor["T", 3]):
    if x.sum() < 10:
        raise ValueError("too small")
       #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ TS102
    # says: would depend on tensor elements
    return x
