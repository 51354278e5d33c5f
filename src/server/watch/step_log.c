#include "server/watch/step_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/trace.h"
#include "server/watch/log.h"

enum {
    RINGS = 2,     /* of steps with prompt tokens, and of the others */
    EVENTS = 4096, /* read at once, of each ring: more than 0.1 s of steps has */
    OPEN = 64      /* steps of which some events have been read and the last has not */
};

/* A step as far as its events have been read. */
typedef struct step_line {
    vt_step_ran ran; /* step 0: none */
    int64_t part_ns[VT_PARTS];
} step_line;

/* A ring and how many of its events have been read. */
typedef struct step_ring {
    const vt_trace_ring *ring;
    uint64_t seen;
} step_ring;

struct server_step_log {
    vt_server *server;
    int fd;
    server_log *out;
    vt_web_timer *timer;
    step_ring ring[RINGS];
    vt_step_event *event;    /* [EVENTS] */
    step_line open[OPEN];    /* step n is at n % OPEN */
    step_line ended[EVENTS]; /* of one reading */
    int32_t n_ended;
    uint64_t lost; /* events */
};

/* ---- a line ---- */

static void write_line(server_step_log *l, const step_line *s)
{
    static const char *const part[VT_PARTS] = {
        [VT_PART_SCHEDULE] = "schedule_ms", [VT_PART_PREPARE] = "prepare_ms",
        [VT_PART_SAMPLE] = "sample_ms",     [VT_PART_PUBLISH] = "publish_ms",
        [VT_PART_DRAFT] = "draft_ms",
    };
    const vt_step_ran *r = &s->ran;
    vt_buf text = {0};
    vt_json w;
    vt_json_begin(&w, &text, -1);
    vt_json_open(&w, NULL, '{');
    vt_json_int(&w, "step", (int64_t)r->step);
    vt_json_fixed(&w, "began", (double)server_wall_ns(r->begin_ns) * 1e-9, 6);
    vt_json_int(&w, "tokens", r->n_tokens);
    vt_json_int(&w, "sequences", r->n_seqs);
    vt_json_int(&w, "decodes", r->n_decode);
    vt_json_fixed(&w, "device_ms", (double)(r->end_ns - r->begin_ns) * 1e-6, 4);
    for (int p = 0; p < VT_PARTS; p++)
        if (p != VT_PART_DRAFT || s->part_ns[p] > 0)
            vt_json_fixed(&w, part[p], (double)s->part_ns[p] * 1e-6, 4);
    vt_json_int(&w, "pages_used", r->pages_held);
    vt_json_int(&w, "pages_cached", r->pages_cached);
    vt_json_int(&w, "pages_free", r->pages_free);
    vt_json_close(&w);
    if (vt_json_end(&w) && !text.failed)
        server_log_line(l->out, text.data, text.len);
    vt_buf_release(&text);
}

static int by_step(const void *a, const void *b)
{
    uint64_t x = ((const step_line *)a)->ran.step, y = ((const step_line *)b)->ran.step;
    return (x > y) - (x < y);
}

/* ---- reading the recorder ---- */

/* The engine publishes a step's tokens last. A step has more than two events, so that `ended` has
 * room for those of both rings. */
static void read_event(server_step_log *l, const vt_step_event *e)
{
    step_line *s = &l->open[e->step % OPEN];
    if (e->kind == VT_STEP_SEQ)
        return;
    if (s->ran.step != e->step)
        *s = (step_line){.ran.step = e->step};
    if (e->kind == VT_STEP_RAN)
        s->ran = e->ran;
    if (e->kind != VT_STEP_PART)
        return;
    s->part_ns[e->part.part] = e->part.end_ns - e->part.begin_ns;
    if (e->part.part != VT_PART_PUBLISH)
        return;
    if (s->ran.kind == VT_STEP_RAN)
        l->ended[l->n_ended++] = *s;
    *s = (step_line){0};
}

static void read_ring(server_step_log *l, step_ring *r)
{
    uint64_t written = atomic_load_explicit(&r->ring->written, memory_order_acquire),
             fresh = written - r->seen, n = fresh < EVENTS ? fresh : EVENTS;
    uint64_t got = vt_trace_copy(r->ring, l->event, n);
    l->lost += fresh - got;
    r->seen = written;
    for (uint64_t i = 0; i < got; i++)
        read_event(l, &l->event[i]);
}

static void read_steps(void *arg)
{
    server_step_log *l = arg;
    uint64_t lost = l->lost;
    for (int i = 0; i < RINGS; i++)
        if (l->ring[i].ring)
            read_ring(l, &l->ring[i]);
    if (l->lost > lost) {
        char line[64];
        int n = snprintf(line, sizeof line, "{\"lost_events\":%llu}",
                         (unsigned long long)(l->lost - lost));
        server_log_line(l->out, line, (size_t)n);
    }
    qsort(l->ended, (size_t)l->n_ended, sizeof *l->ended, by_step);
    for (int32_t i = 0; i < l->n_ended; i++)
        write_line(l, &l->ended[i]);
    l->n_ended = 0;
}

/* ---- its life ---- */

vt_status server_step_log_new(vt_server *s, const char *path, server_step_log **out, vt_err *err)
{
    vt_source engine;
    server_step_log *l = *out = vt_calloc(1, sizeof *l);
    if (l)
        l->fd = -1;
    if (!l || !(l->event = vt_calloc(EVENTS, sizeof *l->event)))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the log of steps");
    l->server = s;
    /* O_NONBLOCK: a named pipe that nobody reads is an error, where it would hold the start up. */
    l->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (l->fd < 0)
        return vt_fail(err, VT_ERR_IO, "log-steps: %s: %s", path, strerror(errno));
    if (vt_engine_sources(s->engine, &engine, 1) > 0) {
        l->ring[0].ring = engine.prompt_steps;
        l->ring[1].ring = engine.steps;
    }
    return server_log_new(l->fd, &l->out, err);
}

vt_status server_step_log_start(server_step_log *l, vt_err *err)
{
    l->timer = vt_web_timer_new(l->server->web, 0.1, false, read_steps, l);
    return l->timer ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for the log of steps");
}

void server_step_log_stop(server_step_log *l)
{
    if (!l)
        return;
    vt_web_timer_free(l->timer);
    l->timer = NULL;
    if (l->out)
        read_steps(l);
}

void server_step_log_free(server_step_log *l)
{
    if (!l)
        return;
    server_log_free(l->out);
    if (l->fd >= 0)
        close(l->fd);
    free(l->event);
    free(l);
}
