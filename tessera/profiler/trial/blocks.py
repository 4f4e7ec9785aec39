"""Other block sizes for a kernel: found in its decorator or its text, tried under the launches that calls use."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tessera.compiler.frontend.fixes import apply
from tessera.compiler.machines import HOST
from tessera.compiler.targets import base as targets
from tessera.errors import CompileError, Edit, Fix, TargetError
from tessera.language.schedule import names_in
from tessera.profiler.trial.calls import Again, NotTried, call_of
from tessera.profiler.trial.made import HintTrial, MadeChange, made_up
from tessera.profiler.trial.paired import Timed
from tessera.profiler.trial.texts import decorator_of, redefined
from tessera.runtime.arrays import devices
from tessera.runtime.autotune.candidates import LAUNCH, Candidate, Pruned, screen_for, takes_any_data
from tessera.runtime.call.arguments import Parameters
from tessera.runtime.code.reads import reads
from tessera.runtime.code.watch import Watch

Direction = Literal["larger", "smaller", "other", "more stages"]
FACTORS: dict[Direction, tuple[float, ...]] = {
    "larger": (2, 4, 8, 16, 64),
    "smaller": (1 / 2, 1 / 4, 1 / 8),
    "other": (1 / 4, 1 / 2, 2, 4),
}
STAGES = ("num_stages", "stages")
COPIES = frozenset({"mma", "cp_async", "prefetch"})
"""what loops use that copy ahead"""
LARGEST = 1 << 16
"""lanes of a block"""
LANES = 256
"""of `ts.tile.linear_id` where the kernel does not say how many: what the candidates are multiples of"""
ROUNDS = 5
"""in which the candidates are compared among themselves; the best is then measured afresh against the original"""


def other_blocks(trial: HintTrial, direction: Direction) -> MadeChange:
    """Raises NotTried."""
    if direction == "more stages" and trial.launches[-1].device.partition(":")[0] == HOST:
        raise NotTried("stages are copies on their way to a GPU's shared memory: a CPU copies nothing ahead")
    again = call_of(trial.recording, trial.launches[-1])
    chosen = choose(again, changes(again, direction), trial.launches[-1].target)
    notes = made_up(again.made_up) + tuple(f"left out: {why}" for why in chosen.left_out)
    found, file = chosen.blocks, again.program.definition().file
    change = f"Use {found.said} in {again.program.name}"
    return MadeChange(chosen.before, chosen.after, file, found.before, found.after, "equal bits", notes, change)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The change: other parameters of the kernel's decorator, or other numbers in its text."""

    said: str
    """`BM=64, BN=64`, or `tile_m + 64`"""
    make: Callable[[], Any]
    """the program with them; may raise NotTried"""
    before: str
    after: str
    """the file's text"""


def stages_of(program: Any) -> int | None:
    """The stages that a kernel's decorator says, where the kernel has loops that copy ahead: for products, and where it
    asks for it."""
    if program is None or program.kind != "kernel":
        return None
    tree, names = program.definition().tree, names_in(program.__wrapped__.__code__)
    decorator = decorator_of(tree, "kernel")
    products = any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult) for n in ast.walk(tree))
    if decorator is None or not (products or COPIES & names):
        return None
    written = _written(decorator)
    return next((written[name] for name in STAGES if name in written), None)


def _deeper(program: Any, definition: Any, decorator: ast.expr) -> list[Blocks]:
    """One stage more, and two."""
    present = stages_of(program)
    if present is None:
        raise NotTried(f"{program.name} has no num_stages in its decorator, or no loop that copies ahead")
    name, out = next(n for n in STAGES if n in _written(decorator)), list[Blocks]()
    for stages in (present + 1, present + 2):
        text = apply(definition.source, Fix("", tuple(_edits(definition.text, decorator, {name: stages}))))
        make = functools.partial(program.with_config, **{name: stages})
        out.append(Blocks(f"{name}={stages}", make, definition.source, text))
    return out


def changes(again: Again, direction: Direction) -> list[Blocks]:
    """Every size scaled, all together and each alone. Raises NotTried."""
    program = again.program
    if program.kind != "kernel":
        raise NotTried(f"{program.name} is a function, whose tiles the compiler chooses")
    if "autotune" in program.options:
        raise NotTried(f"the block sizes of {program.name} are tuned already")
    definition = program.definition()
    decorator = decorator_of(definition.tree, "kernel")
    if decorator is None:
        raise NotTried(f"{program.name} is not decorated with @ts.kernel where it is defined")
    if direction == "more stages":
        return _deeper(program, definition, decorator)
    written = _written(decorator)
    present = {k: v for k, v in written.items() if k not in LAUNCH}
    if any(program.config.get(k) != v for k, v in present.items()):
        raise NotTried(f"{program.name} does not run with the block sizes of its decorator")
    if not present:
        if "linear_id" not in names_in(program.__wrapped__.__code__):
            return _numbers(program, definition, direction)
        present = {"BLOCK": LANES}
    found: dict[tuple[tuple[str, int], ...], None] = {}
    for names in [tuple(present)] if len(present) == 1 else [tuple(present), *((n,) for n in present)]:
        for factor in FACTORS[direction]:
            config = {k: int(v * factor) if k in names else v for k, v in present.items()}
            if config != written and all(1 <= v <= LARGEST for v in config.values()):
                found.setdefault(tuple(config.items()))
    source, out = definition.source, list[Blocks]()
    for config in map(dict[str, int], found):
        edits = tuple(_edits(definition.text, decorator, config))
        said = ", ".join(f"{k}={v}" for k, v in config.items())
        make = functools.partial(program.with_config, **config)
        out.append(Blocks(said, make, source, apply(source, Fix("", edits))))
    return out


def _numbers(program: Any, definition: Any, direction: Direction) -> list[Blocks]:
    """The same for sizes that are numbers in the text, as in `x[tile_m : tile_m + 16]`: wherever a size stands in the
    kernel, as in `ts.tile.zeros((16, 16))`, or only behind one index."""
    sizes: dict[str, list[ast.Constant]] = {}
    for node in ast.walk(definition.tree):
        if isinstance(node, ast.Slice) and (number := _block(node)) is not None:
            sizes.setdefault(ast.unparse(node.lower), []).append(number)  # type: ignore[arg-type]
    written = {number.value for numbers in sizes.values() for number in numbers}
    if not written:
        raise NotTried(
            f"{program.name} has no block sizes: neither parameters of @ts.kernel nor numbers behind an index"
        )
    body = [
        n for s in definition.tree.body for n in ast.walk(s) if isinstance(n, ast.Constant) and type(n.value) is int
    ]
    everywhere = [[n for n in body if n.value == size] for size in sorted(written)]
    ways = [[n for numbers in everywhere for n in numbers], *everywhere, *sizes.values()]
    found: dict[str, Blocks] = {}
    for numbers in ways:
        for factor in FACTORS[direction]:
            changed = {id(n): int(n.value * factor) for n in numbers}
            if all(1 <= v <= LARGEST for v in changed.values()):
                edits = tuple(Edit(definition.text.span(n), str(changed[id(n)])) for n in numbers)
                text = apply(definition.source, Fix("", edits))
                behind = {name: changed[id(own[0])] for name, own in sizes.items() if id(own[0]) in changed}
                said = ", ".join(f"{name} + {size}" for name, size in behind.items())
                make = functools.partial(redefined, program, text)
                found.setdefault(text, Blocks(said, make, definition.source, text))
    return list(found.values())


def _block(node: ast.Slice) -> ast.Constant | None:
    """The 16 of `tile_m : tile_m + 16`."""
    low, high = node.lower, node.upper
    if low is None or not isinstance(high, ast.BinOp) or not isinstance(high.op, ast.Add) or node.step is not None:
        return None
    number = high.right
    same = ast.dump(low) == ast.dump(high.left)
    return number if same and isinstance(number, ast.Constant) and type(number.value) is int else None


def _written(decorator: ast.expr) -> dict[str, int]:
    """The decorator's keywords that are whole numbers in the text."""
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return {
        k.arg: k.value.value
        for k in keywords
        if k.arg and isinstance(k.value, ast.Constant) and type(k.value.value) is int
    }


def _edits(source: Any, decorator: ast.expr, config: Mapping[str, int]) -> Iterator[Edit]:
    if not isinstance(decorator, ast.Call):
        text = ", ".join(f"{k}={v}" for k, v in config.items())
        yield Edit(source.span(decorator), f"{ast.unparse(decorator)}({text})")
        return
    missing = dict(config)
    for keyword in decorator.keywords:
        if keyword.arg in missing:
            value = missing.pop(keyword.arg)
            if ast.literal_eval(keyword.value) != value:
                yield Edit(source.span(keyword.value), str(value))
    if missing:
        inside = list(map(ast.unparse, (*decorator.args, *decorator.keywords)))
        inside += [f"{k}={v}" for k, v in missing.items()]
        yield Edit(source.span(decorator), f"{ast.unparse(decorator.func)}({', '.join(inside)})")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The change that was quickest in a few rounds, if any gives the bits of the original and runs."""

    before: Timed
    after: Timed
    blocks: Blocks
    left_out: tuple[str, ...]
    """why other sizes were"""


def choose(again: Again, offered: list[Blocks], target_name: str) -> Chosen:
    """Raises NotTried where no other size can be used."""
    program, shared = again.program, dict[int, Any]()
    parameters = Parameters(program.definition(), program.__wrapped__)
    bound = parameters.bind(again.arguments)
    target = targets.get(devices.resolve(target_name))
    watch = Watch(reads(program, bound.fixed))

    def made(fn: Any) -> Candidate:
        return Candidate(fn, bound, target, watch, screen_for(target), shared)

    original, why = made(program), list[str]()
    kinds = (False, True) if takes_any_data(program, bound) else (False,)
    wanted = [original.bits(kind) for kind in kinds]
    usable: list[tuple[Candidate, Blocks]] = []
    for blocks in offered:
        try:
            candidate = made(blocks.make())
        except (CompileError, TargetError, Pruned, NotTried) as e:
            why.append(f"{blocks.said}: {str(e).strip().partition(chr(10))[0]}")
            continue
        if candidate.code == original.code:
            continue
        if [candidate.bits(kind) for kind in kinds] != wanted:
            why.append(f"{blocks.said}: gives other bits")
            continue
        usable.append((candidate, blocks))
    if not usable:
        raise NotTried("; ".join(why) or f"no other block size makes other code of {program.name}")
    best = [min(c.time(1) for _ in range(2)) for c, _ in usable]
    for _ in range(ROUNDS):
        best = [min(t, c.time(1)) for t, (c, _) in zip(best, usable, strict=True)]
    candidate, blocks = usable[best.index(min(best))]
    return Chosen(original.time, candidate.time, blocks, tuple(why))
