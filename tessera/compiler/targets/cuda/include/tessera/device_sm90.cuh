// Instructions that only sm_90a has: mbarriers, tensor copies (TMA) and warpgroup products
// (wgmma). host_sm90.h implements the same names for the emulator.
//
// Sources: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier", "Data Movement and Conversion
// Instructions: cp.async.bulk.tensor" and "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once
#include "device.cuh"

namespace tessera {

// CUtensorMap of the driver API: 128 opaque bytes, made by cuTensorMapEncodeTiled and passed as a kernel parameter.
struct alignas(64) TensorMap { u64 opaque[16]; };

namespace hw {

// One lane of the calling warp; the compiler knows that it is one.
TS_FN bool elect() {
  u32 chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
  return chosen != 0;
}

// A number that is equal in all lanes of a warp, in a form that the compiler keeps in one register of the warp.
TS_FN int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
// A barrier of all threads of the block, also those of the producer.
TS_FN void sync_block() { __syncthreads(); }
// A barrier of the lanes of a warp: what each wrote is visible to the others.
TS_FN void sync_warp() { __syncwarp(); }

// Sets the registers per thread of the calling warpgroup; until here, all warps of the block have the same number.
template <int N> TS_FN void give_up_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> TS_FN void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

TS_FN void mbarrier_init(u64* b, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
// Makes initialised mbarriers visible to tensor copies; a block barrier must follow for the other threads.
TS_FN void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
TS_FN void mbarrier_arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Arrives, and makes the phase wait for `bytes` of tensor copies.
TS_FN void mbarrier_arrive_expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// Makes the phase wait for `bytes` of tensor copies; another thread arrives.
TS_FN void mbarrier_expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// Waits until the phase of this parity has ended. In debug builds a wait of ten seconds stops the kernel, so that the
// host gets a fault instead of waiting for ever.
TS_FN void mbarrier_wait(u64* b, u32 parity) {
#ifdef TS_DEBUG
  u64 start = clock_ns();
  for (u32 done = 0; !done;) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
    if (!done && clock_ns() - start > 10000000000ull) asm volatile("trap;");
  }
  return;
#endif
  asm volatile(
      "{\n.reg .pred p;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again;\n}" ::"r"(shared_address(b)), "r"(parity) : "memory");
}

// Prefetches the descriptor of a tensor before the first copy that uses it.
TS_FN void prefetch_tensor_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// Copies the box of the tensor at `at` (innermost first) to shared memory; elements outside the tensor arrive as 0.
// The mbarrier counts the bytes of the whole box.
TS_FN void copy_tensor(void* to, const TensorMap* map, u64* b, const i32 (&at)[2]) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(shared_address(to)), "l"(map), "r"(shared_address(b)), "r"(at[0]), "r"(at[1]) : "memory");
}
TS_FN void copy_tensor(void* to, const TensorMap* map, u64* b, const i32 (&at)[3]) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               ::"r"(shared_address(to)), "l"(map), "r"(shared_address(b)), "r"(at[0]), "r"(at[1]), "r"(at[2]) : "memory");
}
TS_FN void copy_tensor(void* to, const TensorMap* map, u64* b, const i32 (&at)[4]) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(shared_address(to)), "l"(map), "r"(shared_address(b)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]) : "memory");
}
TS_FN void copy_tensor(void* to, const TensorMap* map, u64* b, const i32 (&at)[5]) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
               ::"r"(shared_address(to)), "l"(map), "r"(shared_address(b)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]) : "memory");
}

// Makes what this thread wrote to shared memory visible to wgmma and to tensor copies.
TS_FN void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Forces the value into its register here: the compiler cannot compute it later.
TS_FN u32 held(u32 x) {
  asm volatile("" : "+r"(x)::"memory");
  return x;
}
// Orders earlier writes of registers, also of the accumulator `d`, before the products that follow.
template <int R> TS_FN void wgmma_fence(float (&d)[R]) {
  TS_UNROLL for (int i = 0; i < R; ++i) asm volatile("" : "+f"(d[i])::"memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
TS_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most N groups are in flight. `d` are the registers that products may be writing: naming them after all
// have ended keeps the compiler from reading them earlier.
template <int N, int R> TS_FN void wgmma_wait(float (&d)[R]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
  if constexpr (N == 0)
    TS_UNROLL for (int i = 0; i < R; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

enum class Kind { f16, bf16, tf32, e4m3, e5m2 };

// Lists of R accumulator registers, as text and as operands.
#define TS_T4 "%0,%1,%2,%3"
#define TS_T8 TS_T4 ",%4,%5,%6,%7"
#define TS_T16 TS_T8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define TS_T32 TS_T16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TS_T64                                                                                                     \
  TS_T32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58," \
         "%59,%60,%61,%62,%63"
#define TS_T128                                                                                                    \
  TS_T64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90," \
         "%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,"    \
         "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define TS_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TS_D8(i) TS_D4(i), TS_D4(i + 4)
#define TS_D16(i) TS_D8(i), TS_D8(i + 8)
#define TS_D32(i) TS_D16(i), TS_D16(i + 16)
#define TS_D64(i) TS_D32(i), TS_D32(i + 32)
#define TS_D128(i) TS_D64(i), TS_D64(i + 64)
// One product of a warpgroup: N columns in R registers; p, q ... are the numbers of the operands after them.
#define TS_WGMMA(N, R, TYPES, A, FLAGS, ...) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N TYPES " {" TS_T##R "}, " A ", 1, 1, 1" FLAGS ";" : TS_D##R(0) : __VA_ARGS__)
#define TS_WGMMA_SHARED(N, R, p, q, s, t)                                                                                  \
  if constexpr (K == Kind::f16) TS_WGMMA(N, R, "k16.f32.f16.f16", "%" #p ", %" #q, ", %" #s ", %" #t, "l"(a), "l"(b), "n"(TransA), "n"(TransB)); \
  else if constexpr (K == Kind::bf16) TS_WGMMA(N, R, "k16.f32.bf16.bf16", "%" #p ", %" #q, ", %" #s ", %" #t, "l"(a), "l"(b), "n"(TransA), "n"(TransB)); \
  else if constexpr (K == Kind::tf32) TS_WGMMA(N, R, "k8.f32.tf32.tf32", "%" #p ", %" #q, "", "l"(a), "l"(b));              \
  else if constexpr (K == Kind::e4m3) TS_WGMMA(N, R, "k32.f32.e4m3.e4m3", "%" #p ", %" #q, "", "l"(a), "l"(b));             \
  else TS_WGMMA(N, R, "k32.f32.e5m2.e5m2", "%" #p ", %" #q, "", "l"(a), "l"(b))
#define TS_WGMMA_REGISTERS(N, R, p, q, r, s, t, u)                                                                         \
  if constexpr (K == Kind::f16) TS_WGMMA(N, R, "k16.f32.f16.f16", "{%" #p ", %" #q ", %" #r ", %" #s "}, %" #t, ", %" #u, \
                                         "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TransB));                \
  else TS_WGMMA(N, R, "k16.f32.bf16.bf16", "{%" #p ", %" #q ", %" #r ", %" #s "}, %" #t, ", %" #u,                         \
                "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TransB))

// d += a @ b of 64 rows; the N columns have N / 2 registers per thread. a, b: descriptors of shared memory; Trans says
// that k runs outside in memory (16-bit elements only).
template <Kind K, bool TransA, bool TransB, int R> TS_FN void wgmma(float (&d)[R], u64 a, u64 b) {
  if constexpr (R == 4) { TS_WGMMA_SHARED(8, 4, 4, 5, 6, 7); }
  else if constexpr (R == 8) { TS_WGMMA_SHARED(16, 8, 8, 9, 10, 11); }
  else if constexpr (R == 16) { TS_WGMMA_SHARED(32, 16, 16, 17, 18, 19); }
  else if constexpr (R == 32) { TS_WGMMA_SHARED(64, 32, 32, 33, 34, 35); }
  else if constexpr (R == 64) { TS_WGMMA_SHARED(128, 64, 64, 65, 66, 67); }
  else { TS_WGMMA_SHARED(256, 128, 128, 129, 130, 131); }
}
// The same with 16-bit elements of a in registers, laid out as for mma.m16n8k16.
template <Kind K, bool TransB, int R> TS_FN void wgmma(float (&d)[R], const u32 (&a)[4], u64 b) {
  if constexpr (R == 4) { TS_WGMMA_REGISTERS(8, 4, 4, 5, 6, 7, 8, 9); }
  else if constexpr (R == 8) { TS_WGMMA_REGISTERS(16, 8, 8, 9, 10, 11, 12, 13); }
  else if constexpr (R == 16) { TS_WGMMA_REGISTERS(32, 16, 16, 17, 18, 19, 20, 21); }
  else if constexpr (R == 32) { TS_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37); }
  else if constexpr (R == 64) { TS_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69); }
  else { TS_WGMMA_REGISTERS(256, 128, 128, 129, 130, 131, 132, 133); }
}

}  // namespace hw
}  // namespace tessera
