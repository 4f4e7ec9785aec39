"""Measures the figures of this processor, in about a second: bandwidths, products, functions, launches.

Each figure is that of a small kernel, written by the generator of all others. The best of several rounds counts, and
the rounds are spread over the whole time: what another program takes for a moment lowers none of them. Bytes of a copy
are those read plus those written, as STREAM counts (McCalpin 1995).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tessera.compiler.figures import Figures, Rates, better, caches, cores, processor
from tessera.compiler.targets.cpu.call.threads import RUN, Pool, run_address
from tessera.compiler.targets.cpu.elementary.elementwise import FLOAT
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.kernel.instructions import tiles
from tessera.compiler.targets.cpu.kernel.instructions.narrow import add_bytes, add_pairs
from tessera.compiler.targets.cpu.kernel.sorting.merging import Pieces
from tessera.compiler.targets.cpu.kernel.sorting.network import LaneNetwork
from tessera.compiler.targets.cpu.kernel.sorting.words import Words
from tessera.compiler.targets.cpu.llvm import isa, jit
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import F32, F64, I32, I64, PTR, Ty, Val, const
from tessera.compiler.targets.cpu.loops.memory import ElementMemory
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE

ROUNDS = 6
SAMPLE = 0.0005
"""seconds that a kernel should run to be timed; one whose data do not fit into a cache goes over them once"""
LAUNCHES = 200
UNROLLED, STREAMS = 8, 4
"""vectors of a round, and places in memory that are read at a time: programs read several arrays"""
PAGE, LINE = 4096, 64
LINES = 1 << 15
"""lines that are read in no order"""
_DEAR = sorted(name for name in FLOAT if TABLE[name].arity == 1 and TABLE[name].flops > 1)
FUNCTIONS = (*_DEAR, "div", "sqrt", "reciprocal", "pow", "atan2", "mod", "floordiv")
"""functions whose time is measured in f32"""
NARROW = "short_gelu"
_ALL_THREADS = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


@immutable
class _Figure:
    """What is timed: a function of the module on `bytes` of each thread's own, again and again; `amount`: what one of
    its rounds over them does. `parted`: all threads together have these bytes."""

    name: str
    function: str
    bytes: int
    amount: float
    parted: bool = False


def measure() -> Figures:
    """All figures, without a look at those that are known."""
    host, sizes, threads = isa.host(), caches(), cores()
    module = LLVMModule(jit.attributes(host))
    figures = [*_bandwidths(module, host, sizes, threads), *_scattered(module, host, sizes, threads),
               *_products(module, host), *_functions(module, host), _merge(module, host),
               *_waits(module, host)]  # fmt: skip
    loaded = jit.Loaded(jit.compile_object(module.render()[0], host, "figures"), imports={RUN: run_address()})
    memory = (ctypes.c_char * (max(f.bytes * (1 if f.parted else threads) for f in figures) + PAGE))()
    ctypes.memset(memory, 0, len(memory))  # else what was never written is one page of zeros, which lies in each cache
    pool = Pool(threads - 1)
    try:
        timer = _Timer(pool, loaded, -(-ctypes.addressof(memory) // PAGE) * PAGE, threads)
        rates: dict[str, Rates] = {}
        start, waited = time.perf_counter(), _waited()
        for _ in range(ROUNDS):
            for figure in figures:
                rates[figure.name] = better(rates.get(figure.name), timer.rates(figure))
            rates["launch"] = better(rates.get("launch"), timer.launches())
        part = (_waited() - waited) / (time.perf_counter() - start) / threads
    finally:
        pool.stop()
    return Figures(processor(), threads, sizes, host.bits // 8, rates, time.time(), part)


def _waited() -> float:
    """Seconds that threads of this process have been ready to run without a processor, as far as Linux tells."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return total * 1e-9


class _Timer:
    """Runs functions of the module on one thread and on all."""

    def __init__(self, pool: Pool, loaded: jit.Loaded, memory: int, threads: int) -> None:
        self.pool, self.loaded, self.threads = pool, loaded, threads
        self.run = _ALL_THREADS(run_address())
        self.task = (ctypes.c_int64 * 5)(memory, 0, 0, 0, pool.address)
        self.times: dict[str, int] = {}

    def rates(self, figure: _Figure) -> tuple[float, float]:
        """By one thread and by all, in a second."""
        function = self.loaded.address(figure.function)
        if figure.name not in self.times:
            self.times[figure.name] = 1
            once = min(self._seconds(figure, function, 1) for _ in range(2))
            self.times[figure.name] = max(1, int(SAMPLE / once))
        one, together = (self._seconds(figure, function, n) for n in (1, self.threads))
        amount = self.times[figure.name] * figure.amount
        together = amount * (1 if figure.parted else self.threads) / together
        return amount / one, max(amount / one, together)  # all can do what one can

    def launches(self) -> tuple[float, float]:
        """By one thread and by all, in a second."""
        count = self.task[2] = LAUNCHES
        found: list[float] = []
        for threads in (1, self.threads):
            self.task[3] = threads
            start = time.perf_counter_ns()
            self.run(self.pool.address, self.loaded.address("launches"), ctypes.addressof(self.task), 1, 1, None)
            found.append(count / (time.perf_counter_ns() - start) * 1e9)
        return found[0], found[1]

    def _seconds(self, figure: _Figure, function: int, threads: int) -> float:
        size = figure.bytes // threads // PAGE * PAGE if figure.parted else figure.bytes
        self.task[1], self.task[2], self.task[3] = size, self.times[figure.name], threads
        if threads > 1 and not figure.parted:  # one that sleeps may wake up too late to take part
            self.run(self.pool.address, function, ctypes.addressof(self.task), threads, 1, None)
        start = time.perf_counter_ns()
        self.run(self.pool.address, function, ctypes.addressof(self.task), threads, 1, None)
        return max(time.perf_counter_ns() - start, 1) * 1e-9


class _Kernel:
    """A function of the module that is called as a program of a launch is: `data` points to the first thread's memory,
    the bytes of each thread, and how often to go over them."""

    def __init__(self, module: LLVMModule, name: str) -> None:
        self.fn = fn = LLVMFunction(module, name, [("data", PTR), ("begin", I64), ("end", I64), ("worker", I64)])
        memory, self.bytes, self.times = (
            fn.load(fn.gep(fn.param(0), i, "i64"), t) for i, t in enumerate((PTR, I64, I64))
        )
        self.memory = fn.gep(memory, fn.mul(fn.param(1), self.bytes), "i8")
        self._used = 0

    def raw(self, size: Dim) -> Val:
        """So many of a thread's bytes, behind those that were given before."""
        assert isinstance(size, int)
        at, self._used = self._used, self._used + -(-size // LINE) * LINE
        return self.fn.gep(self.memory, at, "i8")

    def over(
        self, step: int, end: Val, carried: Sequence[Val], body: Callable[[Val, list[Val]], Sequence[Val]]
    ) -> None:
        """Goes over the first bytes `end` in steps, with values that are carried on and kept in the end."""
        fn = self.fn
        with fn.loop(0, self.times, 1, carried) as again:
            with fn.loop(0, end, step, again.carried) as along:
                along.next = body(along.index, along.carried)
            again.next = along.results
        for i, v in enumerate(again.results):  # else LLVM would leave them out
            fn.store(v, fn.gep(self.memory, i * 64, "i8"), 1)


def _bandwidths(module: LLVMModule, host: VectorISA, sizes: tuple[int, int, int], threads: int) -> list[_Figure]:
    """Reading all of a thread's bytes, and copying their first half to the second, at several places at a time."""
    vector = I32.wide(host.bits // 32)
    width = host.bits // 8

    def read(name: str, streams: int) -> None:
        kernel, unrolled = _Kernel(module, name), UNROLLED // streams
        fn = kernel.fn
        part = fn.div(kernel.bytes, streams)

        def body(at: Val, sums: list[Val]) -> list[Val]:
            places = [fn.add(at, i * width) for i in range(unrolled)]
            starts = [fn.add(p, fn.mul(part, k)) for p in places for k in range(streams)]
            loads = [fn.load(fn.gep(kernel.memory, p, "i8"), vector, 4) for p in starts]
            return [fn.binary("add", s, v) for s, v in zip(sums, loads, strict=True)]

        kernel.over(unrolled * width, fn.index(part), [const(0, vector)] * (unrolled * streams), body)
        fn.do("ret void")

    def copy(name: str, streams: int, nontemporal: bool = False) -> None:
        kernel, unrolled = _Kernel(module, name), UNROLLED // streams
        fn = kernel.fn
        half, part = fn.div(kernel.bytes, 2), fn.div(kernel.bytes, 2 * streams)

        def body(at: Val, _: list[Val]) -> list[Val]:
            for i in range(unrolled):
                for k in range(streams):
                    place = fn.add(fn.add(at, i * width), fn.mul(part, k))
                    value = fn.load(fn.gep(kernel.memory, place, "i8"), vector, 4)
                    fn.store(value, fn.gep(kernel.memory, fn.add(place, half), "i8"), width, nontemporal=nontemporal)
            return []

        kernel.over(unrolled * width, fn.index(part), [], body)
        fn.do("ret void")

    read("read", 1)
    copy("copy", 1)
    read("read_apart", STREAMS)
    copy("copy_apart", STREAMS)
    copy("stream_apart", STREAMS, nontemporal=True)
    found: list[_Figure] = []
    for level, size, parted in _levels(sizes, threads):
        for what in ("read", "copy", *(["stream"] if level == "memory" else [])):
            found.append(_Figure(f"{what} {level}", f"{what}_apart" if parted else what, size, size, parted))
    return found


def _levels(sizes: tuple[int, int, int], threads: int) -> list[tuple[str, int, bool]]:
    """Each cache, bytes that lie in it and in none before, and whether these are of all threads together."""
    first, second, last = sizes
    own = {"L1": first // 2, "L2": max(second // 2, first)}
    parted = {"L3": max(last // 2, 2 * second * threads), "memory": min(max(3 * last, 64 << 20), 256 << 20)}
    return [(level, size // PAGE * PAGE, level in parted) for level, size in (own | parted).items()]


def _scattered(module: LLVMModule, host: VectorISA, sizes: tuple[int, int, int], threads: int) -> list[_Figure]:
    """Lines of a cache in no order, lanes of a vector from places that lie apart, and blocks transposed in registers:
    what rows of tables, columns and transposed arrays take."""
    lines = _Kernel(module, "lines")
    fn = lines.fn
    count = fn.index(fn.div(lines.bytes, LINE))

    def one(at: Val, sums: list[Val]) -> list[Val]:
        found: list[Val] = []
        for i, total in enumerate(sums):
            scaled = fn.binary("mul", fn.index(fn.add(at, i)), const(0x9E3779B1, I64))
            mixed = fn.binary("and", scaled, const(0xFFFFFFFF, I64))
            line = fn.binary("lshr", fn.binary("mul", mixed, count), const(32, I64))
            place = fn.gep(lines.memory, fn.mul(line, LINE), "i8")
            found.append(fn.binary("add", total, fn.load(place, I64)))
        return found

    lines.over(UNROLLED, const(LINES, I64), [const(0, I64)] * UNROLLED, one)
    fn.do("ret void")
    t, size = F32.wide(host.bits // 32), 16384
    for name in ("gather", "transpose"):
        kernel = _Kernel(module, name)
        mem = ElementMemory(VectorMath(kernel.fn, host))

        def body(at: Val, _: list[Val], kernel: _Kernel = kernel, mem: ElementMemory = mem) -> list[Val]:
            fn, place = kernel.fn, kernel.fn.gep(kernel.memory, at, "i8")
            if fn.name == "gather":
                apart = mem.spread(place, dtypes.f32, size // 4 // t.lanes + 1, t.lanes)
                gathered = mem.gather(apart, dtypes.f32, None, const(0.0, F32))
                assert isinstance(gathered, Val)
                found = [gathered]
            else:
                found = transpose(fn, [fn.load(fn.gep(place, i * LINE * 4, "i8"), t, 4) for i in range(t.lanes)])
            for i, v in enumerate(found):
                fn.store(v, fn.gep(place, size + i * LINE, "i8"), 4)
            return []

        kernel.over(LINE, const(LINE * 16, I64), [], body)
        kernel.fn.do("ret void")
    scattered = [_Figure(f"line {n}", "lines", b, LINES, parted) for n, b, parted in _levels(sizes, threads)[1:]]
    return [
        *scattered,
        _Figure("gather L1", "gather", 4 * size, 16 * t.lanes),
        _Figure("transpose f32", "transpose", 4 * size, 16 * t.lanes * t.lanes),
    ]


def _products(module: LLVMModule, host: VectorISA) -> list[_Figure]:
    """Multiply-adds of values in registers, as many at a time as hide how long each takes."""
    kinds: list[tuple[str, Ty, int, Callable[[LLVMFunction, Val, Val, Val], Val]]] = [
        ("f32", F32, 1, lambda fn, x, y, z: VectorMath(fn, host).fma(x, y, z)),
        ("f64", F64, 1, lambda fn, x, y, z: VectorMath(fn, host).fma(x, y, z)),
    ]
    tiled = [("bf16", dtypes.bf16, 32)] * host.bf16_tiles + [("int8", dtypes.int8, 64)] * host.byte_tiles
    if host.bf16_products and not host.bf16_tiles:
        kinds.append(("bf16", F32, 2, add_pairs))
    if host.byte_products and not host.byte_tiles:
        kinds.append(("int8", I32, 4, add_bytes))
    sums, rounds = min(12, host.registers - 4), 64
    for name, element, _, product in kinds:
        kernel = _Kernel(module, f"product_{name}")
        fn, t = kernel.fn, element.wide(host.bits // element.bits)
        factors = [fn.load(fn.gep(kernel.memory, i * 64, "i8"), t if name in ("f32", "f64") else I32.wide(t.lanes), 4)
                   for i in range(2)]  # fmt: skip

        def body(
            _: Val, held: list[Val], fn: LLVMFunction = fn, factors: list[Val] = factors,
            product: Callable[[LLVMFunction, Val, Val, Val], Val] = product,
        ) -> list[Val]:  # fmt: skip
            return [product(fn, factors[0], factors[1], v) for v in held]

        kernel.over(1, const(rounds, I64), [const(0, t)] * sums, body)
        fn.do("ret void")
    found = [_tiles(module, name, dtype, deep, rounds) for name, dtype, deep in tiled]
    return found + [
        _Figure(f"product {name}", f"product_{name}", 4096, 2 * together * sums * rounds * (host.bits // element.bits))
        for name, element, together, _ in kinds
    ]


def _tiles(module: LLVMModule, name: str, dtype: DType, deep: int, rounds: int) -> _Figure:
    """Products of zeros in tile registers, `deep` of k at a time."""
    kernel = _Kernel(module, f"product_{name}")
    tiles.configure(kernel.fn, tiles.ROWS)

    def body(_: Val, held: list[Val]) -> list[Val]:
        for i in range(4):
            tiles.add_products(kernel.fn, dtype, dtype, tiles.SUMS + i, tiles.LEFT + i // 2, tiles.RIGHT + i % 2)
        return held

    kernel.over(1, const(rounds, I64), [], body)
    tiles.release(kernel.fn)
    kernel.fn.do("ret void")
    return _Figure(f"product {name}", f"product_{name}", 4096, 2 * 4 * tiles.ROWS * tiles.ROWS * deep * rounds)


def _functions(module: LLVMModule, host: VectorISA) -> list[_Figure]:
    """Elementwise functions of numbers from 0.5 to 1.5 in the first-level cache; "gelu f16" with the digits that f16
    holds."""
    t, size = F32.wide(host.bits // 32), 8192
    for name in (*FUNCTIONS, NARROW):
        kernel = _Kernel(module, f"function_{name}")
        fn = kernel.fn

        def body(at: Val, _: list[Val], fn: LLVMFunction = fn, kernel: _Kernel = kernel, name: str = name) -> list[Val]:
            vm = VectorMath(fn, host)
            for i in range(2):
                place = fn.gep(kernel.memory, fn.add(at, i * host.bits // 8), "i8")
                bits = fn.load(place, I32.wide(t.lanes), 4)
                near = fn.binary("or", fn.binary("and", bits, const(0x3FFFFF, bits.ty)), const(0x3F000000, bits.ty))
                x = fn.convert("bitcast", near, F32)
                if name == NARROW:
                    y = vm.short_gelu(x, dtypes.f16.exponent)
                else:
                    y = FLOAT[name](vm, *([x] if TABLE[name].arity == 1 else [x, vm.k(0.75, x)]))
                fn.store(y, fn.gep(place, size, "i8"), 4)
            return []

        kernel.over(host.bits // 4, const(size, I64), [], body)
        fn.do("ret void")
    found = [_Figure(f"{name} f32", f"function_{name}", 2 * size, size / 4) for name in FUNCTIONS]
    return [*found, _Figure("gelu f16", f"function_{NARROW}", 2 * size, size / 4)]


def _merge(module: LLVMModule, host: VectorISA) -> _Figure:
    """Two runs of the multiples of 2 and of 3 become one: their words are taken from between two vectors."""
    kernel, run = _Kernel(module, "merge"), 2048
    fn = kernel.fn
    network = LaneNetwork(Words(fn, dtypes.int32, False, False), host.lanes(32), host.registers)
    pitch = Pieces.room(network, run)
    assert isinstance(pitch, int)
    pieces = Pieces(kernel, network, 2, 2 * pitch)
    lanes = I32.wide(host.lanes(32))
    with fn.loop(0, kernel.times):
        for i in range(2):
            with fn.loop(0, run, lanes.lanes) as at:
                number = fn.binary(
                    "add", fn.splat(fn.convert("trunc", at.index, I32), lanes.lanes), fn.lane_numbers(lanes)
                )
                multiple = fn.binary("mul", number, const(i + 2, lanes))
                fn.store(multiple, fn.gep(pieces.memory[0], fn.add(at.index, i * pitch), "i32"), 4)
            pieces.put(i, i * pitch, run)
        pieces.merge(2, 2 * run)
    fn.do("ret void")
    return _Figure("merge i32", "merge", 4 * 2 * 2 * pitch + PAGE, 2 * run)


def _waits(module: LLVMModule, host: VectorISA) -> list[_Figure]:
    """Sums where each waits for the one before, single operations side by side, and launches that do nothing."""
    chain = _Kernel(module, "chain")
    one = chain.fn.load(chain.memory, F32, 4)

    def after_each_other(_: Val, held: list[Val]) -> list[Val]:
        for _again in range(8):
            held = [chain.fn.effect(f"fadd float {held[0].ref}, {one.ref}", F32)]
        return held

    chain.over(1, const(8, I64), [const(0.0, F32)], after_each_other)
    chain.fn.do("ret void")
    steps = _Kernel(module, "steps")
    t = F32.wide(host.bits // 32)
    near_one = steps.fn.load(steps.memory, t, 4)

    def side_by_side(_: Val, held: list[Val]) -> list[Val]:
        names = ("fadd", "fmul")
        return [steps.fn.binary(names[i % 2], v, near_one) for i, v in enumerate(held)]

    steps.over(1, const(64, I64), [const(0.0, t)] * 12, side_by_side)
    steps.fn.do("ret void")
    nothing = _Kernel(module, "nothing")
    nothing.fn.do("ret void")
    launches = _Kernel(module, "launches")
    fn = launches.fn
    threads, pool = (fn.load(fn.gep(fn.param(0), i, "i64"), t) for i, t in ((3, I64), (4, PTR)))
    module.declare(f"declare void @{RUN}(ptr, ptr, ptr, i64, i64, ptr)")
    with fn.loop(0, launches.times):
        fn.do(f"call void @{RUN}(ptr {pool.ref}, ptr @nothing, ptr %data, i64 {threads.ref}, i64 1, ptr null)")
    fn.do("ret void")
    return [_Figure("chain f32", "chain", PAGE, 64), _Figure("step f32", "steps", PAGE, 64 * 12 * t.lanes)]
