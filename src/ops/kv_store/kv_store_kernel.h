/* KV store over the vector type: see simd_portable.h for how this header is compiled. The unit of
 * work is one token: its K and V rows are read once and written, rounded, to one slot of each
 * pool. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/kv_store/kv_store.h"
#include "ops/kv_store/kv_store_impls.h"
#include "ops/simd_any.h"

/* head [head_dim] goes to head h of the slot. */
static inline void store_head(const float *head, int64_t h, vt_tensor *pool, vf inverse,
                              int32_t slot)
{
    int64_t heads = pool->dim[1], page_size = pool->dim[2], d = pool->dim[3];
    int64_t at = ((slot / page_size * heads + h) * page_size + slot % page_size) * d;
    for (int64_t i = 0; i < d; i += VF) {
        int lanes = lanes_left(i, d);
        vf x = vf_mul(vf_load_n(head + i, lanes), inverse);
        vf_store_any(pool->data, pool->dtype, at + i, x, lanes);
    }
}

static inline void store_heads(const float *row, vt_tensor *pool, float scale, int32_t slot)
{
    vf inverse = vf_set1(1 / scale);
    for (int64_t h = 0; h < pool->dim[1]; h++)
        store_head(row + h * pool->dim[3], h, pool, inverse, slot);
}

static inline vt_status kv_store_run(const void *args, const vt_lane *lane)
{
    const kv_store_args *a = args;
    int64_t begin, end;
    vt_lane_share(lane, a->batch->n_tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        store_heads(row_f32(a->k, t), a->k_pool, a->k_scale, a->batch->slot[t]);
        if (a->v)
            store_heads(row_f32(a->v, t), a->v_pool, a->v_scale, a->batch->slot[t]);
    }
    return VT_OK;
}

static bool kv_store_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const kv_store_args *a = args;
    return a->k->dtype == VT_F32 && dtype_is_kv(a->k_pool->dtype) &&
           (!a->v || (a->v->dtype == VT_F32 && a->v_pool->dtype == a->k_pool->dtype));
}

static inline void kv_store_describe(const void *args, const vt_target *t, const vt_size *size,
                                     vt_cut *out)
{
    const kv_store_args *a = args;
    int64_t tokens = vt_size_rows(a->k, size);
    vt_cut_shape(out, "%lld tokens, %lld heads of %lld", (long long)tokens,
                 (long long)a->k_pool->dim[1], (long long)a->k_pool->dim[3]);
    vt_cut_cpu(out, t, tokens, (int32_t)(VF * sizeof(float)));
}

#ifndef SIMD_PART
const vt_impl SIMD_ROW(kv_store) = {SIMD_IMPL(kv_store, kv_store_supports)};
#endif
