/* Decodes with common first pages: the groups that are found, and that a plan with items of several
 * sequences covers every sequence's KV once, in slots that nobody else has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_shared.h"

enum { MOST = 1200, PAGES = 80, TRUNKS = 5 };

static uint32_t rng;

static int32_t below(int32_t n)
{
    rng = rng * 1664525u + 1013904223u;
    return (int32_t)((rng >> 8) % (uint32_t)n);
}

/* Sequences whose pages the test writes. */
typedef struct sequences {
    vt_batch batch;
    int32_t kv_len[MOST], q_start[MOST + 1], page_start[MOST + 1], page_ids[MOST * PAGES];
    int32_t next_page;
} sequences;

static sequences *new_sequences(int32_t page_size)
{
    sequences *q = calloc(1, sizeof *q);
    assert_non_null(q);
    q->batch = (vt_batch){.page_size = page_size,
                          .kv_len = q->kv_len,
                          .q_start = q->q_start,
                          .page_start = q->page_start,
                          .page_ids = q->page_ids};
    q->next_page = 1000;
    return q;
}

/* The first `n` of `pages`, pages of its own behind them, and its last token `used` tokens into the
 * last page. */
static void add(sequences *q, const int32_t *pages, int32_t n, int32_t n_own, int32_t used)
{
    vt_batch *b = &q->batch;
    int32_t *to = q->page_ids + b->n_pages, s = b->n_seqs++;
    assert_true(b->n_seqs <= MOST && n + n_own <= PAGES);
    if (n > 0)
        memcpy(to, pages, (size_t)n * sizeof *to);
    for (int32_t i = 0; i < n_own; i++)
        to[n + i] = q->next_page++;
    b->n_pages += n + n_own;
    b->n_decode = b->n_tokens = b->n_seqs;
    q->kv_len[s] = (n + n_own - 1) * b->page_size + used;
    q->q_start[s + 1] = s + 1;
    q->page_start[s + 1] = b->n_pages;
}

/* Some begin like one of a few trunks, themselves alike at first, some like nothing. */
static sequences *random_sequences(int32_t n)
{
    int32_t trunk[TRUNKS][PAGES], sizes[] = {1, 5, 16, 64}, size = sizes[below(4)];
    sequences *q = new_sequences(size);
    for (int32_t t = 0; t < TRUNKS; t++)
        for (int32_t i = 0; i < PAGES; i++)
            trunk[t][i] = i < 2 * (t % 3) ? i : 100 + t * PAGES + i;
    for (int32_t s = 0; s < n; s++)
        add(q, trunk[below(TRUNKS)], below(4) ? below(PAGES / 2) + below(PAGES / 3) : 0,
            1 + below(5), 1 + below(size));
    return q;
}

static const int32_t *pages_of(const sequences *q, int32_t s)
{
    return q->page_ids + q->page_start[s];
}

/* ---- groups ---- */

static void test_groups_when_a_longer_run_saves_more_then_it_is_taken(void **state)
{
    (void)state;
    static const int32_t pages[] = {7, 3, 9, 4, 1, 7, 3, 9, 4, 2, 5, 6, 7, 8};
    sequences *q = new_sequences(16);
    shared_rule rule = {.least_tokens = 1, .least_saved = 1, .tile = 8};
    shared_groups g;
    add(q, pages, 5, 0, 1);
    add(q, pages + 5, 5, 0, 16);
    add(q, pages + 10, 2, 0, 3);
    add(q, pages + 12, 2, 0, 3);
    shared_groups_find(&q->batch, &rule, &g);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.group[0].n, 2);
    assert_int_equal(g.group[0].len, 4 * 16);
    assert_int_equal(g.seq[0], 0);
    assert_int_equal(g.seq[1], 1);
    for (int32_t i = 0; i < 4; i++) /* now one page of six is more than four of two */
        add(q, pages, 1, 1, 3);
    shared_groups_find(&q->batch, &rule, &g);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.group[0].n, 7);
    assert_int_equal(g.group[0].len, 16);
    rule.least_saved = 7 * 16;
    shared_groups_find(&q->batch, &rule, &g);
    assert_int_equal(g.n, 0);
    free(q);
}

/* The page of the last token is nobody else's, even if the batch says so. */
static void test_groups_when_all_pages_are_the_same_then_the_last_token_is_own(void **state)
{
    (void)state;
    static const int32_t pages[] = {4, 5, 6};
    sequences *q = new_sequences(4);
    shared_rule rule = {.least_tokens = 1, .least_saved = 1, .tile = 8};
    shared_groups g;
    add(q, pages, 3, 0, 4);
    add(q, pages, 3, 0, 4);
    shared_groups_find(&q->batch, &rule, &g);
    assert_int_equal(g.n, 1);
    assert_int_equal(g.group[0].len, 8);
    free(q);
}

static void check_groups(const sequences *q, const shared_rule *rule)
{
    static shared_groups g;
    bool taken[MOST] = {false};
    int32_t at = 0;
    shared_groups_find(&q->batch, rule, &g);
    for (int32_t i = 0; i < g.n; i++) {
        const shared_group *o = &g.group[i];
        int64_t tiles = (o->n + rule->tile - 1) / rule->tile;
        assert_int_equal(o->first, at);
        assert_int_equal(o->len % q->batch.page_size, 0);
        assert_true(o->n >= 2 && o->len >= rule->least_tokens);
        assert_true((o->n - tiles) * o->len >= rule->least_saved);
        for (int32_t k = 0; k < o->n; k++) {
            int32_t s = g.seq[at + k];
            assert_in_range(s, 0, q->batch.n_seqs - 1);
            assert_false(taken[s]);
            taken[s] = true;
            assert_true(o->len < q->kv_len[s]);
            assert_memory_equal(pages_of(q, s), pages_of(q, g.seq[at]),
                                (size_t)(o->len / q->batch.page_size) * 4);
        }
        at += o->n;
    }
    assert_int_equal(g.n_seqs, at);
}

static void test_groups_when_sequences_are_random_then_members_have_the_pages(void **state)
{
    (void)state;
    rng = 3;
    for (int32_t i = 0; i < 300; i++) {
        sequences *q = random_sequences(1 + below(i % 50 ? 90 : MOST));
        check_groups(q, &(shared_rule){.least_tokens = 1 + below(100),
                                       .least_saved = 1 + below(500),
                                       .tile = 1 + below(64)});
        free(q);
    }
}

static void test_groups_when_there_are_many_pairs_then_each_is_found(void **state)
{
    (void)state;
    static shared_groups g;
    sequences *q = new_sequences(16);
    for (int32_t i = 0; i < SHARED_MOST_SEQS; i++)
        add(q, (int32_t[]){i % (SHARED_MOST_SEQS / 2), 5000 + i % (SHARED_MOST_SEQS / 2)}, 2, 1, 3);
    shared_groups_find(&q->batch, &(shared_rule){.least_tokens = 1, .least_saved = 1, .tile = 4},
                       &g);
    assert_int_equal(g.n, SHARED_MOST_SEQS / 2);
    for (int32_t i = 0; i < g.n; i++)
        assert_true(g.group[i].n == 2 && g.group[i].len == 32);
    free(q);
}

/* ---- plans ---- */

/* What is known of a slot: whose it is, and the KV that was put there. */
typedef struct slot {
    int32_t seq, begin, end;
} slot;

static void fill_slot(slot *slots, int32_t n_slots, int32_t at, int32_t seq, int32_t begin,
                      int32_t end)
{
    assert_in_range(at, 0, n_slots - 1);
    assert_int_equal(slots[at].seq, -1);
    slots[at] = (slot){seq, begin, end};
}

/* Returns how many items are of several sequences. */
static int32_t check_plan(const attention_plan_config *c, const sequences *q)
{
    const vt_batch *b = &q->batch;
    int32_t n = b->n_seqs, capacity = attention_decode_capacity(c, n, PAGES * b->page_size), used,
            none, unused[2], n_shared = 0;
    int32_t *plan = calloc(attention_decode_plan_ints(capacity, n), sizeof *plan);
    const int32_t *member = plan + (size_t)capacity * DECODE_ITEM_INTS;
    size_t floats = (size_t)c->heads * (128 + 2);
    int32_t n_slots = (int32_t)(attention_decode_workspace(c, capacity, 128) / (floats * 4));
    slot *slots = calloc((size_t)n_slots, sizeof *slots);
    int32_t *first = calloc((size_t)n, sizeof *first), *count = calloc((size_t)n, sizeof *count);
    assert_true(plan && slots && first && count);
    for (int32_t i = 0; i < n_slots; i++)
        slots[i].seq = -1;
    attention_cuda_plan(c, b, plan, capacity, unused, 0, &used, &none);
    assert_true(used <= capacity);
    for (int32_t i = 0; i < used; i++) {
        const int32_t *item = plan + (size_t)i * DECODE_ITEM_INTS;
        assert_true(item[1] >= 0 && item[1] < item[2]);
        if (item[6] == 0) {
            fill_slot(slots, n_slots, item[5], item[0], item[1], item[2]);
            assert_true(count[item[0]] == 0 ||
                        (first[item[0]] == item[3] && count[item[0]] == item[4]));
            first[item[0]] = item[3];
            count[item[0]] = item[4];
            continue;
        }
        n_shared++;
        assert_in_range(item[6] * (c->heads / c->kv_heads), 1, ATTENTION_SHARED_ROWS);
        for (int32_t k = 0; k < item[6]; k++) {
            const int32_t *m = member + (size_t)(item[0] + k) * DECODE_MEMBER_INTS;
            int32_t pages = (item[2] + b->page_size - 1) / b->page_size;
            assert_in_range(m[0], 0, n - 1);
            assert_true(item[2] < q->kv_len[m[0]]);
            assert_memory_equal(pages_of(q, m[0]),
                                pages_of(q, member[(size_t)item[0] * DECODE_MEMBER_INTS]),
                                (size_t)pages * 4);
            fill_slot(slots, n_slots, m[1] + item[5], m[0], item[1], item[2]);
        }
    }
    for (int32_t s = 0; s < n; s++) { /* the slots in their order are its KV */
        int32_t covered = 0;
        for (int32_t k = 0; k < count[s]; k++) {
            const slot *o = &slots[first[s] + k];
            assert_int_equal(o->seq, s);
            assert_int_equal(o->begin, covered);
            covered = o->end;
        }
        assert_int_equal(covered, q->kv_len[s]);
    }
    for (int32_t i = 0; n_shared > 0 && i < used; i++) { /* members know their slots */
        const int32_t *item = plan + (size_t)i * DECODE_ITEM_INTS;
        for (int32_t k = 0; k < item[6]; k++) {
            const int32_t *m = member + (size_t)(item[0] + k) * DECODE_MEMBER_INTS;
            assert_int_equal(m[1], first[m[0]]);
            assert_int_equal(m[2], count[m[0]]);
        }
    }
    for (int32_t i = used; i < capacity; i++)
        assert_int_equal(plan[(size_t)i * DECODE_ITEM_INTS], -1);
    free(plan);
    free(slots);
    free(first);
    free(count);
    return n_shared;
}

static void test_plan_when_pages_are_shared_then_each_kv_is_covered_once(void **state)
{
    (void)state;
    static const int32_t heads[][2] = {{32, 8}, {16, 8}, {9, 3}, {40, 8}, {16, 1}, {8, 8}, {3, 1}};
    int32_t n_shared = 0;
    rng = 11;
    for (int32_t i = 0; i < 400; i++) {
        const int32_t *h = heads[below(7)];
        attention_plan_config c = {.heads = h[0],
                                   .kv_heads = h[1],
                                   .sm_count = below(2) ? 132 : 4,
                                   .shared_rows = 1 + below(3000)};
        sequences *q = random_sequences(1 + below(i % 50 ? 90 : MOST));
        n_shared += check_plan(&c, q);
        free(q);
    }
    assert_true(n_shared > 1000);
}

/* Heads that fill more than a tile, sharing turned off, too little to save: nothing is shared. */
static void test_plan_when_sharing_does_not_apply_then_there_is_none(void **state)
{
    (void)state;
    const attention_plan_config c[] = {
        {.heads = 64, .kv_heads = 2, .sm_count = 132, .shared_rows = 1},
        {.heads = 32, .kv_heads = 8, .sm_count = 132, .shared_rows = 0},
        {.heads = 32, .kv_heads = 8, .sm_count = 132, .shared_rows = 1 << 30}};
    rng = 5;
    for (int32_t i = 0; i < 30; i++) {
        sequences *q = random_sequences(60);
        assert_int_equal(check_plan(&c[i % 3], q), 0);
        free(q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_when_a_longer_run_saves_more_then_it_is_taken),
        cmocka_unit_test(test_groups_when_all_pages_are_the_same_then_the_last_token_is_own),
        cmocka_unit_test(test_groups_when_sequences_are_random_then_members_have_the_pages),
        cmocka_unit_test(test_groups_when_there_are_many_pairs_then_each_is_found),
        cmocka_unit_test(test_plan_when_pages_are_shared_then_each_kv_is_covered_once),
        cmocka_unit_test(test_plan_when_sharing_does_not_apply_then_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
