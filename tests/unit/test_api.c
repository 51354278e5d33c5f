/* The public C API: wrong arguments are refused with a sentence, the loop and stepping by hand
 * exclude each other, and structs may be older or newer than the library. A tiny model runs on the
 * CPU. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/tiny_model.h"
#include "vitrine.h"

static vt_model *model;

static int open_model(void **state)
{
    (void)state;
    model = tiny_model("llama");
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    vt_model_free(model);
    return 0;
}

static vt_options *options_for_tests(void)
{
    vt_options *o;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "device", "cpu", NULL), VT_OK);
    assert_int_equal(vt_options_set(o, "threads", "1", NULL), VT_OK);
    return o;
}

static vt_engine *open_engine(void)
{
    vt_options *o = options_for_tests();
    vt_engine *e;
    vt_err err;
    if (vt_engine_new(model, o, &e, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_options_free(o);
    return e;
}

/* What a callback has received, and what it shall try to call. */
typedef struct heard {
    vt_engine *engine; /* not NULL: try what a callback must not do */
    int32_t token[64], n;
    atomic_int ended;
    vt_status step, wait, start, story;
} heard;

static void on_event(void *user, const vt_event *e)
{
    heard *h = user;
    char *json;
    size_t len;
    for (int32_t i = 0; i < e->n_tokens && h->n < 64; i++)
        h->token[h->n++] = e->tokens[i];
    if (h->engine) {
        h->step = vt_engine_step(h->engine, NULL, NULL);
        h->wait = vt_engine_wait(h->engine, 0, NULL, NULL);
        h->start = vt_engine_start(h->engine, NULL);
        h->story = vt_engine_story(h->engine, 0, &json, &len, NULL);
    }
    if (e->finish != VT_FINISH_NONE)
        atomic_store(&h->ended, 1);
}

static const int32_t prompt[] = {5, 6, 7, 8, 9, 10, 11};

static vt_request_params ask(heard *h, int32_t max_tokens)
{
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = 7;
    p.max_tokens = max_tokens;
    p.ignore_eos = true;
    p.callback = on_event;
    p.user = h;
    return p;
}

static void run(vt_engine *e, const vt_request_params *p)
{
    vt_err err;
    bool idle = false;
    if (vt_engine_submit(e, p, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    while (!idle)
        assert_int_equal(vt_engine_step(e, &idle, &err), VT_OK);
}

/* ---- arguments ---- */

#define REFUSED(call, sentence)                     \
    do {                                            \
        vt_err err = {0};                           \
        assert_int_equal((call), VT_ERR_USAGE);     \
        assert_string_equal(err.message, sentence); \
    } while (0)

static void test_options_when_pointers_are_null_then_usage(void **state)
{
    (void)state;
    vt_options *o = options_for_tests();
    REFUSED(vt_options_new(NULL, &err), "vt_options_new: out is NULL");
    REFUSED(vt_options_set(NULL, "threads", "1", &err), "vt_options_set: the options is NULL");
    REFUSED(vt_options_set(o, NULL, "1", &err), "vt_options_set: the key is NULL");
    REFUSED(vt_options_set(o, "threads", NULL, &err), "option threads: the value is NULL");
    REFUSED(vt_options_set_progress(NULL, NULL, NULL, &err),
            "vt_options_set_progress: the options is NULL");
    REFUSED(vt_options_set_notice(NULL, NULL, NULL, &err),
            "vt_options_set_notice: the options is NULL");
    assert_null(vt_options_get(NULL, "threads"));
    assert_null(vt_options_get(o, NULL));
    vt_options_free(o);
}

/* Options of the command line alone, which vt_options_set refuses, are unknown to
 * vt_options_get. */
static void test_options_get_when_the_key_is_a_commands_then_null(void **state)
{
    (void)state;
    vt_options *o = options_for_tests();
    assert_null(vt_options_get(o, "max-tokens"));
    assert_null(vt_options_get(o, "temperature"));
    assert_string_equal(vt_options_get(o, "threads"), "1");
    vt_options_free(o);
}

static void test_text_when_arguments_are_wrong_then_usage_and_untouched_results(void **state)
{
    (void)state;
    int32_t *ids = (int32_t *)1, bad = 100000;
    size_t n = 77;
    char *text = (char *)1;
    REFUSED(vt_tokenize(NULL, "a", 1, 0, &ids, &n, &err), "the model is NULL");
    REFUSED(vt_tokenize(model, NULL, 1, 0, &ids, &n, &err), "vt_tokenize: text is NULL");
    REFUSED(vt_tokenize(model, "a", 1, 0, NULL, &n, &err), "vt_tokenize: ids is NULL");
    REFUSED(vt_tokenize(model, "a", 1, 0, &ids, NULL, &err), "vt_tokenize: n_ids is NULL");
    REFUSED(vt_tokenize(model, "a", 1, 9, &ids, &n, &err),
            "vt_tokenize: flags are 0x9, expected 0 to 7");
    REFUSED(vt_detokenize(model, NULL, 1, &text, &n, &err), "vt_detokenize: ids is NULL");
    REFUSED(vt_detokenize(model, prompt, 7, NULL, &n, &err), "vt_detokenize: text is NULL");
    REFUSED(vt_detokenize(model, prompt, 7, &text, NULL, &err), "vt_detokenize: len is NULL");
    REFUSED(vt_detokenize(model, &bad, 1, &text, &n, &err), "token 0 is 100000, expected 0 to 319");
    assert_ptr_equal(ids, (int32_t *)1);
    assert_ptr_equal(text, (char *)1);
    assert_int_equal(n, 77);
    assert_int_equal(vt_tokenize(model, NULL, 0, 0, &ids, &n, NULL), VT_OK); /* an empty text */
    assert_int_equal(n, 0);
    vt_free(ids);
}

static void test_engine_when_pointers_are_null_then_usage(void **state)
{
    (void)state;
    vt_options *o = options_for_tests();
    vt_engine *e = open_engine(), *other = NULL;
    vt_model *m = NULL;
    size_t n;
    char *json;
    REFUSED(vt_model_open(NULL, &m, &err), "vt_model_open: the options is NULL");
    REFUSED(vt_model_open(o, NULL, &err), "vt_model_open: out is NULL");
    REFUSED(vt_engine_new(NULL, o, &other, &err), "vt_engine_new: the model is NULL");
    REFUSED(vt_engine_new(model, NULL, &other, &err), "vt_engine_new: the options is NULL");
    REFUSED(vt_engine_new(model, o, NULL, &err), "vt_engine_new: out is NULL");
    REFUSED(vt_engine_submit(e, NULL, NULL, &err), "vt_engine_submit: the request is NULL");
    REFUSED(vt_engine_step(NULL, NULL, &err), "vt_engine_step: the engine is NULL");
    REFUSED(vt_engine_wait(NULL, 0, NULL, &err), "vt_engine_wait: the engine is NULL");
    REFUSED(vt_engine_start(NULL, &err), "vt_engine_start: the engine is NULL");
    REFUSED(vt_engine_get_stats(e, NULL, &err), "vt_engine_get_stats: out is NULL");
    REFUSED(vt_engine_story(e, 0, NULL, &n, &err), "vt_engine_story: json is NULL");
    REFUSED(vt_engine_story(e, 0, &json, NULL, &err), "vt_engine_story: len is NULL");
    vt_engine_abort(NULL, 1);
    vt_engine_stop(NULL);
    vt_engine_free(NULL);
    vt_engine_free(e);
    vt_options_free(o);
}

static void test_submit_when_a_list_is_missing_then_usage_and_id_untouched(void **state)
{
    (void)state;
    vt_engine *e = open_engine();
    vt_request_id id = 77;
    const char *stops[] = {"x", NULL};
    vt_request_params p = ask(NULL, 4);
    p.n_stop = 1;
    REFUSED(vt_engine_submit(e, &p, &id, &err), "stop has 1 strings and no array of them");
    p.stop = stops;
    p.n_stop = 2;
    REFUSED(vt_engine_submit(e, &p, &id, &err), "stop string 1 is NULL");
    p = ask(NULL, 4);
    p.n_stop_ids = 3;
    REFUSED(vt_engine_submit(e, &p, &id, &err), "stop_ids has 3 ids and no array of them");
    p = ask(NULL, 4);
    p.n_logit_bias = 1;
    REFUSED(vt_engine_submit(e, &p, &id, &err), "logit_bias has 1 entries and no array of them");
    p = ask(NULL, 4);
    p.min_tokens = 5;
    REFUSED(vt_engine_submit(e, &p, &id, &err), "min_tokens is 5, expected 0 to 4");
    assert_int_equal(id, 77);
    vt_engine_free(e);
}

/* ---- structs of other versions ---- */

static void test_request_when_the_struct_is_older_then_new_fields_have_defaults(void **state)
{
    (void)state;
    vt_engine *e = open_engine();
    heard h = {0};
    vt_request_params p = ask(&h, 4);
    p.struct_size = offsetof(vt_request_params, min_tokens);
    p.min_tokens = -1; /* lies beyond an older struct: must not be read */
    run(e, &p);
    assert_int_equal(h.n, 4);
    vt_request_params raw = {.prompt = prompt, .n_prompt = 7, .max_tokens = 4};
    REFUSED(vt_engine_submit(e, &raw, NULL, &err),
            "the request's struct_size is 0, expected vt_request_init to set it");
    vt_engine_free(e);
}

static void test_request_when_the_struct_is_newer_then_unknown_fields_must_be_zero(void **state)
{
    (void)state;
    struct {
        vt_request_params p;
        int64_t later[4];
    } newer;
    vt_engine *e = open_engine();
    heard h = {0};
    memset(&newer, 0xff, sizeof newer);
    vt_request_init_size(&newer.p, sizeof newer);
    assert_int_equal(newer.later[3], 0);
    vt_request_params known = ask(&h, 4);
    known.struct_size = sizeof newer;
    newer.p = known;
    run(e, &newer.p);
    assert_int_equal(h.n, 4);
    newer.later[1] = 1;
    REFUSED(vt_engine_submit(e, &newer.p, NULL, &err),
            "the request has a field that this version of the library (0.1.0) does not know");
    vt_engine_free(e);
}

static void test_stats_when_a_request_ran_then_they_count_it_in_any_struct_size(void **state)
{
    (void)state;
    vt_engine *e = open_engine();
    heard h = {0};
    vt_request_params p = ask(&h, 4);
    vt_stats s;
    run(e, &p);
    assert_int_equal(vt_engine_get_stats(e, &s, NULL), VT_OK);
    assert_int_equal(s.page_size, 16);
    assert_int_equal(s.pages_used + s.pages_cached + s.pages_free, s.pages);
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(s.running + s.queued, 0);
    assert_int_equal(s.requests, 1);
    assert_int_equal(s.finished_length, 1);
    assert_int_equal(s.finished_stop + s.finished_abort + s.finished_error, 0);
    assert_int_equal(s.steps, 4);
    assert_int_equal(s.prefill_tokens, 7);
    assert_int_equal(s.decode_tokens, 3);
    assert_int_equal(s.output_tokens, 4);
    assert_int_equal(s.cache_lookup_tokens, 7);
    assert_true(s.device_ns > 0);
    vt_stats cut;
    memset(&cut, 0xaa, sizeof cut);
    assert_int_equal(vt_engine_get_stats_size(e, &cut, offsetof(vt_stats, pages_cached), NULL),
                     VT_OK);
    assert_int_equal(cut.pages, s.pages);
    assert_int_equal(cut.pages_cached, (int32_t)0xaaaaaaaa); /* beyond the caller's struct */
    vt_engine_free(e);
}

/* ---- the model's tokens ---- */

static void test_model_tokens_when_asked_then_the_tokenizers(void **state)
{
    (void)state;
    int32_t n = 0, *ids, start = vt_model_find_token(model, "<|im_start|>", 12);
    size_t n_ids;
    assert_int_equal(
        vt_tokenize(model, "<|im_start|>", 12, VT_TOKENIZE_SPECIAL, &ids, &n_ids, NULL), VT_OK);
    assert_int_equal(n_ids, 1);
    assert_int_equal(start, ids[0]);
    vt_free(ids);
    assert_true(vt_model_token_is_special(model, start));
    assert_false(vt_model_token_is_special(model, 65));
    assert_false(vt_model_token_is_special(model, -1));
    assert_false(vt_model_token_is_special(model, 1 << 30));
    assert_int_equal(vt_model_find_token(model, "no such token", 13), -1);
    assert_int_equal(vt_model_find_token(model, NULL, 3), -1);
    assert_int_equal(vt_model_bos(model), model->bos);
    const int32_t *eos = vt_model_eos(model, &n);
    assert_int_equal(n, model->n_eos);
    assert_ptr_equal(eos, n > 0 ? model->eos : NULL);
    assert_null(vt_model_name(NULL));
    assert_int_equal(vt_model_vocab_size(NULL), 0);
    assert_int_equal(vt_model_bos(NULL), -1);
    assert_null(vt_model_eos(NULL, &n));
    assert_int_equal(n, 0);
}

/* ---- min_tokens ---- */

/* The first token of a greedy answer is made an end token. Without min_tokens the answer is that
 * one token; with it the model must produce other tokens first. */
static void test_min_tokens_when_the_first_choice_would_end_then_another_is_chosen(void **state)
{
    (void)state;
    vt_engine *e = open_engine();
    heard free_answer = {0}, cut = {0}, h = {0};
    vt_request_params p = ask(&free_answer, 12);
    run(e, &p);
    int32_t first = free_answer.token[0];
    p.stop_ids = &first;
    p.n_stop_ids = 1;
    p.user = &cut;
    run(e, &p);
    assert_int_equal(cut.n, 1);
    p.user = &h;
    p.min_tokens = 5;
    run(e, &p);
    assert_true(h.n >= 5);
    for (int i = 0; i < 5; i++)
        assert_int_not_equal(h.token[i], first);
    vt_engine_free(e);
}

/* ---- who may step ---- */

static void test_step_when_the_loop_runs_then_usage(void **state)
{
    (void)state;
    vt_engine *e = open_engine();
    heard h = {0};
    vt_request_params p = ask(&h, 40);
    bool idle = true, ready = true;
    assert_int_equal(vt_engine_start(e, NULL), VT_OK);
    assert_int_equal(vt_engine_submit(e, &p, NULL, NULL), VT_OK);
    REFUSED(vt_engine_step(e, &idle, &err),
            "vt_engine_step: the engine's loop runs on a thread of its own (vt_engine_start)");
    REFUSED(vt_engine_wait(e, 0, &ready, &err),
            "vt_engine_wait: the engine's loop runs on a thread of its own (vt_engine_start)");
    REFUSED(vt_engine_start(e, &err),
            "vt_engine_start: the engine's loop runs on a thread of its own (vt_engine_start)");
    assert_true(idle && ready); /* untouched */
    vt_engine_stop(e);
    while (!atomic_load(&h.ended)) /* the request still exists, and steps by hand continue it */
        assert_int_equal(vt_engine_step(e, NULL, NULL), VT_OK);
    assert_int_equal(h.n, 40);
    vt_engine_free(e);
}

static void test_callback_when_it_steps_waits_or_starts_then_usage(void **state)
{
    (void)state;
    vt_engine *e = open_engine();
    heard h = {.engine = e};
    vt_request_params p = ask(&h, 3);
    run(e, &p);
    assert_int_equal(h.n, 3);
    assert_int_equal(h.step, VT_ERR_USAGE);
    assert_int_equal(h.wait, VT_ERR_USAGE);
    assert_int_equal(h.start, VT_ERR_USAGE);
    assert_int_equal(h.story, VT_ERR_USAGE);
    vt_engine_free(e);
}

/* A callback may submit requests: here each request submits the next one when it ends. */
typedef struct chain {
    vt_engine *engine;
    int32_t left, ended;
    vt_status want; /* what a submit shall return */
} chain;

static void ask_again(void *user, const vt_event *e)
{
    chain *c = user;
    if (e->finish == VT_FINISH_NONE)
        return;
    c->ended++;
    if (c->left-- <= 0)
        return;
    vt_request_params p = ask(NULL, 2);
    p.callback = ask_again;
    p.user = c;
    assert_int_equal(vt_engine_submit(c->engine, &p, NULL, NULL), c->want);
}

static void test_callback_when_it_submits_then_the_new_request_runs(void **state)
{
    (void)state;
    chain c = {.engine = open_engine(), .left = 5};
    vt_request_params p = ask(NULL, 2);
    p.callback = ask_again;
    p.user = &c;
    assert_int_equal(vt_engine_submit(c.engine, &p, NULL, NULL), VT_OK);
    bool ready = true;
    while (ready) {
        assert_int_equal(vt_engine_step(c.engine, NULL, NULL), VT_OK);
        assert_int_equal(vt_engine_wait(c.engine, 0, &ready, NULL), VT_OK);
    }
    assert_int_equal(c.ended, 6);
    /* an engine that is being freed accepts no more requests */
    c.left = 1;
    c.want = VT_ERR_USAGE;
    assert_int_equal(vt_engine_submit(c.engine, &p, NULL, NULL), VT_OK);
    vt_engine_free(c.engine);
    assert_int_equal(c.ended, 7);
}

/* ---- waiting ---- */

typedef struct submitter {
    vt_engine *engine;
    vt_request_params p;
} submitter;

static void *submit_soon(void *arg)
{
    submitter *s = arg;
    struct timespec nap = {.tv_nsec = 20000000};
    nanosleep(&nap, NULL);
    if (vt_engine_submit(s->engine, &s->p, NULL, NULL) != VT_OK)
        abort();
    return NULL;
}

static void test_wait_when_another_thread_submits_then_it_wakes(void **state)
{
    (void)state;
    vt_engine *e = open_engine();
    heard h = {0};
    submitter s = {e, ask(&h, 3)};
    pthread_t thread;
    bool ready = true;
    assert_int_equal(vt_engine_wait(e, 1, &ready, NULL), VT_OK);
    assert_false(ready); /* there was no event */
    assert_int_equal(pthread_create(&thread, NULL, submit_soon, &s), 0);
    assert_int_equal(vt_engine_wait(e, -1, &ready, NULL), VT_OK);
    assert_true(ready);
    pthread_join(thread, NULL);
    while (!atomic_load(&h.ended))
        assert_int_equal(vt_engine_step(e, NULL, NULL), VT_OK);
    vt_engine_free(e);
}

/* ---- stories beside the loop ---- */

static void test_story_when_the_loop_runs_then_it_is_told(void **state)
{
    (void)state;
    vt_engine *e = open_engine();
    heard first = {0}, second = {0};
    vt_request_params p = ask(&first, 4);
    vt_request_id id;
    char *json = NULL;
    size_t len = 0;
    vt_err err;
    assert_int_equal(vt_engine_start(e, NULL), VT_OK);
    assert_int_equal(vt_engine_submit(e, &p, &id, NULL), VT_OK);
    while (!atomic_load(&first.ended))
        sched_yield();
    p = ask(&second, 200);
    assert_int_equal(vt_engine_submit(e, &p, NULL, NULL), VT_OK);
    if (vt_engine_story(e, id, &json, &len, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_non_null(strstr(json, "vitrine.story"));
    assert_int_equal(strlen(json), len);
    vt_free(json);
    while (!atomic_load(&second.ended)) /* the loop runs again */
        sched_yield();
    vt_engine_free(e);
}

/* ---- progress ---- */

typedef struct progress {
    int32_t n, stop_at; /* calls so far; the one that asks to stop, 0: none */
    char last[64];
} progress;

static bool on_progress(void *user, const vt_progress_info *info)
{
    progress *p = user;
    assert_true(info->done >= 0 && info->done <= info->total && info->total >= 1);
    snprintf(p->last, sizeof p->last, "%s", info->stage);
    return ++p->n != p->stop_at;
}

static void test_progress_when_a_model_is_opened_then_told_and_every_call_can_cancel(void **state)
{
    (void)state;
    vt_options *o = options_for_tests();
    vt_err err;
    progress p = {0};
    int32_t n_open, n_all;
    vt_model *m;
    vt_engine *e;
    assert_int_equal(
        vt_options_set(o, "model", "tests/golden/models/llama-quantised-Q8_0.gguf", NULL), VT_OK);
    assert_int_equal(vt_options_set_progress(o, on_progress, &p, NULL), VT_OK);
    assert_int_equal(vt_model_open(o, &m, &err), VT_OK);
    n_open = p.n;
    assert_string_equal(p.last, "opening the model");
    assert_int_equal(vt_engine_new(m, o, &e, &err), VT_OK);
    n_all = p.n;
    assert_true(n_open > 0 && n_all > n_open);
    vt_engine_free(e);
    for (p.stop_at = 1; p.stop_at <= n_all; p.stop_at++) {
        vt_model *again = NULL;
        vt_engine *none = NULL;
        p.n = 0;
        vt_status status = vt_model_open(o, &again, &err);
        assert_int_equal(status, p.stop_at <= n_open ? VT_ERR_CANCELLED : VT_OK);
        if (status == VT_OK)
            assert_int_equal(vt_engine_new(again, o, &none, &err), VT_ERR_CANCELLED);
        assert_int_equal(strncmp(err.message, "cancelled while ", 16), 0);
        assert_null(none);
        vt_model_free(again);
    }
    vt_model_free(m);
    vt_options_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_when_pointers_are_null_then_usage),
        cmocka_unit_test(test_options_get_when_the_key_is_a_commands_then_null),
        cmocka_unit_test(test_text_when_arguments_are_wrong_then_usage_and_untouched_results),
        cmocka_unit_test(test_engine_when_pointers_are_null_then_usage),
        cmocka_unit_test(test_submit_when_a_list_is_missing_then_usage_and_id_untouched),
        cmocka_unit_test(test_request_when_the_struct_is_older_then_new_fields_have_defaults),
        cmocka_unit_test(test_request_when_the_struct_is_newer_then_unknown_fields_must_be_zero),
        cmocka_unit_test(test_stats_when_a_request_ran_then_they_count_it_in_any_struct_size),
        cmocka_unit_test(test_model_tokens_when_asked_then_the_tokenizers),
        cmocka_unit_test(test_min_tokens_when_the_first_choice_would_end_then_another_is_chosen),
        cmocka_unit_test(test_step_when_the_loop_runs_then_usage),
        cmocka_unit_test(test_callback_when_it_steps_waits_or_starts_then_usage),
        cmocka_unit_test(test_callback_when_it_submits_then_the_new_request_runs),
        cmocka_unit_test(test_wait_when_another_thread_submits_then_it_wakes),
        cmocka_unit_test(test_story_when_the_loop_runs_then_it_is_told),
        cmocka_unit_test(test_progress_when_a_model_is_opened_then_told_and_every_call_can_cancel),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
