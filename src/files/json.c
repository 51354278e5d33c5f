/* Typed access to JSON objects. The getters exist so that every message about a configuration file
 * names the file, the key, what was found and what was expected. */
#include "files/json.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
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

/* The length of a number's text. */
static size_t number_length(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && (isdigit((unsigned char)text[n]) || (text[n] && strchr("+-.eE", text[n]))))
        n++;
    return n;
}

/* Returns true where the number is an integer that 64 bits with a sign do not hold. */
static bool is_wide(const char *text, size_t n)
{
    enum { DIGITS = 20 }; /* of INT64_MIN, its sign included */
    char copy[DIGITS + 1];
    for (size_t i = 0; i < n; i++)
        if (text[i] == '.' || text[i] == 'e' || text[i] == 'E')
            return false;
    if (n > DIGITS)
        return true;
    memcpy(copy, text, n);
    copy[n] = 0;
    errno = 0;
    strtoll(copy, NULL, 10);
    return errno == ERANGE;
}

/* Writes what stands in the place of the beginning of `text`, outside of strings, and returns how
 * many bytes of it that replaces; 0: the byte is copied. */
typedef size_t edit_fn(const char *text, size_t len, vt_buf *out);

/* ".0" behind an integer that 64 bits do not hold. */
static size_t widen(const char *text, size_t len, vt_buf *out)
{
    size_t n = number_length(text, len);
    vt_buf_add(out, text, n);
    if (n > 0 && is_wide(text, n))
        vt_buf_puts(out, ".0");
    return n;
}

/* A number or null for the words that Python writes for numbers that are not finite. */
static size_t spell_out(const char *text, size_t len, vt_buf *out)
{
    static const char *const words[][2] = {{"Infinity", "1e308   "}, {"NaN", "null"}};
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(words[k][0]);
        if (n > len || memcmp(text, words[k][0], n) != 0)
            continue;
        vt_buf_puts(out, words[k][1]);
        return n;
    }
    return 0;
}

/* Copies JSON, edited outside of its strings. */
static bool copy_edited(const char *text, size_t len, edit_fn *edit, vt_buf *out)
{
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        size_t n = in_string ? 0 : edit(text + i, len - i, out);
        if (n > 0) {
            i += n - 1;
            continue;
        }
        vt_buf_putc(out, c);
        if (in_string && c == '\\' && i + 1 < len)
            vt_buf_putc(out, text[++i]);
        else if (c == '"')
            in_string = !in_string;
    }
    return !out->failed;
}

/* Parses JSON, and once more with the edit if it was refused for this reason. */
static json_t *parse(const char *text, size_t len, size_t flags, enum json_error_code reason,
                     edit_fn *edit, json_error_t *why)
{
    json_t *json = json_loadb(text, len, flags, why);
    vt_buf edited;
    if (json || json_error_code(why) != reason)
        return json;
    vt_buf_init(&edited, 0);
    if (copy_edited(text, len, edit, &edited))
        json = json_loadb(edited.data, edited.len, flags, why);
    vt_buf_release(&edited);
    return json;
}

json_t *vt_json_parse(const char *text, size_t len, size_t flags, json_error_t *why)
{
    json_error_t own;
    return parse(text, len, flags, json_error_numeric_overflow, widen, why ? why : &own);
}

vt_status vt_json_load(const char *name, const char *text, size_t len, size_t flags,
                       uint64_t max_tree, json_t **out, vt_err *err)
{
    json_error_t why;
    if (vt_json_tree_bytes(text, len) > max_tree)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: the JSON has so many values that they would take more than %llu MiB",
                       name, (unsigned long long)max_tree >> 20);
    json_t *root = vt_json_parse(text, len, flags, &why);
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
    /* Python may have written the file */
    json_t *root = parse(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL,
                         json_error_invalid_syntax, spell_out, &e);
    if (!root)
        return vt_fail(err, VT_ERR_FORMAT, "%s: not valid JSON: line %d, column %d: %s", path,
                       e.line, e.column, e.text);
    if (!json_is_object(root)) {
        vt_fail(err, VT_ERR_FORMAT, "%s: the file holds %s; an object was expected", path,
                vt_json_kind(root));
        json_decref(root);
        return VT_ERR_FORMAT;
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

const char *vt_json_kind(const json_t *v)
{
    if (!v)
        return "missing";
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
    return vt_fail(err, VT_ERR_FORMAT, "%s: \"%s\" is %s; %s was expected", path, key,
                   vt_json_kind(v), want);
}

vt_status vt_check_array(const char *path, const char *key, const json_t *v, size_t n, vt_err *err)
{
    if (json_is_array(v) && json_array_size(v) == n)
        return VT_OK;
    if (json_is_array(v))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: \"%s\" is an array of %zu; an array of %zu was expected", path, key,
                       json_array_size(v), n);
    return vt_fail(err, VT_ERR_FORMAT, "%s: \"%s\" is %s; an array of %zu was expected", path, key,
                   vt_json_kind(v), n);
}

vt_status vt_check_list(const char *path, const char *key, const json_t *v, vt_err *err)
{
    return json_is_array(v) ? VT_OK : wrong_kind(path, key, v, "an array", err);
}

vt_status vt_check_object(const char *path, const char *key, const json_t *v, vt_err *err)
{
    return json_is_object(v) ? VT_OK : wrong_kind(path, key, v, "an object", err);
}

const char *vt_json_show(const json_t *v, char out[VT_JSON_SHOWN])
{
    if (json_is_number(v))
        snprintf(out, VT_JSON_SHOWN, "%.10g", json_number_value(v));
    else if (json_is_string(v))
        snprintf(out, VT_JSON_SHOWN, "\"%.40s\"", json_string_value(v));
    else if (json_is_boolean(v))
        snprintf(out, VT_JSON_SHOWN, "%s", json_is_true(v) ? "true" : "false");
    else
        snprintf(out, VT_JSON_SHOWN, "%s", vt_json_kind(v));
    return out;
}

vt_status vt_read_nth(const char *path, const char *key, const json_t *array, size_t i,
                      int32_t least, int32_t most, int32_t *out, vt_err *err)
{
    char shown[VT_JSON_SHOWN];
    const json_t *v = json_array_get(array, i);
    double d = json_number_value(v);
    if (!json_is_number(v) || !(d >= least && d <= most) || d != floor(d))
        return vt_fail(
            err, VT_ERR_FORMAT,
            "%s: \"%s\" holds %s in place %zu; a whole number from %d to %d was expected", path,
            key, vt_json_show(v, shown), i, least, most);
    *out = (int32_t)d;
    return VT_OK;
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

vt_status vt_read_f32(const char *path, const json_t *object, const char *key, float *out,
                      vt_err *err)
{
    double v = (double)*out;
    TRY(vt_read_f64(path, object, key, false, &v, err));
    *out = (float)v;
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
