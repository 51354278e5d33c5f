/* Tests: the words that may stand behind `is`, and that select() and reject() take. Each gives a
 * bool. */
#include "text/template/builtins.h"

/* ---- what a value is ---- */

static vt_status test_defined(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type != TPL_UNDEFINED);
    return VT_OK;
}

static vt_status test_undefined(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_UNDEFINED);
    return VT_OK;
}

static vt_status test_none(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_NONE);
    return VT_OK;
}

static vt_status test_boolean(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_BOOL);
    return VT_OK;
}

static vt_status test_false(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_BOOL && !a->self.boolean);
    return VT_OK;
}

static vt_status test_true(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_BOOL && a->self.boolean);
    return VT_OK;
}

static vt_status test_integer(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_INT);
    return VT_OK;
}

static vt_status test_float(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_FLOAT);
    return VT_OK;
}

static vt_status test_number(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(tpl_is_number(a->self));
    return VT_OK;
}

static vt_status test_string(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_STR);
    return VT_OK;
}

static vt_status test_mapping(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_DICT);
    return VT_OK;
}

static vt_status test_iterable(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(tpl_iterable(a->self));
    return VT_OK;
}

/* Undefined has __getitem__, __len__ and __call__, if only to raise: Python's own check finds them. */
static vt_status test_sequence(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_type t = a->self.type;
    (void)r;
    *out = tpl_bool(t == TPL_STR || t == TPL_LIST || t == TPL_TUPLE || t == TPL_DICT ||
                    t == TPL_RANGE || t == TPL_UNDEFINED);
    return VT_OK;
}

static vt_status test_callable(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_type t = a->self.type;
    (void)r;
    *out = tpl_bool(t == TPL_FUNCTION || t == TPL_METHOD || t == TPL_OBJECT || t == TPL_UNDEFINED);
    return VT_OK;
}

static vt_status test_lower(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value s;
    TRY(tpl_to_str(r, a->self, &s));
    return tpl_case_is(r, s.str, false, out);
}

static vt_status test_upper(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value s;
    TRY(tpl_to_str(r, a->self, &s));
    return tpl_case_is(r, s.str, true, out);
}

/* ---- numbers ---- */

/* value % divisor == rest, by Python's operators */
static vt_status remainder_is(tpl_run *r, tpl_value v, tpl_value divisor, int64_t rest,
                              tpl_value *out)
{
    tpl_value mod;
    bool equal;
    TRY(tpl_binary(r, TPL_OP_MOD, v, divisor, &mod));
    TRY(tpl_equal(r, mod, tpl_int(rest), &equal));
    *out = tpl_bool(equal);
    return VT_OK;
}

static vt_status test_odd(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return remainder_is(r, a->self, tpl_int(2), 1, out);
}

static vt_status test_even(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return remainder_is(r, a->self, tpl_int(2), 0, out);
}

static vt_status test_divisibleby(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return remainder_is(r, a->self, a->arg[0], 0, out);
}

/* ---- comparisons ---- */

/* The same object: equal scalars of one type are, containers only if they are one. */
static vt_status test_sameas(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value x = a->self, y = a->arg[0];
    bool same = x.type == y.type;
    if (same && (x.type == TPL_STR || tpl_is_number(x)))
        TRY(tpl_equal(r, x, y, &same));
    else if (same && x.type != TPL_NONE)
        same = x.object == y.object;
    *out = tpl_bool(same);
    return VT_OK;
}

static vt_status compare(tpl_run *r, tpl_op op, const tpl_args *a, tpl_value *out)
{
    bool holds;
    TRY(tpl_compare(r, op, a->self, a->arg[0], &holds));
    *out = tpl_bool(holds);
    return VT_OK;
}

static vt_status test_in(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return compare(r, TPL_OP_IN, a, out);
}

static vt_status test_eq(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return compare(r, TPL_OP_EQ, a, out);
}

static vt_status test_ne(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return compare(r, TPL_OP_NE, a, out);
}

static vt_status test_lt(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return compare(r, TPL_OP_LT, a, out);
}

static vt_status test_le(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return compare(r, TPL_OP_LE, a, out);
}

static vt_status test_gt(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return compare(r, TPL_OP_GT, a, out);
}

static vt_status test_ge(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return compare(r, TPL_OP_GE, a, out);
}

/* ---- the table ---- */

static const tpl_builtin tests[] = {
    {"!=", test_ne, 1, 1, {".other"}},
    {"<", test_lt, 1, 1, {".other"}},
    {"<=", test_le, 1, 1, {".other"}},
    {"==", test_eq, 1, 1, {".other"}},
    {">", test_gt, 1, 1, {".other"}},
    {">=", test_ge, 1, 1, {".other"}},
    {"boolean", test_boolean, 0, 0, {0}},
    {"callable", test_callable, 0, 0, {0}},
    {"defined", test_defined, 0, 0, {0}},
    {"divisibleby", test_divisibleby, 1, 1, {"num"}},
    {"eq", test_eq, 1, 1, {".other"}},
    {"equalto", test_eq, 1, 1, {".other"}},
    {"even", test_even, 0, 0, {0}},
    {"false", test_false, 0, 0, {0}},
    {"float", test_float, 0, 0, {0}},
    {"ge", test_ge, 1, 1, {".other"}},
    {"greaterthan", test_gt, 1, 1, {".other"}},
    {"gt", test_gt, 1, 1, {".other"}},
    {"in", test_in, 1, 1, {"seq"}},
    {"integer", test_integer, 0, 0, {0}},
    {"iterable", test_iterable, 0, 0, {0}},
    {"le", test_le, 1, 1, {".other"}},
    {"lessthan", test_lt, 1, 1, {".other"}},
    {"lower", test_lower, 0, 0, {0}},
    {"lt", test_lt, 1, 1, {".other"}},
    {"mapping", test_mapping, 0, 0, {0}},
    {"ne", test_ne, 1, 1, {".other"}},
    {"none", test_none, 0, 0, {0}},
    {"number", test_number, 0, 0, {0}},
    {"odd", test_odd, 0, 0, {0}},
    {"sameas", test_sameas, 1, 1, {"other"}},
    {"sequence", test_sequence, 0, 0, {0}},
    {"string", test_string, 0, 0, {0}},
    {"true", test_true, 0, 0, {0}},
    {"undefined", test_undefined, 0, 0, {0}},
    {"upper", test_upper, 0, 0, {0}},
};

const tpl_table tpl_tests = {tests, sizeof tests / sizeof *tests};
