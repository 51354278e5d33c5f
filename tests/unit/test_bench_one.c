/* One CPU row measured alone: which memory its calls get, and which calls count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/team.h"
#include "ops/attention/attention.h"
#include "ops/bench/bench_one.h"
#include "ops/cases.h"
#include "ops/linear/linear.h"
#include "ops/rmsnorm/rmsnorm.h"

enum { MOST_SEEN = 4096, LEAST_CALLS = 64 };

/* What the last benchmark called. Worker 0 alone writes. */
static struct {
    const void *cold[MOST_SEEN]; /* weights, or the K pool */
    const void *x;
    int32_t n;
    bool same_x, same_bytes, pages_in_order;
} seen;

static void see(const void *cold, size_t bytes, const void *x)
{
    if (seen.n == 0)
        seen.x = x;
    seen.same_x = (seen.n == 0 || seen.same_x) && x == seen.x;
    if (seen.n < MOST_SEEN)
        seen.cold[seen.n++] = cold;
    seen.same_bytes = (seen.n == 1 || seen.same_bytes) && memcmp(cold, seen.cold[0], bytes) == 0;
}

static vt_status see_linear(const void *p, const vt_lane *lane)
{
    const linear_args *a = p;
    if (lane->worker == 0)
        see(a->w->part[0]->data, (size_t)vt_tensor_bytes(a->w->part[0]), a->x->data);
    return VT_OK;
}

static vt_status see_attention(const void *p, const vt_lane *lane)
{
    const attention_args *a = p;
    if (lane->worker > 0)
        return VT_OK;
    see(a->k_pool->data, (size_t)vt_tensor_bytes(a->k_pool), a->q->data);
    seen.pages_in_order = true;
    for (int32_t i = 0; i < a->batch->n_pages; i++)
        seen.pages_in_order = seen.pages_in_order && a->batch->page_ids[i] == i;
    return VT_OK;
}

static void bench(const vt_op *op, vt_status (*run)(const void *, const vt_lane *),
                  const char *shape, int64_t set_bytes)
{
    const vt_impl impl = {.name = "spy", .device = VT_DEVICE_CPU, .run = run};
    const bench_step step = {
        .set_bytes = set_bytes, .passing_bytes = 4096, .least_calls = LEAST_CALLS};
    vt_team *team;
    bench_one one;
    memset(&seen, 0, sizeof seen);
    assert_int_equal(vt_team_new(2, &team, NULL), VT_OK);
    assert_int_equal(vt_bench_one(op, &impl, shape, team, &step, 0.01, &one, NULL), VT_OK);
    assert_true(one.seconds > 0);
    assert_true(seen.n > LEAST_CALLS); /* the first run alone is as long */
    vt_team_free(team);
}

/* The number of different weights or pools that the calls saw, which come in turn. */
static int32_t count_copies(void)
{
    int32_t n = 1;
    while (n < seen.n && seen.cold[n] != seen.cold[0])
        n++;
    for (int32_t i = 0; i + n < seen.n; i++)
        assert_ptr_equal(seen.cold[i], seen.cold[i + n]);
    return n;
}

static void test_bench_one_weights_fill_the_set_one_after_the_other(void **state)
{
    (void)state;
    bench(&linear_op, see_linear, "tokens=2,type=F32,cols=64,rows=64", 10 * 64 * 64 * 4);
    assert_int_equal(count_copies(), 10);
    for (int i = 1; i < 10; i++)
        assert_int_equal((const char *)seen.cold[i] - (const char *)seen.cold[i - 1], 64 * 64 * 4);
    assert_true(seen.same_bytes);
    assert_true(seen.same_x);
}

static void test_bench_one_set_smaller_than_a_call_then_one_copy(void **state)
{
    (void)state;
    bench(&linear_op, see_linear, "tokens=1,type=F32,cols=64,rows=64", 100);
    assert_int_equal(count_copies(), 1);
}

static void test_bench_one_kv_pages_lie_in_the_order_of_a_new_engine(void **state)
{
    (void)state;
    bench(&attention_decode_op, see_attention,
          "seqs=3,kv_len=200,heads=2,kv_heads=1,head_dim=64,kv_type=F16,page=16", 1 << 20);
    assert_true(seen.pages_in_order);
    assert_true(count_copies() > 3);
    assert_true(seen.same_bytes);
    assert_true(seen.same_x);
}

enum { TEAMS = 2, EACH = 2 };

static struct {
    const vt_team *team[TEAMS];
    const void *weight[TEAMS]; /* that the team's worker 0 saw first */
    atomic_int calls[TEAMS];   /* of all its workers */
} together;

static vt_status see_team(const void *p, const vt_lane *lane)
{
    const linear_args *a = p;
    int32_t i = lane->team == together.team[1];
    assert_ptr_equal(lane->team, together.team[i]);
    assert_int_equal(lane->n_workers, EACH);
    if (lane->worker == 0 && !together.weight[i])
        together.weight[i] = a->w->part[0]->data;
    atomic_fetch_add(&together.calls[i], 1);
    return VT_OK;
}

static void test_bench_together_each_team_has_weights_of_its_own(void **state)
{
    (void)state;
    const vt_impl impl = {.name = "spy", .device = VT_DEVICE_CPU, .run = see_team};
    const bench_step step = {.set_bytes = 1, .passing_bytes = 4096, .least_calls = LEAST_CALLS};
    vt_bench_teams teams;
    bench_one one;
    assert_int_equal(vt_bench_teams_new(TEAMS, EACH, &teams, NULL), VT_OK);
    for (int32_t i = 0; i < TEAMS; i++)
        together.team[i] = teams.team[i];
    assert_int_equal(vt_bench_together(&linear_op, &impl, "tokens=2,type=F32,cols=64,rows=64",
                                       &teams, &step, 0.01, &one, NULL),
                     VT_OK);
    vt_bench_teams_free(&teams);
    assert_true(one.seconds > 0);
    assert_true(one.cost.read.weights == 64 * 64 * 4); /* of one team */
    assert_true(together.weight[0] && together.weight[1]);
    assert_ptr_not_equal(together.weight[0], together.weight[1]);
    assert_true(together.calls[0] >= EACH * LEAST_CALLS);
    assert_int_equal(together.calls[0], together.calls[1]);
}

static void test_bench_one_streams_where_weights_or_kv_are_read(void **state)
{
    (void)state;
    assert_true(vt_bench_one_streams(&linear_op));
    assert_true(vt_bench_one_streams(&attention_prefill_op));
    assert_false(vt_bench_one_streams(&rmsnorm_op));
}

static void test_bench_calls_mean_leaves_interrupted_calls_out(void **state)
{
    (void)state;
    static const struct {
        double ns[6], mean;
        int32_t n, counted;
    } row[] = {
        {{100, 4000000, 98, 102, 31000, 100}, 100, 6, 4},
        {{100, 149, 100}, 349.0 / 3, 3, 3},
        {{100, 151, 100}, 100, 3, 2},
        {{70}, 70, 1, 1},
        {{100, 300}, 200, 2, 2},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double ns[6];
        int32_t counted;
        memcpy(ns, row[i].ns, sizeof ns);
        double mean = bench_calls_mean(ns, row[i].n, &counted);
        if (counted != row[i].counted || !(mean > row[i].mean - 1e-9 && mean < row[i].mean + 1e-9))
            fail_msg("row %zu: mean %g of %d", i, mean, counted);
    }
}

/* Pages have new numbers, and each token's slot is still on the page of its position. */
static void test_case_batch_in_order_keeps_slots_on_their_pages(void **state)
{
    (void)state;
    enum { PAGE = 16 };
    const case_seq seq[] = {{1, 50}, {1, 17}, {40, 90}};
    uint64_t rng = 7;
    vt_arena arena;
    vt_arena_init(&arena, 0);
    vt_batch *b = case_batch(&arena, PAGE, 3, seq, true, 100, &rng);
    assert_non_null(b);
    bool shuffled = false;
    for (int32_t i = 0; i < b->n_pages; i++)
        shuffled = shuffled || b->page_ids[i] != i;
    assert_true(shuffled);
    assert_true(case_batch_in_order(&arena, b));
    for (int32_t i = 0; i < b->n_pages; i++)
        assert_int_equal(b->page_ids[i], i);
    for (int32_t t = 0; t < b->n_tokens; t++) {
        int32_t pos = b->position[t], page = b->page_ids[b->page_start[b->seq_of[t]] + pos / PAGE];
        assert_int_equal(b->slot[t], page * PAGE + pos % PAGE);
    }
    vt_arena_release(&arena);
}

static int setup(void **state)
{
    (void)state;
    return vt_cpu_init(NULL) == VT_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_one_weights_fill_the_set_one_after_the_other),
        cmocka_unit_test(test_bench_one_set_smaller_than_a_call_then_one_copy),
        cmocka_unit_test(test_bench_one_kv_pages_lie_in_the_order_of_a_new_engine),
        cmocka_unit_test(test_bench_together_each_team_has_weights_of_its_own),
        cmocka_unit_test(test_bench_one_streams_where_weights_or_kv_are_read),
        cmocka_unit_test(test_bench_calls_mean_leaves_interrupted_calls_out),
        cmocka_unit_test(test_case_batch_in_order_keeps_slots_on_their_pages),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
