/* What the engine's rings tell of requests: arrival, waits, steps, publishing, shared pages. */
#include "engine_fixture.h"

static void test_record_when_a_request_ran_then_the_ring_tells_it_in_order(void **state)
{
    (void)state;
    fixture f;
    static heard h;
    memset(&h, 0, sizeof h);
    int32_t prompt[20];
    vt_request_event ev[200];
    vt_step_event step[200];
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 20, 0);
    vt_request_params p = ask(prompt, 20, 3, &h);
    vt_request_id id = submit(&f, &p);
    run_all(&f);
    vt_source source[4];
    assert_int_equal(vt_engine_sources(f.engine, source, 4), 2); /* and the fake device's */
    assert_string_equal(source[0].name, "engine");
    uint64_t n = vt_trace_copy(source[0].requests, ev, 100);
    n += vt_trace_copy_tokens(source[0].tokens, ev + n, 100);
    int32_t seen[VT_REQ_MASKS + 1] = {0}, steps = 0, last = -1;
    for (uint64_t i = 0; i < n; i++) {
        if (ev[i].kind == VT_REQ_CACHE)
            continue;
        assert_int_equal(ev[i].request, id);
        assert_true((int32_t)ev[i].kind >= last || ev[i].kind == VT_REQ_TOKEN);
        last = (int32_t)ev[i].kind;
        seen[ev[i].kind]++;
    }
    assert_int_equal(seen[VT_REQ_WAIT], 1);
    n = vt_trace_copy(source[0].prompt_steps, step, 100);
    assert_int_equal(step[0].step, 1); /* the prompt's step has a ring of its own */
    n += vt_trace_copy(source[0].steps, step + n, 100);
    for (uint64_t i = 0; i < n; i++) {
        steps += step[i].kind == VT_STEP_RAN;
        if (step[i].kind == VT_STEP_RAN)
            assert_true(step[i].ran.end_ns >= step[i].ran.begin_ns);
    }
    assert_int_equal(steps, 3);
    assert_true(vt_executor_value(vt_engine_executor(f.engine), "steps", -1) == 3);
    assert_true(vt_executor_value(vt_engine_executor(f.engine), "kv_bytes", -1) == -1);
    assert_int_equal(seen[VT_REQ_ARRIVE], 1);
    assert_int_equal(seen[VT_REQ_MATCH], 1);
    assert_int_equal(seen[VT_REQ_ADMIT], 1);
    assert_int_equal(seen[VT_REQ_TOKEN], 3);
    assert_int_equal(seen[VT_REQ_FINISH], 1);
    fixture_close(&f);
}

/* The event of a completion's wait for its admission. */
static vt_req_wait wait_of(const vt_engine *e, vt_request_id id, int32_t index)
{
    static vt_request_event ev[400];
    vt_source source;
    vt_engine_sources(e, &source, 1);
    uint64_t n = vt_trace_copy(source.requests, ev, 400);
    for (uint64_t i = 0; i < n; i++)
        if (ev[i].kind == VT_REQ_WAIT && ev[i].request == id && ev[i].wait.index == index)
            return ev[i].wait;
    fail_msg("request %llu has no wait", (unsigned long long)id);
    return ev[0].wait;
}

/* Two requests of 40 prompt tokens at once, or two completions of one: what the second waits
 * for. */
static void check_wait(int32_t max_seqs, int32_t budget, int32_t n_pages, bool siblings,
                       vt_wait_reason expected)
{
    fixture f;
    static heard h[2];
    memset(h, 0, sizeof h);
    int32_t prompt[2][40];
    vt_request_id id[2] = {0};
    fixture_defaults(&f);
    f.config.sched.limits.max_seqs = max_seqs;
    f.config.sched.limits.max_tokens = budget;
    f.config.sched.n_pages = n_pages;
    fixture_open(&f);
    for (int i = 0; i < (siblings ? 1 : 2); i++) {
        count_up(prompt[i], 40, 100 * i);
        vt_request_params p = ask(prompt[i], 40, 4, &h[i]);
        p.n = siblings ? 2 : 1;
        id[i] = submit(&f, &p);
    }
    run_all(&f);
    vt_req_wait first = wait_of(f.engine, id[0], 0),
                second = siblings ? wait_of(f.engine, id[0], 1) : wait_of(f.engine, id[1], 0);
    assert_int_equal(first.reason, VT_WAIT_NONE);
    assert_int_equal(first.step, 1);
    assert_string_equal(vt_wait_reason_name(second.reason), vt_wait_reason_name(expected));
    assert_true(second.step > 1 && second.end_ns >= second.begin_ns);
    fixture_close(&f);
}

static void test_wait_when_a_limit_is_reached_then_its_event_names_it(void **state)
{
    (void)state;
    check_wait(1, 64, 64, false, VT_WAIT_SLOTS);
    check_wait(4, 64, 14, false, VT_WAIT_PAGES);
    check_wait(4, 16, 64, false, VT_WAIT_TOKENS);
    check_wait(4, 64, 64, true, VT_WAIT_PREFIX);
}

/* Parsing and tokenising come from the request's parameters. */
static void test_record_when_the_request_says_when_it_came_then_its_parts_are_told(void **state)
{
    (void)state;
    fixture f;
    static heard h;
    memset(&h, 0, sizeof h);
    int32_t prompt[8];
    vt_request_event all[32];
    vt_source source;
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 8, 0);
    vt_request_params p = ask(prompt, 8, 1, &h);
    p.arrived_ns = 10;
    p.parsed_ns = 20;
    p.tokenised_ns = 50; /* no template was rendered */
    submit(&f, &p);
    run_all(&f);
    vt_engine_sources(f.engine, &source, 1);
    uint64_t n = vt_trace_copy(source.requests, all, 32);
    assert_true(n >= 3);
    assert_true(all[0].kind == VT_REQ_PARSE && all[0].part.begin_ns == 10 &&
                all[0].part.end_ns == 20);
    assert_true(all[1].kind == VT_REQ_TOKENISE && all[1].tokenise.begin_ns == 20 &&
                all[1].tokenise.end_ns == 50 && all[1].tokenise.n_tokens == 8);
    assert_int_equal(all[2].kind, VT_REQ_ARRIVE);
    fixture_close(&f);
}

/* Text is made before the first callback of the step: the two parts of publishing lie one behind
 * the other. What a writer tells is kept; times that cannot be are not. */
static void test_record_when_published_then_text_and_writing_are_told(void **state)
{
    (void)state;
    fixture f;
    static heard h;
    memset(&h, 0, sizeof h);
    int32_t prompt[8], published = 0;
    vt_request_event told[4];
    vt_step_event step[100];
    vt_source source;
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 8, 0);
    vt_request_params p = ask(prompt, 8, 3, &h);
    vt_request_id id = submit(&f, &p);
    run_all(&f);
    vt_engine_wrote(f.engine, id, 10, 30, 5, 100);
    vt_engine_wrote(f.engine, id, 30, 10, 5, 100); /* ends before it begins */
    vt_engine_wrote(f.engine, id, 0, 10, 5, 100);
    vt_engine_wrote(f.engine, id, 10, 30, 5, -1);
    vt_engine_sources(f.engine, &source, 1);
    assert_int_equal(vt_trace_copy(source.writes, told, 4), 1);
    assert_true(told[0].kind == VT_REQ_WRITE && told[0].request == id);
    assert_true(told[0].write.end_ns == 30 && told[0].write.n_bytes == 100);
    uint64_t n = vt_trace_copy(source.steps, step, 100);
    for (uint64_t i = 0; i < n; i++)
        if (step[i].kind == VT_STEP_PART && step[i].part.part == VT_PART_PUBLISH) {
            published++;
            assert_true(step[i].part.text_ns >= step[i].part.begin_ns &&
                        step[i].part.text_ns <= step[i].part.end_ns);
        }
    assert_int_equal(published, 2); /* the prompt's step has a ring of its own */
    fixture_close(&f);
}

/* Two requests with the same prompt share its whole pages. (Later pages too, if both produce the
 * same tokens and the second finds them in the tree.) One of the two events reports that. */
static void test_record_when_pages_are_shared_then_the_ring_tells_how_many(void **state)
{
    (void)state;
    fixture f;
    static heard h[2];
    memset(h, 0, sizeof h);
    int32_t prompt[22], together = 0, shared = 0;
    vt_step_event ev[400];
    vt_source source;
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 22, 0);
    for (int i = 0; i < 2; i++) {
        vt_request_params p = ask(prompt, 22, 12, &h[i]);
        bool idle;
        submit(&f, &p);
        for (int k = 0; k < 3; k++)
            assert_int_equal(vt_engine_step(f.engine, &idle, NULL), VT_OK);
    }
    run_all(&f);
    vt_engine_sources(f.engine, &source, 1);
    uint64_t n = vt_trace_copy(source.steps, ev, 200);
    n += vt_trace_copy_seqs(source.seqs, 100, ev + n, 200);
    for (uint64_t i = 0; i < n; i++) {
        together += ev[i].kind == VT_STEP_RAN && ev[i].ran.n_decode == 2;
        if (ev[i].kind != VT_STEP_SEQ || ev[i].seq.shared_pages == 0)
            continue;
        shared++;
        assert_in_range(ev[i].seq.shared_pages, 21 / 4, (ev[i].seq.kv_len - 1) / 4);
    }
    assert_true(together > 5);
    assert_int_equal(shared, together);
    fixture_close(&f);
}

/* A page of a ring is touched first when the ring gets there: each event adds its own bytes. */
static void test_recorder_bytes_grow_by_each_event(void **state)
{
    (void)state;
    fixture f;
    static heard h;
    memset(&h, 0, sizeof h);
    int32_t prompt[8];
    vt_engine_stats before, after;
    fixture_defaults(&f);
    fixture_open(&f);
    vt_engine_copy_stats(f.engine, &before);
    assert_int_equal(before.recorder_bytes, 0);
    count_up(prompt, 8, 0);
    vt_request_params p = ask(prompt, 8, 3, &h);
    vt_request_id id = submit(&f, &p);
    run_all(&f);
    vt_engine_copy_stats(f.engine, &before);
    assert_true(before.recorder_bytes > 3 * sizeof(vt_step_event));
    vt_engine_wrote(f.engine, id, 10, 30, 5, 100);
    vt_engine_copy_stats(f.engine, &after);
    assert_int_equal(after.recorder_bytes - before.recorder_bytes, sizeof(vt_request_event));
    assert_int_equal(after.held.graphs, 0); /* the device has none to tell of */
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_when_a_request_ran_then_the_ring_tells_it_in_order),
        cmocka_unit_test(test_wait_when_a_limit_is_reached_then_its_event_names_it),
        cmocka_unit_test(test_record_when_the_request_says_when_it_came_then_its_parts_are_told),
        cmocka_unit_test(test_record_when_published_then_text_and_writing_are_told),
        cmocka_unit_test(test_record_when_pages_are_shared_then_the_ring_tells_how_many),
        cmocka_unit_test(test_recorder_bytes_grow_by_each_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
