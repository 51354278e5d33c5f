/* base: errors, checked memory, buffers, the trace ring and the team. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/team.h"
#include "base/trace.h"

static void test_fail_with_control_characters_gives_one_line(void **state)
{
    (void)state;
    vt_err err = {0};
    assert_int_equal(vt_fail(&err, VT_ERR_IO, "a\nb\x1b[31m%s", "\rc"), VT_ERR_IO);
    assert_string_equal(err.message, "a b [31m c");
    assert_int_equal(vt_fail(NULL, VT_ERR_MODEL, "x"), VT_ERR_MODEL);
}

static void test_fail_longer_than_the_message_is_cut(void **state)
{
    (void)state;
    char *big = malloc(5000);
    memset(big, 'x', 4999);
    big[4999] = 0;
    vt_err err;
    vt_fail(&err, VT_ERR_IO, "%s", big);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    free(big);
}

static void test_arena_blocks_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    vt_arena a;
    vt_arena_init(&a, 0);
    unsigned char *last = NULL;
    for (size_t i = 1; i < 3000; i += 7) {
        unsigned char *p = vt_arena_alloc(&a, i, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t k = 0; k < 3 * i; k++)
            assert_int_equal(p[k], 0);
        memset(p, 0xff, 3 * i);
        if (last)
            assert_int_equal(last[0], 0xff);
        last = p;
    }
    vt_arena_release(&a);
}

static void test_arena_beyond_limit_or_overflow_returns_null(void **state)
{
    (void)state;
    vt_arena a;
    vt_arena_init(&a, 1000);
    assert_non_null(vt_arena_alloc(&a, 1, 900));
    assert_null(vt_arena_alloc(&a, 1, 200));
    assert_null(vt_arena_alloc(&a, SIZE_MAX / 2, 3));
    assert_null(vt_arena_alloc(&a, 1, SIZE_MAX - 3));
    vt_arena_release(&a);
}

static void test_buf_beyond_max_fails_and_stays_valid(void **state)
{
    (void)state;
    vt_buf b;
    vt_buf_init(&b, 10);
    assert_true(vt_buf_puts(&b, "12345"));
    assert_false(vt_buf_puts(&b, "678901"));
    assert_true(b.failed);
    assert_string_equal(b.data, "12345");
    assert_false(vt_buf_putc(&b, '6')); /* sticky: a writer may check once at the end */
    assert_null(vt_buf_detach(&b, NULL));
    assert_int_equal(b.len, 0);
}

static void test_buf_printf_and_detach_hand_over_the_bytes(void **state)
{
    (void)state;
    vt_buf b;
    vt_buf_init(&b, 0);
    for (int i = 0; i < 500; i++)
        assert_true(vt_buf_printf(&b, "%d,", i));
    size_t len;
    char *s = vt_buf_detach(&b, &len);
    assert_int_equal(len, 10 * 2 + 90 * 3 + 400 * 4);
    assert_memory_equal(s + len - 8, "498,499,", 8);
    assert_null(b.data);
    free(s);
}

static void test_trace_ring_keeps_the_newest(void **state)
{
    (void)state;
    vt_trace_ring r = {0};
    assert_int_equal(vt_trace_init(&r, 100, NULL), VT_OK);
    assert_int_equal(r.capacity, 128);
    for (int i = 0; i < 1000; i++)
        vt_trace_add(&r, &(vt_trace_event){.id = (uint64_t)i});
    vt_trace_event out[200];
    uint64_t n = vt_trace_copy(&r, out, 200);
    assert_int_equal(n, 127);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(out[i].id, 1000 - n + i);
    assert_int_equal(vt_trace_copy(&r, out, 5), 5);
    assert_int_equal(out[4].id, 999);
    vt_trace_release(&r);
    vt_trace_add(&r, out); /* a released ring records nothing */
    assert_int_equal(vt_trace_copy(&r, out, 5), 0);
}

static void test_trace_init_with_bad_capacity_is_refused(void **state)
{
    (void)state;
    vt_trace_ring r = {0};
    assert_int_equal(vt_trace_init(&r, 0, NULL), VT_ERR_USAGE);
    assert_int_equal(vt_trace_init(&r, UINT64_MAX, NULL), VT_ERR_USAGE);
}

enum { TEAM_ROUNDS = 300, TEAM_BARRIERS = 5 };

typedef struct team_probe {
    vt_team *team;
    int32_t n;
    int32_t at[64]; /* barriers passed, by worker */
    atomic_int bad;
    atomic_int runs;
} team_probe;

/* After barrier k nobody may still be before it. */
static void team_walk(void *arg, int32_t worker)
{
    team_probe *p = arg;
    atomic_fetch_add(&p->runs, 1);
    for (int k = 0; k < TEAM_BARRIERS; k++) {
        __atomic_store_n(&p->at[worker], k + 1, __ATOMIC_RELEASE);
        vt_team_barrier(p->team, worker);
        for (int32_t w = 0; w < p->n; w++)
            if (__atomic_load_n(&p->at[w], __ATOMIC_ACQUIRE) < k + 1)
                atomic_fetch_add(&p->bad, 1);
        vt_team_barrier(p->team, worker);
    }
}

static void test_team_barrier_holds_everybody_back(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 5; n++) { /* more workers than CPUs too */
        team_probe p = {.n = n};
        assert_int_equal(vt_team_new(n, &p.team, NULL), VT_OK);
        assert_int_equal(vt_team_size(p.team), n);
        int rounds = n > 2 ? TEAM_ROUNDS / 10 : TEAM_ROUNDS;
        for (int r = 0; r < rounds; r++) {
            memset(p.at, 0, sizeof p.at);
            vt_team_run(p.team, team_walk, &p);
        }
        assert_int_equal(atomic_load(&p.bad), 0);
        assert_int_equal(atomic_load(&p.runs), rounds * n);
        vt_team_free(p.team);
    }
}

static void test_team_of_impossible_size_is_refused(void **state)
{
    (void)state;
    vt_team *t = NULL;
    vt_err err;
    assert_int_equal(vt_team_new(0, &t, &err), VT_ERR_USAGE);
    assert_int_equal(vt_team_new(100000, &t, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "100000"));
    assert_null(t);
    vt_team_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_with_control_characters_gives_one_line),
        cmocka_unit_test(test_fail_longer_than_the_message_is_cut),
        cmocka_unit_test(test_arena_blocks_are_zeroed_aligned_and_apart),
        cmocka_unit_test(test_arena_beyond_limit_or_overflow_returns_null),
        cmocka_unit_test(test_buf_beyond_max_fails_and_stays_valid),
        cmocka_unit_test(test_buf_printf_and_detach_hand_over_the_bytes),
        cmocka_unit_test(test_trace_ring_keeps_the_newest),
        cmocka_unit_test(test_trace_init_with_bad_capacity_is_refused),
        cmocka_unit_test(test_team_barrier_holds_everybody_back),
        cmocka_unit_test(test_team_of_impossible_size_is_refused),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
