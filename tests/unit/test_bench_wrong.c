/* A row that is wrong in one element: `vitrine bench kernels` and the labs say which one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/bench/bench.h"
#include "ops/silu_mul/silu_mul.h"

enum { ROW = 2, COL = 5 };

/* The reference, and then `own` (a float) in one element; NULL: nothing is changed. */
static vt_status run_planted(const void *args, const vt_lane *lane)
{
    const silu_mul_args *a = args;
    const float *planted = lane->own;
    if (lane->worker != 0)
        return VT_OK;
    silu_mul_op.reference(args);
    if (planted)
        ((float *)a->y->data)[ROW * a->y->row_stride + COL] = *planted;
    return VT_OK;
}

typedef struct seen {
    bench_result result;
    int n;
} seen;

static void take(void *user, const bench_result *r)
{
    seen *s = user;
    if (strcmp(r->impl->name, "planted") != 0)
        return;
    s->result = *r;
    s->n++;
}

static bench_result run(const float *planted)
{
    const vt_impl row = {.name = "planted", .device = VT_DEVICE_CPU, .run = run_planted};
    bench_options o = {.repetitions = 1,
                       .min_rep_ns = 1,
                       .impl = "planted",
                       .shape = "tokens=4,n=32",
                       .extra = &row,
                       .own = planted};
    vt_team *team;
    vt_err err = {0};
    seen s = {.n = 0};
    assert_int_equal(vt_team_new(1, &team, &err), VT_OK);
    assert_int_equal(bench_kernels("silu_mul", team, VT_ISA_PORTABLE, &o, take, &s, &err), VT_OK);
    vt_team_free(team);
    assert_int_equal(s.n, 1);
    return s.result;
}

static void test_bench_one_wrong_element_is_named(void **state)
{
    (void)state;
    float value = 1000;
    bench_result r = run(&value);
    assert_true(r.wrong && r.error > r.allowed);
    assert_memory_equal(r.why, "row 2, 5: 1000, expected ", 25);
}

static void test_bench_an_element_that_was_not_written_is_named(void **state)
{
    (void)state;
    float value = NAN;
    bench_result r = run(&value);
    assert_true(r.wrong);
    assert_memory_equal(r.why, "row 2, 5: ", 10);
}

static void test_bench_a_right_row_has_no_place(void **state)
{
    (void)state;
    bench_result r = run(NULL);
    assert_false(r.wrong);
    assert_string_equal(r.why, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_one_wrong_element_is_named),
        cmocka_unit_test(test_bench_an_element_that_was_not_written_is_named),
        cmocka_unit_test(test_bench_a_right_row_has_no_place),
    };
    return cmocka_run_group_tests_name("bench_wrong", tests, NULL, NULL);
}
