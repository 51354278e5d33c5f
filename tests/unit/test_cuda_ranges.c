/* How prefill tiles are cut over KV (attention_ranges_plan.c), without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/attention/attention_cuda.h"

enum { MOST_ITEMS = 4096 };

/* Every tile's ranges follow each other from 0 to the last key that it sees, the tiles that are cut
 * have slots of their own, no range is longer than `range`, and items say what the batch says of
 * their sequence. Returns the items. */
static int32_t check_ranges(const attention_plan_config *c, const vt_batch *b, int32_t range)
{
    static attention_range_item item[MOST_ITEMS];
    int32_t group = c->heads / c->kv_heads, at = 0, cut = 0,
            n = attention_ranges_fill(c, b, range, item, MOST_ITEMS), tiles = 0, want = 0;
    assert_in_range(n, 1, MOST_ITEMS - 1);
    assert_true(n <= attention_ranges_items(c, b, range));
    assert_int_equal(item[n].chunk.seq, -1);
    for (; at < n; tiles++) {
        const attention_range_item *of = item + at;
        attention_chunk_item first = of->chunk;
        int32_t s = first.seq, tokens = b->q_start[s + 1] - b->q_start[s],
                rows = (first.tile + 1) * c->tile_rows, end = 0;
        rows = rows < tokens * group ? rows : tokens * group;
        assert_in_range(s, b->n_decode, b->n_seqs - 1);
        for (int32_t k = 0; k < first.n_items; k++) {
            assert_int_equal(of[k].chunk.seq, s);
            assert_int_equal(of[k].chunk.tile, first.tile);
            assert_int_equal(of[k].chunk.n_items, first.n_items);
            assert_int_equal(of[k].chunk.begin, end);
            assert_true(of[k].chunk.end > end && of[k].chunk.end - end <= range);
            assert_true(!c->deterministic || first.n_items == 1 || end % ATTENTION_CUDA_CHUNK == 0);
            assert_int_equal(of[k].chunk.first_slot, first.slot);
            assert_int_equal(of[k].chunk.slot, first.slot + k);
            assert_int_equal(of[k].token0, b->q_start[s]);
            assert_int_equal(of[k].tokens, tokens);
            assert_int_equal(of[k].kv_len, b->kv_len[s]);
            assert_int_equal(of[k].page0, b->page_start[s]);
            end = of[k].chunk.end;
        }
        assert_int_equal(end, b->kv_len[s] - tokens + (rows - 1) / group + 1);
        cut += first.n_items > 1 ? first.n_items : 0;
        if (first.n_items > 1)
            assert_true(first.slot + first.n_items <= attention_ranges_more(c));
        at += first.n_items;
    }
    for (int32_t s = b->n_decode; s < b->n_seqs; s++)
        want += ((b->q_start[s + 1] - b->q_start[s]) * group + c->tile_rows - 1) / c->tile_rows;
    assert_int_equal(tiles, want);
    assert_true(cut > 0);
    return n;
}

/* 64 new tokens behind 8,192: each SM has one piece of work, of 10 or 5 blocks in place of 65. */
static void test_ranges_when_few_tokens_are_behind_many_then_every_sm_has_work(void **state)
{
    (void)state;
    int32_t q_start[2] = {0, 64}, kv_len[1] = {8192}, page_start[2] = {0, 512};
    vt_batch b = {.n_tokens = 64,
                  .n_seqs = 1,
                  .q_start = q_start,
                  .kv_len = kv_len,
                  .page_start = page_start};
    for (int32_t heads = 16; heads <= 32; heads += 16) {
        attention_plan_config c = {
            .heads = heads, .kv_heads = 8, .sm_count = 132, .tile_rows = 128};
        int32_t range = attention_ranges_of(&c, &b), n = check_ranges(&c, &b, range);
        assert_in_range(8 * n, 110, 132);
        assert_in_range(range, 512, heads == 32 ? 10 * 128 : 5 * 128);
        c.deterministic = true;
        assert_int_equal(attention_ranges_of(&c, &b), ATTENTION_CUDA_CHUNK);
        check_ranges(&c, &b, ATTENTION_CUDA_CHUNK);
    }
    attention_plan_config c = {.heads = 16, .kv_heads = 8, .sm_count = 132, .tile_rows = 128};
    kv_len[0] = 3000;
    assert_int_equal(attention_ranges_of(&c, &b), 256);
    check_ranges(&c, &b, 256);
    kv_len[0] = 1000;
    assert_int_equal(attention_ranges_of(&c, &b), 0); /* too short to gain by it */
}

static void test_ranges_when_the_sms_are_full_then_only_what_is_long_is_cut(void **state)
{
    (void)state;
    enum { SEQS = 40 };
    int32_t q_start[SEQS + 1] = {0}, kv_len[SEQS], page_start[SEQS + 1] = {0};
    attention_plan_config c = {.heads = 32, .kv_heads = 8, .sm_count = 132, .tile_rows = 128};
    vt_batch b = {.n_seqs = SEQS, .q_start = q_start, .kv_len = kv_len, .page_start = page_start};
    for (int32_t s = 0; s < SEQS; s++) {
        q_start[s + 1] = q_start[s] + 60;
        page_start[s + 1] = page_start[s] + 20;
        kv_len[s] = 300;
    }
    b.n_tokens = q_start[SEQS];
    assert_int_equal(attention_ranges_of(&c, &b), 0);
    kv_len[7] = 20000;
    int32_t range = attention_ranges_of(&c, &b), n = check_ranges(&c, &b, range);
    assert_in_range(range, 512, 5000);
    assert_true(n > 2 * SEQS && n < 2 * SEQS + attention_ranges_more(&c));
    for (int32_t s = 0; s < SEQS; s++)
        kv_len[s] = 20000;
    assert_int_equal(attention_ranges_of(&c, &b), 0);
}

/* Random batches: what is cut fits its room. */
static void test_ranges_when_batches_are_random_then_they_cover_each_tile_once(void **state)
{
    (void)state;
    uint32_t seed = 3;
    int32_t cuts = 0;
    for (int round = 0; round < 2000; round++) {
        enum { SEQS = 6 };
        attention_plan_config c = {.heads = 8 * (1 + round % 9),
                                   .kv_heads = 8 >> round % 4,
                                   .sm_count = round % 3 ? 132 : 20,
                                   .deterministic = round % 5 == 0,
                                   .tile_rows = 128};
        int32_t q_start[SEQS + 1] = {0, 1}, kv_len[SEQS] = {70000}, page_start[SEQS + 1] = {0, 9};
        for (int32_t s = 1; s < SEQS; s++) { /* behind one decode */
            seed = seed * 1664525u + 1013904223u;
            int32_t tokens = 1 + (int32_t)(seed >> 8) % (round % 2 ? 12 : 120);
            q_start[s + 1] = q_start[s] + tokens;
            page_start[s + 1] = page_start[s] + s;
            kv_len[s] = tokens + (seed & 64 ? (int32_t)(seed >> 12) % 30000 : 0);
        }
        vt_batch b = {.n_tokens = q_start[SEQS],
                      .n_seqs = SEQS,
                      .n_decode = 1,
                      .q_start = q_start,
                      .kv_len = kv_len,
                      .page_start = page_start};
        int32_t range = attention_ranges_of(&c, &b);
        if (range == 0)
            continue;
        int32_t n = check_ranges(&c, &b, range);
        assert_true(n <=
                    attention_tiles_capacity(&c, SEQS - 1, b.n_tokens) + attention_ranges_more(&c));
        cuts++;
    }
    assert_in_range(cuts, 300, 1900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_when_few_tokens_are_behind_many_then_every_sm_has_work),
        cmocka_unit_test(test_ranges_when_the_sms_are_full_then_only_what_is_long_is_cut),
        cmocka_unit_test(test_ranges_when_batches_are_random_then_they_cover_each_tile_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
