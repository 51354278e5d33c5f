/* Keywords to rules: types, constants, strings. See schema.h. */
#include "grammar/schema.h"

#include <math.h>
#include <string.h>

#include "grammar/pattern.h"

/* ---- what is not supported ---- */

static const char *const refused[] = {"not",
                                      "if",
                                      "then",
                                      "else",
                                      "dependentRequired",
                                      "dependentSchemas",
                                      "dependencies",
                                      "contains",
                                      "minContains",
                                      "maxContains",
                                      "propertyNames",
                                      "unevaluatedProperties",
                                      "unevaluatedItems",
                                      "$dynamicRef",
                                      "$recursiveRef",
                                      "divisibleBy",
                                      "extends",
                                      "disallow"};

static vt_status check_keywords(compiler *c, const json_t *s)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const json_t *v = json_object_get(s, refused[i]);
        bool harmless = json_is_true(v) && strncmp(refused[i], "unevaluated", 11) == 0;
        if (v && !harmless)
            return schema_refuse(c, refused[i], "this keyword is not supported");
    }
    const json_t *unique = json_object_get(s, "uniqueItems"),
                 *most = json_object_get(s, "maxItems");
    if (json_is_true(unique) && !(json_is_integer(most) && json_integer_value(most) <= 1))
        return schema_refuse(c, "uniqueItems", "this keyword is not supported");
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
    unsigned types = type ? type_named(type) : TYPE_ANY;
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

static unsigned type_of(const json_t *v)
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
        c->g->failed = true;
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

static bool is_listed(const json_t *schema, const json_t *v)
{
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    bool in = !list;
    for (size_t i = 0; !in && i < json_array_size(list); i++)
        in = json_equal(json_array_get(list, i), v);
    return in && (!one || json_equal(one, v));
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

/* Sets *fits if the other keywords of the set allow a listed value. Strings go through the
 * automaton of the string's own rules. */
static vt_status listed_fits(compiler *c, const schema_set *set, unsigned types, const json_t *v,
                             bool *fits)
{
    static const char *const deep[] = {"properties",    "patternProperties", "required", "items",
                                       "prefixItems",   "multipleOf",        "minItems", "maxItems",
                                       "minProperties", "maxProperties"};
    unsigned type = type_of(v);
    *fits = (types & type) != 0;
    for (int32_t i = 0; i < set->n && *fits; i++) {
        const json_t *s = set->at[i].is;
        *fits = is_listed(s, v) &&
                (!json_is_number(v) || number_fits(s, json_number_value(v), c->draft_4));
        bool check = type & (TYPE_OBJECT | TYPE_ARRAY | TYPE_NUMBER);
        for (size_t k = 0; *fits && check && k < sizeof deep / sizeof *deep; k++)
            if (json_object_get(s, deep[k]) && (k != 5) == !(type & TYPE_NUMBER))
                return schema_refuse(c, deep[k], "not supported beside enum and const");
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
        bool fits;
        symbol s;
        status = listed_fits(c, set, types, v, &fits);
        if (status != VT_OK || !fits)
            continue;
        if (json_is_object(v) || json_is_array(v)) {
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
        if (list && (!json_is_array(list) || json_array_size(list) == 0))
            return schema_refuse(c, "enum", "expected a list of values");
        if (!list && !one)
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
    if (types & TYPE_INTEGER)
        TRY(schema_number(c, set, !(types & TYPE_FRACTION), &scalars[n++]));
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
        TRY(check_keywords(c, set->at[i].is));
        TRY(check_type(c, set->at[i].is));
        types &= schema_types(set->at[i].is);
    }
    TRY(try_listed(c, set, types, rule, &listed));
    return listed ? VT_OK : write_types(c, set, types, rule);
}
