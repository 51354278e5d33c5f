#include "server/http/sse_reader.h"

#include <string.h>
#include <strings.h>

#include "base/err.h"

/* What comes next. Lines of the head and of chunks are collected in r->framing; lines of events are
 * the stream's, because a chunk may end within one. */
enum { STATUS_LINE, HEADER, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, UNTIL_END, OVER };

enum { SMALL_LINE = 16384 }; /* of the head and of chunk sizes */

void vt_sse_reader_init(vt_sse_reader *r, size_t max)
{
    *r = (vt_sse_reader){.state = STATUS_LINE};
    vt_event_stream_init(&r->stream, max, NULL, NULL);
    vt_buf_init(&r->framing, SMALL_LINE);
    vt_buf_init(&r->body, max < SMALL_LINE ? max : SMALL_LINE);
}

void vt_sse_reader_release(vt_sse_reader *r)
{
    vt_event_stream_release(&r->stream);
    vt_buf_release(&r->framing);
    vt_buf_release(&r->body);
}

static const char *text(const vt_buf *b) { return b->data ? b->data : ""; }

static vt_status read_status(vt_sse_reader *r, vt_err *err)
{
    const char *s = text(&r->framing);
    if (strncmp(s, "HTTP/1.", 7) != 0 || strlen(s) < 12 || s[8] != ' ' ||
        strspn(s + 9, "0123456789") != 3)
        return vt_fail(err, VT_ERR_FORMAT, "the answer does not begin as HTTP/1.1 does");
    r->status = (s[9] - '0') * 100 + (s[10] - '0') * 10 + (s[11] - '0');
    r->state = HEADER;
    return VT_OK;
}

static bool is_header(const char *line, const char *name, const char *value)
{
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return false;
    line += n + 1;
    line += strspn(line, " \t");
    return strncasecmp(line, value, strlen(value)) == 0;
}

static void read_header(vt_sse_reader *r)
{
    const char *s = text(&r->framing);
    if (!*s)
        r->state = r->chunked ? CHUNK_SIZE : UNTIL_END;
    r->chunked = r->chunked || is_header(s, "transfer-encoding", "chunked");
    r->events = r->events || is_header(s, "content-type", "text/event-stream");
}

static vt_status read_size(vt_sse_reader *r, vt_err *err)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *s = text(&r->framing);
    size_t n = strspn(s, digits);
    if (n == 0 || n > 7 || (s[n] && s[n] != ';'))
        return vt_fail(err, VT_ERR_FORMAT, "the size of a chunk is '%.20s', expected hex digits",
                       s);
    r->left = 0;
    for (size_t i = 0; i < n; i++)
        r->left = r->left * 16 + (size_t)((strchr(digits, s[i]) - digits) & 15);
    r->state = r->left > 0 ? CHUNK_DATA : TRAILER;
    return VT_OK;
}

/* Adds bytes to the line; returns how many it took. *whole: the line has ended. */
static size_t take_line(vt_buf *line, const char *bytes, size_t len, bool *whole)
{
    const char *end = memchr(bytes, '\n', len);
    size_t n = end ? (size_t)(end - bytes) : len;
    vt_buf_add(line, bytes, n);
    *whole = end != NULL;
    if (end && line->len > 0 && line->data[line->len - 1] == '\r')
        line->data[--line->len] = '\0';
    return n + (end != NULL);
}

static vt_status take_body(vt_sse_reader *r, const char *bytes, size_t len, vt_err *err)
{
    if (!r->events) {
        size_t room = r->body.max - r->body.len;
        vt_buf_add(&r->body, bytes, len < room ? len : room);
        return VT_OK;
    }
    return vt_event_stream_feed(&r->stream, bytes, len)
               ? VT_OK
               : vt_fail(err, VT_ERR_FORMAT, "an event is longer than %zu bytes",
                         r->stream.line.max);
}

/* The line that has ended, outside the body. */
static vt_status take_small_line(vt_sse_reader *r, vt_err *err)
{
    vt_status status = VT_OK;
    if (r->state == STATUS_LINE)
        status = read_status(r, err);
    else if (r->state == HEADER)
        read_header(r);
    else if (r->state == CHUNK_SIZE)
        status = read_size(r, err);
    else if (r->framing.len == 0) {
        r->ended = r->state == TRAILER;
        r->state = r->ended ? OVER : CHUNK_SIZE;
    } else if (r->state == CHUNK_END)
        status = vt_fail(err, VT_ERR_FORMAT, "a chunk is longer than its size says");
    return status;
}

vt_status vt_sse_reader_feed(vt_sse_reader *r, const char *bytes, size_t len,
                             void (*event)(void *user, const char *data, size_t len), void *user,
                             vt_err *err)
{
    r->stream.on_event = event;
    r->stream.user = user;
    for (size_t at = 0; at < len && r->state != OVER;) {
        if (r->state == UNTIL_END)
            return take_body(r, bytes + at, len - at, err);
        if (r->state == CHUNK_DATA) {
            size_t n = len - at < r->left ? len - at : r->left;
            TRY(take_body(r, bytes + at, n, err));
            at += n;
            r->left -= n;
            r->state = r->left == 0 ? CHUNK_END : CHUNK_DATA;
            continue;
        }
        bool whole;
        at += take_line(&r->framing, bytes + at, len - at, &whole);
        if (r->framing.failed)
            return vt_fail(err, VT_ERR_FORMAT,
                           "a line of the answer's head is longer than %d bytes", SMALL_LINE);
        if (whole) {
            TRY(take_small_line(r, err));
            vt_buf_clear(&r->framing);
        }
    }
    return VT_OK;
}
