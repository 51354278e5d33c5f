/* The host side of the CUDA backend that needs no GPU: the plan of a step's attention, sampling
 * rows as the device takes them, the JIT's list and its cache of cubins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/tiny_model.h"
#include "device/cuda/cuda.h"
#include "device/cuda/jit_cache.h"
#include "device/nvml.h"
#include "exec/cuda.h"
#include "exec/weights_cuda.h"
#include "model/load.h"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_sm90_params.h"
#include "ops/cut.h"
#include "ops/sample/sample.h"

enum { MAX_SEQS = 64 };

/* ---- plans of attention ---- */

/* A batch of n decodes with these KV lengths. */
static vt_batch decodes(const int32_t *kv_len, int32_t n, int32_t *q_start)
{
    for (int32_t i = 0; i <= n; i++)
        q_start[i] = i;
    return (vt_batch){
        .n_tokens = n, .n_seqs = n, .n_decode = n, .q_start = q_start, .kv_len = kv_len};
}

/* Every sequence's KV is covered once, in order, by consecutive items. */
static void check_decode_plan(const attention_plan_config *c, const int32_t *kv_len, int32_t n)
{
    int32_t q_start[MAX_SEQS + 1], capacity = attention_decode_capacity(c, n, 1 << 17);
    vt_batch b = decodes(kv_len, n, q_start);
    int32_t *plan = calloc(attention_decode_plan_ints(capacity, n), sizeof *plan);
    int32_t used = attention_decode_fill(c, &b, plan, capacity);
    assert_true(used <= capacity);
    int32_t at = 0;
    for (int32_t s = 0; s < n; s++) {
        int32_t first = at, covered = 0;
        while (at < used && plan[at * DECODE_ITEM_INTS] == s) {
            const int32_t *item = plan + at * DECODE_ITEM_INTS;
            assert_int_equal(item[1], covered);
            assert_int_equal(item[1] % 64, 0);
            assert_true(item[2] > item[1]);
            assert_int_equal(item[3], first);
            covered = item[2];
            at++;
        }
        assert_int_equal(covered, kv_len[s]);
        for (int32_t k = first; k < at; k++)
            assert_int_equal(plan[k * DECODE_ITEM_INTS + 4], at - first);
    }
    assert_int_equal(at, used);
    for (; at < capacity; at++)
        assert_int_equal(plan[at * DECODE_ITEM_INTS], -1);
    free(plan);
}

static void test_decode_plan_when_lengths_vary_then_each_kv_is_covered_once(void **state)
{
    (void)state;
    attention_plan_config c = {.heads = 16, .kv_heads = 8, .few = {8, 3}, .sm_count = 132};
    uint32_t seed = 7;
    for (int round = 0; round < 200; round++) {
        int32_t kv_len[MAX_SEQS], n = 1 + (int32_t)(seed % MAX_SEQS);
        for (int32_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            kv_len[i] = 1 + (int32_t)((seed >> 8) % (i % 7 == 0 ? 100000 : 700));
        }
        check_decode_plan(&c, kv_len, n);
    }
}

/* At most one range for each SM; the rest of a bucket's capacity is for its padding. */
static void test_decode_plan_when_decodes_are_few_then_ranges_fill_the_rings(void **state)
{
    (void)state;
    attention_plan_config c = {.heads = 16, .kv_heads = 8, .few = {8, 3}, .sm_count = 132};
    static const struct {
        int32_t len, ranges;
    } one[] = {{1, 1}, {256, 1}, {257, 3}, {512, 4}, {1024, 8}, {2048, 8}, {4096, 16}, {99999, 16}};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        int32_t q_start[2], plan[64 * DECODE_ITEM_INTS];
        vt_batch b = decodes(&one[i].len, 1, q_start);
        assert_int_equal(attention_decode_fill(&c, &b, plan, 60), one[i].ranges);
    }
    uint32_t seed = 3;
    for (int32_t round = 0; round < 400; round++) {
        int32_t kv_len[4], n = 1 + round % 4, q_start[5];
        c.kv_heads = round % 3 ? 8 : 1;
        for (int32_t i = 0; i < n; i++, seed = seed * 1664525u + 1013904223u)
            kv_len[i] = 1 + (int32_t)(seed >> 8) % (seed & 64 ? 600 : 60000);
        check_decode_plan(&c, kv_len, n);
        vt_batch b = decodes(kv_len, n, q_start);
        int32_t bucket = n == 3 ? 4 : n, capacity = attention_decode_capacity(&c, bucket, 1 << 17);
        int32_t *plan = calloc(attention_decode_plan_ints(capacity, bucket), sizeof *plan);
        int32_t used = attention_decode_fill(&c, &b, plan, capacity);
        assert_true(used + bucket - n <= capacity);
        assert_true(capacity <= 132 / c.kv_heads + bucket - 1);
        free(plan);
    }
}

/* Every tile of every token has its KV covered once, in order, by chunks or by one item. */
static void check_chunk_plan(const attention_plan_config *c, const int32_t *kv_len, int32_t n)
{
    int32_t q_start[MAX_SEQS + 1], capacity = attention_chunks_capacity(c, n, 1 << 17);
    int32_t tiles = (c->heads / c->kv_heads + c->tile_rows - 1) / c->tile_rows, at = 0;
    vt_batch b = decodes(kv_len, n, q_start);
    int32_t *plan = calloc((size_t)capacity, DECODE_ITEM_INTS * sizeof *plan);
    int32_t used = attention_chunks_fill(c, &b, plan, capacity);
    assert_true(used <= capacity);
    for (int32_t i = 0; i < n * tiles; i++) {
        int32_t first = at, covered = 0, parts = plan[first * DECODE_ITEM_INTS + 4];
        for (; at < first + parts; at++) {
            const int32_t *item = plan + at * DECODE_ITEM_INTS;
            assert_int_equal(item[0], i / tiles);
            assert_int_equal(item[1], covered);
            assert_int_equal(item[3], first);
            assert_int_equal(item[4], parts);
            assert_int_equal(item[5], i % tiles);
            covered = item[2];
            if (at + 1 < first + parts)
                assert_int_equal(item[2] - item[1], ATTENTION_CUDA_CHUNK);
        }
        assert_int_equal(covered, kv_len[i / tiles]);
    }
    assert_int_equal(at, used);
    for (; at < capacity; at++)
        assert_int_equal(plan[at * DECODE_ITEM_INTS], -1);
    free(plan);
}

static void test_decode_plan_when_deterministic_then_it_is_cut_at_chunks_only(void **state)
{
    (void)state;
    attention_plan_config c = {.heads = 96, .kv_heads = 1, .sm_count = 132, .tile_rows = 64};
    attention_plan_config narrow = c;
    narrow.heads = 16;
    narrow.kv_heads = 8;
    uint32_t seed = 7;
    for (int round = 0; round < 200; round++) {
        int32_t kv_len[MAX_SEQS], n = 1 + (int32_t)(seed % MAX_SEQS);
        for (int32_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            kv_len[i] = 1 + (int32_t)((seed >> 8) % (i % 7 == 0 ? 130000 : 700));
        }
        check_chunk_plan(&c, kv_len, n);
        check_chunk_plan(&narrow, kv_len, n);
    }
    int32_t plan[2200 * DECODE_ITEM_INTS], q_start[2], len = 5000;
    vt_batch b = decodes(&len, 1, q_start); /* alone: every chunk has its CTA */
    assert_int_equal(attention_chunks_fill(&narrow, &b, plan, 2200), 10);
}

/* ---- prefill: tiles, and how they are dealt to CTAs ---- */

static void test_dealing_when_counts_are_odd_then_each_item_is_dealt_once(void **state)
{
    (void)state;
    for (int32_t ctas = 1; ctas < 20; ctas++)
        for (int32_t items = 0; items < 90; items++) {
            int32_t dealt[90] = {0};
            for (int32_t cta = 0; cta < ctas; cta++) {
                int32_t item, before = -1;
                for (int32_t r = 0; (item = attention_dealt(r, cta, ctas)) < items; r++) {
                    assert_true(item > before);
                    dealt[before = item]++;
                }
            }
            for (int32_t i = 0; i < items; i++)
                assert_int_equal(dealt[i], 1);
        }
}

/* Returns how much longer the busiest of 132 CTAs works than the mean, in KV blocks, for prompts of
 * equal length: 0.1 is 10 %. */
static double dealt_imbalance(int32_t heads, int32_t seqs, int32_t tokens)
{
    enum { CTAS = 132, BLOCK = 128 };
    attention_plan_config c = {.heads = heads, .kv_heads = 8, .sm_count = CTAS, .tile_rows = 128};
    int32_t q_start[MAX_SEQS + 1], kv_len[MAX_SEQS], group = heads / 8;
    for (int32_t s = 0; s <= seqs; s++)
        q_start[s] = s * tokens;
    for (int32_t s = 0; s < seqs; s++)
        kv_len[s] = tokens;
    vt_batch b = {.n_tokens = seqs * tokens, .n_seqs = seqs, .q_start = q_start, .kv_len = kv_len};
    int32_t capacity = attention_tiles_capacity(&c, 0, b.n_tokens);
    attention_prefill_item *plan = calloc((size_t)capacity, sizeof *plan);
    assert_int_equal(attention_tiles_fill(&c, &b, plan, capacity), capacity);
    int64_t most = 0, total = 0;
    for (int32_t cta = 0; cta < CTAS; cta++) {
        int64_t blocks = 0;
        int32_t i;
        for (int32_t r = 0; (i = attention_dealt(r, cta, CTAS)) < capacity * 8; r++)
            blocks += ((plan[i / 8].tile + 1) * 128 / group - 1) / BLOCK + 1;
        most = blocks > most ? blocks : most;
        total += blocks;
    }
    free(plan);
    return (double)most * CTAS / (double)total - 1;
}

static void test_dealing_when_prompts_are_long_then_no_cta_has_much_more_than_the_mean(void **state)
{
    (void)state;
    static const struct {
        int32_t heads, seqs, tokens;
        double most;
    } want[] = {{32, 1, 4096, 0.002}, {32, 1, 8192, 0.002}, {32, 1, 2048, 0.035},
                {32, 8, 2048, 0.035}, {32, 64, 256, 0.035}, {16, 1, 4096, 0.002},
                {16, 1, 8192, 0.004}, {16, 8, 2048, 0.035}, {16, 64, 256, 0.05}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double is = dealt_imbalance(want[i].heads, want[i].seqs, want[i].tokens);
        if (!(is <= want[i].most))
            fail_msg("%d heads, %d x %d: the busiest CTA has %.4f more than the mean",
                     want[i].heads, want[i].seqs, want[i].tokens, is);
    }
}

/* Each tile of every sequence once, and never a tile that sees more blocks of KV than the one in
 * front of it, with cached KV or without. */
static void test_tiles_plan_when_kv_is_cached_then_the_longest_items_come_first(void **state)
{
    (void)state;
    uint32_t seed = 11;
    for (int round = 0; round < 100; round++) {
        enum { SEQS = 6, CAPACITY = 512 };
        attention_plan_config c = {.heads = 8 * (1 + round % 9),
                                   .kv_heads = 8,
                                   .sm_count = 132,
                                   .tile_rows = round % 2 ? 128 : 64};
        int32_t q_start[SEQS + 1] = {0, 1}, kv_len[SEQS] = {70000}, seen[SEQS][CAPACITY] = {{0}};
        int32_t group = c.heads / 8, tiles = 0;
        for (int32_t s = 1; s < SEQS; s++) { /* behind one decode */
            seed = seed * 1664525u + 1013904223u;
            int32_t tokens = 1 + (int32_t)(seed >> 8) % 500;
            q_start[s + 1] = q_start[s] + tokens;
            kv_len[s] = tokens + (seed & 64 ? (int32_t)(seed >> 12) % 9000 : 0);
            tiles += (tokens * group + c.tile_rows - 1) / c.tile_rows;
        }
        vt_batch b = {.n_tokens = q_start[SEQS],
                      .n_seqs = SEQS,
                      .n_decode = 1,
                      .q_start = q_start,
                      .kv_len = kv_len};
        attention_prefill_item plan[CAPACITY];
        int32_t before = INT32_MAX;
        assert_int_equal(attention_tiles_fill(&c, &b, plan, CAPACITY), tiles);
        for (int32_t i = 0; i < tiles; i++) {
            int32_t s = plan[i].seq, tokens = q_start[s + 1] - q_start[s],
                    rows = (plan[i].tile + 1) * c.tile_rows;
            rows = rows < tokens * group ? rows : tokens * group;
            int32_t blocks = (kv_len[s] - tokens + (rows - 1) / group) / 128;
            assert_in_range(s, 1, SEQS - 1);
            assert_int_equal(seen[s][plan[i].tile]++, 0);
            assert_true(blocks <= before);
            before = blocks;
        }
    }
}

/* The rest is not written, and the number of items says so. */
static void test_tiles_plan_when_capacity_is_short_then_the_count_is_larger(void **state)
{
    (void)state;
    attention_plan_config c = {.heads = 16, .kv_heads = 8, .sm_count = 132, .tile_rows = 128};
    int32_t q_start[3] = {0, 1, 400}, kv_len[2] = {90, 500}; /* one decode, 7 tiles */
    vt_batch b = {
        .n_tokens = 400, .n_seqs = 2, .n_decode = 1, .q_start = q_start, .kv_len = kv_len};
    attention_prefill_item plan[8];
    memset(plan, 0x5a, sizeof plan);
    assert_int_equal(attention_tiles_fill(&c, &b, plan, 5), 7);
    assert_int_equal(plan[4].tile, 2);
    assert_int_equal(plan[5].tile, 0x5a5a5a5a);
    assert_int_equal(attention_tiles_fill(&c, &b, plan, 8), 7);
    assert_int_equal(plan[6].tile, 0);
    assert_int_equal(plan[7].seq, -1);
}

/* ---- sampling rows: a plan of the row, with side data ---- */

enum { SAMPLE_ROWS = 8 };

/* A row as sample.cuh reads it. Offsets count from the beginning of all side data, in elements. */
typedef struct device_row {
    uint64_t seed;
    float temperature, top_p, min_p, repetition, presence, frequency;
    int32_t top_k, n_top, position, pool_slot, target, context, n_prompt, n_context, pending_slot,
        bias, n_bias, mask;
} device_row;

/* The plan of a step of n rows, padded to a bucket. */
typedef struct filled_rows {
    device_row row[SAMPLE_ROWS];
    union {
        int32_t context[512];
        uint32_t mask[512];
        vt_logit_bias bias[256];
    } side;
    size_t side_bytes;
} filled_rows;

static filled_rows fill_rows(const vt_sample_row *rows, int32_t n, int32_t bucket, int64_t vocab)
{
    const vt_host_plan *plan = vt_op_row(&sample_op, VT_DEVICE_CUDA, "parts")->plan;
    vt_limits limits = {
        .max_tokens = 64, .max_seqs = 4, .max_rows = SAMPLE_ROWS, .max_context = 16};
    vt_target t = {.device = VT_DEVICE_CUDA, .limits = limits};
    vt_tensor logits = vt_tensor_2d(NULL, VT_F32, SAMPLE_ROWS, vocab);
    sample_args a = {.logits = &logits, .row = &rows};
    vt_batch batch = {.n_rows = n};
    vt_size size = {.rows = bucket, .bucket = true};
    filled_rows f;
    memset(&f, 0x5a, sizeof f);
    int32_t items = plan->items(&a, &t, &size, &batch);
    assert_int_equal(items, bucket);
    assert_int_equal(plan->items(&a, &t, &size, NULL), bucket);
    assert_int_equal(plan->bytes(&a, &t, &size, items), (size_t)bucket * sizeof f.row[0]);
    f.side_bytes = plan->side_bytes(&a, &batch);
    assert_true(f.side_bytes <= plan->most_side_bytes(&a, &t) && f.side_bytes <= sizeof f.side);
    assert_int_equal(plan->fill(&a, &t, &size, &batch, items, f.row, &f.side), n);
    return f;
}

static void test_sample_plan_when_a_row_has_no_penalty_then_its_context_stays_at_home(void **state)
{
    (void)state;
    int32_t context[3] = {4, 5, 6};
    vt_logit_bias bias[2] = {{1, 0.5f}, {2, -1}};
    vt_sample_row rows[3] = {
        {.repetition_penalty = 1, .context = context, .n_context = 3, .pending_slot = 0},
        {.repetition_penalty = 1.2f,
         .context = context,
         .n_prompt = 1,
         .n_context = 3,
         .pending_slot = 2},
        {.repetition_penalty = 1, .bias = bias, .n_bias = 2, .pending_slot = -1}};
    filled_rows f = fill_rows(rows, 3, 3, 100);
    const device_row *out = f.row;
    /* one context, its end rounded to a bias; two biases; no mask */
    assert_int_equal(f.side_bytes, 2 * sizeof bias[0] + sizeof bias);
    assert_int_equal(out[0].n_context, 0);
    assert_int_equal(out[0].pending_slot, -1);
    assert_int_equal(out[1].n_context, 3);
    assert_int_equal(out[1].n_prompt, 1);
    assert_int_equal(out[1].pending_slot, 2);
    assert_memory_equal(f.side.context + out[1].context, context, sizeof context);
    assert_int_equal(out[2].n_bias, 2);
    assert_memory_equal(f.side.bias + out[2].bias, bias, sizeof bias);
    for (int i = 0; i < 3; i++)
        assert_int_equal(out[i].mask, -1);
}

static void test_sample_plan_when_rows_side_by_side_have_a_mask_then_it_travels_once(void **state)
{
    (void)state;
    const uint32_t mask[2] = {5, 1}, other[2] = {9, 0};
    vt_sample_row rows[6] = {{.mask = mask}, {.mask = mask},  {.mask = NULL},
                             {.mask = mask}, {.mask = other}, {.mask = other}};
    filled_rows f = fill_rows(rows, 6, 6, 33);
    assert_int_equal(f.side_bytes, 6 * sizeof(uint32_t));
    for (int i = 0; i < 6; i++)
        if (!rows[i].mask)
            assert_int_equal(f.row[i].mask, -1);
        else
            assert_memory_equal(f.side.mask + f.row[i].mask, rows[i].mask, sizeof mask);
    assert_int_equal(f.row[1].mask, f.row[0].mask);
    assert_int_equal(f.row[5].mask, f.row[4].mask);
}

/* All three kinds at once do not overlap. */
static void test_sample_plan_when_rows_bring_everything_then_each_finds_its_own(void **state)
{
    (void)state;
    int32_t context[2][5] = {{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}};
    vt_logit_bias bias[2][3] = {{{1, 1}, {2, 2}, {3, 3}}, {{4, 4}, {5, 5}, {6, 6}}};
    const uint32_t mask[2][3] = {{11, 12, 13}, {14, 15, 16}};
    vt_sample_row rows[2];
    for (int i = 0; i < 2; i++)
        rows[i] = (vt_sample_row){.repetition_penalty = 1,
                                  .frequency_penalty = 0.5f,
                                  .context = context[i],
                                  .n_context = 5,
                                  .bias = bias[i],
                                  .n_bias = 3,
                                  .mask = mask[i],
                                  .pending_slot = -1};
    filled_rows f = fill_rows(rows, 2, 2, 90);
    assert_int_equal(f.side_bytes, sizeof context + sizeof bias + sizeof mask);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(f.side.context + f.row[i].context, context[i], sizeof context[i]);
        assert_memory_equal(f.side.bias + f.row[i].bias, bias[i], sizeof bias[i]);
        assert_memory_equal(f.side.mask + f.row[i].mask, mask[i], sizeof mask[i]);
    }
}

/* Padding rows choose the largest logit and write it to no slot. */
static void test_sample_plan_when_padded_then_the_rest_asks_for_nothing(void **state)
{
    (void)state;
    vt_sample_row rows[3] = {{.temperature = 1, .pool_slot = 7, .repetition_penalty = 1.5f},
                             {.temperature = 1, .pool_slot = 8},
                             {.temperature = 1, .pool_slot = 9}};
    filled_rows f = fill_rows(rows, 3, SAMPLE_ROWS, 100);
    assert_int_equal(f.side_bytes, 0);
    assert_int_equal(f.row[2].pool_slot, 9);
    for (int i = 3; i < SAMPLE_ROWS; i++) {
        const device_row *r = &f.row[i];
        assert_true(r->temperature == 0 && r->repetition == 1 && r->presence == 0 &&
                    r->frequency == 0);
        assert_true(r->n_top == -1 && r->target == -1 && r->mask == -1 && r->n_bias == 0);
        assert_true(r->n_context == 0 && r->pending_slot == -1 && r->pool_slot == -1);
    }
}

/* ---- cuBLASLt ---- */

static void
test_library_when_one_sequence_runs_at_level_90_then_only_where_it_is_asked_for(void **state)
{
    (void)state;
    vt_model *m;
    vt_layout *layout;
    unsetenv("VITRINE_CUBLASLT");
    assert_int_equal(vt_model_load("dummy:qwen3-0.6b", &m, NULL), VT_OK);
    assert_int_equal(vt_layout_make(m, &layout, NULL), VT_OK);
    vt_cuda h200 = {.level = 90}, older = {.level = 80};
    vt_cuda_options many = {.brief = false}, one = {.brief = true};
    assert_true(vt_cuda_may_use_library(&h200, &many, layout));
    assert_false(vt_cuda_may_use_library(&h200, &one, layout));
    assert_true(vt_cuda_may_use_library(&older, &one, layout));
    setenv("VITRINE_CUBLASLT", "all", 1);
    assert_true(vt_cuda_may_use_library(&h200, &one, layout));
    unsetenv("VITRINE_CUBLASLT");
    vt_layout_free(layout);
    vt_model_free(m);
}

/* ---- the JIT ---- */

static void test_jit_want_when_asked_twice_then_one_instance(void **state)
{
    (void)state;
    vt_jit *j;
    assert_int_equal(vt_jit_new("sm_80", &j, NULL), VT_OK);
    jit_spec a = JIT_SPEC("embed.cu", "embed", {"hidden", 64}, {"vec", 8});
    jit_spec b = JIT_SPEC("embed.cu", "embed", {"hidden", 128}, {"vec", 8});
    int32_t first = vt_jit_want(j, &a);
    assert_int_not_equal(vt_jit_want(j, &b), first);
    assert_int_equal(vt_jit_want(j, &a), first);
    for (int32_t i = 0; i < 500; i++) { /* beyond the first table */
        jit_spec c = JIT_SPEC("embed.cu", "embed", {"hidden", 1000 + i}, {"vec", 1});
        vt_jit_want(j, &c);
    }
    assert_int_equal(vt_jit_want(j, &a), first);
    assert_int_equal(vt_jit_count(j), 502);
    assert_string_equal(vt_jit_name(j, first), "embed<hidden=64,vec=8>");
    vt_jit_free(j);
}

static void
test_jit_want_when_names_lie_elsewhere_or_places_are_shared_then_same_instance(void **state)
{
    (void)state;
    enum { MANY = 600 }; /* more than the JIT finds by addresses alone */
    vt_jit *j;
    char source[] = "embed.cu", kernel[] = "embed", param[] = "hidden";
    assert_int_equal(vt_jit_new("sm_80", &j, NULL), VT_OK);
    for (int turn = 0; turn < 2; turn++)
        for (int32_t i = 0; i < MANY; i++) {
            jit_spec literal = JIT_SPEC("embed.cu", "embed", {"hidden", 8 * i}, {"vec", i % 3});
            jit_spec copy = JIT_SPEC(source, kernel, {param, 8 * i}, {"vec", i % 3});
            assert_int_equal(vt_jit_want(j, turn ? &copy : &literal), i);
            assert_int_equal(vt_jit_want(j, turn ? &literal : &copy), i);
        }
    jit_spec fewer = JIT_SPEC("embed.cu", "embed", {"hidden", 8});
    assert_int_equal(vt_jit_want(j, &fewer), MANY);
    assert_int_equal(vt_jit_count(j), MANY + 1);
    vt_jit_free(j);
}

static void test_jit_add_text_when_the_name_is_embedded_then_refused(void **state)
{
    (void)state;
    vt_jit *j;
    vt_err err = {0};
    assert_int_equal(vt_jit_new("sm_80", &j, NULL), VT_OK);
    assert_int_equal(vt_jit_add_text(j, "rmsnorm.cu", "text", &err), VT_ERR_DEVICE);
    assert_non_null(strstr(err.message, "rmsnorm.cu"));
    for (int i = 0; i < JIT_MAX_TEXTS; i++)
        assert_int_equal(vt_jit_add_text(j, "./x.cu", "text", &err), VT_OK);
    assert_int_equal(vt_jit_add_text(j, "./x.cu", "text", &err), VT_ERR_DEVICE);
    assert_non_null(strstr(err.message, "beyond the limit"));
    vt_jit_free(j);
}

static const char *const key = "0123456789abcdef0123456789abcdef";

enum { CUBIN = 3000 };

static void fill_cubin(char *bytes, int seed)
{
    for (int i = 0; i < CUBIN; i++)
        bytes[i] = (char)(i * 7 + seed + i / 256);
}

/* A read returns the whole cubin of one write, or nothing. */
static bool read_whole(void)
{
    jit_cubin out;
    char want[CUBIN];
    char *got = jit_cache_read(key, 13, 0, &out);
    if (!got)
        return false;
    fill_cubin(want, got[0]);
    assert_int_equal(out.size, CUBIN);
    assert_memory_equal(out.bytes, want, CUBIN);
    free(got);
    return true;
}

static void remove_cache(const char *dir)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    unsetenv("VITRINE_CACHE");
}

static void
test_jit_cache_when_a_byte_is_wrong_or_the_end_is_missing_then_nothing_false_is_read(void **state)
{
    (void)state;
    char dir[] = "/tmp/vitrine-cubin-XXXXXX", path[256], bytes[CUBIN], file[2 * CUBIN];
    assert_non_null(mkdtemp(dir));
    setenv("VITRINE_CACHE", dir, 1);
    fill_cubin(bytes, 1);
    jit_cubin in = {.bytes = bytes, .size = CUBIN};
    jit_cache_write(key, 13, 0, "sm_90a", "some<kernel=1>", &in);
    assert_true(read_whole());
    snprintf(path, sizeof path, "%s/cubin/%s-13.0.cubin", dir, key);
    FILE *f = fopen(path, "rb");
    size_t n = fread(file, 1, sizeof file, f);
    fclose(f);
    assert_true(n > CUBIN && n < sizeof file);
    int refused = 0;
    for (size_t i = 0; i < n; i += i < n - CUBIN ? 1 : 97) {
        for (int cut = 0; cut < 2; cut++) {
            f = fopen(path, "wb");
            file[i] ^= 0x1b; /* an escape in a name */
            fwrite(file, 1, cut ? i : n, f);
            file[i] ^= 0x1b;
            fclose(f);
            refused += !read_whole();
            vt_buf list;
            vt_buf_init(&list, 0);
            assert_int_equal(vt_jit_list(&list, NULL), VT_OK);
            assert_true(!list.len || !memchr(list.data, 0x1b, list.len));
            vt_buf_release(&list);
        }
    }
    assert_true(refused > (int)(n - CUBIN));  /* every cut, and what matters of the header */
    for (size_t more = 0; more < 2; more++) { /* nor is a file read that goes on */
        f = fopen(path, "wb");
        fwrite(file, 1, n, f);
        fwrite("x", 1, more, f);
        fclose(f);
        assert_int_equal(read_whole(), more == 0);
    }
    remove_cache(dir);
}

/* The entry at `path` must not be used. If the whole folder is refused, the sentence of
 * vt_jit_check_cache has `words`. */
static void expect_refused(const char *words)
{
    jit_cubin out;
    vt_err err = {0};
    assert_null(jit_cache_read(key, 13, 0, &out));
    assert_null(jit_cache_read(key, 0, 0, &out));
    if (words) {
        assert_int_equal(vt_jit_check_cache(&err), VT_ERR_IO);
        assert_non_null(strstr(err.message, words));
    }
}

/* Code that another user could have written must not run on this user's GPU. */
static void test_jit_cache_when_others_could_have_written_it_then_it_is_not_used(void **state)
{
    (void)state;
    char dir[] = "/tmp/vitrine-cubin-XXXXXX", folder[256], path[400], moved[400], bytes[CUBIN];
    struct stat st;
    assert_non_null(mkdtemp(dir));
    setenv("VITRINE_CACHE", dir, 1);
    fill_cubin(bytes, 1);
    jit_cubin in = {.bytes = bytes, .size = CUBIN};
    jit_cache_write(key, 13, 0, "sm_90a", "some<kernel=1>", &in);
    snprintf(folder, sizeof folder, "%s/cubin", dir);
    snprintf(path, sizeof path, "%s/%s-13.0.cubin", folder, key);
    snprintf(moved, sizeof moved, "%s/elsewhere", dir);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(read_whole());
    assert_int_equal(vt_jit_check_cache(NULL), VT_OK);

    assert_int_equal(chmod(folder, 0777), 0);
    expect_refused("mode 777");
    assert_int_equal(chmod(folder, 0770), 0);
    expect_refused("lets other users write");
    assert_int_equal(chmod(folder, 0755), 0);
    assert_true(read_whole());
    assert_int_equal(chmod(path, 0664), 0);
    expect_refused(NULL);
    assert_int_equal(chmod(path, 0644), 0);
    assert_true(read_whole());
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(symlink(moved, path), 0);
    expect_refused(NULL);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(moved, path), 0);
    if (geteuid() == 0) { /* only root can give files away */
        assert_int_equal(chown(path, 12345, 12345), 0);
        expect_refused(NULL);
        assert_int_equal(chown(path, 0, 0), 0);
        assert_int_equal(chown(folder, 12345, 12345), 0);
        expect_refused("belongs to user 12345");
    }
    remove_cache(dir);
}

static void test_jit_cache_when_processes_write_at_once_then_each_file_is_whole(void **state)
{
    (void)state;
    enum { WRITERS = 3, ROUNDS = 60 };
    char dir[] = "/tmp/vitrine-cubin-XXXXXX", bytes[CUBIN];
    pid_t child[WRITERS];
    assert_non_null(mkdtemp(dir));
    setenv("VITRINE_CACHE", dir, 1);
    for (int w = 0; w < WRITERS; w++) {
        child[w] = fork();
        assert_true(child[w] >= 0);
        if (child[w] > 0)
            continue;
        fill_cubin(bytes, w);
        jit_cubin in = {.bytes = bytes, .size = CUBIN};
        for (int i = 0; i < ROUNDS; i++)
            jit_cache_write(key, 13, 0, "sm_90a", "some<kernel=1>", &in);
        _exit(0);
    }
    bool seen = false;
    for (int i = 0; i < ROUNDS; i++) {
        bool there = read_whole();
        assert_true(there || !seen); /* once an entry exists it always does */
        seen = there;
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = 1;
        assert_int_equal(waitpid(child[w], &status, 0), child[w]);
        assert_int_equal(status, 0);
    }
    assert_true(read_whole());
    remove_cache(dir);
}

static void test_jit_cache_when_a_file_is_torn_then_it_is_not_read(void **state)
{
    (void)state;
    char dir[] = "/tmp/vitrine-cubin-XXXXXX", path[256];
    assert_non_null(mkdtemp(dir));
    setenv("VITRINE_CACHE", dir, 1);
    char bytes[1000];
    memset(bytes, 42, sizeof bytes);
    jit_cubin in = {.bytes = bytes, .size = sizeof bytes, .registers = 40}, out;
    jit_cache_write(key, 13, 0, "sm_90a", "some<kernel=1>", &in);
    void *got = jit_cache_read(key, 13, 0, &out);
    assert_non_null(got);
    assert_int_equal(out.size, sizeof bytes);
    assert_int_equal(out.registers, 40);
    assert_memory_equal(out.bytes, bytes, sizeof bytes);
    free(got);
    assert_null(jit_cache_read(key, 12, 0, &out)); /* another NVRTC */
    got = jit_cache_read(key, 0, 0, &out);         /* no NVRTC: any will do */
    assert_non_null(got);
    free(got);

    vt_buf list;
    vt_buf_init(&list, 0);
    assert_int_equal(vt_jit_list(&list, NULL), VT_OK);
    assert_non_null(strstr(list.data, "some<kernel=1>"));
    vt_buf_release(&list);

    snprintf(path, sizeof path, "%s/cubin/%s-13.0.cubin", dir, key);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    fputc(43, f);
    fclose(f);
    assert_null(jit_cache_read(key, 13, 0, &out));
    unlink(path);
    snprintf(path, sizeof path, "%s/cubin", dir);
    rmdir(path);
    rmdir(dir);
    unsetenv("VITRINE_CACHE");
}

static void test_cuda_open_when_there_is_no_driver_then_the_message_says_what_to_do(void **state)
{
    (void)state;
    vt_cuda *c;
    vt_err err = {0};
    if (vt_cuda_open(0, &c, &err) == VT_OK) {
        vt_cuda_close(c);
        skip();
    }
    assert_int_equal(err.status, VT_ERR_DEVICE);
    assert_non_null(strstr(err.message, "--device cpu"));
}

/* The error comes before anything is opened, so it needs no device. */
static void test_executor_when_the_environment_is_wrong_then_it_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *message;
    } wrong[] = {
        {"VITRINE_CUDA_PDL", "off", "VITRINE_CUDA_PDL=off: expected 0 or 1"},
        {"VITRINE_CUDA_ONE_GRAPH", "yes", "VITRINE_CUDA_ONE_GRAPH=yes: expected 0 or 1"},
        {"VITRINE_CUDA_SHARED", "abc",
         "VITRINE_CUDA_SHARED=abc: expected a number of KV rows from 0 to 2147483647"},
        {"VITRINE_CUDA_SHARED", "-1",
         "VITRINE_CUDA_SHARED=-1: expected a number of KV rows from 0 to 2147483647"},
        {"VITRINE_CUDA_SHARED", "4294967296",
         "VITRINE_CUDA_SHARED=4294967296: expected a number of KV rows from 0 to 2147483647"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vt_executor_config config = {.kv_dtype = VT_BF16};
        vt_cuda_options options;
        vt_executor *x = NULL;
        vt_err err = {0};
        setenv(wrong[i].name, wrong[i].value, 1);
        vt_cuda_options_init(&options);
        assert_int_equal(vt_executor_cuda_new(NULL, &config, &options, &x, &err), VT_ERR_USAGE);
        unsetenv(wrong[i].name);
        assert_string_equal(err.message, wrong[i].message);
        assert_null(x);
    }
}

static void test_nvml_read_when_there_is_no_library_then_it_says_so(void **state)
{
    (void)state;
    vt_gpu_state s;
    vt_err err = {0};
    if (dlopen("libnvidia-ml.so.1", RTLD_LAZY))
        skip();
    assert_int_equal(vt_nvml_read(0, &s, &err), VT_ERR_DEVICE);
    assert_non_null(strstr(err.message, "not available"));
    assert_non_null(strstr(err.message, "libnvidia-ml.so.1"));
    assert_string_equal(vt_nvml_reason(2), "power-cap");
    assert_null(vt_nvml_reason(-1));
    assert_null(vt_nvml_reason(64));
}

/* A GGUF file may have any of these biases; a missing one counts as zeros. */
static void test_weights_when_some_of_q_k_v_have_biases_then_they_are_joined(void **state)
{
    (void)state;
    enum { MOST = 512 };
    static float zeros[MOST];
    vt_model *m = tiny_model("llama");
    vt_cuda_weights *w;
    vt_layer *l = &m->layer[0];
    vt_tensor bias[3];
    const vt_tensor *matrix[3] = {l->weight[VT_ROLE_Q], l->weight[VT_ROLE_K], l->weight[VT_ROLE_V]},
                    **to = &l->weight[VT_ROLE_Q_BIAS];
    for (int i = 0; i < 3; i++) {
        int64_t n = matrix[i]->dim[0];
        assert_true(n <= MOST);
        bias[i] = (vt_tensor){
            .data = zeros, .dtype = VT_F32, .rank = 1, .dim = {n}, .row_stride = n};
    }
    for (int set = 0; set < 8; set++) {
        for (int i = 0; i < 3; i++)
            to[i] = set >> i & 1 ? &bias[i] : NULL;
        assert_int_equal(vt_cuda_weights_load(NULL, m, 64, 1, &w, NULL), VT_OK);
        const vt_layer_weights *got = &w->weights.layer[0];
        assert_non_null(got->weight[VT_ROLE_QKV]);
        assert_int_equal(got->tensor[VT_ROLE_QKV_BIAS] != NULL, set != 0);
        if (set)
            assert_int_equal(got->tensor[VT_ROLE_QKV_BIAS]->dim[0], got->weight[VT_ROLE_QKV]->rows);
        vt_cuda_weights_free(NULL, w);
    }
    vt_model_free(m);
}

/* 512 tokens of 4 query heads a KV head in tiles of 128 rows: 16 tiles for each of 8 KV heads,
 * where the plan of a step of this size has room for 18. */
static void test_cut_when_planned_then_it_counts_the_items_and_not_their_room(void **state)
{
    (void)state;
    vt_cut cut = {.items = 18 * 8, .workers = 132, .resident = 1, .waves = 144 / 132.0};
    vt_cut_planned(&cut, 512 * 4 / 128, 18);
    assert_int_equal(cut.items, 128);
    assert_float_equal(cut.waves, 128 / 132.0, 1e-9);
    vt_cut_planned(&cut, 0, 18); /* a row that fills no plan stays as it says */
    assert_int_equal(cut.items, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_plan_when_lengths_vary_then_each_kv_is_covered_once),
        cmocka_unit_test(test_decode_plan_when_decodes_are_few_then_ranges_fill_the_rings),
        cmocka_unit_test(test_decode_plan_when_deterministic_then_it_is_cut_at_chunks_only),
        cmocka_unit_test(test_dealing_when_counts_are_odd_then_each_item_is_dealt_once),
        cmocka_unit_test(
            test_dealing_when_prompts_are_long_then_no_cta_has_much_more_than_the_mean),
        cmocka_unit_test(test_tiles_plan_when_kv_is_cached_then_the_longest_items_come_first),
        cmocka_unit_test(test_tiles_plan_when_capacity_is_short_then_the_count_is_larger),
        cmocka_unit_test(test_sample_plan_when_a_row_has_no_penalty_then_its_context_stays_at_home),
        cmocka_unit_test(test_sample_plan_when_rows_side_by_side_have_a_mask_then_it_travels_once),
        cmocka_unit_test(test_sample_plan_when_rows_bring_everything_then_each_finds_its_own),
        cmocka_unit_test(test_sample_plan_when_padded_then_the_rest_asks_for_nothing),
        cmocka_unit_test(
            test_library_when_one_sequence_runs_at_level_90_then_only_where_it_is_asked_for),
        cmocka_unit_test(test_jit_want_when_asked_twice_then_one_instance),
        cmocka_unit_test(
            test_jit_want_when_names_lie_elsewhere_or_places_are_shared_then_same_instance),
        cmocka_unit_test(test_jit_add_text_when_the_name_is_embedded_then_refused),
        cmocka_unit_test(test_jit_cache_when_a_file_is_torn_then_it_is_not_read),
        cmocka_unit_test(test_jit_cache_when_others_could_have_written_it_then_it_is_not_used),
        cmocka_unit_test(
            test_jit_cache_when_a_byte_is_wrong_or_the_end_is_missing_then_nothing_false_is_read),
        cmocka_unit_test(test_jit_cache_when_processes_write_at_once_then_each_file_is_whole),
        cmocka_unit_test(test_weights_when_some_of_q_k_v_have_biases_then_they_are_joined),
        cmocka_unit_test(test_cuda_open_when_there_is_no_driver_then_the_message_says_what_to_do),
        cmocka_unit_test(test_executor_when_the_environment_is_wrong_then_it_is_named),
        cmocka_unit_test(test_cut_when_planned_then_it_counts_the_items_and_not_their_room),
        cmocka_unit_test(test_nvml_read_when_there_is_no_library_then_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
