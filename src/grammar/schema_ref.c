/* References inside a document: JSON pointers, anchors and embedded $id. See schema.h.
 *
 * A walk over the document's schemas notes each $id and anchor with its whole address (RFC 3986),
 * and the address that a reference below an $id is relative to. Nothing is fetched. */
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMED = 4096 };

/* A schema with an address of its own. */
typedef struct named {
    char *base, *anchor; /* anchor "": the schema with this $id */
    const json_t *is;
    bool dynamic;
} named;

/* A reference whose base is not the document's. */
typedef struct based {
    const json_t *ref;
    const char *base; /* borrowed from a named */
} based;

struct schema_index {
    named *named;
    based *based;
    int32_t n_named, cap_named, n_based, cap_based;
    const char *root; /* the document's address, "" */
    bool failed;
};

/* ---- addresses ---- */

/* The length of "scheme:" at the beginning; 0: there is none. */
static size_t scheme_of(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return n > 0 && s[n] == ':' ? n + 1 : 0;
}

/* The length of "scheme://authority". */
static size_t authority_of(const char *s)
{
    size_t n = scheme_of(s);
    return strncmp(s + n, "//", 2) == 0 ? n + 2 + strcspn(s + n + 2, "/?#") : n;
}

/* Removes "." and ".." from a path, in place. */
static void remove_dots(char *path)
{
    char *out = path;
    for (const char *s = path; *s;) {
        size_t n = 1 + strcspn(s + 1, "/");
        bool last = !s[n];
        if (strncmp(s, "/..", n) == 0 && n == 3) {
            while (out > path && *--out != '/')
                ;
            if (last)
                *out++ = '/';
        } else if (strncmp(s, "/.", n) == 0 && n == 2) {
            if (last)
                *out++ = '/';
        } else {
            memmove(out, s, n);
            out += n;
        }
        s += n;
    }
    *out = 0;
}

/* The address of `ref`, without a fragment, where the base is `base`. NULL: no memory. */
static char *join(const char *base, const char *ref)
{
    size_t n = strcspn(ref, "#"), whole = strlen(base) + n + 2;
    char *out = vt_calloc(whole, 1);
    if (!out)
        return NULL;
    if (n == 0 || scheme_of(ref) > 0) {
        snprintf(out, whole, "%.*s", n == 0 ? (int)strlen(base) : (int)n, n == 0 ? base : ref);
        return out;
    }
    size_t keep = authority_of(base), path = keep + strcspn(base + keep, "?#");
    if (strncmp(ref, "//", 2) == 0)
        path = keep = scheme_of(base);
    else if (ref[0] == '/')
        path = keep;
    else
        while (ref[0] != '?' && path > keep && base[path - 1] != '/')
            path--;
    bool slash = path == keep && keep > 0 && ref[0] != '/' && ref[0] != '?';
    snprintf(out, whole, "%.*s%s%.*s", (int)path, base, slash ? "/" : "", (int)n, ref);
    if (out[authority_of(out)] == '/' && !strchr(out, '?'))
        remove_dots(out + authority_of(out));
    return out;
}

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

/* ---- the walk ---- */

static void *more(struct schema_index *x, void *array, int32_t n, int32_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    int32_t to = *cap ? 2 * *cap : 16;
    void *p = n < MAX_NAMED ? realloc(array, (size_t)to * size) : NULL;
    if (!p) {
        x->failed = true;
        return array;
    }
    *cap = to;
    return p;
}

static const char *add_named(struct schema_index *x, char *base, const char *anchor,
                             const json_t *is, bool dynamic)
{
    x->named = more(x, x->named, x->n_named, &x->cap_named, sizeof *x->named);
    char *copy = vt_calloc(strlen(anchor) + 1, 1);
    if (!base || !copy || x->failed) {
        free(base);
        free(copy);
        x->failed = true;
        return "";
    }
    memcpy(copy, anchor, strlen(anchor));
    x->named[x->n_named++] = (named){base, copy, is, dynamic};
    return base;
}

/* Notes the address of one schema; returns the base of what is below it. */
static const char *note_schema(const compiler *c, struct schema_index *x, const json_t *s,
                               const char *base)
{
    static const char *const refs[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    const char *id = json_string_value(json_object_get(s, c->draft_4 ? "id" : "$id"));
    const char *anchor[2] = {json_string_value(json_object_get(s, "$anchor")),
                             json_string_value(json_object_get(s, "$dynamicAnchor"))};
    if (c->old_refs && json_object_get(s, "$ref"))
        id = anchor[0] = anchor[1] = NULL;
    if (s == c->root && id && id[0] != '#') /* schema_index_make has it */
        id = NULL;
    if (id && id[0] == '#')
        add_named(x, join(base, ""), id + 1, s, false);
    else if (id)
        base = add_named(x, join(base, id), "", s, false);
    for (int i = 0; i < 2; i++)
        if (anchor[i])
            add_named(x, join(base, ""), anchor[i], s, i == 1);
    for (int i = 0; i < 3 && base != x->root; i++) {
        const json_t *ref = json_object_get(s, refs[i]);
        if (!ref)
            continue;
        x->based = more(x, x->based, x->n_based, &x->cap_based, sizeof *x->based);
        if (!x->failed)
            x->based[x->n_based++] = (based){ref, base};
    }
    return base;
}

/* Depth is limited: schema.c has checked the document. */
static void walk(const compiler *c, struct schema_index *x, const json_t *s, const char *base)
{
    static const char *const one[] = {"items",
                                      "additionalItems",
                                      "additionalProperties",
                                      "contains",
                                      "unevaluatedProperties",
                                      "propertyNames",
                                      "not",
                                      "unevaluatedItems",
                                      "if",
                                      "then",
                                      "else",
                                      "contentSchema",
                                      "allOf",
                                      "anyOf",
                                      "oneOf",
                                      "prefixItems",
                                      "extends",
                                      "disallow"};
    static const char *const several[] = {"properties",  "patternProperties", "$defs",
                                          "definitions", "dependentSchemas",  "dependencies"};
    const char *key;
    json_t *v;
    if (!json_is_object(s) || x->failed)
        return;
    base = note_schema(c, x, s, base);
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        const json_t *below = json_object_get(s, one[i]);
        walk(c, x, below, base);
        for (size_t k = 0; k < json_array_size(below); k++)
            walk(c, x, json_array_get(below, k), base);
    }
    for (size_t i = 0; i < sizeof several / sizeof *several; i++)
        json_object_foreach(json_object_get(s, several[i]), key, v) walk(c, x, v, base);
}

vt_status schema_index_make(compiler *c)
{
    struct schema_index *x = vt_calloc(1, sizeof *x);
    c->index = x;
    if (!x)
        return vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
    x->root = add_named(x, join("", ""), "", c->root, false);
    const char *id = json_string_value(json_object_get(c->root, c->draft_4 ? "id" : "$id"));
    if (!x->failed && id && id[0] != '#') /* the document's own address is its base */
        x->root = add_named(x, join("", id), "", c->root, false);
    if (!x->failed && c->addressed)
        walk(c, x, c->root, x->root);
    return x->failed ? schema_refuse(c, "$id", "more than %d addresses and anchors", MAX_NAMED)
                     : VT_OK;
}

void schema_index_free(struct schema_index *x)
{
    for (int32_t i = 0; x && i < x->n_named; i++) {
        free(x->named[i].base);
        free(x->named[i].anchor);
    }
    if (x) {
        free(x->named);
        free(x->based);
    }
    free(x);
}

/* ---- looking up ---- */

static const named *find(const struct schema_index *x, const char *base, const char *anchor)
{
    for (int32_t i = 0; i < x->n_named; i++)
        if (strcmp(x->named[i].base, base) == 0 && strcmp(x->named[i].anchor, anchor) == 0)
            return &x->named[i];
    return NULL;
}

static const char *base_of(const struct schema_index *x, const json_t *ref)
{
    for (int32_t i = 0; i < x->n_based; i++)
        if (x->based[i].ref == ref)
            return x->based[i].base;
    return x->root;
}

/* A $dynamicRef means the first schema with its anchor among the resources that led to it. The
 * document leads to everything, so its own comes first; else all that have the anchor may be meant,
 * and there has to be one. */
static vt_status follow_dynamic(compiler *c, const char *anchor, const json_t **out)
{
    const struct schema_index *x = c->index;
    const json_t *seen[2] = {NULL, NULL}; /* of other resources, of the document's own */
    bool several[2] = {false, false};
    for (int32_t i = 0; i < x->n_named; i++) {
        const named *one = &x->named[i];
        if (!one->dynamic || strcmp(one->anchor, anchor) != 0)
            continue;
        int own = strcmp(one->base, x->root) == 0;
        several[own] |= seen[own] && seen[own] != one->is;
        seen[own] = one->is;
    }
    int own = seen[1] != NULL;
    if (several[own])
        return schema_refuse(c, "$dynamicRef",
                             "more than one schema has the $dynamicAnchor '%.100s', which is "
                             "supported where the document itself has it once",
                             anchor);
    *out = seen[own];
    return VT_OK;
}

static bool has_recursive_anchor(const json_t *s)
{
    return json_is_true(json_object_get(s, "$recursiveAnchor"));
}

/* The same of a $recursiveRef, whose anchor has no name. */
static vt_status follow_recursive(compiler *c, const json_t **out)
{
    const struct schema_index *x = c->index;
    if (has_recursive_anchor(c->root)) {
        *out = c->root;
        return VT_OK;
    }
    for (int32_t i = 0; i < x->n_named; i++)
        if (!x->named[i].anchor[0] && x->named[i].is != *out &&
            has_recursive_anchor(x->named[i].is))
            return schema_refuse(c, "$recursiveRef",
                                 "more than one schema has a $recursiveAnchor, which is supported "
                                 "where the document itself has one");
    return VT_OK;
}

vt_status schema_resolve(compiler *c, const char *keyword, const json_t *ref, const json_t **out)
{
    const char *text = json_string_value(ref);
    char fragment[1024];
    if (!text || strlen(text) >= sizeof fragment)
        return schema_refuse(c, keyword, "expected a string of less than %zu bytes",
                             sizeof fragment);
    char *address = join(base_of(c->index, ref), text);
    if (!address)
        return vt_fail(c->err, VT_ERR_MEMORY, "out of memory for a schema");
    const char *hash = strchr(text, '#');
    snprintf(fragment, sizeof fragment, "%s", hash ? hash + 1 : "");
    decode_percent(fragment);
    bool pointer = !fragment[0] || fragment[0] == '/';
    const named *resource = find(c->index, address, ""),
                *target = pointer ? resource : find(c->index, address, fragment);
    free(address);
    if (!resource)
        return schema_refuse(c, keyword, "'%.200s' is another document, and none is fetched", text);
    *out = target && pointer ? follow(target->is, fragment) : target ? target->is : NULL;
    if (!*out)
        return schema_refuse(c, keyword, "'%.200s' leads nowhere", text);
    if (strcmp(keyword, "$dynamicRef") == 0 && target->dynamic)
        return follow_dynamic(c, fragment, out);
    if (strcmp(keyword, "$recursiveRef") == 0 && has_recursive_anchor(*out))
        return follow_recursive(c, out);
    return VT_OK;
}
