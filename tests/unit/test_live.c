/* Looks at an engine on the fake device. */
#include "engine_fixture.h"

#include <jansson.h>

#include "server/watch/live_look.h"

/* ---- looks ---- */

static json_t *look_json(live_look *k, bool history)
{
    vt_json w;
    vt_buf text = {0};
    vt_err err;
    assert_int_equal(live_look_take(k, &err), VT_OK);
    vt_json_begin(&w, &text, -1);
    vt_json_open(&w, NULL, '{');
    live_look_write(k, history, &w);
    vt_json_close(&w);
    assert_true(vt_json_end(&w));
    json_t *o = json_loads(text.data, 0, NULL);
    assert_non_null(o);
    vt_buf_release(&text);
    return o;
}

static int64_t get(const json_t *o, const char *group, const char *key)
{
    const json_t *v = json_object_get(json_object_get(o, group), key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static int64_t cells(const json_t *o, size_t which)
{
    int64_t sum = 0;
    const json_t *list = json_object_get(json_object_get(o, "pages"), "cells");
    for (size_t i = which; i < json_array_size(list); i += 4)
        sum += json_integer_value(json_array_get(list, i));
    return sum;
}

static void run_steps(fixture *f, int n)
{
    bool idle = false;
    vt_err err;
    for (int i = 0; i < n && !idle; i++)
        assert_int_equal(vt_engine_step(f->engine, &idle, &err), VT_OK);
}

static void open_watched(fixture *f, live_look **k)
{
    vt_err err;
    fixture_defaults(f);
    f->config.sched.limits.max_seqs = 2;
    fixture_open(f);
    assert_int_equal(live_look_new(f->engine, k, &err), VT_OK);
}

static void test_look_at_a_full_batch_tells_pages_and_why_others_wait(void **state)
{
    (void)state;
    fixture f;
    live_look *k;
    static heard h[4];
    int32_t prompt[4][20];
    memset(h, 0, sizeof h);
    open_watched(&f, &k);
    for (int i = 0; i < 4; i++) {
        for (int t = 0; t < 20; t++)
            prompt[i][t] = t < 8 ? t : 100 + i; /* two pages are common */
        vt_request_params p = ask(prompt[i], 20, 30, &h[i]);
        submit(&f, &p);
    }
    run_steps(&f, 8);
    json_t *o = look_json(k, true);
    assert_int_equal(get(o, "now", "running"), 2);
    assert_int_equal(get(o, "now", "waiting"), 2);
    assert_int_equal(json_array_size(json_object_get(o, "running")), 2);
    const json_t *queue = json_object_get(o, "queue");
    assert_int_equal(json_array_size(queue), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(queue, 0), "why")),
                        "batch full");
    assert_int_equal(cells(o, 0), get(o, "pages", "used"));
    assert_int_equal(cells(o, 1), get(o, "pages", "cached"));
    assert_int_equal(cells(o, 2), 2); /* both have the common pages */
    assert_int_equal(get(o, "pages", "used") + get(o, "pages", "cached") + get(o, "pages", "free"),
                     get(o, "pages", "all"));
    const json_t *steps = json_object_get(o, "steps");
    assert_true(json_array_size(steps) >= 6);
    const json_t *last = json_array_get(steps, json_array_size(steps) - 1);
    assert_int_equal(json_integer_value(json_object_get(last, "decodes")), 2);
    assert_int_equal(json_array_size(json_object_get(last, "of")), 6);
    json_decref(o);
    live_look_free(k);
    fixture_close(&f);
}

static void test_looks_tell_each_step_once_and_the_history_tells_all(void **state)
{
    (void)state;
    fixture f;
    live_look *k;
    static heard h;
    int32_t prompt[10] = {1, 2, 3};
    memset(&h, 0, sizeof h);
    open_watched(&f, &k);
    vt_request_params p = ask(prompt, 10, 40, &h);
    submit(&f, &p);
    int64_t newest = 0, told = 0;
    for (int i = 0; i < 10; i++) {
        run_steps(&f, 3);
        json_t *o = look_json(k, false);
        const json_t *steps = json_object_get(o, "steps");
        for (size_t s = 0; s < json_array_size(steps); s++, told++) {
            int64_t id = json_integer_value(json_object_get(json_array_get(steps, s), "id"));
            assert_int_equal(id, newest + 1);
            newest = id;
        }
        json_decref(o);
    }
    json_t *o = look_json(k, true);
    assert_int_equal(json_array_size(json_object_get(o, "steps")), told);
    json_decref(o);
    live_look_free(k);
    fixture_close(&f);
}

static void test_look_at_ended_requests_tells_latency_and_cache(void **state)
{
    (void)state;
    fixture f;
    live_look *k;
    static heard h[2];
    int32_t prompt[40] = {0};
    memset(h, 0, sizeof h);
    open_watched(&f, &k);
    for (int i = 0; i < 2; i++) {
        vt_request_params p = ask(prompt, 40, 5, &h[i]);
        submit(&f, &p);
        run_steps(&f, 1000);
    }
    json_t *o = look_json(k, true);
    assert_int_equal(get(o, "now", "length"), 2);
    assert_int_equal(get(o, "pages", "used"), 0);
    assert_true(get(o, "tree", "hit_tokens") > 0);
    assert_int_equal(get(o, "tree", "pages"), get(o, "pages", "cached"));
    const json_t *run = json_array_get(json_object_get(json_object_get(o, "tree"), "shown"), 0);
    assert_int_equal(json_integer_value(json_object_get(run, "users")), 0);
    assert_true(json_integer_value(json_object_get(run, "hits")) >= 1);
    json_decref(o);
    live_look_free(k);
    fixture_close(&f);
}

/* ---- latency ---- */

static void test_times_are_of_first_tokens_and_of_gaps_between_steps(void **state)
{
    (void)state;
    live_look *k = calloc(1, sizeof *k);
    live_times *t = live_times_new();
    vt_request_event e = {.arrive = {VT_REQ_ARRIVE, 10, 3, 1000000000, 0}};
    live_times_request(t, &e);
    int64_t at[] = {1200000000, 1210000000, 1210000000, 1230000000};
    uint64_t of_step[] = {5, 6, 6, 7}; /* the third is another sample's token of the same step */
    for (int i = 0; i < 4; i++) {
        e.token = (vt_req_token){VT_REQ_TOKEN, i, 3, at[i], of_step[i], 42};
        live_times_request(t, &e);
    }
    live_times_tell(t, 2500000000, k);
    assert_int_equal(k->ttft.n, 1);
    assert_float_equal(k->ttft.p50_s, 0.2, 1e-9);
    assert_int_equal(k->ttft.bin[13], 1); /* from 177 to 316 ms */
    assert_int_equal(k->ttft.request[13], 3);
    assert_int_equal(k->ttft.request[12], 0);
    assert_int_equal(k->itl.n, 2);
    assert_float_equal(k->itl.p50_s, 0.01, 1e-9);
    assert_float_equal(k->itl.p99_s, 0.02, 1e-9);
    assert_float_equal(k->output_now, 2, 1e-9); /* 4 tokens in the last two seconds */
    /* prompts' tokens alone, in intervals of half a second that are over */
    live_times_step(t, &(vt_step_ran){.end_ns = 2400000000, .n_tokens = 12, .n_decode = 2});
    live_times_step(t, &(vt_step_ran){.end_ns = 2600000000, .n_tokens = 99});
    live_times_tell(t, 2700000000, k);
    assert_float_equal(k->prefill_now, 5, 1e-9);
    live_times_tell(t, 90000000000, k);
    assert_int_equal(k->ttft.n, 0);
    assert_true(k->ttft.p50_s != k->ttft.p50_s);
    assert_float_equal(k->output_now, 0, 1e-9);
    free(t);
    free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_look_at_a_full_batch_tells_pages_and_why_others_wait),
        cmocka_unit_test(test_looks_tell_each_step_once_and_the_history_tells_all),
        cmocka_unit_test(test_look_at_ended_requests_tells_latency_and_cache),
        cmocka_unit_test(test_times_are_of_first_tokens_and_of_gaps_between_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
