/* A growable byte buffer with a maximum size (base/buf.h). */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_FIRST = 64 };
static const size_t kDefaultMax = (size_t)1 << 30;

void vt_buf_init(vt_buf *b, size_t max) { *b = (vt_buf){.max = max ? max : kDefaultMax}; }

void vt_buf_release(vt_buf *b)
{
    if (!b)
        return;
    free(b->data);
    *b = (vt_buf){.max = b->max};
}

void vt_buf_clear(vt_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = 0;
}

/* Makes room for n more bytes and the NUL. The size is doubled, up to max. */
static bool buf_reserve(vt_buf *b, size_t n)
{
    if (b->max == 0)
        b->max = kDefaultMax;
    if (b->failed || n > b->max || b->len > b->max - n) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + n + 1;
    if (need <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap : BUF_FIRST;
    while (cap < need)
        cap *= 2;
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

bool vt_buf_add(vt_buf *b, const void *bytes, size_t n)
{
    if (!buf_reserve(b, n))
        return false;
    if (n)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = 0;
    return true;
}

bool vt_buf_puts(vt_buf *b, const char *s) { return vt_buf_add(b, s, strlen(s)); }

bool vt_buf_putc(vt_buf *b, char c) { return vt_buf_add(b, &c, 1); }

bool vt_buf_printf(vt_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    bool ok = n >= 0 && buf_reserve(b, (size_t)n);
    if (ok) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    } else {
        b->failed = true;
    }
    va_end(again);
    return ok;
}

char *vt_buf_detach(vt_buf *b, size_t *len)
{
    if (!buf_reserve(b, 0)) {
        vt_buf_release(b);
        return NULL;
    }
    char *data = b->data;
    data[b->len] = 0;
    if (len)
        *len = b->len;
    *b = (vt_buf){.max = b->max};
    return data;
}

bool vt_append(char *out, size_t size, size_t *used, const char *fmt, ...)
{
    va_list args;
    if (*used >= size)
        return false;
    va_start(args, fmt);
    int n = vsnprintf(out + *used, size - *used, fmt, args);
    va_end(args);
    bool fits = n >= 0 && (size_t)n < size - *used;
    *used = fits ? *used + (size_t)n : n < 0 ? *used : size - 1;
    out[*used] = '\0';
    return fits;
}
