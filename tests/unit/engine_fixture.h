/* An engine on the fake device, and a log of what its callbacks said, for the engine's tests. */
#ifndef VT_TESTS_ENGINE_FIXTURE_H
#define VT_TESTS_ENGINE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/end_reason.h"
#include "engine/engine.h"
#include "sim/fake_device.h"

enum { LOG_TOKENS = 4096, LOG_TEXT = 8192 };

/* What the callback was told about one completion. */
typedef struct heard {
    vt_engine *engine;   /* to abort from the callback */
    int32_t abort_after; /* tokens; 0: never */
    int32_t token[LOG_TOKENS], n;
    char text[LOG_TEXT];
    size_t text_len;
    int32_t n_ends, n_events, cached, n_scores;
    float score[LOG_TOKENS];
    vt_finish finish;
    vt_end_reason end_reason;
    char error[200];
} heard;

static inline void hear(void *user, const vt_event *e)
{
    heard *h = user;
    h += e->sample; /* a request with n > 1 brings n of them */
    assert_int_equal(h->n_ends, 0);
    h->n_events++;
    if (e->n_tokens > 0 && e->completion_tokens == 0) {
        for (int32_t i = 0; i < e->n_tokens; i++)
            h->score[h->n_scores++] = e->logprobs[i].logprob;
        return;
    }
    for (int32_t i = 0; i < e->n_tokens; i++)
        h->token[h->n++] = e->tokens[i];
    memcpy(h->text + h->text_len, e->text ? e->text : "", e->text_len);
    h->text_len += e->text_len;
    h->cached = e->cached_tokens;
    if (e->finish != VT_FINISH_NONE) {
        h->n_ends++;
        h->finish = e->finish;
        h->end_reason = e->end_reason;
        snprintf(h->error, sizeof h->error, "%s", e->error ? e->error : "");
    }
    if (h->abort_after > 0 && h->n >= h->abort_after)
        vt_engine_abort(h->engine, e->request);
}

typedef struct fixture {
    vt_engine_config config;
    vt_fake_config device;
    vt_fake_clock clock;
    vt_executor *executor;
    vt_engine *engine;
    int32_t eos[1];
} fixture;

/* Defaults a test may change before fixture_open. Token 255 ends a completion. */
static inline void fixture_defaults(fixture *f)
{
    memset(f, 0, sizeof *f);
    vt_limits lim = {
        .max_tokens = 64, .max_seqs = 4, .max_rows = 16, .max_context = 512, .page_size = 4};
    f->eos[0] = 255;
    f->config = (vt_engine_config){.sched = {.limits = lim,
                                             .n_pages = 256,
                                             .max_queued = 16,
                                             .prefix_cache = true,
                                             .eos = f->eos,
                                             .n_eos = 1},
                                   .request = {.vocab = 256},
                                   .overlap = true,
                                   .now = vt_fake_now,
                                   .clock = &f->clock};
}

static inline void fixture_open(fixture *f)
{
    vt_err err;
    f->config.request.max_context = f->config.sched.limits.max_context;
    f->device.limits = f->config.sched.limits;
    f->device.n_pages = f->config.sched.n_pages;
    f->device.n_pool_slots = f->config.sched.limits.max_seqs;
    f->device.vocab = f->config.request.vocab;
    f->device.clock = f->config.now ? &f->clock : NULL;
    assert_int_equal(vt_fake_device_new(&f->device, &f->executor, &err), VT_OK);
    assert_int_equal(vt_engine_create(&f->config, f->executor, &f->engine, &err), VT_OK);
}

static inline void fixture_close(fixture *f) { vt_engine_free(f->engine); }

static inline vt_request_params ask(const int32_t *prompt, int32_t n, int32_t max_tokens, heard *h)
{
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = n;
    p.max_tokens = max_tokens;
    p.ignore_eos = true;
    p.callback = hear;
    p.user = h;
    return p;
}

static inline vt_request_id submit(fixture *f, const vt_request_params *p)
{
    vt_err err;
    vt_request_id id = 0;
    if (vt_engine_submit(f->engine, p, &id, &err) != VT_OK)
        fail_msg("%s", err.message);
    return id;
}

/* One step with every invariant checked; true if there was something to do. */
static inline bool step(fixture *f)
{
    vt_err err;
    bool idle = true;
    if (vt_engine_step(f->engine, &idle, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_string_equal(vt_fake_violation(f->executor), "");
    if (vt_sched_check(vt_engine_scheduler(f->engine), &err) != VT_OK)
        fail_msg("%s", err.message);
    return !idle;
}

static inline void run_all(fixture *f)
{
    for (int32_t i = 0; step(f); i++)
        assert_true(i < 100000);
}

/* The plan that was made last: with overlap its step is in flight. */
static inline const vt_plan *last_plan(const fixture *f)
{
    const vt_sched *s = vt_engine_scheduler(f->engine);
    return s->plan[0].step.id > s->plan[1].step.id ? &s->plan[0] : &s->plan[1];
}

static inline void count_up(int32_t *ids, int32_t n, int32_t from)
{
    for (int32_t i = 0; i < n; i++)
        ids[i] = (from + i) % 251;
}

#endif
