"""Updates that are like earlier ones leave out what is known from those; all else is looked at as before."""

from __future__ import annotations

import gc
import warnings
from typing import NamedTuple

import numpy as np
import pytest

import tessera as ts
from tessera import nn
from tessera.optimizers import Adam, AdamW, Group, repeated


class Net(nn.Module):
    up: nn.Linear
    parts: dict
    steps: ts.Tensor
    mean: ts.Tensor = nn.buffer()


def net(width=3):
    return Net(
        nn.Linear(2, width, key=0), {"a": [ts.ones((width,)), 5], "act": ts.relu}, ts.zeros((), ts.int32), ts.ones((2,))
    )


def gradient_of(model):
    return nn.tree.replaced(model, {n: ts.ones_like(a) * 0.5 for n, a in nn.tree.arrays(model).items()})


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        one, two = nn.tree.arrays(a), nn.tree.arrays(b)
        assert list(one) == list(two)
        for name, array in one.items():
            np.testing.assert_array_equal(np.asarray(array), np.asarray(two[name]), err_msg=name)
            assert type(array) is type(two[name])


def usual(opt, *args, **more):
    """The update without what is known of earlier ones."""
    known = repeated._known.pop(id(opt), None)
    try:
        return opt.update(*args, **more)
    finally:
        repeated._known.pop(id(opt), None)
        if known is not None:
            repeated._known[id(opt)] = known


def settled(opt, model, steps=3):
    state = opt.init(model)
    for _ in range(steps):
        model, state = opt.update(model, gradient_of(model), state)
    return model, state


def known_of(opt):
    return repeated._known[id(opt)].updates


def test_repeated_updates_have_the_results_of_others():
    opt = AdamW(0.1, clip=1.0)
    model, state = settled(opt, net())
    assert len(known_of(opt)) == 1
    args = (model, gradient_of(model), state)
    found = repeated.again(opt, *args, None)
    assert found is not None
    same(found, usual(opt, *args))
    changed = found[0]
    assert type(changed) is Net and changed.mean is model.mean and changed.steps is model.steps
    assert changed.parts["act"] is ts.relu and changed.parts["a"] is not model.parts["a"]
    assert found[1].report.applied and int(found[1].step) == 4
    same(opt.update(*args, lr=0.5), usual(opt, *args, lr=0.5))
    other = net(4)
    other_state = opt.init(other)
    same(opt.update(other, gradient_of(other), other_state), usual(opt, other, gradient_of(other), other_state))


def test_what_does_not_fit_is_refused_as_before():
    opt = Adam(0.1)
    model, state = settled(opt, net())
    gradient = gradient_of(model)
    wrong = nn.tree.replaced(gradient, {"up.weight": ts.ones((3, 2))})
    with pytest.raises(ts.LaunchError, match=r"up.weight is \[2, 3\] and its gradient \[3, 2\]"):
        opt.update(model, wrong, state)
    missing = nn.tree.replaced(gradient, {"up.bias": None})
    with pytest.raises(ts.LaunchError, match=r"the gradient has no up\.bias"):
        opt.update(model, missing, state)
    state.moments["up.bias"] = {"first": state.moments["up.bias"]["first"]}
    with pytest.raises(ts.LaunchError, match=r"Adam keeps first and second of up\.bias"):
        opt.update(model, gradient, state)
    with pytest.raises(ts.LaunchError, match="the state is a Net"):
        opt.update(model, gradient, model)
    counted = nn.tree.replaced(model, {"steps": ts.zeros(())})  # it is a parameter now, of which there is no state
    with pytest.raises(ts.LaunchError, match="the state has no steps"):
        opt.update(counted, nn.tree.replaced(gradient, {"steps": ts.zeros(())}), settled(opt, net())[1])


def test_groups_are_asked_at_each_update():
    rates = {"up.bias": 1.0}
    groups = [Group(lambda n, a: rates.get(n) == 1.0, lr=0.0), Group(lambda n, a: "weight" in n, frozen=True)]
    opt = Adam(0.1, groups=tuple(groups))
    model, state = settled(opt, net())
    args = (model, gradient_of(model), state)
    found = repeated.again(opt, *args, None)
    assert found is not None and found[0].up.weight is model.up.weight
    np.testing.assert_array_equal(found[0].up.bias.numpy(), model.up.bias.numpy())
    rates["up.bias"] = 2.0
    changed, _ = opt.update(*args)
    assert (changed.up.bias.numpy() != model.up.bias.numpy()).all()


def test_other_settings_of_the_optimizer():
    opt = AdamW(0.1)
    model, state = settled(opt, net())
    args = (model, gradient_of(model), state)
    object.__setattr__(opt, "weight_decay", 0.5)
    same(opt.update(*args), AdamW(0.1, weight_decay=0.5).update(*args))


def test_schedules_and_the_seed():
    opt = AdamW(ts.optimizers.Linear(1.0, 0.0, 10), numerics=ts.stochastic_round, seed=3)
    model, state = settled(opt, net().to(ts.bf16))
    args = (model, gradient_of(model), state)
    assert repeated.again(opt, *args, None) is not None
    same(opt.update(*args), usual(opt, *args))
    same(opt.update(*args, lr=0.25), usual(opt, *args, lr=0.25))


def test_a_gradient_that_is_not_finite_leaves_all_as_it_was():
    opt = Adam(0.1)
    model, state = settled(opt, net())
    gradient = nn.tree.replaced(gradient_of(model), {"up.bias": ts.asarray([1.0, float("nan"), 0.0])})
    changed, after = opt.update(model, gradient, state)
    same((changed,), (model,))
    assert not after.report.applied and "up.bias" in after.report.reason


def test_parameters_that_require_gradients_keep_doing_so():
    opt = Adam(0.1)
    model = net().requires_grad_()
    state = opt.init(model)
    for _ in range(5):
        model, state = opt.update(model, gradient_of(model), state)
        assert model.up.weight.requires_grad
    assert not known_of(opt)


class Pair(NamedTuple):
    a: object
    b: object


def test_named_tuples_stay_what_they_are():
    opt = Adam(0.1)
    model, state = settled(opt, Pair(np.ones(3, np.float32), [np.ones(2, np.float32)]), 5)
    assert type(model) is Pair and type(model[1]) is list and known_of(opt)
    args = (model, gradient_of(model), state)
    same(opt.update(*args), usual(opt, *args))


def test_trees_of_other_containers_take_the_usual_way():
    class Layers(list):
        pass

    opt = Adam(0.1)
    model = Layers([np.ones(2, np.float32)])
    state = opt.init(model)
    for _ in range(5):
        model, state = opt.update(Layers(model), [np.ones(2, np.float32)], state)
    assert not known_of(opt)


def test_a_model_of_many_arrays_is_launched_like_a_small_one():
    """Parameters, gradients, moments and results of a model with 60 parameters are 420 arrays."""
    opt = AdamW(0.1)
    model, state = settled(opt, [np.full(3, i, np.float32) for i in range(60)])
    args = (model, gradient_of(model), state)
    found = repeated.again(opt, *args, None)
    assert found is not None
    same(found, usual(opt, *args))


def test_numpys_arrays_stay_numpys():
    opt = Adam(0.1)
    model, state = settled(opt, {"a": np.ones(3, np.float32), "b": (np.ones(2, np.float32),)}, 5)
    assert known_of(opt) and type(model["a"]) is np.ndarray and type(model["b"]) is tuple
    assert int(state.step) == 5


def test_nothing_is_kept_of_an_optimizer_that_is_gone():
    opt = Adam(0.1)
    settled(opt, net())
    key = id(opt)
    assert key in repeated._known
    del opt
    gc.collect()
    assert key not in repeated._known


def test_an_update_whose_results_are_dropped_is_told():
    opt, model = ts.optimizers.SGD(0.1), net()
    state, gradient = opt.init(model), nn.tree.replaced(model, {})
    with pytest.warns(ts.TrainingWarning, match=r"(?s)TS373.*model, state = opt\.update") as told:
        opt.update(model, gradient, state)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = ts.optimizers.SGD(0.1)
        model, state = other.update(model, gradient, other.init(model))
        kept = [ts.optimizers.Adam(0.1).update(model, gradient, ts.optimizers.Adam(0.1).init(model)) for _ in range(2)]
    assert len(kept) == 2
