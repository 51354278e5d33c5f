#include "openai/json_load.h"

#include <string.h>

#include "base/err.h"
#include "files/json.h"

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
    if (vt_json_tree_bytes(text, len) > VT_OPENAI_MAX_TREE)
        return vt_openai_refuse(e, 400, NULL,
                                "the JSON has so many values that they would take more than %d MiB",
                                VT_OPENAI_MAX_TREE >> 20);
    json_t *j = vt_json_parse(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!j)
        return vt_openai_refuse(e, 400, NULL, "not JSON: %s (line %d, column %d)", why.text,
                                why.line, why.column);
    *out = j;
    return VT_OK;
}
