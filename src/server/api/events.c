#include "server/api/events.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/end_reason.h"

typedef struct server_event {
    struct server_event *next;
    server_part *part;
    bool kept; /* part->last has it: do not free */
    vt_event e;
} server_event;

struct server_events {
    vt_web *web;
    vt_engine *engine;
    pthread_mutex_t lock;
    server_event *first, **end;
    bool posted;   /* the loop has been asked to tell them */
    int64_t at_ns; /* of the loop's thread: until when its time is counted */
};

vt_status server_events_new(vt_web *w, vt_engine *e, server_events **out, vt_err *err)
{
    server_events *ev = vt_calloc(1, sizeof *ev);
    if (!ev)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for events");
    ev->web = w;
    ev->engine = e;
    ev->end = &ev->first;
    pthread_mutex_init(&ev->lock, NULL);
    *out = ev;
    return VT_OK;
}

void server_events_free(server_events *ev)
{
    if (!ev)
        return;
    for (server_event *next, *c = ev->first; c; c = next) {
        next = c->next;
        if (!c->kept)
            free(c);
    }
    pthread_mutex_destroy(&ev->lock);
    free(ev);
}

vt_status server_part_init(server_part *part, server_events *ev, int32_t n, vt_err *err)
{
    part->events = ev;
    part->last = vt_calloc((size_t)n, sizeof *part->last);
    return part->last ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for a request");
}

void server_part_release(server_part *part)
{
    free(part->last);
    part->last = NULL;
}

int64_t server_part_took(server_part *part)
{
    int64_t begin = part->events->at_ns, now = vt_now_ns();
    part->write_begin_ns = part->write_begin_ns ? part->write_begin_ns : begin;
    part->write_ns += now - begin;
    part->events->at_ns = now;
    return now;
}

/* A copy of what `from` points to, at *at. */
static const void *put(char **at, const void *from, size_t size)
{
    if (!from || size == 0)
        return NULL;
    void *to = *at;
    memcpy(to, from, size);
    *at += vt_round_up(size, 16);
    return to;
}

/* One block: the event, then the arrays that it points to. */
static server_event *copy_event(const vt_event *e)
{
    size_t tokens = (size_t)e->n_tokens * sizeof *e->tokens;
    size_t own = e->logprobs ? (size_t)e->n_tokens * sizeof *e->logprobs : 0;
    size_t top = e->top_logprobs ? own * (size_t)e->n_top : 0;
    size_t vector = (size_t)e->n_vector * sizeof *e->vector;
    size_t size = vt_round_up(sizeof(server_event), 16) + vt_round_up(tokens, 16) +
                  vt_round_up(own, 16) + vt_round_up(top, 16) + vt_round_up(e->text_len, 16) +
                  vt_round_up(vector, 16);
    server_event *c = malloc(size);
    if (!c)
        return NULL;
    char *at = (char *)c + vt_round_up(sizeof *c, 16);
    *c = (server_event){.e = *e};
    c->e.tokens = put(&at, e->tokens, tokens);
    c->e.logprobs = put(&at, e->logprobs, own);
    c->e.top_logprobs = put(&at, e->top_logprobs, top);
    c->e.text = put(&at, e->text, e->text_len);
    c->e.vector = put(&at, e->vector, vector);
    return c;
}

/* Memory is short: the completion ends with an error, and what it said last is lost. */
static server_event *bare_event(server_part *part, const vt_event *e)
{
    server_event *c = &part->last[e->sample];
    *c = (server_event){.kept = true, .e = *e};
    c->e.n_tokens = 0;
    c->e.tokens = NULL;
    c->e.text = NULL;
    c->e.text_len = 0;
    c->e.logprobs = c->e.top_logprobs = NULL;
    c->e.vector = NULL;
    c->e.finish = VT_FINISH_ERROR;
    c->e.end_reason = VT_END_MEMORY;
    c->e.error = vt_end_sentence(VT_END_MEMORY);
    return c;
}

static void tell(void *arg)
{
    server_events *ev = arg;
    pthread_mutex_lock(&ev->lock);
    server_event *c = ev->first;
    ev->first = NULL;
    ev->end = &ev->first;
    ev->posted = false;
    pthread_mutex_unlock(&ev->lock);
    ev->at_ns = vt_now_ns();
    for (server_event *next; c; c = next) {
        bool kept = c->kept; /* the part may be released by its last event */
        next = c->next;
        c->part->event(c->part, &c->e);
        if (!kept)
            free(c);
    }
}

void server_part_callback(void *user, const vt_event *e)
{
    server_part *part = user;
    server_events *ev = part->events;
    server_event *c = copy_event(e);
    if (!c && e->finish == VT_FINISH_NONE) {
        part->lost = true; /* an answer with a hole is none: the request ends */
        vt_engine_abort(ev->engine, e->request);
        return;
    }
    if (!c || part->lost) {
        free(c);
        c = bare_event(part, e);
    }
    c->part = part;
    c->next = NULL;
    pthread_mutex_lock(&ev->lock);
    *ev->end = c;
    ev->end = &c->next;
    bool post = !ev->posted;
    ev->posted = true;
    pthread_mutex_unlock(&ev->lock);
    if (post)
        (void)vt_web_post(ev->web, tell, ev);
}
