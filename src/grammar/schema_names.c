/* The strings that a schema allows, as one expression: names of properties. See schema.h. */
#include "grammar/schema.h"

#include <string.h>

enum { MAX_DEPTH = 32 };

static rx all_texts(const compiler *c)
{
    return notation_chars(c, NULL) == CHARS_RAW ? c->g->rx.raw : c->g->rx.any;
}

static rx without(compiler *c, rx texts)
{
    return rx_and2(&c->g->rx, all_texts(c), rx_not(&c->g->rx, texts));
}

static rx listed(compiler *c, const json_t *list)
{
    rx some = RX_NOTHING;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_string(v))
            some = rx_alt2(&c->g->rx, some,
                           schema_literal(c, json_string_value(v), json_string_length(v),
                                          notation_chars(c, NULL)));
    }
    return some;
}

/* allOf, anyOf or oneOf. */
static vt_status branches(compiler *c, const json_t *s, const char *keyword, int depth, rx *all)
{
    rx_store *x = &c->g->rx;
    const json_t *list = json_object_get(s, keyword);
    rx some = RX_NOTHING, several = RX_NOTHING, every = all_texts(c), one;
    if (!list)
        return VT_OK;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_refuse(c, keyword, "expected a list of schemas");
    for (size_t i = 0; i < json_array_size(list); i++) {
        TRY(schema_strings(c, json_array_get(list, i), depth + 1, &one));
        several = rx_alt2(x, several, rx_and2(x, some, one));
        some = rx_alt2(x, some, one);
        every = rx_and2(x, every, one);
    }
    rx is = keyword[1] == 'l'   ? every
            : keyword[0] == 'a' ? some
                                : rx_and2(x, some, without(c, several));
    *all = rx_and2(x, *all, is);
    return VT_OK;
}

static vt_status conditional(compiler *c, const json_t *s, int depth, rx *all)
{
    rx_store *x = &c->g->rx;
    const json_t *cond = json_object_get(s, "if"), *then = json_object_get(s, "then");
    const json_t *otherwise = json_object_get(s, "else");
    rx holds, yes = all_texts(c), no = yes;
    if (!cond || (!then && !otherwise))
        return VT_OK;
    TRY(schema_strings(c, cond, depth + 1, &holds));
    if (then)
        TRY(schema_strings(c, then, depth + 1, &yes));
    if (otherwise)
        TRY(schema_strings(c, otherwise, depth + 1, &no));
    *all = rx_and2(x, *all, rx_alt2(x, rx_and2(x, holds, yes), rx_and2(x, without(c, holds), no)));
    return VT_OK;
}

/* The keywords that hold other schemas. */
static vt_status of_schemas(compiler *c, const json_t *s, int depth, rx *all)
{
    static const char *const ref[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    rx one;
    for (int i = 0; i < 3; i++) {
        const json_t *v = json_object_get(s, ref[i]), *target;
        if (!v)
            continue;
        TRY(schema_resolve(c, ref[i], v, &target));
        TRY(schema_strings(c, target, depth + 1, &one));
        *all = rx_and2(&c->g->rx, *all, one);
        if (c->old_refs)
            return VT_OK;
    }
    const json_t *no = json_object_get(s, "not");
    if (no) {
        TRY(schema_strings(c, no, depth + 1, &one));
        *all = rx_and2(&c->g->rx, *all, without(c, one));
    }
    TRY(branches(c, s, "allOf", depth, all));
    TRY(branches(c, s, "anyOf", depth, all));
    TRY(branches(c, s, "oneOf", depth, all));
    return conditional(c, s, depth, all);
}

vt_status schema_strings(compiler *c, const json_t *s, int depth, rx *out)
{
    rx_store *x = &c->g->rx;
    const json_t *list = json_object_get(s, "enum"), *one = json_object_get(s, "const");
    schema_set set = {.n = 0};
    bool free = true;
    rx body = all_texts(c);
    *out = all_texts(c);
    if (json_is_boolean(s)) {
        *out = json_is_true(s) ? *out : RX_NOTHING;
        return VT_OK;
    }
    if (!json_is_object(s))
        return schema_refuse(c, NULL, "expected a schema: an object, true or false");
    if (depth > MAX_DEPTH)
        return schema_refuse(c, NULL, "schemas of names are nested more than %d levels deep",
                             MAX_DEPTH);
    TRY(of_schemas(c, s, depth, out));
    if (c->old_refs && json_object_get(s, "$ref"))
        return VT_OK;
    TRY(schema_check(c, s));
    schema_add(&set, s);
    TRY(schema_string(c, &set, &body, &free));
    if (!free)
        *out = rx_and2(x, *out, body);
    if (list)
        *out = rx_and2(x, *out, listed(c, list));
    if (one) {
        json_t *made = json_pack("[O]", one);
        *out = rx_and2(x, *out, listed(c, made));
        json_decref(made);
    }
    if (!(schema_types(s) & TYPE_STRING))
        *out = RX_NOTHING;
    return VT_OK;
}
