/* Attention on CUDA for shapes that the tensor-core kernels do not support: attention_any.cu.
 * Prefill uses the plan of the tile kernels; decode needs no plan. */
#include "ops/attention/attention_cuda.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/attention/attention_impls.h"
#include "ops/attention/attention_params.h"

static bool attention_any_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const attention_args *a = args;
    return (!a->sinks || a->sinks->dtype == VT_F32) && a->q->dtype == VT_BF16 &&
           cuda_is_kv(a->k_pool->dtype) && a->o->dtype == VT_BF16 &&
           a->head_dim <= 2048; /* five rows of fp32 in shared memory */
}

/* Decode has a CTA for each token and head, prefill for each item of the plan, row of its tile and
 * KV head. */
static cuda_launch launch_of(const attention_args *a, bool decode, int32_t n)
{
    int32_t group = a->heads / a->kv_heads;
    return (cuda_launch){
        .spec = JIT_SPEC("attention_any.cu", "attention_any", {"head_dim", a->head_dim},
                         {"v_dim", attention_v_dim(a)}, {"group", group}, {"kv_heads", a->kv_heads},
                         {"page", (int32_t)a->k_pool->dim[2]}, {"decode", decode},
                         {"fp8", a->k_pool->dtype == VT_FP8_E4M3}, {"sinks", a->sinks != NULL},
                         {"cap", a->cap > 0}, {"after", a->after > 0}),
        .grid = {(uint32_t)n, (uint32_t)(decode ? group : ATTENTION_PREFILL_ROWS),
                 (uint32_t)a->kv_heads},
        .threads = 128};
}

static vt_status run(const attention_args *a, const vt_lane *lane, bool decode, int32_t n)
{
    const vt_size *size = lane->size;
    attention_any_params p = {ATTENTION_PARAMS(a),
                              .items = lane->plan,
                              .seq_of = a->batch->seq_of,
                              .after = a->after,
                              .n_decode = size->decodes,
                              .decode_tokens = size->decode_tokens > 1 ? size->decode_tokens : 1};
    cuda_launch l = launch_of(a, decode, n);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static vt_status decode_any_run(const void *args, const vt_lane *lane)
{
    const attention_args *a = args;
    return run(a, lane, true, a->batch->n_tokens);
}

static vt_status prefill_any_run(const void *args, const vt_lane *lane)
{
    return run(args, lane, false, lane->items);
}

static void describe(const attention_args *a, const vt_target *t, int64_t seqs, int64_t tokens,
                     cuda_launch l, vt_cut *out)
{
    attention_cut_shape(a, seqs, tokens, out);
    out->tile[0] = 1;
    out->tile[1] = a->head_dim;
    out->tile[2] = 32;
    vt_cut_roles(out, "4 warps, every fourth block of keys each", "warps in rising order");
    vt_cut_grid(out, t, &l, vt_dtype_get(a->k_pool->dtype)->bytes);
}

static void decode_any_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    vt_size of = attention_size_of(args, size);
    describe(args, t, of.decodes, attention_decode_tokens(&of), launch_of(args, true, of.tokens),
             out);
}

static void prefill_any_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    vt_size of = attention_size_of(args, size);
    int32_t items = attention_tiles_64.items(args, t, &of, NULL);
    describe(args, t, of.prefills, of.tokens - of.decodes, launch_of(args, false, items), out);
}

const vt_impl attention_decode_any = {CUDA_ROW("any", decode_any, attention_any_supports),
                                      .fixed_order = true};
const vt_impl attention_prefill_any = {CUDA_ROW("any", prefill_any, attention_any_supports),
                                       .fixed_order = true, .plan = &attention_tiles_64};
