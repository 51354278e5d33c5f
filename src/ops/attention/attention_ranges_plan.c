/* How prefill tiles are cut over KV, for the tile kernel of Hopper.
 *
 * Few new tokens behind a long prefix are few tiles, each of which sees all of the prefix: 64
 * tokens behind 8,192 with 32/8 heads are 16 pieces of work of 65 blocks for 132 SMs. So a tile
 * that sees more keys than `range` is cut into ranges of equal length, which are items of their
 * own. Each leaves its state (m, l, O) in a slot, and a second kernel joins the slots of each tile
 * (attention_merge.cu).
 *
 *   tiles     0            [================================]     range
 *             1            [=================================]     |
 *   items     (0, a) (0, b) (0, c) (1, a) (1, b) (1, c) | tiles that are not cut
 *   slots      0      1      2      3      4      5
 *
 * The range is the shortest with which all pieces of work still run at once, one on each SM. A step
 * that has more tiles than SMs is cut only where one tile takes longer than twice what an SM has to
 * do on average. In a fixed order a range is one chunk, so that the bits are those of the tile that
 * is not cut. */
#include "ops/attention/attention_cuda.h"

#include "device/cuda/cuda.h"

enum {
    LEAST_KEYS = 1024,      /* tiles that see fewer keys are not cut */
    LEAST_RANGE = 256,      /* a range is worth its part of the merge */
    LONGER_THAN_MEAN = 512, /* ranges beside whole tiles: keys beyond an SM's mean share */
    RANGE_GRAIN = 128,      /* a KV block of the kernel, or two */
    SLOTS_OF_AN_SM = 4      /* slots of partial states, in units of SMs */
};

/* The most slots of a plan, for each KV head. */
static int32_t most_slots(const attention_plan_config *c)
{
    return SLOTS_OF_AN_SM * (int32_t)vt_ceil_div(c->sm_count, c->kv_heads);
}

static int32_t tiles_of(const attention_plan_config *c, const vt_batch *b, int32_t s)
{
    int64_t rows = (int64_t)(b->q_start[s + 1] - b->q_start[s]) * (c->heads / c->kv_heads);
    return (int32_t)vt_ceil_div(rows, c->tile_rows);
}

/* The keys that the last row of a tile sees. */
static int32_t keys_of(const attention_plan_config *c, const vt_batch *b, int32_t s, int32_t tile)
{
    int32_t group = c->heads / c->kv_heads, tokens = b->q_start[s + 1] - b->q_start[s],
            last = ((tile + 1) * c->tile_rows - 1) / group;
    return b->kv_len[s] - tokens + (last < tokens ? last + 1 : tokens);
}

/* The division of a batch by ranges of a given length. */
typedef struct cut_of_batch {
    int64_t items, slots; /* of one KV head */
} cut_of_batch;

static cut_of_batch cut_by(const attention_plan_config *c, const vt_batch *b, int32_t range)
{
    cut_of_batch n = {0};
    for (int32_t s = b->n_decode; s < b->n_seqs; s++)
        for (int32_t tile = 0; tile < tiles_of(c, b, s); tile++) {
            int64_t parts = vt_ceil_div(keys_of(c, b, s, tile), range);
            n.items += parts;
            n.slots += parts > 1 ? parts : 0;
        }
    return n;
}

/* The shortest range with which there are at most `most` items; not below LEAST_RANGE. */
static int32_t shortest_range(const attention_plan_config *c, const vt_batch *b, int64_t most,
                              int32_t longest)
{
    int32_t low = LEAST_RANGE / RANGE_GRAIN, high = (int32_t)vt_ceil_div(longest, RANGE_GRAIN);
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (cut_by(c, b, middle * RANGE_GRAIN).items <= most)
            high = middle;
        else
            low = middle + 1;
    }
    return low * RANGE_GRAIN;
}

/* Cutting costs a merge, so the longest piece of work has to become a quarter shorter by it. */
static bool pays(int64_t range, int32_t longest) { return 4 * range <= 3 * (int64_t)longest; }

int32_t attention_ranges_of(const attention_plan_config *c, const vt_batch *b)
{
    int32_t longest = 0, range = ATTENTION_CUDA_CHUNK;
    int64_t tiles = 0, keys = 0, sms = c->sm_count / c->kv_heads;
    for (int32_t s = b->n_decode; s < b->n_seqs; s++)
        longest = b->kv_len[s] > longest ? b->kv_len[s] : longest;
    if (longest < LEAST_KEYS || sms < 1)
        return 0;
    for (int32_t s = b->n_decode; s < b->n_seqs; s++)
        for (int32_t tile = 0; tile < tiles_of(c, b, s); tile++, tiles++)
            keys += keys_of(c, b, s, tile);
    if (!c->deterministic && tiles <= sms)
        range = shortest_range(c, b, sms, longest);
    else if (!c->deterministic && (int64_t)longest * sms > 2 * keys)
        range = (int32_t)vt_round_up((size_t)(keys / sms) + LONGER_THAN_MEAN, RANGE_GRAIN);
    else if (tiles > sms)
        return 0;
    cut_of_batch n = cut_by(c, b, range);
    int64_t rounds = c->deterministic ? vt_ceil_div(n.items, sms) : 1;
    return n.slots > 0 && n.slots <= most_slots(c) && pays(rounds * range, longest) ? range : 0;
}

/* Items of one tile, from number `at` on. Returns how many there are; those beyond the capacity are
 * not written. */
static int32_t add_tile(const attention_plan_config *c, const vt_batch *b, int32_t s, int32_t tile,
                        int32_t range, attention_range_item *item, int32_t at, int32_t capacity)
{
    int32_t keys = keys_of(c, b, s, tile), parts = (int32_t)vt_ceil_div(keys, range),
            step = (int32_t)vt_round_up((size_t)vt_ceil_div(keys, parts), RANGE_GRAIN);
    if (c->deterministic)
        step = parts > 1 ? ATTENTION_CUDA_CHUNK : keys;
    parts = (int32_t)vt_ceil_div(keys, step);
    for (int32_t k = 0; k < parts && at + k < capacity; k++)
        item[at + k] = (attention_range_item){
            .chunk = {.seq = s,
                      .begin = k * step,
                      .end = (k + 1) * step < keys ? (k + 1) * step : keys,
                      .first_slot = at,
                      .n_items = parts,
                      .tile = tile,
                      .slot = at + k},
            .token0 = b->q_start[s],
            .tokens = b->q_start[s + 1] - b->q_start[s],
            .kv_len = b->kv_len[s],
            .page0 = b->page_start[s]};
    return parts;
}

int32_t attention_ranges_fill(const attention_plan_config *c, const vt_batch *b, int32_t range,
                              void *plan, int32_t capacity)
{
    attention_range_item *item = plan;
    int32_t n = 0;
    for (int whole = 0; whole < 2; whole++) /* tiles that are cut first: their items have slots */
        for (int32_t s = b->n_decode; s < b->n_seqs; s++)
            for (int32_t tile = tiles_of(c, b, s) - 1; tile >= 0; tile--)
                if ((keys_of(c, b, s, tile) <= range) == whole)
                    n += add_tile(c, b, s, tile, range, item, n, capacity);
    for (int32_t i = n; i < capacity; i++)
        item[i].chunk.seq = -1;
    return n;
}

int32_t attention_ranges_items(const attention_plan_config *c, const vt_batch *b, int32_t range)
{
    return (int32_t)cut_by(c, b, range).items;
}

int32_t attention_ranges_more(const attention_plan_config *c) { return most_slots(c); }

size_t attention_ranges_workspace(const attention_plan_config *c, int32_t head_dim)
{
    size_t rows = (size_t)most_slots(c) * (size_t)c->kv_heads * (size_t)c->tile_rows;
    return rows * ((size_t)head_dim + 2) * sizeof(float) + 256;
}
