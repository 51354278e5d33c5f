/* rmsnorm and add_rmsnorm on CUDA: see rmsnorm.cu. A thread holds at most 16 elements of a row up
 * to hidden 8192, so that it stays in registers between its two uses. */
#include "ops/rmsnorm/rmsnorm.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/rmsnorm/rmsnorm_params.h"

enum { NARROW_THREADS = 256, SM_THREADS = 2048 };

static bool rmsnorm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const rmsnorm_args *a = args;
    return a->x->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->weight->dtype == VT_F32 &&
           a->y->dim[1] <= 32768 && (!a->residual || a->residual->dtype == VT_BF16);
}

/* The number of CTAs that the rows need, and the launch, with no more CTAs than the SMs hold at the
 * same time. */
typedef struct rmsnorm_form {
    int64_t ctas;
    int32_t vec; /* elements per load */
    cuda_launch launch;
} rmsnorm_form;

static rmsnorm_form form_of(const rmsnorm_args *a, const vt_target *t, int64_t rows)
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
    int64_t ctas = vt_ceil_div(rows, threads / lanes);
    int64_t most = (int64_t)t->sm_count * (SM_THREADS / threads);
    return (rmsnorm_form){
        .ctas = ctas,
        .vec = vec,
        .launch = {.spec = JIT_SPEC("rmsnorm.cu", "rmsnorm", {"hidden", hidden}, {"vec", vec},
                                    {"threads", threads}, {"lanes", lanes},
                                    {"add", a->residual != NULL}, {"rows", a->row != NULL},
                                    {"plus_one", a->plus_one}),
                   .grid = {(uint32_t)(ctas < most ? ctas : most), 1, 1},
                   .threads = (uint32_t)threads}};
}

static vt_status rmsnorm_run(const void *args, const vt_lane *lane)
{
    const rmsnorm_args *a = args;
    int64_t rows = a->y->dim[0];
    rmsnorm_form f = form_of(a, lane->target, rows);
    if (rows == 0 && !lane->cuda->collect)
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
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

static void rmsnorm_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rmsnorm_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    rmsnorm_form f = form_of(a, t, rows);
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_cuda(out, t, f.ctas, &f.launch, 2 * f.vec);
}

const vt_impl rmsnorm_cuda_impl = {.name = "rows",
                                   .device = VT_DEVICE_CUDA,
                                   .fixed_order = true,
                                   .supports = rmsnorm_supports,
                                   .run = rmsnorm_run,
                                   .describe = rmsnorm_describe};
const vt_impl add_rmsnorm_cuda_impl = {.name = "rows",
                                       .device = VT_DEVICE_CUDA,
                                       .fixed_order = true,
                                       .supports = rmsnorm_supports,
                                       .run = rmsnorm_run,
                                       .describe = rmsnorm_describe};
