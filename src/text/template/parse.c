/* Statements of templates, and the public face of parsing.
 *
 * The parser is jinja2's, tag by tag. Nodes live in the template's arena and are never changed
 * after parsing, so a template may be rendered by several threads at once. Names are interned:
 * scopes compare addresses.
 *
 * What would need other templates (include, import, from, extends, block) and autoescape are
 * refused by name: chat templates are single files without HTML escaping.
 */
#include "text/template/impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- helpers shared with template_expr.c ---- */

vt_status tpl_syntax(const tpl_parser *p, int32_t line, const char *fmt, ...)
{
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return vt_fail(p->err, VT_ERR_FORMAT, "%s:%d: %s", p->t->name, line, what);
}

static vt_status no_memory(const tpl_parser *p)
{
    vt_fail(p->err, VT_ERR_MEMORY, "%s: out of memory while parsing the template", p->t->name);
    return VT_ERR_MEMORY;
}

vt_status tpl_unexpected(const tpl_parser *p, const char *wanted)
{
    static const char *const names[] = {
        [TPL_T_EOF] = "the end of the template",
        [TPL_T_DATA] = "text",
        [TPL_T_VARIABLE_BEGIN] = "{{",
        [TPL_T_VARIABLE_END] = "}}",
        [TPL_T_BLOCK_BEGIN] = "{%",
        [TPL_T_BLOCK_END] = "%}",
        [TPL_T_STRING] = "a string",
        [TPL_T_INTEGER] = "an integer",
        [TPL_T_FLOAT] = "a number",
    };
    const tpl_token *t = p->tok;
    if (t->type == TPL_T_NAME || t->type == TPL_T_OPERATOR)
        return tpl_syntax(p, t->line, "found '%.60s' where %s was expected", t->text, wanted);
    return tpl_syntax(p, t->line, "found %s where %s was expected", names[t->type], wanted);
}

vt_status tpl_node_new(tpl_parser *p, tpl_kind kind, int32_t line, tpl_node **out)
{
    tpl_node *n = vt_arena_alloc(&p->t->arena, 1, sizeof *n);
    if (!n)
        return no_memory(p);
    n->kind = kind;
    n->line = line;
    *out = n;
    return VT_OK;
}

vt_status tpl_nodes_add(tpl_parser *p, tpl_nodes *list, tpl_node *node)
{
    if (list->n == list->cap) {
        int32_t cap = list->cap ? 2 * list->cap : 4;
        tpl_node **at = vt_arena_alloc(&p->t->arena, (size_t)cap, sizeof *at);
        if (!at)
            return no_memory(p);
        if (list->n > 0)
            memcpy(at, list->at, (size_t)list->n * sizeof *at);
        list->at = at;
        list->cap = cap;
    }
    list->at[list->n++] = node;
    return VT_OK;
}

static size_t name_hash(const char *name, size_t len)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

/* The slot that holds the name, or the free one where it belongs. */
static const char **intern_slot(const char **table, size_t cap, const char *name, size_t len)
{
    size_t i = name_hash(name, len) & (cap - 1);
    while (table[i] && (strncmp(table[i], name, len) != 0 || table[i][len] != '\0'))
        i = (i + 1) & (cap - 1);
    return table + i;
}

const char *tpl_intern_find(const vt_template *t, const char *name, size_t len)
{
    return t->cap_intern ? *intern_slot(t->intern, t->cap_intern, name, len) : NULL;
}

const char *tpl_intern(vt_template *t, const char *name, size_t len)
{
    if (2 * t->n_intern >= t->cap_intern) {
        size_t cap = t->cap_intern ? 2 * t->cap_intern : 64;
        const char **table = vt_arena_alloc(&t->arena, cap, sizeof *table);
        if (!table)
            return NULL;
        for (size_t i = 0; i < t->cap_intern; i++)
            if (t->intern[i])
                *intern_slot(table, cap, t->intern[i], strlen(t->intern[i])) = t->intern[i];
        t->intern = table;
        t->cap_intern = cap;
    }
    const char **slot = intern_slot(t->intern, t->cap_intern, name, len);
    if (!*slot) {
        *slot = vt_arena_strdup(&t->arena, name, len);
        t->n_intern += *slot != NULL;
    }
    return *slot;
}

bool tpl_at_op(const tpl_parser *p, const char *op)
{
    return p->tok->type == TPL_T_OPERATOR && strcmp(p->tok->text, op) == 0;
}

bool tpl_at_name(const tpl_parser *p, const char *name)
{
    return p->tok->type == TPL_T_NAME && strcmp(p->tok->text, name) == 0;
}

bool tpl_skip_op(tpl_parser *p, const char *op)
{
    bool at = tpl_at_op(p, op);
    p->tok += at;
    return at;
}

bool tpl_skip_name(tpl_parser *p, const char *name)
{
    bool at = tpl_at_name(p, name);
    p->tok += at;
    return at;
}

vt_status tpl_expect_op(tpl_parser *p, const char *op)
{
    char quoted[8];
    if (tpl_skip_op(p, op))
        return VT_OK;
    snprintf(quoted, sizeof quoted, "'%s'", op);
    return tpl_unexpected(p, quoted);
}

vt_status tpl_expect_name(tpl_parser *p, const char *name)
{
    return tpl_skip_name(p, name) ? VT_OK : tpl_unexpected(p, name);
}

/* The special names of macros become ordinary ones once the macro assigns them. */
void tpl_scan_store(tpl_parser *p, const char *name)
{
    for (tpl_macro_scan *s = p->scan; s; s = s->outer) {
        s->no_caller |= strcmp(name, "caller") == 0;
        s->no_kwargs |= strcmp(name, "kwargs") == 0;
        s->no_varargs |= strcmp(name, "varargs") == 0;
    }
}

void tpl_scan_load(tpl_parser *p, const char *name)
{
    for (tpl_macro_scan *s = p->scan; s; s = s->outer) {
        s->caller |= !s->no_caller && strcmp(name, "caller") == 0;
        s->kwargs |= !s->no_kwargs && strcmp(name, "kwargs") == 0;
        s->varargs |= !s->no_varargs && strcmp(name, "varargs") == 0;
    }
}

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

/* Clauses lie side by side, so that a long chain of elif is not deep. */
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

static vt_status parse_signature(tpl_parser *p, tpl_macro_def *m)
{
    tpl_nodes defaults = {0};
    TRY(tpl_expect_op(p, "("));
    while (!tpl_at_op(p, ")")) {
        if (m->n_params > 0)
            TRY(tpl_expect_op(p, ","));
        if (p->tok->type != TPL_T_NAME)
            return tpl_unexpected(p, "a parameter's name");
        const char **param = vt_arena_alloc(&p->t->arena, (size_t)m->n_params + 1, sizeof *param);
        if (!param)
            return no_memory(p);
        if (m->n_params > 0)
            memcpy(param, m->param, (size_t)m->n_params * sizeof *param);
        const char *name = param[m->n_params] = tpl_intern(p->t, p->tok->text, p->tok->len);
        for (int32_t i = 0; i < m->n_params; i++)
            if (param[i] == name)
                return tpl_syntax(p, p->tok->line, "parameter '%s' is there twice", name);
        m->param = param;
        m->n_params++;
        p->tok++;
        if (tpl_skip_op(p, "=")) {
            tpl_node *value;
            TRY(tpl_parse_expression(p, &value));
            TRY(tpl_nodes_add(p, &defaults, value));
        } else if (defaults.n > 0) {
            return tpl_syntax(p, p->tok->line,
                              "parameter '%s' without a default follows one with a default", name);
        }
    }
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
    return (*out)->macro ? VT_OK : no_memory(p);
}

static vt_status parse_macro(tpl_parser *p, tpl_node **out)
{
    TRY(macro_node(p, TPL_N_MACRO, out));
    tpl_macro_def *m = (*out)->macro;
    if (p->tok->type != TPL_T_NAME)
        return tpl_unexpected(p, "the macro's name");
    m->name = tpl_intern(p->t, p->tok->text, p->tok->len);
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

/* {% print a, b %} is the outputs of a and b. */
static vt_status parse_print(tpl_parser *p, tpl_nodes *body)
{
    for (bool first = true; p->tok->type != TPL_T_BLOCK_END; first = false) {
        tpl_node *output;
        if (!first)
            TRY(tpl_expect_op(p, ","));
        TRY(tpl_node_new(p, TPL_N_OUTPUT, p->tok->line, &output));
        TRY(tpl_parse_expression(p, &output->a));
        TRY(tpl_nodes_add(p, body, output));
    }
    return VT_OK;
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
    static const char *const refused[] = {"include", "import", "from",
                                          "extends", "block",  "autoescape"};
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
    if (strcmp(tag->text, "print") == 0)
        return parse_print(p, body);
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
    tpl_str *s = vt_arena_alloc(&p->t->arena, 1, sizeof *s);
    if (!s)
        return no_memory(p);
    *s = (tpl_str){p->tok->text, p->tok->len, tpl_count_chars(p->tok->text, p->tok->len), false};
    TRY(tpl_node_new(p, TPL_N_DATA, p->tok->line, &n));
    n->value = tpl_of_str(s);
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
    if (++p->nesting > TPL_MAX_NESTING)
        return tpl_syntax(p, p->tok->line, "expressions and tags are nested deeper than %d",
                          TPL_MAX_NESTING);
    TRY(parse_nodes(p, ends, body));
    p->nesting--;
    return VT_OK;
}

/* ---- unknown filters and tests ---- */

/* jinja2 refuses a template that names an unknown filter or test, except within an if or an inline
 * if, where it fails only when it is reached (so that a template may ask `'f' is filter` first). */
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
    bool scoped = n->body.n > 0 && !conditional; /* a frame of its own is hard again */
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

/* ---- the public face ---- */

static vt_status parse_template(vt_template *t, const char *source, size_t len, vt_err *err)
{
    tpl_tokens tokens = {0};
    vt_status status = tpl_lex(t, source, len, &tokens, err);
    if (status == VT_OK) {
        tpl_parser p = {.t = t, .tok = tokens.at, .err = err};
        status = parse_nodes(&p, NULL, &t->body);
        if (status == VT_OK)
            status = check_list(&p, &t->body, false);
    }
    free(tokens.at);
    return status;
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
    t->name = vt_arena_strdup(&t->arena, name, strlen(name));
    t->loop_name = tpl_intern(t, "loop", 4);
    t->caller_name = tpl_intern(t, "caller", 6);
    t->kwargs_name = tpl_intern(t, "kwargs", 6);
    t->varargs_name = tpl_intern(t, "varargs", 7);
    vt_status status = t->name && t->varargs_name
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

void vt_template_free(vt_template *t)
{
    if (!t)
        return;
    vt_arena_release(&t->arena);
    free(t);
}
