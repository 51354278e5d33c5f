/* A strict, incremental reader of HTTP/1.1 responses. No I/O.
 *
 *   bytes ──> vt_http_reply_feed ──> status and headers (the fields below)
 *                               └──> on_body(piece), again and again, without the chunks' framing
 *
 * Strict means that a response which two programs could read differently is an error: a length and
 * chunks together, two lengths, a line that does not end with CRLF. A server under test may be
 * broken, so everything has a limit. */
#ifndef VT_LOAD_HTTP_REPLY_H
#define VT_LOAD_HTTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VT_REPLY_LINE = 8192,        /* most bytes of one line */
    VT_REPLY_HEAD = 65536,       /* most bytes of the head, and of the trailers */
    VT_REPLY_INTERIM = 16,       /* most 1xx responses before the real one */
    VT_REPLY_MAX_BODY = 1 << 30, /* most bytes of a body */
    VT_REPLY_TYPE = 64,
};

typedef enum vt_reply_state {
    VT_REPLY_EMPTY, /* nothing has come */
    VT_REPLY_HEADER,
    VT_REPLY_BODY,
    VT_REPLY_DONE,   /* the response is whole */
    VT_REPLY_BROKEN, /* it breaks the protocol; `why` says how */
} vt_reply_state;

typedef struct vt_http_reply {
    /* Set before the first byte. `data` is valid during the call only. */
    void (*on_body)(void *user, const char *data, size_t len);
    void *user;

    /* These are known so far. */
    vt_reply_state state;
    int status;                       /* 200; 0 before the head is whole */
    bool keep_alive;                  /* the connection may carry another request */
    bool chunked, until_close;        /* how the body ends, if not by its length */
    char content_type[VT_REPLY_TYPE]; /* lower case, without parameters; empty: not said */
    const char *why;                  /* VT_REPLY_BROKEN: static text */

    /* The reader's own. */
    int part, minor, n_interim;
    bool has_length, close_asked, keep_asked;
    int64_t left;  /* bytes of the body or of the chunk that are still to come */
    int64_t total; /* bytes of the body so far */
    size_t n_head;
    size_t n_line;
    char line[VT_REPLY_LINE];
} vt_http_reply;

/* Makes the reader ready for the next response; on_body and user stay. */
void vt_http_reply_reset(vt_http_reply *r);
/* Takes bytes and returns how many. Less than `len` only when the response is whole (what follows
 * is not part of it) or broken. */
size_t vt_http_reply_feed(vt_http_reply *r, const char *data, size_t len);
/* The server has closed its side. A body without a length is whole then; anything else that is not
 * whole becomes VT_REPLY_BROKEN. */
void vt_http_reply_end(vt_http_reply *r);

#endif
