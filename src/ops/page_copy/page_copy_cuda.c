/* page_copy on CUDA: see page_copy.cu. The copies are side data of the step: few steps have any. */
#include "ops/page_copy/page_copy.h"

#include <string.h>

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/page_copy/page_copy_params.h"

_Static_assert(sizeof(vt_page_copy) == sizeof(page_copy_item), "copies are uploaded as they are");

static int64_t pool_stride(const page_copy_args *a)
{
    const vt_tensor *next = a->v ? a->v : a->n_layers > 1 ? &a->k[1] : a->k;
    return (const char *)next->data - (const char *)a->k[0].data;
}

static int32_t pools_of(const page_copy_args *a) /* of a layer */ { return a->v ? 2 : 1; }

/* The kernel finds the pools by a stride, so they must lie as L0 K, L0 V, L1 K ..., or L0 K,
 * L1 K ... */
static bool page_copy_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const page_copy_args *a = args;
    const char *base = a->k[0].data;
    if (!cuda_is_kv(a->k->dtype))
        return false;
    for (int32_t i = 0; base && i < a->n_layers; i++)
        if ((const char *)a->k[i].data != base + pools_of(a) * i * pool_stride(a) ||
            (a->v && (const char *)a->v[i].data != base + (2 * i + 1) * pool_stride(a)))
            return false;
    return true;
}

static int32_t copies_items(const void *args, const vt_target *t, const vt_size *size,
                            const vt_batch *batch)
{
    (void)args, (void)size;
    return batch ? batch->n_copies : t->limits.max_seqs;
}

static size_t copies_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t, (void)size, (void)items;
    return 0;
}

static size_t most_side_bytes(const void *args, const vt_target *t)
{
    (void)args;
    return (size_t)t->limits.max_seqs * sizeof(vt_page_copy);
}

static size_t side_bytes(const void *args, const vt_batch *batch)
{
    (void)args;
    return (size_t)batch->n_copies * sizeof(vt_page_copy);
}

static int32_t copies_fill(const void *args, const vt_target *t, const vt_size *size,
                           const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)args, (void)t, (void)size, (void)items, (void)out;
    memcpy(side, batch->copies, (size_t)batch->n_copies * sizeof(vt_page_copy));
    return batch->n_copies;
}

static const vt_host_plan copies_plan = {.name = "page copies",
                                         .items = copies_items,
                                         .bytes = copies_bytes,
                                         .most_side_bytes = most_side_bytes,
                                         .side_bytes = side_bytes,
                                         .fill = copies_fill};

static cuda_launch launch_of(const page_copy_args *a, int64_t copies)
{
    int32_t heads = (int32_t)a->k->dim[1], page = (int32_t)a->k->dim[2];
    int64_t row = vt_dtype_row_bytes(a->k->dtype, a->k->dim[3]);
    return (cuda_launch){
        .spec = JIT_SPEC("page_copy.cu", "page_copy", {"kv_heads", heads}, {"row", (int32_t)row},
                         {"page", page}),
        .grid = {(uint32_t)copies, (uint32_t)(pools_of(a) * a->n_layers), (uint32_t)heads},
        .threads = 128};
}

static vt_status page_copy_run(const void *args, const vt_lane *lane)
{
    const page_copy_args *a = args;
    int64_t page = a->k->dim[1] * a->k->dim[2] * vt_dtype_row_bytes(a->k->dtype, a->k->dim[3]);
    uint8_t *pools = a->k[0].data; /* NULL: the call is only described */
    page_copy_params p = {.pools = pools ? pools + a->first_page * page : NULL,
                          .copies = lane->side,
                          .pool_stride = (uint64_t)pool_stride(a)};
    cuda_launch l = launch_of(a, lane->items);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void page_copy_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const page_copy_args *a = args;
    int64_t copies = size ? size->copies : a->batch->n_copies;
    cuda_launch l = launch_of(a, copies);
    vt_cut_shape(out, "%lld pages, %d layers, %lld heads of %lld", (long long)copies, a->n_layers,
                 (long long)a->k->dim[1], (long long)a->k->dim[3]);
    vt_cut_grid(out, t, &l, vt_dtype_row_bytes(a->k->dtype, a->k->dim[3]) % 16 == 0 ? 16 : 1);
}

const vt_impl page_copy_cuda_impl = {CUDA_ROW("pages", page_copy, page_copy_supports),
                                     .fixed_order = true, .plan = &copies_plan};
