/* KV store: the card, its portable form and the reference. The op moves data and rounds it: per
 * element it reads 4 bytes and writes 2 (16-bit pool) or 1 (FP8). Writes are scattered by rows of
 * head_dim elements, which is at least a cache line in all models that we know. */
#include "ops/kv_store/kv_store.h"

#include <stdlib.h>

#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/kv_store/kv_store_impls.h"
#include "ops/simd_portable.h"
#include "ops/kv_store/kv_store_kernel.h"

static vt_cost kv_store_cost(const void *args, const vt_batch *batch)
{
    const kv_store_args *a = args;
    int64_t tokens = (batch ? batch : a->batch)->n_tokens,
            n = tokens * (a->k->dim[1] + (a->v ? a->v->dim[1] : 0));
    return (vt_cost){
        .read = {.activations = vt_dtype_row_bytes(a->k->dtype, n) +
                                tokens * (int64_t)sizeof(int32_t)},
        .write = {.kv = vt_dtype_row_bytes(a->k_pool->dtype, n)},
    };
}

static void kv_store_reference(const void *args)
{
    const kv_store_args *a = args;
    int64_t heads = a->k_pool->dim[1], page_size = a->k_pool->dim[2], d = a->k_pool->dim[3];
    float k_inverse = 1 / a->k_scale, v_inverse = 1 / a->v_scale;
    for (int64_t t = 0; t < a->batch->n_tokens; t++) {
        int64_t page = a->batch->slot[t] / page_size, offset = a->batch->slot[t] % page_size;
        for (int64_t h = 0; h < heads; h++) {
            int64_t row = (page * heads + h) * page_size + offset; /* row_stride is head_dim */
            for (int64_t i = 0; i < d; i++) {
                tensor_set(a->k_pool, row, i, tensor_get(a->k, t, h * d + i) * k_inverse);
                if (a->v)
                    tensor_set(a->v_pool, row, i, tensor_get(a->v, t, h * d + i) * v_inverse);
            }
        }
    }
}

enum { TOKENS, DECODES, KV_HEADS, HEAD_DIM, POOL, PAGE, K_SCALE, V_SCALE, SLOTS, V_IN_K };

/* Patterns of slots: see give_slots. The last one is refused. */
enum { SEQUENTIAL, RANDOM, SORTED, REPEATED };
static const char *const slots_words[] = {"sequential", "random", "sorted", "repeated", NULL};

static const vt_field kv_store_fields[] = {
    [TOKENS] = {"tokens", 1, .grows = VT_GROWS_TOKENS},
    [DECODES] = {"decodes", 0, false, 4096, .grows = VT_GROWS_SEQS},
    [KV_HEADS] = {"kv_heads", 8, false, 512},
    [HEAD_DIM] = {"head_dim", 128, false, 1024},
    [POOL] = {"kv_type", VT_BF16, true},
    [PAGE] = {"page", 64, false, 1024},
    [K_SCALE] = {"k_scale", 0, false, 100000000},
    [V_SCALE] = {"v_scale", 0, false, 100000000},
    [SLOTS] = {"slots", SEQUENTIAL, false, REPEATED, slots_words},
    [V_IN_K] = {"v_in_k", 0, false, 1},
};

static const char *kv_store_refuses(const vt_case *c)
{
    if (c->p[SLOTS] == REPEATED)
        return "slots: two tokens with one slot would leave there what is written last";
    if ((c->p[K_SCALE] || c->p[V_SCALE]) && c->p[POOL] != VT_FP8_E4M3)
        return "k_scale, v_scale: of an fp8 pool only";
    return c->p[POOL] > VT_FP8_E4M3 ? "kv_type: f32, f16, bf16 or fp8" : NULL;
}

/* tokens: of a prefill, with decodes in the same batch; k_scale and v_scale: in thousandths, 0 for
 * a scale of 1 */
static const char *const kv_store_cases[] = {
    "*tokens=1 kv_heads=3 head_dim=64 kv_type=f16 page=16",
    "*tokens=512 kv_heads=3 head_dim=64 kv_type=f16 page=16",
    "*tokens=512 kv_heads=8 head_dim=128 kv_type=f16 page=16",
    "*tokens=512 kv_heads=8 head_dim=128 kv_type=f32 page=16",
    "tokens=33 decodes=5 kv_heads=3 head_dim=20 kv_type=f16 page=7",
    "tokens=9 decodes=2 kv_heads=1 head_dim=256 page=16",
    "tokens=4 kv_heads=2 head_dim=40 kv_type=f32 page=64",
    "tokens=33 decodes=5 kv_heads=3 head_dim=20 kv_type=fp8 page=7",
    "tokens=70 kv_heads=2 head_dim=64 kv_type=fp8 page=16 k_scale=37000 v_scale=3",
    "tokens=70 kv_heads=2 head_dim=64 page=16 slots=random",
    "tokens=33 decodes=5 kv_heads=3 head_dim=64 kv_type=fp8 page=7 slots=sorted",
    "*tokens=512 kv_heads=1 head_dim=576 kv_type=f16 page=16 v_in_k=1",
    "tokens=33 decodes=5 kv_heads=1 head_dim=40 page=7 v_in_k=1",
    NULL,
};

static const char *const kv_store_draws[] = {
    "tokens=~90 decodes=0..5 kv_heads=1..4 head_dim=64|128|256|96|24|13 page=16|64|5",
    "tokens=~90 decodes=0..5 kv_heads=1..4 head_dim=64|128|256|96|24|13 kv_type=fp8 page=16|64|5 "
    "k_scale=0|3|250|37000|1000000 v_scale=0|3|250|37000|1000000",
    NULL,
};

enum { SPARSE = 4 };

static int rising(const void *a, const void *b)
{
    return (*(const int32_t *)a > *(const int32_t *)b) -
           (*(const int32_t *)a < *(const int32_t *)b);
}

/* Gives the tokens slots of a pool of n_slots.
 *
 *   sequential   neighbours in a sequence are neighbours on a page, as case_batch has made them
 *   random       any slots, each once
 *   sorted       the same slots in rising order */
static bool give_slots(vt_batch *b, int64_t pattern, int32_t n_slots, vt_arena *arena,
                       uint64_t *seed)
{
    if (pattern == SEQUENTIAL)
        return true;
    int32_t *slot = (int32_t *)(uintptr_t)b->slot,
            *deck = vt_arena_alloc(arena, (size_t)n_slots, sizeof *deck);
    if (!deck)
        return false;
    for (int32_t i = 0; i < n_slots; i++)
        deck[i] = i;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        int32_t k = i + (int32_t)(case_random(seed) % (uint64_t)(n_slots - i));
        slot[i] = deck[k];
        deck[k] = deck[i];
    }
    if (pattern == SORTED)
        qsort(slot, (size_t)b->n_tokens, sizeof *slot, rising);
    return true;
}

static void *kv_store_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    int32_t n_seqs = (int32_t)c->p[DECODES] + 1, page_size = (int32_t)c->p[PAGE];
    case_seq *seq = vt_arena_alloc(arena, (size_t)n_seqs, sizeof *seq);
    kv_store_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    if (!seq || !a)
        return NULL;
    for (int32_t s = 0; s < n_seqs - 1; s++)
        seq[s] = (case_seq){1, 3 + 11 * s};
    seq[n_seqs - 1] = (case_seq){(int32_t)c->p[TOKENS], (int32_t)c->p[TOKENS] + 5};
    vt_batch *b = case_batch(arena, page_size, n_seqs, seq, true, 100, &seed);
    int64_t width = c->p[KV_HEADS] * c->p[HEAD_DIM];
    vt_tensor *kv = b ? case_fill(arena, case_tensor_2d(arena, VT_F32, b->n_tokens, 2 * width), 0,
                                  1, &seed)
                      : NULL;
    if (!kv)
        return NULL;
    /* a pool has slots to spare if tokens take any of them */
    int32_t pages = case_batch_pages(b) * (c->p[SLOTS] == SEQUENTIAL ? 1 : SPARSE);
    if (!give_slots(b, c->p[SLOTS], pages * page_size, arena, &seed))
        return NULL;
    *a = (kv_store_args){
        .batch = b,
        .k = case_slice(arena, kv, 0, width),
        .v = case_slice(arena, kv, width, width),
        .k_scale = c->p[K_SCALE] ? (float)c->p[K_SCALE] / 1000 : 1,
        .v_scale = c->p[V_SCALE] ? (float)c->p[V_SCALE] / 1000 : 1,
    };
    a->k_pool = case_tensor_4d(arena, (vt_dtype)c->p[POOL], pages, c->p[KV_HEADS], page_size,
                               c->p[HEAD_DIM]);
    outputs[0] = a->k_pool;
    *n_outputs = 1;
    if (c->p[V_IN_K]) {
        a->v = NULL;
        return a->k && a->k_pool ? a : NULL;
    }
    a->v_pool = case_tensor_4d(arena, (vt_dtype)c->p[POOL], pages, c->p[KV_HEADS], page_size,
                               c->p[HEAD_DIM]);
    outputs[1] = a->v_pool;
    *n_outputs = 2;
    return a->k && a->v && a->k_pool && a->v_pool ? a : NULL;
}

static void kv_store_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                           int64_t *p)
{
    const kv_store_args *a = args;
    (void)most_weights;
    p[DECODES] = case_decodes_of(batch ? batch : a->batch);
    p[TOKENS] = vt_batch_rows(a->k, batch) - p[DECODES];
    p[KV_HEADS] = a->k_pool->dim[1];
    p[HEAD_DIM] = a->k_pool->dim[3];
    p[POOL] = a->k_pool->dtype;
    p[PAGE] = a->k_pool->dim[2];
    p[V_IN_K] = a->v == NULL;
}

static const vt_impl *const kv_store_impls[] = {
    CPU_ROWS(kv_store),
    &kv_store_cuda_impl,
    &kv_store_cuda_any_impl,
    NULL,
};

static const vt_impl *const kv_store_variants[] = {&kv_store_k_then_v, &kv_store_async,
                                                   &kv_store_by_slot, NULL};

static const vt_operand kv_store_operands[] = {
    {"batch", offsetof(kv_store_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"k", offsetof(kv_store_args, k), VT_OPERAND_ACTIVATION, true, false, 0},
    {"v", offsetof(kv_store_args, v), VT_OPERAND_ACTIVATION, true, false, 0},
    {"k_pool", offsetof(kv_store_args, k_pool), VT_OPERAND_KV, true, true, 0},
    {"v_pool", offsetof(kv_store_args, v_pool), VT_OPERAND_KV, true, true, 0},
};

const vt_op kv_store_op = {
    CARD_OF(kv_store),
    .what = "scatters the new K and V rows to their page slots",
    .tolerance = 0,
    .tolerance_reason = "one rounding to nearest even, the same everywhere",
    .refuses = kv_store_refuses,
    .variants = kv_store_variants,
};
