/* Characters as Python's str methods see them.
 *
 * One table of segments gives every property of a character by one binary search (3,847
 * segments of 8 bytes); case maps are runs of characters with a common distance (a..z, or every
 * second character of Latin Extended-A) and a short list of characters that become several. The
 * tables are read from Python by tools/fixtures/make_template_chars.py, so both sides agree by
 * construction; Unicode 14.
 *
 * str.lower() has one rule that looks at neighbours: a capital sigma that ends a word becomes a
 * final sigma.
 */
#include "text/template/impl.h"

typedef struct case_run {
    uint32_t first, last, stride;
    int32_t delta;
} case_run;

typedef struct case_special {
    uint32_t c, to[3];
} case_special;

#include "text/template/chars_table.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

bool tpl_char_is(uint32_t c, tpl_class k)
{
    size_t lo = 0, hi = COUNT(chars_segment); /* the segment lies in [lo, hi) */
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (chars_segment[mid].first <= c)
            lo = mid;
        else
            hi = mid;
    }
    return chars_segment[lo].bits >> k & 1;
}

typedef struct case_table {
    const case_run *run;
    size_t n_run;
    const case_special *special;
    size_t n_special;
} case_table;

static const case_table case_tables[] = {
    [TPL_UPPER] = {upper_run, COUNT(upper_run), upper_special, COUNT(upper_special)},
    [TPL_LOWER] = {lower_run, COUNT(lower_run), lower_special, COUNT(lower_special)},
    [TPL_TITLECASE] = {title_run, COUNT(title_run), title_special, COUNT(title_special)},
    [TPL_FOLD] = {fold_run, COUNT(fold_run), fold_special, COUNT(fold_special)},
};

int tpl_char_case(uint32_t c, tpl_case k, uint32_t out[3])
{
    const case_table *t = &case_tables[k];
    size_t lo = 0, hi = t->n_run;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (t->run[mid].last < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    /* Runs with stride 2 may interleave, so the neighbour is asked too. */
    for (size_t i = lo; i < t->n_run && i < lo + 2 && t->run[i].first <= c; i++) {
        if ((c - t->run[i].first) % t->run[i].stride == 0) {
            out[0] = (uint32_t)((int32_t)c + t->run[i].delta);
            return 1;
        }
    }
    for (size_t i = 0; c >= 0x80 && i < t->n_special; i++) {
        if (t->special[i].c == c) {
            int n = 0;
            while (n < 3 && t->special[i].to[n] != 0) {
                out[n] = t->special[i].to[n];
                n++;
            }
            return n;
        }
    }
    out[0] = c;
    return 1;
}

size_t tpl_decode(const char *s, size_t len, uint32_t *c)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80 || len < 2) {
        *c = u[0];
        return 1;
    }
    if (u[0] < 0xe0 || len < 3) {
        *c = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
        return 2;
    }
    if (u[0] < 0xf0 || len < 4) {
        *c = (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
        return 3;
    }
    *c = (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
    return 4;
}

size_t tpl_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Where the character before s[pos] begins; pos > 0. */
static size_t char_before(const char *s, size_t pos)
{
    do
        pos--;
    while (pos > 0 && ((unsigned char)s[pos] & 0xc0) == 0x80);
    return pos;
}

/* A sigma at `pos` (2 bytes) ends a word: a cased letter before it and none after it, looking
 * through case-ignorable characters (Unicode's Final_Sigma). */
static bool final_sigma(const char *s, size_t len, size_t pos)
{
    bool before = false;
    uint32_t c;
    for (size_t i = pos; i > 0 && !before;) {
        i = char_before(s, i);
        tpl_decode(s + i, len - i, &c);
        if (tpl_char_is(c, TPL_C_CASED))
            before = true;
        else if (!tpl_char_is(c, TPL_C_CASE_IGNORABLE))
            return false;
    }
    if (!before)
        return false;
    for (size_t i = pos + 2; i < len;) {
        i += tpl_decode(s + i, len - i, &c);
        if (tpl_char_is(c, TPL_C_CASED))
            return false;
        if (!tpl_char_is(c, TPL_C_CASE_IGNORABLE))
            return true;
    }
    return true;
}

vt_status tpl_put_sigma(tpl_run *r, tpl_text *t, const tpl_str *s, size_t at)
{
    return tpl_text_puts(r, t, final_sigma(s->data, s->len, at) ? "\xcf\x82" : "\xcf\x83");
}

vt_status tpl_put_case(tpl_run *r, tpl_text *t, const char *s, size_t begin, size_t len, tpl_case k)
{
    enum { SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };
    TRY(tpl_charge(r, (len - begin) / 8));
    for (size_t i = begin; i < len;) {
        uint32_t c, to[3];
        size_t n = tpl_decode(s + i, len - i, &c);
        int n_to = tpl_char_case(c, k, to);
        if (c == SIGMA && k == TPL_LOWER && final_sigma(s, len, i))
            to[0] = FINAL_SIGMA;
        for (int j = 0; j < n_to; j++) {
            char utf8[4];
            TRY(tpl_text_add(r, t, utf8, tpl_encode(to[j], utf8)));
        }
        i += n;
    }
    return VT_OK;
}

static bool strip_char(const tpl_str *chars, uint32_t c)
{
    if (!chars)
        return tpl_space(c);
    for (size_t i = 0; i < chars->len;) {
        uint32_t x;
        i += tpl_decode(chars->data + i, chars->len - i, &x);
        if (x == c)
            return true;
    }
    return false;
}

void tpl_strip(const tpl_str *s, const tpl_str *chars, bool left, bool right, size_t *begin,
               size_t *end)
{
    size_t b = 0, e = s->len;
    uint32_t c;
    while (left && b < e) {
        size_t n = tpl_decode(s->data + b, e - b, &c);
        if (!strip_char(chars, c))
            break;
        b += n;
    }
    while (right && e > b) {
        size_t at = char_before(s->data, e);
        tpl_decode(s->data + at, e - at, &c);
        if (!strip_char(chars, c))
            break;
        e = at;
    }
    *begin = b;
    *end = e;
}

void tpl_line_end(const tpl_str *s, size_t begin, size_t *end, size_t *next)
{
    for (size_t i = begin; i < s->len;) {
        uint32_t c;
        size_t n = tpl_decode(s->data + i, s->len - i, &c);
        if ((c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
            c == 0x2029) {
            *end = i;
            *next = i + n + (c == '\r' && i + 1 < s->len && s->data[i + 1] == '\n');
            return;
        }
        i += n;
    }
    *end = *next = s->len;
}
