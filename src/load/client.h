/* Many HTTP connections to one server, on one thread: epoll, kept connections, one request at a
 * time on each.
 *
 *   vt_load_client_send ─> a free connection, or a new one ─> answer.h reads ─> on_end
 *
 * A request whose kept connection turns out to be closed before any byte of the answer came is sent
 * once more on a new connection, as HTTP clients do. */
#ifndef VT_LOAD_CLIENT_H
#define VT_LOAD_CLIENT_H

#include <sys/socket.h>

#include "load/answer.h"

typedef struct vt_load_target {
    struct sockaddr_storage address;
    socklen_t address_len;
    int family;
    char host[300]; /* what the Host header says: "localhost:8000" */
    char base[200]; /* in front of every path: "" or "/openai" */
} vt_load_target;

/* "http://HOST:PORT[/BASE]", "HOST:PORT" or "unix:PATH". A base may end in /v1, since clients'
 * settings do. VT_ERR_UNSUPPORTED for https, VT_ERR_IO for a name that is not known. */
vt_status vt_load_target_parse(const char *url, vt_load_target *out, vt_err *err);

/* A connection that blocks. *fd is the caller's to close where it is not -1, after failures too. */
vt_status vt_load_connect(const vt_load_target *t, int *fd, vt_err *err);

/* GET on a connection of its own; waits for the answer at most `timeout_s`. *body is malloc'ed.
 * `key` may be NULL. */
vt_status vt_load_get(const vt_load_target *t, const char *path, const char *key, double timeout_s,
                      int *status, char **body, size_t *len, vt_err *err);

typedef struct vt_load_client vt_load_client;

typedef struct vt_load_client_options {
    const vt_load_target *target; /* borrowed */
    const char *key;              /* of "Authorization: Bearer", or NULL */
    int32_t max_connections;
    double timeout_s; /* of a request, from vt_load_client_send on */
    bool keep_text;
    /* A request has ended: result->end says how. `text` is its whole text with keep_text. The next
     * request is not sent from here, but after vt_load_client_poll has returned. */
    void (*on_end)(void *user, vt_load_result *result, const vt_buf *text);
    void (*on_gap)(void *user, float seconds); /* as in answer.h */
    void *user;
} vt_load_client_options;

vt_status vt_load_client_new(const vt_load_client_options *o, vt_load_client **out, vt_err *err);
void vt_load_client_free(vt_load_client *c); /* open requests are dropped without on_end */

/* False: all connections are busy. `body` is JSON. `result` is filled in until on_end; its begin_ns
 * is set here. on_end may be called from here, if no connection can be made. */
bool vt_load_client_send(vt_load_client *c, const char *path, const char *body, size_t len,
                         bool stream, vt_load_result *result);
/* Waits for what the server says, until `until_ns` at the latest (CLOCK_MONOTONIC), and handles it.
 * A signal ends the wait as well. */
vt_status vt_load_client_poll(vt_load_client *c, int64_t until_ns, vt_err *err);

typedef struct vt_load_client_stats {
    int32_t busy, connections; /* now */
    int64_t connects, resent;  /* so far */
    int64_t sent_bytes, received_bytes;
} vt_load_client_stats;

void vt_load_client_copy_stats(const vt_load_client *c, vt_load_client_stats *out);

#endif
