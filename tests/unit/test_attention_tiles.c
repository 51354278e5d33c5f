/* Decodes that share pages, on CPU: tiles hold every decode once, their members have the same first
 * pages, and what a step is said to read is what its tiles read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/op_run.h"
#include "device/cpu.h"
#include "ops/attention/attention_impls.h"
#include "ops/cases.h"
#include "ops/shared_kv.h"

enum { MOST = 256 };

/* The decodes of a case, their plan, and room for its tiles. */
typedef struct planned {
    op_args run;
    const attention_args *args;
    attention_plan plan;
    void *room;
} planned;

static void plan_make(planned *p, const vt_case *c, int32_t workers)
{
    op_args_make(&p->run, &attention_decode_op, c);
    p->args = p->run.args;
    const vt_batch *b = p->args->batch;
    p->room = malloc(attention_tiles_bytes(b->n_decode));
    assert_non_null(p->room);
    p->plan = attention_plan_make(p->args, 0, b->n_decode, workers, 64, 0);
    attention_plan_share(&p->plan, workers, p->room);
}

static void plan_release(planned *p)
{
    free(p->room);
    op_args_release(&p->run);
}

/* The KV tokens of a KV head that a step needs: a slot of a page that several decodes have counts
 * once. */
static int64_t needed(const vt_batch *b)
{
    int64_t n = 0;
    for (int32_t s = 0; s < b->n_decode; s++)
        for (int32_t pos = 0; pos < b->kv_len[s]; pos++) {
            int32_t at = pos / b->page_size, before = 0;
            while (before < s &&
                   (b->kv_len[before] <= pos ||
                    b->page_ids[b->page_start[before] + at] != b->page_ids[b->page_start[s] + at]))
                before++;
            n += before == s;
        }
    return n;
}

/* Checks a tile, notes its members in `seen` and returns how many tokens its task reads. */
static int64_t check_tile(const planned *p, const attention_tile *t, int *seen)
{
    const vt_batch *b = p->args->batch;
    const int32_t *seq = p->plan.order + t->first;
    int32_t rows = 0;
    int64_t reads = t->shared;
    assert_int_equal(t->shared % ATTENTION_BLOCK, 0);
    assert_true(t->n > 0);
    for (int32_t i = 0; i < t->n; i++) {
        const int32_t *pages = b->page_ids + b->page_start[seq[i]];
        size_t same = (size_t)vt_ceil_div(t->shared, b->page_size);
        assert_memory_equal(pages, b->page_ids + b->page_start[seq[0]], same * sizeof *pages);
        assert_true(b->kv_len[seq[i]] > t->shared);
        rows += (b->q_start[seq[i] + 1] - b->q_start[seq[i]]) * p->plan.group;
        reads += b->kv_len[seq[i]] - t->shared;
        seen[seq[i]]++;
    }
    assert_true(rows <= ATTENTION_ROWS);
    return reads;
}

/* Returns what a row of the CPU is said to read beyond the compulsory. */
static int64_t extra_bytes(const planned *p, const vt_batch *b, int32_t workers)
{
    vt_limits limits = case_limits(workers);
    vt_target t = vt_target_cpu(vt_cpu_get()->level, &limits);
    vt_cost c = attention_decode_op.impls[0]->extra(p->args, &t, b);
    return vt_cost_bytes(&c);
}

static void check_plan(const vt_case *c, int32_t workers)
{
    planned p;
    int seen[MOST] = {0};
    int64_t reads = 0, alone = 0, saved;
    plan_make(&p, c, workers);
    const vt_batch *b = p.args->batch;
    assert_true(b->n_decode <= MOST);
    assert_int_equal(attention_plan_tiles(p.args, b, workers, &saved), p.plan.n_tiles);
    for (int32_t i = 0; i < p.plan.n_tiles; i++)
        reads += check_tile(&p, &p.plan.tile[i], seen);
    for (int32_t s = 0; s < b->n_decode; s++) {
        assert_int_equal(seen[s], p.plan.n_tiles > 0);
        alone += b->kv_len[s];
    }
    reads = p.plan.n_tiles > 0 ? reads : alone;
    assert_int_equal(alone - reads, saved);
    int64_t row = 2 * vt_dtype_row_bytes(p.args->k_pool->dtype, p.args->head_dim),
            extra = (reads - needed(b)) * row * p.args->kv_heads;
    assert_int_equal(extra_bytes(&p, NULL, workers), extra);
    if (c->p[9] == 1) { /* as a story knows it: lengths of what is shared, and no pages */
        int32_t tokens[MOST];
        vt_batch told = *b;
        shared_kv_find(b, tokens);
        told.page_ids = NULL;
        told.shared_kv = tokens;
        assert_int_equal(attention_plan_tiles(p.args, &told, workers, &saved), p.plan.n_tiles);
        assert_int_equal(extra_bytes(&p, &told, workers), extra);
    }
    plan_release(&p);
}

/* Families of one length each, and members of none; few and many rows a decode; more workers than
 * tiles could have. */
static void test_tiles_hold_every_decode_once_and_read_what_is_said(void **state)
{
    static const int32_t workers[] = {1, 2, 3, 5, 16, 64};
    static const vt_case cases[] = {
        {.p = {64, 1, 1150, 9, 3, 8, VT_F16, 16, 0, 1, 68}},
        {.p = {64, 1, 1150, 9, 3, 8, VT_F16, 16, 0, 6, 68, 1}},
        {.p = {200, 1, 90, 32, 8, 8, VT_BF16, 64, 0, 1, 1}},
        {.p = {30, 3, 150, 16, 1, 8, VT_F16, 7, 0, 2, 20, 2}},
        {.p = {3, 1, 700, 8, 8, 8, VT_F32, 16, 0, 1, 43}},
        {.p = {40, 1, 70, 4, 2, 8, VT_F16, 16, 0, 1, 3}}, /* less than a block is shared */
        {.p = {7, 1, 200, 4, 2, 8, VT_F16, 16, 0, 1, 0}},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
            check_plan(&cases[c], workers[w]);
}

/* 64 decodes of one family of 3 KV heads: enough tiles for the workers, and no more. */
static void test_tiles_leave_work_for_every_worker(void **state)
{
    static const int32_t want[][2] = {/* workers, tiles */
                                      {0, 0}, {1, 2}, {2, 2}, {3, 2}, {4, 4}, {8, 8}, {16, 16}};
    vt_case c = {.p = {64, 1, 400, 9, 3, 8, VT_F16, 16, 0, 64, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        planned p;
        op_args_make(&p.run, &attention_decode_op, &c);
        p.args = p.run.args;
        int32_t tokens[64];
        int64_t saved;
        vt_batch told = *p.args->batch;
        for (int32_t s = 0; s < 64; s++)
            tokens[s] = s ? 256 : 0;
        told.page_ids = NULL;
        told.shared_kv = tokens;
        assert_int_equal(attention_plan_tiles(p.args, &told, want[i][0], &saved), want[i][1]);
        op_args_release(&p.run);
    }
}

/* A window that hides a decode's first tokens leaves nothing to share. */
static void test_decodes_whose_window_has_passed_share_nothing(void **state)
{
    static const vt_case cases[] = {{.p = {16, 1, 200, 8, 4, 8, VT_F16, 16, 100, 1, 10}},
                                    {.p = {16, 1, 200, 8, 4, 8, VT_F16, 16, 199, 1, 10}},
                                    {.p = {16, 1, 200, 8, 4, 8, VT_F16, 16, 200, 1, 10}}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        planned p;
        plan_make(&p, &cases[i], 2);
        assert_int_equal(p.plan.n_tiles > 0, i == 2);
        plan_release(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_hold_every_decode_once_and_read_what_is_said),
        cmocka_unit_test(test_tiles_leave_work_for_every_worker),
        cmocka_unit_test(test_decodes_whose_window_has_passed_share_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
