/* The cache on disk: where it is, how its folders are made, and whether its files can be trusted.
 *
 *   $VITRINE_CACHE, or ~/.cache/vitrine
 *       models/   cubin/   roofs-<key>.json
 *
 * Folders are made accessible to their owner alone (mode 0700), because a cubin in the cache is
 * code that runs on the owner's GPU, and a model given by its name alone is loaded from the
 * cache. */
#ifndef VT_BASE_CACHE_DIR_H
#define VT_BASE_CACHE_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/* Writes the path of `name` inside the cache; name "" gives the cache's own folder. Fails if
 * neither VITRINE_CACHE nor HOME is set, or if the path does not fit. */
vt_status vt_cache_path(const char *name, char *out, size_t size, vt_err *err);

/* Makes a folder and all missing folders above it, each with mode 0700. Folders that exist are left
 * as they are. */
vt_status vt_make_folders(const char *path, vt_err *err);

/* Makes the folders above a file. */
vt_status vt_make_folders_above(const char *path, vt_err *err);

/* Checks that only this user or root can change the open file or folder: one of the two owns it,
 * and neither group nor others may write to it. If not, VT_ERR_IO names `path` and what is
 * wrong. */
vt_status vt_check_private(int fd, const char *path, vt_err *err);

/* Writing a file so that readers see either the old bytes or all of the new ones: the bytes go to a
 * temporary file in the same folder, whose name cannot be predicted, and that is then renamed. */
typedef struct vt_new_file {
    FILE *file;
    char temporary[1200];
    bool owner_only; /* set it after vt_new_file_begin: the file gets mode 0600, not 0644 */
} vt_new_file;

vt_status vt_new_file_begin(vt_new_file *f, const char *path, vt_err *err);
/* Closes the file. If `keep` is true and nothing failed, renames it to `path`; else removes it. */
vt_status vt_new_file_end(vt_new_file *f, const char *path, bool keep, vt_err *err);

#endif
