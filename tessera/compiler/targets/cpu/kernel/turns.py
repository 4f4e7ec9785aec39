"""Memory that loops exchange: the addresses of the buffers take turns in the frame.

A frame serves many calls. `run` gives it back as it was, also where a call has been interrupted: else a temporary
would keep the address of an array of that call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.targets.cpu.frame import FrameLayout
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.values import PTR, Index, Val
from tessera.compiler.tile.program import Exchange


def turn(fn: LLVMFunction, frame: FrameLayout, turns: Sequence[Sequence[int]]) -> None:
    """The exchange after a round."""
    for buffers in turns:
        places = [_slot(fn, frame, b) for b in buffers]
        behind = [fn.load(place, PTR, 8) for place in (*places[1:], places[0])]
        for address, place in zip(behind, places, strict=True):
            fn.store(address, place, 8)


def keep_frame(module: LLVMModule, frame: FrameLayout, steps: str, exchanged: Sequence[Exchange]) -> None:
    """Writes `run`: the function `steps`, and what exchanges memory as it was."""
    fn = LLVMFunction(module, "run", [("frame", PTR)])
    places = [_slot(fn, frame, b) for exchange in exchanged for b in exchange.buffers]
    kept = [fn.load(place, PTR, 8) for place in places]
    fn.do(f"call void @{steps}({fn.param(0)!r})")
    for address, place in zip(kept, places, strict=True):
        fn.store(address, place, 8)


class BoundMemory:
    """Where the bound buffers of a Program are when it begins."""

    def __init__(self, fn: LLVMFunction, frame: FrameLayout, exchanged: Sequence[Exchange]) -> None:
        self.fn, self.frame = fn, frame
        self.home = {b: self._address(b) for exchange in exchanged for b in exchange.bound}

    def bring(self, exchange: Exchange, size: Index) -> None:
        """What `come_home` does, for buffers of `size` bytes."""
        fn = self.fn
        for i, b in enumerate(exchange.bound):
            home = self.home[b]
            with fn.when(self._differ(self._address(b), home)):
                for other in exchange.bound[i + 1 :]:  # what is there is needed
                    with fn.when(self._equal(self._address(other), home)):
                        free = self._address(exchange.others[0])
                        self._copy(free, home, size)
                        self._place(other, free)
                        self._place(exchange.others[0], home)
                now = self._address(b)
                self._copy(home, now, size)
                for other in exchange.others:
                    with fn.when(self._equal(self._address(other), home)):
                        self._place(other, now)
                self._place(b, home)

    def _address(self, buffer: int) -> Val:
        return self.fn.load(_slot(self.fn, self.frame, buffer), PTR, 8)

    def _place(self, buffer: int, address: Val) -> None:
        self.fn.store(address, _slot(self.fn, self.frame, buffer), 8)

    def _copy(self, to: Val, source: Val, size: Index) -> None:
        self.fn.module.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.fn.do(f"call void @llvm.memcpy.p0.p0.i64({to!r}, {source!r}, {self.fn.index(size)!r}, i1 false)")

    def _equal(self, a: Val, b: Val) -> Val:
        return self.fn.compare("icmp eq", a, b)

    def _differ(self, a: Val, b: Val) -> Val:
        return self.fn.compare("icmp ne", a, b)


def _slot(fn: LLVMFunction, frame: FrameLayout, buffer: int) -> Val:
    return fn.gep(fn.param(0), frame.buffer_slot(buffer), "i64")
