/* A whole file as read-only memory. */
#ifndef VT_FILES_MAP_H
#define VT_FILES_MAP_H

#include <stddef.h>

#include "base/err.h"

/* An empty file, a folder or a device is refused by name. The mapping outlives the descriptor. */
vt_status file_map(const char *path, const void **out, size_t *size, vt_err *err);
void file_unmap(const void *map, size_t size);

#endif
