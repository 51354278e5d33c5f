/* Small JSON files through jansson: bounded, duplicate keys refused, typed access with the messages
 * people need. All numbers are read as doubles, because configuration files hold integers beyond
 * 64 bits ("model_max_length": 1000000000000000019884624838656). Words that Python writes beside
 * JSON are read too: Infinity as 1e308, NaN as null ("time_step_limit": [0.0, Infinity]).
 *
 * jansson takes up to 75 bytes of memory for a byte of JSON ("{},{},..."), so this is for files of
 * at most a megabyte or so; larger ones are read with files/json_flat.h (at most 12 for one). */
#ifndef VT_FILES_JSON_H
#define VT_FILES_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* An upper bound of the memory that jansson takes for the values of this text, beside the text of
 * strings. The text need not be valid JSON: what jansson builds before it meets a mistake is
 * counted too. */
uint64_t vt_json_tree_bytes(const char *text, size_t len);

/* Parses as json_loadb does. An integer beyond 64 bits, which jansson refuses, becomes the nearest
 * double: schemas have bounds such as 18446744073709551615. */
json_t *vt_json_parse(const char *text, size_t len, size_t flags, json_error_t *why);

/* Limits on what others' JSON may take in memory where a program reads a file that a person
 * named. */
#define VT_JSON_MAX_TREE (UINT64_C(256) << 20)
enum { VT_JSON_SHOWN = 64 };

/* Parses one value as vt_json_parse does. A text whose values would take more than max_tree bytes
 * is refused before anything is allocated. `name` stands in messages. */
vt_status vt_json_load(const char *name, const char *text, size_t len, size_t flags,
                       uint64_t max_tree, json_t **out, vt_err *err);

/* A JSON object in a file of at most max_bytes; json_decref it. An absent file is VT_ERR_IO. */
vt_status vt_read_json(const char *path, size_t max_bytes, json_t **out, vt_err *err);
vt_status vt_read_json_text(const char *path, const char *text, size_t len, json_t **out,
                            vt_err *err);

/* Reads member `key` of `object`. A member that is absent or null is an error if it is required;
 * else *out keeps what it was. `path` is used in messages. */
vt_status vt_read_i32(const char *path, const json_t *object, const char *key, bool required,
                      int32_t *out, vt_err *err);
vt_status vt_read_f64(const char *path, const json_t *object, const char *key, bool required,
                      double *out, vt_err *err);
/* Reads a member that may be absent. */
vt_status vt_read_f32(const char *path, const json_t *object, const char *key, float *out,
                      vt_err *err);
vt_status vt_read_bool(const char *path, const json_t *object, const char *key, bool required,
                       bool *out, vt_err *err);
/* *out belongs to the object. */
vt_status vt_read_str(const char *path, const json_t *object, const char *key, bool required,
                      const char **out, vt_err *err);
/* Returns what a value is, for messages: "a string"; of NULL "missing". */
const char *vt_json_kind(const json_t *v);
/* Fails unless v, the member `key`, is an object. NULL: it is missing. */
vt_status vt_check_object(const char *path, const char *key, const json_t *v, vt_err *err);
/* Fails unless v, the member `key`, is an array. NULL: it is missing. */
vt_status vt_check_list(const char *path, const char *key, const json_t *v, vt_err *err);
/* Fails unless v, the member `key`, is an array of n values. NULL: it is missing. */
vt_status vt_check_array(const char *path, const char *key, const json_t *v, size_t n, vt_err *err);
/* Reads value i of an array, the member `key`: a whole number from `least` to `most`. */
vt_status vt_read_nth(const char *path, const char *key, const json_t *array, size_t i,
                      int32_t least, int32_t most, int32_t *out, vt_err *err);
/* Writes a value to `out`, for messages: a number or a text itself, of others what they are. */
const char *vt_json_show(const json_t *v, char out[VT_JSON_SHOWN]);
/* The member itself, NULL where it is absent or null. */
const json_t *vt_read_member(const json_t *object, const char *key);

#endif
