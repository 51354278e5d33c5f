/* The alphabet of byte-level vocabularies, and growing lists of ids: what every other part of the
 * tokenizer stands on.
 *
 * Byte-level vocabularies spell bytes as printable characters, by GPT-2's table: a byte that prints
 * in Latin-1 is that character, the 68 others are U+0100 and up, so 0x20 (a space) is U+0120.
 */
#include <stdlib.h>

#include "text/tokenizer/internal.h"

vt_status tok_no_memory(vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "tokenizer: out of memory");
}

bool tok_push(vt_ids *ids, int32_t id)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64, bytes;
        int32_t *grown = vt_mul_size(cap, sizeof *grown, &bytes) ? realloc(ids->id, bytes) : NULL;
        if (!grown)
            return false;
        ids->id = grown;
        ids->cap = cap;
    }
    ids->id[ids->n++] = id;
    return true;
}

void vt_ids_release(vt_ids *ids)
{
    free(ids->id);
    *ids = (vt_ids){0};
}

static bool byte_prints(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

uint32_t tok_byte_char(unsigned char byte)
{
    if (byte_prints(byte))
        return byte;
    /* The others, in order, from U+0100: 0x00..0x20, 0x7F..0xA0, 0xAD. */
    return 0x100u + (byte <= 0x20 ? byte : byte <= 0xA0 ? byte - 0x7Fu + 33 : 67);
}

int32_t tok_char_byte(uint32_t c)
{
    if (c < 0x100)
        return byte_prints(c) ? (int32_t)c : -1;
    c -= 0x100;
    return c <= 0x20 ? (int32_t)c : c < 67 ? (int32_t)(c - 33 + 0x7F) : c == 67 ? 0xAD : -1;
}

bool tok_unmap(const char *s, size_t n, vt_buf *out)
{
    size_t start = out->len, made = 0;
    char bytes[128];
    for (size_t i = 0; i < n;) {
        uint32_t c;
        int step = vt_utf8_step(s + i, n - i);
        if (step > 0)
            vt_utf8_next(s + i, &c);
        int32_t byte = step > 0 ? tok_char_byte(c) : -1;
        if (byte < 0) {
            out->len = start;
            return false;
        }
        if (made == sizeof bytes) {
            if (!vt_buf_add(out, bytes, made))
                return false;
            made = 0;
        }
        bytes[made++] = (char)byte;
        i += (size_t)step;
    }
    return vt_buf_add(out, bytes, made);
}

const added_token *tok_added_of(const vt_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->cap_added_at && t->added_at[id] ? &t->added[t->added_at[id] - 1]
                                                              : NULL;
}

/* Sixteen times as long is beyond every honest step: NFKD makes at most 11 bytes of one, GPT-2's
 * alphabet two. The mebibyte is for short texts. */
size_t tok_growth(size_t n) { return 16 * n + (1u << 20); }

static int base64_digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool tok_base64(const char *s, size_t n, vt_buf *out)
{
    uint32_t bits = 0, count = 0;
    while (n > 0 && s[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        int digit = base64_digit(s[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count >= 8) {
            count -= 8;
            if (!vt_buf_putc(out, (char)(bits >> count & 0xFF)))
                return false;
        }
    }
    return n % 4 != 1;
}
