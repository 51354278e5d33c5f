/* A web server in this process, on a port of its own, and clients that talk to it over raw sockets.
 * The handler is an echo whose path says how it answers:
 *
 *   /echo     the request's body, at once        /later    the same, posted from another thread
 *   /stream   three pieces                       /hold     nothing, until the test ends it
 *   /flood    pieces without end                 /events   an event stream that is held */
#ifndef VT_TESTS_WEB_FIXTURE_H
#define VT_TESTS_WEB_FIXTURE_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/json_write.h"
#include "server/http/web.h"

/* ---- the server under test ---- */

typedef struct site {
    vt_web *web;
    vt_web_options o;
    int port;
    pthread_t thread;
    sem_t began, gone,
        done;          /* posted by the handler, by `gone`, by what the loop was asked to do */
    vt_exchange *held; /* of the loop's thread, as what follows */
    vt_web_timer *flood;
    int32_t n_connections, n_exchanges;
    bool drained;
} site;

static inline void wait_for(sem_t *s)
{
    while (sem_wait(s) != 0)
        assert_int_equal(errno, EINTR);
}

static inline void on_gone(void *user, vt_exchange *x)
{
    site *s = user;
    assert_ptr_equal(vt_web_user(x), s);
    if (s->held == x)
        s->held = NULL;
    vt_web_timer_free(s->flood);
    s->flood = NULL;
    sem_post(&s->gone);
}

static inline void reply_body(void *arg)
{
    vt_exchange *x = arg;
    const vt_http_request *q = vt_web_request(x);
    vt_web_header(x, "X-Path", q->path);
    vt_web_header(x, "X-Bad", "a\r\nInjected: b");
    vt_web_reply(x, 200, "text/plain", q->body, q->body_len);
}

typedef struct later {
    site *s;
    vt_exchange *x;
} later;

static inline void *post_later(void *arg)
{
    later *l = arg;
    if (!vt_web_post(l->s->web, reply_body, l->x))
        abort();
    free(l);
    return NULL;
}

static inline void flood_more(void *arg)
{
    site *s = arg;
    static const char piece[4096];
    for (int i = 0; i < 64; i++)
        if (!vt_web_write(s->held, piece, sizeof piece))
            return; /* on_gone was called */
}

static inline void handle(void *user, vt_exchange *x)
{
    site *s = user;
    const char *path = vt_web_request(x)->path;
    vt_web_set_user(x, s);
    vt_web_on_gone(x, on_gone);
    if (strcmp(path, "/later") == 0) {
        pthread_t t;
        later *l = malloc(sizeof *l);
        *l = (later){s, x};
        pthread_create(&t, NULL, post_later, l);
        pthread_detach(t);
    } else if (strcmp(path, "/stream") == 0) {
        vt_web_stream(x, 200, "text/plain");
        vt_web_write(x, "one", 3);
        vt_web_write(x, "", 0);
        vt_web_write(x, "two", 3);
        vt_web_write(x, "three", 5);
        vt_web_end(x);
    } else if (strcmp(path, "/hold") == 0 || strcmp(path, "/events") == 0 ||
               strcmp(path, "/flood") == 0) {
        s->held = x;
        if (path[1] != 'h')
            vt_web_stream(x, 200, path[1] == 'e' ? "text/event-stream" : "text/plain");
        if (path[1] == 'f')
            s->flood = vt_web_timer_new(s->web, 0.001, false, flood_more, s);
        sem_post(&s->began);
    } else {
        reply_body(x);
    }
}

static inline void error_body(int status, const char *message, vt_buf *out)
{
    vt_json w;
    vt_json_begin(&w, out, -1);
    vt_json_open(&w, NULL, '{');
    vt_json_int(&w, "code", status);
    vt_json_string(&w, "message", message);
    vt_json_close(&w);
    vt_json_end(&w);
}

static inline void *run(void *arg)
{
    site *s = arg;
    if (vt_web_run(s->web, NULL) != VT_OK)
        abort();
    return NULL;
}

static inline site *site_new(void)
{
    site *s = calloc(1, sizeof *s);
    vt_web_options_init(&s->o);
    s->o.handler = handle;
    s->o.user = s;
    s->o.error_body = error_body;
    s->o.head_s = s->o.body_s = s->o.idle_s = s->o.send_s = 1e5; /* no test waits for one unasked */
    sem_init(&s->began, 0, 0);
    sem_init(&s->gone, 0, 0);
    sem_init(&s->done, 0, 0);
    return s;
}

/* Makes the server of s->o; listens on a port of 127.0.0.1, or on `path`; runs it. */
static inline void site_open(site *s, const char *path)
{
    vt_err err = {0};
    if (vt_web_new(&s->o, &s->web, &err) != VT_OK)
        fail_msg("%s", err.message);
    if ((path ? vt_web_listen_unix(s->web, path, &err)
              : vt_web_listen(s->web, "127.0.0.1", 0, &s->port, &err)) != VT_OK)
        fail_msg("%s", err.message);
    pthread_create(&s->thread, NULL, run, s);
}

static inline site *site_start(void)
{
    site *s = site_new();
    site_open(s, NULL);
    return s;
}

static inline void site_close(site *s)
{
    vt_web_stop(s->web);
    pthread_join(s->thread, NULL);
    assert_false(vt_web_post(s->web, reply_body, NULL));
    vt_web_free(s->web);
    sem_destroy(&s->began);
    sem_destroy(&s->gone);
    sem_destroy(&s->done);
    free(s);
}

/* Runs fn(s) on the loop's thread and waits until it has run. */
typedef struct asked {
    site *s;
    void (*fn)(site *s);
} asked;

static inline void run_asked(void *arg)
{
    asked *a = arg;
    if (a->fn)
        a->fn(a->s);
    a->s->n_connections = vt_web_connections(a->s->web);
    a->s->n_exchanges = vt_web_open_exchanges(a->s->web);
    a->s->drained = vt_web_drained(a->s->web);
    sem_post(&a->s->done);
}

static inline void ask(site *s, void (*fn)(site *s))
{
    asked a = {s, fn};
    assert_true(vt_web_post(s->web, run_asked, &a));
    wait_for(&s->done);
}

static inline void end_held(site *s)
{
    vt_exchange *x = s->held;
    s->held = NULL;
    if (strcmp(vt_web_request(x)->path, "/hold") == 0)
        reply_body(x);
    else
        vt_web_end(x);
}

/* ---- clients ---- */

static inline int dial(const site *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static inline int dial_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

static inline void say_n(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        assert_true(n > 0);
        bytes += n;
        len -= (size_t)n;
    }
}

static void say(int fd, const char *text) { say_n(fd, text, strlen(text)); }

/* One answer: its head in `head`, its body, put together, in `body`. */
typedef struct answer {
    char head[2048], body[8192];
    size_t len;
    int status;
} answer;

/* One byte, so that nothing of the next answer is taken; false at the end. */
static inline bool next_byte(int fd, char *c)
{
    ssize_t n;
    do
        n = recv(fd, c, 1, 0);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

static inline size_t read_line(int fd, char *line, size_t room)
{
    size_t n = 0;
    while (n + 1 < room && next_byte(fd, line + n))
        if (line[n++] == '\n')
            break;
    line[n] = '\0';
    return n;
}

static inline void read_bytes(int fd, answer *a, size_t n)
{
    for (; n > 0; n--) {
        assert_true(a->len + 1 < sizeof a->body);
        assert_true(next_byte(fd, a->body + a->len++));
    }
}

static inline void read_body(int fd, answer *a)
{
    const char *length = strstr(a->head, "Content-Length: ");
    char line[64];
    if (length)
        read_bytes(fd, a, strtoul(length + 16, NULL, 10));
    else if (strstr(a->head, "Transfer-Encoding: chunked"))
        for (size_t n = 1; n > 0;) {
            assert_true(read_line(fd, line, sizeof line) > 2);
            n = strtoul(line, NULL, 16);
            read_bytes(fd, a, n);
            assert_int_equal(read_line(fd, line, sizeof line), 2);
        }
    else if (a->status != 204 && a->status >= 200)
        while (a->len + 1 < sizeof a->body && next_byte(fd, a->body + a->len))
            a->len++;
}

static inline void hear_head(int fd, answer *a)
{
    *a = (answer){0};
    size_t n = 0, line = 0;
    do
        n += line = read_line(fd, a->head + n, sizeof a->head - n);
    while (line > 2);
    assert_int_equal(line, 2);
    a->status = (int)strtol(a->head + 9, NULL, 10);
    assert_null(strstr(a->head, "Injected"));
}

static inline void hear(int fd, answer *a)
{
    hear_head(fd, a);
    read_body(fd, a);
    a->body[a->len] = '\0';
}

static inline void expect(int fd, int status, const char *body)
{
    answer a;
    hear(fd, &a);
    assert_int_equal(a.status, status);
    if (body)
        assert_string_equal(a.body, body);
}

static inline void expect_end(int fd)
{
    char c;
    assert_false(next_byte(fd, &c));
    close(fd);
}

#define ECHO(text, length) \
    "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " length "\r\n\r\n" text

#endif
