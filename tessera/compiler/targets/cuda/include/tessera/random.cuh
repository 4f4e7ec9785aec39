// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (SC 2011).
#pragma once
#include "tile.cuh"

namespace tessera {
namespace scalar {

template <int half = 0> TS_FN u64 philox_half(u64 counter, u64 key) {
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
  return half ? (u64)c2 | (u64)c3 << 32 : (u64)c0 | (u64)c1 << 32;
}
TS_FN u64 philox(u64 counter, u64 key) { return philox_half(counter, key); }
TS_FN u16 philox_part(u64 number, u64 key) {
  u64 words = number & 4 ? philox_half<1>(number >> 3, key) : philox_half<0>(number >> 3, key);
  return (u16)(words >> (number & 3) * 16);
}

}  // namespace scalar
TS_LIFT2(philox) TS_LIFT2(philox_part)
}  // namespace tessera
