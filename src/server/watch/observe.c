#include "server/watch/observe.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/random.h"
#include "server/api/generation.h"
#include "server/watch/dumps.h"
#include "server/watch/log.h"
#include "server/watch/metrics.h"
#include "server/watch/otlp.h"
#include "server/watch/stories.h"

const char *const server_finish_names[SERVER_FINISHES] = {"stop", "length", "abort", "error",
                                                          "refused"};

int64_t server_wall_ns(int64_t mono_ns)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - (vt_now_ns() - mono_ns);
}

/* ---- any exchange ---- */

void server_note_begin(vt_server *s, vt_exchange *x, const char *path)
{
    const vt_http_request *r = vt_web_request(x);
    server_note *note = vt_calloc(1, sizeof *note);
    if (!note)
        return;
    uint64_t fresh[3];
    for (int i = 0; i < 3; i++)
        fresh[i] = vt_mix64(s->next_id++);
    note->path = path;
    server_request_id(vt_http_find(r, "x-request-id"), vt_mix64(s->next_id++), note->id);
    server_trace_begin(vt_http_find(r, "traceparent"), fresh, &note->trace);
    vt_web_set_note(x, note);
    vt_web_header(x, "X-Request-Id", note->id);
}

static void write_log(vt_server *s, const server_record *r)
{
    vt_buf line = {0};
    if (s->log_form == SERVER_LOG_OFF)
        return;
    server_log_format(r, (server_log_form)s->log_form, s->log_text, &line);
    if (!line.failed)
        server_log_line(s->log, line.data, line.len);
    vt_buf_release(&line);
}

/* Paths that programs ask for every few seconds: their successes are not logged. */
static bool is_probe(const char *path)
{
    return strcmp(path, "/health") == 0 || strcmp(path, "/health_generate") == 0 ||
           strcmp(path, "/metrics") == 0;
}

void server_note_ended(void *server, vt_exchange *x, const vt_web_outcome *o)
{
    vt_server *s = server;
    server_note *note = x ? vt_web_note(x) : NULL;
    server_note none = {.path = "none", .id = "-"};
    server_metrics_http(s->metrics, note ? note->path : none.path, o->status);
    if (x && !note)
        return; /* memory was short, or a browser's preflight */
    server_note *n = note ? note : &none;
    snprintf(n->peer, sizeof n->peer, "%s", o->peer);
    n->status = o->status;
    n->bytes = o->bytes;
    n->gone = o->gone;
    if (n->generation)
        return; /* server_saw_end has the rest to do */
    if (o->status != 200 || !is_probe(n->path)) {
        const vt_http_request *q = x ? vt_web_request(x) : NULL;
        server_record r = {.note = n,
                           .method = q ? q->method : "-",
                           .path = q ? q->path : "-",
                           .why = o->why,
                           .began_ns = x ? vt_web_began_ns(x) : vt_now_ns(),
                           .end_ns = vt_now_ns(),
                           .queue_ns = -1,
                           .ttft_ns = -1};
        write_log(s, &r);
    }
    free(note);
}

/* ---- generations ---- */

static void free_made(generation *g)
{
    for (int32_t i = 0; g->made && i < g->reply.n; i++)
        vt_buf_release(&g->made[i].gaps);
    free(g->made);
}

void server_exemplar_of(const generation *g, server_exemplar *out)
{
    *out = (server_exemplar){.story = g->n_submitted > 0 ? g->part[0].id : 0,
                             .wall_ns = server_wall_ns(vt_now_ns())};
    if (g->note && g->note->trace.parent_id[0])
        memcpy(out->trace_id, g->note->trace.trace_id, sizeof out->trace_id);
}

void server_saw_event(generation *g, int32_t prompt, const vt_event *e)
{
    server_metrics *m = g->server->metrics;
    if (e->n_tokens == 0 || e->completion_tokens == 0 || g->form->probe)
        return; /* an end without a token, or log-probabilities of the prompt */
    m->output_tokens += (uint64_t)e->n_tokens;
    if (!e->made_ns)
        return;
    if (!g->made && g->reply.n > 0)
        g->made = vt_calloc((size_t)g->reply.n, sizeof *g->made);
    if (!g->made)
        return;
    generation_made *c = &g->made[prompt * g->reply.n_each + e->sample];
    server_exemplar of;
    server_exemplar_of(g, &of);
    if (c->last_ns) {
        int64_t gap_ns = (e->made_ns - c->last_ns) / e->n_tokens;
        server_observe_of(&m->itl, gap_ns, (uint64_t)e->n_tokens, &of);
        g->longest_gap_ns = gap_ns > g->longest_gap_ns ? gap_ns : g->longest_gap_ns;
        c->n_later += e->n_tokens;
        for (int32_t i = 0; g->tells_gaps && i < e->n_tokens; i++)
            vt_buf_add(&c->gaps, &gap_ns, sizeof gap_ns);
    } else {
        c->first_ns = e->made_ns;
        if (!g->counted_first)
            server_observe_of(&m->ttft, e->made_ns - g->at.began, 1, &of);
    }
    g->counted_first = true;
    c->last_ns = e->made_ns;
}

server_finish server_finish_of(const generation *g)
{
    server_finish worst = SERVER_STOP;
    if (g->n_submitted == 0)
        return g->gone ? SERVER_ABORT : SERVER_REFUSED;
    if (g->cancelled || g->gone || g->reply.aborted)
        return SERVER_ABORT;
    if (g->error.http)
        return SERVER_ERROR;
    for (int32_t i = 0; i < g->reply.n; i++)
        if (g->reply.choice[i].finish == VT_FINISH_LENGTH && !g->request.p.embed)
            worst = SERVER_LENGTH;
    return worst;
}

void server_saw_end(generation *g)
{
    vt_server *s = g->server;
    server_note *note = g->note;
    const generation_times *t = &g->at;
    if (!note) {
        free_made(g);
        return;
    }
    server_record r = {
        .note = note,
        .generation = g,
        .method = "POST",
        .path = note->path,
        .finish = server_finish_of(g),
        .began_ns = t->began,
        .end_ns = t->end ? t->end : vt_now_ns(),
        .queue_ns = t->admitted ? t->admitted - t->submitted : -1,
        .ttft_ns = t->first_token ? t->first_token - t->began : -1,
    };
    if (!g->form->probe) {
        server_dumps_judge(s->dumps, &r);
        server_metrics_end(s->metrics, &r);
        server_stories_add(s->stories, &r);
        if (s->otlp && note->trace.sampled)
            server_otlp_add(s->otlp, &r);
    }
    if (!g->form->probe || r.finish > SERVER_LENGTH)
        write_log(s, &r);
    free_made(g);
    free(note);
    g->note = NULL;
}
