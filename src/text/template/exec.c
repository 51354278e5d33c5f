/* Statements, loops and macros.
 *
 * Scopes are jinja2's: for bodies (each iteration), with, macros, call, filter, set and generation
 * blocks open one; `if` does not. Assignments go to the innermost scope, so a loop cannot change
 * what is outside it except through a namespace. A macro sees the scopes where it was defined, as
 * they are when it is called.
 *
 * break and continue travel as r->flow: every body stops while it is set, the loop clears it.
 */
#include "text/template/interpreter.h"

typedef enum tpl_flow { TPL_FLOW_NONE = 0, TPL_FLOW_BREAK, TPL_FLOW_CONTINUE } tpl_flow;

/* ---- scopes ---- */

static vt_status bind(tpl_run *r, tpl_scope *s, const char *name, tpl_value value)
{
    tpl_var *v;
    TRY(tpl_scope_find(r, s, name, &v));
    if (!v) {
        v = r->free_vars ? r->free_vars : tpl_alloc(r, 1, sizeof *v);
        if (!v)
            return VT_ERR_MEMORY;
        if (v == r->free_vars)
            r->free_vars = v->next;
        *v = (tpl_var){.name = name, .next = s->vars};
        s->vars = v;
    }
    v->value = value;
    return VT_OK;
}

static vt_status scope_new(tpl_run *r, tpl_scope *parent, tpl_scope **out)
{
    tpl_scope *s = tpl_alloc(r, 1, sizeof *s);
    if (!s)
        return VT_ERR_MEMORY;
    s->parent = parent;
    *out = s;
    return VT_OK;
}

static vt_status scope_push(tpl_run *r)
{
    tpl_scope *s;
    TRY(scope_new(r, r->scope, &s));
    r->scope = s;
    return VT_OK;
}

/* Puts the variables on the free list, unless a macro may still look at them. */
static void scope_clear(tpl_run *r, tpl_scope *s)
{
    tpl_var *last = s->vars;
    if (s->captured || !last)
        return;
    while (last->next)
        last = last->next;
    last->next = r->free_vars;
    r->free_vars = s->vars;
    s->vars = NULL;
}

static void scope_pop(tpl_run *r)
{
    tpl_scope *s = r->scope;
    r->scope = s->parent;
    scope_clear(r, s);
}

static vt_status assign(tpl_run *r, const tpl_node *target, tpl_value value)
{
    if (target->kind == TPL_N_NAME)
        return bind(r, r->scope, target->name, value);
    if (target->kind == TPL_N_NSREF) {
        tpl_value ns, key;
        tpl_node name = {.kind = TPL_N_NAME, .line = target->line, .name = target->name};
        TRY(tpl_eval(r, &name, &ns));
        if (ns.type != TPL_NAMESPACE)
            return tpl_fail(r, "cannot assign attribute '%s' on '%s': it is no namespace",
                            target->attr, target->name);
        if (target->attr[0] == '_')
            return tpl_fail(
                r, "a namespace cannot have an attribute '%s' that begins with an underscore",
                target->attr);
        TRY(tpl_str_wrap(r, target->attr, strlen(target->attr), &key));
        return tpl_dict_set(r, ns.dict, key, value);
    }
    tpl_list *parts;
    TRY(tpl_to_list(r, value, &parts));
    if (parts->n != (size_t)target->items.n)
        return tpl_fail(r, "%s values to unpack (expected %d)",
                        parts->n > (size_t)target->items.n ? "too many" : "not enough",
                        (int)target->items.n);
    for (size_t i = 0; i < parts->n; i++)
        TRY(assign(r, target->items.at[i], parts->at[i]));
    return VT_OK;
}

/* ---- output ---- */

static vt_status check_output(tpl_run *r)
{
    if (r->out->len > r->max_output)
        return tpl_limit(r, "the rendering writes more than %zu bytes", r->max_output);
    return VT_OK;
}

/* The output of a body as a string. */
static vt_status capture(tpl_run *r, const tpl_nodes *body, tpl_value *out)
{
    tpl_text text = {0}, *outer = r->out;
    r->out = &text;
    TRY(tpl_exec(r, body));
    r->out = outer;
    return tpl_text_value(r, &text, out);
}

static vt_status exec_output(tpl_run *r, const tpl_node *n)
{
    tpl_value v;
    TRY(tpl_eval(r, n->a, &v));
    TRY(tpl_put_str(r, r->out, v));
    return check_output(r);
}

/* ---- macros ---- */

static tpl_value *take_keyword(const tpl_call *call, bool *taken, const char *name)
{
    for (int32_t i = 0; i < call->n_kw; i++) {
        if (!taken[i] && tpl_str_is(call->kw[i].key.str, name)) {
            taken[i] = true;
            return &call->kw[i].value;
        }
    }
    return NULL;
}

static vt_status default_argument(tpl_run *r, const tpl_macro_def *d, int32_t i, tpl_value *out)
{
    int32_t first = d->n_params - d->n_defaults;
    if (i >= first)
        return tpl_eval(r, d->defaults[i - first], out);
    tpl_value hint;
    TRY(tpl_str_printf(r, &hint, "parameter '%.60s' was not provided", d->param[i]));
    return tpl_undefined_hint(r, hint.str->data, out);
}

/* Binds what the macro reads under the names caller, kwargs and varargs without having such
 * parameters. */
static vt_status bind_extras(tpl_run *r, const tpl_macro_def *d, const tpl_call *call, bool *taken)
{
    const struct vt_template *t = r->t;
    if (d->uses_caller) {
        tpl_value v, *given = take_keyword(call, taken, "caller");
        if (given)
            v = *given;
        else
            TRY(tpl_undefined_hint(r, "No caller defined", &v));
        TRY(bind(r, r->scope, t->caller_name, v));
    }
    if (d->uses_kwargs) {
        tpl_dict *rest;
        TRY(tpl_dict_new(r, &rest));
        for (int32_t i = 0; i < call->n_kw; i++)
            if (!taken[i])
                TRY(tpl_dict_set(r, rest, call->kw[i].key, call->kw[i].value));
        TRY(bind(r, r->scope, t->kwargs_name, tpl_of_dict(rest)));
    }
    for (int32_t i = 0; i < call->n_kw && !d->uses_kwargs; i++)
        if (!taken[i])
            return tpl_fail(r, "macro '%s' takes no keyword argument '%.60s'",
                            d->name ? d->name : "caller", call->kw[i].key.str->data);
    if (d->uses_varargs) {
        tpl_list *rest;
        TRY(tpl_list_new(r, 0, &rest));
        for (int32_t i = d->n_params; i < call->n_pos; i++)
            TRY(tpl_list_add(r, rest, call->pos[i]));
        TRY(bind(r, r->scope, t->varargs_name, tpl_of_list(TPL_TUPLE, rest)));
    } else if (call->n_pos > d->n_params) {
        return tpl_fail(r, "macro '%s' takes not more than %d argument(s)",
                        d->name ? d->name : "caller", (int)d->n_params);
    }
    return VT_OK;
}

static vt_status bind_arguments(tpl_run *r, const tpl_macro_def *d, const tpl_call *call)
{
    bool absent[TPL_MAX_NAMED], *taken = tpl_alloc(r, (size_t)call->n_kw + 1, sizeof *taken);
    if (!taken)
        return VT_ERR_MEMORY;
    /* every parameter is looked for among the variables and the keywords */
    TRY(tpl_charge(r, (size_t)d->n_params * (1 + (size_t)call->n_kw / 8)));
    for (int32_t i = 0; i < d->n_params; i++) {
        tpl_value v,
            *given = i < call->n_pos ? &call->pos[i] : take_keyword(call, taken, d->param[i]);
        absent[i] = !given;
        if (given)
            v = *given;
        else
            TRY(tpl_undefined_name(r, d->param[i], &v));
        TRY(bind(r, r->scope, d->param[i], v));
    }
    TRY(bind_extras(r, d, call, taken));
    for (int32_t i = 0; i < d->n_params; i++) { /* a default sees the parameters before it */
        tpl_value v;
        if (!absent[i])
            continue;
        TRY(default_argument(r, d, i, &v));
        TRY(bind(r, r->scope, d->param[i], v));
    }
    return VT_OK;
}

typedef struct macro {
    tpl_object object;
    const tpl_macro_def *def;
    tpl_scope *closure;
} macro;

static vt_status macro_call(tpl_run *r, tpl_object *self, const tpl_call *call, tpl_value *out)
{
    const macro *m = (const macro *)self;
    tpl_scope *outer = r->scope;
    TRY(tpl_enter(r));
    TRY(scope_new(r, m->closure, &r->scope));
    TRY(bind_arguments(r, m->def, call));
    TRY(capture(r, &m->def->body, out));
    scope_pop(r);
    r->scope = outer;
    tpl_leave(r);
    return VT_OK;
}

static vt_status macro_repr(tpl_run *r, tpl_object *self, tpl_text *t)
{
    const char *name = ((const macro *)self)->def->name;
    TRY(tpl_text_puts(r, t, name ? "<Macro '" : "<Macro anonymous>"));
    if (!name)
        return VT_OK;
    TRY(tpl_text_puts(r, t, name));
    return tpl_text_puts(r, t, "'>");
}

static const tpl_class macro_class = {"Macro", macro_call, NULL, macro_repr};

static vt_status macro_value(tpl_run *r, const tpl_macro_def *def, tpl_value *out)
{
    macro *m = tpl_alloc(r, 1, sizeof *m);
    if (!m)
        return VT_ERR_MEMORY;
    *m = (macro){.object = {&macro_class}, .def = def, .closure = r->scope};
    for (tpl_scope *s = r->scope; s && !s->captured; s = s->parent)
        s->captured = true;
    *out = tpl_of_object(&m->object);
    return VT_OK;
}

static vt_status exec_macro(tpl_run *r, const tpl_node *n)
{
    tpl_value m;
    TRY(macro_value(r, n->macro, &m));
    return bind(r, r->scope, n->macro->name, m);
}

static vt_status exec_call_block(tpl_run *r, const tpl_node *n)
{
    tpl_value f, caller, result;
    tpl_call call;
    TRY(macro_value(r, n->macro, &caller));
    TRY(tpl_eval(r, n->a->a, &f));
    TRY(tpl_eval_args(r, n->a->args, &call, 1));
    for (int32_t i = 0; i < call.n_kw; i++)
        if (tpl_str_is(call.kw[i].key.str, "caller"))
            return tpl_fail(r, "a call block cannot be given an argument 'caller'");
    TRY(tpl_str_wrap(r, "caller", 6, &call.kw[call.n_kw].key));
    call.kw[call.n_kw++].value = caller;
    r->line = n->line;
    TRY(tpl_call_value(r, f, &call, &result));
    TRY(tpl_put_str(r, r->out, result));
    return check_output(r);
}

static vt_status exec_generation(tpl_run *r, const tpl_node *n)
{
    tpl_value m, text;
    tpl_call none = {0};
    TRY(macro_value(r, n->macro, &m));
    TRY(macro_call(r, m.object, &none, &text));
    TRY(tpl_put_str(r, r->out, text));
    return check_output(r);
}

/* ---- loops ---- */

typedef struct loop {
    tpl_object object;
    const tpl_node *node; /* the for statement */
    tpl_looped looped;
    tpl_scope *scope; /* around the statement, for its test and its recursion */
    tpl_cursor cursor;
    int64_t index0, length; /* length -1: not asked yet */
    int32_t depth0;
    bool has_after, after_is_end; /* `after` was pulled ahead; the cursor was at its end */
    bool tested;                  /* the cursor's items have passed the test already */
    tpl_value after, current, before, changed;
} loop;

/* The next item that passes the loop's test. */
static vt_status loop_pull(tpl_run *r, loop *l, tpl_value *item, bool *end)
{
    const tpl_node *n = l->node;
    for (;;) {
        tpl_value pass;
        TRY(tpl_cursor_next(r, &l->cursor, item, end));
        if (*end || !n->c || l->tested)
            return VT_OK;
        tpl_scope *outer = r->scope;
        TRY(scope_new(r, l->scope, &r->scope));
        TRY(assign(r, n->a, *item));
        TRY(tpl_eval(r, n->c, &pass));
        scope_pop(r);
        r->scope = outer;
        if (tpl_truth(pass))
            return VT_OK;
    }
}

/* loop.last and loop.nextitem look one item ahead. */
static vt_status loop_peek(tpl_run *r, loop *l)
{
    if (!l->has_after)
        TRY(loop_pull(r, l, &l->after, &l->after_is_end));
    l->has_after = true;
    return VT_OK;
}

static vt_status loop_next(tpl_run *r, loop *l, tpl_value *item, bool *end)
{
    TRY(loop_peek(r, l));
    l->has_after = l->after_is_end;
    *end = l->after_is_end;
    *item = l->after;
    if (*end)
        return VT_OK;
    l->index0++;
    l->before = l->current;
    l->current = *item;
    return VT_OK;
}

/* Without a test the iterable's own length; otherwise the rest is pulled into a list and counted.
 */
static vt_status loop_length(tpl_run *r, loop *l)
{
    tpl_list *rest;
    if (l->length >= 0 || (!l->node->c && tpl_length(l->cursor.over, &l->length)))
        return VT_OK;
    TRY(tpl_list_new(r, 0, &rest));
    for (;;) {
        tpl_value item;
        bool end;
        TRY(loop_pull(r, l, &item, &end));
        if (end)
            break;
        TRY(tpl_list_add(r, rest, item));
    }
    l->length = (int64_t)rest->n + l->index0 + 1 + (l->has_after && !l->after_is_end);
    TRY(tpl_iter_new(r, rest, VT_OK,
                     &l->cursor.over)); /* already tested: the items go on from here */
    l->tested = true;
    return VT_OK;
}

/* loop.cycle(a, b, ...) */
static vt_status loop_cycle(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const loop *l = (const loop *)a->self.object;
    if (a->call->n_kw > 0)
        return tpl_fail(r, "loop.cycle takes no keyword arguments");
    *out = a->call->pos[l->index0 % a->call->n_pos];
    return VT_OK;
}

/* loop.changed(a, b, ...): true unless the last call had the same values. */
static vt_status loop_changed(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    loop *l = (loop *)a->self.object;
    tpl_list *values;
    bool equal = false;
    TRY(tpl_list_new(r, 0, &values));
    for (int32_t i = 0; i < a->call->n_pos; i++)
        TRY(tpl_list_add(r, values, a->call->pos[i]));
    tpl_value now = tpl_of_list(TPL_TUPLE, values);
    if (l->changed.type != TPL_MISSING)
        TRY(tpl_equal(r, l->changed, now, &equal));
    l->changed = now;
    *out = tpl_bool(!equal);
    return VT_OK;
}

/* loop.last, loop.previtem, loop.nextitem */
static vt_status loop_neighbour(tpl_run *r, loop *l, const tpl_str *name, tpl_value *out)
{
    if (name->data[0] == 'p') {
        *out = l->before;
        return l->index0 > 0 ? VT_OK : tpl_undefined_hint(r, "there is no previous item", out);
    }
    TRY(loop_peek(r, l));
    if (name->data[0] == 'l')
        *out = tpl_bool(l->after_is_end);
    else if (l->after_is_end)
        return tpl_undefined_hint(r, "there is no next item", out);
    else
        *out = l->after;
    return VT_OK;
}

static vt_status loop_attribute(tpl_run *r, tpl_object *self, const tpl_str *name, tpl_value *out,
                                bool *found)
{
    static const tpl_builtin cycle = {"cycle", loop_cycle, 1, -1, {0}, 0},
                             changed = {"changed", loop_changed, 0, -1, {0}, 0};
    loop *l = (loop *)self;
    *found = true;
    if (tpl_str_is(name, "index0"))
        *out = tpl_int(l->index0);
    else if (tpl_str_is(name, "index"))
        *out = tpl_int(l->index0 + 1);
    else if (tpl_str_is(name, "first"))
        *out = tpl_bool(l->index0 == 0);
    else if (tpl_str_is(name, "depth") || tpl_str_is(name, "depth0"))
        *out = tpl_int(l->depth0 + (name->len == 5));
    else if (tpl_str_is(name, "last") || tpl_str_is(name, "previtem") ||
             tpl_str_is(name, "nextitem"))
        return loop_neighbour(r, l, name, out);
    else if (tpl_str_is(name, "cycle"))
        return tpl_bind_method(r, &cycle, tpl_of_object(self), out);
    else if (tpl_str_is(name, "changed"))
        return tpl_bind_method(r, &changed, tpl_of_object(self), out);
    else if (tpl_str_is(name, "length") || tpl_str_is(name, "revindex") ||
             tpl_str_is(name, "revindex0")) {
        TRY(loop_length(r, l));
        *out = tpl_int(name->data[0] == 'l' ? l->length : l->length - l->index0 - (name->len == 9));
    } else {
        *found = false;
    }
    return VT_OK;
}

static vt_status loop_call(tpl_run *r, tpl_object *self, const tpl_call *call, tpl_value *out);

static const tpl_class loop_class = {"LoopContext", loop_call, loop_attribute, NULL};

static vt_status loop_iterations(tpl_run *r, loop *l, bool *finished_one)
{
    const tpl_node *n = l->node;
    tpl_scope *outer = r->scope;
    l->looped.outer = r->looped;
    r->looped = &l->looped;
    for (;;) {
        tpl_value item;
        bool end;
        TRY(loop_next(r, l, &item, &end));
        if (end)
            break;
        if (r->scope == outer || r->scope->captured)
            TRY(scope_new(r, outer, &r->scope));
        else
            scope_clear(r, r->scope);
        l->looped.item = item;
        TRY(assign(r, n->a, item));
        TRY(bind(r, r->scope, r->t->loop_name, tpl_of_object(&l->object)));
        TRY(tpl_exec(r, &n->body));
        tpl_flow flow = (tpl_flow)r->flow;
        r->flow = TPL_FLOW_NONE;
        *finished_one |= flow == TPL_FLOW_NONE;
        if (flow == TPL_FLOW_BREAK)
            break;
    }
    if (r->scope != outer)
        scope_clear(r, r->scope);
    r->scope = outer;
    r->looped = l->looped.outer;
    return VT_OK;
}

/* Runs the loop in r->scope. The else part runs if no iteration reached its end (in jinja2, break
 * and continue in the first one do not count). */
static vt_status loop_run(tpl_run *r, const tpl_node *n, tpl_value iterable, int32_t depth0)
{
    bool finished_one = false;
    loop *l = tpl_alloc(r, 1, sizeof *l);
    if (!l)
        return VT_ERR_MEMORY;
    *l = (loop){.object = {&loop_class},
                .node = n,
                .scope = r->scope,
                .index0 = -1,
                .length = -1,
                .depth0 = depth0};
    TRY(tpl_cursor_init(r, iterable, &l->cursor));
    TRY(tpl_enter(r));
    TRY(loop_iterations(r, l, &finished_one));
    if (!finished_one && n->orelse.n > 0) {
        TRY(scope_push(r));
        TRY(tpl_exec(r, &n->orelse));
        scope_pop(r);
    }
    tpl_leave(r);
    return VT_OK;
}

static vt_status exec_for(tpl_run *r, const tpl_node *n)
{
    tpl_value iterable;
    TRY(tpl_eval(r, n->b, &iterable));
    r->line = n->line;
    return loop_run(r, n, iterable, 0);
}

/* loop(items): the loop's body over other items, one level deeper. */
static vt_status loop_call(tpl_run *r, tpl_object *self, const tpl_call *call, tpl_value *out)
{
    const loop *l = (const loop *)self;
    tpl_text text = {0}, *outer = r->out;
    tpl_scope *scope = r->scope;
    if (call->n_pos != 1 || call->n_kw != 0)
        return tpl_fail(r, "loop() takes one argument, the items to go through");
    if (!l->node->recursive)
        return tpl_fail(r, "the loop must have the 'recursive' marker to be called recursively");
    r->out = &text;
    r->scope = l->scope;
    TRY(loop_run(r, l->node, call->pos[0], l->depth0 + 1));
    r->scope = scope;
    r->out = outer;
    return tpl_text_value(r, &text, out);
}

/* ---- other statements ---- */

static vt_status exec_if(tpl_run *r, const tpl_node *n)
{
    tpl_value test;
    TRY(tpl_eval(r, n->a, &test));
    if (tpl_truth(test))
        return tpl_exec(r, &n->body);
    for (int32_t i = 0; i < n->items.n; i++) {
        TRY(tpl_eval(r, n->items.at[i]->a, &test));
        if (tpl_truth(test))
            return tpl_exec(r, &n->items.at[i]->body);
    }
    return tpl_exec(r, &n->orelse);
}

static vt_status exec_set(tpl_run *r, const tpl_node *n)
{
    tpl_value v;
    TRY(tpl_eval(r, n->b, &v));
    r->line = n->line;
    return assign(r, n->a, v);
}

/* The output of the body in a scope of its own, after the filters. */
static vt_status filtered_body(tpl_run *r, const tpl_node *n, tpl_value *out)
{
    TRY(scope_push(r));
    TRY(capture(r, &n->body, out));
    if (n->b && r->flow == TPL_FLOW_NONE)
        TRY(tpl_eval_filters(r, n->b, *out, out));
    scope_pop(r);
    return VT_OK;
}

static vt_status exec_filtered(tpl_run *r, const tpl_node *n)
{
    tpl_value v;
    TRY(filtered_body(r, n, &v));
    if (r->flow != TPL_FLOW_NONE) /* break or continue left the body: its output is dropped */
        return VT_OK;
    if (n->kind == TPL_N_SET_BLOCK)
        return assign(r, n->a, v);
    TRY(tpl_put_str(r, r->out, v));
    return check_output(r);
}

static vt_status exec_with(tpl_run *r, const tpl_node *n)
{
    tpl_value *values = tpl_alloc(r, n->items.n / 2 + 1, sizeof *values);
    if (!values)
        return VT_ERR_MEMORY;
    for (int32_t i = 0; i < n->items.n / 2; i++)
        TRY(tpl_eval(r, n->items.at[2 * i + 1], &values[i]));
    TRY(scope_push(r));
    for (int32_t i = 0; i < n->items.n / 2; i++)
        TRY(assign(r, n->items.at[2 * i], values[i]));
    TRY(tpl_exec(r, &n->body));
    scope_pop(r);
    return VT_OK;
}

static vt_status exec_one(tpl_run *r, const tpl_node *n)
{
    switch (n->kind) {
    case TPL_N_DATA:
        TRY(tpl_text_add(r, r->out, n->value.str->data, n->value.str->len));
        return check_output(r);
    case TPL_N_OUTPUT:
        return exec_output(r, n);
    case TPL_N_IF:
        return exec_if(r, n);
    case TPL_N_FOR:
        return exec_for(r, n);
    case TPL_N_SET:
        return exec_set(r, n);
    case TPL_N_SET_BLOCK:
    case TPL_N_FILTER_BLOCK:
        return exec_filtered(r, n);
    case TPL_N_MACRO:
        return exec_macro(r, n);
    case TPL_N_CALL_BLOCK:
        return exec_call_block(r, n);
    case TPL_N_GENERATION:
        return exec_generation(r, n);
    case TPL_N_WITH:
        return exec_with(r, n);
    default: /* TPL_N_BREAK, TPL_N_CONTINUE */
        r->flow = n->kind == TPL_N_BREAK ? TPL_FLOW_BREAK : TPL_FLOW_CONTINUE;
        return VT_OK;
    }
}

vt_status tpl_exec(tpl_run *r, const tpl_nodes *body)
{
    TRY(tpl_enter(r));
    for (int32_t i = 0; i < body->n && r->flow == TPL_FLOW_NONE; i++) {
        r->line = body->at[i]->line;
        TRY(tpl_charge(r, 1));
        TRY(exec_one(r, body->at[i]));
    }
    tpl_leave(r);
    return VT_OK;
}

/* ---- variables from outside ---- */

vt_status tpl_bind_variables(tpl_run *r, const tpl_dict *variables)
{
    for (size_t i = 0; i < variables->n; i++) {
        const tpl_str *name = variables->entry[i].key.str;
        const char *interned = tpl_intern_find(r->t, name->data, name->len);
        TRY(tpl_charge(r, 1 + name->len / 64));
        if (interned)
            TRY(bind(r, r->scope, interned, variables->entry[i].value));
    }
    return VT_OK;
}
