/* Capacity planning on devices whose steps take a known time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/capacity.h"

enum { STEP_NS = 10000000 };

static int64_t always_10_ms(void *user, const vt_step *step, int32_t n_busy)
{
    (void)user;
    (void)step;
    (void)n_busy;
    return STEP_NS;
}

static vt_capacity_setup setup(int32_t n_replicas)
{
    vt_limits lim = {
        .max_tokens = 1000, .max_seqs = 2, .max_rows = 2, .max_context = 4096, .page_size = 64};
    return (vt_capacity_setup){
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

static void test_capacity_when_alone_then_times_are_the_steps(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 7, \"input_length\": 2500, \"output_length\": 5}\n");
    vt_capacity_setup s = setup(1);
    vt_capacity_result r;
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    assert_int_equal(r.n_done, 1);
    near(r.ttft.p50, 0.030); /* three chunks of prefill */
    near(r.itl.p50, 0.010);
    near(r.itl.p99, 0.010);
    assert_int_equal(r.steps, 3 + 4);
    near(r.device_share, 1);
    vt_trace_file_release(&t);
}

static void test_capacity_when_blocks_are_equal_then_the_second_prompt_hits(void **state)
{
    (void)state;
    vt_trace_file t = parse(
        "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [1, 2]}\n"
        "{\"timestamp\": 500, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [1, "
        "3]}\n");
    vt_capacity_setup s = setup(1);
    vt_capacity_result r;
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    near(r.hit_share, 0.25); /* 512 of 2048 tokens */
    vt_trace_file_release(&t);
}

/* A prompt that comes again hits with all its tokens but the last: 15 pages of 64 are shared, and
 * 63 tokens are copied out of the last page. So the last block of a trace's line shares, too. */
static void test_capacity_when_a_prompt_comes_again_then_all_but_its_last_token_hits(void **state)
{
    (void)state;
    vt_trace_file t = parse(
        "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [1, 2]}\n"
        "{\"timestamp\": 500, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [1, "
        "2]}\n");
    vt_capacity_setup s = setup(1);
    vt_capacity_result r;
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    near(r.hit_share, 1023.0 / 2048);
    vt_trace_file_release(&t);
}

static void test_capacity_when_more_replicas_then_waits_are_shorter(void **state)
{
    (void)state;
    char text[4000] = "";
    for (int i = 0; i < 20; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 10}\n");
    vt_trace_file t = parse(text);
    vt_capacity_result one, five;
    vt_capacity_setup s = setup(1), s5 = setup(5);
    assert_int_equal(vt_capacity_run(&s, &t, 1, &one, NULL), VT_OK);
    assert_int_equal(vt_capacity_run(&s5, &t, 1, &five, NULL), VT_OK);
    assert_int_equal(one.n_done + five.n_done, 40);
    assert_true(one.ttft.p90 > 3 * five.ttft.p90);
    vt_trace_file_release(&t);
}

static void test_capacity_when_longer_than_the_context_then_refused_and_counted(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 0, \"input_length\": 5000, \"output_length\": 5}\n"
                            "{\"timestamp\": 1, \"input_length\": 50, \"output_length\": 5}\n");
    vt_capacity_setup s = setup(1);
    vt_capacity_result r;
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    assert_int_equal(r.n_done, 1);
    assert_int_equal(r.n_too_long, 1);
    assert_int_equal(r.n_no_room, 0);
    vt_trace_file_release(&t);
}

/* The context of 4,096 has room for 4,095 tokens and one of an answer. */
static void test_capacity_when_a_prompt_just_fits_the_context_then_it_is_served(void **state)
{
    (void)state;
    for (int32_t input = 4095; input <= 4096; input++) {
        char line[100];
        snprintf(line, sizeof line,
                 "{\"timestamp\": 0, \"input_length\": %d, \"output_length\": 1}\n", input);
        vt_trace_file t = parse(line);
        vt_capacity_setup s = setup(1);
        vt_capacity_result r;
        assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
        assert_int_equal(r.n_done, input == 4095);
        assert_int_equal(r.n_too_long, input == 4096);
        assert_int_equal(r.n_cut, 0);
        vt_trace_file_release(&t);
    }
}

static void test_capacity_when_kv_memory_is_too_small_then_that_is_counted(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 0, \"input_length\": 700, \"output_length\": 5}\n"
                            "{\"timestamp\": 1, \"input_length\": 50, \"output_length\": 5}\n");
    vt_capacity_setup s = setup(1);
    vt_capacity_result r;
    s.sched.n_pages = 10; /* 640 tokens */
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    assert_int_equal(r.n_done, 1);
    assert_int_equal(r.n_too_long, 0);
    assert_int_equal(r.n_no_room, 1);
    assert_int_equal(r.n_cut, 0);
    vt_trace_file_release(&t);
}

static void test_capacity_when_outputs_do_not_fit_then_cut_and_counted(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 0, \"input_length\": 4000, \"output_length\": 500}\n"
                            "{\"timestamp\": 1, \"input_length\": 4000, \"output_length\": 96}\n");
    vt_capacity_setup s = setup(1);
    vt_capacity_result r;
    s.sched.limits.max_seqs = s.sched.limits.max_rows = 1;
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    assert_int_equal(r.n_done, 2);
    assert_int_equal(r.n_cut, 1);
    assert_int_equal(r.cut_tokens, 404); /* the context is 4,096 */
    vt_trace_file_release(&t);
}

/* Step k takes k ms, so all gaps between tokens differ and no two percentiles are equal. */
static int64_t ever_slower(void *user, const vt_step *step, int32_t n_busy)
{
    (void)user;
    (void)n_busy;
    return (int64_t)step->id * 1000000;
}

static void test_capacity_when_gaps_differ_then_percentiles_are_nearest_rank(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 101}\n");
    vt_capacity_setup s = setup(1);
    vt_capacity_result r;
    s.cost_ns = ever_slower;
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    near(r.ttft.p50, 0.001);
    near(r.itl.p50, 0.051); /* gaps are 2, 3 ... 101 ms */
    near(r.itl.p90, 0.091);
    near(r.itl.p99, 0.100);
    near(r.itl.mean, 0.0515);
    vt_trace_file_release(&t);
}

/* Counts the steps by how many replicas are busy. */
static int64_t count_busy(void *user, const vt_step *step, int32_t n_busy)
{
    (void)step;
    ((int32_t *)user)[n_busy]++;
    return STEP_NS;
}

/* Two requests of four steps come at one moment, a third when both are done. */
static void test_capacity_when_replicas_are_busy_then_steps_know_how_many(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 4}\n"
                            "{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 4}\n"
                            "{\"timestamp\": 900, \"input_length\": 10, \"output_length\": 4}\n");
    int32_t steps[4] = {0};
    vt_capacity_setup s = setup(3);
    vt_capacity_result r;
    s.cost_ns = count_busy;
    s.user = steps;
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    assert_int_equal(r.steps, 12);
    assert_int_equal(steps[0] + steps[3], 0);
    assert_int_equal(steps[1] + steps[2], 12);
    assert_int_equal(steps[1], 4);
    vt_trace_file_release(&t);
}

/* ---- the search ---- */

/* n requests of one step of prefill and 9 of decode, gap_ms apart. */
static vt_trace_file regular(int32_t n, int32_t gap_ms)
{
    static char text[20000];
    text[0] = 0;
    for (int32_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"timestamp\": %d, \"input_length\": 10, \"output_length\": 10}\n", i * gap_ms);
    return parse(text);
}

/* Two requests at the same time take a little more than 100 ms, so at most 20 per second can be
 * served. The search must find that limit, between 10 and 40 per second, for a trace of any
 * rate. */
static void test_search_when_the_trace_is_slow_or_far_too_fast_then_the_same_border(void **state)
{
    (void)state;
    static const int32_t gap_ms[] = {60000, 2000, 100, 50, 10, 1};
    vt_capacity_setup s = setup(1);
    for (size_t i = 0; i < sizeof gap_ms / sizeof *gap_ms; i++) {
        static vt_capacity_table table;
        vt_trace_file t = regular(100, gap_ms[i]);
        vt_err err;
        if (vt_capacity_search(&s, &t, &table, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_true(table.saturated > table.idle);
        const vt_capacity_result *idle = &table.row[table.idle],
                                 *last = &table.row[table.saturated - 1],
                                 *over = &table.row[table.saturated];
        assert_true(idle->device_share <= 0.5);
        assert_true(fabs(idle->served_per_s / idle->offered_per_s - 1) < 0.02);
        assert_true(last->offered_per_s > 8 && last->offered_per_s < 22);
        assert_true(over->offered_per_s > 16 && over->offered_per_s < 45);
        assert_true(over->served_per_s < 0.9 * over->offered_per_s);
        assert_true(over->rate == 2 * last->rate);
        vt_trace_file_release(&t);
    }
}

/* An idle machine serves what it is offered, also where the trace is so short that the time after
 * the last arrival would count for a tenth of it. */
static void test_search_when_the_trace_is_short_then_the_last_answer_does_not_count(void **state)
{
    (void)state;
    static vt_capacity_table table;
    vt_trace_file t = regular(4, 1000);
    vt_capacity_setup s = setup(1);
    assert_int_equal(vt_capacity_search(&s, &t, &table, NULL), VT_OK);
    const vt_capacity_result *idle = &table.row[table.idle];
    assert_true(idle->tail_s > 0.05 * idle->span_s || idle->rate == 1);
    assert_true(fabs(idle->served_per_s / idle->offered_per_s - 1) < 0.02);
    vt_trace_file_release(&t);
}

static void test_search_when_all_arrive_at_once_then_usage(void **state)
{
    (void)state;
    vt_trace_file t = regular(3, 0);
    vt_capacity_setup s = setup(1);
    static vt_capacity_table table;
    vt_err err;
    assert_int_equal(vt_capacity_search(&s, &t, &table, &err), VT_ERR_USAGE);
    assert_string_equal(err.message,
                        "the trace's 3 requests arrive at one moment, so it has no rate to vary: "
                        "expected timestamps that differ");
    vt_trace_file_release(&t);
}

static void test_search_when_nothing_fits_then_one_row(void **state)
{
    (void)state;
    vt_trace_file t = parse("{\"timestamp\": 0, \"input_length\": 5000, \"output_length\": 5}\n"
                            "{\"timestamp\": 9, \"input_length\": 5000, \"output_length\": 5}\n");
    vt_capacity_setup s = setup(1);
    static vt_capacity_table table;
    assert_int_equal(vt_capacity_search(&s, &t, &table, NULL), VT_OK);
    assert_int_equal(table.n, 1);
    assert_int_equal(table.row[0].n_done, 0);
    assert_int_equal(table.saturated, -1);
    vt_trace_file_release(&t);
}

/* ---- traces ---- */

static void test_trace_when_hash_ids_are_strings_then_equal_ones_share(void **state)
{
    (void)state;
    vt_trace_file t = parse(
        "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": "
        "[\"a1_0\", 5]}\n"
        "{\"timestamp\": 500, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": "
        "[\"a1_0\", \"5\"]}\n"
        "{\"timestamp\": 900, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": "
        "[\"a1_1\", 5.0]}\n");
    assert_int_equal(t.n_hash, 6);
    assert_true(t.hash[0] == t.hash[2] && t.hash[1] == t.hash[5]);
    assert_true(t.hash[1] != t.hash[3] && t.hash[0] != t.hash[4]);
    vt_capacity_setup s = setup(1);
    vt_capacity_result r;
    assert_int_equal(vt_capacity_run(&s, &t, 1, &r, NULL), VT_OK);
    near(r.hit_share, 512.0 / 3072);
    vt_trace_file_release(&t);
}

static void test_trace_when_longer_than_asked_then_the_rest_is_checked_and_counted(void **state)
{
    (void)state;
    const char *text = "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, "
                       "\"hash_ids\": [1]}\n"
                       "{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 5}\n"
                       "{\"timestamp\": 2, \"input_length\": 5, \"output_length\": 5.5}\n";
    vt_trace_file t;
    vt_err err;
    assert_int_equal(vt_trace_parse("t", text, strlen(text), 1, &t, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message,
                        "t: line 3: output_length is 5.5, expected a whole number from "
                        "0 to 16777216");
    size_t two_lines = (size_t)(strstr(text, "{\"timestamp\": 2") - text);
    assert_int_equal(vt_trace_parse("t", text, two_lines, 1, &t, &err), VT_OK);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.n_left_out, 1);
    assert_int_equal(t.n_odd, 1); /* 600 tokens are two blocks */
    assert_int_equal(t.first_odd, 1);
    vt_trace_file_release(&t);
}

static void refused(const char *line, const char *message)
{
    vt_trace_file t;
    vt_err err;
    assert_int_equal(vt_trace_parse("t", line, strlen(line), 10, &t, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message, message);
}

static void test_trace_when_a_value_is_no_whole_number_then_refused_by_line(void **state)
{
    (void)state;
    refused("\n{\"timestamp\": 0, \"input_length\": 2000.7, \"output_length\": 5}",
            "t: line 2: input_length is 2000.7, expected a whole number from 1 to 16777216");
    refused("{\"timestamp\": 0, \"input_length\": 5}",
            "t: line 1: output_length is missing or no number, expected tokens");
    refused("{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": 5}",
            "t: line 1: hash_ids is no list");
    refused("{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": [1, 1.5]}",
            "t: line 1: number 2 of hash_ids is a fraction, expected whole numbers or strings");
    refused("{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": [{}]}",
            "t: line 1: number 1 of hash_ids is no number and no string, expected whole numbers or "
            "strings");
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
        cmocka_unit_test(test_capacity_when_alone_then_times_are_the_steps),
        cmocka_unit_test(test_capacity_when_blocks_are_equal_then_the_second_prompt_hits),
        cmocka_unit_test(test_capacity_when_a_prompt_comes_again_then_all_but_its_last_token_hits),
        cmocka_unit_test(test_capacity_when_more_replicas_then_waits_are_shorter),
        cmocka_unit_test(test_capacity_when_longer_than_the_context_then_refused_and_counted),
        cmocka_unit_test(test_capacity_when_a_prompt_just_fits_the_context_then_it_is_served),
        cmocka_unit_test(test_capacity_when_kv_memory_is_too_small_then_that_is_counted),
        cmocka_unit_test(test_capacity_when_outputs_do_not_fit_then_cut_and_counted),
        cmocka_unit_test(test_capacity_when_replicas_are_busy_then_steps_know_how_many),
        cmocka_unit_test(test_capacity_when_gaps_differ_then_percentiles_are_nearest_rank),
        cmocka_unit_test(test_search_when_the_trace_is_slow_or_far_too_fast_then_the_same_border),
        cmocka_unit_test(test_search_when_the_trace_is_short_then_the_last_answer_does_not_count),
        cmocka_unit_test(test_search_when_all_arrive_at_once_then_usage),
        cmocka_unit_test(test_search_when_nothing_fits_then_one_row),
        cmocka_unit_test(test_trace_when_hash_ids_are_strings_then_equal_ones_share),
        cmocka_unit_test(test_trace_when_longer_than_asked_then_the_rest_is_checked_and_counted),
        cmocka_unit_test(test_trace_when_a_value_is_no_whole_number_then_refused_by_line),
        cmocka_unit_test(test_trace_when_a_field_is_wrong_then_line_and_field_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
