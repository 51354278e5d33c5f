#include "openai/json_load.h"

#include <stdint.h>
#include <string.h>

#include "base/err.h"

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

/* An upper bound of the parsed values' size. The text need not be valid JSON: what jansson builds
 * before it meets a mistake is counted here too. */
static uint64_t tree_bytes(const char *text, size_t len)
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

vt_status vt_openai_json_load(const char *text, size_t len, json_t **out, vt_openai_error *e)
{
    json_error_t why;
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    if (len > VT_OPENAI_MAX_TEXT)
        return vt_openai_refuse(e, 400, NULL, "a request of %zu bytes, expected at most %d", len,
                                VT_OPENAI_MAX_TEXT);
    if (tree_bytes(text, len) > VT_OPENAI_MAX_TREE)
        return vt_openai_refuse(e, 400, NULL,
                                "the JSON has so many values that they would take more than %d MiB",
                                VT_OPENAI_MAX_TREE >> 20);
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!j)
        return vt_openai_refuse(e, 400, NULL, "not JSON: %s (line %d, column %d)", why.text,
                                why.line, why.column);
    *out = j;
    return VT_OK;
}
