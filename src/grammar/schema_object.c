/* Objects: see schema.h.
 *
 * Properties come in the order of the schema, then those that are required and not listed, then any
 * others. Rule (i, k) is what may follow when the first i properties are dealt with and k are
 * written (k is counted up to where it matters: 1, or minProperties, or maxProperties):
 *
 *   (i, k) -> "," key_i ":" value_i (i + 1, k + 1)      without the comma where k is 0
 *           | (i + 1, k)                                 where property i is optional
 *   (n, k) -> "," other ":" value (n, k + 1) | "}"
 *
 * Where some member has to be there, whatever its name is, a rule is (i, k, f): f has a bit for
 * each of those that came already.
 */
#include "grammar/schema.h"

#include <math.h>
#include <stdlib.h>
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
    uint64_t said; /* bits of the members with a pattern of these names */
    symbol head;   /* the name with the value */
} other;

/* A member that has to be there (SCHEMA_HAS). */
typedef struct wanted {
    const schema_member *member;
    rx names;
    const json_t *is;
} wanted;

enum { MAX_OTHERS = 17, MAX_WANTED = 4 };

typedef struct object {
    const schema_set *set;
    property *property; /* [n] */
    int32_t n, cap;
    int32_t n_required;
    int64_t min, max; /* max -1: any number */
    int32_t top;      /* k is counted up to here */
    other *other;     /* [MAX_OTHERS] */
    int32_t n_others;
    rx names; /* those that propertyNames allows; RX_ALL */
    wanted wanted[MAX_WANTED];
    int32_t n_wanted;
    unsigned all;  /* bits of all wanted */
    symbol *found; /* [(n + n_others) * (all + 1)] heads of members that are wanted */
    symbol *rule;  /* [(n + 1) * (top + 1) * (all + 1)] 0: not made yet */
    symbol *head;  /* [n] property i with its value, behind the comma */
    symbol comma, colon, end;
    bool arguments; /* of a call that does not write them as an object */
} object;

/* ---- counts ---- */

vt_status schema_count(compiler *c, const json_t *s, const char *keyword, int64_t *out)
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

vt_status schema_counts(compiler *c, const schema_set *set, const char *least, const char *most,
                        int64_t *min, int64_t *max)
{
    *min = 0;
    *max = -1;
    for (int32_t i = 0; i < set->n; i++) {
        int64_t lo = 0, hi = -1;
        TRY(schema_count(c, set->at[i].is, least, &lo));
        TRY(schema_count(c, set->at[i].is, most, &hi));
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
    return schema_counts(c, o->set, "minProperties", "maxProperties", &o->min, &o->max);
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

/* Returns additionalProperties of one member; NULL: anything may come. */
static const json_t *additional(const compiler *c, const schema_member *m)
{
    const json_t *v = json_object_get(m->is, "additionalProperties");
    bool closed = c->closed && !m->open && json_object_get(m->is, "properties");
    return !v && closed ? json_false() : v;
}

/* Returns unevaluatedProperties of one member; NULL: it asks for nothing. */
static const json_t *unevaluated(const schema_member *m)
{
    const json_t *v = json_object_get(m->is, "unevaluatedProperties");
    return json_is_true(v) ? NULL : v;
}

/* Returns true if a member's own additionalProperties, or what is in place of it, leaves no name
 * for the unevaluatedProperties of `owner`. */
static bool evaluates_rest(const schema_member *m, const schema_member *owner)
{
    return json_object_get(m->is, "additionalProperties") ||
           (m != owner && json_object_get(m->is, "unevaluatedProperties"));
}

/* Adds unevaluatedProperties of all members that have no other word on a name: `said` are the bits
 * of the members that do. */
static vt_status add_unevaluated(compiler *c, const object *o, uint64_t said, schema_set *value)
{
    for (int32_t i = 0; i < o->set->n; i++) {
        const schema_member *owner = &o->set->at[i];
        const json_t *v = unevaluated(owner);
        bool known = !v;
        uint64_t bit = schema_owner_bit(c, owner->is);
        for (int32_t k = 0; k < o->set->n && !known; k++) {
            const schema_member *m = &o->set->at[k];
            if (k == i || (m->owners & bit))
                known = (said >> k & 1) || evaluates_rest(m, owner);
        }
        if (!known)
            TRY(schema_join(c, value, owner, "unevaluatedProperties", v));
    }
    return VT_OK;
}

/* Adds to `value` what member i says of a property. */
static vt_status of_member(compiler *c, const object *o, int32_t i, const property *p,
                           schema_set *value, uint64_t *said)
{
    const schema_member *m = &o->set->at[i];
    const json_t *listed = json_object_get(json_object_get(m->is, "properties"), p->name);
    json_t *patterns = json_object_get(m->is, "patternProperties"), *v;
    const char *text;
    bool known = listed != NULL;
    if (listed)
        TRY(schema_join(c, value, m, "properties", listed));
    json_object_foreach(patterns, text, v)
    {
        rx names;
        TRY(key_pattern(c, text, &names));
        if (!matches(c, names, p->name))
            continue;
        known = true;
        TRY(schema_join(c, value, m, "patternProperties", v));
    }
    *said |= (uint64_t)known << i;
    const json_t *rest = known ? NULL : additional(c, m);
    bool by_choice = p->required && rest && !json_object_get(m->is, "additionalProperties");
    return rest && !by_choice ? schema_join(c, value, m, "additionalProperties", rest) : VT_OK;
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
        (void)rules_no_memory(c->g);
    free(name);
    return some;
}

static rx unlisted(compiler *c, const object *o, rx names)
{
    return rx_and2(&c->g->rx, names, rx_not(&c->g->rx, listed(c, o, "")));
}

static bool is_empty(compiler *c, const object *o, rx names)
{
    return rx_least(&c->g->rx, unlisted(c, o, names)) == RX_LEAST_NONE;
}

/* Divides a class of names into those that a pattern has and those that it has not. Sets *in if
 * what stays in its place has it. */
static vt_status divide(compiler *c, object *o, int32_t w, rx pattern, bool *in)
{
    rx_store *x = &c->g->rx;
    /* all names: a pattern alone, whose strings share their masks with others */
    bool all = o->other[w].key == (names_form(c) == CHARS_RAW ? x->raw : x->any);
    rx with = all ? pattern : rx_and2(x, o->other[w].key, pattern);
    *in = !is_empty(c, o, with);
    if (!*in)
        return VT_OK;
    rx without = rx_and2(x, o->other[w].key, rx_not(x, pattern));
    if (is_empty(c, o, without))
        return VT_OK;
    if (o->n_others == MAX_OTHERS)
        return schema_refuse(c, "patternProperties",
                             "more than %d sets of names, told apart by "
                             "patterns",
                             MAX_OTHERS - 1);
    o->other[o->n_others] = o->other[w];
    o->other[o->n_others++].key = without;
    o->other[w].key = with;
    return VT_OK;
}

/* Adds what one member's patterns say, to the names that have them. */
static vt_status add_patterns(compiler *c, object *o, int32_t i)
{
    const schema_member *m = &o->set->at[i];
    json_t *patterns = json_object_get(m->is, "patternProperties"), *v;
    const char *text;
    if (patterns && !json_is_object(patterns))
        return schema_refuse(c, "patternProperties", "expected an object");
    json_object_foreach(patterns, text, v)
    {
        rx pattern;
        TRY(key_pattern(c, text, &pattern));
        for (int32_t w = 0, n = o->n_others; w < n; w++) {
            bool in;
            TRY(divide(c, o, w, pattern, &in));
            if (in)
                TRY(schema_join(c, &o->other[w].value, m, "patternProperties", v));
            o->other[w].said |= (uint64_t)in << i;
        }
    }
    return VT_OK;
}

/* Adds what the members say of names beyond those that they list. */
static vt_status add_rest(compiler *c, object *o, other *one)
{
    for (int32_t i = 0; i < o->set->n; i++) {
        const schema_member *m = &o->set->at[i];
        const json_t *rest = one->said >> i & 1 ? NULL : additional(c, m);
        if (rest)
            TRY(schema_join(c, &one->value, m, "additionalProperties", rest));
    }
    return add_unevaluated(c, o, one->said, &one->value);
}

/* Makes the sets of names that are not listed, each with what its values have to be. */
static vt_status find_others(compiler *c, object *o)
{
    rx_store *x = &c->g->rx;
    bool told_apart = o->names != RX_ALL;
    int32_t n = 0;
    for (int32_t i = 0; i < o->set->n; i++)
        told_apart |= json_object_get(o->set->at[i].is, "patternProperties") != NULL;
    rx texts = names_form(c) == CHARS_RAW ? x->raw : x->any;
    o->other[0] = (other){.key = told_apart ? rx_and2(x, texts, o->names)
                                            : rx_repeat(x, notation_char(c, NULL), 0, RX_NO_MOST)};
    o->n_others = is_empty(c, o, o->other[0].key) ? 0 : 1;
    for (int32_t i = 0; i < o->set->n; i++)
        TRY(add_patterns(c, o, i));
    for (int32_t w = 0; w < o->n_others; w++) {
        TRY(add_rest(c, o, &o->other[w]));
        if (!o->other[w].value.never)
            o->other[n++] = o->other[w];
    }
    o->n_others = n;
    return VT_OK;
}

/* The names of which one is wanted. */
static vt_status wanted_names(compiler *c, const json_t *has, rx *out)
{
    rx_store *x = &c->g->rx;
    const json_t *pattern = json_object_get(has, "pattern"), *but = json_object_get(has, "but");
    const json_t *names = json_object_get(has, "names");
    const char *key;
    json_t *v;
    rx one;
    *out = names_form(c) == CHARS_RAW ? x->raw : x->any;
    if (pattern) {
        TRY(key_pattern(c, json_string_value(pattern), &one));
        *out = rx_and2(x, *out, one);
    }
    if (names) {
        TRY(schema_strings(c, names, 0, &one));
        *out = rx_and2(x, *out, rx_not(x, one));
    }
    json_object_foreach(json_object_get(but, "patternProperties"), key, v)
    {
        TRY(key_pattern(c, key, &one));
        *out = rx_and2(x, *out, rx_not(x, one));
    }
    json_object_foreach(json_object_get(but, "properties"), key, v) *out = rx_and2(
        x, *out, rx_not(x, schema_literal(c, key, strlen(key), names_form(c))));
    return VT_OK;
}

static vt_status find_wanted(compiler *c, object *o)
{
    for (int32_t i = 0; i < o->set->n; i++) {
        const json_t *has = json_object_get(o->set->at[i].is, SCHEMA_HAS);
        if (!has)
            continue;
        if (o->n_wanted == MAX_WANTED)
            return schema_refuse(c, NULL,
                                 "more than %d members with names that are not listed are "
                                 "asked for by not",
                                 MAX_WANTED);
        wanted *one = &o->wanted[o->n_wanted++];
        *one = (wanted){.member = &o->set->at[i], .is = json_object_get(has, "is")};
        TRY(wanted_names(c, has, &one->names));
    }
    o->all = (1u << o->n_wanted) - 1;
    return VT_OK;
}

/* The names that all propertyNames allow. */
static vt_status find_names(compiler *c, object *o)
{
    o->names = RX_ALL;
    for (int32_t i = 0; i < o->set->n; i++) {
        const json_t *v = json_object_get(o->set->at[i].is, "propertyNames");
        rx names;
        if (!v || json_is_true(v))
            continue;
        size_t before = schema_enter(c, "propertyNames", NULL);
        TRY(schema_strings(c, v, 0, &names));
        schema_leave(c, before);
        o->names = rx_and2(&c->g->rx, o->names, names);
    }
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

static int32_t place(const object *o, int32_t i, int64_t k, unsigned f)
{
    int32_t at = i * (o->top + 1) + (int32_t)(k < o->top ? k : o->top);
    return at * (int32_t)(o->all + 1) + (int32_t)f;
}

/* The rule (i, k, f), made when it is first asked for. */
static symbol rule_at(compiler *c, object *o, int32_t i, int64_t k, unsigned f)
{
    symbol *s = &o->rule[place(o, i, k, f)];
    if (!*s)
        *s = rules_new(c->g, NULL);
    return *s;
}

/* The values that a listed property may have. */
static vt_status listed_value(compiler *c, const object *o, const property *p, schema_set *value)
{
    uint64_t said = 0;
    for (int32_t i = 0; i < o->set->n; i++)
        TRY(of_member(c, o, i, p, value, &said));
    TRY(add_unevaluated(c, o, said, value));
    if (o->names != RX_ALL && !matches(c, o->names, p->name))
        value->never = true;
    return VT_OK;
}

/* The head of a listed property (i < n) or of other names that is each of the wanted members with
 * a bit in `some`. *out 0: it cannot be. */
static vt_status wanted_head(compiler *c, object *o, int32_t i, int32_t w, unsigned some,
                             symbol *out)
{
    rx_store *x = &c->g->rx;
    const char *name = i < o->n ? o->property[i].name : NULL;
    rx names = name ? schema_literal(c, name, strlen(name), names_form(c)) : o->other[w].key;
    schema_set value = {.n = 0};
    symbol *kept = &o->found[(size_t)(i + w) * (o->all + 1) + some];
    *out = *kept;
    if (*kept)
        return VT_OK;
    if (name)
        TRY(listed_value(c, o, &o->property[i], &value));
    else
        value = o->other[w].value;
    for (int32_t h = 0; h < o->n_wanted; h++)
        if (some >> h & 1) {
            names = rx_and2(x, names, o->wanted[h].names);
            TRY(schema_join(c, &value, o->wanted[h].member, "not", o->wanted[h].is));
        }
    if (rx_least(x, name ? names : unlisted(c, o, names)) == RX_LEAST_NONE)
        return VT_OK;
    TRY(head_rule(c, o, names, name, &value, kept));
    *out = *kept;
    return VT_OK;
}

/* The head of the next member, whatever it is wanted for. */
static vt_status next_head(compiler *c, object *o, int32_t i, int32_t w, int32_t k, unsigned some,
                           symbol *out)
{
    if (some)
        return wanted_head(c, o, i, w, some, out);
    *out = i < o->n ? o->head[i] : o->other[w].head;
    return i == o->n && k < o->min ? needed_head(c, o, &o->other[w], k - o->n_required, out)
                                   : VT_OK;
}

static vt_status fill_place(compiler *c, object *o, int32_t i, int32_t k, unsigned f)
{
    symbol at = o->rule[place(o, i, k, f)], s[4];
    bool room = o->max < 0 || k < o->max;
    for (int32_t w = 0; room && w < (i < o->n ? 1 : o->n_others); w++)
        for (unsigned some = 0; some <= o->all; some++) {
            int32_t n = 0;
            if (some & f)
                continue;
            if (k > 0) {
                s[n++] = o->arguments ? rules_lexeme(c->g, RX_EMPTY) : c->blanks;
                s[n++] = o->comma;
            }
            TRY(next_head(c, o, i, w, k, some, &s[n]));
            if (!s[n++])
                continue;
            s[n++] = rule_at(c, o, i < o->n ? i + 1 : i, k + 1, f | some);
            rules_add(c->g, at, s, n);
        }
    if (i < o->n && !o->property[i].required) {
        s[0] = rule_at(c, o, i + 1, k, f);
        rules_add(c->g, at, s, 1);
    }
    if (i == o->n && k >= o->min && f == o->all) {
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
    TRY(listed_value(c, o, p, &value));
    rx name = schema_literal(c, p->name, strlen(p->name), names_form(c));
    TRY(head_rule(c, o, name, p->name, &value, out));
    schema_leave(c, before);
    return VT_OK;
}

/* Room for all rules and heads. */
static vt_status make_room(compiler *c, object *o)
{
    size_t places = (size_t)(o->n + 1) * (size_t)(o->top + 1) * (o->all + 1);
    size_t heads = (size_t)(o->n + o->n_others + 1) * (o->all + 1);
    if (places > 100000 || heads > 100000)
        return schema_refuse(c, "maxProperties",
                             "counted over %d properties it makes the grammar "
                             "too large",
                             o->n);
    o->rule = vt_arena_alloc(c->g->arena, places, sizeof *o->rule);
    o->head = vt_arena_alloc(c->g->arena, (size_t)o->n + 1, sizeof *o->head);
    o->found = vt_arena_alloc(c->g->arena, o->all ? heads : 1, sizeof *o->found);
    return o->rule && o->head && o->found
               ? VT_OK
               : vt_fail(c->err, VT_ERR_MEMORY, "the schema takes too much memory");
}

static vt_status write_object(compiler *c, object *o, symbol rule)
{
    TRY(make_room(c, o));
    symbol s[2] = {rules_text(c->g, o->arguments ? "" : "{"), rule_at(c, o, 0, 0, 0)};
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
    /* (i, k, f) leads to i or i + 1, k or k + 1, and f with more bits only */
    for (int32_t i = 0; i <= o->n; i++)
        for (int32_t k = 0; k <= o->top; k++)
            for (unsigned f = 0; f <= o->all; f++)
                if (o->rule[place(o, i, k, f)] && !c->g->failed)
                    TRY(fill_place(c, o, i, k, f));
    return VT_OK;
}

static vt_status make_object(compiler *c, object *o, symbol out)
{
    TRY(find_properties(c, o));
    TRY(find_names(c, o));
    TRY(find_others(c, o));
    TRY(find_wanted(c, o));
    o->top = (int32_t)(o->max > o->min ? o->max : o->min);
    o->top = o->top < 1 ? 1 : o->top;
    if (o->max >= 0 && o->max < o->min)
        return VT_OK; /* no object at all */
    return write_object(c, o, out);
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
    o.other = vt_calloc(MAX_OTHERS, sizeof *o.other);
    if (!o.other)
        return vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
    vt_status status = make_object(c, &o, *out);
    free(o.other);
    return status;
}
