/* The HTTP reader (http/http.h): whatever the bytes, and however they are cut, the same requests
 * with the same parts, each of which keeps what the header promises. The first byte says how the
 * second reading is cut; limits are small, so that they are reached. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "server/http/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const vt_http_limits kLimits = {.line = 96, .head = 400, .n_headers = 12, .body = 100};

static void must(bool holds)
{
    if (!holds)
        abort();
}

static void check_text(const char *s)
{
    for (; *s; s++)
        must(*s != '\r' && *s != '\n' && *s != 0x7f);
}

static void check_request(const vt_http_request *q)
{
    must(q->method[0] >= 'A' && q->method[0] <= 'Z');
    must(q->path[0] == '/' || strcmp(q->path, "*") == 0);
    must(!strstr(q->path, "/../") && !strstr(q->path, "/./"));
    must(vt_utf8_valid(q->path, strlen(q->path)) == strlen(q->path));
    check_text(q->path);
    if (q->query)
        check_text(q->query);
    must(q->minor == 0 || q->minor == 1);
    must(q->n_headers >= 0 && q->n_headers <= kLimits.n_headers);
    must(q->body_len <= kLimits.body && q->body[q->body_len] == '\0');
    int hosts = 0, lengths = 0;
    for (int32_t i = 0; i < q->n_headers; i++) {
        check_text(q->header[i].value);
        must(q->header[i].name[0] != '\0');
        for (const char *c = q->header[i].name; *c; c++)
            must(*c > ' ' && *c < 0x7f && !(*c >= 'A' && *c <= 'Z') && *c != ':');
        hosts += strcmp(q->header[i].name, "host") == 0;
        lengths += strcmp(q->header[i].name, "content-length") == 0 ||
                   strcmp(q->header[i].name, "transfer-encoding") == 0;
    }
    must(hosts <= 1 && hosts >= q->minor && lengths <= 1);
}

/* Appends what was found to `log`. Piece by piece, if `cut` is not 0. */
static void read_all(const uint8_t *data, size_t size, size_t cut, vt_buf *log)
{
    vt_http_reader *r = NULL;
    must(vt_http_reader_new(&kLimits, &r, NULL) == VT_OK);
    vt_http_state state = VT_HTTP_IDLE;
    for (size_t at = 0, used; at < size && state != VT_HTTP_REFUSED; at += used) {
        size_t n = cut && size - at > cut ? cut : size - at;
        char *piece = malloc(n);
        memcpy(piece, data + at, n);
        state = vt_http_reader_feed(r, piece, n, &used);
        free(piece);
        must(used <= n && (used == n || state == VT_HTTP_DONE || state == VT_HTTP_REFUSED));
        const char *why = NULL;
        if (state == VT_HTTP_REFUSED) {
            int status = vt_http_reader_status(r, &why);
            must(status >= 400 && status <= 505 && why[0]);
            vt_buf_printf(log, "%d %s\n", status, why);
        }
        if (state != VT_HTTP_DONE)
            continue;
        const vt_http_request *q = vt_http_reader_request(r);
        check_request(q);
        vt_buf_printf(log, "%s %s %s %d %d %d\n", q->method, q->path, q->query ? q->query : "",
                      q->minor, q->keep_alive, q->expects_100);
        for (int32_t i = 0; i < q->n_headers; i++)
            vt_buf_printf(log, "%s: %s\n", q->header[i].name, q->header[i].value);
        vt_buf_add(log, q->body, q->body_len);
        vt_http_reader_next(r);
    }
    vt_buf_printf(log, "%d\n", state == VT_HTTP_REFUSED);
    vt_http_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_buf whole = {0}, cut = {0};
    if (size < 2)
        return 0;
    read_all(data + 1, size - 1, 0, &whole);
    read_all(data + 1, size - 1, (size_t)data[0] % 40 + 1, &cut);
    must(whole.len == cut.len && memcmp(whole.data, cut.data, whole.len) == 0);
    vt_buf_release(&whole);
    vt_buf_release(&cut);
    return 0;
}
