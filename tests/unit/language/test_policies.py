"""Numerics policies: as expressions, as text, merged, and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.language import policies
from tessera.language.dtypes import ALL, bf16, complex64, f16, f32, f64, int8
from tessera.language.policies import (
    NumericalPolicy,
    Policy,
    PolicyError,
    accum,
    deterministic,
    device,
    loss_scale,
    parse,
    saturate,
    stochastic_round,
)

PARTS = [accum(f32), policies.compute(bf16), accum("f64"),
         loss_scale(128), loss_scale(0.5), stochastic_round, saturate, deterministic,
         device("gpu:0"), device("cpu")]  # fmt: skip


def test_expressions():
    assert bf16 @ accum(f32) == Policy(bf16, accum=f32)
    assert bf16 @ accum(f32) @ loss_scale(128.0) @ stochastic_round == Policy(
        bf16, accum=f32, loss_scale=128.0, rounding="stochastic"
    )
    assert "bf16" @ saturate == Policy(bf16, saturate=True)
    assert f16 @ Policy(saturate=True) == Policy(f16, saturate=True)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("bf16", Policy(bf16)),
        ("bf16 @accum(f32)", Policy(bf16, accum=f32)),
        ("bf16 @ accum( fp32 ) @loss_scale(128.0)@stochastic_round", Policy(bf16, f32, 128.0, "stochastic")),
        ("@saturate @deterministic", Policy(saturate=True, deterministic=True)),
        ("@device('gpu:0')", Policy(device="gpu:0")),
        ("@fast", Policy(fast=True)),
        ("", Policy()),
    ],
)
def test_text(text, policy):
    assert parse(text) == policy


@given(st.none() | st.sampled_from(ALL), st.lists(st.sampled_from(PARTS), max_size=5))
def test_text_is_read_back(dtype, parts):
    policy = Policy(dtype)
    for p in parts:
        if getattr(policy, p.name) is None:
            policy = policy.merge(p)
    assert parse(str(policy)) == policy
    assert policy.empty == (not policy.parts())
    assert Policy(dtype).merge(Policy().merge(policy)) == policy
    assert policy.merge(policy) == policy


@given(st.lists(st.sampled_from(PARTS), max_size=4), st.lists(st.sampled_from(PARTS), max_size=4))
def test_merging_is_symmetric(left, right):
    """Whichever side comes first, the result or the refusal is the same."""

    def merged(parts):
        out = Policy()
        for p in parts:
            try:
                out = out.merge(p)
            except PolicyError:
                return None
        return out

    assert merged(left + right) == merged(right + left)


def test_a_conflict_names_both_sides():
    with pytest.raises(PolicyError, match="accum is f32 on one side and f64 on the other"):
        Policy(accum=f32).merge(Policy(accum=f64))
    assert Policy(f16, accum=f32).merge(Policy(bf16)).dtype is bf16


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bf17", "'bf17' is not a dtype"),
        ("bf16 @acc(f32)", "@acc is not a policy; known: accum"),
        ("bf16 @accum", "@accum needs an argument"),
        ("bf16 @accum(f16)", "accum needs f32"),
        ("bf16 @accum(int32)", "accum needs f32"),
        ("@loss_scale(-1)", "positive factor"),
        ("@compute(fp8_e4m3)", "formats of 8 bits need scales"),
        ("@loss_scale(x)", "cannot be read"),
        ("@device('a b')", "not the name of a device"),
        ("bf16 @saturate oops", "'oops' is not a policy clause"),
        ("@accum(f32) @accum(f64)", "on one side"),
    ],
)
def test_text_that_is_refused(text, reason):
    with pytest.raises(PolicyError, match=reason):
        parse(text)


def test_text_runs_no_code():
    with pytest.raises(PolicyError):
        parse("@loss_scale(__import__('os').getpid())")


def test_the_constructor():
    assert NumericalPolicy() == Policy(accum=f32)
    assert NumericalPolicy(loss_scale="dynamic").loss_scale == "dynamic"
    full = NumericalPolicy(f64, "stochastic", 1024.0, saturate=True, deterministic=True)
    assert full == Policy(None, f64, 1024.0, "stochastic", True, True)
    with pytest.raises(PolicyError, match="'nearest' or 'stochastic'"):
        NumericalPolicy(rounding="up")


def test_accumulators():
    assert accum("complex64").value is complex64
    for bad in (f16, "f16", "int32", "nothing", 3, "tf32"):
        with pytest.raises(PolicyError, match="accum needs"):
            policies.accum(bad)
    with pytest.raises(PolicyError, match="not a dtype"):
        "bf17" @ accum(f32)


@pytest.mark.parametrize(
    "said",
    [
        "bf16 @accum(f32)",
        "@deterministic",
        "@fast",
        "@nearest_round",
        "@saturate",
        "@loss_scale(2.0)",
        "@compute(bf16)",
        "",
    ],
)
def test_what_is_enforced_is_accepted(said):
    assert not policies.unenforced(parse(said)) and not policies.unenforced(None)


@pytest.mark.parametrize("said", ["bf16 @stochastic_round", "@loss_scale('dynamic')", "@device('cpu')"])
def test_what_nothing_enforces_is_named(said):
    clause = "@" + said.partition("@")[2]
    assert policies.unenforced(parse(said)).startswith(f"{clause} is not enforced")
    assert policies.unenforced(parse(f"{said} @accum(f32)")).startswith(f"{clause} is not enforced")


def test_numbers_that_are_no_floats_are_not_saturated():
    assert "ts.saturate_cast" in policies.unenforced(parse("@saturate"), int8)
    assert "only for floats" in policies.unenforced(parse("@loss_scale(2.0)"), int8)


def test_functions_refuse_what_nothing_enforces():
    import tessera as ts

    with pytest.raises(ts.CompileError, match="@stochastic_round is not enforced"):

        @ts.function(numerics="@stochastic_round")
        def double(x: ts.Tensor["N", f32]):
            return x * 2.0

        double(ts.ones((3,)))


def test_policies_are_shown_as_they_are_written():
    assert repr(bf16 @ stochastic_round) == "bf16 @stochastic_round"
    assert repr(stochastic_round) == "@stochastic_round"
