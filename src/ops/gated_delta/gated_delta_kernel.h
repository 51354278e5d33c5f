/* The gated delta rule over the vector type: see simd_portable.h for how this header is compiled.
 *
 * A column of S needs no other column. So a piece of work is DELTA_COLS columns of one head of one
 * sequence, from its first token to its last; they lie in L1 meanwhile. One pass over them makes a
 * token's S and y, and already sums S^T k for the next token:
 *
 *   load S, sum r = S^T k[0]   | token 0: S, y[0], r = S^T k[1] | token 1: S, y[1] ... | store S
 *
 * The sums over a column run from its first row to its last, whichever pass makes them. So neither
 * chunks nor the other sequences change a bit. Where each row of S has a decay of its own, r is the
 * sum over rows that have decayed: k in it is k e^g. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/gated_delta/gated_delta.h"
#include "ops/gated_delta/gated_delta_impls.h"
#include "ops/simd_any.h"

enum { DELTA_VECS = 4, DELTA_COLS = DELTA_VECS * VF };

/* A head needs this of a token. */
typedef struct delta_token {
    float q[GATED_DELTA_K_DIM_MOST], k[GATED_DELTA_K_DIM_MOST];
    float beta, keep; /* sigmoid(b), e^g */
    /* with channels: e^g of each row, and k times it */
    float keeps[GATED_DELTA_K_DIM_MOST], kept_k[GATED_DELTA_K_DIM_MOST];
} delta_token;

/* Columns [first, first + n) of head j of sequence s. */
typedef struct delta_piece {
    const gated_delta_args *a;
    int32_t s, head;
    int64_t first;
    int n;
    _Alignas(
        64) float tile[GATED_DELTA_K_DIM_MOST][DELTA_COLS + VF]; /* of S; zeros behind column n */
} delta_piece;

/* out = x * scale / sqrt(sum x^2 + 1e-6) */
static inline void unit_vector(const float *x, int64_t n, float scale, float *out)
{
    vf sum = vf_zero();
    for (int64_t i = 0; i < n; i += VF) {
        vf v = vf_load_n(x + i, lanes_left(i, n));
        sum = vf_fma(v, v, sum);
    }
    vf by = vf_set1(scale / sqrtf(vf_sum(sum) + 1e-6f));
    for (int64_t i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf_store_n(out + i, vf_mul(vf_load_n(x + i, lanes), by), lanes);
    }
}

/* softplus(z) = max(z, 0) + log(1 + e^-|z|), the logarithm by s = u / (2 + u), u = e^-|z|:
 * log(1 + u) = 2 (s + s^3 / 3 + s^5 / 5 ...). s is at most 1/3, so that the terms which are left
 * out are 2e-9 of the sum. */
static inline vf softplus(vf z)
{
    static const float c[] = {1 / 13.0f, 1 / 11.0f, 1 / 9.0f, 1 / 7.0f, 1 / 5.0f, 1 / 3.0f, 1};
    vf size = vf_max(z, vf_sub(vf_zero(), z)), u = vf_exp2(vf_mul(size, vf_set1(-LOG2E)));
    vf s = vf_div(u, vf_add(u, vf_set1(2))), square = vf_mul(s, s), p = vf_set1(1 / 15.0f);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        p = vf_fma(p, square, vf_set1(c[i]));
    return vf_fma(vf_add(s, s), p, vf_max(z, vf_zero()));
}

/* The decays of a head's rows, and k times them. */
static inline void read_channels(const delta_piece *p, int64_t t, float decay, delta_token *out)
{
    const gated_delta_args *a = p->a;
    int64_t n = a->k_dim, from = p->head * n;
    const float *z = row_f32(a->a, t) + from;
    vf by = vf_set1(decay * LOG2E);
    for (int64_t i = 0; i < n; i += VF) {
        int lanes = lanes_left(i, n);
        vf bias = vf_load_any(a->dt_bias->data, a->dt_bias->dtype, from + i, lanes);
        vf keep = vf_exp2(vf_mul(by, softplus(vf_add(vf_load_n(z + i, lanes), bias))));
        vf_store_n(out->keeps + i, keep, lanes);
        vf_store_n(out->kept_k + i, vf_mul(keep, vf_load_n(out->k + i, lanes)), lanes);
    }
}

static inline void read_token(const delta_piece *p, int64_t t, delta_token *out)
{
    const gated_delta_args *a = p->a;
    int64_t dim = a->k_dim, from = gated_delta_k_head(a, p->head) * dim;
    const float *x = row_f32(a->x, t);
    unit_vector(x + from, dim, 1 / sqrtf((float)dim), out->q);
    unit_vector(x + a->k_heads * dim + from, dim, 1, out->k);
    out->beta = 1 / (1 + expf(-row_f32(a->b, t)[p->head]));
    float decay = tensor_get(a->decay, 0, p->head);
    decay = a->log_decay ? -expf(decay) : decay;
    if (a->channels) {
        read_channels(p, t, decay, out);
        return;
    }
    float z = row_f32(a->a, t)[p->head] + tensor_get(a->dt_bias, 0, p->head);
    out->keep = expf((z > 20 ? z : log1pf(expf(z))) * decay);
}

/* Fetches what a later token of the piece reads and writes: rows of x are far apart. */
static inline void prefetch_token(const delta_piece *p, int64_t t)
{
    const gated_delta_args *a = p->a;
    int64_t keys = (int64_t)a->k_heads * a->k_dim, col = p->head * (int64_t)a->v_dim + p->first;
    const float *q = row_f32(a->x, t) + gated_delta_k_head(a, p->head) * (int64_t)a->k_dim;
    for (int64_t i = 0; i < a->k_dim; i += 16) {
        __builtin_prefetch(q + i);
        __builtin_prefetch(q + keys + i);
    }
    for (int64_t i = 0; i < p->n; i += 16) {
        __builtin_prefetch(row_f32(a->x, t) + 2 * keys + col + i);
        __builtin_prefetch(row_f32(a->y, t) + col + i, 1);
    }
    for (int64_t i = 0; a->channels && i < a->k_dim; i += 16)
        __builtin_prefetch(row_f32(a->a, t) + p->head * (int64_t)a->k_dim + i);
    __builtin_prefetch(row_f32(a->a, t) + p->head);
    __builtin_prefetch(row_f32(a->b, t) + p->head);
}

/* Returns row i of the piece's columns of S in a slot. */
static inline float *state_row(const delta_piece *p, int32_t slot, int64_t i)
{
    const gated_delta_args *a = p->a;
    return row_f32(a->state, slot) + a->state_at + (p->head * (int64_t)a->k_dim + i) * a->v_dim +
           p->first;
}

/* Fills the tile from the sequence's slot, and sums r = S^T k. */
static inline void load_tile(delta_piece *p, const delta_token *x, vf r[DELTA_VECS])
{
    int32_t from = p->a->batch->state_from[p->s];
    for (int c = 0; c < DELTA_VECS; c++)
        r[c] = vf_zero();
    for (int64_t i = 0; i < p->a->k_dim; i++) {
        const float *row = from < 0 ? NULL : state_row(p, from, i);
        vf k = vf_set1(p->a->channels ? x->kept_k[i] : x->k[i]);
        for (int c = 0; c < DELTA_VECS; c++) {
            vf s = row && c * VF < p->n ? vf_load_n(row + c * VF, lanes_left(c * VF, p->n))
                                        : vf_zero();
            vf_store(p->tile[i] + c * VF, s);
            r[c] = vf_fma(k, s, r[c]);
        }
    }
}

static inline void store_tile(const delta_piece *p, int32_t to)
{
    for (int64_t i = 0; i < p->a->k_dim; i++)
        for (int c = 0; c * VF < p->n; c++)
            vf_store_n(state_row(p, to, i) + c * VF, vf_load(p->tile[i] + c * VF),
                       lanes_left(c * VF, p->n));
}

/* One token: S, its y, and r = S^T k for the next one. r comes in for this token. */
static inline __attribute__((always_inline)) void run_token(delta_piece *p, int64_t t,
                                                            const delta_token *x,
                                                            const delta_token *next, bool channels,
                                                            vf r[DELTA_VECS])
{
    const gated_delta_args *a = p->a;
    int64_t v_at = 2 * (int64_t)a->k_heads * a->k_dim, col = p->head * (int64_t)a->v_dim + p->first;
    const float *v = row_f32(a->x, t) + v_at + col;
    float *y = row_f32(a->y, t) + col;
    vf keep = vf_set1(channels ? 1 : x->keep), beta = vf_set1(x->beta), d[DELTA_VECS],
       sum[DELTA_VECS];
    for (int c = 0; c < DELTA_VECS; c++) {
        vf want = c * VF < p->n ? vf_load_n(v + c * VF, lanes_left(c * VF, p->n)) : vf_zero();
        d[c] = vf_mul(beta, vf_sub(want, channels ? r[c] : vf_mul(keep, r[c])));
        sum[c] = r[c] = vf_zero();
    }
    for (int64_t i = 0; i < a->k_dim; i++) {
        vf k = vf_set1(x->k[i]), q = vf_set1(x->q[i]);
        vf k_next = vf_set1(channels ? next->kept_k[i] : next->k[i]);
        keep = channels ? vf_set1(x->keeps[i]) : keep;
        for (int c = 0; c < DELTA_VECS; c++) {
            float *at = p->tile[i] + c * VF;
            vf s = vf_fma(k, d[c], vf_mul(keep, vf_load(at)));
            vf_store(at, s);
            sum[c] = vf_fma(q, s, sum[c]);
            r[c] = vf_fma(k_next, s, r[c]);
        }
    }
    for (int c = 0; c * VF < p->n; c++)
        vf_store_n(y + c * VF, sum[c], lanes_left(c * VF, p->n));
}

static inline void run_piece(delta_piece *p)
{
    const vt_batch *b = p->a->batch;
    int64_t begin = b->q_start[p->s], end = b->q_start[p->s + 1];
    delta_token token[2] = {0};
    vf r[DELTA_VECS];
    read_token(p, begin, &token[0]);
    load_tile(p, &token[0], r);
    for (int64_t t = begin; t < end; t++) {
        delta_token *x = &token[(t - begin) & 1], *next = &token[(t - begin + 1) & 1];
        if (t + 3 < end)
            prefetch_token(p, t + 3);
        if (t + 1 < end)
            read_token(p, t + 1, next);
        if (p->a->channels)
            run_token(p, t, x, next, true, r);
        else
            run_token(p, t, x, next, false, r);
        if (b->state_behind && b->state_behind[t] >= 0)
            store_tile(p, b->state_behind[t]);
    }
    store_tile(p, b->state_to[p->s]);
}

static vt_status gated_delta_run(const void *args, const vt_lane *lane)
{
    const gated_delta_args *a = args;
    int64_t pieces = vt_ceil_div(a->v_dim, DELTA_COLS), begin, end;
    vt_lane_share(lane, a->batch->n_seqs * a->v_heads * pieces, 1, &begin, &end);
    delta_piece p = {.a = a};
    for (int64_t unit = begin; unit < end; unit++) {
        p.s = (int32_t)(unit / pieces / a->v_heads);
        p.head = (int32_t)(unit / pieces % a->v_heads);
        p.first = unit % pieces * DELTA_COLS;
        p.n = (int)(a->v_dim - p.first < DELTA_COLS ? a->v_dim - p.first : DELTA_COLS);
        run_piece(&p);
    }
    return VT_OK;
}

static bool gated_delta_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const gated_delta_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32 && a->a->dtype == VT_F32 &&
           a->b->dtype == VT_F32 && a->state->dtype == VT_F32 && dtype_is_float(a->decay->dtype) &&
           dtype_is_float(a->dt_bias->dtype) && a->k_dim <= GATED_DELTA_K_DIM_MOST;
}

static void gated_delta_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    const gated_delta_args *a = args;
    vt_cut_shape(out, "%d sequences of %d heads of %d x %d", size->seqs, a->v_heads, a->k_dim,
                 a->v_dim);
    out->tile[0] = a->k_dim;
    out->tile[1] = DELTA_COLS;
    vt_cut_cpu(out, t, (int64_t)size->seqs * a->v_heads * vt_ceil_div(a->v_dim, DELTA_COLS),
               (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(gated_delta) = {SIMD_IMPL(gated_delta, gated_delta_supports)};
