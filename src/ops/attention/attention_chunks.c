/* The decode part of a deterministic step's plan (attention_cuda.h).
 *
 *   a long sequence among few     an item a chunk of ATTENTION_CUDA_CHUNK positions
 *   any other                     one item, its whole KV
 *
 * Both make the same bits (attention_chunk.cuh), so what is cut may follow the load. On an H200 a
 * chunk of its own costs about 5 us more than as part of a sequence (32 x 4096, 16/8 heads: 232 us
 * cut), so only sequences are cut that are longer than SHARES times what an SM has to do on
 * average. */
#include "ops/attention/attention_cuda.h"

#include <string.h>

enum { MORE_ITEMS = 2048, SHARES = 2 };

/* Tiles of one token's rows. */
static int32_t token_tiles(const attention_plan_config *c)
{
    return (int32_t)vt_ceil_div(c->heads / c->kv_heads, c->prefill_rows);
}

int32_t attention_chunks_capacity(const attention_plan_config *c, int32_t n_decode,
                                  int32_t max_context)
{
    int64_t more = n_decode * (vt_ceil_div(max_context, ATTENTION_CUDA_CHUNK) - 1);
    return token_tiles(c) * (n_decode + (int32_t)(more < MORE_ITEMS ? more : MORE_ITEMS));
}

/* One item for each tile of a token: its range [begin, end) as part `part` of `parts`. */
static void put(const attention_plan_config *c, int32_t *plan, int32_t at, int32_t seq,
                int32_t begin, int32_t end, int32_t part, int32_t parts)
{
    int32_t tiles = token_tiles(c);
    for (int32_t i = 0; i < tiles; i++) {
        int32_t n = at + i * parts + part,
                item[DECODE_ITEM_INTS] = {seq, begin, end, at + i * parts, parts, i};
        memcpy(plan + (size_t)n * DECODE_ITEM_INTS, item, sizeof item);
    }
}

int32_t attention_chunks_single(const attention_plan_config *c, int32_t seq, int32_t *plan,
                                int32_t at)
{
    put(c, plan, at, seq, 0, 1, 0, 1);
    return token_tiles(c);
}

int32_t attention_chunks_plan(const attention_plan_config *c, const vt_batch *b, int32_t *plan,
                              int32_t capacity)
{
    int32_t tiles = token_tiles(c), n = 0, most = tiles * (b->n_decode + MORE_ITEMS);
    int64_t total = 0, share;
    /* a ticket for each tile of each warpgroup's rows */
    bool tickets = (int64_t)b->n_decode * tiles * c->kv_heads * 2 <= CUDA_TICKETS;
    for (int32_t s = 0; s < b->n_decode; s++)
        total += b->kv_len[s];
    share = total * c->kv_heads * tiles / c->sm_count;
    for (int32_t s = 0; s < b->n_decode; s++) {
        int32_t len = b->kv_len[s], parts = (int32_t)vt_ceil_div(len, ATTENTION_CUDA_CHUNK);
        /* later ones need one each, and a graph's padding has what this batch's share leaves */
        int32_t left = (capacity < most ? capacity : most) - n - (b->n_decode - s - 1) * tiles;
        if (!tickets || len <= SHARES * share || (int64_t)parts * tiles > left) {
            put(c, plan, n, s, 0, len, 0, 1);
            n += tiles;
            continue;
        }
        for (int32_t k = 0; k < parts; k++) {
            int32_t begin = k * ATTENTION_CUDA_CHUNK, end = begin + ATTENTION_CUDA_CHUNK;
            put(c, plan, n, s, begin, end < len ? end : len, k, parts);
        }
        n += parts * tiles;
    }
    for (int32_t i = n; i < capacity; i++)
        plan[(size_t)i * DECODE_ITEM_INTS] = -1;
    return n;
}
