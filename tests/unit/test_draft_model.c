/* Drafts by a model of their own (engine/draft_model.h), on two fake devices: the draft model's
 * batches keep the contract, its guesses hold when it agrees, tokens are the same when it does not,
 * when it has too few pages and when it fails; the next turn of a chat computes little. */
#include "engine_fixture.h"

#include "engine/draft_model.h"

enum { OUTPUT = 60, VOCAB = 120 };

/* The fake draft device, watched: how many tokens and steps it was given. */
typedef struct watched {
    vt_executor base;
    vt_executor *inner;
    int32_t n_tokens, n_steps, n_rows, most_seqs, most_token, fail_at, wrong;
    char broken[256];
    int32_t token[64];
} watched;

static vt_status watch_launch(vt_executor *x, const vt_step *step, vt_err *err)
{
    watched *w = (watched *)x;
    w->n_tokens += step->batch.n_tokens;
    w->n_steps++;
    w->n_rows = step->batch.n_rows;
    if (step->batch.n_seqs > w->most_seqs)
        w->most_seqs = step->batch.n_seqs;
    for (int32_t i = 0; i < step->batch.n_tokens; i++)
        if (step->batch.token[i] > w->most_token)
            w->most_token = step->batch.token[i];
    if (w->n_steps == w->fail_at)
        return vt_fail(err, VT_ERR_DEVICE, "it was unplugged");
    return w->inner->launch(w->inner, step, err);
}

/* Every `wrong`-th token comes out wrong. */
static vt_status watch_wait(vt_executor *x, vt_step_result *out, vt_err *err)
{
    watched *w = (watched *)x;
    vt_status status = w->inner->wait(w->inner, out, err);
    for (int32_t i = 0; i < w->n_rows && status == VT_OK; i++) {
        w->token[i] = out->token[i];
        if (w->wrong > 0 && w->n_steps % w->wrong == 0)
            w->token[i] = (w->token[i] + 1) % VOCAB;
    }
    out->token = w->token;
    return status;
}

static void watch_free(vt_executor *x)
{
    watched *w = (watched *)x;
    w->inner->free(w->inner);
}

typedef struct pair {
    fixture f;
    watched w;
    char told[256];
    int32_t from;   /* the first prompt begins with this token */
    int32_t vocab;  /* the draft model's; 0: VOCAB, the target's */
    int32_t states; /* slots of the engine that have the draft model's states; 0: it has none */
} pair;

static void hear_notice(void *user, const char *text)
{
    snprintf(((pair *)user)->told, 256, "%s", text);
}

static int64_t cheap(void *user, const vt_step *step)
{
    (void)user, (void)step;
    return 1000; /* a step of the fake target takes 100 times as long */
}

static void open_pair(pair *p, int32_t n_pages, int32_t budget, bool overlap)
{
    fixture_defaults(&p->f);
    p->f.config.overlap = overlap;
    p->f.config.request.vocab = VOCAB;
    p->f.config.sched.limits.max_rows = 64;
    if (p->states > 0) { /* the target, too, has sequence state: else they would not agree */
        p->f.config.sched.n_guess_states = 4 * VT_DRAFT_MOST;
        p->f.config.sched.n_states = p->f.device.n_states = 12 + 4 * VT_DRAFT_MOST;
    }
    vt_limits lim = p->f.config.sched.limits;
    lim.max_tokens = budget;
    lim.max_rows = lim.max_seqs;
    int32_t vocab = p->vocab > 0 ? p->vocab : VOCAB;
    vt_fake_config device = {.limits = lim,
                             .n_pages = n_pages,
                             .n_states = VT_DRAFT_MOST * p->states,
                             .n_pool_slots = lim.max_seqs,
                             .vocab = vocab,
                             .seed = 7,
                             .cost_ns = cheap};
    assert_int_equal(vt_fake_device_new(&device, &p->w.inner, NULL), VT_OK);
    p->w.base = (vt_executor){
        .name = "watched", .launch = watch_launch, .wait = watch_wait, .free = watch_free};
    vt_draft_model_config c = {.limits = lim,
                               .n_pages = n_pages,
                               .n_states = VT_DRAFT_MOST * p->states,
                               .vocab = vocab,
                               .target_vocab = VOCAB,
                               .notice = {.call = hear_notice, .user = p}};
    assert_int_equal(vt_draft_model_new(&c, NULL, &p->w.base, &p->f.config.sched.drafter, NULL),
                     VT_OK);
    fixture_open(&p->f);
}

static void close_pair(pair *p)
{
    assert_string_equal(vt_fake_violation(p->w.inner), "");
    fixture_close(&p->f);
}

/* Runs n requests at once, each with a prompt of its own, and checks the tokens of all. */
static void run_and_check(pair *p, int32_t n, int32_t n_prompt, float temperature)
{
    static heard h[4];
    int32_t prompt[4][200];
    memset(h, 0, sizeof h);
    for (int32_t i = 0; i < n; i++) {
        count_up(prompt[i], n_prompt, p->from + 17 * i);
        for (int32_t k = 0; k < n_prompt; k++)
            prompt[i][k] %= VOCAB;
        vt_request_params r = ask(prompt[i], n_prompt, OUTPUT, &h[i]);
        r.temperature = temperature;
        r.has_seed = true;
        r.seed = 11;
        submit(&p->f, &r);
    }
    run_all(&p->f);
    for (int32_t i = 0; i < n; i++) {
        static int32_t want[OUTPUT];
        static float logprob[OUTPUT], score[200];
        static uint64_t scratch[OUTPUT + 200];
        vt_sample_row row = {.temperature = temperature, .seed = 11};
        vt_fake_reference(prompt[i], n_prompt, &row, VOCAB, OUTPUT, want, logprob, score, scratch,
                          p->states > 0);
        assert_int_equal(h[i].n, OUTPUT);
        assert_memory_equal(h[i].token, want, sizeof want);
    }
}

static vt_stats stats_of(pair *p)
{
    vt_stats st;
    assert_int_equal(vt_engine_get_stats(p->f.engine, &st, NULL), VT_OK);
    return st;
}

static void test_guesses_when_both_agree_then_all_hold_also_when_sampled(void **state)
{
    (void)state;
    for (int32_t overlap = 0; overlap < 2; overlap++)
        for (int32_t n = 1; n <= 4; n += 3)
            for (int32_t t = 0; t < 2; t++) {
                static pair p;
                memset(&p, 0, sizeof p);
                open_pair(&p, 256, 64, overlap);
                run_and_check(&p, n, 9, t == 0 ? 0 : 0.9f);
                vt_stats st = stats_of(&p);
                assert_true(st.draft_tokens > 0);
                assert_int_equal(st.draft_accepted, st.draft_tokens);
                assert_true(st.steps < (uint64_t)(overlap ? 40 : 20));
                assert_int_equal(p.w.most_seqs, n); /* all in one batch */
                close_pair(&p);
            }
}

static void test_guesses_when_some_are_wrong_then_the_same_tokens(void **state)
{
    (void)state;
    for (int32_t wrong = 1; wrong < 6; wrong++) {
        static pair p;
        memset(&p, 0, sizeof p);
        open_pair(&p, 256, 64, wrong % 2);
        p.w.wrong = wrong;
        run_and_check(&p, 3, 9, 0);
        vt_stats st = stats_of(&p);
        assert_true(st.draft_accepted < st.draft_tokens);
        close_pair(&p);
    }
}

/* The draft model goes on from the state behind the last token that held, so its guesses are those
 * of a model that has read the text alone. */
static void test_guesses_when_it_has_state_then_they_hold_also_behind_wrong_ones(void **state)
{
    (void)state;
    for (int32_t wrong = 0; wrong < 6; wrong++)
        for (int32_t states = 1; states <= 4; states += 3) {
            static pair p;
            memset(&p, 0, sizeof p);
            p.states = states;
            open_pair(&p, 256, 16, wrong % 2);
            p.w.wrong = wrong;
            run_and_check(&p, 4, 40, 0); /* prompts in chunks */
            vt_stats st = stats_of(&p);
            assert_true(st.draft_tokens > 0);
            if (wrong == 0)
                assert_int_equal(st.draft_accepted, st.draft_tokens);
            if (wrong > 1) /* of every second step or fewer */
                assert_true(st.draft_accepted > st.draft_tokens / 4);
            close_pair(&p);
        }
}

static void test_pages_when_too_few_for_all_then_the_same_tokens(void **state)
{
    (void)state;
    for (int32_t n_pages = 1; n_pages < 80; n_pages += 13) {
        static pair p;
        memset(&p, 0, sizeof p);
        open_pair(&p, n_pages, 64, true);
        run_and_check(&p, 4, 9, 0);
        if (n_pages < 4)
            assert_int_equal(p.w.n_steps, 0);
        close_pair(&p);
    }
}

static void test_prompt_when_longer_than_the_budget_then_in_chunks_and_guesses_after(void **state)
{
    (void)state;
    static pair p;
    memset(&p, 0, sizeof p);
    open_pair(&p, 256, 16, true);
    run_and_check(&p, 2, 150, 0);
    assert_true(stats_of(&p).draft_accepted > 0);
    close_pair(&p);
}

static void test_next_turn_when_it_begins_alike_then_only_the_rest_is_computed(void **state)
{
    (void)state;
    static pair p;
    memset(&p, 0, sizeof p);
    open_pair(&p, 256, 64, true);
    run_and_check(&p, 1, 100, 0);
    int32_t first = p.w.n_tokens;
    run_and_check(&p, 1, 100, 0);
    assert_true(first >= 100 + OUTPUT / 2);
    assert_true(p.w.n_tokens - first < 100); /* the prompt is there already */
    close_pair(&p);
}

/* Without a prefix cache no request has a tenant: what one made the draft model compute is not used
 * for another. */
static void test_next_request_when_nothing_is_shared_then_all_is_computed(void **state)
{
    (void)state;
    static pair p;
    memset(&p, 0, sizeof p);
    open_pair(&p, 256, 64, true);
    vt_sched *s = (vt_sched *)(uintptr_t)vt_engine_scheduler(p.f.engine);
    s->config.prefix_cache = false;
    run_and_check(&p, 1, 100, 0);
    int32_t first = p.w.n_tokens;
    run_and_check(&p, 1, 100, 0);
    assert_int_equal(p.w.n_tokens, 2 * first);
    close_pair(&p);
}

/* A draft model with fewer tokens than its target is never given one that it does not have, also
 * where its slot holds as many tokens of another sequence. */
static void test_tokens_when_the_draft_model_lacks_them_then_no_guesses(void **state)
{
    (void)state;
    static pair p;
    memset(&p, 0, sizeof p);
    p.vocab = 100;
    open_pair(&p, 256, 64, false);
    for (; p.w.n_tokens == 0 && p.from < 10; p.from++) /* an answer that begins below 100 */
        run_and_check(&p, 1, 90, 0);
    assert_true(p.w.n_tokens >= 90);
    p.from = 95;
    run_and_check(&p, 1, 60, 0);
    assert_in_range(p.w.most_token, 0, 99);
    close_pair(&p);
}

static void test_device_when_it_fails_then_told_once_and_text_goes_on(void **state)
{
    (void)state;
    static pair p;
    memset(&p, 0, sizeof p);
    open_pair(&p, 256, 64, true);
    p.w.fail_at = 3;
    run_and_check(&p, 2, 9, 0);
    assert_string_equal(p.told, "the draft model failed, and drafts end: it was unplugged");
    assert_int_equal(p.w.n_steps, 3);
    close_pair(&p);
}

/* Fake times: a step takes `step_ns`, its guesses `draft_ns`, of which all hold. */
static int32_t drafted_of(int64_t step_ns, int64_t draft_ns, int32_t n, int32_t n_plans)
{
    vt_draft_record all = {0};
    int32_t drafted = 0;
    for (int32_t i = 0; i < n_plans; i++) {
        bool worth = vt_draft_worth(&all, n);
        drafted += worth;
        vt_draft_took(&all, n, worth, worth ? step_ns + draft_ns : step_ns, worth ? 5 * n : n);
    }
    return drafted;
}

static void test_worth_when_guesses_cost_more_than_they_give_then_rarely(void **state)
{
    (void)state;
    for (int32_t n = 1; n < 3000; n *= 3) {
        int32_t cheap = drafted_of(1000, 3900, n, 640), dear = drafted_of(1000, 4100, n, 640);
        assert_in_range(cheap, 590, 639); /* all but the first plan, and four in 64 that look */
        assert_in_range(dear, 1, 50);
    }
    vt_draft_record all = {0}; /* each size of a batch is judged by itself */
    vt_draft_took(&all, 1, false, 1000, 1);
    vt_draft_took(&all, 64, false, 1000, 64);
    vt_draft_took(&all, 1, true, 2000, 4);
    vt_draft_took(&all, 64, true, 9000, 256);
    assert_true(vt_draft_worth(&all, 1) && !vt_draft_worth(&all, 64) && !vt_draft_worth(&all, 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guesses_when_both_agree_then_all_hold_also_when_sampled),
        cmocka_unit_test(test_guesses_when_some_are_wrong_then_the_same_tokens),
        cmocka_unit_test(test_guesses_when_it_has_state_then_they_hold_also_behind_wrong_ones),
        cmocka_unit_test(test_pages_when_too_few_for_all_then_the_same_tokens),
        cmocka_unit_test(test_prompt_when_longer_than_the_budget_then_in_chunks_and_guesses_after),
        cmocka_unit_test(test_next_turn_when_it_begins_alike_then_only_the_rest_is_computed),
        cmocka_unit_test(test_worth_when_guesses_cost_more_than_they_give_then_rarely),
        cmocka_unit_test(test_next_request_when_nothing_is_shared_then_all_is_computed),
        cmocka_unit_test(test_tokens_when_the_draft_model_lacks_them_then_no_guesses),
        cmocka_unit_test(test_device_when_it_fails_then_told_once_and_text_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
