/* Methods of str. Positions count code points. What a method of markup returns is marked by its
 * caller (eval.c); what it inserts is escaped here. Parameters whose names begin with "." are
 * positional only, as in Python. str.format() is in str_format.c. */
#include "text/template/builtins.h"

/* ---- case ---- */

/* a->which is a tpl_case. */
static vt_status str_case(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return tpl_change_case(r, a->self.str, (tpl_case)a->which, out);
}

static vt_status str_capitalize(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return tpl_capitalize(r, a->self.str, out);
}

/* Cased characters after uncased ones become title case, the others lower case. */
static vt_status str_title(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    enum { SIGMA = 0x3a3 };
    const tpl_str *s = a->self.str;
    tpl_text t = {0};
    bool inside = false;
    TRY(tpl_charge(r, s->len / 8));
    for (size_t i = 0; i < s->len;) {
        uint32_t c;
        size_t n = tpl_next(s->data + i, &c);
        if (inside && c == SIGMA)
            TRY(tpl_text_puts(r, &t,
                              tpl_is_final_sigma(s->data, s->len, i) ? "\xcf\x82" : "\xcf\x83"));
        else
            TRY(tpl_put_case(r, &t, s->data + i, 0, n, inside ? TPL_LOWER : TPL_TITLECASE));
        inside = tpl_is_cased(c);
        i += n;
    }
    return tpl_text_value(r, &t, out);
}

/* ---- what a string is made of ---- */

enum { ALPHA, ALNUM, DIGIT, SPACE };

/* Every character has the property a->which, and there is one. */
static vt_status str_all_are(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    static bool (*const properties[])(uint32_t) = {
        [ALPHA] = tpl_is_alpha,
        [ALNUM] = tpl_is_alnum,
        [DIGIT] = tpl_is_digit,
        [SPACE] = tpl_is_space,
    };
    const tpl_str *s = a->self.str;
    bool all = s->len > 0;
    TRY(tpl_charge(r, s->len / 16));
    for (size_t i = 0; i < s->len && all;) {
        uint32_t c;
        i += tpl_next(s->data + i, &c);
        all = properties[a->which](c);
    }
    *out = tpl_bool(all);
    return VT_OK;
}

/* a->which: 1 upper, 0 lower */
static vt_status str_case_is(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return tpl_case_is(r, a->self.str, a->which, out);
}

/* ---- stripping ---- */

enum { LEFT = 1, RIGHT = 2 }; /* the ends that a method works on */

static vt_status str_strip(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return tpl_strip(r, a->self.str, a->arg[0], a->which & LEFT, a->which & RIGHT, out);
}

/* s begins or ends with `affix`. */
static vt_status has_affix(tpl_run *r, const char *s, size_t len, const tpl_str *affix, bool suffix,
                           bool *has)
{
    *has = affix->len <= len;
    if (!*has)
        return VT_OK;
    TRY(tpl_charge(r, affix->len / 64));
    *has = memcmp(suffix ? s + len - affix->len : s, affix->data, affix->len) == 0;
    return VT_OK;
}

static vt_status str_remove(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *affix, *s = a->self.str;
    bool has, suffix = a->which == RIGHT;
    TRY(tpl_want_str(r, a->arg[0], suffix ? "removesuffix's argument" : "removeprefix's argument",
                     &affix));
    TRY(has_affix(r, s->data, s->len, affix, suffix, &has));
    size_t n = has ? affix->len : 0;
    return tpl_str_copy(r, s->data + (suffix ? 0 : n), s->len - n, out);
}

/* ---- searching ---- */

/* The bytes of self[arg[1]:arg[2]], counted in characters as slices count; *valid is false if the
 * start lies after the end. */
static vt_status bounds(tpl_run *r, const tpl_args *a, size_t *begin, size_t *end, bool *valid)
{
    const tpl_str *s = a->self.str;
    int64_t n = (int64_t)s->n_chars, from, to;
    TRY(tpl_want_int(r, a->arg[1], "a start", 0, &from));
    TRY(tpl_want_int(r, a->arg[2], "an end", n, &to));
    from += from < 0 ? n : 0;
    to += to < 0 ? n : 0;
    from = from < 0 ? 0 : from;
    to = to < 0 ? 0 : to > n ? n : to;
    *valid = from <= to;
    if (s->n_chars < s->len)
        TRY(tpl_charge(r, s->len / 64));
    *begin = tpl_str_offset(s, (size_t)(*valid ? from : to));
    *end = tpl_str_offset(s, (size_t)to);
    return VT_OK;
}

enum { FIND = 0, RFIND, INDEX };

/* The position of arg[0]; -1 if it is not there, which fails for INDEX. */
static vt_status str_find(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *sub, *s = a->self.str;
    const char *at = NULL;
    size_t begin, end;
    bool valid;
    TRY(tpl_want_str(r, a->arg[0], "what is looked for", &sub));
    TRY(bounds(r, a, &begin, &end, &valid));
    if (valid)
        TRY(tpl_search(r, s->data + begin, end - begin, sub, a->which == RFIND, &at));
    if (!at && a->which == INDEX)
        return tpl_fail(r, "substring not found");
    TRY(tpl_charge(r, at ? (size_t)(at - s->data) / 64 : 0));
    *out = tpl_int(at ? (int64_t)tpl_count_chars(s->data, (size_t)(at - s->data)) : -1);
    return VT_OK;
}

static vt_status str_count(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *sub, *s = a->self.str;
    size_t begin, end;
    bool valid;
    int64_t n = 0;
    TRY(tpl_want_str(r, a->arg[0], "what is counted", &sub));
    TRY(bounds(r, a, &begin, &end, &valid));
    if (sub->len == 0) {
        TRY(tpl_charge(r, (end - begin) / 64));
        n = valid ? (int64_t)tpl_count_chars(s->data + begin, end - begin) + 1 : 0;
    }
    while (valid && sub->len > 0) {
        const char *at;
        TRY(tpl_charge(r, 1));
        TRY(tpl_search(r, s->data + begin, end - begin, sub, false, &at));
        if (!at)
            break;
        begin = (size_t)(at - s->data) + sub->len;
        n++;
    }
    *out = tpl_int(n);
    return VT_OK;
}

/* startswith, endswith; arg[0] may be a tuple of strings. */
static vt_status str_begins(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    size_t begin, end;
    bool valid, has = false, suffix = a->which == RIGHT;
    tpl_value one[] = {a->arg[0]};
    tpl_list list = {.at = one, .n = 1};
    const tpl_list *affixes = a->arg[0].type == TPL_TUPLE ? a->arg[0].list : &list;
    TRY(bounds(r, a, &begin, &end, &valid));
    for (size_t i = 0; i < affixes->n && !has; i++) {
        const tpl_str *affix;
        TRY(tpl_charge(r, 1));
        TRY(tpl_want_str(r, affixes->at[i],
                         suffix ? "endswith's argument" : "startswith's argument", &affix));
        if (valid)
            TRY(has_affix(r, a->self.str->data + begin, end - begin, affix, suffix, &has));
    }
    *out = tpl_bool(has);
    return VT_OK;
}

static vt_status str_replace(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *old, *fresh;
    int64_t count;
    TRY(tpl_want_str(r, a->arg[0], "replace's first argument", &old));
    TRY(tpl_want_str(r, a->arg[1], "replace's second argument", &fresh));
    TRY(tpl_want_int(r, a->arg[2], "replace's count", -1, &count));
    if (a->self.markup) {
        tpl_value escaped;
        TRY(tpl_escape(r, a->arg[1], &escaped));
        fresh = escaped.str;
    }
    return tpl_replace(r, a->self.str, old, fresh, count, out);
}

/* ---- splitting and joining ---- */

static vt_status add_piece(tpl_run *r, tpl_list *l, const tpl_str *s, size_t begin, size_t end)
{
    tpl_value piece;
    TRY(tpl_str_copy(r, s->data + begin, end - begin, &piece));
    return tpl_list_add(r, l, piece);
}

/* At runs of white space, none of it kept at the ends. */
static vt_status split_space(tpl_run *r, const tpl_str *s, int64_t max, tpl_list *l)
{
    size_t i = tpl_spaces_before(s->data, s->len);
    for (; i < s->len && max != 0; max--) {
        size_t word = i;
        while (i < s->len) {
            uint32_t c;
            size_t n = tpl_next(s->data + i, &c);
            if (tpl_is_space(c))
                break;
            i += n;
        }
        TRY(add_piece(r, l, s, word, i));
        i += tpl_spaces_before(s->data + i, s->len - i);
    }
    return i < s->len ? add_piece(r, l, s, i, s->len) : VT_OK;
}

static vt_status rsplit_space(tpl_run *r, const tpl_str *s, int64_t max, tpl_list *l)
{
    size_t end = tpl_trimmed_length(s->data, s->len);
    for (; end > 0 && max != 0; max--) {
        size_t word = end;
        while (word > 0) { /* back to the word's begin */
            uint32_t c;
            size_t at = tpl_char_before(s->data, word);
            vt_utf8_next(s->data + at, &c);
            if (tpl_is_space(c))
                break;
            word = at;
        }
        TRY(add_piece(r, l, s, word, end));
        end = tpl_trimmed_length(s->data, word);
    }
    if (end > 0)
        TRY(add_piece(r, l, s, 0, end));
    tpl_list_reverse(l);
    return VT_OK;
}

static vt_status split_at(tpl_run *r, const tpl_str *s, const tpl_str *sep, int64_t max,
                          tpl_list *l)
{
    size_t begin = 0;
    for (; max != 0; max--) {
        const char *at;
        TRY(tpl_search(r, s->data + begin, s->len - begin, sep, false, &at));
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
    TRY(tpl_charge(r, s->len / 64));
    for (; max != 0; max--) {
        const char *at;
        TRY(tpl_search_back(r, s->data, end, sep, &at));
        if (!at)
            break;
        TRY(add_piece(r, l, s, (size_t)(at - s->data) + sep->len, end));
        end = (size_t)(at - s->data);
    }
    TRY(add_piece(r, l, s, 0, end));
    tpl_list_reverse(l);
    return VT_OK;
}

static vt_status str_split(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *sep, *s = a->self.str;
    bool right = a->which == RIGHT;
    tpl_list *l;
    int64_t max;
    TRY(tpl_want_int(r, a->arg[1], "maxsplit", -1, &max));
    TRY(tpl_list_new(r, 0, &l));
    *out = tpl_of_list(TPL_LIST, l);
    if (tpl_absent(a->arg[0])) {
        TRY(tpl_charge(r, s->len / 16));
        return right ? rsplit_space(r, s, max, l) : split_space(r, s, max, l);
    }
    TRY(tpl_want_str(r, a->arg[0], "the separator", &sep));
    if (sep->len == 0)
        return tpl_fail(r, "empty separator");
    return right ? rsplit_at(r, s, sep, max, l) : split_at(r, s, sep, max, l);
}

static vt_status str_splitlines(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *s = a->self.str;
    bool keep = tpl_truth(a->arg[0]);
    tpl_list *l;
    TRY(tpl_list_new(r, 0, &l));
    TRY(tpl_charge(r, s->len / 16));
    for (size_t begin = 0; begin < s->len;) {
        size_t end, next;
        tpl_line_end(s, begin, &end, &next);
        TRY(add_piece(r, l, s, begin, keep ? next : end));
        begin = next;
    }
    *out = tpl_of_list(TPL_LIST, l);
    return VT_OK;
}

static vt_status str_partition(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    bool right = a->which == RIGHT;
    const tpl_str *sep, *s = a->self.str;
    const char *at;
    tpl_list *l;
    TRY(tpl_want_str(r, a->arg[0], "the separator", &sep));
    if (sep->len == 0)
        return tpl_fail(r, "empty separator");
    TRY(tpl_list_new(r, 3, &l));
    TRY(tpl_search(r, s->data, s->len, sep, right, &at));
    size_t begin = at ? (size_t)(at - s->data) : right ? 0 : s->len;
    size_t end = at ? begin + sep->len : begin;
    TRY(add_piece(r, l, s, 0, begin));
    TRY(add_piece(r, l, s, begin, end));
    TRY(add_piece(r, l, s, end, s->len));
    *out = tpl_of_list(TPL_TUPLE, l);
    return VT_OK;
}

static vt_status str_join(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *separator = a->self.str;
    tpl_text t = {0};
    tpl_cursor c;
    TRY(tpl_cursor_init(r, a->arg[0], &c));
    for (bool first = true;; first = false) {
        tpl_value item;
        bool end;
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return tpl_text_value(r, &t, out);
        if (a->self.markup)
            TRY(tpl_escape(r, item, &item));
        if (item.type != TPL_STR)
            return tpl_fail(r, "sequence item: expected str instance, %s found",
                            tpl_type_name(item));
        if (!first)
            TRY(tpl_text_add(r, &t, separator->data, separator->len));
        TRY(tpl_text_add(r, &t, item.str->data, item.str->len));
    }
}

/* ---- the table ---- */

static const tpl_builtin methods[] = {
    {"capitalize", str_capitalize, 0, 0, {0}, 0},
    {"count", str_count, 1, 3, {".sub", ".start", ".end"}, 0},
    {"endswith", str_begins, 1, 3, {".suffix", ".start", ".end"}, RIGHT},
    {"find", str_find, 1, 3, {".sub", ".start", ".end"}, FIND},
    {"format", tpl_str_format, 0, -1, {0}, 0},
    {"index", str_find, 1, 3, {".sub", ".start", ".end"}, INDEX},
    {"isalnum", str_all_are, 0, 0, {0}, ALNUM},
    {"isalpha", str_all_are, 0, 0, {0}, ALPHA},
    {"isdigit", str_all_are, 0, 0, {0}, DIGIT},
    {"islower", str_case_is, 0, 0, {0}, 0},
    {"isspace", str_all_are, 0, 0, {0}, SPACE},
    {"isupper", str_case_is, 0, 0, {0}, 1},
    {"join", str_join, 1, 1, {".iterable"}, 0},
    {"lower", str_case, 0, 0, {0}, TPL_LOWER},
    {"lstrip", str_strip, 0, 1, {".chars"}, LEFT},
    {"partition", str_partition, 1, 1, {".sep"}, LEFT},
    {"removeprefix", str_remove, 1, 1, {".prefix"}, LEFT},
    {"removesuffix", str_remove, 1, 1, {".suffix"}, RIGHT},
    {"replace", str_replace, 2, 3, {".old", ".new", ".count"}, 0},
    {"rfind", str_find, 1, 3, {".sub", ".start", ".end"}, RFIND},
    {"rpartition", str_partition, 1, 1, {".sep"}, RIGHT},
    {"rsplit", str_split, 0, 2, {"sep", "maxsplit"}, RIGHT},
    {"rstrip", str_strip, 0, 1, {".chars"}, RIGHT},
    {"split", str_split, 0, 2, {"sep", "maxsplit"}, LEFT},
    {"splitlines", str_splitlines, 0, 1, {"keepends"}, 0},
    {"startswith", str_begins, 1, 3, {".prefix", ".start", ".end"}, LEFT},
    {"strip", str_strip, 0, 1, {".chars"}, LEFT | RIGHT},
    {"title", str_title, 0, 0, {0}, 0},
    {"upper", str_case, 0, 0, {0}, TPL_UPPER},
};

const tpl_table tpl_str_methods = {methods, sizeof methods / sizeof *methods};
