// pool[page, h, slot % page, :] = k[t, h, :], and the same for v, in ways that kv_store.cu does not take
//
// The variants of kv_store: a thread has the same 16-byte vectors as in kv_store.cu, and one thing is different.
//
//   BOTH     0: a launch stores one of K and V, given as k; there are two launches. 1: K and V in one launch
//   ASYNC    the vectors pass through shared memory by cp.async. A thread reads back what it has copied itself, so no
//            barrier is needed
//   SORTED   tokens are taken in rising order of their slots, which the host has sorted: writes go to rising
//            addresses, and reads of k and v jump instead
//
// Bytes: as kv_store.cu; with BOTH 0 the slots are read twice, with SORTED a token number is read beside each slot.
// Template: KV_HEADS, HEAD_DIM (a multiple of 8), PAGE, FP8, BOTH, ASYNC, SORTED.
#include "kv.cuh"
#include "kv_store_variants_params.h"

INLINE void store_vector(kv_t *to, uint4 v, float inverse)
{
#if FP8
    f32x8 x = unpack8(v);
#pragma unroll
    for (int n = 0; n < 8; n++)
        x.v[n] *= inverse;
    kv_store8(to, x);
#else
    store16(to, v);
#endif
}

KERNEL __launch_bounds__(128) kv_store_variants(const __grid_constant__ kv_store_variants_params p)
{
    constexpr u32 kPerHead = HEAD_DIM / 8, kPerToken = KV_HEADS * kPerHead;
    u32 i = blockIdx.x * 128 + threadIdx.x, t = i / kPerToken, r = i % kPerToken;
    u32 head = r / kPerHead, c = r % kPerHead;
    pdl_go();
    pdl_wait();
    if (t >= (u32)p.n_tokens)
        return;
#if SORTED
    i32 slot = p.place[t].slot;
    t = (u32)p.place[t].token;
#else
    i32 slot = p.slot[t];
#endif
    STORES_TO_PADDING_PAGE(slot < PAGE);
    i64 to = (((i64)(slot / PAGE) * KV_HEADS + head) * PAGE + slot % PAGE) * HEAD_DIM + c * 8;
    const u16 *k = p.k + (i64)t * p.k_stride + r * 8, *v = p.v + (i64)t * p.v_stride + r * 8;
    uint4 x, y;
#if ASYNC
    __shared__ uint4 stage[1 + BOTH][128];
    copy_async16(shared_address(&stage[0][threadIdx.x]), k, 16);
    if constexpr (BOTH)
        copy_async16(shared_address(&stage[BOTH][threadIdx.x]), v, 16);
    copy_async_commit();
    copy_async_wait<0>();
    x = stage[0][threadIdx.x];
    y = stage[BOTH][threadIdx.x];
#else
    x = load16(k);
    if constexpr (BOTH)
        y = load16(v);
#endif
    store_vector(p.k_pool + to, x, p.k_inverse);
    if constexpr (BOTH)
        store_vector(p.v_pool + to, y, p.v_inverse);
}
