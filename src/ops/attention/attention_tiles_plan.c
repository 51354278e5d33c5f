/* The plans of the tile kernels (attention_prefill_sm80.cu, attention_prefill_sm90.cu) and of
 * attention_chunks_sm90.cu.
 *
 * Prefill: a sequence's packed rows (token, head of the group) are cut into tiles.
 *
 * Decode in a fixed order: a decode is a prefill of few tokens. The same kernel runs it, or one for
 * few rows with the same order of sums (attention_chunks_sm90.cu: tiles of 64 rows). So a token has
 * the same bits whether it was decoded, or computed in a chunk after a retraction or in another
 * request's prompt. The order of sums depends on positions alone.
 *
 *   a long sequence among few     an item for each chunk of ATTENTION_CUDA_CHUNK positions
 *   any other                     one item for its whole KV
 *
 * Both give the same bits (attention_chunk.cuh), so the load decides what is cut. On an H200 a
 * chunk that is an item costs about 5 us more than one inside a sequence (32 x 4096, 16/8 heads:
 * 232 us when cut). So only sequences are cut that are longer than SHARES times an SM's mean share.
 */
#include "ops/attention/attention_cuda.h"

#include "device/cuda/cuda.h"

/* ---- prefill ---- */

int32_t attention_tiles_capacity(const attention_plan_config *c, int32_t n_seqs, int32_t n_tokens)
{
    int64_t rows = (int64_t)n_tokens * (c->heads / c->kv_heads);
    return n_seqs + (int32_t)vt_ceil_div(rows, c->tile_rows);
}

/* The first tile of a sequence's new tokens that sees KV position `position`; all tiles behind it
 * see it too. The number of tiles if none does. */
static int32_t first_tile_at(const attention_plan_config *c, const vt_batch *b, int32_t seq,
                             int64_t position)
{
    int32_t group = c->heads / c->kv_heads, tokens = b->q_start[seq + 1] - b->q_start[seq];
    int64_t token = position - (b->kv_len[seq] - tokens);
    if (token >= tokens)
        return (int32_t)vt_ceil_div((int64_t)tokens * group, c->tile_rows);
    return token > 0 ? (int32_t)(token * group / c->tile_rows) : 0;
}

enum { LEVEL_TOKENS = 128, MOST_LEVELS = 256 };

/* Tiles that see the most KV go first, so that the short ones fill the end. A level is a range of
 * KV positions in which tiles end: a block of the kernels, or more than one if KV is long.
 *
 *   level         3      2      1        0
 *   sequence 0    4 3    2 1    0             with cached KV in front of it
 *   sequence 1                  2 1      0
 *   items         (0, 4) (0, 3) | (0, 2) (0, 1) | (0, 0) (1, 2) (1, 1) | (1, 0) */
int32_t attention_tiles_fill(const attention_plan_config *c, const vt_batch *b, void *plan,
                             int32_t capacity)
{
    attention_prefill_item *item = plan;
    int32_t longest = 0, n = 0;
    for (int32_t s = b->n_decode; s < b->n_seqs; s++)
        longest = b->kv_len[s] > longest ? b->kv_len[s] : longest;
    int64_t level_tokens = vt_ceil_div(longest, (int64_t)MOST_LEVELS * LEVEL_TOKENS) * LEVEL_TOKENS;
    for (int64_t end = longest; end > 0;) {
        int64_t begin = (end - 1) / level_tokens * level_tokens;
        for (int32_t s = b->n_decode; s < b->n_seqs; s++) {
            int32_t first = first_tile_at(c, b, s, begin);
            for (int32_t tile = first_tile_at(c, b, s, end) - 1; tile >= first; tile--, n++)
                if (n < capacity)
                    item[n] = (attention_prefill_item){.seq = s, .tile = tile};
        }
        end = begin;
    }
    for (int32_t i = n; i < capacity; i++)
        item[i].seq = -1;
    return n;
}

/* ---- decode in a fixed order ---- */

enum { MORE_ITEMS = 2048, SHARES = 2 };

/* The number of tiles of a decode's rows, at most; and of a decode with this many tokens. */
static int32_t decode_tiles(const attention_plan_config *c)
{
    return (int32_t)vt_ceil_div(attention_decode_rows(c), c->tile_rows);
}

static int32_t tiles_of(const attention_plan_config *c, int32_t tokens)
{
    return (int32_t)vt_ceil_div((int64_t)tokens * (c->heads / c->kv_heads), c->tile_rows);
}

int32_t attention_chunks_capacity(const attention_plan_config *c, int32_t n_decode,
                                  int32_t max_context)
{
    int64_t more = n_decode * (vt_ceil_div(max_context, ATTENTION_CUDA_CHUNK) - 1);
    return decode_tiles(c) * (n_decode + (int32_t)(more < MORE_ITEMS ? more : MORE_ITEMS));
}

/* Adds one item for each tile of a decode: range [begin, end), which is part `part` of `parts`. */
static void put_chunk(attention_chunk_item *plan, int32_t at, int32_t seq, int32_t tiles,
                      int32_t begin, int32_t end, int32_t part, int32_t parts)
{
    for (int32_t i = 0; i < tiles; i++) {
        int32_t first = at + i * parts;
        plan[first + part] = (attention_chunk_item){.seq = seq,
                                                    .begin = begin,
                                                    .end = end,
                                                    .first_slot = first,
                                                    .n_items = parts,
                                                    .tile = i,
                                                    .slot = first + part};
    }
}

int32_t attention_chunks_single(const attention_plan_config *c, int32_t seq, void *plan, int32_t at)
{
    put_chunk(plan, at, seq, tiles_of(c, 1), 0, 1, 0, 1);
    return tiles_of(c, 1);
}

int32_t attention_chunks_fill(const attention_plan_config *c, const vt_batch *b, void *plan,
                              int32_t capacity)
{
    attention_chunk_item *item = plan;
    int32_t most_tiles = decode_tiles(c), n = 0, most = most_tiles * (b->n_decode + MORE_ITEMS);
    int64_t total = 0, share;
    /* a ticket for each tile of each warpgroup's rows */
    bool tickets = (int64_t)b->n_decode * most_tiles * c->kv_heads * 2 <= CUDA_TICKETS;
    for (int32_t s = 0; s < b->n_decode; s++)
        total += b->kv_len[s];
    share = total * c->kv_heads * most_tiles / c->sm_count;
    for (int32_t s = 0; s < b->n_decode; s++) {
        int32_t len = b->kv_len[s], parts = (int32_t)vt_ceil_div(len, ATTENTION_CUDA_CHUNK),
                tiles = c->decode_tokens > 1 ? tiles_of(c, b->q_start[s + 1] - b->q_start[s])
                                             : most_tiles;
        /* each later sequence needs an item per tile, and the padding of a graph gets the items
         * that this batch leaves */
        int32_t left = (capacity < most ? capacity : most) - n - (b->n_decode - s - 1) * most_tiles;
        if (!tickets || len <= SHARES * share || (int64_t)parts * tiles > left) {
            if (n + tiles <= capacity)
                put_chunk(item, n, s, tiles, 0, len, 0, 1);
            n += tiles;
            continue;
        }
        for (int32_t k = 0; k < parts; k++) {
            int32_t begin = k * ATTENTION_CUDA_CHUNK, end = begin + ATTENTION_CUDA_CHUNK;
            put_chunk(item, n, s, tiles, begin, end < len ? end : len, k, parts);
        }
        n += parts * tiles;
    }
    for (int32_t i = n; i < capacity; i++)
        item[i].seq = -1;
    return n;
}

/* ---- as plans of the card's rows ---- */

static uint64_t plan_key(const void *args)
{
    const attention_args *a = args;
    return (uint64_t)(a->after > 0) << 63 | (uint64_t)a->heads << 32 | (uint64_t)a->kv_heads;
}

static uint64_t chunks_128_key(const void *args)
{
    return plan_key(args) | (uint64_t)attention_chunk_rows_sm90(args) << 48;
}

/* Returns attention_ranges_of a batch, or 0 where tokens see keys behind their own: ranges are cut
 * of what causal tiles see. */
static int32_t range_of(const attention_args *a, const attention_plan_config *c, const vt_batch *b)
{
    return a->after > 0 ? 0 : attention_ranges_of(c, b);
}

/* `cuts`: tiles may be cut over KV (attention_ranges_plan.c). */
static int32_t tiles_items(const void *args, const vt_target *t, const vt_size *size,
                           const vt_batch *batch, int32_t tile_rows, bool cuts)
{
    attention_plan_config c = attention_plan_config_of(args, t, size, tile_rows);
    int32_t n = 0;
    if (size->prefills == 0)
        return 0;
    int32_t more = cuts ? attention_ranges_more(&c) : 0,
            range = cuts && batch ? range_of(args, &c, batch) : 0;
    if (!batch)
        return attention_tiles_capacity(&c, size->prefills, size->tokens) + more;
    for (int32_t s = batch->n_decode; s < batch->n_seqs && !range; s++)
        n += attention_tiles_capacity(&c, 0, batch->q_start[s + 1] - batch->q_start[s]);
    if (range)
        n = attention_ranges_items(&c, batch, range);
    if (!size->bucket || n == 0)
        return n;
    int64_t rounded = 8,
            most = attention_tiles_capacity(&c, t->limits.max_seqs, t->limits.max_tokens) + more;
    while (rounded < n)
        rounded *= 2;
    return (int32_t)(rounded < most ? rounded : most);
}

static size_t tiles_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t, (void)size;
    return (size_t)items * PREFILL_ITEM_INTS * sizeof(int32_t);
}

static int32_t tiles_fill(const void *args, const vt_target *t, const vt_batch *batch,
                          int32_t items, void *out, int32_t tile_rows)
{
    attention_plan_config c = attention_plan_config_of(args, t, NULL, tile_rows);
    return attention_tiles_fill(&c, batch, out, items);
}

static int32_t tiles_64_items(const void *args, const vt_target *t, const vt_size *size,
                              const vt_batch *batch)
{
    return tiles_items(args, t, size, batch, ATTENTION_PREFILL_ROWS, false);
}

static int32_t tiles_64_fill(const void *args, const vt_target *t, const vt_size *size,
                             const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)size, (void)side;
    return tiles_fill(args, t, batch, items, out, ATTENTION_PREFILL_ROWS);
}

static int32_t tiles_128_items(const void *args, const vt_target *t, const vt_size *size,
                               const vt_batch *batch)
{
    return tiles_items(args, t, size, batch, ATTENTION_PREFILL_ROWS_SM90, true);
}

static int32_t tiles_128_fill(const void *args, const vt_target *t, const vt_size *size,
                              const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)size, (void)side;
    attention_plan_config c = attention_plan_config_of(args, t, NULL, ATTENTION_PREFILL_ROWS_SM90);
    int32_t range = range_of(args, &c, batch);
    return range ? attention_ranges_fill(&c, batch, range, out, items)
                 : attention_tiles_fill(&c, batch, out, items);
}

static size_t tiles_128_bytes(const void *args, const vt_target *t, const vt_size *size,
                              int32_t items)
{
    (void)args, (void)t, (void)size;
    return (size_t)items * sizeof(attention_range_item); /* the larger kind of items */
}

static int32_t tiles_128_variant(const void *args, const vt_target *t, const vt_size *size,
                                 const vt_batch *batch)
{
    (void)size;
    attention_plan_config c = attention_plan_config_of(args, t, NULL, ATTENTION_PREFILL_ROWS_SM90);
    return range_of(args, &c, batch) ? TILES_CUT : TILES_WHOLE;
}

static int32_t chunks_items(const void *args, const vt_target *t, const vt_size *size,
                            int32_t tile_rows)
{
    attention_plan_config c = attention_plan_config_of(args, t, size, tile_rows);
    return size->decodes == 0 ? 0
                              : attention_chunks_capacity(&c, size->decodes, t->limits.max_context);
}

static size_t chunks_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t, (void)size;
    return (size_t)items * sizeof(attention_chunk_item);
}

static int32_t chunks_fill(const void *args, const vt_target *t, const vt_size *size,
                           const vt_batch *batch, int32_t items, void *out, int32_t tile_rows)
{
    attention_plan_config c = attention_plan_config_of(args, t, size, tile_rows);
    int32_t n = attention_chunks_fill(&c, batch, out, items);
    if (n + size->pad_seqs * tiles_of(&c, 1) > items)
        return n + size->pad_seqs * tiles_of(&c, 1);
    for (int32_t i = 0; i < size->pad_seqs; i++)
        n += attention_chunks_single(&c, batch->n_seqs + i, out, n);
    return n;
}

static int32_t chunks_64_items(const void *args, const vt_target *t, const vt_size *size,
                               const vt_batch *batch)
{
    (void)batch;
    return chunks_items(args, t, size, ATTENTION_PREFILL_ROWS);
}

static int32_t chunks_64_fill(const void *args, const vt_target *t, const vt_size *size,
                              const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)side;
    return chunks_fill(args, t, size, batch, items, out, ATTENTION_PREFILL_ROWS);
}

static int32_t chunks_128_items(const void *args, const vt_target *t, const vt_size *size,
                                const vt_batch *batch)
{
    (void)batch;
    return chunks_items(args, t, size, attention_chunk_rows_sm90(args));
}

static int32_t chunks_128_fill(const void *args, const vt_target *t, const vt_size *size,
                               const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)side;
    return chunks_fill(args, t, size, batch, items, out, attention_chunk_rows_sm90(args));
}

const vt_host_plan attention_tiles_64 = {.name = "tiles of 64 rows",
                                         .key = plan_key,
                                         .items = tiles_64_items,
                                         .bytes = tiles_bytes,
                                         .fill = tiles_64_fill};
const vt_host_plan attention_tiles_128 = {.name = "tiles of 128 rows",
                                          .key = plan_key,
                                          .items = tiles_128_items,
                                          .bytes = tiles_128_bytes,
                                          .variant = tiles_128_variant,
                                          .n_variants = TILES_VARIANTS,
                                          .fill = tiles_128_fill};
const vt_host_plan attention_chunks_64 = {.name = "chunks in tiles of 64 rows",
                                          .key = plan_key,
                                          .items = chunks_64_items,
                                          .bytes = chunks_bytes,
                                          .fill = chunks_64_fill};
const vt_host_plan attention_chunks_128 = {.name = "chunks in tiles of 64 or 128 rows",
                                           .key = chunks_128_key,
                                           .items = chunks_128_items,
                                           .bytes = chunks_bytes,
                                           .fill = chunks_128_fill};
