/* Expressions of templates: a recursive-descent parser with jinja2's precedences, loosest first:
 *
 *   a if b else c     or     and     not     comparisons, in     + -     ~     * / // %     **
 *   unary + -         postfix: .name [item] (call)        |filter, is test
 *
 * Two of jinja2's habits differ from Python's and are kept: ~ binds tighter than + and -, and ** is
 * left-associative and binds looser than unary minus. Not kept: the results of jinja2's constant
 * folding (it makes -2 ** x into -(2 ** x), and a slice of a literal number is undefined there
 * instead of an error).
 */
#include "text/template/nodes.h"

static vt_status parse_or(tpl_parser *p, tpl_node **out);
static vt_status parse_unary(tpl_parser *p, bool with_filter, tpl_node **out);

static vt_status binary_node(tpl_parser *p, tpl_kind kind, tpl_op op, int32_t line, tpl_node *a,
                             tpl_node *b, tpl_node **out)
{
    TRY(tpl_node_new(p, kind, line, out));
    (*out)->op = op;
    (*out)->a = a;
    (*out)->b = b;
    return VT_OK;
}

/* ---- primaries ---- */

static vt_status const_node(tpl_parser *p, tpl_value v, tpl_node **out)
{
    TRY(tpl_node_new(p, TPL_N_CONST, p->tok->line, out));
    (*out)->value = v;
    return VT_OK;
}

static vt_status parse_string(tpl_parser *p, tpl_node **out)
{
    size_t len = 0;
    for (const tpl_token *t = p->tok; t->type == TPL_T_STRING; t++)
        len += t->len; /* adjacent strings are one */
    char *data = vt_arena_alloc(&p->t->arena, len + 1, 1);
    if (!data)
        return tpl_parse_no_memory(p);
    TRY(const_node(p, tpl_none(), out));
    size_t at = 0;
    for (; p->tok->type == TPL_T_STRING; p->tok++) {
        memcpy(data + at, p->tok->text, p->tok->len);
        at += p->tok->len;
    }
    return tpl_const_str(p, data, len, &(*out)->value);
}

static vt_status parse_name(tpl_parser *p, bool with_namespace, tpl_node **out)
{
    static const struct {
        const char *name;
        tpl_value value;
    } constants[] = {
        {"true", {.type = TPL_BOOL, .boolean = true}},
        {"True", {.type = TPL_BOOL, .boolean = true}},
        {"false", {.type = TPL_BOOL, .boolean = false}},
        {"False", {.type = TPL_BOOL, .boolean = false}},
        {"none", {.type = TPL_NONE}},
        {"None", {.type = TPL_NONE}},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (tpl_at_name(p, constants[i].name)) {
            TRY(const_node(p, constants[i].value, out));
            p->tok++;
            return VT_OK;
        }
    }
    const char *interned;
    int32_t line = p->tok->line;
    TRY(tpl_intern_token(p, &interned));
    p->tok++;
    bool reference = with_namespace && tpl_skip_op(p, ".");
    TRY(tpl_node_new(p, reference ? TPL_N_NSREF : TPL_N_NAME, line, out));
    (*out)->name = interned;
    if (reference) {
        if (p->tok->type != TPL_T_NAME)
            return tpl_unexpected(p, "a name");
        TRY(tpl_intern_token(p, &(*out)->attr));
        p->tok++;
    }
    return VT_OK;
}

static vt_status parse_list(tpl_parser *p, tpl_node **out)
{
    TRY(tpl_node_new(p, TPL_N_LIST, p->tok->line, out));
    TRY(tpl_expect_op(p, "["));
    while (!tpl_at_op(p, "]")) {
        tpl_node *item;
        if ((*out)->items.n > 0)
            TRY(tpl_expect_op(p, ","));
        if (tpl_at_op(p, "]"))
            break;
        TRY(tpl_parse_expression(p, &item));
        TRY(tpl_nodes_add(p, &(*out)->items, item));
    }
    return tpl_expect_op(p, "]");
}

static vt_status parse_dict(tpl_parser *p, tpl_node **out)
{
    TRY(tpl_node_new(p, TPL_N_DICT, p->tok->line, out));
    TRY(tpl_expect_op(p, "{"));
    while (!tpl_at_op(p, "}")) {
        tpl_node *key, *value;
        if ((*out)->items.n > 0)
            TRY(tpl_expect_op(p, ","));
        if (tpl_at_op(p, "}"))
            break;
        TRY(tpl_parse_expression(p, &key));
        TRY(tpl_expect_op(p, ":"));
        TRY(tpl_parse_expression(p, &value));
        TRY(tpl_nodes_add(p, &(*out)->items, key));
        TRY(tpl_nodes_add(p, &(*out)->items, value));
    }
    return tpl_expect_op(p, "}");
}

static vt_status parse_tuple_of(tpl_parser *p, bool simple, bool with_condition,
                                bool with_namespace, bool parentheses, const char *end,
                                tpl_node **out);

static vt_status parse_primary(tpl_parser *p, bool with_namespace, tpl_node **out)
{
    const tpl_token *t = p->tok;
    switch (t->type) {
    case TPL_T_NAME:
        return parse_name(p, with_namespace, out);
    case TPL_T_STRING:
        return parse_string(p, out);
    case TPL_T_INTEGER:
    case TPL_T_FLOAT:
        TRY(const_node(p, t->type == TPL_T_FLOAT ? tpl_float(t->real) : tpl_int(t->integer), out));
        p->tok++;
        return VT_OK;
    default:
        break;
    }
    if (tpl_skip_op(p, "(")) {
        TRY(parse_tuple_of(p, false, true, false, true, NULL, out));
        return tpl_expect_op(p, ")");
    }
    if (tpl_at_op(p, "["))
        return parse_list(p, out);
    if (tpl_at_op(p, "{"))
        return parse_dict(p, out);
    return tpl_unexpected(p, "an expression");
}

/* A primary that is read, not assigned. */
static vt_status parse_operand(tpl_parser *p, tpl_node **out)
{
    TRY(parse_primary(p, false, out));
    if ((*out)->kind == TPL_N_NAME)
        tpl_scan_load(p, (*out)->name);
    return VT_OK;
}

/* ---- calls, subscripts, filters, tests ---- */

/* name=value; the names grow along with the values. */
static vt_status parse_keyword(tpl_parser *p, tpl_node_args *args)
{
    const char *name;
    tpl_node *value;
    int32_t n = args->kw.n, cap = args->kw.cap;
    if (n == TPL_MAX_NAMED)
        return tpl_syntax(p, p->tok->line, "a call has more than %d keyword arguments",
                          TPL_MAX_NAMED);
    TRY(tpl_intern_token(p, &name));
    for (int32_t i = 0; i < n; i++)
        if (args->kw_name[i] == name)
            return tpl_syntax(p, p->tok->line, "keyword argument '%.60s' is given twice", name);
    p->tok += 2;
    TRY(tpl_parse_expression(p, &value));
    TRY(tpl_nodes_add(p, &args->kw, value));
    if (args->kw.cap > cap) {
        const char **names = vt_arena_alloc(&p->t->arena, (size_t)args->kw.cap, sizeof *names);
        if (!names)
            return tpl_parse_no_memory(p);
        if (n > 0)
            memcpy(names, args->kw_name, (size_t)n * sizeof *names);
        args->kw_name = names;
    }
    args->kw_name[n] = name;
    return VT_OK;
}

static vt_status parse_args(tpl_parser *p, tpl_node_args **out)
{
    int32_t line = p->tok->line;
    tpl_node_args *args = vt_arena_alloc(&p->t->arena, 1, sizeof *args);
    if (!args)
        return tpl_parse_no_memory(p);
    TRY(tpl_expect_op(p, "("));
    for (bool first = true; !tpl_at_op(p, ")"); first = false) {
        bool ok = true;
        if (!first)
            TRY(tpl_expect_op(p, ","));
        if (tpl_at_op(p, ")"))
            break;
        if (tpl_skip_op(p, "*")) {
            ok = !args->dyn_pos && !args->dyn_kw;
            TRY(tpl_parse_expression(p, &args->dyn_pos));
        } else if (tpl_skip_op(p, "**")) {
            ok = !args->dyn_kw;
            TRY(tpl_parse_expression(p, &args->dyn_kw));
        } else if (p->tok->type == TPL_T_NAME && p->tok[1].type == TPL_T_OPERATOR &&
                   p->tok[1].len == 1 && p->tok[1].text[0] == '=') {
            ok = !args->dyn_kw;
            TRY(parse_keyword(p, args));
        } else {
            tpl_node *value;
            ok = !args->dyn_pos && !args->dyn_kw && args->kw.n == 0;
            TRY(tpl_parse_expression(p, &value));
            TRY(tpl_nodes_add(p, &args->pos, value));
        }
        if (!ok)
            return tpl_syntax(p, line, "the arguments of a call are in the wrong order");
    }
    *out = args;
    return tpl_expect_op(p, ")");
}

static vt_status parse_call(tpl_parser *p, tpl_node **node)
{
    tpl_node *call;
    TRY(tpl_node_new(p, TPL_N_CALL, p->tok->line, &call));
    call->a = *node;
    *node = call;
    return parse_args(p, &call->args);
}

/* One part of [a:b:c], absent where `:` `,` or `]` follows at once. */
static vt_status parse_slice_part(tpl_parser *p, tpl_node **out)
{
    if (tpl_at_op(p, ":") || tpl_at_op(p, "]") || tpl_at_op(p, ","))
        return VT_OK;
    return tpl_parse_expression(p, out);
}

static vt_status parse_subscript(tpl_parser *p, tpl_node **node)
{
    int32_t line = p->tok->line;
    tpl_node *sub;
    if (tpl_skip_op(p, ".")) {
        bool name = p->tok->type == TPL_T_NAME;
        if (!name && p->tok->type != TPL_T_INTEGER)
            return tpl_unexpected(p, "a name or number");
        TRY(tpl_node_new(p, name ? TPL_N_GETATTR : TPL_N_GETITEM, line, &sub));
        sub->a = *node;
        if (name) {
            TRY(tpl_const_str(p, p->tok->text, p->tok->len, &sub->value));
        } else {
            TRY(const_node(p, tpl_int(p->tok->integer), &sub->b));
        }
        p->tok++;
        *node = sub;
        return VT_OK;
    }
    TRY(tpl_expect_op(p, "["));
    TRY(tpl_node_new(p, TPL_N_GETITEM, line, &sub));
    sub->a = *node;
    TRY(parse_slice_part(p, &sub->b));
    if (tpl_at_op(p, ":")) {
        sub->kind = TPL_N_SLICE;
        p->tok++;
        TRY(parse_slice_part(p, &sub->c));
        if (tpl_skip_op(p, ":"))
            TRY(parse_slice_part(p, &sub->d));
    } else if (!sub->b) {
        return tpl_unexpected(p, "an expression");
    } else if (tpl_at_op(p, ",")) {
        tpl_node *tuple, *item;
        TRY(tpl_node_new(p, TPL_N_TUPLE, line, &tuple));
        TRY(tpl_nodes_add(p, &tuple->items, sub->b));
        while (tpl_skip_op(p, ",")) {
            TRY(tpl_parse_expression(p, &item));
            TRY(tpl_nodes_add(p, &tuple->items, item));
        }
        sub->b = tuple;
    }
    *node = sub;
    return tpl_expect_op(p, "]");
}

static vt_status parse_postfix(tpl_parser *p, tpl_node **node)
{
    for (;;) {
        if (tpl_at_op(p, ".") || tpl_at_op(p, "["))
            TRY(parse_subscript(p, node));
        else if (tpl_at_op(p, "("))
            TRY(parse_call(p, node));
        else
            return VT_OK;
        TRY(tpl_nest(p)); /* a chain of a thousand calls is a tree as deep */
    }
}

static vt_status parse_filter(tpl_parser *p, tpl_node **node)
{
    tpl_node *filter;
    if (p->tok->type != TPL_T_NAME)
        return tpl_unexpected(p, "a filter's name");
    TRY(tpl_node_new(p, TPL_N_FILTER, p->tok->line, &filter));
    TRY(tpl_intern_token(p, &filter->name));
    filter->builtin = tpl_find_filter(&p->t->tables, p->tok->text, p->tok->len);
    filter->a = *node;
    p->tok++;
    if (tpl_at_op(p, "("))
        TRY(parse_args(p, &filter->args));
    *node = filter;
    return VT_OK;
}

vt_status tpl_parse_filters(tpl_parser *p, tpl_node *input, bool inline_start, tpl_node **out)
{
    int32_t nesting = p->nesting;
    *out = input;
    while (inline_start || tpl_skip_op(p, "|")) {
        TRY(parse_filter(p, out));
        TRY(tpl_nest(p));
        inline_start = false;
    }
    p->nesting = nesting;
    return VT_OK;
}

static bool begins_argument(const tpl_parser *p)
{
    switch (p->tok->type) {
    case TPL_T_NAME:
        return !tpl_at_name(p, "else") && !tpl_at_name(p, "or") && !tpl_at_name(p, "and");
    case TPL_T_STRING:
    case TPL_T_INTEGER:
    case TPL_T_FLOAT:
        return true;
    default:
        return tpl_at_op(p, "[") || tpl_at_op(p, "{");
    }
}

static vt_status parse_test(tpl_parser *p, tpl_node **node)
{
    tpl_node *test;
    p->tok++; /* is */
    bool negated = tpl_skip_name(p, "not");
    if (p->tok->type != TPL_T_NAME)
        return tpl_unexpected(p, "a test's name");
    TRY(tpl_node_new(p, TPL_N_TEST, p->tok->line, &test));
    TRY(tpl_intern_token(p, &test->name));
    test->builtin = tpl_find_test(&p->t->tables, p->tok->text, p->tok->len);
    test->a = *node;
    p->tok++;
    if (tpl_at_op(p, "(")) {
        TRY(parse_args(p, &test->args));
    } else if (begins_argument(p)) {
        tpl_node *arg;
        if (tpl_at_name(p, "is"))
            return tpl_syntax(p, p->tok->line, "tests cannot be chained with `is`");
        test->args = vt_arena_alloc(&p->t->arena, 1, sizeof *test->args);
        if (!test->args)
            return tpl_parse_no_memory(p);
        TRY(parse_operand(p, &arg));
        TRY(parse_postfix(p, &arg));
        TRY(tpl_nodes_add(p, &test->args->pos, arg));
    }
    *node = test;
    if (negated) {
        TRY(tpl_node_new(p, TPL_N_NOT, test->line, node));
        (*node)->a = test;
    }
    return VT_OK;
}

static vt_status parse_filter_expression(tpl_parser *p, tpl_node **node)
{
    for (;;) {
        if (tpl_skip_op(p, "|"))
            TRY(parse_filter(p, node));
        else if (tpl_at_name(p, "is"))
            TRY(parse_test(p, node));
        else if (tpl_at_op(p, "("))
            TRY(parse_call(p, node));
        else
            return VT_OK;
        TRY(tpl_nest(p));
    }
}

/* ---- operators ---- */

static vt_status parse_unary(tpl_parser *p, bool with_filter, tpl_node **out)
{
    int32_t line = p->tok->line, nesting = p->nesting;
    TRY(tpl_nest(p));
    bool minus = tpl_at_op(p, "-");
    if (minus || tpl_at_op(p, "+")) {
        tpl_node *of;
        p->tok++;
        TRY(parse_unary(p, false, &of));
        TRY(binary_node(p, minus ? TPL_N_NEG : TPL_N_POS, 0, line, of, NULL, out));
    } else {
        TRY(parse_operand(p, out));
    }
    TRY(parse_postfix(p, out));
    if (with_filter)
        TRY(parse_filter_expression(p, out));
    p->nesting = nesting;
    return VT_OK;
}

typedef struct op_level {
    const char *text[4];
    tpl_op op[4];
    int32_t n;
} op_level;

static const op_level op_power = {{"**"}, {TPL_OP_POW}, 1};
static const op_level op_product = {
    {"*", "/", "//", "%"}, {TPL_OP_MUL, TPL_OP_DIV, TPL_OP_FLOORDIV, TPL_OP_MOD}, 4};
static const op_level op_sum = {{"+", "-"}, {TPL_OP_ADD, TPL_OP_SUB}, 2};

static vt_status parse_power_operand(tpl_parser *p, tpl_node **out)
{
    return parse_unary(p, true, out);
}

/* Left-associative operators of one level over operands read by `next`. */
static vt_status parse_level(tpl_parser *p, const op_level *level,
                             vt_status (*next)(tpl_parser *, tpl_node **), tpl_node **out)
{
    int32_t nesting = p->nesting;
    TRY(next(p, out));
    for (;;) {
        int32_t line = p->tok->line, i = 0;
        while (i < level->n && !tpl_at_op(p, level->text[i]))
            i++;
        if (i == level->n)
            break;
        tpl_node *left = *out, *right;
        p->tok++;
        TRY(next(p, &right));
        TRY(binary_node(p, TPL_N_BINARY, level->op[i], line, left, right, out));
        TRY(tpl_nest(p)); /* the tree leans left: a long chain is deep */
    }
    p->nesting = nesting;
    return VT_OK;
}

static vt_status parse_power(tpl_parser *p, tpl_node **out)
{
    return parse_level(p, &op_power, parse_power_operand, out);
}
static vt_status parse_product(tpl_parser *p, tpl_node **out)
{
    return parse_level(p, &op_product, parse_power, out);
}

static vt_status parse_concat(tpl_parser *p, tpl_node **out)
{
    tpl_node *first;
    TRY(parse_product(p, &first));
    *out = first;
    if (!tpl_at_op(p, "~"))
        return VT_OK;
    TRY(tpl_node_new(p, TPL_N_CONCAT, first->line, out));
    TRY(tpl_nodes_add(p, &(*out)->items, first));
    while (tpl_skip_op(p, "~")) {
        tpl_node *item;
        TRY(parse_product(p, &item));
        TRY(tpl_nodes_add(p, &(*out)->items, item));
    }
    return VT_OK;
}

static vt_status parse_sum(tpl_parser *p, tpl_node **out)
{
    return parse_level(p, &op_sum, parse_concat, out);
}

/* The comparison operator here, if there is one; moves over it. */
static bool compare_op(tpl_parser *p, tpl_op *op)
{
    static const char *const text[] = {"==", "!=", "<", "<=", ">", ">="};
    static const tpl_op ops[] = {TPL_OP_EQ, TPL_OP_NE, TPL_OP_LT, TPL_OP_LE, TPL_OP_GT, TPL_OP_GE};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (tpl_skip_op(p, text[i])) {
            *op = ops[i];
            return true;
        }
    }
    if (tpl_skip_name(p, "in")) {
        *op = TPL_OP_IN;
        return true;
    }
    if (tpl_at_name(p, "not") && p->tok[1].type == TPL_T_NAME &&
        strcmp(p->tok[1].text, "in") == 0) {
        p->tok += 2;
        *op = TPL_OP_NOT_IN;
        return true;
    }
    return false;
}

static vt_status parse_compare(tpl_parser *p, tpl_node **out)
{
    tpl_op op;
    int32_t line = p->tok->line;
    TRY(parse_sum(p, out));
    tpl_node *compare = NULL;
    while (compare_op(p, &op)) {
        tpl_node *operand, *right;
        if (!compare) {
            TRY(binary_node(p, TPL_N_COMPARE, op, line, *out, NULL, &compare));
            *out = compare;
        }
        TRY(parse_sum(p, &right));
        TRY(binary_node(p, TPL_N_COMPARE, op, line, right, NULL, &operand));
        TRY(tpl_nodes_add(p, &compare->items, operand));
    }
    return VT_OK;
}

static vt_status parse_not(tpl_parser *p, tpl_node **out)
{
    if (!tpl_at_name(p, "not"))
        return parse_compare(p, out);
    int32_t nesting = p->nesting;
    TRY(tpl_node_new(p, TPL_N_NOT, p->tok->line, out));
    p->tok++;
    TRY(tpl_nest(p));
    TRY(parse_not(p, &(*out)->a));
    p->nesting = nesting;
    return VT_OK;
}

static vt_status parse_logic(tpl_parser *p, const char *word, tpl_kind kind,
                             vt_status (*next)(tpl_parser *, tpl_node **), tpl_node **out)
{
    int32_t nesting = p->nesting;
    TRY(next(p, out));
    for (;;) {
        int32_t line = p->tok->line;
        tpl_node *left = *out, *right;
        if (!tpl_skip_name(p, word))
            break;
        TRY(next(p, &right));
        TRY(binary_node(p, kind, 0, line, left, right, out));
        TRY(tpl_nest(p));
    }
    p->nesting = nesting;
    return VT_OK;
}

static vt_status parse_and(tpl_parser *p, tpl_node **out)
{
    return parse_logic(p, "and", TPL_N_AND, parse_not, out);
}
static vt_status parse_or(tpl_parser *p, tpl_node **out)
{
    return parse_logic(p, "or", TPL_N_OR, parse_and, out);
}

vt_status tpl_parse_expression(tpl_parser *p, tpl_node **out)
{
    int32_t nesting = p->nesting;
    int32_t line = p->tok->line;
    TRY(tpl_nest(p));
    TRY(parse_or(p, out));
    while (tpl_skip_name(p, "if")) {
        tpl_node *then = *out;
        TRY(tpl_node_new(p, TPL_N_COND, line, out));
        (*out)->a = then;
        TRY(parse_or(p, &(*out)->b));
        if (tpl_skip_name(p, "else"))
            TRY(tpl_parse_expression(p, &(*out)->c));
        TRY(tpl_nest(p));
    }
    p->nesting = nesting;
    return VT_OK;
}

/* ---- tuples and targets ---- */

static bool at_tuple_end(const tpl_parser *p, const char *end)
{
    return p->tok->type == TPL_T_VARIABLE_END || p->tok->type == TPL_T_BLOCK_END ||
           tpl_at_op(p, ")") || (end && tpl_at_name(p, end));
}

static vt_status parse_tuple_of(tpl_parser *p, bool simple, bool with_condition,
                                bool with_namespace, bool parentheses, const char *end,
                                tpl_node **out)
{
    int32_t line = p->tok->line;
    tpl_nodes items = {0};
    bool is_tuple = false;
    TRY(tpl_nest(p));
    for (;;) {
        tpl_node *item;
        if (items.n > 0)
            TRY(tpl_expect_op(p, ","));
        if (at_tuple_end(p, end))
            break;
        if (simple)
            TRY(parse_primary(p, with_namespace, &item));
        else if (with_condition)
            TRY(tpl_parse_expression(p, &item));
        else
            TRY(parse_or(p, &item));
        TRY(tpl_nodes_add(p, &items, item));
        if (!tpl_at_op(p, ","))
            break;
        is_tuple = true;
    }
    p->nesting--;
    if (!is_tuple && items.n == 1) {
        *out = items.at[0];
        return VT_OK;
    }
    if (!is_tuple && !parentheses)
        return tpl_unexpected(p, "an expression");
    TRY(tpl_node_new(p, TPL_N_TUPLE, line, out));
    (*out)->items = items;
    return VT_OK;
}

vt_status tpl_parse_tuple(tpl_parser *p, bool with_condition, const char *end, tpl_node **out)
{
    return parse_tuple_of(p, false, with_condition, false, false, end, out);
}

static vt_status check_target(tpl_parser *p, const tpl_node *target)
{
    if (target->kind == TPL_N_TUPLE) {
        for (int32_t i = 0; i < target->items.n; i++)
            TRY(check_target(p, target->items.at[i]));
        return VT_OK;
    }
    if (target->kind == TPL_N_NAME && p->loops > 0 && strcmp(target->name, "loop") == 0)
        return tpl_syntax(p, target->line,
                          "the special variable 'loop' cannot be assigned in a for loop");
    if (target->kind == TPL_N_NAME)
        tpl_scan_store(p, target->name);
    if (target->kind == TPL_N_NAME || target->kind == TPL_N_NSREF)
        return VT_OK;
    return tpl_syntax(p, target->line,
                      "only names, attributes of namespaces and tuples of them can be assigned");
}

vt_status tpl_parse_target(tpl_parser *p, bool with_namespace, const char *end, tpl_node **out)
{
    TRY(parse_tuple_of(p, true, false, with_namespace, false, end, out));
    return check_target(p, *out);
}
