/* relu2 on CUDA: see relu2.cu. */
#include "ops/relu2/relu2.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/relu2/relu2_impls.h"
#include "ops/relu2/relu2_params.h"

static bool relu2_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const relu2_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16;
}

static cuda_launch launch_of(const relu2_args *a, int64_t tokens, int32_t *vec)
{
    int32_t n = (int32_t)a->y->dim[1];
    bool wide = cuda_vectors_of_8(n, a->x->row_stride) && a->y->row_stride % 8 == 0;
    *vec = wide ? 8 : 1;
    return (cuda_launch){.spec = JIT_SPEC("relu2.cu", "relu2", {"n", n}, {"vec", *vec}),
                         .grid = {cuda_blocks(tokens * (n / *vec), 256), 1, 1},
                         .threads = 256};
}

static vt_status relu2_run(const void *args, const vt_lane *lane)
{
    const relu2_args *a = args;
    int32_t vec;
    relu2_params p = {a->x->data, a->y->data, (int32_t)a->x->row_stride, (int32_t)a->y->row_stride,
                      (int32_t)a->y->dim[0]};
    cuda_launch l = launch_of(a, a->y->dim[0], &vec);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void relu2_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const relu2_args *a = args;
    int32_t vec;
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, rows, &vec);
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_grid(out, t, &l, 2 * vec);
}

const vt_impl relu2_cuda = {CUDA_ROW("rows", relu2, relu2_supports), .fixed_order = true};
