/* The radix prefix cache against small cases and against a plain list of prefixes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "kv/radix_runs.h"

enum { SIZE = 4, PAGES = 64 };

static int32_t below(uint64_t *rng, int32_t n)
{
    return (int32_t)(vt_random_next(rng) % (uint64_t)n);
}

static void check(const vt_radix *r)
{
    vt_err err;
    if (vt_radix_check(r, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static void open_tree(vt_radix *r, int32_t n_pages)
{
    assert_int_equal(vt_radix_init(r, n_pages, SIZE, 4, NULL), VT_OK);
}

/* Enters a text like a finished sequence: full pages, then the tail, then releases the pages.
 * Returns them in page[]. */
static void remember(vt_radix *r, int32_t tenant, const int32_t *token, int32_t n, int32_t *page)
{
    int32_t n_pages = (n + SIZE - 1) / SIZE;
    assert_int_equal(vt_radix_take(r, n_pages, page, VT_EVICT_ADMIT), VT_OK);
    for (int32_t i = 0; i < n_pages; i++) {
        int32_t fill = n - i * SIZE < SIZE ? n - i * SIZE : SIZE;
        int32_t there = vt_radix_insert(r, tenant, i > 0 ? page[i - 1] : -1, token + i * SIZE, fill,
                                        page[i], 1);
        if (there != page[i] && fill == SIZE) {
            vt_radix_hold(r, &there, 1);
            vt_radix_drop(r, &page[i], 1);
            page[i] = there;
        }
    }
    vt_radix_drop(r, page, n_pages);
    check(r);
}

static void test_radix_find_when_nothing_is_there_then_no_hit(void **state)
{
    (void)state;
    vt_radix r;
    int32_t token[] = {1, 2, 3, 4, 5}, page[2];
    open_tree(&r, PAGES);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    vt_radix_match m = vt_radix_find(&r, t, token, 5, 9, page);
    assert_int_equal(m.n_pages, 0);
    assert_int_equal(m.copy_from, -1);
    vt_radix_release(&r);
}

static void test_radix_find_when_prefix_ends_inside_a_page_then_offers_a_copy(void **state)
{
    (void)state;
    vt_radix r;
    int32_t token[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, other[] = {1, 2, 3, 4, 5, 6, 99, 8}, page[3],
            hit[3];
    open_tree(&r, PAGES);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    remember(&r, t, token, 10, page);
    vt_radix_match m = vt_radix_find(&r, t, other, 8, 9, hit);
    assert_int_equal(m.n_pages, 1);
    assert_int_equal(hit[0], page[0]);
    assert_int_equal(m.copy_from, page[1]);
    assert_int_equal(m.copy_tokens, 2);
    m = vt_radix_find(&r, t, token, 10, 9, hit); /* all of it, tail included */
    assert_int_equal(m.n_pages, 2);
    assert_int_equal(m.copy_from, page[2]);
    assert_int_equal(m.copy_tokens, 2);
    vt_radix_release(&r);
}

static void test_radix_find_when_page_is_of_this_step_then_no_copy(void **state)
{
    (void)state;
    vt_radix r;
    int32_t token[] = {1, 2, 3, 4}, other[] = {1, 2, 9}, page[1], hit[1];
    open_tree(&r, PAGES);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    remember(&r, t, token, 4, page); /* written in step 1 */
    assert_int_equal(vt_radix_find(&r, t, other, 3, 1, hit).copy_from, -1);
    assert_int_equal(vt_radix_find(&r, t, other, 3, 2, hit).copy_tokens, 2);
    vt_radix_release(&r);
}

static void test_radix_find_when_salt_differs_then_no_hit(void **state)
{
    (void)state;
    vt_radix r;
    int32_t token[] = {1, 2, 3, 4}, page[1], hit[1];
    open_tree(&r, PAGES);
    int32_t a = vt_radix_join(&r, "a", 1, 0), b = vt_radix_join(&r, "b", 1, 0);
    int32_t adapter = vt_radix_join(&r, "a", 1, 1);
    assert_int_equal(vt_radix_join(&r, "a", 1, 0), a);
    remember(&r, a, token, 4, page);
    assert_int_equal(vt_radix_find(&r, a, token, 4, 9, hit).n_pages, 1);
    assert_int_equal(vt_radix_find(&r, b, token, 4, 9, hit).n_pages, 0);
    assert_int_equal(vt_radix_find(&r, adapter, token, 4, 9, hit).n_pages, 0);
    assert_int_equal(vt_radix_find(&r, VT_NO_TENANT, token, 4, 9, hit).n_pages, 0);
    vt_radix_release(&r);
}

static void test_radix_join_when_table_is_full_then_no_tenant_until_one_leaves(void **state)
{
    (void)state;
    vt_radix r;
    open_tree(&r, PAGES);
    int32_t first = vt_radix_join(&r, "0", 1, 0);
    for (const char *s = "123"; *s; s++)
        assert_true(vt_radix_join(&r, s, 1, 0) >= 0);
    assert_int_equal(vt_radix_join(&r, "4", 1, 0), VT_NO_TENANT);
    vt_radix_leave(&r, first);
    assert_int_equal(vt_radix_join(&r, "4", 1, 0), first);
    vt_radix_release(&r);
}

static void test_radix_evict_keeps_held_prefix(void **state)
{
    (void)state;
    vt_radix r;
    int32_t a[] = {1, 2, 3, 4, 5, 6, 7, 8}, b[] = {1, 2, 3, 4, 9, 9, 9, 9}, page_a[2], page_b[2],
            ids[8];
    open_tree(&r, 4);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    remember(&r, t, a, 8, page_a);
    remember(&r, t, b, 8, page_b);
    assert_int_equal(page_a[0], page_b[0]); /* the shared page was swapped in */
    vt_radix_hold(&r, page_a, 2);
    assert_int_equal(vt_radix_available(&r), 2);
    assert_int_equal(vt_radix_take(&r, 3, ids, VT_EVICT_GROW), VT_ERR_NO_PAGES);
    assert_int_equal(vt_radix_take(&r, 2, ids, VT_EVICT_GROW), VT_OK); /* takes b's last page */
    check(&r);
    assert_int_equal(vt_radix_find(&r, t, a, 8, 9, ids).n_pages, 2);
    assert_int_equal(vt_radix_find(&r, t, b, 8, 9, ids).n_pages, 1);
    assert_int_equal(r.stats.evicted_pages[VT_EVICT_GROW], 1);
    vt_radix_release(&r);
}

static void test_radix_take_when_full_then_least_recently_used_goes_first(void **state)
{
    (void)state;
    vt_radix r;
    int32_t token[3][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}}, page[3][1], id, hit[1];
    open_tree(&r, 3);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    for (int i = 0; i < 3; i++)
        remember(&r, t, token[i], 4, page[i]);
    vt_radix_hold(&r, page[0], 1); /* 0 is used again */
    vt_radix_drop(&r, page[0], 1);
    assert_int_equal(vt_radix_take(&r, 1, &id, VT_EVICT_ADMIT), VT_OK);
    assert_int_equal(id, page[1][0]);
    assert_int_equal(vt_radix_find(&r, t, token[0], 4, 9, hit).n_pages, 1);
    vt_radix_release(&r);
}

static void test_radix_insert_when_a_longer_page_comes_then_the_tail_goes(void **state)
{
    (void)state;
    vt_radix r;
    int32_t tail[] = {1, 2}, whole[] = {1, 2, 3, 4}, page[1];
    open_tree(&r, PAGES);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    remember(&r, t, tail, 2, page);
    assert_int_equal(r.pool.n_cached, 1);
    remember(&r, t, whole, 4, page);
    assert_int_equal(r.pool.n_cached, 1);
    assert_int_equal(r.stats.evicted_pages[VT_EVICT_COVERED], 1);
    remember(&r, t, tail, 2, page); /* covered already: not entered */
    assert_int_equal(r.pool.n_cached, 1);
    vt_radix_release(&r);
}

static void test_radix_dump_when_runs_part_then_one_line_a_run(void **state)
{
    (void)state;
    vt_radix r;
    int32_t a[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, b[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 11}, page[3];
    vt_buf out;
    vt_buf_init(&out, 0);
    open_tree(&r, PAGES);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    remember(&r, t, a, 9, page);
    remember(&r, t, b, 10, page);
    vt_radix_dump(&r, &out);
    assert_string_equal(out.data, "64 pages of 4 tokens: 60 free, 0 held, 4 cached\n"
                                  "tenant without a salt\n"
                                  "  2 pages, 8 tokens, 0 users: ids 1 2 3 4 ...\n"
                                  "    1 page, 1 token, 0 users: ids 9\n"
                                  "    1 page, 2 tokens, 0 users: ids 10 11\n");
    vt_buf_release(&out);
    vt_radix_release(&r);
}

/* Property: find returns the longest prefix that any remembered text shares, page by page, and
 * never a token more. Texts from a small alphabet, holds, drops and evictions are random. */
static int32_t longest_shared(int32_t (*texts)[24], const int32_t *len, int32_t n, const int32_t *q,
                              int32_t nq)
{
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < len[i] && k < nq && texts[i][k] == q[k])
            k++;
        best = k > best ? k : best;
    }
    return best;
}

static void test_radix_find_when_random_then_longest_shared_prefix(void **state)
{
    (void)state;
    uint64_t rng = 12345;
    for (int round = 0; round < 60; round++) {
        vt_radix r;
        int32_t texts[40][24], len[40], page[6], hit[6];
        open_tree(&r, 400); /* room for all: nothing is evicted, so the list is complete */
        int32_t t = vt_radix_join(&r, "", 0, 0);
        for (int32_t i = 0; i < 40; i++) {
            len[i] = 1 + below(&rng, 24);
            for (int32_t k = 0; k < 24; k++)
                texts[i][k] = below(&rng, 2);
            int32_t want = longest_shared(texts, len, i, texts[i], len[i]);
            vt_radix_match m = vt_radix_find(&r, t, texts[i], len[i], 9, hit);
            int32_t got = m.n_pages * SIZE + m.copy_tokens;
            assert_int_equal(got, want);
            remember(&r, t, texts[i], len[i], page);
        }
        vt_radix_flush(&r);
        check(&r);
        assert_int_equal(r.pool.n_free, 400);
        vt_radix_release(&r);
    }
}

static void test_radix_when_pages_are_scarce_then_rules_hold(void **state)
{
    (void)state;
    vt_radix r;
    uint64_t rng = 99;
    int32_t text[24], page[6];
    open_tree(&r, 9);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    for (int i = 0; i < 3000; i++) {
        int32_t n = 1 + below(&rng, 24);
        for (int32_t k = 0; k < n; k++)
            text[k] = below(&rng, 3);
        remember(&r, t, text, n, page);
    }
    assert_true(r.stats.evicted_pages[VT_EVICT_ADMIT] > 1000);
    vt_radix_release(&r);
}
/* Keeps a snapshot at the end of `page` as a sequence would: it takes a slot, and then drops it. */
static int32_t snapshot(vt_radix *r, int32_t page, uint64_t step)
{
    vt_radix_hold(r, &page, 1);
    int32_t slot = vt_radix_take_state(r);
    vt_radix_keep_state(r, page, slot, step);
    vt_radix_drop_state(r, slot);
    vt_radix_drop(r, &page, 1);
    check(r);
    return slot;
}

static void test_radix_find_with_states_then_ends_at_the_last_snapshot(void **state)
{
    (void)state;
    vt_radix r;
    int32_t token[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, page[4], hit[4];
    open_tree(&r, PAGES);
    assert_int_equal(vt_radix_add_states(&r, 2, NULL), VT_OK);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    remember(&r, t, token, 14, page);
    vt_radix_match m = vt_radix_find(&r, t, token, 14, 9, hit);
    assert_true(m.n_pages == 0 && m.n_known == 3 && m.state == -1 && m.copy_from == -1);
    int32_t first = snapshot(&r, page[0], 4), second = snapshot(&r, page[1], 5);
    m = vt_radix_find(&r, t, token, 14, 9, hit);
    assert_true(m.n_pages == 2 && m.n_known == 3 && m.state == second);
    m = vt_radix_find(&r, t, token, 14, 5, hit); /* step 5 itself writes the second one */
    assert_true(m.n_pages == 1 && m.state == first);
    assert_int_equal(m.copy_from, -1);
    vt_radix_release(&r);
}

static void test_radix_take_state_when_full_then_the_oldest_snapshot_goes(void **state)
{
    (void)state;
    vt_radix r;
    int32_t token[] = {1, 2, 3, 4, 5, 6, 7, 8}, page[2], hit[2];
    open_tree(&r, PAGES);
    assert_int_equal(vt_radix_add_states(&r, 2, NULL), VT_OK);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    remember(&r, t, token, 8, page);
    int32_t first = snapshot(&r, page[0], 1), second = snapshot(&r, page[1], 1);
    vt_radix_hold(&r, page, 1);
    vt_radix_hold_state(&r, first); /* used: it is not to be evicted */
    assert_int_equal(vt_radix_take_state(&r), second);
    assert_int_equal(vt_radix_take_state(&r), -1);
    vt_radix_forget_state(&r, page[0]); /* in use: stays */
    check(&r);
    assert_int_equal(vt_radix_find(&r, t, token, 8, 9, hit).n_pages, 1);
    vt_radix_drop_state(&r, first);
    vt_radix_drop(&r, page, 1);
    vt_radix_flush(&r); /* the snapshots go with their pages */
    check(&r);
    assert_int_equal(r.states.n_free, 1);
    assert_int_equal(r.stats.evicted_states, 1);
    vt_radix_release(&r);
}

static void test_radix_check_when_a_snapshot_is_lost_then_says_so(void **state)
{
    (void)state;
    vt_radix r;
    vt_err err;
    int32_t token[] = {1, 2, 3, 4, 5, 6, 7, 8}, page[2];
    open_tree(&r, PAGES);
    assert_int_equal(vt_radix_add_states(&r, 2, NULL), VT_OK);
    int32_t t = vt_radix_join(&r, "", 0, 0);
    remember(&r, t, token, 8, page);
    int32_t slot = snapshot(&r, page[0], 1);
    r.node[page[0]].state = -1;
    assert_int_equal(vt_radix_check(&r, &err), VT_ERR_FORMAT);
    r.node[page[0]].state = slot;
    r.node[page[1]].state = slot;
    assert_int_equal(vt_radix_check(&r, &err), VT_ERR_FORMAT);
    r.node[page[1]].state = -1;
    vt_radix_hold_state(&r, slot); /* and not its page */
    assert_int_equal(vt_radix_check(&r, &err), VT_ERR_FORMAT);
    vt_radix_drop_state(&r, slot);
    check(&r);
    vt_radix_release(&r);
}

/* ---- runs ---- */

enum { RUNS = 40 };

static void put(vt_radix_nodes *n, int32_t page, int32_t parent, int32_t fill)
{
    n->in_tree[page] = 1;
    n->parent[page] = parent;
    n->fill[page] = fill;
}

static void test_runs_pages_without_a_branch_are_one_run(void **state)
{
    (void)state;
    vt_radix_nodes n;
    vt_radix_run run[RUNS];
    int32_t all, pages;
    assert_int_equal(vt_radix_nodes_init(&n, 10, NULL), VT_OK);
    put(&n, 7, -1, 4);
    put(&n, 2, 7, 4);
    put(&n, 3, 2, 4); /* 7 2 3, then the branches 9 1 and 5 */
    put(&n, 9, 3, 4);
    put(&n, 1, 9, 2);
    put(&n, 5, 3, 4);
    assert_int_equal(vt_radix_runs(&n, 9, run, RUNS, &all, &pages), 3);
    assert_int_equal(all, 3);
    assert_int_equal(pages, 6);
    assert_int_equal(run[0].page, 7);
    assert_int_equal(run[0].n_tokens, 12);
    assert_int_equal(run[0].subtree, 6);
    assert_int_equal(run[0].marked, 3);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(run[i].parent, 0);
        assert_int_equal(run[i].n_tokens, run[i].page == 9 ? 6 : 4);
        assert_int_equal(run[i].marked, run[i].page == 9); /* the path ends in the middle of it */
    }
    vt_radix_nodes_release(&n);
}

/* Whatever the tree, what is kept is closed upwards, and of a path all runs are kept while there is
 * room. */
static void test_runs_cut_keeps_parents_and_the_path_and_counts_all_pages(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 50; round++) {
        vt_radix_nodes n;
        vt_radix_run run[RUNS];
        int32_t count = 400, all, pages, marked = 0, depth = 0;
        assert_int_equal(vt_radix_nodes_init(&n, count, NULL), VT_OK);
        for (int32_t p = 0; p < count; p++) {
            uint64_t r = vt_random_next(&seed);
            put(&n, p, p == 0 || r % 16 == 0 ? -1 : (int32_t)((r >> 8) % (uint64_t)p), 4);
        }
        int32_t leaf = (int32_t)(vt_random_next(&seed) % (uint64_t)count);
        for (int32_t p = leaf; p >= 0; p = n.parent[p])
            depth++;
        int32_t kept = vt_radix_runs(&n, leaf, run, RUNS, &all, &pages);
        assert_int_equal(pages, count);
        assert_true(kept > 0 && kept <= RUNS && (kept == RUNS || kept == all));
        for (int32_t i = 0; i < kept; i++) {
            marked += run[i].marked;
            assert_true(run[i].parent < i);
            if (run[i].parent >= 0)
                assert_true(run[run[i].parent].subtree > run[i].subtree);
        }
        assert_int_equal(marked, depth);
        vt_radix_nodes_release(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_radix_find_when_nothing_is_there_then_no_hit),
        cmocka_unit_test(test_radix_find_when_prefix_ends_inside_a_page_then_offers_a_copy),
        cmocka_unit_test(test_radix_find_when_page_is_of_this_step_then_no_copy),
        cmocka_unit_test(test_radix_find_when_salt_differs_then_no_hit),
        cmocka_unit_test(test_radix_join_when_table_is_full_then_no_tenant_until_one_leaves),
        cmocka_unit_test(test_radix_evict_keeps_held_prefix),
        cmocka_unit_test(test_radix_take_when_full_then_least_recently_used_goes_first),
        cmocka_unit_test(test_radix_insert_when_a_longer_page_comes_then_the_tail_goes),
        cmocka_unit_test(test_radix_dump_when_runs_part_then_one_line_a_run),
        cmocka_unit_test(test_radix_find_when_random_then_longest_shared_prefix),
        cmocka_unit_test(test_radix_when_pages_are_scarce_then_rules_hold),
        cmocka_unit_test(test_radix_find_with_states_then_ends_at_the_last_snapshot),
        cmocka_unit_test(test_radix_take_state_when_full_then_the_oldest_snapshot_goes),
        cmocka_unit_test(test_radix_check_when_a_snapshot_is_lost_then_says_so),
        cmocka_unit_test(test_runs_pages_without_a_branch_are_one_run),
        cmocka_unit_test(test_runs_cut_keeps_parents_and_the_path_and_counts_all_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
