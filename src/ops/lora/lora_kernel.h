/* Adapters over the vector type: see simd_portable.h for how this header is compiled.
 *
 *   1. s[t, j] = scale * A_k[j, :] . x[t, :]        each part's pairs (t, j) are dealt out
 *   2. y[t, i] += sum over j of s[t, j] B_k[i, j]   pieces of LORA_PIECE columns i are dealt out
 *
 * Each sum is made by one worker in one order, so it does not depend on the other tokens of the
 * step or on the number of workers. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/lora/lora_impls.h"
#include "ops/simd_any.h"

enum { LORA_PIECE = 64, LORA_SUMS = 4 }; /* columns of y; sums of a product beside each other */

static float lora_dot(const float *a, const float *x, int64_t n)
{
    vf sum[LORA_SUMS];
    int64_t i = 0;
    for (int k = 0; k < LORA_SUMS; k++)
        sum[k] = vf_zero();
    for (; i + LORA_SUMS * VF <= n; i += LORA_SUMS * VF)
        for (int k = 0; k < LORA_SUMS; k++)
            sum[k] = vf_fma(vf_load(a + i + k * VF), vf_load(x + i + k * VF), sum[k]);
    for (; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        sum[0] = vf_fma(vf_load_n(a + i, lanes), vf_load_n(x + i, lanes), sum[0]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* y[begin .. end) += s B. */
static void lora_add(const vt_tensor *b, int32_t first, int32_t rank, const float *s, float *y,
                     int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += VF) {
        int lanes = lanes_left(i, end);
        vf v = vf_zero();
        for (int32_t j = 0; j < rank; j++)
            v = vf_fma(vf_set1(s[j]), vf_load_n(row_f32(b, first + j) + i, lanes), v);
        vf_store_n(y + i, vf_add(vf_load_n(y + i, lanes), v), lanes);
    }
}

/* Returns true if a sequence of the step has an adapter. All workers find the same. */
static bool lora_wanted(const lora_args *a)
{
    for (int32_t s = 0; s < a->batch->n_seqs; s++)
        if (lora_of_seq(a, a->batch, s) > 0)
            return true;
    return false;
}

/* The worker's pairs (t, j) of a part: s[t * most_rank + j]. */
static void lora_shrink(const lora_args *a, const lora_part *p, const vt_lane *lane, float *s)
{
    int64_t most = p->most_rank, begin, end;
    vt_lane_share(lane, a->x->dim[0] * most, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / most, j = i % most;
        int32_t k = lora_of_seq(a, a->batch, a->batch->seq_of[t]);
        if (j < lora_rank(p, k))
            s[i] = a->factor * p->scale[k - 1] *
                   lora_dot(row_f32(p->a, p->first[k - 1] + j), row_f32(a->x, t), a->x->dim[1]);
    }
}

/* The worker's columns of a part's y, of all tokens. */
static void lora_expand(const lora_args *a, const lora_part *p, const vt_lane *lane, const float *s)
{
    int64_t begin, end;
    vt_lane_share(lane, p->y->dim[1], LORA_PIECE, &begin, &end);
    for (int64_t t = 0; t < a->x->dim[0] && begin < end; t++) {
        int32_t k = lora_of_seq(a, a->batch, a->batch->seq_of[t]);
        if (lora_rank(p, k) > 0)
            lora_add(p->b, p->first[k - 1], lora_rank(p, k), s + t * p->most_rank, row_f32(p->y, t),
                     begin, end);
    }
}

static vt_status lora_run(const void *args, const vt_lane *lane)
{
    const lora_args *a = args;
    float *s[LORA_PARTS] = {lane->workspace};
    if (!lora_wanted(a))
        return VT_OK;
    for (int32_t i = 0; i < a->n_parts; i++) {
        if (i > 0)
            s[i] = s[i - 1] + a->x->dim[0] * a->part[i - 1].most_rank;
        lora_shrink(a, &a->part[i], lane, s[i]);
    }
    vt_team_barrier(lane->team, lane->worker);
    for (int32_t i = 0; i < a->n_parts; i++)
        lora_expand(a, &a->part[i], lane, s[i]);
    return VT_OK;
}

static bool lora_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const lora_args *a = args;
    for (int32_t i = 0; i < a->n_parts; i++)
        if (a->part[i].a->dtype != VT_F32 || a->part[i].b->dtype != VT_F32 ||
            a->part[i].y->dtype != VT_F32)
            return false;
    return a->x->dtype == VT_F32;
}

static size_t lora_workspace(const void *args, const vt_target *t)
{
    return (size_t)t->limits.max_tokens * (size_t)lora_most_ranks(args) * sizeof(float);
}

static void lora_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const lora_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size), rows = 0;
    for (int32_t i = 0; i < a->n_parts; i++)
        rows += a->part[i].y->dim[1];
    vt_cut_shape(out, "[%lld x %lld] x ranks up to %d x [%lld]", (long long)tokens,
                 (long long)a->x->dim[1], a->part[0].most_rank, (long long)rows);
    vt_cut_cpu(out, t, tokens * lora_most_ranks(a), (int32_t)(VF * sizeof(float)));
    vt_cut_roles(out, NULL, "in order");
}

const vt_impl SIMD_ROW(lora) = {
    SIMD_IMPL(lora, lora_supports),
    .workspace = lora_workspace,
};
