/* Filters of one value: text, numbers, escaping. Those of sequences are in template_seq.c.
 *
 * Names, arguments and results are jinja2's; `self` is what stands left of the bar. Not there, and
 * refused as unknown: pprint, random, urlize, xmlattr.
 */
#include "text/template/impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name)                                                                              \
    static vt_status name(tpl_run *r, tpl_value self, const tpl_value *arg, const tpl_call *call, \
                          tpl_value *out)

/* ---- checks shared by builtins ---- */

vt_status tpl_want_str(tpl_run *r, tpl_value v, const char *what, const tpl_str **out)
{
    *out = v.type == TPL_STR ? v.str : NULL;
    if (v.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, v);
    return *out ? VT_OK : tpl_fail(r, "%s must be str, not %s", what, tpl_type_name(v));
}

vt_status tpl_want_int(tpl_run *r, tpl_value v, const char *what, int64_t absent, int64_t *out)
{
    *out = tpl_is_int(v) ? tpl_as_int(v) : absent;
    if (v.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, v);
    if (v.type != TPL_MISSING && v.type != TPL_NONE && !tpl_is_int(v))
        return tpl_fail(r, "%s must be an integer, not '%s'", what, tpl_type_name(v));
    return VT_OK;
}

static vt_status markup_like(tpl_run *r, const tpl_text *t, const tpl_str *like, tpl_value *out)
{
    TRY(tpl_text_value(r, t, out));
    return tpl_str_markup(r, *out, like->markup, out);
}

/* ---- case ---- */

static vt_status change_case(tpl_run *r, tpl_value self, tpl_case k, tpl_value *out)
{
    tpl_text t = {0};
    tpl_value s;
    TRY(tpl_to_str(r, self, &s));
    TRY(tpl_put_case(r, &t, s.str->data, 0, s.str->len, k));
    return markup_like(r, &t, s.str, out);
}

FILTER(filter_upper)
{
    (void)arg, (void)call;
    return change_case(r, self, TPL_UPPER, out);
}

FILTER(filter_lower)
{
    (void)arg, (void)call;
    return change_case(r, self, TPL_LOWER, out);
}

FILTER(filter_capitalize)
{
    tpl_text t = {0};
    tpl_value s;
    uint32_t c;
    (void)arg, (void)call;
    TRY(tpl_to_str(r, self, &s));
    size_t first = s.str->len ? tpl_decode(s.str->data, s.str->len, &c) : 0;
    TRY(tpl_put_case(r, &t, s.str->data, 0, first, TPL_TITLECASE));
    TRY(tpl_put_case(r, &t, s.str->data, first, s.str->len, TPL_LOWER));
    return markup_like(r, &t, s.str, out);
}

static bool word_separator(uint32_t c)
{
    return tpl_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
}

/* Words begin after whitespace and any of - ( { [ < (not as str.title() sees them). */
FILTER(filter_title)
{
    tpl_text t = {0};
    tpl_value s;
    (void)arg, (void)call;
    TRY(tpl_to_str(r, self, &s));
    const char *d = s.str->data;
    for (size_t i = 0, len = s.str->len; i < len;) {
        uint32_t c;
        size_t n = tpl_decode(d + i, len - i, &c), end = i + n;
        TRY(tpl_put_case(r, &t, d + i, 0, n, TPL_UPPER));
        bool separator = word_separator(c);
        while (end < len) {
            size_t m = tpl_decode(d + end, len - end, &c);
            if (word_separator(c) != separator)
                break;
            end += m;
        }
        TRY(tpl_put_case(r, &t, d + i + n, 0, end - i - n, TPL_LOWER));
        i = end;
    }
    return tpl_text_value(r, &t, out);
}

/* ---- text ---- */

FILTER(filter_trim)
{
    tpl_value s;
    const tpl_str *chars = NULL;
    size_t begin, end;
    (void)call;
    TRY(tpl_to_str(r, self, &s));
    if (arg[0].type != TPL_MISSING && arg[0].type != TPL_NONE)
        TRY(tpl_want_str(r, arg[0], "trim's argument", &chars));
    tpl_strip(s.str, chars, true, true, &begin, &end);
    TRY(tpl_str_copy(r, s.str->data + begin, end - begin, out));
    return tpl_str_markup(r, *out, s.str->markup, out);
}

vt_status tpl_replace(tpl_run *r, const tpl_str *s, const tpl_str *old, const tpl_str *fresh,
                      int64_t count, tpl_value *out)
{
    tpl_text t = {0};
    size_t i = 0;
    TRY(tpl_charge(r, s->len / 64));
    for (; count != 0 && i <= s->len; count--) {
        size_t at = i, n = old->len;
        if (n > 0) {
            const char *found = memmem(s->data + i, s->len - i, old->data, n);
            if (!found)
                break;
            at = (size_t)(found - s->data);
        }
        TRY(tpl_text_add(r, &t, s->data + i, at - i));
        TRY(tpl_text_add(r, &t, fresh->data, fresh->len));
        TRY(tpl_charge(r, 1));
        i = at + n;
        if (n == 0) { /* an empty one lies before every character and at the end */
            uint32_t c;
            if (i == s->len) {
                i++;
                break;
            }
            n = tpl_decode(s->data + i, s->len - i, &c);
            TRY(tpl_text_add(r, &t, s->data + i, n));
            i += n;
        }
    }
    if (i < s->len)
        TRY(tpl_text_add(r, &t, s->data + i, s->len - i));
    return tpl_text_value(r, &t, out);
}

FILTER(filter_replace)
{
    tpl_value s, old, fresh;
    int64_t count;
    (void)call;
    TRY(tpl_to_str(r, self, &s));
    TRY(tpl_to_str(r, arg[0], &old));
    TRY(tpl_to_str(r, arg[1], &fresh));
    TRY(tpl_want_int(r, arg[2], "replace's count", -1, &count));
    return tpl_replace(r, s.str, old.str, fresh.str, count, out);
}

vt_status tpl_justify(tpl_run *r, const tpl_str *s, int64_t width, char align, const char *fill,
                      size_t n_fill, tpl_value *out)
{
    tpl_text t = {0};
    int64_t n = (int64_t)s->n_chars, pad = width > n ? width - n : 0;
    /* str.center puts the odd one left only where the width is odd too */
    int64_t left = align == '<' ? 0 : align == '>' ? pad : pad / 2 + (pad & width & 1);
    TRY(tpl_text_fill(r, &t, fill, n_fill, left));
    TRY(tpl_text_add(r, &t, s->data, s->len));
    TRY(tpl_text_fill(r, &t, fill, n_fill, pad - left));
    return markup_like(r, &t, s, out);
}

FILTER(filter_center)
{
    tpl_value s;
    int64_t width;
    (void)call;
    TRY(tpl_to_str(r, self, &s));
    TRY(tpl_want_int(r, arg[0], "center's width", 80, &width));
    return tpl_justify(r, s.str, width, '^', " ", 1, out);
}

/* indent(width=4, first=false, blank=false): width may be a string. */
FILTER(filter_indent)
{
    const tpl_str *s;
    tpl_text indent = {0}, t = {0};
    int64_t width;
    (void)call;
    TRY(tpl_want_str(r, self, "indent's input", &s));
    if (arg[0].type == TPL_STR) {
        TRY(tpl_text_add(r, &indent, arg[0].str->data, arg[0].str->len));
    } else {
        TRY(tpl_want_int(r, arg[0], "indent's width", 4, &width));
        TRY(tpl_text_fill(r, &indent, " ", 1, width));
    }
    bool blank = tpl_truth(arg[2]), first = true;
    if (tpl_truth(arg[1]))
        TRY(tpl_text_add(r, &t, indent.data, indent.len));
    /* the lines of s and one more newline, so that a last empty line is one */
    for (size_t begin = 0; begin <= s->len; first = false) {
        size_t end, next;
        tpl_line_end(s, begin, &end, &next);
        if (!first) {
            TRY(tpl_text_puts(r, &t, "\n"));
            if (blank || end > begin)
                TRY(tpl_text_add(r, &t, indent.data, indent.len));
        }
        TRY(tpl_text_add(r, &t, s->data + begin, end - begin));
        if (end == s->len)
            break;
        begin = next;
    }
    return markup_like(r, &t, s, out);
}

/* truncate(length=255, killwords=false, end="...", leeway=5); what fits stays as it is, text or not
 */
FILTER(filter_truncate)
{
    const tpl_str *s, *end = NULL;
    int64_t length, leeway, n;
    (void)call;
    TRY(tpl_want_int(r, arg[0], "truncate's length", 255, &length));
    TRY(tpl_want_int(r, arg[3], "truncate's leeway", 5, &leeway));
    tpl_str dots = {.data = "...", .len = 3, .n_chars = 3};
    if (arg[2].type != TPL_MISSING)
        TRY(tpl_want_str(r, arg[2], "truncate's end", &end));
    end = end ? end : &dots;
    if (length < (int64_t)end->n_chars || leeway < 0)
        return tpl_fail(r, "truncate: expected length >= %zu and leeway >= 0", end->n_chars);
    if (tpl_length(self, &n) && (n <= length || n - length <= leeway)) {
        *out = self;
        return VT_OK;
    }
    TRY(tpl_want_str(r, self, "truncate's input", &s));
    size_t cut = tpl_str_offset(s, (size_t)length - end->n_chars);
    const char *space = tpl_truth(arg[1]) ? NULL : memrchr(s->data, ' ', cut);
    tpl_text t = {0};
    TRY(tpl_text_add(r, &t, s->data, space ? (size_t)(space - s->data) : cut));
    TRY(tpl_text_add(r, &t, end->data, end->len));
    return markup_like(r, &t, s, out);
}

FILTER(filter_wordcount)
{
    tpl_value s;
    int64_t words = 0;
    bool inside = false;
    (void)arg, (void)call;
    TRY(tpl_to_str(r, self, &s));
    for (size_t i = 0; i < s.str->len;) {
        uint32_t c;
        i += tpl_decode(s.str->data + i, s.str->len - i, &c);
        bool word = c == '_' || tpl_char_is(c, TPL_C_ALPHA) || tpl_char_is(c, TPL_C_NUMERIC);
        words += word && !inside;
        inside = word;
    }
    *out = tpl_int(words);
    return tpl_charge(r, s.str->len / 16);
}

FILTER(filter_format)
{
    tpl_value s, args;
    (void)arg;
    TRY(tpl_to_str(r, self, &s));
    if (call->n_pos > 0 && call->n_kw > 0)
        return tpl_fail(r, "format can't handle positional and keyword arguments at the same time");
    if (call->n_kw > 0) {
        tpl_dict *d;
        TRY(tpl_dict_new(r, &d));
        for (int32_t i = 0; i < call->n_kw; i++)
            TRY(tpl_dict_set(r, d, call->kw[i].key, call->kw[i].value));
        args = tpl_of_dict(d);
    } else {
        tpl_list *l;
        TRY(tpl_list_new(r, (size_t)call->n_pos, &l));
        for (int32_t i = 0; i < call->n_pos; i++)
            l->at[l->n++] = call->pos[i];
        args = tpl_of_list(TPL_TUPLE, l);
    }
    return tpl_percent(r, s.str, args, out);
}

/* ---- HTML and URLs ---- */

static vt_status as_markup(tpl_run *r, const tpl_text *t, tpl_value *out)
{
    TRY(tpl_text_value(r, t, out));
    return tpl_str_markup(r, *out, true, out);
}

FILTER(filter_escape)
{
    tpl_text t = {0};
    (void)arg, (void)call;
    TRY(tpl_put_escaped(r, &t, self));
    return as_markup(r, &t, out);
}

FILTER(filter_forceescape)
{
    tpl_text t = {0};
    tpl_value s;
    (void)arg, (void)call;
    TRY(tpl_to_str(r, self, &s));
    TRY(tpl_str_markup(r, s, false, &s));
    TRY(tpl_put_escaped(r, &t, s));
    return as_markup(r, &t, out);
}

FILTER(filter_safe)
{
    tpl_value s;
    (void)arg, (void)call;
    TRY(tpl_to_str(r, self, &s));
    return tpl_str_markup(r, s, true, out);
}

FILTER(filter_string)
{
    (void)arg, (void)call;
    return tpl_to_str(r, self, out);
}

/* Without everything from each `open` to the next `close`. */
static vt_status cut_between(tpl_run *r, const char *s, size_t len, const char *open,
                             const char *close, tpl_text *t)
{
    size_t i = 0, n_open = strlen(open), n_close = strlen(close);
    TRY(tpl_charge(r, len / 16));
    for (;;) {
        const char *from = memmem(s + i, len - i, open, n_open);
        const char *to = from ? memmem(from, len - (size_t)(from - s), close, n_close) : NULL;
        TRY(tpl_text_add(r, t, s + i, (to ? (size_t)(from - s) : len) - i));
        if (!to)
            return VT_OK;
        i = (size_t)(to - s) + n_close;
    }
}

/* One entity at s[0] == '&'; how many bytes it took, 0: it is no entity. */
static size_t entity(const char *s, size_t len, char *out, size_t *n_out)
{
    static const struct {
        const char *name;
        uint32_t c;
    } named[] = {
        {"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''}, {"nbsp;", 0xa0},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        size_t n = strlen(named[i].name);
        if (len > n && memcmp(s + 1, named[i].name, n) == 0) {
            *n_out = tpl_encode(named[i].c, out);
            return n + 1;
        }
    }
    if (len < 4 || s[1] != '#')
        return 0;
    bool hex = s[2] == 'x' || s[2] == 'X';
    char *end;
    unsigned long c = strtoul(s + 2 + hex, &end, hex ? 16 : 10);
    if (*end != ';' || c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *n_out = tpl_encode((uint32_t)c, out);
    return (size_t)(end + 1 - s);
}

/* Markup.striptags(): comments, then tags, then runs of whitespace, then entities. */
FILTER(filter_striptags)
{
    tpl_value s;
    tpl_text no_comments = {0}, no_tags = {0}, t = {0};
    (void)arg, (void)call;
    TRY(tpl_to_str(r, self, &s));
    TRY(cut_between(r, s.str->data, s.str->len, "<!--", "-->", &no_comments));
    TRY(cut_between(r, no_comments.data, no_comments.len, "<", ">", &no_tags));
    bool gap = false;
    for (size_t i = 0; i < no_tags.len;) {
        uint32_t c;
        char utf8[4];
        size_t n = tpl_decode(no_tags.data + i, no_tags.len - i, &c), n_out = 0;
        if (tpl_space(c)) {
            gap = t.len > 0;
            i += n;
            continue;
        }
        if (gap)
            TRY(tpl_text_puts(r, &t, " "));
        gap = false;
        size_t took = c == '&' ? entity(no_tags.data + i, no_tags.len - i, utf8, &n_out) : 0;
        if (c == '&' && took == 0 && i + 1 < no_tags.len &&
            (tpl_char_is((unsigned char)no_tags.data[i + 1], TPL_C_ALPHA) ||
             no_tags.data[i + 1] == '#'))
            return tpl_unsupported(
                r, "striptags: an entity other than amp, lt, gt, quot, apos, nbsp and numbers");
        TRY(tpl_text_add(r, &t, took ? utf8 : no_tags.data + i, took ? n_out : n));
        i += took ? took : n;
    }
    return tpl_text_value(r, &t, out);
}

static vt_status quote_url(tpl_run *r, tpl_text *t, tpl_value v, bool query)
{
    tpl_value s;
    TRY(tpl_to_str(r, v, &s));
    for (size_t i = 0; i < s.str->len; i++) {
        unsigned char c = (unsigned char)s.str->data[i];
        char escape[4];
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        snprintf(escape, sizeof escape, plain ? "%c" : "%%%02X", c);
        TRY(tpl_text_puts(r, t, query && c == ' ' ? "+" : escape));
    }
    return VT_OK;
}

FILTER(filter_urlencode)
{
    tpl_text t = {0};
    tpl_list *pairs, *pair;
    (void)arg, (void)call;
    if (self.type == TPL_STR || !tpl_iterable(self)) {
        TRY(quote_url(r, &t, self, false));
        return tpl_text_value(r, &t, out);
    }
    if (self.type == TPL_DICT) {
        TRY(tpl_list_new(r, self.dict->n, &pairs));
        for (size_t i = 0; i < self.dict->n; i++)
            TRY(tpl_pair(r, self.dict->entry[i].key, self.dict->entry[i].value,
                         &pairs->at[pairs->n++]));
    } else {
        TRY(tpl_to_list(r, self, &pairs));
    }
    for (size_t i = 0; i < pairs->n; i++) {
        TRY(tpl_to_list(r, pairs->at[i], &pair));
        if (pair->n != 2)
            return tpl_fail(r, "urlencode: expected pairs of key and value");
        if (i > 0)
            TRY(tpl_text_puts(r, &t, "&"));
        TRY(quote_url(r, &t, pair->at[0], true));
        TRY(tpl_text_puts(r, &t, "="));
        TRY(quote_url(r, &t, pair->at[1], true));
    }
    return tpl_text_value(r, &t, out);
}

/* ---- numbers ---- */

FILTER(filter_abs)
{
    (void)arg, (void)call;
    if (!tpl_is_number(self))
        return tpl_fail(r, "bad operand type for abs(): '%s'", tpl_type_name(self));
    bool negative = self.type == TPL_FLOAT ? signbit(self.real) : tpl_as_int(self) < 0;
    return tpl_negate(r, self, negative, out);
}

/* The digits of a number: whitespace around, a sign, digits with single underscores. Copies them
 * without the underscores. */
static bool clean_number(const tpl_str *s, char *out, size_t max)
{
    size_t begin, end, n = 0;
    tpl_strip(s, NULL, true, true, &begin, &end);
    if (begin == end || end - begin >= max)
        return false;
    for (size_t i = begin; i < end; i++) {
        bool inner = i > begin && i + 1 < end && s->data[i - 1] != '_' && s->data[i + 1] != '_';
        if (s->data[i] == '_' && inner && strchr("+-", s->data[i - 1]) == NULL)
            continue;
        if (s->data[i] == '_' || s->data[i] <= ' ')
            return false;
        out[n++] = s->data[i];
    }
    out[n] = '\0';
    return true;
}

/* int(s, base) of Python; *ok false where it raises ValueError. */
vt_status tpl_parse_int(tpl_run *r, const tpl_str *s, int64_t base, int64_t *out, bool *ok)
{
    char text[512], *end;
    *ok = false;
    if (base != 0 && (base < 2 || base > 36))
        return tpl_fail(r, "int() base must be >= 2 and <= 36, or 0");
    if (!clean_number(s, text, sizeof text))
        return VT_OK;
    const char *digits = text + (text[0] == '+' || text[0] == '-');
    char mark = digits[0] == '0' ? (char)(digits[1] | 0x20) : 0;
    int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    char number[514];
    if (marked && (base == marked || base == 0)) {
        base = marked;
        digits += 2;
    } else if (base == 0) {
        base = 10;
        if (digits[0] == '0' && strspn(digits, "0") != strlen(digits))
            return VT_OK; /* 012 is no literal */
    }
    if (digits[0] == '+' || digits[0] == '-' || !digits[0])
        return VT_OK;
    snprintf(number, sizeof number, "%s%s", text[0] == '-' ? "-" : "", digits);
    if (base == 16 && digits[0] == '0' && (digits[1] | 0x20) == 'x')
        return VT_OK; /* strtoll would take a second prefix */
    errno = 0;
    *out = strtoll(number, &end, (int)base);
    if (*end)
        return VT_OK;
    if (errno == ERANGE)
        return tpl_unsupported(r, "an integer passes 64 bits, which templates here do not have");
    *ok = true;
    return VT_OK;
}

bool tpl_parse_float(const tpl_str *s, double *out)
{
    char text[512], *end;
    if (!clean_number(s, text, sizeof text))
        return false;
    const char *word = text + (text[0] == '+' || text[0] == '-');
    bool named = strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0 ||
                 strcasecmp(word, "nan") == 0;
    if (!named && strspn(word, "0123456789.eE+-") != strlen(word))
        return false;
    *out = strtod(text, &end);
    return !*end && end > text;
}

static vt_status float_to_int(tpl_run *r, double d, tpl_value *out)
{
    if (!(fabs(d) < 9.2e18))
        return tpl_unsupported(r, "an integer passes 64 bits, which templates here do not have");
    *out = tpl_int((int64_t)d);
    return VT_OK;
}

/* int(default=0, base=10) */
FILTER(filter_int)
{
    int64_t base, i = 0;
    bool ok = false;
    double d;
    (void)call;
    *out = arg[0].type == TPL_MISSING ? tpl_int(0) : arg[0];
    TRY(tpl_want_int(r, arg[1], "int's base", 10, &base));
    if (self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, self);
    if (tpl_is_int(self)) {
        *out = tpl_int(tpl_as_int(self));
    } else if (self.type == TPL_FLOAT) {
        if (isinf(self.real))
            return tpl_fail(r, "cannot convert float infinity to integer");
        return isnan(self.real) ? VT_OK : float_to_int(r, self.real, out);
    } else if (self.type == TPL_STR) {
        TRY(tpl_parse_int(r, self.str, base, &i, &ok));
        if (ok)
            *out = tpl_int(i);
        else if (tpl_parse_float(self.str, &d) && isfinite(d)) /* "42.23" gives 42 */
            return float_to_int(r, d, out);
    }
    return VT_OK;
}

FILTER(filter_float)
{
    double d;
    (void)call;
    *out = arg[0].type == TPL_MISSING ? tpl_float(0) : arg[0];
    if (self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, self);
    if (tpl_is_number(self))
        *out = tpl_float(tpl_as_float(self));
    else if (self.type == TPL_STR && tpl_parse_float(self.str, &d))
        *out = tpl_float(d);
    return VT_OK;
}

/* Rounded half to even at 10^-precision; decimal digits are exact because printf's are. */
static double round_float(double d, int64_t precision)
{
    char text[700];
    if (!isfinite(d) || precision > 322)
        return d;
    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)precision, d);
        return strtod(text, NULL);
    }
    if (precision < -308)
        return copysign(0, d);
    double scale = pow(10, (double)-precision);
    return rint(d / scale) * scale;
}

static vt_status round_int(tpl_run *r, int64_t v, int64_t precision, tpl_value *out)
{
    int64_t scale = 1;
    *out = tpl_int(v);
    if (precision >= 0)
        return VT_OK;
    *out = tpl_int(0);
    for (; precision < 0; precision++)
        if (__builtin_mul_overflow(scale, 10, &scale))
            return VT_OK;
    int64_t down = v / scale - (v % scale < 0), rest = v - down * scale;
    bool up = rest > scale - rest || (rest == scale - rest && (down & 1));
    int64_t result;
    if (__builtin_mul_overflow(down + up, scale, &result))
        return tpl_unsupported(r, "an integer passes 64 bits, which templates here do not have");
    *out = tpl_int(result);
    return VT_OK;
}

/* round(precision=0, method="common") */
FILTER(filter_round)
{
    int64_t precision;
    const tpl_str *method = NULL;
    (void)call;
    TRY(tpl_want_int(r, arg[0], "round's precision", 0, &precision));
    if (arg[1].type != TPL_MISSING)
        TRY(tpl_want_str(r, arg[1], "round's method", &method));
    bool ceil_ = method && tpl_str_is(method, "ceil"),
         floor_ = method && tpl_str_is(method, "floor");
    if (method && !ceil_ && !floor_ && !tpl_str_is(method, "common"))
        return tpl_fail(r, "round: method must be common, ceil or floor");
    if (self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, self);
    if (!tpl_is_number(self))
        return tpl_fail(r, "round: type %s has no rounding", tpl_type_name(self));
    if (!ceil_ && !floor_) {
        if (tpl_is_int(self))
            return round_int(r, tpl_as_int(self), precision, out);
        *out = tpl_float(round_float(self.real, precision));
        return VT_OK;
    }
    double scale = pow(10, (double)precision), d = tpl_as_float(self) * scale;
    if (!isfinite(d) || scale == 0)
        return tpl_fail(r, "round: the number cannot be rounded");
    *out = tpl_float((ceil_ ? ceil(d) : floor(d)) / scale);
    return VT_OK;
}

FILTER(filter_filesizeformat)
{
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    double bytes, base = tpl_truth(arg[0]) ? 1024 : 1000;
    (void)call;
    if (self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, self);
    if (tpl_is_number(self))
        bytes = tpl_as_float(self);
    else if (self.type != TPL_STR || !tpl_parse_float(self.str, &bytes))
        return tpl_fail(r, "filesizeformat: could not convert '%s' to float", tpl_type_name(self));
    if (bytes == 1)
        return tpl_str_copy(r, "1 Byte", 6, out);
    if (bytes < base)
        return tpl_str_printf(r, out, "%.0f Bytes", trunc(bytes) + 0.0); /* no -0 */
    double unit = base * base;
    int i = 0;
    for (; i < 7 && !(bytes < unit); i++)
        unit *= base;
    return tpl_str_printf(r, out, "%.1f %s", base * bytes / unit,
                          base == 1024 ? binary[i] : decimal[i]);
}

/* ---- any value ---- */

FILTER(filter_default)
{
    bool absent = self.type == TPL_UNDEFINED || (tpl_truth(arg[1]) && !tpl_truth(self));
    (void)call;
    if (!absent)
        *out = self;
    else if (arg[0].type != TPL_MISSING)
        *out = arg[0];
    else
        return tpl_str_wrap(r, "", 0, out);
    return VT_OK;
}

FILTER(filter_length)
{
    int64_t n;
    (void)arg, (void)call;
    if (!tpl_length(self, &n))
        return tpl_fail(r, "object of type '%s' has no len()", tpl_type_name(self));
    *out = tpl_int(n);
    return VT_OK;
}

FILTER(filter_attr)
{
    const tpl_str *name;
    bool found;
    (void)call;
    TRY(tpl_want_str(r, arg[0], "attr's name", &name));
    if (self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, self);
    TRY(tpl_attribute(r, self, name, out, &found));
    return found ? VT_OK : tpl_undefined_of(r, self, arg[0], out);
}

const tpl_builtin *tpl_filter(const char *name, size_t len)
{
    static const tpl_builtin filters[] = {
        {"abs", filter_abs, 0, 0, {0}},
        {"attr", filter_attr, 1, 1, {"name"}},
        {"capitalize", filter_capitalize, 0, 0, {0}},
        {"center", filter_center, 0, 1, {"width"}},
        {"count", filter_length, 0, 0, {0}},
        {"d", filter_default, 0, 2, {"default_value", "boolean"}},
        {"default", filter_default, 0, 2, {"default_value", "boolean"}},
        {"e", filter_escape, 0, 0, {0}},
        {"escape", filter_escape, 0, 0, {0}},
        {"filesizeformat", filter_filesizeformat, 0, 1, {"binary"}},
        {"float", filter_float, 0, 1, {"default"}},
        {"forceescape", filter_forceescape, 0, 0, {0}},
        {"format", filter_format, 0, -1, {0}},
        {"indent", filter_indent, 0, 3, {"width", "first", "blank"}},
        {"int", filter_int, 0, 2, {"default", "base"}},
        {"length", filter_length, 0, 0, {0}},
        {"lower", filter_lower, 0, 0, {0}},
        {"replace", filter_replace, 2, 3, {"old", "new", "count"}},
        {"round", filter_round, 0, 2, {"precision", "method"}},
        {"safe", filter_safe, 0, 0, {0}},
        {"string", filter_string, 0, 0, {0}},
        {"striptags", filter_striptags, 0, 0, {0}},
        {"title", filter_title, 0, 0, {0}},
        {"tojson", tpl_filter_tojson, 0, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}},
        {"trim", filter_trim, 0, 1, {"chars"}},
        {"truncate", filter_truncate, 0, 4, {"length", "killwords", "end", "leeway"}},
        {"upper", filter_upper, 0, 0, {0}},
        {"urlencode", filter_urlencode, 0, 0, {0}},
        {"wordcount", filter_wordcount, 0, 0, {0}},
        {"wordwrap",
         tpl_filter_wordwrap,
         0,
         4,
         {"width", "break_long_words", "wrapstring", "break_on_hyphens"}},
    };
    const tpl_builtin *b = tpl_find(filters, sizeof filters / sizeof *filters, name, len);
    return b ? b : tpl_seq_filter(name, len);
}
