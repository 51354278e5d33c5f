// kv_store for rows of any length: pool[page, h, slot % page, :] = k[t, h, :], and the same for v
//
// k, v [tokens, kv_heads * head_dim] bf16 slices, aligned to 2 bytes only. Grid: one thread for each element of K
// and the same element of V; 128 threads per CTA. Bytes: 8 * kv_heads * head_dim per token, with FP8 6.
// Template: KV_HEADS, HEAD_DIM, PAGE, FP8, K_ONLY.
#include "kv.cuh"
#include "kv_store_params.h"

KERNEL __launch_bounds__(128) kv_store_any(const __grid_constant__ kv_store_params p)
{
    constexpr u32 kPerToken = KV_HEADS * HEAD_DIM;
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / kPerToken, r = i % kPerToken;
    u32 head = r / HEAD_DIM, c = r % HEAD_DIM;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    i32 slot = p.slot[t];
    STORES_TO_PADDING_PAGE(slot < PAGE);
    i64 to = (((i64)(slot / PAGE) * KV_HEADS + head) * PAGE + slot % PAGE) * HEAD_DIM + c;
    u16 k = p.k[(i64)t * p.k_stride + r], v = K_ONLY ? k : p.v[(i64)t * p.v_stride + r];
#if FP8
    p.k_pool[to] = (u8)f32_e4m3(bf16_f32(k) * p.k_inverse);
    if (!K_ONLY)
        p.v_pool[to] = (u8)f32_e4m3(bf16_f32(v) * p.v_inverse);
#else
    p.k_pool[to] = k;
    if (!K_ONLY)
        p.v_pool[to] = v;
#endif
}
