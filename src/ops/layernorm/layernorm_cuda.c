/* layernorm on CUDA: see layernorm.cu. */
#include "ops/cut.h"
#include "ops/layernorm/layernorm.h"
#include "ops/layernorm/layernorm_impls.h"
#include "ops/layernorm/layernorm_params.h"
#include "ops/layernorm/row_cuda.h"

static bool layernorm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const layernorm_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->weight->dtype == VT_F32 &&
           (!a->bias || a->bias->dtype == VT_F32) && a->y->dim[1] <= CUDA_ROW_MOST;
}

static cuda_launch launch_of(const layernorm_args *a, int64_t rows, cuda_row_form *f)
{
    int64_t n = a->y->dim[1];
    *f = cuda_row_form_of(n, cuda_vectors_of_8(n, a->x->row_stride) && a->y->row_stride % 8 == 0);
    return (cuda_launch){.spec = JIT_SPEC("layernorm.cu", "layernorm", {"n", (int32_t)n},
                                          {"vec", f->vec}, {"threads", f->threads},
                                          {"lanes", f->lanes}, {"rows", a->row != NULL},
                                          {"bias", a->bias != NULL}),
                         .grid = {cuda_row_ctas(f, rows), 1, 1},
                         .threads = (uint32_t)f->threads};
}

static vt_status layernorm_run(const void *args, const vt_lane *lane)
{
    const layernorm_args *a = args;
    cuda_row_form f;
    cuda_launch l = launch_of(a, a->y->dim[0], &f);
    layernorm_params p = {.x = a->x->data,
                          .row = a->row ? *a->row : NULL,
                          .weight = a->weight->data,
                          .bias = a->bias ? a->bias->data : NULL,
                          .y = a->y->data,
                          .x_stride = (int32_t)a->x->row_stride,
                          .y_stride = (int32_t)a->y->row_stride,
                          .n_rows = (int32_t)a->y->dim[0],
                          .eps = a->eps};
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void layernorm_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const layernorm_args *a = args;
    cuda_row_form f;
    int64_t rows = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, rows, &f);
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_grid(out, t, &l, 2 * f.vec);
}

const vt_impl layernorm_cuda = {CUDA_ROW("rows", layernorm, layernorm_supports),
                                .fixed_order = true};
