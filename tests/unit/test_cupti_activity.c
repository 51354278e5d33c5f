/* Activity records (device/cupti/activity.h), on the emulated library and the emulated driver: to
 * which call each record belongs, in a graph and outside, and what is said of those that are
 * lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "common/emulated_gpu.h"
#include "device/cupti/activity.h"

enum { BYTES = 64, SECOND = 1000000000 };

typedef struct seen {
    int n, ended;
    vt_activity_record at[32];
    vt_activity_totals totals;
    vt_err why;
} seen;

typedef struct fixture {
    vt_cuda *c;
    vt_cuda_lane lane;
    void *memory;
    vt_activity *a;
    seen seen;
    vt_err err;
} fixture;

static void note(void *user, const vt_activity_record *r)
{
    seen *s = user;
    assert_in_range(s->n, 0, 31);
    s->at[s->n++] = *r;
}

static void count(void *user, const vt_activity_totals *totals, const vt_err *why)
{
    seen *s = user;
    s->ended++;
    s->totals = *totals;
    s->why = why ? *why : (vt_err){0};
}

static void ok(fixture *f, vt_status status)
{
    if (status != VT_OK)
        fail_msg("%s", f->err.message);
}

static fixture begin(const char *planted)
{
    fixture f = {0};
    setenv("EMULATED_CUPTI", planted, 1);
    ok(&f, vt_cuda_open(0, &f.c, &f.err));
    f.lane.cuda = f.c;
    ok(&f, vt_cuda_alloc(f.c, BYTES, &f.memory, &f.err));
    assert_int_equal(f.c->driver.stream_create(&f.lane.stream, CU_STREAM_NON_BLOCKING, 0), 0);
    ok(&f, vt_activity_open(f.c, 0, 1, &f.a, &f.err));
    return f;
}

static void start(fixture *f)
{
    const vt_activity_reader reader = {.seen = note, .ended = count, .user = &f->seen};
    f->seen = (seen){0};
    ok(f, vt_activity_begin(f->a, &reader, &f->err));
}

static void end(fixture *f)
{
    vt_activity_close(f->a);
    f->c->driver.stream_destroy(f->lane.stream);
    vt_cuda_free(f->c, f->memory);
    vt_cuda_close(f->c);
}

/* A call that fills n bytes. */
static void fill(fixture *f, int32_t call, size_t n)
{
    vt_activity_call(f->a, call);
    assert_int_equal(f->c->driver.fill8(cuda_address(f->memory), 0, n, f->lane.stream), 0);
    vt_activity_call(f->a, -1);
}

/* A graph of calls 7 (of two fills) and 9. */
static cuda_graph capture(fixture *f)
{
    cuda_graph g;
    ok(f, cuda_graph_begin(&f->lane, &f->err));
    fill(f, 7, 1);
    fill(f, 7, 2);
    fill(f, 9, 3);
    ok(f, cuda_graph_end(&f->lane, &g, &f->err));
    return g;
}

static void stop(fixture *f)
{
    assert_int_equal(f->c->driver.stream_sync(f->lane.stream), 0);
    vt_activity_end(f->a);
    assert_int_equal(f->seen.why.status, VT_OK);
}

static void check(const fixture *f, int i, int32_t call, int64_t bytes, bool in_graph)
{
    const vt_activity_record *r = &f->seen.at[i];
    assert_int_equal(r->kind, VT_ACTIVITY_FILL);
    assert_int_equal(r->call, call);
    assert_int_equal(r->bytes, bytes);
    assert_int_equal(r->in_graph, in_graph);
    assert_int_equal(r->end_ns - r->begin_ns, 500);
}

static void test_activity_when_a_graph_runs_then_each_node_is_told_by_its_call(void **state)
{
    fixture f = begin("");
    cuda_graph g = capture(&f), other = capture(&f);
    (void)state;
    ok(&f, cuda_graph_launch(&f.lane, &g, &f.err)); /* before: nobody is told */
    assert_int_equal(f.c->driver.stream_sync(f.lane.stream), 0);
    start(&f);
    fill(&f, 3, 10);
    ok(&f, cuda_graph_launch(&f.lane, &other, &f.err));
    ok(&f, cuda_graph_launch(&f.lane, &g, &f.err));
    fill(&f, -1, 11);
    stop(&f);
    assert_int_equal(f.seen.n, 8);
    check(&f, 0, 3, 10, false);
    for (int i = 0; i < 2; i++) {
        check(&f, 1 + 3 * i, 7, 1, true);
        check(&f, 2 + 3 * i, 7, 2, true);
        check(&f, 3 + 3 * i, 9, 3, true);
    }
    check(&f, 7, -1, 11, false);
    assert_int_equal(f.seen.totals.records, 8);
    assert_int_equal(f.seen.totals.lost, 0);
    assert_int_equal(f.seen.totals.unknown, 0); /* kernels alone are missed */
    for (int i = 1; i < 8; i++)
        assert_int_equal(f.seen.at[i].begin_ns - f.seen.at[i - 1].end_ns, 200);
    cuda_graph_release(f.c, &g);
    cuda_graph_release(f.c, &other);
    end(&f);
}

static void test_activity_when_it_ended_then_it_can_begin_again(void **state)
{
    fixture f = begin("");
    cuda_graph g = capture(&f);
    (void)state;
    for (int i = 0; i < 3; i++) {
        start(&f);
        ok(&f, cuda_graph_launch(&f.lane, &g, &f.err));
        stop(&f);
        assert_int_equal(f.seen.n, 3);
        check(&f, 2, 9, 3, true);
    }
    f.seen = (seen){0};
    fill(&f, 1, 1); /* not recorded */
    stop(&f);
    assert_int_equal(f.seen.n + f.seen.ended, 0);
    cuda_graph_release(f.c, &g);
    g = capture(&f); /* after nodes of the same numbers are gone */
    start(&f);
    ok(&f, cuda_graph_launch(&f.lane, &g, &f.err));
    stop(&f);
    check(&f, 0, 7, 1, true);
    cuda_graph_release(f.c, &g);
    end(&f);
}

static void test_activity_when_records_are_lost_then_they_are_counted(void **state)
{
    (void)state;
    fixture f = begin("lose=2");
    cuda_graph g = capture(&f);
    start(&f);
    ok(&f, cuda_graph_launch(&f.lane, &g, &f.err));
    stop(&f);
    assert_int_equal(f.seen.n, 2); /* the launch's own record, and a fill's, are lost */
    assert_int_equal(f.seen.totals.lost, 2);
    setenv("EMULATED_CUPTI", "records=0", 1);
    start(&f);
    ok(&f, cuda_graph_launch(&f.lane, &g, &f.err));
    stop(&f);
    assert_int_equal(f.seen.n, 0);
    assert_int_equal(f.seen.totals.lost, 4);
    cuda_graph_release(f.c, &g);
    end(&f);
}

/* More than a buffer holds, and more than there is room for. */
static void test_activity_when_there_are_many_then_the_buffers_take_turns(void **state)
{
    enum { MANY = 40000, ROOM = 1 << 15 };
    (void)state;
    fixture f = begin("");
    const vt_activity_reader reader = {.ended = count, .user = &f.seen};
    ok(&f, vt_activity_begin(f.a, &reader, &f.err));
    vt_activity_call(f.a, 4);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(f.c->driver.fill8(cuda_address(f.memory), 0, BYTES, f.lane.stream), 0);
    assert_int_equal(f.c->driver.stream_sync(f.lane.stream), 0);
    vt_activity_end(f.a);
    assert_int_equal(f.seen.n, 0);
    assert_int_equal(f.seen.totals.records, ROOM);
    assert_int_equal(f.seen.totals.lost, 2 * (MANY - ROOM)); /* the fills, and whose they were */
    end(&f);
}

static void test_activity_when_nodes_are_not_told_then_no_call_is_guessed(void **state)
{
    (void)state;
    fixture f = begin("nodes=0");
    cuda_graph g = capture(&f);
    start(&f);
    ok(&f, cuda_graph_launch(&f.lane, &g, &f.err));
    stop(&f);
    assert_int_equal(f.seen.n, 3);
    check(&f, 0, -1, 1, true);
    cuda_graph_release(f.c, &g);
    end(&f);
}

static void test_activity_when_times_are_told_then_they_are_the_host_s(void **state)
{
    (void)state;
    fixture f = begin("");
    start(&f);
    fill(&f, 1, 1);
    stop(&f);
    int64_t away = f.seen.at[0].begin_ns - vt_now_ns();
    assert_true(away > -60 * (int64_t)SECOND && away < SECOND);
    end(&f);
}

static void test_activity_when_something_stands_against_it_then_it_is_named(void **state)
{
    (void)state;
    vt_activity *second = NULL;
    fixture f = begin("");
    for (int32_t n = 1; n < 3; n++) { /* the same rank, and a rank of another group */
        assert_int_equal(vt_activity_open(f.c, n - 1, n, &second, &f.err), VT_ERR_UNSUPPORTED);
        assert_non_null(strstr(f.err.message, "another engine of this process"));
    }
    assert_int_equal(vt_activity_open(f.c, 0, 9, &second, &f.err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(f.err.message, "of at most 8 ranks, not 9"));
    vt_activity_close(f.a);
    f.a = NULL;
    setenv("EMULATED_CUPTI", "watched", 1);
    assert_int_equal(vt_activity_open(f.c, 0, 1, &second, &f.err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(f.err.message, "another profiler"));
    setenv("EMULATED_CUPTI", "", 1);
    ok(&f, vt_activity_open(f.c, 0, 1, &f.a, &f.err));
    end(&f);
}

/* Two ranks, of which each has a graph: their records go to each, and are told when the second has
 * ended. A rank that does not record gets none. */
static void test_activity_when_there_are_ranks_then_each_has_its_own(void **state)
{
    (void)state;
    fixture f[2] = {begin("")};
    cuda_graph g[2];
    vt_activity_close(f[0].a);
    f[1] = f[0];
    for (int r = 0; r < 2; r++) {
        ok(&f[r], vt_activity_open(f[r].c, r, 2, &f[r].a, &f[r].err));
        g[r] = capture(&f[r]);
    }
    for (int r = 0; r < 2; r++) {
        start(&f[r]);
        fill(&f[r], 3 + r, (size_t)(10 + r));
        ok(&f[r], cuda_graph_launch(&f[r].lane, &g[r], &f[r].err));
        assert_int_equal(
            f[r].c->driver.fill8(cuda_address(f[r].memory), 0, (size_t)(20 + r), f[r].lane.stream),
            0); /* of no call, and this rank's */
    }
    stop(&f[0]);
    assert_int_equal(f[0].seen.n + f[0].seen.ended, 0);
    stop(&f[1]);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(f[r].seen.ended, 1);
        assert_int_equal(f[r].seen.n, 5);
        assert_int_equal(f[r].seen.totals.records, 5);
        check(&f[r], 0, 3 + r, 10 + r, false);
        check(&f[r], 1, 7, 1, true);
        check(&f[r], 3, 9, 3, true);
        check(&f[r], 4, -1, 20 + r, false);
    }
    start(&f[1]);
    fill(&f[0], 5, 1);
    ok(&f[0], cuda_graph_launch(&f[0].lane, &g[0], &f[0].err));
    fill(&f[1], 6, 2);
    stop(&f[1]);
    assert_int_equal(f[1].seen.totals.unknown, 0);
    for (int i = 0; i < f[1].seen.n; i++)
        assert_true(f[1].seen.at[i].call == 6 || f[1].seen.at[i].call == -1);
    for (int r = 0; r < 2; r++) {
        cuda_graph_release(f[r].c, &g[r]);
        if (r == 0)
            vt_activity_close(f[0].a);
    }
    end(&f[1]);
}

/* CUPTI of CUDA 12.5 has no range profiler, but it has these records. */
static void test_activity_when_cupti_is_old_then_it_records_too(void **state)
{
    char old[1100];
    (void)state;
    assert_true(emulated_gpu_file("cupti-12.5/libcupti.so.12", old, sizeof old));
    setenv("VITRINE_CUPTI", old, 1);
    fixture f = begin("");
    cuda_graph g = capture(&f);
    start(&f);
    ok(&f, cuda_graph_launch(&f.lane, &g, &f.err));
    stop(&f);
    check(&f, 2, 9, 3, true);
    cuda_graph_release(f.c, &g);
    end(&f);
    unsetenv("VITRINE_CUPTI");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activity_when_a_graph_runs_then_each_node_is_told_by_its_call),
        cmocka_unit_test(test_activity_when_it_ended_then_it_can_begin_again),
        cmocka_unit_test(test_activity_when_records_are_lost_then_they_are_counted),
        cmocka_unit_test(test_activity_when_there_are_many_then_the_buffers_take_turns),
        cmocka_unit_test(test_activity_when_nodes_are_not_told_then_no_call_is_guessed),
        cmocka_unit_test(test_activity_when_times_are_told_then_they_are_the_host_s),
        cmocka_unit_test(test_activity_when_something_stands_against_it_then_it_is_named),
        cmocka_unit_test(test_activity_when_there_are_ranks_then_each_has_its_own),
        cmocka_unit_test(test_activity_when_cupti_is_old_then_it_records_too),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
