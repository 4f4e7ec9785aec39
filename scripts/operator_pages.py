"""MkDocs hook: operators.md, every public operator by family, from the definitions."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from itertools import groupby
from typing import Any

from mkdocs.structure.files import File, Files

from tessera import fft, functions, linalg
from tessera.compiler.graph import operators as _families  # noqa: F401  (fills the registry)
from tessera.compiler.graph.operator import REGISTRY, Operator
from tessera.compiler.graph.operators.elementwise import Elementwise
from tessera.functions import HOME

TITLES = {
    "elementwise": "Elementwise",
    "inverse": "Inverses, signs and neighbours",
    "reductions": "Reductions",
    "statistics": "Statistics",
    "scans": "Prefixes",
    "ordering": "Order of elements",
    "segments": "Segments and scattered stores",
    "contraction": "Contractions",
    "general": "Square matrices",
    "triangular": "Triangular matrices",
    "orthogonal": "Orthogonal factors",
    "eigen": "Eigenvalues",
    "singular": "Singular values",
    "shaping": "Shapes",
    "conversion": "Conversions",
    "joining": "Joining and cutting",
    "indexing": "Positions and masks",
    "creation": "New tensors",
    "layers": "Linear layers and embeddings",
    "activations": "Activations and softmax",
    "normalization": "Normalisation",
    "losses": "Losses",
    "attention": "Attention",
    "sliding": "Windows",
    "convolution": "Convolution",
    "pooling": "Pooling",
    "transform": "Fourier transforms",
    "real": "Fourier transforms of real numbers",
    "length": "Lines of another length",
    "random": "Random numbers",
    "cutting": "Derivatives",
}


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "operators.md", content=operators_page()))
    return files


def family(operator: Operator) -> str:
    return type(operator).__module__.rpartition(".")[2]


def operators_page() -> str:
    """All public operators: families in the order of TITLES, operators in the order of their files."""
    lines = [
        "# Operators",
        "",
        "Functions of `tessera` and methods of a Tensor, in `@ts.function` and on arrays alike. `dim` and `keepdim`",
        "are accepted for `axis` and `keepdims`. Positions of axes count from the end where they are negative.",
    ]
    public = [o for o in REGISTRY.values() if o.function_names or o.method_names or o.properties]
    public.sort(key=lambda o: list(TITLES).index(family(o)))
    for name, group in groupby(public, family):
        members = list(group)
        module = sys.modules[type(members[0]).__module__]
        about = (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        lines += ["", f"## {TITLES[name]}", "", about]
        if scalars := [o for o in members if isinstance(o, Elementwise)]:
            lines += ["", "| function | meaning | operator | flops |", "|---|---|---|---|", *map(_row, scalars)]
        for operator in members:
            if not isinstance(operator, Elementwise):
                lines += ["", *_entry(operator)]
    lines += [
        "",
        "## Functions made of operators",
        "",
        "They are programs, to be read and copied: `tessera/functions`.",
    ]
    lines += (line for name in sorted(HOME) for line in _made(getattr(functions, name), name))
    lines += ["", "## `ts.fft`", "", inspect.getdoc(fft) or ""]
    lines += (line for name in fft.__all__ for line in _made(getattr(fft, name), f"fft.{name}"))
    lines += ["", "## `ts.linalg`", "", inspect.getdoc(linalg) or ""]
    lines += (line for name in linalg.HOME for line in _made(getattr(linalg, name), f"linalg.{name}"))
    return "\n".join(lines) + "\n"


def _made(function: Callable[..., Any], name: str) -> list[str]:
    signature = inspect.signature(function)
    bare = signature.replace(parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()])
    return ["", f"### `{name}{bare}` {{ #{name} }}", "", inspect.getdoc(function) or ""]


def _row(operator: Elementwise) -> str:
    s = operator.scalar
    cells = (
        f'<span id="{s.name}"></span>`{operator.signature}`',
        s.doc,
        f"`{s.symbol}`" if s.symbol else "",
        str(s.flops),
    )
    return f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |"


def _entry(operator: Operator) -> list[str]:
    also = [f"`{n}`" for n in operator.function_names if n != operator.name]
    methods = [f"`x.{n}`" for n in (*operator.properties, *operator.method_names)]
    notes = [f"also {', '.join(also)}"] * bool(also) + [f"as {', '.join(methods)}"] * bool(methods)
    notes += [f"a primitive of lowering ({operator.kind})"] if operator.kind and operator.decompose is None else []
    said = f"*{'; '.join(notes)}*" if notes else ""
    return [
        f"### `{operator.signature}` {{ #{f'{operator.space}.' * bool(operator.space)}{operator.name} }}",
        "",
        operator.doc,
        *(["", said] if said else []),
    ]
