/* Decodes with common first pages: the right groups are found, and a plan with items of several
 * sequences covers every sequence's KV once, in slots that belong to that sequence alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "ops/attention/attention_cuda.h"
#include "ops/shared_kv.h"
#include "ops/cuda_impls.h"

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

/* Adds a sequence with the first `n` of `pages`, then pages of its own. Its last page holds `used`
 * tokens. */
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

/* Some sequences begin like one of a few trunks, whose beginnings are equal; others share
 * nothing. */
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

/* Pages with few different ids in random order, so that lists agree by chance for any length, also
 * after a difference; or ids that have the same place in the hash table (ops/shared_kv.c). */
static sequences *hostile_sequences(int32_t n)
{
    int32_t sizes[] = {1, 2, 5, 16, 64, 128}, size = sizes[below(6)], ids[8], n_ids = 1 + below(8);
    bool collide = below(2);
    sequences *q = new_sequences(size);
    for (int32_t i = 0, id = below(1000); i < n_ids; i++, id++) {
        uint32_t place = (uint32_t)ids[0] * 2654435769u >> 21;
        while (collide && i > 0 && (uint32_t)id * 2654435769u >> 21 != place)
            id++;
        ids[i] = id;
    }
    for (int32_t s = 0; s < n; s++) {
        int32_t pages[PAGES], n_pages = 1 + below(1 + below(PAGES)), same = below(4);
        for (int32_t i = 0; i < n_pages; i++)
            pages[i] = ids[same ? i % (1 + same) % n_ids : below(n_ids)];
        add(q, pages, n_pages, 0, 1 + below(size));
    }
    return q;
}

/* All sequences share nearly all of their pages: this needs the most slots for the fewest items. */
static sequences *one_family(int32_t n)
{
    int32_t trunk[PAGES], sizes[] = {16, 64, 128}, size = sizes[below(3)],
                          same = PAGES / 2 + below(PAGES / 2 - 1);
    sequences *q = new_sequences(size);
    for (int32_t i = 0; i < PAGES; i++)
        trunk[i] = 500 + i;
    for (int32_t s = 0; s < n; s++)
        add(q, trunk, below(20) ? same : 0, 1, 1 + below(size));
    return q;
}

/* Takes each kind in turn. */
static sequences *any_sequences(int32_t i, int32_t n)
{
    return i % 3 == 0 ? random_sequences(n) : i % 3 == 1 ? hostile_sequences(n) : one_family(n);
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

/* The page of the last token is never shared, even if the batch says so. */
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
        int32_t n = 1 + below(i % 50 ? 90 : MOST);
        sequences *q = any_sequences(i, n);
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

/* A slot: its sequence, and the KV whose result it holds. */
typedef struct slot {
    int32_t seq, begin, end;
} slot;

/* Executes a plan like the kernel (attention_decode.cu), and notes what it computes. */
typedef struct executed {
    const attention_plan_config *c;
    const sequences *q;
    int32_t n; /* decodes, with padding */
    const int32_t *item, *member;
    int32_t capacity, n_slots;
    slot *slots;
    int32_t *first, *count; /* [n] the sequence's slots, as items and members say */
    uint8_t *seen;          /* [n][longest] how often a token was computed */
    int32_t longest;
} executed;

static void see(executed *x, int32_t seq, int32_t begin, int32_t end)
{
    for (int32_t t = begin; t < end; t++)
        x->seen[(size_t)seq * (size_t)x->longest + (size_t)t]++;
}

static void fill_slot(executed *x, int32_t at, int32_t seq, int32_t begin, int32_t end)
{
    assert_in_range(at, 0, x->n_slots - 1);
    assert_int_equal(x->slots[at].seq, -1);
    x->slots[at] = (slot){seq, begin, end};
}

/* All items and members of a sequence must name the same slots. */
static void note_slots(executed *x, int32_t seq, int32_t first, int32_t count)
{
    assert_true(count > 0);
    assert_true(x->count[seq] == 0 || (x->first[seq] == first && x->count[seq] == count));
    x->first[seq] = first;
    x->count[seq] = count;
}

static void run_own(executed *x, const int32_t *item)
{
    assert_in_range(item[0], 0, x->n - 1);
    assert_in_range(item[2], item[1] + 1, x->q->kv_len[item[0]]);
    see(x, item[0], item[1], item[2]);
    note_slots(x, item[0], item[3], item[4]);
    if (item[4] > 1)
        fill_slot(x, item[5], item[0], item[1], item[2]);
}

/* An item that is read from the first member's pages for all members. */
static void run_shared(executed *x, const int32_t *item)
{
    const vt_batch *b = &x->q->batch;
    int32_t lead = x->member[(size_t)item[0] * DECODE_MEMBER_INTS];
    assert_in_range(item[6] * (x->c->heads / x->c->kv_heads), 1, ATTENTION_SHARED_ROWS);
    for (int32_t k = 0; k < item[6]; k++) {
        const int32_t *m = x->member + (size_t)(item[0] + k) * DECODE_MEMBER_INTS;
        assert_in_range(m[0], 0, x->n - 1);
        assert_in_range(item[2], item[1] + 1, x->q->kv_len[m[0]] - 1);
        for (int32_t t = item[1]; t < item[2]; t++)
            assert_int_equal(pages_of(x->q, m[0])[t / b->page_size],
                             pages_of(x->q, lead)[t / b->page_size]);
        see(x, m[0], item[1], item[2]);
        note_slots(x, m[0], m[1], m[2]);
        assert_true(item[5] < m[2]); /* a member has at least one more slot, for its own part */
        fill_slot(x, m[1] + item[5], m[0], item[1], item[2]);
    }
}

/* Every token of every sequence is computed once, and all slots that are merged are filled, in
 * rising order. */
static void check_executed(const executed *x)
{
    for (int32_t s = 0; s < x->n; s++) {
        int32_t covered = 0;
        for (int32_t t = 0; t < x->longest; t++)
            assert_int_equal(x->seen[(size_t)s * (size_t)x->longest + (size_t)t],
                             t < x->q->kv_len[s]);
        for (int32_t k = 0; k < x->count[s] && x->count[s] > 1; k++) {
            const slot *o = &x->slots[x->first[s] + k];
            assert_int_equal(o->seq, s);
            assert_int_equal(o->begin, covered);
            covered = o->end;
        }
        assert_true(x->count[s] > 0 && (x->count[s] == 1 || covered == x->q->kv_len[s]));
    }
}

/* Makes a plan with room for `padding` more sequences, and adds these after it like
 * attention_cuda.c. Returns how many items have several sequences. */
static int32_t check_plan(const attention_plan_config *c, sequences *q, int32_t padding)
{
    static const int32_t padding_page = 0;
    vt_batch *b = &q->batch;
    int32_t n = b->n_seqs + padding, longest = 1, n_shared = 0;
    for (int32_t s = 0; s < b->n_seqs; s++)
        longest = q->kv_len[s] > longest ? q->kv_len[s] : longest;
    /* sometimes the longest possible context is not longer than the longest sequence */
    int32_t capacity = attention_decode_capacity(c, n, longest + (below(2) ? below(5000) : 0));
    int32_t *plan = calloc(attention_decode_plan_ints(capacity, n), sizeof *plan);
    size_t floats = (size_t)c->heads * (128 + 2);
    executed x = {.c = c,
                  .q = q,
                  .n = n,
                  .item = plan,
                  .member = plan + (size_t)capacity * DECODE_ITEM_INTS,
                  .capacity = capacity,
                  .n_slots = (int32_t)(attention_decode_workspace(c, capacity, 128) / (floats * 4)),
                  .first = calloc((size_t)n, sizeof *x.first),
                  .count = calloc((size_t)n, sizeof *x.count),
                  .seen = calloc((size_t)n, (size_t)longest),
                  .longest = longest};
    x.slots = malloc((size_t)x.n_slots * sizeof *x.slots);
    assert_true(plan && x.slots && x.first && x.count && x.seen);
    memset(x.slots, 0xff, (size_t)x.n_slots * sizeof *x.slots);
    int32_t used = attention_decode_fill(c, b, plan, capacity);
    for (int32_t i = used; i < capacity; i++)
        assert_int_equal(plan[(size_t)i * DECODE_ITEM_INTS], -1);
    for (int32_t i = 0; i < padding; i++) {
        add(q, &padding_page, 1, 0, 1);
        used += attention_decode_single(c, b->n_seqs - 1, plan, used);
    }
    assert_in_range(used, n, capacity);
    for (int32_t i = 0; i < used; i++) {
        const int32_t *item = plan + (size_t)i * DECODE_ITEM_INTS;
        n_shared += item[6] > 0;
        item[6] > 0 ? run_shared(&x, item) : run_own(&x, item);
    }
    check_executed(&x);
    assert_int_equal(attention_shared_items(plan, used), n_shared);
    free(plan);
    free(x.slots);
    free(x.first);
    free(x.count);
    free(x.seen);
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
                                   .few = {8, 3},
                                   .sm_count = below(2) ? 132 : 4,
                                   .shared_rows = 1 + below(3000)};
        int32_t n = 1 + below(i % 50 ? 90 : MOST - 60);
        sequences *q = any_sequences(i, n);
        int32_t shared = check_plan(&c, q, below(2) ? below(60) : 0);
        if (!attention_may_share(&c, n)) /* the kernel could not read such items */
            assert_int_equal(shared, 0);
        n_shared += shared;
        free(q);
    }
    assert_true(n_shared > 1000);
}

/* If a token's heads fill more than a tile, or sharing is turned off, no plan may have shared
 * items. If too little would be saved, this plan has none. */
static void test_plan_when_sharing_does_not_apply_then_there_is_none(void **state)
{
    (void)state;
    const attention_plan_config c[] = {
        {.heads = 64, .kv_heads = 2, .few = {8, 3}, .sm_count = 132, .shared_rows = 1},
        {.heads = 32, .kv_heads = 8, .few = {8, 3}, .sm_count = 132, .shared_rows = 0},
        {.heads = 32, .kv_heads = 8, .few = {8, 3}, .sm_count = 132, .shared_rows = 1 << 30}};
    rng = 5;
    for (int32_t i = 0; i < 30; i++) {
        sequences *q = random_sequences(60);
        assert_int_equal(attention_may_share(&c[i % 3], 60), i % 3 == 2);
        assert_int_equal(check_plan(&c[i % 3], q, 0), 0);
        free(q);
    }
}

/* With the same pages and the same rule: from how many decodes on pages are read once. */
static void test_plan_when_decodes_are_few_then_they_share_nothing(void **state)
{
    (void)state;
    static const int32_t pages[] = {3, 1, 4, 15, 9, 2, 6, 5};
    attention_plan_config c = {
        .heads = 32, .kv_heads = 8, .few = {8, 3}, .sm_count = 132, .shared_rows = 1};
    for (int32_t n = 1; n < 20; n++) {
        sequences *q = new_sequences(64);
        for (int32_t s = 0; s < n; s++)
            add(q, pages, 8, 1, 1 + s);
        bool may = n > ATTENTION_FEW;
        assert_int_equal(attention_may_share(&c, n), may);
        assert_int_equal(check_plan(&c, q, 0) > 0, may);
        free(q);
    }
}

/* In a fixed order nothing is shared: the row whose plans can share has no fixed order, and plans
 * of rows with a fixed order never report shared items. */
static void test_plan_when_the_order_is_fixed_then_nothing_is_shared(void **state)
{
    (void)state;
    assert_false(attention_decode_split.fixed_order);
    assert_non_null(attention_decode_split.plan->shared);
    for (const vt_impl *const *impl = attention_decode_op.impls; *impl; impl++)
        if ((*impl)->device == VT_DEVICE_CUDA && (*impl)->fixed_order && (*impl)->plan)
            assert_null((*impl)->plan->shared);
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
        cmocka_unit_test(test_plan_when_decodes_are_few_then_they_share_nothing),
        cmocka_unit_test(test_plan_when_the_order_is_fixed_then_nothing_is_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
