/* The engine when its device is lost (engine/faults.c), on the fake device: requests go on in the
 * new one with the same tokens, as long as it can be made again. */
#include "engine_fixture.h"

typedef struct notices {
    int32_t n;
    char last[400];
} notices;

static void on_notice(void *user, const char *sentence)
{
    notices *told = user;
    told->n++;
    snprintf(told->last, sizeof told->last, "%s", sentence);
}

enum { LOSERS = 4, LOSER_TOKENS = 40 };

/* Runs the same requests on a device that is lost now and then; returns how often it was. */
static uint64_t run_losing(int32_t fault_ppm, uint64_t seed, int32_t *n_renewals, heard *h,
                           notices *told)
{
    fixture f;
    vt_engine_stats st;
    int32_t prompt[20];
    bool idle = false;
    memset(h, 0, LOSERS * sizeof *h);
    fixture_defaults(&f);
    f.config.notice = (vt_notice_hook){on_notice, told};
    f.device.fault_ppm = fault_ppm;
    f.device.n_renewals = n_renewals;
    f.device.seed = seed;
    fixture_open(&f);
    for (int i = 0; i < LOSERS; i++) {
        count_up(prompt, 20, i);
        vt_request_params p = ask(prompt, 20, LOSER_TOKENS, &h[i]);
        p.temperature = i % 2 ? 1 : 0;
        p.has_seed = true;
        submit(&f, &p);
    }
    for (int i = 0; !idle && i < 1000; i++) {
        assert_int_equal(vt_engine_step(f.engine, &idle, NULL), VT_OK);
        assert_string_equal(vt_fake_violation(f.executor), "");
    }
    assert_true(idle);
    vt_engine_copy_stats(f.engine, &st);
    fixture_close(&f);
    return st.recoveries;
}

static void test_device_when_lost_then_made_again_and_the_same_tokens_come(void **state)
{
    (void)state;
    static heard want[LOSERS], got[LOSERS];
    uint64_t recoveries = 0;
    int32_t renewals = 100;
    notices told = {0};
    assert_int_equal(run_losing(0, 1, &renewals, want, &told), 0);
    assert_int_equal(told.n, 0);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t n = run_losing(15000, seed, &renewals, got, &told);
        recoveries += n;
        assert_int_equal(told.n, recoveries);
        assert_int_equal(renewals, 100 - (int32_t)recoveries);
        if (n > VT_MAX_FAULTS) /* a sequence may have met all of them */
            continue;
        for (int i = 0; i < LOSERS; i++) {
            assert_int_equal(got[i].finish, VT_FINISH_LENGTH);
            assert_int_equal(got[i].n, LOSER_TOKENS);
            assert_memory_equal(got[i].token, want[i].token, LOSER_TOKENS * sizeof(int32_t));
        }
    }
    assert_true(recoveries > 3);
    assert_non_null(strstr(told.last, "the device was lost (the fake device "));
}

/* A request on a device that is lost at every launch; it takes three recoveries with it. */
static void run_to_its_error(fixture *f, heard *h)
{
    int32_t prompt[20];
    bool idle = false;
    memset(h, 0, sizeof *h);
    count_up(prompt, 20, 0);
    vt_request_params p = ask(prompt, 20, 10, h);
    submit(f, &p);
    for (int i = 0; !idle && i < 20; i++)
        (void)vt_engine_step(f->engine, &idle, NULL);
    assert_true(idle);
    assert_int_equal(h->finish, VT_FINISH_ERROR);
}

static void test_device_when_lost_too_often_then_requests_fail_until_an_hour_is_over(void **state)
{
    (void)state;
    fixture f;
    static heard h;
    int32_t renewals = 100;
    fixture_defaults(&f);
    f.device.fault_ppm = 1000000;
    f.device.n_renewals = &renewals;
    fixture_open(&f);
    for (int i = 0; i < 2; i++) {
        run_to_its_error(&f, &h);
        assert_int_equal(h.end_reason, VT_END_DEVICE_FAULT);
    }
    assert_int_equal(renewals, 94);
    run_to_its_error(&f, &h); /* with its third failure the limit is reached */
    assert_int_equal(h.end_reason, VT_END_DEVICE_FAULT);
    assert_int_equal(renewals, 100 - VT_MAX_RECOVERIES);
    run_to_its_error(&f, &h);
    assert_int_equal(h.end_reason, VT_END_DEVICE_LOST);
    assert_int_equal(renewals, 100 - VT_MAX_RECOVERIES);
    run_to_its_error(&f, &h);
    assert_int_equal(renewals, 100 - VT_MAX_RECOVERIES);
    f.clock.now_ns += 3601 * (int64_t)1000000000;
    run_to_its_error(&f, &h);
    assert_int_equal(h.end_reason, VT_END_DEVICE_FAULT);
    fixture_close(&f);
}

static void
test_device_when_it_cannot_be_made_again_then_all_requests_end_with_the_reason(void **state)
{
    (void)state;
    fixture f;
    static heard h[6];
    memset(h, 0, sizeof h);
    int32_t renewals = 0, prompt[20];
    bool idle = false;
    fixture_defaults(&f);
    f.device.fault_ppm = 1000000;
    f.device.n_renewals = &renewals;
    fixture_open(&f);
    count_up(prompt, 20, 0);
    for (int i = 0; i < 6; i++) { /* four can run, two wait */
        vt_request_params p = ask(prompt, 20, 10, &h[i]);
        submit(&f, &p);
    }
    vt_err err = {0};
    assert_int_equal(vt_engine_step(f.engine, &idle, &err), VT_ERR_DEVICE);
    assert_non_null(strstr(err.message, "in this process (the fake device is gone for good)"));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(h[i].end_reason, VT_END_DEVICE_LOST);
        assert_string_equal(h[i].error, err.message); /* the device's own words */
    }
    assert_int_equal(vt_engine_step(f.engine, &idle, &err), VT_OK);
    assert_true(idle);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_when_lost_then_made_again_and_the_same_tokens_come),
        cmocka_unit_test(test_device_when_lost_too_often_then_requests_fail_until_an_hour_is_over),
        cmocka_unit_test(
            test_device_when_it_cannot_be_made_again_then_all_requests_end_with_the_reason),
    };
    return cmocka_run_group_tests_name("engine_faults", tests, NULL, NULL);
}
