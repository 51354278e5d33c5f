/* Characters as Python's str methods see them.
 *
 * Categories and lower case are those of text/unicode. Upper and title case are not there, because
 * no tokenizer needs them: case_table.h holds them as runs of characters with a common distance
 * (a..z, or every second character of Latin Extended-A), together with a short list of characters
 * that become several. It also lists the few characters that islower(), isupper() and isdigit()
 * take in Python though their category does not say so. tools/fixtures/make_template_chars.py reads
 * it from Python.
 *
 * str.lower() has one rule that looks at neighbours: a capital sigma that ends a word becomes a
 * final sigma.
 */
#include "text/template/values.h"
#include "text/unicode/unicode.h"

typedef struct case_run {
    uint32_t first, last, stride;
    int32_t delta;
} case_run;

typedef struct case_special {
    uint32_t c, to[3];
} case_special;

#include "text/template/case_table.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- properties ---- */

static unsigned category_bit(uint32_t c) { return 1u << vt_uprop_of(c).category; }

static bool in_ranges(const uint32_t (*range)[2], size_t n, uint32_t c)
{
    for (size_t i = 0; i < n && range[i][0] <= c; i++)
        if (c <= range[i][1])
            return true;
    return false;
}

/* str.isspace() */
bool tpl_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool tpl_is_alpha(uint32_t c)
{
    return category_bit(c) &
           (1u << VT_U_LU | 1u << VT_U_LL | 1u << VT_U_LT | 1u << VT_U_LM | 1u << VT_U_LO);
}

bool tpl_is_alnum(uint32_t c)
{
    return tpl_is_alpha(c) || (category_bit(c) & (1u << VT_U_ND | 1u << VT_U_NL | 1u << VT_U_NO));
}

bool tpl_is_digit(uint32_t c)
{
    unsigned bit = category_bit(c);
    return (bit & 1u << VT_U_ND) ||
           ((bit & 1u << VT_U_NO) && in_ranges(other_digit, COUNT(other_digit), c));
}

bool tpl_is_lower(uint32_t c)
{
    unsigned bit = category_bit(c);
    return (bit & 1u << VT_U_LL) ||
           (c >= 0x80 && !(bit & 1u << VT_U_LU) && in_ranges(other_lower, COUNT(other_lower), c));
}

bool tpl_is_upper(uint32_t c)
{
    unsigned bit = category_bit(c);
    return (bit & 1u << VT_U_LU) ||
           (c >= 0x80 && !(bit & 1u << VT_U_LL) && in_ranges(other_upper, COUNT(other_upper), c));
}

bool tpl_is_cased(uint32_t c)
{
    return tpl_is_lower(c) || tpl_is_upper(c) || (category_bit(c) & 1u << VT_U_LT);
}

/* Unicode's Case_Ignorable: marks, format characters, modifiers and word-inner punctuation. */
static bool is_case_ignorable(uint32_t c)
{
    static const uint32_t word_inner[] = {'\'',   '.',    ':',    0xb7,   0x387,  0x55f,
                                          0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                          0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    if (category_bit(c) &
        (1u << VT_U_MN | 1u << VT_U_ME | 1u << VT_U_CF | 1u << VT_U_LM | 1u << VT_U_SK))
        return true;
    for (size_t i = 0; i < COUNT(word_inner); i++)
        if (word_inner[i] == c)
            return true;
    return false;
}

/* Returns true if repr() shows the character as it is. */
bool tpl_is_printable(uint32_t c)
{
    if (c < 0x80)
        return c >= 0x20 && c < 0x7f;
    return !(category_bit(c) & (1u << VT_U_CC | 1u << VT_U_CF | 1u << VT_U_CS | 1u << VT_U_CO |
                                1u << VT_U_CN | 1u << VT_U_ZL | 1u << VT_U_ZP | 1u << VT_U_ZS));
}

bool tpl_is_name(uint32_t c, bool first)
{
    if (c == '_' || tpl_is_alpha(c) || (category_bit(c) & 1u << VT_U_NL))
        return true;
    return !first &&
           (category_bit(c) & (1u << VT_U_MN | 1u << VT_U_MC | 1u << VT_U_ND | 1u << VT_U_PC));
}

/* ---- case ---- */

/* The mapping of c in one table; 0: c is not in it. */
static int mapped(const case_run *run, size_t n_run, const case_special *special, size_t n_special,
                  uint32_t c, uint32_t out[3])
{
    size_t lo = 0, hi = n_run;
    while (lo < hi) { /* the first run that does not end before c */
        size_t mid = (lo + hi) / 2;
        if (run[mid].last < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    /* Runs with stride 2 may interleave, so the neighbour is asked too. */
    for (size_t i = lo; i < n_run && i < lo + 2 && run[i].first <= c; i++) {
        if ((c - run[i].first) % run[i].stride == 0) {
            out[0] = (uint32_t)((int32_t)c + run[i].delta);
            return 1;
        }
    }
    for (size_t i = 0; i < n_special; i++) {
        if (special[i].c == c) {
            int n = 0;
            for (; n < 3 && special[i].to[n] != 0; n++)
                out[n] = special[i].to[n];
            return n;
        }
    }
    return 0;
}

int tpl_char_case(uint32_t c, tpl_case k, uint32_t out[3])
{
    int n = 0;
    out[0] = c;
    if (c < 0x80) {
        bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        out[0] = !letter ? c : k == TPL_LOWER ? c | 0x20 : c & ~0x20u;
        return 1;
    }
    if (k == TPL_LOWER) {
        out[0] = vt_unicode_lower_of(c);
        if (c != 0x130)
            return 1;
        out[0] = 'i'; /* the one character whose lower case is two */
        out[1] = 0x307;
        return 2;
    }
    if (!(category_bit(c) & (1u << VT_U_LL | 1u << VT_U_LU | 1u << VT_U_LT)) && !tpl_is_lower(c) &&
        c != 0x345)
        return 1;
    if (k == TPL_TITLECASE)
        n = mapped(title_run, COUNT(title_run), title_special, COUNT(title_special), c, out);
    if (n == 0)
        n = mapped(upper_run, COUNT(upper_run), upper_special, COUNT(upper_special), c, out);
    return n > 0 ? n : 1;
}

size_t tpl_char_before(const char *s, size_t pos)
{
    do
        pos--;
    while (pos > 0 && ((unsigned char)s[pos] & 0xc0) == 0x80);
    return pos;
}

/* A cased letter stands before it and none after it; characters that Unicode calls case-ignorable
 * in between do not count (the condition Final_Sigma). */
bool tpl_is_final_sigma(const char *s, size_t len, size_t pos)
{
    uint32_t c;
    bool before = false;
    for (size_t i = pos; i > 0 && !before;) {
        i = tpl_char_before(s, i);
        vt_utf8_next(s + i, &c);
        before = tpl_is_cased(c) && !is_case_ignorable(c);
        if (!before && !is_case_ignorable(c))
            return false;
    }
    for (size_t i = pos + 2; before && i < len;) {
        i += tpl_next(s + i, &c);
        if (!is_case_ignorable(c))
            return !tpl_is_cased(c);
    }
    return before;
}

/* ---- white space and lines ---- */

size_t tpl_spaces_before(const char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint32_t c;
        size_t n = tpl_next(s + i, &c);
        if (!tpl_is_space(c))
            break;
        i += n;
    }
    return i;
}

size_t tpl_trimmed_length(const char *s, size_t len)
{
    while (len > 0) {
        uint32_t c;
        size_t at = tpl_char_before(s, len);
        vt_utf8_next(s + at, &c);
        if (!tpl_is_space(c))
            break;
        len = at;
    }
    return len;
}

void tpl_line_end(const tpl_str *s, size_t begin, size_t *end, size_t *next)
{
    for (size_t i = begin; i < s->len;) {
        uint32_t c;
        size_t n = tpl_next(s->data + i, &c);
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
