/* Formats that are enforced, and branches that exclude each other: see schema.h. */
#include "grammar/schema.h"

#include <string.h>

/* ---- formats ---- */

/* No leap seconds: they are right in few minutes only, and most readers refuse them. */
#define TIME                                                   \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?" \
    "(Z|z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
/* Days by month; 29 February in years divisible by 4, but not by 100 unless by 400. Not the year 0,
 * which many readers do not have. */
#define BY_4 "(0[48]|[2468][048]|[13579][26])"
#define LEAP "([0-9]{2}" BY_4 "|" BY_4 "00)"
#define YEAR "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
#define DATE                                                                                  \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|" \
    "02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 "(" BYTE "\\.){3}" BYTE
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                  \
    "((" H16 ":){6}" LS32 "|::(" H16 ":){5}" LS32 "|(" H16 ")?::(" H16 ":){4}" LS32 "|((" H16 \
    ":){0,1}" H16 ")?::(" H16 ":){3}" LS32 "|((" H16 ":){0,2}" H16 ")?::(" H16 ":){2}" LS32   \
    "|((" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|((" H16 ":){0,4}" H16 ")?::" LS32 "|((" H16 \
    ":){0,5}" H16 ")?::" H16 "|((" H16 ":){0,6}" H16 ")?::)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST LABEL "(\\." LABEL ")*"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define REGNAME "([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
#define USER "([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date-time", DATE "[Tt]" TIME},
    {"date", DATE},
    {"time", TIME},
    {"duration", "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
                 "(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))?"
                 "|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))"},
    {"email", ATEXT "(\\." ATEXT ")*@" HOST},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(//(" USER ")?(\\[" IPV6 "\\]|" REGNAME ")(:[0-9]*)?(/" PCHAR
            "*)*|/(" PCHAR "+(/" PCHAR "*)*)?|" PCHAR "+(/" PCHAR "*)*|)(\\?(" PCHAR
            "|[/?])*)?(#(" PCHAR "|[/?])*)?"},
    {"json-pointer", "(/([^/~]|~[01])*)*"},
    {"byte", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
};

const char *schema_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].pattern;
    return NULL;
}

/* ---- branches that exclude each other ---- */

/* The schema behind references, as long as nothing stands beside these. */
static const json_t *behind(compiler *c, const json_t *s)
{
    vt_err *err = c->err, ignored;
    c->err = &ignored;
    for (int i = 0; i < 32; i++) {
        const json_t *ref = json_object_get(s, "$ref"), *to;
        if (!ref || (json_object_size(s) > 1 && !c->old_refs) ||
            schema_resolve(c, "$ref", ref, &to) != VT_OK)
            break;
        s = to;
    }
    c->err = err;
    return s;
}

/* Returns the list of what a value may be; NULL: not listed. *made has to be released. */
static const json_t *listed(const json_t *s, json_t **made)
{
    const json_t *one = json_object_get(s, "const"), *list = json_object_get(s, "enum");
    *made = NULL;
    return one ? *made = json_pack("[O]", one) : json_is_array(list) ? list : NULL;
}

static bool lists_disjoint(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < json_array_size(b); k++)
            if (json_equal(json_array_get(a, i), json_array_get(b, k)))
                return false;
    return true;
}

static bool values_disjoint(const json_t *a, const json_t *b)
{
    json_t *made_a, *made_b;
    const json_t *x = listed(a, &made_a), *y = listed(b, &made_b);
    bool apart = x && y && lists_disjoint(x, y);
    json_decref(made_a);
    json_decref(made_b);
    return apart;
}

/* The types that a schema's "type", const and enum leave. */
static unsigned types_left(const json_t *s)
{
    json_t *made;
    const json_t *list = listed(s, &made);
    unsigned types = schema_types(s), some = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        some |= json_is_string(v)    ? TYPE_STRING
                : json_is_number(v)  ? TYPE_NUMBER
                : json_is_boolean(v) ? TYPE_BOOLEAN
                : json_is_null(v)    ? TYPE_NULL
                : json_is_object(v)  ? TYPE_OBJECT
                                     : TYPE_ARRAY;
    }
    json_decref(made);
    return list ? types & some : types;
}

static bool is_closed(const compiler *c, const json_t *s)
{
    const json_t *rest = json_object_get(s, "additionalProperties");
    return (json_is_false(rest) || (!rest && c->closed && json_object_get(s, "properties"))) &&
           !json_object_get(s, "patternProperties");
}

static bool forbids(const compiler *c, const json_t *s, const char *name)
{
    const json_t *v = json_object_get(json_object_get(s, "properties"), name);
    return json_is_false(v) || (!v && is_closed(c, s));
}

static bool apart(compiler *c, const json_t *a, const json_t *b, int depth);

/* Two schemas of objects, the first of which requires a property that the second forbids, or whose
 * values the second excludes. */
static bool objects_apart(compiler *c, const json_t *a, const json_t *b, int depth)
{
    const json_t *list = json_object_get(a, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name)
            continue;
        if (forbids(c, b, name))
            return true;
        const json_t *x = json_object_get(json_object_get(a, "properties"), name);
        const json_t *y = json_object_get(json_object_get(b, "properties"), name);
        if (x && y && apart(c, x, y, depth + 1))
            return true;
    }
    return false;
}

/* True if one schema's numbers, or numbers of elements, end below where the other's begin. */
static bool bounds_apart(const json_t *a, const json_t *b, const char *most, const char *least)
{
    for (int i = 0; i < 2; i++) {
        const json_t *end = json_object_get(i ? b : a, most);
        const json_t *begin = json_object_get(i ? a : b, least);
        if (json_is_number(end) && json_is_number(begin) &&
            json_number_value(end) < json_number_value(begin))
            return true;
    }
    return false;
}

static bool narrows_strings(const json_t *s)
{
    static const char *const keywords[] = {"const",  "enum",      "pattern",
                                           "format", "minLength", "maxLength"};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_object_get(s, keywords[i]))
            return true;
    return false;
}

/* The strings that a schema allows, perhaps with others. False: they cannot be told. */
static bool strings_of(compiler *c, const json_t *s, rx *out)
{
    rx_store *x = &c->g->rx;
    json_t *made;
    const json_t *list = listed(s, &made);
    schema_set set = {.n = 0};
    bool free, ok = true;
    *out = RX_NOTHING;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_string(v))
            *out = rx_alt2(x, *out,
                           schema_literal(c, json_string_value(v), json_string_length(v),
                                          notation_chars(c, NULL)));
    }
    if (!list) {
        ok = schema_add(&set, s) && schema_string(c, &set, out, &free) == VT_OK;
        *out = ok ? *out : RX_NOTHING;
    }
    json_decref(made);
    return ok;
}

static bool strings_apart(compiler *c, const json_t *a, const json_t *b)
{
    vt_err *err = c->err, ignored;
    size_t before = c->path_len;
    rx x, y;
    if (!narrows_strings(a) || !narrows_strings(b))
        return false;
    c->err = &ignored;
    bool told = strings_of(c, a, &x) && strings_of(c, b, &y);
    c->err = err;
    schema_leave(c, before);
    return told && !c->g->rx.failed &&
           rx_least(&c->g->rx, rx_and2(&c->g->rx, x, y)) == RX_LEAST_NONE;
}

/* True if one of a's allOf excludes b, or all of its anyOf or of its oneOf do. */
static bool parts_apart(compiler *c, const json_t *a, const json_t *b, int depth)
{
    static const char *const keywords[] = {"allOf", "anyOf", "oneOf"};
    for (int k = 0; k < 3; k++) {
        const json_t *list = json_object_get(a, keywords[k]);
        size_t n = json_array_size(list), n_apart = 0;
        for (size_t i = 0; i < n; i++)
            n_apart += apart(c, json_array_get(list, i), b, depth + 1);
        if (k == 0 ? n_apart > 0 : n > 0 && n_apart == n)
            return true;
    }
    return false;
}

static bool apart(compiler *c, const json_t *a, const json_t *b, int depth)
{
    enum { MAX_DEPTH = 8 };
    if (depth > MAX_DEPTH || (depth > 0 && ++c->comparisons > SCHEMA_MAX_COMPARISONS))
        return false;
    if (json_is_false(a) || json_is_false(b))
        return true;
    a = behind(c, a);
    b = behind(c, b);
    unsigned both = types_left(a) & types_left(b);
    if (!both || values_disjoint(a, b))
        return true;
    bool by_type = both == TYPE_OBJECT
                       ? bounds_apart(a, b, "maxProperties", "minProperties") ||
                             objects_apart(c, a, b, depth) || objects_apart(c, b, a, depth)
                   : both == TYPE_ARRAY     ? bounds_apart(a, b, "maxItems", "minItems")
                   : both == TYPE_STRING    ? strings_apart(c, a, b)
                   : !(both & ~TYPE_NUMBER) ? bounds_apart(a, b, "maximum", "minimum")
                                            : false;
    return by_type || parts_apart(c, a, b, depth) || parts_apart(c, b, a, depth);
}

bool schema_disjoint(compiler *c, const json_t *a, const json_t *b) { return apart(c, a, b, 0); }
