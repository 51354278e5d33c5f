/* Values of arguments as JSON, and calls that are told as a whole (inside.h). */
#include <string.h>

#include "text/answer/inside.h"

static const json_t *function_of(const json_t *tools, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const json_t *known = json_object_get(f, "name");
        if (json_string_length(known) == n && memcmp(json_string_value(known), name, n) == 0)
            return f;
    }
    return NULL;
}

bool calls_is_tool(const json_t *tools, const char *name, size_t n)
{
    return function_of(tools, name, n) != NULL;
}

static unsigned type_bit(const char *name)
{
    static const char *const names[] = {"string", "number", "integer", "boolean",
                                        "null",   "object", "array"};
    static const unsigned bits[] = {CALLS_STRING, CALLS_NUMBER, CALLS_NUMBER, CALLS_BOOLEAN,
                                    CALLS_NULL,   CALLS_OBJECT, CALLS_ARRAY};
    for (size_t i = 0; name && i < sizeof bits / sizeof *bits; i++)
        if (strcmp(name, names[i]) == 0)
            return bits[i];
    return 0;
}

static unsigned type_of(const json_t *v)
{
    return json_is_string(v)    ? CALLS_STRING
           : json_is_number(v)  ? CALLS_NUMBER
           : json_is_boolean(v) ? CALLS_BOOLEAN
           : json_is_null(v)    ? CALLS_NULL
           : json_is_object(v)  ? CALLS_OBJECT
                                : CALLS_ARRAY;
}

/* The schema that "#/a/b" leads to; NULL: it is elsewhere, or a step has an escape. */
static const json_t *target(const json_t *root, const char *ref)
{
    if (!ref || *ref++ != '#')
        return NULL;
    while (root && *ref == '/') {
        size_t n = strcspn(++ref, "/");
        root = json_object_getn(root, ref, n);
        ref += n;
    }
    return *ref ? NULL : root;
}

typedef struct types_search {
    const json_t *root;
    int left; /* schemas that may still be looked at: references may lead in a circle */
} types_search;

static unsigned types_of(types_search *s, const json_t *schema);

/* The types of some branch. */
static unsigned types_of_any(types_search *s, const json_t *list)
{
    unsigned types = 0, one = 1;
    for (size_t i = 0; i < json_array_size(list) && one; i++)
        types |= one = types_of(s, json_array_get(list, i));
    return one ? types : 0;
}

/* The types that a schema allows: by its type, its values, its branches, and what it refers to. 0:
 * it says nothing of them. */
static unsigned types_of(types_search *s, const json_t *schema)
{
    enum { ALL_OF = 4 };
    if (!schema || s->left-- <= 0)
        return 0;
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    const json_t *one = json_object_get(schema, "const"), *all = json_object_get(schema, "allOf");
    const json_t *ref = json_object_get(schema, "$ref");
    unsigned said[6 + ALL_OF] = {type_bit(json_string_value(type)), 0, one ? type_of(one) : 0};
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(type); i++)
        said[0] |= type_bit(json_string_value(json_array_get(type, i)));
    for (size_t i = 0; i < json_array_size(values); i++)
        said[1] |= type_of(json_array_get(values, i));
    said[3] = types_of_any(s, json_object_get(schema, "anyOf"));
    said[4] = types_of_any(s, json_object_get(schema, "oneOf"));
    said[5] = types_of(s, target(s->root, json_string_value(ref)));
    for (size_t i = 0; i < json_array_size(all) && i < ALL_OF; i++)
        said[6 + i] = types_of(s, json_array_get(all, i));
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        types = said[i] ? (types ? types & said[i] : said[i]) : types;
    return types && json_is_true(json_object_get(schema, "nullable")) ? types | CALLS_NULL : types;
}

static unsigned types_of_argument(const json_t *parameters, const char *key, size_t n)
{
    enum { MOST = 1000 };
    const json_t *all = json_object_get(parameters, "properties");
    types_search s = {parameters, MOST};
    return types_of(&s, json_object_getn(all, key, n));
}

unsigned calls_types(const json_t *tools, const char *tool, size_t n_tool, const char *key,
                     size_t n_key)
{
    const json_t *f = function_of(tools, tool, n_tool);
    return types_of_argument(json_object_get(f, "parameters"), key, n_key);
}

bool vt_answer_takes_string(const json_t *parameters, const char *key)
{
    return types_of_argument(parameters, key, strlen(key)) == CALLS_STRING;
}

bool calls_escape(vt_buf *out, char c)
{
    static const char from[] = "\n\r\t\b\f\"\\", to[] = "nrtbf\"\\";
    const char *at = c ? strchr(from, c) : NULL;
    if (at)
        return vt_buf_putc(out, '\\') && vt_buf_putc(out, to[at - from]);
    if ((unsigned char)c < ' ')
        return vt_buf_printf(out, "\\u%04x", (unsigned)(unsigned char)c);
    return vt_buf_putc(out, c);
}

bool calls_quote(vt_buf *out, const char *s, size_t n)
{
    vt_buf_putc(out, '"');
    for (size_t i = 0; i < n; i++)
        calls_escape(out, s[i]);
    return vt_buf_putc(out, '"');
}

bool calls_value(vt_buf *out, unsigned types, const char *v, size_t n)
{
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *text = v;
    size_t len = n;
    for (int i = 0; i < 3; i++)
        if (strlen(python[i][0]) == n && memcmp(v, python[i][0], n) == 0) {
            text = python[i][1];
            len = strlen(text);
        }
    json_t *value = json_loadb(text, len, CALLS_JSON, NULL);
    unsigned type = value ? type_of(value) : 0;
    json_decref(value);
    /* quotes around a string belong to it, as templates write strings without any */
    bool as_it_is = type && (!types || types & type || !(types & CALLS_STRING)) &&
                    !(type == CALLS_STRING && (!types || types & CALLS_STRING));
    return as_it_is ? vt_buf_add(out, text, len) : calls_quote(out, v, n);
}

/* ---- whole calls ---- */

bool calls_add(vt_buf *calls, const char *name, size_t n_name, const char *arguments, size_t n)
{
    const size_t lengths[2] = {n_name, n};
    json_t *object = json_loadb(arguments, n, CALLS_JSON, NULL);
    bool is = json_is_object(object); /* not where a key holds U+0000, which few readers take */
    json_decref(object);
    if (!is || n_name == 0 || n_name > VT_CALL_MAX_NAME)
        return false;
    vt_buf_add(calls, lengths, sizeof lengths);
    vt_buf_add(calls, name, n_name);
    return vt_buf_add(calls, arguments, n);
}

/* The call at *at, which is moved behind it. */
static void next_call(const vt_buf *calls, size_t *at, const char *text[2], size_t n[2])
{
    memcpy(n, calls->data + *at, 2 * sizeof *n);
    text[0] = calls->data + *at + 2 * sizeof *n;
    text[1] = text[0] + n[0];
    *at += 2 * sizeof *n + n[0] + n[1];
}

bool calls_tell(vt_answer_reader *r, const vt_buf *calls)
{
    const char *text[2];
    size_t n[2];
    for (size_t at = 0; r->unmarked && at < calls->len;) {
        next_call(calls, &at, text, n);
        if (!calls_is_tool(r->tools, text[0], n[0]))
            return false;
    }
    for (size_t at = 0; at < calls->len;) {
        next_call(calls, &at, text, n);
        answer_call(r, text[0], n[0], NULL);
        answer_put(r, VT_PIECE_ARGUMENTS, text[1], n[1]);
        answer_call_end(r, true);
    }
    return calls->len > 0 && !calls->failed;
}
