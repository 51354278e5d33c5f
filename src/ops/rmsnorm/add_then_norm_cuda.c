/* A variant of add_rmsnorm on CUDA that no engine chooses: the sum in one launch (add.cu), its norm
 * in another (rmsnorm.cu). It shows what the fused row saves: the norm reads the sum once more, so
 * 10 bytes an element are moved in place of 8, and there is one launch more. The norm works on the
 * rounded sum here; the fused row has it in fp32. */
#include "ops/rmsnorm/rmsnorm_impls.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/rmsnorm/add_params.h"
#include "ops/rmsnorm/rmsnorm.h"

/* The norm of the second launch. */
static rmsnorm_args norm_of(const rmsnorm_args *a)
{
    rmsnorm_args norm = *a;
    norm.x = a->residual;
    norm.residual = NULL;
    return norm;
}

static bool apart_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    return add_rmsnorm_cuda_impl.supports(args, t, upto);
}

static vt_status add_run(const rmsnorm_args *a, vt_cuda_lane *lane)
{
    int32_t hidden = (int32_t)a->y->dim[1];
    bool wide = cuda_vectors_of_8(hidden, a->x->row_stride) && a->residual->row_stride % 8 == 0;
    int32_t vec = wide ? 8 : 1;
    int64_t rows = a->y->dim[0];
    add_params p = {.x = a->x->data,
                    .residual = a->residual->data,
                    .x_stride = (int32_t)a->x->row_stride,
                    .residual_stride = (int32_t)a->residual->row_stride,
                    .n_rows = (int32_t)rows};
    cuda_launch l = {.spec = JIT_SPEC("add.cu", "add", {"hidden", hidden}, {"vec", vec}),
                     .grid = {cuda_blocks(rows * (hidden / vec), 128), 1, 1},
                     .threads = 128};
    return vt_cuda_launch(lane, &l, &p, sizeof p);
}

static vt_status apart_run(const void *args, const vt_lane *lane)
{
    const rmsnorm_args *a = args;
    rmsnorm_args norm = norm_of(a);
    vt_status status = add_run(a, lane->cuda);
    return status == VT_OK ? rmsnorm_cuda_impl.run(&norm, lane) : status;
}

/* There are two launches; this describes the norm. */
static void apart_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    rmsnorm_args norm = norm_of(args);
    rmsnorm_cuda_impl.describe(&norm, t, size, out);
    vt_cut_roles(out, "a launch for the sum, then one for the norm", NULL);
}

static vt_cost apart_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    (void)t;
    const rmsnorm_args *a = args;
    return (vt_cost){.read = {.activations = vt_batch_bytes(a->residual, batch)}};
}

const vt_impl add_rmsnorm_cuda_apart = {CUDA_ROW("add-then-norm", apart, apart_supports),
                                        .fixed_order = true, .extra = apart_extra};
