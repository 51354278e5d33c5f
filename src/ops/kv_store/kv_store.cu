// pool[page, h, slot % page, :] = k[t, h, :], and v likewise     k, v [tokens, kv_heads * head_dim]
// bf16 slices
//
// Grid: one thread a 16-byte vector of K and the same of V; 128 threads a CTA. 16-byte accesses, a
// head's row contiguous on both sides. Bytes: 8 * kv_heads * head_dim a token. Bound by memory from
// about 1000 tokens.
// Template: KV_HEADS, HEAD_DIM (a multiple of 8), PAGE.

struct KvStoreParams {
    const u16 *k, *v;
    u16 *k_pool, *v_pool;
    const i32 *slot;
    i32 k_stride, v_stride, n_tokens; // strides in elements
};

KERNEL __launch_bounds__(128) kv_store(const __grid_constant__ KvStoreParams p)
{
    constexpr u32 kPerHead = HEAD_DIM / 8, kPerToken = KV_HEADS * kPerHead;
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / kPerToken, r = i % kPerToken;
    u32 head = r / kPerHead, c = r % kPerHead;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
    i32 slot = p.slot[t];
    i64 to = (((i64)(slot / PAGE) * KV_HEADS + head) * PAGE + slot % PAGE) * HEAD_DIM + c * 8;
    uint4 k = load16(p.k + (i64)t * p.k_stride + r * 8),
          v = load16(p.v + (i64)t * p.v_stride + r * 8);
    store16(p.k_pool + to, k);
    store16(p.v_pool + to, v);
}
