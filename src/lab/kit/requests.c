/* Running requests in a lab: an engine of its own, requests driven to their end, their stories. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "device/choose.h"
#include "files/json.h"
#include "lab/kit/devices.h"

enum { WARM_PROMPT = 32 };

/* ---- the engine ---- */

static vt_status set_all(lab *l, vt_options *o, const char *const *settings, vt_err *err)
{
    char device[16], threads[16];
    vt_device_name(l->ordinal, device, sizeof device);
    snprintf(threads, sizeof threads, "%d", l->threads);
    TRY(vt_options_set(o, "model", l->model, err));
    TRY(vt_options_set(o, "device", device, err));
    if (l->ordinal < 0)
        TRY(vt_options_set(o, "threads", threads, err));
    for (; settings && settings[0]; settings += 2) {
        /* what a command asks of an engine: a story of its first steps, a folder for stories */
        const vt_option *other = vt_option_find(settings[0], ~0u);
        if (other && !(other->verbs & VT_FOR_ENGINE))
            TRY(vt_options_assign(o, other, settings[1], "the lab", err));
        else
            TRY(vt_options_set(o, settings[0], settings[1], err));
    }
    return VT_OK;
}

vt_status lab_engine_open(lab *l, const char *const *settings, vt_engine **out, vt_err *err)
{
    vt_options *o = NULL;
    int64_t begin_ns = vt_now_ns();
    TRY(vt_options_new(&o, err));
    vt_status status = set_all(l, o, settings, err);
    if (status == VT_OK && !l->device->model) {
        lab_note(l, "loading %s ...", l->model);
        status = vt_model_open(o, &l->device->model, err);
    }
    if (status == VT_OK)
        status = vt_engine_new(l->device->model, o, out, err);
    vt_options_free(o);
    if (status == VT_OK)
        lab_event(l, begin_ns, "an engine is made for %s", l->model);
    return status;
}

void lab_random_prompt(lab *l, uint64_t seed, int32_t *out, int32_t n)
{
    const vt_model *m = l->device->model;
    uint64_t state = seed;
    int32_t vocab = vt_model_vocab_size(m);
    for (int32_t i = 0; i < n; i++)
        do
            out[i] = (int32_t)(vt_random_next(&state) % (uint64_t)vocab);
        while (vt_model_token_is_special(m, out[i]));
}

/* ---- requests ---- */

typedef struct driving {
    lab_request *r;
    int64_t begin_ns;
    int32_t *left; /* requests that have not ended */
} driving;

static void on_event(void *user, const vt_event *e)
{
    driving *d = user;
    lab_request *r = d->r;
    int64_t at_ns = e->made_ns > 0 ? e->made_ns : vt_now_ns();
    for (int32_t i = 0; i < e->n_tokens && r->n_tokens < r->n_gen; i++) {
        r->token[r->n_tokens] = e->tokens[i];
        r->token_s[r->n_tokens++] = (double)(at_ns - d->begin_ns) * 1e-9;
    }
    if (r->n_tokens > 0 && isnan(r->ttft_s))
        r->ttft_s = r->token_s[0];
    if (e->finish == VT_FINISH_NONE)
        return;
    r->n_cached = e->cached_tokens;
    r->error = e->finish == VT_FINISH_ERROR;
    r->total_s = (double)(at_ns - d->begin_ns) * 1e-9;
    --*d->left;
}

static vt_status submit(vt_engine *e, driving *d, vt_err *err)
{
    vt_request_params p;
    lab_request *r = d->r;
    vt_request_init(&p);
    p.prompt = r->prompt;
    p.n_prompt = r->n_prompt;
    p.max_tokens = r->n_gen;
    p.ignore_eos = true;
    p.callback = on_event;
    p.user = d;
    r->ttft_s = r->total_s = NAN;
    r->token_s = vt_calloc((size_t)r->n_gen, sizeof *r->token_s);
    r->token = vt_calloc((size_t)r->n_gen, sizeof *r->token);
    if (!r->token_s || !r->token)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d tokens", r->n_gen);
    d->begin_ns = vt_now_ns();
    return vt_engine_submit(e, &p, &r->id, err);
}

vt_status lab_requests_run(lab *l, vt_engine *e, lab_request *r, int32_t n, vt_err *err)
{
    l->ran = true;
    int64_t begin_ns = vt_now_ns(), made = 0, prompts = 0;
    int32_t left = 0;
    bool idle = false;
    vt_status status = VT_OK;
    driving *d = vt_calloc((size_t)n, sizeof *d);
    if (!d)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d requests", n);
    for (int32_t i = 0; status == VT_OK && i < n; i++) {
        d[i] = (driving){.r = &r[i], .left = &left};
        status = submit(e, &d[i], err);
        left += status == VT_OK;
    }
    while (left > 0) { /* also after an error: their callbacks point into d */
        vt_status step = vt_engine_step(e, &idle, status == VT_OK ? err : NULL);
        if (status == VT_OK)
            status = step;
        if (step != VT_OK)
            for (int32_t i = 0; i < n; i++)
                vt_engine_abort(e, r[i].id);
    }
    free(d);
    for (int32_t i = 0; status == VT_OK && i < n; i++)
        if (r[i].error)
            status = vt_fail(err, VT_ERR_DEVICE, "request %llu ended with an error",
                             (unsigned long long)r[i].id);
    for (int32_t i = 0; status == VT_OK && i < n; i++) {
        prompts += r[i].n_prompt;
        made += r[i].n_tokens;
    }
    if (status == VT_OK)
        lab_event(l, begin_ns,
                  "%d request%s: %lld prompt tokens in, %lld tokens out; first token "
                  "after %f s",
                  n, vt_text_s(n), (long long)prompts, (long long)made, n > 0 ? r[0].ttft_s : NAN);
    return status;
}

vt_status lab_engine_warm(lab *l, vt_engine *e, vt_err *err)
{
    int32_t prompt[WARM_PROMPT];
    lab_request r = {.prompt = prompt, .n_prompt = WARM_PROMPT, .n_gen = 2};
    lab_random_prompt(l, 999, prompt, WARM_PROMPT);
    vt_status status = lab_requests_run(l, e, &r, 1, err);
    lab_request_release(&r);
    return status;
}

void lab_request_release(lab_request *r)
{
    free(r->token_s);
    free(r->token);
    r->token_s = NULL;
    r->token = NULL;
}

vt_status lab_story(lab *l, vt_engine *e, vt_request_id id, json_t **out, vt_err *err)
{
    char *json;
    size_t len;
    (void)l;
    TRY(vt_engine_story(e, id, &json, &len, err));
    vt_status status = vt_json_load("story", json, len, JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE,
                                    out, err);
    vt_free(json);
    return status;
}
