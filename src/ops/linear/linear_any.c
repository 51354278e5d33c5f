/* linear on CUDA for BF16 weights that the fast kernels cannot read 16 bytes at a time: see
 * linear_any.cu. */
#include "ops/cuda_impls.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_pack_cuda.h"
#include "ops/linear/linear_params.h"

static bool linear_any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const linear_args *a = args;
    return a->w->dtype == VT_BF16 && !linear_scaled(a->w) && a->w->n_parts == 1 &&
           a->x->dtype == VT_BF16 && (a->y->dtype == VT_BF16 || a->y->dtype == VT_F32) &&
           (!a->bias || a->bias->dtype == VT_F32) &&
           (!a->residual || a->residual->dtype == VT_BF16);
}

static vt_status linear_any_run(const void *args, const vt_lane *lane)
{
    const linear_args *a = args;
    int32_t tokens = (int32_t)a->x->dim[0], tile = tokens == 1 ? 1 : 8;
    int32_t pair = a->epilogue == LINEAR_SWIGLU ? 1 : a->epilogue == LINEAR_GEGLU ? 2 : 0;
    int32_t rows = (int32_t)(pair ? a->w->rows / 2 : a->w->rows);
    if (tokens == 0)
        return VT_OK;
    linear_params p = {.x = a->x->data,
                       .w = a->w->part[0]->data,
                       .bias = a->bias ? a->bias->data : NULL,
                       .residual = a->residual ? a->residual->data : NULL,
                       .y = a->y->data,
                       .x_stride = (int32_t)a->x->row_stride,
                       .y_stride = (int32_t)a->y->row_stride,
                       .residual_stride = a->residual ? (int32_t)a->residual->row_stride : 0,
                       .n_tokens = tokens,
                       .rows = rows,
                       .scale = a->scale};
    return vt_cuda_launch(
        lane->cuda,
        &(cuda_launch){.spec = JIT_SPEC("linear_any.cu", "linear_any", {"k", (int32_t)a->w->cols},
                                        {"tokens", tile}, {"pair", pair},
                                        {"out_f32", a->y->dtype == VT_F32}),
                       .grid = {cuda_blocks(rows, 4), cuda_blocks(tokens, tile), 1},
                       .threads = 128},
        &p, sizeof p);
}

const vt_impl linear_cuda_any_impl = {
    .name = "any",
    .device = VT_DEVICE_CUDA,
    .fixed_order = true,
    .packing = &linear_dense_packing,
    .supports = linear_any_supports,
    .run = linear_any_run,
};
