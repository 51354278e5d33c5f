/* silu_mul on CUDA: see silu_mul.cu. */
#include "ops/silu_mul/silu_mul.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/silu_mul/silu_mul_params.h"

static bool silu_mul_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const silu_mul_args *a = args;
    return (!a->up || a->up->dtype == VT_BF16) && a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16;
}

static cuda_launch launch_of(const silu_mul_args *a, int64_t tokens, int32_t *vec)
{
    int32_t n = (int32_t)a->y->dim[1];
    bool wide = cuda_vectors_of_8(n, a->x->row_stride) && a->y->row_stride % 8 == 0 &&
                (!a->up || a->up->row_stride % 8 == 0);
    *vec = wide ? 8 : 1;
    return (cuda_launch){.spec = JIT_SPEC("silu_mul.cu", "silu_mul", {"n", n}, {"vec", *vec},
                                          {"gelu", a->activation == VT_ACT_GELU_TANH},
                                          {"apart", a->up != NULL}),
                         .grid = {cuda_blocks(tokens * (n / *vec), 256), 1, 1},
                         .threads = 256};
}

static vt_status silu_mul_run(const void *args, const vt_lane *lane)
{
    const silu_mul_args *a = args;
    int32_t vec;
    silu_mul_params p = {.x = a->x->data,
                         .up = a->up ? a->up->data : NULL,
                         .y = a->y->data,
                         .x_stride = (int32_t)a->x->row_stride,
                         .up_stride = a->up ? (int32_t)a->up->row_stride : 0,
                         .y_stride = (int32_t)a->y->row_stride,
                         .n_tokens = (int32_t)a->y->dim[0]};
    cuda_launch l = launch_of(a, a->y->dim[0], &vec);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void silu_mul_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    const silu_mul_args *a = args;
    int32_t vec;
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, rows, &vec);
    vt_cut_shape(out, "%lld rows of 2 x %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_grid(out, t, &l, 2 * vec);
}

const vt_impl silu_mul_cuda_impl = {CUDA_ROW("rows", silu_mul, silu_mul_supports),
                                    .fixed_order = true};
