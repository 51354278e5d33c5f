/* Connections and their events (load/client.h).
 *
 *   free ── send ──> connecting ──> sending ──> reading ──> free (kept) or closed
 *
 * Each socket is registered once, edge-triggered, for reading and writing; so a request costs one
 * send, one share of an epoll_wait and usually one recv. A read that fills less than the buffer has
 * emptied the socket, so that no second read is needed to see EAGAIN. */
#include "load/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum { MAX_EVENTS = 256, RECEIVE = 256 << 10 };

typedef struct connection {
    int fd; /* -1: none */
    bool busy, connected;
    bool used; /* it has carried a whole request */
    int64_t give_up_ns;
    vt_buf out;
    size_t n_out; /* bytes of `out` that are sent */
    bool stream;
    struct connection *next_free;
    vt_load_answer answer;
} connection;

struct vt_load_client {
    vt_load_client_options o;
    int epoll;
    connection *all;  /* [max_connections] */
    int32_t n_made;   /* the first n_made have been used at least once */
    connection *free; /* not busy; the last one used first, so that few stay warm */
    vt_load_client_stats stats;
    int64_t sweep_ns; /* when timeouts are looked at next */
    char *received;   /* [RECEIVE] */
};

static void drop_socket(vt_load_client *c, connection *k)
{
    if (k->fd < 0)
        return;
    close(k->fd); /* epoll forgets it */
    k->fd = -1;
    k->connected = k->used = false;
    c->stats.connections--;
}

/* The request of `k` has ended. */
static void end_request(vt_load_client *c, connection *k)
{
    vt_load_answer *a = &k->answer;
    bool whole = a->result->end == VT_LOAD_OK || a->result->end == VT_LOAD_HTTP;
    if (a->http.state == VT_REPLY_DONE && a->http.keep_alive && whole && k->n_out == k->out.len)
        k->used = true;
    else
        drop_socket(c, k);
    k->busy = false;
    c->stats.busy--;
    k->next_free = c->free;
    c->free = k;
    /* The text is moved out, since on_end may send a new request on this connection. */
    vt_buf text = a->text;
    a->text = (vt_buf){0};
    c->o.on_end(c->o.user, a->result, &text);
    vt_buf_release(&text);
}

static void fail_request(vt_load_client *c, connection *k, vt_load_end end, const char *why)
{
    vt_load_answer_fail(&k->answer, end, vt_now_ns(), why);
    end_request(c, k);
}

static bool open_socket(vt_load_client *c, connection *k)
{
    const vt_load_target *t = c->o.target;
    const int on = 1;
    k->fd = socket(t->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (k->fd < 0)
        return false;
    c->stats.connections++;
    c->stats.connects++;
    if (t->family != AF_UNIX)
        setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = k};
    int made = connect(k->fd, (const struct sockaddr *)&t->address, t->address_len);
    k->connected = made == 0;
    if ((made == 0 || errno == EINPROGRESS) && epoll_ctl(c->epoll, EPOLL_CTL_ADD, k->fd, &e) == 0)
        return true;
    int code = errno;
    drop_socket(c, k);
    errno = code;
    return false;
}

/* A connection that was kept is gone, and nothing of the answer has come: once more on a new one.
 * Such a request has not been worked on, or only if the server died over it. */
static bool send_again(vt_load_client *c, connection *k)
{
    if (!k->used || k->answer.http.state != VT_REPLY_EMPTY)
        return false;
    drop_socket(c, k);
    k->n_out = 0;
    c->stats.resent++;
    return open_socket(c, k);
}

static void lost(vt_load_client *c, connection *k, int code)
{
    char why[96];
    if (send_again(c, k))
        return;
    if (!k->connected) {
        snprintf(why, sizeof why, "cannot connect: %s", strerror(code));
        fail_request(c, k, VT_LOAD_CONNECT, why);
    } else if (code) {
        snprintf(why, sizeof why, "the connection broke: %s", strerror(code));
        fail_request(c, k, VT_LOAD_CUT, why);
    } else {
        vt_load_answer_closed(&k->answer, vt_now_ns());
        end_request(c, k);
    }
}

/* Sends what the socket takes. False: the request has ended. */
static void write_some(vt_load_client *c, connection *k)
{
    while (k->n_out < k->out.len) {
        ssize_t n = send(k->fd, k->out.data + k->n_out, k->out.len - k->n_out, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
            return;
        if (n < 0) {
            /* The answer may have come already (a refusal of a long body). Reading tells. */
            if (errno != EPIPE && errno != ECONNRESET)
                lost(c, k, errno);
            return;
        }
        k->n_out += (size_t)n;
        c->stats.sent_bytes += n;
    }
}

static void read_some(vt_load_client *c, connection *k)
{
    for (;;) {
        ssize_t n = recv(k->fd, c->received, RECEIVE, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (!k->busy) { /* closed between two requests, or unasked bytes */
            drop_socket(c, k);
            return;
        }
        if (n <= 0) {
            lost(c, k, n < 0 ? errno : 0);
            return;
        }
        c->stats.received_bytes += n;
        if (vt_load_answer_feed(&k->answer, c->received, (size_t)n, vt_now_ns())) {
            end_request(c, k);
            return;
        }
        if (n < RECEIVE)
            return;
    }
}

static void on_event(vt_load_client *c, connection *k, uint32_t what)
{
    if (k->fd < 0)
        return;
    if (!k->connected) {
        int code = 0;
        socklen_t len = sizeof code;
        getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &code, &len);
        if (code != 0) {
            lost(c, k, code);
            return;
        }
        if (!(what & EPOLLOUT))
            return;
        k->connected = true;
    }
    if (k->busy && k->n_out < k->out.len)
        write_some(c, k);
    if (k->fd >= 0 && (what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        read_some(c, k);
    /* The end of the connection came together with the last bytes of an answer. */
    if (k->fd >= 0 && (what & (EPOLLRDHUP | EPOLLHUP)))
        read_some(c, k);
}

static void sweep(vt_load_client *c, int64_t now)
{
    if (now < c->sweep_ns)
        return;
    c->sweep_ns = now + 100000000;
    for (int32_t i = 0; i < c->n_made; i++) {
        connection *k = &c->all[i];
        if (k->busy && now >= k->give_up_ns)
            fail_request(c, k, VT_LOAD_TIMEOUT, "no whole answer within the time limit");
    }
}

vt_status vt_load_client_poll(vt_load_client *c, int64_t until_ns, vt_err *err)
{
    struct epoll_event e[MAX_EVENTS];
    int64_t now = vt_now_ns(), wait = until_ns < c->sweep_ns ? until_ns : c->sweep_ns;
    wait = wait > now ? wait - now : 0;
    struct timespec t = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};
    int n = epoll_pwait2(c->epoll, e, MAX_EVENTS, &t, NULL);
    if (n < 0 && errno == ENOSYS) /* Linux before 5.11: milliseconds */
        n = epoll_wait(c->epoll, e, MAX_EVENTS, (int)((wait + 999999) / 1000000));
    if (n < 0 && errno != EINTR)
        return vt_fail(err, VT_ERR_IO, "epoll: %s", strerror(errno));
    for (int i = 0; i < n; i++)
        on_event(c, e[i].data.ptr, e[i].events);
    sweep(c, vt_now_ns());
    return VT_OK;
}

/* ---- sending ---- */

static connection *take_free(vt_load_client *c)
{
    connection *k = c->free;
    if (k) {
        c->free = k->next_free;
        return k;
    }
    if (c->n_made == c->o.max_connections)
        return NULL;
    k = &c->all[c->n_made++];
    k->fd = -1;
    vt_load_answer_init(&k->answer);
    k->answer.keep_text = c->o.keep_text;
    k->answer.on_gap = c->o.on_gap;
    k->answer.user = c->o.user;
    return k;
}

bool vt_load_client_send(vt_load_client *c, const char *path, const char *body, size_t len,
                         bool stream, vt_load_result *result)
{
    const vt_load_target *t = c->o.target;
    connection *k = take_free(c);
    if (!k)
        return false;
    k->busy = true;
    c->stats.busy++;
    result->begin_ns = vt_now_ns();
    k->give_up_ns = result->begin_ns + (int64_t)(c->o.timeout_s * 1e9);
    vt_load_answer_begin(&k->answer, result, stream);
    vt_buf_clear(&k->out);
    k->n_out = 0;
    vt_buf_printf(&k->out,
                  "POST %s%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                  "Accept: %s\r\nUser-Agent: vitrine-bench\r\nContent-Length: %zu\r\n",
                  t->base, path, t->host, stream ? "text/event-stream" : "application/json", len);
    if (c->o.key)
        vt_buf_printf(&k->out, "Authorization: Bearer %s\r\n", c->o.key);
    vt_buf_puts(&k->out, "\r\n");
    vt_buf_add(&k->out, body, len);
    if (k->out.failed) {
        fail_request(c, k, VT_LOAD_CONNECT, "out of memory for the request");
    } else if (k->fd < 0 && !open_socket(c, k)) {
        char why[96];
        snprintf(why, sizeof why, "cannot connect: %s", strerror(errno));
        fail_request(c, k, VT_LOAD_CONNECT, why);
    } else if (k->connected) {
        write_some(c, k);
    }
    return true;
}

/* ---- life ---- */

vt_status vt_load_client_new(const vt_load_client_options *o, vt_load_client **out, vt_err *err)
{
    vt_load_client *c = vt_calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the client");
    c->o = *o;
    c->all = vt_calloc((size_t)o->max_connections, sizeof *c->all);
    c->received = malloc(RECEIVE);
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!c->all || !c->received || c->epoll < 0) {
        vt_load_client_free(c);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d connections", o->max_connections);
    }
    *out = c;
    return VT_OK;
}

void vt_load_client_free(vt_load_client *c)
{
    if (!c)
        return;
    for (int32_t i = 0; i < c->n_made; i++) {
        drop_socket(c, &c->all[i]);
        vt_buf_release(&c->all[i].out);
        vt_load_answer_release(&c->all[i].answer);
    }
    if (c->epoll >= 0)
        close(c->epoll);
    free(c->all);
    free(c->received);
    free(c);
}

void vt_load_client_copy_stats(const vt_load_client *c, vt_load_client_stats *out)
{
    *out = c->stats;
}
