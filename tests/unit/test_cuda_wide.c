/* How attention to latents and wide heads is cut (attention_wide_plan.c), without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "ops/attention/attention_wide.h"

enum { SEQS = 9, MOST_ITEMS = 20000, MOST_SLOTS = 1024 };

typedef struct scene {
    attention_args args;
    vt_tensor q, pool, o;
    vt_target target;
    int32_t q_start[SEQS + 1], kv_len[SEQS];
    vt_batch batch;
    vt_size size;
} scene;

static void scene_make(scene *s, int32_t heads, int32_t kv_heads, int32_t dim, int32_t v_dim)
{
    s->q = s->o = (vt_tensor){.dtype = VT_BF16};
    s->pool = (vt_tensor){.dtype = VT_BF16, .dim = {64, kv_heads, 64, dim}};
    s->args = (attention_args){.batch = &s->batch,
                               .q = &s->q,
                               .k_pool = &s->pool,
                               .v_pool = &s->pool,
                               .o = &s->o,
                               .heads = heads,
                               .kv_heads = kv_heads,
                               .head_dim = dim,
                               .v_dim = v_dim,
                               .scale = 1,
                               .k_scale = 1,
                               .v_scale = 1};
    s->target = (vt_target){.device = VT_DEVICE_CUDA,
                            .limits = {.max_tokens = 4096, .max_seqs = 64, .max_context = 65536},
                            .level = 90,
                            .sm_count = 132,
                            .max_shared_bytes = 227 << 10};
    s->batch = (vt_batch){.q_start = s->q_start, .kv_len = s->kv_len};
}

/* Sequences of up to `new` tokens behind up to `there`; the first n_decode are decodes. */
static void draw(scene *s, uint32_t *seed, int32_t n, int32_t n_decode, int32_t new, int32_t there)
{
    for (int32_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        int32_t tokens = 1 + (int32_t)(*seed >> 8) % new;
        s->q_start[i + 1] = s->q_start[i] + tokens;
        s->kv_len[i] = tokens + (*seed & 64 ? (int32_t)(*seed >> 12) % there : 0);
    }
    s->batch.n_seqs = n;
    s->batch.n_tokens = s->q_start[n];
    s->batch.n_decode = n_decode;
    s->size = (vt_size){.tokens = s->q_start[n],
                        .seqs = n,
                        .decodes = n_decode,
                        .decode_tokens = n_decode && new > 1 ? 8 : 0,
                        .prefills = n - n_decode};
}

/* Ranges of a tile follow each other from 0 to the last key that it sees; slots are used once, and
 * only where a tile is cut; merges list the tiles that are. Returns how many those are. */
static int32_t check_plan(const scene *s, bool decode)
{
    static attention_chunk_item plan[MOST_ITEMS];
    const vt_host_plan *p = decode ? &attention_wide_decode_plan : &attention_wide_prefill_plan;
    attention_wide_config c = attention_wide_config_of(&s->args, &s->target, &s->size, decode);
    int32_t capacity = p->items(&s->args, &s->target, &s->size, &s->batch),
            rows = 16 * c.shape.tiles, most = p->items(&s->args, &s->target, &s->size, NULL),
            most_merges = attention_wide_merges(&c, &s->size), cut = 0, tiles = 0, want = 0,
            variant = p->variant(&s->args, &s->target, &s->size, &s->batch),
            grain = variant == WIDE_FINE ? ATTENTION_WIDE_FINE : 64;
    bool used[MOST_SLOTS] = {false};
    assert_in_range(capacity, 1, most);
    assert_true(p->bytes(&s->args, &s->target, &s->size, most) <= sizeof plan);
    int32_t n = p->fill(&s->args, &s->target, &s->size, &s->batch, capacity, plan, NULL);
    assert_in_range(n, 1, capacity);
    const attention_wide_merge_item *merge = (const attention_wide_merge_item *)(plan + capacity);
    for (int32_t at = 0; at < n; at += plan[at].n_items, tiles++) {
        const attention_chunk_item *it = plan + at;
        int32_t tokens = s->q_start[it->seq + 1] - s->q_start[it->seq], end = 0,
                last = ((it->tile + 1) * rows - 1) / c.group;
        for (int32_t k = 0; k < it->n_items; k++) {
            assert_int_equal(it[k].seq, it->seq);
            assert_int_equal(it[k].tile, it->tile);
            assert_int_equal(it[k].begin, end);
            assert_true(it[k].end > end && end % grain == 0);
            end = it[k].end;
            if (it->n_items == 1)
                continue;
            assert_in_range(it[k].slot, 0, attention_wide_slots(&c) - 1);
            assert_int_equal(it[k].slot, it->first_slot + k);
            assert_false(used[it[k].slot]);
            used[it[k].slot] = true;
        }
        assert_int_equal(end, s->kv_len[it->seq] - tokens + (last < tokens ? last + 1 : tokens));
        if (it->n_items == 1)
            continue;
        assert_in_range(cut, 0, most_merges - 1);
        assert_int_equal(merge[cut].seq, it->seq);
        assert_int_equal(merge[cut].tile, it->tile);
        assert_int_equal(merge[cut].first_slot, it->first_slot);
        assert_int_equal(merge[cut].n_slots, it->n_items);
        cut++;
    }
    for (int32_t i = cut; i < most_merges; i++)
        assert_int_equal(merge[i].seq, -1);
    for (int32_t i = n; i < capacity; i++)
        assert_int_equal(plan[i].seq, -1);
    for (int32_t i = decode ? 0 : s->batch.n_decode;
         i < (decode ? s->batch.n_decode : s->batch.n_seqs); i++)
        want += ((s->q_start[i + 1] - s->q_start[i]) * c.group + rows - 1) / rows;
    assert_int_equal(tiles, want);
    assert_int_equal(variant != WIDE_WHOLE, cut > 0);
    return cut;
}

static void test_plan_when_batches_are_random_then_it_covers_each_tile_once(void **state)
{
    (void)state;
    uint32_t seed = 5;
    int32_t cut = 0, whole = 0;
    for (int round = 0; round < 600; round++) {
        scene s = {0};
        static const int32_t shape[][4] = {{16, 1, 576, 512}, {20, 1, 576, 512}, {128, 1, 576, 512},
                                           {5, 1, 320, 256},  {16, 2, 512, 0},   {8, 1, 512, 0}};
        const int32_t *x = shape[round % 6];
        bool decode = round / 6 % 2;
        scene_make(&s, x[0], x[1], x[2], x[3]);
        s.target.sm_count = round % 5 ? 132 : 20;
        int32_t n = 1 + round % SEQS;
        draw(&s, &seed, n, decode ? n : n / 3, decode ? (round % 4 ? 1 : 8) : 60,
             round % 7 ? 9000 : 60000);
        *(check_plan(&s, decode) ? &cut : &whole) += 1;
    }
    assert_in_range(cut, 200, 590);
    assert_in_range(whole, 10, 400);
}

/* A short sequence is not worth a second kernel, a longer one has short blocks, and one of 2,000 or
 * of 8,192 keys has blocks of 64. */
static void test_plan_when_one_sequence_decodes_then_its_length_decides(void **state)
{
    (void)state;
    scene s = {0};
    scene_make(&s, 16, 1, 576, 512);
    s.q_start[1] = 1;
    s.batch.n_seqs = s.batch.n_decode = s.batch.n_tokens = 1;
    s.size = (vt_size){.tokens = 1, .seqs = 1, .decodes = 1};
    s.kv_len[0] = 100;
    assert_int_equal(check_plan(&s, true), 0);
    const vt_host_plan *p = &attention_wide_decode_plan;
    s.kv_len[0] = 545;
    assert_int_equal(check_plan(&s, true), 1);
    assert_int_equal(p->variant(&s.args, &s.target, &s.size, &s.batch), WIDE_FINE);
    s.kv_len[0] = 2000;
    assert_int_equal(check_plan(&s, true), 1);
    assert_int_equal(p->variant(&s.args, &s.target, &s.size, &s.batch), WIDE_CUT);
    s.kv_len[0] = 8192;
    assert_int_equal(check_plan(&s, true), 1);
    assert_int_equal(p->variant(&s.args, &s.target, &s.size, &s.batch), WIDE_CUT);
    attention_wide_config c = attention_wide_config_of(&s.args, &s.target, &s.size, true);
    assert_int_equal(c.shape.tiles, 1);
    assert_int_equal(c.at_once, 132);
}

/* Padding follows the batch's items, a range each. */
static void test_plan_when_a_bucket_is_larger_then_padding_has_items(void **state)
{
    (void)state;
    static attention_chunk_item plan[1024];
    scene s = {0};
    uint32_t seed = 1;
    scene_make(&s, 16, 1, 576, 512);
    draw(&s, &seed, 5, 5, 1, 5000);
    s.size.decodes = s.size.seqs = 8;
    s.size.pad_seqs = 3;
    const vt_host_plan *p = &attention_wide_decode_plan;
    int32_t capacity = p->items(&s.args, &s.target, &s.size, &s.batch),
            n = p->fill(&s.args, &s.target, &s.size, &s.batch, capacity, plan, NULL);
    assert_in_range(n, 8, capacity);
    for (int32_t i = 0; i < 3; i++) {
        const attention_chunk_item *it = plan + n - 3 + i;
        assert_int_equal(it->seq, 5 + i);
        assert_int_equal(it->end, 1);
        assert_int_equal(it->n_items, 1);
    }
}

/* The CTA follows the rows and what an SM gives a CTA. */
static void test_shape_when_shared_memory_is_small_then_the_cta_fits(void **state)
{
    (void)state;
    static const int32_t bytes[] = {227 << 10, 163 << 10, 99 << 10, 64 << 10};
    scene s = {0};
    for (int latent = 0; latent < 2; latent++)
        for (int i = 0; i < 4; i++)
            for (int32_t rows = 1; rows <= 1024; rows *= 2) {
                scene_make(&s, 16, 1, latent ? 576 : 512, latent ? 512 : 0);
                s.target.max_shared_bytes = bytes[i];
                attention_wide_shape x = attention_wide_shape_of(&s.args, &s.target, rows);
                if (x.tiles == 0) { /* two blocks of 16 keys and values, and Q */
                    assert_true(!latent && i == 3);
                    continue;
                }
                assert_in_range(attention_wide_shared_bytes(&s.args, x), 1, bytes[i]);
                assert_true(x.tiles == 1 || 8 * x.tiles < rows);
            }
}

/* Deterministic programs: decodes and prompts read the same blocks, and nothing is cut. */
static void test_plan_when_deterministic_then_no_tile_is_cut_and_blocks_are_equal(void **state)
{
    (void)state;
    uint32_t seed = 3;
    for (int round = 0; round < 60; round++) {
        scene s = {0};
        bool decode = round % 2, latent = round % 3;
        scene_make(&s, round % 5 ? 16 : 128, 1, latent ? 576 : 512, latent ? 512 : 0);
        s.target.deterministic = true;
        s.target.max_shared_bytes = (round % 4 ? 227 : 99) << 10;
        int32_t n = 1 + round % SEQS;
        draw(&s, &seed, n, decode ? n : 0, decode ? 1 + round % 4 : 60, 20000);
        assert_int_equal(check_plan(&s, decode), 0);
        attention_wide_shape first = attention_wide_shape_of(&s.args, &s.target, 1);
        assert_int_equal(first.tiles, 1);
        for (int32_t rows = 2; rows <= 512; rows *= 2) {
            attention_wide_shape x = attention_wide_shape_of(&s.args, &s.target, rows);
            assert_true(x.ordered && x.keys == first.keys && x.stages == first.stages);
            assert_in_range(attention_wide_shared_bytes(&s.args, x), 1, s.target.max_shared_bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_when_batches_are_random_then_it_covers_each_tile_once),
        cmocka_unit_test(test_plan_when_one_sequence_decodes_then_its_length_decides),
        cmocka_unit_test(test_plan_when_a_bucket_is_larger_then_padding_has_items),
        cmocka_unit_test(test_plan_when_deterministic_then_no_tile_is_cut_and_blocks_are_equal),
        cmocka_unit_test(test_shape_when_shared_memory_is_small_then_the_cta_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
