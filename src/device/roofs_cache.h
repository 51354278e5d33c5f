/* Measured roofs on disk: one file per machine in $VITRINE_CACHE or ~/.cache/vitrine. */
#ifndef VT_DEVICE_ROOFS_CACHE_H
#define VT_DEVICE_ROOFS_CACHE_H

#include "device/roofs.h"

/* Reads the file roofs-<key>.json; every character of the key but letters and digits becomes '-'.
 * Fills the figures of r, and near_bytes_per_s for this working set. A file that is missing, broken
 * or of another version changes nothing. */
void roofs_cache_read(const char *key, vt_roofs *r, int64_t working_set);
/* Writes the file, adding r's near working set to those in it. Failing to write is no error. */
void roofs_cache_write(const char *key, const vt_roofs *r);

#endif
