/* The web server's loop: posts, timers, signals, draining and stopping (server/http/web.h).
 *
 * One thread runs libevent's loop and everything else here. Another thread reaches it through a
 * queue under a mutex and an eventfd, so that libevent needs no locks (evthread_use_pthreads would
 * put a lock around every buffer). The eventfd is written only when the queue was empty: a burst of
 * posts costs one system call. */
#include "server/http/web_inside.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"

struct timeval web_timeval(double seconds)
{
    struct timeval t = {.tv_sec = (time_t)seconds};
    t.tv_usec = (suseconds_t)((seconds - (double)t.tv_sec) * 1e6);
    return t;
}

void vt_web_options_init(vt_web_options *o)
{
    *o = (vt_web_options){
        .limits = {.line = 8 << 10, .head = 32 << 10, .n_headers = 100, .body = 32 << 20},
        .max_connections = 1024,
        .max_unsent = 1 << 20,
        .max_bodies = (size_t)1 << 30,
        .head_s = 10,
        .body_s = 60,
        .idle_s = 75,
        .send_s = 30,
        .max_output = 256 << 20,
        .least_rate = 16 << 10,
    };
}

/* ---- posts ---- */

static void wake(vt_web *w)
{
    uint64_t one = 1;
    while (write(w->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

bool vt_web_post(vt_web *w, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    web_posts *p = &w->posts;
    bool ok = !w->ended;
    if (ok && p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        web_post *post = realloc(p->post, cap * sizeof *post);
        ok = post != NULL;
        if (ok) {
            p->post = post;
            p->cap = cap;
        }
    }
    bool first = p->n == 0;
    if (ok)
        p->post[p->n++] = (web_post){fn, arg};
    if (ok && first)
        wake(w);
    pthread_mutex_unlock(&w->lock);
    return ok;
}

/* Calls what was posted until now. What is posted meanwhile has its turn in the next round, so that
 * posts do not keep the loop from its sockets. */
static void run_posts(vt_web *w)
{
    pthread_mutex_lock(&w->lock);
    web_posts todo = w->posts;
    w->posts = (web_posts){0};
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < todo.n; i++)
        todo.post[i].fn(todo.post[i].arg);
    pthread_mutex_lock(&w->lock);
    if (!w->posts.post && todo.cap <= 4096) { /* its memory serves again */
        w->posts = (web_posts){.post = todo.post, .cap = todo.cap};
        todo.post = NULL;
    }
    pthread_mutex_unlock(&w->lock);
    free(todo.post);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    vt_web *w = arg;
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0) /* EAGAIN: woken twice for one write */
        count = 0;
    run_posts(w);
    pthread_mutex_lock(&w->lock);
    bool stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    if (stop)
        event_base_loopbreak(w->base);
}

/* No post is taken from now on; those that were taken are run. */
static void end_posts(vt_web *w)
{
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_mutex_unlock(&w->lock);
    run_posts(w);
}

/* ---- the server ---- */

static vt_status check_options(const vt_web_options *o, vt_err *err)
{
    const double seconds[] = {o->head_s, o->body_s, o->idle_s, o->send_s};
    if (!o->handler)
        return vt_fail(err, VT_ERR_USAGE, "the web server has no handler");
    if (o->max_connections < 1)
        return vt_fail(err, VT_ERR_USAGE, "max_connections is %d, expected at least 1",
                       o->max_connections);
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        if (!(seconds[i] > 0 && seconds[i] <= 1e6))
            return vt_fail(err, VT_ERR_USAGE,
                           "a deadline of the web server is %g s, expected more than 0 and at most "
                           "1000000",
                           seconds[i]);
    if (!o->tls_cert != !o->tls_key)
        return vt_fail(err, VT_ERR_USAGE, "TLS needs a certificate file and a key file, not one");
    for (const char *c = o->cors_origin; c && *c; c++)
        if (*c <= ' ' || *c > '~')
            return vt_fail(err, VT_ERR_USAGE,
                           "the CORS origin '%s' holds a character that no origin has",
                           o->cors_origin);
    return VT_OK;
}

static bool make_loop(vt_web *w)
{
    struct event_config *config = event_config_new();
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
        w->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    w->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!w->base || w->wake_fd < 0)
        return false;
    w->wake = event_new(w->base, w->wake_fd, EV_READ | EV_PERSIST, on_wake, w);
    return w->wake && event_add(w->wake, NULL) == 0;
}

/* A write to a client that has left shall be an error and not a signal. TLS writes with write(),
 * which has no flag for that. */
static void ignore_sigpipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

vt_status vt_web_new(const vt_web_options *o, vt_web **out, vt_err *err)
{
    TRY(check_options(o, err));
    vt_web *w = vt_calloc(1, sizeof *w);
    if (!w)
        return vt_fail(err, VT_ERR_MEMORY, "no memory for the web server");
    w->o = *o;
    w->wake_fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    vt_buf_init(&w->scratch, 0);
    vt_status status = VT_OK;
    vt_http_reader *tried = NULL;
    TRY_GOTO(status, vt_http_reader_new(&o->limits, &tried, err), fail);
    vt_http_reader_free(tried);
    if (o->tls_cert)
        TRY_GOTO(status, web_tls_new(o->tls_cert, o->tls_key, &w->tls, err), fail);
    w->o.tls_cert = w->o.tls_key = NULL; /* the caller's, no longer needed */
    w->cors_origin = o->cors_origin ? strdup(o->cors_origin) : NULL;
    if (!make_loop(w) || (o->cors_origin && !w->cors_origin)) {
        status = vt_fail(err, VT_ERR_MEMORY, "no memory or no file descriptor for the web server");
        goto fail;
    }
    ignore_sigpipe();
    *out = w;
    return VT_OK;
fail:
    vt_web_free(w);
    return status;
}

void vt_web_free(vt_web *w)
{
    if (!w)
        return;
    end_posts(w);
    while (w->connections)
        web_connection_drop(w->connections);
    web_listeners_close(w);
    while (w->signals) {
        web_signal *s = w->signals;
        w->signals = s->next;
        event_free(s->event);
        free(s);
    }
    if (w->wake)
        event_free(w->wake);
    if (w->base)
        event_base_free(w->base);
    if (w->wake_fd >= 0)
        close(w->wake_fd);
    web_tls_free(w->tls);
    free(w->cors_origin);
    free(w->posts.post);
    vt_buf_release(&w->scratch);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

vt_status vt_web_run(vt_web *w, vt_err *err)
{
    int ended = event_base_loop(w->base, EVLOOP_NO_EXIT_ON_EMPTY);
    end_posts(w);
    if (ended < 0)
        return vt_fail(err, VT_ERR_IO, "the web server's loop failed: %s", strerror(errno));
    return VT_OK;
}

void vt_web_stop(vt_web *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    wake(w);
    pthread_mutex_unlock(&w->lock);
}

void vt_web_drain(vt_web *w)
{
    w->draining = true;
    web_listeners_close(w);
    for (web_connection *c = w->connections, *next; c; c = next) {
        next = c->next;
        if (c->phase == WEB_IDLE && !c->pumping)
            web_connection_finish(c);
    }
}

bool vt_web_drained(const vt_web *w)
{
    for (const web_connection *c = w->connections; c; c = c->next)
        if (c->phase == WEB_HEAD || c->phase == WEB_BODY || c->phase == WEB_ANSWER ||
            c->phase == WEB_FLUSH)
            return false;
    return true;
}

int32_t vt_web_open_exchanges(const vt_web *w) { return w->n_exchanges; }

int32_t vt_web_connections(const vt_web *w) { return w->n_connections; }

void vt_web_get_totals(const vt_web *w, vt_web_totals *out) { *out = w->totals; }

/* ---- timers and signals ---- */

struct vt_web_timer {
    struct event *event;
    void (*fn)(void *arg);
    void *arg;
};

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    vt_web_timer *t = arg;
    t->fn(t->arg); /* may free t */
}

vt_web_timer *vt_web_timer_new(vt_web *w, double seconds, bool once, void (*fn)(void *arg),
                               void *arg)
{
    vt_web_timer *t = vt_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    struct timeval wait = web_timeval(seconds);
    *t = (vt_web_timer){.fn = fn, .arg = arg};
    t->event = event_new(w->base, -1, once ? 0 : EV_PERSIST, on_timer, t);
    if (!t->event || event_add(t->event, &wait) != 0) {
        vt_web_timer_free(t);
        return NULL;
    }
    return t;
}

void vt_web_timer_free(vt_web_timer *t)
{
    if (!t)
        return;
    if (t->event)
        event_free(t->event);
    free(t);
}

static void on_signal(evutil_socket_t signal_number, short what, void *arg)
{
    (void)what;
    web_signal *s = arg;
    s->fn(s->arg, (int)signal_number);
}

vt_status vt_web_on_signal(vt_web *w, int number, void (*fn)(void *arg, int signal), void *arg,
                           vt_err *err)
{
    web_signal *s = vt_calloc(1, sizeof *s);
    if (s)
        *s = (web_signal){.next = w->signals, .fn = fn, .arg = arg};
    if (s)
        s->event = evsignal_new(w->base, number, on_signal, s);
    if (!s || !s->event || event_add(s->event, NULL) != 0) {
        if (s && s->event)
            event_free(s->event);
        free(s);
        return vt_fail(err, VT_ERR_IO, "signal %d cannot be listened for", number);
    }
    w->signals = s;
    return VT_OK;
}
