"""What the evaluator asks of a layer. The function layer answers in Graph IR, the kernel layer in Tile IR.

The evaluator knows Python: names, control flow, calls, containers. Whenever an operand is abstract in the layer's own
sense (`owns`), it hands the node over. A hook returns a value, or reports an error through `ev.error(...)` and returns
UNKNOWN. Operands that are Unknown never reach a hook.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tessera.compiler.frontend.names.values import MISSING, Builtin, Counting, Method
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType, Type
from tessera.errors import Span
from tessera.language.annotations import Annotation
from tessera.language.dtypes import DType

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluate.machine import Evaluator
    from tessera.compiler.frontend.evaluate.merging import Path
    from tessera.compiler.frontend.names.frame import Flow
    from tessera.compiler.unit import Param

Handler = Callable[..., Any]
"""(ev, node, args, kwargs) -> value"""


class Layer:
    """Base of both layers. Defaults reject; a subclass overrides what it can do."""

    prefix: ClassVar[str] = ""
    """the dialect of its structured control flow: `graph` or `tile`"""
    builtins: Mapping[str, Handler] = {}
    """what `Builtin` values of this layer do, by path"""

    closer = False
    """an evaluation `again` whose findings are those to show even where it fails too"""

    def __init__(self, ev: Evaluator) -> None:
        self.ev = ev
        self.captures: list[Any] = []

    # parameters and result
    def parameter(self, name: str, type: TensorType, annotation: Annotation, span: Span) -> Any:
        """The value of a parameter that is passed when the program runs; rank 0 is a scalar. Called in order."""
        raise NotImplementedError

    def returned(self, value: Any, span: Span, annotation: Annotation | None) -> Any:
        """Checks and converts what a `return` of the analysed function gives (None when it falls off the end)."""
        return value

    def finish(self, value: Any) -> Op | None:
        """Builds the function's op around `ev.block` once the body has been evaluated without errors."""
        raise NotImplementedError

    def again(self) -> Callable[[Evaluator], Layer] | None:
        """Another layer to evaluate the definition with, where an assumption of this one turned out wrong."""
        return None

    def capture_names(self) -> Sequence[str]:
        """The dotted names that `captures` were read from."""
        return ()

    def params(self) -> Sequence[Param]:
        """The runtime parameters, in the order of the op's arguments; captured arrays come last."""
        return ()

    # values
    def owns(self, value: Any) -> bool:
        """Whether operators, methods and subscripts of `value` are this layer's business."""
        return isinstance(value, Value)

    def type_of(self, value: Any) -> Any:
        """The type shown to people for `value`; None where there is nothing to show."""
        return value.type if isinstance(value, Value) else None

    def adopt(self, name: str, value: Any, node: ast.AST) -> Any:
        """A live object met in a closure or global that this layer turns into a value (an array); else MISSING."""
        return MISSING

    def free_name(self, name: str, node: ast.Name) -> Any:
        """A name that nothing binds, before globals are searched; else MISSING."""
        return MISSING

    def known_names(self) -> Sequence[str]:
        """Names that `free_name` knows, for "did you mean"."""
        return ()

    def lift(self, value: Any, like: Type | None, span: Span) -> Value | None:
        """A Python number (or size) as an IR value, of the type `like` where given; None where it cannot be one."""
        return value if isinstance(value, Value) else None

    def placeholder(self, type: Type, span: Span) -> Value:
        """A value of a type whose content is undecided (the analysis will give no IR)."""
        return self.ev.builder.op(f"{self.prefix}.undecided", (), (type,), span=span).result

    # operators
    def binary(self, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
        """`left symbol right`; comparisons (`<`, `==`) come here too."""
        raise NotImplementedError

    def unary(self, node: ast.AST, symbol: str, operand: Any) -> Any:
        raise NotImplementedError

    def subscript(self, node: ast.AST, value: Any, index: Any) -> Any:
        raise NotImplementedError

    def store(self, node: ast.AST, value: Any, index: Any, item: Any) -> None:
        """`value[index] = item`"""
        self.ev.error(
            "TS102", "tensors are values and cannot be changed in place; make a new one, e.g. with where(...)", node
        )

    def augment(self, node: ast.AST, value: Any, index: Any, symbol: str, item: Any) -> None:
        """`value[index] symbol= item`; by default read, operate, store."""
        old = self.subscript(node, value, index)
        self.store(node, value, index, self.ev.operate(node, symbol, old, item))

    def attribute(self, node: ast.AST, value: Any, name: str) -> Any:
        """`value.name`: a property's value, a `Method` to be called, or MISSING."""
        return MISSING

    def attributes(self, value: Any) -> Sequence[str]:
        """Names that `attribute` knows for `value`, for "did you mean" and completion."""
        return ()

    def method(self, node: ast.Call, method: Method, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def call(self, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A Builtin without a Python meaning, or an OperatorRef."""
        if isinstance(callee, Builtin) and callee.path in self.builtins:
            return self.builtins[callee.path](self.ev, node, args, kwargs)
        return self.ev.error("TS401", f"{callee.name} cannot be used in a {self.ev.definition.kind}", node)

    def settle(self, value: Any) -> Any:
        """An argument of an ordinary function that is called now: a size that is known becomes an integer."""
        return value

    def number(self, value: Any, dtype: DType, span: Span) -> Value | None:
        """The argument of a scalar parameter as a value, of `dtype` where it adapts; None where it cannot be one."""
        raise NotImplementedError

    def converted(self, value: Value, dtype: DType, span: Span) -> Value:
        """`value` with elements of another dtype."""
        raise NotImplementedError

    # control flow over abstract values
    def branch(self, node: ast.If, condition: Any) -> Flow:
        """`if` on an owned value. `ev.frame.continuation()` are the statements that would run after it."""
        from tessera.compiler.frontend.evaluate import control

        return control.branch(self.ev, node, condition)

    def leave(self, paths: list[Path]) -> bool:
        """Paths of a branch end differently, in a loop that runs when the program runs: makes them end alike, in the
        loop's next step. False where that is not possible."""
        return False

    def choose(self, node: ast.IfExp, condition: Any) -> Any:
        """`a if condition else b` on an owned condition."""
        from tessera.compiler.frontend.evaluate import control

        return control.choose(self.ev, node, condition)

    def loop(self, node: ast.For, counting: Counting) -> Flow:
        """`for i in ts.range(...)` or the layer's own range."""
        from tessera.compiler.frontend.evaluate import control

        return control.for_loop(self.ev, node, counting)

    def rolls(self, node: ast.While) -> bool:
        """Whether a loop whose condition is known runs when the program runs, for that is when it is left."""
        return False

    def repeat(self, node: ast.While, condition: Any) -> Flow:
        """`while` on an owned condition."""
        from tessera.compiler.frontend.evaluate import control

        return control.while_loop(self.ev, node)

    def counter(self) -> Type:
        """The type of a structured loop's counter."""
        raise NotImplementedError

    def iterate(self, node: ast.AST, value: Any) -> list[Any] | None:
        """The items of an owned value, for loops and unpacking; None where it has no known number of items."""
        return None

    def condition(self, node: ast.AST, value: Any) -> Value | None:
        """An owned value as a branch condition (a rank-0 bool); None after reporting why it cannot be one."""
        raise NotImplementedError

    def logical(self, node: ast.AST, symbol: str, values: list[Any]) -> Any:
        """`and`, `or` and `not` with an owned operand."""
        raise NotImplementedError

    def assertion(self, node: ast.Assert, value: Any) -> None:
        """`assert` of an owned value."""
        self.ev.error("TS102", "an assert over tensor elements has no meaning here; check sizes, or use ts.where", node)


class ConstantLayer(Layer):
    """Owns nothing: constants of a module are ordinary Python."""

    def owns(self, value: Any) -> bool:
        return False

    def type_of(self, value: Any) -> Any:
        return None
