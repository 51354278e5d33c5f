/* rope_store on CUDA: rope.cu with STORE. For heads and rows of any length the kernels of the two
 * ops run one after the other. */
#include "ops/rope_store/rope_store.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/rope/rope_cuda.h"

/* The fused kernel reads v too, so v must be made of vectors like q and k. */
static bool fused_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const rope_args *rope = &((const rope_store_args *)args)->rope;
    const kv_store_args *store = &((const rope_store_args *)args)->store;
    return rope_cuda_supports(rope, t, upto) &&
           rope->k->dim[1] == store->k_pool->dim[1] * store->k_pool->dim[3] &&
           store->v->row_stride % 8 == 0 && cuda_is_kv(store->k_pool->dtype);
}

static vt_status fused_run(const void *args, const vt_lane *lane)
{
    const rope_store_args *a = args;
    return rope_cuda_launch(&a->rope, &a->store, lane->cuda);
}

static void fused_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rope_store_args *a = args;
    rope_cuda_describe(&a->rope, &a->store, t, size, out);
}

static bool any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const rope_store_args *a = args;
    return rope_cuda_any_impl.supports(&a->rope, t, upto) &&
           kv_store_cuda_any_impl.supports(&a->store, t, upto);
}

static vt_status any_run(const void *args, const vt_lane *lane)
{
    const rope_store_args *a = args;
    vt_status status = rope_cuda_any_impl.run(&a->rope, lane);
    return status == VT_OK ? kv_store_cuda_any_impl.run(&a->store, lane) : status;
}

/* There are two launches; this describes the first. */
static void any_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rope_store_args *a = args;
    rope_cuda_any_impl.describe(&a->rope, t, size, out);
    vt_cut_roles(out, "rope_any, then kv_store_any", NULL);
}

const vt_impl rope_store_cuda_impl = {.name = "heads",
                                      .device = VT_DEVICE_CUDA,
                                      .fixed_order = true,
                                      .supports = fused_supports,
                                      .run = fused_run,
                                      .describe = fused_describe};
const vt_impl rope_store_cuda_any_impl = {.name = "any",
                                          .device = VT_DEVICE_CUDA,
                                          .fixed_order = true,
                                          .supports = any_supports,
                                          .run = any_run,
                                          .describe = any_describe};
