/* Roofs as JSON: in the cache, one file per machine in $VITRINE_CACHE or ~/.cache/vitrine, and in
 * what `vitrine env --json` prints.
 *
 *   {"copy_bytes_per_s": {"value": 3.24e10, "working_set_bytes": 67108864,
 *                         "date": "2026-11-22T14:05:00Z", "tag": "measured", "how": null}, ...} */
#ifndef VT_DEVICE_ROOFS_ROOFS_CACHE_H
#define VT_DEVICE_ROOFS_ROOFS_CACHE_H

#include <jansson.h>

#include "base/json_write.h"
#include "device/roofs/roofs.h"

/* Reads the file roofs-<key>.json; every character of the key but letters and digits becomes '-'.
 * Fills the figures of r, and near_bytes_per_s for this working set, but those whose tag is
 * `disturbed` and whose date is more than a minute ago. A file that is missing, broken or of
 * another version changes no figure. */
void roofs_cache_read(const char *key, vt_roofs *r, int64_t working_set);
/* True if the figure is not in the file, or is to be measured again. One that was disturbed then
 * counts for nothing. */
bool roofs_lacks(vt_roofs *r, int kind, bool again);
/* Writes the file with r's figures, adding its near working set to those in it. Failing to write is
 * no error. */
void roofs_cache_write(const char *key, const vt_roofs *r);

/* The rates of weights of all sizes in r's file: out[i] has one as near_bytes_per_s. Returns how
 * many, at most `most`. */
int32_t roofs_cache_weights(const vt_roofs *r, vt_roofs *out, int32_t most);

/* Writes the figures as the object above. */
void roofs_put_figures(vt_json *w, const char *key, const vt_roofs *r);
/* Reads them; figures that are missing or make no sense are left as they are. Returns how many were
 * read. */
int32_t roofs_get_figures(const json_t *figures, vt_roofs *r);
/* A date as text; null for 0. */
void roofs_put_date(vt_json *w, const char *key, int64_t when);
int64_t roofs_get_date(const json_t *o, const char *key); /* 0: there is none */

/* True within a minute (VITRINE_DISTURBED_LIMIT) of that time: as long as a figure is kept that was
 * measured while other programs were in the way. */
bool roofs_moment_ago(int64_t when);

/* The JSON in the cache's file <kind>-<key>.json, or NULL; and writing one. */
json_t *roofs_cache_load(const char *kind, const char *key);
void roofs_cache_save(const char *kind, const char *key, const vt_buf *text);

#endif
