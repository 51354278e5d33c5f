/* The parser's tools: messages, nodes, names, and looking at the next token. */
#include "text/template/nodes.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/random.h"

/* ---- builtins ---- */

const tpl_builtin *tpl_find(tpl_table table, const char *name, size_t len)
{
    for (size_t i = 0; i < table.n; i++)
        if (strncmp(table.at[i].name, name, len) == 0 && table.at[i].name[len] == '\0')
            return &table.at[i];
    return NULL;
}

const tpl_builtin *tpl_find_filter(const tpl_tables *t, const char *name, size_t len)
{
    const tpl_builtin *b = NULL;
    for (size_t i = 0; i < sizeof t->filters / sizeof *t->filters && !b; i++)
        b = tpl_find(t->filters[i], name, len);
    return b;
}

const tpl_builtin *tpl_find_test(const tpl_tables *t, const char *name, size_t len)
{
    return tpl_find(t->tests, name, len);
}

/* ---- messages ---- */

vt_status tpl_syntax(const tpl_parser *p, int32_t line, const char *fmt, ...)
{
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return vt_fail(p->err, VT_ERR_FORMAT, "%s:%d: %s", p->t->name, line, what);
}

vt_status tpl_parse_no_memory(const tpl_parser *p)
{
    return vt_fail(p->err, VT_ERR_MEMORY, "%s: out of memory while parsing the template",
                   p->t->name);
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

/* ---- nodes ---- */

vt_status tpl_nest(tpl_parser *p)
{
    if (++p->nesting > TPL_MAX_NESTING)
        return tpl_syntax(p, p->tok->line, "expressions and tags are nested deeper than %d",
                          TPL_MAX_NESTING);
    return VT_OK;
}

vt_status tpl_node_new(tpl_parser *p, tpl_kind kind, int32_t line, tpl_node **out)
{
    tpl_node *n = vt_arena_alloc(&p->t->arena, 1, sizeof *n);
    if (!n)
        return tpl_parse_no_memory(p);
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
            return tpl_parse_no_memory(p);
        if (list->n > 0)
            memcpy(at, list->at, (size_t)list->n * sizeof *at);
        list->at = at;
        list->cap = cap;
    }
    list->at[list->n++] = node;
    return VT_OK;
}

vt_status tpl_const_str(tpl_parser *p, const char *text, size_t len, tpl_value *out)
{
    tpl_str *s = vt_arena_alloc(&p->t->arena, 1, sizeof *s);
    if (!s)
        return tpl_parse_no_memory(p);
    *s = (tpl_str){.data = text, .len = len, .n_chars = tpl_count_chars(text, len)};
    *out = tpl_of_str(s);
    return VT_OK;
}

/* ---- names ---- */

/* Eight bytes a round. The seed is secret, so a template cannot choose names that collide. */
static size_t name_hash(uint64_t seed, const char *name, size_t len)
{
    uint64_t h = vt_mix64(seed ^ len);
    for (size_t i = 0; i < len; i += 8) {
        uint64_t word = 0;
        memcpy(&word, name + i, len - i < 8 ? len - i : 8);
        h = vt_mix64((h ^ word) + seed);
    }
    return (size_t)h;
}

/* The slot that holds the name, or the free one where it belongs. */
static const char **intern_slot(const char **table, size_t cap, uint64_t seed, const char *name,
                                size_t len)
{
    size_t i = name_hash(seed, name, len) & (cap - 1);
    while (table[i] && (strncmp(table[i], name, len) != 0 || table[i][len] != '\0'))
        i = (i + 1) & (cap - 1);
    return table + i;
}

const char *tpl_intern_find(const struct vt_template *t, const char *name, size_t len)
{
    return t->cap_intern ? *intern_slot(t->intern, t->cap_intern, t->seed, name, len) : NULL;
}

const char *tpl_intern(struct vt_template *t, const char *name, size_t len)
{
    if (2 * t->n_intern >= t->cap_intern) {
        size_t cap = t->cap_intern ? 2 * t->cap_intern : 64;
        const char **table = vt_arena_alloc(&t->arena, cap, sizeof *table);
        if (!table)
            return NULL;
        for (size_t i = 0; i < t->cap_intern; i++)
            if (t->intern[i])
                *intern_slot(table, cap, t->seed, t->intern[i],
                             strlen(t->intern[i])) = t->intern[i];
        t->intern = table;
        t->cap_intern = cap;
    }
    const char **slot = intern_slot(t->intern, t->cap_intern, t->seed, name, len);
    if (!*slot) {
        *slot = vt_arena_strdup(&t->arena, name, len);
        t->n_intern += *slot != NULL;
    }
    return *slot;
}

vt_status tpl_intern_token(tpl_parser *p, const char **out)
{
    *out = tpl_intern(p->t, p->tok->text, p->tok->len);
    return *out ? VT_OK : tpl_parse_no_memory(p);
}

/* ---- the next token ---- */

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
