"""The base of layers and models: dataclasses of named arrays."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Mapping
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Literal, Self, dataclass_transform

import tessera as ts
from tessera.deferred import deferred
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.fitting import foreign
from tessera.language.absent import FOREIGN_PARAMETERS, ONLY_REFUSES, instead_of_attribute, no_attribute
from tessera.language.records import REGISTERED, members
from tessera.nn import tree
from tessera.tracebacks import entrance, outward


@fitted
def buffer(*given: Any, default: Any = MISSING, default_factory: Any = MISSING, init: bool = True) -> Any:
    """A field whose arrays are not trained: `mean: Tensor["D"] = ts.nn.buffer()`. Raises LaunchError TS105 for an
    array, which a class does not hold: `self.register_buffer("mean", array)`, in `__init__`, makes a buffer of one."""
    if given:
        message = "buffer declares a field of a class, mean: ts.Tensor = nn.buffer(); in __init__, self.register_buffer"
        raise LaunchError(Diagnostic("TS105", f"{message}(name, array) sets it"))
    made = {"default": default, "default_factory": default_factory, "init": init}
    return dataclasses.field(metadata={tree.BUFFER: True}, **made)


@fitted
def Parameter(data: Any) -> Any:
    """`data` as an array of floats, f32 if it is a number or a list: a parameter in a field, as any such array is.

    Raises LaunchError TS351 for what is no float.
    """
    made = ts.asarray(data) if tree.is_array(data) else ts.asarray(data, ts.f32)
    if not made.dtype.is_float:
        message = (
            f"a parameter is trained, and {made.dtype} has no gradient; an array of {made.dtype} in a field is state"
        )
        raise LaunchError(Diagnostic("TS351", message))
    return made


@entrance
@dataclass_transform(eq_default=False)
class Module:
    """Base of layers and models. A subclass automatically is a dataclass. Its fields are arrays, modules, lists and
    dicts of them, and configuration.

    Arrays of floats are parameters, unless their field is a `buffer()` or registered as one; integers are state. Names
    are paths: `"blocks.0.norm.weight"`. `Linear["D", "H"]` in an annotation gives the sizes of a module. A subclass may
    define `__init__`, which must set each field; the default takes the fields as arguments. A subclass without new
    fields inherits the constructor. Numbers, functions and names in fields are configuration, known at compile time;
    gradients contain them too. `@ts.function`s take modules as arguments, return them, and differentiate by them. A
    call of a module is its `__call__` or, as in PyTorch, its `forward`.
    """

    @outward
    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        taken = [n for n in vars(cls).get("__annotations__", {}) if n in vars(Module) and not n.startswith("__")]
        if taken:
            message = f"the field {taken[0]!r} of {cls.__name__} has the name of an attribute that each module has"
            raise LaunchError(Diagnostic("TS105", f"{message}, Module.{taken[0]}; give it another name"))
        adds = bool(vars(cls).get("__annotations__"))  # a base's `__init__` sets all fields where none is added
        made = "__init__" not in vars(cls) and (adds or cls.__init__ is object.__init__)
        dataclasses.dataclass(init=made, repr=False, eq=False)(cls)
        if cls.__module__.startswith("tessera."):  # those of users say what Python says
            (fitted if "__init__" in vars(cls) else entrance)(cls)

    def __class_getitem__(cls, sizes: Any) -> Any:
        return types.GenericAlias(cls, sizes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    if not TYPE_CHECKING:  # an attribute that is not there is an error in editors, too

        @outward
        def __new__(cls, *args: Any, **options: Any) -> Any:
            others = not options.keys().isdisjoint(FOREIGN_PARAMETERS)
            said = foreign(cls.__name__, list(inspect.signature(cls).parameters), options) if others else ""
            if said:
                raise LaunchError(Diagnostic("TS105", said, deferred("runtime.callsite").call_span()))
            return super().__new__(cls)

        @outward
        def __getattr__(self, name: str) -> Any:
            if name == "forward":
                raise NoForward(self)
            raise no_attribute("module", self, name)

        setattr(__getattr__, ONLY_REFUSES, True)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Sets `self.name`, whose arrays are not trained, as those of a field with `= nn.buffer()`. For `__init__`.

        Raises LaunchError TS105 for `persistent=False`: what a model computes with belongs to its state.
        """
        if not persistent:
            message = f"register_buffer: each buffer belongs to state_dict(), {name} too; leave persistent=False out"
            raise LaunchError(Diagnostic("TS105", message))
        object.__setattr__(self, name, tensor)
        self._registered_buffers = (*getattr(self, "_registered_buffers", ()), name)  # records.REGISTERED

    def parameters(self) -> list[Any]:
        """The arrays that are trained, in the order of their names."""
        return list(self.named_parameters().values())

    def named_parameters(self) -> dict[str, Any]:
        """The arrays that are trained, by name."""
        return tree.parameters(self)

    def state_dict(self, layout: Literal["torch"] | None = None) -> dict[str, Any]:
        """All arrays by name, buffers and integers too. They are the module's own, not copies.

        `layout="torch"`: copies under the names that PyTorch's layers have (`"0.weight"` of a `Sequential`,
        `"running_mean"`, `"weight_ih_l0"`), with the matrices of linear layers turned.
        """
        own = {leaf.path: leaf.array for leaf in tree.leaves(self)}
        if layout not in (None, "torch"):
            raise LaunchError(Diagnostic("TS105", f"the layout of a state is 'torch' or None, not {layout!r}"))
        return own if layout is None else deferred("checkpoint.pytorch").given(self, own)

    def load_state_dict(self, state: Mapping[str, Any], layout: Literal["torch"] | None = None) -> None:
        """Copies the arrays of `state`, which must have the names, shapes and dtypes of `state_dict()`. Arrays of any
        library become Tensors where the module has Tensors. Parameters with `requires_grad` change in place.
        `layout="torch"`: `state` is that of the same model in PyTorch, see `state_dict`.

        Raises LaunchError TS361 if a name is missing or unknown, or a shape or dtype differs; then nothing changes.
        """
        tree.changed("load_state_dict", "model.replace(out=...), or unravel of vector, unravel = ts.tree_ravel(model)")
        own = self.state_dict()
        if layout is not None:
            check_state(self.state_dict(layout), state, type(self).__name__)
            state = deferred("checkpoint.pytorch").taken(self, state)
        elif strange := state.keys() - own.keys():
            deferred("checkpoint.pytorch").demand_other(self, strange)
        check_state(own, state, type(self).__name__)
        with ts.no_grad():
            self._take(tree.replaced(self, {n: _loaded(held, state[n]) for n, held in own.items()}))
        tree.noted(self.named_parameters())

    def _take(self, other: Module) -> None:
        """Takes over the arrays of another module of the same structure."""
        for name, held in members(other).items():
            object.__setattr__(self, name, held)

    def requires_grad_(self, wanted: bool = True) -> Self:
        """Makes the parameters Tensors over the same memory with `requires_grad`, for `loss.backward()`. Returns the
        module."""
        named = self.named_parameters()
        tensors = {id(p): ts.asarray(p) for p in named.values()}
        self._take(tree.replaced(self, {n: tensors[id(p)].requires_grad_(wanted) for n, p in named.items()}))
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients of all parameters before the next `backward()`: they are None, as in PyTorch."""
        demand_removed(set_to_none)
        for p in self.parameters():
            if isinstance(p, ts.Tensor):
                p.grad = None

    def gradient(self) -> Self:
        """The `.grad` of all parameters, for an optimizer: a copy of the module that holds them, with None for a
        missing one."""
        named = self.named_parameters()
        return tree.replaced(self, {n: p.grad if isinstance(p, ts.Tensor) else None for n, p in named.items()})

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of these fields: `ts.replace` as a method, inside of functions too."""
        return ts.replace(self, **changes)

    @outward
    def to(self, where: Any) -> Self:
        """A copy on another device ("cpu", "cuda", "cuda:1"), or one whose float parameters and buffers have another
        dtype; integers keep theirs. Inside of a function, a copy of another dtype, which gradients go through.

        Raises LaunchError TS501 where `where` is neither, MissingDependency TS604 for a GPU without CuPy.
        """
        return tree.moved(self, where)

    def to_mixed_precision(self, compute: Any = ts.bf16, accumulate: Any = ts.f32, storage: Any = None) -> Any:
        """This model with products in a narrow dtype: see `ts.to_mixed_precision`."""
        return ts.to_mixed_precision(self, compute, accumulate, storage)

    @property
    def count(self) -> int:
        """The number of elements of all parameters."""
        return sum(ts.asarray(p).size for p in self.parameters())

    def __repr__(self) -> str:
        return _described(self, "")


class NoForward(LaunchError, AttributeError):
    """A module that defines neither `forward` nor `__call__` was called."""

    def __init__(self, module: Module) -> None:
        message = f"{type(module).__name__} has no attribute 'forward'; {instead_of_attribute('module', 'forward')}"
        super().__init__(Diagnostic("TS104", message, deferred("runtime.callsite").call_span()))


def demand_removed(set_to_none: bool) -> None:
    """Raises LaunchError TS105 where gradients are to stay, as zeros."""
    if not set_to_none:
        message = "zero_grad removes gradients, they are not kept as zeros: leave set_to_none=False out"
        raise LaunchError(Diagnostic("TS105", message))


def _loaded(held: Any, given: Any) -> Any:
    """What a module holds in place of `held` after loading `given`."""
    copy = ts.asarray(given).detach().copy()
    if not isinstance(held, ts.Tensor):
        return copy if isinstance(given, ts.Tensor) else given.copy() if hasattr(given, "copy") else copy
    copy = copy.to(held.device)
    if not held.requires_grad:
        return copy
    held[...] = copy
    return held


def check_state(wanted: Mapping[str, Any], state: Mapping[str, Any], owner: str) -> None:
    """Raises LaunchError TS361 unless both have the same names, shapes and dtypes."""
    faults = [f"{n} is missing" for n in wanted if n not in state]
    faults += [f"{n} is not in {owner}" for n in state if n not in wanted]
    faults += [
        f"{n} is {_array(state[n])}, and in {owner} {_array(wanted[n])}"
        for n in wanted
        if n in state and _array(state[n]) != _array(wanted[n])
    ]
    if faults:
        turned = [n for n in wanted if n in state and _is_turned(wanted[n], state[n])]
        if turned:
            faults.append(
                f"PyTorch's linear layers hold {turned[0]} and all others the other way round, square ones too: "
                'load_state_dict(state, layout="torch")'
            )
        shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
        raise LaunchError(Diagnostic("TS361", f"this state does not belong to {owner}: {shown}"))


def _is_turned(wanted: Any, given: Any) -> bool:
    shape = tuple(wanted.shape)
    return len(shape) == 2 and shape[0] != shape[1] and tuple(given.shape) == shape[::-1]


def _array(value: Any) -> str:
    """`[3, 4] f32`."""
    array = ts.asarray(value)
    return f"{list(array.shape)} {array.dtype}"


def _described(value: Any, indent: str) -> str:
    """A text of a tree: arrays by shape and dtype, a line for each part that holds others."""
    if tree.is_array(value):
        return _array(value)
    inner = f"{indent}  "
    if isinstance(value, Module):
        held = [(n, v) for n, v in members(value).items() if n != REGISTERED]
        head, brackets = type(value).__name__, "()"
    elif isinstance(value, (list, tuple)):
        held, head, brackets = [(str(i), v) for i, v in enumerate(value)], "", "[]"
    elif isinstance(value, Mapping):
        held, head, brackets = [(repr(k), v) for k, v in value.items()], "", "{}"
    else:
        return getattr(value, "__name__", None) or repr(value)
    numbers = {n for n, v in held if isinstance(value, Module) and tree.is_number(value, n, v)}
    parts = [f"{n}: {v if n in numbers else _described(v, inner)}" for n, v in held]
    if any("\n" in p for p in parts) or (any(isinstance(v, (Module, list, dict)) for _, v in held) and parts):
        lines = "".join(f"{inner}{p}\n" for p in parts)
        return f"{head}{brackets[0]}\n{lines}{indent}{brackets[1]}"
    return f"{head}{brackets[0]}{', '.join(parts)}{brackets[1]}"
