"""Annotations: the same meaning as objects and as syntax, and errors that say where, why and what to write instead."""

from __future__ import annotations

import ast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.compiler.frontend.syntax.parse import Source, parse
from tessera.language import dims, dtypes, policies
from tessera.language.annotations import (
    AnnotationError,
    Bool,
    Const,
    ConstAnn,
    Float,
    Int,
    ScalarAnn,
    TensorAnn,
    Tile,
    TileAnn,
    TupleAnn,
    UnknownAnn,
    annotation_from_ast,
    tensor_spec,
)
from tessera.language.dtypes import bf16, f16, f32
from tessera.language.policies import Policy, accum, loss_scale, saturate, stochastic_round

B, S, D, H = map(dims.symbol, "BSDH")


class Tensor:
    """As the runtime's Tensor uses the factory."""

    __tessera_builtin__ = "tessera.Tensor"

    def __class_getitem__(cls, item):
        return tensor_spec(item)


def policy(*parts):
    out = Policy()
    for p in parts:
        out = out.merge(p)
    return out


NAMES = {
    "Tensor": Tensor, "ts.Tensor": Tensor, "Tile": Tile, "Const": Const, "Int": Int, "Float": Float, "Bool": Bool,
    "f32": f32, "ts.f32": f32, "bf16": bf16, "f16": f16, "half": "f16", "int": int, "float": float, "bool": bool,
    "complex": complex, "str": str, "accum": accum, "ts.accum": accum, "loss_scale": loss_scale, "saturate": saturate,
    "stochastic_round": stochastic_round, "device": policies.device, "NumericalPolicy": policies.NumericalPolicy,
    "million": 10**6, "mixed": bf16 @ accum(f32), "Batch": TensorAnn((B, 3), f32), "np.float32": np.float32,
    "unknowable": UnknownAnn(), "alias": ast.parse('Tensor["B", f32]', mode="eval").body, "a_list": [1, 2],
    "Optional": "typing", "tuple": tuple, "min": min,
}  # fmt: skip


def read(text: str, *parameters: str):
    """An annotation of dialect text, with spans in that text."""
    tree = parse(text, "m.tess").tree
    assert tree is not None, text
    return annotation_from_ast(tree.body[0].value, NAMES.get, Source("m.tess", text).span, parameters)


EVALUATED = {
    'Tensor["B", "S", f32]': TensorAnn((B, S), f32),
    'Tensor["B*H", "S", "D//H", ts.f32]': TensorAnn((B * H, S, dims.floordiv(D, H)), f32),
    'ts.Tensor["B", 784]': TensorAnn((B, 784)),
    'Tensor[..., "D"]': TensorAnn((..., D)),
    'Tensor["...", "D"]': TensorAnn((..., D)),
    'Tensor["B"] | None': TensorAnn((B,), optional=True),
    'None | Tensor["B", f32]': TensorAnn((B,), f32, optional=True),
    "Tensor[()]": TensorAnn(()),
    "Tensor[f32]": TensorAnn((), f32),
    'Tensor["B", bf16 @ accum(f32)]': TensorAnn((B,), bf16, policy(accum(f32))),
    'Tensor["B", bf16, accum(f32), saturate]': TensorAnn((B,), bf16, policy(accum(f32), saturate)),
    'Tensor["B", bf16 @ accum(f32) @ loss_scale(128.0)]': TensorAnn((B,), bf16, policy(accum(f32), loss_scale(128.0))),
    'Tensor["B", "bf16 @accum(f32)"]': TensorAnn((B,), bf16, policy(accum(f32))),
    'Tensor["B", "float16"]': TensorAnn((B,), f16),
    'Tensor["B", mixed]': TensorAnn((B,), bf16, policy(accum(f32))),
    'Tensor["B", np.float32]': TensorAnn((B,), f32),
    'Tensor["B", accum(f32)]': TensorAnn((B,), None, policy(accum(f32))),
    'Tensor["B", f32 @ NumericalPolicy(accumulation=f32, rounding="stochastic")]':
        TensorAnn((B,), f32, policy(accum(f32), stochastic_round)),
    'Tensor["B", f32 @ device("gpu:0")]': TensorAnn((B,), f32, policy(policies.device("gpu:0"))),
    "Tensor[million, bf16]": TensorAnn((10**6,), bf16),
    'Tensor["max(B, 2)"]': TensorAnn((dims.dim_max(B, 2),)),
    'Tile["B", "D", bf16]': TileAnn((B, D), bf16),
    'Const["H"]': ConstAnn(H),
    "Const[int]": ConstAnn(None, dtypes.int64),
    "Int[32]": ScalarAnn(dtypes.int32),
    "Float[16]": ScalarAnn(f16),
    "Tensor @ f32": TensorAnn((...,), f32),
    "ts.Tensor @ bf16": TensorAnn((...,), bf16),
    "Batch": TensorAnn((B, 3), f32),
    "Batch | None": TensorAnn((B, 3), f32, optional=True),
}  # fmt: skip
"""plain Python: evaluating it and reading it give the same"""

READ_ONLY = {
    'Tensor["B", dtype=bf16, @accum(f32)]': TensorAnn((B,), bf16, policy(accum(f32))),
    'Tensor["B", "S", dtype=bf16, @accum(f32), @loss_scale(1024), @stochastic_round]':
        TensorAnn((B, S), bf16, policy(accum(f32), loss_scale(1024), stochastic_round)),
    'Tensor["B", dtype="bf16 @accum(f32)"]': TensorAnn((B,), bf16, policy(accum(f32))),
    'Tensor["B", dtype=bf16, policy=accum(f32)]': TensorAnn((B,), bf16, policy(accum(f32))),
    "Int[bits=32]": ScalarAnn(dtypes.int32),
    "Float[bits=64]": ScalarAnn(dtypes.f64),
    "Tensor": TensorAnn(),
    "ts.Tensor | None": TensorAnn(optional=True),
    "Tile": TileAnn(),
    "Const": ConstAnn(),
    "Int": ScalarAnn(dtypes.int64),
    "Bool": ScalarAnn(dtypes.bool_),
    "f32": ScalarAnn(f32),
    "ts.f32": ScalarAnn(f32),
    "float": ScalarAnn(f32, python=True),
    "int | None": ScalarAnn(dtypes.int64, python=True, optional=True),
    "str": UnknownAnn("str"),
    "list[int]": UnknownAnn("list[int]"),
    "Distribution[Tensor]": UnknownAnn("Distribution[Tensor]"),
    "Tensor | float": UnknownAnn("Tensor | float"),
    "Tensor[unknowable, 3]": UnknownAnn("Tensor[unknowable, 3]"),
    "alias": TensorAnn((B,), f32),
    '"Tensor[\'B\', f32]"': TensorAnn((B,), f32),
    'Optional[Tensor["B"]]': TensorAnn((B,), optional=True),
    'tuple[Tensor["B"], int]': TupleAnn((TensorAnn((B,)), ScalarAnn(dtypes.int64, python=True))),
}  # fmt: skip


@pytest.mark.parametrize(("text", "meaning"), EVALUATED.items())
def test_read_and_evaluated_mean_the_same(text, meaning):
    assert read(text) == meaning
    scope = {
        "ts": type("ts", (), {"f32": f32, "Tensor": Tensor}),
        "np": np,
        **{k: v for k, v in NAMES.items() if "." not in k},
    }
    assert eval(text, scope) == meaning


@pytest.mark.parametrize(("text", "meaning"), READ_ONLY.items())
def test_read(text, meaning):
    assert read(text) == meaning


SHOWN = [m for m in (*EVALUATED.values(), *READ_ONLY.values()) if m != ScalarAnn(dtypes.bool_)]  # as Python's bool is


@pytest.mark.parametrize("meaning", SHOWN, ids=str)
def test_messages_show_what_may_be_written(meaning):
    assert read(str(meaning)) == meaning


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("Tensor[B, S]", (B, S)),
        ("Tensor[B*H, S+1, 3]", (B * H, S + 1, 3)),
        ("Tensor[B, D//H, D % H]", (B, dims.floordiv(D, H), dims.mod(D, H))),
        ("Tensor[2*million, -1 + S]", (2 * 10**6, S - 1)),
        ("Tensor[min(S, 128), max(B, D)]", (dims.dim_min(S, 128), dims.dim_max(B, D))),
        ('Tensor[B, "S"]', (B, S)),
    ],
)
def test_type_parameters_are_dims(text, shape):
    assert read(text, "B", "S", "D", "H") == TensorAnn(shape)
    assert read("Const[H]", "H") == ConstAnn(H)


def test_each_dim_has_its_place():
    text = 'Tensor["B",  "S*2", dtype=f32]'
    spans = read(text).spans
    assert [text[s.col - 1 : s.end_col - 1] for s in spans] == ['"B"', '"S*2"']


@pytest.mark.parametrize(
    ("text", "reason", "place", "fix"),
    [
        ("Tensor[Q, f32]", 'A dim is written in quotes: "Q"', "Q", '"Q"'),
        ('Tensor["B", bf61]', "Did you mean bf16?", "bf61", "bf16"),
        ('Tensro["B"]', "Did you mean Tensor?", "Tensro", "Tensor"),
        ('Tensor["B", 3.5]', "3.5 is neither a dim", "3.5", None),
        ("Tensor[True]", "True is neither a dim", "True", None),
        ("Tensor[a_list]", "neither a dim", "a_list", None),
        ('Tensor["B+"]', "'B+' is not a dim expression", '"B+"', None),
        ('Tensor["f(B)"]', "is not a dim expression", '"f(B)"', None),
        ('Tensor["1.5"]', "is not a dim expression", '"1.5"', None),
        ("Tensor[-1]", "a size cannot be -1", "-1", None),
        ('f32["B"]', 'f32 is a dtype: write Tensor["B", f32]', 'f32["B"]', None),
        ('ts.f32["B", 3]', "f32 is a dtype", 'ts.f32["B", 3]', "ts.Tensor['B', 3, ts.f32]"),
        ('Tensor["B"]["N"]', 'Tensor["B"] has its dims already', 'Tensor["B"]["N"]', None),
        ('Tensor[f32, "B"]', "dims stand before the dtype", '"B"', None),
        ("Tensor[..., ...]", "only one `...`", "...", None),
        ('Tensor["B", f32, bf16]', "two dtypes are given: f32 and bf16", "bf16", None),
        ('Tensor["B", acum(f32)]', "acum is not a policy. Did you mean accum?", "acum(f32)", None),
        ('Tensor["B", accum(f16)]', "accum needs f32", "accum(f16)", None),
        ('Tensor["B", accum()]', "accum needs 'dtype'", "accum()", None),
        ('Tensor["B", bf16, accum(f32), accum(f64)]', "accum is f32 on one side and f64", "accum(f64)", None),
        ('Tensor["B", "bf16 @acc(f32)"]', "@acc is not a policy", '"bf16 @acc(f32)"', None),
        ('Tensor["B", dtpe=f32]', "dtpe= is not known here; dtype= and policy= are", "dtpe=f32", None),
        ('Tensor["B", dtype=3]', "needs a dtype or a policy", "dtype=3", None),
        ('Tensor["B", dtype="B"]', "not a dtype", 'dtype="B"', None),
        ("Tensor[1:2]", "a slice is not a dim", "1:2", None),
        ("Tensor[B ** 2]", "dims know + - * // %", "B ** 2", None),
        ("Tensor[B // 0]", "by zero", "B // 0", None),
        ("Tensor[B @ 2]", "is not a dtype @ policy", "B @ 2", None),
        ("Tensor[[1]]", "[1] is neither a dim", "[1]", None),
        ("Tensor[None]", "None is neither", "None", None),
        ("Int[bits=33]", "Int has 8, 16, 32, 64 bits, not 33", "bits=33", None),
        ("Int[8, 8]", "takes no such argument", "8", None),
        ('Const["B", 2]', "Const takes one", "2", None),
        ('"Tensor["', "is not an annotation", '"Tensor["', None),
    ],
)
def test_errors(text, reason, place, fix):
    with pytest.raises(AnnotationError) as e:
        read(text, "B")
    (d,) = e.value.diagnostics
    assert d.code == "TS211"
    assert reason in d.message
    at = text[d.span.col - 1 : d.span.end_col - 1]
    assert at == place
    if fix is None:
        assert not d.fixes
        return
    (edit,) = d.fixes[0].edits
    mended = text[: edit.span.col - 1] + edit.text + text[edit.span.end_col - 1 :]
    assert edit.text == fix
    assert isinstance(read(mended), TensorAnn)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Tensor["B", 3.5], "3.5 is neither a dim"),
        (lambda: Tensor["B+"], r"'B\+' is not a dim expression"),
        (lambda: Tensor["B", "bf17"], None),
        (lambda: f32["B", "N"], "f32 is a dtype"),
        (lambda: Tensor["B"]["N"], "has its dims already"),
        (lambda: Tile[-1], "a size cannot be -1"),
        (lambda: Int[7], "not 7"),
        (lambda: Const["B", "S"], "one dim"),
        (lambda: Tensor["B", slice("dtyp", f32)], "dtyp= is not known"),
        (lambda: Tensor["B", object()], "neither a dim"),
    ],
)
def test_errors_at_run_time(make, reason):
    if reason is None:  # any other name is a dim, also one that resembles a dtype
        assert make().shape == (B, dims.symbol("bf17"))
        return
    with pytest.raises(AnnotationError, match=reason) as e:
        make()
    assert e.value.code == "TS211"
    assert isinstance(e.value, TypeError)


def test_sizes_and_dtypes_of_other_libraries():
    assert tensor_spec((np.int64(3), np.dtype("float16"))) == TensorAnn((3,), f16)
    assert tensor_spec((3, np.dtype(ml_dtypes.bfloat16))) == TensorAnn((3,), bf16)
    assert tensor_spec(("B", slice("dtype", bf16))) == TensorAnn((B,), bf16)


@pytest.mark.parametrize("text", [t for t in EVALUATED if t.startswith(("Tensor", "Tile"))])
def test_people_can_read_it_back(text):
    meaning = EVALUATED[text]
    assert read(str(meaning)) == meaning


def test_names_that_nobody_resolves_are_taken_at_their_word():
    """In a file that is only read, `Tensor` and `bf16` may come from a star import."""
    tree = ast.parse('ts.Tensor["B", ts.bf16, ts.saturate]', mode="eval").body
    assert annotation_from_ast(tree, lambda name: None) == TensorAnn((B,), bf16, policy(saturate))


def test_an_alias_of_itself_is_an_error():
    loop = ast.parse("loop", mode="eval").body
    with pytest.raises(AnnotationError, match="refers to itself"):
        annotation_from_ast(loop, lambda name: loop)


sizes = st.integers(0, 99) | st.sampled_from(["B", "S", "B*S", "S+1", "D//2", "min(B, 4)"]) | st.just(...)
tails = st.lists(st.sampled_from(["accum(f32)", "saturate", "loss_scale(2.0)"]), unique=True, max_size=3)


@given(st.lists(sizes, max_size=4), st.none() | st.sampled_from(dtypes.ALL), tails)
def test_reading_and_evaluating_agree(shape, dtype, tail):
    items = ["..." if d is ... else repr(d) for d in shape] + ([str(dtype)] if dtype else []) + tail
    scope = {"Tensor": Tensor, "accum": accum, "saturate": saturate, "loss_scale": loss_scale, **dtypes.BY_NAME}
    text = f"Tensor[{', '.join(items)}]" if items else "Tensor[()]"
    node = ast.parse(text, mode="eval").body
    results = []
    for way in (lambda: eval(text, {}, scope), lambda: annotation_from_ast(node, scope.get)):
        try:
            results.append(way())
        except AnnotationError as e:
            results.append(e.diagnostics[0].message)
    assert results[0] == results[1]
