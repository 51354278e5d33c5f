/* Sets of schemas, references and branches: see schema.h. */
#include "grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* ---- messages ---- */

vt_status schema_refuse(compiler *c, const char *keyword, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return vt_fail(c->err, VT_ERR_USAGE, "#%s%s%s: %s", c->path, keyword ? "/" : "",
                   keyword ? keyword : "", text);
}

size_t schema_enter(compiler *c, const char *keyword, const char *name)
{
    size_t before = c->path_len;
    vt_append(c->path, sizeof c->path, &c->path_len, "/%.100s%s%.100s", keyword, name ? "/" : "",
              name ? name : "");
    return before;
}

void schema_leave(compiler *c, size_t before)
{
    c->path_len = before;
    c->path[before] = 0;
}

/* ---- references ---- */

/* %20 and its like, in place. */
static void decode_percent(char *s)
{
    char *out = s;
    for (; *s; s++) {
        unsigned hex;
        bool escape = *s == '%' && sscanf(s + 1, "%2x", &hex) == 1 && s[1] && s[2];
        *out++ = escape ? (char)hex : *s;
        s += escape ? 2 : 0;
    }
    *out = 0;
}

/* ~0 and ~1 of one step of a JSON pointer, in place. */
static void decode_tilde(char *s)
{
    char *out = s;
    for (; *s; s++) {
        bool escape = *s == '~' && (s[1] == '0' || s[1] == '1');
        *out++ = escape ? (s[1] == '0' ? '~' : '/') : *s;
        s += escape;
    }
    *out = 0;
}

static const json_t *follow(const json_t *at, char *pointer)
{
    while (at && *pointer == '/') {
        char *step = ++pointer, *end = strchr(step, '/');
        pointer = end ? end : step + strlen(step);
        char kept = *pointer;
        *pointer = 0;
        decode_tilde(step);
        if (json_is_array(at)) {
            char *rest;
            unsigned long i = strtoul(step, &rest, 10);
            at = *step && !*rest ? json_array_get(at, i) : NULL;
        } else {
            at = json_object_get(at, step);
        }
        *pointer = kept;
    }
    return at && !*pointer ? at : NULL;
}

vt_status schema_resolve(compiler *c, const json_t *ref, const json_t **out)
{
    const char *text = json_string_value(ref);
    char pointer[1024];
    if (!text || strlen(text) >= sizeof pointer)
        return schema_refuse(c, "$ref", "expected a string of less than %zu bytes", sizeof pointer);
    if (text[0] != '#')
        return schema_refuse(c, "$ref", "'%.200s' is another document, and none is fetched", text);
    if (text[1] && text[1] != '/')
        return schema_refuse(c, "$ref",
                             "'%.200s' is an anchor; expected a path such as "
                             "#/$defs/name",
                             text);
    memcpy(pointer, text + 1, strlen(text));
    decode_percent(pointer);
    *out = follow(c->root, pointer);
    if (!*out)
        return schema_refuse(c, "$ref", "'%.200s' leads nowhere", text);
    return VT_OK;
}

/* ---- sets ---- */

bool schema_add(schema_set *set, const json_t *schema)
{
    if (json_is_true(schema))
        return true;
    if (json_is_false(schema))
        return set->never = true;
    for (int32_t i = 0; i < set->n; i++)
        if (set->at[i].is == schema)
            return true;
    if (set->n == SCHEMA_MAX_SET)
        return false;
    set->at[set->n++] = (struct schema_member){schema, 0};
    return true;
}

static vt_status add_checked(compiler *c, schema_set *set, const char *keyword,
                             const json_t *schema)
{
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return schema_refuse(c, keyword, "expected a schema: an object, true or false");
    if (!schema_add(set, schema))
        return schema_refuse(c, keyword, "more than %d schemas hold at one place", SCHEMA_MAX_SET);
    return VT_OK;
}

/* Up to draft 7 an object with $ref says nothing else. */
static vt_status drop_references(compiler *c, schema_set *set)
{
    int32_t n = 0, before = set->n;
    for (int32_t i = 0; i < before; i++)
        if (!json_object_get(set->at[i].is, "$ref"))
            set->at[n++] = set->at[i];
    set->n = n;
    if (n == 0 && before > 0 && !set->never)
        return schema_refuse(c, "$ref", "it leads back to itself");
    return VT_OK;
}

/* Puts the members from `from` on behind member i: so properties come in the order in which a
 * reader meets them. */
static void put_behind(schema_set *set, int32_t i, int32_t from)
{
    struct schema_member moved[SCHEMA_MAX_SET];
    int32_t n = set->n - from;
    memcpy(moved, set->at + from, (size_t)n * sizeof *moved);
    memmove(set->at + i + 1 + n, set->at + i + 1, (size_t)(from - i - 1) * sizeof *moved);
    memcpy(set->at + i + 1, moved, (size_t)n * sizeof *moved);
}

/* $ref and allOf of all members join the set. */
static vt_status flatten(compiler *c, schema_set *set)
{
    for (int32_t i = 0; i < set->n; i++) {
        int32_t before = set->n;
        const json_t *s = set->at[i].is, *ref = json_object_get(s, "$ref"), *target;
        const json_t *all = json_object_get(s, "allOf");
        if (ref) {
            TRY(schema_resolve(c, ref, &target));
            TRY(add_checked(c, set, "$ref", target));
            if (c->old_refs)
                all = NULL;
        }
        if (all && (!json_is_array(all) || json_array_size(all) == 0))
            return schema_refuse(c, "allOf", "expected a list of schemas");
        for (size_t k = 0; k < json_array_size(all); k++)
            TRY(add_checked(c, set, "allOf", json_array_get(all, k)));
        put_behind(set, i, before);
    }
    return c->old_refs ? drop_references(c, set) : VT_OK;
}

static int by_address(const void *a, const void *b)
{
    const struct schema_member *x = a, *y = b;
    if (x->is != y->is)
        return x->is < y->is ? -1 : 1;
    return x->stage - y->stage;
}

/* The rule that was made of an equal set; 0: none. *where: where a new one is to go. */
static symbol known(compiler *c, const schema_set *set, schema_memo ***where)
{
    schema_set sorted = *set;
    uint64_t h = set->never;
    qsort(sorted.at, (size_t)sorted.n, sizeof *sorted.at, by_address);
    for (int32_t i = 0; i < set->n; i++)
        h = vt_mix64(h ^ (uint64_t)(uintptr_t)sorted.at[i].is ^ (uint64_t)sorted.at[i].stage << 60);
    schema_memo **m = &c->memo[h & 255];
    for (; *m; m = &(*m)->next) {
        bool same = (*m)->set.n == set->n && (*m)->set.never == set->never;
        for (int32_t i = 0; same && i < set->n; i++)
            same = (*m)->set.at[i].is == sorted.at[i].is &&
                   (*m)->set.at[i].stage == sorted.at[i].stage;
        if (same)
            return (*m)->rule;
    }
    *where = m;
    return 0;
}

static vt_status remember(compiler *c, const schema_set *set, schema_memo **where, symbol rule)
{
    schema_memo *m = vt_calloc(1, sizeof *m);
    if (!m)
        return vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
    m->set = *set;
    qsort(m->set.at, (size_t)m->set.n, sizeof *m->set.at, by_address);
    m->rule = rule;
    *where = m;
    return VT_OK;
}

/* ---- branches ---- */

static const char *const choice_of[2] = {"anyOf", "oneOf"};

static vt_status check_one_of(compiler *c, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < i; k++)
            if (!schema_disjoint(c, json_array_get(list, k), json_array_get(list, i)))
                return schema_refuse(c, "oneOf",
                                     "a value may satisfy branch %zu and branch %zu, which oneOf "
                                     "forbids and cannot be excluded here; use anyOf, or give the "
                                     "branches different types, or a required property with "
                                     "different const",
                                     k, i);
    return VT_OK;
}

/* Adds one alternative for each branch of member i's anyOf or oneOf. */
static vt_status branch(compiler *c, const schema_set *set, int32_t i, symbol rule)
{
    int stage = set->at[i].stage;
    const json_t *list = json_object_get(set->at[i].is, choice_of[stage]);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_refuse(c, choice_of[stage], "expected a list of schemas");
    if (stage == 1)
        TRY(check_one_of(c, list));
    for (size_t k = 0; k < json_array_size(list); k++) {
        schema_set one = *set;
        symbol to;
        char number[24];
        if (++c->branches > SCHEMA_MAX_BRANCHES)
            return schema_refuse(c, choice_of[stage], "more than %d branches, multiplied out",
                                 SCHEMA_MAX_BRANCHES);
        one.at[i].stage++;
        snprintf(number, sizeof number, "%zu", k);
        size_t before = schema_enter(c, choice_of[stage], number);
        TRY(add_checked(c, &one, "", json_array_get(list, k)));
        TRY(schema_rule(c, &one, &to));
        schema_leave(c, before);
        rules_add(c->g, rule, &to, 1);
    }
    return VT_OK;
}

static vt_status fill_rule(compiler *c, schema_set *set, symbol rule)
{
    for (int32_t i = 0; i < set->n; i++) {
        for (; set->at[i].stage < 2; set->at[i].stage++)
            if (json_object_get(set->at[i].is, choice_of[set->at[i].stage]))
                return branch(c, set, i, rule);
    }
    return schema_leaf(c, set, rule);
}

vt_status schema_rule(compiler *c, schema_set *set, symbol *out)
{
    schema_memo **where = NULL;
    TRY(flatten(c, set));
    *out = known(c, set, &where);
    if (*out)
        return VT_OK;
    if (++c->level > SCHEMA_MAX_LEVELS)
        return schema_refuse(c, NULL, "schemas are nested more than %d levels deep",
                             SCHEMA_MAX_LEVELS);
    *out = rules_new(c->g, NULL);
    TRY(remember(c, set, where, *out));
    if (!set->never)
        TRY(fill_rule(c, set, *out));
    c->level--;
    if (c->g->rx.failed || c->g->failed)
        return schema_refuse(c, NULL, "the schema is too large: %s",
                             c->g->rx.failed ? c->g->rx.failed : "too many symbols");
    return VT_OK;
}

vt_status schema_one(compiler *c, const json_t *schema, symbol *out)
{
    schema_set set = {.n = 0};
    TRY(add_checked(c, &set, "", schema));
    return schema_rule(c, &set, out);
}

/* ---- the whole ---- */

static vt_status check_depth(compiler *c, const json_t *v, int depth)
{
    const char *key;
    json_t *member;
    if (depth > 2 * VT_GRAMMAR_MAX_DEPTH)
        return schema_refuse(c, NULL, "nested more than %d levels deep", 2 * VT_GRAMMAR_MAX_DEPTH);
    if (json_is_object(v))
        json_object_foreach((json_t *)(uintptr_t)v, key, member)
            TRY(check_depth(c, member, depth + 1));
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++)
        TRY(check_depth(c, json_array_get(v, i), depth + 1));
    return VT_OK;
}

static bool says(const json_t *schema, const char *draft)
{
    const char *text = json_string_value(json_object_get(schema, "$schema"));
    return text && strstr(text, draft);
}

/* Nothing, a blank, or a line with its indentation. Without an end to blanks a small model may
 * write nothing else. */
static symbol blanks(rules *g)
{
    uint64_t white[4] = {UINT64_C(1) << ' ' | UINT64_C(1) << '\t'};
    rx line = rx_cat(&g->rx, rx_string(&g->rx, "\n", 1),
                     rx_repeat(&g->rx, rx_set(&g->rx, white), 0, 64));
    rx kid[3] = {RX_EMPTY, rx_string(&g->rx, " ", 1), line};
    return rules_lexeme(g, rx_alt(&g->rx, kid, 3));
}

/* The whole document, or a set with the mark of arguments. */
static vt_status compile_root(compiler *c, symbol *root)
{
    schema_set set = {.n = 0};
    TRY(check_depth(c, c->root, 0));
    TRY(notation_begin(c));
    TRY(add_checked(c, &set, "", c->root));
    if (c->form && c->form->writing != WRITE_GEMMA)
        schema_add(&set, c->mark[MARK_ARGUMENTS]);
    return schema_rule(c, &set, root);
}

vt_status schema_compile(rules *g, const json_t *schema, bool closed, symbol *root, vt_err *err)
{
    return schema_compile_arguments(g, schema, closed, NULL, NULL, root, err);
}

vt_status schema_compile_arguments(rules *g, const json_t *schema, bool closed,
                                   const argument_form *form, const vt_grammar_vocab *v,
                                   symbol *root, vt_err *err)
{
    compiler *c = vt_calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a schema");
    bool json = !form || form->writing == WRITE_JSON;
    *c = (compiler){.g = g,
                    .root = schema,
                    .err = err,
                    .form = json ? NULL : form,
                    .vocab = v,
                    .closed = closed};
    c->draft_4 = says(schema, "draft-04");
    c->old_refs = c->draft_4 || says(schema, "draft-06") || says(schema, "draft-07") ||
                  says(schema, "draft-03");
    c->blanks = form && form->writing == WRITE_GEMMA ? rules_lexeme(g, RX_EMPTY) : blanks(g);
    vt_status status = compile_root(c, root);
    for (int i = 0; i < 256; i++)
        while (c->memo[i]) {
            schema_memo *m = c->memo[i];
            c->memo[i] = m->next;
            free(m);
        }
    notation_end(c);
    free(c);
    return status;
}
