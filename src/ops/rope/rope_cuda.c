/* rope on CUDA: see rope.cu, and rope_any.cu for heads and rows of any length. */
#include "ops/rope/rope_cuda.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/rope/rope_any_params.h"
#include "ops/rope/rope_params.h"

bool rope_cuda_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const rope_args *a = args;
    return a->q->dtype == VT_BF16 && a->k->dtype == VT_BF16 && a->cos_sin->dtype == VT_F32 &&
           a->head_dim <= 512 && (!a->q_norm == !a->k_norm || a->k->dim[1] == 0) &&
           a->q->row_stride % 8 == 0 && a->k->row_stride % 8 == 0;
}

static cuda_launch launch_of(const rope_args *a, const kv_store_args *store, int64_t tokens)
{
    int32_t heads = (int32_t)(a->q->dim[1] / a->head_dim),
            kv_heads = (int32_t)(a->k->dim[1] / a->head_dim), dim = a->head_dim;
    bool fast = !a->interleaved && a->dims == dim && dim % 16 == 0 && (dim & (dim - 1)) == 0;
    int32_t lanes = fast ? dim / 16 : 32;
    int64_t items = tokens * (heads + (store ? 2 : 1) * kv_heads);
    return (cuda_launch){.spec = JIT_SPEC("rope.cu", "rope", {"heads", heads},
                                          {"kv_heads", kv_heads}, {"head_dim", dim},
                                          {"dims", a->dims}, {"interleaved", a->interleaved},
                                          {"norm", a->q_norm ? 1 + a->norm_after : 0},
                                          {"plus_one", a->plus_one}, {"store", store != NULL},
                                          {"page", store ? (int32_t)store->k_pool->dim[2] : 1},
                                          {"fp8", store && store->k_pool->dtype == VT_FP8_E4M3}),
                         .grid = {cuda_blocks(items * lanes, 128), 1, 1},
                         .threads = 128};
}

vt_status rope_cuda_launch(const rope_args *a, const kv_store_args *store, vt_cuda_lane *lane)
{
    int32_t tokens = a->batch->n_tokens;
    rope_params p = {.q = a->q->data,
                     .k = a->k->data,
                     .position = a->batch->position,
                     .slot = store ? store->batch->slot : NULL,
                     .cos_sin = a->cos_sin->data,
                     .q_cos_sin = (a->q_cos_sin ? a->q_cos_sin : a->cos_sin)->data,
                     .q_norm = a->q_norm ? a->q_norm->data : NULL,
                     .k_norm = a->k_norm ? a->k_norm->data : NULL,
                     .q_stride = (int32_t)a->q->row_stride,
                     .k_stride = (int32_t)a->k->row_stride,
                     .n_tokens = tokens,
                     .eps = a->eps};
    if (store) {
        p.v = store->v->data;
        p.v_stride = (int32_t)store->v->row_stride;
        p.k_pool = store->k_pool->data;
        p.v_pool = store->v_pool->data;
        p.k_inverse = 1 / store->k_scale;
        p.v_inverse = 1 / store->v_scale;
    }
    cuda_launch l = launch_of(a, store, tokens);
    return vt_cuda_launch(lane, &l, &p, sizeof p);
}

void rope_cuda_describe(const rope_args *a, const kv_store_args *store, const vt_target *t,
                        const vt_size *size, vt_cut *out)
{
    int64_t tokens = vt_size_rows(a->q, size);
    cuda_launch l = launch_of(a, store, tokens);
    vt_cut_shape(out, "%lld tokens, %lld heads of %d", (long long)tokens,
                 (long long)((a->q->dim[1] + (store ? 2 : 1) * a->k->dim[1]) / a->head_dim),
                 a->head_dim);
    vt_cut_grid(out, t, &l, 16);
}

static void rope_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    rope_cuda_describe(args, NULL, t, size, out);
}

static vt_status rope_run(const void *args, const vt_lane *lane)
{
    return rope_cuda_launch(args, NULL, lane->cuda);
}

/* ---- any shape ---- */

static bool any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const rope_args *a = args;
    return a->q->dtype == VT_BF16 && a->k->dtype == VT_BF16 && a->cos_sin->dtype == VT_F32;
}

static cuda_launch any_launch_of(const rope_args *a, int64_t tokens)
{
    int32_t dim = a->head_dim;
    int32_t heads = (int32_t)(a->q->dim[1] / dim), kv_heads = (int32_t)(a->k->dim[1] / dim);
    return (cuda_launch){.spec = JIT_SPEC("rope_any.cu", "rope_any", {"heads", heads},
                                          {"kv_heads", kv_heads}, {"head_dim", dim},
                                          {"dims", a->dims}, {"interleaved", a->interleaved},
                                          {"plus_one", a->plus_one}, {"norm_after", a->norm_after}),
                         .grid = {cuda_blocks(tokens * (heads + kv_heads), 4), 1, 1},
                         .threads = 128};
}

static void any_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rope_args *a = args;
    int64_t tokens = vt_size_rows(a->q, size);
    cuda_launch l = any_launch_of(a, tokens);
    vt_cut_shape(out, "%lld tokens, %lld heads of %d", (long long)tokens,
                 (long long)((a->q->dim[1] + a->k->dim[1]) / a->head_dim), a->head_dim);
    vt_cut_grid(out, t, &l, 2);
}

static vt_status any_run(const void *args, const vt_lane *lane)
{
    const rope_args *a = args;
    int32_t tokens = a->batch->n_tokens;
    rope_any_params p = {.q = a->q->data,
                         .k = a->k->data,
                         .position = a->batch->position,
                         .cos_sin = a->cos_sin->data,
                         .q_cos_sin = (a->q_cos_sin ? a->q_cos_sin : a->cos_sin)->data,
                         .q_norm = a->q_norm ? a->q_norm->data : NULL,
                         .k_norm = a->k_norm ? a->k_norm->data : NULL,
                         .q_stride = (int32_t)a->q->row_stride,
                         .k_stride = (int32_t)a->k->row_stride,
                         .n_tokens = tokens,
                         .eps = a->eps};
    cuda_launch l = any_launch_of(a, tokens);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

const vt_impl rope_cuda_impl = {CUDA_ROW("heads", rope, rope_cuda_supports), .fixed_order = true};
const vt_impl rope_cuda_any_impl = {CUDA_ROW("any", any, any_supports), .fixed_order = true};
