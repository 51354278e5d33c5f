/* Objects and arrays: see schema.h.
 *
 * Properties come in the order of the schema, then those that are required and not listed, then any
 * others. Rule (i, k) is what may follow when the first i properties are dealt with and k are
 * written (k is counted up to where it matters: 1, or minProperties, or maxProperties):
 *
 *   (i, k) -> "," key_i ":" value_i (i + 1, k + 1)      without the comma where k is 0
 *           | (i + 1, k)                                 where property i is optional
 *   (n, k) -> "," other ":" value (n, k + 1) | "}"
 */
#include "grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "grammar/pattern.h"

typedef struct property {
    const char *name;
    bool required;
} property;

/* Names that some patternProperties allow, or that no member lists. */
typedef struct other {
    rx key; /* the names, and perhaps some that are listed */
    schema_set value;
    symbol head; /* the name with the value */
} other;

enum { MAX_OTHERS = 17 };

typedef struct object {
    const schema_set *set;
    property *property; /* [n] */
    int32_t n, cap;
    int32_t n_required;
    int64_t min, max; /* max -1: any number */
    int32_t top;      /* k is counted up to here */
    other other[MAX_OTHERS];
    int32_t n_others;
    symbol *rule; /* [(n + 1) * (top + 1)] 0: not made yet */
    symbol *head; /* [n] property i with its value, behind the comma */
    symbol comma, colon, end;
    bool arguments; /* of a call that does not write them as an object */
} object;

/* ---- counts ---- */

static vt_status count(compiler *c, const json_t *s, const char *keyword, int64_t *out)
{
    const json_t *v = json_object_get(s, keyword);
    double x = json_is_number(v) ? json_number_value(v) : -1;
    if (!v)
        return VT_OK;
    if (!(x >= 0 && x == floor(x)))
        return schema_refuse(c, keyword, "expected a whole number from 0 on");
    if (x > SCHEMA_MAX_COUNT)
        return schema_refuse(c, keyword, "expected at most %d", SCHEMA_MAX_COUNT);
    *out = (int64_t)x;
    return VT_OK;
}

static vt_status counts(compiler *c, const schema_set *set, const char *least, const char *most,
                        int64_t *min, int64_t *max)
{
    *min = 0;
    *max = -1;
    for (int32_t i = 0; i < set->n; i++) {
        int64_t lo = 0, hi = -1;
        TRY(count(c, set->at[i].is, least, &lo));
        TRY(count(c, set->at[i].is, most, &hi));
        *min = lo > *min ? lo : *min;
        *max = hi >= 0 && (*max < 0 || hi < *max) ? hi : *max;
    }
    return VT_OK;
}

/* ---- which properties ---- */

static vt_status add_property(compiler *c, object *o, const char *name, bool required)
{
    for (int32_t i = 0; i < o->n; i++)
        if (strcmp(o->property[i].name, name) == 0) {
            o->property[i].required |= required;
            return VT_OK;
        }
    if (o->n == o->cap) {
        int32_t cap = o->cap ? 2 * o->cap : 16;
        property *more = vt_arena_alloc(c->g->arena, (size_t)cap, sizeof *more);
        if (!more)
            return vt_fail(c->err, VT_ERR_MEMORY, "the schema takes too much memory");
        if (o->n > 0)
            memcpy(more, o->property, (size_t)o->n * sizeof *more);
        o->property = more;
        o->cap = cap;
    }
    o->property[o->n++] = (property){name, required};
    return VT_OK;
}

static vt_status find_properties(compiler *c, object *o)
{
    const char *name;
    json_t *v;
    for (int32_t i = 0; i < o->set->n; i++) {
        json_t *list = json_object_get(o->set->at[i].is, "properties");
        if (list && !json_is_object(list))
            return schema_refuse(c, "properties", "expected an object");
        json_object_foreach(list, name, v) TRY(add_property(c, o, name, false));
    }
    for (int32_t i = 0; i < o->set->n; i++) {
        const json_t *list = json_object_get(o->set->at[i].is, "required");
        if (list && !json_is_array(list) && !(c->draft_4 && json_is_boolean(list)))
            return schema_refuse(c, "required", "expected a list of names");
        for (size_t k = 0; k < json_array_size(list); k++) {
            name = json_string_value(json_array_get(list, k));
            if (!name)
                return schema_refuse(c, "required", "entry %zu is not a string", k);
            TRY(add_property(c, o, name, true));
        }
    }
    for (int32_t i = 0; i < o->n; i++)
        o->n_required += o->property[i].required;
    return counts(c, o->set, "minProperties", "maxProperties", &o->min, &o->max);
}

/* ---- what their values are ---- */

/* Returns the spelling of names. Those of arguments have no characters that JSON would escape. */
static char_form names_form(const compiler *c) { return notation_chars(c, NULL); }

static vt_status key_pattern(compiler *c, const char *text, rx *out)
{
    vt_err why;
    if (pattern_compile(&c->g->rx, text, strlen(text), names_form(c), false, out, &why) == VT_OK)
        return VT_OK;
    return schema_refuse(c, "patternProperties", "%s", why.message);
}

static bool matches(compiler *c, rx names, const char *name)
{
    rx text = schema_literal(c, name, strlen(name), names_form(c));
    return rx_least(&c->g->rx, rx_and2(&c->g->rx, names, text)) >= 0;
}

/* Returns additionalProperties of one schema; NULL: anything may come. */
static const json_t *additional(const compiler *c, const json_t *s)
{
    const json_t *v = json_object_get(s, "additionalProperties");
    return !v && c->closed && json_object_get(s, "properties") ? json_false() : v;
}

static vt_status add(compiler *c, schema_set *to, const char *keyword, const json_t *schema)
{
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return schema_refuse(c, keyword, "expected a schema: an object, true or false");
    if (!schema_add(to, schema))
        return schema_refuse(c, keyword, "more than %d schemas hold at one place", SCHEMA_MAX_SET);
    return VT_OK;
}

/* Adds to `value` what one member says of a property. */
static vt_status of_member(compiler *c, const json_t *s, const char *name, bool required,
                           schema_set *value)
{
    const json_t *listed = json_object_get(json_object_get(s, "properties"), name);
    json_t *patterns = json_object_get(s, "patternProperties"), *v;
    const char *text;
    bool said = listed != NULL;
    if (listed)
        TRY(add(c, value, "properties", listed));
    json_object_foreach(patterns, text, v)
    {
        rx names;
        TRY(key_pattern(c, text, &names));
        if (!matches(c, names, name))
            continue;
        said = true;
        TRY(add(c, value, "patternProperties", v));
    }
    const json_t *rest = said ? NULL : additional(c, s);
    bool by_choice = required && rest && !json_object_get(s, "additionalProperties");
    return rest && !by_choice ? add(c, value, "additionalProperties", rest) : VT_OK;
}

/* ---- other names ---- */

/* The names that are listed, each with `behind`. */
static rx listed(compiler *c, const object *o, const char *behind)
{
    rx_store *x = &c->g->rx;
    rx some = RX_NOTHING, end = rx_string(x, behind, strlen(behind));
    rx *name = vt_calloc((size_t)o->n + 1, sizeof *name);
    for (int32_t i = 0; name && i < o->n; i++)
        name[i] = rx_cat(
            x, schema_literal(c, o->property[i].name, strlen(o->property[i].name), names_form(c)),
            end);
    if (name)
        some = rx_alt(x, name, o->n);
    else
        c->g->failed = true;
    free(name);
    return some;
}

static rx unlisted(compiler *c, const object *o, rx names)
{
    return rx_and2(&c->g->rx, names, rx_not(&c->g->rx, listed(c, o, "")));
}

static vt_status add_other(compiler *c, object *o, rx key, const schema_set *value)
{
    if (value->never || rx_least(&c->g->rx, unlisted(c, o, key)) == RX_LEAST_NONE)
        return VT_OK;
    if (o->n_others == MAX_OTHERS)
        return schema_refuse(c, "patternProperties", "more than %d patterns", MAX_OTHERS - 1);
    o->other[o->n_others++] = (other){.key = key, .value = *value};
    return VT_OK;
}

/* Adds what one member's patterns allow. All of their names fall to `taken`, and no name may fall
 * to two patterns. */
static vt_status add_patterns(compiler *c, object *o, const json_t *s, rx *taken)
{
    rx_store *x = &c->g->rx;
    json_t *patterns = json_object_get(s, "patternProperties"), *v;
    const char *text;
    if (patterns && !json_is_object(patterns))
        return schema_refuse(c, "patternProperties", "expected an object");
    json_object_foreach(patterns, text, v)
    {
        rx names, both;
        schema_set value = {.n = 0};
        TRY(key_pattern(c, text, &names));
        both = rx_and2(x, names, *taken);
        if (rx_least(x, both) != RX_LEAST_NONE)
            return schema_refuse(c, "patternProperties",
                                 "a name may match '%.80s' and another pattern, which is not "
                                 "supported",
                                 text);
        *taken = rx_alt2(x, *taken, names);
        TRY(add(c, &value, "patternProperties", v));
        for (int32_t i = 0; i < o->set->n; i++) {
            const json_t *rest = o->set->at[i].is == s ? NULL : additional(c, o->set->at[i].is);
            if (rest)
                TRY(add(c, &value, "additionalProperties", rest));
        }
        TRY(add_other(c, o, names, &value));
    }
    return VT_OK;
}

static vt_status find_others(compiler *c, object *o)
{
    rx_store *x = &c->g->rx;
    rx taken = RX_NOTHING;
    schema_set value = {.n = 0};
    for (int32_t i = 0; i < o->set->n; i++)
        TRY(add_patterns(c, o, o->set->at[i].is, &taken));
    for (int32_t i = 0; i < o->set->n; i++) {
        const json_t *rest = additional(c, o->set->at[i].is);
        if (rest)
            TRY(add(c, &value, "additionalProperties", rest));
    }
    rx texts = names_form(c) == CHARS_RAW ? x->raw : x->any;
    rx any = taken == RX_NOTHING ? rx_repeat(x, notation_char(c, NULL), 0, RX_NO_MOST)
                                 : rx_and2(x, texts, rx_not(x, taken));
    if (!value.never)
        TRY(add_other(c, o, any, &value));
    return VT_OK;
}

/* ---- rules ---- */

/* "name" but for those that are excepted, which have their quote. Strings with exceptions of this
 * form share their masks with others (seed.c). */
static rx json_names(compiler *c, rx except, rx names)
{
    rx_store *x = &c->g->rx;
    rx closed = rx_and2(x, rx_close(x, names), rx_not(x, except));
    return rx_cat(x, rx_string(x, "\"", 1), closed);
}

/* key ":" value, as a rule of its own, so that it stands in the grammar once. `name` is NULL where
 * several names are allowed. */
static vt_status head_rule(compiler *c, const object *o, rx names, const char *name,
                           const schema_set *value, symbol *out)
{
    if (o->arguments)
        return notation_argument(c, name ? names : unlisted(c, o, names), name, value, out);
    rx key = c->form ? notation_names(c, name ? names : unlisted(c, o, names))
                     : json_names(c, name ? RX_NOTHING : listed(c, o, "\""), names);
    symbol s[6] = {c->blanks, rules_lexeme(c->g, key), c->blanks, o->colon, c->blanks, 0};
    schema_set set = *value;
    *out = rules_new(c->g, NULL);
    TRY(schema_rule(c, &set, &s[5]));
    rules_add(c->g, *out, s, 6);
    return VT_OK;
}

/* An unlisted name, with its value, that has to come behind `before` others. It has a character
 * more than the one before: so the shortest names differ, which an answer takes that has no room
 * left. A name that comes twice would count once. */
static vt_status needed_head(compiler *c, const object *o, const other *one, int64_t before,
                             symbol *out)
{
    rx_store *x = &c->g->rx;
    *out = one->head;
    if (before <= 0)
        return VT_OK;
    int32_t least = rx_least(x, unlisted(c, o, one->key)) + (int32_t)before;
    rx longer = rx_repeat(x, notation_char(c, NULL), least, RX_NO_MOST);
    longer = rx_and2(x, one->key, longer);
    return rx_least(x, unlisted(c, o, longer)) == RX_LEAST_NONE
               ? VT_OK
               : head_rule(c, o, longer, NULL, &one->value, out);
}

static int32_t place(const object *o, int32_t i, int64_t k)
{
    return i * (o->top + 1) + (int32_t)(k < o->top ? k : o->top);
}

/* The rule (i, k), made when it is first asked for; `todo` counts those that are not filled yet. */
static symbol rule_at(compiler *c, object *o, int32_t i, int64_t k)
{
    symbol *s = &o->rule[place(o, i, k)];
    if (!*s)
        *s = rules_new(c->g, NULL);
    return *s;
}

static vt_status fill_place(compiler *c, object *o, int32_t i, int32_t k)
{
    symbol at = o->rule[place(o, i, k)], s[4];
    bool room = o->max < 0 || k < o->max;
    int32_t n;
    for (int32_t w = 0; room && w < (i < o->n ? 1 : o->n_others); w++) {
        n = 0;
        if (k > 0) {
            s[n++] = o->arguments ? rules_lexeme(c->g, RX_EMPTY) : c->blanks;
            s[n++] = o->comma;
        }
        s[n] = i < o->n ? o->head[i] : o->other[w].head;
        if (i == o->n && k < o->min)
            TRY(needed_head(c, o, &o->other[w], k - o->n_required, &s[n]));
        n++;
        s[n++] = rule_at(c, o, i < o->n ? i + 1 : i, k + 1);
        rules_add(c->g, at, s, n);
    }
    if (i < o->n && !o->property[i].required) {
        s[0] = rule_at(c, o, i + 1, k);
        rules_add(c->g, at, s, 1);
    }
    if (i == o->n && k >= o->min) {
        s[0] = o->arguments ? rules_lexeme(c->g, RX_EMPTY) : c->blanks;
        s[1] = o->end;
        rules_add(c->g, at, s, 2);
    }
    return VT_OK;
}

/* The head of a listed property. */
static vt_status listed_head(compiler *c, const object *o, const property *p, symbol *out)
{
    schema_set value = {.n = 0};
    size_t before = schema_enter(c, "properties", p->name);
    if (o->arguments)
        TRY(notation_check_name(c, p->name));
    for (int32_t i = 0; i < o->set->n; i++)
        TRY(of_member(c, o->set->at[i].is, p->name, p->required, &value));
    rx name = schema_literal(c, p->name, strlen(p->name), names_form(c));
    TRY(head_rule(c, o, name, p->name, &value, out));
    schema_leave(c, before);
    return VT_OK;
}

static vt_status write_object(compiler *c, object *o, symbol rule)
{
    int64_t places = (int64_t)(o->n + 1) * (o->top + 1);
    if (places > 100000)
        return schema_refuse(c, "maxProperties",
                             "counted over %d properties it makes the grammar "
                             "too large",
                             o->n);
    o->rule = vt_arena_alloc(c->g->arena, (size_t)places, sizeof *o->rule);
    o->head = vt_arena_alloc(c->g->arena, (size_t)o->n + 1, sizeof *o->head);
    if (!o->rule || !o->head)
        return vt_fail(c->err, VT_ERR_MEMORY, "the schema takes too much memory");
    symbol s[2] = {rules_text(c->g, o->arguments ? "" : "{"), rule_at(c, o, 0, 0)};
    rules_add(c->g, rule, s, 2);
    for (int32_t i = 0; i < o->n; i++)
        TRY(listed_head(c, o, &o->property[i], &o->head[i]));
    for (int32_t w = 0; w < o->n_others; w++) {
        size_t before = schema_enter(c, "additionalProperties", NULL);
        other *one = &o->other[w];
        if (o->arguments)
            one->key = notation_argument_names(c, one->key);
        TRY(head_rule(c, o, one->key, NULL, &one->value, &one->head));
        schema_leave(c, before);
    }
    /* (i, k) leads to (i, k + 1), (i + 1, k) and (i + 1, k + 1) only */
    for (int32_t i = 0; i <= o->n; i++)
        for (int32_t k = 0; k <= o->top; k++)
            if (o->rule[place(o, i, k)] && !c->g->failed)
                TRY(fill_place(c, o, i, k));
    return VT_OK;
}

vt_status schema_object(compiler *c, const schema_set *set, symbol *out)
{
    bool arguments = notation_has(c, set, MARK_ARGUMENTS);
    bool tags = arguments && c->form->writing == WRITE_TAGS;
    object o = {.set = set,
                .arguments = arguments,
                .comma = rules_text(c->g, tags ? "" : ","),
                .colon = rules_text(c->g, ":"),
                .end = rules_text(c->g, arguments ? "" : "}")};
    *out = rules_new(c->g, NULL);
    TRY(find_properties(c, &o));
    TRY(find_others(c, &o));
    o.top = (int32_t)(o.max > o.min ? o.max : o.min);
    o.top = o.top < 1 ? 1 : o.top;
    if (o.max >= 0 && o.max < o.min)
        return VT_OK; /* no object at all */
    return write_object(c, &o, *out);
}

/* ---- arrays ---- */

/* Makes the rule of element i, of which each member says something. */
static vt_status element(compiler *c, const schema_set *set, int64_t i, symbol *out)
{
    schema_set value = {.n = 0};
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)i);
    size_t before = schema_enter(c, "items", i > 0 ? number : NULL);
    for (int32_t k = 0; k < set->n; k++) {
        const json_t *s = set->at[k].is, *items = json_object_get(s, "items");
        const json_t *prefix = json_object_get(s, "prefixItems");
        const json_t *rest = prefix || !json_is_array(items)
                                 ? items
                                 : json_object_get(s, "additionalItems");
        if (!prefix && json_is_array(items))
            prefix = items;
        if (prefix && !json_is_array(prefix))
            return schema_refuse(c, "prefixItems", "expected a list of schemas");
        const json_t *one = i < (int64_t)json_array_size(prefix) ? json_array_get(prefix, (size_t)i)
                                                                 : rest;
        if (one)
            TRY(add(c, &value, "", one));
        else if (prefix && c->closed)
            value.never = true;
    }
    TRY(schema_rule(c, &value, out));
    schema_leave(c, before);
    return VT_OK;
}

static int64_t longest_prefix(const schema_set *set)
{
    size_t most = 0;
    for (int32_t k = 0; k < set->n; k++) {
        const json_t *items = json_object_get(set->at[k].is, "items");
        size_t n = json_array_size(json_object_get(set->at[k].is, "prefixItems"));
        size_t old = json_is_array(items) ? json_array_size(items) : 0;
        most = n > most ? n : most;
        most = old > most ? old : most;
    }
    return (int64_t)most;
}

/* Rule i is what may follow i elements; the last one, from where on nothing changes, follows
 * itself. */
vt_status schema_array(compiler *c, const schema_set *set, symbol *out)
{
    int64_t min, max, n = longest_prefix(set);
    symbol s[5], rest = 0, value, comma = rules_text(c->g, ","), end = rules_text(c->g, "]");
    *out = rules_new(c->g, NULL);
    TRY(counts(c, set, "minItems", "maxItems", &min, &max));
    int64_t same = n, top = n > min ? n : min; /* elements from `same` on are alike */
    top = max > top ? max : top < 1 ? 1 : top;
    if (max >= 0 && max < min)
        return VT_OK;
    symbol at = rules_new(c->g, NULL), next;
    s[0] = rules_text(c->g, "[");
    s[1] = at;
    rules_add(c->g, *out, s, 2);
    for (int64_t i = 0; i <= top && !c->g->failed; i++, at = next) {
        int32_t k = 0;
        next = i < top ? rules_new(c->g, NULL) : at;
        if (max < 0 || i < max) {
            if (i < same || !rest)
                TRY(element(c, set, i, i < same ? &value : &rest));
            if (i > 0) {
                s[k++] = c->blanks;
                s[k++] = comma;
            }
            s[k++] = c->blanks;
            s[k++] = i < same ? value : rest;
            s[k++] = next;
            rules_add(c->g, at, s, k);
        }
        if (i >= min) {
            s[0] = c->blanks;
            s[1] = end;
            rules_add(c->g, at, s, 2);
        }
    }
    return VT_OK;
}
