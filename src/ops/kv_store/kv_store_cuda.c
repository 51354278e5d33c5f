/* kv_store on CUDA: see kv_store.cu, and kv_store_any.cu for rows of any length. */
#include "ops/kv_store/kv_store.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/kv_store/kv_store_params.h"

static bool any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const kv_store_args *a = args;
    return a->k->dtype == VT_BF16 && cuda_is_kv(a->k_pool->dtype);
}

static bool kv_store_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const kv_store_args *a = args;
    return any_supports(a, t, upto) && a->k_pool->dim[3] % 8 == 0 && a->k->row_stride % 8 == 0 &&
           (!a->v || a->v->row_stride % 8 == 0);
}

static cuda_launch launch_of(const kv_store_args *a, int64_t tokens, bool fast)
{
    int32_t kv_heads = (int32_t)a->k_pool->dim[1], page = (int32_t)a->k_pool->dim[2],
            dim = (int32_t)a->k_pool->dim[3];
    return (cuda_launch){
        .spec = JIT_SPEC(fast ? "kv_store.cu" : "kv_store_any.cu",
                         fast ? "kv_store" : "kv_store_any", {"kv_heads", kv_heads},
                         {"head_dim", dim}, {"page", page},
                         {"fp8", a->k_pool->dtype == VT_FP8_E4M3}, {"k_only", !a->v}),
        .grid = {cuda_blocks(tokens * kv_heads * (fast ? dim / 8 : dim), 128), 1, 1},
        .threads = 128};
}

static vt_status launch(const kv_store_args *a, vt_cuda_lane *lane, bool fast)
{
    int32_t tokens = a->batch->n_tokens;
    kv_store_params p = {a->k->data,
                         a->v ? a->v->data : NULL,
                         a->k_pool->data,
                         a->v_pool ? a->v_pool->data : NULL,
                         a->batch->slot,
                         (int32_t)a->k->row_stride,
                         a->v ? (int32_t)a->v->row_stride : 0,
                         tokens,
                         1 / a->k_scale,
                         1 / a->v_scale};
    cuda_launch l = launch_of(a, tokens, fast);
    return vt_cuda_launch(lane, &l, &p, sizeof p);
}

static void describe(const kv_store_args *a, const vt_target *t, const vt_size *size, bool fast,
                     vt_cut *out)
{
    int64_t tokens = vt_size_rows(a->k, size);
    cuda_launch l = launch_of(a, tokens, fast);
    vt_cut_shape(out, "%lld tokens, %lld heads of %lld", (long long)tokens,
                 (long long)a->k_pool->dim[1], (long long)a->k_pool->dim[3]);
    vt_cut_grid(out, t, &l, fast ? 16 : 2);
}

static void kv_store_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    describe(args, t, size, true, out);
}

static void any_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    describe(args, t, size, false, out);
}

static vt_status kv_store_run(const void *args, const vt_lane *lane)
{
    return launch(args, lane->cuda, true);
}

static vt_status any_run(const void *args, const vt_lane *lane)
{
    return launch(args, lane->cuda, false);
}

const vt_impl kv_store_cuda_impl = {CUDA_ROW("scatter", kv_store, kv_store_supports),
                                    .fixed_order = true};
const vt_impl kv_store_cuda_any_impl = {CUDA_ROW("any", any, any_supports), .fixed_order = true};
