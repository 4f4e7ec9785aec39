"""`loss.backward()`: the gradients of `ts.grad`, to the bit; what users of PyTorch expect; what is refused."""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pytest

import tessera as ts
from tessera import StatefulObject, Tensor, effect, f32, nn
from tessera.errors import CompileError, LaunchError
from tessera.optimizers import SGD, AdamW, Group, TrainingState
from tessera.runtime.arrays.versions import watched


def leaf(*shape, seed=0, dtype=np.float32):
    return ts.Tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype), requires_grad=True)


def line_of(raised, text):
    """The finding of an error, whose place has this text."""
    (found,) = raised.value.diagnostics
    with open(__file__) as file:
        lines = file.read().splitlines()
    assert text in lines[found.span.line - 1], found
    return found


def test_transforms_of_tensors_that_require_a_gradient():
    x = ts.tensor([1.0, 2.0], requires_grad=True)
    value, tangent = ts.jvp(lambda a: a * a, (x,), (ts.ones((2,)),))
    assert value.tolist() == [1.0, 4.0] and tangent.tolist() == [2.0, 4.0]
    assert ts.vjp(lambda a: a * a, x)[1](ts.ones((2,)))[0].tolist() == [2.0, 4.0]
    assert ts.hvp(lambda a: ts.sum(a * a * a), (x,), (x,)).tolist() == [6.0, 24.0]
    ts.sum(tangent).backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_gradients_are_those_of_ts_grad():
    w, b, x = leaf(8, 4), leaf(4, seed=1), np.random.default_rng(2).standard_normal((16, 8)).astype(np.float32)

    def loss(w, b):
        return ts.mean(ts.square(ts.relu(x @ w + b) - 0.25)) * 3.0

    loss(w, b).backward()
    for tensor, wanted in zip((w, b), ts.grad(loss, (0, 1))(w.detach(), b.detach()), strict=True):
        assert type(tensor.grad) is ts.Tensor and not tensor.grad.requires_grad
        assert tensor.grad.numpy().tobytes() == wanted.numpy().tobytes()


def torch_programs():
    yield "indices", lambda m, x: (x[0] * x[1]).sum() + (x[:, 1:] ** 2).sum() + x[..., None][2, 3, 0]
    yield "gathered", lambda m, x: (x[np.array([0, 0, 2])] * 3).sum() + x[np.array([1, 1]), np.array([0, 3])].sum()
    yield "transposed", lambda m, x: (x.T @ x).sum() + (x.reshape(4, 3)[1] ** 2).sum()
    yield "joined", lambda m, x: (m.stack([x[0], x[1] * 2.0]) * m.stack([x[2], x[0]])).sum()
    yield "functions", lambda m, x: m.log(m.exp(x).sum(1)).mean() + m.tanh(x)[1].sum() / 2
    yield "broadcast", lambda m, x: ((x - x.mean(1)[:, None]) / (1.5 - x)).sum() - (2 * x[0]).sum()
    yield "rows", lambda m, x: sum(row.sum() * (i + 1.0) for i, row in enumerate(x))


@pytest.mark.parametrize("program", [p for _, p in torch_programs()], ids=[n for n, _ in torch_programs()])
def test_programs_have_the_gradients_of_torch(program):
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(3).uniform(0.1, 0.9, (3, 4))
    ours, theirs = ts.Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    program(ts, ours).backward()
    program(torch, theirs).backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-12)


def test_masks_pick_elements():
    x = ts.Tensor([1.0, -2.0, 3.0], requires_grad=True)
    (x[x.numpy() > 0] * ts.Tensor([5.0, 7.0])).sum().backward()
    assert x.grad.tolist() == [5.0, 0.0, 7.0]


def test_what_is_excluded_has_gradient_zero_across_calls():
    x = ts.Tensor([0.0, 4.0], requires_grad=True)
    root = ts.sqrt(x)
    ts.where(x > 0, root, 0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.25]


def test_gradients_add_up_until_they_are_cleared():
    w = ts.Tensor([2.0], requires_grad=True)
    for _ in range(3):
        (w * w).sum().backward()
    assert w.grad.tolist() == [12.0]
    w.grad = None
    (w * 5.0).sum().backward()
    assert w.grad.tolist() == [5.0]
    w.sum().backward(ts.Tensor(3.0))
    assert w.grad.tolist() == [8.0]


def test_a_tensor_used_at_several_places_has_the_sum():
    w = ts.Tensor([3.0], requires_grad=True)
    y = w * 2.0
    (y * y + w).sum().backward()
    assert w.grad.tolist() == [8 * 3.0 + 1]


def test_a_parameter_is_not_left_as_it_was_in_silence():
    """`p -= ...` stores in PyTorch; here it would give the name to another tensor."""
    w = ts.Tensor([3.0, 1.0], requires_grad=True)
    (w * w).sum().backward()
    with ts.no_grad():
        with pytest.raises(ts.LaunchError, match=r"(?s)TS356.*x\[\.\.\.\] = x - y stores"):
            w -= 0.5 * w.grad
        w[...] = w - 0.5 * w.grad
    assert w.tolist() == [0.0, 0.0] and w.requires_grad
    y = w
    y += 2.0  # recorded: another tensor, as in functions
    y.sum().backward()
    assert w.tolist() == [0.0, 0.0] and w.grad.tolist() == [7.0, 3.0]


def test_functions_are_called_with_structures_and_keywords():
    @ts.function
    def parts(a, pair, *, scale: ts.f32):
        return {"products": (a * pair[0] * scale,), "sum": ts.sum(pair[1])}

    r = ts.Tensor([1.0, 2.0], requires_grad=True)
    out = parts(r, (r * 2.0, [r][0]), scale=3.0)
    (out["products"][0].sum() + out["sum"]).backward()
    assert r.grad.tolist() == [2 * 6.0 * 1 + 1, 2 * 6.0 * 2 + 1]


def test_rules_of_ones_own_are_gone_by():
    @ts.function
    def rounded(x: Tensor["N", f32]):
        return ts.round(x)

    @rounded.vjp
    def straight_through(result, cotangent, x):
        return 2 * cotangent

    x = ts.Tensor([0.3, 1.7], requires_grad=True)
    rounded(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_gradient_that_was_recorded_has_a_gradient():
    @ts.function
    def cubes(x: Tensor["N"]):
        return ts.sum(x**3)

    x = ts.Tensor([1.0, 2.0], requires_grad=True)
    ts.grad(cubes)(x).sum().backward()
    assert x.grad.tolist() == [6.0, 12.0]


def loss_of(model, x, y):
    return ts.mse(model(x), y)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
def test_modules_have_the_gradients_of_ts_grad(compiled):
    model = nn.MLP(4, 8, key=0)
    x = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    wanted = ts.grad(loss_of)(model, x, x).named_parameters()
    loss = ts.function(loss_of) if compiled else loss_of
    assert model.requires_grad_() is model
    loss(model, x, x).backward()
    for name, p in model.named_parameters().items():
        assert p.grad.numpy().tobytes() == wanted[name].numpy().tobytes(), name
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_both_ways_to_an_optimizer_have_the_bits_of_update():
    x = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    opt, model = AdamW(1e-2), nn.MLP(4, 8, key=0)
    plain, memory = model, opt.init(model)
    state = TrainingState(nn.MLP(4, 8, key=0).requires_grad_(), opt)
    held = state.model.up.weight
    taken = nn.MLP(4, 8, key=0).requires_grad_()
    remembered = opt.init(taken)
    for _ in range(3):
        plain, memory = opt.update(plain, ts.grad(loss_of)(plain, x, x), memory)
        state.zero_grad()
        loss_of(state.model, x, x).backward()
        state.step()
        loss_of(taken, x, x).backward()
        taken, remembered = opt.update(taken, taken.gradient(), remembered)
    assert state.model.up.weight is held and held.requires_grad and state.report.applied
    for name, wanted in plain.named_parameters().items():
        assert state.model.named_parameters()[name].numpy().tobytes() == wanted.numpy().tobytes()
        assert taken.named_parameters()[name].numpy().tobytes() == wanted.numpy().tobytes()


def test_frozen_parameters_have_no_gradient():
    model = nn.MLP(4, 8, key=0).requires_grad_()
    model.up.requires_grad_(False)
    x = np.ones((2, 4), np.float32)
    loss_of(model, x, x).backward()
    gradient = model.gradient()
    assert gradient.up.weight is None and gradient.down.weight is not None
    opt = SGD(0.1, groups=(Group(lambda name, p: name.startswith("up"), frozen=True),))
    _ = opt.update(model, gradient, opt.init(model))
    with pytest.raises(LaunchError, match="TS362"):
        SGD(0.1).update(model, gradient, SGD(0.1).init(model))


def test_two_modules_of_one_class_are_given_to_a_plain_function():
    a, b = nn.Linear(4, 8, key=0), nn.Linear(8, 3, key=1)

    def both(a, b, x):
        return ts.sum(b(a(x)))

    @ts.function
    def through(a, b, x):
        return both(a, b, x)

    x = np.ones((2, 4), np.float32)
    assert np.allclose(through(a, b, x), ts.sum(b(a(x))))


def test_where_nothing_is_recorded():
    w = ts.Tensor([1.0, 2.0], requires_grad=True)
    with ts.no_grad():
        assert not (w * 2.0).requires_grad and not ts.exp(w).requires_grad
    assert (w * 2.0).requires_grad

    @ts.no_grad()
    def by_decorator():
        return w * 2.0

    @ts.no_grad
    def without_brackets():
        return w * 2.0

    assert not by_decorator().requires_grad and not without_brackets().requires_grad
    assert not (w > 1).requires_grad and not w.detach().requires_grad and not ts.stop_gradient(w * 2.0).requires_grad
    assert not (ts.ones((2,)) * 2.0).requires_grad
    (w * w.detach()).sum().backward()
    assert w.grad.tolist() == [1.0, 2.0]


def test_numbers_of_another_value_need_no_new_program():
    from tessera.runtime.eager import tape

    w = ts.Tensor([1.0, 2.0], requires_grad=True)
    for scale in (2.0, 3.0, 4.5):
        w.grad, before = None, len(tape._programs)
        (w * scale).sum().backward()
        assert w.grad.tolist() == [scale, scale]
    assert len(tape._programs) == before


@pytest.mark.usefixtures("young")
def test_memory_is_freed():
    gc.collect()
    before = len(watched)
    w = leaf(4, 4)
    hidden = ts.exp(w @ w)
    memory = weakref.ref(hidden._data)
    loss = (hidden * 2.0).sum()
    del hidden
    assert memory() is None, "what a call gave is held although nobody looks at it"
    loss.backward()
    constant = np.ones((4, 4), np.float32)
    held = weakref.ref(constant)
    loss = (w * constant).sum()
    del constant
    assert held() is not None
    loss.backward()
    assert held() is None
    del w, loss
    assert len(watched) == before


def test_long_records_are_no_deep_recursion():
    x = ts.Tensor([1.0], requires_grad=True)
    y = x
    for _ in range(3000):
        y = y + x
    del y


def test_errors_stand_at_the_call():
    x = ts.Tensor(np.random.default_rng(0).standard_normal((3, 3)), requires_grad=True)
    loss = (x * 2.0).sum()  # the first
    loss.backward()
    with pytest.raises(LaunchError, match=r"TS356[\s\S]*retain_graph") as raised:
        loss.backward()
    line_of(raised, "# the first")

    @ts.kernel
    def doubled(x: Tensor["N", f32], y: Tensor["N", f32]):
        i = ts.tile.linear_id()
        if i < N:
            y[i] = x[i] * 2

    @ts.function
    def through(x: Tensor["N", f32]):
        y = ts.zeros_like(x)
        doubled(x, y)
        return y

    v = leaf(4)
    loss = through(v).sum()
    with pytest.raises(CompileError, match="TS355") as raised:
        loss.backward()
    line_of(raised, "doubled(x, y)")
    with pytest.raises(LaunchError, match="TS355"):
        doubled(v, ts.zeros((4,)))
    assert v.grad is None


def test_what_a_call_has_read_stays():
    w, x = leaf(4), ts.ones((4,))
    loss = (w * x).sum()  # read here
    view = x[1:]
    view[0] = 7.0
    with pytest.raises(LaunchError, match="TS356") as raised:
        loss.backward()
    line_of(raised, "# read here")
    y = w * 2.0
    y.detach()[0] = 1.0
    with pytest.raises(LaunchError, match="changed in place"):
        y + 1.0
    for target in (w, w * 2.0):
        with pytest.raises(LaunchError, match="TS356"):
            target[0] = 1.0
    with ts.no_grad():
        w[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        w.numpy()[0] = 2.0


def test_parameters_that_an_optimizer_changed_are_seen():
    state = TrainingState(nn.Linear(2, 2, key=0).requires_grad_(), SGD(0.1))
    x = np.ones((1, 2), np.float32)
    stale = loss_of(state.model, x, x)
    loss_of(state.model, x, x).backward()
    state.step()
    with pytest.raises(LaunchError, match="TS356"):
        stale.backward()


class Total(StatefulObject):
    sum: Tensor["N"]

    @effect("update")
    def add(self, x: Tensor["N"]):
        self.sum = self.sum + x


def test_what_is_not_recorded_is_refused_before_it_happens():
    w, total = leaf(2), Total(ts.zeros((2,)))
    with pytest.raises(LaunchError, match="TS356"):
        total.add(w)
    assert total.sum.tolist() == [0.0, 0.0]
    with ts.no_grad():
        total.add(w)
    assert total.sum.tolist() == w.tolist()
    for numpy in (np.linalg.norm, np.sort, lambda w: np.concatenate([w, w])):
        with pytest.raises(LaunchError, match="TS356"):
            numpy(w)
    assert np.exp(w).requires_grad
    with pytest.raises(LaunchError, match="TS356"):
        ts.zeros((2,))[:] = w

    @ts.function
    def closed(x: Tensor["N", f32]):
        return ts.sum(x * w)

    with pytest.raises(LaunchError, match="closes over w"):
        closed(np.ones(2, np.float32))
    for bad, code in ((lambda: ts.ones((2,)).backward(), "TS356"), (lambda: (w * 2.0).backward(), "TS352"),
                      (lambda: (w * 2.0).backward(ts.ones((3,))), "TS357"),
                      (lambda: ts.zeros((2,), ts.int32).requires_grad_(), "TS351")):  # fmt: skip
        with pytest.raises(LaunchError, match=code):
            bad()


def test_what_requires_a_gradient_after_it_was_captured_is_refused():
    w, x = Tensor(np.arange(2, dtype=np.float32)), ts.ones((2,))

    @ts.function
    def closed(x: Tensor["N", f32]):
        return ts.sum(x * w)

    compiled = ts.compile(closed, arguments=(x,))
    assert closed(x).item() == compiled(x).item() == 1.0
    w.requires_grad_()
    for call in (closed, compiled):
        with pytest.raises(LaunchError, match="closes over w"):
            call(x)
        with ts.no_grad():
            assert call(x).item() == 1.0


def test_defaults_are_arguments():
    w, x = Tensor(np.arange(2, dtype=np.float32)), ts.ones((2,))

    @ts.function
    def product(x: Tensor["N", f32], w: Tensor["N", f32] = w):
        return ts.sum(x * w)

    assert not product(x).requires_grad
    w.requires_grad_()
    product(x).backward()
    product(x=x).backward()
    assert w.grad.tolist() == [2.0, 2.0]


def test_tensors_that_fill_others_and_stand_in_lists_get_gradients():
    for f, wanted in (
        (lambda x: ts.full((3,), x[0]) * x, [7.0, 1.0, 1.0]),
        (lambda x: ts.full_like(x, x[0]) * x, [7.0, 1.0, 1.0]),
        (lambda x: ts.array([x[0], 2 * x[1], 3.0]) * x, [2.0, 8.0, 3.0]),
        (lambda x: ts.asarray([[x[0], 1], [x[1], x[2]]])[0] * x[2], [3.0, 0.0, 2.0]),
    ):
        x = ts.Tensor([1.0, 2.0, 3.0], requires_grad=True)
        ts.sum(f(x)).backward()
        assert x.grad.tolist() == wanted == ts.grad(lambda x, f=f: ts.sum(f(x)))(x.detach()).tolist()


def test_a_tensor_in_the_place_of_a_number_of_an_operator_is_refused():
    x = ts.Tensor([1.0, 2.0, 3.0], requires_grad=True)
    for f in (
        lambda v: ts.pad(x, (1, 1), value=v),
        lambda v: ts.linspace(v, 5.0, 4) * x[0],
        lambda v: ts.layer_norm(x, eps=v),
    ):
        with pytest.raises(LaunchError, match="TS356") as raised:
            f(x[0])
        assert "item() or .detach()" in line_of(raised, "v").message
        f(x[0].item())
        f(x[0].detach())
        with ts.no_grad():
            f(x[0])


def test_copies_of_parameters_are_parameters():
    w = leaf(2)
    w.sum().backward()
    other = copy.deepcopy(w)
    assert other.requires_grad and other.grad is None and other.tolist() == w.tolist()
    (w.copy() * 2.0).sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]
    model = nn.Linear(2, 2, key=0).requires_grad_()
    model.load_state_dict(nn.Linear(2, 2, key=1).state_dict())
    assert all(p.requires_grad for p in model.parameters())
    assert all(p.requires_grad and p.grad is None for p in model.to(ts.f64).parameters())


class Window(StatefulObject):
    values: Tensor["N"]

    @effect("update")
    def shift(self, x: Tensor["N"]):
        self.values = self.values * 0.5 + x


def test_aliasing_that_changes_between_calls():
    """The same code, prepared for arrays apart: what is given twice is refused at that call, and later calls go on."""

    @ts.function
    def shifted(state: Window, x: Tensor["N"]):
        state.shift(x)
        return x + state.values

    memory = np.arange(8, dtype=np.float32)
    for round_ in range(2):
        state, apart = Window(memory[:4]), np.ones(4, np.float32)
        before = memory[:4].copy()
        assert np.array_equal(shifted(state, apart), 1 + (before * 0.5 + 1)), round_
        for part in (memory[:4], memory[2:6]):
            kept = memory.copy()
            with pytest.raises(LaunchError, match="TS507"):
                shifted(state, part)
            assert np.array_equal(memory, kept)
        assert np.array_equal(shifted(state, memory[4:]), memory[4:] + memory[:4])
        before = memory[:4].copy()  # a view in another order is copied, so that it is as it was
        assert np.array_equal(shifted(state, memory[3::-1]), before[::-1] + (before * 0.5 + before[::-1]))


def test_overlapping_views_of_a_parameter_are_one_memory():
    w = leaf(6)
    with ts.no_grad():
        front, back = w[:4], w[2:]
    loss = (w * w).sum()
    back[0] = 9.0  # stands in front as well
    assert front[2].item() == 9.0
    with pytest.raises(LaunchError, match="TS356"):
        loss.backward()
    assert w.grad is None
    (w * w).sum().backward()
    assert w.grad.numpy()[2] == 18.0


def test_numpys_scalars_are_tensors_of_rank_zero():
    @ts.function
    def scaled(x: Tensor["N"], by: Tensor[()]):
        return x * by

    for by in (np.float32(3.0), np.float32(5.0)):
        assert scaled(np.ones(2, np.float32), by).tolist() == [by, by]


def products(graph):
    return [op for op in graph.walk() if op.name == "graph.contract"]


@pytest.fixture
def compiled_backward(monkeypatch):
    """The graphs of the programs of `backward()`, each asked for by a call."""
    from tessera.runtime.eager import tape

    seen = []

    class Text(tape._Text):
        def program(self):
            seen.append((super().program(), tuple(self.values)))
            return seen[-1][0]

    monkeypatch.setattr(tape, "_Text", Text)
    return lambda: ts.compile(seen[0][0].pullback, arguments=(seen[0][1], ts.ones(()))).lowered.graph


def test_the_forward_pass_runs_once(compiled_backward):
    """Products of the forward pass are read, not computed again; what was changed in place since is."""
    w, v, x = leaf(4, 8), leaf(8, 3, seed=1), np.ones((5, 4), np.float32)

    def loss(w, v, x):
        return ts.mean(ts.square(ts.tanh(x @ w) @ v))

    loss(w, v, x).backward()
    assert len(products(compiled_backward())) == 3, "those of the cotangents of w, v and the hidden layer"
    for tensor, wanted in zip((w, v), ts.grad(loss, (0, 1))(w.detach(), v.detach(), x), strict=True):
        assert tensor.grad.numpy().tobytes() == wanted.numpy().tobytes()
    w.grad = v.grad = None
    hidden = x @ w
    value = ts.mean(ts.square(ts.tanh(hidden) @ v))
    hidden.detach()[0] = 100.0  # behind its use
    value.backward()
    assert w.grad.numpy().tobytes() == wanted_of(loss, w, v, x).numpy().tobytes()


def wanted_of(loss, w, v, x):
    return ts.grad(loss)(w.detach(), v.detach(), x)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.TransformerBlock(16, 4, key=0), (2, 6, 16)),
        (nn.LSTM(5, 4, key=0), (2, 3, 5)),
        (nn.Conv2d(3, 4, 3, key=0), (2, 3, 5, 5)),
        (nn.LayerNorm(6), (4, 6)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_layers_have_the_gradients_of_ts_grad(model, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    def loss(model, x):
        out = model(x)
        return ts.mean(ts.square(out[0] if isinstance(out, tuple) else out))

    wanted = ts.grad(loss)(model, x).named_parameters()
    loss(model.requires_grad_(), x).backward()
    for name, p in model.named_parameters().items():
        assert p.grad.numpy().tobytes() == np.asarray(wanted[name]).tobytes(), name


def test_results_of_functions_are_read():
    @ts.function
    def parts(a: Tensor["N", "N"]):
        return {"product": a @ a, "sums": (ts.sum(a, axis=0), 3)}

    a = leaf(3, 3)

    def loss(a):
        found = parts(a)
        return ts.sum(found["product"] * found["sums"][0]) + ts.sum(ts.linalg.inv(found["product"]))

    loss(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), ts.grad(loss)(a.detach()).numpy(), rtol=1e-5)


def test_attention_is_not_computed_again(compiled_backward):
    model, x = nn.TransformerBlock(16, 4, key=0).requires_grad_(), leaf(2, 6, 16).detach()
    ts.mean(ts.square(model(x))).backward()
    graph = compiled_backward()
    assert not [op for op in graph.walk() if op.name in ("graph.attention", "graph.attention_forward")]
    assert [op for op in graph.walk() if op.name == "graph.attention_backward_keys"]
    assert len(products(graph)) == 2 * 6


def test_attention_of_other_forms_is_recorded_as_it_is():
    q, k, v = leaf(2, 4, 5, 8), leaf(2, 2, 6, 8, seed=1), leaf(2, 2, 6, 3, seed=2)
    mask = np.arange(30).reshape(5, 6) % 3 > 0

    def both(q, k, v):
        alone = ts.attention(q[0], k[0], v[0], mask, softcap=3.0)
        return ts.sum(ts.square(ts.attention(q, k, v, window=3, scale=0.5))) + ts.sum(alone * alone)

    both(q, k, v).backward()
    for tensor, wanted in zip((q, k, v), ts.grad(both, (0, 1, 2))(q.detach(), k.detach(), v.detach()), strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), wanted.numpy(), rtol=2e-5, atol=1e-6)
    for bad in (lambda: ts.attention(q, k, v[:, :1]), lambda: ts.attention(q, k, v, window=0)):
        with pytest.raises(CompileError, match=r"TS2\d\d.*attention"):
            bad()


TAKEN = {
    "asarray": np.asarray,
    "numpy": lambda y: y.numpy(),
    "dlpack": np.from_dlpack,
    "tensor": lambda y: ts.Tensor([y[0, 0], y[0, 1]]),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_was_computed_is_not_taken_from_the_record_in_silence(name):
    model = nn.Linear(3, 2, key=0).requires_grad_()
    y = model(np.ones((4, 3), np.float32))
    with pytest.raises(ts.LaunchError, match=r"TS356(.|\n)*take .detach\(\)"):
        TAKEN[name](y)
    with ts.no_grad():
        TAKEN[name](y)
    assert np.array_equal(TAKEN[name](y.detach()), TAKEN[name](y.detach()))


def test_numbers_may_be_read(tmp_path):
    model = nn.Linear(3, 2, key=0).requires_grad_()
    y = model(np.ones((4, 3), np.float32))
    assert y.tolist() == y.detach().tolist() and float(y.sum()) == y.sum().item()
    assert np.asarray(model.weight).shape == (3, 2) and y.argmax(axis=1).numpy().shape == (4,)
    assert "f32" in repr(y) and "mean" in y._repr_html_()
    ts.checkpoint.save(tmp_path, y=y)
    assert ts.checkpoint.load(tmp_path)["y"].tolist() == y.tolist()


factor, settings = 2.0, {"factor": 1.0}


@ts.function
def multiplied(x):
    return x * factor * settings["factor"]


def test_numbers_from_outside_are_those_of_the_call(monkeypatch):
    x = ts.Tensor([1.0, 2.0], requires_grad=True)
    multiplied(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    for change in (
        lambda: monkeypatch.setitem(globals(), "factor", 5.0),
        lambda: monkeypatch.setitem(settings, "factor", 3.0),
    ):
        loss = multiplied(x).sum()
        change()
        with pytest.raises(ts.LaunchError, match=r"TS356(.|\n)*what multiplied reads from outside has changed"):
            loss.backward()
    x.grad = None
    multiplied(x).sum().backward()
    assert x.grad.tolist() == [15, 15]
