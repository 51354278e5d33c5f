/* Measured roofs on disk: one file a machine in $VITRINE_CACHE or ~/.cache/vitrine. */
#ifndef VT_DEVICE_ROOFS_CACHE_H
#define VT_DEVICE_ROOFS_CACHE_H

#include "device/roofs.h"

/* `key` names the file: roofs-<key>.json, what is no letter or digit in it becomes '-'. Fills the
 * figures of r, and near_bytes_per_s for this working set; a file that is missing, broken or of
 * another version changes nothing. */
void roofs_cache_read(const char *key, vt_roofs *r, int64_t working_set);
/* Adds r's near working set to those the file has. Failing is no error. */
void roofs_cache_write(const char *key, const vt_roofs *r);

#endif
