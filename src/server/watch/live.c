/* GET /live: looks at the engine, several a second, as server-sent events.
 *
 *   loop's thread                       observer's thread
 *   timer ticks ── wanted ────────────> live_look_take, live_look_write
 *   sends to every watcher <── post ─── done
 *
 * While there are no watchers the thread sleeps and no timer runs. A look waits for the end of the
 * step under way; if that takes longer than a second, watchers are sent the engine's statistics
 * instead. A watcher that reads slowly misses looks. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "model/model.h"
#include "server/inside.h"
#include "server/watch/live_look.h"

enum {
    WATCHERS = 8,
    SLOW_BYTES = 1 << 18,     /* with more unsent, a watcher is left out */
    MAX_LOOK_BYTES = 4 << 20, /* of one look's JSON */
    LATE_NS = 1000000000
};

static const double tick_s = 0.25;

typedef struct watcher {
    vt_exchange *x; /* NULL: a free place */
    bool fresh;     /* it has not been sent the history yet */
} watcher;

struct server_live {
    vt_server *server;
    vt_web_timer *timer;
    watcher watcher[WATCHERS];
    int32_t n_watchers;
    live_look *look;
    vt_buf all, new; /* the last look: with the history, and without */
    bool busy;       /* a look was asked for and has not come */
    int64_t asked_ns;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool wanted, quit; /* guarded by the lock */
};

/* ---- the observer's thread ---- */

static void write_look(server_live *v, bool history, vt_buf *out)
{
    const vt_server *s = v->server;
    vt_json w;
    vt_buf_clear(out);
    vt_buf_puts(out, "data: ");
    vt_json_begin(&w, out, -1);
    vt_json_open(&w, NULL, '{');
    vt_json_open(&w, "engine", '{');
    vt_json_string(&w, "model", s->model_name);
    vt_json_string(&w, "version", vt_version());
    vt_json_string(&w, "device", vt_engine_executor(s->engine)->name);
    vt_json_fixed(&w, "uptime_s", (double)(v->look->at_ns - s->ready_ns) * 1e-9, 1);
    vt_json_int(&w, "max_running", v->look->max_running);
    vt_json_int(&w, "step_tokens", v->look->step_tokens);
    vt_json_int(&w, "max_context", vt_engine_max_context(s->engine));
    vt_json_close(&w);
    live_look_write(v->look, history, &w);
    vt_json_close(&w);
    (void)vt_json_end(&w);
    vt_buf_puts(out, "\n\n");
}

static void send_look(void *live);

static void *observe(void *live)
{
    server_live *v = live;
    pthread_mutex_lock(&v->lock);
    for (;;) {
        while (!v->wanted && !v->quit)
            pthread_cond_wait(&v->wake, &v->lock);
        if (v->quit)
            break;
        v->wanted = false;
        pthread_mutex_unlock(&v->lock);
        if (live_look_take(v->look, NULL) == VT_OK) {
            write_look(v, true, &v->all);
            write_look(v, false, &v->new);
        }
        bool posted = vt_web_post(v->server->web, send_look, v);
        pthread_mutex_lock(&v->lock);
        if (!posted)
            break; /* the loop has ended */
    }
    pthread_mutex_unlock(&v->lock);
    return NULL;
}

/* ---- the loop's thread ---- */

static void stop_watching(server_live *v, watcher *who)
{
    *who = (watcher){0};
    if (--v->n_watchers == 0) {
        vt_web_timer_free(v->timer);
        v->timer = NULL;
    }
}

static void on_gone(void *user, vt_exchange *x)
{
    server_live *v = user;
    for (int i = 0; i < WATCHERS; i++)
        if (v->watcher[i].x == x)
            stop_watching(v, &v->watcher[i]);
}

static void send_to(watcher *who, const vt_buf *text)
{
    if (text->len > 0 && !text->failed && vt_web_unsent(who->x) < SLOW_BYTES)
        (void)vt_web_write(who->x, text->data, text->len); /* if it is dropped, on_gone is called */
}

static void send_look(void *live)
{
    server_live *v = live;
    v->busy = false;
    for (int i = 0; i < WATCHERS; i++) {
        watcher *who = &v->watcher[i];
        if (!who->x)
            continue;
        bool fresh = who->fresh;
        who->fresh = false;
        send_to(who, fresh ? &v->all : &v->new);
    }
}

/* The step under way is a long one. */
static void send_late(server_live *v, int64_t now_ns)
{
    vt_engine_stats st;
    vt_buf text = {0};
    vt_engine_copy_stats(v->server->engine, &st);
    vt_buf_printf(&text, "data: {\"busy\":{\"step_s\":%.1f,\"running\":%d,\"waiting\":%d}}\n\n",
                  (double)(now_ns - v->asked_ns) * 1e-9, st.n_running, st.n_waiting);
    for (int i = 0; i < WATCHERS; i++)
        if (v->watcher[i].x)
            send_to(&v->watcher[i], &text);
    vt_buf_release(&text);
}

static void end_all(server_live *v)
{
    for (int i = 0; i < WATCHERS; i++) {
        vt_exchange *x = v->watcher[i].x;
        if (!x)
            continue;
        stop_watching(v, &v->watcher[i]);
        vt_web_end(x);
    }
}

static void tick(void *live)
{
    server_live *v = live;
    int64_t now = vt_now_ns();
    if (v->server->draining) {
        end_all(v);
        return;
    }
    if (v->busy) {
        if (now - v->asked_ns > LATE_NS)
            send_late(v, now);
        return;
    }
    v->busy = true;
    v->asked_ns = now;
    pthread_mutex_lock(&v->lock);
    v->wanted = true;
    pthread_cond_signal(&v->wake);
    pthread_mutex_unlock(&v->lock);
}

static vt_status start(vt_server *s, vt_err *err)
{
    server_live *v = s->live = vt_calloc(1, sizeof *v);
    if (!v)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the live page");
    v->server = s;
    vt_buf_init(&v->all, MAX_LOOK_BYTES);
    vt_buf_init(&v->new, MAX_LOOK_BYTES);
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->wake, NULL);
    TRY(live_look_new(s->engine, &v->look, err));
    v->has_thread = pthread_create(&v->thread, NULL, observe, v) == 0;
    return v->has_thread
               ? VT_OK
               : vt_fail(err, VT_ERR_MEMORY, "the observer's thread could not be started");
}

void server_live_stop(vt_server *s)
{
    server_live *v = s->live;
    if (!v)
        return;
    if (v->has_thread) {
        pthread_mutex_lock(&v->lock);
        v->quit = true;
        pthread_cond_signal(&v->wake);
        pthread_mutex_unlock(&v->lock);
        pthread_join(v->thread, NULL);
        v->has_thread = false;
    }
    end_all(v);
}

void server_live_free(vt_server *s)
{
    server_live *v = s->live;
    if (!v)
        return;
    live_look_free(v->look);
    vt_buf_release(&v->all);
    vt_buf_release(&v->new);
    pthread_mutex_destroy(&v->lock);
    pthread_cond_destroy(&v->wake);
    free(v);
    s->live = NULL;
}

void server_live_watch(vt_server *s, vt_exchange *x)
{
    vt_err err;
    if (!s->live && start(s, &err) != VT_OK) {
        server_live_stop(s);
        server_live_free(s);
        server_refuse(x, 503, NULL, "%s", err.message);
        return;
    }
    server_live *v = s->live;
    watcher *place = NULL;
    for (int i = 0; i < WATCHERS && !place; i++)
        if (!v->watcher[i].x)
            place = &v->watcher[i];
    if (place && !v->timer && !s->draining)
        v->timer = vt_web_timer_new(s->web, tick_s, false, tick, v);
    if (!place || !v->timer || s->draining) {
        server_refuse(x, 503, NULL,
                      place ? "the server cannot be watched now"
                            : "%d people watch already: try again later",
                      WATCHERS);
        return;
    }
    vt_web_header(x, "Cache-Control", "no-store");
    vt_web_header(x, "X-Accel-Buffering", "no"); /* nginx: pass events on as they come */
    vt_web_stream(x, 200, "text/event-stream; charset=utf-8");
    if (strcmp(vt_web_request(x)->method, "HEAD") == 0) {
        vt_web_end(x);
        return;
    }
    *place = (watcher){.x = x, .fresh = true};
    v->n_watchers++;
    vt_web_set_user(x, v);
    vt_web_on_gone(x, on_gone);
    tick(v);
}
