/* Formatting as Python's "%" operator does it, and the format specifications that str.format()
 * shares with it:
 *
 *   "%"      %[(key)][-0+ ][width][.precision]{s r d i f F e E g G x %}
 *   format   [[fill]<>^][+- ][0][width][,][.precision]{s d f F e E g G x %}
 *
 * Not there, and refused by name: other conversions, "*" as a width, "=" and "#", separators
 * together with zero padding. No chat template uses them.
 */
#include "text/template/values.h"

#include <math.h>
#include <stdio.h>

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 1000, NUMBER_BYTES = 1500 };

/* ---- one formatted piece: sign and body, padded ---- */

typedef struct spec {
    char fill[4];
    size_t n_fill;
    char align;               /* '<' '>' '^', '=' (zeros after the sign) or 0 */
    char sign;                /* '+' ' ' or '-' */
    bool group;               /* commas between thousands */
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
} spec;

static vt_status put_padded(tpl_run *r, tpl_text *t, const spec *s, char align, const char *sign,
                            const char *body, size_t len)
{
    TRY(tpl_charge(r, len / 64));
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

/* A comma before every third of the leading digits. */
static void group_digits(char *body)
{
    char copy[NUMBER_BYTES];
    size_t n = 0, digits = strspn(body, "0123456789"), len = strlen(body);
    for (size_t i = 0; i < len && n + 2 < sizeof copy; i++) {
        if (i > 0 && i < digits && (digits - i) % 3 == 0)
            copy[n++] = ',';
        copy[n++] = body[i];
    }
    copy[n] = '\0';
    memcpy(body, copy, n + 1);
}

static vt_status put_number(tpl_run *r, tpl_text *t, const spec *s, bool negative, char *body)
{
    const char *sign = negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    if (s->group && s->align == '=' && s->width > 0)
        return tpl_unsupported(r, "a format with separators and zero padding is not supported");
    if (s->group && strlen(body) < NUMBER_BYTES / 2)
        group_digits(body);
    return put_padded(r, t, s, s->align ? s->align : '>', sign, body, strlen(body));
}

static vt_status put_integer(tpl_run *r, tpl_text *t, const spec *s, int64_t v)
{
    char body[80 + MAX_PRECISION], digits[32];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    int n = snprintf(digits, sizeof digits, s->type == 'x' ? "%llx" : "%llu",
                     (unsigned long long)u);
    size_t zeros = s->precision > n ? (size_t)(s->precision - n) : 0;
    memset(body, '0', zeros); /* precision <= MAX_PRECISION */
    memcpy(body + zeros, digits, (size_t)n + 1);
    return put_number(r, t, s, v < 0, body);
}

static vt_status put_real(tpl_run *r, tpl_text *t, const spec *s, double v)
{
    char body[NUMBER_BYTES], c_format[16];
    bool percent = s->type == '%', negative = signbit(v) && !isnan(v);
    char type = percent ? 'f' : s->type ? s->type : 'g';
    double magnitude = fabs(percent ? v * 100 : v);
    TRY(tpl_charge(r, 128)); /* printf of up to 1,300 digits */
    if (isnan(v) || isinf(v)) {
        bool upper = type == 'E' || type == 'F' || type == 'G';
        snprintf(body, sizeof body, "%s", isnan(v) ? upper ? "NAN" : "nan" : upper ? "INF" : "inf");
    } else if (!s->type && s->precision < 0) {
        tpl_format_float(magnitude, body);
    } else {
        snprintf(c_format, sizeof c_format, "%%.*%c", type);
        snprintf(body, sizeof body - 4, c_format, s->precision < 0 ? 6 : (int)s->precision,
                 magnitude);
        if (!s->type && !strpbrk(body, ".e")) /* without a type there is a digit after the point */
            memcpy(body + strlen(body), ".0", 3);
    }
    if (percent)
        memcpy(body + strlen(body), "%", 2);
    return put_number(r, t, s, negative, body);
}

static vt_status put_string(tpl_run *r, tpl_text *t, const spec *s, const tpl_str *v)
{
    size_t len = v->len;
    if (s->precision >= 0 && (size_t)s->precision < v->n_chars)
        len = tpl_str_offset(v, (size_t)s->precision);
    return put_padded(r, t, s, s->align ? s->align : '<', "", v->data, len);
}

/* Digits at *s, up to a number beyond every limit. */
static int64_t read_size(const char **s)
{
    int64_t n = 0;
    for (; **s >= '0' && **s <= '9'; (*s)++)
        n = n > MAX_WIDTH ? n : n * 10 + (**s - '0');
    return n;
}

static vt_status check_sizes(tpl_run *r, const spec *s)
{
    if (s->width > MAX_WIDTH || s->precision > MAX_PRECISION)
        return tpl_limit(r, "a width or precision in a format is beyond %d or %d", MAX_WIDTH,
                         MAX_PRECISION);
    return VT_OK;
}

/* ---- "%" ---- */

typedef struct percent {
    tpl_run *r;
    const char *at, *end; /* in the format */
    bool markup;          /* what is inserted is escaped */
    tpl_value args;
    size_t n_args, next; /* positional ones taken */
    tpl_text out;
} percent;

static vt_status percent_flags(percent *p, spec *s)
{
    for (;; p->at++) {
        char c = *p->at;
        if (c == '-')
            s->align = '<';
        else if (c == '0' && s->align != '<')
            s->align = '=';
        else if (c == '+' || (c == ' ' && s->sign != '+'))
            s->sign = c;
        else if (c != '0' && c != ' ')
            break;
    }
    s->width = read_size(&p->at);
    if (*p->at == '.') {
        p->at++;
        s->precision = read_size(&p->at);
    }
    return check_sizes(p->r, s);
}

/* The value of %(key). */
static vt_status percent_key(percent *p, tpl_value *out)
{
    const char *begin = ++p->at;
    int64_t open = 1;
    for (; p->at < p->end && open > 0; p->at++)
        open += (*p->at == '(') - (*p->at == ')');
    if (open > 0)
        return tpl_fail(p->r, "incomplete format key");
    if (p->args.type != TPL_DICT)
        return tpl_fail(p->r, "format requires a mapping");
    tpl_value key, *found;
    TRY(tpl_str_copy(p->r, begin, (size_t)(p->at - 1 - begin), &key));
    TRY(tpl_dict_find(p->r, p->args.dict, key, &found));
    if (!found)
        return tpl_fail(p->r, "the format's key '%.60s' is not in the mapping", key.str->data);
    *out = *found;
    return VT_OK;
}

static vt_status percent_text(percent *p, spec *s, tpl_value v)
{
    tpl_text text = {0};
    tpl_value str;
    TRY(s->type == 'r' ? tpl_put_repr(p->r, &text, v) : tpl_put_str(p->r, &text, v));
    TRY(tpl_text_value(p->r, &text, &str));
    str.markup = v.type == TPL_STR && v.markup && s->type == 's';
    if (p->markup)
        TRY(tpl_escape(p->r, str, &str));
    s->align = s->align == '<' ? '<' : '>';
    return put_string(p->r, &p->out, s, str.str);
}

static vt_status percent_value(percent *p, spec *s, tpl_value v)
{
    if (s->type == 's' || s->type == 'r')
        return percent_text(p, s, v);
    s->fill[0] = s->align == '=' ? '0' : ' ';
    if (!tpl_is_number(v))
        return tpl_fail(p->r, "%%%c format: a number is required, not %s", s->type,
                        tpl_type_name(v));
    if (strchr("eEfFgG", s->type))
        return put_real(p->r, &p->out, s, tpl_as_float(v));
    if (v.type == TPL_FLOAT && s->type == 'x')
        return tpl_fail(p->r, "%%x format: an integer is required, not float");
    if (v.type == TPL_FLOAT && !(fabs(v.real) < 9.2e18))
        return tpl_fail(p->r, "%%%c format: the number is not finite or passes 64 bits", s->type);
    return put_integer(p->r, &p->out, s, v.type == TPL_FLOAT ? (int64_t)v.real : tpl_as_int(v));
}

/* One conversion; p->at stands after its percent sign. */
static vt_status percent_one(percent *p)
{
    spec s = {.fill = " ", .n_fill = 1, .precision = -1};
    tpl_value v = {.type = TPL_MISSING};
    if (*p->at == '(')
        TRY(percent_key(p, &v));
    TRY(percent_flags(p, &s));
    if (p->at >= p->end)
        return tpl_fail(p->r, "incomplete format");
    s.type = *p->at++;
    if (s.type == '%')
        return tpl_text_puts(p->r, &p->out, "%");
    if (s.type == '*' || strchr("acouX#", s.type))
        return tpl_unsupported(p->r, "'%c' in a %% format is not supported", s.type);
    if (!strchr("srdixeEfFgG", s.type))
        return tpl_fail(p->r, "unsupported format character '%c'", s.type);
    if (v.type == TPL_MISSING) {
        if (p->next >= p->n_args)
            return tpl_fail(p->r, "not enough arguments for format string");
        v = p->args.type == TPL_TUPLE ? p->args.list->at[p->next] : p->args;
        p->next++;
    }
    return percent_value(p, &s, v);
}

vt_status tpl_percent(tpl_run *r, tpl_value format, tpl_value args, tpl_value *out)
{
    percent p = {.r = r,
                 .at = format.str->data,
                 .end = format.str->data + format.str->len,
                 .args = args,
                 .markup = format.markup,
                 .n_args = args.type == TPL_TUPLE ? args.list->n : 1};
    bool mapping = args.type == TPL_DICT || args.type == TPL_LIST || args.type == TPL_RANGE ||
                   args.type == TPL_UNDEFINED;
    TRY(tpl_charge(r, format.str->len / 16));
    while (p.at < p.end) {
        const char *sign = memchr(p.at, '%', (size_t)(p.end - p.at));
        const char *stop = sign ? sign : p.end;
        TRY(tpl_text_add(r, &p.out, p.at, (size_t)(stop - p.at)));
        p.at = stop + (sign != NULL);
        if (sign)
            TRY(percent_one(&p));
    }
    if (p.next < p.n_args && !mapping)
        return tpl_fail(r, "not all arguments converted during string formatting");
    TRY(tpl_text_value(r, &p.out, out));
    out->markup = format.markup;
    return VT_OK;
}

/* ---- specifications of str.format() ---- */

static bool is_align(char c) { return c == '<' || c == '>' || c == '^'; }

/* s is NUL-terminated. */
static vt_status parse_spec(tpl_run *r, const char *s, size_t len, spec *out)
{
    const char *end = s + len;
    uint32_t c;
    *out = (spec){.fill = " ", .n_fill = 1, .sign = '-', .precision = -1};
    size_t n = tpl_next(s, &c);
    bool filled = n < len && is_align(s[n]);
    if (filled) {
        memcpy(out->fill, s, n);
        out->n_fill = n;
        out->align = s[n];
        s += n + 1;
    } else if (is_align(*s)) {
        out->align = *s++;
    }
    if (*s == '+' || *s == '-' || *s == ' ')
        out->sign = *s++;
    if (*s == '0') {
        out->align = out->align ? out->align : '=';
        if (!filled)
            out->fill[0] = '0';
        s++;
    }
    out->width = read_size(&s);
    if (*s == ',') {
        out->group = true;
        s++;
    }
    if (*s == '.') {
        s++;
        if (*s < '0' || *s > '9')
            return tpl_fail(r, "Format specifier missing precision");
        out->precision = read_size(&s);
    }
    if (s < end)
        out->type = *s++;
    if (s < end || (out->type && !strchr("sdfFeEgGx%", out->type)))
        return tpl_fail(r, "Invalid or unsupported format specifier");
    return check_sizes(r, out);
}

static vt_status put_spec_int(tpl_run *r, tpl_text *t, const spec *s, int64_t v)
{
    if (s->type && strchr("eEfFgG%", s->type))
        return put_real(r, t, s, (double)v);
    if (s->precision >= 0)
        return tpl_fail(r, "Precision not allowed in integer format specifier");
    if (s->type == 's' || (s->group && s->type == 'x'))
        return tpl_fail(r, "the format code '%c' does not fit an int", s->type);
    return put_integer(r, t, s, v);
}

vt_status tpl_put_spec(tpl_run *r, tpl_text *t, tpl_value v, const char *text, size_t len)
{
    spec s;
    if (len == 0)
        return tpl_put_str(r, t, v);
    TRY(tpl_charge(r, len / 16));
    TRY(parse_spec(r, text, len, &s));
    if (tpl_is_int(v))
        return put_spec_int(r, t, &s, tpl_as_int(v));
    if (v.type == TPL_FLOAT) {
        if (s.type == 's' || s.type == 'd' || s.type == 'x')
            return tpl_fail(r, "Unknown format code '%c' for object of type 'float'", s.type);
        return put_real(r, t, &s, v.real);
    }
    if (v.type != TPL_STR)
        return tpl_fail(r, "unsupported format string passed to %s.__format__", tpl_type_name(v));
    if ((s.type && s.type != 's') || s.sign != '-' || s.group)
        return tpl_fail(r, "the format specification does not fit a str");
    if (s.align == '=') /* a plain 0 pads on the right */
        s.align = '<';
    return put_string(r, t, &s, v.str);
}
