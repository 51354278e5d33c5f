/* linear on CUDA for BF16 weights that the fast kernels cannot read 16 bytes at a time: see
 * linear_any.cu. */
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/linear/linear_params.h"

static bool linear_any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const linear_args *a = args;
    return a->epilogue != LINEAR_CLAMPED && a->w->dtype == VT_BF16 && !linear_scaled(a->w) &&
           a->w->n_parts == 1 && a->x->dtype == VT_BF16 &&
           (a->y->dtype == VT_BF16 || a->y->dtype == VT_F32) &&
           (!a->bias || a->bias->dtype == VT_F32) &&
           (!a->residual || a->residual->dtype == VT_BF16);
}

static cuda_launch launch_of(const linear_args *a, int64_t tokens)
{
    int32_t tile = tokens == 1 ? 1 : 8;
    return (cuda_launch){.spec = JIT_SPEC("linear_any.cu", "linear_any", {"k", (int32_t)a->w->cols},
                                          {"tokens", tile}, {"pair", linear_pair(a)},
                                          {"out_f32", a->y->dtype == VT_F32}),
                         .grid = {cuda_blocks(linear_outputs(a), 4), cuda_blocks(tokens, tile), 1},
                         .threads = 128};
}

static vt_status linear_any_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    if (a->x->dim[0] == 0)
        return VT_OK;
    linear_params p = linear_params_of(a);
    cuda_launch l = launch_of(a, a->x->dim[0]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void linear_any_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const linear_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size);
    cuda_launch l = launch_of(a, tokens);
    linear_cut_shape(a, size, out);
    out->tile[0] = tokens == 1 ? 1 : 8;
    out->tile[1] = 4;
    vt_cut_grid(out, t, &l, 2);
}

const vt_impl linear_cuda_any_impl = {CUDA_ROW("any", linear_any, linear_any_supports),
                                      .fixed_order = true, .packing = &linear_dense_packing};
