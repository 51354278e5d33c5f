/* rope_store: the card and its portable row. Memory bounds it: q, k and v are read once, q and the
 * pools are written. As two ops k would be written and read once more, and the CPU's workers would
 * have one more barrier. */
#include "ops/rope_store/rope_store.h"

#include <math.h>

#include "ops/access.h"
#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/rope/rope_impls.h"
#include "ops/rope_store/rope_store_impls.h"
#include "ops/simd_portable.h"
#include "ops/rope_store/rope_store_kernel.h"

static vt_cost rope_store_cost(const void *args, const vt_batch *batch)
{
    const rope_store_args *a = args;
    int64_t tokens = (batch ? batch : a->rope.batch)->n_tokens;
    vt_cost c = rope_op.cost(&a->rope, batch), store = kv_store_op.cost(&a->store, batch);
    int64_t k = tokens * vt_dtype_row_bytes(a->rope.k->dtype, a->rope.k->dim[1]);
    vt_cost_add(&c, &store);
    c.write.activations -= k; /* k goes to its page instead */
    c.read.activations -= k;
    if (a->latent_norm) {
        c.read.weights += vt_tensor_bytes(a->latent_norm);
        c.flops.fp32 += 4 * tokens * a->latent_norm->dim[0];
    }
    return c;
}

static void norm_latents(const rope_store_args *a)
{
    const vt_tensor *k = a->rope.k;
    int64_t dims = a->rope.dims, n = a->latent_norm->dim[0];
    for (int64_t t = 0; t < a->rope.batch->n_tokens; t++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)tensor_get(k, t, dims + i) * (double)tensor_get(k, t, dims + i);
        double inv = 1 / sqrt(sum / (double)n + (double)a->rope.eps);
        for (int64_t i = 0; i < n; i++)
            tensor_set((vt_tensor *)(uintptr_t)k, t, dims + i,
                       (float)((double)tensor_get(k, t, dims + i) * inv *
                               (double)tensor_get(a->latent_norm, 0, i)));
    }
}

static void rope_store_reference(const void *args)
{
    const rope_store_args *a = args;
    rope_op.reference(&a->rope);
    if (a->latent_norm)
        norm_latents(a);
    kv_store_op.reference(&a->store);
}

/* ---- cases ---- */

enum {
    TOKENS,
    DECODES,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    DIMS,
    POOL,
    PAGE,
    INTERLEAVED,
    NORM,
    SCALED,
    OWN,
    LATENT
};

static const vt_field rope_store_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [DECODES] = {"decodes", 0, false, 4096, .grows = VT_GROWS_SEQS},
    [HEADS] = {"heads", 16, false, 512},
    [KV_HEADS] = {"kv_heads", 8, false, 512},
    [HEAD_DIM] = {"head_dim", 128, false, 1024},
    [DIMS] = {"dims", 0, false, 1024},
    [POOL] = {"kv_type", VT_F16, true},
    [PAGE] = {"page", 16, false, 1024},
    [INTERLEAVED] = {"interleaved", 0, false, 1},
    [NORM] = {"norm", 0, false, 2}, /* 1: before the rotation, 2: after it */
    [SCALED] = {"scaled", 0, false, 1},
    [OWN] = {"q_table", 0, false, 1},
    [LATENT] = {"latent", 0, false, 2}, /* no v; 2: and a norm */
};

static const char *rope_store_refuses(const vt_case *c)
{
    if (c->p[SCALED] && c->p[POOL] != VT_FP8_E4M3)
        return "scaled: of an fp8 pool only";
    int64_t dims = c->p[DIMS];
    if (c->p[LATENT] && (c->p[KV_HEADS] != 1 || dims == 0 || dims >= c->p[HEAD_DIM] || c->p[NORM] ||
                         c->p[POOL] == VT_FP8_E4M3))
        return "latent: kv_heads=1, dims below head_dim, no norm of heads and no fp8";
    return c->p[POOL] > VT_FP8_E4M3 ? "kv_type: f32, f16, bf16 or fp8"
                                    : rope_dims_refuse(c->p[HEAD_DIM], c->p[DIMS]);
}

static const char *const rope_store_cases[] = {
    "*tokens=1 heads=9 kv_heads=3 head_dim=64 page=16",
    "*tokens=512 heads=9 kv_heads=3 head_dim=64 page=16",
    "*tokens=512 heads=16 kv_heads=8 head_dim=128 page=16 norm=1",
    "tokens=33 decodes=5 heads=3 kv_heads=1 head_dim=20 page=7",
    "tokens=9 decodes=2 heads=4 kv_heads=1 head_dim=256 kv_type=bf16 page=16 norm=1",
    "tokens=5 heads=4 kv_heads=2 head_dim=40 dims=20 kv_type=f32 page=64",
    "tokens=5 heads=2 kv_heads=2 head_dim=24 dims=16 page=16 interleaved=1",
    "tokens=70 heads=4 kv_heads=2 head_dim=64 kv_type=fp8 page=16 scaled=1",
    "tokens=41 decodes=3 heads=4 kv_heads=2 head_dim=64 page=16 q_table=1",
    "tokens=9 decodes=3 heads=4 kv_heads=2 head_dim=128 page=16 norm=2",
    "tokens=7 decodes=2 heads=3 kv_heads=1 head_dim=20 page=7 norm=2",
    "tokens=9 decodes=3 heads=3 kv_heads=1 head_dim=20 page=7 q_table=1",
    "*tokens=1|512 heads=16 kv_heads=1 head_dim=576 dims=64 kv_type=bf16 page=64 interleaved=1 "
    "latent=2",
    "tokens=9 decodes=2 heads=3 kv_heads=1 head_dim=43 dims=10 kv_type=bf16 page=5 latent=2",
    "tokens=4 heads=5 kv_heads=1 head_dim=136 dims=72 kv_type=bf16 page=16 latent=2 q_table=1",
    "tokens=3 decodes=1 heads=1 kv_heads=1 head_dim=33 dims=32 kv_type=bf16 page=7 latent=1",
    NULL,
};

static const char *const rope_store_draws[] = {
    "tokens=~60 decodes=0..5 heads=1..9 kv_heads=1..3 head_dim=64|128|256|96|14 dims=0|0|8|40 "
    "kv_type=bf16|fp8 page=16|64|5 interleaved=0|0|1 norm=0|1|2 scaled=0|1 "
    "q_table=0|0|1",
    "tokens=~60 decodes=0..5 heads=1..9 kv_heads=1 head_dim=96|75|130 dims=2|8|74 kv_type=bf16 "
    "page=16|64|5 interleaved=0|1 q_table=0|1 latent=1|2",
    NULL,
};

static void *rope_store_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                  vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    int32_t n_seqs = (int32_t)p[DECODES] + 1, page = (int32_t)p[PAGE], tokens = (int32_t)p[TOKENS];
    int64_t d = p[HEAD_DIM], n_q = p[HEADS] * d, n_k = p[KV_HEADS] * d;
    case_seq *seq = vt_arena_alloc(arena, (size_t)n_seqs, sizeof *seq);
    rope_store_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    if (!seq || !a)
        return NULL;
    for (int32_t s = 0; s < n_seqs - 1; s++)
        seq[s] = (case_seq){1, 3 + 11 * s};
    seq[n_seqs - 1] = (case_seq){tokens, tokens + 5};
    int32_t context = tokens + 5 > 3 + 11 * n_seqs ? tokens + 5 : 3 + 11 * n_seqs;
    vt_batch *b = case_batch(arena, page, n_seqs, seq, true, 100, &seed);
    vt_tensor *qkv = b ? case_fill(arena, case_tensor_2d(arena, VT_F32, b->n_tokens, n_q + 2 * n_k),
                                   0, 1, &seed)
                       : NULL;
    rope_case sizes = {.batch = b,
                       .qkv = qkv,
                       .heads = p[HEADS],
                       .kv_heads = p[KV_HEADS],
                       .head_dim = d,
                       .dims = p[DIMS],
                       .context = context,
                       .interleaved = p[INTERLEAVED] != 0,
                       .norm = (int)p[NORM],
                       .own = p[OWN] != 0,
                       .norm_type = VT_F32};
    if (!rope_case_args(&sizes, arena, &seed, &a->rope))
        return NULL;
    vt_tensor *pool[2];
    for (int i = 0; i < 2; i++)
        pool[i] = case_tensor_4d(arena, (vt_dtype)p[POOL], case_batch_pages(b), p[KV_HEADS], page,
                                 d);
    a->store = (kv_store_args){.batch = b,
                               .k = a->rope.k,
                               .v = case_slice(arena, qkv, n_q + n_k, n_k),
                               .k_pool = pool[0],
                               .v_pool = pool[1],
                               .k_scale = p[SCALED] ? 0.25f : 1,
                               .v_scale = p[SCALED] ? 0.003f : 1};
    outputs[0] = a->rope.q;
    outputs[1] = pool[0];
    outputs[2] = pool[1];
    *n_outputs = p[LATENT] ? 2 : 3;
    if (!a->store.v || !pool[0] || !pool[1])
        return NULL;
    if (p[LATENT])
        a->store.v = a->store.v_pool = NULL;
    if (p[LATENT] == 2)
        a->latent_norm = case_fill(arena, case_tensor_1d(arena, VT_F32, d - p[DIMS]), 1, 0.3f,
                                   &seed);
    return p[LATENT] == 2 && !a->latent_norm ? NULL : a;
}

static void rope_store_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                             int64_t *p)
{
    const rope_store_args *a = args;
    const rope_args *r = &a->rope;
    (void)most_weights;
    p[DECODES] = case_decodes_of(batch ? batch : r->batch);
    p[TOKENS] = vt_batch_rows(r->q, batch) - p[DECODES];
    p[HEADS] = r->q->dim[1] / r->head_dim;
    p[KV_HEADS] = r->k->dim[1] / r->head_dim;
    p[HEAD_DIM] = r->head_dim;
    p[DIMS] = r->dims == r->head_dim ? 0 : r->dims;
    p[POOL] = a->store.k_pool->dtype;
    p[PAGE] = a->store.k_pool->dim[2];
    p[INTERLEAVED] = r->interleaved;
    p[NORM] = r->q_norm ? 1 + r->norm_after : 0;
    p[OWN] = r->q_cos_sin != NULL;
    p[LATENT] = a->store.v ? 0 : a->latent_norm ? 2 : 1;
}

static const vt_operand rope_store_operands[] = {
    {"batch", offsetof(rope_store_args, rope.batch), VT_OPERAND_BATCH, true, false, 0},
    {"batch", offsetof(rope_store_args, store.batch), VT_OPERAND_BATCH, true, false, 0},
    {"q", offsetof(rope_store_args, rope.q), VT_OPERAND_ACTIVATION, true, true, 0},
    {"k", offsetof(rope_store_args, rope.k), VT_OPERAND_ACTIVATION, true, true, 0},
    {"k", offsetof(rope_store_args, store.k), VT_OPERAND_ACTIVATION, true, true, 0},
    {"v", offsetof(rope_store_args, store.v), VT_OPERAND_ACTIVATION, true, false, 0},
    {"cos_sin", offsetof(rope_store_args, rope.cos_sin), VT_OPERAND_F32, true, false, 0},
    {"q_cos_sin", offsetof(rope_store_args, rope.q_cos_sin), VT_OPERAND_F32, true, false, 0},
    {"q_norm", offsetof(rope_store_args, rope.q_norm), VT_OPERAND_F32, true, false, 0},
    {"k_norm", offsetof(rope_store_args, rope.k_norm), VT_OPERAND_F32, true, false, 0},
    {"latent_norm", offsetof(rope_store_args, latent_norm), VT_OPERAND_F32, true, false, 0},
    {"k_pool", offsetof(rope_store_args, store.k_pool), VT_OPERAND_KV, true, true, 0},
    {"v_pool", offsetof(rope_store_args, store.v_pool), VT_OPERAND_KV, true, true, 0},
};

static const vt_impl *const rope_store_impls[] = {
    CPU_ROWS(rope_store),
    &rope_store_cuda_impl,
    &rope_store_cuda_latent_impl,
    &rope_store_cuda_any_impl,
    NULL,
};

static const vt_impl *const rope_store_variants[] = {
#if defined(__x86_64__)
    &rope_store_apart_avx512,
    &rope_store_apart_avx2,
#elif defined(__aarch64__)
    &rope_store_apart_neon,
#endif
    &rope_store_cuda_apart,
    NULL,
};

const vt_op rope_store_op = {
    CARD_OF(rope_store),
    .what = "rotates q and k by their positions and scatters K and V to their page slots",
    .tolerance = 2e-3,
    .tolerance_reason = "the rotated k is rounded to the pool's type, where its last fp32 bit may "
                        "decide a rounding: 2^-11 of F16, 2^-9 of BF16, 2^-4 of FP8",
    .refuses = rope_store_refuses,
    .variants = rope_store_variants,
};
