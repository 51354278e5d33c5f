/* Keywords to rules: types, constants, strings. See schema.h. */
#include "grammar/schema.h"

#include <math.h>
#include <string.h>

#include "grammar/pattern.h"

/* ---- what is not supported ---- */

bool schema_is_refused(const char *keyword)
{
    static const char *const refused[] = {"divisibleBy", "extends", "disallow"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i], keyword) == 0)
            return true;
    return false;
}

static vt_status check_keywords(compiler *c, const json_t *s)
{
    const char *key;
    json_t *v;
    json_object_foreach(
        (json_t *)(uintptr_t)s, key,
        v) if (schema_is_refused(key)) return schema_refuse(c, key,
                                                            "this keyword is not supported");
    return VT_OK;
}

/* ---- types ---- */

static unsigned type_named(const json_t *v)
{
    static const struct {
        const char *name;
        unsigned is;
    } type[] = {{"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN}, {"object", TYPE_OBJECT},
                {"array", TYPE_ARRAY},     {"string", TYPE_STRING},   {"number", TYPE_NUMBER},
                {"integer", TYPE_INTEGER}, {"any", TYPE_ANY}};
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), type[i].name) == 0)
            return type[i].is;
    return 0;
}

unsigned schema_types(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    const json_t *mask = json_object_get(schema, SCHEMA_TYPES);
    unsigned types = type ? type_named(type) : TYPE_ANY;
    if (mask)
        return (unsigned)json_integer_value(mask);
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(json_array_get(type, i));
    if (json_is_true(json_object_get(schema, "nullable")) && types != TYPE_ANY)
        types |= TYPE_NULL;
    return types;
}

static vt_status check_type(compiler *c, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    size_t n = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; type && i < n; i++) {
        const json_t *one = json_is_array(type) ? json_array_get(type, i) : type;
        if (!type_named(one))
            return schema_refuse(c, "type",
                                 "'%.60s' is no type; expected null, boolean, object, "
                                 "array, string, number or integer",
                                 json_is_string(one) ? json_string_value(one) : "(no text)");
    }
    return VT_OK;
}

vt_status schema_check(compiler *c, const json_t *schema)
{
    TRY(check_keywords(c, schema));
    return check_type(c, schema);
}

unsigned schema_type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    default:
        return json_real_value(v) == floor(json_real_value(v)) ? TYPE_INTEGER : TYPE_FRACTION;
    }
}

/* ---- constants ---- */

rx schema_literal(compiler *c, const char *s, size_t n, char_form form)
{
    vt_buf b = {0};
    if (form == CHARS_RAW)
        return rx_string(&c->g->rx, s, n);
    for (size_t i = 0; i < n; i++) {
        static const char *const has[] = {"\b\\b", "\f\\f",  "\n\\n", "\r\\r",
                                          "\t\\t", "\"\\\"", "\\\\\\"};
        const char *escape = NULL;
        for (size_t k = 0; k < sizeof has / sizeof *has; k++)
            escape = has[k][0] == s[i] ? has[k] + 1 : escape;
        if (escape)
            vt_buf_puts(&b, escape);
        else if ((unsigned char)s[i] < 0x20)
            vt_buf_printf(&b, "\\u%04x", (unsigned)(unsigned char)s[i]);
        else
            vt_buf_putc(&b, s[i]);
    }
    rx made = b.failed ? RX_NOTHING : rx_string(&c->g->rx, b.data ? b.data : "", b.len);
    if (b.failed)
        (void)rules_no_memory(c->g);
    vt_buf_release(&b);
    return made;
}

/* `set`: where it stands; NULL: inside of a value. */
static vt_status scalar(compiler *c, const schema_set *set, const json_t *v, rx *out)
{
    if (json_is_string(v))
        return notation_given(c, set, json_string_value(v), json_string_length(v), out);
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (!text)
        return vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
    const char *written = json_is_number(v) ? text : notation_word(c, text);
    *out = rx_string(&c->g->rx, written, strlen(written));
    free(text);
    return VT_OK;
}

static vt_status container(compiler *c, const json_t *v, symbol *out)
{
    bool object = json_is_object(v), first = true;
    const char *key;
    json_t *member;
    symbol s[5], inner;
    vt_status status = VT_OK;
    *out = rules_new(c->g, NULL);
    /* one rule for the rest of each place: '[' blanks value rest */
    symbol at = *out;
    size_t n = object ? json_object_size(v) : json_array_size(v), i = 0;
    s[0] = rules_text(c->g, object ? "{" : "[");
    symbol next = rules_new(c->g, NULL);
    s[1] = next;
    rules_add(c->g, at, s, 2);
    at = next;
    void *iter = object ? json_object_iter((json_t *)(uintptr_t)v) : NULL;
    for (; i < n && status == VT_OK; i++) {
        int32_t k = 0;
        symbol row[12];
        key = object ? json_object_iter_key(iter) : NULL;
        member = object ? json_object_iter_value(iter) : json_array_get(v, i);
        iter = object ? json_object_iter_next((json_t *)(uintptr_t)v, iter) : NULL;
        row[k++] = c->blanks;
        if (!first) {
            row[k++] = rules_text(c->g, ",");
            row[k++] = c->blanks;
        }
        first = false;
        if (object) {
            rx name = schema_literal(c, key, strlen(key), notation_chars(c, NULL));
            row[k++] = rules_lexeme(c->g, notation_names(c, name));
            row[k++] = c->blanks;
            row[k++] = rules_text(c->g, ":");
            row[k++] = c->blanks;
        }
        status = schema_value(c, member, &inner);
        row[k++] = inner;
        row[k++] = next = rules_new(c->g, NULL);
        rules_add(c->g, at, row, k);
        at = next;
    }
    s[0] = c->blanks;
    s[1] = rules_text(c->g, object ? "}" : "]");
    rules_add(c->g, at, s, 2);
    return status;
}

vt_status schema_value(compiler *c, const json_t *v, symbol *out)
{
    if (c->g->failed)
        return schema_refuse(c, NULL, "the schema is too large");
    if (json_is_object(v) || json_is_array(v))
        return container(c, v, out);
    rx text;
    TRY(scalar(c, NULL, v, &text));
    *out = rules_lexeme(c->g, text);
    return VT_OK;
}

/* ---- values that are listed ---- */

static bool is_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool is_listed(const json_t *schema, const json_t *v)
{
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    bool in = !list;
    for (size_t i = 0; !in && i < json_array_size(list); i++)
        in = is_equal(json_array_get(list, i), v);
    return in && (!one || is_equal(one, v));
}

static bool number_fits(const json_t *s, double x, bool draft_4)
{
    const json_t *least = json_object_get(s, "minimum"), *most = json_object_get(s, "maximum");
    const json_t *above = json_object_get(s, "exclusiveMinimum"),
                 *below = json_object_get(s, "exclusiveMaximum");
    bool above_least = draft_4 && json_is_true(above), below_most = draft_4 && json_is_true(below);
    return !(json_is_number(least) &&
             (x < json_number_value(least) || (above_least && x == json_number_value(least)))) &&
           !(json_is_number(most) &&
             (x > json_number_value(most) || (below_most && x == json_number_value(most)))) &&
           !(json_is_number(above) && x <= json_number_value(above)) &&
           !(json_is_number(below) && x >= json_number_value(below));
}

/* Returns true if a member has keywords that look into a value of this type. */
static bool looks_into(const json_t *s, unsigned type)
{
    static const struct {
        const char *keyword;
        unsigned of;
    } deep[] = {{"properties", TYPE_OBJECT},      {"patternProperties", TYPE_OBJECT},
                {"required", TYPE_OBJECT},        {"additionalProperties", TYPE_OBJECT},
                {"minProperties", TYPE_OBJECT},   {"maxProperties", TYPE_OBJECT},
                {"propertyNames", TYPE_OBJECT},   {"unevaluatedProperties", TYPE_OBJECT},
                {SCHEMA_HAS, TYPE_OBJECT},        {"items", TYPE_ARRAY},
                {"prefixItems", TYPE_ARRAY},      {"additionalItems", TYPE_ARRAY},
                {"minItems", TYPE_ARRAY},         {"maxItems", TYPE_ARRAY},
                {"contains", TYPE_ARRAY},         {"uniqueItems", TYPE_ARRAY},
                {"unevaluatedItems", TYPE_ARRAY}, {"multipleOf", TYPE_NUMBER},
                {SCHEMA_INDIVISIBLE, TYPE_NUMBER}};
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++)
        if ((deep[i].of & type) && json_object_get(s, deep[i].keyword))
            return true;
    return false;
}

/* Sets *fits if the other keywords of the set allow a listed value, *deep if that is not known yet
 * because some look into it. Strings go through the automaton of the string's own rules. */
static vt_status listed_fits(compiler *c, const schema_set *set, unsigned types, const json_t *v,
                             bool *fits, bool *deep)
{
    unsigned type = schema_type_of(v);
    *fits = (types & type) != 0;
    *deep = false;
    for (int32_t i = 0; i < set->n && *fits; i++) {
        const json_t *s = set->at[i].is;
        *fits = (set->at[i].listed || is_listed(s, v)) &&
                (!json_is_number(v) || number_fits(s, json_number_value(v), c->draft_4));
        *deep |= looks_into(s, type);
    }
    if (*fits && type == TYPE_STRING) {
        rx body;
        bool free;
        TRY(schema_string(c, set, &body, &free));
        if (free)
            return VT_OK;
        rx text = schema_literal(c, json_string_value(v), json_string_length(v),
                                 notation_chars(c, set));
        *fits = rx_least(&c->g->rx, rx_and2(&c->g->rx, body, text)) >= 0;
    }
    return VT_OK;
}

/* A listed value of which the set says more: the same set without its lists, and the value as
 * keywords. */
static vt_status deep_value(compiler *c, const schema_set *set, const json_t *v, symbol *out)
{
    schema_set all = *set;
    for (int32_t i = 0; i < all.n; i++)
        all.at[i].listed = true;
    TRY(schema_join(c, &all, &(schema_member){.open = true}, "enum", schema_of_value(c, v)));
    return schema_rule(c, &all, out);
}

static vt_status write_listed(compiler *c, const schema_set *set, unsigned types,
                              const json_t *list, symbol rule)
{
    enum { MAX_VALUES = 10000 };
    size_t n = json_array_size(list);
    int32_t n_scalars = 0;
    vt_status status = VT_OK;
    if (n > MAX_VALUES)
        return schema_refuse(c, "enum", "%zu values, expected at most %d", n, MAX_VALUES);
    rx *scalars = vt_calloc(n + 1, sizeof *scalars);
    if (!scalars)
        return vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
    for (size_t i = 0; i < n && status == VT_OK; i++) {
        const json_t *v = json_array_get(list, i);
        bool fits, deep;
        symbol s;
        status = listed_fits(c, set, types, v, &fits, &deep);
        if (status != VT_OK || !fits)
            continue;
        if (deep) {
            status = deep_value(c, set, v, &s);
            rules_add(c->g, rule, &s, status == VT_OK ? 1 : 0);
        } else if (json_is_object(v) || json_is_array(v)) {
            status = notation_has(c, set, MARK_ARGUMENTS)
                         ? schema_refuse(c, NULL,
                                         "enum and const are not supported for all "
                                         "arguments together")
                         : schema_value(c, v, &s);
            rules_add(c->g, rule, &s, status == VT_OK ? 1 : 0);
        } else {
            status = scalar(c, set, v, &scalars[n_scalars++]);
        }
    }
    if (status == VT_OK && n_scalars > 0) {
        symbol s = rules_lexeme(c->g, rx_alt(&c->g->rx, scalars, n_scalars));
        rules_add(c->g, rule, &s, 1);
    }
    free(scalars);
    return status;
}

/* If some member lists its values, they are all there are. */
static vt_status try_listed(compiler *c, const schema_set *set, unsigned types, symbol rule,
                            bool *done)
{
    *done = false;
    for (int32_t i = 0; i < set->n && !*done; i++) {
        const json_t *list = json_object_get(set->at[i].is, "enum");
        const json_t *one = json_object_get(set->at[i].is, "const");
        if (list && !json_is_array(list))
            return schema_refuse(c, "enum", "expected a list of values");
        if ((!list && !one) || set->at[i].listed)
            continue;
        *done = true;
        json_t *made = one ? json_pack("[O]", one) : NULL;
        vt_status status = write_listed(c, set, types, one ? made : list, rule);
        json_decref(made);
        TRY(status);
    }
    return VT_OK;
}

/* ---- strings ---- */

static vt_status length(compiler *c, const json_t *s, const char *keyword, int64_t *out)
{
    const json_t *v = json_object_get(s, keyword);
    double x = json_is_number(v) ? json_number_value(v) : -1;
    if (v && !(x >= 0 && x == floor(x)))
        return schema_refuse(c, keyword, "expected a whole number from 0 on");
    if (v)
        *out = x > 1e9 ? 1000000000 : (int64_t)x;
    return VT_OK;
}

static vt_status pattern(compiler *c, const char *keyword, const char *text, size_t n, bool whole,
                         char_form form, rx *all)
{
    rx one;
    vt_err why;
    if (!text)
        return schema_refuse(c, keyword, "expected a string");
    if (pattern_compile(&c->g->rx, text, n, form, whole, &one, &why) != VT_OK)
        return schema_refuse(c, keyword, "%s", why.message);
    *all = rx_and2(&c->g->rx, *all, one);
    return VT_OK;
}

/* Takes off the strings that must not be. */
static vt_status exclude(compiler *c, const json_t *s, char_form form, rx *all)
{
    rx_store *x = &c->g->rx;
    const json_t *except = json_object_get(s, SCHEMA_EXCEPT),
                 *lacks = json_object_get(s, SCHEMA_LACKS);
    for (size_t i = 0; i < json_array_size(except); i++) {
        const json_t *v = json_array_get(except, i);
        rx text = schema_literal(c, json_string_value(v), json_string_length(v), form);
        *all = rx_and2(x, *all, rx_not(x, text));
    }
    rx found = RX_ALL;
    if (lacks) {
        TRY(pattern(c, "pattern", json_string_value(lacks), json_string_length(lacks), false, form,
                    &found));
        *all = rx_and2(x, *all, rx_not(x, found));
    }
    return VT_OK;
}

vt_status schema_string(compiler *c, const schema_set *set, rx *body, bool *free)
{
    enum { MOST = 1000000 };
    rx_store *x = &c->g->rx;
    int64_t min = 0, max = -1;
    char_form form = notation_chars(c, set);
    rx all = RX_ALL;
    for (int32_t i = 0; i < set->n; i++) {
        const json_t *s = set->at[i].is, *p = json_object_get(s, "pattern");
        const json_t *format = json_object_get(s, "format");
        int64_t least = 0, most = -1;
        TRY(length(c, s, "minLength", &least));
        TRY(length(c, s, "maxLength", &most));
        min = least > min ? least : min;
        max = most >= 0 && (max < 0 || most < max) ? most : max;
        if (p)
            TRY(pattern(c, "pattern", json_string_value(p), json_string_length(p), false, form,
                        &all));
        const char *known = json_is_string(format) ? schema_format(json_string_value(format))
                                                   : NULL;
        if (known)
            TRY(pattern(c, "format", known, strlen(known), true, form, &all));
        TRY(exclude(c, s, form, &all));
    }
    if (min > MOST)
        return schema_refuse(c, "minLength", "expected at most %d", MOST);
    if (max > MOST)
        max = -1;
    bool any = all == RX_ALL;
    *free = any && min == 0 && max < 0;
    if (max >= 0 && max < min) {
        *body = RX_NOTHING;
        return VT_OK;
    }
    rx one = form == CHARS_RAW ? c->g->raw_char : c->g->json_char;
    rx count = rx_repeat(x, any ? notation_char(c, set) : one, (int32_t)min,
                         max < 0 ? RX_NO_MOST : (int32_t)max);
    *body = any ? count : rx_and2(x, count, all);
    return VT_OK;
}

/* ---- the whole ---- */

static rx word(compiler *c, const char *json)
{
    const char *text = notation_word(c, json);
    return rx_string(&c->g->rx, text, strlen(text));
}

/* Leaves the numbers that are written in a form without an exponent. */
static vt_status written_as(compiler *c, const char *form, rx *all)
{
    rx one;
    vt_err why;
    if (pattern_compile(&c->g->rx, form, strlen(form), CHARS_RAW, true, &one, &why) != VT_OK)
        return schema_refuse(c, NULL, "%s", why.message);
    *all = rx_and2(&c->g->rx, *all, one);
    return VT_OK;
}

static vt_status write_number(compiler *c, const schema_set *set, unsigned types, rx *out)
{
    rx_store *x = &c->g->rx;
    TRY(schema_number(c, set, !(types & TYPE_FRACTION), out));
    if (!(types & TYPE_INTEGER))
        TRY(written_as(c, "-?[0-9]+\\.[0-9]*[1-9][0-9]*", out));
    for (int32_t i = 0; i < set->n; i++) {
        schema_set one = {.n = 0};
        rx multiples;
        const json_t *v = json_object_get(set->at[i].is, SCHEMA_INDIVISIBLE);
        if (!v)
            continue;
        schema_add(&one, v);
        TRY(schema_number(c, &one, false, &multiples));
        TRY(written_as(c, "-?[0-9]+(\\.[0-9]+)?", out));
        *out = rx_and2(x, *out, rx_not(x, multiples));
    }
    return VT_OK;
}

static vt_status write_types(compiler *c, const schema_set *set, unsigned types, symbol rule)
{
    rx_store *x = &c->g->rx;
    rx scalars[5], body;
    int32_t n = 0;
    symbol s;
    bool free;
    if (types & TYPE_OBJECT) {
        TRY(schema_object(c, set, &s));
        rules_add(c->g, rule, &s, 1);
    }
    if (types & TYPE_ARRAY) {
        TRY(schema_array(c, set, &s));
        rules_add(c->g, rule, &s, 1);
    }
    if (types & TYPE_STRING) {
        TRY(schema_string(c, set, &body, &free));
        s = rules_lexeme(c->g, notation_string(c, set, body));
        rules_add(c->g, rule, &s, 1);
    }
    if (types & TYPE_NUMBER)
        TRY(write_number(c, set, types, &scalars[n++]));
    if (types & TYPE_NULL)
        scalars[n++] = word(c, "null");
    if (types & TYPE_BOOLEAN) {
        scalars[n++] = word(c, "true");
        scalars[n++] = word(c, "false");
    }
    s = n > 0 ? rules_lexeme(c->g, rx_alt(x, scalars, n)) : 0;
    if (n > 0)
        rules_add(c->g, rule, &s, 1);
    return VT_OK;
}

vt_status schema_leaf(compiler *c, const schema_set *set, symbol rule)
{
    unsigned types = TYPE_ANY;
    bool listed;
    for (int32_t i = 0; i < set->n; i++) {
        TRY(schema_check(c, set->at[i].is));
        types &= schema_types(set->at[i].is);
    }
    TRY(try_listed(c, set, types, rule, &listed));
    return listed ? VT_OK : write_types(c, set, types, rule);
}
