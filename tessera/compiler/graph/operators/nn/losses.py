"""How far predictions are from targets, averaged by default."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.infer import shown
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np


def _averaged(t: Infer, reduction: object, rest: TensorType) -> TensorType:
    """The type of a loss under its `reduction`."""
    if reduction not in ("mean", "sum", "none"):
        t.fail("TS213", f"reduction is 'mean', 'sum' or 'none', not {shown(reduction)}")
    return rest if reduction == "none" else rest.with_shape(())


def _average(g: GraphBuilder, loss: Value, reduction: str) -> Value:
    return g.mean(loss) if reduction == "mean" else g.sum(loss) if reduction == "sum" else loss


def _average_reference(loss: Any, reduction: str) -> Any:
    with np.errstate(all="ignore"):
        return np.sum(loss) / loss.size if reduction == "mean" else np.sum(loss) if reduction == "sum" else loss


_LAST = "classes are the last axis, in PyTorch's order axis 1: ts.moveaxis(logits, 1, -1)"


class CrossEntropy(Operator):
    """-log_softmax(logits)[label] over the last axis, for integer labels of the shape of the other axes.

    `label_smoothing` e adds the mean over all classes with weight e. Labels below 0, such as -100, do not count: their
    loss is 0, and the mean is that of the others, NaN if there is none. The loss of a label beyond the classes is NaN.
    """

    apart = ("labels",)
    says: ClassVar[Mapping[str, str]] = {
        "ignore_index": "leave it out: labels below 0, such as -100, do not count",
        **dict.fromkeys(("axis", "dim"), _LAST),
        "weight": "with w = weight[labels] write ts.sum(w * ts.cross_entropy(logits, labels, 'none')) / ts.sum(w)",
    }

    methods = ()

    def infer(
        self, t: Infer, logits: TensorType, labels: TensorType, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> TensorType:
        t.require(logits, "float", operand=0)
        if not labels.dtype.is_integer:
            rows = labels.rank == logits.rank
            how = "y.argmax(axis=-1) gives those of one-hot rows" if rows else "y.to(ts.int64) converts them"
            more = ", of probabilities it is -ts.mean(ts.sum(y * ts.log_softmax(x), axis=-1))" if rows else ""
            message = f"the labels of cross_entropy are the numbers of classes, not {labels.dtype}"
            t.fail("TS301", f"{message}; {how}{more}", operand=1)
        message = f"cross_entropy of logits {shape_text(logits.shape)} needs labels {shape_text(logits.shape[:-1])}"
        message += f", not {shape_text(labels.shape)}"
        if logits.rank > 2 and labels.shape == (logits.shape[0], *logits.shape[2:]):
            message += f"; {_LAST}"
        if not logits.rank or labels.rank != logits.rank - 1:
            t.fail("TS213", message, operand=1)
        for a, b in zip(logits.shape, labels.shape, strict=False):
            t.same(a, b, "TS213", message, operand=1)
        t.canonical(label_smoothing=t.number(label_smoothing, "label_smoothing", 0, 1))
        return _averaged(t, reduction, logits.with_shape(logits.shape[:-1]))

    def reference(self, logits: Any, labels: Any, reduction: str, label_smoothing: float) -> Any:
        with np.errstate(all="ignore"):
            far = logits - np.max(logits, axis=-1, keepdims=True, initial=-np.inf)
            logp = far - np.log(np.sum(np.exp(far), axis=-1, keepdims=True))
            hit = labels[..., None] == np.arange(logits.shape[-1])
            loss = -np.sum(np.where(hit, logp, 0), axis=-1) * (1 - label_smoothing)
            loss = loss if label_smoothing == 0 else loss - np.mean(logp, axis=-1) * label_smoothing
            known = (labels >= 0) & (labels < logits.shape[-1])
            loss = np.where(known, loss, np.where(labels < 0, 0, np.nan)).astype(logits.dtype)
            return np.sum(loss) / np.sum(known) if reduction == "mean" else _average_reference(loss, reduction)

    def decompose(self, g: GraphBuilder, logits: Value, labels: Value, reduction: str, label_smoothing: float) -> Value:
        logp, hit = g.log_softmax(g.compute(logits), axis=-1), self.hit(g, logits, labels)
        loss = g.neg(g.sum(g.where(hit, logp, 0.0), axis=-1))
        if label_smoothing:
            loss = g.sub(g.mul(loss, 1 - label_smoothing), g.mul(g.mean(logp, axis=-1), label_smoothing))
            loss = g.where(self.known(g, logits, labels), loss, 0.0)
        loss = g.where(g.ge(g.to(labels, dtypes.int64), tensor(logits).shape[-1]), math.nan, loss)
        found = g.sum(loss) if reduction != "none" else loss
        if reduction == "mean":
            found = g.div(found, self.count(g, logits, labels, tensor(found).dtype))
        return g.to(found, tensor(logits).dtype)

    def fault(self, logits: Any, labels: Any, **attrs: Any) -> str | None:
        classes, beyond = logits.shape[-1], np.argwhere(labels >= logits.shape[-1])
        if not len(beyond):
            return None
        at = tuple(beyond[0].tolist())
        label = f"label {labels[at]}{f' at {list(at)}' if at else ''}"
        return f"{label}, which is none of the {classes} classes 0 to {classes - 1} (a label below 0 does not count)"

    def known(self, g: GraphBuilder, logits: Value, labels: Value) -> Value:
        """Which labels are classes."""
        at = g.to(labels, dtypes.int64)
        return g.logical_and(g.ge(at, 0), g.lt(at, tensor(logits).shape[-1]))

    def count(self, g: GraphBuilder, logits: Value, labels: Value, dtype: DType) -> Value:
        """How many labels are: a product, since a sum would share the kernel of the sum of losses, which waits for that
        of the lines of logits, which the gradient shares and which needs the count."""
        line = g.to(g.reshape(self.known(g, logits, labels), (dims.prod(tensor(labels).shape),)), dtype)
        return g.matmul(line, line)

    def hit(self, g: GraphBuilder, logits: Value, labels: Value) -> Value:
        """Which class [..., C] the label says."""
        rank, classes = tensor(labels).rank, tensor(logits).shape[-1]
        line = g.iota((1,) * rank + (classes,), axis=rank)
        return g.eq(g.unsqueeze(g.to(labels, dtypes.int64), -1), line)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, logits: Value, labels: Value, reduction: str,
        label_smoothing: float,
    ) -> tuple[Value, None]:  # fmt: skip
        """The probabilities less what the labels say of them, in one pass over each line of logits."""
        p, hit = g.softmax(g.compute(logits), axis=-1), self.hit(g, logits, labels)
        classes, dtype = tensor(logits).shape[-1], tensor(p).dtype
        known = g.unsqueeze(g.to(self.known(g, logits, labels), dtype), -1)
        left = g.sub(g.mul(p, known), g.to(hit, dtype))  # 0 where the label is none of the classes
        if label_smoothing:
            mixed = g.mul(g.sub(p, g.div(1.0, g.size(classes, dtype))), known)
            left = g.add(g.mul(left, 1 - label_smoothing), g.mul(mixed, label_smoothing))
        slope = g.compute(ct)
        if reduction == "none":
            slope = g.unsqueeze(slope, -1)
        elif reduction == "mean":
            slope = g.div(slope, self.count(g, logits, labels, dtype))
        return g.to(g.mul(left, slope), tensor(logits).dtype), None

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 14


class Mse(Operator):
    """The mean (or sum, or each) of the squared differences of x and y, of which one has the shape of both together:
    [B, 1] and [B] would give B * B differences."""

    functions = ("mse", "mse_loss")
    methods = ()

    def infer(self, t: Infer, x: TensorType, y: TensorType, reduction: str = "mean") -> TensorType:
        for i, v in enumerate((x, y)):
            t.require(v, "float", operand=i)
        shape = t.broadcast(x.shape, y.shape)
        if shape not in (x.shape, y.shape):
            both = f"{shape_text(x.shape)} and {shape_text(y.shape)}"
            how = "give both one shape, as x.squeeze(-1) or y[:, None] does"
            t.fail("TS213", f"mse compares {both} element by element, which would be {shape_text(shape)}; {how}")
        return _averaged(t, reduction, TensorType(shape, t.promote(x, y)))

    def reference(self, x: Any, y: Any, reduction: str) -> Any:
        return _average_reference(np.square(x - y), reduction)

    def decompose(self, g: GraphBuilder, x: Value, y: Value, reduction: str) -> Value:
        dtype = tensor(x).dtype
        return g.to(_average(g, g.square(g.sub(g.compute(x), g.compute(y))), reduction), dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(operands[0].shape) * 3
