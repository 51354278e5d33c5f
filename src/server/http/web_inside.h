/* The files of the web server share this (server/http/web.h).
 *
 *   web.c             the loop: posts, timers, signals, draining, stopping
 *   web_listen.c      sockets that listen, and what they accept
 *   web_tls.c         certificates and keys
 *   web_connection.c  a connection from its first byte to its last; deadlines
 *   web_send.c        bytes out: at once where the socket takes them, else queued
 *   web_answer.c      exchanges: what handlers call
 *
 * A connection's phases. Only ANSWER has an exchange, and only IDLE, HEAD and BODY give bytes to
 * the reader; in ANSWER what comes is the next request and waits in the input buffer, which is
 * bounded (WEB_INPUT).
 *
 *   TLS -> IDLE -> HEAD -> BODY -> ANSWER -> IDLE ...        the connection goes on
 *                                       └--> FLUSH -> LINGER    it ends: all is sent, our side is
 *   (408, 413 ... instead of a request) ---> FLUSH -> LINGER    shut, the client's is read away
 *
 * Lingering is needed because close() with unread bytes makes the kernel send a reset, upon which
 * the client may lose the answer that it has not read yet. */
#ifndef VT_SERVER_HTTP_WEB_INSIDE_H
#define VT_SERVER_HTTP_WEB_INSIDE_H

#include <pthread.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <event2/listener.h>

#include "server/http/web.h"

enum {
    WEB_INPUT = 64 << 10,   /* bytes that are read ahead of a connection */
    WEB_MAX_LISTENERS = 16, /* a name may have several addresses */
    WEB_MAX_REFUSING = 64,  /* connections above max_connections that are told so */
    WEB_PEER = 64,          /* bytes of a peer's name */
};
#define WEB_LINGER_S 2.0

typedef enum web_phase {
    WEB_TLS,
    WEB_IDLE,
    WEB_HEAD,
    WEB_BODY,
    WEB_ANSWER,
    WEB_FLUSH,
    WEB_LINGER,
} web_phase;

typedef struct web_connection web_connection;

struct vt_exchange {
    web_connection *c;
    void *user, *note;
    void (*gone)(void *user, vt_exchange *x);
    int64_t began_ns, whole_ns;
    vt_buf headers; /* "Name: value CR LF" ... */
    int status;     /* of the answer; 0: it has not begun */
    uint64_t bytes; /* of the answer's body, so far */
    bool keep_alive;
    bool head_only; /* HEAD: no byte of a body is sent */
    bool streaming; /* vt_web_stream was called */
    bool chunked;
    bool events; /* the stream's type is text/event-stream */
};

struct web_connection {
    vt_web *web;
    web_connection *prev, *next;
    struct bufferevent *bev;
    struct ssl_st *ssl; /* owned by bev; NULL: plain */
    int fd;
    web_phase phase;
    vt_http_reader *reader;
    vt_exchange *x;
    int64_t began_ns; /* of the request that is being read */
    char peer[WEB_PEER];

    struct event deadline; /* ends the phase; in ANSWER and FLUSH looks for progress of sending */
    struct event watch;    /* looks whether a client is still there that cannot be read from */
    struct event again;    /* gives the reader what waits in the input buffer */
    double watch_s;
    size_t queued;      /* bytes ever put into the output buffer */
    size_t sent_before; /* of those, sent when `deadline` last looked */
    int n_stuck;        /* looks without progress */
    size_t window_sent; /* as sent_before, when the window of send_s began */
    int n_looks;        /* since then */
    size_t held;        /* bytes of this request's body, in the sum `bodies` of the server */

    web_phase timed; /* the phase that `deadline` was set for; ANSWER: none that takes requests */

    bool refusing;  /* one beyond max_connections */
    bool admitted;  /* this request's body may come */
    bool continued; /* "100 Continue" was sent for this request */
    bool sending;   /* bytes wait to be sent, and `deadline` looks for progress */
    bool closing;   /* no further request is taken */
    bool paused;    /* reading is off: the input buffer is full */
    bool eof;       /* the client has shut its sending side */
    bool broken;    /* a write failed: it is dropped from the loop */
    bool pumping;   /* connection_pump is on the stack */
    bool dead;      /* free it when connection_pump ends */
};

typedef struct web_post {
    void (*fn)(void *arg);
    void *arg;
} web_post;

typedef struct web_posts {
    web_post *post; /* [cap] */
    size_t n, cap;
} web_posts;

typedef struct web_listener {
    struct evconnlistener *listener;
    char *path; /* of a Unix socket, which is removed with it */
    dev_t device;
    ino_t inode;
} web_listener;

typedef struct web_signal {
    struct web_signal *next;
    struct event *event;
    void (*fn)(void *arg, int signal);
    void *arg;
} web_signal;

struct vt_web {
    vt_web_options o;
    char *cors_origin;
    struct event_base *base;
    struct ssl_ctx_st *tls;
    web_listener listener[WEB_MAX_LISTENERS];
    int n_listeners;
    struct event *accept_again; /* after accept had no file descriptor to give */
    int64_t n_accept_errors;
    web_signal *signals;

    web_connection *connections; /* those beyond max_connections too */
    int32_t n_connections, n_refusing, n_exchanges;
    size_t bodies;  /* bytes of bodies that connections hold */
    size_t outputs; /* bytes that wait to be sent */
    vt_web_totals totals;
    bool draining;

    char date[40]; /* "Sun, 06 Nov 1994 08:49:37 GMT" of `date_s` */
    int64_t date_s;
    vt_buf scratch; /* a head that is being written */

    pthread_mutex_t lock; /* guards what follows */
    web_posts posts;      /* in order */
    bool stop, ended;
    int wake_fd; /* an eventfd: there are posts, or stop is set */
    struct event *wake;
};

struct timeval web_timeval(double seconds);

/* ---- web_connection.c ---- */

/* A connection of an accepted socket, which it owns from now on, also upon failure. */
void web_connection_new(vt_web *w, int fd, const char *peer);
/* Calls the exchange's `gone`, if there is one, and frees the connection, or lets connection_pump
 * do so. */
void web_connection_drop(web_connection *c);
/* The exchange has ended by itself: goes on with the next request or closes. */
void web_connection_answered(web_connection *c, bool keep_alive);
/* Sends what is queued, then closes. */
void web_connection_finish(web_connection *c);
/* The connection holds n bytes of a body from now on. */
void web_connection_hold(web_connection *c, size_t n);
/* Bytes may wait to be sent: looks for progress from now on. */
void web_connection_sending(web_connection *c);

/* ---- web_send.c ---- */

/* Sends the parts in order: the socket takes what it can now, the rest waits. If that fails, the
 * connection is dropped, but from the loop and not within this call. */
void web_send(web_connection *c, const struct iovec *part, int n);
/* Drops the connection, but from the loop and not within this call. */
void web_break(web_connection *c);
size_t web_unsent(const web_connection *c);
/* The socket's sending side is shut: no more bytes come from us. */
void web_shut(web_connection *c);

/* ---- web_answer.c ---- */

/* Appends the head of an answer to w->scratch, without a Content-Length if `length` is negative. */
void web_write_head(web_connection *c, int status, const char *type, int64_t length,
                    const char *headers, bool keep_alive, bool chunked);
/* An answer of the server's own, after which the connection is closed. */
void web_answer_error(web_connection *c, int status, const char *message);
/* The client speaks plain HTTP where TLS is to begin: tells it so, past the bufferevent. */
void web_answer_plain(web_connection *c);
/* A whole request has come, or one that is refused before its body is read: makes its exchange and
 * calls the handler. */
void web_exchange_begin(web_connection *c, bool whole);
/* Tells `ended` and frees the exchange, which its connection no longer points to. */
void web_exchange_free(vt_exchange *x, bool gone);
/* Sends bytes that a client which still reads must ignore, and that one which has left answers with
 * a reset. False: there are no such bytes now. */
bool web_probe(web_connection *c);

/* ---- web_listen.c ---- */

void web_listeners_close(vt_web *w);

/* ---- web_tls.c ---- */

vt_status web_tls_new(const char *cert, const char *key, struct ssl_ctx_st **out, vt_err *err);
void web_tls_free(struct ssl_ctx_st *tls);
/* A bufferevent that speaks TLS over fd as a server, or NULL. It owns fd from now on, also upon
 * failure. */
struct bufferevent *web_tls_bufferevent(vt_web *w, int fd, struct ssl_st **ssl);
/* Returns true if TLS failed because the client speaks plain HTTP. */
bool web_tls_met_http(struct bufferevent *bev);
/* Says to the peer that no more bytes come. */
void web_tls_close_notify(struct ssl_st *ssl);

#endif
