/* Values as text: str() and repr() as Python writes them.
 *
 * Floats are written with the fewest digits that read back as the same double. Any number of at
 * most 15 digits survives the way through a double, so 15 digits without their zeros at the end are
 * the shortest form if they read back; otherwise it has 16 or 17 digits. Subnormal doubles hold
 * fewer than 15 digits, so there the search begins with one digit.
 */
#include "text/template/values.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The number of significant digits of the shortest form; `digits` holds it as printf's %e. */
static int shortest(double d, char *digits, size_t max)
{
    int precision = fabs(d) < DBL_MIN ? 1 : 15;
    for (; precision <= 17; precision++) {
        snprintf(digits, max, "%.*e", precision - 1, d);
        if (strtod(digits, NULL) == d)
            break;
    }
    for (const char *end = strchr(digits, 'e'); precision > 1 && end[-1] == '0'; end--)
        precision--;
    return precision;
}

size_t tpl_format_float(double d, char *out)
{
    char digits[40];
    if (isnan(d) || isinf(d))
        return (size_t)snprintf(out, 40, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
    int precision = shortest(d, digits, sizeof digits);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(out, 40, "%.*e", precision - 1, d);
    int decimals = precision - 1 - exponent;
    return (size_t)snprintf(out, 40, "%.*f", decimals > 1 ? decimals : 1, d);
}

/* ---- repr() ---- */

static vt_status put_char_escape(tpl_run *r, tpl_text *t, uint32_t c)
{
    char escape[16];
    snprintf(escape, sizeof escape,
             c < 0x100     ? "\\x%02x"
             : c < 0x10000 ? "\\u%04x"
                           : "\\U%08x",
             (unsigned)c);
    return tpl_text_puts(r, t, escape);
}

static vt_status repr_string(tpl_run *r, tpl_text *t, const tpl_str *s)
{
    TRY(tpl_charge(r, s->len / 16));
    bool single = memchr(s->data, '\'', s->len) != NULL,
         twice = memchr(s->data, '"', s->len) != NULL;
    char quote = single && !twice ? '"' : '\'';
    TRY(tpl_text_add(r, t, &quote, 1));
    for (size_t i = 0; i < s->len;) {
        uint32_t c;
        size_t n = tpl_next(s->data + i, &c);
        const char *known = c == '\n'   ? "\\n"
                            : c == '\r' ? "\\r"
                            : c == '\t' ? "\\t"
                            : c == '\\' ? "\\\\"
                                        : NULL;
        if (known)
            TRY(tpl_text_puts(r, t, known));
        else if (c == (uint32_t)quote)
            TRY(tpl_text_puts(r, t, "\\'"));
        else if (tpl_is_printable(c))
            TRY(tpl_text_add(r, t, s->data + i, n));
        else
            TRY(put_char_escape(r, t, c));
        i += n;
    }
    return tpl_text_add(r, t, &quote, 1);
}

static vt_status repr_list(tpl_run *r, tpl_text *t, tpl_value v)
{
    const tpl_list *l = v.list;
    if (v.type == TPL_VIEW) {
        TRY(tpl_text_puts(r, t, l->kind));
        TRY(tpl_text_puts(r, t, "("));
    }
    TRY(tpl_text_puts(r, t, v.type == TPL_TUPLE ? "(" : "["));
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            TRY(tpl_text_puts(r, t, ", "));
        TRY(tpl_put_repr(r, t, l->at[i]));
    }
    if (v.type == TPL_TUPLE && l->n == 1)
        TRY(tpl_text_puts(r, t, ","));
    TRY(tpl_text_puts(r, t, v.type == TPL_TUPLE ? ")" : "]"));
    return v.type == TPL_VIEW ? tpl_text_puts(r, t, ")") : VT_OK;
}

static vt_status repr_dict(tpl_run *r, tpl_text *t, const tpl_dict *d)
{
    TRY(tpl_text_puts(r, t, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            TRY(tpl_text_puts(r, t, ", "));
        TRY(tpl_put_repr(r, t, d->entry[i].key));
        TRY(tpl_text_puts(r, t, ": "));
        TRY(tpl_put_repr(r, t, d->entry[i].value));
    }
    return tpl_text_puts(r, t, "}");
}

static vt_status repr_container(tpl_run *r, tpl_text *t, tpl_value v)
{
    TRY(tpl_enter(r));
    if (v.type == TPL_NAMESPACE) {
        TRY(tpl_text_puts(r, t, "<Namespace "));
        TRY(repr_dict(r, t, v.dict));
        TRY(tpl_text_puts(r, t, ">"));
    } else if (v.type == TPL_DICT) {
        TRY(repr_dict(r, t, v.dict));
    } else {
        TRY(repr_list(r, t, v));
    }
    tpl_leave(r);
    return VT_OK;
}

vt_status tpl_put_repr(tpl_run *r, tpl_text *t, tpl_value v)
{
    char number[80];
    TRY(tpl_charge(r, 1));
    switch (v.type) {
    case TPL_UNDEFINED:
        return tpl_text_puts(r, t, "Undefined");
    case TPL_NONE:
        return tpl_text_puts(r, t, "None");
    case TPL_BOOL:
        return tpl_text_puts(r, t, v.boolean ? "True" : "False");
    case TPL_INT:
        return tpl_text_add(r, t, number,
                            (size_t)snprintf(number, sizeof number, "%lld", (long long)v.integer));
    case TPL_FLOAT:
        TRY(tpl_charge(r, 64)); /* printf and strtod, a few times */
        return tpl_text_add(r, t, number, tpl_format_float(v.real, number));
    case TPL_STR:
        if (!v.markup)
            return repr_string(r, t, v.str);
        TRY(tpl_text_puts(r, t, "Markup("));
        TRY(repr_string(r, t, v.str));
        return tpl_text_puts(r, t, ")");
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
    case TPL_DICT:
    case TPL_NAMESPACE:
        return repr_container(r, t, v);
    case TPL_RANGE:
        snprintf(number, sizeof number,
                 v.range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)v.range->start, (long long)v.range->stop, (long long)v.range->step);
        return tpl_text_puts(r, t, number);
    case TPL_OBJECT:
        if (v.object->class->repr)
            return v.object->class->repr(r, v.object, t);
        /* fall through */
    default:
        return tpl_unsupported(r,
                               "a '%s' has no text of its own (in Python it is a memory address)",
                               tpl_type_name(v));
    }
}

vt_status tpl_put_str(tpl_run *r, tpl_text *t, tpl_value v)
{
    if (v.type == TPL_STR)
        return tpl_text_add(r, t, v.str->data, v.str->len);
    return v.type == TPL_UNDEFINED ? VT_OK : tpl_put_repr(r, t, v);
}

/* Strings as they are, anything else by str(). */
vt_status tpl_to_str(tpl_run *r, tpl_value v, tpl_value *out)
{
    tpl_text t = {0};
    if (v.type == TPL_STR) {
        *out = v;
        return VT_OK;
    }
    TRY(tpl_put_str(r, &t, v));
    return tpl_text_value(r, &t, out);
}

vt_status tpl_escape(tpl_run *r, tpl_value v, tpl_value *out)
{
    tpl_text t = {0};
    TRY(tpl_to_str(r, v, out));
    if (out->markup)
        return VT_OK;
    const char *s = out->str->data;
    TRY(tpl_charge(r, out->str->len / 16));
    for (size_t i = 0, n; i < out->str->len; i += n) {
        n = 1;
        switch (s[i]) {
        case '&':
            TRY(tpl_text_puts(r, &t, "&amp;"));
            break;
        case '<':
            TRY(tpl_text_puts(r, &t, "&lt;"));
            break;
        case '>':
            TRY(tpl_text_puts(r, &t, "&gt;"));
            break;
        case '\'':
            TRY(tpl_text_puts(r, &t, "&#39;"));
            break;
        case '"':
            TRY(tpl_text_puts(r, &t, "&#34;"));
            break;
        default:
            while (i + n < out->str->len && !memchr("&<>'\"", s[i + n], 5))
                n++;
            TRY(tpl_text_add(r, &t, s + i, n));
        }
    }
    TRY(tpl_text_value(r, &t, out));
    out->markup = true;
    return VT_OK;
}
