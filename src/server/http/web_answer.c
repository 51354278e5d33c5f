/* Exchanges: what handlers call to read a request and to answer it (server/http/web.h). */
#include "server/http/web_inside.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

/* ---- heads ---- */

/* The date as HTTP writes it, in English whatever the locale is; made once a second. */
static const char *date(vt_web *w)
{
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm t;
    if ((int64_t)now != w->date_s && gmtime_r(&now, &t)) {
        snprintf(w->date, sizeof w->date, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[t.tm_wday],
                 t.tm_mday, months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
        w->date_s = now;
    }
    return w->date;
}

static void put_header(vt_buf *b, const char *name, const char *value)
{
    vt_buf_puts(b, name);
    vt_buf_add(b, ": ", 2);
    vt_buf_puts(b, value);
    vt_buf_add(b, "\r\n", 2);
}

void web_write_head(web_connection *c, int status, const char *type, int64_t length,
                    const char *headers, bool keep_alive, bool chunked)
{
    vt_web *w = c->web;
    vt_buf *b = &w->scratch;
    char number[24];
    snprintf(number, sizeof number, "HTTP/1.1 %d ", status);
    vt_buf_puts(b, number);
    vt_buf_puts(b, vt_http_reason(status));
    vt_buf_puts(b, "\r\n");
    put_header(b, "Date", date(w));
    if (type)
        put_header(b, "Content-Type", type);
    if (length >= 0) {
        snprintf(number, sizeof number, "%lld", (long long)length);
        put_header(b, "Content-Length", number);
    }
    if (chunked)
        put_header(b, "Transfer-Encoding", "chunked");
    if (!keep_alive)
        put_header(b, "Connection", "close");
    else if (vt_http_reader_request(c->reader)->minor == 0)
        put_header(b, "Connection", "keep-alive");
    if (w->cors_origin) {
        put_header(b, "Access-Control-Allow-Origin", w->cors_origin);
        put_header(b, "Access-Control-Expose-Headers", "*");
        if (strcmp(w->cors_origin, "*") != 0)
            put_header(b, "Vary", "Origin"); /* other origins get other answers: a 403 */
    }
    vt_buf_puts(b, headers);
    vt_buf_puts(b, "\r\n");
}

/* Returns true if an answer of this status has no body and names no length. */
static bool is_bodiless(int status) { return status < 200 || status == 204 || status == 304; }

/* Sends w->scratch and what follows it. Without memory for a head the connection ends. */
static void send_scratch(web_connection *c, const void *body, size_t len)
{
    vt_buf *b = &c->web->scratch;
    struct iovec part[2] = {{b->data, b->len}, {(void *)(uintptr_t)body, len}};
    if (b->failed)
        web_break(c);
    else
        web_send(c, part, len > 0 ? 2 : 1);
    vt_buf_clear(b);
}

void web_answer_error(web_connection *c, int status, const char *message)
{
    vt_buf body;
    vt_buf_init(&body, 0);
    bool json = c->web->o.error_body != NULL;
    if (json)
        c->web->o.error_body(status, message, &body);
    else
        vt_buf_printf(&body, "%s\n", message);
    if (body.failed)
        vt_buf_clear(&body);
    c->phase = WEB_FLUSH; /* deadlines: those of sending */
    vt_http_reader_drop_body(c->reader);
    web_connection_hold(c, 0);
    web_write_head(c, status, json ? "application/json" : "text/plain; charset=utf-8",
                   (int64_t)body.len, status == 503 ? "Retry-After: 1\r\n" : "", false, false);
    send_scratch(c, body.data, body.len);
    vt_web_outcome outcome = {.peer = c->peer, .status = status, .bytes = body.len, .why = message};
    if (c->web->o.ended)
        c->web->o.ended(c->web->o.user, NULL, &outcome);
    vt_buf_release(&body);
    web_connection_finish(c);
}

void web_answer_plain(web_connection *c)
{
    static const char why[] = "The client speaks plain HTTP, but this port TLS: ask by https://.";
    static const char head[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
                               "Connection: close\r\n\r\n";
    char unread[4096];
    struct iovec part[3] = {{(char *)(uintptr_t)head, sizeof head - 1},
                            {(char *)(uintptr_t)why, sizeof why - 1},
                            {"\n", 1}};
    struct msghdr all = {.msg_iov = part, .msg_iovlen = 3};
    /* If bytes were left unread, the kernel would send a reset behind the answer. */
    for (int i = 0; i < 16 && recv(c->fd, unread, sizeof unread, MSG_DONTWAIT) > 0;)
        i++;
    sendmsg(c->fd, &all, MSG_DONTWAIT | MSG_NOSIGNAL);
    vt_web_outcome outcome = {.peer = c->peer, .status = 400, .bytes = sizeof why, .why = why};
    if (c->web->o.ended)
        c->web->o.ended(c->web->o.user, NULL, &outcome);
}

/* ---- the life of an exchange ---- */

void web_exchange_free(vt_exchange *x, bool gone)
{
    const vt_web_options *o = &x->c->web->o;
    vt_web_outcome outcome = {
        .peer = x->c->peer, .status = x->status, .bytes = x->bytes, .gone = gone};
    if (o->ended)
        o->ended(o->user, x, &outcome);
    vt_buf_release(&x->headers);
    free(x);
}

/* The exchange is over; its connection goes on or closes. */
static void end_exchange(vt_exchange *x)
{
    web_connection *c = x->c;
    bool keep_alive = x->keep_alive;
    c->x = NULL;
    c->web->n_exchanges--;
    web_exchange_free(x, false);
    web_connection_answered(c, keep_alive);
}

/* A browser asks whether a page of another origin may send a request (Fetch standard, CORS). The
 * headers that it names are allowed: they cannot do what a client without a browser could not. */
static void answer_preflight(vt_exchange *x)
{
    const char *wanted = vt_http_find(vt_web_request(x), "access-control-request-headers");
    vt_web_header(x, "Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS");
    if (wanted)
        vt_web_header(x, "Access-Control-Allow-Headers", wanted);
    vt_web_header(x, "Access-Control-Max-Age", "600");
    vt_web_reply(x, 204, NULL, NULL, 0);
}

void web_exchange_begin(web_connection *c, bool whole)
{
    vt_web *w = c->web;
    const vt_http_request *q = vt_http_reader_request(c->reader);
    vt_exchange *x = vt_calloc(1, sizeof *x);
    if (!x) {
        web_answer_error(c, 503, "The server has no memory for this request.");
        return;
    }
    *x = (vt_exchange){.c = c,
                       .began_ns = c->began_ns,
                       .whole_ns = vt_now_ns(),
                       .keep_alive = whole && q->keep_alive && !w->draining,
                       .head_only = strcmp(q->method, "HEAD") == 0};
    c->x = x;
    w->n_exchanges++;
    if (w->cors_origin && strcmp(q->method, "OPTIONS") == 0 &&
        vt_http_find(q, "access-control-request-method"))
        answer_preflight(x);
    else
        w->o.handler(w->o.user, x);
}

bool web_probe(web_connection *c)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    static const char comment[] = ":\n\n", chunk[] = "3\r\n:\n\n\r\n";
    vt_exchange *x = c->x;
    struct iovec part = {(char *)(uintptr_t)go_on, sizeof go_on - 1};
    if (c->ssl)
        return false;
    if (web_unsent(c) > 0)
        return true; /* what waits does the same */
    if (!x->streaming && vt_http_reader_request(c->reader)->minor == 0)
        return false;
    if (x->streaming && (!x->events || x->head_only))
        return false;
    if (x->streaming)
        part = x->chunked ? (struct iovec){(char *)(uintptr_t)chunk, sizeof chunk - 1}
                          : (struct iovec){(char *)(uintptr_t)comment, sizeof comment - 1};
    web_send(c, &part, 1);
    return true;
}

/* ---- what handlers call ---- */

const vt_http_request *vt_web_request(const vt_exchange *x)
{
    return vt_http_reader_request(x->c->reader);
}

bool vt_web_take_body(vt_exchange *x, vt_buf *out)
{
    return vt_http_reader_take_body(x->c->reader, out);
}

void vt_web_drop_body(vt_exchange *x)
{
    vt_http_reader_drop_body(x->c->reader);
    web_connection_hold(x->c, 0);
}

const char *vt_web_peer(const vt_exchange *x) { return x->c->peer; }

int64_t vt_web_began_ns(const vt_exchange *x) { return x->began_ns; }

int64_t vt_web_whole_ns(const vt_exchange *x) { return x->whole_ns; }

void vt_web_set_user(vt_exchange *x, void *user) { x->user = user; }

void *vt_web_user(const vt_exchange *x) { return x->user; }

void vt_web_set_note(vt_exchange *x, void *note) { x->note = note; }

void *vt_web_note(const vt_exchange *x) { return x->note; }

void vt_web_on_gone(vt_exchange *x, void (*gone)(void *user, vt_exchange *x)) { x->gone = gone; }

void vt_web_header(vt_exchange *x, const char *name, const char *value)
{
    for (const char *v = value; *v; v++)
        if (((unsigned char)*v < 0x20 && *v != '\t') || *v == 0x7f)
            return;
    put_header(&x->headers, name, value);
}

/* The headers that the handler has set. */
static const char *set_headers(const vt_exchange *x)
{
    return x->headers.data && !x->headers.failed ? x->headers.data : "";
}

/* Answers 503 in place of an answer for which there is no room. */
static void reply_full(vt_exchange *x)
{
    static const char why[] = "Too many answers wait for clients that read slowly.";
    const vt_web_options *o = &x->c->web->o;
    vt_buf body;
    vt_buf_init(&body, 0);
    if (o->error_body)
        o->error_body(503, why, &body);
    else
        vt_buf_puts(&body, why);
    put_header(&x->headers, "Retry-After", "1");
    vt_web_reply(x, 503, o->error_body ? "application/json" : "text/plain; charset=utf-8",
                 body.data, body.len);
    vt_buf_release(&body);
}

/* Returns true if the answers that wait leave no room for so many bytes. Small ones always fit:
 * connections are limited. */
static bool is_full(const vt_web *w, size_t len)
{
    enum { SMALL = 16 << 10 };
    return len > SMALL && (w->outputs > w->o.max_output || len > w->o.max_output - w->outputs);
}

void vt_web_reply(vt_exchange *x, int status, const char *type, const void *body, size_t len)
{
    web_connection *c = x->c;
    assert(c->x == x && !x->streaming);
    if (is_full(c->web, len)) {
        reply_full(x);
        return;
    }
    bool bodiless = is_bodiless(status);
    x->keep_alive = x->keep_alive && !c->web->draining;
    x->status = status;
    x->bytes = bodiless || x->head_only ? 0 : len;
    web_write_head(c, status, type, bodiless ? -1 : (int64_t)len, set_headers(x), x->keep_alive,
                   false);
    send_scratch(c, body, bodiless || x->head_only ? 0 : len);
    end_exchange(x);
}

void vt_web_stream(vt_exchange *x, int status, const char *type)
{
    web_connection *c = x->c;
    assert(c->x == x && !x->streaming && !is_bodiless(status));
    x->streaming = true;
    x->status = status;
    x->events = type && strncmp(type, "text/event-stream", 17) == 0;
    x->chunked = vt_web_request(x)->minor > 0;
    x->keep_alive = x->keep_alive && x->chunked && !c->web->draining;
    web_write_head(c, status, type, -1, set_headers(x), x->keep_alive, x->chunked);
    send_scratch(c, NULL, 0);
}

bool vt_web_write(vt_exchange *x, const void *data, size_t len)
{
    web_connection *c = x->c;
    assert(c->x == x && x->streaming);
    if (x->head_only || len == 0)
        return true;
    size_t unsent = web_unsent(c);
    bool full = c->web->outputs > c->web->o.max_output;
    if (unsent > 0 && (full || len > c->web->o.max_unsent || unsent > c->web->o.max_unsent - len)) {
        web_connection_drop(c);
        return false;
    }
    x->bytes += len;
    char size[24];
    int n = snprintf(size, sizeof size, "%zx\r\n", len);
    struct iovec part[3] = {
        {size, (size_t)n}, {(void *)(uintptr_t)data, len}, {(char *)(uintptr_t) "\r\n", 2}};
    if (x->chunked)
        web_send(c, part, 3);
    else
        web_send(c, part + 1, 1);
    return true;
}

void vt_web_end(vt_exchange *x)
{
    assert(x->c->x == x && x->streaming);
    struct iovec last = {(char *)(uintptr_t) "0\r\n\r\n", 5};
    if (x->chunked && !x->head_only)
        web_send(x->c, &last, 1);
    end_exchange(x);
}

size_t vt_web_unsent(const vt_exchange *x) { return web_unsent(x->c); }
