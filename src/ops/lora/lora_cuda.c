/* lora on CUDA: see lora.cu. Two rows of one kernel:
 *
 *   cluster   sm_90, up to CLUSTER_TOKENS tokens: eight CTAs of a cluster share the first product
 *             of an item
 *   alone     each CTA makes all of it, which takes longer, and fewer CTAs do the same work
 *
 * Both add in one order. CTAs of an item share the second product's columns.
 *
 * The plan of a step says which tokens have which adapter. All calls share it. A step in which no
 * sequence has an adapter has no items, and launches nothing. */
#include "ops/lora/lora.h"

#include <string.h>

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/lora/lora_impls.h"
#include "ops/lora/lora_params.h"

enum { CLUSTER = 8, CLUSTER_TOKENS = 1024, THREADS = 256, CTA_COLUMNS = 8 * 64 };

/* ---- the plan: items, then the tokens in their order ---- */

static bool any_adapter(const lora_args *a, const vt_batch *b)
{
    for (int32_t s = 0; s < b->n_seqs; s++)
        if (lora_of_seq(a, b, s) > 0)
            return true;
    return false;
}

/* As many as a batch of this size can need: each adapter's tokens are cut for themselves. It does
 * not depend on the batch, so that a graph serves all batches with adapters. */
static int32_t plan_items(const void *args, const vt_target *t, const vt_size *size,
                          const vt_batch *batch)
{
    (void)t;
    const lora_args *a = args;
    if (batch && !any_adapter(a, batch))
        return 0;
    int32_t most = size->tokens / LORA_ITEM_TOKENS + a->n;
    return most < size->tokens ? most : size->tokens;
}

static size_t plan_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t;
    size_t tokens = vt_round_up((size_t)size->tokens * sizeof(int32_t), 16);
    return items > 0 ? (size_t)items * sizeof(lora_item) + tokens : 0;
}

/* Appends the tokens of adapter k's sequences; returns how many there are then. */
static int32_t append_tokens(const lora_args *a, const vt_batch *b, int32_t k, int32_t *token,
                             int32_t n)
{
    for (int32_t s = 0; s < b->n_seqs; s++)
        for (int32_t i = b->q_start[s]; lora_of_seq(a, b, s) == k && i < b->q_start[s + 1]; i++)
            token[n++] = i;
    return n;
}

static int32_t plan_fill(const void *args, const vt_target *t, const vt_size *size,
                         const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)side;
    const lora_args *a = args;
    lora_item *item = out;
    int32_t *token = (int32_t *)(item + items), n_tokens = 0, n = 0;
    memset(out, 0, plan_bytes(args, t, size, items));
    for (int32_t k = 1; k <= a->n && items > 0; k++) {
        int32_t first = n_tokens;
        n_tokens = append_tokens(a, batch, k, token, n_tokens);
        for (; first < n_tokens; first += LORA_ITEM_TOKENS, n++) {
            int32_t left = n_tokens - first;
            if (n < items)
                item[n] = (lora_item){k, first, left < LORA_ITEM_TOKENS ? left : LORA_ITEM_TOKENS,
                                      0};
        }
    }
    return n;
}

static const vt_host_plan lora_plan = {
    .name = "adapters", .items = plan_items, .bytes = plan_bytes, .fill = plan_fill};

/* ---- launches ---- */

static bool supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const lora_args *a = args;
    for (int32_t i = 0; i < a->n_parts; i++) {
        const lora_part *p = &a->part[i];
        if (p->a->dtype != VT_BF16 || p->b->dtype != VT_BF16 || p->y->dtype != VT_BF16 ||
            p->a->row_stride != p->a->dim[1] || p->b->row_stride != p->b->dim[1])
            return false;
    }
    return a->x->dtype == VT_BF16 && a->n <= LORA_ADAPTERS;
}

static bool cluster_suits(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)args, (void)t;
    return upto->tokens <= CLUSTER_TOKENS;
}

/* Returns true if a tensor's rows are 16-byte vectors. */
static bool has_vectors(const vt_tensor *t)
{
    return cuda_vectors_of_8(t->dim[1], t->row_stride) && (uintptr_t)t->data % 16 == 0;
}

/* Floats of a token's sums in shared memory: whole tiles of 16 ranks, and four that shift banks. */
static int32_t sum_stride(const lora_args *a)
{
    int32_t most = 1;
    for (int32_t i = 0; i < a->n_parts; i++)
        most = a->part[i].most_rank > most ? a->part[i].most_rank : most;
    return (int32_t)vt_round_up((size_t)most, 16) + 4;
}

static cuda_launch launch_of(const lora_args *a, const vt_target *t, int32_t items, bool cluster)
{
    bool vectors = has_vectors(a->x);
    int64_t rows = 0;
    for (int32_t i = 0; i < a->n_parts; i++) {
        vectors = vectors && has_vectors(a->part[i].y);
        rows = a->part[i].y->dim[1] > rows ? a->part[i].y->dim[1] : rows;
    }
    uint32_t ctas = cuda_blocks(rows, CTA_COLUMNS), most = cluster ? 4 * CLUSTER : CLUSTER;
    if (cluster)
        ctas = (uint32_t)vt_round_up(ctas, CLUSTER);
    if (ctas > most)
        ctas = most;
    if (items * a->n_parts * (cluster ? CLUSTER : 1) >= t->sm_count)
        ctas = cluster ? CLUSTER : 1;
    return (cuda_launch){.spec = JIT_SPEC("lora.cu", "lora", {"split", cluster ? CLUSTER : 1},
                                          {"vec", vectors ? 8 : 1}),
                         .grid = {ctas, (uint32_t)items, (uint32_t)a->n_parts},
                         .threads = THREADS,
                         .shared_bytes = 2 * LORA_ITEM_TOKENS * (uint32_t)sum_stride(a) *
                                         sizeof(float),
                         .cluster = cluster ? CLUSTER : 0};
}

static lora_part_params part_params(const lora_args *a, const lora_part *p)
{
    lora_part_params out = {.a = p->a->data,
                            .b = p->b->data,
                            .y = p->y->data,
                            .y_stride = (int32_t)p->y->row_stride,
                            .rows = (int32_t)p->y->dim[1]};
    for (int32_t k = 0; k <= a->n; k++)
        out.first[k] = p->first[k];
    for (int32_t k = 0; k < a->n; k++)
        out.scale[k] = a->factor * p->scale[k];
    return out;
}

static vt_status run(const void *args, const vt_lane *lane, bool cluster)
{
    const lora_args *a = args;
    if (lane->items == 0)
        return VT_OK;
    cuda_launch l = launch_of(a, lane->target, lane->items, cluster);
    lora_params p = {.x = a->x->data,
                     .items = lane->plan,
                     .tokens = (const int32_t *)((const lora_item *)lane->plan + lane->items),
                     .x_stride = (int32_t)a->x->row_stride,
                     .cols = (int32_t)a->x->dim[1],
                     .sum_stride = sum_stride(a)};
    for (int32_t i = 0; i < a->n_parts; i++)
        p.part[i] = part_params(a, &a->part[i]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void describe(const lora_args *a, const vt_target *t, const vt_size *size, bool cluster,
                     vt_cut *out)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < a->n_parts; i++)
        rows += a->part[i].y->dim[1];
    cuda_launch l = launch_of(a, t, plan_items(a, t, size, NULL), cluster);
    vt_cut_shape(out, "[%lld x %lld] x ranks up to %d x [%lld]",
                 (long long)vt_size_rows(a->x, size), (long long)a->x->dim[1], a->part[0].most_rank,
                 (long long)rows);
    out->tile[0] = LORA_ITEM_TOKENS;
    out->tile[1] = 64;
    out->split = cluster ? CLUSTER : 1;
    vt_cut_grid(out, t, &l, 16);
    vt_cut_roles(out, NULL, cluster ? "cluster" : NULL);
}

static vt_status cluster_run(const void *args, const vt_lane *lane)
{
    return run(args, lane, true);
}

static vt_status alone_run(const void *args, const vt_lane *lane) { return run(args, lane, false); }

static void cluster_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    describe(args, t, size, true, out);
}

static void alone_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    describe(args, t, size, false, out);
}

const vt_impl lora_cuda_cluster = {CUDA_ROW("cluster", cluster, supports), .level = 90,
                                   .fixed_order = true, .suits = cluster_suits, .plan = &lora_plan};
const vt_impl lora_cuda_alone = {CUDA_ROW("alone", alone, supports), .fixed_order = true,
                                 .plan = &lora_plan};
