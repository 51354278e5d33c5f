/* The reader of HTTP/1.1 requests: where a request begins and ends (server/http/http.h).
 *
 *   GET /v1/models HTTP/1.1 CRLF    collected in `head`, line by line, each of which must end in
 *   Host: a CRLF                    CR LF. The request line is read when it has come, the header
 *   CRLF                            lines when the empty line has come (http_head.c).
 *   ...                             the body: collected in `body`, which grows with the bytes that
 *                                   have come and never with the length that a request claims
 *
 * Why we read requests ourselves, on libevent's loop but without its evhttp: evhttp of Debian 12
 * (2.1.12 with the fixes of 2026) was given 37 raw requests.
 * - It answered a request with two different Content-Lengths, and then ran the bytes behind it as a
 *   second request. That is request smuggling.
 * - It took "Content-Length : 3" and "Transfer-Encoding: xchunked" for no length at all, and so the
 *   body for the next request.
 * - It accepted "+3" as a length, "0x3" as a chunk size, folded lines, bare LF, a NUL in a value
 *   (which it cut there), no Host and two Hosts.
 * - It has no deadline for a head that comes slowly. It reads without bound while an answer is
 *   streamed: 300 MB that were sent took 292 MB of memory. It ends the process if a byte comes
 *   while an answer is awaited and reading is on; and reading must be on to notice that a client
 *   leaves.
 * tests/unit/test_http.c holds what is refused here, those requests among it.
 *
 * The shape is picohttpparser's: memchr finds the end of a line, a table says which bytes may be
 * where. A head of 13 lines takes 0.6 us (bench/micro/http.c). */
#include "server/http/http_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum {
    HTTP_KEEP = 4096,          /* bytes of a buffer that stay for the next request */
    HTTP_MAX_CHUNK_DIGITS = 16 /* of a chunk size, leading zeros included */
};
static const size_t kMostHead = (size_t)1 << 24; /* a limit beyond these is a mistake */
static const size_t kMostBody = (size_t)1 << 40;

vt_status vt_http_reader_new(const vt_http_limits *l, vt_http_reader **out, vt_err *err)
{
    if (l->line < 16 || l->head < l->line || l->head > kMostHead || l->n_headers < 1 ||
        l->n_headers > 100000 || l->body > kMostBody)
        return vt_fail(err, VT_ERR_USAGE,
                       "HTTP limits are wrong: line %zu, head %zu, headers %d, body %zu; expected "
                       "16 <= line <= head <= 2^24, 1 to 100000 headers, a body of at most 2^40",
                       l->line, l->head, l->n_headers, l->body);
    vt_http_reader *r = vt_calloc(1, sizeof *r);
    if (!r)
        return vt_fail(err, VT_ERR_MEMORY, "no memory for a reader of HTTP requests");
    r->limits = *l;
    vt_buf_init(&r->head, l->head);
    vt_buf_init(&r->body, l->body ? l->body : 1);
    vt_buf_init(&r->trailer, l->head);
    *out = r;
    return VT_OK;
}

void vt_http_reader_free(vt_http_reader *r)
{
    if (!r)
        return;
    vt_buf_release(&r->head);
    vt_buf_release(&r->body);
    vt_buf_release(&r->trailer);
    free(r->header);
    free(r);
}

bool http_refuse(vt_http_reader *r, int status, const char *why)
{
    r->part = HTTP_WRONG;
    r->status = status;
    r->why = why;
    return false;
}

static bool out_of_memory(vt_http_reader *r)
{
    return http_refuse(r, 503, "The server has no memory for this request.");
}

/* Appends bytes up to and including the next LF. *whole says whether there was one. False: the
 * buffer would pass `max` bytes, or memory is short; then it has failed or not. */
static bool take_line(vt_buf *b, size_t max, const char **at, const char *end, bool *whole)
{
    const char *lf = memchr(*at, '\n', (size_t)(end - *at));
    size_t n = (size_t)((lf ? lf + 1 : end) - *at);
    if (n > max - b->len)
        return false;
    if (!vt_buf_add(b, *at, n))
        return false;
    *at += n;
    *whole = lf != NULL;
    return true;
}

static bool ends_in_crlf(const char *line, size_t len)
{
    return len >= 2 && line[len - 2] == '\r' && line[len - 1] == '\n';
}

/* ---- head ---- */

/* One empty line before a request is let pass (RFC 9112, 2.2): some clients send one behind a body.
 * The first byte must be a method's, so that what is no HTTP at all is refused at once. */
static bool read_start(vt_http_reader *r, const char **at)
{
    char c = **at;
    if ((c == '\r' && r->n_skipped == 0) || (c == '\n' && r->n_skipped == 1)) {
        r->n_skipped++;
        ++*at;
        return true;
    }
    if (r->n_skipped == 1)
        return http_refuse(r, 400, "A line ends in CR without LF.");
    if (c == 0x16)
        return http_refuse(r, 400,
                           "The client speaks TLS, but this port plain HTTP: ask by http://.");
    if (!http_is_token((unsigned char)c))
        return http_refuse(r, 400, "The request does not begin with a method.");
    r->part = HTTP_LINE;
    return true;
}

static bool read_line(vt_http_reader *r, const char **at, const char *end)
{
    bool whole;
    if (!take_line(&r->head, r->limits.line, at, end, &whole))
        return r->head.failed ? out_of_memory(r)
                              : http_refuse(r, 414, "The request line is longer than allowed.");
    if (!whole)
        return true;
    if (!ends_in_crlf(r->head.data, r->head.len))
        return http_refuse(r, 400, "The request line ends in LF without CR.");
    r->line_at = r->headers_at = r->head.len;
    r->part = HTTP_HEADERS;
    return http_read_request_line(r, r->head.len - 2);
}

static bool read_header_line(vt_http_reader *r, const char **at, const char *end)
{
    bool whole;
    if (!take_line(&r->head, r->limits.head, at, end, &whole))
        return r->head.failed ? out_of_memory(r)
                              : http_refuse(r, 431, "The header lines are longer than allowed.");
    if (!whole)
        return true;
    size_t len = r->head.len - r->line_at;
    if (!ends_in_crlf(r->head.data + r->line_at, len))
        return http_refuse(r, 400, "A header line ends in LF without CR.");
    r->line_at = r->head.len;
    if (len == 2)
        return http_read_headers(r);
    if (++r->n_lines > r->limits.n_headers)
        return http_refuse(r, 431, "There are more header lines than allowed.");
    return true;
}

/* ---- body ---- */

/* `n` further bytes of the body; the caller has checked them against the limit. */
static bool add_body(vt_http_reader *r, const char **at, size_t n)
{
    if (!vt_buf_add(&r->body, *at, n))
        return out_of_memory(r);
    *at += n;
    r->left -= n;
    return true;
}

static size_t available(const vt_http_reader *r, const char *at, const char *end)
{
    size_t n = (size_t)(end - at);
    return n < r->left ? n : (size_t)r->left;
}

static bool read_length(vt_http_reader *r, const char **at, const char *end)
{
    if (!add_body(r, at, available(r, *at, end)))
        return false;
    if (r->left == 0)
        r->part = HTTP_WHOLE;
    return true;
}

int http_hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* A chunk size is hexadecimal digits and CR LF. Chunk extensions are refused: no client sends them,
 * and programs disagree about where they end, which has been used to smuggle requests. */
static bool read_chunk_size(vt_http_reader *r, const char **at)
{
    char c = *(*at)++;
    int digit = http_hex_digit(c);
    if (r->size_ended) {
        if (c != '\n')
            return http_refuse(r, 400, "A chunk size is followed by CR without LF.");
        r->part = r->left ? HTTP_CHUNK : HTTP_TRAILERS;
        return true;
    }
    if (digit >= 0) {
        if (++r->n_digits > HTTP_MAX_CHUNK_DIGITS)
            return http_refuse(r, 400, "A chunk size has more than 16 digits.");
        r->left = r->left << 4 | (uint64_t)digit;
        return true;
    }
    if (c != '\r' || r->n_digits == 0)
        return http_refuse(r, 400,
                           c == ';' ? "Chunk extensions are not accepted."
                                    : "A chunk size is not hexadecimal digits and CR LF.");
    if (r->left > r->limits.body - r->body.len)
        return http_refuse(r, 413, "The body is longer than allowed.");
    r->size_ended = true;
    return true;
}

static bool read_chunk(vt_http_reader *r, const char **at, const char *end)
{
    if (!add_body(r, at, available(r, *at, end)))
        return false;
    if (r->left == 0)
        r->part = HTTP_CHUNK_CR;
    return true;
}

static bool read_chunk_end(vt_http_reader *r, const char **at)
{
    char want = r->part == HTTP_CHUNK_CR ? '\r' : '\n';
    if (*(*at)++ != want)
        return http_refuse(r, 400, "A chunk is longer than its size says: no CR LF behind it.");
    r->part = r->part == HTTP_CHUNK_CR ? HTTP_CHUNK_LF : HTTP_CHUNK_SIZE;
    r->n_digits = 0;
    r->size_ended = false;
    return true;
}

/* Trailers are checked like headers and dropped: nothing here has a use for them. */
static bool read_trailer(vt_http_reader *r, const char **at, const char *end)
{
    bool whole;
    size_t before = r->trailer.len;
    vt_http_header unused;
    if (!take_line(&r->trailer, r->limits.head - r->n_trailer + before, at, end, &whole))
        return r->trailer.failed ? out_of_memory(r)
                                 : http_refuse(r, 431, "The trailers are longer than allowed.");
    r->n_trailer += r->trailer.len - before;
    if (!whole)
        return true;
    if (!ends_in_crlf(r->trailer.data, r->trailer.len))
        return http_refuse(r, 400, "A trailer line ends in LF without CR.");
    size_t len = r->trailer.len - 2;
    if (len == 0) {
        r->part = HTTP_WHOLE;
        return true;
    }
    if (++r->n_lines > r->limits.n_headers)
        return http_refuse(r, 431, "There are more header and trailer lines than allowed.");
    if (!http_cut_header(r, r->trailer.data, len, &unused))
        return false;
    vt_buf_clear(&r->trailer);
    return true;
}

/* ---- the reader as a whole ---- */

static vt_http_state state_of(http_part part)
{
    switch (part) {
    case HTTP_START:
        return VT_HTTP_IDLE;
    case HTTP_LINE:
    case HTTP_HEADERS:
        return VT_HTTP_HEAD;
    case HTTP_WHOLE:
        return VT_HTTP_DONE;
    case HTTP_WRONG:
        return VT_HTTP_REFUSED;
    default:
        return VT_HTTP_BODY;
    }
}

/* One part of a request further; at < end. */
static bool read_on(vt_http_reader *r, const char **at, const char *end)
{
    switch (r->part) {
    case HTTP_START:
        return read_start(r, at);
    case HTTP_LINE:
        return read_line(r, at, end);
    case HTTP_HEADERS:
        return read_header_line(r, at, end);
    case HTTP_LENGTH:
        return read_length(r, at, end);
    case HTTP_CHUNK_SIZE:
        return read_chunk_size(r, at);
    case HTTP_CHUNK:
        return read_chunk(r, at, end);
    case HTTP_CHUNK_CR:
    case HTTP_CHUNK_LF:
        return read_chunk_end(r, at);
    case HTTP_TRAILERS:
        return read_trailer(r, at, end);
    default:
        return false;
    }
}

vt_http_state vt_http_reader_feed(vt_http_reader *r, const void *data, size_t len, size_t *used)
{
    const char *at = data, *end = at + len;
    while (at < end && r->part != HTTP_WHOLE && r->part != HTTP_WRONG)
        if (!read_on(r, &at, end))
            break;
    *used = len ? (size_t)(at - (const char *)data) : 0;
    r->request.body = r->body.len ? r->body.data : "";
    r->request.body_len = r->body.len;
    return state_of(r->part);
}

const vt_http_request *vt_http_reader_request(const vt_http_reader *r) { return &r->request; }

int vt_http_reader_status(const vt_http_reader *r, const char **why)
{
    *why = r->why;
    return r->status;
}

static void empty(vt_buf *b)
{
    if (b->cap > HTTP_KEEP)
        vt_buf_release(b);
    vt_buf_clear(b);
}

void vt_http_reader_drop_body(vt_http_reader *r)
{
    empty(&r->body);
    r->request.body = "";
    r->request.body_len = 0;
}

bool vt_http_reader_take_body(vt_http_reader *r, vt_buf *out)
{
    bool there = r->body.data || vt_buf_add(&r->body, "", 0); /* a NUL behind nothing, too */
    *out = r->body;
    vt_buf_init(&r->body, out->max);
    r->request.body = "";
    r->request.body_len = 0;
    return there;
}

void vt_http_reader_next(vt_http_reader *r)
{
    vt_http_reader kept = *r;
    empty(&kept.head);
    empty(&kept.body);
    empty(&kept.trailer);
    *r = (vt_http_reader){.limits = kept.limits,
                          .head = kept.head,
                          .body = kept.body,
                          .trailer = kept.trailer,
                          .header = kept.header,
                          .header_cap = kept.header_cap};
}

const char *vt_http_find(const vt_http_request *r, const char *name)
{
    for (int32_t i = 0; i < r->n_headers; i++)
        if (strcmp(r->header[i].name, name) == 0)
            return r->header[i].value;
    return NULL;
}

const char *vt_http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {
        {100, "Continue"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status)
            return known[i].reason;
    return "Unknown";
}
