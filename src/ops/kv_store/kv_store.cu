// pool[page, h, slot % page, :] = k[t, h, :], and the same for v     k, v [tokens, kv_heads * head_dim]
// bf16 slices. FP8 pools hold k / k_scale and v / v_scale as E4M3.
//
// Grid: one thread for each 16-byte vector of K and the same vector of V; 128 threads per CTA. A head's
// row is contiguous in the source and in the pool. Bytes: 8 * kv_heads * head_dim per token, with FP8 6.
// Bound by memory from about 1000 tokens on.
// Template: KV_HEADS, HEAD_DIM (a multiple of 8), PAGE, FP8, K_ONLY (K's rows hold V too: there is no V pool).
#include "kv.cuh"
#include "kv_store_params.h"

KERNEL __launch_bounds__(128) kv_store(const __grid_constant__ kv_store_params p)
{
    constexpr u32 kPerHead = HEAD_DIM / 8, kPerToken = KV_HEADS * kPerHead;
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / kPerToken, r = i % kPerToken;
    u32 head = r / kPerHead, c = r % kPerHead;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    i32 slot = p.slot[t];
    STORES_TO_PADDING_PAGE(slot < PAGE);
    i64 to = (((i64)(slot / PAGE) * KV_HEADS + head) * PAGE + slot % PAGE) * HEAD_DIM + c * 8;
    uint4 k = load16(p.k + (i64)t * p.k_stride + r * 8), v = k;
    if (!K_ONLY)
        v = load16(p.v + (i64)t * p.v_stride + r * 8);
#if FP8
    f32x8 x = unpack8(k), y = unpack8(v);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        x.v[n] *= p.k_inverse;
        y.v[n] *= p.v_inverse;
    }
    kv_store8(p.k_pool + to, x);
    if (!K_ONLY)
        kv_store8(p.v_pool + to, y);
#else
    store16(p.k_pool + to, k);
    if (!K_ONLY)
        store16(p.v_pool + to, v);
#endif
}
