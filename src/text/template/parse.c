/* Statements of templates. The parser is jinja2's, tag by tag.
 *
 * Tags that need other templates (include, import, from, extends, block), autoescape and print are
 * refused by name: chat templates are single files without HTML escaping.
 */
#include "text/template/nodes.h"

/* ---- statements ---- */

static vt_status parse_body(tpl_parser *p, const char *const *ends, tpl_nodes *body);

/* The body of a tag up to {% end %}, whose name is consumed. */
static vt_status parse_until(tpl_parser *p, const char *end, tpl_nodes *body)
{
    const char *const ends[] = {end, NULL};
    TRY(parse_body(p, ends, body));
    p->tok++;
    return VT_OK;
}

/* The clauses are siblings, so that a long chain of elif is not a deep tree. */
static vt_status parse_if(tpl_parser *p, tpl_node **out)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    TRY(tpl_node_new(p, TPL_N_IF, p->tok[-1].line, out));
    for (tpl_node *clause = *out;;) {
        TRY(tpl_parse_tuple(p, false, NULL, &clause->a));
        TRY(parse_body(p, ends, &clause->body));
        if (!tpl_skip_name(p, "elif"))
            break;
        TRY(tpl_node_new(p, TPL_N_IF, p->tok[-1].line, &clause));
        TRY(tpl_nodes_add(p, &(*out)->items, clause));
    }
    if (tpl_skip_name(p, "else"))
        return parse_until(p, "endif", &(*out)->orelse);
    return tpl_expect_name(p, "endif");
}

static vt_status parse_for(tpl_parser *p, tpl_node **out)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    TRY(tpl_node_new(p, TPL_N_FOR, p->tok[-1].line, out));
    tpl_node *n = *out;
    p->loops++;
    TRY(tpl_parse_target(p, false, "in", &n->a));
    p->loops--;
    TRY(tpl_expect_name(p, "in"));
    TRY(tpl_parse_tuple(p, false, "recursive", &n->b));
    if (tpl_skip_name(p, "if"))
        TRY(tpl_parse_expression(p, &n->c));
    n->recursive = tpl_skip_name(p, "recursive");
    p->loops++;
    TRY(parse_body(p, ends, &n->body));
    p->loops--;
    if (tpl_skip_name(p, "endfor"))
        return VT_OK;
    p->tok++;
    return parse_until(p, "endfor", &n->orelse);
}

static vt_status parse_set(tpl_parser *p, tpl_node **out)
{
    TRY(tpl_node_new(p, TPL_N_SET, p->tok[-1].line, out));
    tpl_node *n = *out;
    TRY(tpl_parse_target(p, true, NULL, &n->a));
    if (tpl_skip_op(p, "="))
        return tpl_parse_tuple(p, true, NULL, &n->b);
    n->kind = TPL_N_SET_BLOCK;
    TRY(tpl_parse_filters(p, NULL, false, &n->b));
    return parse_until(p, "endset", &n->body);
}

/* One parameter and its default. */
static vt_status parse_parameter(tpl_parser *p, tpl_macro_def *m, const char *param[],
                                 tpl_nodes *defaults)
{
    const char *name;
    if (p->tok->type != TPL_T_NAME)
        return tpl_unexpected(p, "a parameter's name");
    if (m->n_params == TPL_MAX_NAMED)
        return tpl_syntax(p, p->tok->line, "a macro has more than %d parameters", TPL_MAX_NAMED);
    TRY(tpl_intern_token(p, &name));
    for (int32_t i = 0; i < m->n_params; i++)
        if (param[i] == name)
            return tpl_syntax(p, p->tok->line, "the macro has two parameters named '%.60s'", name);
    param[m->n_params++] = name;
    p->tok++;
    if (tpl_skip_op(p, "=")) {
        tpl_node *value;
        TRY(tpl_parse_expression(p, &value));
        return tpl_nodes_add(p, defaults, value);
    }
    if (defaults->n > 0)
        return tpl_syntax(p, p->tok->line,
                          "parameter '%.60s' without a default follows one with a default", name);
    return VT_OK;
}

static vt_status parse_signature(tpl_parser *p, tpl_macro_def *m)
{
    const char *param[TPL_MAX_NAMED];
    tpl_nodes defaults = {0};
    TRY(tpl_expect_op(p, "("));
    while (!tpl_at_op(p, ")")) {
        if (m->n_params > 0)
            TRY(tpl_expect_op(p, ","));
        TRY(parse_parameter(p, m, param, &defaults));
    }
    m->param = vt_arena_alloc(&p->t->arena, (size_t)m->n_params, sizeof *m->param);
    if (!m->param)
        return tpl_parse_no_memory(p);
    memcpy(m->param, param, (size_t)m->n_params * sizeof *param);
    m->defaults = defaults.at;
    m->n_defaults = defaults.n;
    return tpl_expect_op(p, ")");
}

/* The body of a macro, call block or generation block: a function of its own, which break cannot
 * leave. */
static vt_status parse_macro_body(tpl_parser *p, tpl_macro_def *m, const char *end, int32_t line)
{
    tpl_macro_scan scan = {.outer = p->scan};
    int32_t loops = p->loops;
    tpl_nodes body = {0};
    p->scan = &scan;
    p->loops = 0;
    vt_status status = parse_until(p, end, &body);
    p->loops = loops;
    p->scan = scan.outer;
    TRY(status);
    m->body = body;
    m->uses_caller = scan.caller;
    m->uses_kwargs = scan.kwargs;
    m->uses_varargs = scan.varargs;
    for (int32_t i = 0; i < m->n_params; i++) {
        m->uses_kwargs &= strcmp(m->param[i], "kwargs") != 0;
        m->uses_varargs &= strcmp(m->param[i], "varargs") != 0;
        if (strcmp(m->param[i], "caller") == 0 && m->uses_caller) {
            if (i < m->n_params - m->n_defaults)
                return tpl_syntax(p, line, "a macro's parameter 'caller' needs a default");
            m->uses_caller = false;
        }
    }
    return VT_OK;
}

static vt_status macro_node(tpl_parser *p, tpl_kind kind, tpl_node **out)
{
    TRY(tpl_node_new(p, kind, p->tok[-1].line, out));
    (*out)->macro = vt_arena_alloc(&p->t->arena, 1, sizeof *(*out)->macro);
    return (*out)->macro ? VT_OK : tpl_parse_no_memory(p);
}

static vt_status parse_macro(tpl_parser *p, tpl_node **out)
{
    TRY(macro_node(p, TPL_N_MACRO, out));
    tpl_macro_def *m = (*out)->macro;
    if (p->tok->type != TPL_T_NAME)
        return tpl_unexpected(p, "the macro's name");
    TRY(tpl_intern_token(p, &m->name));
    tpl_scan_store(p, m->name);
    p->tok++;
    TRY(parse_signature(p, m));
    return parse_macro_body(p, m, "endmacro", (*out)->line);
}

static vt_status parse_call_block(tpl_parser *p, tpl_node **out)
{
    TRY(macro_node(p, TPL_N_CALL_BLOCK, out));
    if (tpl_at_op(p, "("))
        TRY(parse_signature(p, (*out)->macro));
    TRY(tpl_parse_expression(p, &(*out)->a));
    if ((*out)->a->kind != TPL_N_CALL)
        return tpl_syntax(p, (*out)->line,
                          "a call block needs a call, such as {%% call name() %%}");
    return parse_macro_body(p, (*out)->macro, "endcall", (*out)->line);
}

static vt_status parse_generation(tpl_parser *p, tpl_node **out)
{
    TRY(macro_node(p, TPL_N_GENERATION, out));
    return parse_macro_body(p, (*out)->macro, "endgeneration", (*out)->line);
}

static vt_status parse_filter_block(tpl_parser *p, tpl_node **out)
{
    TRY(tpl_node_new(p, TPL_N_FILTER_BLOCK, p->tok[-1].line, out));
    TRY(tpl_parse_filters(p, NULL, true, &(*out)->b));
    return parse_until(p, "endfilter", &(*out)->body);
}

static vt_status parse_with(tpl_parser *p, tpl_node **out)
{
    TRY(tpl_node_new(p, TPL_N_WITH, p->tok[-1].line, out));
    while (p->tok->type != TPL_T_BLOCK_END) {
        tpl_node *target, *value;
        if ((*out)->items.n > 0)
            TRY(tpl_expect_op(p, ","));
        TRY(tpl_parse_target(p, false, NULL, &target));
        TRY(tpl_expect_op(p, "="));
        TRY(tpl_parse_expression(p, &value));
        TRY(tpl_nodes_add(p, &(*out)->items, target));
        TRY(tpl_nodes_add(p, &(*out)->items, value));
    }
    return parse_until(p, "endwith", &(*out)->body);
}

static vt_status parse_loop_control(tpl_parser *p, tpl_kind kind, tpl_node **out)
{
    if (p->loops == 0)
        return tpl_syntax(p, p->tok[-1].line, "'%s' outside a for loop", p->tok[-1].text);
    return tpl_node_new(p, kind, p->tok[-1].line, out);
}

/* Adds the statement whose name is the current token. */
static vt_status parse_statement(tpl_parser *p, tpl_nodes *body)
{
    static const struct {
        const char *name;
        vt_status (*parse)(tpl_parser *, tpl_node **);
    } tags[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
    };
    static const char *const refused[] = {"include", "import",     "from",  "extends",
                                          "block",   "autoescape", "print", "do"};
    const tpl_token *tag = p->tok;
    tpl_node *n;
    if (tag->type != TPL_T_NAME)
        return tpl_unexpected(p, "a tag's name");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (tpl_at_name(p, refused[i]))
            return vt_fail(p->err, VT_ERR_UNSUPPORTED,
                           "%s:%d: the tag '%s' is not supported in chat templates", p->t->name,
                           tag->line, refused[i]);
    p->tok++;
    if (strcmp(tag->text, "break") == 0 || strcmp(tag->text, "continue") == 0) {
        TRY(parse_loop_control(p, tag->text[0] == 'b' ? TPL_N_BREAK : TPL_N_CONTINUE, &n));
        return tpl_nodes_add(p, body, n);
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (strcmp(tag->text, tags[i].name) == 0) {
            TRY(tags[i].parse(p, &n));
            return tpl_nodes_add(p, body, n);
        }
    }
    return tpl_syntax(p, tag->line, "unknown tag '%.60s'", tag->text);
}

static vt_status parse_data(tpl_parser *p, tpl_nodes *body)
{
    tpl_node *n;
    TRY(tpl_node_new(p, TPL_N_DATA, p->tok->line, &n));
    TRY(tpl_const_str(p, p->tok->text, p->tok->len, &n->value));
    p->tok++;
    return tpl_nodes_add(p, body, n);
}

static vt_status parse_output(tpl_parser *p, tpl_nodes *body)
{
    tpl_node *n;
    TRY(tpl_node_new(p, TPL_N_OUTPUT, p->tok->line, &n));
    p->tok++;
    TRY(tpl_parse_tuple(p, true, NULL, &n->a));
    if (p->tok->type != TPL_T_VARIABLE_END)
        return tpl_unexpected(p, "}}");
    p->tok++;
    return tpl_nodes_add(p, body, n);
}

/* Nodes until a tag named in `ends` (left as the current token), or the end of the template without
 * ends. The first of them is the one a message names. */
static vt_status parse_nodes(tpl_parser *p, const char *const *ends, tpl_nodes *body)
{
    for (;;) {
        if (p->tok->type == TPL_T_EOF) {
            if (ends)
                return tpl_unexpected(p, ends[0]);
            return VT_OK;
        }
        if (p->tok->type == TPL_T_DATA) {
            TRY(parse_data(p, body));
            continue;
        }
        if (p->tok->type == TPL_T_VARIABLE_BEGIN) {
            TRY(parse_output(p, body));
            continue;
        }
        p->tok++; /* {% */
        for (int32_t i = 0; ends && ends[i]; i++)
            if (tpl_at_name(p, ends[i]))
                return VT_OK;
        TRY(parse_statement(p, body));
        if (p->tok->type != TPL_T_BLOCK_END)
            return tpl_unexpected(p, "%}");
        p->tok++;
    }
}

static vt_status parse_body(tpl_parser *p, const char *const *ends, tpl_nodes *body)
{
    tpl_skip_op(p, ":"); /* {% if x: %} is allowed */
    if (p->tok->type != TPL_T_BLOCK_END)
        return tpl_unexpected(p, "%}");
    p->tok++;
    TRY(tpl_nest(p));
    TRY(parse_nodes(p, ends, body));
    p->nesting--;
    return VT_OK;
}

/* ---- unknown filters and tests ---- */

/* jinja2 refuses a template that names an unknown filter or test, except within an if or an inline
 * if, where it fails only when it is reached. */
static vt_status check_names(tpl_parser *p, const tpl_node *n, bool soft);

static vt_status check_list(tpl_parser *p, const tpl_nodes *list, bool soft)
{
    for (int32_t i = 0; i < list->n; i++)
        TRY(check_names(p, list->at[i], soft));
    return VT_OK;
}

static vt_status check_names(tpl_parser *p, const tpl_node *n, bool soft)
{
    if (!n)
        return VT_OK;
    bool named = n->kind == TPL_N_FILTER || n->kind == TPL_N_TEST;
    if (named && !n->builtin && !soft)
        return vt_fail(p->err, VT_ERR_UNSUPPORTED, "%s:%d: there is no %s named '%s'", p->t->name,
                       n->line, n->kind == TPL_N_FILTER ? "filter" : "test", n->name);
    bool conditional = n->kind == TPL_N_IF || n->kind == TPL_N_COND;
    bool scoped = n->body.n > 0 &&
                  !conditional; /* jinja2 checks the body of a block of its own again */
    bool parts = conditional ||
                 (soft && n->kind != TPL_N_FILTER_BLOCK && n->kind != TPL_N_SET_BLOCK);
    const tpl_node *const part[] = {n->a, n->b, n->c, n->d};
    for (size_t i = 0; i < 4; i++)
        TRY(check_names(p, part[i], parts && !(n->kind == TPL_N_FOR && i == 2)));
    TRY(check_list(p, &n->items, parts));
    TRY(check_list(p, &n->body, parts && !scoped));
    TRY(check_list(p, &n->orelse, conditional));
    if (n->args) {
        TRY(check_list(p, &n->args->pos, parts));
        TRY(check_list(p, &n->args->kw, parts));
        TRY(check_names(p, n->args->dyn_pos, parts));
        TRY(check_names(p, n->args->dyn_kw, parts));
    }
    if (n->macro) {
        for (int32_t i = 0; i < n->macro->n_defaults; i++)
            TRY(check_names(p, n->macro->defaults[i], false));
        TRY(check_list(p, &n->macro->body, false));
    }
    return VT_OK;
}

vt_status tpl_parse_tokens(tpl_parser *p, const tpl_tokens *tokens)
{
    p->tok = tokens->at;
    TRY(parse_nodes(p, NULL, &p->t->body));
    return check_list(p, &p->t->body, false);
}
