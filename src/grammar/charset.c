#include "grammar/charset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void charset_release(charset *c)
{
    free(c->range);
    *c = (charset){0};
}

void charset_add(charset *c, uint32_t from, uint32_t to)
{
    if (c->n == c->cap) {
        int32_t cap = c->cap ? 2 * c->cap : 16;
        uint32_t(*more)[2] = realloc(c->range, (size_t)cap * sizeof *more);
        if (!more) {
            c->failed = true;
            return;
        }
        c->range = more;
        c->cap = cap;
    }
    c->range[c->n][0] = from;
    c->range[c->n++][1] = to;
}

void charset_add_set(charset *c, const charset *other)
{
    for (int32_t i = 0; i < other->n; i++)
        charset_add(c, other->range[i][0], other->range[i][1]);
}

static int by_first(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

void charset_settle(charset *c)
{
    int32_t n = 0;
    if (c->n > 1)
        qsort(c->range, (size_t)c->n, sizeof *c->range, by_first);
    for (int32_t i = 0; i < c->n; i++) {
        if (n > 0 && c->range[i][0] <= c->range[n - 1][1] + 1) {
            if (c->range[i][1] > c->range[n - 1][1])
                c->range[n - 1][1] = c->range[i][1];
        } else {
            c->range[n][0] = c->range[i][0];
            c->range[n++][1] = c->range[i][1];
        }
    }
    c->n = n;
}

void charset_negate(charset *c)
{
    charset out = {.failed = c->failed};
    uint32_t next = 0;
    charset_settle(c);
    for (int32_t i = 0; i < c->n; i++) {
        if (c->range[i][0] > next)
            charset_add(&out, next, c->range[i][0] - 1);
        next = c->range[i][1] + 1;
    }
    if (next <= 0x10FFFF)
        charset_add(&out, next, 0x10FFFF);
    charset_release(c);
    *c = out;
}

/* ---- as bytes ---- */

static bool all_are(const unsigned char *b, int n, unsigned char value)
{
    for (int i = 0; i < n; i++)
        if (b[i] != value)
            return false;
    return true;
}

static rx anything_behind(rx_store *s, rx head, int n)
{
    rx more = rx_byte_range(s, 0x80, 0xBF), tail = RX_EMPTY;
    for (int i = 0; i < n; i++)
        tail = rx_cat(s, more, tail);
    return rx_cat(s, head, tail);
}

/* Characters from lo to hi, both n bytes long. */
static rx sequence(rx_store *s, const unsigned char *lo, const unsigned char *hi, int n)
{
    static const unsigned char least[3] = {0x80, 0x80, 0x80}, most[3] = {0xBF, 0xBF, 0xBF};
    int first = lo[0], last = hi[0];
    rx made = RX_NOTHING;
    if (n == 1)
        return rx_byte_range(s, first, last);
    if (first == last)
        return rx_cat(s, rx_string(s, lo, 1), sequence(s, lo + 1, hi + 1, n - 1));
    if (!all_are(lo + 1, n - 1, 0x80))
        made = rx_cat(s, rx_byte_range(s, first, first), sequence(s, lo + 1, most, n - 1)), first++;
    if (!all_are(hi + 1, n - 1, 0xBF)) {
        rx end = rx_cat(s, rx_byte_range(s, last, last), sequence(s, least, hi + 1, n - 1));
        made = rx_alt2(s, made, end);
        last--;
    }
    if (first <= last)
        made = rx_alt2(s, made, anything_behind(s, rx_byte_range(s, first, last), n - 1));
    return made;
}

static rx char_range(rx_store *s, uint32_t lo, uint32_t hi)
{
    static const uint32_t border[][2] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
    rx made = RX_NOTHING;
    for (size_t i = 0; i < sizeof border / sizeof *border; i++) {
        uint32_t from = lo > border[i][0] ? lo : border[i][0];
        uint32_t to = hi < border[i][1] ? hi : border[i][1];
        char a[4], b[4];
        if (from > to)
            continue;
        int n = vt_utf8_put(from, a);
        vt_utf8_put(to, b);
        made = rx_alt2(s, made, sequence(s, (const unsigned char *)a, (const unsigned char *)b, n));
    }
    return made;
}

/* The escape of a character that JSON strings may not hold as it is. */
static rx escape(rx_store *s, uint32_t c)
{
    static const char *const has[] = {"\b\\b", "\f\\f",  "\n\\n", "\r\\r",
                                      "\t\\t", "\"\\\"", "\\\\\\"};
    char text[8];
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if ((unsigned char)has[i][0] == c)
            return rx_string(s, has[i] + 1, 2);
    snprintf(text, sizeof text, "\\u%04x", (unsigned)c & 0xffff);
    return rx_string(s, text, 6);
}

static bool is_escaped(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

/* Parts of a union, which is made of all of them at once. */
typedef struct pieces {
    rx *at;
    int32_t n, cap;
    bool failed;
} pieces;

static void add_piece(pieces *p, rx a)
{
    if (p->n == p->cap) {
        int32_t cap = p->cap ? 2 * p->cap : 64;
        rx *more = realloc(p->at, (size_t)cap * sizeof *more);
        if (!more) {
            p->failed = true;
            return;
        }
        p->at = more;
        p->cap = cap;
    }
    p->at[p->n++] = a;
}

static void add_range(rx_store *s, pieces *p, uint32_t from, uint32_t to, char_form form)
{
    while (form == CHARS_JSON && from <= to && from <= '\\') {
        uint32_t end = from;
        if (is_escaped(from)) {
            add_piece(p, escape(s, from++));
            continue;
        }
        while (end < to && !is_escaped(end + 1))
            end++;
        add_piece(p, char_range(s, from, end));
        from = end + 1;
    }
    if (from <= to)
        add_piece(p, char_range(s, from, to));
}

/* Returns true if JSON strings write one of these characters in another way. */
static bool holds_escaped(const charset *c)
{
    bool holds = false;
    for (int32_t i = 0; i < c->n; i++) {
        uint32_t from = c->range[i][0], to = c->range[i][1];
        holds |= from < 0x20 || (from <= '"' && to >= '"') || (from <= '\\' && to >= '\\');
    }
    return holds;
}

rx charset_rx(rx_store *s, charset *c, char_form form)
{
    pieces p = {0};
    charset_settle(c);
    if (s->fuel < c->n && !s->failed)
        s->failed = "its sets of characters are too many";
    (void)rx_spend(s, c->n);
    for (int32_t i = 0; i < c->n && !s->failed; i++)
        add_range(s, &p, c->range[i][0], c->range[i][1], form);
    if ((c->failed || p.failed) && !s->failed)
        s->failed = rx_no_memory;
    rx made = s->failed ? RX_NOTHING : rx_alt(s, p.at, p.n);
    free(p.at);
    rx_mark_character(s, made, form == CHARS_JSON || !s->raw || !holds_escaped(c), true);
    return made;
}

rx char_rx(rx_store *s, uint32_t c, char_form form)
{
    charset one = {0};
    charset_add(&one, c, c);
    rx made = charset_rx(s, &one, form);
    charset_release(&one);
    return made;
}

rx char_any(rx_store *s, char_form form)
{
    charset all = {0};
    charset_add(&all, 0, 0x10FFFF);
    rx made = charset_rx(s, &all, form);
    charset_release(&all);
    return made;
}

rx char_any_escape(rx_store *s)
{
    charset plain = {0};
    charset_add(&plain, 0x20, '"' - 1);
    charset_add(&plain, '"' + 1, '\\' - 1);
    charset_add(&plain, '\\' + 1, 0x10FFFF);
    rx raw = charset_rx(s, &plain, CHARS_RAW);
    charset_release(&plain);
    uint64_t hex[4] = {UINT64_C(0x03ff) << 48, UINT64_C(0x7e) | UINT64_C(0x7e) << 32};
    uint64_t simple[4] = {0},
             not_d[4] = {hex[0], hex[1] & ~(UINT64_C(0x10) | UINT64_C(0x10) << 32)};
    uint64_t high[4] = {UINT64_C(0x0300) << 48, UINT64_C(6) | UINT64_C(6) << 32};
    uint64_t low[4] = {0, UINT64_C(0x78) | UINT64_C(0x78) << 32};
    for (const char *p = "\"\\/bfnrt"; *p; p++)
        simple[*p >> 6] |= UINT64_C(1) << (*p & 63);
    uint64_t d[4] = {0, UINT64_C(0x10) | UINT64_C(0x10) << 32}, under_8[4] = {UINT64_C(0xff) << 48};
    rx h = rx_set(s, hex), hh = rx_cat(s, h, h), u = rx_string(s, "\\u", 2), dd = rx_set(s, d);
    rx one = rx_alt2(s, rx_cat(s, rx_set(s, not_d), rx_cat(s, h, hh)),
                     rx_cat(s, dd, rx_cat(s, rx_set(s, under_8), hh)));
    rx pair = rx_cat(s, rx_cat(s, dd, rx_cat(s, rx_set(s, high), hh)),
                     rx_cat(s, u, rx_cat(s, dd, rx_cat(s, rx_set(s, low), hh))));
    /* the high half has 8, 9, a or b behind its d, the low half c, d, e or f */
    rx all[3] = {raw, rx_cat(s, rx_string(s, "\\", 1), rx_set(s, simple)),
                 rx_cat(s, u, rx_alt2(s, one, pair))};
    rx made = rx_alt(s, all, 3);
    rx_mark_character(s, made, false, true);
    return made;
}
