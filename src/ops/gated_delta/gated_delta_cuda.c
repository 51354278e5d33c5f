/* gated_delta on CUDA: see gated_delta.cu. Two variants of one kernel with the same bits: "decode"
 * has two columns in a thread and few tokens in shared memory, for steps that move state; "prefill"
 * has one column, so that more warps share a sequence's work, and more tokens. */
#include "ops/gated_delta/gated_delta.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/gated_delta/gated_delta_impls.h"
#include "ops/gated_delta/gated_delta_params.h"

enum { DECODE_TOKENS = 64 /* of a step that moves more state than it computes */ };

static bool supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const gated_delta_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->a->dtype == VT_BF16 &&
           a->b->dtype == VT_BF16 && a->decay->dtype == VT_F32 && a->dt_bias->dtype == VT_F32 &&
           a->state->dtype == VT_F32 && a->k_dim <= GATED_DELTA_K_DIM_MOST;
}

/* Two columns are loaded as one vector of 8 bytes. */
static bool decode_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const gated_delta_args *a = args;
    return supports(args, t, upto) && a->v_dim % 2 == 0 && a->state_at % 2 == 0 &&
           a->state->row_stride % 2 == 0;
}

static bool decode_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)args, (void)t;
    return upto->tokens <= DECODE_TOKENS;
}

static cuda_launch launch_of(const gated_delta_args *a, int32_t cols, int32_t seqs)
{
    /* of 48 KiB of shared memory, of which a token with decays of its channels takes half as much
     * again */
    int32_t tokens = cols == 2 ? 8 : (a->k_dim <= 128 ? 32 : 16) / (a->channels ? 2 : 1);
    return (cuda_launch){
        .spec = JIT_SPEC("gated_delta.cu", "gated_delta", {"kdim", a->k_dim}, {"vdim", a->v_dim},
                         {"cols", cols}, {"tokens", tokens}, {"log_decay", a->log_decay},
                         {"tiled", a->tiled}, {"behind", a->batch->state_behind != NULL},
                         {"channels", a->channels}),
        .grid = {(uint32_t)a->v_heads * cuda_blocks(a->v_dim, 32 * cols), (uint32_t)seqs, 1},
        .threads = 128};
}

static vt_status run(const void *args, const vt_lane *lane, int32_t cols)
{
    const gated_delta_args *a = args;
    const vt_batch *b = a->batch;
    gated_delta_params p = {.x = a->x->data,
                            .a = a->a->data,
                            .b = a->b->data,
                            .y = a->y->data,
                            .decay = a->decay->data,
                            .dt_bias = a->dt_bias->data,
                            .state = (float *)a->state->data + a->state_at,
                            .state_stride = a->state->row_stride,
                            .seq_of = b->seq_of,
                            .q_start = b->q_start,
                            .state_from = b->state_from,
                            .state_to = b->state_to,
                            .state_behind = b->state_behind,
                            .x_stride = (int32_t)a->x->row_stride,
                            .a_stride = (int32_t)a->a->row_stride,
                            .b_stride = (int32_t)a->b->row_stride,
                            .y_stride = (int32_t)a->y->row_stride,
                            .k_heads = a->k_heads,
                            .v_heads = a->v_heads};
    cuda_launch l = launch_of(a, cols, b->n_seqs);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_status decode_run(const void *args, const vt_lane *lane) { return run(args, lane, 2); }
static vt_status prefill_run(const void *args, const vt_lane *lane) { return run(args, lane, 1); }

static void describe(const gated_delta_args *a, const vt_target *t, const vt_size *size,
                     int32_t cols, vt_cut *out)
{
    cuda_launch l = launch_of(a, cols, size->seqs);
    vt_cut_shape(out, "%d sequences of %d heads of %d x %d", size->seqs, a->v_heads, a->k_dim,
                 a->v_dim);
    out->tile[0] = a->k_dim;
    out->tile[1] = 32 * cols;
    vt_cut_grid(out, t, &l, cols * (int32_t)sizeof(float));
}

static void decode_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    describe(args, t, size, 2, out);
}

static void prefill_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    describe(args, t, size, 1, out);
}

const vt_impl gated_delta_cuda_decode = {CUDA_ROW("decode", decode, decode_supports),
                                         .fixed_order = true, .suits = decode_suits};
const vt_impl gated_delta_cuda_prefill = {CUDA_ROW("prefill", prefill, supports),
                                          .fixed_order = true};
