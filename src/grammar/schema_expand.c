/* Keywords that are said with others, as schemas of our own: see schema.h.
 *
 *   not S       one of S's keywords turned round: not {minimum: 3} is {exclusiveMaximum: 3}, and
 *               not {properties: {a: T}} is an object with an `a` that is not T
 *   if          one of {if, then} and {not if, else}
 *   dependent*  for each property: one of "it is not there" and "it is, and so is the rest"
 *   oneOf       where branches can hold at once: each of them, and none of the others
 *   const       an object or a list beside other keywords: what its members have to be
 *
 * One step is taken at a time: what is below stays {"not": T}, so a recursive schema has an end.
 * Each schema of ours is made once for what it comes from, because sets are compared by address. */
#include "grammar/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- schemas of our own ---- */

/* Sets a member, whose name need not be UTF-8. Takes the reference of v. */
static void put(compiler *c, json_t *to, const char *key, json_t *v)
{
    if (!to || !v || json_object_set_new_nocheck(to, key, v) != 0)
        (void)rules_no_memory(c->g);
}

static void push(compiler *c, json_t *list, json_t *v)
{
    if (!list || !v || json_array_append_new(list, v) != 0)
        (void)rules_no_memory(c->g);
}

static json_t *borrow(const json_t *v) { return json_incref((json_t *)(uintptr_t)v); }

static json_t *of_types(compiler *c, unsigned types)
{
    json_t *s = json_object();
    put(c, s, SCHEMA_TYPES, json_integer((json_int_t)types));
    return s;
}

/* {keyword: v}, of these types. */
static json_t *saying(compiler *c, unsigned types, const char *keyword, json_t *v)
{
    json_t *s = of_types(c, types);
    put(c, s, keyword, v);
    return s;
}

/* A list of one. */
static json_t *alone(compiler *c, json_t *v)
{
    json_t *list = json_array();
    push(c, list, v);
    return list;
}

static json_t *member(compiler *c, const char *name, json_t *v)
{
    json_t *object = json_object();
    put(c, object, name, v);
    return object;
}

/* Any one of these. */
static json_t *one_way(compiler *c, json_t *ways) { return member(c, SCHEMA_WAYS, ways); }

static const json_t *find_made(compiler *c, const void *of, schema_making how)
{
    for (schema_made *m = c->made[(uintptr_t)of / 16 % 256]; m; m = m->next)
        if (m->of == of && m->how == how)
            return m->is;
    return NULL;
}

/* Keeps a schema until the end; takes its reference. */
static const json_t *keep(compiler *c, const void *of, schema_making how, json_t *is)
{
    schema_made **list = &c->made[(uintptr_t)of / 16 % 256], *m = vt_calloc(1, sizeof *m);
    if (!m || !is) {
        free(m);
        json_decref(is);
        (void)rules_no_memory(c->g);
        return json_false();
    }
    *m = (schema_made){of, how, is, *list};
    *list = m;
    return is;
}

void schema_made_free(compiler *c)
{
    for (int i = 0; i < 256; i++)
        while (c->made[i]) {
            schema_made *m = c->made[i];
            c->made[i] = m->next;
            json_decref(m->is);
            free(m);
        }
}

/* {"not": s}, or what says the same. */
static json_t *no(compiler *c, const json_t *s)
{
    if (json_is_boolean(s))
        return json_boolean(json_is_false(s));
    const json_t *made = find_made(c, s, MADE_NO);
    return borrow(made ? made : keep(c, s, MADE_NO, member(c, "not", borrow(s))));
}

/* ---- constants ---- */

/* An object, a list or a number, said keyword by keyword. */
const json_t *schema_of_value(compiler *c, const json_t *v)
{
    const json_t *made = find_made(c, v, MADE_VALUE);
    const char *key;
    json_t *one, *s, *names = json_array(), *members = json_object(), *items = json_array();
    if (made || json_is_number(v)) {
        json_decref(names);
        json_decref(members);
        json_decref(items);
        if (made)
            return made;
        s = saying(c, TYPE_NUMBER, "minimum", borrow(v));
        put(c, s, "maximum", borrow(v));
        return keep(c, v, MADE_VALUE, s);
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, one)
    {
        push(c, names, json_string(key));
        put(c, members, key, member(c, "const", borrow(one)));
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        push(c, items, member(c, "const", borrow(json_array_get(v, i))));
    if (json_is_object(v)) {
        s = saying(c, TYPE_OBJECT, "required", names);
        put(c, s, "properties", members);
        put(c, s, "maxProperties", json_integer((json_int_t)json_object_size(v)));
        json_decref(items);
    } else {
        s = saying(c, TYPE_ARRAY, "minItems", json_integer((json_int_t)json_array_size(items)));
        put(c, s, "prefixItems", items);
        put(c, s, "items", json_false());
        json_decref(names);
        json_decref(members);
    }
    return keep(c, v, MADE_VALUE, s);
}

static int by_number(const void *a, const void *b)
{
    double x = json_number_value(*(const json_t *const *)a),
           y = json_number_value(*(const json_t *const *)b);
    return (x > y) - (x < y);
}

/* The numbers between those that are listed. */
static void gaps(compiler *c, const json_t **number, size_t n, json_t *ways)
{
    qsort(number, n, sizeof *number, by_number);
    for (size_t i = 0; i <= n; i++) {
        json_t *s = of_types(c, TYPE_NUMBER);
        if (i > 0)
            put(c, s, "exclusiveMinimum", borrow(number[i - 1]));
        if (i < n)
            put(c, s, "exclusiveMaximum", borrow(number[i]));
        push(c, ways, s);
    }
}

/* All values but those of a list. */
static void not_listed(compiler *c, const json_t *list, json_t *ways)
{
    size_t n = json_array_size(list), n_numbers = 0;
    const json_t **number = vt_calloc(n + 1, sizeof *number);
    json_t *texts = json_array(), *deep[2] = {json_array(), json_array()};
    bool word[2] = {false, false};
    unsigned types = 0;
    for (size_t i = 0; number && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        types |= schema_type_of(v) & TYPE_NUMBER ? TYPE_NUMBER : schema_type_of(v);
        if (json_is_number(v))
            number[n_numbers++] = v;
        else if (json_is_string(v))
            push(c, texts, borrow(v));
        else if (json_is_boolean(v))
            word[json_is_true(v)] = true;
        else if (!json_is_null(v))
            push(c, deep[json_is_array(v)], no(c, schema_of_value(c, v)));
    }
    if (!number)
        (void)rules_no_memory(c->g);
    push(c, ways, of_types(c, TYPE_ANY & ~types));
    if (types & TYPE_NUMBER)
        gaps(c, number, n_numbers, ways);
    if (types & TYPE_STRING)
        push(c, ways, saying(c, TYPE_STRING, SCHEMA_EXCEPT, borrow(texts)));
    if (word[0] != word[1])
        push(c, ways, member(c, "const", json_boolean(word[0])));
    for (int i = 0; i < 2; i++)
        if (json_array_size(deep[i]) > 0)
            push(c, ways, saying(c, i ? TYPE_ARRAY : TYPE_OBJECT, "allOf", borrow(deep[i])));
    json_decref(texts);
    json_decref(deep[0]);
    json_decref(deep[1]);
    free(number);
}

/* ---- one keyword turned round ---- */

/* A bound: v moved by `step` is what a value has to be at most or at least. */
static vt_status beyond(compiler *c, const char *keyword, const json_t *v, unsigned types,
                        const char *opposite, int step, json_t *ways)
{
    double x = json_is_number(v) ? json_number_value(v) : -1;
    if (!(x >= 0 && x == floor(x) && x < 1e9))
        return schema_refuse(c, keyword, "expected a whole number from 0 on");
    if (x + step >= 0)
        push(c, ways, saying(c, types, opposite, json_integer((json_int_t)x + step)));
    return VT_OK;
}

static vt_status not_bound(compiler *c, const json_t *s, const char *keyword, const json_t *v,
                           json_t *ways)
{
    bool least = strstr(keyword, "inimum") != NULL, exclusive = keyword[0] == 'e';
    if (exclusive && json_is_boolean(v))
        return VT_OK; /* of draft 4: `minimum` asks for it */
    if (!json_is_number(v))
        return schema_refuse(c, keyword, "expected a number of moderate size");
    if (c->draft_4 && !exclusive)
        exclusive = json_is_true(
            json_object_get(s, least ? "exclusiveMinimum" : "exclusiveMaximum"));
    const char *opposite = least ? (exclusive ? "maximum" : "exclusiveMaximum")
                                 : (exclusive ? "minimum" : "exclusiveMinimum");
    push(c, ways, saying(c, TYPE_NUMBER, opposite, borrow(v)));
    return VT_OK;
}

static vt_status not_format(compiler *c, const json_t *v, json_t *ways)
{
    const char *name = json_string_value(v);
    (void)ways; /* one that is not known is a note: nothing fails it */
    if (name && (schema_format(name) || strcmp(name, "int32") == 0))
        return schema_refuse(c, "format",
                             "not supported inside of not, if or an overlapping oneOf");
    return VT_OK;
}

static vt_status not_required(compiler *c, const json_t *v, json_t *ways)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name)
            return schema_refuse(c, "required", "entry %zu is not a string", i);
        push(c, ways, saying(c, TYPE_OBJECT, "properties", member(c, name, json_false())));
    }
    return VT_OK;
}

/* An object that has this property, and of which all of `list` holds. */
static json_t *with(compiler *c, const char *name, json_t *list)
{
    json_t *s = saying(c, TYPE_OBJECT, "required", alone(c, json_string(name)));
    put(c, s, "allOf", list);
    return s;
}

static vt_status not_properties(compiler *c, const json_t *v, json_t *ways)
{
    const char *name;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)v, name, one)
    {
        json_t *s = saying(c, TYPE_OBJECT, "required", alone(c, json_string(name)));
        put(c, s, "properties", member(c, name, no(c, one)));
        push(c, ways, s);
    }
    return VT_OK;
}

static void not_prefix(compiler *c, const json_t *list, json_t *ways)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *items = json_array();
        for (size_t k = 0; k < i; k++)
            push(c, items, json_true());
        push(c, items, no(c, json_array_get(list, i)));
        json_t *s = saying(c, TYPE_ARRAY, "minItems", json_integer((json_int_t)i + 1));
        put(c, s, "prefixItems", items);
        push(c, ways, s);
    }
}

/* Some element from `from` on is not as v says. */
static void not_items(compiler *c, const json_t *v, size_t from, json_t *ways)
{
    json_t *s = saying(c, TYPE_ARRAY, "contains", no(c, v));
    put(c, s, SCHEMA_FROM, json_integer((json_int_t)from));
    if (!json_is_true(v))
        push(c, ways, s);
    else
        json_decref(s);
}

static vt_status not_contains(compiler *c, const json_t *s, const json_t *v, json_t *ways)
{
    int64_t min = 1, max = -1;
    TRY(schema_count(c, s, "minContains", &min));
    TRY(schema_count(c, s, "maxContains", &max));
    if (min > 0) {
        json_t *few = saying(c, TYPE_ARRAY, "contains", borrow(v));
        put(c, few, "minContains", json_integer(0));
        put(c, few, "maxContains", json_integer(min - 1));
        push(c, ways, few);
    }
    if (max >= 0) {
        json_t *many = saying(c, TYPE_ARRAY, "contains", borrow(v));
        put(c, many, "minContains", json_integer(max + 1));
        push(c, ways, many);
    }
    return VT_OK;
}

/* Returns the schema that a property of dependent... asks for. */
static json_t *asked(const json_t *v)
{
    return json_is_array(v) ? json_pack("{s:O}", "required", v) : borrow(v);
}

static vt_status not_dependent(compiler *c, const json_t *v, json_t *ways)
{
    const char *name;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)v, name, one)
    {
        json_t *ask = asked(one);
        if (json_is_array(one))
            push(c, ways, with(c, name, alone(c, member(c, "not", borrow(ask)))));
        else
            push(c, ways, with(c, name, alone(c, no(c, ask))));
        json_decref(ask);
    }
    return VT_OK;
}

static json_t *none_of(compiler *c, const json_t *list)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(list); i++)
        push(c, all, no(c, json_array_get(list, i)));
    return member(c, "allOf", all);
}

static json_t *both(compiler *c, json_t *a, json_t *b)
{
    json_t *list = alone(c, a);
    push(c, list, b);
    return member(c, "allOf", list);
}

static void not_one_of(compiler *c, const json_t *list, json_t *ways)
{
    push(c, ways, none_of(c, list));
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < i; k++)
            push(c, ways,
                 both(c, borrow(json_array_get(list, k)), borrow(json_array_get(list, i))));
}

static void not_if(compiler *c, const json_t *s, const json_t *v, json_t *ways)
{
    const json_t *then = json_object_get(s, "then"), *otherwise = json_object_get(s, "else");
    if (then)
        push(c, ways, both(c, borrow(v), no(c, then)));
    if (otherwise)
        push(c, ways, both(c, no(c, v), no(c, otherwise)));
}

/* ---- a schema turned round ---- */

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static vt_status not_array_keyword(compiler *c, const json_t *s, const char *key, const json_t *v,
                                   json_t *ways, bool *known)
{
    const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    bool old = !prefix && json_is_array(items);
    *known = true;
    if (is(key, "prefixItems") || (is(key, "items") && old))
        not_prefix(c, v, ways);
    else if (is(key, "items"))
        not_items(c, v, json_array_size(prefix), ways);
    else if (is(key, "additionalItems") && old)
        not_items(c, v, json_array_size(items), ways);
    else if (is(key, "minItems"))
        return beyond(c, key, v, TYPE_ARRAY, "maxItems", -1, ways);
    else if (is(key, "maxItems"))
        return beyond(c, key, v, TYPE_ARRAY, "minItems", 1, ways);
    else if (is(key, "contains"))
        return not_contains(c, s, v, ways);
    else
        *known = false;
    return VT_OK;
}

/* Some member, of those that `which` tells by `told`, is not as v says. */
static void not_all(compiler *c, const char *which, json_t *told, json_t *is, json_t *ways)
{
    json_t *has = member(c, which, told);
    put(c, has, "is", is);
    push(c, ways, saying(c, TYPE_OBJECT, SCHEMA_HAS, has));
}

static void not_patterns(compiler *c, const json_t *v, json_t *ways)
{
    const char *pattern;
    json_t *one;
    json_object_foreach((json_t *)(uintptr_t)v, pattern, one)
        not_all(c, "pattern", json_string(pattern), no(c, one), ways);
}

static vt_status not_object_keyword(compiler *c, const json_t *s, const char *key, const json_t *v,
                                    json_t *ways, bool *known)
{
    *known = true;
    if (is(key, "additionalProperties"))
        not_all(c, "but", borrow(s), no(c, v), ways);
    else if (is(key, "patternProperties"))
        not_patterns(c, v, ways);
    else if (is(key, "propertyNames"))
        not_all(c, "names", borrow(v), json_true(), ways);
    else
        *known = false;
    if (*known)
        return VT_OK;
    *known = true;
    if (is(key, "required"))
        return not_required(c, v, ways);
    if (is(key, "properties"))
        return not_properties(c, v, ways);
    if (is(key, "minProperties"))
        return beyond(c, key, v, TYPE_OBJECT, "maxProperties", -1, ways);
    if (is(key, "maxProperties"))
        return beyond(c, key, v, TYPE_OBJECT, "minProperties", 1, ways);
    if (is(key, "dependentRequired") || is(key, "dependentSchemas") || is(key, "dependencies"))
        return not_dependent(c, v, ways);
    *known = false;
    return VT_OK;
}

static vt_status not_scalar_keyword(compiler *c, const json_t *s, const char *key, const json_t *v,
                                    json_t *ways, bool *known)
{
    *known = true;
    if (is(key, "type") || is(key, SCHEMA_TYPES))
        push(c, ways, of_types(c, TYPE_ANY & ~schema_types(s)));
    else if (is(key, "enum"))
        not_listed(c, v, ways);
    else if (is(key, "const"))
        not_listed(c, keep(c, v, MADE_LIST, alone(c, borrow(v))), ways);
    else if (is(key, "minimum") || is(key, "maximum") || is(key, "exclusiveMinimum") ||
             is(key, "exclusiveMaximum"))
        return not_bound(c, s, key, v, ways);
    else if (is(key, "multipleOf"))
        push(c, ways,
             saying(c, TYPE_NUMBER, SCHEMA_INDIVISIBLE, member(c, "multipleOf", borrow(v))));
    else if (is(key, "minLength"))
        return beyond(c, key, v, TYPE_STRING, "maxLength", -1, ways);
    else if (is(key, "maxLength"))
        return beyond(c, key, v, TYPE_STRING, "minLength", 1, ways);
    else if (is(key, "pattern"))
        push(c, ways, saying(c, TYPE_STRING, SCHEMA_LACKS, borrow(v)));
    else if (is(key, "format"))
        return not_format(c, v, ways);
    else
        *known = false;
    return VT_OK;
}

static vt_status not_branches(compiler *c, const json_t *s, const char *key, const json_t *v,
                              json_t *ways, bool *known)
{
    const json_t *target;
    *known = true;
    if (is(key, "$ref") || is(key, "$dynamicRef") || is(key, "$recursiveRef")) {
        TRY(schema_resolve(c, key, v, &target));
        push(c, ways, no(c, target));
    } else if (is(key, "allOf")) {
        for (size_t i = 0; i < json_array_size(v); i++)
            push(c, ways, no(c, json_array_get(v, i)));
    } else if (is(key, "anyOf") || is(key, SCHEMA_WAYS)) {
        push(c, ways, none_of(c, v));
    } else if (is(key, "oneOf")) {
        not_one_of(c, v, ways);
    } else if (is(key, "not")) {
        push(c, ways, borrow(v));
    } else if (is(key, "if")) {
        not_if(c, s, v, ways);
    } else {
        *known = false;
    }
    return VT_OK;
}

/* Keywords that assert something and cannot be turned round. */
static bool is_one_sided(const char *key, const json_t *v)
{
    static const char *const deep[] = {"unevaluatedProperties", "unevaluatedItems",
                                       SCHEMA_EXCEPT,           SCHEMA_LACKS,
                                       SCHEMA_INDIVISIBLE,      SCHEMA_HAS};
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++)
        if (is(key, deep[i]))
            return !json_is_true(v) && !(json_is_object(v) && json_object_size(v) == 0);
    return is(key, "uniqueItems") ? json_is_true(v) : schema_is_refused(key);
}

static vt_status not_keyword(compiler *c, const json_t *s, const char *key, const json_t *v,
                             json_t *ways)
{
    bool known;
    if (is_one_sided(key, v))
        return schema_refuse(c, key, "not supported inside of not, if or an overlapping oneOf");
    TRY(not_scalar_keyword(c, s, key, v, ways, &known));
    if (!known)
        TRY(not_array_keyword(c, s, key, v, ways, &known));
    if (!known)
        TRY(not_object_keyword(c, s, key, v, ways, &known));
    return known ? VT_OK : not_branches(c, s, key, v, ways, &known);
}

vt_status schema_negate(compiler *c, const json_t *s, const json_t **out)
{
    const char *key;
    json_t *v, *ways;
    if (json_is_boolean(s)) {
        *out = json_is_true(s) ? json_false() : json_true();
        return VT_OK;
    }
    if (!json_is_object(s))
        return schema_refuse(c, "not", "expected a schema: an object, true or false");
    *out = find_made(c, s, MADE_NEGATION);
    if (*out)
        return VT_OK;
    vt_status status = VT_OK;
    const json_t *ref = c->old_refs ? json_object_get(s, "$ref") : NULL;
    ways = json_array();
    if (ref)
        status = not_keyword(c, s, "$ref", ref, ways);
    else
        json_object_foreach((json_t *)(uintptr_t)s, key, v) if (status == VT_OK)
            status = not_keyword(c, s, key, v, ways);
    *out = keep(c, s, MADE_NEGATION,
                json_array_size(ways) > 0 ? one_way(c, borrow(ways)) : json_false());
    json_decref(ways);
    return status;
}

/* ---- if, dependent..., oneOf ---- */

const json_t *schema_conditional(compiler *c, const json_t *s)
{
    const json_t *cond = json_object_get(s, "if"), *then = json_object_get(s, "then");
    const json_t *otherwise = json_object_get(s, "else"), *made = find_made(c, s, MADE_IF);
    if (made)
        return made;
    json_t *ways = alone(c, both(c, borrow(cond), borrow(then ? then : json_true())));
    push(c, ways, both(c, no(c, cond), borrow(otherwise ? otherwise : json_true())));
    return keep(c, s, MADE_IF, one_way(c, ways));
}

vt_status schema_dependent(compiler *c, const char *keyword, const json_t *v, const json_t **out)
{
    const char *name;
    json_t *one;
    if (!json_is_object(v))
        return schema_refuse(c, keyword, "expected an object");
    *out = find_made(c, v, MADE_DEPENDENT);
    if (*out)
        return VT_OK;
    json_t *all = json_array();
    json_object_foreach((json_t *)(uintptr_t)v, name, one)
    {
        json_t *absent = member(c, "properties", member(c, name, json_false()));
        json_t *ask = json_is_array(one) || json_is_object(one) || json_is_boolean(one) ? asked(one)
                                                                                        : NULL;
        if (!ask) {
            json_decref(absent);
            json_decref(all);
            return schema_refuse(c, keyword, "expected a schema or a list of names for '%.100s'",
                                 name);
        }
        json_t *ways = alone(c, absent);
        push(c, ways, with(c, name, alone(c, ask)));
        push(c, all, one_way(c, ways));
    }
    *out = keep(c, v, MADE_DEPENDENT,
                json_array_size(all) > 0 ? member(c, "allOf", borrow(all)) : json_true());
    json_decref(all);
    return VT_OK;
}

const json_t *schema_exclusive(compiler *c, const json_t *list)
{
    const json_t *made = find_made(c, list, MADE_EXCLUSIVE);
    json_t *ways = made ? NULL : json_array();
    for (size_t i = 0; !made && i < json_array_size(list); i++) {
        json_t *all = alone(c, borrow(json_array_get(list, i)));
        for (size_t k = 0; k < json_array_size(list); k++)
            if (k != i && !schema_disjoint(c, json_array_get(list, i), json_array_get(list, k)))
                push(c, all, no(c, json_array_get(list, k)));
        push(c, ways, member(c, "allOf", all));
    }
    return made ? made : keep(c, list, MADE_EXCLUSIVE, ways);
}

/* Each choice of some of a list, of which all hold: for what counts the properties that any of
 * them has. */
vt_status schema_subsets(compiler *c, const json_t *list, const json_t **out)
{
    enum { MOST = 6 };
    size_t n = json_array_size(list);
    *out = find_made(c, list, MADE_SUBSETS);
    if (*out)
        return VT_OK;
    if (n > MOST)
        return schema_refuse(c, "anyOf",
                             "more than %d branches beside unevaluated... are not "
                             "supported",
                             MOST);
    json_t *ways = json_array();
    for (unsigned some = 1; some < 1u << n; some++) {
        json_t *all = json_array();
        for (size_t i = 0; i < n; i++)
            if (some >> i & 1)
                push(c, all, borrow(json_array_get(list, i)));
        push(c, ways, member(c, "allOf", all));
    }
    *out = keep(c, list, MADE_SUBSETS, ways);
    return VT_OK;
}

const json_t *schema_either(compiler *c, const json_t *const *s, int32_t n)
{
    json_t *ways = json_array();
    for (int32_t i = 0; i < n; i++)
        push(c, ways, borrow(s[i]));
    return keep(c, ways, MADE_LIST, one_way(c, ways));
}

/* {"const": v} */
const json_t *schema_constant(compiler *c, const json_t *v)
{
    const json_t *made = find_made(c, v, MADE_CONSTANT);
    return made ? made : keep(c, v, MADE_CONSTANT, member(c, "const", borrow(v)));
}
const json_t *schema_not(compiler *c, const json_t *s)
{
    const json_t *made = no(c, s);
    json_decref((json_t *)(uintptr_t)made); /* kept */
    return made;
}
