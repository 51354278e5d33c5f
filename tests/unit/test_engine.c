/* The engine loop on the fake device: exact ends, stop strings, min_tokens, aborts, threads. */
#include "engine_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "text/tokenizer/tokenizer.h"

enum { ASCII = 120 }; /* ids below this are single bytes of text: the fake device chooses these */

static vt_tokenizer *tokenizer;

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

static void open_with_text(fixture *f, bool overlap)
{
    fixture_defaults(f);
    f->config.overlap = overlap;
    f->config.request.vocab = ASCII;
    f->config.request.tokenizer = tokenizer;
    f->eos[0] = 3;
    fixture_open(f);
}

/* The completion of a prompt that runs alone, and its text. */
static void reference(const int32_t *prompt, int32_t n_prompt, int32_t n, int32_t *out,
                      vt_buf *text)
{
    float logprob[200], score[200];
    uint64_t scratch[400];
    vt_fake_reference(prompt, n_prompt, &(vt_sample_row){0}, ASCII, n, out, logprob, score, scratch,
                      false);
    vt_buf_clear(text);
    assert_int_equal(vt_tokenizer_decode(tokenizer, out, (size_t)n, true, text, NULL), VT_OK);
}

static void test_max_tokens_when_overlapped_then_exactly_that_many(void **state)
{
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++)
        for (int32_t n = 1; n < 12; n++) {
            fixture f;
            heard h = {0};
            int32_t prompt[9];
            fixture_defaults(&f);
            f.config.overlap = overlap;
            fixture_open(&f);
            count_up(prompt, 9, n);
            vt_request_params p = ask(prompt, 9, n, &h);
            submit(&f, &p);
            run_all(&f);
            assert_int_equal(h.n, n);
            assert_int_equal(h.finish, VT_FINISH_LENGTH);
            assert_int_equal(h.n_events, n); /* the event of the last token says that it is */
            fixture_close(&f);
        }
}

/* Completions of one prompt run together from the step behind the prompt's on. */
static void test_completions_when_several_then_they_run_side_by_side(void **state)
{
    (void)state;
    fixture f;
    static heard h[4];
    int32_t prompt[9];
    vt_stats st;
    memset(h, 0, sizeof h);
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 9, 1);
    vt_request_params p = ask(prompt, 9, 10, h);
    p.n = 4;
    submit(&f, &p);
    run_all(&f);
    for (int32_t i = 0; i < 4; i++)
        assert_int_equal(h[i].n, 10);
    assert_int_equal(vt_engine_get_stats(f.engine, &st, NULL), VT_OK);
    assert_in_range(st.steps, 10, 14);
    fixture_close(&f);
}

static void test_context_when_full_then_length(void **state)
{
    (void)state;
    fixture f;
    heard h = {0};
    int32_t prompt[500];
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 500, 0);
    vt_request_params p = ask(prompt, 500, 1000, &h);
    submit(&f, &p);
    run_all(&f);
    assert_int_equal(h.n, 12);
    assert_int_equal(h.finish, VT_FINISH_LENGTH);
    fixture_close(&f);
}

static void test_eos_when_sampled_then_nothing_after_it(void **state)
{
    (void)state;
    int n_stopped = 0;
    for (int32_t seed = 0; seed < 40; seed++) {
        fixture f;
        static heard h;
        memset(&h, 0, sizeof h);
        int32_t prompt[7], want[100];
        vt_buf text;
        vt_buf_init(&text, 0);
        open_with_text(&f, seed % 2);
        count_up(prompt, 7, seed);
        for (int i = 0; i < 7; i++)
            prompt[i] %= ASCII;
        vt_request_params p = ask(prompt, 7, 100, &h);
        p.ignore_eos = false;
        submit(&f, &p);
        run_all(&f);
        reference(prompt, 7, 100, want, &text);
        int32_t n = 0;
        while (n < 100 && want[n++] != f.eos[0])
            ;
        bool stops = want[n - 1] == f.eos[0];
        assert_int_equal(h.n, n);
        assert_memory_equal(h.token, want, (size_t)n * sizeof *want);
        assert_int_equal(h.finish, stops ? VT_FINISH_STOP : VT_FINISH_LENGTH);
        assert_int_equal(h.text_len, n - stops); /* a byte a token, and none for the end */
        n_stopped += stops;
        vt_buf_release(&text);
        fixture_close(&f);
    }
    assert_true(n_stopped > 5);
}

/* Property: with any piece of that text as a stop string, the new text ends before the first
 * occurrence of the piece, and the last token is the one that completes it. */
static void test_stop_string_when_it_spans_tokens_then_text_ends_before_it(void **state)
{
    (void)state;
    int32_t prompt[7] = {1, 2, 3, 4, 5, 6, 7}, want[60];
    vt_buf text;
    vt_buf_init(&text, 0);
    reference(prompt, 7, 60, want, &text);
    assert_int_equal(text.len, 60);
    for (int32_t at = 0; at < 58; at += 3)
        for (int32_t len = 1; len <= 6 && at + len <= 60; len++) {
            fixture f;
            static heard h;
            memset(&h, 0, sizeof h);
            char stop[8] = {0};
            memcpy(stop, text.data + at, (size_t)len);
            if (strlen(stop) != (size_t)len)
                continue; /* a C string cannot contain NUL */
            const char *stops[] = {"never found", stop};
            open_with_text(&f, (at + len) % 2);
            vt_request_params p = ask(prompt, 7, 60, &h);
            p.stop = stops;
            p.n_stop = 2;
            submit(&f, &p);
            run_all(&f);
            const char *first = memmem(text.data, text.len, stop, (size_t)len);
            assert_int_equal(h.finish, VT_FINISH_STOP);
            assert_int_equal(h.text_len, first - text.data);
            assert_memory_equal(h.text, text.data, h.text_len);
            assert_int_equal(h.n, (first - text.data) + len);
            fixture_close(&f);
        }
    vt_buf_release(&text);
}

static void test_stop_string_when_only_begun_then_held_text_comes_at_the_end(void **state)
{
    (void)state;
    fixture f;
    static heard h;
    memset(&h, 0, sizeof h);
    int32_t prompt[3] = {9, 8, 7}, want[20];
    vt_buf text;
    vt_buf_init(&text, 0);
    reference(prompt, 3, 20, want, &text);
    char stop[8] = {0};
    memcpy(stop, text.data + 17, 3); /* the last three characters and one more */
    stop[3] = '~';
    const char *stops[] = {stop};
    open_with_text(&f, true);
    vt_request_params p = ask(prompt, 3, 20, &h);
    p.stop = stops;
    p.n_stop = 1;
    submit(&f, &p);
    run_all(&f);
    assert_int_equal(h.finish, VT_FINISH_LENGTH);
    assert_int_equal(h.text_len, text.len);
    assert_memory_equal(h.text, text.data, text.len);
    vt_buf_release(&text);
    fixture_close(&f);
}

/* ---- min_tokens ---- */

/* The text of the first min_tokens tokens is published as it is. Stop strings count only after
 * it. */
static void test_min_tokens_when_a_stop_string_comes_earlier_then_it_is_passed_over(void **state)
{
    (void)state;
    int32_t prompt[7] = {1, 2, 3, 4, 5, 6, 7}, want[60];
    vt_buf text;
    vt_buf_init(&text, 0);
    reference(prompt, 7, 60, want, &text);
    char stop[2] = {text.data[2], 0};
    assert_true(stop[0] != 0);
    const char *stops[] = {stop};
    for (int32_t min = 0; min <= 60; min += 4) {
        fixture f;
        static heard h;
        memset(&h, 0, sizeof h);
        open_with_text(&f, min % 8 == 0);
        vt_request_params p = ask(prompt, 7, 60, &h);
        p.stop = stops;
        p.n_stop = 1;
        p.min_tokens = min;
        submit(&f, &p);
        run_all(&f);
        const char *at = memchr(text.data + min, stop[0], (size_t)(60 - min)); /* a byte a token */
        size_t n = at ? (size_t)(at - text.data) : 60;
        assert_int_equal(h.finish, at ? VT_FINISH_STOP : VT_FINISH_LENGTH);
        assert_int_equal(h.text_len, n);
        assert_memory_equal(h.text, text.data, n);
        fixture_close(&f);
    }
    vt_buf_release(&text);
}

static void test_min_tokens_when_given_then_only_that_many_rows_forbid_end_tokens(void **state)
{
    (void)state;
    fixture f;
    static heard h;
    memset(&h, 0, sizeof h);
    int32_t prompt[10], stop_ids[] = {17, 18};
    vt_logit_bias bias[] = {{17, 2.0f}};
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 10, 0);
    vt_request_params p = ask(prompt, 10, 12, &h);
    p.ignore_eos = false;
    p.stop_ids = stop_ids;
    p.n_stop_ids = 2;
    p.logit_bias = bias;
    p.n_logit_bias = 1;
    p.min_tokens = 3;
    submit(&f, &p);
    for (uint64_t seen = 0; step(&f);) {
        const vt_plan *plan = last_plan(&f);
        if (plan->step.id == seen)
            continue; /* the last step was only waited for */
        seen = plan->step.id;
        const vt_sample_row *row = &plan->step.rows[0];
        assert_int_equal(row->bias[0].id, 17);
        assert_int_equal(row->n_bias, row->position - 10 < 3 ? 1 + 1 + 2 : 1);
        for (int32_t i = 1; i < row->n_bias; i++) {
            assert_int_equal(row->bias[i].id, i == 1 ? 255 : stop_ids[i - 2]);
            assert_true(row->bias[i].bias < -1e30f);
        }
    }
    fixture_close(&f);
}

/* ---- what the rows of a step have ---- */

/* A penalty of either kind needs the tokens so far, alone and with others. */
static void test_row_when_only_one_penalty_is_set_then_it_has_a_context(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        fixture f;
        static heard h;
        memset(&h, 0, sizeof h);
        int32_t prompt[10];
        fixture_defaults(&f);
        fixture_open(&f);
        count_up(prompt, 10, 0);
        vt_request_params p = ask(prompt, 10, 2, &h);
        p.repetition_penalty = which == 0 ? 1.1f : 1;
        p.presence_penalty = which == 1 ? 0.5f : 0;
        p.frequency_penalty = which == 2 ? 0.5f : 0;
        submit(&f, &p);
        step(&f);
        const vt_sample_row *row = &last_plan(&f)->step.rows[0];
        assert_int_equal(row->context != NULL, which < 3);
        fixture_close(&f);
    }
}

/* ---- lengths ---- */

/* The last token's KV is never needed: a pool of 16 positions holds 17 tokens. */
static void test_length_when_the_pool_is_smaller_than_the_context_then_pool_and_one(void **state)
{
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++)
        for (int32_t n_prompt = 1; n_prompt <= 16; n_prompt++) {
            fixture f;
            heard h = {0};
            int32_t prompt[16];
            fixture_defaults(&f);
            f.config.overlap = overlap;
            f.config.sched.n_pages = 4; /* of 4 tokens */
            fixture_open(&f);
            count_up(prompt, n_prompt, 3);
            vt_request_params p = ask(prompt, n_prompt, 100, &h);
            submit(&f, &p);
            run_all(&f);
            assert_int_equal(h.n, 17 - n_prompt);
            assert_int_equal(h.finish, VT_FINISH_LENGTH);
            fixture_close(&f);
        }
}

static void test_abort_when_from_the_callback_then_one_more_event_at_most_a_step_later(void **state)
{
    (void)state;
    fixture f;
    static heard h[2];
    memset(h, 0, sizeof h);
    int32_t prompt[10];
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 10, 0);
    h[0].engine = f.engine;
    h[0].abort_after = 5;
    vt_request_params p = ask(prompt, 10, 300, &h[0]);
    submit(&f, &p);
    p = ask(prompt, 10, 40, &h[1]);
    submit(&f, &p);
    run_all(&f);
    assert_int_equal(h[0].finish, VT_FINISH_ABORT);
    assert_int_equal(h[0].n, 5); /* the abort takes effect before the results of the next step */
    assert_int_equal(h[1].finish, VT_FINISH_LENGTH);
    assert_int_equal(h[1].n, 40);
    fixture_close(&f);
}

static void test_abort_when_queued_or_unknown_then_only_that_one_ends(void **state)
{
    (void)state;
    fixture f;
    static heard h[3];
    memset(h, 0, sizeof h);
    int32_t prompt[10];
    fixture_defaults(&f);
    f.config.sched.limits.max_seqs = 1;
    fixture_open(&f);
    count_up(prompt, 10, 0);
    vt_request_id id[3];
    for (int i = 0; i < 3; i++) {
        vt_request_params p = ask(prompt, 10, 20, &h[i]);
        id[i] = submit(&f, &p);
    }
    step(&f);
    vt_engine_abort(f.engine, id[1]);
    vt_engine_abort(f.engine, 999);
    run_all(&f);
    vt_engine_abort(f.engine, id[1]); /* that request has already ended */
    run_all(&f);
    assert_int_equal(h[0].n, 20);
    assert_int_equal(h[1].n, 0);
    assert_int_equal(h[1].finish, VT_FINISH_ABORT);
    assert_int_equal(h[2].n, 20);
    fixture_close(&f);
}

static void test_submit_when_queue_is_full_then_busy_and_no_request_is_lost(void **state)
{
    (void)state;
    fixture f;
    static heard h[5];
    memset(h, 0, sizeof h);
    int32_t prompt[10], n_taken = 0;
    vt_err err;
    vt_request_id id;
    fixture_defaults(&f);
    f.config.sched.max_queued = 3;
    fixture_open(&f);
    count_up(prompt, 10, 0);
    for (int i = 0; i < 5; i++) {
        vt_request_params p = ask(prompt, 10, 5, &h[i]);
        vt_status status = vt_engine_submit(f.engine, &p, &id, &err);
        assert_int_equal(status, i < 3 ? VT_OK : VT_ERR_BUSY);
        n_taken += status == VT_OK;
    }
    assert_string_equal(err.message,
                        "3 sequences wait already, and the queue holds 3 (option max-queued)");
    run_all(&f);
    for (int i = 0; i < n_taken; i++)
        assert_int_equal(h[i].n, 5);
    fixture_close(&f);
}

static void refused_as(fixture *f, vt_request_params p, vt_status status, const char *message)
{
    vt_err err;
    vt_request_id id;
    assert_int_equal(vt_engine_submit(f->engine, &p, &id, &err), status);
    assert_string_equal(err.message, message);
}

static void refused(fixture *f, vt_request_params p, const char *message)
{
    refused_as(f, p, VT_ERR_USAGE, message);
}

/* Ends one request: the vt_request_params that `change` makes of an ordinary one. */
static vt_end_reason ends(void (*change)(vt_request_params *p), heard *h, int32_t n_pages)
{
    fixture f;
    int32_t prompt[20];
    memset(h, 0, sizeof *h);
    fixture_defaults(&f);
    f.config.sched.n_pages = n_pages;
    fixture_open(&f);
    count_up(prompt, 20, 0);
    vt_request_params p = ask(prompt, 20, 40, h);
    change(&p);
    submit(&f, &p);
    run_all(&f);
    vt_engine_stats st;
    vt_engine_copy_stats(f.engine, &st);
    assert_int_equal(st.ended[h->end_reason], 1);
    assert_int_equal(st.finished[h->finish], 1);
    assert_int_equal(h->finish, vt_end_finish(h->end_reason));
    assert_int_equal(h->error[0] != 0, h->finish == VT_FINISH_ERROR);
    fixture_close(&f);
    return h->end_reason;
}

static void as_it_is(vt_request_params *p) { (void)p; }
static void without_limit(vt_request_params *p) { p->max_tokens = 100000; }
static void only_scored(vt_request_params *p)
{
    p->max_tokens = 0;
    p->prompt_logprobs = true;
}

static void stopped_anywhere(vt_request_params *p)
{
    static int32_t any[VT_MAX_STOP_IDS];
    static const int32_t allowed[] = {1, 2};
    for (int32_t i = 0; i < VT_MAX_STOP_IDS; i++)
        any[i] = i;
    p->stop_ids = any;
    p->n_stop_ids = VT_MAX_STOP_IDS;
    p->allowed = allowed;
    p->n_allowed = 2;
}

static void in_no_time(vt_request_params *p) { p->timeout_s = 1e-9; }

static void test_end_when_for_each_reason_then_the_event_and_the_counters_say_which(void **state)
{
    (void)state;
    static heard h;
    assert_int_equal(ends(as_it_is, &h, 256), VT_END_MAX_TOKENS);
    assert_int_equal(ends(stopped_anywhere, &h, 256), VT_END_STOP_TOKEN);
    assert_int_equal(ends(only_scored, &h, 256), VT_END_PROMPT);
    assert_int_equal(ends(without_limit, &h, 256), VT_END_CONTEXT);
    assert_int_equal(h.n, 512 - 20);
    assert_int_equal(ends(without_limit, &h, 16), VT_END_KV_CACHE);
    assert_int_equal(h.n, 16 * 4 + 1 - 20);
    assert_int_equal(ends(in_no_time, &h, 256), VT_END_TIMEOUT);
}

static void test_submit_when_a_field_is_wrong_then_it_is_named(void **state)
{
    (void)state;
    fixture f;
    int32_t prompt[600];
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 600, 0);
    vt_request_params good = ask(prompt, 10, 5, NULL), p;
    p = good;
    p.n_prompt = 0;
    refused(&f, p, "the prompt has no tokens, expected at least one");
    p = good;
    p.n_prompt = 512;
    refused_as(
        &f, p, VT_ERR_CONTEXT,
        "the prompt has 512 tokens; this model's maximum context length is 512 tokens, at least "
        "one of them for the answer");
    p = good;
    p.max_tokens = 0;
    refused(&f, p, "max_tokens is 0, expected at least 1");
    p = good;
    p.temperature = -1;
    refused(&f, p, "temperature is -1, expected 0 to 100");
    p = good;
    p.top_p = __builtin_nanf("");
    refused(&f, p, "top_p is nan, expected 0 to 1");
    p = good;
    p.n = 129;
    refused(&f, p, "n is 129, expected 1 to 16");
    p = good;
    p.logprobs = 21;
    refused(&f, p, "logprobs is 21, expected -1 to 20");
    vt_logit_bias bias[] = {{5, -__builtin_inff()}, {7, __builtin_inff()}};
    p = good;
    p.logit_bias = bias;
    p.n_logit_bias = 2;
    refused(&f, p,
            "logit_bias entry 1 is id 7, bias inf, expected an id of 0 to 255 and a number below "
            "infinity");
    bias[1] = (vt_logit_bias){256, 0};
    refused(&f, p,
            "logit_bias entry 1 is id 256, bias 0, expected an id of 0 to 255 and a number below "
            "infinity");
    int32_t allowed[] = {0, 255, 256};
    p = good;
    p.allowed = allowed;
    refused(&f, p, "allowed has 0 ids, expected 1 to 1048576");
    p.n_allowed = 3;
    refused(&f, p, "allowed id 2 is 256, expected 0 to 255");
    allowed[0] = -1;
    refused(&f, p, "allowed id 0 is -1, expected 0 to 255");
    p.allowed = NULL;
    refused(&f, p, "allowed has 3 ids and no array of them, expected 1 to 1048576");
    prompt[4] = 256;
    refused(&f, good, "prompt token 4 is 256, expected 0 to 255");
    prompt[4] = 4;
    const char *stops[] = {""};
    p = good;
    p.stop = stops;
    p.n_stop = 1;
    refused(&f, p, "stop strings need a model with a tokenizer");
    fixture_close(&f);
}

static void test_free_when_requests_are_open_then_each_ends_with_abort(void **state)
{
    (void)state;
    fixture f;
    static heard h[6];
    memset(h, 0, sizeof h);
    int32_t prompt[20];
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 20, 0);
    for (int i = 0; i < 6; i++) {
        vt_request_params p = ask(prompt, 20, 100, &h[i]);
        submit(&f, &p);
    }
    for (int i = 0; i < 7; i++)
        step(&f);
    fixture_close(&f);
    for (int i = 0; i < 6; i++)
        assert_int_equal(h[i].finish, VT_FINISH_ABORT);
}

static void test_fault_when_the_device_keeps_failing_then_error_and_the_engine_goes_on(void **state)
{
    (void)state;
    fixture f;
    static heard h;
    memset(&h, 0, sizeof h);
    int32_t prompt[20];
    fixture_defaults(&f);
    f.device.fault_ppm = 1000000;
    fixture_open(&f);
    count_up(prompt, 20, 0);
    vt_request_params p = ask(prompt, 20, 10, &h);
    submit(&f, &p);
    bool idle = false;
    vt_err err;
    for (int i = 0; i < 20 && !idle; i++) {
        /* the step after which it gives up fails too */
        vt_status want = h.n_ends ? VT_OK : VT_ERR_DEVICE;
        assert_int_equal(vt_engine_step(f.engine, &idle, &err), want);
    }
    assert_int_equal(h.finish, VT_FINISH_ERROR);
    assert_int_equal(h.end_reason, VT_END_DEVICE_FAULT);
    assert_true(idle);
    fixture_close(&f);
}

static void test_allowed_when_given_then_the_step_has_it_as_a_mask_and_scoring_has_not(void **state)
{
    (void)state;
    fixture f;
    static heard h[2];
    memset(h, 0, sizeof h);
    int32_t prompt[10], allowed[] = {0, 31, 32, 255, 31}, n_masked = 0;
    const uint32_t want[8] = {0x80000001u, 1, 0, 0, 0, 0, 0, 0x80000000u};
    fixture_defaults(&f);
    fixture_open(&f);
    count_up(prompt, 10, 0);
    vt_request_params p = ask(prompt, 10, 4, h);
    p.allowed = allowed;
    p.n_allowed = 5;
    p.prompt_logprobs = true;
    p.logprobs = 0;
    p.n = 2;
    submit(&f, &p);
    memset(allowed, 0, sizeof allowed); /* it was copied */
    for (uint64_t seen = 0; step(&f);) {
        const vt_plan *plan = last_plan(&f);
        if (plan->step.id == seen)
            continue; /* the last step was only waited for */
        seen = plan->step.id;
        for (int32_t i = 0; i < plan->step.batch.n_rows; i++) {
            const vt_sample_row *row = &plan->step.rows[i];
            if (row->target >= 0)
                assert_null(row->mask);
            else
                assert_memory_equal(row->mask, want, sizeof want);
            n_masked += row->mask != NULL;
        }
    }
    assert_int_equal(n_masked, 8);
    assert_int_equal(h[0].n_scores, 9);
    fixture_close(&f);
}

/* ---- the loop on its own thread ---- */

enum { THREADS = 3, EACH = 40 };

typedef struct client {
    fixture *f;
    int32_t first;
    pthread_t thread;
    atomic_int ended, tokens;
} client;

static void count_events(void *user, const vt_event *e)
{
    client *c = user;
    atomic_fetch_add(&c->tokens, e->n_tokens);
    if (e->finish != VT_FINISH_NONE)
        atomic_fetch_add(&c->ended, 1);
}

static void *client_main(void *arg)
{
    client *c = arg;
    int32_t prompt[30];
    count_up(prompt, 30, c->first);
    for (int i = 0; i < EACH;) {
        vt_request_params p = ask(prompt, 10 + i % 20, 8, NULL);
        vt_request_id id;
        p.callback = count_events;
        p.user = c;
        if (vt_engine_submit(c->f->engine, &p, &id, NULL) == VT_OK) {
            i++;
            if (i % 10 == 0)
                vt_engine_abort(c->f->engine, id);
        } else {
            sched_yield(); /* the queue is full: let the loop have the CPU */
        }
    }
    return NULL;
}

static void test_start_when_several_threads_submit_then_all_end(void **state)
{
    (void)state;
    fixture f;
    client c[THREADS];
    fixture_defaults(&f);
    f.config.now = NULL; /* the fake clock belongs to one thread */
    fixture_open(&f);
    assert_int_equal(vt_engine_start(f.engine, NULL), VT_OK);
    assert_int_equal(vt_engine_start(f.engine, NULL), VT_ERR_USAGE);
    for (int i = 0; i < THREADS; i++) {
        c[i] = (client){.f = &f, .first = 40 * i};
        assert_int_equal(pthread_create(&c[i].thread, NULL, client_main, &c[i]), 0);
    }
    int32_t ended = 0, tokens = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_join(c[i].thread, NULL);
    /* The limit is for an engine that hangs, not for a slow machine. */
    for (int64_t until = vt_now_ns() + INT64_C(900000000000);
         ended < THREADS * EACH && vt_now_ns() < until; sched_yield()) {
        ended = 0;
        for (int i = 0; i < THREADS; i++)
            ended += atomic_load(&c[i].ended);
    }
    vt_engine_stop(f.engine);
    for (int i = 0; i < THREADS; i++)
        tokens += atomic_load(&c[i].tokens);
    assert_int_equal(ended, THREADS * EACH);
    assert_true(tokens >= THREADS * EACH * 9 / 10 * 8);
    fixture_close(&f);
}

/* An executor that adds pages step by step, up to `most`. */
static struct {
    int32_t ready, most;
} growth;

static vt_kv_count growing_pages(vt_executor *x, vt_kv_count taken)
{
    (void)x;
    assert_in_range(taken.pages, 0, growth.ready);
    if (taken.pages > growth.ready / 2 && growth.ready < growth.most)
        growth.ready += 3;
    return (vt_kv_count){.pages = growth.ready};
}

static void
test_pages_when_the_executor_makes_more_then_they_are_used_and_no_token_changes(void **state)
{
    (void)state;
    static const int32_t kMost[] = {16, 46, 256}; /* no growth; some growth; enough for all */
    for (size_t i = 0; i < sizeof kMost / sizeof *kMost; i++) {
        fixture f;
        vt_err err;
        vt_engine_stats stats;
        heard *h = calloc(8, sizeof *h);
        int32_t want[200], prompt[8][11];
        vt_buf text;
        vt_buf_init(&text, 0);
        assert_non_null(h);
        fixture_defaults(&f);
        f.config.request.vocab = ASCII;
        f.config.sched.limits.max_context = 64; /* 16 pages */
        fixture_open(&f);
        vt_engine_free(f.engine); /* again, with an executor that grows */
        assert_int_equal(vt_fake_device_new(&f.device, &f.executor, &err), VT_OK);
        growth.ready = 16;
        growth.most = kMost[i];
        f.executor->pages = growing_pages;
        assert_int_equal(vt_engine_create(&f.config, f.executor, &f.engine, &err), VT_OK);
        vt_engine_copy_stats(f.engine, &stats);
        assert_int_equal(stats.pages, 16);
        assert_int_equal(stats.pages_free, 16);
        for (int32_t k = 0; k < 8; k++) {
            count_up(prompt[k], 11, 3 * k);
            vt_request_params p = ask(prompt[k], 11, 40, &h[k]);
            submit(&f, &p);
        }
        run_all(&f);
        for (int32_t k = 0; k < 8; k++) {
            reference(prompt[k], 11, 40, want, &text);
            assert_int_equal(h[k].n, 40);
            assert_memory_equal(h[k].token, want, 40 * sizeof *want);
        }
        vt_engine_copy_stats(f.engine, &stats);
        assert_int_equal(stats.pages, growth.ready);
        assert_true(i == 0 ? stats.pages == 16 : stats.pages > 40);
        assert_int_equal(stats.pages_free + stats.pages_held + stats.pages_cached, stats.pages);
        vt_buf_release(&text);
        free(h);
        fixture_close(&f);
    }
}

/* Whole texts end with their step: no page is kept for tokens to come. */
static void test_pages_when_whole_texts_wait_for_them_then_all_are_used_and_more_made(void **state)
{
    (void)state;
    fixture f;
    vt_err err;
    vt_engine_stats stats;
    static heard h[24];
    memset(h, 0, sizeof h);
    int32_t prompt[4];
    fixture_defaults(&f);
    f.config.overlap = false;
    f.config.sched.whole = true;
    f.config.sched.prefix_cache = false;
    f.config.sched.max_queued = 24;
    f.config.sched.limits = (vt_limits){
        .max_tokens = 128, .max_seqs = 24, .max_rows = 32, .max_context = 64, .page_size = 4};
    fixture_open(&f);
    vt_engine_free(f.engine); /* again, with an executor that grows */
    assert_int_equal(vt_fake_device_new(&f.device, &f.executor, &err), VT_OK);
    growth.ready = 16;
    growth.most = 22;
    f.executor->pages = growing_pages;
    assert_int_equal(vt_engine_create(&f.config, f.executor, &f.engine, &err), VT_OK);
    for (int32_t k = 0; k < 24; k++) {
        count_up(prompt, 4, 3 * k);
        vt_request_params p = ask(prompt, 4, 1, &h[k]);
        submit(&f, &p);
    }
    step(&f);
    assert_int_equal(last_plan(&f)->step.batch.n_seqs, 16);
    run_all(&f);
    vt_engine_copy_stats(f.engine, &stats);
    assert_int_equal(stats.pages, 16 + 3);
    assert_int_equal(stats.sched.steps, 2);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max_tokens_when_overlapped_then_exactly_that_many),
        cmocka_unit_test(test_completions_when_several_then_they_run_side_by_side),
        cmocka_unit_test(test_context_when_full_then_length),
        cmocka_unit_test(test_eos_when_sampled_then_nothing_after_it),
        cmocka_unit_test(test_stop_string_when_it_spans_tokens_then_text_ends_before_it),
        cmocka_unit_test(test_stop_string_when_only_begun_then_held_text_comes_at_the_end),
        cmocka_unit_test(test_min_tokens_when_a_stop_string_comes_earlier_then_it_is_passed_over),
        cmocka_unit_test(test_min_tokens_when_given_then_only_that_many_rows_forbid_end_tokens),
        cmocka_unit_test(test_row_when_only_one_penalty_is_set_then_it_has_a_context),
        cmocka_unit_test(test_length_when_the_pool_is_smaller_than_the_context_then_pool_and_one),
        cmocka_unit_test(
            test_abort_when_from_the_callback_then_one_more_event_at_most_a_step_later),
        cmocka_unit_test(test_abort_when_queued_or_unknown_then_only_that_one_ends),
        cmocka_unit_test(test_submit_when_queue_is_full_then_busy_and_no_request_is_lost),
        cmocka_unit_test(test_end_when_for_each_reason_then_the_event_and_the_counters_say_which),
        cmocka_unit_test(test_submit_when_a_field_is_wrong_then_it_is_named),
        cmocka_unit_test(
            test_allowed_when_given_then_the_step_has_it_as_a_mask_and_scoring_has_not),
        cmocka_unit_test(test_free_when_requests_are_open_then_each_ends_with_abort),
        cmocka_unit_test(
            test_fault_when_the_device_keeps_failing_then_error_and_the_engine_goes_on),
        cmocka_unit_test(test_start_when_several_threads_submit_then_all_end),
        cmocka_unit_test(
            test_pages_when_the_executor_makes_more_then_they_are_used_and_no_token_changes),
        cmocka_unit_test(test_pages_when_whole_texts_wait_for_them_then_all_are_used_and_more_made),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
