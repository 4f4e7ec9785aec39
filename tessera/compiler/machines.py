"""The table of machines that programs can be compiled for: all that a program is judged, cut up and predicted by before
any target compiles it.

A target from outside adds its machine by `register`; one without a row is cut up as for a CPU.
"""

from __future__ import annotations

from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType


@immutable
class Sizes:
    """Elements per program of elementwise and row kernels, and the block of a contraction."""

    elements: int
    row_elements: int
    rows: int
    columns: int
    most_columns: int
    contract_rows: int
    contract_columns: int
    programs: int
    """programs that contractions and reductions across rows are split into where they are large enough"""
    diagonals: bool
    """whether one program takes many dot products of a batch, one in each lane"""
    sides: int
    """sides of a window that are worth a launch each, rather than one launch that writes what is inside as well"""
    sorted_block: int = 0
    """elements of a line that one program sorts, where longer ones are merged; 0: one program sorts any line, and folds
    segments one element after the other"""
    sorted_lines: int = 1
    """lines that one program sorts side by side, where there are as many"""
    products: tuple[tuple[int, int], ...] = ()
    """blocks of contractions on tensor cores, best first: the first that gives every multiprocessor work is taken"""
    multiprocessors: int = 1
    rows_again: bool = False
    """whether each reduction of a row reads it again, in an order of its own, rather than values in registers"""
    one_order: bool = False
    """whether reductions combine the same elements in the same order, whichever axis they run along"""
    any_axes: bool = False
    """whether products read operands whose rows, columns or summed axes are several strided axes in memory"""
    any_rows: bool = False
    """whether a product of any number of rows does no more work than these; else it is padded to a power of two"""
    band: int = 0
    """bytes of a result that are computed at a time where launches run in bands, so that the next launch finds them in
    a cache; 0: launches run one after the other"""


@immutable
class Peaks:
    """Ceilings used for schedules and predictions: GFLOP/s, GB/s, and the cost of one launch in microseconds."""

    gflops: float
    gbytes: float
    launch_us: float


@immutable
class Multiprocessor:
    """What one multiprocessor of a GPU has, and what of it one block may have. Bytes of shared memory."""

    shared_of_block: int
    shared: int
    threads: int
    blocks: int


@immutable
class Code:
    """What a target writes: its language as editors call it, and the file suffixes of its source and its assembly."""

    language: str
    suffix: str
    assembly: str


OTHER = Code("plaintext", ".txt", ".s")


@immutable
class Machine:
    """`name` is that of its target, `aliases` what else people call it. `peaks` None: there is no model of it."""

    name: str
    sizes: Sizes
    peaks: Peaks | None = None
    aliases: tuple[str, ...] = ()
    multiprocessor: Multiprocessor | None = None
    """of a GPU"""
    code: Code = OTHER

    @property
    def architecture(self) -> int | None:
        """90 for "sm_90a"; None for what is no GPU."""
        return int(self.name.removeprefix("sm_").rstrip("af")) if self.multiprocessor is not None else None


# One program should run for microseconds (a worker's hand-over costs one) and stay in the first-level cache.
CPU = Sizes(
    elements=16384,
    row_elements=8192,
    rows=64,
    columns=256,
    most_columns=1024,
    contract_rows=518,
    contract_columns=512,
    programs=4,
    diagonals=True,
    sides=8,
    sorted_lines=16,
    rows_again=True,
    one_order=True,
    any_axes=True,
    any_rows=True,
    band=1 << 18,
)


# 128 threads with eight elements each; a row is spread over the block's threads.
def _gpu_sizes(products: tuple[tuple[int, int], ...] = (), multiprocessors: int = 1) -> Sizes:
    return Sizes(
        elements=1024,
        row_elements=4096,
        rows=16,
        columns=64,
        most_columns=64,
        contract_rows=64,
        contract_columns=64,
        programs=1,
        diagonals=False,
        sides=1,
        sorted_block=1024,
        products=products,
        multiprocessors=multiprocessors,
    )


GPU = _gpu_sizes()
# wgmma takes 64 rows at a time; two warpgroups with 128 x 256 reuse operands most and leave registers for an epilogue.
_WARPGROUPS = _gpu_sizes(((128, 256), (128, 128), (64, 128), (64, 64)), 132)

LLVM, CUDA_CPP, TILE_IR = Code("llvm", ".ll", ".s"), Code("cuda-cpp", ".cu", ".sass"), Code("tessera-ir", ".mlir", ".s")


def _gpu(name: str, peaks: Peaks | None, aliases: tuple[str, ...], *limits: int, sizes: Sizes = GPU) -> Machine:
    return Machine(name, sizes, peaks, aliases, Multiprocessor(*limits), CUDA_CPP)


# Limits: CUDA C++ Programming Guide, compute capabilities. Peaks: published f32 and memory peaks of the usual card of
# each architecture (T4, A100, A10, 4090, H100, B200, 5090). An architecture that ends in `a` has instructions of its
# own and runs on that capability alone; one that ends in `f` has those of its family, and runs on the later ones of its
# major version; the others do so too, and as PTX on any later GPU. `sm_120f` multiplies by scales of blocks itself.
# Those of a CPU are what schedules go by, the same everywhere; predictions go by what was measured (figures.py).
_TABLE = (
    Machine("cpu", CPU, Peaks(100, 20, 1), ("llvm",), code=LLVM),
    Machine("reference", CPU, None, ("numpy",), code=TILE_IR),
    _gpu("sm_70", None, ("v100", "cuda_70"), 98304, 98304, 2048, 32),
    _gpu("sm_75", Peaks(8_100, 320, 4), ("t4", "cuda_75"), 65536, 65536, 1024, 16),
    _gpu("sm_80", Peaks(19_500, 1_555, 4), ("a100", "cuda_80"), 166912, 167936, 2048, 32),
    _gpu("sm_86", Peaks(35_600, 936, 4), ("rtx3090",), 101376, 102400, 1536, 16),
    _gpu("sm_89", Peaks(82_600, 1_008, 4), ("l4", "rtx4090"), 101376, 102400, 1536, 24),
    _gpu("sm_90a", Peaks(66_900, 3_350, 3), ("h100", "h200", "sm_90", "cuda_90"), 232448, 233472, 2048, 32,
         sizes=_WARPGROUPS),
    _gpu("sm_100", Peaks(80_000, 8_000, 3), ("b200", "b300", "sm_100a", "sm_100f", "sm_103"), 232448, 233472, 2048, 32),
    _gpu("sm_120", Peaks(104_800, 1_792, 3), ("sm_121",), 101376, 102400, 1536, 24),
    _gpu("sm_120f", Peaks(104_800, 1_792, 3), ("rtx5090", "sm_120a", "sm_121a", "sm_121f"), 101376, 102400, 1536, 24),
)  # fmt: skip
MACHINES: dict[str, Machine] = {m.name: m for m in _TABLE}
ALIASES = {alias: m.name for m in MACHINES.values() for alias in m.aliases}
CUDA_ARCHITECTURES = tuple(m.name for m in MACHINES.values() if m.multiprocessor is not None)
MULTIPROCESSORS = {m.architecture: m.multiprocessor for m in MACHINES.values() if m.architecture and m.multiprocessor}
SHARED_LIMITS = {arch: sm.shared_of_block for arch, sm in MULTIPROCESSORS.items()}
"""architecture -> bytes of shared memory that one block may have"""
HOST = "cpu"
"""the device whose memory is that of the process; also its target"""
REFERENCE = "reference"
"""the target that interprets programs"""
EMULATOR = "emulator:"
"""before the name of a GPU: its code, run on the processor"""
AUTO = "auto"
"""the target of the device that the arguments live on"""
ANY_GPU = "cuda"
"""the target of the GPU that is present; devices are called by it and a number"""
_USUAL = {AUTO: "cpu", "reference": "cpu", ANY_GPU: "sm_90a"}
"""what is predicted where no device is asked, or for what has no peaks of its own"""

SECTOR = 32
"""bytes that are moved at least where any of them is wanted"""
TENSOR_CORE_DTYPES = frozenset({
    dtypes.f16, dtypes.bf16, dtypes.tf32, dtypes.f64, dtypes.fp8_e4m3, dtypes.fp8_e5m2, dtypes.int8, dtypes.uint8,
})  # fmt: skip
"""dtypes whose products some architecture has an instruction for"""
BLOCK_SCALED = {dtypes.fp8_e8m0: 32, dtypes.fp8_e4m3: 16}
"""how many elements along K share a scale of a dtype: OCP Microscaling Formats 1.0, and NVFP4"""
MMA_ROWS, MMA_COLUMNS = 16, 8
"""what the rows and columns of such a product are multiples of, at least"""


def register(machine: Machine) -> None:
    """Adds a row, or takes the place of the one of that name."""
    MACHINES[machine.name] = machine
    ALIASES.update(dict.fromkeys(machine.aliases, machine.name))


def canonical(target: str) -> str:
    """The one name of a target: "sm_90a" for "H100"; others are their own, in lower case."""
    return ALIASES.get(target.lower(), target.lower())


def machine_of(target: str) -> Machine | None:
    """The row of a target's machine; an emulator's is that of its GPU. None where there is none."""
    return MACHINES.get(canonical(canonical(target).removeprefix(EMULATOR)))


def code_of(target: str) -> Code:
    """What a target writes."""
    found = machine_of(target)
    return found.code if found is not None else OTHER


def sizes_of(target: str) -> Sizes:
    """How programs for a target are cut up."""
    found = machine_of(target)
    return found.sizes if found is not None else GPU if target == ANY_GPU else CPU


def predicted_machine(target: str) -> str:
    """The name of the machine that predictions for a target are made for: "auto" counts as the CPU."""
    name = canonical(target).removeprefix(EMULATOR)
    return _USUAL.get(name, canonical(name))


def peaks_of(target: str) -> Peaks:
    """The peaks by which is weighed what a target does; those of a usual machine where there is no model of it."""
    for name in (predicted_machine(target), _USUAL[ANY_GPU] if is_gpu(target) else HOST):
        found = machine_of(name)
        if found is not None and found.peaks is not None:
            return found.peaks
    raise AssertionError("the table has peaks for the usual machines")


def mma_depth(dtype: DType) -> int:
    """What its contracted axis is a multiple of: 32 bytes of it, doubles 4."""
    return 4 if dtype == dtypes.f64 else 32 // dtype.itemsize


def scaled_depth(a: DType, b: DType, scale: DType, k: int) -> int:
    """What of a contracted axis of length k an instruction takes that multiplies by scales of blocks; 0: there is none.

    Source: PTX ISA, "Block Scaling for mma.sync".
    """
    small = {dtypes.fp8_e4m3, dtypes.fp8_e5m2, dtypes.fp6_e2m3, dtypes.fp6_e3m2, dtypes.fp4_e2m1}
    if a == b == dtypes.fp4_e2m1 and k % 64 == 0:
        return 64
    return 32 if {a, b} <= small and scale == dtypes.fp8_e8m0 and k % 32 == 0 else 0


def architecture_of(target: str) -> int | None:
    """90 for "h100", "sm_90a" and "emulator:sm_90a"; None for a target that is no GPU or not said."""
    found = machine_of(target)
    return found.architecture if found is not None else None


def is_gpu(target: str) -> bool:
    """Whether a target's name says that it is a GPU, one of the table or the one that is present."""
    return target.lower() == ANY_GPU or architecture_of(target) is not None


def best_target(capability: tuple[int, int]) -> str:
    """The target whose code runs on devices of this compute capability: the machine code that fits best, else the PTX
    of the latest target before it. Without any: the architecture's own name, which is not a target.

    Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".
    """
    own = [(divmod(architecture_of(a) or 0, 10), a) for a in CUDA_ARCHITECTURES]
    fit = [(c, a) for c, a in own if c == capability or (c < capability and runs_on_later(a, c[0] == capability[0]))]
    return max(fit, key=lambda x: x[0] + (x[1][-1] in "af",))[1] if fit else "sm_{}{}".format(*capability)


def runs_on_later(target: str, same_major: bool) -> bool:
    """Whether code for a GPU runs on later ones too, of its major version or of a later one."""
    return not target.endswith("a") and (same_major or not target.endswith("f"))
