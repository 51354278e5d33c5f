/* Reading responses (load/http_reply.h): a machine that takes lines and counted bytes in turn.
 *
 *   STATUS -> FIELD ... -> empty line -+-> COUNTED (a length)  ---------------------> done
 *      ^                               +-> UNTIL_CLOSE  -> the server closes -------> done
 *      └── after a 1xx response        +-> SIZE -> CHUNK -> CHUNK_END -> SIZE ...
 *                                            └─ size 0 -> TRAILER ... -> empty line -> done */
#include "load/http_reply.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { STATUS, FIELD, COUNTED, UNTIL_CLOSE, SIZE, CHUNK, CHUNK_END, TRAILER };

void vt_http_reply_reset(vt_http_reply *r)
{
    r->state = VT_REPLY_EMPTY;
    r->status = 0;
    r->keep_alive = r->chunked = r->until_close = false;
    r->content_type[0] = '\0';
    r->why = NULL;
    r->part = STATUS;
    r->minor = r->n_interim = 0;
    r->has_length = r->close_asked = r->keep_asked = false;
    r->left = r->total = 0;
    r->n_head = r->n_line = 0;
}

static void broken(vt_http_reply *r, const char *why)
{
    r->state = VT_REPLY_BROKEN;
    r->why = why;
    r->keep_alive = false;
}

/* ---- lines ---- */

static void take_status(vt_http_reply *r)
{
    const char *s = r->line;
    bool version = r->n_line >= 12 && memcmp(s, "HTTP/1.", 7) == 0 &&
                   (s[7] == '0' || s[7] == '1') && s[8] == ' ';
    bool digits = version && isdigit((unsigned char)s[9]) && isdigit((unsigned char)s[10]) &&
                  isdigit((unsigned char)s[11]) && (s[12] == ' ' || s[12] == '\0');
    if (!digits) {
        broken(r, "the response does not begin with an HTTP/1.x status line");
        return;
    }
    r->minor = s[7] - '0';
    r->status = (s[9] - '0') * 100 + (s[10] - '0') * 10 + (s[11] - '0');
    if (r->status < 100 || r->status > 599)
        broken(r, "the status is not one of 100 to 599");
    r->part = FIELD;
}

static void take_length(vt_http_reply *r, const char *value)
{
    int64_t n = 0;
    size_t len = strlen(value);
    if (len == 0 || len > 12 || strspn(value, "0123456789") != len) {
        broken(r, "Content-Length is not a number");
        return;
    }
    for (const char *p = value; *p; p++)
        n = 10 * n + (*p - '0');
    if (r->has_length)
        broken(r, "two Content-Length headers");
    else if (n > VT_REPLY_MAX_BODY)
        broken(r, "the body is too large");
    r->has_length = true;
    r->left = n;
}

/* Connection: a list of words. */
static void take_connection(vt_http_reply *r, const char *value)
{
    while (*value) {
        size_t skip = strspn(value, " \t,"), n = strcspn(value + skip, " \t,");
        value += skip;
        if (n == 5 && strncasecmp(value, "close", 5) == 0)
            r->close_asked = true;
        if (n == 10 && strncasecmp(value, "keep-alive", 10) == 0)
            r->keep_asked = true;
        value += n;
    }
}

static void take_type(vt_http_reply *r, const char *value)
{
    size_t n = strcspn(value, "; \t");
    if (n >= sizeof r->content_type)
        n = sizeof r->content_type - 1;
    for (size_t i = 0; i < n; i++)
        r->content_type[i] = (char)tolower((unsigned char)value[i]);
    r->content_type[n] = '\0';
}

static void take_field(vt_http_reply *r)
{
    static const char token[] =
        "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char *name = r->line;
    size_t n = strspn(name, token);
    if (n == 0 || name[n] != ':') {
        broken(r, "a header line is not a name, a colon and a value");
        return;
    }
    name[n] = '\0';
    char *value = name + n + 1;
    value += strspn(value, " \t");
    size_t len = strlen(value);
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        value[--len] = '\0';
    if (strcasecmp(name, "content-length") == 0) {
        take_length(r, value);
    } else if (strcasecmp(name, "transfer-encoding") == 0) {
        if (r->chunked || strcasecmp(value, "chunked") != 0)
            broken(r, "a Transfer-Encoding other than chunked");
        r->chunked = true;
    } else if (strcasecmp(name, "connection") == 0) {
        take_connection(r, value);
    } else if (strcasecmp(name, "content-type") == 0) {
        take_type(r, value);
    }
}

static void finish(vt_http_reply *r) { r->state = VT_REPLY_DONE; }

static void end_of_head(vt_http_reply *r)
{
    if (r->status < 200) {
        int n = r->n_interim + 1;
        if (r->status == 101 || n > VT_REPLY_INTERIM) {
            broken(r,
                   r->status == 101 ? "the server switched protocols" : "too many 1xx responses");
            return;
        }
        vt_http_reply_reset(r);
        r->n_interim = n;
        r->state = VT_REPLY_HEADER;
        return;
    }
    if (r->chunked && (r->has_length || r->minor == 0)) {
        broken(r, r->has_length ? "both Content-Length and Transfer-Encoding"
                                : "Transfer-Encoding in HTTP/1.0");
        return;
    }
    bool bodiless = r->status == 204 || r->status == 304;
    r->until_close = !bodiless && !r->chunked && !r->has_length;
    r->keep_alive = !r->close_asked && !r->until_close && (r->minor == 1 || r->keep_asked);
    r->state = VT_REPLY_BODY;
    r->n_head = 0;
    r->part = r->chunked ? SIZE : r->until_close ? UNTIL_CLOSE : COUNTED;
    if (bodiless || (r->has_length && r->left == 0))
        finish(r);
}

static void take_size(vt_http_reply *r)
{
    int64_t n = 0;
    size_t digits = strspn(r->line, "0123456789abcdefABCDEF");
    const char *rest = r->line + digits;
    rest += strspn(rest, " \t");
    if (digits == 0 || digits > 8 || (*rest && *rest != ';')) {
        broken(r, "the size of a chunk is not a number");
        return;
    }
    for (size_t i = 0; i < digits; i++) {
        int c = tolower((unsigned char)r->line[i]);
        n = 16 * n + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (n + r->total > VT_REPLY_MAX_BODY) {
        broken(r, "the body is too large");
        return;
    }
    r->left = n;
    r->part = n ? CHUNK : TRAILER;
    r->n_head = 0;
}

/* A line without its CRLF, NUL-terminated. */
static void take_line(vt_http_reply *r)
{
    if (memchr(r->line, '\0', r->n_line) || memchr(r->line, '\r', r->n_line)) {
        broken(r, "a control character in a line");
        return;
    }
    switch (r->part) {
    case STATUS:
        take_status(r);
        break;
    case FIELD:
        r->n_line ? take_field(r) : end_of_head(r);
        break;
    case SIZE:
        take_size(r);
        break;
    case CHUNK_END:
        if (r->n_line)
            broken(r, "a chunk is longer than its size");
        r->part = SIZE;
        break;
    default: /* TRAILER */
        if (r->n_line == 0)
            finish(r);
    }
}

/* Takes bytes up to the end of one line. */
static size_t feed_line(vt_http_reply *r, const char *data, size_t len)
{
    const char *lf = memchr(data, '\n', len);
    size_t n = lf ? (size_t)(lf - data) + 1 : len;
    if (r->n_line + n >= VT_REPLY_LINE || r->n_head + n > VT_REPLY_HEAD) {
        broken(r, "a line or the head is too long");
        return 0;
    }
    memcpy(r->line + r->n_line, data, n);
    r->n_line += n;
    r->n_head += n;
    if (!lf)
        return n;
    if (r->n_line < 2 || r->line[r->n_line - 2] != '\r') {
        broken(r, "a line does not end with CR LF");
        return n;
    }
    r->n_line -= 2;
    r->line[r->n_line] = '\0';
    take_line(r);
    r->n_line = 0;
    return n;
}

static size_t feed_body(vt_http_reply *r, const char *data, size_t len)
{
    size_t n = len;
    if (r->part != UNTIL_CLOSE && (int64_t)n > r->left)
        n = (size_t)r->left;
    if (r->total + (int64_t)n > VT_REPLY_MAX_BODY) {
        broken(r, "the body is too large");
        return 0;
    }
    r->total += (int64_t)n;
    r->left -= r->part != UNTIL_CLOSE ? (int64_t)n : 0;
    /* The state moves first: on_body may look at it. */
    if (r->part == COUNTED && r->left == 0)
        finish(r);
    if (r->part == CHUNK && r->left == 0)
        r->part = CHUNK_END;
    r->on_body(r->user, data, n);
    return n;
}

size_t vt_http_reply_feed(vt_http_reply *r, const char *data, size_t len)
{
    size_t used = 0;
    while (used < len && r->state != VT_REPLY_DONE && r->state != VT_REPLY_BROKEN) {
        if (r->state == VT_REPLY_EMPTY)
            r->state = VT_REPLY_HEADER;
        bool bytes = r->part == COUNTED || r->part == UNTIL_CLOSE || r->part == CHUNK;
        used += bytes ? feed_body(r, data + used, len - used)
                      : feed_line(r, data + used, len - used);
    }
    return used;
}

void vt_http_reply_end(vt_http_reply *r)
{
    if (r->state == VT_REPLY_BODY && r->part == UNTIL_CLOSE)
        finish(r);
    else if (r->state != VT_REPLY_DONE && r->state != VT_REPLY_BROKEN)
        broken(r, r->state == VT_REPLY_EMPTY ? "the server closed without an answer"
                                             : "the server closed in the middle of its answer");
}
