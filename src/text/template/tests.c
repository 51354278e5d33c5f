/* Tests: what may stand behind `is`, and select() and reject() may name. Each gives a bool. */
#include "text/template/impl.h"

#define TEST(name)                                                                                \
    static vt_status name(tpl_run *r, tpl_value self, const tpl_value *arg, const tpl_call *call, \
                          tpl_value *out)

/* A test that is an expression in `v` alone. */
#define SIMPLE(name, condition)         \
    TEST(name)                          \
    {                                   \
        tpl_value v = self;             \
        (void)r, (void)arg, (void)call; \
        *out = tpl_bool(condition);     \
        return VT_OK;                   \
    }
SIMPLE(test_defined, v.type != TPL_UNDEFINED)
SIMPLE(test_undefined, v.type == TPL_UNDEFINED)
SIMPLE(test_none, v.type == TPL_NONE)
SIMPLE(test_boolean, v.type == TPL_BOOL)
SIMPLE(test_false, v.type == TPL_BOOL && !v.boolean)
SIMPLE(test_true, v.type == TPL_BOOL && v.boolean)
SIMPLE(test_integer, v.type == TPL_INT)
SIMPLE(test_float, v.type == TPL_FLOAT)
SIMPLE(test_number, tpl_is_number(v))
SIMPLE(test_string, v.type == TPL_STR)
SIMPLE(test_mapping, v.type == TPL_DICT)
SIMPLE(test_escaped, v.type == TPL_STR && v.str->markup)
SIMPLE(test_iterable, tpl_iterable(v) || v.type == TPL_LOOP)
/* Undefined has __getitem__, __len__ and __call__, if only to raise: so says Python's own check. */
SIMPLE(test_sequence, v.type == TPL_STR || v.type == TPL_LIST || v.type == TPL_TUPLE ||
                          v.type == TPL_DICT || v.type == TPL_RANGE || v.type == TPL_UNDEFINED)
SIMPLE(test_callable, v.type == TPL_FUNCTION || v.type == TPL_METHOD || v.type == TPL_MACRO ||
                          v.type == TPL_LOOP || v.type == TPL_JOINER || v.type == TPL_UNDEFINED)
SIMPLE(test_filter, v.type == TPL_STR && tpl_filter(v.str->data, v.str->len) != NULL)
SIMPLE(test_test, v.type == TPL_STR && tpl_test(v.str->data, v.str->len) != NULL)

static vt_status string_method(tpl_run *r, tpl_value self, const char *name, tpl_value *out)
{
    tpl_call none = {0};
    tpl_value s;
    TRY(tpl_to_str(r, self, &s));
    return tpl_apply(r, tpl_method_of(s, name, strlen(name)), "test", s, &none, out);
}

TEST(test_lower)
{
    (void)arg, (void)call;
    return string_method(r, self, "islower", out);
}

TEST(test_upper)
{
    (void)arg, (void)call;
    return string_method(r, self, "isupper", out);
}

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

TEST(test_odd)
{
    (void)arg, (void)call;
    return remainder_is(r, self, tpl_int(2), 1, out);
}

TEST(test_even)
{
    (void)arg, (void)call;
    return remainder_is(r, self, tpl_int(2), 0, out);
}

TEST(test_divisibleby)
{
    (void)call;
    return remainder_is(r, self, arg[0], 0, out);
}

/* The same object: equal scalars of one type are, containers only if they are one. */
TEST(test_sameas)
{
    bool same = self.type == arg[0].type;
    (void)call;
    if (same && (self.type == TPL_STR || tpl_is_number(self)))
        TRY(tpl_equal(r, self, arg[0], &same));
    else if (same && self.type != TPL_NONE)
        same = self.dict == arg[0].dict;
    *out = tpl_bool(same);
    return VT_OK;
}

static vt_status compare(tpl_run *r, tpl_op op, tpl_value a, tpl_value b, tpl_value *out)
{
    bool holds;
    TRY(tpl_compare(r, op, a, b, &holds));
    *out = tpl_bool(holds);
    return VT_OK;
}

#define COMPARE(name, op)                           \
    TEST(name)                                      \
    {                                               \
        (void)call;                                 \
        return compare(r, (op), self, arg[0], out); \
    }
COMPARE(test_in, TPL_OP_IN)
COMPARE(test_eq, TPL_OP_EQ)
COMPARE(test_ne, TPL_OP_NE)
COMPARE(test_lt, TPL_OP_LT)
COMPARE(test_le, TPL_OP_LE)
COMPARE(test_gt, TPL_OP_GT)
COMPARE(test_ge, TPL_OP_GE)

const tpl_builtin *tpl_test(const char *name, size_t len)
{
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
        {"escaped", test_escaped, 0, 0, {0}},
        {"even", test_even, 0, 0, {0}},
        {"false", test_false, 0, 0, {0}},
        {"filter", test_filter, 0, 0, {0}},
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
        {"test", test_test, 0, 0, {0}},
        {"true", test_true, 0, 0, {0}},
        {"undefined", test_undefined, 0, 0, {0}},
        {"upper", test_upper, 0, 0, {0}},
    };
    return tpl_find(tests, sizeof tests / sizeof *tests, name, len);
}
