/* Drafts (engine/draft.h) on the fake device: which guesses prompt lookup makes, how it paces them,
 * that a step takes in exactly the tokens that come without drafts, and what ends inside a step. */
#include "engine_fixture.h"

#include "text/tokenizer/tokenizer.h"

enum { ASCII = 120, MANY = 64, OUTPUT = 60 };

static vt_tokenizer *tokenizer;

/* ---- prompt lookup ---- */

static int32_t guess(const int32_t *token, int32_t n, int32_t n_pending, int32_t *out, int32_t max)
{
    vt_arena arena;
    vt_arena_init(&arena, 0);
    vt_seq q = {.n_tokens = n, .n_pending = n_pending, .token = (int32_t *)token};
    assert_true(vt_draft_lookup_init(&q.drafting, n, &arena));
    int32_t found = vt_draft_lookup.draft(NULL, &q, out, max);
    vt_arena_release(&arena);
    return found;
}

static void test_lookup_when_three_tokens_stood_before_then_what_followed(void **state)
{
    (void)state;
    const int32_t token[] = {1, 2, 3, 9, 8, 7, 6, 1, 2, 3};
    int32_t out[8];
    assert_int_equal(guess(token, 10, 0, out, 4), 4);
    assert_memory_equal(out, (token + 3), 4 * sizeof *out);
    assert_int_equal(guess(token, 10, 0, out, 8), 8); /* behind the last token it begins again */
    assert_int_equal(out[6], 3);
    assert_int_equal(out[7], 9);
    /* with a token pending, 9 is the guess of that one, and the drafts come after it */
    assert_int_equal(guess(token, 10, 1, out, 2), 2);
    assert_memory_equal(out, (token + 4), 2 * sizeof *out);
}

static void test_lookup_when_a_token_repeats_then_it_again(void **state)
{
    (void)state;
    const int32_t token[] = {1, 6, 6, 6, 6};
    const int32_t want[] = {6, 6, 6};
    int32_t out[3];
    for (int32_t n_pending = 0; n_pending < 2; n_pending++) {
        assert_int_equal(guess(token, 5, n_pending, out, 3), 3);
        assert_memory_equal(out, want, sizeof want);
    }
}

static void test_lookup_when_the_three_tokens_are_new_then_none(void **state)
{
    (void)state;
    const int32_t token[] = {1, 2, 3, 9, 8, 7, 6, 0, 2, 3};
    int32_t out[8];
    assert_int_equal(guess(token, 10, 0, out, 8), 0);
    for (int32_t i = 0; i < 50; i++) { /* some have the hash of others that stood before */
        int32_t distinct[10];
        for (int32_t k = 0; k < 10; k++)
            distinct[k] = 10 * i + k;
        assert_int_equal(guess(distinct, 10, 0, out, 8), 0);
    }
    assert_int_equal(guess(token, 3, 0, out, 8), 0);
    assert_int_equal(guess(token, 0, 0, out, 8), 0);
}

static void test_lookup_when_they_stood_twice_then_the_later_place(void **state)
{
    (void)state;
    const int32_t token[] = {1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3};
    int32_t out[8];
    assert_int_equal(guess(token, 11, 0, out, 1), 1);
    assert_int_equal(out[0], 5);
}

/* ---- the pace ---- */

static void test_pace_when_first_guesses_are_wrong_then_pauses_double(void **state)
{
    (void)state;
    vt_drafting d = {0};
    vt_draft_record all = {0};
    int32_t pause = 4;
    for (int32_t i = 0; i < 12; i++) {
        assert_true(vt_draft_due(&d));
        vt_draft_verified(&all, &d, vt_draft_length(&d), 0);
        for (int32_t k = 0; k < pause; k++)
            assert_false(vt_draft_due(&d));
        pause = pause < 256 ? 2 * pause : 256;
    }
    vt_draft_verified(&all, &d, 2, 1);
    assert_true(vt_draft_due(&d));
    assert_int_equal(d.misses, 0);
}

static void test_pace_when_all_guesses_hold_then_longer_up_to_the_most(void **state)
{
    (void)state;
    vt_drafting d = {0};
    vt_draft_record all = {0};
    int32_t first = vt_draft_length(&d);
    vt_draft_verified(&all, &d, first, first);
    assert_true(vt_draft_length(&d) > first);
    for (int32_t i = 0; i < 8; i++)
        vt_draft_verified(&all, &d, vt_draft_length(&d), vt_draft_length(&d));
    assert_int_equal(vt_draft_length(&d), VT_DRAFT_MOST);
    vt_draft_verified(&all, &d, VT_DRAFT_MOST, 2);
    assert_int_equal(vt_draft_length(&d), 3);
}

/* ---- in the engine ---- */

/* Guesses the fake model's tokens, of which every `wrong`-th is wrong; 0: none is. */
typedef struct oracle {
    int32_t expected[OUTPUT], wrong, n_asked;
} oracle;

static int32_t know(void *user, vt_seq *q, int32_t *out, int32_t max)
{
    oracle *o = user;
    int32_t at = q->n_tokens + q->n_pending - q->n_prompt, n = 0;
    o->n_asked++;
    for (; n < max && at + n < OUTPUT; n++)
        out[n] = o->wrong > 0 && (at + n) % o->wrong == 0 ? 0 : o->expected[at + n];
    return n;
}

static const int32_t prompt[7] = {1, 2, 3, 4, 5, 6, 7};

/* With `states` of a fake model with sequence state: so many slots hold states behind guesses. */
static void open_stateful(fixture *f, oracle *o, bool overlap, const vt_sample_row *row,
                          int32_t states)
{
    float logprob[OUTPUT], score[8];
    uint64_t scratch[OUTPUT + 8];
    fixture_defaults(f);
    f->config.overlap = overlap;
    f->config.sched.n_guess_states = states;
    f->config.sched.n_states = f->device.n_states = states > 0 ? states + 12 : 0;
    f->config.request.vocab = ASCII;
    f->config.request.tokenizer = tokenizer;
    f->config.sched.drafter = (vt_drafter){.user = o, .draft = know};
    vt_fake_reference(prompt, 7, row, ASCII, OUTPUT, o->expected, logprob, score, scratch,
                      states > 0);
    fixture_open(f);
}

static void open_with_oracle(fixture *f, oracle *o, bool overlap, const vt_sample_row *row)
{
    open_stateful(f, o, overlap, row, 0);
}

static void test_steps_when_guesses_hold_then_fewer_and_the_same_tokens(void **state)
{
    (void)state;
    for (int32_t overlap = 0; overlap < 2; overlap++)
        for (int32_t wrong = 0; wrong < 6; wrong++) {
            fixture f;
            static heard h;
            oracle o = {.wrong = wrong};
            memset(&h, 0, sizeof h);
            open_with_oracle(&f, &o, overlap, &(vt_sample_row){0});
            vt_request_params p = ask(prompt, 7, OUTPUT, &h);
            submit(&f, &p);
            run_all(&f);
            assert_int_equal(h.n, OUTPUT);
            assert_memory_equal(h.token, o.expected, sizeof o.expected);
            vt_stats st;
            assert_int_equal(vt_engine_get_stats(f.engine, &st, NULL), VT_OK);
            assert_true(st.draft_tokens > 0 && st.draft_accepted <= st.draft_tokens);
            if (wrong == 0) { /* about eight tokens a step, and with overlap every second one */
                assert_int_equal(st.draft_accepted, st.draft_tokens);
                assert_true(st.steps < OUTPUT / 4);
            }
            if (wrong != 1) /* else every guess is wrong */
                assert_true(st.draft_accepted > 0);
            assert_int_equal(h.n_events, st.steps); /* an event has all tokens of its step */
            fixture_close(&f);
        }
}

/* Times of a step on a device where rows of guesses cost more than they give, and where little. */
static int64_t dear(void *user, const vt_step *step)
{
    (void)user;
    return step->batch.n_drafted > 0 ? 10000000 : 100000;
}

static int64_t cheap(void *user, const vt_step *step)
{
    (void)user;
    return step->batch.n_drafted > 0 ? 110000 : 100000;
}

/* Returns the guesses of as many sequences, of which every `wrong`-th is wrong; 0: all hold. */
static uint64_t guesses_of(int32_t n, int64_t (*cost)(void *, const vt_step *), int32_t wrong)
{
    fixture f;
    static heard h[MANY];
    oracle o = {.wrong = wrong};
    memset(h, 0, sizeof h);
    fixture_defaults(&f);
    f.config.sched.limits.max_seqs = n;
    f.config.sched.limits.max_tokens = f.config.sched.limits.max_rows = 8 * n;
    f.config.sched.n_pages = 64 * n;
    f.config.sched.max_queued = n;
    f.config.request.vocab = ASCII;
    f.config.request.tokenizer = tokenizer;
    f.config.sched.drafter = (vt_drafter){.user = &o, .draft = know};
    f.device.cost_ns = cost;
    float logprob[OUTPUT], score[8];
    uint64_t scratch[OUTPUT + 8];
    vt_fake_reference(prompt, 7, &(vt_sample_row){0}, ASCII, OUTPUT, o.expected, logprob, score,
                      scratch, false);
    fixture_open(&f);
    for (int32_t i = 0; i < n; i++) {
        vt_request_params p = ask(prompt, 7, OUTPUT, &h[i]);
        submit(&f, &p);
    }
    run_all(&f);
    vt_stats st;
    assert_int_equal(vt_engine_get_stats(f.engine, &st, NULL), VT_OK);
    for (int32_t i = 0; i < n; i++)
        assert_memory_equal(h[i].token, o.expected, sizeof o.expected);
    fixture_close(&f);
    return st.draft_tokens;
}

static void test_guesses_beside_many_when_steps_with_them_cost_more_then_few(void **state)
{
    (void)state;
    uint64_t all = (uint64_t)VT_DRAFT_CROWD * OUTPUT;
    assert_true(guesses_of(VT_DRAFT_CROWD, cheap, 0) > all / 2);
    assert_true(guesses_of(VT_DRAFT_CROWD, dear, 0) < all / 4);
    assert_true(guesses_of(VT_DRAFT_CROWD - 1, dear, 0) > (all - OUTPUT) / 2);
}

/* A few sequences learn that guesses are wrong, not all at once, whatever the steps take. */
static void test_guesses_beside_many_when_none_holds_then_those_of_a_few(void **state)
{
    (void)state;
    assert_in_range(guesses_of(MANY, cheap, 1), 1, MANY / 8 * 4 * (OUTPUT / 64 + 2));
    assert_true(guesses_of(MANY, cheap, 0) > (uint64_t)MANY * OUTPUT / 2);
}

/* A wrong guess leaves no trace in the state, and the state behind a page that ends among guesses
 * which held is kept for the next turn, as it is without drafts. */
static void test_tokens_when_the_model_has_state_then_the_same_and_snapshots_stay(void **state)
{
    (void)state;
    for (int32_t states = 1; states <= VT_DRAFT_MOST; states += 2)
        for (int32_t wrong = 0; wrong < 6; wrong++) {
            fixture f;
            static heard h[2];
            oracle o = {.wrong = wrong};
            int32_t next[7 + OUTPUT];
            memset(h, 0, sizeof h);
            open_stateful(&f, &o, wrong % 2, &(vt_sample_row){0}, states);
            vt_request_params p = ask(prompt, 7, OUTPUT - 10, &h[0]);
            submit(&f, &p);
            run_all(&f);
            assert_int_equal(h[0].n, OUTPUT - 10);
            assert_memory_equal(h[0].token, o.expected, (OUTPUT - 10) * sizeof *h[0].token);
            vt_engine_stats st;
            vt_engine_copy_stats(f.engine, &st);
            assert_true(st.sched.draft_tokens > 0);
            if (wrong != 1)
                assert_true(st.sched.draft_accepted > 0);
            memcpy(next, prompt, sizeof prompt);
            memcpy(next + 7, h[0].token, (OUTPUT - 10) * sizeof *next);
            p = ask(next, 7 + OUTPUT - 10, 10, &h[1]); /* o's guesses are others there */
            submit(&f, &p);
            run_all(&f);
            assert_memory_equal(h[1].token, o.expected + OUTPUT - 10, 10 * sizeof *h[1].token);
            assert_int_equal(h[1].cached, (7 + OUTPUT - 10 - 1) / 4 * 4);
            fixture_close(&f);
        }
}

/* Property: with any piece of the text as a stop string, text and tokens end where they end without
 * drafts, also if the step chose tokens behind it. */
static void test_stop_string_when_it_ends_inside_a_step_then_the_rest_is_dropped(void **state)
{
    (void)state;
    for (int32_t at = 0; at < 50; at++) {
        fixture f;
        static heard h;
        oracle o = {0};
        memset(&h, 0, sizeof h);
        open_with_oracle(&f, &o, at % 2, &(vt_sample_row){0});
        char stop[3] = {(char)o.expected[at], (char)o.expected[at + 1], 0};
        const char *stops[] = {stop};
        vt_request_params p = ask(prompt, 7, OUTPUT, &h);
        p.stop = stops;
        p.n_stop = 1;
        int32_t first = 0;
        while (o.expected[first] != o.expected[at] || o.expected[first + 1] != o.expected[at + 1])
            first++;
        if (strlen(stop) == 2) {
            submit(&f, &p);
            run_all(&f);
            assert_int_equal(h.n, first + 2);
            assert_memory_equal(h.token, o.expected, (size_t)h.n * sizeof *h.token);
            assert_int_equal(h.text_len, first);
            assert_int_equal(h.finish, VT_FINISH_STOP);
        }
        fixture_close(&f);
    }
}

static void test_end_token_when_it_is_inside_a_step_then_nothing_after_it(void **state)
{
    (void)state;
    for (int32_t at = 0; at < 50; at++) {
        fixture f;
        static heard h;
        oracle o = {0};
        memset(&h, 0, sizeof h);
        open_with_oracle(&f, &o, at % 2, &(vt_sample_row){0});
        vt_request_params p = ask(prompt, 7, OUTPUT, &h);
        p.stop_ids = &o.expected[at];
        p.n_stop_ids = 1;
        submit(&f, &p);
        run_all(&f);
        int32_t n = 0;
        while (o.expected[n++] != o.expected[at])
            ;
        assert_int_equal(h.n, n);
        assert_int_equal(h.finish, VT_FINISH_STOP);
        fixture_close(&f);
    }
}

/* The rows behind a guess count it, and the pending token before it, in their penalties: the fake
 * device's token depends on the last token of a row's context. */
static void test_penalties_when_drafted_then_rows_see_the_guesses(void **state)
{
    (void)state;
    for (int32_t overlap = 0; overlap < 2; overlap++) {
        fixture f;
        static heard h;
        oracle o = {.wrong = 7};
        memset(&h, 0, sizeof h);
        open_with_oracle(&f, &o, overlap, &(vt_sample_row){.context = prompt});
        vt_request_params p = ask(prompt, 7, OUTPUT, &h);
        p.presence_penalty = 0.5f;
        submit(&f, &p);
        run_all(&f);
        assert_memory_equal(h.token, o.expected, sizeof o.expected);
        vt_stats st;
        assert_int_equal(vt_engine_get_stats(f.engine, &st, NULL), VT_OK);
        assert_true(st.draft_accepted > 0);
        fixture_close(&f);
    }
}

/* Drafts take only what the decodes leave: with rows and tokens for the decodes alone there are
 * none, and every sequence decodes in every step. */
static void test_drafts_when_decodes_need_all_tokens_then_none(void **state)
{
    (void)state;
    fixture f;
    static heard h[4];
    oracle o = {0};
    memset(h, 0, sizeof h);
    fixture_defaults(&f);
    f.config.overlap = false;
    f.config.sched.limits.max_tokens = f.device.limits.max_tokens = 4;
    f.config.sched.limits.max_rows = f.device.limits.max_rows = 4;
    f.config.sched.drafter = (vt_drafter){.user = &o, .draft = know};
    fixture_open(&f);
    for (int32_t i = 0; i < 4; i++) {
        int32_t one[1] = {i};
        vt_request_params p = ask(one, 1, 20, &h[i]);
        submit(&f, &p);
    }
    run_all(&f);
    vt_stats st;
    assert_int_equal(vt_engine_get_stats(f.engine, &st, NULL), VT_OK);
    assert_int_equal(st.draft_tokens, 0);
    assert_int_equal(st.steps, 20);
    fixture_close(&f);
}

static int open_tokenizer(void **state)
{
    (void)state;
    return vt_tokenizer_synthetic(512, &tokenizer, NULL) == VT_OK ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    vt_tokenizer_free(tokenizer);
    return 0;
}

/* Beside few sequences all guess; beside many those whose guesses mostly hold, and now and then an
 * eighth of them tries again. */
static void test_pace_when_many_run_then_guesses_must_hold(void **state)
{
    (void)state;
    vt_drafting fresh = {0}, good = {.tokens = 20, .accepted = 18},
                bad = {.tokens = 20, .accepted = 10};
    vt_draft_record all = {0};
    assert_false(vt_draft_pays(&all, &fresh, 64)); /* nothing is known yet */
    assert_true(vt_draft_pays(&all, &fresh, 4));
    assert_int_equal(vt_draft_trials(&all, 64), 8);
    assert_int_equal(vt_draft_trials(&all, 15), 1);
    assert_true(vt_draft_pays(&all, &bad, 32));
    assert_false(vt_draft_pays(&all, &bad, 64));
    for (int32_t i = 0; i < 20; i++) {
        vt_drafting d = {0};
        vt_draft_verified(&all, &d, 4, 0);
    }
    assert_false(vt_draft_pays(&all, &fresh, 64));
    assert_false(vt_draft_pays(&all, &fresh, 16));
    assert_true(vt_draft_pays(&all, &fresh, 4));
    assert_true(vt_draft_pays(&all, &good, 64));
    assert_int_equal(vt_draft_trials(&all, 64), 0);
    all.waited = 64;
    assert_int_equal(vt_draft_trials(&all, 64), 8);
}

/* Beside 64 sequences a head that never guesses right costs less and less: a trial takes time that
 * all of them wait for. */
static void test_trials_when_none_holds_then_they_become_rare_until_one_does(void **state)
{
    (void)state;
    static const int32_t wait[] = {64, 128, 256, 512, 1024, 1024};
    vt_draft_record all = {0};
    vt_drafting d = {0};
    vt_draft_guessed(&all); /* the first, which waited for nothing */
    vt_draft_verified(&all, &d, 8, 0);
    for (size_t i = 0; i < sizeof wait / sizeof *wait; i++) {
        all.waited = wait[i] - 1;
        assert_int_equal(vt_draft_trials(&all, 64), 0);
        all.waited = wait[i];
        assert_int_equal(vt_draft_trials(&all, 64), 8);
        for (int32_t k = 0; k < 8; k++) {
            vt_draft_guessed(&all);
            vt_draft_verified(&all, &d, 4, 0);
        }
    }
    vt_draft_verified(&all, &d, 4, 1);
    all.waited = 64;
    assert_int_equal(vt_draft_trials(&all, 64), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup_when_three_tokens_stood_before_then_what_followed),
        cmocka_unit_test(test_lookup_when_a_token_repeats_then_it_again),
        cmocka_unit_test(test_lookup_when_the_three_tokens_are_new_then_none),
        cmocka_unit_test(test_lookup_when_they_stood_twice_then_the_later_place),
        cmocka_unit_test(test_pace_when_first_guesses_are_wrong_then_pauses_double),
        cmocka_unit_test(test_pace_when_many_run_then_guesses_must_hold),
        cmocka_unit_test(test_trials_when_none_holds_then_they_become_rare_until_one_does),
        cmocka_unit_test(test_pace_when_all_guesses_hold_then_longer_up_to_the_most),
        cmocka_unit_test(test_guesses_beside_many_when_steps_with_them_cost_more_then_few),
        cmocka_unit_test(test_guesses_beside_many_when_none_holds_then_those_of_a_few),
        cmocka_unit_test(test_steps_when_guesses_hold_then_fewer_and_the_same_tokens),
        cmocka_unit_test(test_tokens_when_the_model_has_state_then_the_same_and_snapshots_stay),
        cmocka_unit_test(test_stop_string_when_it_ends_inside_a_step_then_the_rest_is_dropped),
        cmocka_unit_test(test_end_token_when_it_is_inside_a_step_then_nothing_after_it),
        cmocka_unit_test(test_penalties_when_drafted_then_rows_see_the_guesses),
        cmocka_unit_test(test_drafts_when_decodes_need_all_tokens_then_none)};
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
