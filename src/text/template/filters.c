/* Filters of one value: text, numbers, any value. Those of sequences are in seq.c. Names, arguments
 * and results are jinja2's; a->self is the value before the bar. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/template/builtins.h"

/* ---- case ---- */

/* a->which is a tpl_case. */
static vt_status filter_case(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value s;
    TRY(tpl_to_str(r, a->self, &s));
    TRY(tpl_change_case(r, s.str, (tpl_case)a->which, out));
    out->markup = s.markup;
    return VT_OK;
}

static vt_status filter_capitalize(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value s;
    TRY(tpl_to_str(r, a->self, &s));
    TRY(tpl_capitalize(r, s.str, out));
    out->markup = s.markup;
    return VT_OK;
}

static bool word_separator(uint32_t c)
{
    return tpl_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
}

/* Words begin after white space and any of - ( { [ < (not as str.title() sees them). */
static vt_status filter_title(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_text t = {0};
    tpl_value s;
    TRY(tpl_to_str(r, a->self, &s));
    TRY(tpl_charge(r, s.str->len / 8));
    const char *d = s.str->data;
    for (size_t i = 0, len = s.str->len; i < len;) {
        uint32_t c;
        size_t n = tpl_next(d + i, &c), end = i + n;
        TRY(tpl_put_case(r, &t, d + i, 0, n, TPL_UPPER));
        bool separator = word_separator(c);
        while (end < len) {
            size_t m = tpl_next(d + end, &c);
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

static vt_status filter_trim(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value s;
    TRY(tpl_to_str(r, a->self, &s));
    TRY(tpl_strip(r, s.str, a->arg[0], true, true, out));
    out->markup = s.markup;
    return VT_OK;
}

static vt_status filter_replace(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value s, old, fresh;
    int64_t count;
    TRY(tpl_to_str(r, a->self, &s));
    TRY(tpl_to_str(r, a->arg[0], &old));
    TRY(tpl_to_str(r, a->arg[1], &fresh));
    TRY(tpl_want_int(r, a->arg[2], "replace's count", -1, &count));
    return tpl_replace(r, s.str, old.str, fresh.str, count, out);
}

/* indent(width=4, first=false, blank=false): width may be a string. */
static vt_status filter_indent(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *s;
    tpl_text indent = {0}, t = {0};
    int64_t width;
    TRY(tpl_want_str(r, a->self, "indent's input", &s));
    if (a->arg[0].markup && !a->self.markup)
        return tpl_unsupported(r, "indent: a width that is marked safe, before text that is not, "
                                  "is not supported");
    if (a->arg[0].type == TPL_STR) {
        TRY(tpl_text_add(r, &indent, a->arg[0].str->data, a->arg[0].str->len));
    } else {
        TRY(tpl_want_int(r, a->arg[0], "indent's width", 4, &width));
        TRY(tpl_text_fill(r, &indent, " ", 1, width));
    }
    bool blank = tpl_truth(a->arg[2]), first = true;
    TRY(tpl_charge(r, s->len / 16));
    if (tpl_truth(a->arg[1]))
        TRY(tpl_text_add(r, &t, indent.data, indent.len));
    /* a newline at the end of s begins one more, empty line */
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
    TRY(tpl_text_value(r, &t, out));
    out->markup = a->self.markup;
    return VT_OK;
}

/* truncate(length=255, killwords=false, end="...", leeway=5). A value that is short enough
 * is returned as it is, whatever its type. */
static vt_status filter_truncate(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *s;
    tpl_value end = a->arg[2], head;
    int64_t length, leeway, n;
    TRY(tpl_want_int(r, a->arg[0], "truncate's length", 255, &length));
    TRY(tpl_want_int(r, a->arg[3], "truncate's leeway", 5, &leeway));
    if (end.type == TPL_MISSING)
        TRY(tpl_str_wrap(r, "...", 3, &end));
    TRY(tpl_want_str(r, end, "truncate's end", &s));
    if (length < (int64_t)s->n_chars || leeway < 0)
        return tpl_fail(r, "truncate: expected length >= %zu and leeway >= 0", s->n_chars);
    if (tpl_length(a->self, &n) && (n <= length || n - length <= leeway)) {
        *out = a->self;
        return VT_OK;
    }
    TRY(tpl_want_str(r, a->self, "truncate's input", &s));
    TRY(tpl_charge(r, s->len / 64));
    size_t cut = tpl_str_offset(s, (size_t)length - end.str->n_chars);
    const char *space = tpl_truth(a->arg[1]) ? NULL : memrchr(s->data, ' ', cut);
    TRY(tpl_str_copy(r, s->data, space ? (size_t)(space - s->data) : cut, &head));
    head.markup = a->self.markup;
    return tpl_binary(r, TPL_OP_ADD, head, end, out);
}

/* Runs of letters, numbers and underscores. */
static vt_status filter_wordcount(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value s;
    int64_t words = 0;
    bool inside = false;
    TRY(tpl_to_str(r, a->self, &s));
    TRY(tpl_charge(r, s.str->len / 16));
    for (size_t i = 0; i < s.str->len;) {
        uint32_t c;
        i += tpl_next(s.str->data + i, &c);
        bool word = c == '_' || tpl_is_alnum(c);
        words += word && !inside;
        inside = word;
    }
    *out = tpl_int(words);
    return VT_OK;
}

/* "%s and %s"|format(a, b), "%(x)s"|format(x=a) */
static vt_status filter_format(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_call *call = a->call;
    tpl_value s, args;
    TRY(tpl_to_str(r, a->self, &s));
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
            TRY(tpl_list_add(r, l, call->pos[i]));
        args = tpl_of_list(TPL_TUPLE, l);
    }
    return tpl_percent(r, s, args, out);
}

static vt_status filter_string(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return tpl_to_str(r, a->self, out);
}

static vt_status filter_safe(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    TRY(tpl_to_str(r, a->self, out));
    out->markup = true;
    return VT_OK;
}

/* ---- numbers ---- */

static vt_status filter_abs(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value v = a->self;
    if (!tpl_is_number(v))
        return tpl_fail(r, "bad operand type for abs(): '%s'", tpl_type_name(v));
    return tpl_negate(r, v, v.type == TPL_FLOAT ? signbit(v.real) : tpl_as_int(v) < 0, out);
}

static vt_status float_to_int(tpl_run *r, double d, tpl_value *out)
{
    if (!(fabs(d) < 9.2e18))
        return tpl_overflow(r);
    *out = tpl_int((int64_t)d);
    return VT_OK;
}

/* int(default=0, base=10) */
static vt_status filter_int(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value v = a->self;
    int64_t base, i = 0;
    bool ok = false;
    double d;
    *out = a->arg[0].type == TPL_MISSING ? tpl_int(0) : a->arg[0];
    TRY(tpl_want_int(r, a->arg[1], "int's base", 10, &base));
    if (v.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, v);
    if (tpl_is_int(v)) {
        *out = tpl_int(tpl_as_int(v));
    } else if (v.type == TPL_FLOAT) {
        if (isinf(v.real))
            return tpl_fail(r, "cannot convert float infinity to integer");
        return isnan(v.real) ? VT_OK : float_to_int(r, v.real, out);
    } else if (v.type == TPL_STR) {
        TRY(tpl_parse_int(r, v.str, base, &i, &ok));
        if (ok) {
            *out = tpl_int(i);
            return VT_OK;
        }
        TRY(tpl_parse_float(r, v.str, &d, &ok));
        if (ok && isfinite(d)) /* "42.23" gives 42 */
            return float_to_int(r, d, out);
    }
    return VT_OK;
}

static vt_status filter_float(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    double d;
    bool ok = false;
    *out = a->arg[0].type == TPL_MISSING ? tpl_float(0) : a->arg[0];
    if (a->self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, a->self);
    if (tpl_is_number(a->self))
        *out = tpl_float(tpl_as_float(a->self));
    else if (a->self.type == TPL_STR)
        TRY(tpl_parse_float(r, a->self.str, &d, &ok));
    if (ok)
        *out = tpl_float(d);
    return VT_OK;
}

/* Rounds half to even at 10^-precision. printf's decimal digits are exact, so this is too. */
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
    int64_t rest = v % scale, down = v / scale, result;
    if (rest < 0) { /* down is the floor, so 0 <= rest < scale */
        rest += scale;
        down--;
    }
    bool up = rest > scale - rest || (rest == scale - rest && (down & 1));
    if (__builtin_mul_overflow(down + up, scale, &result))
        return tpl_overflow(r);
    *out = tpl_int(result);
    return VT_OK;
}

/* round(precision=0, method="common") */
static vt_status filter_round(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    int64_t precision;
    const tpl_str *method = NULL;
    TRY(tpl_charge(r, 128)); /* printf and strtod of up to 600 digits */
    TRY(tpl_want_int(r, a->arg[0], "round's precision", 0, &precision));
    if (a->arg[1].type != TPL_MISSING)
        TRY(tpl_want_str(r, a->arg[1], "round's method", &method));
    bool up = method && tpl_str_is(method, "ceil"), down = method && tpl_str_is(method, "floor");
    if (method && !up && !down && !tpl_str_is(method, "common"))
        return tpl_fail(r, "round: method must be common, ceil or floor");
    if (a->self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, a->self);
    if (!tpl_is_number(a->self))
        return tpl_fail(r, "round: type %s has no rounding", tpl_type_name(a->self));
    if (!up && !down) {
        if (tpl_is_int(a->self))
            return round_int(r, tpl_as_int(a->self), precision, out);
        *out = tpl_float(round_float(a->self.real, precision));
        return VT_OK;
    }
    double scale = pow(10, (double)precision), d = tpl_as_float(a->self) * scale;
    if (!isfinite(d) || scale == 0)
        return tpl_fail(r, "round: the number cannot be rounded");
    *out = tpl_float((up ? ceil(d) : floor(d)) / scale);
    return VT_OK;
}

/* ---- any value ---- */

static vt_status filter_default(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    bool absent = a->self.type == TPL_UNDEFINED || (tpl_truth(a->arg[1]) && !tpl_truth(a->self));
    if (absent && a->arg[0].type == TPL_MISSING)
        return tpl_str_wrap(r, "", 0, out);
    *out = absent ? a->arg[0] : a->self;
    return VT_OK;
}

static vt_status filter_length(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    int64_t n;
    if (!tpl_length(a->self, &n))
        return tpl_fail(r, "object of type '%s' has no len()", tpl_type_name(a->self));
    *out = tpl_int(n);
    return VT_OK;
}

/* ---- the table ---- */

static const tpl_builtin filters[] = {
    {"abs", filter_abs, 0, 0, {0}, 0},
    {"capitalize", filter_capitalize, 0, 0, {0}, 0},
    {"count", filter_length, 0, 0, {0}, 0},
    {"d", filter_default, 0, 2, {"default_value", "boolean"}, 0},
    {"default", filter_default, 0, 2, {"default_value", "boolean"}, 0},
    {"float", filter_float, 0, 1, {"default"}, 0},
    {"format", filter_format, 0, -1, {0}, 0},
    {"indent", filter_indent, 0, 3, {"width", "first", "blank"}, 0},
    {"int", filter_int, 0, 2, {"default", "base"}, 0},
    {"length", filter_length, 0, 0, {0}, 0},
    {"lower", filter_case, 0, 0, {0}, TPL_LOWER},
    {"replace", filter_replace, 2, 3, {"old", "new", "count"}, 0},
    {"round", filter_round, 0, 2, {"precision", "method"}, 0},
    {"safe", filter_safe, 0, 0, {0}, 0},
    {"string", filter_string, 0, 0, {0}, 0},
    {"title", filter_title, 0, 0, {0}, 0},
    {"trim", filter_trim, 0, 1, {"chars"}, 0},
    {"truncate", filter_truncate, 0, 4, {"length", "killwords", "end", "leeway"}, 0},
    {"upper", filter_case, 0, 0, {0}, TPL_UPPER},
    {"wordcount", filter_wordcount, 0, 0, {0}, 0},
};

const tpl_table tpl_value_filters = {filters, sizeof filters / sizeof *filters};
