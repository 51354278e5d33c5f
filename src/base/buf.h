/* A growable byte buffer with a maximum size. After a failed append it stays valid and `failed` is
 * set, so a writer may check once at the end. The byte after the last one is always NUL. */
#ifndef VT_BASE_BUF_H
#define VT_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct vt_buf {
    char *data;
    size_t len, cap, max; /* max 0: 1 GiB */
    bool failed;          /* some append ran out of memory or went beyond max */
} vt_buf;

void vt_buf_init(vt_buf *b, size_t max);
void vt_buf_release(vt_buf *b);
void vt_buf_clear(vt_buf *b);
bool vt_buf_add(vt_buf *b, const void *bytes, size_t n);
bool vt_buf_puts(vt_buf *b, const char *s);
bool vt_buf_putc(vt_buf *b, char c);
bool vt_buf_printf(vt_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Hands the bytes to the caller (free()); the buffer is empty afterwards. NULL if it failed. */
char *vt_buf_detach(vt_buf *b, size_t *len);

/* Appends to the text of a buffer of fixed size: out[size] holds *used bytes and a NUL. What does
 * not fit is cut, and the result is false. *used stays below `size` whatever is appended, so
 * several appends may follow each other without a look in between. */
bool vt_append(char *out, size_t size, size_t *used, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
