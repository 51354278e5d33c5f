/* Writing JSON: one call a member, so that a name always stands beside its value.
 *
 *     vt_json w;
 *     vt_json_begin(&w, &buf, 2);                      // 2: indent; -1: everything on one line
 *     vt_json_open(&w, NULL, '{');
 *     vt_json_string(&w, "name", model->name);
 *     vt_json_quantity(&w, "step", 1.23, "us", "measured");   // {"value":1.23,"unit":"us",...}
 *     vt_json_open(&w, "ids", '[');
 *     vt_json_int(&w, NULL, 7);                        // an element of a list has no key
 *     vt_json_close(&w);
 *     vt_json_close(&w);
 *     bool ok = vt_json_end(&w);
 *
 * The writer appends to a vt_buf, the caller's or its own (vt_json_object). The buffer's limit and
 * `failed` flag stand for all errors of memory: only vt_json_end needs to be looked at. Members
 * that open a container below the depth limit, or close one that is not open, are mistakes of the
 * caller and are asserted. */
#ifndef VT_BASE_JSON_WRITE_H
#define VT_BASE_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { VT_JSON_MAX_DEPTH = 64 };

typedef struct vt_json {
    vt_buf *out; /* the text */
    vt_buf own;  /* the text where it is the writer's own: such a writer must not be moved */
    bool whole;  /* vt_json_end closes the outermost object */
    int indent;  /* spaces a level; negative: one line */
    int depth;
    char close[VT_JSON_MAX_DEPTH]; /* the bracket that ends each open container */
    bool some[VT_JSON_MAX_DEPTH];  /* whether that container has a member already */
} vt_json;

void vt_json_begin(vt_json *w, vt_buf *out, int indent);
/* Begins one line in a text of the writer's own, which vt_json_release releases. */
void vt_json_line(vt_json *w);
/* The same with an open object, which vt_json_end closes. */
void vt_json_object(vt_json *w);
/* True when every container is closed and nothing failed. */
bool vt_json_end(vt_json *w);
void vt_json_release(vt_json *w);

/* `bracket` is '{' or '['. `key` is NULL for the outermost value and inside lists. */
void vt_json_open(vt_json *w, const char *key, char bracket);
void vt_json_close(vt_json *w);

/* NULL becomes null. Bytes that are not UTF-8 become U+FFFD; NUL becomes \u0000. */
void vt_json_string(vt_json *w, const char *key, const char *s);
void vt_json_string_n(vt_json *w, const char *key, const char *s, size_t n);
void vt_json_printf(vt_json *w, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void vt_json_int(vt_json *w, const char *key, int64_t value);
/* The same; a negative value is not known, and null. */
void vt_json_known(vt_json *w, const char *key, int64_t value);
/* A list of numbers. */
void vt_json_ints(vt_json *w, const char *key, const int32_t *value, int32_t n);
/* The shortest decimal form that reads back as the same double; null where it is not finite. */
void vt_json_real(vt_json *w, const char *key, double value);
/* The same that reads back as the same float: fewer digits, and found faster. */
void vt_json_float(vt_json *w, const char *key, float value);
/* Like vt_json_real, rounded to this number of digits after the point. */
void vt_json_fixed(vt_json *w, const char *key, double value, int digits);
void vt_json_bool(vt_json *w, const char *key, bool value);
void vt_json_null(vt_json *w, const char *key);
/* A value that is JSON already. */
void vt_json_raw(vt_json *w, const char *key, const char *json, size_t n);
/* Ends and releases the other writer, whose text becomes the value. */
void vt_json_take(vt_json *w, const char *key, vt_json *other);
/* {"value": v, "unit": "us", "tag": "measured"}; a value that is not finite becomes null with the
 * tag "n/a". A unit of NULL is left out. */
void vt_json_quantity(vt_json *w, const char *key, double value, const char *unit, const char *tag);
/* The same without a unit, rounded to this number of digits after the point. */
void vt_json_tagged(vt_json *w, const char *key, double value, int digits, const char *tag);

#endif
