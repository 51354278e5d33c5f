/* The engine on the emulated GPU (tests/emulator), from requests to tokens: CUDA graphs and overlap
 * change nothing, --deterministic keeps a request's tokens and log-probabilities bitwise whatever
 * runs beside it, retraction and prefix hits with copied pages included. Kernels are not sanitized,
 * so a sanitized build runs one setting of each kind: what it looks at is the host's side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>

#include "common/emulated_gpu.h"
#include "common/engine_run.h"
#include "common/striped_rules.h"
#include "common/tiny_model.h"
#include "kv/shape.h"
#include "engine/engine.h"
#include "exec/cuda.h"
#include "model/load.h"

enum { REQUESTS = 6, TOKENS = 36, PROMPT = 40, FAMILIES = 2, SCHEDULES = 4 };

typedef struct outcome {
    int32_t token[TOKENS], n;
    float logprob[TOKENS];
    bool ended;
} outcome;

typedef struct request {
    vt_request_params p;
    int32_t striped; /* the vocabulary, if rules say what may come (striped_rules.h); else 0 */
    int32_t prompt[PROMPT];
    outcome now;
    int32_t cached;
    vt_finish finish;
    char error[200];
} request;

/* The settings of an engine in a test. */
typedef struct setup {
    const char *emulator;
    int32_t running, budget, pages;
    int32_t page, context; /* 0: 16 and 96 tokens */
    bool deterministic, no_graphs, no_overlap, no_prefix_cache, fp8_kv, cpu, draft, keep_windows;
} setup;

static uint64_t rng;

static int32_t between(int32_t lo, int32_t hi)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return lo + (int32_t)((rng >> 33) % (uint64_t)(hi - lo + 1));
}

static void on_event(void *user, const vt_event *e)
{
    request *r = user;
    for (int32_t i = 0; i < e->n_tokens; i++) {
        assert_in_range(r->now.n, 0, TOKENS - 1);
        if (r->striped)
            striped_check(r->now.n, e->tokens[i], r->striped);
        r->now.token[r->now.n] = e->tokens[i];
        r->now.logprob[r->now.n++] = e->logprobs[i].logprob;
    }
    r->cached = e->cached_tokens;
    r->finish = e->finish;
    r->now.ended = e->finish == VT_FINISH_STOP || e->finish == VT_FINISH_LENGTH;
    if (e->finish == VT_FINISH_ERROR)
        snprintf(r->error, sizeof r->error, "%s", e->error);
}

/* Requests that share beginnings of every length, greedy and sampled, some with penalties. */
static void write_requests(request *r, int32_t vocab)
{
    int32_t family[FAMILIES][PROMPT];
    for (int32_t f = 0; f < FAMILIES; f++)
        for (int32_t i = 0; i < PROMPT; i++)
            family[f][i] = between(0, vocab - 1);
    for (int32_t k = 0; k < REQUESTS; k++, r++) {
        *r = (request){0};
        vt_request_init(&r->p);
        r->p.n_prompt = between(PROMPT / 3, PROMPT);
        memcpy(r->prompt, family[k % FAMILIES], sizeof r->prompt);
        for (int32_t i = between(PROMPT / 3, PROMPT); i < PROMPT; i++)
            r->prompt[i] = between(0, vocab - 1);
        r->p.prompt = r->prompt;
        r->p.max_tokens = between(TOKENS / 3, TOKENS);
        r->p.ignore_eos = true;
        r->p.temperature = k % 2 ? 0.9f : 0;
        r->p.top_p = k % 4 == 1 ? 0.8f : 1;
        r->p.presence_penalty = k % 3 ? 0 : 0.7f;
        r->p.repetition_penalty = k % 5 ? 1 : 1.2f;
        r->striped = k % 6 == 4 ? vocab : 0;
        r->p.has_seed = true;
        r->p.seed = (uint64_t)k;
        r->p.logprobs = 0;
        r->p.callback = on_event;
        r->p.user = r;
    }
}

/* ---- engines ---- */

static vt_engine *open_engine(const vt_model *m, const setup *s)
{
    vt_options *o;
    vt_err err;
    int32_t page = s->page ? s->page : 16;
    setenv("VITRINE_EMULATOR", s->emulator, 1);
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    engine_option(o, "device", s->cpu ? "cpu" : "cuda");
    engine_option_int(o, "threads", 2);
    engine_option_int(o, "page-size", page);
    engine_option_int(o, "max-running", s->running);
    engine_option_int(o, "token-budget", s->budget);
    engine_option_int(o, "max-context", s->context ? s->context : 96);
    vt_kv_shape shape;
    vt_kv_shape_of(m, s->fp8_kv ? VT_FP8_E4M3 : VT_BF16, &shape);
    /* a sequence's own slot of state and two snapshots */
    engine_option_int(o, "kv-memory",
                      engine_state_memory(s->pages * (int64_t)vt_kv_page_bytes(&shape, page),
                                          vt_kv_slot_bytes(&shape), s->running, 3 * s->running,
                                          s->draft));
    engine_option(o, "kv-dtype", s->fp8_kv ? "fp8" : "auto");
    engine_option_flag(o, "deterministic", s->deterministic);
    engine_option_flag(o, "no-graphs", s->no_graphs);
    engine_option_flag(o, "no-overlap", s->no_overlap);
    engine_option_flag(o, "no-prefix-cache", s->no_prefix_cache);
    engine_option_flag(o, "keep-window-kv", s->keep_windows);
    engine_option(o, "draft", s->draft ? "lookup" : "off");
    vt_engine *e = engine_open(m, o);
    vt_options_free(o);
    return e;
}

static void submit(vt_engine *e, request *r)
{
    memset(&r->now, 0, sizeof r->now);
    r->error[0] = 0;
    if (r->striped)
        striped_submit(e, &r->p, r->striped);
    else
        engine_submit(e, &r->p);
}

/* Runs each request alone. */
static void run_alone(const vt_model *m, const setup *s, request *r, outcome *out)
{
    vt_engine *e = open_engine(m, s);
    for (int32_t k = 0; k < REQUESTS; k++) {
        submit(e, &r[k]);
        engine_run(e);
        assert_true(r[k].now.ended);
        out[k] = r[k].now;
    }
    vt_engine_free(e);
}

enum { TOGETHER = 3 };

/* Runs the first requests, with two steps between each and the next. */
static void run_together(const vt_model *m, const setup *s, request *r, outcome *out)
{
    vt_engine *e = open_engine(m, s);
    for (int32_t k = 0; k < TOGETHER; k++) {
        r[k].p.max_tokens = 8;
        submit(e, &r[k]);
        engine_step(e);
        engine_step(e);
    }
    engine_run(e);
    for (int32_t k = 0; k < TOGETHER; k++) {
        assert_true(r[k].now.ended);
        out[k] = r[k].now;
    }
    vt_engine_free(e);
}

static void assert_same(const outcome *a, const outcome *b, const char *what, int32_t k)
{
    if (memcmp(a, b, sizeof *a) == 0)
        return;
    for (int32_t i = 0; i < TOKENS; i++)
        if (a->token[i] != b->token[i] || a->logprob[i] != b->logprob[i])
            fail_msg("%s: request %d, token %d of %d and %d: %d (%.9g), expected %d (%.9g)", what,
                     k, i, a->n, b->n, a->token[i], (double)a->logprob[i], b->token[i],
                     (double)b->logprob[i]);
    fail_msg("%s: request %d has %d tokens, expected %d", what, k, a->n, b->n);
}

/* ---- tests ---- */

/* The same schedule with graphs off, and with overlap off. A graph is padded to its bucket, so
 * equal bits are promised only with --deterministic, which cuts in fixed places. */
static void test_tokens_when_graphs_or_overlap_are_off_then_the_same(void **state)
{
    (void)state;
    const setup plain = {.emulator = "cc=90,memory=512",
                         .running = 4,
                         .budget = 40,
                         .pages = 64,
                         .deterministic = true};
    vt_model *m = tiny_model("qwen3");
    request r[REQUESTS];
    outcome want[REQUESTS], got[REQUESTS];
    rng = 1;
    write_requests(r, m->arch.vocab);
    run_together(m, &plain, r, want);
    for (int i = 0; i < 2; i++) {
        setup other = plain;
        other.no_graphs = i == 0;
        other.no_overlap = i == 1;
        run_together(m, &other, r, got);
        for (int32_t k = 0; k < TOGETHER; k++)
            assert_same(&got[k], &want[k], i == 0 ? "no-graphs" : "no-overlap", k);
    }
    vt_model_free(m);
}

/* A model of common/tiny_model.h, or one without a file. */
static vt_model *open_model(const char *name)
{
    vt_model *m;
    vt_err err;
    if (strncmp(name, "dummy:", 6) != 0)
        return tiny_model(name);
    if (vt_model_load(name, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return m;
}

/* Random schedules in a cache of few pages. With `draft` steps verify guesses, which the requests
 * that run alone do not have. With `crowded` the cache is another one, in which layers with a
 * window have pages of their own; those of the requests that run alone keep all KV. */
static void run_schedules_in(const char *model, int32_t cc, bool fp8_kv, bool draft,
                             int32_t schedules, const setup *crowded)
{
    char single[40], many[40];
    snprintf(single, sizeof single, "cc=%d,memory=512", cc);
    snprintf(many, sizeof many, "cc=%d,memory=512,order=11", cc);
    const setup alone = {.emulator = single,
                         .running = 1,
                         .budget = 64,
                         .pages = 64,
                         .deterministic = true,
                         .no_overlap = true,
                         .no_prefix_cache = true,
                         .keep_windows = true,
                         .fp8_kv = fp8_kv};
    setup crowd = {.emulator = many,
                   .running = 4,
                   .budget = 40,
                   .pages = crowded ? crowded->pages : 8,
                   .page = crowded ? crowded->page : 0,
                   .context = crowded ? crowded->context : 0,
                   .deterministic = true,
                   .fp8_kv = fp8_kv,
                   .draft = draft};
    vt_model *m = open_model(model);
    vt_engine_stats st;
    request r[REQUESTS];
    outcome want[REQUESTS];
    rng = 2;
    write_requests(r, m->arch.vocab);
    r[0].p.allowed = r[0].prompt; /* of two tokens three in a row come again: drafts */
    r[0].p.n_allowed = 2;
    if (strncmp(model, "dummy:", 6) == 0) { /* its greedy text is guessed too well */
        r[1].p.allowed = r[1].prompt;
        r[1].p.n_allowed = 2;
    }
    run_alone(m, &alone, r, want);
    vt_engine *e = open_engine(m, &crowd);
    assert_int_equal(vt_engine_scheduler(e)->config.n_windows > 0, crowded != NULL);
    for (int32_t s = 0; s < schedules; s++) {
        for (int32_t i = 0; i < REQUESTS; i++) {
            submit(e, &r[(i * 5 + s) % REQUESTS]);
            for (int32_t n = between(0, 1) * between(0, 5); n > 0; n--)
                engine_step(e);
        }
        engine_run(e);
        for (int32_t k = 0; k < REQUESTS; k++) {
            char what[40];
            snprintf(what, sizeof what, "schedule %d", s);
            assert_same(&r[k].now, &want[k], what, k);
        }
    }
    vt_engine_copy_stats(e, &st);
    print_message("%llu retractions, %llu tokens hit, %llu copied, %llu of %llu drafts right\n",
                  (unsigned long long)st.sched.retracted, (unsigned long long)st.cache.hit_tokens,
                  (unsigned long long)st.cache.copied_tokens,
                  (unsigned long long)st.sched.draft_accepted,
                  (unsigned long long)st.sched.draft_tokens);
    assert_true(crowded ? st.cache.evicted_windows > 0 : st.sched.retracted > 0);
    assert_true(st.cache.hit_tokens > 0);
    assert_true(st.cache.copied_tokens > 0 || st.cache.kept_states > 0);
    if (draft)
        assert_true(st.sched.draft_accepted > 0 && st.sched.draft_accepted < st.sched.draft_tokens);
    vt_engine_free(e);
    vt_model_free(m);
}

static void run_schedules(const char *model, int32_t cc, bool fp8_kv, bool draft, int32_t schedules)
{
    run_schedules_in(model, cc, fp8_kv, draft, schedules, NULL);
}

/* Pages that their windows have passed are used again, by others and for prefixes. Pages of 4
 * tokens are passed often; those of 16 are what the kernels for Hopper take. */
static void test_tokens_when_windows_free_their_pages_then_bitwise_the_same(void **state)
{
    (void)state;
    const setup small = {.page = 4, .context = 136, .pages = 34},
                large = {.context = 176, .pages = 11}, mixed = {.context = 256, .pages = 16};
    run_schedules_in("gpt-oss", 80, false, true, SCHEDULES / 2, &small);
#ifndef VT_SANITIZE
    run_schedules_in("gpt-oss", 90, true, false, SCHEDULES / 2, &large);
    run_schedules_in("mixed", 90, false, true, SCHEDULES / 2, &mixed);
#else
    (void)large, (void)mixed;
#endif
}

static void test_tokens_when_deterministic_then_bitwise_the_same_in_any_schedule(void **state)
{
    (void)state;
    run_schedules("qwen3", 80, false, true, SCHEDULES);
    run_schedules("mixed", 90, true, false, SCHEDULES / 2); /* two groups of K and V */
#ifndef VT_SANITIZE
    run_schedules("qwen3", 80, true, false, SCHEDULES / 2);
    run_schedules("qwen3", 90, true, true, SCHEDULES / 2);
    run_schedules("mixed_state", 90, true, false, SCHEDULES / 2);
    run_schedules("mixed_state", 90, false, true, SCHEDULES / 2);
    run_schedules("dummy:qwen3.5-tiny", 90, false, true, SCHEDULES / 2);
#endif
}

/* Decode attention reads KV before the kernel in front of it has ended, but not that of the tokens
 * whose guesses the step verifies. The race detector of the emulated GPU sees whether it does. */
static void run_guesses_racing(const char *model)
{
    const setup s = {.emulator = "cc=90,memory=512,race",
                     .running = 3,
                     .budget = 40,
                     .pages = 16,
                     .draft = true};
    vt_model *m = open_model(model);
    vt_engine_stats st;
    request r[REQUESTS];
    rng = 2;
    write_requests(r, m->arch.vocab);
    vt_engine *e = open_engine(m, &s);
    for (int32_t k = 0; k < 3; k++) {
        r[k].p.allowed = r[k].prompt;
        r[k].p.n_allowed = 2;
        submit(e, &r[k]);
    }
    engine_run(e);
    for (int32_t k = 0; k < 3; k++)
        if (!r[k].now.ended)
            fail_msg("%s", r[k].error);
    vt_engine_copy_stats(e, &st);
    assert_true(st.sched.draft_accepted > 10);
    vt_engine_free(e);
    vt_model_free(m);
}

static void test_kernels_when_steps_verify_guesses_then_no_race(void **state)
{
    (void)state;
#ifdef VT_SANITIZE
    skip();
#endif
    run_guesses_racing("qwen3");
    run_guesses_racing("dummy:qwen3.5-tiny");
}

/* A prefix hit gives the same KV as computing it: log-probabilities of greedy tokens stay close. */
static void run_twice(bool fp8_kv)
{
    const setup s = {
        .emulator = "cc=90,memory=512", .running = 4, .budget = 40, .pages = 64, .fp8_kv = fp8_kv};
    vt_model *m = tiny_model("qwen3");
    request r[REQUESTS];
    outcome cold;
    rng = 3;
    write_requests(r, m->arch.vocab);
    r[0].p.max_tokens = 3;
    vt_engine *e = open_engine(m, &s);
    submit(e, &r[0]);
    engine_run(e);
    cold = r[0].now;
    assert_int_equal(r[0].cached, 0);
    submit(e, &r[0]);
    engine_run(e);
    assert_true(r[0].cached >= 16);
    assert_int_equal(r[0].now.token[0], cold.token[0]);
    assert_true(fabsf(r[0].now.logprob[0] - cold.logprob[0]) < 0.05f);
    vt_engine_free(e);
    vt_model_free(m);
}

static void test_tokens_when_prefix_is_cached_then_near_those_without(void **state)
{
    (void)state;
    run_twice(false);
    run_twice(true);
}

enum { CROWD = 5, COMMON = 68 };

/* What an executor reports about itself. */
typedef struct work {
    double shared_items, n_kernels;
} work;

/* Runs requests with a common beginning, submitted while the first of them runs, `running` at the
 * same time. The report that it returns says how many attention items served several sequences. */
static work run_alike(const vt_model *m, const char *shared, int32_t running, request *r,
                      outcome *out)
{
    const setup s = {.emulator = "cc=90,memory=512", .running = running, .budget = 80, .pages = 64};
    setenv("VITRINE_CUDA_SHARED", shared, 1);
    vt_engine *e = open_engine(m, &s);
    unsetenv("VITRINE_CUDA_SHARED");
    submit(e, &r[0]);
    for (int i = 0; i < 3; i++)
        engine_step(e);
    for (int32_t k = 1; k < CROWD; k++)
        submit(e, &r[k]);
    assert_false(r[0].now.ended);
    engine_run(e);
    for (int32_t k = 0; k < CROWD; k++) {
        assert_true(r[k].now.ended);
        assert_int_equal(r[k].cached >= COMMON / 16 * 16, k > 0 && k < CROWD - 1);
        out[k] = r[k].now;
    }
    const vt_executor *x = vt_engine_executor(e);
    work now = {vt_executor_value(x, "shared_items", -1),
                vt_executor_value(x, "startup.kernels", -1)};
    assert_int_equal(vt_executor_value(x, "late_compiles", -1), 0);
    vt_engine_free(e);
    return now;
}

/* Log-probabilities that differ by less than this count as equal. */
static void test_tokens_when_pages_are_shared_then_near_those_read_apart(void **state)
{
    (void)state;
    vt_model *m = tiny_model("gemma3"); /* windows in some layers */
    static int32_t prompt[CROWD][COMMON + CROWD];
    request r[CROWD];
    outcome together[CROWD], apart[CROWD], few[CROWD];
    int32_t compared = 0;
    rng = 5;
    for (int32_t k = 0; k < CROWD; k++) {
        r[k] = (request){0};
        vt_request_init(&r[k].p);
        for (int32_t i = 0; i < COMMON + CROWD; i++)
            prompt[k][i] = k > 0 && k < CROWD - 1 && i < COMMON ? prompt[0][i]
                                                                : between(0, m->arch.vocab - 1);
        r[k].p.prompt = prompt[k];
        r[k].p.n_prompt = COMMON + 1 + k;
        r[k].p.max_tokens = k > 0 ? 8 : 16;
        r[k].p.ignore_eos = true;
        r[k].p.temperature = 0;
        r[k].p.logprobs = 0;
        r[k].p.callback = on_event;
        r[k].p.user = &r[k];
    }
    work one = run_alike(m, "1", 8, r, together), none = run_alike(m, "0", 8, r, apart),
         four = run_alike(m, "1", 4, r, few); /* at most four decode at the same time */
    assert_true(one.shared_items > 4);        /* one in a step of several decodes */
    assert_int_equal(none.shared_items, 0);
    assert_int_equal(four.shared_items, 0);
    /* kernels of few decodes, of more, and of more that share pages, each for layers with windows
     * and without; the first two turn q and k themselves, or not */
    assert_int_equal(one.n_kernels, none.n_kernels + 2);
    assert_int_equal(four.n_kernels, none.n_kernels - 4);
    for (int32_t k = 0; k < CROWD; k++)
        for (int32_t i = 0; i < apart[k].n; i++, compared++) {
            assert_true(fabsf(together[k].logprob[i] - apart[k].logprob[i]) < 0.05f);
            if (together[k].token[i] != apart[k].token[i])
                break;
        }
    assert_true(compared > 24);
    vt_model_free(m);
}

static bool contains(const int32_t *ids, int32_t n, int32_t id)
{
    while (n > 0 && ids[n - 1] != id)
        n--;
    return n > 0;
}

/* The second of three requests may use a few ids, all ids, or one id. The requests beside it do not
 * change, and `all` changes nothing. If no id can be chosen, the error says so. */
static void check_allowed(const vt_model *m, const setup *s)
{
    enum { FEW = 5 };
    int32_t few[FEW] = {31, 32, 0, m->arch.vocab - 1, 64}, *all;
    request r[REQUESTS];
    outcome want[TOGETHER], got[TOGETHER];
    rng = 1;
    write_requests(r, m->arch.vocab);
    r[1].p.logprobs = 0;
    run_together(m, s, r, want);
    r[1].p.allowed = few;
    r[1].p.n_allowed = FEW;
    run_together(m, s, r, got);
    assert_same(&got[0], &want[0], "beside a mask", 0);
    assert_same(&got[2], &want[2], "beside a mask", 2);
    assert_int_equal(got[1].n, r[1].p.max_tokens);
    for (int32_t i = 0; i < got[1].n; i++)
        assert_true(contains(few, FEW, got[1].token[i]));
    assert_false(contains(few, FEW, want[1].token[0]));
    all = calloc((size_t)m->arch.vocab, sizeof *all);
    for (int32_t i = 0; i < m->arch.vocab; i++)
        all[i] = i;
    r[1].p.allowed = all;
    r[1].p.n_allowed = m->arch.vocab;
    run_together(m, s, r, got);
    assert_same(&got[1], &want[1], "all allowed", 1);
    free(all);

    vt_engine *e = open_engine(m, s);
    r[1].p.allowed = few;
    r[1].p.n_allowed = 1;
    submit(e, &r[1]);
    engine_run(e);
    for (int32_t i = 0; i < r[1].now.n; i++)
        assert_true(r[1].now.token[i] == few[0] && fabsf(r[1].now.logprob[i]) < 1e-5f);
    const vt_logit_bias never = {few[0], -INFINITY};
    r[1].p.logit_bias = &never;
    r[1].p.n_logit_bias = 1;
    submit(e, &r[1]);
    engine_run(e);
    assert_int_equal(r[1].finish, VT_FINISH_ERROR);
    assert_non_null(strstr(r[1].error, "none of the allowed tokens can be chosen"));
    vt_engine_free(e);
}

static void test_tokens_when_only_some_are_allowed_then_no_others(void **state)
{
    (void)state;
    setup s = {.emulator = "cc=90,memory=512",
               .running = 4,
               .budget = 40,
               .pages = 64,
               .deterministic = true};
    vt_model *m = tiny_model("qwen3");
    check_allowed(m, &s);
    s.emulator = "cc=80,memory=512,order=3";
    s.no_graphs = true;
    check_allowed(m, &s);
    s.cpu = true;
    s.no_graphs = false;
    check_allowed(m, &s);
    vt_model_free(m);
}

/* Steps of an engine that another thread began. */
static void *run_elsewhere(void *engine)
{
    engine_run(engine);
    return NULL;
}

static void test_engines_when_two_take_turns_and_threads_change_then_as_alone(void **state)
{
    (void)state;
    const setup s = {.emulator = "cc=90,memory=1024",
                     .running = 4,
                     .budget = 40,
                     .pages = 64,
                     .deterministic = true};
    vt_model *m = tiny_model("qwen3");
    request r[REQUESTS], again[REQUESTS];
    outcome want[REQUESTS];
    pthread_t thread;
    rng = 6;
    write_requests(r, m->arch.vocab);
    for (int32_t k = 0; k < REQUESTS; k++)
        r[k].p.max_tokens = 6;
    run_alone(m, &s, r, want);
    memcpy(again, r, sizeof again);
    vt_engine *a = open_engine(m, &s), *b = open_engine(m, &s);
    for (int32_t k = 0; k < TOGETHER; k++) {
        again[k].p.prompt = again[k].prompt;
        again[k].p.user = &again[k];
        submit(a, &r[k]);
        submit(b, &again[k]);
        engine_step(a);
        engine_step(b);
    }
    assert_int_equal(pthread_create(&thread, NULL, run_elsewhere, a), 0);
    pthread_join(thread, NULL);
    vt_engine_free(a);
    engine_run(b);
    vt_engine_free(b);
    for (int32_t k = 0; k < TOGETHER; k++) {
        assert_same(&r[k].now, &want[k], "the first engine", k);
        assert_same(&again[k].now, &want[k], "the second engine", k);
    }

    /* one request, so that the last step is waited for and nothing launched before */
    a = open_engine(m, &s);
    r[0].p.max_tokens = 1;
    submit(a, &r[0]);
    engine_step(a);
    assert_false(r[0].now.ended);
    assert_int_equal(pthread_create(&thread, NULL, run_elsewhere, a), 0);
    pthread_join(thread, NULL);
    assert_int_equal(r[0].finish, VT_FINISH_LENGTH);
    vt_engine_free(a);
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_when_graphs_or_overlap_are_off_then_the_same),
        cmocka_unit_test(test_tokens_when_deterministic_then_bitwise_the_same_in_any_schedule),
        cmocka_unit_test(test_tokens_when_windows_free_their_pages_then_bitwise_the_same),
        cmocka_unit_test(test_kernels_when_steps_verify_guesses_then_no_race),
        cmocka_unit_test(test_tokens_when_prefix_is_cached_then_near_those_without),
        cmocka_unit_test(test_tokens_when_pages_are_shared_then_near_those_read_apart),
        cmocka_unit_test(test_tokens_when_only_some_are_allowed_then_no_others),
        cmocka_unit_test(test_engines_when_two_take_turns_and_threads_change_then_as_alone),
    };
    return cmocka_run_group_tests_name("cuda_engine", tests, emulated_gpu_open, NULL);
}
