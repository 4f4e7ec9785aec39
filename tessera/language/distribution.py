"""`ts.mesh` and `@ts.distributed`: which devices share the work of a function, and over which of its dims.

Nothing here runs or queries a device: the settings are plain data, so editors read them as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NoReturn, cast

from tessera.deferred import deferred
from tessera.errors import CompileError, Diagnostic, TesseraError
from tessera.language.decorators import Decorated, Function
from tessera.nearest import nearest
from tessera.tracebacks import decorator, leave, outward

_ONE_DIM = 'what is cut into parts is one dim of the arguments, @ts.distributed(mesh, over="B")'
_NOT_THERE = {
    "topology": "how devices are wired is not used yet; a mesh is its devices in order, and named axes with sizes",
    **dict.fromkeys(("layout", "placement", "sharding", "partition", "in_specs", "out_specs"), _ONE_DIM),
    **dict.fromkeys(("axis", "dim"), _ONE_DIM),
    **dict.fromkeys(("axis_names", "names", "mesh_dim_names"), 'axes are named with axes={"data": 8}'),
    **dict.fromkeys(("mesh_shape", "sizes"), 'sizes are given with the axes, axes={"data": 8}, or as shape=(8,)'),
    **dict.fromkeys(("backend", "device_type"), 'devices are numbers or names, ts.mesh(["cuda:0", "cuda:1"])'),
}
"""what other libraries' meshes are told: that it is not there, and the nearest thing that is"""
NO_CONTEXT = 'a mesh is not a context manager: pass it to a function, @ts.distributed(mesh, over="B")'
PARAMETERS = {"mesh": "devices, axes, shape", "distributed": "mesh, over"}
MOST = 65_536
"""devices in a mesh: an editor makes the mesh of a text while its number is being typed"""


def none_unknown(function: str, unknown: Mapping[str, object]) -> None:
    """Raises CompileError TS105 for the first unknown keyword."""
    if said := wrong_keyword(function, unknown):
        raise _wrong(said)


def wrong_keyword(function: str, given: Iterable[str]) -> str:
    """The message for the first keyword that `mesh` or `distributed` does not take; empty if there is none."""
    parameters = PARAMETERS[function]
    for name in given:
        if name in parameters.split(", "):
            continue
        near = nearest(name, parameters.split(", "))
        text = _NOT_THERE.get(name) or (f"did you mean {near}?" if near else f"it takes {parameters}")
        return f"{'a mesh' if function == 'mesh' else function} has no parameter {name!r}; {text}"
    return ""


@dataclass(frozen=True, slots=True, init=False)
class Mesh:
    """Devices in a grid of named axes. A number in `devices` is a place on the device of the arguments: the CPU, or the
    GPUs of this machine in turn. A name (`"cuda:1"`) is that device.

    `devices` None: all GPUs if the arguments live on one, else the CPU. Made by `ts.mesh`.
    """

    devices: tuple[int | str, ...] | None
    axes: tuple[tuple[str, int], ...]

    @outward
    def __init__(
        self,
        devices: int | Iterable[int | str] | None = None,
        axes: Mapping[str, int] | Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        **unknown: object,
    ) -> None:
        none_unknown("mesh", unknown)
        places = _devices(devices)
        object.__setattr__(self, "devices", places)
        object.__setattr__(self, "axes", _axes(places, axes, shape))

    @outward
    def __enter__(self) -> NoReturn:
        raise _wrong(NO_CONTEXT)

    def __exit__(self, *_: object) -> None: ...

    def __str__(self) -> str:
        if self.devices is None:
            return "all devices"
        axes = " x ".join(f"{name}={size}" for name, size in self.axes)
        return f"{axes}: {', '.join(map(str, self.devices))}"


@outward
def mesh(
    devices: int | Iterable[int | str] | None = None,
    axes: Mapping[str, int] | Sequence[str] | None = None,
    shape: Sequence[int] | None = None,
    **unknown: object,
) -> Mesh:
    """A mesh of devices: `ts.mesh(4)`, `ts.mesh(range(8), axes={"data": 8})`, `ts.mesh(["cuda:0", "cuda:1"])`.

    `devices` are places (numbers, or how many of them; a machine with fewer devices gets several places on one), or
    names of devices; None: all devices. `axes` names the axes of the grid, with their sizes, or with those in `shape`;
    the default is one axis, "data". Raises CompileError TS105 if they do not fit together, and for keywords of other
    libraries, such as `topology`.
    """
    return Mesh(devices, axes, shape, **unknown)


def _axes(
    places: tuple[int | str, ...] | None, axes: Mapping[str, int] | Sequence[str] | None, shape: Sequence[int] | None
) -> tuple[tuple[str, int], ...]:
    if places is None:
        if axes is not None or shape is not None:
            raise _wrong("a mesh of all devices has one axis; give it more with mesh(devices=range(8), axes=...)")
        return ()
    if isinstance(axes, str):
        raise _wrong(f"the axes of a mesh are a list of names, axes=[{axes!r}], or a mapping of names to sizes")
    names = ["data"] if axes is None else list(axes)
    sizes = list(axes.values()) if isinstance(axes, Mapping) else [len(places)] if shape is None else list(shape)
    if not all(isinstance(n, str) for n in cast("list[object]", names)) or len(names) != len(sizes):
        raise _wrong(f"a mesh with axes {names} needs one size for each of them: axes={{name: size}}, or shape=")
    if not all(type(n) is int and n > 0 for n in sizes) or math.prod(sizes) != len(places):
        raise _wrong(f"axes of sizes {' x '.join(map(str, sizes))} do not hold {len(places)} devices")
    return tuple(zip(names, sizes, strict=True))


def _devices(devices: object) -> tuple[int | str, ...] | None:
    if devices is None:
        return None
    if type(devices) is int and devices > 0:
        devices = range(devices)
    found = tuple(islice(cast("Iterable[int | str]", devices), MOST + 1)) if isinstance(devices, Iterable) else ()
    if len(found) > MOST:
        raise _wrong(f"a mesh has at most {MOST:,} devices")
    known = [d for d in found if (type(d) is int and d >= 0) or (isinstance(d, str) and _is_device(d))]
    if isinstance(devices, str) or not found or len(known) != len(found):
        raise _wrong(f'a mesh takes a number of devices, or a list like range(4) or ["cpu", "cuda:0"], not {devices!r}')
    return found


def _is_device(name: str) -> bool:
    kind, _, index = name.partition(":")
    return name == "cpu" or (kind == "cuda" and index.isdecimal())


@dataclass(frozen=True, slots=True)
class Distribution:
    """The settings of `@ts.distributed`: the dim that is split into parts, and the device of each part."""

    mesh: Mesh
    over: str


class Distributed(Function):
    """Made by `@ts.distributed`: a function whose arguments are split along a dim, one part for each device."""

    @property
    def single(self) -> Function:
        """The function that is not distributed; each device runs it on its part."""
        found = self.__dict__.get("single_")
        if found is None:
            rest = {k: v for k, v in self.options.items() if k != "distributed"}
            found = self.__dict__["single_"] = Function(self.__wrapped__, rest)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return deferred("dist.run").call(self, args, kwargs)
        except TesseraError as e:
            leave(e)
            raise

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """The `ts.dist.DistributionPlan` for these arguments, or the annotations: what is cut, copied and sent.

        `print` it. Raises CompileError TS801, TS802 if the function cannot be distributed like this.
        """
        return deferred("dist.run").plan_of(self, args, kwargs)

    def explain(self, target: str = "auto", dims: Mapping[str, int] | None = None) -> Any:
        """The plan by the annotations, then what runs on each device."""
        return deferred("dist.run").explanation(self, target, dims)


def _mesh_of(devices: Any) -> Mesh:
    return devices if isinstance(devices, Mesh) else mesh(devices)


@outward
def distributed(mesh: Any = None, over: str = "B", **unknown: object) -> Any:
    """Runs a function on several devices: each gets a part of every argument along the dim `over`.

        @ts.distributed(ts.mesh(4), over="B")
        @ts.function
        def layer(x: Tensor["B", "D"], w: Tensor["D", "H"]): ...

    Arguments without that dim are copied to each device. Results with it are joined; sums, means, products, maxima and
    minima over it are combined by a fixed tree over the parts, on any devices. `mesh` is a `ts.mesh`, a number of
    places or None for all devices. Use it above `@ts.function`, or alone on a plain function, with or without
    arguments. Raises CompileError TS801 at the first call if an operator needs the whole dim, TS802 if the program or
    the mesh cannot be used.
    """
    none_unknown("distributed", unknown)
    if isinstance(mesh, Decorated) or callable(mesh):
        return distributed(over=over)(cast("Any", mesh))
    found = _mesh_of(mesh)
    if not isinstance(over, str) or not over.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _wrong(f'distributed(over=...) is the name of a dim, such as "B", not {over!r}')
    return _decorator(Distribution(found, over))


def _decorator(said: Distribution) -> Callable[[Any], Distributed]:
    def decorate(f: Any) -> Distributed:
        if isinstance(f, Decorated) and not isinstance(f, Function):
            raise _refused(f"{f.name} is a {f.kind}; what is distributed is a @ts.function", f.name)
        if isinstance(f, Distributed):
            raise _refused(f"{f.name} is distributed already; it has one mesh, and one dim that is cut", f.name)
        if len(said.mesh.axes) > 1:
            axes = ", ".join(name for name, _ in said.mesh.axes)
            raise _refused(f"a function is distributed over a mesh with one axis, this one has {axes}", "")
        python, options = (f.__wrapped__, f.options) if isinstance(f, Decorated) else (f, {})
        return Distributed(python, {**options, "distributed": said})

    return decorator("distributed", decorate)


def _wrong(message: str) -> CompileError:
    return CompileError(Diagnostic("TS105", message, deferred("runtime.callsite").call_span()))


def _refused(message: str, name: str) -> CompileError:
    return CompileError(Diagnostic("TS802", message, function=name))
