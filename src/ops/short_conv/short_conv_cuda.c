/* short_conv on CUDA: "runs" is short_conv_runs.cu, for steps of many tokens; "tokens" is
 * short_conv.cu, of the same bits. */
#include "ops/short_conv/short_conv.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/short_conv/short_conv_impls.h"
#include "ops/short_conv/short_conv_params.h"

static bool short_conv_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const short_conv_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->w->dtype == VT_F32 &&
           (!a->bias || a->bias->dtype == VT_F32) && a->w->dim[1] <= SHORT_CONV_TAPS_MOST;
}

enum { RUNS_FROM = 128 /* tokens of a step */ };

static bool runs_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const short_conv_args *a = args;
    int64_t n = a->y->dim[1];
    return short_conv_supports(args, t, upto) && cuda_vectors_of_8(n, a->x->row_stride) &&
           cuda_vectors_of_8(n, a->y->row_stride) && a->state->row_stride % 4 == 0;
}

static bool runs_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)args, (void)t;
    return upto->tokens >= RUNS_FROM;
}

static cuda_launch runs_launch(const short_conv_args *a, int64_t tokens, int32_t seqs)
{
    int32_t n = (int32_t)a->y->dim[1], run = a->silu ? 8 : 4; /* what registers have room for */
    return (cuda_launch){
        .spec = JIT_SPEC("short_conv_runs.cu", "short_conv_runs", {"n", n},
                         {"taps", (int32_t)a->w->dim[1]}, {"silu", a->silu},
                         {"bias", a->bias != NULL}, {"behind", a->batch->state_behind != NULL},
                         {"run", run}),
        .grid = {cuda_blocks((seqs + vt_ceil_div(tokens, run)) * (n / 8), 128), 1, 1},
        .threads = 128};
}

static cuda_launch launch_of(const short_conv_args *a, int64_t tokens)
{
    int32_t n = (int32_t)a->y->dim[1];
    return (cuda_launch){.spec = JIT_SPEC("short_conv.cu", "short_conv", {"n", n},
                                          {"taps", (int32_t)a->w->dim[1]}, {"silu", a->silu},
                                          {"bias", a->bias != NULL},
                                          {"behind", a->batch->state_behind != NULL}),
                         .grid = {cuda_blocks(tokens * n, 256), 1, 1},
                         .threads = 256};
}

static vt_status launch(const short_conv_args *a, const vt_lane *lane, const cuda_launch *l)
{
    const vt_batch *b = a->batch;
    short_conv_params p = {.x = a->x->data,
                           .y = a->y->data,
                           .w = a->w->data,
                           .bias = a->bias ? a->bias->data : NULL,
                           .state = a->state->data,
                           .state_stride = a->state->row_stride,
                           CUDA_STATE_PARAMS(b),
                           .x_stride = (int32_t)a->x->row_stride,
                           .y_stride = (int32_t)a->y->row_stride,
                           .n_tokens = b->n_tokens,
                           .n_seqs = b->n_seqs};
    return vt_cuda_launch(lane->cuda, l, &p, sizeof p);
}

static vt_status short_conv_run(const void *args, const vt_lane *lane)
{
    const short_conv_args *a = args;
    cuda_launch l = launch_of(a, a->batch->n_tokens);
    return launch(a, lane, &l);
}

static vt_status runs_run(const void *args, const vt_lane *lane)
{
    const short_conv_args *a = args;
    cuda_launch l = runs_launch(a, a->batch->n_tokens, a->batch->n_seqs);
    return launch(a, lane, &l);
}

static void describe(const short_conv_args *a, const vt_target *t, const vt_size *size,
                     const cuda_launch *l, int32_t vector_bytes, vt_cut *out)
{
    vt_cut_shape(out, "%d sequences of %lld channels, %lld taps", size->seqs,
                 (long long)a->y->dim[1], (long long)a->w->dim[1]);
    vt_cut_grid(out, t, l, vector_bytes);
}

static void short_conv_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const short_conv_args *a = args;
    cuda_launch l = launch_of(a, vt_size_rows(a->y, size));
    describe(a, t, size, &l, 2, out);
}

static void runs_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const short_conv_args *a = args;
    cuda_launch l = runs_launch(a, vt_size_rows(a->y, size), size->seqs);
    describe(a, t, size, &l, 16, out);
}

const vt_impl short_conv_cuda_runs = {CUDA_ROW("runs", runs, runs_supports), .fixed_order = true,
                                      .suits = runs_suits};
const vt_impl short_conv_cuda = {CUDA_ROW("tokens", short_conv, short_conv_supports),
                                 .fixed_order = true};
