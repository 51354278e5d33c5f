/* HTTP/1.1 as this server speaks it: a strict reader of requests and the words of answers. No I/O.
 *
 * Strict means that a request which two programs could read differently is refused, since a proxy
 * in front of the server would read it the other way (request smuggling): Content-Length or
 * chunked, never both, never twice; digits and CRLF only; exactly one Host; names and values of
 * allowed characters; no folded lines. */
#ifndef VT_SERVER_HTTP_HTTP_H
#define VT_SERVER_HTTP_HTTP_H

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

typedef struct vt_http_limits {
    size_t line;       /* bytes of the request line */
    size_t head;       /* bytes of the request line and all header lines */
    int32_t n_headers; /* header lines */
    size_t body;       /* bytes, after chunks are put together */
} vt_http_limits;

typedef struct vt_http_header {
    const char *name;  /* lower case */
    const char *value; /* without surrounding spaces */
} vt_http_header;

typedef struct vt_http_request {
    const char *method; /* "GET" */
    const char *path;   /* percent-decoded, absolute, UTF-8 without control characters or segments
                           "." and ".."; "%2f" has become "/". "*" for "OPTIONS *" */
    const char *query;  /* what stands behind '?', not decoded; NULL: none */
    const vt_http_header *header; /* [n_headers] */
    int32_t n_headers;
    const char *body; /* [body_len], a NUL behind it */
    size_t body_len;
    bool keep_alive;  /* the client allows another request on this connection */
    bool expects_100; /* "Expect: 100-continue": it waits for leave to send the body */
    int32_t minor;    /* HTTP/1.minor: 0 or 1 */
} vt_http_request;

/* The value of the first header `name` (lower case), or NULL. Host, Content-Length, Content-Type,
 * Authorization, Transfer-Encoding and Expect cannot come twice: such requests are refused. */
const char *vt_http_find(const vt_http_request *r, const char *name);

typedef struct vt_http_reader vt_http_reader;

typedef enum vt_http_state {
    VT_HTTP_IDLE,    /* nothing of a request has come */
    VT_HTTP_HEAD,    /* within the request line or the headers */
    VT_HTTP_BODY,    /* the head is whole; vt_http_reader_request has it, without its body */
    VT_HTTP_DONE,    /* the request is whole */
    VT_HTTP_REFUSED, /* vt_http_reader_status says how; the connection must be closed after it */
} vt_http_state;

vt_status vt_http_reader_new(const vt_http_limits *limits, vt_http_reader **out, vt_err *err);
void vt_http_reader_free(vt_http_reader *r);
/* Takes bytes up to the end of one request, and says in *used how many. What lies behind it is the
 * next request's, which vt_http_reader_next makes room for. */
vt_http_state vt_http_reader_feed(vt_http_reader *r, const void *data, size_t len, size_t *used);
/* Valid in VT_HTTP_BODY and VT_HTTP_DONE, until vt_http_reader_next. */
const vt_http_request *vt_http_reader_request(const vt_http_reader *r);
/* In VT_HTTP_REFUSED: the status (400, 413, 414, 417, 431, 501, 503, 505) and one sentence, which
 * holds nothing that the client sent. */
int vt_http_reader_status(const vt_http_reader *r, const char **why);
/* Frees the body, so that it is not kept while an answer is computed; body_len becomes 0. */
void vt_http_reader_drop_body(vt_http_reader *r);
/* Hands the body over to `out`, an empty buffer; body_len becomes 0. False: memory is short. */
bool vt_http_reader_take_body(vt_http_reader *r, vt_buf *out);
/* Forgets the request. Memory beyond a small size goes back. */
void vt_http_reader_next(vt_http_reader *r);

/* "Not Found" of 404. */
const char *vt_http_reason(int status);

#endif
