/* JSON files through jansson: bounded, duplicate keys refused, typed access with the messages
 * people need. All numbers are read as doubles, because configuration files hold integers beyond
 * 64 bits ("model_max_length": 1000000000000000019884624838656). */
#ifndef VT_FILES_JSON_H
#define VT_FILES_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A JSON object in a file of at most max_bytes; json_decref it. An absent file is VT_ERR_IO. */
vt_status json_file_load(const char *path, size_t max_bytes, json_t **out, vt_err *err);
vt_status json_file_parse(const char *path, const char *text, size_t len, json_t **out,
                          vt_err *err);

/* Member `key` of `object`. Absent and null are the same: an error if required, else *out stays.
 * `path` is used in messages. */
vt_status json_get_i32(const char *path, const json_t *object, const char *key, bool required,
                       int32_t *out, vt_err *err);
vt_status json_get_f64(const char *path, const json_t *object, const char *key, bool required,
                       double *out, vt_err *err);
vt_status json_get_bool(const char *path, const json_t *object, const char *key, bool required,
                        bool *out, vt_err *err);
/* Borrowed from the object. */
vt_status json_get_str(const char *path, const json_t *object, const char *key, bool required,
                       const char **out, vt_err *err);
/* The member itself, NULL where it is absent or null. */
const json_t *json_member(const json_t *object, const char *key);

#endif
