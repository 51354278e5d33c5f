/* head_split, head_gate and row_gate on CUDA: see sigmoid_gate.cu. */
#include "ops/sigmoid_gate/sigmoid_gate.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/sigmoid_gate/sigmoid_gate_impls.h"
#include "ops/sigmoid_gate/sigmoid_gate_params.h"

static bool head_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const head_gate_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16;
}

static cuda_launch head_launch(const head_gate_args *a, int64_t tokens, bool split, int32_t *vec)
{
    int32_t n = (int32_t)a->y->dim[1];
    bool wide = cuda_vectors_of_8(a->dim, a->x->row_stride) && a->y->row_stride % 8 == 0;
    *vec = wide ? 8 : 1;
    return (cuda_launch){.spec = JIT_SPEC("sigmoid_gate.cu", "head_gate", {"n", n}, {"dim", a->dim},
                                          {"vec", *vec}, {"split", split}),
                         .grid = {cuda_blocks(tokens * (n / *vec), 256), 1, 1},
                         .threads = 256};
}

static vt_status head_run(const head_gate_args *a, const vt_lane *lane, bool split)
{
    int32_t vec;
    head_gate_params p = {a->x->data, a->y->data, (int32_t)a->x->row_stride,
                          (int32_t)a->y->row_stride, (int32_t)a->y->dim[0]};
    cuda_launch l = head_launch(a, a->y->dim[0], split, &vec);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_status split_run(const void *args, const vt_lane *lane)
{
    return head_run(args, lane, true);
}

static vt_status gate_run(const void *args, const vt_lane *lane)
{
    return head_run(args, lane, false);
}

static void head_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const head_gate_args *a = args;
    int32_t vec;
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = head_launch(a, rows, false, &vec);
    vt_cut_shape(out, "%lld rows of %lld heads of %d", (long long)rows,
                 (long long)(a->y->dim[1] / a->dim), a->dim);
    vt_cut_grid(out, t, &l, 2 * vec);
}

static bool row_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const row_gate_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->w->dtype == VT_F32;
}

/* A CTA keeps its share of the weights in registers from token to token. */
static cuda_launch row_launch(const vt_target *t, int64_t tokens)
{
    enum { RESIDENT = 8 /* CTAs of an SM: enough loads under way */ };
    int64_t most = (int64_t)RESIDENT * t->sm_count;
    return (cuda_launch){.spec = JIT_SPEC("sigmoid_gate.cu", "row_gate", {NULL, 0}),
                         .grid = {(uint32_t)(tokens < most ? tokens : most), 1, 1},
                         .threads = 128};
}

static vt_status row_run(const void *args, const vt_lane *lane)
{
    const row_gate_args *a = args;
    row_gate_params p = {.x = a->x->data,
                         .w = a->w->data,
                         .y = a->y->data,
                         .x_stride = (int32_t)a->x->row_stride,
                         .y_stride = (int32_t)a->y->row_stride,
                         .hidden = (int32_t)a->w->dim[0],
                         .n = (int32_t)a->y->dim[1],
                         .n_tokens = (uint32_t)a->y->dim[0]};
    cuda_launch l = row_launch(lane->target, a->y->dim[0]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void row_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const row_gate_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = row_launch(t, rows);
    vt_cut_shape(out, "%lld rows of %lld, gated from %lld", (long long)rows,
                 (long long)a->y->dim[1], (long long)a->w->dim[0]);
    vt_cut_grid(out, t, &l, 2);
}

const vt_impl head_split_cuda = {.name = "rows",
                                 .device = VT_DEVICE_CUDA,
                                 .fixed_order = true,
                                 .supports = head_supports,
                                 .run = split_run,
                                 .describe = head_describe};

const vt_impl head_gate_cuda = {.name = "rows",
                                .device = VT_DEVICE_CUDA,
                                .fixed_order = true,
                                .supports = head_supports,
                                .run = gate_run,
                                .describe = head_describe};

const vt_impl row_gate_cuda = {CUDA_ROW("rows", row, row_supports), .fixed_order = true};
