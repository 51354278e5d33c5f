/* JSON read into one flat array of nodes, for files of tens of megabytes (tokenizer.json): a value
 * is followed by its children, `next` skips them. Strings without escapes point into the input,
 * which has to stay. */
#ifndef VT_TEXT_JSON_H
#define VT_TEXT_JSON_H

#include "base/err.h"
#include "base/mem.h"

typedef enum json_node_type {
    JSON_T_NULL,
    JSON_T_FALSE,
    JSON_T_TRUE,
    JSON_T_NUMBER,
    JSON_T_STRING,
    JSON_T_ARRAY,
    JSON_T_OBJECT
} json_node_type;

typedef struct json_node {
    json_node_type type;
    uint32_t len;  /* bytes of a string; elements; members (each a key node and a value node) */
    uint32_t next; /* index of the first node behind this value */
    union {
        const char *s;
        double number;
    };
} json_node;

typedef struct json_doc {
    json_node *node; /* node[0] is the root */
    uint32_t n, cap;
    vt_arena strings;
} json_doc;

/* `name` is used in messages, which carry the line. */
vt_status json_parse(const char *name, const char *text, size_t len, json_doc *doc, vt_err *err);
void json_release(json_doc *doc);

/* The member of an object (of two equal keys the last); NULL if it is absent or null, or v is no
 * object. */
const json_node *json_get(const json_doc *doc, const json_node *v, const char *key);
bool json_is(const json_node *v, const char *s);    /* a string equal to s */
bool json_bool(const json_node *v, bool otherwise); /* `otherwise` if v is NULL or no boolean */
/* Iteration: for (c = json_first(v); c; c = json_after(doc, v, c)) over elements, or keys and
 * values in turn. */
const json_node *json_first(const json_node *v);
const json_node *json_after(const json_doc *doc, const json_node *v, const json_node *c);

#endif
