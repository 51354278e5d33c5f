/* The scheduler through the engine on the fake device: which requests run, with how many tokens, on
 * which pages. */
#include "engine_fixture.h"

static int32_t running(const fixture *f) { return vt_engine_scheduler(f->engine)->n_running; }

static void test_plan_when_prefill_and_decode_then_decodes_come_first_under_the_budget(void **state)
{
    (void)state;
    fixture f;
    heard a = {0}, b = {0};
    int32_t pa[5], pb[200];
    fixture_defaults(&f);
    f.config.overlap = false;
    f.config.sched.limits.max_tokens = 20;
    fixture_open(&f);
    count_up(pa, 5, 0);
    count_up(pb, 200, 50);
    vt_request_params p = ask(pa, 5, 30, &a);
    submit(&f, &p);
    step(&f);
    p = ask(pb, 200, 3, &b);
    submit(&f, &p);
    for (int i = 0; i < 10; i++) { /* ten chunks of 19 beside one decode */
        step(&f);
        const vt_plan *plan = last_plan(&f);
        assert_int_equal(plan->step.batch.n_decode, 1);
        assert_int_equal(plan->step.batch.n_tokens, 20);
        assert_int_equal(plan->entry[0].seq->req->p.n_prompt, 5);
        assert_int_equal(a.n, 2 + i); /* a token in every step: the long prompt does not stall it */
    }
    run_all(&f);
    assert_int_equal(a.n, 30);
    assert_int_equal(b.n, 3);
    fixture_close(&f);
}

static void test_admit_when_no_room_for_the_first_then_no_other_overtakes_it(void **state)
{
    (void)state;
    fixture f;
    heard h[3] = {0};
    int32_t big[80], small[4];
    fixture_defaults(&f);
    f.config.sched.n_pages = 30; /* 120 positions */
    f.config.sched.prefix_cache = false;
    fixture_open(&f);
    count_up(big, 80, 0);
    count_up(small, 4, 100);
    vt_request_params p = ask(big, 80, 30, &h[0]);
    submit(&f, &p);
    step(&f);
    p.user = &h[1];
    submit(&f, &p); /* needs 20 pages, 10 are left */
    p = ask(small, 4, 4, &h[2]);
    submit(&f, &p); /* would fit */
    while (h[0].n_ends == 0) {
        step(&f);
        assert_int_equal(h[2].n, 0);
    }
    run_all(&f);
    assert_int_equal(h[1].n, 30);
    assert_int_equal(h[2].n, 4);
    fixture_close(&f);
}

/* Every running sequence will want a page before long. A prompt that would take the last ones
 * waits, because admitting it would only get another one retracted. */
static void test_admit_when_a_prompt_would_take_the_last_pages_then_it_waits(void **state)
{
    (void)state;
    fixture f;
    heard h[2] = {0};
    int32_t first[16], second[20];
    fixture_defaults(&f);
    f.config.sched.n_pages = 10; /* 5 for the first prompt and its first token, 5 for the second */
    f.config.sched.prefix_cache = false;
    fixture_open(&f);
    count_up(first, 16, 0);
    count_up(second, 20, 100);
    vt_request_params p = ask(first, 16, 8, &h[0]);
    submit(&f, &p);
    step(&f);
    p = ask(second, 20, 8, &h[1]);
    submit(&f, &p);
    while (h[0].n_ends == 0) {
        step(&f);
        assert_int_equal(h[1].n, 0);
    }
    run_all(&f);
    assert_int_equal(h[1].n, 8);
    assert_int_equal(vt_engine_scheduler(f.engine)->stats.retracted, 0);
    fixture_close(&f);
}

static void test_admit_when_prompt_is_cached_then_only_the_rest_is_computed(void **state)
{
    (void)state;
    fixture f;
    heard a = {0}, b = {0};
    int32_t prompt[103];
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 103, 0);
    vt_request_params p = ask(prompt, 103, 1, &a);
    submit(&f, &p);
    run_all(&f);
    uint64_t before = vt_engine_scheduler(f.engine)->stats.prefill_tokens;
    p.user = &b;
    submit(&f, &p);
    run_all(&f);
    /* 25 whole pages and 2 tokens of the tail; the last token is always computed, for its logits */
    assert_int_equal(b.cached, 102);
    assert_int_equal(vt_engine_scheduler(f.engine)->stats.prefill_tokens - before, 1);
    assert_int_equal(b.token[0], a.token[0]);
    fixture_close(&f);
}

static void test_admit_when_the_prefix_is_being_computed_then_rides_on_it(void **state)
{
    (void)state;
    fixture f;
    heard a = {0}, b = {0};
    int32_t prompt[200];
    fixture_defaults(&f);
    f.config.sched.limits.max_tokens = 50;
    fixture_open(&f);
    count_up(prompt, 200, 0);
    vt_request_params p = ask(prompt, 200, 10, &a);
    submit(&f, &p);
    p.user = &b;
    submit(&f, &p);
    run_all(&f);
    assert_int_equal(a.cached, 0);
    assert_true(b.cached >= 196); /* all whole pages below the last token */
    assert_memory_equal(a.token, b.token, 10 * sizeof a.token[0]);
    fixture_close(&f);
}

static void test_admit_when_prefixes_part_then_the_rider_takes_what_is_shared(void **state)
{
    (void)state;
    fixture f;
    heard a = {0}, b = {0};
    int32_t pa[100], pb[100];
    fixture_defaults(&f);
    f.config.sched.limits.max_tokens = 300; /* both in one step */
    fixture_open(&f);
    count_up(pa, 100, 0);
    count_up(pb, 100, 0);
    pb[60] = 250;
    vt_request_params p = ask(pa, 100, 5, &a);
    submit(&f, &p);
    p = ask(pb, 100, 5, &b);
    submit(&f, &p);
    step(&f);
    assert_int_equal(last_plan(&f)->step.batch.n_seqs, 2);
    assert_int_equal(last_plan(&f)->step.batch.n_tokens, 100 + 40);
    run_all(&f);
    assert_int_equal(b.cached, 60);
    fixture_close(&f);
}

/* Two tenants send the same prompt at the same time. If one waited for the other's pages, its delay
 * would tell it what the other had sent. */
static void test_admit_when_tenants_differ_then_neither_waits_for_the_other(void **state)
{
    (void)state;
    for (int same = 0; same < 2; same++) {
        fixture f;
        heard a = {0}, b = {0};
        int32_t prompt[100];
        fixture_defaults(&f);
        f.config.sched.limits.max_tokens = 150; /* the first one whole, and a chunk of the second */
        fixture_open(&f);
        count_up(prompt, 100, 0);
        vt_request_params p = ask(prompt, 100, 5, &a);
        p.cache_salt = "one";
        submit(&f, &p);
        p.user = &b;
        p.cache_salt = same ? "one" : "two";
        submit(&f, &p);
        step(&f);
        /* the same tenant waits for 24 pages of the first request; another one computes its own */
        assert_int_equal(last_plan(&f)->step.batch.n_tokens, same ? 100 + 4 : 150);
        run_all(&f);
        assert_int_equal(b.cached, same ? 96 : 0);
        assert_memory_equal(a.token, b.token, 5 * sizeof a.token[0]);
        fixture_close(&f);
    }
}

/* The same while the first request's prompt is being computed and the step has room for more
 * tokens. That happens when a prompt that is scored starts again, here after a fault: a step takes
 * the 32 tokens that already have their scores, which need no row. */
static void test_admit_when_a_tenants_prefill_goes_on_then_another_tenant_starts(void **state)
{
    (void)state;
    for (int same = 0; same < 2; same++) {
        fixture f;
        heard a = {0}, b = {0};
        int32_t prompt[100];
        fixture_defaults(&f);
        f.config.overlap = false;
        fixture_open(&f);
        count_up(prompt, 100, 0);
        vt_request_params p = ask(prompt, 100, 5, &a);
        p.cache_salt = "one";
        p.prompt_logprobs = true;
        submit(&f, &p);
        for (int i = 0; i < 2; i++)
            step(&f); /* 16 rows, so 16 tokens each */
        vt_sched_fault((vt_sched *)vt_engine_scheduler(f.engine));
        p = ask(prompt, 100, 5, &b);
        p.cache_salt = same ? "one" : "two";
        submit(&f, &p);
        step(&f);
        assert_int_equal(a.n_scores, 32);
        assert_int_equal(last_plan(&f)->step.batch.n_seqs, same ? 1 : 2);
        assert_int_equal(last_plan(&f)->step.batch.n_tokens, same ? 32 : 64);
        run_all(&f);
        assert_int_equal(b.cached, same ? 96 : 0);
        assert_memory_equal(a.token, b.token, 5 * sizeof a.token[0]);
        fixture_close(&f);
    }
}

static void test_samples_when_n_is_4_then_the_prompt_is_computed_once(void **state)
{
    (void)state;
    for (int cache = 0; cache < 2; cache++) {
        fixture f;
        static heard h[4];
        memset(h, 0, sizeof h);
        int32_t prompt[62];
        fixture_defaults(&f);
        f.config.sched.prefix_cache = cache;
        fixture_open(&f);
        count_up(prompt, 62, 0);
        vt_request_params p = ask(prompt, 62, 8, h);
        p.n = 4;
        p.temperature = 1;
        submit(&f, &p);
        run_all(&f);
        /* 15 pages are shared, one token of the last is copied, one computed again for its
         * logits */
        assert_int_equal(vt_engine_scheduler(f.engine)->stats.prefill_tokens, 62 + 3);
        assert_int_equal(h[3].cached, 61);
        for (int i = 0; i < 4; i++)
            assert_int_equal(h[i].n, 8);
        assert_memory_not_equal(h[0].token, h[1].token, 8 * sizeof(int32_t));
        fixture_close(&f);
    }
}

static void test_decode_when_pages_run_out_then_youngest_is_retracted_and_ends_right(void **state)
{
    (void)state;
    fixture f;
    static heard h[3], alone;
    memset(h, 0, sizeof h);
    memset(&alone, 0, sizeof alone);
    int32_t prompt[3][16];
    fixture_defaults(&f);
    f.config.sched.n_pages = 24;
    fixture_open(&f);
    for (int i = 0; i < 3; i++) {
        count_up(prompt[i], 16, 60 * i);
        vt_request_params p = ask(prompt[i], 16, 60, &h[i]);
        submit(&f, &p);
    }
    const vt_sched *s = vt_engine_scheduler(f.engine);
    int32_t n_retracted = 0;
    for (bool more = true; more;) {
        const vt_seq *before[4] = {0}; /* the sequences that run when the next step is planned */
        for (int32_t k = 0; k < s->n_running; k++)
            before[s->running[k]->order] = s->running[k];
        more = step(&f);
        int32_t youngest = 3;
        for (int32_t i = 0; i < s->n_retracted; i++, n_retracted++) {
            while (!before[youngest])
                youngest--;
            assert_ptr_equal(s->retracted[i], before[youngest--]);
        }
    }
    assert_true(n_retracted > 0);
    assert_int_equal(s->stats.retracted, n_retracted);
    vt_request_params p = ask(prompt[2], 16, 60, &alone);
    submit(&f, &p);
    run_all(&f);
    assert_int_equal(h[2].n, 60);
    assert_memory_equal(h[2].token, alone.token, sizeof(int32_t) * 60);
    fixture_close(&f);
}

static void test_policy_priority_when_slots_are_few_then_higher_first(void **state)
{
    (void)state;
    fixture f;
    static heard h[4];
    memset(h, 0, sizeof h);
    int32_t prompt[4][8];
    fixture_defaults(&f);
    f.config.sched.policy = VT_POLICY_PRIORITY;
    f.config.sched.limits.max_seqs = 1;
    fixture_open(&f);
    for (int i = 0; i < 4; i++) {
        count_up(prompt[i], 8, 30 * i);
        vt_request_params p = ask(prompt[i], 8, 4, &h[i]);
        p.priority = i == 2 ? 5 : 0;
        submit(&f, &p);
    }
    while (h[2].n_ends == 0)
        step(&f);
    assert_int_equal(h[0].n + h[1].n + h[3].n, 0);
    run_all(&f);
    fixture_close(&f);
}

/* The oldest matters least here, and is the one that gives up its pages. */
static void test_policy_priority_when_pages_run_out_then_the_lowest_is_retracted(void **state)
{
    (void)state;
    fixture f;
    static heard h[3];
    memset(h, 0, sizeof h);
    int32_t prompt[3][16], n_retracted = 0;
    fixture_defaults(&f);
    f.config.sched.policy = VT_POLICY_PRIORITY;
    f.config.sched.n_pages = 42; /* two of them need 38 */
    fixture_open(&f);
    for (int i = 0; i < 3; i++) {
        count_up(prompt[i], 16, 60 * i);
        vt_request_params p = ask(prompt[i], 16, 60, &h[i]);
        p.priority = i == 0 ? -1 : 1;
        submit(&f, &p);
    }
    const vt_sched *s = vt_engine_scheduler(f.engine);
    while (h[1].n_ends + h[2].n_ends == 0) {
        step(&f);
        for (int32_t i = 0; i < s->n_retracted; i++, n_retracted++)
            assert_int_equal(s->retracted[i]->req->p.priority, -1);
    }
    assert_true(n_retracted > 0);
    run_all(&f);
    for (int i = 0; i < 3; i++)
        assert_int_equal(h[i].n, 60);
    fixture_close(&f);
}

static void test_policy_lpm_when_a_prefix_is_cached_then_it_goes_first(void **state)
{
    (void)state;
    fixture f;
    static heard first, h[3];
    memset(&first, 0, sizeof first);
    memset(h, 0, sizeof h);
    int32_t shared[40], cold[40];
    fixture_defaults(&f);
    f.config.sched.policy = VT_POLICY_LPM;
    f.config.sched.limits.max_seqs = 1;
    fixture_open(&f);
    count_up(shared, 40, 0);
    count_up(cold, 40, 100);
    vt_request_params p = ask(shared, 40, 2, &first);
    submit(&f, &p);
    run_all(&f);
    p = ask(cold, 40, 4, &h[0]);
    submit(&f, &p);
    p = ask(shared, 40, 4, &h[1]);
    submit(&f, &p);
    while (h[1].n_ends == 0)
        step(&f);
    assert_int_equal(h[0].n, 0);
    run_all(&f);
    assert_int_equal(h[0].n, 4);
    fixture_close(&f);
}

static void test_lpm_when_hits_keep_coming_then_the_cold_one_is_not_starved(void **state)
{
    (void)state;
    fixture f;
    static heard cold_heard, h;
    memset(&cold_heard, 0, sizeof cold_heard);
    memset(&h, 0, sizeof h);
    int32_t shared[40], cold[40];
    fixture_defaults(&f);
    f.config.sched.policy = VT_POLICY_LPM;
    f.config.sched.limits.max_seqs = 1;
    f.config.sched.max_queued = 8;
    fixture_open(&f);
    count_up(shared, 40, 0);
    count_up(cold, 40, 100);
    vt_request_params hot = ask(shared, 40, 1, &h), one = ask(cold, 40, 1, &cold_heard);
    hot.callback = NULL;
    submit(&f, &hot);
    run_all(&f);
    submit(&f, &one);
    int32_t n_hot = 0;
    while (cold_heard.n_ends == 0) { /* the queue always has a hit beside it */
        vt_request_id id;
        if (vt_engine_submit(f.engine, &hot, &id, NULL) == VT_OK)
            n_hot++;
        step(&f);
        assert_true(n_hot < 2 * VT_LOOKAHEAD + 10);
    }
    fixture_close(&f);
}

/* The queue walks through its room several times over; sequences enter it at any place, and each
 * step checks their order. */
static void test_queue_when_many_pass_through_then_in_order(void **state)
{
    (void)state;
    fixture f;
    static heard h[2000];
    memset(h, 0, sizeof h);
    int32_t prompt[4], n = 0;
    fixture_defaults(&f);
    f.config.sched.policy = VT_POLICY_PRIORITY;
    f.config.sched.limits.max_seqs = 2;
    f.config.sched.n_pages = 12; /* of 3 sequences' some are retracted and wait again */
    fixture_open(&f);
    count_up(prompt, 4, 0);
    while (n < 2000) {
        vt_request_params p = ask(prompt, 4, 1 + n % 30, &h[n]);
        p.priority = n * 7 % 5;
        vt_request_id id;
        if (vt_engine_submit(f.engine, &p, &id, NULL) == VT_OK)
            n++;
        else
            step(&f);
    }
    run_all(&f);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(h[i].n, 1 + i % 30);
    fixture_close(&f);
}

static void test_timeout_when_it_passes_then_error_wherever_the_request_is(void **state)
{
    (void)state;
    fixture f;
    static heard h[2];
    memset(h, 0, sizeof h);
    int32_t prompt[8];
    fixture_defaults(&f);
    f.config.sched.limits.max_seqs = 1;
    fixture_open(&f);
    count_up(prompt, 8, 0);
    for (int i = 0; i < 2; i++) {
        vt_request_params p = ask(prompt, 8, 400, &h[i]);
        p.timeout_s = 0.005; /* a fake step takes about 0.1 ms */
        submit(&f, &p);
    }
    run_all(&f);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(h[i].finish, VT_FINISH_ERROR);
        assert_int_equal(h[i].end_reason, VT_END_TIMEOUT);
    }
    assert_true(h[0].n > 10 && h[0].n < 100);
    assert_int_equal(h[1].n, 0);
    fixture_close(&f);
}

static void test_timeout_when_the_clock_is_at_the_deadline_then_it_has_passed(void **state)
{
    (void)state;
    for (int64_t early_ns = 0; early_ns < 2; early_ns++) {
        fixture f;
        heard h = {0};
        int32_t prompt[8];
        fixture_defaults(&f);
        f.config.overlap = false;
        fixture_open(&f);
        count_up(prompt, 8, 0);
        vt_request_params p = ask(prompt, 8, 400, &h);
        p.timeout_s = 0.005;
        submit(&f, &p);
        f.clock.now_ns = 5000000 - early_ns;
        step(&f);
        assert_int_equal(h.n, early_ns);
        assert_int_equal(h.finish, early_ns ? VT_FINISH_NONE : VT_FINISH_ERROR);
        fixture_close(&f);
    }
}

static void test_scores_when_prompt_is_cached_then_every_position_is_computed(void **state)
{
    (void)state;
    fixture f;
    static heard warm, scored, again;
    memset(&warm, 0, sizeof warm);
    memset(&scored, 0, sizeof scored);
    memset(&again, 0, sizeof again);
    int32_t prompt[50], out[1];
    float logprob[1], score[50];
    uint64_t scratch[51];
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 50, 0);
    vt_request_params p = ask(prompt, 50, 1, &warm);
    submit(&f, &p);
    run_all(&f);
    p = ask(prompt, 50, 0, &scored);
    p.prompt_logprobs = true;
    submit(&f, &p);
    run_all(&f);
    vt_fake_reference(prompt, 50, &(vt_sample_row){0}, 256, 1, out, logprob, score, scratch, false);
    assert_int_equal(scored.cached, 0);
    assert_int_equal(scored.n_scores, 49);
    assert_memory_equal(scored.score, score + 1, 49 * sizeof(float));
    assert_int_equal(scored.finish, VT_FINISH_LENGTH);
    assert_int_equal(scored.n, 0);
    fixture_close(&f);
}

static void test_flush_when_idle_then_every_page_is_free(void **state)
{
    (void)state;
    fixture f;
    heard h = {0};
    int32_t prompt[50];
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 50, 0);
    vt_request_params p = ask(prompt, 50, 5, &h);
    submit(&f, &p);
    run_all(&f);
    assert_true(vt_engine_scheduler(f.engine)->radix.pool.n_cached > 0);
    vt_engine_flush_cache(f.engine);
    step(&f);
    assert_int_equal(vt_engine_scheduler(f.engine)->radix.pool.n_free, 256);
    assert_int_equal(running(&f), 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_plan_when_prefill_and_decode_then_decodes_come_first_under_the_budget),
        cmocka_unit_test(test_admit_when_no_room_for_the_first_then_no_other_overtakes_it),
        cmocka_unit_test(test_admit_when_a_prompt_would_take_the_last_pages_then_it_waits),
        cmocka_unit_test(test_admit_when_prompt_is_cached_then_only_the_rest_is_computed),
        cmocka_unit_test(test_admit_when_the_prefix_is_being_computed_then_rides_on_it),
        cmocka_unit_test(test_admit_when_prefixes_part_then_the_rider_takes_what_is_shared),
        cmocka_unit_test(test_admit_when_tenants_differ_then_neither_waits_for_the_other),
        cmocka_unit_test(test_admit_when_a_tenants_prefill_goes_on_then_another_tenant_starts),
        cmocka_unit_test(test_samples_when_n_is_4_then_the_prompt_is_computed_once),
        cmocka_unit_test(test_decode_when_pages_run_out_then_youngest_is_retracted_and_ends_right),
        cmocka_unit_test(test_policy_priority_when_slots_are_few_then_higher_first),
        cmocka_unit_test(test_policy_priority_when_pages_run_out_then_the_lowest_is_retracted),
        cmocka_unit_test(test_policy_lpm_when_a_prefix_is_cached_then_it_goes_first),
        cmocka_unit_test(test_lpm_when_hits_keep_coming_then_the_cold_one_is_not_starved),
        cmocka_unit_test(test_queue_when_many_pass_through_then_in_order),
        cmocka_unit_test(test_timeout_when_it_passes_then_error_wherever_the_request_is),
        cmocka_unit_test(test_timeout_when_the_clock_is_at_the_deadline_then_it_has_passed),
        cmocka_unit_test(test_scores_when_prompt_is_cached_then_every_position_is_computed),
        cmocka_unit_test(test_flush_when_idle_then_every_page_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
