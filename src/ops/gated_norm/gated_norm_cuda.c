/* gated_norm on CUDA: see gated_norm.cu. */
#include "ops/gated_norm/gated_norm.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/gated_norm/gated_norm_impls.h"
#include "ops/gated_norm/gated_norm_params.h"

enum { WARP_DIM = 1024 /* numbers that a warp has in registers; more are of a CTA */ };

static bool gated_norm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const gated_norm_args *a = args;
    return a->x->dtype == VT_BF16 && a->z->dtype == VT_BF16 && a->y->dtype == VT_BF16 &&
           a->weight->dtype == VT_F32;
}

static bool has_vectors(const gated_norm_args *a)
{
    return gated_norm_dim(a) % 4 == 0 && a->x->row_stride % 4 == 0 && a->z->row_stride % 4 == 0 &&
           a->y->row_stride % 4 == 0;
}

/* Returns how many CTAs an SM holds at once: registers bound them. A warp keeps its weights from
 * head to head, so more CTAs would only load them again. */
static int32_t resident(int64_t dim, int32_t warps)
{
    int64_t each = dim / (32 * warps); /* numbers of a lane */
    return each <= 4 ? 6 : each <= 8 ? 5 : warps == 1 ? 3 : 2;
}

static cuda_launch launch_of(const gated_norm_args *a, const vt_target *t, int64_t tokens)
{
    int64_t dim = gated_norm_dim(a), heads = a->y->dim[1] / dim;
    int32_t warps = dim > WARP_DIM ? 8 : 1;
    uint32_t ctas = cuda_blocks(tokens * heads, 8 / warps),
             most = (uint32_t)(resident(dim, warps) * t->sm_count);
    return (cuda_launch){.spec = JIT_SPEC("gated_norm.cu", "gated_norm", {"dim", (int32_t)dim},
                                          {"vec", has_vectors(a) ? 4 : 1}, {"warps", warps},
                                          {"first", a->groups > 0}, {"sigmoid", a->sigmoid}),
                         .grid = {ctas < most ? ctas : most, 1, 1},
                         .threads = 256};
}

static vt_status gated_norm_run(const void *args, const vt_lane *lane)
{
    const gated_norm_args *a = args;
    int64_t tokens = a->y->dim[0];
    int32_t heads = (int32_t)(a->y->dim[1] / gated_norm_dim(a));
    gated_norm_params p = {.x = a->x->data,
                           .z = a->z->data,
                           .weight = a->weight->data,
                           .y = a->y->data,
                           .x_stride = (int32_t)a->x->row_stride,
                           .z_stride = (int32_t)a->z->row_stride,
                           .y_stride = (int32_t)a->y->row_stride,
                           .heads = heads,
                           .n = (int32_t)tokens * heads,
                           .eps = a->eps};
    cuda_launch l = launch_of(a, lane->target, tokens);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void gated_norm_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const gated_norm_args *a = args;
    int64_t dim = gated_norm_dim(a), rows = vt_size_rows(a->y, size);
    cuda_launch l = launch_of(a, t, rows);
    vt_cut_shape(out, "%lld rows of %lld heads of %lld", (long long)rows,
                 (long long)(a->y->dim[1] / dim), (long long)dim);
    vt_cut_grid(out, t, &l, has_vectors(a) ? 8 : 2);
}

const vt_impl gated_norm_cuda = {CUDA_ROW("heads", gated_norm, gated_norm_supports),
                                 .fixed_order = true};
