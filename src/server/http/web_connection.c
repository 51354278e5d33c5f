/* A connection, from its first byte to its last (server/http/web.h; phases in web_inside.h).
 *
 * A client that leaves while it waits for an answer is noticed at once, so that the work for it can
 * be stopped. How, in steps:
 *
 *   1. The socket is read during an answer too. The bytes belong to the next request and wait in
 *      the input buffer. Behind them libevent reports a reset, or that the client has shut its
 *      sending side (FIN).
 *   2. FIN does not yet mean that the client has left: it may still read ("printf ... | nc -N").
 *      Over TCP the two look the same until the server sends something, which a client that has
 *      left answers with a reset. So the server sends what a client must ignore: "100 Continue"
 *      before the answer has begun (RFC 9110, 15.2 allows any number of them), a comment line in an
 *      event stream. After 5, 10, 20 ... ms it looks whether a reset has come.
 *   3. Where nothing can be sent (HTTP/1.0, TLS, streams of other types) FIN counts as having left.
 *      We know no client of these kinds that shuts one side alone.
 *   4. If the input buffer is full, the socket is not read, and FIN waits behind the bytes in it,
 *      or on the client's side of a closed window. Then poll() is asked and bytes are sent as in 2.
 *
 * A Unix socket tells the two apart by itself (POLLHUP against POLLRDHUP). */
#include "server/http/web_inside.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define WATCH_FIRST_S 0.005
#define WATCH_LAST_S 1.0
enum { SEND_LOOKS = 4 }; /* looks for progress within send_s */

static bool takes_requests(const web_connection *c)
{
    return c->phase == WEB_IDLE || c->phase == WEB_HEAD || c->phase == WEB_BODY;
}

static size_t input_length(const web_connection *c)
{
    return evbuffer_get_length(bufferevent_get_input(c->bev));
}

static void set_deadline(web_connection *c, double seconds)
{
    struct timeval wait = web_timeval(seconds);
    event_add(&c->deadline, &wait);
}

static void drain_input(web_connection *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    evbuffer_drain(in, evbuffer_get_length(in));
}

/* Reading is switched off while the input buffer is full: libevent would call on_read all the time
 * until the buffer is less full than its watermark. */
static void pause_reading(web_connection *c)
{
    c->paused = true;
    bufferevent_disable(c->bev, EV_READ);
}

/* Reads on: what the socket still holds comes now, and FIN behind it once more. */
static void resume_reading(web_connection *c)
{
    if (!c->paused || input_length(c) >= WEB_INPUT)
        return;
    c->paused = c->eof = false;
    bufferevent_enable(c->bev, EV_READ);
}

void web_connection_hold(web_connection *c, size_t n)
{
    c->web->bodies = c->web->bodies - c->held + n;
    c->held = n;
}

/* ---- the end ---- */

static void connection_free(web_connection *c)
{
    c->web->outputs -= web_unsent(c); /* freeing a buffer calls nothing back */
    bufferevent_free(c->bev);         /* closes the socket */
    vt_http_reader_free(c->reader);
    free(c);
}

void web_connection_drop(web_connection *c)
{
    vt_web *w = c->web;
    if (c->dead)
        return;
    c->dead = true;
    event_del(&c->deadline);
    event_del(&c->watch);
    event_del(&c->again);
    *(c->prev ? &c->prev->next : &w->connections) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    w->n_refusing -= c->refusing;
    w->n_connections -= !c->refusing;
    web_connection_hold(c, 0);
    if (c->x) {
        vt_exchange *x = c->x;
        c->x = NULL;
        w->n_exchanges--;
        if (x->gone)
            x->gone(x->user, x);
        web_exchange_free(x, true);
    }
    if (!c->pumping)
        connection_free(c);
}

/* Everything was sent before the end: shuts our side and waits for the client to shut its own. */
static void linger(web_connection *c)
{
    web_shut(c);
    drain_input(c);
    resume_reading(c);
    if (c->eof) {
        web_connection_drop(c);
        return;
    }
    c->phase = WEB_LINGER;
    set_deadline(c, WEB_LINGER_S);
}

void web_connection_finish(web_connection *c)
{
    c->phase = WEB_FLUSH;
    c->closing = true;
    if (web_unsent(c) == 0)
        linger(c);
}

/* ---- from one request to the next ---- */

static void await_request(web_connection *c)
{
    c->phase = WEB_IDLE;
    c->began_ns = 0;
    c->timed = WEB_ANSWER; /* that is, the deadline is not of this request's phases */
    if (c->pumping)
        return;
    if (input_length(c) >
        0) /* the next request waits; from the loop, as this is a handler's call */
        bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
    else if (c->eof)
        web_connection_finish(c);
    else {
        set_deadline(c, c->web->o.idle_s);
        c->timed = WEB_IDLE;
    }
}

void web_connection_answered(web_connection *c, bool keep_alive)
{
    vt_http_reader_next(c->reader);
    web_connection_hold(c, 0);
    c->admitted = c->continued = false;
    if (!keep_alive || c->web->draining)
        web_connection_finish(c);
    else if (web_unsent(c) > 0)
        c->phase = WEB_FLUSH; /* a client that does not read does not get further answers */
    else
        await_request(c);
}

/* After a round of reading: the deadline of the phase that was reached. */
static void set_phase_deadline(web_connection *c)
{
    const vt_web_options *o = &c->web->o;
    if (!takes_requests(c) || c->phase == c->timed)
        return;
    c->timed = c->phase;
    set_deadline(c, c->phase == WEB_IDLE   ? o->idle_s
                    : c->phase == WEB_HEAD ? o->head_s
                                           : o->body_s);
}

/* ---- reading ---- */

/* Gives leave to send the body, unless it is coming already. */
static void grant_body(web_connection *c)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const vt_http_request *q = vt_http_reader_request(c->reader);
    if (!q->expects_100 || c->continued || q->body_len > 0 || input_length(c) > 0)
        return;
    c->continued = true;
    struct iovec part = {(char *)(uintptr_t)go_on, sizeof go_on - 1};
    web_send(c, &part, 1);
}

/* Asks, once a request, whether its body may come. */
static bool admit(web_connection *c)
{
    const vt_web_options *o = &c->web->o;
    if (!c->admitted)
        c->admitted = !o->admit || o->admit(o->user, vt_http_reader_request(c->reader));
    return c->admitted;
}

/* The head is whole; the body has come in part. */
static void go_on_with_body(web_connection *c)
{
    vt_web *w = c->web;
    c->phase = WEB_BODY;
    web_connection_hold(c, vt_http_reader_request(c->reader)->body_len);
    if (!admit(c)) {
        c->phase = WEB_ANSWER;
        vt_http_reader_drop_body(c->reader);
        web_exchange_begin(c, false);
    } else if (w->bodies > w->o.max_bodies) {
        web_answer_error(c, 503, "The server reads as many large requests as it may: try again.");
    } else {
        grant_body(c);
    }
}

static void act_on(web_connection *c, vt_http_state state)
{
    const char *why;
    int status;
    switch (state) {
    case VT_HTTP_IDLE:
        break;
    case VT_HTTP_HEAD:
        c->phase = WEB_HEAD;
        break;
    case VT_HTTP_BODY:
        go_on_with_body(c);
        break;
    case VT_HTTP_DONE:
        c->phase = WEB_ANSWER;
        web_connection_hold(c, vt_http_reader_request(c->reader)->body_len);
        web_exchange_begin(c, true);
        break;
    case VT_HTTP_REFUSED:
        status = vt_http_reader_status(c->reader, &why);
        web_answer_error(c, status, why);
        break;
    }
}

/* Gives what has come to the reader, request after request, until one is not answered at once. Must
 * be the last thing that its caller does with c. */
static void connection_pump(web_connection *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    c->pumping = true;
    while (!c->dead && !c->broken && takes_requests(c) && evbuffer_get_length(in) > 0) {
        struct evbuffer_iovec piece = {0};
        size_t used = 0;
        if (evbuffer_peek(in, -1, NULL, &piece, 1) < 1 || piece.iov_len == 0)
            break;
        if (c->began_ns == 0)
            c->began_ns = vt_now_ns();
        vt_http_state state = vt_http_reader_feed(c->reader, piece.iov_base, piece.iov_len, &used);
        evbuffer_drain(in, used);
        c->web->totals.bytes_in += used;
        act_on(c, state);
    }
    c->pumping = false;
    if (c->dead) {
        connection_free(c);
        return;
    }
    resume_reading(c);
    if (c->eof && takes_requests(c))
        web_connection_finish(c);
    else
        set_phase_deadline(c);
}

/* ---- whether the client is still there ---- */

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    web_connection *c = arg;
    struct pollfd asked = {.fd = c->fd, .events = POLLRDHUP};
    if (c->phase != WEB_ANSWER || (!c->eof && !c->paused))
        return;
    if (poll(&asked, 1, 0) > 0) {
        if (asked.revents & (POLLERR | POLLHUP | POLLNVAL)) {
            web_connection_drop(c);
            return;
        }
        if ((asked.revents & POLLRDHUP) && !c->eof) {
            c->eof = true;
            c->watch_s = 0;
        }
    }
    bool ask = c->watch_s == 0 || c->watch_s == WATCH_LAST_S;
    if (ask && !web_probe(c) && c->eof) {
        web_connection_drop(c);
        return;
    }
    c->watch_s = c->watch_s == 0                 ? WATCH_FIRST_S
                 : 2 * c->watch_s < WATCH_LAST_S ? 2 * c->watch_s
                                                 : WATCH_LAST_S;
    struct timeval wait = web_timeval(c->watch_s);
    event_add(&c->watch, &wait);
}

static void watch(web_connection *c)
{
    c->watch_s = 0;
    on_watch(-1, 0, c);
}

/* ---- deadlines ---- */

void web_connection_sending(web_connection *c)
{
    if (web_unsent(c) == 0 || c->sending || (c->phase != WEB_ANSWER && c->phase != WEB_FLUSH))
        return;
    c->sending = true;
    c->n_stuck = c->n_looks = 0;
    c->sent_before = c->window_sent = c->queued - web_unsent(c);
    set_deadline(c, c->web->o.send_s / SEND_LOOKS);
}

/* Returns true if a window of send_s has ended in which the client has taken too little of a large
 * answer. What it reads of a stream is as much as the stream brings, so small amounts may wait. */
static bool is_too_slow(web_connection *c, size_t sent)
{
    const vt_web_options *o = &c->web->o;
    if (++c->n_looks < SEND_LOOKS)
        return false;
    double taken = (double)(sent - c->window_sent);
    c->n_looks = 0;
    c->window_sent = sent;
    return web_unsent(c) > o->max_unsent && taken < o->least_rate * o->send_s;
}

static void look_at_progress(web_connection *c)
{
    size_t unsent = web_unsent(c), sent = c->queued - unsent;
    c->sending = unsent > 0;
    if (!c->sending)
        return;
    c->n_stuck = sent == c->sent_before ? c->n_stuck + 1 : 0;
    c->sent_before = sent;
    if (c->n_stuck >= SEND_LOOKS || is_too_slow(c, sent))
        web_connection_drop(c);
    else
        set_deadline(c, c->web->o.send_s / SEND_LOOKS);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    web_connection *c = arg;
    if (c->broken) {
        web_connection_drop(c);
        return;
    }
    switch (c->phase) {
    case WEB_HEAD:
        web_answer_error(c, 408, "The request's headers did not come in time.");
        break;
    case WEB_BODY:
        web_answer_error(c, 408, "The request's body did not come in time.");
        break;
    case WEB_ANSWER:
    case WEB_FLUSH:
        look_at_progress(c);
        break;
    default:
        web_connection_drop(c);
    }
}

/* ---- what libevent reports ---- */

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    web_connection *c = arg;
    if (takes_requests(c))
        connection_pump(c);
    else if (c->closing)
        drain_input(c);
    else if (input_length(c) >= WEB_INPUT) {
        pause_reading(c);
        watch(c);
    }
}

/* A request came while the one before it was answered. */
static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    web_connection *c = arg;
    if (takes_requests(c))
        connection_pump(c);
}

/* All is sent. */
static void on_write(struct bufferevent *bev, void *arg)
{
    (void)bev;
    web_connection *c = arg;
    c->sending = false;
    if (c->phase != WEB_FLUSH || web_unsent(c) > 0)
        return;
    if (c->closing)
        linger(c);
    else
        await_request(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    web_connection *c = arg;
    if (what & BEV_EVENT_CONNECTED) { /* TLS is agreed on */
        c->phase = WEB_IDLE;
        set_phase_deadline(c);
        return;
    }
    if (c->phase == WEB_TLS && web_tls_met_http(bev))
        web_answer_plain(c);
    bool end = (what & BEV_EVENT_EOF) && !(what & BEV_EVENT_WRITING) && !c->ssl;
    bool unread = takes_requests(c) && input_length(c) > 0; /* on_again comes */
    if (!end || c->phase == WEB_LINGER || (takes_requests(c) && !unread)) {
        web_connection_drop(c);
        return;
    }
    c->eof = true;
    if (c->phase == WEB_ANSWER)
        watch(c);
}

/* ---- the beginning ---- */

static void count_output(struct evbuffer *buffer, const struct evbuffer_cb_info *change, void *web)
{
    (void)buffer;
    ((vt_web *)web)->outputs += change->n_added - change->n_deleted;
}

/* Owns fd, also upon failure. */
static bool make_bufferevent(vt_web *w, int fd, web_connection *c)
{
    c->bev = w->tls ? web_tls_bufferevent(w, fd, &c->ssl)
                    : bufferevent_socket_new(w->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev) {
        if (!w->tls)
            close(fd);
        return false;
    }
    if (!evbuffer_add_cb(bufferevent_get_output(c->bev), count_output, w)) {
        bufferevent_free(c->bev);
        return false;
    }
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, WEB_INPUT);
    bufferevent_set_max_single_read(c->bev, WEB_INPUT);
    return true;
}

/* A connection without anything of libevent's, or NULL where it may not be or memory is short. */
static web_connection *make_connection(vt_web *w, bool refusing)
{
    if (refusing && (w->tls || w->n_refusing >= WEB_MAX_REFUSING))
        return NULL;
    web_connection *c = vt_calloc(1, sizeof *c);
    if (c && vt_http_reader_new(&w->o.limits, &c->reader, NULL) != VT_OK) {
        free(c);
        return NULL;
    }
    return c;
}

void web_connection_new(vt_web *w, int fd, const char *peer)
{
    bool refusing = w->n_connections >= w->o.max_connections;
    w->totals.connections++;
    w->totals.refused_connections += refusing;
    web_connection *c = make_connection(w, refusing);
    if (!c) {
        close(fd);
        return;
    }
    if (!make_bufferevent(w, fd, c)) {
        vt_http_reader_free(c->reader);
        free(c);
        return;
    }
    c->web = w;
    c->fd = fd;
    c->refusing = refusing;
    c->phase = w->tls ? WEB_TLS : WEB_IDLE;
    c->timed = c->phase;
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    event_assign(&c->deadline, w->base, -1, 0, on_deadline, c);
    event_assign(&c->watch, w->base, -1, 0, on_watch, c);
    event_assign(&c->again, w->base, -1, 0, on_again, c);
    c->next = w->connections;
    if (c->next)
        c->next->prev = c;
    w->connections = c;
    w->n_refusing += refusing;
    w->n_connections += !refusing;
    set_deadline(c, w->tls ? w->o.head_s : w->o.idle_s);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    if (refusing)
        web_answer_error(c, 503, "The server has as many connections as it may have.");
}
