/* How the work of attention_wide.cu is cut. A piece of work is a tile of a sequence's rows (token,
 * head of the group) and the keys that it sees.
 *
 * Where there are fewer pieces than the GPU runs at once, or pieces of very different length, those
 * longer than a range are cut into ranges of equal length. They become items of their own with a
 * slot each for their states, and a second kernel joins these. A range costs about as much as
 * RANGE_KEYS more keys, and the second kernel as MERGE_KEYS: the plan takes the range with which
 * the longest CTA has least to do by this count, or cuts nothing. Where a few decodes have a CTA
 * for each block of 64 keys and half of the GPU is idle, blocks have half as many keys
 * (WIDE_FINE), up to FINE_MOST keys: the join reads twice as many slots.
 *
 *   items     (0, a) (0, b) (0, c) (1, a) (1, b) (1, c) | pieces that are not cut | seq -1
 *   slots      0      1      2      3      4      5
 *   merges    0: slots 0 to 2   1: slots 3 to 5   seq -1
 *
 * Pieces that are cut come first, and of a prompt the last tiles, which see most. Padding has one
 * range a sequence. Deterministic programs cut nothing: a row's keys are then summed in blocks that
 * begin at the same keys whatever is in the batch, and the kernel's shape does the rest. */
#include "ops/attention/attention_wide.h"

#include <assert.h>

#include "device/cuda/cuda.h"

enum {
    GRAIN = 64,      /* ranges are multiples of it: the longest block of the kernel */
    RANGE_KEYS = 64, /* what a range costs beyond its keys, in keys */
    MERGE_KEYS = 64, /* what joining costs */
    /* measured: 1 us won of 11 at 545 and 1,000 keys, 0.6 and more lost from 2,000 on */
    FINE_MOST = 1536,
    FEW_PIECES = 16 /* up to so many pieces make one round of CTAs at most */
};

static int32_t tile_rows(const attention_wide_config *c) { return 16 * c->shape.tiles; }

static int32_t tiles_of(const attention_wide_config *c, int32_t tokens)
{
    return (int32_t)vt_ceil_div((int64_t)tokens * c->group, tile_rows(c));
}

/* CTAs of a cut plan, at most, for this many pieces. */
static int32_t most_items(const attention_wide_config *c, int64_t pieces)
{
    return (c->decode && pieces > FEW_PIECES ? 2 : 1) * c->at_once;
}

int32_t attention_wide_slots(const attention_wide_config *c)
{
    return c->shape.ordered ? 0 : most_items(c, INT32_MAX);
}

/* Tiles of a step of this size, at most. */
static int32_t most_pieces(const attention_wide_config *c, const vt_size *size)
{
    if (c->decode)
        return size->decodes * tiles_of(c, c->tokens);
    return size->prefills + tiles_of(c, size->tokens);
}

int32_t attention_wide_merges(const attention_wide_config *c, const vt_size *size)
{
    int32_t pieces = most_pieces(c, size), most = attention_wide_slots(c) / 2;
    return pieces < most ? pieces : most;
}

/* The keys that the last row of a tile sees. */
static int32_t keys_of(const attention_wide_config *c, const vt_batch *b, int32_t s, int32_t tile)
{
    int32_t tokens = b->q_start[s + 1] - b->q_start[s],
            last = (int32_t)(((int64_t)(tile + 1) * tile_rows(c) - 1) / c->group);
    return b->kv_len[s] - tokens + (last < tokens ? last + 1 : tokens);
}

/* The sequences that a plan is for. */
static int32_t first_seq(const attention_wide_config *c, const vt_batch *b)
{
    return c->decode ? 0 : b->n_decode;
}

static int32_t last_seq(const attention_wide_config *c, const vt_batch *b)
{
    return c->decode ? b->n_decode : b->n_seqs;
}

typedef struct wide_count {
    int64_t pieces, keys, items;
    int32_t longest;
} wide_count;

/* Counts the work of a batch; items: with ranges of `range` keys. */
static wide_count count(const attention_wide_config *c, const vt_batch *b, int32_t range)
{
    wide_count n = {0};
    for (int32_t s = first_seq(c, b); s < last_seq(c, b); s++)
        for (int32_t tile = tiles_of(c, b->q_start[s + 1] - b->q_start[s]) - 1; tile >= 0; tile--) {
            int32_t keys = keys_of(c, b, s, tile);
            n.pieces++;
            n.keys += keys;
            n.items += vt_ceil_div(keys, range);
            n.longest = keys > n.longest ? keys : n.longest;
        }
    return n;
}

/* The shortest range with which a batch has at most `most` items. */
static int32_t shortest_range(const attention_wide_config *c, const vt_batch *b, int64_t most,
                              int32_t longest)
{
    int32_t low = 1, high = (int32_t)vt_ceil_div(longest, GRAIN);
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (count(c, b, middle * GRAIN).items <= most)
            high = middle;
        else
            low = middle + 1;
    }
    return low * GRAIN;
}

/* Returns how many keys the ranges have into which a batch's pieces are cut; 0: none is cut. */
static int32_t range_of(const attention_wide_config *c, const vt_batch *b)
{
    if (c->shape.ordered)
        return 0;
    wide_count all = count(c, b, GRAIN);
    if (all.pieces == 0 || all.longest <= GRAIN)
        return 0;
    int64_t share = all.keys / c->at_once,
            least = all.pieces <= c->at_once ? all.longest : share + all.longest / 2;
    int32_t best = 0;
    for (int32_t most = c->at_once; most <= most_items(c, all.pieces); most += c->at_once) {
        if (all.pieces > most)
            continue;
        int32_t range = shortest_range(c, b, most, all.longest);
        int64_t rounds = vt_ceil_div(count(c, b, range).items, c->at_once),
                cost = rounds * (range + RANGE_KEYS) + MERGE_KEYS;
        if (range < all.longest && cost < least) {
            least = cost;
            best = range;
        }
    }
    return best;
}

/* Returns how many keys the ranges of a batch have, and sets *variant. */
static int32_t cut_of(const attention_wide_config *c, const vt_batch *b, int32_t *variant)
{
    int32_t range = range_of(c, b);
    *variant = range ? WIDE_CUT : WIDE_WHOLE;
    if (!c->decode || range != GRAIN || c->shape.keys != GRAIN)
        return range;
    wide_count fine = count(c, b, ATTENTION_WIDE_FINE);
    if (fine.items > c->at_once || fine.longest > FINE_MOST)
        return range;
    *variant = WIDE_FINE;
    return ATTENTION_WIDE_FINE;
}

typedef struct wide_fill {
    attention_chunk_item *item;
    attention_wide_merge_item *merge;
    int32_t items, merges; /* so far */
    int32_t most_items, most_merges;
} wide_fill;

static void add_piece(const attention_wide_config *c, wide_fill *f, const vt_batch *b, int32_t s,
                      int32_t tile, int32_t range)
{
    size_t grain = range == ATTENTION_WIDE_FINE ? ATTENTION_WIDE_FINE : GRAIN;
    int32_t keys = keys_of(c, b, s, tile), parts = range ? (int32_t)vt_ceil_div(keys, range) : 1,
            step = keys, first = f->items;
    if (parts > 1) {
        step = (int32_t)vt_round_up((size_t)vt_ceil_div(keys, parts), grain);
        parts = (int32_t)vt_ceil_div(keys, step);
    }
    for (int32_t k = 0; k < parts; k++, f->items++)
        if (f->items < f->most_items)
            f->item[f->items] = (attention_chunk_item){.seq = s,
                                                       .begin = k * step,
                                                       .end = k + 1 < parts ? (k + 1) * step : keys,
                                                       .first_slot = first,
                                                       .n_items = parts,
                                                       .tile = tile,
                                                       .slot = f->items};
    if (parts > 1 && f->merges < f->most_merges)
        f->merge[f->merges++] = (attention_wide_merge_item){
            .seq = s, .tile = tile, .first_slot = first, .n_slots = parts};
}

/* Fills a plan; the padding's sequences follow those of the batch. Returns its items. */
static int32_t fill(const attention_wide_config *c, const vt_size *size, const vt_batch *b,
                    int32_t capacity, void *out)
{
    wide_fill f = {.item = out,
                   .merge = (attention_wide_merge_item *)((attention_chunk_item *)out + capacity),
                   .most_items = capacity,
                   .most_merges = attention_wide_merges(c, size)};
    int32_t variant, range = cut_of(c, b, &variant);
    for (int whole = range == 0; whole < 2; whole++) /* those that are cut have the first slots */
        for (int32_t s = first_seq(c, b); s < last_seq(c, b); s++)
            for (int32_t tile = tiles_of(c, b->q_start[s + 1] - b->q_start[s]) - 1; tile >= 0;
                 tile--)
                if ((range == 0 || keys_of(c, b, s, tile) <= range) == whole)
                    add_piece(c, &f, b, s, tile, range);
    assert(!range || f.items <= attention_wide_slots(c));
    for (int32_t i = 0; c->decode && i < size->pad_seqs; i++, f.items++)
        if (f.items < capacity)
            f.item[f.items] = (attention_chunk_item){
                .seq = b->n_seqs + i, .end = 1, .n_items = 1, .slot = f.items};
    for (int32_t i = f.items; i < capacity; i++)
        f.item[i].seq = -1;
    for (int32_t i = f.merges; i < f.most_merges; i++)
        f.merge[i].seq = -1;
    return f.items;
}

/* ---- as plans of the card's rows ---- */

static uint64_t plan_key(const void *args)
{
    const attention_args *a = args;
    return (uint64_t)a->head_dim << 48 | (uint64_t)a->heads << 32 | (uint64_t)a->kv_heads << 16 |
           (uint64_t)a->v_dim;
}

static int32_t decode_items(const void *args, const vt_target *t, const vt_size *size,
                            const vt_batch *batch)
{
    (void)batch;
    attention_wide_config c = attention_wide_config_of(args, t, size, true);
    int64_t pieces = most_pieces(&c, size),
            grains = pieces * vt_ceil_div(t->limits.max_context, ATTENTION_WIDE_FINE),
            most = c.shape.ordered ? 0 : most_items(&c, pieces);
    return (int32_t)(pieces + (grains < most ? grains : most));
}

static int32_t prefill_items(const void *args, const vt_target *t, const vt_size *size,
                             const vt_batch *batch)
{
    if (size->prefills == 0)
        return 0;
    attention_wide_config c = attention_wide_config_of(args, t, size, false);
    if (!batch)
        return most_pieces(&c, size) + attention_wide_slots(&c);
    int32_t range = range_of(&c, batch);
    int64_t n = count(&c, batch, range ? range : INT32_MAX).items, rounded = 8;
    if (!size->bucket || n == 0)
        return (int32_t)n;
    while (rounded < n)
        rounded *= 2;
    return (int32_t)rounded;
}

static size_t plan_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items,
                         bool decode)
{
    attention_wide_config c = attention_wide_config_of(args, t, size, decode);
    return (size_t)items * sizeof(attention_chunk_item) +
           (size_t)attention_wide_merges(&c, size) * sizeof(attention_wide_merge_item);
}

#define WIDE_PLAN(form, is_decode)                                                                \
    static size_t form##_bytes(const void *args, const vt_target *t, const vt_size *size,         \
                               int32_t items)                                                     \
    {                                                                                             \
        return plan_bytes(args, t, size, items, is_decode);                                       \
    }                                                                                             \
    static int32_t form##_variant(const void *args, const vt_target *t, const vt_size *size,      \
                                  const vt_batch *batch)                                          \
    {                                                                                             \
        attention_wide_config c = attention_wide_config_of(args, t, size, is_decode);             \
        int32_t variant;                                                                          \
        cut_of(&c, batch, &variant);                                                              \
        return variant;                                                                           \
    }                                                                                             \
    static int32_t form##_fill(const void *args, const vt_target *t, const vt_size *size,         \
                               const vt_batch *batch, int32_t items, void *out, void *side)       \
    {                                                                                             \
        (void)side;                                                                               \
        attention_wide_config c = attention_wide_config_of(args, t, size, is_decode);             \
        return fill(&c, size, batch, items, out);                                                 \
    }                                                                                             \
    const vt_host_plan attention_wide_##form##_plan = {.name = "KV ranges of wide heads, " #form, \
                                                       .key = plan_key,                           \
                                                       .items = form##_items,                     \
                                                       .bytes = form##_bytes,                     \
                                                       .variant = form##_variant,                 \
                                                       .n_variants = WIDE_VARIANTS,               \
                                                       .fill = form##_fill}

WIDE_PLAN(decode, true);
WIDE_PLAN(prefill, false);
