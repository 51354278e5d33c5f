/* JSON read into one flat array of nodes, for files of tens of megabytes (tokenizer.json): a value
 * is followed by its children, and `next` is the first node after them. A node takes 24 bytes, and
 * a text may have 16 million of them. Strings without escapes point into the input,
 * which has to stay. */
#ifndef VT_FILES_JSON_FLAT_H
#define VT_FILES_JSON_FLAT_H

#include "base/err.h"
#include "base/mem.h"

typedef enum vt_flat_type {
    VT_FLAT_NULL,
    VT_FLAT_FALSE,
    VT_FLAT_TRUE,
    VT_FLAT_NUMBER,
    VT_FLAT_STRING,
    VT_FLAT_ARRAY,
    VT_FLAT_OBJECT
} vt_flat_type;

typedef struct vt_flat_node {
    vt_flat_type type;
    uint32_t len;  /* bytes of a string; elements; members (each a key node and a value node) */
    uint32_t next; /* index of the first node after this value */
    union {
        const char *s;
        double number;
    };
} vt_flat_node;

typedef struct vt_flat_doc {
    vt_flat_node *node; /* node[0] is the root */
    uint32_t n, cap;
    vt_arena strings;
} vt_flat_doc;

/* `name` is used in messages, which carry the line. */
vt_status vt_flat_parse(const char *name, const char *text, size_t len, vt_flat_doc *doc,
                        vt_err *err);
void vt_flat_release(vt_flat_doc *doc);

/* The member of an object (of two equal keys the last); NULL if it is absent or null, or v is no
 * object. */
const vt_flat_node *vt_flat_get(const vt_flat_doc *doc, const vt_flat_node *v, const char *key);
/* Returns what a value is, for messages: "a string"; of NULL "missing". */
const char *vt_flat_kind(const vt_flat_node *v);
bool vt_flat_is(const vt_flat_node *v, const char *s); /* a string equal to s */
bool vt_flat_bool(const vt_flat_node *v,
                  bool otherwise); /* `otherwise` if v is NULL or no boolean */
/* Iteration: for (c = vt_flat_first(v); c; c = vt_flat_after(doc, v, c)) over elements, or keys and
 * values in turn. */
const vt_flat_node *vt_flat_first(const vt_flat_node *v);
const vt_flat_node *vt_flat_after(const vt_flat_doc *doc, const vt_flat_node *v,
                                  const vt_flat_node *c);

#endif
