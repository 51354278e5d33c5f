/* MoE routing over the vector type: see simd_portable.h for how this header is compiled. Two
 * phases: first the logits, whose blocks of tokens and experts are shared out to the workers, so
 * that even one token keeps all of them busy; then each token's softmax and choice. One worker sums
 * a logit, in a fixed order. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/moe/moe_impls.h"
#include "ops/simd_any.h"

enum { ROUTE_TOKENS = 4, ROUTE_EXPERTS = 4 };

/* logits[t][e] = x[t] . w[e] for a tile of `tokens` x `experts`. The calls pass constants, so the
 * sums stay in registers. A logit has one accumulator, so its bits do not depend on the tile. */
static inline __attribute__((always_inline)) void route_tile(int tokens, int experts,
                                                             const vt_tensor *x, int64_t t0,
                                                             const vt_tensor *w, int64_t e0,
                                                             float *logits)
{
    int64_t n = w->dim[1], n_experts = w->dim[0];
    vf sum[ROUTE_TOKENS][ROUTE_EXPERTS];
    for (int t = 0; t < tokens; t++)
        for (int e = 0; e < experts; e++)
            sum[t][e] = vf_zero();
    for (int64_t i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf row[ROUTE_EXPERTS];
        for (int e = 0; e < experts; e++)
            row[e] = vf_load_any(w->data, w->dtype, (e0 + e) * w->row_stride + i, lanes);
        for (int t = 0; t < tokens; t++) {
            vf v = vf_load_n(row_f32(x, t0 + t) + i, lanes);
            for (int e = 0; e < experts; e++)
                sum[t][e] = vf_fma(v, row[e], sum[t][e]);
        }
    }
    for (int t = 0; t < tokens; t++)
        for (int e = 0; e < experts; e++)
            logits[(t0 + t) * n_experts + e0 + e] = vf_sum(sum[t][e]);
}

static void route_block(const moe_route_args *a, int64_t t0, int64_t tokens, int64_t e0,
                        int64_t experts, float *logits)
{
    int64_t t = t0;
    for (; experts == ROUTE_EXPERTS && t + ROUTE_TOKENS <= t0 + tokens; t += ROUTE_TOKENS)
        route_tile(ROUTE_TOKENS, ROUTE_EXPERTS, a->x, t, a->router, e0, logits);
    for (; experts == ROUTE_EXPERTS && t < t0 + tokens; t++)
        route_tile(1, ROUTE_EXPERTS, a->x, t, a->router, e0, logits);
    for (; t < t0 + tokens; t++)
        for (int64_t e = e0; e < e0 + experts; e++)
            route_tile(1, 1, a->x, t, a->router, e, logits);
}

/* Returns true if e comes after `last` in the order of choice: falling keys, equal ones in rising
 * order of index. last < 0: nothing is chosen yet. */
static bool comes_after(const float *key, int32_t e, int32_t last)
{
    return last < 0 || key[e] < key[last] || (key[e] == key[last] && e > last);
}

/* Returns the best of n keys after `last`; there is one. */
static int32_t next_best(const float *key, int32_t n, int32_t last)
{
    int32_t best = -1;
    for (int32_t e = 0; e < n; e++)
        if (comes_after(key, e, last) && (best < 0 || key[e] > key[best]))
            best = e;
    return best;
}

/* The k largest logits, falling; equal ones in rising order of index. NaN counts as -infinity, so a
 * token's experts are different ones whatever the logits are (moe_linear relies on it); all weights
 * are NaN then, because the sum is. logits are overwritten. */
static void choose_by_softmax(float *logits, int32_t n, int32_t k, int32_t *expert, float *weight)
{
    float max = -INFINITY, sum = 0;
    for (int32_t e = 0; e < n; e++)
        max = logits[e] > max ? logits[e] : max;
    for (int32_t e = 0; e < n; e++) {
        sum += expf(logits[e] - max);
        logits[e] = isnan(logits[e]) ? -INFINITY : logits[e];
    }
    for (int32_t j = 0, last = -1; j < k; j++) {
        expert[j] = last = next_best(logits, n, last);
        weight[j] = expf(logits[last] - max) / sum;
    }
}

/* Makes the keys of all experts outside of the best groups -infinity. sums: [groups] */
static void drop_groups(const moe_route_args *a, float *key, float *sums)
{
    int32_t size = (int32_t)a->router->dim[0] / a->groups, last = -1;
    for (int32_t g = 0; g < a->groups; g++) {
        const float *of = key + (int64_t)g * size;
        int32_t first = next_best(of, size, -1);
        sums[g] = of[first] + of[next_best(of, size, first)];
        sums[g] = isnan(sums[g]) ? -INFINITY : sums[g]; /* infinities of both signs */
    }
    for (int32_t i = 0; i < a->groups_used; i++)
        last = next_best(sums, a->groups, last);
    for (int32_t g = 0; g < a->groups; g++)
        for (int32_t i = 0; comes_after(sums, g, last) && i < size; i++)
            key[(int64_t)g * size + i] = -INFINITY;
}

/* The same by sigmoids. logits [n] become these; key [n] and sums [groups] are scratch. */
static void choose_by_sigmoid(const moe_route_args *a, float *logits, float *key, float *sums,
                              int32_t *expert, float *weight)
{
    int32_t n = (int32_t)a->router->dim[0];
    for (int32_t e = 0; e < n; e++) {
        logits[e] = 1 / (1 + expf(-logits[e]));
        key[e] = logits[e] + (a->choice ? tensor_get(a->choice, 0, e) : 0);
        key[e] = isnan(key[e]) ? -INFINITY : key[e];
    }
    if (a->groups)
        drop_groups(a, key, sums);
    for (int32_t j = 0, last = -1; j < a->k; j++) {
        expert[j] = last = next_best(key, n, last);
        weight[j] = logits[last];
    }
}

/* Rescales the weights of a token's k experts. */
static void finish_weights(const moe_route_args *a, const int32_t *expert, float *weight)
{
    float sum = 0;
    for (int32_t j = 0; j < a->k; j++)
        sum += weight[j];
    sum += a->sigmoid ? 1e-20f : 0;
    for (int32_t j = 0; a->normalise && j < a->k; j++)
        weight[j] /= sum;
    for (int32_t j = 0; a->scale != 0 && j < a->k; j++)
        weight[j] *= a->scale;
    for (int32_t j = 0; a->by_expert && j < a->k; j++)
        weight[j] *= tensor_get(a->by_expert, 0, expert[j]);
}

/* Renumbers the rank's own experts, and drops those of others. */
static void keep_mine(const moe_route_args *a, int32_t *expert, float *weight)
{
    for (int32_t j = 0; a->mine > 0 && j < a->k; j++) {
        bool own = expert[j] >= a->first && expert[j] < a->first + a->mine;
        expert[j] = own ? expert[j] - a->first : -1;
        weight[j] = own ? weight[j] : 0;
    }
}

/* Floats that a token's choice needs: its logits; and for sigmoids what is compared, and the sums
 * of groups. */
static int64_t floats_of(const moe_route_args *a)
{
    return a->router->dim[0] * (a->sigmoid ? 2 : 1) + a->groups;
}

static vt_status moe_route_run(const void *args, const vt_lane *lane)
{
    const moe_route_args *a = args;
    int64_t experts = a->router->dim[0], tokens = a->x->dim[0];
    int64_t e_blocks = vt_ceil_div(experts, ROUTE_EXPERTS), t_block = 8 * ROUTE_TOKENS;
    int64_t t_blocks = vt_ceil_div(tokens, t_block), begin, end;
    float *logits = lane->workspace; /* [tokens, experts], then scratch of every token */
    float *scratch = logits + tokens * experts;
    vt_lane_share(lane, t_blocks * e_blocks, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t t0 = unit / e_blocks * t_block, e0 = unit % e_blocks * ROUTE_EXPERTS;
        route_block(a, t0, tokens - t0 < t_block ? tokens - t0 : t_block, e0,
                    experts - e0 < ROUTE_EXPERTS ? experts - e0 : ROUTE_EXPERTS, logits);
    }
    vt_team_barrier(lane->team, lane->worker);
    vt_lane_share(lane, tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        for (int64_t e = 0; a->bias && e < experts; e++)
            logits[t * experts + e] += tensor_get(a->bias, 0, e);
        float *of = logits + t * experts, *weight = row_f32(a->weight, t);
        int32_t *expert = (int32_t *)a->expert->data + t * a->expert->row_stride;
        if (a->sigmoid) {
            float *key = scratch + t * (experts + a->groups);
            choose_by_sigmoid(a, of, key, key + experts, expert, weight);
        } else {
            choose_by_softmax(of, (int32_t)experts, a->k, expert, weight);
        }
        finish_weights(a, expert, weight);
        keep_mine(a, expert, weight);
    }
    return VT_OK;
}

static size_t moe_route_workspace(const void *args, const vt_target *t)
{
    const vt_limits *limits = &t->limits;
    const moe_route_args *a = args;
    return (size_t)limits->max_tokens * (size_t)floats_of(a) * sizeof(float);
}

static bool moe_route_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const moe_route_args *a = args;
    return a->x->dtype == VT_F32 && dtype_is_float(a->router->dtype);
}

static void moe_route_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const moe_route_args *a = args;
    int64_t experts = a->router->dim[0], tokens = vt_size_rows(a->x, size);
    vt_cut_shape(out, "[%lld x %lld] x [%lld x %lld], best %d", (long long)tokens,
                 (long long)a->router->dim[1], (long long)a->router->dim[1], (long long)experts,
                 a->k);
    out->tile[0] = 8 * ROUTE_TOKENS;
    out->tile[1] = ROUTE_EXPERTS;
    vt_cut_cpu(out, t, vt_ceil_div(tokens, 8 * ROUTE_TOKENS) * vt_ceil_div(experts, ROUTE_EXPERTS),
               (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(moe_route) = {SIMD_IMPL(moe_route, moe_route_supports),
                                     .workspace = moe_route_workspace};
