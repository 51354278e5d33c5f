/* selective_state on CUDA: see selective_state.cu. Two variants of one kernel with the same bits:
 * "decode" has two columns in a thread and few tokens in shared memory, for steps that move state;
 * "prefill" has one column, so that more warps share a sequence's work, and more tokens. */
#include "ops/selective_state/selective_state.h"

#include <math.h>

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/selective_state/selective_state_impls.h"
#include "ops/selective_state/selective_state_params.h"

enum { DECODE_TOKENS = 64 /* of a step that moves more state than it computes */ };

static bool supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const selective_state_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->dt->dtype == VT_BF16 &&
           a->skip->dtype == VT_F32 && a->decay->dtype == VT_F32 && a->dt_bias->dtype == VT_F32 &&
           a->state->dtype == VT_F32 && a->state_dim <= SELECTIVE_STATE_DIM_MOST;
}

/* Two columns are loaded as one vector of 8 bytes. */
static bool decode_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const selective_state_args *a = args;
    return supports(args, t, upto) && a->head_dim % 2 == 0 && a->state_at % 2 == 0 &&
           a->state->row_stride % 2 == 0;
}

static bool decode_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)args, (void)t;
    return upto->tokens <= DECODE_TOKENS;
}

static cuda_launch launch_of(const selective_state_args *a, int32_t cols, int32_t seqs)
{
    /* of 48 KiB of shared memory */
    int32_t tokens = cols == 2 ? 8 : a->state_dim <= 128 ? 32 : 16;
    return (cuda_launch){
        .spec = JIT_SPEC("selective_state.cu", "selective_state", {"sdim", a->state_dim},
                         {"hdim", a->head_dim}, {"cols", cols}, {"tokens", tokens},
                         {"log_decay", a->log_decay}, {"behind", a->batch->state_behind != NULL}),
        .grid = {(uint32_t)a->heads * cuda_blocks(a->head_dim, 32 * cols), (uint32_t)seqs, 1},
        .threads = 128};
}

static vt_status run(const void *args, const vt_lane *lane, int32_t cols)
{
    const selective_state_args *a = args;
    const vt_batch *b = a->batch;
    selective_state_params p = {.x = a->x->data,
                                .dt = a->dt->data,
                                .y = a->y->data,
                                .decay = a->decay->data,
                                .dt_bias = a->dt_bias->data,
                                .skip = a->skip->data,
                                .state = (float *)a->state->data + a->state_at,
                                .state_stride = a->state->row_stride,
                                CUDA_STATE_PARAMS(b),
                                .x_stride = (int32_t)a->x->row_stride,
                                .dt_stride = (int32_t)a->dt->row_stride,
                                .y_stride = (int32_t)a->y->row_stride,
                                .heads = a->heads,
                                .groups = a->groups,
                                .step_min = a->step_min,
                                .step_max = a->step_max > 0 ? a->step_max : INFINITY};
    cuda_launch l = launch_of(a, cols, b->n_seqs);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_status decode_run(const void *args, const vt_lane *lane) { return run(args, lane, 2); }
static vt_status prefill_run(const void *args, const vt_lane *lane) { return run(args, lane, 1); }

static void describe(const selective_state_args *a, const vt_target *t, const vt_size *size,
                     int32_t cols, vt_cut *out)
{
    cuda_launch l = launch_of(a, cols, size->seqs);
    vt_cut_shape(out, "%d sequences of %d heads of %d x %d", size->seqs, a->heads, a->state_dim,
                 a->head_dim);
    out->tile[0] = a->state_dim;
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

const vt_impl selective_state_cuda_decode = {CUDA_ROW("decode", decode, decode_supports),
                                             .fixed_order = true, .suits = decode_suits};
const vt_impl selective_state_cuda_prefill = {CUDA_ROW("prefill", prefill, supports),
                                              .fixed_order = true};
