#include "server/watch/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/term/term.h"
#include "base/utf8.h"
#include "server/api/generation.h"
#include "server/watch/dumps.h"

enum {
    LOG_BYTES = 1 << 20,   /* lines that wait to be written */
    PIECE = 4096,          /* at most PIPE_BUF: a pipe that is ready takes it without blocking */
    LOG_TEXT_BYTES = 2048, /* of a prompt or an answer */
};

struct server_log {
    int fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    vt_buf waiting;   /* whole lines */
    uint64_t dropped; /* lines, since it was last said */
    bool quit;
    int64_t quit_ns;
};

/* ---- the thread that writes ---- */

static bool time_is_up(server_log *l)
{
    pthread_mutex_lock(&l->lock);
    bool up = l->quit && vt_now_ns() - l->quit_ns > 1000000000;
    pthread_mutex_unlock(&l->lock);
    return up;
}

/* Gives up where the descriptor is closed, or at the end of the server when it takes nothing. */
static void write_all(server_log *l, const char *data, size_t len)
{
    while (len > 0) {
        struct pollfd p = {.fd = l->fd, .events = POLLOUT};
        int ready = poll(&p, 1, 200);
        if (ready == 0 && time_is_up(l))
            return;
        if (ready <= 0)
            continue;
        ssize_t n = write(l->fd, data, len < PIECE ? len : PIECE);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
}

static void *writer(void *arg)
{
    server_log *l = arg;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* a reader that has left is an error of write, not the end of us */
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    pthread_setname_np(pthread_self(), "server-log");
    pthread_mutex_lock(&l->lock);
    while (!l->quit || l->waiting.len > 0 || l->dropped > 0) {
        if (l->waiting.len == 0 && l->dropped == 0) {
            pthread_cond_wait(&l->wake, &l->lock);
            continue;
        }
        vt_buf lines = l->waiting;
        if (l->dropped > 0)
            vt_buf_printf(&lines, "vitrine: %llu lines of the log were dropped\n",
                          (unsigned long long)l->dropped);
        l->dropped = 0;
        vt_buf_init(&l->waiting, LOG_BYTES);
        pthread_mutex_unlock(&l->lock);
        write_all(l, lines.data, lines.len);
        vt_buf_release(&lines);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

vt_status server_log_new(int fd, server_log **out, vt_err *err)
{
    server_log *l = vt_calloc(1, sizeof *l);
    if (!l)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the log");
    l->fd = fd;
    vt_buf_init(&l->waiting, LOG_BYTES);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    if (pthread_create(&l->thread, NULL, writer, l) != 0) {
        free(l);
        return vt_fail(err, VT_ERR_MEMORY, "the log's thread could not be started");
    }
    *out = l;
    return VT_OK;
}

void server_log_free(server_log *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    l->quit_ns = vt_now_ns();
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    vt_buf_release(&l->waiting);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

void server_log_line(server_log *l, const char *text, size_t len)
{
    pthread_mutex_lock(&l->lock);
    if (l->waiting.len + len + 1 > LOG_BYTES - 128) {
        l->dropped++;
    } else {
        vt_buf_add(&l->waiting, text, len);
        vt_buf_putc(&l->waiting, '\n');
        if (l->waiting.failed) { /* a line may be lost, but not its end */
            vt_buf_release(&l->waiting);
            vt_buf_init(&l->waiting, LOG_BYTES);
            l->dropped++;
        }
    }
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

/* ---- a line ---- */

/* The beginning of untrusted text, whole characters only; controls become U+FFFD. */
static void show(vt_buf *out, const char *text, size_t len)
{
    vt_shown state = {0};
    size_t n = len < LOG_TEXT_BYTES ? len : LOG_TEXT_BYTES;
    vt_text_show(out, &state, text, n);
    if (n == len)
        vt_text_show_end(out, &state);
    else
        vt_buf_puts(out, "...");
}

/* A member of the line. Text is quoted where it holds more than letters, digits and a few marks. */
typedef struct line {
    vt_buf *out;
    vt_json json;
    bool is_json;
} line;

static void put_text(line *w, const char *key, const char *text, size_t len)
{
    vt_buf clean = {0};
    show(&clean, text, len);
    if (clean.failed || !clean.data)
        vt_buf_clear(&clean);
    const char *p = clean.data ? clean.data : "";
    if (w->is_json) {
        vt_json_string_n(&w->json, key, p, clean.len);
        vt_buf_release(&clean);
        return;
    }
    bool quoted = clean.len == 0 || strpbrk(p, " \"=\n\t\\") != NULL;
    vt_buf_printf(w->out, "%s%s=%s", w->out->len > 0 ? " " : "", key, quoted ? "\"" : "");
    for (; *p; p++) {
        if (*p == '"' || *p == '\\' || *p == '\n' || *p == '\t')
            vt_buf_putc(w->out, '\\');
        vt_buf_putc(w->out, *p == '\n' ? 'n' : *p == '\t' ? 't' : *p);
    }
    if (quoted)
        vt_buf_putc(w->out, '"');
    vt_buf_release(&clean);
}

static void put_string(line *w, const char *key, const char *text)
{
    put_text(w, key, text, strlen(text));
}

static void put_int(line *w, const char *key, int64_t value)
{
    if (w->is_json)
        vt_json_int(&w->json, key, value);
    else
        vt_buf_printf(w->out, " %s=%lld", key, (long long)value);
}

/* Milliseconds; left out where the request did not get there. */
static void put_ms(line *w, const char *key, int64_t ns)
{
    if (ns < 0)
        return;
    if (w->is_json)
        vt_json_fixed(&w->json, key, (double)ns * 1e-6, 3);
    else
        vt_buf_printf(w->out, " %s=%.3f", key, (double)ns * 1e-6);
}

static void put_time(line *w, int64_t mono_ns)
{
    char text[64];
    struct tm t;
    int64_t ns = server_wall_ns(mono_ns);
    time_t s = (time_t)(ns / 1000000000);
    gmtime_r(&s, &t);
    snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", t.tm_year + 1900,
             t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
             (int)(ns % 1000000000 / 1000000));
    put_string(w, "time", text);
}

static void put_generation(line *w, const server_record *r, bool text)
{
    const generation *g = r->generation;
    put_string(w, "answer", g->id);
    put_int(w, "story", g->n_submitted > 0 ? (int64_t)g->part[0].id : 0);
    put_int(w, "prompt_tokens", g->reply.prompt_tokens);
    put_int(w, "cached_tokens", g->reply.cached_tokens);
    put_int(w, "output_tokens", g->reply.completion_tokens);
    put_ms(w, "queue_ms", r->queue_ns);
    put_ms(w, "ttft_ms", r->ttft_ns);
    put_ms(w, "total_ms", r->end_ns - r->began_ns);
    put_string(w, "finish", server_finish_names[r->finish]);
    if (r->missed) {
        char list[32];
        server_slo_list(r->missed, list);
        put_string(w, "missed", list);
    }
    if (r->dump[0])
        put_string(w, "story_file", r->dump);
    if (g->error.http)
        put_string(w, "error", g->error.message);
    if (text && g->log_prompt)
        put_string(w, "prompt", g->log_prompt);
    if (text && g->reply.n > 0 && g->reply.choice[0].text.data)
        put_text(w, "output", g->reply.choice[0].text.data, g->reply.choice[0].text.len);
}

void server_log_format(const server_record *r, server_log_form form, bool text, vt_buf *out)
{
    const server_note *n = r->note;
    line w = {.out = out, .is_json = form == SERVER_LOG_JSON};
    if (w.is_json) {
        vt_json_begin(&w.json, out, -1);
        vt_json_open(&w.json, NULL, '{');
    }
    put_time(&w, r->end_ns);
    put_string(&w, "id", n->id);
    if (n->trace.parent_id[0])
        put_string(&w, "trace", n->trace.trace_id);
    put_string(&w, "peer", n->peer);
    put_string(&w, "method", r->method);
    put_string(&w, "path", r->path);
    put_int(&w, "status", n->status);
    if (n->gone)
        put_string(&w, "client", "gone");
    if (r->generation)
        put_generation(&w, r, text);
    else
        put_ms(&w, "total_ms", r->end_ns - r->began_ns);
    if (r->why)
        put_string(&w, "error", r->why);
    put_int(&w, "bytes", (int64_t)n->bytes);
    if (w.is_json) {
        vt_json_close(&w.json);
        out->failed = !vt_json_end(&w.json) || out->failed;
    }
}
