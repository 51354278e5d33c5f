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

/* The types that a schema names, by its type, its values, or its branches. */
static unsigned types_of(const json_t *schema, int level)
{
    static const char *const branches[] = {"anyOf", "oneOf"};
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    unsigned types = type_bit(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_bit(json_string_value(json_array_get(type, i)));
    for (size_t i = 0; !type && i < json_array_size(values); i++)
        types |= type_of(json_array_get(values, i));
    for (int k = 0; !types && level < 4 && k < 2; k++) {
        const json_t *list = json_object_get(schema, branches[k]);
        for (size_t i = 0; i < json_array_size(list); i++)
            types |= types_of(json_array_get(list, i), level + 1);
    }
    return types;
}

unsigned calls_types(const json_t *tools, const char *tool, size_t n_tool, const char *key,
                     size_t n_key)
{
    const json_t *f = function_of(tools, tool, n_tool);
    const json_t *all = json_object_get(json_object_get(f, "parameters"), "properties");
    return types_of(json_object_getn(all, key, n_key), 0);
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
    json_t *value = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
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
    json_t *object = json_loadb(arguments, n, JSON_ALLOW_NUL, NULL);
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
