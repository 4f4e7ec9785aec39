"""A vision transformer: patches, a class token, positions, attention through einsum, a head with label smoothing."""
# fmt: off
# ruff: noqa

import tessera as ts
from tessera import Const, Tensor, f32, int64

PATCH = 16
WIDTH, DEPTH = 768, 2
HEADS = 12
CLASSES = 1000


def gelu_mlp(x, up, down):
    return ts.gelu(x @ up) @ down


@ts.function
def patches(images: Tensor["B", 3, "H", "W"]):
    assert H % PATCH == 0 and W % PATCH == 0
    rows, columns = H // PATCH, W // PATCH  #: H//16 | W//16
    grid = images.reshape(B, 3, rows, PATCH, columns, PATCH)  #: [B, 3, H//16, 16, W//16, 16] f32
    grid = grid.transpose(0, 2, 4, 3, 5, 1)  #: [B, H//16, W//16, 16, 16, 3] f32
    flat = grid.reshape(B, rows * columns, PATCH * PATCH * 3)  #: [B, (H//16)*(W//16), 768] f32
    return flat


@ts.function
def embed(flat: Tensor["B", "N", 768], weight: Tensor[768, WIDTH], token: Tensor[WIDTH], position: Tensor["N+1", WIDTH]):
    x = flat @ weight  #: [B, N, 768] f32
    first = ts.broadcast_to(token, (B, 1, WIDTH))  #: [B, 1, 768] f32
    x = ts.concatenate([first, x], axis=1)  #: [B, N+1, 768] f32
    return x + position


@ts.function
def attention(x: Tensor["B", "T", WIDTH], wq: Tensor[WIDTH, WIDTH], wk: Tensor[WIDTH, WIDTH], wv: Tensor[WIDTH, WIDTH]):
    size = WIDTH // HEADS
    q = (x @ wq).reshape(B, T, HEADS, size)  #: [B, T, 12, 64] f32
    k = (x @ wk).reshape(B, T, HEADS, size)  #: [B, T, 12, 64] f32
    v = (x @ wv).reshape(B, T, HEADS, size)  #: [B, T, 12, 64] f32
    scores = ts.einsum("bthd,bshd->bhts", q, k) * size**-0.5  #: [B, 12, T, T] f32
    weights = ts.softmax(scores, axis=-1)  #: [B, 12, T, T] f32
    mixed = ts.einsum("bhts,bshd->bthd", weights, v)  #: [B, T, 12, 64] f32
    return mixed.reshape(B, T, WIDTH)


@ts.function
def layer_norm(x: Tensor["B", "T", "D"], gain: Tensor["D"], bias: Tensor["D"]) -> Tensor["B", "T", "D"]:
    mean = x.mean(axis=-1, keepdim=True)  #: [B, T, 1] f32
    centred = x - mean  #: [B, T, D] f32
    var = (centred * centred).mean(axis=-1, keepdim=True)  #: [B, T, 1] f32
    return centred * ts.rsqrt(var + 1e-6) * gain + bias


@ts.function
def encoder(
    x: Tensor["B", "T", WIDTH],
    wq: Tensor[WIDTH, WIDTH],
    wk: Tensor[WIDTH, WIDTH],
    wv: Tensor[WIDTH, WIDTH],
    up: Tensor[WIDTH, "F"],
    down: Tensor["F", WIDTH],
    gain: Tensor[WIDTH],
    bias: Tensor[WIDTH],
) -> Tensor["B", "T", WIDTH]:
    for _ in range(DEPTH):
        normed = layer_norm(x, gain, bias)  #: [B, T, 768] f32
        x = x + attention(normed, wq, wk, wv)
        x = x + gelu_mlp(layer_norm(x, gain, bias), up, down)
    return x


@ts.function
def classify(x: Tensor["B", "T", WIDTH], head: Tensor[WIDTH, CLASSES]) -> Tensor["B", CLASSES]:
    token = x[:, 0]  #: [B, 768] f32
    logits = token @ head  #: [B, 1000] f32
    return logits


@ts.function
def smoothed_loss(logits: Tensor["B", CLASSES], labels: Tensor["B", int64], smoothing: Const[f32] = 0.1):
    log_p = ts.log_softmax(logits, axis=-1)  #: [B, 1000] f32
    hit = ts.take_along_axis(log_p, labels[:, None], axis=-1)  #: [B, 1] f32
    hit = hit.squeeze(-1)  #: [B] f32
    rest = log_p.mean(axis=-1)  #: [B] f32
    loss = -(1.0 - smoothing) * hit - smoothing * rest  #: [B] f32
    return loss.mean()


@ts.function
def pooled(x: Tensor["B", "T", WIDTH], head: Tensor[WIDTH, CLASSES]) -> Tensor["B", CLASSES]:
    mean = x.mean(axis=1, keepdim=True)  #: [B, 1, 768] f32
    return mean @ head
    #      ^^^^^^^^^^^ TS201
