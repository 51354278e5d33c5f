/* Strings, searching in them, and text that is being built. Strings are counted in code points, as
 * Python does; all of them are valid UTF-8. */
#include "text/template/values.h"

#include <stdarg.h>
#include <stdio.h>

const char *tpl_type_name(tpl_value v)
{
    static const char *const names[] = {
        [TPL_MISSING] = "missing",   [TPL_UNDEFINED] = "Undefined",
        [TPL_NONE] = "NoneType",     [TPL_BOOL] = "bool",
        [TPL_INT] = "int",           [TPL_FLOAT] = "float",
        [TPL_STR] = "str",           [TPL_LIST] = "list",
        [TPL_TUPLE] = "tuple",       [TPL_DICT] = "dict",
        [TPL_RANGE] = "range",       [TPL_NAMESPACE] = "Namespace",
        [TPL_FUNCTION] = "function", [TPL_METHOD] = "builtin_function_or_method",
    };
    if (v.type == TPL_VIEW)
        return v.list->kind;
    if (v.type == TPL_ITER)
        return v.iter->kind;
    if (v.type == TPL_OBJECT)
        return v.object->class->name;
    return v.type == TPL_STR && v.markup ? "Markup" : names[v.type];
}

size_t tpl_count_chars(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

/* ---- strings ---- */

vt_status tpl_str_wrap(tpl_run *r, const char *s, size_t len, tpl_value *out)
{
    tpl_str *str = tpl_alloc(r, 1, sizeof *str);
    if (!str)
        return VT_ERR_MEMORY;
    TRY(tpl_charge(r, len / 64));
    *str = (tpl_str){.data = s, .len = len, .n_chars = tpl_count_chars(s, len)};
    *out = tpl_of_str(str);
    return VT_OK;
}

vt_status tpl_str_copy(tpl_run *r, const char *s, size_t len, tpl_value *out)
{
    TRY(tpl_charge(r, len / 64));
    char *copy = tpl_alloc(r, len + 1, 1);
    if (!copy)
        return VT_ERR_MEMORY;
    if (len > 0)
        memcpy(copy, s, len);
    return tpl_str_wrap(r, copy, len, out);
}

vt_status tpl_str_printf(tpl_run *r, tpl_value *out, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    TRY(tpl_charge(r, 4));
    return tpl_str_copy(r, text, len, out);
}

size_t tpl_str_offset(const tpl_str *s, size_t n)
{
    if (s->n_chars == s->len)
        return n;
    size_t i = 0;
    for (; i < s->len; i++)
        if (((unsigned char)s->data[i] & 0xc0) != 0x80 && n-- == 0)
            break;
    return i;
}

/* ---- searching ---- */

/* Goes from one occurrence of sub's first byte to the one before it. A candidate pays one step, and
 * one that agrees in its first 64 bytes pays for the comparison of the rest: a search for
 * "aaa...b" in "aaa..." ends at the step limit. */
vt_status tpl_search_back(tpl_run *r, const char *s, size_t len, const tpl_str *sub,
                          const char **at)
{
    size_t head = sub->len < 64 ? sub->len : 64, end = sub->len > len ? 0 : len - sub->len + 1;
    *at = NULL;
    while (end > 0) {
        const char *c = memrchr(s, sub->data[0], end);
        if (!c)
            return VT_OK;
        TRY(tpl_charge(r, 1));
        end = (size_t)(c - s);
        if (memcmp(c, sub->data, head) != 0)
            continue;
        TRY(tpl_charge(r, sub->len / 64));
        if (memcmp(c + head, sub->data + head, sub->len - head) == 0) {
            *at = c;
            return VT_OK;
        }
    }
    return VT_OK;
}

vt_status tpl_search(tpl_run *r, const char *s, size_t len, const tpl_str *sub, bool last,
                     const char **at)
{
    *at = NULL;
    if (sub->len > len)
        return VT_OK;
    if (sub->len == 0) {
        *at = last ? s + len : s;
        return VT_OK;
    }
    if (last) {
        TRY(tpl_charge(r, len / 64));
        return tpl_search_back(r, s, len, sub, at);
    }
    *at = memmem(s, len, sub->data, sub->len);
    /* memmem compares at most 256 bytes at a position. A match ends it early. */
    return tpl_charge(r, (*at ? (size_t)(*at - s) + sub->len : len) / 16);
}

/* ---- text being built ---- */

/* Every 64 bytes of the text cost a step, however small the pieces are. */
vt_status tpl_text_add(tpl_run *r, tpl_text *t, const void *bytes, size_t n)
{
    size_t need;
    if (!vt_add_size(t->len, n, &need) || need > SIZE_MAX / 4)
        return tpl_limit(r, "a text is too long");
    if (need + 1 > t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        while (cap < need + 1)
            cap *= 2;
        char *data = tpl_alloc(r, cap, 1);
        if (!data)
            return VT_ERR_MEMORY;
        if (t->len > 0)
            memcpy(data, t->data, t->len);
        t->data = data;
        t->cap = cap;
    }
    if (n > 0)
        memcpy(t->data + t->len, bytes, n);
    size_t steps = need / 64 - t->len / 64;
    t->len = need;
    t->data[need] = '\0';
    return tpl_charge(r, steps);
}

vt_status tpl_text_puts(tpl_run *r, tpl_text *t, const char *s)
{
    return tpl_text_add(r, t, s, strlen(s));
}

/* Adds runs of at most 4 KiB, which hold the bytes as often as they fit. */
vt_status tpl_text_fill(tpl_run *r, tpl_text *t, const char *bytes, size_t n, int64_t times)
{
    char run[4096];
    int64_t per_run = n > 0 && n <= sizeof run ? (int64_t)(sizeof run / n) : 1;
    if (n == 0 || times <= 0)
        return VT_OK;
    per_run = per_run < times ? per_run : times;
    for (int64_t i = 0; i < per_run && n <= sizeof run; i++)
        memcpy(run + (size_t)i * n, bytes, n);
    for (; times > 0; times -= per_run) {
        per_run = per_run < times ? per_run : times;
        TRY(tpl_text_add(r, t, n <= sizeof run ? run : bytes, n * (size_t)per_run));
    }
    return VT_OK;
}

vt_status tpl_text_value(tpl_run *r, const tpl_text *t, tpl_value *out)
{
    return tpl_str_wrap(r, t->data ? t->data : "", t->len, out);
}

vt_status tpl_put_case(tpl_run *r, tpl_text *t, const char *s, size_t begin, size_t len, tpl_case k)
{
    enum { SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };
    TRY(tpl_charge(r, (len - begin) / 8));
    for (size_t i = begin; i < len;) {
        uint32_t c, to[3];
        size_t n = tpl_next(s + i, &c);
        int n_to = tpl_char_case(c, k, to);
        if (c == SIGMA && k == TPL_LOWER && tpl_is_final_sigma(s, len, i))
            to[0] = FINAL_SIGMA;
        for (int j = 0; j < n_to; j++) {
            char utf8[4];
            TRY(tpl_text_add(r, t, utf8, (size_t)vt_utf8_put(to[j], utf8)));
        }
        i += n;
    }
    return VT_OK;
}
