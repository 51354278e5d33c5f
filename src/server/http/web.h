/* A web server that does not know what it serves: listeners, connections, deadlines, TLS, answers
 * whole or in pieces. One thread runs all of it; vt_web_post is how other threads reach it.
 *
 *   client ── bytes ──> reader (http.h) ── whole request ──> handler
 *          <─ answer ── vt_web_reply, or vt_web_stream + vt_web_write ... + vt_web_end
 *
 * An exchange is one request with its answer. It ends exactly once: by vt_web_reply, by vt_web_end,
 * or because the client has gone, which its `gone` callback is told. After that it must not be
 * touched. */
#ifndef VT_SERVER_HTTP_WEB_H
#define VT_SERVER_HTTP_WEB_H

#include "base/buf.h"
#include "server/http/http.h"

typedef struct vt_web vt_web;
typedef struct vt_exchange vt_exchange;

/* The end of an exchange, or of a request that was refused before it was whole. */
typedef struct vt_web_outcome {
    const char *peer; /* as vt_web_peer */
    int status;       /* of the answer; 0: the client left before one began */
    uint64_t bytes;   /* of the answer's body */
    bool gone;        /* the client left, or was dropped, before the answer had ended */
    const char *why;  /* what the server itself refused it for: a sentence; NULL: it did not */
} vt_web_outcome;

typedef struct vt_web_options {
    vt_http_limits limits;
    int32_t max_connections; /* further ones are answered 503 and closed */
    /* Bytes of a stream that may wait for a client that does not read. With more, the client is
     * dropped; but one piece may be larger if nothing else waits. */
    size_t max_unsent;
    double head_s, body_s; /* from the first byte to the whole head; from there to the whole body */
    double idle_s;         /* before a request and between two of them on one connection */
    double send_s;         /* without any progress while bytes wait to be sent */
    /* Bytes of all answers that wait to be sent. Beyond them a large answer becomes a 503, and a
     * stream's client that reads slowly is dropped. */
    size_t max_output;
    /* Bytes a second, over each send_s, that a client must take while more than max_unsent wait for
     * it; slower ones are dropped. */
    double least_rate;
    const char *tls_cert, *tls_key; /* PEM files; NULL: plain HTTP */
    const char *cors_origin;        /* "*" or an origin that browsers may call from; NULL: none */
    size_t max_bodies;              /* bytes of all bodies that are being read; beyond them 503 */
    /* The head of a request is whole, and its body is still to come. False: the body is not read;
     * `handler` gets the request without it and must refuse it at once, upon which the connection
     * closes. NULL: every body is read. */
    bool (*admit)(void *user, const vt_http_request *r);
    /* A request has come, whole. The exchange is answered now or later, on this thread. */
    void (*handler)(void *user, vt_exchange *x);
    /* An exchange has ended: the last call that gets it, before it is freed, and after its `gone`.
     * `x` is NULL for a request that the server itself refused (400, 408, 413 ...). May be NULL. */
    void (*ended)(void *user, vt_exchange *x, const vt_web_outcome *o);
    void *user;
    /* The JSON body of an error that the server itself answers (400, 408, 413 ...): appends to
     * `out`. NULL: the message as plain text. */
    void (*error_body)(int status, const char *message, vt_buf *out);
} vt_web_options;

void vt_web_options_init(vt_web_options *o);

/* TLS files are read here. */
vt_status vt_web_new(const vt_web_options *o, vt_web **out, vt_err *err);
/* Drops every connection and calls `gone` of open exchanges; posts that were taken and have not run
 * yet are run. Not while vt_web_run runs. Timers must have been freed before. */
void vt_web_free(vt_web *w);
/* Listens. `host` is a name (on all its addresses), an IPv4 or an IPv6 address; "::" takes IPv4
 * too. Port 0 takes any free one; *bound says which (`bound` may be NULL). A Unix socket is a file:
 * a stale one is replaced; a live one, or a file of another kind, is refused. */
vt_status vt_web_listen(vt_web *w, const char *host, int port, int *bound, vt_err *err);
vt_status vt_web_listen_unix(vt_web *w, const char *path, vt_err *err);

/* True if it listens on addresses of the loopback network (127.0.0.0/8, ::1) and nowhere else. */
bool vt_web_is_loopback(const vt_web *w);

/* Runs the loop until vt_web_stop. A server runs once. */
vt_status vt_web_run(vt_web *w, vt_err *err);
/* Closes the listeners and the connections that are between two requests. Requests of which a byte
 * has come are still served; their answers say "Connection: close". */
void vt_web_drain(vt_web *w);
/* True when no request is under way and every answer has left: after vt_web_drain, time to stop. */
bool vt_web_drained(const vt_web *w);
int32_t vt_web_open_exchanges(const vt_web *w);
int32_t vt_web_connections(const vt_web *w);
/* Sums since the start. Bytes are those of HTTP, without TLS. */
typedef struct vt_web_totals {
    uint64_t connections, refused_connections, bytes_in, bytes_out;
} vt_web_totals;
void vt_web_get_totals(const vt_web *w, vt_web_totals *out);
/* Ends vt_web_run. Any thread. */
void vt_web_stop(vt_web *w);
/* Runs fn(arg) on the loop's thread, in order of posting. Any thread. Returns false where memory is
 * short or the loop has ended: then fn is not called. */
bool vt_web_post(vt_web *w, void (*fn)(void *arg), void *arg);
/* Runs fn(arg) on the loop's thread every `seconds` from now on, or, with `once`, one time. */
typedef struct vt_web_timer vt_web_timer;
vt_web_timer *vt_web_timer_new(vt_web *w, double seconds, bool once, void (*fn)(void *arg),
                               void *arg);
void vt_web_timer_free(vt_web_timer *t);
/* Calls fn(arg, signal) on the loop's thread when the process gets this signal. */
vt_status vt_web_on_signal(vt_web *w, int signal, void (*fn)(void *arg, int signal), void *arg,
                           vt_err *err);

/* ---- an exchange; all of it on the loop's thread ---- */

const vt_http_request *vt_web_request(const vt_exchange *x);
/* Hands the request's body over to `out`, an empty buffer. It counts towards max_bodies until
 * vt_web_drop_body or the end of the exchange. False: memory is short. */
bool vt_web_take_body(vt_exchange *x, vt_buf *out);
/* Frees the request's body, so that it is not kept while the answer is computed. */
void vt_web_drop_body(vt_exchange *x);
/* The client's address as text without its port, "unix" for a Unix socket. */
const char *vt_web_peer(const vt_exchange *x);
/* When the first byte of the request came, and when it was whole (CLOCK_MONOTONIC). */
int64_t vt_web_began_ns(const vt_exchange *x);
int64_t vt_web_whole_ns(const vt_exchange *x);
/* Keeps a pointer of the handler's with the exchange. */
void vt_web_set_user(vt_exchange *x, void *user);
void *vt_web_user(const vt_exchange *x);
/* A second pointer, for what is kept of every exchange whatever its handler is. */
void vt_web_set_note(vt_exchange *x, void *note);
void *vt_web_note(const vt_exchange *x);
/* `gone` is called once if the client leaves, or is dropped, before the answer has ended. A client
 * that has only shut its sending side still gets its answer (web_connection.c says how the two are
 * told apart). */
void vt_web_on_gone(vt_exchange *x, void (*gone)(void *user, vt_exchange *x));
/* A header of the answer, before vt_web_reply or vt_web_stream; the server itself writes Date,
 * Content-Type, Content-Length, Transfer-Encoding, Connection and those of CORS. A header whose
 * value holds control characters is left out. */
void vt_web_header(vt_exchange *x, const char *name, const char *value);
/* The whole answer. The bytes are copied. HEAD requests get the head alone. */
void vt_web_reply(vt_exchange *x, int status, const char *type, const void *body, size_t len);
/* An answer in pieces: chunked for HTTP/1.1, until the connection closes for HTTP/1.0. */
void vt_web_stream(vt_exchange *x, int status, const char *type);
/* False: the client was dropped because too much waits for it; its `gone` has been called. If the
 * client has left, the write does nothing and `gone` follows from the loop. */
bool vt_web_write(vt_exchange *x, const void *data, size_t len);
void vt_web_end(vt_exchange *x);
size_t vt_web_unsent(const vt_exchange *x);

#endif
