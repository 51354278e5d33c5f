/* Sampling over the vector type: see simd_portable.h for how this header is compiled. The unit of
 * work is a row. A row takes a few passes over [vocab] floats in L2:
 *
 *   mask                   sets ids that may not be chosen to -infinity, by words of 32 ids
 *   bias, penalties        touch only the ids they name
 *   maximum, NaN           one pass
 *   log-probabilities      one pass of exponentials, if the request wants them
 *   greedy                 one pass to find the first maximum
 *   weights                w = e^((l - max) / T) in a workspace, one pass
 *   top-k, top-p           bisection finds a narrow band of logits near the border of the set, one
 *                          pass per step; selects in the band exactly; clears the weights below it
 *   draw                   sum blocks of weights until u * total lies inside one
 *
 * Weights are rounded to multiples of 2^-34 and are at most 1, so sums of up to 2^18 of them are
 * exact in double: membership and the draw do not depend on the order of summation. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/sample/sample_impls.h"
#include "ops/simd_any.h"

enum { DRAW_BLOCK = 1024, BISECTIONS = 24, FEW = 512 };
#define ZERO_BELOW 25.0f /* e^-25 is below half of 2^-34: such weights are 0 */
#define FIRST_GUESS 4.0f
#define COLDEST 1e-30f /* lower temperatures give the same; its inverse is still finite */

/* Largest logit; NAN if any is NaN. */
static float row_max(const float *x, int32_t n)
{
    vf best = vf_set1(-INFINITY);
    unsigned nan = 0;
    int32_t i = 0;
    for (; i + VF <= n; i += VF) {
        vf v = vf_load(x + i);
        nan |= vf_mask_nan(v);
        best = vf_max(v, best);
    }
    float max = vf_hmax(best);
    for (; i < n; i++) {
        nan |= x[i] != x[i];
        max = x[i] > max ? x[i] : max;
    }
    return nan ? NAN : max;
}

/* The first index whose value is at least `least`; n if there is none. */
static int32_t first_at_least(const float *x, int32_t n, float least)
{
    int32_t i = 0;
    for (; i + VF <= n; i += VF) {
        unsigned mask = vf_mask_ge(vf_load(x + i), vf_set1(least));
        if (mask)
            return i + __builtin_ctz(mask);
    }
    while (i < n && !(x[i] >= least))
        i++;
    return i;
}

/* Collects the ids with least <= x < below, in rising order. */
static int32_t collect(const float *x, int32_t n, float least, float below, int32_t *id)
{
    int32_t found = 0, i = 0;
    for (; i + VF <= n; i += VF) {
        vf v = vf_load(x + i);
        unsigned mask = vf_mask_ge(v, vf_set1(least)) & ~vf_mask_ge(v, vf_set1(below));
        for (; mask; mask &= mask - 1)
            id[found++] = i + __builtin_ctz(mask);
    }
    for (; i < n; i++)
        if (x[i] >= least && !(x[i] >= below))
            id[found++] = i;
    return found;
}

/* Sum of e^(x - max), in float within blocks and in double over the blocks. */
static double sum_exp(const float *x, int32_t n, float max)
{
    double total = 0;
    for (int32_t i = 0; i < n;) {
        int32_t end = n - i < DRAW_BLOCK ? n : i + DRAW_BLOCK;
        vf sum = vf_zero();
        for (; i + VF <= end; i += VF)
            sum = vf_add(sum,
                         vf_exp2(vf_mul(vf_sub(vf_load(x + i), vf_set1(max)), vf_set1(LOG2E))));
        if (i < end) {
            float tail[VF];
            vf_store(tail, vf_exp2(vf_mul(vf_sub(vf_load_n(x + i, end - i), vf_set1(max)),
                                          vf_set1(LOG2E))));
            for (int32_t j = 0; j < end - i; j++)
                total += (double)tail[j];
            i = end;
        }
        total += (double)vf_sum(sum);
    }
    return total;
}

static double sum_weights(const float *w, int32_t n)
{
    vd sum = vd_zero();
    for (int32_t i = 0; i < n; i += VF)
        sum = vd_add(sum, vf_load_n(w + i, lanes_left(i, n)));
    return vd_sum(sum);
}

/* The number of ids with x >= least, and their weight. */
typedef struct tail {
    int32_t count;
    double mass;
} tail;

static tail tail_from(const float *x, const float *w, int32_t n, float least)
{
    tail t = {0};
    vd mass = vd_zero();
    int32_t i = 0;
    for (; i + VF <= n; i += VF) {
        vf v = vf_load(x + i);
        t.count += __builtin_popcount(vf_mask_ge(v, vf_set1(least)));
        mass = vd_add(mass, vf_keep_ge(vf_load(w + i), v, vf_set1(least)));
    }
    t.mass = vd_sum(mass);
    for (; i < n; i++)
        if (x[i] >= least) {
            t.count++;
            t.mass += (double)w[i];
        }
    return t;
}

/* w <- e^((x - max) / temperature), rounded to multiples of 2^-34. */
static void weigh(const float *x, int32_t n, float max, float temperature, float *w)
{
    vf grid = vf_set1(0x1p-11f), below = vf_set1(0x0.ffffffp-11f),
       scale = vf_set1(LOG2E / temperature);
    for (int32_t i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf e = vf_exp2(vf_mul(vf_sub(vf_load_n(x + i, lanes), vf_set1(max)), scale));
        vf small = vf_sub(vf_add(e, grid), grid); /* below 2^-11 the sum has the ulp 2^-34 */
        vf_store_n(w + i, vf_add(vf_keep_ge(e, e, grid), vf_keep_ge(small, below, e)), lanes);
    }
}

/* Keeps the weights of the best `count` ids (count > 0) or of the smallest set with mass `mass`;
 * clears the others. Bisection narrows [least, below) until few logits lie in it: the logits from
 * `below` up are too few, those from `least` up are enough. */
static void keep_best(const float *x, float *w, int32_t n, float max, float temperature,
                      int32_t count, double mass, int32_t *id)
{
    float least = max - ZERO_BELOW * temperature, below = INFINITY;
    tail at_least = tail_from(x, w, n, least), at_below = {0};
    if (count > at_least.count) { /* top-k is larger than the number of weights above 0 */
        below = least;
        at_below = at_least;
        least = -INFINITY;
        at_least.count = n;
    }
    float middle = max - FIRST_GUESS * temperature;
    for (int i = 0; i < BISECTIONS && at_least.count - at_below.count > FEW; i++) {
        if (!(middle > least && middle < below))
            break;
        tail t = tail_from(x, w, n, middle);
        bool enough = count > 0 ? t.count >= count : t.mass >= mass;
        if (enough)
            least = middle, at_least = t;
        else
            below = middle, at_below = t;
        float top = below < max ? below : max,
              bottom = least > -INFINITY ? least : 2 * top - max - 1;
        middle = bottom + (top - bottom) / 2;
    }
    sample_candidates c = {.x = x, .weight = w, .id = id, .n = collect(x, n, least, below, id)};
    int32_t last = sample_cut(&c, count > 0 ? count - at_below.count : 0, mass - at_below.mass);
    for (int32_t i = 0; i < c.n; i++) /* worse than the last one: smaller, or higher ids */
        if (x[id[i]] < x[last] || (x[id[i]] == x[last] && id[i] > last))
            w[id[i]] = 0;
    for (int32_t i = 0; i < n && least > -INFINITY; i += VF) {
        int lanes = lanes_left(i, n);
        vf_store_n(w + i,
                   vf_keep_ge(vf_load_n(w + i, lanes), vf_load_n(x + i, lanes), vf_set1(least)),
                   lanes);
    }
}

/* The first id at which the running sum passes u * total. */
static int32_t draw(const float *w, int32_t n, float u)
{
    double left = (double)u * sum_weights(w, n);
    int32_t i = 0, last = 0;
    for (; i < n; i += DRAW_BLOCK) {
        double block = sum_weights(w + i, n - i < DRAW_BLOCK ? n - i : DRAW_BLOCK);
        if (block > left)
            break;
        left -= block;
    }
    for (; i < n; i++) {
        if (w[i] > 0)
            last = i;
        if ((double)w[i] > left)
            return i;
        left -= (double)w[i];
    }
    return last;
}

/* w and id are [vocab] scratch; max is finite. */
static int32_t choose(const float *x, int32_t n, float max, const vt_sample_row *row, float *w,
                      int32_t *id)
{
    float temperature = row->temperature < COLDEST ? COLDEST : row->temperature;
    if (!(row->temperature > 0))
        return first_at_least(x, n, max);
    weigh(x, n, max, temperature, w);
    if (row->top_k > 0 && row->top_k < n)
        keep_best(x, w, n, max, temperature, row->top_k, 0, id);
    if (row->top_p < 1)
        keep_best(x, w, n, max, temperature, 0, (double)row->top_p * sum_weights(w, n), id);
    if (row->min_p > 0)
        for (int32_t i = 0; i < n; i += VF) {
            int lanes = lanes_left(i, n);
            vf v = vf_load_n(w + i, lanes);
            vf_store_n(w + i, vf_keep_ge(v, v, vf_set1(row->min_p < 1 ? row->min_p : 1)), lanes);
        }
    return draw(w, n, sample_uniform(row->seed, (uint64_t)row->position));
}

/* The k best of x, best first, by insertion into a short sorted list. */
static void top_logprobs(const sample_args *a, int64_t r, const float *x, int32_t n, int32_t k,
                         float max, float log_sum)
{
    int32_t id[VT_MAX_TOP_LOGPROBS], m = 0;
    k = k < VT_MAX_TOP_LOGPROBS ? k : VT_MAX_TOP_LOGPROBS;
    k = k < n ? k : n;
    for (int32_t i = 0; i < n; i++) {
        if (m == k) { /* skip logits that are too small for the list */
            float worst = nextafterf(x[id[m - 1]], INFINITY);
            i += first_at_least(x + i, n - i, worst);
            if (i == n)
                break;
        }
        int32_t at = m < k ? m++ : m - 1;
        for (; at > 0 && x[id[at - 1]] < x[i]; at--)
            id[at] = id[at - 1];
        id[at] = i;
    }
    for (int32_t i = 0; i < m && x[id[i]] > -INFINITY; i++)
        sample_put_top(a, r, i, id[i], (x[id[i]] - max) - log_sum);
}

static void sample_one(const sample_args *a, int64_t r, float *w, int32_t *id)
{
    const vt_sample_row *row = &(*a->row)[r];
    int32_t *pool = a->token_pool ? *a->token_pool : NULL;
    int32_t n = (int32_t)a->logits->dim[1], token = -1;
    float *x = row_f32(a->logits, r), logprob = 0;
    sample_adjust(x, n, row, pool, id);
    for (int32_t i = 0; i < VT_MAX_TOP_LOGPROBS; i++)
        sample_put_top(a, r, i, -1, 0);
    float max = row_max(x, n), log_sum = 0;
    bool wants_logprob = row->n_top >= 0 || row->target >= 0;
    if (isfinite(max)) {
        if (wants_logprob)
            log_sum = (float)log(sum_exp(x, n, max));
        if (row->n_top > 0)
            top_logprobs(a, r, x, n, row->n_top, max, log_sum);
        if (row->target < 0)
            token = choose(x, n, max, row, w, id);
        else if (row->target < n)
            token = row->target;
    }
    if (wants_logprob && token >= 0)
        logprob = (x[token] - max) - log_sum;
    ((int32_t *)a->token->data)[r] = token;
    ((float *)a->logprob->data)[r] = logprob;
    if (pool && row->pool_slot >= 0)
        pool[row->pool_slot] = token < 0 ? 0 : token; /* the next step may embed it */
}

static size_t sample_row_floats(int64_t vocab) { return vt_round_up((size_t)vocab, 16); }

static vt_status sample_run(const void *args, const vt_lane *lane)
{
    const sample_args *a = args;
    size_t n = sample_row_floats(a->logits->dim[1]);
    float *w = (float *)lane->workspace + 2 * n * (size_t)lane->worker;
    int64_t rows = a->logits->dim[0];
    for (int64_t r; (r = atomic_fetch_add(lane->ticket, 1)) < rows;)
        sample_one(a, r, w, (int32_t *)(w + n));
    return VT_OK;
}

static size_t sample_workspace(const void *args, const vt_target *t)
{
    const vt_limits *limits = &t->limits;
    const sample_args *a = args;
    return 2 * sample_row_floats(a->logits->dim[1]) * sizeof(float) * (size_t)limits->n_workers;
}

static bool sample_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const sample_args *a = args;
    return a->logits->dtype == VT_F32;
}

static void sample_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const sample_args *a = args;
    int64_t rows = vt_size_rows(a->logits, size);
    vt_cut_shape(out, "%lld rows of %lld logits", (long long)rows, (long long)a->logits->dim[1]);
    vt_cut_cpu(out, t, rows, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(sample) = {SIMD_IMPL(sample, sample_supports),
                                  .workspace = sample_workspace};
