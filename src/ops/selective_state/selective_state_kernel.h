/* Selective state spaces over the vector type: see simd_portable.h for how this header is compiled.
 *
 * A column of S needs no other column. So a piece of work is STATE_COLS columns of one head of one
 * sequence, from its first token to its last. The first token reads them from the slot, the last
 * one writes them to a slot; in between they lie in L1:
 *
 *   slot -> token 0 -> tile -> token 1 -> tile ... -> last token -> slot
 *
 * So a decode touches each number of the state once. The sums over a column run from its first row
 * to its last: neither chunks nor the other sequences change a bit. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/selective_state/selective_state.h"
#include "ops/selective_state/selective_state_impls.h"
#include "ops/simd_any.h"

enum { STATE_VECS = 4, STATE_COLS = STATE_VECS * VF };

/* Columns [first, first + n) of head j of sequence s. */
typedef struct state_piece {
    const selective_state_args *a;
    int32_t s, head;
    int64_t first;
    int n;
    _Alignas(64) float tile[SELECTIVE_STATE_DIM_MOST][STATE_COLS + VF];
} state_piece;

/* Rows of the piece's columns of S: in a slot, or in the tile. NULL: zeros. */
typedef struct state_rows {
    float *row;
    int64_t stride;
} state_rows;

static inline state_rows rows_in_slot(const state_piece *p, int32_t slot)
{
    const selective_state_args *a = p->a;
    if (slot < 0)
        return (state_rows){0};
    return (state_rows){row_f32(a->state, slot) + a->state_at +
                            (int64_t)p->head * a->state_dim * a->head_dim + p->first,
                        a->head_dim};
}

/* One token: S, and y of the piece's columns. */
static inline void run_token(const state_piece *p, int64_t t, state_rows from, state_rows to)
{
    const selective_state_args *a = p->a;
    int64_t col = p->head * (int64_t)a->head_dim + p->first, dim = a->state_dim;
    const float *x = row_f32(a->x, t) + col,
                *b = row_f32(a->x, t) + a->heads * (int64_t)a->head_dim +
                     p->head / (a->heads / a->groups) * dim,
                *c = b + a->groups * dim;
    float z = row_f32(a->dt, t)[p->head] + tensor_get(a->dt_bias, 0, p->head);
    float step = z > 20 ? z : log1pf(expf(z)), decay = tensor_get(a->decay, 0, p->head);
    step = step < a->step_min ? a->step_min : step;
    step = a->step_max > 0 && step > a->step_max ? a->step_max : step;
    vf keep = vf_set1(expf(step * (a->log_decay ? -expf(decay) : decay))), dx[STATE_VECS],
       sum[STATE_VECS];
    int lanes[STATE_VECS];
    for (int v = 0; v < STATE_VECS; v++) {
        lanes[v] = v * VF < p->n ? lanes_left(v * VF, p->n) : 0;
        dx[v] = lanes[v] ? vf_mul(vf_set1(step), vf_load_n(x + v * VF, lanes[v])) : vf_zero();
        sum[v] = vf_zero();
    }
    for (int64_t i = 0; i < dim; i++) {
        vf bi = vf_set1(b[i]), ci = vf_set1(c[i]);
        const float *old = from.row + i * from.stride;
        float *new = to.row + i *to.stride;
        for (int v = 0; v < STATE_VECS; v++) {
            vf s = from.row && lanes[v] ? vf_load_n(old + v * VF, lanes[v]) : vf_zero();
            s = vf_fma(bi, dx[v], vf_mul(keep, s));
            sum[v] = vf_fma(ci, s, sum[v]);
            if (lanes[v])
                vf_store_n(new + v *VF, s, lanes[v]);
        }
    }
    vf skip = vf_set1(tensor_get(a->skip, 0, p->head));
    for (int v = 0; v < STATE_VECS && lanes[v]; v++)
        vf_store_n(row_f32(a->y, t) + col + v * VF,
                   vf_fma(skip, vf_load_n(x + v * VF, lanes[v]), sum[v]), lanes[v]);
}

static inline void copy_rows(const state_piece *p, state_rows from, state_rows to)
{
    for (int64_t i = 0; i < p->a->state_dim; i++)
        for (int v = 0; v * VF < p->n; v++) {
            int lanes = lanes_left(v * VF, p->n);
            vf_store_n(to.row + i * to.stride + v * VF,
                       vf_load_n(from.row + i * from.stride + v * VF, lanes), lanes);
        }
}

static inline void run_piece(state_piece *p)
{
    const vt_batch *b = p->a->batch;
    int64_t begin = b->q_start[p->s], end = b->q_start[p->s + 1];
    state_rows tile = {p->tile[0], STATE_COLS + VF}, last = rows_in_slot(p, b->state_to[p->s]),
               from = rows_in_slot(p, b->state_from[p->s]);
    for (int64_t t = begin; t < end; t++) {
        state_rows to = t + 1 < end ? tile : last;
        run_token(p, t, from, to);
        if (b->state_behind && b->state_behind[t] >= 0)
            copy_rows(p, to, rows_in_slot(p, b->state_behind[t]));
        from = to;
    }
}

static vt_status selective_state_run(const void *args, const vt_lane *lane)
{
    const selective_state_args *a = args;
    int64_t pieces = vt_ceil_div(a->head_dim, STATE_COLS), begin, end;
    vt_lane_share(lane, a->batch->n_seqs * a->heads * pieces, 1, &begin, &end);
    state_piece p;
    p.a = a;
    for (int64_t unit = begin; unit < end; unit++) {
        p.s = (int32_t)(unit / pieces / a->heads);
        p.head = (int32_t)(unit / pieces % a->heads);
        p.first = unit % pieces * STATE_COLS;
        p.n = (int)(a->head_dim - p.first < STATE_COLS ? a->head_dim - p.first : STATE_COLS);
        run_piece(&p);
    }
    return VT_OK;
}

static bool selective_state_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const selective_state_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32 && a->dt->dtype == VT_F32 &&
           a->state->dtype == VT_F32 && dtype_is_float(a->decay->dtype) &&
           dtype_is_float(a->dt_bias->dtype) && dtype_is_float(a->skip->dtype) &&
           a->state_dim <= SELECTIVE_STATE_DIM_MOST;
}

static void selective_state_describe(const void *args, const vt_target *t, const vt_size *size,
                                     vt_cut *out)
{
    const selective_state_args *a = args;
    vt_cut_shape(out, "%d sequences of %d heads of %d x %d", size->seqs, a->heads, a->state_dim,
                 a->head_dim);
    out->tile[0] = a->state_dim;
    out->tile[1] = STATE_COLS;
    vt_cut_cpu(out, t, (int64_t)size->seqs * a->heads * vt_ceil_div(a->head_dim, STATE_COLS),
               (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(selective_state) = {SIMD_IMPL(selective_state, selective_state_supports)};
