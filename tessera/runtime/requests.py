"""What to compile for a call, put into words that the disk cache and people can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.compiler.frontend.analysis import Analysis, analyse
from tessera.compiler.targets.base import Target
from tessera.runtime import history
from tessera.runtime.arguments import Bound, Parameters
from tessera.runtime.build import Built, Request, build
from tessera.runtime.watch import Watch, function_content


def compile_call(
    fn: Any, parameters: Parameters, bound: Bound, target: Target, watch: Watch, *,
    dims: Mapping[str, int] | None = None, profile: bool = False, debug: bool | None = None,
) -> Built:  # fmt: skip
    """Code for a function or kernel with arguments of these types, from wherever it is quickest to have."""
    return compile_with(fn, parameters, bound.arguments, bound.fields, target, watch, dims or {}, profile, debug)


def compile_with(
    fn: Any, parameters: Parameters, arguments: Mapping[str, Any] | None, shown: Mapping[str, Any], target: Target,
    watch: Watch, dims: Mapping[str, int], profile: bool = False, debug: bool | None = None,
) -> Built:  # fmt: skip
    """As `compile_call`; `arguments` None compiles for the annotations alone."""
    from tessera import knobs

    debug = knobs.debug() if debug is None else debug
    definition = parameters.definition

    def analysed() -> Analysis:
        return analyse(definition, arguments, dims)

    source = definition.text.segment(definition.text.span(definition.tree))
    fields: dict[str, Any] = {
        "source": function_content(fn),
        **shown,
        **{f"dim {name}": str(size) for name, size in dims.items()},
        **watch.fields(),
        "target": target.fingerprint,
        "debug": str(debug),
    }
    place = f"{definition.file}:{definition.line}"
    front = (definition.kind, place, source, *(f"{name}: {value}" for name, value in fields.items()))
    built = build(Request(definition.name, target, analysed, front, watch.path_of, debug, profile))
    if not profile:
        compilation = history.Compilation(definition.name, fields, built.origin, built.duration)
        history.record(history.identity_of(fn), compilation)
    return built
