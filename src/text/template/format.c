/* Values as text: str(), repr(), "%" formatting and str.format(), as Python writes them.
 *
 * Floats are written as repr() does: the shortest digits that read back as the same double, found
 * by trying 1 to 17 significant digits (at most 17 tries of strtod, of no weight beside a
 * rendering).
 *
 * Not there, and refused by name: %a and !a, "n" formats, thousands separators together with zero
 * padding.
 */
#include "text/template/impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 1000, NUMBER_BYTES = 1500 };

/* ---- str() and repr() ---- */

size_t tpl_format_float(double d, char *out)
{
    char digits[40];
    int precision = 1;
    if (isnan(d) || isinf(d))
        return (size_t)snprintf(out, 40, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
    for (; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, d);
        if (strtod(digits, NULL) == d)
            break;
    }
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(out, 40, "%.*e", precision - 1, d);
    int decimals = precision - 1 - exponent;
    return (size_t)snprintf(out, 40, "%.*f", decimals > 1 ? decimals : 1, d);
}

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
    bool single = memchr(s->data, '\'', s->len) != NULL,
         twice = memchr(s->data, '"', s->len) != NULL;
    char quote = single && !twice ? '"' : '\'';
    if (s->markup)
        TRY(tpl_text_puts(r, t, "Markup("));
    TRY(tpl_text_add(r, t, &quote, 1));
    for (size_t i = 0; i < s->len;) {
        uint32_t c;
        size_t n = tpl_decode(s->data + i, s->len - i, &c);
        const char *known = c == '\n'   ? "\\n"
                            : c == '\r' ? "\\r"
                            : c == '\t' ? "\\t"
                            : c == '\\' ? "\\\\"
                                        : NULL;
        if (known)
            TRY(tpl_text_puts(r, t, known));
        else if (c == (uint32_t)quote)
            TRY(tpl_text_puts(r, t, "\\'"));
        else if (tpl_char_is(c, TPL_C_PRINTABLE))
            TRY(tpl_text_add(r, t, s->data + i, n));
        else
            TRY(put_char_escape(r, t, c));
        i += n;
    }
    TRY(tpl_text_add(r, t, &quote, 1));
    return s->markup ? tpl_text_puts(r, t, ")") : VT_OK;
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

static vt_status repr_macro(tpl_run *r, tpl_text *t, const tpl_macro *m)
{
    TRY(tpl_text_puts(r, t, m->def->name ? "<Macro '" : "<Macro anonymous>"));
    if (!m->def->name)
        return VT_OK;
    TRY(tpl_text_puts(r, t, m->def->name));
    return tpl_text_puts(r, t, "'>");
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
        return tpl_text_add(r, t, number, tpl_format_float(v.real, number));
    case TPL_STR:
        return repr_string(r, t, v.str);
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
    case TPL_MACRO:
        return repr_macro(r, t, v.macro);
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

/* Strings as they are, markup included; anything else by str(). */
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

vt_status tpl_put_escaped(tpl_run *r, tpl_text *t, tpl_value v)
{
    tpl_value s;
    TRY(tpl_to_str(r, v, &s));
    if (s.str->markup)
        return tpl_text_add(r, t, s.str->data, s.str->len);
    for (size_t i = 0; i < s.str->len; i++) {
        char c = s.str->data[i];
        const char *entity = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '"'  ? "&#34;"
                             : c == '\'' ? "&#39;"
                                         : NULL;
        TRY(entity ? tpl_text_puts(r, t, entity) : tpl_text_add(r, t, &c, 1));
    }
    return VT_OK;
}

/* ---- a formatted piece: sign, prefix, body, padded ---- */

typedef struct spec {
    char fill[4];
    size_t n_fill;
    char align; /* '<' '>' '^' '=' or 0 */
    char sign;  /* '+' ' ' or '-' */
    bool alternate;
    char group;               /* ',' '_' or 0 */
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
} spec;

static vt_status put_padded(tpl_run *r, tpl_text *t, const spec *s, char align, const char *sign,
                            const char *body, size_t len)
{
    int64_t chars = (int64_t)(strlen(sign) + tpl_count_chars(body, len));
    int64_t pad = s->width > chars ? s->width - chars : 0;
    int64_t left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
    if (align == '=')
        TRY(tpl_text_puts(r, t, sign));
    TRY(tpl_text_fill(r, t, s->fill, s->n_fill, left));
    if (align != '=')
        TRY(tpl_text_puts(r, t, sign));
    TRY(tpl_text_add(r, t, body, len));
    return tpl_text_fill(r, t, s->fill, s->n_fill, pad - left);
}

/* Separators into the leading digits of `body`, every `every` digits. */
static void group_digits(char *body, char separator, int every)
{
    char copy[NUMBER_BYTES];
    size_t n = 0, digits = strspn(body, "0123456789abcdefABCDEF"), len = strlen(body);
    for (size_t i = 0; i < len && n + 2 < sizeof copy; i++) {
        if (i > 0 && i < digits && (digits - i) % (size_t)every == 0)
            copy[n++] = separator;
        copy[n++] = body[i];
    }
    copy[n] = '\0';
    memcpy(body, copy, n + 1);
}

static vt_status put_number(tpl_run *r, tpl_text *t, const spec *s, bool negative,
                            const char *prefix, char *body, int every)
{
    char sign[8];
    char align = s->align ? s->align : '>';
    if (s->group && s->fill[0] == '0' && align == '=' && s->width > 0)
        return tpl_unsupported(r, "a format with separators and zero padding is not supported");
    if (s->group && every > 0 && strlen(body) < NUMBER_BYTES / 2)
        group_digits(body, s->group, every);
    snprintf(sign, sizeof sign, "%s%s",
             negative         ? "-"
             : s->sign == '+' ? "+"
             : s->sign == ' ' ? " "
                              : "",
             prefix);
    return put_padded(r, t, s, align, sign, body, strlen(body));
}

static vt_status put_integer(tpl_run *r, tpl_text *t, const spec *s, int64_t v)
{
    char body[80 + MAX_PRECISION], digits[72];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    int base = s->type == 'b' ? 2 : s->type == 'o' ? 8 : s->type == 'x' || s->type == 'X' ? 16 : 10;
    const char *prefix = !s->alternate    ? ""
                         : base == 2      ? "0b"
                         : base == 8      ? "0o"
                         : s->type == 'x' ? "0x"
                         : s->type == 'X' ? "0X"
                                          : "";
    size_t n = sizeof digits - 1;
    digits[n] = '\0';
    do
        digits[--n] = (s->type == 'X' ? "0123456789ABCDEF"
                                      : "0123456789abcdef")[u % (unsigned)base];
    while ((u /= (unsigned)base) > 0);
    size_t len = sizeof digits - 1 - n,
           zeros = s->precision > (int64_t)len ? (size_t)s->precision - len : 0;
    memset(body, '0', zeros); /* precision <= MAX_PRECISION */
    memcpy(body + zeros, digits + n, len + 1);
    return put_number(r, t, s, v < 0, prefix, body, base == 10 ? 3 : 4);
}

static vt_status put_real(tpl_run *r, tpl_text *t, const spec *s, double v)
{
    char body[NUMBER_BYTES], c_format[16];
    bool percent = s->type == '%', negative = signbit(v) && !isnan(v);
    char type = percent ? 'f' : s->type ? s->type : 'g';
    double magnitude = fabs(percent ? v * 100 : v);
    if (isnan(v) || isinf(v)) {
        bool upper = type == 'E' || type == 'F' || type == 'G';
        snprintf(body, sizeof body, "%s", isnan(v) ? upper ? "NAN" : "nan" : upper ? "INF" : "inf");
    } else if (!s->type && s->precision < 0) {
        tpl_format_float(magnitude, body);
    } else {
        snprintf(c_format, sizeof c_format, "%%%s.*%c", s->alternate ? "#" : "", type);
        snprintf(body, sizeof body - 4, c_format, s->precision < 0 ? 6 : (int)s->precision,
                 magnitude);
        if (!s->type && !strpbrk(body, ".e")) /* without a type there is a digit behind the point */
            memcpy(body + strlen(body), ".0", 3);
    }
    if (percent)
        memcpy(body + strlen(body), "%", 2);
    return put_number(r, t, s, negative, "", body, 3);
}

static vt_status put_string(tpl_run *r, tpl_text *t, const spec *s, const tpl_str *v)
{
    size_t len = v->len;
    if (s->precision >= 0 && (size_t)s->precision < v->n_chars)
        len = tpl_str_offset(v, (size_t)s->precision);
    return put_padded(r, t, s, s->align ? s->align : '<', "", v->data, len);
}

/* ---- "%" ---- */

typedef struct percent {
    tpl_run *r;
    const tpl_str *format;
    size_t pos;
    tpl_value args;
    size_t n_args, next; /* positional ones taken */
    tpl_text out;
} percent;

static vt_status next_argument(percent *p, tpl_value *out)
{
    if (p->next >= p->n_args)
        return tpl_fail(p->r, "not enough arguments for format string");
    *out = p->args.type == TPL_TUPLE ? p->args.list->at[p->next] : p->args;
    p->next++;
    return VT_OK;
}

/* A width or precision: digits or "*". */
static vt_status percent_size(percent *p, int64_t *out, int64_t max)
{
    const char *s = p->format->data;
    if (s[p->pos] == '*') {
        tpl_value v;
        p->pos++;
        TRY(next_argument(p, &v));
        if (!tpl_is_int(v))
            return tpl_fail(p->r, "* wants int");
        *out = tpl_as_int(v);
    } else {
        for (*out = 0; s[p->pos] >= '0' && s[p->pos] <= '9' && *out <= max; p->pos++)
            *out = *out * 10 + (s[p->pos] - '0');
    }
    if (*out > max || *out < -max)
        return tpl_limit(p->r, "a width or precision in a format is beyond %lld", (long long)max);
    return VT_OK;
}

static vt_status percent_flags(percent *p, spec *s)
{
    for (;; p->pos++) {
        char c = p->format->data[p->pos];
        if (c == '-')
            s->align = '<';
        else if (c == '0' && s->align != '<')
            s->align = '=';
        else if (c == '+' || (c == ' ' && s->sign != '+'))
            s->sign = c;
        else if (c == '#')
            s->alternate = true;
        else if (c != '0' && c != ' ')
            break;
    }
    TRY(percent_size(p, &s->width, MAX_WIDTH));
    if (s->width < 0) {
        s->align = '<';
        s->width = -s->width;
    }
    if (p->format->data[p->pos] == '.') {
        p->pos++;
        TRY(percent_size(p, &s->precision, MAX_PRECISION));
        s->precision = s->precision < 0 ? 0 : s->precision;
    }
    while (p->format->data[p->pos] && strchr("hlL", p->format->data[p->pos]))
        p->pos++;
    return VT_OK;
}

static vt_status percent_text(percent *p, spec *s, tpl_value v)
{
    tpl_text text = {0};
    tpl_value str;
    if (s->type == 'r')
        TRY(tpl_put_repr(p->r, &text, v));
    else
        TRY(tpl_put_str(p->r, &text, v));
    if (p->format->markup && !(v.type == TPL_STR && v.str->markup && s->type == 's')) {
        TRY(tpl_text_value(p->r, &text, &str));
        text = (tpl_text){0};
        TRY(tpl_put_escaped(p->r, &text, str));
    }
    TRY(tpl_text_value(p->r, &text, &str));
    s->align = s->align == '<' ? '<' : '>';
    return put_string(p->r, &p->out, s, str.str);
}

static vt_status percent_char(percent *p, spec *s, tpl_value v)
{
    char utf8[4];
    tpl_value str = v;
    if (tpl_is_int(v)) {
        int64_t c = tpl_as_int(v);
        if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            return tpl_fail(p->r, "%%c arg not in range(0x110000), or a surrogate");
        TRY(tpl_str_copy(p->r, utf8, tpl_encode((uint32_t)c, utf8), &str));
    }
    if (str.type != TPL_STR || str.str->n_chars != 1)
        return tpl_fail(p->r, "%%c requires int or char");
    s->align = s->align == '<' ? '<' : '>';
    s->precision = -1;
    return put_string(p->r, &p->out, s, str.str);
}

static vt_status percent_value(percent *p, spec *s, tpl_value v)
{
    s->fill[0] = s->align == '=' && !strchr("srac", s->type) ? '0' : ' ';
    s->n_fill = 1;
    if (s->type == 's' || s->type == 'r')
        return percent_text(p, s, v);
    if (s->type == 'c')
        return percent_char(p, s, v);
    if (!tpl_is_number(v))
        return tpl_fail(p->r, "%%%c format: a number is required, not %s", s->type,
                        tpl_type_name(v));
    if (strchr("eEfFgG", s->type))
        return put_real(p->r, &p->out, s, tpl_as_float(v));
    bool decimal = strchr("diu", s->type) != NULL;
    if (v.type == TPL_FLOAT && !decimal)
        return tpl_fail(p->r, "%%%c format: an integer is required, not float", s->type);
    if (v.type == TPL_FLOAT && !(fabs(v.real) < 9.2e18))
        return tpl_fail(p->r, "%%%c format: the number is not finite or passes 64 bits", s->type);
    s->type = decimal ? 'd' : s->type;
    return put_integer(p->r, &p->out, s, v.type == TPL_FLOAT ? (int64_t)v.real : tpl_as_int(v));
}

/* One %... at pos (behind the percent sign). */
static vt_status percent_one(percent *p)
{
    const char *s = p->format->data;
    spec spec_ = {.fill = " ", .n_fill = 1, .precision = -1};
    tpl_value v = {.type = TPL_MISSING};
    if (s[p->pos] == '(') {
        size_t begin = ++p->pos, open = 1;
        for (; p->pos < p->format->len && open > 0; p->pos++)
            open += (s[p->pos] == '(') - (s[p->pos] == ')');
        if (open > 0)
            return tpl_fail(p->r, "incomplete format key");
        if (p->args.type != TPL_DICT)
            return tpl_fail(p->r, "format requires a mapping");
        tpl_value key;
        TRY(tpl_str_copy(p->r, s + begin, p->pos - 1 - begin, &key));
        tpl_value *found;
        TRY(tpl_dict_find(p->r, p->args.dict, key, &found));
        if (!found)
            return tpl_fail(p->r, "the format's key '%.60s' is not in the mapping", key.str->data);
        v = *found;
    }
    TRY(percent_flags(p, &spec_));
    if (p->pos >= p->format->len)
        return tpl_fail(p->r, "incomplete format");
    spec_.type = s[p->pos++];
    if (spec_.type == '%')
        return tpl_text_puts(p->r, &p->out, "%");
    if (spec_.type == 'a')
        return tpl_unsupported(p->r, "the format %%a is not supported");
    if (!strchr("srcdiuxXoeEfFgG", spec_.type))
        return tpl_fail(p->r, "unsupported format character '%c'", spec_.type);
    if (v.type == TPL_MISSING)
        TRY(next_argument(p, &v));
    return percent_value(p, &spec_, v);
}

vt_status tpl_percent(tpl_run *r, const tpl_str *format, tpl_value args, tpl_value *out)
{
    percent p = {.r = r,
                 .format = format,
                 .args = args,
                 .n_args = args.type == TPL_TUPLE ? args.list->n : 1};
    bool mapping = args.type == TPL_DICT || args.type == TPL_LIST || args.type == TPL_RANGE ||
                   args.type == TPL_UNDEFINED;
    while (p.pos < format->len) {
        const char *at = memchr(format->data + p.pos, '%', format->len - p.pos);
        size_t end = at ? (size_t)(at - format->data) : format->len;
        TRY(tpl_text_add(r, &p.out, format->data + p.pos, end - p.pos));
        p.pos = end + 1;
        if (at)
            TRY(percent_one(&p));
    }
    if (p.next < p.n_args && !mapping)
        return tpl_fail(r, "not all arguments converted during string formatting");
    TRY(tpl_text_value(r, &p.out, out));
    return tpl_str_markup(r, *out, format->markup, out);
}

/* ---- str.format() ---- */

static int64_t read_size(const char **s, const char *end)
{
    int64_t n = 0;
    for (; *s < end && **s >= '0' && **s <= '9'; (*s)++)
        n = n > MAX_WIDTH ? n : n * 10 + (**s - '0');
    return n;
}

static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
static vt_status parse_spec(tpl_run *r, const char *s, size_t len, spec *out)
{
    const char *end = s + len;
    uint32_t c;
    size_t n_given = 0; /* bytes of a fill character that was given */
    *out = (spec){.fill = " ", .n_fill = 1, .sign = '-', .precision = -1};
    size_t n = len ? tpl_decode(s, len, &c) : 0;
    if (n > 0 && n < len && is_align(s[n])) {
        memcpy(out->fill, s, n);
        out->n_fill = n_given = n;
        out->align = s[n];
        s += n + 1;
    } else if (len > 0 && is_align(*s)) {
        out->align = *s++;
    }
    if (s < end && strchr("+- ", *s))
        out->sign = *s++;
    if (s < end && *s == '#') {
        out->alternate = true;
        s++;
    }
    if (s < end && *s == '0') {
        out->align = out->align ? out->align : '=';
        if (n_given == 0)
            out->fill[0] = '0';
        s++;
    }
    out->width = read_size(&s, end);
    if (s < end && (*s == ',' || *s == '_'))
        out->group = *s++;
    if (s < end && *s == '.') {
        s++;
        if (s == end || *s < '0' || *s > '9')
            return tpl_fail(r, "Format specifier missing precision");
        out->precision = read_size(&s, end);
    }
    if (s < end)
        out->type = *s++;
    if (s < end)
        return tpl_fail(r, "Invalid format specifier");
    if (out->width > MAX_WIDTH || out->precision > MAX_PRECISION)
        return tpl_limit(r, "a width or precision in a format is beyond %d or %d", MAX_WIDTH,
                         MAX_PRECISION);
    return VT_OK;
}

static vt_status put_spec_int(tpl_run *r, tpl_text *t, const spec *s, int64_t v)
{
    char utf8[4];
    if (s->type && strchr("eEfFgG%", s->type))
        return put_real(r, t, s, (double)v);
    if (s->precision >= 0)
        return tpl_fail(r, "Precision not allowed in integer format specifier");
    if (s->type == 'c') {
        if (v < 0 || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
            return tpl_fail(r, "%%c arg not in range(0x110000), or a surrogate");
        return put_padded(r, t, s, s->align ? s->align : '<', "", utf8,
                          tpl_encode((uint32_t)v, utf8));
    }
    if (s->type && !strchr("bdoxX", s->type))
        return tpl_fail(r, "Unknown format code '%c' for object of type 'int'", s->type);
    if (s->group == ',' && s->type && s->type != 'd')
        return tpl_fail(r, "Cannot specify ',' with '%c'.", s->type);
    return put_integer(r, t, s, v);
}

vt_status tpl_put_spec(tpl_run *r, tpl_text *t, tpl_value v, const char *text, size_t len)
{
    spec s;
    if (len == 0)
        return tpl_put_str(r, t, v);
    TRY(parse_spec(r, text, len, &s));
    if (s.type == 'n')
        return tpl_unsupported(r, "the format code 'n' is not supported");
    if (tpl_is_int(v))
        return put_spec_int(r, t, &s, tpl_as_int(v));
    if (v.type == TPL_FLOAT) {
        if (s.type && !strchr("eEfFgG%", s.type))
            return tpl_fail(r, "Unknown format code '%c' for object of type 'float'", s.type);
        return put_real(r, t, &s, v.real);
    }
    if (v.type != TPL_STR)
        return tpl_fail(r, "unsupported format string passed to %s.__format__", tpl_type_name(v));
    bool zero = s.align == '=' && s.fill[0] == '0' &&
                !memchr(text, '=', len); /* a plain 0 pads on the right */
    if ((s.type && s.type != 's') || (s.align == '=' && !zero) || s.sign != '-' || s.alternate ||
        s.group)
        return tpl_fail(r, "the format specification does not fit a str");
    if (zero)
        s.align = '<';
    return put_string(r, t, &s, v.str);
}

typedef struct formatter {
    tpl_run *r;
    const tpl_call *call;
    bool markup;
    int32_t next; /* automatic numbering; -1: numbers were given */
} formatter;

static vt_status field_first(formatter *f, const char *s, size_t len, tpl_value *out)
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
    TRY(field_first(f, s, n, out));
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

static vt_status format_into(formatter *f, tpl_text *t, const char *s, size_t len, int depth);

/* One {field!conversion:spec}, s without its braces. */
static vt_status format_field(formatter *f, tpl_text *t, const char *s, size_t len, int depth)
{
    size_t name = 0, brackets = 0;
    while (name < len && (brackets > 0 || (s[name] != '!' && s[name] != ':'))) {
        brackets += s[name] == '[';
        brackets -= s[name] == ']' && brackets > 0;
        name++;
    }
    tpl_value v;
    tpl_text spec_text = {0}, piece = {0};
    TRY(field_value(f, s, name, &v));
    size_t at = name;
    if (at < len && s[at] == '!') {
        char conversion = at + 1 < len ? s[at + 1] : 0;
        at += 2;
        if (conversion == 'a')
            return tpl_unsupported(f->r, "the conversion !a is not supported");
        if ((conversion != 's' && conversion != 'r') || (at < len && s[at] != ':'))
            return tpl_fail(f->r, "a conversion in a format string is malformed");
        if (conversion == 'r')
            TRY(tpl_put_repr(f->r, &piece, v));
        else
            TRY(tpl_put_str(f->r, &piece, v));
        TRY(tpl_text_value(f->r, &piece, &v));
        piece = (tpl_text){0};
    }
    if (at < len)
        TRY(format_into(f, &spec_text, s + at + 1, len - at - 1, depth + 1));
    if (!f->markup)
        return tpl_put_spec(f->r, t, v, spec_text.data ? spec_text.data : "", spec_text.len);
    TRY(tpl_put_spec(f->r, &piece, v, spec_text.data ? spec_text.data : "", spec_text.len));
    bool safe = v.type == TPL_STR && v.str->markup;
    TRY(tpl_text_value(f->r, &piece, &v));
    TRY(tpl_str_markup(f->r, v, safe, &v));
    return tpl_put_escaped(f->r, t, v);
}

static vt_status format_into(formatter *f, tpl_text *t, const char *s, size_t len, int depth)
{
    if (depth > 2)
        return tpl_fail(f->r, "Max string recursion exceeded");
    for (size_t i = 0; i < len;) {
        if ((s[i] == '{' || s[i] == '}') && i + 1 < len && s[i + 1] == s[i] && depth == 0) {
            TRY(tpl_text_add(f->r, t, s + i, 1));
            i += 2;
            continue;
        }
        if (s[i] == '}')
            return tpl_fail(f->r, "Single '}' encountered in format string");
        if (s[i] != '{') {
            TRY(tpl_text_add(f->r, t, s + i, 1));
            i++;
            continue;
        }
        size_t end = i + 1;
        for (int open = 1; end < len; end++) {
            open += (s[end] == '{') - (s[end] == '}');
            if (open == 0)
                break;
        }
        if (end >= len)
            return tpl_fail(f->r, "expected '}' before end of string");
        TRY(format_field(f, t, s + i + 1, end - i - 1, depth));
        i = end + 1;
    }
    return VT_OK;
}

vt_status tpl_str_format(tpl_run *r, const tpl_str *format, const tpl_call *call, tpl_value *out)
{
    formatter f = {.r = r, .call = call, .markup = format->markup};
    tpl_text t = {0};
    TRY(format_into(&f, &t, format->data, format->len, 0));
    TRY(tpl_text_value(r, &t, out));
    return tpl_str_markup(r, *out, format->markup, out);
}
