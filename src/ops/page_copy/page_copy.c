/* page_copy: the card, and the CPU's row: one memcpy for the slots of each head. */
#include "ops/page_copy/page_copy.h"

#include <string.h>

#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"

static int32_t pools_of(const page_copy_args *a) /* of a layer */ { return a->v ? 2 : 1; }

static int64_t slot_bytes(const page_copy_args *a) /* in one pool, all heads together */
{
    return a->k->dim[1] * vt_dtype_row_bytes(a->k->dtype, a->k->dim[3]);
}

static vt_cost page_copy_cost(const void *args, const vt_batch *batch)
{
    const page_copy_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    int64_t slots = 0;
    for (int32_t i = 0; i < b->n_copies; i++)
        slots += b->copies[i].n_tokens;
    int64_t bytes = pools_of(a) * slots * a->n_layers * slot_bytes(a);
    return (vt_cost){
        .read = {.kv = bytes, .activations = b->n_copies * (int64_t)sizeof(vt_page_copy)},
        .write = {.kv = bytes}};
}

static void copy_slots(const vt_tensor *pool, int64_t from, int64_t to, int64_t head,
                       int32_t n_tokens)
{
    int64_t row = vt_dtype_row_bytes(pool->dtype, pool->dim[3]), run = row * pool->dim[2];
    char *base = pool->data;
    memcpy(base + (to * pool->dim[1] + head) * run, base + (from * pool->dim[1] + head) * run,
           (size_t)(row * n_tokens));
}

/* Unit u is one head of one pool of one copy. */
static void copy_unit(const page_copy_args *a, int64_t u)
{
    int64_t heads = a->k->dim[1], pools = pools_of(a), per_copy = pools * a->n_layers * heads;
    const vt_page_copy *c = &a->batch->copies[u / per_copy];
    int64_t pool = u % per_copy / heads;
    copy_slots(pool % pools ? &a->v[pool / pools] : &a->k[pool / pools], c->from + a->first_page,
               c->to + a->first_page, u % heads, c->n_tokens);
}

static int64_t units_of(const page_copy_args *a)
{
    return (int64_t)pools_of(a) * a->batch->n_copies * a->n_layers * a->k->dim[1];
}

static void page_copy_reference(const void *args)
{
    for (int64_t u = 0; u < units_of(args); u++)
        copy_unit(args, u);
}

static vt_status page_copy_run(const void *args, const vt_lane *lane)
{
    int64_t begin, end;
    vt_lane_share(lane, units_of(args), 1, &begin, &end);
    for (int64_t u = begin; u < end; u++)
        copy_unit(args, u);
    return VT_OK;
}

/* ---- cases ---- */

enum { COPIES, TOKENS, LAYERS, KV_HEADS, HEAD_DIM, POOL, PAGE, V_IN_K };

static const vt_field page_copy_fields[] = {
    [COPIES] = {"copies", 1, false, 4096},       [TOKENS] = {"tokens", 15},
    [LAYERS] = {"layers", 28, false, 256},       [KV_HEADS] = {"kv_heads", 8, false, 512},
    [HEAD_DIM] = {"head_dim", 128, false, 1024}, [POOL] = {"kv_type", VT_F16, true},
    [PAGE] = {"page", 16, false, 1024},          [V_IN_K] = {"v_in_k", 0, false, 1},
};

static const char *page_copy_refuses(const vt_case *c)
{
    if (c->p[TOKENS] > c->p[PAGE])
        return "tokens: at most a page of them";
    return c->p[POOL] > VT_FP8_E4M3 ? "kv_type: f32, f16, bf16 or fp8" : NULL;
}

static const char *const page_copy_cases[] = {
    "*copies=1 tokens=15 layers=30 kv_heads=3 head_dim=64 page=16",
    "copies=3 tokens=5 layers=2 kv_heads=3 head_dim=20 page=7",
    "copies=2 tokens=1 layers=3 kv_heads=1 head_dim=8 kv_type=f32 page=16",
    "copies=1 tokens=16 layers=1 kv_heads=2 head_dim=128 kv_type=bf16 page=16",
    "copies=5 tokens=9 layers=2 kv_heads=2 head_dim=24 kv_type=fp8 page=16",
    "copies=3 tokens=9 layers=3 kv_heads=1 head_dim=40 page=16 v_in_k=1",
    NULL,
};

static const char *const page_copy_draws[] = {
    "copies=~9 tokens=1..64 layers=1..4 kv_heads=1..4 head_dim=64|128|24|13 kv_type=bf16|fp8 "
    "page=16|64|5",
    NULL,
};

static void *page_copy_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                 vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    int32_t n = (int32_t)p[COPIES], layers = (int32_t)p[LAYERS], pages = 2 * n + 1,
            each = p[V_IN_K] ? 1 : 2; /* pools of a layer */
    page_copy_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = vt_arena_alloc(arena, 1, sizeof *b);
    vt_page_copy *copy = vt_arena_alloc(arena, (size_t)n, sizeof *copy);
    vt_tensor *pool = vt_arena_alloc(arena, (size_t)(each * layers), sizeof *pool);
    /* all pools in one block, as in a KV cache: L0 K, L0 V, L1 K ... */
    vt_tensor *all = case_fill(arena,
                               case_tensor_4d(arena, (vt_dtype)p[POOL], each * layers * pages,
                                              p[KV_HEADS], p[PAGE], p[HEAD_DIM]),
                               0, 1, &seed);
    if (!a || !b || !copy || !pool || !all)
        return NULL;
    for (int32_t i = 0; i < n; i++)
        copy[i] = (vt_page_copy){2 * i, 2 * ((i + 1) % n) + 1, (int32_t)p[TOKENS]};
    int64_t bytes = vt_tensor_bytes(all) / (each * layers);
    for (int32_t i = 0; i < each * layers; i++) {
        vt_tensor *t = &pool[i % each * layers + i / each];
        *t = *all;
        t->dim[0] = pages;
        t->data = (char *)all->data + i * bytes;
    }
    *b = (vt_batch){.page_size = (int32_t)p[PAGE], .copies = copy, .n_copies = n};
    *a = (page_copy_args){
        .batch = b, .k = pool, .v = p[V_IN_K] ? NULL : pool + layers, .n_layers = layers};
    outputs[0] = all;
    *n_outputs = 1;
    return a;
}

static const vt_operand page_copy_operands[] = {
    {"batch", offsetof(page_copy_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"k", offsetof(page_copy_args, k), VT_OPERAND_KV_LAYERS, true, true,
     offsetof(page_copy_args, n_layers)},
    {"v", offsetof(page_copy_args, v), VT_OPERAND_KV_LAYERS, true, true,
     offsetof(page_copy_args, n_layers)},
};

static void page_copy_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const page_copy_args *a = args;
    int64_t copies = size ? size->copies : a->batch->n_copies;
    vt_cut_shape(out, "%lld pages, %d layers, %lld heads of %lld", (long long)copies, a->n_layers,
                 (long long)a->k->dim[1], (long long)a->k->dim[3]);
    vt_cut_cpu(out, t, pools_of(a) * copies * a->n_layers * a->k->dim[1], 0);
}

static const vt_impl page_copy_portable = {.name = "portable",
                                           .device = VT_DEVICE_CPU,
                                           .run = page_copy_run,
                                           .describe = page_copy_describe};

static const vt_impl *const page_copy_impls[] = {&page_copy_portable, &page_copy_cuda_impl, NULL};

const vt_op page_copy_op = {
    CARD_CALL(page_copy),
    .what = "copies the beginnings of KV pages to other pages, in every layer",
    .tolerance = 0,
    .tolerance_reason = "bytes are copied",
    .fields = page_copy_fields,
    .n_fields = sizeof page_copy_fields / sizeof *page_copy_fields,
    .refuses = page_copy_refuses,
    .cases = page_copy_cases,
    .draws = page_copy_draws,
    .make_args = page_copy_make_args,
    .no_shape = "hardly any step has copies, and one without them has no shape",
};
