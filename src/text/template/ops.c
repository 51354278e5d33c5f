/* Operators, attributes, items and slices, with Python's results and jinja2's lookups:
 *
 *   x.name      the attribute (a method) first, then the item
 *   x["name"]   the item first, then the attribute
 *
 * Lists and dicts are immutable here (jinja2's ImmutableSandboxedEnvironment): the methods that
 * would change them, and every name with two underscores at both ends, look undefined and fail when
 * they are called.
 */
#include "text/template/interpreter.h"

#include <math.h>
#include <stdio.h>

static const char *const op_text[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

/* ---- arithmetic ---- */

static vt_status int_power(tpl_run *r, int64_t base, int64_t exponent, tpl_value *out)
{
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return tpl_overflow(r);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
            return tpl_overflow(r);
    }
    *out = tpl_int(result);
    return VT_OK;
}

static vt_status int_op(tpl_run *r, tpl_op op, int64_t a, int64_t b, tpl_value *out)
{
    int64_t v = 0;
    bool over = false;
    if (b == 0 && (op == TPL_OP_DIV || op == TPL_OP_FLOORDIV || op == TPL_OP_MOD))
        return tpl_fail(r, "division by zero");
    switch (op) {
    case TPL_OP_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case TPL_OP_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case TPL_OP_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case TPL_OP_DIV:
        *out = tpl_float((double)((long double)a / (long double)b));
        return VT_OK;
    case TPL_OP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        if (!over)
            v = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case TPL_OP_MOD: /* the sign of the divisor */
        v = b == -1 ? 0 : a % b;
        v += v != 0 && (v < 0) != (b < 0) ? b : 0;
        break;
    default:
        if (b >= 0)
            return int_power(r, a, b, out);
        if (a == 0)
            return tpl_fail(r, "0 cannot be raised to a negative power");
        *out = tpl_float(pow((double)a, (double)b));
        return VT_OK;
    }
    *out = tpl_int(v);
    return over ? tpl_overflow(r) : VT_OK;
}

/* Python's float divmod: the remainder takes the divisor's sign, the quotient is a whole number. */
static void float_divmod(double a, double b, double *quotient, double *remainder)
{
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) {
        mod += b;
        div -= 1;
    } else if (mod == 0) {
        mod = copysign(0, b);
    }
    double whole = div != 0 ? floor(div) : copysign(0, a / b);
    *quotient = div != 0 && div - whole > 0.5 ? whole + 1 : whole;
    *remainder = mod;
}

static vt_status float_op(tpl_run *r, tpl_op op, double a, double b, tpl_value *out)
{
    double quotient, remainder;
    if (b == 0 && (op == TPL_OP_DIV || op == TPL_OP_FLOORDIV || op == TPL_OP_MOD))
        return tpl_fail(r, "float division by zero");
    switch (op) {
    case TPL_OP_ADD:
        *out = tpl_float(a + b);
        return VT_OK;
    case TPL_OP_SUB:
        *out = tpl_float(a - b);
        return VT_OK;
    case TPL_OP_MUL:
        *out = tpl_float(a * b);
        return VT_OK;
    case TPL_OP_DIV:
        *out = tpl_float(a / b);
        return VT_OK;
    case TPL_OP_FLOORDIV:
    case TPL_OP_MOD:
        float_divmod(a, b, &quotient, &remainder);
        *out = tpl_float(op == TPL_OP_MOD ? remainder : quotient);
        return VT_OK;
    default:
        if (a == 0 && b < 0)
            return tpl_fail(r, "0.0 cannot be raised to a negative power");
        if (a < 0 && b != floor(b))
            return tpl_unsupported(
                r,
                "a negative number to a broken power is complex, which templates here do not have");
        *out = tpl_float(pow(a, b));
        if (isinf(out->real) && isfinite(a) && isfinite(b))
            return tpl_fail(r, "Numerical result out of range");
        return VT_OK;
    }
}

/* ---- sequences ---- */

/* Where one of them is markup, so is the sum, and the other is escaped. */
static vt_status add_strings(tpl_run *r, tpl_value a, tpl_value b, tpl_value *out)
{
    tpl_text t = {0};
    bool markup = a.markup || b.markup;
    if (markup) {
        TRY(tpl_escape(r, a, &a));
        TRY(tpl_escape(r, b, &b));
    }
    TRY(tpl_text_add(r, &t, a.str->data, a.str->len));
    TRY(tpl_text_add(r, &t, b.str->data, b.str->len));
    TRY(tpl_text_value(r, &t, out));
    out->markup = markup;
    return VT_OK;
}

static vt_status add_lists(tpl_run *r, tpl_value a, tpl_value b, tpl_value *out)
{
    tpl_list *l;
    size_t n = a.list->n + b.list->n; /* both fit the arena */
    TRY(tpl_charge(r, n));
    TRY(tpl_list_new(r, n, &l));
    if (a.list->n > 0)
        memcpy(l->at, a.list->at, a.list->n * sizeof *l->at);
    if (b.list->n > 0)
        memcpy(l->at + a.list->n, b.list->at, b.list->n * sizeof *l->at);
    l->n = n;
    *out = tpl_of_list(a.type, l);
    return VT_OK;
}

static vt_status repeat(tpl_run *r, tpl_value of, int64_t times, tpl_value *out)
{
    tpl_text t = {0};
    tpl_list *l;
    if (of.type == TPL_STR) {
        TRY(tpl_text_fill(r, &t, of.str->data, of.str->len, of.str->len ? times : 0));
        TRY(tpl_text_value(r, &t, out));
        out->markup = of.markup;
        return VT_OK;
    }
    TRY(tpl_list_new(r, 0, &l));
    for (int64_t i = 0; i < times && of.list->n > 0; i++)
        for (size_t j = 0; j < of.list->n; j++)
            TRY(tpl_list_add(r, l, of.list->at[j]));
    *out = tpl_of_list(of.type, l);
    return VT_OK;
}

static bool repeatable(tpl_value v)
{
    return v.type == TPL_STR || v.type == TPL_LIST || v.type == TPL_TUPLE;
}

vt_status tpl_binary(tpl_run *r, tpl_op op, tpl_value a, tpl_value b, tpl_value *out)
{
    if (tpl_is_int(a) && tpl_is_int(b))
        return int_op(r, op, tpl_as_int(a), tpl_as_int(b), out);
    if (tpl_is_number(a) && tpl_is_number(b))
        return float_op(r, op, tpl_as_float(a), tpl_as_float(b), out);
    if (a.type == TPL_STR && op == TPL_OP_MOD)
        return tpl_percent(r, a, b, out);
    if (a.type == TPL_UNDEFINED || b.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, a.type == TPL_UNDEFINED ? a : b);
    if (op == TPL_OP_ADD && a.type == TPL_STR && b.type == TPL_STR)
        return add_strings(r, a, b, out);
    if (op == TPL_OP_ADD && a.type == b.type && (a.type == TPL_LIST || a.type == TPL_TUPLE))
        return add_lists(r, a, b, out);
    if (op == TPL_OP_MUL && repeatable(a) && tpl_is_int(b))
        return repeat(r, a, tpl_as_int(b), out);
    if (op == TPL_OP_MUL && repeatable(b) && tpl_is_int(a))
        return repeat(r, b, tpl_as_int(a), out);
    if (op == TPL_OP_ADD && a.type == TPL_STR && !a.markup)
        return tpl_fail(r, "can only concatenate str (not \"%s\") to str", tpl_type_name(b));
    return tpl_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_text[op],
                    tpl_type_name(a), tpl_type_name(b));
}

vt_status tpl_negate(tpl_run *r, tpl_value a, bool minus, tpl_value *out)
{
    if (a.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, a);
    if (!tpl_is_number(a))
        return tpl_fail(r, "bad operand type for unary %s: '%s'", minus ? "-" : "+",
                        tpl_type_name(a));
    if (a.type == TPL_FLOAT)
        *out = tpl_float(minus ? -a.real : a.real);
    else if (minus && tpl_as_int(a) == INT64_MIN)
        return tpl_overflow(r);
    else
        *out = tpl_int(minus ? -tpl_as_int(a) : tpl_as_int(a));
    return VT_OK;
}

vt_status tpl_compare(tpl_run *r, tpl_op op, tpl_value a, tpl_value b, bool *out)
{
    int order;
    switch (op) {
    case TPL_OP_EQ:
        return tpl_equal(r, a, b, out);
    case TPL_OP_NE:
        TRY(tpl_equal(r, a, b, out));
        *out = !*out;
        return VT_OK;
    case TPL_OP_IN:
        return tpl_contains(r, a, b, out);
    case TPL_OP_NOT_IN:
        TRY(tpl_contains(r, a, b, out));
        *out = !*out;
        return VT_OK;
    default:
        break;
    }
    TRY(tpl_order(r, a, b, op_text[op], &order));
    *out = order == 2        ? false
           : op == TPL_OP_LT ? order < 0
           : op == TPL_OP_LE ? order <= 0
           : op == TPL_OP_GT ? order > 0
                             : order >= 0;
    return VT_OK;
}

/* ---- attributes and items ---- */

static bool dunder(const tpl_str *s)
{
    return s->len > 4 && memcmp(s->data, "__", 2) == 0 &&
           memcmp(s->data + s->len - 2, "__", 2) == 0;
}

static bool in_words(const char *words, const tpl_str *s)
{
    const char *at = s->len > 0 && s->len < 40 ? words : NULL;
    while (at && (at = strstr(at, s->data))) {
        if ((at == words || at[-1] == ' ') && (at[s->len] == ' ' || at[s->len] == '\0'))
            return true;
        at++;
    }
    return false;
}

/* Names that Python's types have and that are not here: forbidden by the sandbox, or refused by
 * name. */
static vt_status missing_attribute(tpl_run *r, tpl_value of, const tpl_str *name, tpl_value *out,
                                   bool *found)
{
    static const struct {
        const char *forbidden, *refused;
    } known[TPL_OBJECT + 1] = {
        [TPL_STR] = {"", "casefold center encode expandtabs format_map isascii isdecimal "
                         "isidentifier isnumeric isprintable istitle ljust maketrans rindex rjust "
                         "swapcase translate zfill"},
        [TPL_LIST] = {"append clear pop reverse insert sort extend remove", ""},
        [TPL_DICT] = {"clear pop popitem setdefault update", "fromkeys"},
        [TPL_BOOL] = {"", "real imag numerator denominator conjugate bit_length bit_count to_bytes "
                          "from_bytes as_integer_ratio"},
        [TPL_INT] = {"", "real imag numerator denominator conjugate bit_length bit_count to_bytes "
                         "from_bytes as_integer_ratio is_integer"},
        [TPL_FLOAT] = {"", "real imag conjugate as_integer_ratio is_integer hex fromhex"},
        [TPL_RANGE] = {"", "start stop step"},
        [TPL_VIEW] = {"", "isdisjoint mapping"},
        [TPL_OBJECT] = {"", "name arguments catch_kwargs catch_varargs caller"},
    };
    const char *forbidden = known[of.type].forbidden, *refused = known[of.type].refused;
    if (of.markup && in_words("escape striptags unescape", name))
        refused = "escape striptags unescape";
    TRY(tpl_charge(r, 2));
    if (dunder(name) || (forbidden && in_words(forbidden, name))) {
        tpl_value text;
        TRY(tpl_str_printf(r, &text, "access to attribute '%.60s' of '%s' object is unsafe.",
                           name->data, tpl_type_name(of)));
        *found = true;
        return tpl_undefined_hint(r, text.str->data, out);
    }
    if (refused && in_words(refused, name))
        return tpl_unsupported(r, "'%s' of a '%s' is not supported", name->data, tpl_type_name(of));
    return VT_OK;
}

static tpl_table methods_of(const tpl_tables *t, tpl_type type)
{
    switch (type) {
    case TPL_STR:
        return t->str_methods;
    case TPL_LIST:
        return t->list_methods;
    case TPL_TUPLE:
    case TPL_RANGE:
        return t->tuple_methods;
    case TPL_DICT:
        return t->dict_methods;
    default:
        return (tpl_table){0};
    }
}

vt_status tpl_bind_method(tpl_run *r, const tpl_builtin *builtin, tpl_value self, tpl_value *out)
{
    tpl_method *m = tpl_alloc(r, 1, sizeof *m);
    if (!m)
        return VT_ERR_MEMORY;
    *m = (tpl_method){.builtin = builtin, .self = self};
    *out = (tpl_value){.type = TPL_METHOD, .method = m};
    return VT_OK;
}

static vt_status attribute(tpl_run *r, tpl_value of, const tpl_str *name, tpl_value *out,
                           bool *found)
{
    *found = false;
    if (of.type == TPL_NAMESPACE && !dunder(name)) {
        tpl_value *v;
        TRY(tpl_dict_find(r, of.dict, tpl_of_str(name), &v));
        if (v)
            *out = *v;
        *found = v != NULL;
        return VT_OK;
    }
    if (of.type == TPL_TUPLE && of.list->kind &&
        (tpl_str_is(name, "grouper") || tpl_str_is(name, "list"))) {
        *out = of.list->at[name->data[0] == 'l']; /* a pair of groupby */
        *found = true;
    }
    if (of.type == TPL_OBJECT && of.object->class->attribute)
        TRY(of.object->class->attribute(r, of.object, name, out, found));
    if (*found)
        return VT_OK;
    const tpl_builtin *method = tpl_find(methods_of(&r->t->tables, of.type), name->data, name->len);
    if (!method)
        return missing_attribute(r, of, name, out, found);
    *found = true;
    return tpl_bind_method(r, method, of, out);
}

/* of[key] where Python has it; *found false where Python raises TypeError or LookupError. */
static vt_status item(tpl_run *r, tpl_value of, tpl_value key, tpl_value *out, bool *found)
{
    int64_t n, i = tpl_is_int(key) ? tpl_as_int(key) : 0;
    *found = false;
    if (of.type == TPL_DICT) {
        tpl_value *v = NULL;
        bool hashable = true;
        if (key.type != TPL_STR)
            TRY(tpl_hashable(r, key, &hashable));
        if (hashable)
            TRY(tpl_dict_find(r, of.dict, key, &v));
        if (v)
            *out = *v;
        *found = v != NULL;
        return VT_OK;
    }
    bool sequence = of.type == TPL_STR || of.type == TPL_LIST || of.type == TPL_TUPLE ||
                    of.type == TPL_RANGE;
    if (!sequence || !tpl_is_int(key) || !tpl_length(of, &n))
        return VT_OK;
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return VT_OK;
    *found = true;
    if (of.type == TPL_STR) {
        size_t begin = tpl_str_offset(of.str, (size_t)i);
        uint32_t c;
        TRY(tpl_charge(r, begin / 64));
        TRY(tpl_str_copy(r, of.str->data + begin, tpl_next(of.str->data + begin, &c), out));
        out->markup = of.markup;
        return VT_OK;
    }
    *out = of.type == TPL_RANGE ? tpl_int(of.range->start + i * of.range->step) : of.list->at[i];
    return VT_OK;
}

vt_status tpl_getattr(tpl_run *r, tpl_value of, tpl_value name, tpl_value *out)
{
    bool found;
    if (of.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, of);
    TRY(attribute(r, of, name.str, out, &found));
    if (!found && of.type == TPL_DICT)
        TRY(item(r, of, name, out, &found));
    return found ? VT_OK : tpl_undefined_in(r, of, name, out);
}

vt_status tpl_getitem(tpl_run *r, tpl_value of, tpl_value key, tpl_value *out)
{
    bool found;
    if (of.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, of);
    TRY(item(r, of, key, out, &found));
    if (!found && key.type == TPL_STR)
        TRY(attribute(r, of, key.str, out, &found));
    return found ? VT_OK : tpl_undefined_in(r, of, key, out);
}

/* ---- slices ---- */

static vt_status slice_index(tpl_run *r, tpl_value v, int64_t absent, int64_t *out)
{
    *out = absent;
    if (tpl_is_int(v))
        *out = tpl_as_int(v);
    else if (v.type != TPL_MISSING && v.type != TPL_NONE)
        return tpl_fail(r, "slice indices must be integers or None, not '%s'", tpl_type_name(v));
    return VT_OK;
}

/* A bound into [low, high], counted from the end where negative. */
static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0)
        i = i < -n ? -1 : i + n;
    return i < low ? low : i > high ? high : i;
}

static vt_status slice_string(tpl_run *r, tpl_value of, int64_t start, int64_t step, int64_t count,
                              tpl_value *out)
{
    const tpl_str *s = of.str;
    tpl_text t = {0};
    TRY(tpl_charge(r, s->len / 16 + 1));
    if (step == 1 && count > 0) {
        size_t begin = tpl_str_offset(s, (size_t)start),
               end = tpl_str_offset(s, (size_t)(start + count));
        TRY(tpl_text_add(r, &t, s->data + begin, end - begin));
    } else if (count > 0) {
        size_t at = 0, *offset = tpl_alloc(r, s->n_chars + 1, sizeof *offset);
        if (!offset)
            return VT_ERR_MEMORY;
        for (size_t i = 0; i < s->len; i++) /* where every character begins */
            if (((unsigned char)s->data[i] & 0xc0) != 0x80)
                offset[at++] = i;
        offset[at] = s->len;
        for (int64_t i = 0; i < count; i++) {
            size_t c = (size_t)(start + i * step);
            TRY(tpl_text_add(r, &t, s->data + offset[c], offset[c + 1] - offset[c]));
        }
    }
    TRY(tpl_text_value(r, &t, out));
    out->markup = of.markup;
    return VT_OK;
}

/* `part` counts in items of `of`. */
static vt_status slice_range(tpl_run *r, const tpl_range *of, tpl_range part, tpl_value *out)
{
    tpl_range *g = tpl_alloc(r, 1, sizeof *g);
    if (!g)
        return VT_ERR_MEMORY;
    g->n = part.n;
    if (__builtin_mul_overflow(part.start, of->step, &g->start) ||
        __builtin_add_overflow(g->start, of->start, &g->start) ||
        __builtin_mul_overflow(part.stop, of->step, &g->stop) ||
        __builtin_add_overflow(g->stop, of->start, &g->stop) ||
        __builtin_mul_overflow(part.step, of->step, &g->step))
        return tpl_overflow(r);
    *out = (tpl_value){.type = TPL_RANGE, .range = g};
    return VT_OK;
}

vt_status tpl_slice(tpl_run *r, tpl_value of, tpl_value start, tpl_value stop, tpl_value step,
                    tpl_value *out)
{
    int64_t n, by, from, to;
    if (of.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, of);
    bool sequence = of.type == TPL_STR || of.type == TPL_LIST || of.type == TPL_TUPLE ||
                    of.type == TPL_RANGE;
    if (!sequence || !tpl_length(of, &n))
        return tpl_fail(r, "a '%s' cannot be sliced", tpl_type_name(of));
    TRY(slice_index(r, step, 1, &by));
    if (by == 0)
        return tpl_fail(r, "slice step cannot be zero");
    if (by < -n - 1)
        by = -n - 1; /* beyond the ends all steps are alike */
    if (by > n + 1)
        by = n + 1;
    TRY(slice_index(r, start, by > 0 ? 0 : n - 1, &from));
    TRY(slice_index(r, stop, by > 0 ? n : -n - 1, &to));
    from = by > 0 ? clamp(from, n, 0, n) : clamp(from, n, -1, n - 1);
    to = by > 0 ? clamp(to, n, 0, n) : clamp(to, n, -1, n - 1);
    int64_t count = by > 0 ? (to - from + by - 1) / by : (to - from + by + 1) / by;
    count = count < 0 ? 0 : count;
    if (of.type == TPL_STR)
        return slice_string(r, of, from, by, count, out);
    if (of.type == TPL_RANGE) {
        return slice_range(r, of.range, (tpl_range){from, to, by, count}, out);
    }
    tpl_list *l;
    TRY(tpl_list_new(r, (size_t)count, &l));
    for (int64_t i = 0; i < count; i++)
        TRY(tpl_list_add(r, l, of.list->at[from + i * by]));
    *out = tpl_of_list(of.type, l);
    return VT_OK;
}
