/* rmsnorm and add_rmsnorm on CUDA: see rmsnorm.cu. A thread holds at most 16 elements of a row up
 * to hidden 8192, so that it stays in registers between its two uses. */
#include "ops/rmsnorm/rmsnorm.h"

#include "ops/cuda_impls.h"
#include "ops/rmsnorm/rmsnorm_params.h"

enum { NARROW_THREADS = 256, SM_THREADS = 2048 };

static bool rmsnorm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const rmsnorm_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->weight->dtype == VT_F32 &&
           a->y->dim[1] <= 32768 && (!a->residual || a->residual->dtype == VT_BF16);
}

static vt_status launch(const rmsnorm_args *a, vt_cuda_lane *lane)
{
    int32_t hidden = (int32_t)a->y->dim[1];
    bool wide = cuda_vectors_of_8(hidden, a->x->row_stride) && a->y->row_stride % 8 == 0;
    int32_t vec = wide ? 8 : 1;
    int32_t vectors = (int32_t)vt_ceil_div(hidden, vec), lanes = 1;
    int32_t threads = vectors > 512 ? 512 : (int32_t)vt_round_up((size_t)vectors, 32);
    while (lanes < vectors && lanes < 32)
        lanes *= 2;
    if (vectors > 32)
        lanes = threads;
    else
        threads = NARROW_THREADS;
    int64_t rows = a->y->dim[0], ctas = vt_ceil_div(rows, threads / lanes);
    int64_t most = (int64_t)lane->cuda->sm_count * (SM_THREADS / threads);
    if (rows == 0 && !lane->collect)
        return VT_OK;
    rmsnorm_params p = {.x = a->x->data,
                        .row = a->row ? *a->row : NULL,
                        .weight = a->weight->data,
                        .residual = a->residual ? a->residual->data : NULL,
                        .y = a->y->data,
                        .x_stride = (int32_t)a->x->row_stride,
                        .y_stride = (int32_t)a->y->row_stride,
                        .residual_stride = a->residual ? (int32_t)a->residual->row_stride : 0,
                        .n_rows = (int32_t)rows,
                        .eps = a->eps};
    return vt_cuda_launch(
        lane,
        &(cuda_launch){.spec = JIT_SPEC("rmsnorm.cu", "rmsnorm", {"hidden", hidden}, {"vec", vec},
                                        {"threads", threads}, {"lanes", lanes},
                                        {"add", a->residual != NULL}, {"rows", a->row != NULL},
                                        {"plus_one", a->plus_one}),
                       .grid = {(uint32_t)(ctas < most ? ctas : most), 1, 1},
                       .threads = (uint32_t)threads},
        &p, sizeof p);
}

static vt_status rmsnorm_run(const void *args, const vt_lane *lane)
{
    return launch(args, lane->cuda);
}

const vt_impl rmsnorm_cuda_impl = {.name = "rows",
                                   .device = VT_DEVICE_CUDA,
                                   .fixed_order = true,
                                   .supports = rmsnorm_supports,
                                   .run = rmsnorm_run};
const vt_impl add_rmsnorm_cuda_impl = {.name = "rows",
                                       .device = VT_DEVICE_CUDA,
                                       .fixed_order = true,
                                       .supports = rmsnorm_supports,
                                       .run = rmsnorm_run};
