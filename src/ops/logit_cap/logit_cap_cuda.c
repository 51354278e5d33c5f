/* logit_cap on CUDA: see logit_cap.cu. */
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/logit_cap/logit_cap.h"
#include "ops/logit_cap/logit_cap_impls.h"
#include "ops/logit_cap/logit_cap_params.h"

static bool logit_cap_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const logit_cap_args *a = args;
    return a->y->dtype == VT_F32;
}

static cuda_launch launch_of(const logit_cap_args *a, int64_t rows)
{
    return (cuda_launch){.spec = JIT_SPEC("logit_cap.cu", "logit_cap", {NULL, 0}),
                         .grid = {cuda_blocks(a->y->dim[1], 256), (uint32_t)rows, 1},
                         .threads = 256};
}

static vt_status logit_cap_run(const void *args, const vt_lane *lane)
{
    const logit_cap_args *a = args;
    cuda_launch l = launch_of(a, a->y->dim[0]);
    logit_cap_params p = {a->y->data, a->y->dim[1], a->y->row_stride, a->cap};
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void logit_cap_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const logit_cap_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, rows);
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_grid(out, t, &l, 4);
}

const vt_impl logit_cap_cuda = {CUDA_ROW("rows", logit_cap, logit_cap_supports),
                                .fixed_order = true};
