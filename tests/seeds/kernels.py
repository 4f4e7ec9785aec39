# ruff: noqa: C408, W291, W293
# fmt: off
"""The kernels of the seeds, as their authors wrote them (decorators and all)."""

from __future__ import annotations

import math

import tessera
import tessera as ts
from tessera import Tile, bf16, f32, tile


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], 
          y: ts.Tensor["n", ts.f32], 
          alpha: ts.f32) -> ts.Tensor["n", ts.f32]:
    """Simple SAXPY: y = alpha * x + y"""
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y


@ts.kernel
def gemm(A: ts.Tensor["M", "K", ts.bf16],
         B: ts.Tensor["K", "N", ts.bf16],
         C: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    """Matrix multiplication using tensor cores"""
    # Allocate shared memory tiles
    smem_a = ts.tile.alloc_shared((64, 32), ts.bf16, swizzle="xor")
    smem_b = ts.tile.alloc_shared((32, 64), ts.bf16, swizzle="xor")
    
    # Load tiles asynchronously
    ts.tile.cp_async(smem_a, A[tile_m:tile_m+64, tile_k:tile_k+32])
    ts.tile.cp_async(smem_b, B[tile_k:tile_k+32, tile_n:tile_n+64])
    ts.tile.barrier()
    
    # Compute using tensor cores
    acc = ts.tile.mma(smem_a, smem_b, accumulator=ts.f32)
    
    # Store result
    C[tile_m:tile_m+64, tile_n:tile_n+64] += acc
    return C


@ts.kernel.autotune(
    space=dict(
        BLOCK_M=[64, 128],
        BLOCK_N=[64, 128],
        num_warps=[4, 8],
        num_stages=[2, 3]
    )
)
def flash_attention(Q: ts.Tensor["B*H", "S", "D", ts.bf16],
                   K: ts.Tensor["B*H", "S", "D", ts.bf16],
                   V: ts.Tensor["B*H", "S", "D", ts.bf16],
                   is_causal: bool = True) -> ts.Tensor["B*H", "S", "D", ts.bf16]:
    """Flash Attention with online softmax"""
    
    # Tile configuration from autotuner
    ctx = ts.tile.context()
    BM, BN = ctx.BLOCK_M, ctx.BLOCK_N
    
    # Allocate shared memory
    smem_q = ts.tile.alloc_shared((BM, ctx.D), ts.bf16)
    smem_k = ts.tile.alloc_shared((BN, ctx.D), ts.bf16)
    smem_v = ts.tile.alloc_shared((BN, ctx.D), ts.bf16)
    
    # Initialize accumulators
    acc = ts.tile.zeros((BM, ctx.D), ts.f32)
    m_i = ts.tile.full((BM,), -float('inf'), ts.f32)
    l_i = ts.tile.zeros((BM,), ts.f32)
    
    # Main loop with online softmax
    for q_block in ts.tile.range(0, ctx.S, BM):
        # Load Q block
        ts.tile.cp_async(smem_q, Q[q_block:q_block+BM])
        
        for kv_block in ts.tile.range(0, ctx.S, BN):
            # Load K,V blocks
            ts.tile.cp_async(smem_k, K[kv_block:kv_block+BN])
            ts.tile.cp_async(smem_v, V[kv_block:kv_block+BN])
            ts.tile.barrier()
            
            # Compute attention scores
            scores = ts.tile.mma(smem_q, smem_k.T) * (1.0 / math.sqrt(ctx.D))
            
            # Apply causal mask if needed
            if is_causal:
                scores = ts.tile.causal_mask(scores, q_block, kv_block)
            
            # Online softmax update
            m_new = ts.tile.row_max(scores)
            m_i_new = ts.tile.maximum(m_i, m_new)
            
            # Compute correction factors
            alpha = ts.tile.exp(m_i - m_i_new)
            beta = ts.tile.exp(m_new - m_i_new)
            
            # Update accumulator
            p = ts.tile.exp(scores - m_i_new)
            l_i = alpha * l_i + beta * ts.tile.row_sum(p)
            acc = alpha * acc + ts.tile.mma(p, smem_v)
            
            m_i = m_i_new
    
    # Finalize
    return ts.tile.cast(acc / l_i[:, None], ts.bf16)


@tessera.kernel
def matmul_kernel(
    A: Tile["M", "K", bf16],
    B: Tile["K", "N", bf16],
    C: Tile["M", "N", f32]
):
    """Kernels operate on tiles, not individual threads"""
    # Get tile context
    ctx = tile.context()
    
    # Load tiles into shared memory
    A_shared = tile.load(A, shape=(ctx.BM, ctx.BK), prefetch=2)
    B_shared = tile.load(B, shape=(ctx.BK, ctx.BN), prefetch=2)
    
    # Compute using tensor cores
    accumulator = tile.zeros((ctx.BM, ctx.BN), dtype=f32)
    
    for k in tile.range_k(0, K, ctx.BK):
        A_tile = tile.load_partition(A_shared, k)
        B_tile = tile.load_partition(B_shared, k)
        accumulator += tile.mma(A_tile, B_tile)
    
    # Store result
    tile.store(C, accumulator)


@tessera.kernel
def safe_softmax(x: Tile) -> Tile:
    """Built-in numerically stable operations"""
    # These primitives guarantee stability
    max_val = tile.max(x, axis=-1, keepdim=True)
    exp_x = tile.exp(x - max_val)  # Avoid overflow
    sum_exp = tile.sum(exp_x, axis=-1, keepdim=True)
    return exp_x / sum_exp
