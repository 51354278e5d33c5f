#include "base/json_write.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void vt_json_begin(vt_json *w, vt_buf *out, int indent)
{
    memset(w, 0, sizeof *w);
    w->out = out;
    w->indent = indent;
}

void vt_json_line(vt_json *w) { vt_json_begin(w, &w->own, -1); }

void vt_json_object(vt_json *w)
{
    vt_json_line(w);
    vt_json_open(w, NULL, '{');
    w->whole = true;
}

void vt_json_release(vt_json *w) { vt_buf_release(&w->own); }

bool vt_json_end(vt_json *w)
{
    if (w->whole)
        vt_json_close(w);
    w->whole = false;
    assert(w->depth == 0);
    return !w->out->failed;
}

static void new_line(vt_json *w)
{
    if (w->indent < 0)
        return;
    vt_buf_putc(w->out, '\n');
    for (int i = 0; i < w->indent * w->depth; i++)
        vt_buf_putc(w->out, ' ');
}

/* Text without its quotes; ill-formed UTF-8 is replaced. */
static void escaped(vt_buf *out, const char *s, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i <= n; i++) {
        unsigned char c = i < n ? (unsigned char)s[i] : 0;
        if (i < n && c >= 0x20 && c != '"' && c != '\\')
            continue;
        vt_utf8_add_lossy(out, s + from, i - from);
        from = i + 1;
        if (i == n)
            break;
        if (c == '"' || c == '\\') {
            vt_buf_putc(out, '\\');
            vt_buf_putc(out, (char)c);
        } else if (c == '\n')
            vt_buf_puts(out, "\\n");
        else if (c == '\t')
            vt_buf_puts(out, "\\t");
        else if (c == '\r')
            vt_buf_puts(out, "\\r");
        else
            vt_buf_printf(out, "\\u%04x", c);
    }
}

/* The comma, the line and the key before a value. */
static void before(vt_json *w, const char *key)
{
    if (w->depth == 0)
        return;
    bool *some = &w->some[w->depth - 1];
    assert((key != NULL) == (w->close[w->depth - 1] == '}'));
    if (*some)
        vt_buf_putc(w->out, ',');
    *some = true;
    new_line(w);
    if (key) {
        vt_buf_putc(w->out, '"');
        escaped(w->out, key, strlen(key));
        vt_buf_puts(w->out, w->indent < 0 ? "\":" : "\": ");
    }
}

void vt_json_open(vt_json *w, const char *key, char bracket)
{
    assert(w->depth < VT_JSON_MAX_DEPTH);
    before(w, key);
    vt_buf_putc(w->out, bracket);
    w->close[w->depth] = bracket == '{' ? '}' : ']';
    w->some[w->depth++] = false;
}

void vt_json_close(vt_json *w)
{
    assert(w->depth > 0);
    bool some = w->some[--w->depth];
    if (some)
        new_line(w);
    vt_buf_putc(w->out, w->close[w->depth]);
}

void vt_json_string_n(vt_json *w, const char *key, const char *s, size_t n)
{
    before(w, key);
    vt_buf_putc(w->out, '"');
    escaped(w->out, s, n);
    vt_buf_putc(w->out, '"');
}

void vt_json_string(vt_json *w, const char *key, const char *s)
{
    if (s)
        vt_json_string_n(w, key, s, strlen(s));
    else
        vt_json_null(w, key);
}

void vt_json_printf(vt_json *w, const char *key, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0) {
        w->out->failed = true;
        return;
    }
    vt_json_string_n(w, key, text, (size_t)n);
    free(text);
}

void vt_json_int(vt_json *w, const char *key, int64_t value)
{
    before(w, key);
    vt_buf_printf(w->out, "%lld", (long long)value);
}

void vt_json_known(vt_json *w, const char *key, int64_t value)
{
    if (value < 0)
        vt_json_null(w, key);
    else
        vt_json_int(w, key, value);
}

void vt_json_ints(vt_json *w, const char *key, const int32_t *value, int32_t n)
{
    vt_json_open(w, key, '[');
    for (int32_t i = 0; i < n; i++)
        vt_json_int(w, NULL, value[i]);
    vt_json_close(w);
}

/* Writes a finite number that was printed as `text`. */
static void write_number(vt_json *w, const char *key, char *text)
{
    for (char *p = text; *p; p++) /* the program around us may have set another decimal point */
        if (!strchr("0123456789+-e", *p))
            *p = '.';
    vt_json_raw(w, key, text, strlen(text));
}

void vt_json_real(vt_json *w, const char *key, double value)
{
    if (!isfinite(value)) {
        vt_json_null(w, key);
        return;
    }
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    write_number(w, key, text);
}

void vt_json_float(vt_json *w, const char *key, float value)
{
    if (!isfinite(value)) {
        vt_json_null(w, key);
        return;
    }
    char text[40];
    for (int digits = 7; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    write_number(w, key, text);
}

void vt_json_fixed(vt_json *w, const char *key, double value, int digits)
{
    char text[400]; /* %.*f of the largest double has 309 digits before the point */
    if (!isfinite(value)) {
        vt_json_null(w, key);
        return;
    }
    snprintf(text, sizeof text, "%.*f", digits, value);
    vt_json_real(w, key, strtod(text, NULL));
}

void vt_json_bool(vt_json *w, const char *key, bool value)
{
    before(w, key);
    vt_buf_puts(w->out, value ? "true" : "false");
}

void vt_json_null(vt_json *w, const char *key)
{
    before(w, key);
    vt_buf_puts(w->out, "null");
}

void vt_json_raw(vt_json *w, const char *key, const char *json, size_t n)
{
    before(w, key);
    vt_buf_add(w->out, json, n);
}

void vt_json_take(vt_json *w, const char *key, vt_json *other)
{
    if (vt_json_end(other))
        vt_json_raw(w, key, other->out->data, other->out->len);
    else
        w->out->failed = true;
    vt_json_release(other);
}

void vt_json_quantity(vt_json *w, const char *key, double value, const char *unit, const char *tag)
{
    int indent = w->indent;
    vt_json_open(w, key, '{');
    w->indent = -1;
    vt_json_real(w, "value", value);
    if (unit)
        vt_json_string(w, "unit", unit);
    vt_json_string(w, "tag", isfinite(value) ? tag : "n/a");
    vt_json_close(w);
    w->indent = indent;
}

void vt_json_tagged(vt_json *w, const char *key, double value, int digits, const char *tag)
{
    char text[400];
    snprintf(text, sizeof text, "%.*f", digits, value); /* not finite: "nan", "inf" */
    vt_json_quantity(w, key, strtod(text, NULL), NULL, tag);
}
