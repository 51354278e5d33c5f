/* short_conv on CUDA: see short_conv.cu. */
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

static vt_status short_conv_run(const void *args, const vt_lane *lane)
{
    const short_conv_args *a = args;
    const vt_batch *b = a->batch;
    short_conv_params p = {.x = a->x->data,
                           .y = a->y->data,
                           .w = a->w->data,
                           .bias = a->bias ? a->bias->data : NULL,
                           .state = a->state->data,
                           .state_stride = a->state->row_stride,
                           .seq_of = b->seq_of,
                           .q_start = b->q_start,
                           .state_from = b->state_from,
                           .state_to = b->state_to,
                           .state_behind = b->state_behind,
                           .x_stride = (int32_t)a->x->row_stride,
                           .y_stride = (int32_t)a->y->row_stride,
                           .n_tokens = b->n_tokens};
    cuda_launch l = launch_of(a, b->n_tokens);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void short_conv_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const short_conv_args *a = args;
    cuda_launch l = launch_of(a, vt_size_rows(a->y, size));
    vt_cut_shape(out, "%d sequences of %lld channels, %lld taps", size->seqs,
                 (long long)a->y->dim[1], (long long)a->w->dim[1]);
    vt_cut_grid(out, t, &l, 2);
}

const vt_impl short_conv_cuda = {CUDA_ROW("tokens", short_conv, short_conv_supports),
                                 .fixed_order = true};
