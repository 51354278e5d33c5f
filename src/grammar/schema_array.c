/* Arrays: see schema.h.
 *
 * Rule (i, k) is what may follow i elements of which k satisfy `contains` (k is counted up to where
 * it matters, and is one number for several such keywords):
 *
 *   (i, k) -> "," element that satisfies it  (i + 1, k + 1)
 *           | "," any element                (i + 1, k)      with maxContains: one that does not
 *           | "]"                                            where i and k are enough
 *
 * From some i on nothing changes, and (i, k) leads to itself. With uniqueItems the elements have to
 * be of listed values. With a few, the state is which of these are there; with more, each comes
 * once because they come in the order of the list, as members of objects come in the schema's. */
#include "grammar/schema.h"

#include <stdio.h>

enum {
    MAX_CONTAINS = 4,
    MAX_PLACES = 100000,
    MAX_UNIQUE = 10,
    MAX_ORDERED = 256,
    MAX_ORDERED_WAYS = 40000
};

typedef struct counted {
    const schema_member *member;
    const json_t *is;
    int64_t min, max; /* max -1: any number */
    int64_t from;     /* the first element that counts */
    int32_t top;      /* counted up to here */
} counted;

typedef struct array {
    const schema_set *set;
    int64_t min, max, same; /* elements from `same` on are alike */
    counted counted[MAX_CONTAINS];
    int32_t n_counted, n_counts; /* n_counts: of all k */
    int64_t top;
    symbol *rule; /* [(top + 1) * n_counts] 0: not made yet */
    symbol rest;  /* any element from `same` on, without `contains`; 0: not made yet */
    symbol open, comma, end;
} array;

/* ---- what elements are ---- */

static const json_t *prefix_of(const json_t *s)
{
    const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    return prefix || !json_is_array(items) ? prefix : items;
}

/* The schema of the elements behind the prefix; NULL. */
static const json_t *rest_of(const json_t *s)
{
    const json_t *items = json_object_get(s, "items");
    bool old = !json_object_get(s, "prefixItems") && json_is_array(items);
    return old ? json_object_get(s, "additionalItems") : items;
}

static const json_t *unevaluated(const json_t *s)
{
    const json_t *v = json_object_get(s, "unevaluatedItems");
    return json_is_true(v) ? NULL : v;
}

/* Returns true if a member says something of element i, other than by `contains`. */
static bool evaluates(const schema_member *m, const schema_member *owner, int64_t i)
{
    return i < (int64_t)json_array_size(prefix_of(m->is)) || rest_of(m->is) ||
           (m != owner && json_object_get(m->is, "unevaluatedItems"));
}

/* unevaluatedItems of one member: an element has it, or satisfies a `contains` that counts. */
static vt_status add_unevaluated(compiler *c, const schema_set *set, const schema_member *owner,
                                 int64_t i, schema_set *value)
{
    const json_t *either[SCHEMA_MAX_SET + 1];
    uint64_t bit = schema_owner_bit(c, owner->is);
    int32_t n = 0;
    for (int32_t k = 0; k < set->n; k++) {
        const schema_member *m = &set->at[k];
        const json_t *some = json_object_get(m->is, "contains");
        if (m != owner && !(m->owners & bit))
            continue;
        if (evaluates(m, owner, i))
            return VT_OK;
        if (some && !c->draft_2019)
            either[n++] = some;
    }
    either[n++] = unevaluated(owner->is);
    const json_t *v = n > 1 ? schema_either(c, either, n) : either[0];
    return schema_join(c, value, owner, "unevaluatedItems", v);
}

/* Gathers what all members say of element i. */
static vt_status gather(compiler *c, const schema_set *set, int64_t i, schema_set *value)
{
    for (int32_t k = 0; k < set->n; k++) {
        const schema_member *m = &set->at[k];
        const json_t *prefix = prefix_of(m->is);
        if (prefix && !json_is_array(prefix))
            return schema_refuse(c, "prefixItems", "expected a list of schemas");
        const json_t *one = i < (int64_t)json_array_size(prefix) ? json_array_get(prefix, (size_t)i)
                                                                 : rest_of(m->is);
        if (one)
            TRY(schema_join(c, value, m, "", one));
        else if (prefix && c->closed && !m->open)
            value->never = true;
        if (unevaluated(m->is))
            TRY(add_unevaluated(c, set, m, i, value));
    }
    return VT_OK;
}

/* ---- contains ---- */

static vt_status find_counted(compiler *c, array *l)
{
    l->n_counts = 1;
    for (int32_t i = 0; i < l->set->n; i++) {
        const schema_member *m = &l->set->at[i];
        counted one = {.member = m, .is = json_object_get(m->is, "contains"), .min = 1, .max = -1};
        if (!one.is)
            continue;
        TRY(schema_count(c, m->is, "minContains", &one.min));
        TRY(schema_count(c, m->is, "maxContains", &one.max));
        one.from = json_integer_value(json_object_get(m->is, SCHEMA_FROM));
        one.top = (int32_t)(one.max >= 0 ? one.max : one.min);
        if (one.min == 0 && one.max < 0)
            continue;
        if (l->n_counted == MAX_CONTAINS || (int64_t)l->n_counts * (one.top + 1) > MAX_PLACES)
            return schema_refuse(c, "contains",
                                 "more of them, or higher counts, than are supported");
        if (one.max >= 0 && one.min > one.max)
            l->max = 0, l->min = 1; /* no list at all */
        l->same = one.from > l->same ? one.from : l->same;
        l->n_counts *= one.top + 1;
        l->counted[l->n_counted++] = one;
    }
    return VT_OK;
}

/* Returns how many elements of `k` count for keyword `which`. */
static int32_t count_in(const array *l, int32_t k, int32_t which, int32_t *unit)
{
    *unit = 1;
    for (int32_t i = 0; i < which; i++)
        *unit *= l->counted[i].top + 1;
    return k / *unit % (l->counted[which].top + 1);
}

/* Adds to an element what it has to be to count for exactly those `contains` of which `some` has
 * the bits, and moves *k. False: it cannot. */
static vt_status choose(compiler *c, const array *l, int64_t i, unsigned some, schema_set *value,
                        int32_t *k, bool *can)
{
    *can = true;
    for (int32_t w = 0; w < l->n_counted && *can; w++) {
        const counted *one = &l->counted[w];
        int32_t unit, n = count_in(l, *k, w, &unit);
        schema_member below = *one->member;
        below.open = true;
        if (some >> w & 1) {
            *can = i >= one->from && n < one->top;
            TRY(schema_join(c, value, &below, "contains", one->is));
            *k += *can ? unit : 0;
        } else if (one->max >= 0 && i >= one->from) {
            TRY(schema_join(c, value, &below, "contains", schema_not(c, one->is)));
        }
    }
    return VT_OK;
}

/* ---- rules ---- */

static symbol *rule_at(compiler *c, const array *l, int64_t i, int32_t k)
{
    symbol *s = &l->rule[(i < l->top ? i : l->top) * l->n_counts + k];
    if (!*s)
        *s = rules_new(c->g, NULL);
    return s;
}

static void put_element(compiler *c, const array *l, symbol at, bool first, symbol value,
                        symbol next)
{
    symbol s[5];
    int32_t n = 0;
    if (!first) {
        s[n++] = c->blanks;
        s[n++] = l->comma;
    }
    s[n++] = c->blanks;
    s[n++] = value;
    s[n++] = next;
    rules_add(c->g, at, s, n);
}

static vt_status fill_place(compiler *c, array *l, int64_t i, int32_t k)
{
    symbol at = *rule_at(c, l, i, k), value, s[2] = {c->blanks, l->end};
    char number[24];
    bool enough = i >= l->min, alike = i >= l->same && l->n_counted == 0;
    snprintf(number, sizeof number, "%lld", (long long)i);
    for (unsigned some = 0; some < 1u << l->n_counted && (l->max < 0 || i < l->max); some++) {
        schema_set all = {.n = 0};
        int32_t to = k;
        bool can;
        size_t before = schema_enter(c, "items", i > 0 ? number : NULL);
        TRY(gather(c, l->set, i, &all));
        TRY(choose(c, l, i, some, &all, &to, &can));
        if (can) {
            if (alike && l->rest)
                value = l->rest;
            else
                TRY(schema_rule(c, &all, &value));
            l->rest = alike ? value : 0;
            put_element(c, l, at, i == 0, value, *rule_at(c, l, i + 1, to));
        }
        schema_leave(c, before);
    }
    for (int32_t w = 0, unit; w < l->n_counted; w++)
        enough &= count_in(l, k, w, &unit) >= l->counted[w].min;
    if (enough)
        rules_add(c->g, at, s, 2);
    return VT_OK;
}

static int64_t longest_prefix(const schema_set *set)
{
    size_t most = 0;
    for (int32_t k = 0; k < set->n; k++) {
        size_t n = json_array_size(prefix_of(set->at[k].is));
        most = n > most ? n : most;
    }
    return (int64_t)most;
}

static vt_status write_list(compiler *c, array *l, symbol out)
{
    symbol s[2] = {l->open, 0};
    if (l->max >= 0 && l->max < l->min)
        return VT_OK;
    l->top = l->same > l->min ? l->same : l->min;
    l->top = l->max > l->top ? l->max : l->top < 1 ? 1 : l->top;
    if ((l->top + 1) * l->n_counts > MAX_PLACES)
        return schema_refuse(c, "contains",
                             "counted over so many elements it makes the grammar too "
                             "large");
    l->rule = vt_arena_alloc(c->g->arena, (size_t)(l->top + 1) * (size_t)l->n_counts,
                             sizeof *l->rule);
    if (!l->rule)
        return vt_fail(c->err, VT_ERR_MEMORY, "the schema takes too much memory");
    s[1] = *rule_at(c, l, 0, 0);
    rules_add(c->g, out, s, 2);
    for (int64_t i = 0; i <= l->top; i++)
        for (int32_t n = 0; n < l->n_counts; n++) {
            /* at `top` a place leads to places with more, or to itself */
            if (l->rule[i * l->n_counts + n] && !c->g->failed)
                TRY(fill_place(c, l, i, n));
        }
    return VT_OK;
}

/* ---- uniqueItems ---- */

static bool wants_unique(const schema_set *set)
{
    for (int32_t i = 0; i < set->n; i++)
        if (json_is_true(json_object_get(set->at[i].is, "uniqueItems")))
            return true;
    return false;
}

static bool is_in(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        bool numbers = json_is_number(one) && json_is_number(v);
        if (numbers ? json_number_value(one) == json_number_value(v) : json_equal(one, v))
            return true;
    }
    return false;
}

/* Adds the scalars that an element can be. False: they are not listed. */
static bool add_values(const schema_set *value, json_t *all)
{
    unsigned types = TYPE_ANY;
    const json_t *list = NULL;
    json_t *made = NULL;
    bool ok = true;
    for (int32_t i = 0; i < value->n; i++) {
        const json_t *s = value->at[i].is, *one = json_object_get(s, "const");
        types &= schema_types(s);
        if (!made && !list && one)
            made = json_pack("[O]", one);
        else if (!list && json_is_array(json_object_get(s, "enum")))
            list = json_object_get(s, "enum");
    }
    if (!made && !list && !(types & ~(TYPE_NULL | TYPE_BOOLEAN)))
        list = made = json_pack("[nbb]", 0, 1);
    list = made ? made : list;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        ok &= !json_is_object(v) && !json_is_array(v);
        if (ok && !is_in(all, v))
            ok = json_array_append(all, (json_t *)(uintptr_t)v) == 0;
    }
    ok &= list || value->never;
    json_decref(made);
    return ok;
}

/* Adds the scalars of all elements, as far as there may be any. */
static vt_status find_values(compiler *c, const array *l, json_t *all)
{
    size_t most = l->same > 0 ? MAX_UNIQUE : MAX_ORDERED;
    for (int64_t i = 0; i <= l->same && (l->max < 0 || i < l->max); i++) {
        schema_set value = {.n = 0};
        TRY(gather(c, l->set, i, &value));
        TRY(schema_flatten(c, &value));
        if (!value.never && (!add_values(&value, all) || json_array_size(all) > most))
            return schema_refuse(c, "uniqueItems",
                                 "supported where the elements are of at most %d values (%d where "
                                 "they are not all alike), listed by enum or const and no objects "
                                 "or lists",
                                 MAX_ORDERED, MAX_UNIQUE);
        if (value.never)
            break;
    }
    return VT_OK;
}

/* Fills the rule of the place behind the values of which `there` has the bits. */
static vt_status fill_unique(compiler *c, const array *l, const json_t *all, unsigned there,
                             symbol *rule)
{
    int32_t n = __builtin_popcount(there);
    symbol s[2] = {c->blanks, l->end}, value;
    for (size_t v = 0; v < json_array_size(all) && (l->max < 0 || n < l->max); v++) {
        schema_set one = {.n = 0};
        unsigned to = there | 1u << v;
        if (to == there)
            continue;
        TRY(gather(c, l->set, n, &one));
        TRY(schema_join(c, &one, &(schema_member){.open = true}, "uniqueItems",
                        schema_constant(c, json_array_get(all, v))));
        TRY(schema_rule(c, &one, &value));
        if (!rule[to])
            rule[to] = rules_new(c->g, NULL);
        put_element(c, l, rule[there], n == 0, value, rule[to]);
    }
    if (n >= l->min)
        rules_add(c->g, rule[there], s, 2);
    return VT_OK;
}

static vt_status write_sets(compiler *c, array *l, const json_t *all, symbol out)
{
    symbol rule[1 << MAX_UNIQUE] = {rules_new(c->g, NULL)}, s[2] = {l->open, rule[0]};
    rules_add(c->g, out, s, 2);
    for (unsigned there = 0; there < 1u << json_array_size(all); there++)
        if (rule[there] && !c->g->failed)
            TRY(fill_unique(c, l, all, there, rule));
    return VT_OK;
}

/* The rules of the places behind value v - 1, by how many elements there are: at [v * (top + 1)].
 * value[n]: the rules of the values. */
static void fill_ordered(compiler *c, const array *l, int32_t v, int32_t n, const symbol *value,
                         symbol *rule)
{
    int64_t top = l->top;
    for (int64_t k = 0; k <= top; k++) {
        symbol at = rule[v * (top + 1) + k], s[2] = {c->blanks, l->end};
        if (!at || c->g->failed)
            continue;
        for (int32_t u = v; u < n && (l->max < 0 || l->max >= n || k < l->max); u++) {
            symbol *next = &rule[(u + 1) * (top + 1) + (k < top ? k + 1 : top)];
            if (!*next)
                *next = rules_new(c->g, NULL);
            put_element(c, l, at, v == 0, value[u], *next);
        }
        if (k >= l->min)
            rules_add(c->g, at, s, 2);
    }
}

static vt_status write_ordered(compiler *c, array *l, const json_t *all, symbol out)
{
    int32_t n = (int32_t)json_array_size(all);
    symbol value[MAX_ORDERED];
    if (l->min > n)
        return VT_OK; /* nothing satisfies it */
    l->top = l->max >= 0 && l->max < n ? l->max : l->min;
    if ((l->top + 1) * n * (n + 1) / 2 > MAX_ORDERED_WAYS)
        return schema_refuse(c, "uniqueItems",
                             "with minItems and maxItems supported of fewer values than %d", n);
    symbol *rule = vt_arena_alloc(c->g->arena, (size_t)(l->top + 1) * (size_t)(n + 1),
                                  sizeof *rule);
    if (!rule)
        return vt_fail(c->err, VT_ERR_MEMORY, "the schema takes too much memory");
    for (int32_t v = 0; v < n; v++) {
        schema_set one = {.n = 0};
        TRY(gather(c, l->set, 0, &one));
        TRY(schema_join(c, &one, &(schema_member){.open = true}, "uniqueItems",
                        schema_constant(c, json_array_get(all, (size_t)v))));
        TRY(schema_rule(c, &one, &value[v]));
    }
    rule[0] = rules_new(c->g, NULL);
    rules_add(c->g, out, (symbol[2]){l->open, rule[0]}, 2);
    for (int32_t v = 0; v <= n; v++)
        fill_ordered(c, l, v, n, value, rule);
    return VT_OK;
}

static vt_status write_unique(compiler *c, array *l, symbol out)
{
    json_t *all = json_array();
    vt_status status = find_values(c, l, all);
    if (status == VT_OK)
        status = json_array_size(all) > MAX_UNIQUE ? write_ordered(c, l, all, out)
                                                   : write_sets(c, l, all, out);
    json_decref(all);
    return status;
}

vt_status schema_array(compiler *c, const schema_set *set, symbol *out)
{
    array l = {.set = set,
               .same = longest_prefix(set),
               .open = rules_text(c->g, "["),
               .comma = rules_text(c->g, ","),
               .end = rules_text(c->g, "]")};
    *out = rules_new(c->g, NULL);
    TRY(schema_counts(c, set, "minItems", "maxItems", &l.min, &l.max));
    TRY(find_counted(c, &l));
    bool unique = wants_unique(set) && (l.max < 0 || l.max > 1);
    if (unique && l.n_counted > 0)
        return schema_refuse(c, "uniqueItems", "not supported beside contains");
    return unique ? write_unique(c, &l, *out) : write_list(c, &l, *out);
}
