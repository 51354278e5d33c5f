/* JSON from strangers, parsed under a limit of memory. */
#ifndef VT_OPENAI_JSON_LOAD_H
#define VT_OPENAI_JSON_LOAD_H

#include <jansson.h>

#include "openai/error.h"

enum {
    VT_OPENAI_MAX_TEXT = 16 << 20, /* bytes of JSON in one request */
    VT_OPENAI_MAX_TREE = 16 << 20  /* bytes of the parsed values, the text of strings not counted */
};

/* Parses one JSON value. A UTF-8 byte order mark in front is skipped; U+0000 in strings is allowed;
 * an object that has a name twice is refused. jansson takes up to 75 bytes for one byte of JSON, so
 * the size of the parsed values is estimated first, and a text beyond a limit above is refused
 * (status 400) before anything is allocated. *out is the caller's: json_decref. */
vt_status vt_openai_json_load(const char *text, size_t len, json_t **out, vt_openai_error *e);

#endif
