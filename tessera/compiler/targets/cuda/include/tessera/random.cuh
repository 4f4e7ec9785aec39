// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (SC 2011).
#pragma once
#include "tile.cuh"

namespace tessera {
namespace scalar {

TS_FN u64 philox(u64 counter, u64 key) {
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
  TS_UNROLL for (int round = 0; round < 10; ++round) {
    u32 h0 = hw::mul_high(0xD2511F53u, c0), l0 = 0xD2511F53u * c0, h1 = hw::mul_high(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (u64)c0 | (u64)c1 << 32;
}

}  // namespace scalar
TS_LIFT2(philox)
}  // namespace tessera
