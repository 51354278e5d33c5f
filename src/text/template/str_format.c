/* str.format(): "{}", "{0}", "{name.attribute[item]!r:specification}". */
#include <stdlib.h>

#include "text/template/builtins.h"

typedef struct formatter {
    tpl_run *r;
    const tpl_call *call;
    bool markup;  /* fields are escaped */
    int32_t next; /* automatic numbering; -1: numbers were given */
} formatter;

/* The argument that a field begins with: by position or by name. */
static vt_status first_argument(formatter *f, const char *s, size_t len, tpl_value *out)
{
    int64_t index = 0;
    bool number = true;
    for (size_t i = 0; i < len; i++) {
        number &= s[i] >= '0' && s[i] <= '9';
        index = number && index < INT32_MAX / 10 ? index * 10 + (s[i] - '0') : index;
    }
    if (number) {
        if ((len == 0 && f->next < 0) || (len > 0 && f->next > 0))
            return tpl_fail(
                f->r,
                "cannot switch between manual field specification and automatic field numbering");
        index = len == 0 ? f->next++ : index;
        f->next = len > 0 ? -1 : f->next;
        if (index >= f->call->n_pos)
            return tpl_fail(f->r, "Replacement index %lld out of range for positional args tuple",
                            (long long)index);
        *out = f->call->pos[index];
        return VT_OK;
    }
    TRY(tpl_charge(f->r, (size_t)f->call->n_kw / 8));
    for (int32_t i = 0; i < f->call->n_kw; i++) {
        const tpl_str *key = f->call->kw[i].key.str;
        if (key->len == len && memcmp(key->data, s, len) == 0) {
            *out = f->call->kw[i].value;
            return VT_OK;
        }
    }
    return tpl_fail(f->r, "format() was given no argument '%.*s'", (int)(len < 60 ? len : 60), s);
}

/* first(.name | [item])* */
static vt_status field_value(formatter *f, const char *s, size_t len, tpl_value *out)
{
    size_t n = 0;
    while (n < len && s[n] != '.' && s[n] != '[')
        n++;
    TRY(first_argument(f, s, n, out));
    while (n < len) {
        bool attribute = s[n] == '.';
        size_t begin = n + 1, end = begin;
        while (end < len && (attribute ? s[end] != '.' && s[end] != '[' : s[end] != ']'))
            end++;
        if (end == begin || (!attribute && end == len) || (s[n] != '.' && s[n] != '['))
            return tpl_fail(f->r, "Empty attribute or malformed item in format string");
        tpl_value key;
        TRY(tpl_str_copy(f->r, s + begin, end - begin, &key));
        if (!attribute && strspn(key.str->data, "0123456789") == key.str->len && key.str->len < 10)
            key = tpl_int(strtoll(key.str->data, NULL, 10));
        TRY(attribute ? tpl_getattr(f->r, *out, key, out) : tpl_getitem(f->r, *out, key, out));
        n = end + !attribute;
    }
    return VT_OK;
}

/* One field, s without its braces. */
static vt_status format_field(formatter *f, tpl_text *t, const char *s, size_t len)
{
    size_t at = 0, brackets = 0;
    while (at < len && (brackets > 0 || (s[at] != '!' && s[at] != ':'))) {
        brackets += s[at] == '[';
        brackets -= s[at] == ']' && brackets > 0;
        at++;
    }
    tpl_value v, spec;
    TRY(field_value(f, s, at, &v));
    if (at < len && s[at] == '!') {
        tpl_text text = {0};
        char conversion = at + 1 < len ? s[at + 1] : 0;
        at += 2;
        if ((conversion != 's' && conversion != 'r') || (at < len && s[at] != ':'))
            return tpl_fail(f->r, "a conversion in a format string is malformed or not supported");
        TRY(conversion == 'r' ? tpl_put_repr(f->r, &text, v) : tpl_put_str(f->r, &text, v));
        TRY(tpl_text_value(f->r, &text, &v));
    }
    at += at < len; /* the colon */
    if (memchr(s + at, '{', len - at))
        return tpl_unsupported(f->r, "a field inside a format specification is not supported");
    TRY(tpl_str_copy(f->r, s + at, len - at, &spec));
    if (!f->markup)
        return tpl_put_spec(f->r, t, v, spec.str->data, spec.str->len);
    if (v.type == TPL_STR && v.markup && spec.str->len > 0)
        return tpl_fail(f->r, "Unsupported format specification for Markup.");
    tpl_text field = {0};
    if (v.type != TPL_STR || !v.markup) {
        TRY(tpl_put_spec(f->r, &field, v, spec.str->data, spec.str->len));
        TRY(tpl_text_value(f->r, &field, &v));
        TRY(tpl_escape(f->r, v, &v));
    }
    return tpl_text_add(f->r, t, v.str->data, v.str->len);
}

vt_status tpl_str_format(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    formatter f = {.r = r, .call = a->call, .markup = a->self.markup};
    const char *s = a->self.str->data;
    size_t len = a->self.str->len;
    tpl_text t = {0};
    TRY(tpl_charge(r, len / 16));
    for (size_t i = 0; i < len;) {
        if ((s[i] == '{' || s[i] == '}') && i + 1 < len && s[i + 1] == s[i]) {
            TRY(tpl_text_add(r, &t, s + i, 1));
            i += 2;
            continue;
        }
        if (s[i] == '}')
            return tpl_fail(r, "Single '}' encountered in format string");
        if (s[i] != '{') {
            TRY(tpl_text_add(r, &t, s + i, 1));
            i++;
            continue;
        }
        size_t end = i + 1;
        for (int64_t open = 1; end < len; end++) {
            open += (s[end] == '{') - (s[end] == '}');
            if (open == 0)
                break;
        }
        if (end >= len)
            return tpl_fail(r, "expected '}' before end of string");
        TRY(format_field(&f, &t, s + i + 1, end - i - 1));
        i = end + 1;
    }
    return tpl_text_value(r, &t, out);
}
