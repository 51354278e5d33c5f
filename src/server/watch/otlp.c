#include "server/watch/otlp.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/api/generation.h"

enum {
    MAX_SPANS = 2048, /* that wait */
    MAX_BATCH = 256,  /* of one POST */
    EVERY_MS = 1000,  /* how long a span waits for others */
    SEND_MS = 5000,   /* a POST, from connecting to the status line */
    LAST_MS = 2000,   /* what is sent at the end of the server */
    SAY_S = 60,
};

/* A span, made of a generation that is gone by the time it is sent. */
typedef struct span {
    server_trace trace;
    const char *path, *operation, *finish; /* static */
    char answer[160], peer[64], error[128];
    char model[256];
    int64_t began_ns, end_ns;      /* since the epoch */
    int64_t admitted_ns, first_ns; /* likewise; 0: it did not get there */
    int32_t prompt_tokens, cached_tokens, output_tokens, max_tokens, status;
    float temperature, top_p;
    bool chat;
    vt_request_id story;
} span;

struct server_otlp {
    server_endpoint endpoint;
    struct addrinfo *address;
    server_log *log;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    span *queue; /* [MAX_SPANS] a ring */
    int32_t first, n;
    bool quit;
    int64_t quit_ns;
    server_otlp_counts counts;
    /* of the thread alone */
    span *batch; /* [MAX_BATCH] */
    uint64_t unsaid;
    int64_t said_ns;
    char why[160]; /* the newest failure */
};

/* ---- the endpoint ---- */

vt_status server_endpoint_read(const char *text, server_endpoint *out, vt_err *err)
{
    static const char http[] = "http://", https[] = "https://", key[] = "otlp-endpoint";
    if (strncasecmp(text, https, sizeof https - 1) == 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: https is not there yet in this version, expected http://HOST:PORT, "
                       "such as that of a collector on this machine",
                       key);
    if (strncasecmp(text, http, sizeof http - 1) != 0)
        return vt_fail(err, VT_ERR_USAGE, "%s: '%.80s' found, expected http://HOST:PORT", key,
                       text);
    *out = (server_endpoint){.port = "4318", .path = "/v1/traces"};
    const char *host = text + sizeof http - 1;
    if (memchr(host, '@', strcspn(host, "/?#")))
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: holds a name or password ('@'), expected http://HOST:PORT", key);
    bool v6 = *host == '[';
    size_t n = v6 ? strcspn(++host, "]/") : strcspn(host, ":/?#");
    if (n == 0 || n >= sizeof out->host || (v6 && host[n] != ']'))
        return vt_fail(err, VT_ERR_USAGE, "%s: '%.80s' has no host, expected http://HOST:PORT", key,
                       text);
    memcpy(out->host, host, n);
    const char *p = host + n + v6;
    if (*p == ':') {
        size_t digits = strspn(++p, "0123456789");
        if (digits == 0 || digits > 5 || strtol(p, NULL, 10) < 1 || strtol(p, NULL, 10) > 65535)
            return vt_fail(err, VT_ERR_USAGE, "%s: the port in '%.80s', expected 1 to 65535", key,
                           text);
        memset(out->port, 0, sizeof out->port);
        memcpy(out->port, p, digits);
        p += digits;
    }
    size_t path = strcspn(p, "?# \t\r\n");
    if ((*p && *p != '/') || p[path] || path >= sizeof out->path)
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: '%.80s' found, expected http://HOST:PORT, or that and a /PATH", key,
                       text);
    for (const char *c = text; *c; c++)
        if (*c <= ' ' || *c > '~')
            return vt_fail(err, VT_ERR_USAGE, "%s: holds a character that is not printable ASCII",
                           key);
    if (path > 1)
        snprintf(out->path, sizeof out->path, "%s", p);
    return VT_OK;
}

static bool look_up(server_otlp *o)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int code = getaddrinfo(o->endpoint.host, o->endpoint.port, &hints, &found);
    if (code != 0) {
        snprintf(o->why, sizeof o->why, "%s", gai_strerror(code));
        return false;
    }
    if (o->address)
        freeaddrinfo(o->address);
    o->address = found;
    return true;
}

/* ---- a batch as JSON ---- */

static void attribute_open(vt_json *w, const char *key)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "key", key);
    vt_json_open(w, "value", '{');
}

static void attribute_close(vt_json *w)
{
    vt_json_close(w);
    vt_json_close(w);
}

static void put_string(vt_json *w, const char *key, const char *value)
{
    attribute_open(w, key);
    vt_json_string(w, "stringValue", value);
    attribute_close(w);
}

/* 64-bit whole numbers are strings in JSON's form of protocol buffers. */
static void put_int(vt_json *w, const char *key, int64_t value)
{
    attribute_open(w, key);
    vt_json_printf(w, "intValue", "%lld", (long long)value);
    attribute_close(w);
}

static void put_double(vt_json *w, const char *key, double value)
{
    attribute_open(w, key);
    vt_json_real(w, "doubleValue", value);
    attribute_close(w);
}

static void put_attributes(vt_json *w, const span *s)
{
    vt_json_open(w, "attributes", '[');
    put_string(w, "gen_ai.operation.name", s->operation);
    put_string(w, "gen_ai.provider.name", "vitrine");
    put_string(w, "gen_ai.request.model", s->model);
    put_string(w, "gen_ai.response.model", s->model);
    put_string(w, "gen_ai.response.id", s->answer);
    if (s->story) {
        put_int(w, "gen_ai.request.max_tokens", s->max_tokens);
        put_double(w, "gen_ai.request.temperature", (double)s->temperature);
        put_double(w, "gen_ai.request.top_p", (double)s->top_p);
        put_int(w, "gen_ai.usage.input_tokens", s->prompt_tokens);
        put_int(w, "gen_ai.usage.cache_read.input_tokens", s->cached_tokens);
        put_int(w, "gen_ai.usage.output_tokens", s->output_tokens);
        put_int(w, "vitrine.story", (int64_t)s->story);
    }
    if (s->first_ns)
        put_double(w, "gen_ai.response.time_to_first_chunk",
                   (double)(s->first_ns - s->began_ns) * 1e-9);
    attribute_open(w, "gen_ai.response.finish_reasons");
    vt_json_open(w, "arrayValue", '{');
    vt_json_open(w, "values", '[');
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "stringValue", s->finish);
    vt_json_close(w);
    vt_json_close(w);
    vt_json_close(w);
    attribute_close(w);
    put_string(w, "http.request.method", "POST");
    put_string(w, "http.route", s->path);
    put_int(w, "http.response.status_code", s->status);
    put_string(w, "client.address", s->peer);
    if (s->error[0])
        put_string(w, "error.type", s->finish);
    vt_json_close(w);
}

static void put_event(vt_json *w, const char *name, int64_t at_ns)
{
    if (!at_ns)
        return;
    vt_json_open(w, NULL, '{');
    vt_json_printf(w, "timeUnixNano", "%lld", (long long)at_ns);
    vt_json_string(w, "name", name);
    vt_json_close(w);
}

static void put_span(vt_json *w, const span *s)
{
    enum { KIND_SERVER = 2, STATUS_UNSET = 0, STATUS_ERROR = 2 };
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "traceId", s->trace.trace_id);
    vt_json_string(w, "spanId", s->trace.span_id);
    if (s->trace.parent_id[0])
        vt_json_string(w, "parentSpanId", s->trace.parent_id);
    vt_json_printf(w, "name", "%s %s", s->operation, s->model);
    vt_json_int(w, "kind", KIND_SERVER);
    vt_json_printf(w, "startTimeUnixNano", "%lld", (long long)s->began_ns);
    vt_json_printf(w, "endTimeUnixNano", "%lld", (long long)s->end_ns);
    put_attributes(w, s);
    vt_json_open(w, "events", '[');
    put_event(w, "admitted", s->admitted_ns);
    put_event(w, "first_token", s->first_ns);
    vt_json_close(w);
    vt_json_open(w, "status", '{');
    vt_json_int(w, "code", s->error[0] ? STATUS_ERROR : STATUS_UNSET);
    if (s->error[0])
        vt_json_string(w, "message", s->error);
    vt_json_close(w);
    vt_json_close(w);
}

static bool write_batch(const span *s, int32_t n, vt_buf *out)
{
    vt_json w;
    vt_json_begin(&w, out, -1);
    vt_json_open(&w, NULL, '{');
    vt_json_open(&w, "resourceSpans", '[');
    vt_json_open(&w, NULL, '{');
    vt_json_open(&w, "resource", '{');
    vt_json_open(&w, "attributes", '[');
    put_string(&w, "service.name", "vitrine");
    put_string(&w, "service.version", vt_version());
    vt_json_close(&w);
    vt_json_close(&w);
    vt_json_open(&w, "scopeSpans", '[');
    vt_json_open(&w, NULL, '{');
    vt_json_open(&w, "scope", '{');
    vt_json_string(&w, "name", "vitrine");
    vt_json_close(&w);
    vt_json_open(&w, "spans", '[');
    for (int32_t i = 0; i < n; i++)
        put_span(&w, &s[i]);
    while (w.depth > 0)
        vt_json_close(&w);
    return vt_json_end(&w);
}

/* ---- a POST ---- */

static bool is_ending(server_otlp *o)
{
    pthread_mutex_lock(&o->lock);
    bool quit = o->quit;
    pthread_mutex_unlock(&o->lock);
    return quit;
}

/* Waits until the socket is ready, the time is over, or the server must end. */
static bool wait_for(server_otlp *o, int fd, short events, int64_t until_ns)
{
    for (;;) {
        pthread_mutex_lock(&o->lock);
        int64_t end = o->quit && o->quit_ns + LAST_MS * INT64_C(1000000) < until_ns
                          ? o->quit_ns + LAST_MS * INT64_C(1000000)
                          : until_ns;
        pthread_mutex_unlock(&o->lock);
        if (vt_now_ns() >= end) {
            snprintf(o->why, sizeof o->why, "it does not answer in time");
            return false;
        }
        struct pollfd p = {.fd = fd, .events = events};
        if (poll(&p, 1, 100) > 0)
            return true;
    }
}

static int connect_to(server_otlp *o, int64_t until_ns)
{
    for (struct addrinfo *a = o->address; a; a = a->ai_next) {
        int code = 0;
        socklen_t size = sizeof code;
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (fd < 0)
            continue;
        bool done = connect(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (!done && errno == EINPROGRESS && wait_for(o, fd, POLLOUT, until_ns))
            done = getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 && code == 0;
        if (done)
            return fd;
        snprintf(o->why, sizeof o->why, "%s", strerror(code ? code : errno));
        close(fd);
    }
    return -1;
}

static bool send_all(server_otlp *o, int fd, const vt_buf *b, int64_t until_ns)
{
    for (size_t done = 0; done < b->len;) {
        ssize_t n = send(fd, b->data + done, b->len - done, MSG_NOSIGNAL);
        if (n > 0)
            done += (size_t)n;
        else if ((errno != EAGAIN && errno != EINTR) || !wait_for(o, fd, POLLOUT, until_ns)) {
            snprintf(o->why, sizeof o->why, "%s", strerror(errno));
            return false;
        }
    }
    return true;
}

/* Reads "HTTP/1.x 200"; the rest of the answer is of no use. */
static bool read_status(server_otlp *o, int fd, int64_t until_ns)
{
    char head[16] = {0};
    size_t have = 0;
    while (have < 12) {
        if (!wait_for(o, fd, POLLIN, until_ns))
            return false;
        ssize_t n = recv(fd, head + have, 12 - have, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            snprintf(o->why, sizeof o->why, "it closes the connection without an answer");
            return false;
        }
        have += n > 0 ? (size_t)n : 0;
    }
    if (strncmp(head, "HTTP/1.", 7) == 0 && strncmp(head + 8, " 2", 2) == 0)
        return true;
    bool status = strncmp(head, "HTTP/1.", 7) == 0 && strspn(head + 9, "0123456789") == 3;
    snprintf(o->why, sizeof o->why, "it answers %s",
             status ? head + 9 : "something else than HTTP");
    return false;
}

static bool post(server_otlp *o, const vt_buf *body)
{
    int64_t until = vt_now_ns() + SEND_MS * INT64_C(1000000);
    const server_endpoint *e = &o->endpoint;
    vt_buf message = {0};
    int fd = connect_to(o, until);
    if (fd < 0) {
        if (!is_ending(o))
            (void)look_up(o); /* the host may have moved: for the next batch */
        return false;
    }
    bool v6 = strchr(e->host, ':') != NULL;
    vt_buf_printf(&message,
                  "POST %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nContent-Type: application/json\r\n"
                  "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                  e->path, v6 ? "[" : "", e->host, v6 ? "]" : "", e->port, body->len);
    vt_buf_add(&message, body->data, body->len);
    bool ok = !message.failed && send_all(o, fd, &message, until) && read_status(o, fd, until);
    vt_buf_release(&message);
    close(fd);
    return ok;
}

/* ---- the thread ---- */

static void say_failures(server_otlp *o)
{
    char line[512];
    int64_t now = vt_now_ns();
    if (o->unsaid == 0 || (o->said_ns && now - o->said_ns < SAY_S * INT64_C(1000000000)))
        return;
    int n = snprintf(line, sizeof line,
                     "vitrine: otlp-endpoint: %llu spans could not be sent to %s port %s: %s",
                     (unsigned long long)o->unsaid, o->endpoint.host, o->endpoint.port, o->why);
    server_log_line(o->log, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
    o->unsaid = 0;
    o->said_ns = now;
}

static void send_batch(server_otlp *o, int32_t n)
{
    vt_buf body = {0};
    bool ok = write_batch(o->batch, n, &body) && post(o, &body);
    vt_buf_release(&body);
    pthread_mutex_lock(&o->lock);
    *(ok ? &o->counts.sent : &o->counts.failed) += (uint64_t)n;
    pthread_mutex_unlock(&o->lock);
    o->unsaid += ok ? 0 : (uint64_t)n;
}

/* Waits for a first span, and then a while for others. Returns how many are in o->batch. */
static int32_t take_batch(server_otlp *o)
{
    struct timespec until;
    pthread_mutex_lock(&o->lock);
    while (o->n == 0 && !o->quit)
        pthread_cond_wait(&o->wake, &o->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += EVERY_MS / 1000;
    while (o->n < MAX_BATCH && !o->quit)
        if (pthread_cond_timedwait(&o->wake, &o->lock, &until) == ETIMEDOUT)
            break;
    int32_t n = o->n < MAX_BATCH ? o->n : MAX_BATCH;
    for (int32_t i = 0; i < n; i++)
        o->batch[i] = o->queue[(o->first + i) % MAX_SPANS];
    o->first = (o->first + n) % MAX_SPANS;
    o->n -= n;
    pthread_mutex_unlock(&o->lock);
    return n;
}

static void *sender(void *arg)
{
    server_otlp *o = arg;
    for (int32_t n; (n = take_batch(o)) > 0;) {
        send_batch(o, n);
        say_failures(o);
    }
    o->said_ns = 0;
    say_failures(o);
    return NULL;
}

/* ---- for the loop ---- */

vt_status server_otlp_new(const char *endpoint, server_log *log, server_otlp **out, vt_err *err)
{
    server_endpoint e;
    TRY(server_endpoint_read(endpoint, &e, err));
    server_otlp *o = vt_calloc(1, sizeof *o);
    if (o) {
        o->queue = vt_calloc(MAX_SPANS, sizeof *o->queue);
        o->batch = vt_calloc(MAX_BATCH, sizeof *o->batch);
        o->endpoint = e;
        o->log = log;
        pthread_mutex_init(&o->lock, NULL);
        pthread_cond_init(&o->wake, NULL);
    }
    vt_status status = VT_OK;
    if (!o || !o->queue || !o->batch)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for spans");
    else if (!look_up(o))
        status = vt_fail(err, VT_ERR_IO, "otlp-endpoint: %s: %s", e.host, o->why);
    else if (pthread_create(&o->thread, NULL, sender, o) != 0)
        status = vt_fail(err, VT_ERR_MEMORY, "the thread that sends spans could not be started");
    if (status == VT_OK) {
        *out = o;
        return VT_OK;
    }
    if (o) {
        if (o->address)
            freeaddrinfo(o->address);
        free(o->queue);
        free(o->batch);
    }
    free(o);
    return status;
}

void server_otlp_free(server_otlp *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->lock);
    o->quit = true;
    o->quit_ns = vt_now_ns();
    pthread_cond_signal(&o->wake);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    freeaddrinfo(o->address);
    pthread_cond_destroy(&o->wake);
    pthread_mutex_destroy(&o->lock);
    free(o->queue);
    free(o->batch);
    free(o);
}

static void fill(span *s, const server_record *r)
{
    const generation *g = r->generation;
    const vt_request_params *p = &g->request.p;
    int64_t offset = server_wall_ns(0);
    *s = (span){
        .trace = r->note->trace,
        .path = r->path,
        .operation = g->form->api == VT_OPENAI_CHAT ? "chat"
                     : p->embed                     ? "embeddings"
                                                    : "text_completion",
        .finish = server_finish_names[r->finish],
        .began_ns = r->began_ns + offset,
        .end_ns = r->end_ns + offset,
        .admitted_ns = g->at.admitted ? g->at.admitted + offset : 0,
        .first_ns = g->at.first_token ? g->at.first_token + offset : 0,
        .prompt_tokens = g->reply.prompt_tokens,
        .cached_tokens = g->reply.cached_tokens,
        .output_tokens = g->reply.completion_tokens,
        .max_tokens = p->max_tokens,
        .temperature = p->temperature,
        .top_p = p->top_p,
        .status = r->note->status,
        .story = g->n_submitted > 0 ? g->part[0].id : 0,
    };
    snprintf(s->answer, sizeof s->answer, "%s", g->reply.id ? g->reply.id : g->id);
    snprintf(s->peer, sizeof s->peer, "%s", r->note->peer);
    snprintf(s->model, sizeof s->model, "%s", g->server->model_name);
    /* only the server's own failures are errors of a server's span */
    if (g->error.http >= 500 || r->finish == SERVER_ERROR)
        snprintf(s->error, sizeof s->error, "%.127s", g->error.message);
}

void server_otlp_add(server_otlp *o, const server_record *r)
{
    span s;
    fill(&s, r);
    pthread_mutex_lock(&o->lock);
    if (o->n == MAX_SPANS) {
        o->counts.dropped++;
    } else {
        o->queue[(o->first + o->n++) % MAX_SPANS] = s;
        pthread_cond_signal(&o->wake);
    }
    pthread_mutex_unlock(&o->lock);
}

void server_otlp_get_counts(server_otlp *o, server_otlp_counts *out)
{
    pthread_mutex_lock(&o->lock);
    *out = o->counts;
    pthread_mutex_unlock(&o->lock);
}
