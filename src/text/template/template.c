/* The public functions: a template is parsed once and rendered many times. This file joins the
 * parts (values.h lists them) and hands the builtins to the parser and the interpreter. */
#include "text/template/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/random.h"
#include "text/template/builtins.h"

/* ---- parsing ---- */

static vt_status parse_template(vt_template *t, const char *source, size_t len, vt_err *err)
{
    tpl_tokens tokens = {0};
    tpl_parser p = {.t = t, .err = err};
    vt_status status = tpl_lex(t, source, len, &tokens, err);
    if (status == VT_OK)
        status = tpl_parse_tokens(&p, &tokens);
    free(tokens.at);
    return status;
}

static void set_tables(tpl_tables *t)
{
    *t = (tpl_tables){
        .filters = {tpl_value_filters, tpl_sequence_filters, tpl_json_filters},
        .tests = tpl_tests,
        .globals = tpl_globals,
        .str_methods = tpl_str_methods,
        .list_methods = tpl_list_methods,
        .tuple_methods = tpl_tuple_methods,
        .dict_methods = tpl_dict_methods,
    };
}

vt_status vt_template_parse(const char *name, const char *source, size_t len, vt_template **out,
                            vt_err *err)
{
    enum { ARENA = 256 << 20 };
    if (len > TPL_MAX_SOURCE)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: the template has %zu bytes, more than the %d allowed", name, len,
                       TPL_MAX_SOURCE);
    vt_template *t = vt_calloc(1, sizeof *t);
    if (!t)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory while parsing the template", name);
    vt_arena_init(&t->arena, ARENA);
    set_tables(&t->tables);
    t->seed = vt_hash_seed();
    t->name = vt_arena_strdup(&t->arena, name, strlen(name));
    t->source = vt_arena_strdup(&t->arena, source, len);
    t->loop_name = tpl_intern(t, "loop", 4);
    t->caller_name = tpl_intern(t, "caller", 6);
    t->kwargs_name = tpl_intern(t, "kwargs", 6);
    t->varargs_name = tpl_intern(t, "varargs", 7);
    vt_status status = t->name && t->source && t->loop_name && t->caller_name && t->kwargs_name &&
                               t->varargs_name
                           ? parse_template(t, source, len, err)
                           : vt_fail(err, VT_ERR_MEMORY,
                                     "%s: out of memory while parsing the template", name);
    if (status != VT_OK) {
        vt_template_free(t);
        return status;
    }
    *out = t;
    return VT_OK;
}

const char *vt_template_source(const vt_template *t) { return t->source; }

void vt_template_free(vt_template *t)
{
    if (!t)
        return;
    vt_arena_release(&t->arena);
    free(t);
}

/* ---- rendering ---- */

/* Returns the number of the message that a loop was at when the rendering failed; -1: none was. */
static int64_t message_at(const tpl_run *r, const tpl_list *messages)
{
    for (const tpl_looped *l = r->looped; l; l = l->outer)
        for (size_t i = 0; l->item.type == TPL_DICT && i < messages->n; i++)
            if (messages->at[i].type == TPL_DICT && messages->at[i].dict == l->item.dict)
                return (int64_t)i;
    return -1;
}

/* Adds to a failure the message that it came from, with its role. */
static void name_message(const tpl_run *r, const json_t *variables, const tpl_list *messages)
{
    int64_t i = message_at(r, messages);
    const json_t *given = json_array_get(json_object_get(variables, "messages"), (size_t)i);
    const char *role = json_string_value(json_object_get(given, "role"));
    char *text = r->err->message;
    size_t len = strlen(text);
    if (i >= 0)
        snprintf(text + len, sizeof r->err->message - len, " (at messages[%lld], role '%.30s')",
                 (long long)i, role ? role : "?");
}

/* The variables go into the root scope. */
static vt_status render(tpl_run *r, json_t *variables)
{
    tpl_dict *members;
    TRY(tpl_read_variables(r, variables, &members));
    TRY(tpl_bind_variables(r, members));
    vt_status status = tpl_exec(r, &r->t->body);
    for (size_t i = 0; i < members->n && status != VT_OK && status != VT_ERR_CANCELLED; i++) {
        const tpl_entry *e = &members->entry[i];
        if (tpl_str_is(e->key.str, "messages") && e->value.type == TPL_LIST)
            name_message(r, variables, e->value.list);
    }
    return status;
}

vt_status vt_template_render(const vt_template *t, const char *variables, size_t len,
                             const vt_template_limits *limits, vt_buf *out, vt_err *err)
{
    json_t *parsed;
    TRY(vt_template_parse_variables(t->name, variables, len, &parsed, err));
    vt_status status = vt_template_render_object(t, parsed, limits, out, err);
    json_decref(parsed);
    return status;
}

vt_status vt_template_render_object(const vt_template *t, json_t *variables,
                                    const vt_template_limits *limits, vt_buf *out, vt_err *err)
{
    vt_template_limits l = limits ? *limits : (vt_template_limits){0};
    vt_err own = {0}; /* generators keep failures for later: there is always one to keep */
    tpl_text text = {0};
    tpl_scope root = {0};
    tpl_run r = {
        .name = t->name,
        .t = t,
        .err = err ? err : &own,
        .max_steps = l.max_steps > 0 ? l.max_steps : 10000000,
        .max_depth = l.max_depth > 0 ? l.max_depth : 400,
        .max_output = l.max_output > 0 ? l.max_output : (size_t)16 << 20,
        .now = l.now ? l.now : (int64_t)time(NULL),
        .stop = l.stop,
        .stop_context = l.stop_context,
        .seed = vt_hash_seed(),
        .out = &text,
        .scope = &root,
        .line = 1,
    };
    r.steps_later = r.max_steps;
    vt_arena_init(&r.arena, TPL_MEMORY);
    vt_status status = render(&r, variables);
    if (l.steps_taken)
        *l.steps_taken = tpl_steps_taken(&r);
    if (status == VT_OK && !vt_buf_add(out, text.data ? text.data : "", text.len))
        status = vt_fail(err, VT_ERR_MEMORY,
                         "%s: the rendered text of %zu bytes does not fit the output", t->name,
                         text.len);
    vt_arena_release(&r.arena);
    return status;
}
