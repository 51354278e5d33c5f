/* Reads a request's head: its line, its header lines, and how its body is framed
 * (server/http/http.h).
 *
 * RFC 9110 and 9112 are followed where they leave no choice. Where they allow leniency and another
 * program might use it differently, the request is refused. A POST with neither Content-Length nor
 * Transfer-Encoding has an empty body (RFC 9112, 6.3); 411 would be allowed, but "curl -X POST"
 * sends such requests. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"
#include "server/http/http_inside.h"

/* Classes of bytes. */
enum { BYTE_TOKEN = 1, BYTE_VALUE = 2, BYTE_HOST = 4 };

/* clang-format off */
static const unsigned char kClass[256] = {
    ['\t'] = BYTE_VALUE, [' '] = BYTE_VALUE,
    ['0' ... '9'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['A' ... 'Z'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['a' ... 'z'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['!'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST, ['#'] = BYTE_TOKEN | BYTE_VALUE,
    ['$'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST, ['%'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['&'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST, ['\''] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['*'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST, ['+'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['-'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST, ['.'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['^'] = BYTE_TOKEN | BYTE_VALUE, ['_'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['`'] = BYTE_TOKEN | BYTE_VALUE, ['|'] = BYTE_TOKEN | BYTE_VALUE,
    ['~'] = BYTE_TOKEN | BYTE_VALUE | BYTE_HOST,
    ['"'] = BYTE_VALUE, ['('] = BYTE_VALUE | BYTE_HOST, [')'] = BYTE_VALUE | BYTE_HOST,
    [','] = BYTE_VALUE, ['/'] = BYTE_VALUE, [':'] = BYTE_VALUE | BYTE_HOST,
    [';'] = BYTE_VALUE | BYTE_HOST, ['<'] = BYTE_VALUE, ['='] = BYTE_VALUE | BYTE_HOST,
    ['>'] = BYTE_VALUE, ['?'] = BYTE_VALUE, ['@'] = BYTE_VALUE,
    ['['] = BYTE_VALUE | BYTE_HOST, ['\\'] = BYTE_VALUE, [']'] = BYTE_VALUE | BYTE_HOST,
    ['{'] = BYTE_VALUE, ['}'] = BYTE_VALUE,
    [0x80 ... 0xff] = BYTE_VALUE,
};
/* clang-format on */

bool http_is_token(unsigned char c) { return kClass[c] & BYTE_TOKEN; }

/* ---- the request line ---- */

static const char *const kMethods[] = {"GET", "POST", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH"};

static bool is_known_method(const char *method, size_t len)
{
    for (size_t i = 0; i < sizeof kMethods / sizeof *kMethods; i++)
        if (strlen(kMethods[i]) == len && memcmp(kMethods[i], method, len) == 0)
            return true;
    return false;
}

/* "HTTP/1.0" or "HTTP/1.1". */
static bool read_version(vt_http_reader *r, const char *v, size_t len)
{
    if (len != 8 || memcmp(v, "HTTP/", 5) != 0 || v[5] < '0' || v[5] > '9' || v[6] != '.' ||
        v[7] < '0' || v[7] > '9')
        return http_refuse(r, 400, "The request line does not end in a version such as HTTP/1.1.");
    if (v[5] != '1' || v[7] > '1')
        return http_refuse(r, 505, "This server speaks HTTP/1.1 and HTTP/1.0.");
    r->request.minor = v[7] - '0';
    return true;
}

/* True if the path has a segment "." or "..". */
static bool has_dot_segment(const char *path)
{
    for (const char *slash = path; slash; slash = strchr(slash + 1, '/')) {
        const char *s = slash + 1;
        s += *s == '.';
        s += s > slash + 1 && *s == '.';
        if (s > slash + 1 && (*s == '/' || *s == '\0'))
            return true;
    }
    return false;
}

/* Decodes path[0 .. len) in place, and puts a NUL behind it. "%2f" becomes "/", as in most servers:
 * clients write the name of a model so. Segments of dots are looked for in what was decoded. */
static bool decode_path(vt_http_reader *r, char *path, size_t len)
{
    char *to = path;
    for (size_t i = 0; i < len; i++) {
        char c = path[i];
        if (c == '%') {
            int high = i + 2 < len ? http_hex_digit(path[i + 1]) : -1;
            int low = i + 2 < len ? http_hex_digit(path[i + 2]) : -1;
            if (high < 0 || low < 0)
                return http_refuse(r, 400, "A '%' in the path is not followed by two hex digits.");
            c = (char)(high * 16 + low);
            i += 2;
        }
        if ((unsigned char)c < 0x20 || c == 0x7f)
            return http_refuse(r, 400, "The path holds a control character.");
        *to++ = c;
    }
    *to = '\0';
    if (vt_utf8_valid(path, (size_t)(to - path)) != (size_t)(to - path))
        return http_refuse(r, 400, "The path is not UTF-8.");
    if (has_dot_segment(path))
        return http_refuse(r, 400, "The path has a segment '.' or '..'.");
    return true;
}

/* The length of "http://" or "https://" in front of an absolute target, or 0. */
static size_t scheme_length(const char *t, size_t len)
{
    if (len >= 7 && strncasecmp(t, "http://", 7) == 0)
        return 7;
    return len >= 8 && strncasecmp(t, "https://", 8) == 0 ? 8 : 0;
}

/* The path and query, text[0 .. len). An absolute target may have no path: that is "/", for which
 * there is room in the scheme in front of it. */
static bool read_path(vt_http_reader *r, char *text, size_t len, char *scheme)
{
    char *question = memchr(text, '?', len);
    if (question) {
        r->has_query = true;
        r->query_at = (size_t)(question + 1 - r->head.data);
        len = (size_t)(question - text);
    }
    if (scheme && len == 0) {
        text = scheme;
        *text = '/';
        len = 1;
    }
    r->path_at = (size_t)(text - r->head.data);
    return decode_path(r, text, len);
}

/* The target, text[0 .. len) with a byte behind it that may be overwritten. It has three forms:
 *   /path?query               for a server
 *   http://host/path?query    for a proxy; a server must take it as well (RFC 9112, 3.2.2)
 *   *                         OPTIONS about the server as a whole */
static bool read_target(vt_http_reader *r, char *text, size_t len, bool options)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] <= 0x20 || (unsigned char)text[i] >= 0x7f || text[i] == '#')
            return http_refuse(r, 400, "The request's target holds a byte that must be escaped.");
    text[len] = '\0';
    if (options && len == 1 && *text == '*') {
        r->path_at = (size_t)(text - r->head.data);
        return true;
    }
    size_t scheme = scheme_length(text, len);
    if (!scheme && *text != '/')
        return http_refuse(r, 400, "The request's target does not begin with '/'.");
    if (!scheme)
        return read_path(r, text, len, NULL);
    r->authority_at = (size_t)(text - r->head.data) + scheme;
    r->authority_len = strcspn(text + scheme, "/?");
    if (r->authority_len == 0)
        return http_refuse(r, 400, "The request's target has no host behind its scheme.");
    size_t skip = scheme + r->authority_len;
    return read_path(r, text + skip, len - skip, text);
}

bool http_read_request_line(vt_http_reader *r, size_t len)
{
    char *line = r->head.data, *end = line + len;
    char *target = memchr(line, ' ', len);
    char *version = target ? memchr(target + 1, ' ', (size_t)(end - target - 1)) : NULL;
    if (!version || target == line || version == target + 1)
        return http_refuse(r, 400, "The request line is not METHOD TARGET VERSION.");
    for (char *c = line; c < target; c++)
        if (!http_is_token((unsigned char)*c))
            return http_refuse(r, 400, "The method holds a character that is not allowed.");
    if (!read_version(r, version + 1, (size_t)(end - version - 1)))
        return false;
    if (!is_known_method(line, (size_t)(target - line)))
        return http_refuse(r, 501, "This server does not know the method of the request.");
    *target = '\0';
    return read_target(r, target + 1, (size_t)(version - target - 1), strcmp(line, "OPTIONS") == 0);
}

/* ---- header lines ---- */

bool http_cut_header(vt_http_reader *r, char *line, size_t len, vt_http_header *out)
{
    char *end = line + len, *at = line;
    if (*line == ' ' || *line == '\t')
        return http_refuse(r, 400, "A header line begins with a space (folded lines are refused).");
    for (; at < end && http_is_token((unsigned char)*at); at++)
        if (*at >= 'A' && *at <= 'Z')
            *at = (char)(*at | 0x20);
    if (at == line || at == end || *at != ':')
        return http_refuse(r, 400, "A header line is not a name, ':' and a value.");
    *at++ = '\0';
    for (const char *c = at; c < end; c++)
        if (!(kClass[(unsigned char)*c] & BYTE_VALUE))
            return http_refuse(r, 400, "A header's value holds a control character.");
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0'; /* in the worst case on the CR behind the line */
    *out = (vt_http_header){line, at};
    return true;
}

/* Headers that may come only once: with two of them, two programs could take different ones. */
typedef enum http_once {
    ONCE_HOST,
    ONCE_LENGTH,
    ONCE_ENCODING,
    ONCE_EXPECT,
    ONCE_TYPE,
    ONCE_AUTHORIZATION,
    N_ONCE
} http_once;

static const struct {
    const char *name, *twice;
} kOnce[N_ONCE] = {
    [ONCE_HOST] = {"host", "The request has more than one Host."},
    [ONCE_LENGTH] = {"content-length", "The request has more than one Content-Length."},
    [ONCE_ENCODING] = {"transfer-encoding", "The request has more than one Transfer-Encoding."},
    [ONCE_EXPECT] = {"expect", "The request has more than one Expect."},
    [ONCE_TYPE] = {"content-type", "The request has more than one Content-Type."},
    [ONCE_AUTHORIZATION] = {"authorization", "The request has more than one Authorization."},
};

static bool read_host(vt_http_reader *r, const char *host)
{
    if (!host)
        return r->request.minor == 0 || http_refuse(r, 400, "The request has no Host.");
    for (const char *c = host; *c; c++)
        if (!(kClass[(unsigned char)*c] & BYTE_HOST))
            return http_refuse(r, 400, "Host holds a character that is not allowed.");
    if (r->authority_len > 0 &&
        (strlen(host) != r->authority_len ||
         strncasecmp(host, r->head.data + r->authority_at, r->authority_len) != 0))
        return http_refuse(r, 400, "Host and the host of the request's target differ.");
    return true;
}

static bool read_content_length(vt_http_reader *r, const char *digits)
{
    uint64_t n = 0;
    for (const char *c = digits; *c; c++) {
        if (*c < '0' || *c > '9')
            return http_refuse(r, 400, "Content-Length is not decimal digits alone.");
        if (__builtin_mul_overflow(n, (uint64_t)10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*c - '0'), &n))
            return http_refuse(r, 413, "The body is longer than allowed.");
    }
    if (*digits == '\0')
        return http_refuse(r, 400, "Content-Length is not decimal digits alone.");
    if (n > r->limits.body)
        return http_refuse(r, 413, "The body is longer than allowed.");
    r->left = n;
    r->part = n > 0 ? HTTP_LENGTH : HTTP_WHOLE;
    return true;
}

/* Finds out how long the body is: RFC 9112, 6.3. false: the request is refused. */
static bool read_framing(vt_http_reader *r, const char *length, const char *encoding)
{
    r->part = HTTP_WHOLE;
    if (length && encoding)
        return http_refuse(r, 400, "The request has both Content-Length and Transfer-Encoding.");
    if (length)
        return read_content_length(r, length);
    if (!encoding)
        return true;
    if (r->request.minor == 0)
        return http_refuse(r, 400, "Transfer-Encoding is not a part of HTTP/1.0.");
    if (strcasecmp(encoding, "chunked") != 0)
        return http_refuse(r, 501, "Transfer-Encoding is not 'chunked'.");
    r->part = HTTP_CHUNK_SIZE;
    return true;
}

/* Returns true if the list `value`, of words between commas, has `word`. */
static bool list_has(const char *value, const char *word)
{
    size_t n = strlen(word);
    while (*value) {
        value += strspn(value, " \t,");
        size_t len = strcspn(value, " \t,");
        if (len == n && strncasecmp(value, word, n) == 0)
            return true;
        value += len;
    }
    return false;
}

static void read_connection(vt_http_reader *r)
{
    bool close = false, keep = r->request.minor == 1;
    for (int32_t i = 0; i < r->request.n_headers; i++) {
        if (strcmp(r->header[i].name, "connection") != 0)
            continue;
        close = close || list_has(r->header[i].value, "close");
        keep = keep || list_has(r->header[i].value, "keep-alive");
    }
    r->request.keep_alive = keep && !close;
}

/* Cuts up all lines and notes where each header of kOnce is. */
static bool cut_headers(vt_http_reader *r, const char *once[N_ONCE])
{
    char *at = r->head.data + r->headers_at;
    for (int32_t i = 0; i < r->n_lines; i++) {
        char *lf = memchr(at, '\n', (size_t)(r->head.data + r->head.len - at));
        vt_http_header *h = &r->header[i];
        if (!http_cut_header(r, at, (size_t)(lf - 1 - at), h))
            return false;
        for (int k = 0; k < N_ONCE; k++) {
            if (h->name[0] != kOnce[k].name[0] || strcmp(h->name, kOnce[k].name) != 0)
                continue;
            if (once[k])
                return http_refuse(r, 400, kOnce[k].twice);
            once[k] = h->value;
        }
        at = lf + 1;
    }
    return true;
}

static bool make_room(vt_http_reader *r)
{
    if (r->n_lines <= r->header_cap)
        return true;
    vt_http_header *header = vt_calloc((size_t)r->n_lines, sizeof *header);
    if (!header)
        return http_refuse(r, 503, "The server has no memory for this request.");
    free(r->header);
    r->header = header;
    r->header_cap = r->n_lines;
    return true;
}

bool http_read_headers(vt_http_reader *r)
{
    const char *once[N_ONCE] = {NULL};
    vt_http_request *q = &r->request;
    if (!make_room(r) || !cut_headers(r, once))
        return false;
    q->method = r->head.data;
    q->path = r->head.data + r->path_at;
    q->query = r->has_query ? r->head.data + r->query_at : NULL;
    q->header = r->header;
    q->n_headers = r->n_lines;
    if (!read_host(r, once[ONCE_HOST]) || !read_framing(r, once[ONCE_LENGTH], once[ONCE_ENCODING]))
        return false;
    read_connection(r);
    const char *expect = q->minor == 1 ? once[ONCE_EXPECT] : NULL;
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return http_refuse(r, 417, "Expect is not '100-continue'.");
    q->expects_100 = expect && r->part != HTTP_WHOLE;
    return true;
}
