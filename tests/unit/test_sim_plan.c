/* Capacity planning on devices whose steps take a known time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/plan.h"

enum { STEP_NS = 10000000 };

static int64_t always_10_ms(void *user, const vt_step *step)
{
    (void)user;
    (void)step;
    return STEP_NS;
}

static vt_plan_setup setup(int32_t n_replicas)
{
    vt_limits lim = {
        .max_tokens = 1000, .max_seqs = 2, .max_rows = 2, .max_context = 4096, .page_size = 64};
    return (vt_plan_setup){
        .sched = {.limits = lim, .n_pages = 200, .max_queued = 100, .prefix_cache = true},
        .overlap = true,
        .n_replicas = n_replicas,
        .cost_ns = always_10_ms};
}

static vt_trace_file parse(const char *text)
{
    vt_trace_file t;
    vt_err err;
    if (vt_trace_parse("trace", text, strlen(text), 1000, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    return t;
}

static void near(double got, double want) { assert_true(fabs(got - want) < 1e-6); }

static void test_plan_when_alone_then_times_are_the_steps(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 7, \"input_length\": 2500, \"output_length\": 5}\n");
    vt_plan_setup s = setup(1);
    vt_plan_result r;
    assert_int_equal(vt_plan_run(&s, &t, 1, &r, NULL), VT_OK);
    assert_int_equal(r.n_done, 1);
    near(r.ttft.p50, 0.030); /* three chunks of prefill */
    near(r.itl.p50, 0.010);
    near(r.itl.p99, 0.010);
    assert_int_equal(r.steps, 3 + 4);
    near(r.device_share, 1);
    vt_trace_file_release(&t);
}

static void test_plan_when_blocks_are_equal_then_the_second_prompt_hits(void **state)
{
    (void)state;
    vt_trace_file t = parse(
        "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [1, 2]}\n"
        "{\"timestamp\": 500, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [1, "
        "3]}\n");
    vt_plan_setup s = setup(1);
    vt_plan_result r;
    assert_int_equal(vt_plan_run(&s, &t, 1, &r, NULL), VT_OK);
    near(r.hit_share, 0.25); /* 512 of 2048 tokens */
    vt_trace_file_release(&t);
}

static void test_plan_when_more_replicas_then_waits_are_shorter(void **state)
{
    (void)state;
    char text[4000] = "";
    for (int i = 0; i < 20; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 10}\n");
    vt_trace_file t = parse(text);
    vt_plan_result one, five;
    vt_plan_setup s = setup(1), s5 = setup(5);
    assert_int_equal(vt_plan_run(&s, &t, 1, &one, NULL), VT_OK);
    assert_int_equal(vt_plan_run(&s5, &t, 1, &five, NULL), VT_OK);
    assert_int_equal(one.n_done + five.n_done, 40);
    assert_true(one.ttft.p90 > 3 * five.ttft.p90);
    vt_trace_file_release(&t);
}

static void test_plan_when_longer_than_the_context_then_refused_and_counted(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 0, \"input_length\": 5000, \"output_length\": 5}\n"
                            "{\"timestamp\": 1, \"input_length\": 50, \"output_length\": 5}\n");
    vt_plan_setup s = setup(1);
    vt_plan_result r;
    assert_int_equal(vt_plan_run(&s, &t, 1, &r, NULL), VT_OK);
    assert_int_equal(r.n_done, 1);
    assert_int_equal(r.n_refused, 1);
    vt_trace_file_release(&t);
}

static void test_trace_when_a_field_is_wrong_then_line_and_field_are_named(void **state)
{
    (void)state;
    vt_trace_file t;
    vt_err err;
    const char *text =
        "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 5}\n{\"timestamp\": \"x\"}\n";
    assert_int_equal(vt_trace_parse("t.jsonl", text, strlen(text), 10, &t, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message, "t.jsonl: line 2: timestamp is missing or no time in ms");
    assert_int_equal(vt_trace_parse("t.jsonl", "\n", 1, 10, &t, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message, "t.jsonl: no requests found");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_when_alone_then_times_are_the_steps),
        cmocka_unit_test(test_plan_when_blocks_are_equal_then_the_second_prompt_hits),
        cmocka_unit_test(test_plan_when_more_replicas_then_waits_are_shorter),
        cmocka_unit_test(test_plan_when_longer_than_the_context_then_refused_and_counted),
        cmocka_unit_test(test_trace_when_a_field_is_wrong_then_line_and_field_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
