/* UTF-8: decoding, encoding and validation. Input is bytes with a length; nothing needs a
 * terminating NUL. Sources: Unicode Standard 3.9, table 3-7 (well-formed byte sequences). */
#ifndef VT_BASE_UTF8_H
#define VT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Decodes one character of valid UTF-8 at s; returns its length. */
static inline int vt_utf8_next(const char *s, uint32_t *c)
{
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) {
        *c = p[0];
        return 1;
    }
    if (p[0] < 0xE0) {
        *c = (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if (p[0] < 0xF0) {
        *c = (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        return 3;
    }
    *c = (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 |
         (p[3] & 0x3F);
    return 4;
}

/* Writes c (no surrogate, < 0x110000) as UTF-8 to out[4]; returns its length in bytes. */
int vt_utf8_put(uint32_t c, char *out);
/* Appends c to b as UTF-8. */
bool vt_utf8_add(vt_buf *b, uint32_t c);
/* Length of the longest valid prefix of s. */
size_t vt_utf8_valid(const char *s, size_t n);
/* Examines the beginning of s[0..n), n >= 1. Returns the length of a complete valid character; or
 * minus the length of the ill-formed part that becomes one U+FFFD (Unicode's "maximal subpart"); or
 * 0 if more bytes may complete the character. */
int vt_utf8_step(const char *s, size_t n);
/* Appends s with U+FFFD in place of every ill-formed part, like Python's errors="replace" and
 * Rust's from_utf8_lossy. */
bool vt_utf8_add_lossy(vt_buf *b, const char *s, size_t n);

#endif
