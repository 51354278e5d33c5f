/* Encoding, validating and repairing UTF-8 (base/utf8.h). */
#include "base/utf8.h"

#include <string.h>

int vt_utf8_put(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

bool vt_utf8_add(vt_buf *b, uint32_t c)
{
    char out[4];
    return vt_buf_add(b, out, (size_t)vt_utf8_put(c, out));
}

int vt_utf8_step(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned lead = p[0], low = 0x80, high = 0xBF;
    int length;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return -1;
    length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    /* After these lead bytes the second byte's range is narrower: the rest of it would encode
     * overlong forms, surrogates or code points above U+10FFFF. */
    if (lead == 0xE0)
        low = 0xA0;
    else if (lead == 0xED)
        high = 0x9F;
    else if (lead == 0xF0)
        low = 0x90;
    else if (lead == 0xF4)
        high = 0x8F;
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n)
            return 0;
        if (p[i] < low || p[i] > high)
            return -i;
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

size_t vt_utf8_valid(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (i + 8 <= n && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int step = vt_utf8_step(s + i, n - i);
        if (step <= 0)
            break;
        i += (size_t)step;
    }
    return i;
}

bool vt_utf8_add_lossy(vt_buf *b, const char *s, size_t n)
{
    while (n > 0) {
        size_t good = vt_utf8_valid(s, n);
        if (!vt_buf_add(b, s, good))
            return false;
        s += good;
        n -= good;
        if (n == 0)
            break;
        int step = vt_utf8_step(s, n);
        size_t bad = step == 0 ? n : (size_t)-step;
        if (!vt_utf8_add(b, 0xFFFD))
            return false;
        s += bad;
        n -= bad;
    }
    return true;
}
