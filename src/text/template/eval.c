/* Expressions to values.
 *
 * tpl_eval walks the tree; every node is a step, and nodes with children count towards the depth
 * limit. Calls go through one binder (tpl_apply), which lays positional and keyword arguments out
 * by the builtin's parameter names, so the builtins themselves read arg[0], arg[1] ...
 */
#include "text/template/interpreter.h"

/* ---- calls ---- */

static vt_status bind_keywords(tpl_run *r, const tpl_builtin *b, const char *what,
                               const tpl_call *call, tpl_value *arg)
{
    for (int32_t k = 0; k < call->n_kw; k++) {
        const tpl_str *name = call->kw[k].key.str;
        int32_t i = 0;
        while (i < b->max && (b->params[i][0] == '.' || !tpl_str_is(name, b->params[i])))
            i++;
        if (i == b->max)
            return tpl_fail(r, "%s '%s' takes no keyword argument '%.60s'", what, b->name,
                            name->data);
        if (arg[i].type != TPL_MISSING)
            return tpl_fail(r, "%s '%s' got two values for its argument '%.60s'", what, b->name,
                            name->data);
        arg[i] = call->kw[k].value;
    }
    return VT_OK;
}

vt_status tpl_apply(tpl_run *r, const tpl_builtin *b, const char *what, tpl_value self,
                    const tpl_call *call, tpl_value *out)
{
    tpl_args a = {.self = self, .call = call, .which = b->which};
    if (b->max < 0) {
        if (call->n_pos < b->min)
            return tpl_fail(r, "%s '%s' needs at least %d argument%s", what, b->name, b->min,
                            b->min == 1 ? "" : "s");
        return b->fn(r, &a, out);
    }
    if (call->n_pos > b->max)
        return tpl_fail(r, "%s '%s' takes at most %d argument%s, not %d", what, b->name, b->max,
                        b->max == 1 ? "" : "s", call->n_pos);
    for (int32_t i = 0; i < call->n_pos; i++)
        a.arg[i] = call->pos[i];
    TRY(bind_keywords(r, b, what, call, a.arg));
    for (int32_t i = 0; i < b->min; i++)
        if (a.arg[i].type == TPL_MISSING)
            return tpl_fail(r, "%s '%s' needs its argument '%s'", what, b->name,
                            b->params[i] + (b->params[i][0] == '.'));
    return b->fn(r, &a, out);
}

/* f(*values) */
static vt_status spread_positional(tpl_run *r, const tpl_node *n, tpl_call *out)
{
    tpl_value v;
    tpl_list *more;
    TRY(tpl_eval(r, n, &v));
    TRY(tpl_to_list(r, v, &more));
    for (int32_t i = out->n_pos; i > 0; i--) /* room for those that the source spells out */
        TRY(tpl_list_add(r, more, tpl_none()));
    if (more->n == 0)
        return VT_OK;
    if (more->n > INT32_MAX)
        return tpl_limit(r, "a call has too many arguments");
    memmove(more->at + out->n_pos, more->at, (more->n - (size_t)out->n_pos) * sizeof *more->at);
    memcpy(more->at, out->pos, (size_t)out->n_pos * sizeof *more->at);
    out->pos = more->at;
    out->n_pos = (int32_t)more->n;
    return VT_OK;
}

/* f(**mapping) */
static vt_status spread_keywords(tpl_run *r, const tpl_node *n, tpl_call *out, int32_t spare)
{
    tpl_value v;
    int32_t n_given = out->n_kw;
    TRY(tpl_eval(r, n, &v));
    if (v.type != TPL_DICT)
        return tpl_fail(r, "the argument after ** must be a mapping, not '%s'", tpl_type_name(v));
    if (v.dict->n > INT32_MAX / 2)
        return tpl_limit(r, "a call has too many arguments");
    TRY(tpl_charge(r, v.dict->n * (1 + (size_t)n_given / 8)));
    tpl_entry *kw = tpl_alloc(r, (size_t)n_given + v.dict->n + (size_t)spare, sizeof *kw);
    if (!kw)
        return VT_ERR_MEMORY;
    memcpy(kw, out->kw, (size_t)n_given * sizeof *kw);
    for (size_t i = 0; i < v.dict->n; i++) {
        tpl_value key = v.dict->entry[i].key;
        if (key.type != TPL_STR)
            return tpl_fail(r, "keywords must be strings, not '%s'", tpl_type_name(key));
        for (int32_t k = 0; k < n_given; k++)
            if (tpl_str_is(key.str, out->kw[k].key.str->data))
                return tpl_fail(r, "keyword argument '%.60s' is given twice", key.str->data);
        kw[(size_t)n_given + i] = v.dict->entry[i];
    }
    out->kw = kw;
    out->n_kw += (int32_t)v.dict->n;
    return VT_OK;
}

/* spare_kw: room for keywords the caller adds itself. */
vt_status tpl_eval_args(tpl_run *r, const tpl_node_args *args, tpl_call *out, int32_t spare_kw)
{
    *out = (tpl_call){0};
    int32_t n_pos = args ? args->pos.n : 0, n_kw = args ? args->kw.n : 0;
    if (n_pos + n_kw + spare_kw == 0 && (!args || (!args->dyn_pos && !args->dyn_kw)))
        return VT_OK;
    out->pos = tpl_alloc(r, (size_t)n_pos + 1, sizeof *out->pos);
    out->kw = tpl_alloc(r, (size_t)(n_kw + spare_kw) + 1, sizeof *out->kw);
    if (!out->pos || !out->kw)
        return VT_ERR_MEMORY;
    for (; out->n_pos < n_pos; out->n_pos++)
        TRY(tpl_eval(r, args->pos.at[out->n_pos], &out->pos[out->n_pos]));
    for (int32_t i = 0; i < n_kw; i++) {
        TRY(tpl_str_wrap(r, args->kw_name[i], strlen(args->kw_name[i]), &out->kw[i].key));
        TRY(tpl_eval(r, args->kw.at[i], &out->kw[i].value));
        out->n_kw++;
    }
    if (args && args->dyn_pos)
        TRY(spread_positional(r, args->dyn_pos, out));
    if (args && args->dyn_kw)
        TRY(spread_keywords(r, args->dyn_kw, out, spare_kw));
    return VT_OK;
}

/* A method of markup: the strings that it returns, alone or in a list, are markup too. */
static vt_status call_method(tpl_run *r, const tpl_method *m, const tpl_call *call, tpl_value *out)
{
    TRY(tpl_apply(r, m->builtin, "method", m->self, call, out));
    if (!m->self.markup)
        return VT_OK;
    out->markup = out->type == TPL_STR;
    if (out->type == TPL_LIST || out->type == TPL_TUPLE)
        for (size_t i = 0; i < out->list->n; i++)
            out->list->at[i].markup = true;
    return VT_OK;
}

vt_status tpl_call_value(tpl_run *r, tpl_value f, const tpl_call *call, tpl_value *out)
{
    switch (f.type) {
    case TPL_FUNCTION:
        return tpl_apply(r, f.function, "function", (tpl_value){.type = TPL_MISSING}, call, out);
    case TPL_METHOD:
        return call_method(r, f.method, call, out);
    case TPL_OBJECT:
        return f.object->class->call(r, f.object, call, out);
    case TPL_UNDEFINED:
        return tpl_fail_undefined(r, f);
    default:
        return tpl_fail(r, "'%s' object is not callable", tpl_type_name(f));
    }
}

static vt_status eval_call(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    tpl_value f;
    tpl_call call;
    TRY(tpl_eval(r, n->a, &f));
    TRY(tpl_eval_args(r, n->args, &call, 0));
    r->line = n->line;
    return tpl_call_value(r, f, &call, out);
}

/* ---- names ---- */

vt_status tpl_scope_find(tpl_run *r, const tpl_scope *s, const char *name, tpl_var **out)
{
    size_t looked = 0;
    tpl_var *v = s->vars;
    for (; v && v->name != name; v = v->next)
        looked++;
    *out = v;
    return tpl_charge(r, looked / 16);
}

static vt_status eval_name(tpl_run *r, const char *name, tpl_value *out)
{
    for (const tpl_scope *s = r->scope; s; s = s->parent) {
        tpl_var *v;
        TRY(tpl_scope_find(r, s, name, &v));
        if (v) {
            *out = v->value;
            return VT_OK;
        }
    }
    const tpl_builtin *global = tpl_find(r->t->tables.globals, name, strlen(name));
    if (global) {
        *out = (tpl_value){.type = TPL_FUNCTION, .function = global};
        return VT_OK;
    }
    return tpl_undefined_name(r, name, out);
}

/* ---- the kinds of nodes ---- */

static vt_status eval_items(tpl_run *r, const tpl_nodes *items, tpl_type type, tpl_value *out)
{
    tpl_list *l;
    TRY(tpl_list_new(r, (size_t)items->n, &l));
    for (int32_t i = 0; i < items->n; i++)
        TRY(tpl_eval(r, items->at[i], &l->at[l->n++]));
    *out = tpl_of_list(type, l);
    return VT_OK;
}

static vt_status eval_dict(tpl_run *r, const tpl_nodes *items, tpl_value *out)
{
    tpl_dict *d;
    tpl_value key, value;
    TRY(tpl_dict_new(r, &d));
    for (int32_t i = 0; i < items->n; i += 2) {
        TRY(tpl_eval(r, items->at[i], &key));
        TRY(tpl_eval(r, items->at[i + 1], &value));
        TRY(tpl_dict_set(r, d, key, value));
    }
    *out = tpl_of_dict(d);
    return VT_OK;
}

static vt_status eval_compare(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    tpl_value left, right;
    bool holds = true;
    TRY(tpl_eval(r, n->a, &left));
    for (int32_t i = 0; i < n->items.n && holds; i++) { /* a < b < c: b is evaluated once */
        TRY(tpl_eval(r, n->items.at[i]->a, &right));
        r->line = n->line;
        TRY(tpl_compare(r, n->items.at[i]->op, left, right, &holds));
        left = right;
    }
    *out = tpl_bool(holds);
    return VT_OK;
}

static vt_status eval_concat(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    tpl_text t = {0};
    for (int32_t i = 0; i < n->items.n; i++) {
        tpl_value v;
        TRY(tpl_eval(r, n->items.at[i], &v));
        TRY(tpl_put_str(r, &t, v));
    }
    return tpl_text_value(r, &t, out);
}

static vt_status eval_condition(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    tpl_value test;
    TRY(tpl_eval(r, n->b, &test));
    if (tpl_truth(test))
        return tpl_eval(r, n->a, out);
    if (n->c)
        return tpl_eval(r, n->c, out);
    return tpl_undefined_hint(
        r, "the inline if-expression evaluated to false and no else section was defined.", out);
}

static vt_status eval_logic(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    TRY(tpl_eval(r, n->a, out));
    if (tpl_truth(*out) == (n->kind == TPL_N_OR))
        return VT_OK;
    return tpl_eval(r, n->b, out);
}

static vt_status eval_slice(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    tpl_value of, part[3] = {{.type = TPL_MISSING}, {.type = TPL_MISSING}, {.type = TPL_MISSING}};
    const tpl_node *const nodes[3] = {n->b, n->c, n->d};
    TRY(tpl_eval(r, n->a, &of));
    for (int i = 0; i < 3; i++)
        if (nodes[i])
            TRY(tpl_eval(r, nodes[i], &part[i]));
    r->line = n->line;
    return tpl_slice(r, of, part[0], part[1], part[2], out);
}

static vt_status apply_filter(tpl_run *r, const tpl_node *n, tpl_value input, tpl_value *out)
{
    const char *what = n->kind == TPL_N_FILTER ? "filter" : "test";
    tpl_call call;
    r->line = n->line;
    if (!n->builtin)
        return tpl_unsupported(r, "there is no %s named '%s'", what, n->name);
    TRY(tpl_eval_args(r, n->args, &call, 0));
    r->line = n->line;
    return tpl_apply(r, n->builtin, what, input, &call, out);
}

vt_status tpl_eval_filters(tpl_run *r, const tpl_node *n, tpl_value input, tpl_value *out)
{
    if (n->a)
        TRY(tpl_eval_filters(r, n->a, input, &input));
    return apply_filter(r, n, input, out);
}

static vt_status eval_binary(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    tpl_value a, b;
    TRY(tpl_eval(r, n->a, &a));
    TRY(tpl_eval(r, n->b, &b));
    r->line = n->line;
    return tpl_binary(r, n->op, a, b, out);
}

/* The kinds that begin with the value of n->a. */
static vt_status eval_unary(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    tpl_value a, key;
    TRY(tpl_eval(r, n->a, &a));
    r->line = n->line;
    switch (n->kind) {
    case TPL_N_NOT:
        *out = tpl_bool(!tpl_truth(a));
        return VT_OK;
    case TPL_N_NEG:
    case TPL_N_POS:
        return tpl_negate(r, a, n->kind == TPL_N_NEG, out);
    case TPL_N_GETATTR:
        return tpl_getattr(r, a, n->value, out);
    case TPL_N_GETITEM:
        TRY(tpl_eval(r, n->b, &key));
        r->line = n->line;
        return tpl_getitem(r, a, key, out);
    default: /* TPL_N_FILTER, TPL_N_TEST */
        return apply_filter(r, n, a, out);
    }
}

static vt_status eval_inner(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    switch (n->kind) {
    case TPL_N_TUPLE:
        return eval_items(r, &n->items, TPL_TUPLE, out);
    case TPL_N_LIST:
        return eval_items(r, &n->items, TPL_LIST, out);
    case TPL_N_DICT:
        return eval_dict(r, &n->items, out);
    case TPL_N_COND:
        return eval_condition(r, n, out);
    case TPL_N_OR:
    case TPL_N_AND:
        return eval_logic(r, n, out);
    case TPL_N_COMPARE:
        return eval_compare(r, n, out);
    case TPL_N_BINARY:
        return eval_binary(r, n, out);
    case TPL_N_CONCAT:
        return eval_concat(r, n, out);
    case TPL_N_SLICE:
        return eval_slice(r, n, out);
    case TPL_N_CALL:
        return eval_call(r, n, out);
    default:
        return eval_unary(r, n, out);
    }
}

vt_status tpl_eval(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    r->line = n->line;
    TRY(tpl_charge(r, 1));
    if (n->kind == TPL_N_CONST) {
        *out = n->value;
        return VT_OK;
    }
    if (n->kind == TPL_N_NAME)
        return eval_name(r, n->name, out);
    TRY(tpl_enter(r));
    TRY(eval_inner(r, n, out));
    tpl_leave(r);
    return VT_OK;
}
