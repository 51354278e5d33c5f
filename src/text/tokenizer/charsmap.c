/* The character map of SentencePiece's normaliser ("precompiled_charsmap"): NFKC and what its
 * training added, as a trie of what is rewritten.
 *
 *   u32      bytes of the trie
 *   trie     a double array of 32-bit units, little-endian: a node is a place in it
 *              bits 0-7, 31   the byte that leads here (of a leaf: bits 0-30 are its value)
 *              bit 8          a leaf belongs to the node, at (node ^ offset)
 *              bits 10-30     the offset, shifted by 8 more if bit 9 is set; the node of the next
 *                             byte b is (node ^ offset ^ b)
 *   text     NUL-terminated strings; a leaf's value is where its string begins
 *
 * SentencePiece rewrites the longest string that the trie has at a place. Hugging Face looks at a
 * grapheme cluster of less than six bytes as a whole and at the characters of a longer one, takes
 * the shortest string that begins it, and drops the rest of the cluster: "\r\n" becomes one space.
 */
#include <string.h>

#include "text/tokenizer/internal.h"

enum { MAX_CLUSTER = 5 };

static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }
static uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }

/* Appends the string that stands at `value`; false: there is none. */
static bool put_text(const charsmap *m, uint32_t value, vt_buf *out)
{
    if (value >= m->n_text || ((unsigned char)m->text[value] & 0xC0) == 0x80)
        return false;
    vt_buf_add(out, m->text + value, strnlen(m->text + value, m->n_text - value));
    return true;
}

/* Rewrites the shortest, or the longest, string of the trie that begins s[0..n) and returns its
 * bytes; 0: it has none. */
static size_t rewrite(const charsmap *m, const char *s, size_t n, vt_buf *out)
{
    uint32_t node = offset_of(m->unit[0]), value = 0;
    size_t used = 0;
    for (size_t i = 0; i < n && s[i]; i++) {
        node ^= (unsigned char)s[i];
        if (node >= m->n_units || label_of(m->unit[node]) != (unsigned char)s[i])
            break;
        bool leaf = m->unit[node] >> 8 & 1;
        node ^= offset_of(m->unit[node]);
        if (node >= m->n_units)
            break;
        if (!leaf)
            continue;
        value = m->unit[node] & ~(1u << 31);
        used = i + 1;
        if (!m->longest)
            break;
    }
    return used && put_text(m, value, out) ? used : 0;
}

static size_t copy_char(const char *s, vt_buf *out)
{
    uint32_t c;
    size_t len = (size_t)vt_utf8_next(s, &c);
    vt_buf_add(out, s, len);
    return len;
}

size_t charsmap_next(const charsmap *m, const char *s, size_t n, vt_buf *out)
{
    if (m->longest) {
        size_t used = rewrite(m, s, n, out);
        while (used > 0 && used < n && ((unsigned char)s[used] & 0xC0) == 0x80)
            used++; /* a trie may end inside a character */
        return used ? used : copy_char(s, out);
    }
    size_t len = vt_unicode_cluster(s, n);
    if (len <= MAX_CLUSTER && rewrite(m, s, len, out))
        return len;
    for (size_t at = 0; at < len;) {
        uint32_t c;
        size_t step = (size_t)vt_utf8_next(s + at, &c);
        if (!rewrite(m, s + at, step, out))
            vt_buf_add(out, s + at, step);
        at += step;
    }
    return len;
}

vt_status charsmap_read(vt_tokenizer *t, const char *name, const void *bytes, size_t n,
                        bool longest, const charsmap **out, vt_err *err)
{
    uint32_t size = 0;
    if (n >= 4)
        memcpy(&size, bytes, 4);
    if (size < 4 || size % 4 || size > n - 4)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: a trie of %u bytes in a precompiled_charsmap of %zu; a multiple of 4 "
                       "that fits was expected",
                       name, size, n);
    const char *text = (const char *)bytes + 4 + size;
    size_t n_text = n - 4 - size;
    if (vt_utf8_valid(text, n_text) != n_text)
        return vt_fail(err, VT_ERR_FORMAT, "%s: the strings of precompiled_charsmap are no UTF-8",
                       name);
    charsmap *m = vt_arena_alloc(&t->arena, 1, sizeof *m);
    uint32_t *unit = vt_arena_alloc(&t->arena, size / 4, sizeof *unit);
    char *copy = vt_arena_strdup(&t->arena, text, n_text);
    if (!m || !unit || !copy)
        return tok_no_memory(err);
    memcpy(unit, (const char *)bytes + 4, size);
    *m = (charsmap){
        .unit = unit, .n_units = size / 4, .text = copy, .n_text = n_text, .longest = longest};
    *out = m;
    return VT_OK;
}
