/* The estimate of a step's time (engine/step_time.h), and steps that keep a target gap. */
#include "engine_fixture.h"

static void test_tokens_when_nothing_is_known_then_no_limit(void **state)
{
    (void)state;
    vt_step_time t = {0};
    assert_int_equal(vt_step_time_tokens(&t, 50), INT32_MAX);
    vt_step_time_ran(&t, 3, 0, 1000);
    vt_step_time_ran(&t, 0, VT_CHUNK_LEAST - 1, 1000); /* too few to tell */
    assert_int_equal(vt_step_time_tokens(&t, 50), INT32_MAX);
}

static void test_tokens_when_steps_ran_then_what_fits_beside_decodes(void **state)
{
    (void)state;
    vt_step_time t = {0};
    for (int32_t i = 0; i < 40; i++) {
        vt_step_time_ran(&t, 3, 0, 10000);
        vt_step_time_ran(&t, 3, 100 + i, 10000 + 50 * (100 + i));
    }
    int32_t n = vt_step_time_tokens(&t, 20000);
    assert_in_range(n, 199, 201);
    assert_int_equal(vt_step_time_tokens(&t, 9000), VT_CHUNK_LEAST);
    for (int32_t i = 0; i < 40; i++) /* longer contexts: tokens cost twice as much */
        vt_step_time_ran(&t, 3, n, 10000 + 100 * n);
    assert_in_range(vt_step_time_tokens(&t, 20000), 99, 101);
}

/* A step of the fake device: 100 us, and 1 us a token. */
enum { PROMPT = 400, BUDGET = 300, OUTPUT = 60 };

/* Runs a decode of 60 tokens, and beside it a long prompt. Returns the longest step that has both,
 * in microseconds. */
static int32_t longest_us(int64_t target_us, heard h[2])
{
    fixture f;
    int32_t first[20], second[PROMPT], longest = 0;
    fixture_defaults(&f);
    f.config.sched.limits.max_tokens = BUDGET;
    f.config.sched.target_gap_ns = target_us * 1000;
    f.config.overlap = false;
    fixture_open(&f);
    count_up(first, 20, 1);
    count_up(second, PROMPT, 40);
    memset(h, 0, 2 * sizeof *h);
    vt_request_params p = ask(first, 20, OUTPUT, &h[0]);
    submit(&f, &p);
    for (int32_t i = 0; i < 10; i++)
        step(&f);
    p = ask(second, PROMPT, 4, &h[1]);
    submit(&f, &p);
    for (bool more = true; more;) {
        int64_t before = f.clock.now_ns;
        more = step(&f);
        const vt_batch *b = &last_plan(&f)->step.batch;
        int32_t us = (int32_t)((f.clock.now_ns - before) / 1000);
        if (b->n_decode > 0 && b->n_tokens > b->n_decode && us > longest)
            longest = us;
    }
    fixture_close(&f);
    return longest;
}

static void test_step_when_a_gap_is_set_then_chunks_fit_and_tokens_stay(void **state)
{
    (void)state;
    static heard any[2], set[2];
    assert_int_equal(longest_us(0, any), 100 + BUDGET);
    int32_t us = longest_us(200, set);
    assert_in_range(us, 150, 205);
    assert_int_equal(longest_us(1, set), 100 + 1 + VT_CHUNK_LEAST); /* cannot be kept: the least */
    for (int32_t i = 0; i < 2; i++)
        assert_memory_equal(any[i].token, set[i].token, sizeof set[i].token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_when_nothing_is_known_then_no_limit),
        cmocka_unit_test(test_tokens_when_steps_ran_then_what_fits_beside_decodes),
        cmocka_unit_test(test_step_when_a_gap_is_set_then_chunks_fit_and_tokens_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
