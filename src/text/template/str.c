/* Methods of str.
 *
 * Positions count code points. What methods of markup give back is markup (template_eval.c marks
 * the result). Parameters whose names begin with "." are positional only, as in Python.
 */
#include "text/template/impl.h"

#define METHOD(name)                                                                              \
    static vt_status name(tpl_run *r, tpl_value self, const tpl_value *arg, const tpl_call *call, \
                          tpl_value *out)

/* ---- case ---- */

static vt_status cased(tpl_run *r, tpl_value self, tpl_case k, tpl_value *out)
{
    tpl_text t = {0};
    TRY(tpl_put_case(r, &t, self.str->data, 0, self.str->len, k));
    return tpl_text_value(r, &t, out);
}

METHOD(str_upper)
{
    (void)arg, (void)call;
    return cased(r, self, TPL_UPPER, out);
}

METHOD(str_lower)
{
    (void)arg, (void)call;
    return cased(r, self, TPL_LOWER, out);
}

METHOD(str_casefold)
{
    (void)arg, (void)call;
    return cased(r, self, TPL_FOLD, out);
}

METHOD(str_capitalize)
{
    (void)arg;
    return tpl_apply(r, tpl_filter("capitalize", 10), "method", self, call, out);
}

/* Cased characters after uncased ones become title case, the others lower case. */
METHOD(str_title)
{
    tpl_text t = {0};
    bool inside = false;
    (void)arg, (void)call;
    for (size_t i = 0; i < self.str->len;) {
        uint32_t c;
        size_t n = tpl_decode(self.str->data + i, self.str->len - i, &c);
        TRY(inside && c == 0x3a3 ? tpl_put_sigma(r, &t, self.str, i)
                                 : tpl_put_case(r, &t, self.str->data + i, 0, n,
                                                inside ? TPL_LOWER : TPL_TITLECASE));
        inside = tpl_char_is(c, TPL_C_CASED);
        i += n;
    }
    return tpl_text_value(r, &t, out);
}

METHOD(str_swapcase)
{
    tpl_text t = {0};
    (void)arg, (void)call;
    for (size_t i = 0; i < self.str->len;) {
        uint32_t c;
        size_t n = tpl_decode(self.str->data + i, self.str->len - i, &c);
        tpl_case k = tpl_char_is(c, TPL_C_UPPER) ? TPL_LOWER : TPL_UPPER;
        bool neither = !tpl_char_is(c, TPL_C_UPPER) && !tpl_char_is(c, TPL_C_LOWER);
        if (neither)
            TRY(tpl_text_add(r, &t, self.str->data + i, n));
        else
            TRY(c == 0x3a3 ? tpl_put_sigma(r, &t, self.str, i)
                           : tpl_put_case(r, &t, self.str->data + i, 0, n, k));
        i += n;
    }
    return tpl_text_value(r, &t, out);
}

/* ---- what it is made of ---- */

/* Every character has the property, and there is one. */
static vt_status all_are(tpl_run *r, tpl_value self, unsigned classes, tpl_value *out)
{
    bool all = self.str->len > 0;
    for (size_t i = 0; i < self.str->len && all;) {
        uint32_t c;
        i += tpl_decode(self.str->data + i, self.str->len - i, &c);
        bool is = false;
        for (int k = 0; k < TPL_C_COUNT; k++)
            is |= (classes >> k & 1) && tpl_char_is(c, (tpl_class)k);
        all = is;
    }
    *out = tpl_bool(all);
    return tpl_charge(r, self.str->len / 16);
}

#define ALL_ARE(name, classes)                   \
    METHOD(name)                                 \
    {                                            \
        (void)arg, (void)call;                   \
        return all_are(r, self, (classes), out); \
    }
ALL_ARE(str_isalpha, 1u << TPL_C_ALPHA)
ALL_ARE(str_isalnum,
        1u << TPL_C_ALPHA | 1u << TPL_C_DECIMAL | 1u << TPL_C_DIGIT | 1u << TPL_C_NUMERIC)
ALL_ARE(str_isdecimal, 1u << TPL_C_DECIMAL)
ALL_ARE(str_isdigit, 1u << TPL_C_DIGIT)
ALL_ARE(str_isnumeric, 1u << TPL_C_NUMERIC)
ALL_ARE(str_isspace, 1u << TPL_C_SPACE)

METHOD(str_isprintable)
{
    (void)arg, (void)call;
    TRY(all_are(r, self, 1u << TPL_C_PRINTABLE, out));
    *out = tpl_bool(out->boolean || self.str->len == 0);
    return VT_OK;
}

METHOD(str_isascii)
{
    (void)r, (void)arg, (void)call;
    *out = tpl_bool(self.str->n_chars == self.str->len);
    return VT_OK;
}

METHOD(str_isidentifier)
{
    bool ok = self.str->len > 0;
    (void)r, (void)arg, (void)call;
    for (size_t i = 0; i < self.str->len && ok;) {
        uint32_t c;
        size_t n = tpl_decode(self.str->data + i, self.str->len - i, &c);
        ok = tpl_char_is(c, i ? TPL_C_ID_CONTINUE : TPL_C_ID_START);
        i += n;
    }
    *out = tpl_bool(ok);
    return VT_OK;
}

static bool case_is(const tpl_str *s, bool upper)
{
    bool some = false;
    for (size_t i = 0; i < s->len;) {
        uint32_t c;
        i += tpl_decode(s->data + i, s->len - i, &c);
        if (tpl_char_is(c, upper ? TPL_C_LOWER : TPL_C_UPPER) || tpl_char_is(c, TPL_C_TITLE))
            return false;
        some |= tpl_char_is(c, upper ? TPL_C_UPPER : TPL_C_LOWER);
    }
    return some;
}

METHOD(str_islower)
{
    (void)r, (void)arg, (void)call;
    *out = tpl_bool(case_is(self.str, false));
    return VT_OK;
}

METHOD(str_isupper)
{
    (void)r, (void)arg, (void)call;
    *out = tpl_bool(case_is(self.str, true));
    return VT_OK;
}

METHOD(str_istitle)
{
    bool some = false, inside = false, ok = true;
    (void)r, (void)arg, (void)call;
    for (size_t i = 0; i < self.str->len && ok;) {
        uint32_t c;
        i += tpl_decode(self.str->data + i, self.str->len - i, &c);
        bool head = tpl_char_is(c, TPL_C_UPPER) || tpl_char_is(c, TPL_C_TITLE),
             tail = tpl_char_is(c, TPL_C_LOWER);
        ok = !(head && inside) && !(tail && !inside);
        inside = head || tail;
        some |= inside;
    }
    *out = tpl_bool(ok && some);
    return VT_OK;
}

/* ---- stripping and padding ---- */

static vt_status strip(tpl_run *r, tpl_value self, const tpl_value *arg, bool left, bool right,
                       tpl_value *out)
{
    const tpl_str *chars = NULL;
    size_t begin, end;
    if (arg[0].type != TPL_MISSING && arg[0].type != TPL_NONE)
        TRY(tpl_want_str(r, arg[0], "strip's argument", &chars));
    tpl_strip(self.str, chars, left, right, &begin, &end);
    return tpl_str_copy(r, self.str->data + begin, end - begin, out);
}

METHOD(str_strip)
{
    (void)call;
    return strip(r, self, arg, true, true, out);
}

METHOD(str_lstrip)
{
    (void)call;
    return strip(r, self, arg, true, false, out);
}

METHOD(str_rstrip)
{
    (void)call;
    return strip(r, self, arg, false, true, out);
}

METHOD(str_removeprefix)
{
    const tpl_str *p;
    (void)call;
    TRY(tpl_want_str(r, arg[0], "removeprefix's argument", &p));
    bool is = p->len <= self.str->len && memcmp(self.str->data, p->data, p->len) == 0;
    return tpl_str_copy(r, self.str->data + (is ? p->len : 0), self.str->len - (is ? p->len : 0),
                        out);
}

METHOD(str_removesuffix)
{
    const tpl_str *p;
    (void)call;
    TRY(tpl_want_str(r, arg[0], "removesuffix's argument", &p));
    size_t n = self.str->len;
    bool is = p->len <= n && memcmp(self.str->data + n - p->len, p->data, p->len) == 0;
    return tpl_str_copy(r, self.str->data, n - (is ? p->len : 0), out);
}

static vt_status justify(tpl_run *r, tpl_value self, const tpl_value *arg, char align,
                         tpl_value *out)
{
    const tpl_str space = {.data = " ", .len = 1, .n_chars = 1}, *fill = &space;
    int64_t width;
    TRY(tpl_want_int(r, arg[0], "the width", 0, &width));
    if (arg[1].type != TPL_MISSING)
        TRY(tpl_want_str(r, arg[1], "the fill character", &fill));
    if (fill->n_chars != 1)
        return tpl_fail(r, "The fill character must be exactly one character long");
    return tpl_justify(r, self.str, width, align, fill->data, fill->len, out);
}

METHOD(str_ljust)
{
    (void)call;
    return justify(r, self, arg, '<', out);
}

METHOD(str_rjust)
{
    (void)call;
    return justify(r, self, arg, '>', out);
}

METHOD(str_center)
{
    (void)call;
    return justify(r, self, arg, '^', out);
}

METHOD(str_zfill)
{
    int64_t width;
    tpl_text t = {0};
    const tpl_str *s = self.str;
    (void)call;
    TRY(tpl_want_int(r, arg[0], "the width", 0, &width));
    size_t sign = s->len > 0 && (s->data[0] == '+' || s->data[0] == '-');
    TRY(tpl_text_add(r, &t, s->data, sign));
    TRY(tpl_text_fill(r, &t, "0", 1, width - (int64_t)s->n_chars));
    TRY(tpl_text_add(r, &t, s->data + sign, s->len - sign));
    return tpl_text_value(r, &t, out);
}

METHOD(str_expandtabs)
{
    int64_t size, column = 0;
    tpl_text t = {0};
    (void)call;
    TRY(tpl_want_int(r, arg[0], "the tab size", 8, &size));
    for (size_t i = 0; i < self.str->len; i++) {
        char c = self.str->data[i];
        if (c == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            TRY(tpl_text_fill(r, &t, " ", 1, n));
            column += n;
            continue;
        }
        TRY(tpl_text_add(r, &t, &c, 1));
        column += ((unsigned char)c & 0xc0) != 0x80;
        if (c == '\n' || c == '\r')
            column = 0;
    }
    return tpl_text_value(r, &t, out);
}

/* ---- searching ---- */

/* [start:end] in characters to bytes, as slices count; false if start lies behind the end. */
static vt_status bounds(tpl_run *r, const tpl_str *s, const tpl_value *arg, size_t *begin,
                        size_t *end, bool *valid)
{
    int64_t n = (int64_t)s->n_chars, from, to;
    TRY(tpl_want_int(r, arg[0], "a start", 0, &from));
    TRY(tpl_want_int(r, arg[1], "an end", n, &to));
    from += from < 0 ? n : 0;
    to += to < 0 ? n : 0;
    from = from < 0 ? 0 : from;
    to = to < 0 ? 0 : to > n ? n : to;
    *valid = from <= to;
    *begin = tpl_str_offset(s, (size_t)(*valid ? from : to));
    *end = tpl_str_offset(s, (size_t)to);
    return tpl_charge(r, 1 + s->len / 64);
}

static const char *find_last(const char *s, size_t len, const char *sub, size_t n)
{
    for (size_t i = n > len ? 0 : len - n + 1; i > 0; i--)
        if (memcmp(s + i - 1, sub, n) == 0)
            return s + i - 1;
    return NULL;
}

/* The character position of arg[0] in self[arg[1]:arg[2]], or -1. */
static vt_status find(tpl_run *r, tpl_value self, const tpl_value *arg, bool last, int64_t *out)
{
    const tpl_str *sub, *s = self.str;
    size_t begin, end;
    bool valid;
    TRY(tpl_want_str(r, arg[0], "what is looked for", &sub));
    TRY(bounds(r, s, arg + 1, &begin, &end, &valid));
    const char *at = !valid ? NULL
                     : last ? find_last(s->data + begin, end - begin, sub->data, sub->len)
                            : memmem(s->data + begin, end - begin, sub->data, sub->len);
    *out = at ? (int64_t)tpl_count_chars(s->data, (size_t)(at - s->data)) : -1;
    return tpl_charge(r, s->len / 16);
}

static vt_status find_or_fail(tpl_run *r, tpl_value self, const tpl_value *arg, bool last,
                              tpl_value *out)
{
    int64_t at;
    TRY(find(r, self, arg, last, &at));
    *out = tpl_int(at);
    return at < 0 ? tpl_fail(r, "substring not found") : VT_OK;
}

METHOD(str_find)
{
    int64_t at;
    (void)call;
    TRY(find(r, self, arg, false, &at));
    *out = tpl_int(at);
    return VT_OK;
}

METHOD(str_rfind)
{
    int64_t at;
    (void)call;
    TRY(find(r, self, arg, true, &at));
    *out = tpl_int(at);
    return VT_OK;
}

METHOD(str_index)
{
    (void)call;
    return find_or_fail(r, self, arg, false, out);
}

METHOD(str_rindex)
{
    (void)call;
    return find_or_fail(r, self, arg, true, out);
}

METHOD(str_count)
{
    const tpl_str *sub, *s = self.str;
    size_t begin, end;
    bool valid;
    int64_t n = 0;
    (void)call;
    TRY(tpl_want_str(r, arg[0], "what is counted", &sub));
    TRY(bounds(r, s, arg + 1, &begin, &end, &valid));
    if (sub->len == 0)
        n = valid ? (int64_t)tpl_count_chars(s->data + begin, end - begin) + 1 : 0;
    while (valid && sub->len > 0) {
        const char *at = memmem(s->data + begin, end - begin, sub->data, sub->len);
        if (!at)
            break;
        begin = (size_t)(at - s->data) + sub->len;
        n++;
    }
    *out = tpl_int(n);
    return tpl_charge(r, s->len / 16);
}

static vt_status has_affix(tpl_run *r, tpl_value self, const tpl_value *arg, bool suffix,
                           tpl_value *out)
{
    size_t begin, end;
    bool valid, has = false;
    tpl_list one = {.at = (tpl_value[]){arg[0]}, .n = 1};
    const tpl_list *affixes = arg[0].type == TPL_TUPLE ? arg[0].list : &one;
    TRY(bounds(r, self.str, arg + 1, &begin, &end, &valid));
    for (size_t i = 0; i < affixes->n && !has; i++) {
        const tpl_str *affix;
        TRY(tpl_want_str(r, affixes->at[i],
                         suffix ? "endswith's argument" : "startswith's argument", &affix));
        const char *at = suffix ? self.str->data + end - affix->len : self.str->data + begin;
        has = valid && affix->len <= end - begin && memcmp(at, affix->data, affix->len) == 0;
    }
    *out = tpl_bool(has);
    return VT_OK;
}

METHOD(str_startswith)
{
    (void)call;
    return has_affix(r, self, arg, false, out);
}

METHOD(str_endswith)
{
    (void)call;
    return has_affix(r, self, arg, true, out);
}

METHOD(str_replace)
{
    const tpl_str *old, *fresh;
    tpl_value escaped;
    tpl_text t = {0};
    int64_t count;
    (void)call;
    TRY(tpl_want_str(r, arg[0], "replace's first argument", &old));
    TRY(tpl_want_str(r, arg[1], "replace's second argument", &fresh));
    TRY(tpl_want_int(r, arg[2], "replace's count", -1, &count));
    if (self.str->markup) {
        TRY(tpl_put_escaped(r, &t, arg[1]));
        TRY(tpl_text_value(r, &t, &escaped));
        fresh = escaped.str;
    }
    return tpl_replace(r, self.str, old, fresh, count, out);
}

/* ---- splitting and joining ---- */

static vt_status add_piece(tpl_run *r, tpl_list *l, const tpl_str *s, size_t begin, size_t end)
{
    tpl_value piece;
    TRY(tpl_str_copy(r, s->data + begin, end - begin, &piece));
    return tpl_list_add(r, l, piece);
}

/* At runs of whitespace, none of it kept at the ends. */
static vt_status split_space(tpl_run *r, const tpl_str *s, int64_t max, tpl_list *l)
{
    size_t i, end;
    tpl_strip(s, NULL, true, false, &i, &end);
    for (; i < s->len && max != 0; max--) {
        size_t word = i, n = 0;
        uint32_t c = 0;
        while (i < s->len) {
            n = tpl_decode(s->data + i, s->len - i, &c);
            if (tpl_space(c))
                break;
            i += n;
        }
        TRY(add_piece(r, l, s, word, i));
        while (i < s->len) {
            n = tpl_decode(s->data + i, s->len - i, &c);
            if (!tpl_space(c))
                break;
            i += n;
        }
    }
    return i < s->len ? add_piece(r, l, s, i, s->len) : VT_OK;
}

static vt_status rsplit_space(tpl_run *r, const tpl_str *s, int64_t max, tpl_list *l)
{
    tpl_str rest = *s;
    size_t begin, end;
    for (;; max--) {
        tpl_strip(&rest, NULL, false, true, &begin, &end);
        if (end == 0)
            break;
        rest.len = end;
        if (max == 0) {
            TRY(add_piece(r, l, s, 0, end));
            break;
        }
        size_t word = end;
        while (word > 0) { /* back to the word's begin */
            size_t at = word - 1;
            uint32_t c;
            while (at > 0 && ((unsigned char)s->data[at] & 0xc0) == 0x80)
                at--;
            tpl_decode(s->data + at, end - at, &c);
            if (tpl_space(c))
                break;
            word = at;
        }
        TRY(add_piece(r, l, s, word, end));
        rest.len = word;
    }
    tpl_list_reverse(l);
    return VT_OK;
}

static vt_status split_at(tpl_run *r, const tpl_str *s, const tpl_str *sep, int64_t max,
                          tpl_list *l)
{
    size_t begin = 0;
    for (; max != 0; max--) {
        const char *at = memmem(s->data + begin, s->len - begin, sep->data, sep->len);
        if (!at)
            break;
        TRY(add_piece(r, l, s, begin, (size_t)(at - s->data)));
        begin = (size_t)(at - s->data) + sep->len;
    }
    return add_piece(r, l, s, begin, s->len);
}

static vt_status rsplit_at(tpl_run *r, const tpl_str *s, const tpl_str *sep, int64_t max,
                           tpl_list *l)
{
    size_t end = s->len;
    for (; max != 0; max--) {
        const char *at = find_last(s->data, end, sep->data, sep->len);
        if (!at)
            break;
        TRY(add_piece(r, l, s, (size_t)(at - s->data) + sep->len, end));
        end = (size_t)(at - s->data);
    }
    TRY(add_piece(r, l, s, 0, end));
    tpl_list_reverse(l);
    return VT_OK;
}

static vt_status split(tpl_run *r, tpl_value self, const tpl_value *arg, bool right, tpl_value *out)
{
    const tpl_str *sep;
    tpl_list *l;
    int64_t max;
    TRY(tpl_want_int(r, arg[1], "maxsplit", -1, &max));
    TRY(tpl_list_new(r, 0, &l));
    TRY(tpl_charge(r, self.str->len / 16));
    *out = tpl_of_list(TPL_LIST, l);
    if (arg[0].type == TPL_MISSING || arg[0].type == TPL_NONE)
        return right ? rsplit_space(r, self.str, max, l) : split_space(r, self.str, max, l);
    TRY(tpl_want_str(r, arg[0], "the separator", &sep));
    if (sep->len == 0)
        return tpl_fail(r, "empty separator");
    return right ? rsplit_at(r, self.str, sep, max, l) : split_at(r, self.str, sep, max, l);
}

METHOD(str_split)
{
    (void)call;
    return split(r, self, arg, false, out);
}

METHOD(str_rsplit)
{
    (void)call;
    return split(r, self, arg, true, out);
}

METHOD(str_splitlines)
{
    tpl_list *l;
    bool keep = tpl_truth(arg[0]);
    (void)call;
    TRY(tpl_list_new(r, 0, &l));
    for (size_t begin = 0; begin < self.str->len;) {
        size_t end, next;
        tpl_line_end(self.str, begin, &end, &next);
        TRY(add_piece(r, l, self.str, begin, keep ? next : end));
        begin = next;
    }
    *out = tpl_of_list(TPL_LIST, l);
    return VT_OK;
}

static vt_status partition(tpl_run *r, tpl_value self, const tpl_value *arg, bool right,
                           tpl_value *out)
{
    const tpl_str *sep, *s = self.str;
    tpl_list *l;
    TRY(tpl_want_str(r, arg[0], "the separator", &sep));
    if (sep->len == 0)
        return tpl_fail(r, "empty separator");
    TRY(tpl_list_new(r, 3, &l));
    const char *at = right ? find_last(s->data, s->len, sep->data, sep->len)
                           : memmem(s->data, s->len, sep->data, sep->len);
    size_t begin = at      ? (size_t)(at - s->data)
                   : right ? 0
                           : s->len,
           end = at ? begin + sep->len : begin;
    TRY(add_piece(r, l, s, 0, begin));
    TRY(add_piece(r, l, s, begin, end));
    TRY(add_piece(r, l, s, end, s->len));
    *out = tpl_of_list(TPL_TUPLE, l);
    return VT_OK;
}

METHOD(str_partition)
{
    (void)call;
    return partition(r, self, arg, false, out);
}

METHOD(str_rpartition)
{
    (void)call;
    return partition(r, self, arg, true, out);
}

METHOD(str_join)
{
    tpl_text t = {0};
    tpl_cursor c;
    tpl_value item;
    bool end;
    (void)call;
    TRY(tpl_cursor_init(r, arg[0], &c));
    for (bool first = true;; first = false) {
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return tpl_text_value(r, &t, out);
        if (item.type != TPL_STR)
            return tpl_fail(r, "sequence item: expected str instance, %s found",
                            tpl_type_name(item));
        if (!first)
            TRY(tpl_text_add(r, &t, self.str->data, self.str->len));
        if (self.str->markup)
            TRY(tpl_put_escaped(r, &t, item));
        else
            TRY(tpl_text_add(r, &t, item.str->data, item.str->len));
    }
}

METHOD(str_format)
{
    (void)arg;
    return tpl_str_format(r, self.str, call, out);
}

METHOD(str_format_map)
{
    tpl_call from_map = {0};
    (void)call;
    if (arg[0].type != TPL_DICT)
        return tpl_fail(r, "format_map() needs a mapping, not '%s'", tpl_type_name(arg[0]));
    TPL_NEW(r, from_map.kw, arg[0].dict->n + 1);
    for (size_t i = 0; i < arg[0].dict->n; i++)
        if (arg[0].dict->entry[i].key.type == TPL_STR)
            from_map.kw[from_map.n_kw++] = arg[0].dict->entry[i];
    return tpl_str_format(r, self.str, &from_map, out);
}

const tpl_builtin *tpl_str_method(const char *name, size_t len)
{
    static const tpl_builtin str_methods[] = {
        {"capitalize", str_capitalize, 0, 0, {0}},
        {"casefold", str_casefold, 0, 0, {0}},
        {"center", str_center, 1, 2, {".width", ".fillchar"}},
        {"count", str_count, 1, 3, {".sub", ".start", ".end"}},
        {"endswith", str_endswith, 1, 3, {".suffix", ".start", ".end"}},
        {"expandtabs", str_expandtabs, 0, 1, {"tabsize"}},
        {"find", str_find, 1, 3, {".sub", ".start", ".end"}},
        {"format", str_format, 0, -1, {0}},
        {"format_map", str_format_map, 1, 1, {".mapping"}},
        {"index", str_index, 1, 3, {".sub", ".start", ".end"}},
        {"isalnum", str_isalnum, 0, 0, {0}},
        {"isalpha", str_isalpha, 0, 0, {0}},
        {"isascii", str_isascii, 0, 0, {0}},
        {"isdecimal", str_isdecimal, 0, 0, {0}},
        {"isdigit", str_isdigit, 0, 0, {0}},
        {"isidentifier", str_isidentifier, 0, 0, {0}},
        {"islower", str_islower, 0, 0, {0}},
        {"isnumeric", str_isnumeric, 0, 0, {0}},
        {"isprintable", str_isprintable, 0, 0, {0}},
        {"isspace", str_isspace, 0, 0, {0}},
        {"istitle", str_istitle, 0, 0, {0}},
        {"isupper", str_isupper, 0, 0, {0}},
        {"join", str_join, 1, 1, {".iterable"}},
        {"ljust", str_ljust, 1, 2, {".width", ".fillchar"}},
        {"lower", str_lower, 0, 0, {0}},
        {"lstrip", str_lstrip, 0, 1, {".chars"}},
        {"partition", str_partition, 1, 1, {".sep"}},
        {"removeprefix", str_removeprefix, 1, 1, {".prefix"}},
        {"removesuffix", str_removesuffix, 1, 1, {".suffix"}},
        {"replace", str_replace, 2, 3, {".old", ".new", ".count"}},
        {"rfind", str_rfind, 1, 3, {".sub", ".start", ".end"}},
        {"rindex", str_rindex, 1, 3, {".sub", ".start", ".end"}},
        {"rjust", str_rjust, 1, 2, {".width", ".fillchar"}},
        {"rpartition", str_rpartition, 1, 1, {".sep"}},
        {"rsplit", str_rsplit, 0, 2, {"sep", "maxsplit"}},
        {"rstrip", str_rstrip, 0, 1, {".chars"}},
        {"split", str_split, 0, 2, {"sep", "maxsplit"}},
        {"splitlines", str_splitlines, 0, 1, {"keepends"}},
        {"startswith", str_startswith, 1, 3, {".prefix", ".start", ".end"}},
        {"strip", str_strip, 0, 1, {".chars"}},
        {"swapcase", str_swapcase, 0, 0, {0}},
        {"title", str_title, 0, 0, {0}},
        {"upper", str_upper, 0, 0, {0}},
        {"zfill", str_zfill, 1, 1, {".width"}},
    };
    return tpl_find(str_methods, sizeof str_methods / sizeof *str_methods, name, len);
}
