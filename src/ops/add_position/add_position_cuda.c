/* add_position on CUDA: see add_position.cu. */
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/add_position/add_position_impls.h"
#include "ops/add_position/add_position_params.h"

/* Tables are whole: the kernel finds their rows by the length of x's. */
static bool position_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const add_position_args *a = args;
    int64_t n = a->x->dim[1];
    return a->x->dtype == VT_BF16 && a->table->dtype == VT_F32 && a->table->row_stride == n &&
           (!a->types || (a->types->dtype == VT_F32 && a->types->row_stride == n));
}

static cuda_launch launch_of(const add_position_args *a, int64_t tokens, int32_t *vec)
{
    int32_t n = (int32_t)a->x->dim[1];
    *vec = cuda_vectors_of_8(n, a->x->row_stride) ? 8 : 1;
    return (cuda_launch){.spec = JIT_SPEC("add_position.cu", "add_position", {"n", n},
                                          {"vec", *vec},
                                          {"types", a->types ? (int32_t)a->types->dim[0] : 0}),
                         .grid = {cuda_blocks(tokens * (n / *vec), 128), 1, 1},
                         .threads = 128};
}

static vt_status position_run(const void *args, const vt_lane *lane)
{
    const add_position_args *a = args;
    int32_t vec;
    cuda_launch l = launch_of(a, a->x->dim[0], &vec);
    add_position_params p = {.position = a->batch->position,
                             .seq_of = a->batch->seq_of,
                             .second = a->batch->second,
                             .table = a->table->data,
                             .types = a->types ? a->types->data : NULL,
                             .x = a->x->data,
                             .x_stride = (int32_t)a->x->row_stride,
                             .n_tokens = (int32_t)a->x->dim[0],
                             .first = a->first};
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void position_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    const add_position_args *a = args;
    int32_t vec;
    int64_t tokens = vt_size_rows(a->x, size);
    cuda_launch l = launch_of(a, tokens, &vec);
    vt_cut_shape(out, "%lld rows of %lld", (long long)tokens, (long long)a->x->dim[1]);
    vt_cut_grid(out, t, &l, 2 * vec);
}

const vt_impl position_cuda = {CUDA_ROW("rows", position, position_supports), .fixed_order = true};
