"""The last passes before a target: no access leaves its array, and in debug mode one that tries to is reported."""

from __future__ import annotations

from dataclasses import replace

from tessera.compiler.ir.core import Op, clone
from tessera.compiler.tile.passes.debug import check_indices, check_nan, show_elements
from tessera.compiler.tile.passes.keep_inside import keep_inside, needs_keeping
from tessera.compiler.tile.program import Branch, Launch, Loop, Program, Step


def guarded(program: Program, debug: bool, values: bool = True) -> Program:
    """The same Program; its own kernels stay as they are. With `debug`, each kernel asserts that indices lie inside and
    that no NaN is stored, and its author's asserts say more; without `values`, of indices alone, for a target that
    watches values itself."""
    made: dict[Op, Op] = {}

    def kernel(old: Op) -> Op:
        if not debug and not needs_keeping(old):
            return old
        new = clone(old, {})
        if debug and values:
            show_elements(new)
            check_nan(new)
        if debug:
            check_indices(new)  # before indices are moved: what is said is what the author computed
        keep_inside(new)
        return new

    def of(step: Step) -> Step:
        match step:
            case Launch():
                if step.kernel not in made:
                    made[step.kernel] = kernel(step.kernel)
                return replace(step, kernel=made[step.kernel])
            case Branch():
                return replace(step, then=tuple(map(of, step.then)), orelse=tuple(map(of, step.orelse)))
            case Loop():
                return replace(step, head=tuple(map(of, step.head)), body=tuple(map(of, step.body)))

    return replace(program, steps=tuple(map(of, program.steps)))
