/* Typed access to JSON objects. The getters exist so that every message about a configuration file
 * names the file, the key, what was found and what was expected. */
#include "files/json.h"

#include <math.h>

#include "files/map.h"

/* Bytes that jansson 2.14 takes on a 64-bit machine, malloc's own included, rounded up: an empty
 * object with its table, an empty array with its table, one more number or string in a list, one
 * more member of an object, one more string beside its text. */
enum {
    OBJECT_BYTES = 288,
    ARRAY_BYTES = 160,
    ELEMENT_BYTES = 64,
    MEMBER_BYTES = 96,
    STRING_BYTES = 64
};

uint64_t vt_json_tree_bytes(const char *text, size_t len)
{
    uint64_t bytes = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
            bytes += STRING_BYTES;
        } else {
            bytes += c == '{'   ? OBJECT_BYTES
                     : c == '[' ? ARRAY_BYTES
                     : c == ',' ? ELEMENT_BYTES
                     : c == ':' ? MEMBER_BYTES
                                : 0;
        }
    }
    return bytes;
}

vt_status vt_json_load(const char *name, const char *text, size_t len, size_t flags,
                       uint64_t max_tree, json_t **out, vt_err *err)
{
    json_error_t why;
    if (vt_json_tree_bytes(text, len) > max_tree)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: the JSON has so many values that they would take more than %llu MiB",
                       name, (unsigned long long)max_tree >> 20);
    json_t *root = json_loadb(text, len, flags, &why);
    if (!root)
        return vt_fail(err, VT_ERR_FORMAT, "%s: not valid JSON: line %d, column %d: %.200s", name,
                       why.line, why.column, why.text);
    *out = root;
    return VT_OK;
}

vt_status vt_read_json_text(const char *path, const char *text, size_t len, json_t **out,
                            vt_err *err)
{
    json_error_t e;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &e);
    if (!root)
        return vt_fail(err, VT_ERR_FORMAT, "%s: not valid JSON: line %d, column %d: %s", path,
                       e.line, e.column, e.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return vt_fail(err, VT_ERR_FORMAT, "%s: the JSON value is not an object", path);
    }
    *out = root;
    return VT_OK;
}

vt_status vt_read_json(const char *path, size_t max_bytes, json_t **out, vt_err *err)
{
    const void *text;
    size_t size;
    TRY(file_map(path, &text, &size, err));
    vt_status status = size > max_bytes ? vt_fail(err, VT_ERR_FORMAT,
                                                  "%s: %zu bytes of JSON (at most %zu allowed)",
                                                  path, size, max_bytes)
                                        : vt_read_json_text(path, text, size, out, err);
    file_unmap(text, size);
    return status;
}

const json_t *vt_read_member(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return v && !json_is_null(v) ? v : NULL;
}

static const char *kind_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a bool";
    case JSON_NULL:
        break;
    }
    return "null";
}

/* *out = the member, or NULL with VT_OK if it is absent and may be. */
static vt_status find(const char *path, const json_t *object, const char *key, bool required,
                      const json_t **out, vt_err *err)
{
    *out = vt_read_member(object, key);
    if (!*out && required)
        return vt_fail(err, VT_ERR_FORMAT, "%s: \"%s\" is missing", path, key);
    return VT_OK;
}

static vt_status wrong_kind(const char *path, const char *key, const json_t *v, const char *want,
                            vt_err *err)
{
    return vt_fail(err, VT_ERR_FORMAT, "%s: \"%s\" is %s; %s was expected", path, key, kind_of(v),
                   want);
}

vt_status vt_read_f64(const char *path, const json_t *object, const char *key, bool required,
                      double *out, vt_err *err)
{
    const json_t *v;
    TRY(find(path, object, key, required, &v, err));
    if (v && !json_is_number(v))
        return wrong_kind(path, key, v, "a number", err);
    if (v)
        *out = json_number_value(v);
    return VT_OK;
}

vt_status vt_read_i32(const char *path, const json_t *object, const char *key, bool required,
                      int32_t *out, vt_err *err)
{
    double d = *out;
    TRY(vt_read_f64(path, object, key, required, &d, err));
    if (!(d >= INT32_MIN && d <= INT32_MAX) || d != floor(d))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: \"%s\" is %.17g; a whole number of 32 bits was expected", path, key, d);
    *out = (int32_t)d;
    return VT_OK;
}

vt_status vt_read_bool(const char *path, const json_t *object, const char *key, bool required,
                       bool *out, vt_err *err)
{
    const json_t *v;
    TRY(find(path, object, key, required, &v, err));
    if (v && !json_is_boolean(v))
        return wrong_kind(path, key, v, "true or false", err);
    if (v)
        *out = json_is_true(v);
    return VT_OK;
}

vt_status vt_read_str(const char *path, const json_t *object, const char *key, bool required,
                      const char **out, vt_err *err)
{
    const json_t *v;
    TRY(find(path, object, key, required, &v, err));
    if (v && !json_is_string(v))
        return wrong_kind(path, key, v, "a string", err);
    if (v)
        *out = json_string_value(v);
    return VT_OK;
}
