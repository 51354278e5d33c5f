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

/* ---- sets ---- */

static bool is_same(const schema_member *a, const schema_member *b)
{
    return a->is == b->is && a->stage == b->stage && a->listed == b->listed && a->open == b->open &&
           a->owners == b->owners;
}

static bool add_member(schema_set *set, const schema_member *one)
{
    if (json_is_true(one->is))
        return true;
    if (json_is_false(one->is))
        return set->never = true;
    for (int32_t i = 0; i < set->n; i++)
        if (set->at[i].is == one->is && set->at[i].owners == one->owners &&
            set->at[i].open == one->open)
            return true;
    if (set->n == SCHEMA_MAX_SET)
        return false;
    set->at[set->n++] = *one;
    return true;
}

bool schema_add(schema_set *set, const json_t *schema)
{
    return add_member(set, &(schema_member){.is = schema});
}

static vt_status add_checked(compiler *c, schema_set *set, const char *keyword,
                             const schema_member *one)
{
    if (!json_is_object(one->is) && !json_is_boolean(one->is))
        return schema_refuse(c, keyword, "expected a schema: an object, true or false");
    if (!add_member(set, one))
        return schema_refuse(c, keyword, "more than %d schemas hold at one place", SCHEMA_MAX_SET);
    return VT_OK;
}

uint64_t schema_owner_bit(const compiler *c, const json_t *schema)
{
    for (int32_t i = 0; i < c->n_owners; i++)
        if (c->owner[i] == schema)
            return UINT64_C(1) << i;
    return 0;
}

/* The schemas that count a member's annotations, itself among them. */
static vt_status counted_by(compiler *c, const schema_member *m, uint64_t *out)
{
    const json_t *a = json_object_get(m->is, "unevaluatedProperties");
    const json_t *b = json_object_get(m->is, "unevaluatedItems");
    *out = m->owners;
    if ((!a || json_is_true(a)) && (!b || json_is_true(b)))
        return VT_OK;
    uint64_t own = schema_owner_bit(c, m->is);
    if (!own && c->n_owners == SCHEMA_MAX_OWNERS)
        return schema_refuse(c, NULL,
                             "more than %d schemas have unevaluatedProperties or "
                             "unevaluatedItems",
                             SCHEMA_MAX_OWNERS);
    if (!own) {
        c->owner[c->n_owners] = m->is;
        own = UINT64_C(1) << c->n_owners++;
    }
    *out |= own;
    return VT_OK;
}

/* A schema that holds wherever `from` does. */
static vt_status add_below(compiler *c, schema_set *set, const schema_member *from,
                           const char *keyword, const json_t *schema)
{
    schema_member one = {.is = schema, .open = from->open};
    TRY(counted_by(c, from, &one.owners));
    return add_checked(c, set, keyword, &one);
}

vt_status schema_join(compiler *c, schema_set *set, const schema_member *from, const char *keyword,
                      const json_t *schema)
{
    return add_checked(c, set, keyword, &(schema_member){.is = schema, .open = from->open});
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
    schema_member moved[SCHEMA_MAX_SET];
    int32_t n = set->n - from;
    memcpy(moved, set->at + from, (size_t)n * sizeof *moved);
    memmove(set->at + i + 1 + n, set->at + i + 1, (size_t)(from - i - 1) * sizeof *moved);
    memcpy(set->at + i + 1, moved, (size_t)n * sizeof *moved);
}

/* Adds what a member's not, if and dependent... say with other keywords. */
static vt_status expand(compiler *c, schema_set *set, const schema_member *m)
{
    static const char *const dependent[] = {"dependentRequired", "dependentSchemas",
                                            "dependencies"};
    const json_t *s = m->is, *no = json_object_get(s, "not"), *made;
    schema_member opened = *m;
    uint64_t owners;
    opened.open = true;
    if (no) {
        size_t before = schema_enter(c, "not", NULL);
        TRY(schema_negate(c, no, &made));
        schema_leave(c, before);
        TRY(add_checked(c, set, "not", &(schema_member){.is = made, .open = true}));
    }
    TRY(counted_by(c, m, &owners));
    if (json_object_get(s, "if") &&
        (owners || json_object_get(s, "then") || json_object_get(s, "else")))
        TRY(add_below(c, set, &opened, "if", schema_conditional(c, s)));
    for (size_t i = 0; i < sizeof dependent / sizeof *dependent; i++) {
        const json_t *v = json_object_get(s, dependent[i]);
        if (!v)
            continue;
        TRY(schema_dependent(c, dependent[i], v, &made));
        TRY(add_below(c, set, &opened, dependent[i], made));
    }
    return VT_OK;
}

static vt_status add_reference(compiler *c, schema_set *set, const schema_member *m,
                               const char *keyword)
{
    const json_t *ref = json_object_get(m->is, keyword), *target;
    if (!ref)
        return VT_OK;
    TRY(schema_resolve(c, keyword, ref, &target));
    return add_below(c, set, m, keyword, target);
}

vt_status schema_flatten(compiler *c, schema_set *set)
{
    for (int32_t i = 0; i < set->n; i++) {
        int32_t before = set->n;
        const schema_member m = set->at[i];
        const json_t *all = json_object_get(m.is, "allOf");
        TRY(add_reference(c, set, &m, "$ref"));
        if (!c->old_refs || !json_object_get(m.is, "$ref")) {
            TRY(add_reference(c, set, &m, "$dynamicRef"));
            TRY(add_reference(c, set, &m, "$recursiveRef"));
            if (all && (!json_is_array(all) || json_array_size(all) == 0))
                return schema_refuse(c, "allOf", "expected a list of schemas");
            for (size_t k = 0; k < json_array_size(all); k++)
                TRY(add_below(c, set, &m, "allOf", json_array_get(all, k)));
            TRY(expand(c, set, &m));
        }
        put_behind(set, i, before);
    }
    return c->old_refs ? drop_references(c, set) : VT_OK;
}

static int by_address(const void *a, const void *b)
{
    const schema_member *x = a, *y = b;
    if (x->is != y->is)
        return x->is < y->is ? -1 : 1;
    if (x->owners != y->owners)
        return x->owners < y->owners ? -1 : 1;
    return x->open != y->open ? x->open - y->open : x->stage - y->stage;
}

/* The rule that was made of an equal set; 0: none. *where: where a new one is to go. */
static symbol known(compiler *c, const schema_set *set, schema_memo ***where)
{
    schema_set sorted = *set;
    uint64_t h = set->never;
    qsort(sorted.at, (size_t)sorted.n, sizeof *sorted.at, by_address);
    for (int32_t i = 0; i < set->n; i++)
        h = vt_mix64(h ^ (uint64_t)(uintptr_t)sorted.at[i].is ^ sorted.at[i].owners << 16 ^
                     (uint64_t)(sorted.at[i].stage | sorted.at[i].listed << 2) << 60);
    schema_memo **m = &c->memo[h & 255];
    for (; *m; m = &(*m)->next) {
        bool same = (*m)->set.n == set->n && (*m)->set.never == set->never;
        for (int32_t i = 0; same && i < set->n; i++)
            same = is_same(&(*m)->set.at[i], &sorted.at[i]);
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

static const char *const choice_of[SCHEMA_STAGES] = {"anyOf", "oneOf", SCHEMA_WAYS};

static bool is_one_of(compiler *c, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < i; k++)
            if (!schema_disjoint(c, json_array_get(list, k), json_array_get(list, i)))
                return false;
    return true;
}

/* The schemas of which one has to hold for member i. */
static vt_status find_ways(compiler *c, const schema_set *set, int32_t i, const json_t **out)
{
    int stage = set->at[i].stage;
    uint64_t owners;
    *out = json_object_get(set->at[i].is, choice_of[stage]);
    if (!json_is_array(*out) || json_array_size(*out) == 0)
        return schema_refuse(c, choice_of[stage], "expected a list of schemas");
    for (size_t k = 0; k < json_array_size(*out); k++)
        if (!json_is_object(json_array_get(*out, k)) && !json_is_boolean(json_array_get(*out, k)))
            return schema_refuse(c, choice_of[stage],
                                 "expected a schema: an object, true or false");
    TRY(counted_by(c, &set->at[i], &owners));
    if (stage == 0 && owners)
        return schema_subsets(c, *out, out);
    if (stage == 1 && !is_one_of(c, *out))
        *out = schema_exclusive(c, *out);
    return VT_OK;
}

/* Adds one alternative for each branch of member i's anyOf or oneOf. */
static vt_status branch(compiler *c, const schema_set *set, int32_t i, symbol rule)
{
    const char *keyword = set->at[i].stage < 2 ? choice_of[set->at[i].stage] : "(one of)";
    const json_t *list;
    TRY(find_ways(c, set, i, &list));
    for (size_t k = 0; k < json_array_size(list); k++) {
        schema_set one = *set;
        symbol to;
        char number[24];
        if (++c->branches > SCHEMA_MAX_BRANCHES)
            return schema_refuse(c, keyword, "more than %d branches, multiplied out",
                                 SCHEMA_MAX_BRANCHES);
        one.at[i].stage++;
        snprintf(number, sizeof number, "%zu", k);
        size_t before = schema_enter(c, keyword, number);
        TRY(add_below(c, &one, &set->at[i], "", json_array_get(list, k)));
        TRY(schema_rule(c, &one, &to));
        schema_leave(c, before);
        rules_add(c->g, rule, &to, 1);
    }
    return VT_OK;
}

static vt_status fill_rule(compiler *c, schema_set *set, symbol rule)
{
    for (int32_t i = 0; i < set->n; i++) {
        for (; set->at[i].stage < SCHEMA_STAGES; set->at[i].stage++)
            if (json_object_get(set->at[i].is, choice_of[set->at[i].stage]))
                return branch(c, set, i, rule);
    }
    return schema_leaf(c, set, rule);
}

vt_status schema_rule(compiler *c, schema_set *set, symbol *out)
{
    schema_memo **where = NULL;
    TRY(schema_flatten(c, set));
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
    if (c->g->rx.failed == rx_no_memory)
        return vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
    if (c->g->rx.failed || c->g->failed)
        return schema_refuse(c, NULL, "the schema is too large: %s",
                             c->g->rx.failed ? c->g->rx.failed : "too many symbols");
    return VT_OK;
}

vt_status schema_one(compiler *c, const json_t *schema, symbol *out)
{
    schema_set set = {.n = 0};
    TRY(add_checked(c, &set, "", &(schema_member){.is = schema}));
    return schema_rule(c, &set, out);
}

/* ---- the whole ---- */

/* Returns true if a name gives a schema an address. */
static bool is_address(const compiler *c, const char *key)
{
    return strcmp(key, c->draft_4 ? "id" : "$id") == 0 || strcmp(key, "$anchor") == 0 ||
           strcmp(key, "$dynamicAnchor") == 0;
}

/* Sets c->addressed as well. */
static vt_status check_depth(compiler *c, const json_t *v, int depth)
{
    const char *key;
    json_t *member;
    if (depth > 2 * VT_GRAMMAR_MAX_DEPTH)
        return schema_refuse(c, NULL, "nested more than %d levels deep", 2 * VT_GRAMMAR_MAX_DEPTH);
    if (json_is_object(v))
        json_object_foreach((json_t *)(uintptr_t)v, key, member)
        {
            c->addressed |= is_address(c, key) && (depth > 0 || key[1] != 'i');
            TRY(check_depth(c, member, depth + 1));
        }
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
    TRY(schema_index_make(c));
    TRY(add_checked(c, &set, "", &(schema_member){.is = c->root}));
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
    c->draft_2019 = says(schema, "2019-09");
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
    schema_made_free(c);
    schema_index_free(c->index);
    free(c);
    return status;
}
