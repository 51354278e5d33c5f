/* rope_store over the vector type: see simd_portable.h for how this header is compiled. The unit of
 * work is one head of one token, q heads first, then k, then v. A k head is rotated in place and
 * stored while it is in L1, so no worker waits for another one. Latents have no v. */
#include "ops/rope_store/rope_store.h"
#include "ops/rope_store/rope_store_impls.h"

#define SIMD_PART /* their functions, not their rows */
#include "ops/rope/rope_kernel.h"
#include "ops/kv_store/kv_store_kernel.h"

static vt_status rope_store_run(const void *args, const vt_lane *lane)
{
    const rope_store_args *a = args;
    const rope_args *r = &a->rope;
    const kv_store_args *s = &a->store;
    int64_t d = r->head_dim, n_q = r->q->dim[1] / d, n_k = r->k->dim[1] / d, begin, end;
    int64_t units = n_q + n_k + (s->v ? n_k : 0), rest = d - r->dims;
    vf k_inverse = vf_set1(1 / s->k_scale), v_inverse = vf_set1(1 / s->v_scale);
    vt_lane_share(lane, r->batch->n_tokens * units, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t = unit / units, h = unit % units;
        int32_t slot = s->batch->slot[t];
        if (h < n_q) {
            rope_head(r, true, row_f32(r->q, t) + h * d, t);
        } else if (h < n_q + n_k) {
            float *k = row_f32(r->k, t) + (h - n_q) * d;
            rope_head(r, false, k, t);
            if (a->latent_norm)
                norm_head(k + r->dims, rest, a->latent_norm, 0, r->eps);
            store_head(k, h - n_q, s->k_pool, k_inverse, slot);
        } else {
            int64_t head = h - n_q - n_k;
            store_head(row_f32(s->v, t) + head * d, head, s->v_pool, v_inverse, slot);
        }
    }
    return VT_OK;
}

/* The variant "apart": what the two ops would do, with the barrier between them. */
static inline vt_status apart_run(const void *args, const vt_lane *lane)
{
    const rope_store_args *a = args;
    rope_run(&a->rope, lane);
    vt_team_barrier(lane->team, lane->worker);
    return kv_store_run(&a->store, lane);
}

/* k is written to the activations, and read from there once more. */
static inline vt_cost apart_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const rope_store_args *a = args;
    int64_t tokens = (batch ? batch : a->rope.batch)->n_tokens;
    int64_t k = tokens * vt_dtype_row_bytes(a->rope.k->dtype, a->rope.k->dim[1]);
    return (vt_cost){.read = {.activations = k}, .write = {.activations = k}};
}

static bool rope_store_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const rope_store_args *a = args;
    return rope_supports(&a->rope, t, upto) && kv_store_supports(&a->store, t, upto) &&
           (!a->latent_norm || dtype_is_float(a->latent_norm->dtype));
}

static inline bool apart_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    return ((const rope_store_args *)args)->store.v && rope_store_supports(args, t, upto);
}

static void rope_store_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const rope_args *a = &((const rope_store_args *)args)->rope;
    int64_t tokens = vt_size_rows(a->q, size),
            heads = (a->q->dim[1] + 2 * a->k->dim[1]) / a->head_dim;
    vt_cut_shape(out, "%lld tokens, %lld heads of %d", (long long)tokens, (long long)heads,
                 a->head_dim);
    vt_cut_cpu(out, t, tokens * heads, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(rope_store) = {SIMD_IMPL(rope_store, rope_store_supports)};

#ifndef SIMD_PORTABLE /* a variant has no portable form */
const vt_impl SIMD_ROW(rope_store_apart) = {.name = "apart-" SIMD_NAME,
                                            .device = VT_DEVICE_CPU,
                                            .isa = SIMD_ISA,
                                            .supports = apart_supports,
                                            .run = apart_run,
                                            .describe = rope_store_describe,
                                            .extra = apart_extra};
#endif
