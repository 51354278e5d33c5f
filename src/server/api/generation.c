#include "server/api/generation.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/random.h"
#include "engine/constraint/constraint.h"
#include "server/watch/observe.h"
#include "text/template/template.h"

/* ---- the end ---- */

static void release(generation *g)
{
    vt_server *s = g->server;
    server_saw_end(g);
    if (g->prev)
        g->prev->next = g->next;
    else
        s->first = g->next;
    if (g->next)
        g->next->prev = g->prev;
    s->n_generations--;
    for (int32_t i = 0; g->part && i < g->request.n_prompts; i++)
        server_part_release(&g->part[i]);
    free(g->part);
    if (g->form->forget)
        g->form->forget(g);
    vt_buf_release(&g->body);
    vt_free(g->log_prompt);
    json_decref(g->given);
    vt_grammar_unref(g->grammar);
    vt_openai_request_release(&g->request);
    vt_openai_reply_release(&g->reply);
    free(g);
}

/* Ends the exchange. */
static void answer(generation *g)
{
    if (g->x) {
        vt_exchange *x = g->x;
        if (g->error.http && !g->streaming) {
            generation_headers(g, true);
            g->x = NULL;
            server_reply_error(x, &g->error);
        } else {
            g->form->end(g); /* ends the exchange */
            g->x = NULL;
        }
    }
}

static void finish(generation *g)
{
    g->at.end = vt_now_ns();
    answer(g);
    release(g);
}

/* The last event of the generation has come, to this part: writing its end, or all of an answer in
 * one piece, counts for it. Then the engine is told what writing took. */
static void finish_told(generation *g, server_part *last)
{
    bool there = g->x != NULL;
    g->at.end = vt_now_ns();
    answer(g);
    int64_t end_ns = there ? server_part_took(last) : 0;
    int64_t n_bytes = g->note ? (int64_t)g->note->bytes : 0;
    for (int32_t i = 0; i < g->n_submitted; i++) {
        const server_part *p = &g->part[i];
        if (end_ns && p->write_begin_ns)
            vt_engine_wrote(g->server->engine, p->id, p->write_begin_ns, end_ns, p->write_ns,
                            n_bytes / g->n_submitted);
    }
    release(g);
}

static bool is_gone(const generation *g) { return __atomic_load_n(&g->gone, __ATOMIC_RELAXED); }

/* The client has left: the engine is told at once, so that its pages are free after the step under
 * way. The generation itself goes when the last event has come. */
void generation_give_up(generation *g)
{
    g->x = NULL;
    __atomic_store_n(&g->gone, true, __ATOMIC_RELAXED);
    for (int32_t i = 0; i < g->n_submitted; i++)
        vt_engine_abort(g->server->engine, g->part[i].id);
}

static void on_gone(void *user, vt_exchange *x)
{
    (void)x;
    generation_give_up(user);
}

void generation_cancel(generation *g)
{
    __atomic_store_n(&g->cancelled, true, __ATOMIC_RELAXED);
    for (int32_t i = 0; i < g->n_submitted; i++)
        vt_engine_abort(g->server->engine, g->part[i].id);
}

void generation_abort_all(vt_server *s)
{
    for (generation *g = s->first; g; g = g->next)
        for (int32_t i = 0; i < g->n_submitted; i++)
            vt_engine_abort(s->engine, g->part[i].id);
}

void generation_release_all(vt_server *s)
{
    while (s->first)
        release(s->first);
}

/* ---- events ---- */

/* No 5xx: clients would send the request again, which somebody has just ended. */
static void refuse_aborted(generation *g)
{
    vt_openai_refuse(&g->error, 499, NULL, "the request was aborted");
}

static void on_event(server_part *part, const vt_event *e)
{
    generation *g = part->owner;
    g->n_chunks = e->n_chunks > g->n_chunks ? e->n_chunks : g->n_chunks;
    g->n_retracted = e->n_retracted > g->n_retracted ? e->n_retracted : g->n_retracted;
    if (e->finish != VT_FINISH_NONE) {
        g->draft_tokens += e->draft_tokens;
        g->draft_accepted += e->draft_accepted;
        g->n_masks += e->n_masks;
        g->n_new_masks += e->n_new_masks;
        g->forced_tokens += e->forced_tokens;
        g->mask_ns += e->mask_ns;
        if (e->slowest_mask_ns > g->slowest_mask_ns)
            g->slowest_mask_ns = e->slowest_mask_ns;
    }
    if (e->admitted_ns && (!g->at.admitted || e->admitted_ns < g->at.admitted))
        g->at.admitted = e->admitted_ns;
    if (g->request.p.max_tokens == 0 && vt_openai_is_score(e)) /* the scores are the answer */
        g->at.first_token = g->at.last_token = e->made_ns;
    if (e->n_tokens > 0 && e->completion_tokens > 0 && e->made_ns) {
        g->at.first_token = g->at.first_token ? g->at.first_token : e->made_ns;
        g->at.last_token = e->made_ns;
    }
    server_saw_event(g, part->prompt, e);
    if (g->x && !g->error.http && g->form->event)
        g->form->event(g, part->prompt, e);
    vt_openai_reply_event(&g->reply, part->prompt, e);
    if (g->reply.error.http && !g->error.http)
        g->error = g->reply.error;
    /* these forms have no word for an answer that somebody ended, and would call it whole */
    if (e->finish == VT_FINISH_ABORT && g->form->translate && !g->error.http)
        refuse_aborted(g);
    if (g->x && !g->error.http && g->form->told)
        g->form->told(g, part->prompt, e);
    if (g->streaming)
        (void)server_part_took(part);
    if (g->reply.n_open == 0)
        finish_told(g, part);
}

/* ---- submitting ---- */

static void use_own_names(generation *g)
{
    if (g->error.http && g->form->own_names)
        g->form->own_names(&g->error);
}

/* A prompt could not be submitted: the others of the same request end. */
static void fail_submit(generation *g, const vt_err *why)
{
    vt_openai_refuse_submit(&g->error, why, g->form->api, &g->request, g->server->model);
    use_own_names(g);
    for (int32_t i = 0; i < g->n_submitted; i++)
        vt_engine_abort(g->server->engine, g->part[i].id);
    g->reply.n_open -= g->reply.n_each * (g->request.n_prompts - g->n_submitted);
    if (g->reply.n_open == 0)
        finish(g);
}

static vt_status submit_part(generation *g, int32_t i, vt_err *err)
{
    vt_request_params *p = &g->request.p;
    server_part *part = &g->part[i];
    vt_openai_request_select(&g->request, i);
    *part = (server_part){.event = on_event, .owner = g, .prompt = i};
    TRY(server_part_init(part, g->server->events, p->n, err));
    p->callback = server_part_callback;
    p->user = part;
    p->arrived_ns = g->at.began;
    p->parsed_ns = g->at.parsed;
    p->rendered_ns = g->at.rendered;
    p->tokenised_ns = g->at.tokenised;
    if (g->server->request_timeout_s > 0 && p->timeout_s <= 0)
        p->timeout_s = g->server->request_timeout_s;
    return vt_engine_submit_prepared(g->server->engine, p, g->grammar, &part->id, err);
}

static vt_status set_salt(generation *g, vt_err *err)
{
    vt_openai_request *r = &g->request;
    if (g->form->probe || server_caller_salt(g->server, g->key, &r->p.cache_salt, &r->arena))
        return VT_OK;
    return vt_fail(err, VT_ERR_MEMORY, "out of memory for a request");
}

static void submit(generation *g)
{
    vt_err err;
    g->part = vt_calloc((size_t)g->request.n_prompts, sizeof *g->part);
    vt_status status = g->part ? vt_openai_reply_init(&g->reply, &g->request, g->server->model,
                                                      g->id, &err)
                               : vt_fail(&err, VT_ERR_MEMORY, "out of memory for a request");
    if (status == VT_OK)
        status = set_salt(g, &err);
    g->at.submitted = vt_now_ns();
    while (status == VT_OK && g->n_submitted < g->request.n_prompts) {
        status = submit_part(g, g->n_submitted, &err);
        g->n_submitted += status == VT_OK;
    }
    if (status != VT_OK)
        fail_submit(g, &err);
}

/* ---- reading ---- */

/* The beginning of the first prompt as text, for the log. */
static void keep_prompt(generation *g)
{
    enum { TOKENS = 512 };
    const vt_openai_prompt *p = &g->request.prompt[0];
    size_t len;
    (void)vt_detokenize(g->server->model, p->ids, (size_t)(p->n < TOKENS ? p->n : TOKENS),
                        &g->log_prompt, &len, NULL);
}

static bool is_given_up(void *g) { return is_gone(g); }

/* Finds or compiles the request's grammar here, so that the loop's thread need not. */
static void prepare_grammar(generation *g)
{
    vt_err why;
    if (vt_engine_prepare(g->server->engine, &g->request.p, &g->grammar, &why) != VT_OK)
        vt_openai_refuse_grammar(&g->error, &why, &g->request, g->server->model);
}

void generation_read(generation *g)
{
    json_t *body = NULL;
    const vt_template_limits limits = {.stop = is_given_up, .stop_context = g};
    vt_openai_defaults d = g->server->defaults;
    d.limits = &limits;
    if (vt_openai_json_load(g->body.data, g->body.len, &body, &g->error) != VT_OK)
        return;
    g->at.parsed = vt_now_ns();
    if (g->form->translate) {
        g->given = body;
        body = g->form->translate(body, &g->error);
        json_object_del(g->given, "messages");
        json_object_del(g->given, "input");
    }
    bool whole = body != NULL; /* else what is wrong with it has been told */
    if (whole)
        (void)vt_openai_request_read_as(body, g->form->api, g->server->model, &d, &g->request,
                                        &g->error);
    g->request.pieces = g->form->translate != NULL;
    g->at.tokenised = vt_now_ns();
    g->at.rendered = g->request.p.rendered_ns;
    json_decref(body);
    if (!g->error.http) {
        g->must_compile = vt_engine_must_compile(g->server->engine, &g->request.p);
        if (!g->must_compile)
            prepare_grammar(g);
    }
    if (whole)
        use_own_names(g);
}

static void run_read(void *arg)
{
    generation *g = arg;
    if (!is_gone(g))
        g->form->read(g);
    if (g->server->log_text && !g->error.http && g->request.n_prompts > 0)
        keep_prompt(g);
}

static void refuse_crowded(generation *g)
{
    vt_openai_refuse(&g->error, 503, NULL, "too many requests wait to be read: try again later");
}

/* A client that left while its request waited takes no time. */
static void run_compile(void *arg)
{
    generation *g = arg;
    if (is_gone(g) || __atomic_load_n(&g->cancelled, __ATOMIC_RELAXED))
        return;
    prepare_grammar(g);
    use_own_names(g);
    g->must_compile = false;
}

/* Submits what was read, or ends it. */
static void go_on(void *arg)
{
    generation *g = arg;
    if ((g->cancelled || g->must_compile) && !g->error.http)
        refuse_aborted(g);
    if (is_gone(g))
        release(g);
    else if (g->error.http)
        finish(g);
    else
        submit(g);
}

static void read_done(void *arg)
{
    generation *g = arg;
    vt_buf_release(&g->body);
    if (g->x)
        vt_web_drop_body(g->x);
    if (g->request.id)
        snprintf(g->id, sizeof g->id, "%s", g->request.id);
    if (g->must_compile && g->x && !g->cancelled) {
        const char *grammar = g->request.p.grammar;
        if (server_take_turn(g->server, g->x, grammar ? strlen(grammar) : 0, run_compile, go_on, g))
            return;
        refuse_crowded(g);
    }
    go_on(g);
}

/* The id by which the exchange is known: the client's X-Request-Id, or one of our own. */
static void choose_id(generation *g)
{
    if (g->note)
        snprintf(g->id, sizeof g->id, "%s", g->note->id);
    else
        snprintf(g->id, sizeof g->id, "%016llx",
                 (unsigned long long)vt_mix64(g->server->next_id++));
}

static bool wants_gaps(const vt_http_request *r)
{
    const char *value = vt_http_find(r, "x-vitrine-story");
    return value && strcmp(value, "1") == 0;
}

generation *generation_start(vt_server *s, vt_exchange *x, const generation_form *form)
{
    generation *g = vt_calloc(1, sizeof *g);
    if (!g || !vt_web_take_body(x, &g->body)) {
        free(g);
        server_refuse(x, 500, NULL, "out of memory for the request");
        return NULL;
    }
    g->server = s;
    g->x = x;
    g->key = server_caller_of(s, vt_web_request(x)).key;
    g->form = form;
    g->at.began = vt_web_began_ns(x);
    g->at.whole = vt_web_whole_ns(x);
    g->tells_gaps = wants_gaps(vt_web_request(x));
    g->note = vt_web_note(x);
    if (g->note)
        g->note->generation = g;
    choose_id(g);
    g->next = s->first;
    if (s->first)
        s->first->prev = g;
    s->first = g;
    s->n_generations++;
    vt_web_set_user(x, g);
    vt_web_on_gone(x, on_gone);
    if (!server_read_body(s, x, &g->body, run_read, read_done, g)) {
        refuse_crowded(g);
        finish(g);
        return NULL;
    }
    return g;
}

bool server_answer_is_named(const char *answer, const char *name)
{
    static const char *const prefix[] = {"chatcmpl-", "cmpl-", "resp_", "msg_"};
    for (int i = 0; i < 4; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            name += strlen(prefix[i]);
    return strcmp(answer, name) == 0;
}

bool generation_is_named(const generation *g, const char *name)
{
    return (g->note && strcmp(g->note->id, name) == 0) || server_answer_is_named(g->id, name);
}

/* ---- for forms ---- */

void generation_headers(generation *g, bool whole)
{
    char text[256];
    char story[24];
    if (g->n_submitted > 0) {
        snprintf(story, sizeof story, "%llu", (unsigned long long)g->part[0].id);
        vt_web_header(g->x, "X-Story-Id", story);
    }
    if (!whole || g->error.http)
        return;
    const generation_times *t = &g->at;
    int64_t first = t->first_token ? t->first_token : t->end;
    int64_t admitted = t->admitted ? t->admitted : first;
    snprintf(text, sizeof text, "read;dur=%.3f, queue;dur=%.3f, prefill;dur=%.3f, decode;dur=%.3f",
             (double)(t->submitted - t->began) * 1e-6, (double)(admitted - t->submitted) * 1e-6,
             (double)(first - admitted) * 1e-6, (double)(t->end - first) * 1e-6);
    vt_web_header(g->x, "Server-Timing", text);
}

/* Sends a piece of a stream of that type: `before`, the JSON, `after`. */
static void send_piece(generation *g, const char *type, const char *before, vt_json *w,
                       const char *after)
{
    vt_buf line = {0};
    if (g->x && vt_json_end(w)) {
        if (!g->streaming) {
            generation_headers(g, false);
            vt_web_header(g->x, "Cache-Control", "no-cache");
            vt_web_stream(g->x, 200, type);
            g->streaming = true;
        }
        vt_buf_puts(&line, before);
        vt_buf_add(&line, w->out->data, w->out->len);
        vt_buf_puts(&line, after);
        if (!line.failed)
            (void)vt_web_write(g->x, line.data, line.len);
    }
    vt_buf_release(&line);
    vt_json_release(w);
}

static const char event_stream[] = "text/event-stream; charset=utf-8";

void generation_send(generation *g, vt_json *w)
{
    send_piece(g, event_stream, "data: ", w, "\n\n");
}

void generation_send_event(generation *g, const char *name, vt_json *w)
{
    char before[80];
    snprintf(before, sizeof before, "event: %s\ndata: ", name);
    send_piece(g, event_stream, before, w, "\n\n");
}

void generation_send_line(generation *g, vt_json *w)
{
    /* white space of JSON that a model wrote; in strings a line break is escaped */
    for (size_t i = 0; w->out->data && i < w->out->len; i++)
        if (w->out->data[i] == '\n' || w->out->data[i] == '\r')
            w->out->data[i] = ' ';
    send_piece(g, "application/x-ndjson", "", w, "\n");
}

void generation_send_error(generation *g)
{
    vt_json w;
    vt_json_object(&w);
    vt_openai_error_write(&g->error, &w, "error");
    generation_send(g, &w);
}

void generation_send_done(generation *g)
{
    static const char done[] = "data: [DONE]\n\n";
    if (g->x && vt_web_write(g->x, done, sizeof done - 1))
        vt_web_end(g->x);
}

/* Writes the gap in front of each token of each completion: a list, or a list of lists where there
 * are several. */
static void write_gaps(const generation *g, vt_json *w)
{
    bool several = g->reply.n > 1;
    if (several)
        vt_json_open(w, "itl_ms", '[');
    for (int32_t i = 0; i < g->reply.n; i++) {
        const vt_buf *gaps = g->made ? &g->made[i].gaps : NULL;
        vt_json_open(w, several ? NULL : "itl_ms", '[');
        for (size_t at = 0; gaps && at + sizeof(int64_t) <= gaps->len; at += sizeof(int64_t)) {
            int64_t ns;
            memcpy(&ns, gaps->data + at, sizeof ns);
            vt_json_fixed(w, NULL, (double)ns * 1e-6, 3);
        }
        vt_json_close(w);
    }
    if (several)
        vt_json_close(w);
}

void generation_write_timings(const generation *g, vt_json *w, const char *key)
{
    const generation_times *t = &g->at;
    const vt_openai_reply *r = &g->reply;
    int32_t computed = r->prompt_tokens - r->cached_tokens, made = r->completion_tokens;
    double prompt_ms = t->first_token && t->admitted ? (double)(t->first_token - t->admitted) * 1e-6
                                                     : 0;
    double predicted_ms = (double)(t->last_token - t->first_token) * 1e-6;
    vt_json_open(w, key, '{');
    vt_json_int(w, "cache_n", r->cached_tokens);
    vt_json_int(w, "prompt_n", computed);
    vt_json_fixed(w, "prompt_ms", prompt_ms, 3);
    vt_json_fixed(w, "prompt_per_token_ms", computed > 0 ? prompt_ms / computed : 0, 4);
    vt_json_fixed(w, "prompt_per_second", prompt_ms > 0 ? computed / prompt_ms * 1e3 : 0, 2);
    vt_json_int(w, "predicted_n", made);
    vt_json_fixed(w, "predicted_ms", predicted_ms, 3);
    /* between tokens, so there is one gap fewer than there are tokens of a completion */
    int32_t gaps = made - r->n > 0 ? made - r->n : 0;
    vt_json_fixed(w, "predicted_per_token_ms", gaps > 0 ? predicted_ms / gaps : 0, 4);
    vt_json_fixed(w, "predicted_per_second", predicted_ms > 0 ? gaps / predicted_ms * 1e3 : 0, 2);
    vt_json_fixed(w, "read_ms", (double)(t->submitted - t->began) * 1e-6, 3);
    vt_json_fixed(w, "queue_ms", t->admitted ? (double)(t->admitted - t->submitted) * 1e-6 : 0, 3);
    vt_json_fixed(w, "ttft_ms", t->first_token ? (double)(t->first_token - t->began) * 1e-6 : 0, 3);
    vt_json_int(w, "chunks", g->n_chunks);
    vt_json_int(w, "retractions", g->n_retracted);
    if (g->draft_tokens > 0) {
        vt_json_int(w, "draft_tokens", g->draft_tokens);
        vt_json_int(w, "draft_accepted", g->draft_accepted);
    }
    if (g->n_masks > 0) {
        vt_json_int(w, "masks", g->n_masks);
        vt_json_int(w, "masks_new", g->n_new_masks);
        vt_json_int(w, "forced_tokens", g->forced_tokens);
        vt_json_fixed(w, "masks_ms", (double)g->mask_ns * 1e-6, 3);
        vt_json_fixed(w, "slowest_mask_ms", (double)g->slowest_mask_ns * 1e-6, 3);
    }
    if (g->tells_gaps)
        write_gaps(g, w);
    vt_json_int(w, "story", g->n_submitted > 0 ? (int64_t)g->part[0].id : 0);
    vt_json_close(w);
}
