/* Attention's rows for CUDA, and the launch of attention_decode.cu.
 *
 *   decode    split        attention_decode.cu: KV ranges of a sequence, merged by the last CTA
 *                          (variants with 1, 2, 4, 8 and 16 ranges: "whole", "splits-2" ...)
 *             fa3-tiles    attention_chunks_sm90.cu, with the sums of attention_prefill_sm90.cu,
 *                          or that kernel over one token's rows
 *             fa2-tiles    attention_prefill_sm80.cu, the same
 *             any          attention_any.cu (attention_any.c)
 *   prefill   fa3          attention_prefill_sm90.cu: wgmma, TMA
 *             fa2          attention_prefill_sm80.cu: mma.sync, cp.async
 *             any          attention_any.cu
 *
 * In deterministic programs the order of sums depends on positions alone. So a token has the same
 * bits whether it was decoded, or computed in a chunk after a retraction or in another request's
 * prompt. Decode and prefill must then use rows of one family. */
#include "ops/attention/attention_cuda.h"

#include <stdio.h>

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/knobs.h"
#include "ops/attention/attention_impls.h"
#include "ops/attention/attention_params.h"

/* The preset is the number of KV rows (tokens times kv_heads) from which on reading shared pages
 * only once is faster, measured on an H200. */
const vt_knob_row attention_shared_knob = {
    .env = "VITRINE_CUDA_SHARED",
    .number = true,
    .most = INT32_MAX,
    .preset = 1 << 18,
    .expected = "a number of KV rows from 0 to 2147483647",
    .help = "decodes read shared pages once where that saves this many KV rows; 0: never"};

attention_plan_config attention_plan_config_of(const attention_args *a, const vt_target *t,
                                               const vt_size *size, int32_t tile_rows)
{
    int32_t element = vt_dtype_get(a->k_pool->dtype)->bytes;
    attention_decode_shape few = attention_decode_shape_of(t, a->head_dim, element, ATTENTION_FEW),
                           many = attention_decode_shape_of(t, a->head_dim, element,
                                                            ATTENTION_FEW + 1);
    return (attention_plan_config){
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .sm_count = t->sm_count,
        .decode_tokens = size ? size->decode_tokens : 0,
        .deterministic = t->deterministic,
        .few = few,
        .narrow = many.warps < ATTENTION_SHARED_WARPS,
        .tile_rows = tile_rows,
        .shared_rows = (int32_t)vt_target_knob(t, &attention_shared_knob)};
}

bool attention_cuda_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const attention_args *a = args;
    int32_t d = a->head_dim;
    return (!a->sinks || a->sinks->dtype == VT_F32) && !a->v_dim && a->q->dtype == VT_BF16 &&
           cuda_is_kv(a->k_pool->dtype) && a->o->dtype == VT_BF16 && d % 16 == 0 && d <= 256 &&
           a->q->row_stride % 8 == 0 && a->o->row_stride % 8 == 0;
}

/* The tile kernel for Hopper needs whole swizzled rows, and pages that are TMA boxes. */
static bool sm90_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    const attention_args *a = args;
    int64_t page = a->k_pool->dim[2];
    bool tiles = a->head_dim == 64 || a->head_dim == 128 || a->head_dim == 256;
    return attention_cuda_supports(a, t, upto) && tiles && (page == 16 || page == 32 || page == 64);
}

vt_size attention_size_of(const attention_args *a, const vt_size *size)
{
    if (size)
        return *size;
    const vt_batch *b = a->batch;
    return (vt_size){.tokens = b->n_tokens,
                     .seqs = b->n_seqs,
                     .decodes = b->n_decode,
                     .decode_tokens = vt_decode_tokens(b),
                     .prefills = b->n_seqs - b->n_decode};
}

/* ---- the split decode kernel ---- */

static uint64_t split_key(const void *args)
{
    const attention_args *a = args;
    return (uint64_t)a->k_pool->dtype << 48 | (uint64_t)a->heads << 32 |
           (uint64_t)a->kv_heads << 16 | (uint64_t)a->head_dim;
}

static int32_t split_items(const void *args, const vt_target *t, const vt_size *size,
                           const vt_batch *batch)
{
    (void)batch;
    attention_plan_config c = attention_plan_config_of(args, t, size, 0);
    return size->decodes == 0 ? 0
                              : attention_decode_capacity(&c, size->decodes, t->limits.max_context);
}

static size_t split_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t;
    return attention_decode_plan_ints(items, items ? size->seqs : 0) * sizeof(int32_t);
}

static int32_t split_fill(const void *args, const vt_target *t, const vt_size *size,
                          const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)side;
    attention_plan_config c = attention_plan_config_of(args, t, size, 0);
    int32_t n = attention_decode_fill(&c, batch, out, items);
    if (n + size->pad_seqs > items)
        return n + size->pad_seqs;
    for (int32_t i = 0; i < size->pad_seqs; i++)
        n += attention_decode_single(&c, batch->n_seqs + i, out, n);
    return n;
}

/* SPLIT_SHARED: the plan has items of several sequences, for which the kernel has an instance. */
enum { SPLIT_OWN, SPLIT_SHARED, SPLIT_VARIANTS };

static int32_t split_variant(const void *args, const vt_target *t, const vt_size *size,
                             const vt_batch *batch)
{
    attention_plan_config c = attention_plan_config_of(args, t, size, 0);
    return attention_shares(&c, batch) ? SPLIT_SHARED : SPLIT_OWN;
}

static int32_t split_shared(const void *plan, int32_t items)
{
    return attention_shared_items(plan, items);
}

static const vt_host_plan split_plan = {.name = "KV ranges",
                                        .key = split_key,
                                        .items = split_items,
                                        .bytes = split_bytes,
                                        .variant = split_variant,
                                        .n_variants = SPLIT_VARIANTS,
                                        .fill = split_fill,
                                        .shared = split_shared};

static size_t split_workspace(const void *args, const vt_target *t)
{
    const attention_args *a = args;
    vt_size most = vt_size_most(&t->limits);
    attention_plan_config one = attention_plan_config_of(a, t, NULL, 0),
                          several = attention_plan_config_of(a, t, &most, 0);
    int32_t seqs = t->limits.max_seqs, context = t->limits.max_context;
    size_t for_one = attention_decode_workspace(
        &one, attention_decode_capacity(&one, seqs, context), a->head_dim);
    size_t for_several = attention_decode_workspace(
        &several, attention_decode_capacity(&several, seqs, context), a->head_dim);
    return for_one > for_several ? for_one : for_several;
}

static int64_t split_tickets(const void *args, const vt_target *t)
{
    return (int64_t)t->limits.max_seqs * ((const attention_args *)args)->heads;
}

/* Returns true if the kernel can make what a->before makes: attention_turn.cuh. Heads of 256 with a
 * tile's second half would spill registers. */
static bool can_turn(const attention_args *a)
{
    const rope_args *r = &a->before.rope;
    int32_t d = a->head_dim, group = a->heads / a->kv_heads;
    return r->q && r->dims == d && !r->interleaved && (d == 64 || d == 128 || d == 256) &&
           group < (d == 256 ? 8 : 16) && rope_store_cuda_impl.supports(&a->before, NULL, NULL);
}

/* The kernel rotates decodes of one token where nothing else of the step reads what rope_store
 * makes, and up to so many of them: with more than one CTA after the other on an SM, each waits for
 * its q.
 * Whole steps so and with rope_store's kernel, ms (H200, 128 tokens before it; 4B 256):
 *
 *            0.6B             4B                8B               8B in Q4_K
 *    1       0.467 / 0.516                      3.81 / 3.84      1.66 / 1.70
 *    4       0.552 / 0.581
 *    8       0.648 / 0.643    2.557 / 2.548     4.12 / 4.10      2.46 / 2.45
 *   16       0.753 / 0.756    3.093 / 3.194     4.63 / 4.71      3.58 / 3.65
 *   64       1.203 / 1.164    3.673 / 3.666     5.18 / 5.13 */
enum { TURN_MOST = 16 };

static bool split_makes(const void *args, const vt_size *size)
{
    return size->decodes > 0 && size->decodes <= TURN_MOST && size->prefills == 0 &&
           size->decode_tokens <= 1 && can_turn(args);
}

static vt_cost split_before_cost(const void *args, const vt_batch *batch)
{
    const attention_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    vt_size size = {.decodes = b->n_decode,
                    .prefills = b->n_seqs - b->n_decode,
                    .decode_tokens = vt_decode_tokens(b)};
    if (!split_makes(a, &size))
        return (vt_cost){0};
    vt_cost c = rope_store_op.cost(&a->before, batch);
    int64_t q = vt_batch_rows(a->q, b) * vt_dtype_row_bytes(a->q->dtype, a->q->dim[1]);
    c.read.activations -= q; /* which attention counts */
    c.write.activations -= q;
    return c;
}

/* A plan's launch. */
typedef struct split_form {
    attention_decode_shape shape;
    int32_t rows; /* of a slot, for each KV head */
    bool turns;   /* the kernel makes what a->before makes */
    cuda_launch launch;
} split_form;

static split_form split_form_of(const attention_args *a, const vt_target *t, const vt_size *size,
                                int32_t items, int32_t variant)
{
    attention_plan_config c = attention_plan_config_of(a, t, size, 0);
    int32_t group = a->heads / a->kv_heads, element = vt_dtype_get(a->k_pool->dtype)->bytes,
            decodes = size->decodes, rows = attention_decode_rows(&c);
    attention_decode_shape k = attention_decode_shape_of(t, a->head_dim, element, decodes);
    bool multi = c.decode_tokens > 1;
    int32_t tile = group < 16 && !multi ? group : 16, tiles = (int32_t)vt_ceil_div(rows, 16);
    uint32_t ring = (uint32_t)attention_decode_ring_bytes(k, a->head_dim, element);
    uint32_t merge = (uint32_t)(k.warps * tile * (a->head_dim + 2) * 4);
    /* With FP8, an SM has room for three CTAs. For few sequences the plan makes two CTAs per SM,
     * which the GPU does not spread evenly if there is room for a third (32 x 4096: 103 us instead
     * of 81). In that case a CTA asks for so much shared memory that only two fit. */
    bool two = (int64_t)decodes * a->kv_heads * tiles < 12 * t->sm_count;
    bool shared = variant == SPLIT_SHARED && attention_may_share(&c, decodes);
    const rope_args *rope = &a->before.rope;
    int32_t turn = shared || !split_makes(a, size) ? 0 : !rope->q_norm ? 1 : 2 + rope->norm_after;
    uint32_t least = element == 1 && two ? 77 << 10 : 0, most = ring > merge ? ring : merge;
    return (split_form){
        .shape = k,
        .rows = rows,
        .turns = turn > 0,
        .launch = {.spec = JIT_SPEC("attention_decode.cu", "attention_decode",
                                    {"head_dim", a->head_dim}, {"group", group},
                                    {"kv_heads", a->kv_heads}, {"page", (int32_t)a->k_pool->dim[2]},
                                    {"warps", k.warps}, {"stages", k.stages},
                                    {"windowed", a->window > 0}, {"fp8", element == 1},
                                    {"shared", shared}, {"multi", multi},
                                    {"sinks", a->sinks != NULL}, {"cap", a->cap > 0},
                                    {"turn", turn}, {"plus_one", turn > 1 && rope->plus_one}),
                   .grid = {(uint32_t)a->kv_heads, (uint32_t)(multi ? items * tiles : items),
                            (uint32_t)(multi ? 1 : tiles)},
                   .threads = (uint32_t)k.warps * 32,
                   .shared_bytes = most > least ? most : least}};
}

static attention_turn_params turn_params(const rope_store_args *a)
{
    const rope_args *r = &a->rope;
    return (attention_turn_params){.k = r->k->data,
                                   .v = a->store.v->data,
                                   .k_pool = a->store.k_pool->data,
                                   .v_pool = a->store.v_pool->data,
                                   .slot = a->store.batch->slot,
                                   .cos_sin = r->cos_sin->data,
                                   .q_cos_sin = (r->q_cos_sin ? r->q_cos_sin : r->cos_sin)->data,
                                   .q_norm = r->q_norm ? r->q_norm->data : NULL,
                                   .k_norm = r->k_norm ? r->k_norm->data : NULL,
                                   .k_stride = (int32_t)r->k->row_stride,
                                   .v_stride = (int32_t)a->store.v->row_stride,
                                   .eps = r->eps,
                                   .k_inverse = 1 / a->store.k_scale,
                                   .v_inverse = 1 / a->store.v_scale};
}

/* A step that shares pages runs the call in front by itself: no instance has code for both. */
static vt_status split_run(const void *args, const vt_lane *lane)
{
    const attention_args *a = args;
    const vt_target *t = lane->target;
    int32_t items = lane->items;
    attention_plan_config c = attention_plan_config_of(a, t, lane->size, 0);
    split_form f = split_form_of(a, t, lane->size, items, lane->variant);
    const attention_decode_item *item = lane->plan;
    size_t states = (size_t)attention_decode_slots(&c, items) * (size_t)(a->kv_heads * f.rows);
    attention_decode_params p = {ATTENTION_PARAMS(a),
                                 .items = item,
                                 .members = (const attention_decode_member *)(item + items),
                                 .state = lane->workspace,
                                 .partial = (float *)lane->workspace + vt_round_up(states * 2, 32),
                                 .tickets = lane->tickets,
                                 .rows = f.rows};
    if (f.turns) {
        p.q = a->before.rope.q->data;
        p.q_stride = (int32_t)a->before.rope.q->row_stride;
        p.turn = turn_params(&a->before);
    } else if (split_makes(a, lane->size)) {
        TRY(rope_store_cuda_impl.run(&a->before, lane));
    }
    return vt_cuda_launch(lane->cuda, &f.launch, &p, sizeof p);
}

int64_t attention_decode_tokens(const vt_size *size)
{
    return (int64_t)size->decodes * (size->decode_tokens > 1 ? size->decode_tokens : 1);
}

void attention_cut_shape(const attention_args *a, int64_t seqs, int64_t tokens, vt_cut *out)
{
    vt_cut_shape(out, "%lld tokens of %lld sequences, %d/%d heads of %d", (long long)tokens,
                 (long long)seqs, a->heads, a->kv_heads, a->head_dim);
}

/* Describes the most items that a batch of this size can have. How many it really has depends on
 * the lengths of its KV. */
static void describe_items(const attention_args *a, const vt_target *t, const vt_size *size,
                           const vt_host_plan *plan, vt_cut *out)
{
    vt_size of = attention_size_of(a, size);
    split_form f = split_form_of(a, t, &of, plan->items(a, t, &of, NULL), SPLIT_OWN);
    attention_cut_shape(a, of.decodes, attention_decode_tokens(&of), out);
    out->tile[0] = 16;
    out->tile[1] = a->head_dim;
    out->tile[2] = f.shape.warps * DECODE_BLOCK;
    out->split = of.decodes > 0 ? (int32_t)vt_ceil_div(f.launch.grid[1], of.decodes) : 0;
    char roles[sizeof out->roles];
    snprintf(roles, sizeof roles, "%d warps, a ring of KV each%s", f.shape.warps,
             f.turns ? "; they rotate q and k" : "");
    vt_cut_roles(out, roles, "last CTA of a sequence");
    vt_cut_grid(out, t, &f.launch, 16);
}

static void split_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    describe_items(args, t, size, &split_plan, out);
}

/* ---- variants: a given number of ranges ---- */

static size_t given_workspace(const attention_args *a, const vt_target *t, int32_t splits)
{
    vt_size most = vt_size_most(&t->limits);
    attention_plan_config c = attention_plan_config_of(a, t, &most, 0);
    return attention_decode_workspace(&c, splits * t->limits.max_seqs, a->head_dim);
}

/* Variants that are never chosen: the split kernel with N ranges for each decode, however long its
 * KV is. They show what cutting KV into ranges gains and what the merge costs, and whether the plan
 * chooses well. A row of a card has functions and no data, so each number needs functions of its
 * own.
 *
 * One range ("whole") gives one sequence of 8,192 tokens with 8 KV heads 8 CTAs of work; the plan
 * cuts it into 132. H200, 32 heads of 128, BF16, whole and as planned: one sequence of 8,192 tokens
 * 60 and 20 us, 32 sequences of 4,096 133 and 135, 256 of 1,024 254 and 254. */
#define SPLITS(N, LABEL)                                                                 \
    static int32_t items_##N(const void *args, const vt_target *t, const vt_size *size,  \
                             const vt_batch *batch)                                      \
    {                                                                                    \
        (void)args, (void)t, (void)batch;                                                \
        return N * size->decodes;                                                        \
    }                                                                                    \
    static int32_t fill_##N(const void *args, const vt_target *t, const vt_size *size,   \
                            const vt_batch *batch, int32_t items, void *out, void *side) \
    {                                                                                    \
        (void)args, (void)t, (void)side;                                                 \
        return attention_decode_fill_splits(batch, size->pad_seqs, N, out, items);       \
    }                                                                                    \
    static const vt_host_plan plan_##N = {.name = #N " KV ranges a decode",              \
                                          .key = split_key,                              \
                                          .items = items_##N,                            \
                                          .bytes = split_bytes,                          \
                                          .fill = fill_##N};                             \
    static size_t workspace_##N(const void *args, const vt_target *t)                    \
    {                                                                                    \
        return given_workspace(args, t, N);                                              \
    }                                                                                    \
    static void describe_##N(const void *args, const vt_target *t, const vt_size *size,  \
                             vt_cut *out)                                                \
    {                                                                                    \
        describe_items(args, t, size, &plan_##N, out);                                   \
    }                                                                                    \
    const vt_impl attention_decode_splits_##N = {.name = LABEL,                          \
                                                 .device = VT_DEVICE_CUDA,               \
                                                 .supports = attention_cuda_supports,    \
                                                 .run = split_run,                       \
                                                 .describe = describe_##N,               \
                                                 .plan = &plan_##N,                      \
                                                 .makes_before = split_makes,            \
                                                 .before_cost = split_before_cost,       \
                                                 .workspace = workspace_##N,             \
                                                 .tickets = split_tickets}

SPLITS(1, "whole");
SPLITS(2, "splits-2");
SPLITS(4, "splits-4");
SPLITS(8, "splits-8");
SPLITS(16, "splits-16");

/* ---- the tile kernels ---- */

static size_t chunks_workspace(const attention_args *a, const vt_target *t, int32_t tile_rows)
{
    vt_size most = vt_size_most(&t->limits);
    attention_plan_config c = attention_plan_config_of(a, t, &most, tile_rows);
    return attention_decode_workspace(
        &c, attention_chunks_capacity(&c, t->limits.max_seqs, t->limits.max_context), a->head_dim);
}

static size_t chunks_64_workspace(const void *args, const vt_target *t)
{
    return chunks_workspace(args, t, ATTENTION_PREFILL_ROWS);
}

static size_t chunks_128_workspace(const void *args, const vt_target *t)
{
    return chunks_workspace(args, t, attention_chunk_rows_sm90(args));
}

static size_t ranges_workspace(const void *args, const vt_target *t)
{
    const attention_args *a = args;
    attention_plan_config c = attention_plan_config_of(a, t, NULL, ATTENTION_PREFILL_ROWS_SM90);
    return attention_ranges_workspace(&c, a->head_dim);
}

/* The tile kernels serve both cards. A row has functions and no data, so each has its own. */
#define TILES(row, kernel, decode)                                                        \
    static void row##_describe(const void *args, const vt_target *t, const vt_size *size, \
                               vt_cut *out)                                               \
    {                                                                                     \
        attention_prefill_##kernel##_describe(args, t, size, decode, out);                \
    }                                                                                     \
    static vt_status row##_run(const void *args, const vt_lane *lane)                     \
    {                                                                                     \
        return attention_prefill_##kernel##_run(args, lane, decode);                      \
    }
TILES(fa2_decode, sm80, true)
TILES(fa3_decode, sm90, true)
TILES(fa2_prefill, sm80, false)
TILES(fa3_prefill, sm90, false)

const vt_impl attention_decode_split = {CUDA_ROW("split", split, attention_cuda_supports),
                                        .family = "fa2",
                                        .makes_before = split_makes,
                                        .before_cost = split_before_cost,
                                        .plan = &split_plan,
                                        .workspace = split_workspace,
                                        .tickets = split_tickets};
const vt_impl attention_decode_fa3 = {CUDA_ROW("fa3-tiles", fa3_decode, sm90_supports),
                                      .family = "fa3",
                                      .level = 90,
                                      .fixed_order = true,
                                      .plan = &attention_chunks_128,
                                      .workspace = chunks_128_workspace,
                                      .tickets = split_tickets};
const vt_impl attention_decode_fa2 = {CUDA_ROW("fa2-tiles", fa2_decode, attention_cuda_supports),
                                      .family = "fa2",
                                      .fixed_order = true,
                                      .plan = &attention_chunks_64,
                                      .workspace = chunks_64_workspace,
                                      .tickets = split_tickets};
const vt_impl attention_prefill_fa3 = {CUDA_ROW("fa3", fa3_prefill, sm90_supports),
                                       .family = "fa3",
                                       .level = 90,
                                       .fixed_order = true,
                                       .plan = &attention_tiles_128,
                                       .workspace = ranges_workspace};
const vt_impl attention_prefill_fa2 = {CUDA_ROW("fa2", fa2_prefill, attention_cuda_supports),
                                       .family = "fa2", .fixed_order = true,
                                       .plan = &attention_tiles_64};
