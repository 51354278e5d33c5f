/* The reader of server-sent events (http/sse_reader.h): whatever the bytes, and however they are
 * cut, it tells the same events, and refuses at the same place. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/sse_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_event(void *user, const char *data, size_t len)
{
    if (data[len] != '\0' || len > 300)
        abort();
    vt_buf_add(user, data, len);
    vt_buf_putc(user, '|');
}

static void read_all(const uint8_t *data, size_t size, size_t piece, vt_buf *told)
{
    vt_sse_reader r;
    vt_err err = {0};
    vt_status status = VT_OK;
    vt_sse_reader_init(&r, 300);
    for (size_t at = 0, n; at < size && status == VT_OK; at += n) {
        n = size - at < piece ? size - at : piece;
        char *copy = malloc(n);
        memcpy(copy, data + at, n);
        status = vt_sse_reader_feed(&r, copy, n, on_event, told, &err);
        free(copy);
    }
    vt_buf_printf(told, "%d %d %d %zu %s", r.status, r.ended, (int)status, r.body.len, err.message);
    vt_sse_reader_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_buf whole = {0}, cut = {0};
    if (size < 2)
        return 0;
    read_all(data + 1, size - 1, size, &whole);
    read_all(data + 1, size - 1, (size_t)data[0] % 40 + 1, &cut);
    if (whole.len != cut.len || memcmp(whole.data, cut.data, whole.len) != 0)
        abort();
    vt_buf_release(&whole);
    vt_buf_release(&cut);
    return 0;
}
