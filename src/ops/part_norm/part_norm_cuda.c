/* part_norm on CUDA: see part_norm.cu. */
#include "ops/cut.h"
#include "ops/part_norm/part_norm.h"
#include "ops/part_norm/part_norm_impls.h"
#include "ops/part_norm/part_norm_params.h"
#include "ops/layernorm/row_cuda.h"

static bool is_f32(const vt_tensor *t) { return !t || t->dtype == VT_F32; }

static bool part_norm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const part_norm_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && is_f32(a->weight) &&
           is_f32(a->gain) && (!a->add || a->add->dtype == VT_BF16) && a->dim <= CUDA_ROW_MOST;
}

static cuda_launch launch_of(const part_norm_args *a, int64_t parts, cuda_row_form *f)
{
    bool vectors = cuda_vectors_of_8(a->dim, a->x->row_stride) && a->y->row_stride % 8 == 0 &&
                   (!a->add || a->add->row_stride % 8 == 0);
    *f = cuda_row_form_of(a->dim, vectors);
    return (cuda_launch){.spec = JIT_SPEC("part_norm.cu", "part_norm", {"n", a->dim},
                                          {"vec", f->vec}, {"threads", f->threads},
                                          {"lanes", f->lanes}, {"weight", a->weight != NULL},
                                          {"add", a->add != NULL}, {"gain", a->gain != NULL}),
                         .grid = {cuda_row_ctas(f, parts), 1, 1},
                         .threads = (uint32_t)f->threads};
}

static vt_status part_norm_run(const void *args, const vt_lane *lane)
{
    const part_norm_args *a = args;
    cuda_row_form f;
    int64_t parts = a->y->dim[1] / a->dim;
    cuda_launch l = launch_of(a, a->y->dim[0] * parts, &f);
    part_norm_params p = {.x = a->x->data,
                          .add = a->add ? a->add->data : NULL,
                          .weight = a->weight ? a->weight->data : NULL,
                          .gain = a->gain ? a->gain->data : NULL,
                          .y = a->y->data,
                          .x_stride = (int32_t)a->x->row_stride,
                          .add_stride = a->add ? (int32_t)a->add->row_stride : 0,
                          .y_stride = (int32_t)a->y->row_stride,
                          .parts = (int32_t)parts,
                          .n_parts = (int32_t)(a->y->dim[0] * parts),
                          .eps = a->eps,
                          .scale = a->scale == 0 ? 1 : a->scale,
                          .plus = a->plus_one ? 1 : 0};
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void part_norm_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const part_norm_args *a = args;
    cuda_row_form f;
    int64_t rows = vt_size_rows(a->y, size), parts = a->y->dim[1] / a->dim;
    cuda_launch l = launch_of(a, rows * parts, &f);
    vt_cut_shape(out, "%lld rows of %lld parts of %d", (long long)rows, (long long)parts, a->dim);
    vt_cut_grid(out, t, &l, 2 * f.vec);
}

const vt_impl part_norm_cuda = {CUDA_ROW("parts", part_norm, part_norm_supports),
                                .fixed_order = true};
