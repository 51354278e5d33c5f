/* Tests: the words that may stand after `is`, and that select() and reject() take. Each gives a
 * bool. */
#include "text/template/builtins.h"

/* ---- what a value is ---- */

/* a->which is a set of types. */
static vt_status test_type(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool((unsigned)a->which >> a->self.type & 1);
    return VT_OK;
}

#define TYPE(name) (1 << TPL_##name)
enum {
    DEFINED = ~TYPE(UNDEFINED),
    NUMBER = TYPE(BOOL) | TYPE(INT) | TYPE(FLOAT),
    /* Undefined has __getitem__, __len__, __iter__ and __call__, if only to raise: Python's own
     * checks find them. */
    SEQUENCE = TYPE(STR) | TYPE(LIST) | TYPE(TUPLE) | TYPE(DICT) | TYPE(RANGE) | TYPE(UNDEFINED),
    ITERABLE = SEQUENCE | TYPE(VIEW) | TYPE(ITER),
    CALLABLE = TYPE(FUNCTION) | TYPE(METHOD) | TYPE(OBJECT) | TYPE(UNDEFINED),
};

/* The value true (which 1) or false (0) itself. */
static vt_status test_boolean_is(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = tpl_bool(a->self.type == TPL_BOOL && a->self.boolean == a->which);
    return VT_OK;
}

/* a->which: 1 upper, 0 lower */
static vt_status test_case(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value s;
    TRY(tpl_to_str(r, a->self, &s));
    return tpl_case_is(r, s.str, a->which, out);
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

/* a->which: 1 odd, 0 even */
static vt_status test_parity(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    return remainder_is(r, a->self, tpl_int(2), a->which, out);
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
    bool same = x.type == y.type && x.markup == y.markup;
    if (same && (x.type == TPL_STR || tpl_is_number(x)))
        TRY(tpl_equal(r, x, y, &same));
    else if (same && x.type != TPL_NONE)
        same = x.object == y.object;
    *out = tpl_bool(same);
    return VT_OK;
}

/* a->which is a tpl_op. */
static vt_status test_compare(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    bool holds;
    TRY(tpl_compare(r, (tpl_op)a->which, a->self, a->arg[0], &holds));
    *out = tpl_bool(holds);
    return VT_OK;
}

/* ---- the table ---- */

static const tpl_builtin tests[] = {
    {"!=", test_compare, 1, 1, {".other"}, TPL_OP_NE},
    {"<", test_compare, 1, 1, {".other"}, TPL_OP_LT},
    {"<=", test_compare, 1, 1, {".other"}, TPL_OP_LE},
    {"==", test_compare, 1, 1, {".other"}, TPL_OP_EQ},
    {">", test_compare, 1, 1, {".other"}, TPL_OP_GT},
    {">=", test_compare, 1, 1, {".other"}, TPL_OP_GE},
    {"boolean", test_type, 0, 0, {0}, TYPE(BOOL)},
    {"callable", test_type, 0, 0, {0}, CALLABLE},
    {"defined", test_type, 0, 0, {0}, DEFINED},
    {"divisibleby", test_divisibleby, 1, 1, {"num"}, 0},
    {"eq", test_compare, 1, 1, {".other"}, TPL_OP_EQ},
    {"equalto", test_compare, 1, 1, {".other"}, TPL_OP_EQ},
    {"even", test_parity, 0, 0, {0}, 0},
    {"false", test_boolean_is, 0, 0, {0}, 0},
    {"float", test_type, 0, 0, {0}, TYPE(FLOAT)},
    {"ge", test_compare, 1, 1, {".other"}, TPL_OP_GE},
    {"greaterthan", test_compare, 1, 1, {".other"}, TPL_OP_GT},
    {"gt", test_compare, 1, 1, {".other"}, TPL_OP_GT},
    {"in", test_compare, 1, 1, {"seq"}, TPL_OP_IN},
    {"integer", test_type, 0, 0, {0}, TYPE(INT)},
    {"iterable", test_type, 0, 0, {0}, ITERABLE},
    {"le", test_compare, 1, 1, {".other"}, TPL_OP_LE},
    {"lessthan", test_compare, 1, 1, {".other"}, TPL_OP_LT},
    {"lower", test_case, 0, 0, {0}, 0},
    {"lt", test_compare, 1, 1, {".other"}, TPL_OP_LT},
    {"mapping", test_type, 0, 0, {0}, TYPE(DICT)},
    {"ne", test_compare, 1, 1, {".other"}, TPL_OP_NE},
    {"none", test_type, 0, 0, {0}, TYPE(NONE)},
    {"number", test_type, 0, 0, {0}, NUMBER},
    {"odd", test_parity, 0, 0, {0}, 1},
    {"sameas", test_sameas, 1, 1, {"other"}, 0},
    {"sequence", test_type, 0, 0, {0}, SEQUENCE},
    {"string", test_type, 0, 0, {0}, TYPE(STR)},
    {"true", test_boolean_is, 0, 0, {0}, 1},
    {"undefined", test_type, 0, 0, {0}, TYPE(UNDEFINED)},
    {"upper", test_case, 0, 0, {0}, 1},
};

const tpl_table tpl_tests = {tests, sizeof tests / sizeof *tests};
